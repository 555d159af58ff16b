/* One mprotect over 64 areas: how much work, and how many flushes?
 *
 * Pages alternate between two protections, so that each is an area. One call gives all of them the same. A kernel that
 * gathers what it must invalidate flushes once; others flush once for each area.
 *
 * Usage: many_areas [ROUNDS]
 */
#include "experiment.h"

enum { AREAS = 64 };

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 1000);
	struct series calls[2] = { 0 };
	uint64_t moved[2][COUNTERS] = { 0 };
	unsigned known = ~0u;
	static const char *const names[2] = { "64 areas become read-only", "64 areas become writable" };
	size_t size = AREAS * PAGE;
	MUST(rounds > 0);
	begin();
	char *memory = fresh_apart(size);
	write_pages(memory, size);
	for (unsigned long round = 0; round < rounds; round++) {
		for (int which = 0; which < 2; which++) {
			int wanted = which ? PROT_READ | PROT_WRITE : PROT_READ;
			MUST(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
			write_pages(memory, size);
			for (size_t page = 1; page < AREAS; page += 2)
				MUST(mprotect(memory + page * PAGE, PAGE, PROT_READ) == 0);
			read_pages(memory, size);
			struct counters before = counters_now();
			MARK_BEGIN(4);
			uint64_t start = clock_now();
			MUST(mprotect(memory, size, wanted) == 0);
			add_value(&calls[which], clock_now() - start);
			MARK_END(4);
			struct counters after = counters_now();
			known &= before.known & after.known;
			for (int i = 0; i < COUNTERS; i++)
				moved[which][i] += after.value[i] - before.value[i];
		}
	}
	for (int which = 0; which < 2; which++) {
		struct counters before = { .known = known }, after = { .known = known };
		memcpy(after.value, moved[which], sizeof after.value);
		record_series(names[which], "mprotect", "instructions", &calls[which]);
		record_counters(names[which], before, after, rounds);
	}
	print_records();
	return 0;
}
