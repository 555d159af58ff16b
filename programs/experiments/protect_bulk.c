/* What does mprotect cost for each page of a large populated mapping?
 *
 * Usage: protect_bulk [ROUNDS [SIZE_IN_KIB]...]
 */
#include "experiment.h"

static void one_case(size_t size, unsigned long rounds)
{
	size_t pages = size / PAGE;
	char *memory = fresh_apart(size);
	char name[64];
	write_pages(memory, size);
	struct protection costs = protect_rounds(memory, size, rounds, write_pages);
	snprintf(name, sizeof name, "%lu KiB", size / KIB);
	record_parts(name, "mprotect(R), per page", "instructions", &costs.read_only, pages);
	record_parts(name, "mprotect(RW), per page", "instructions", &costs.read_write, pages);
	record_parts(name, "write after it, per page", "instructions", &costs.writes, pages);
	record_counters(name, costs.before, costs.after, rounds);
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 4);
	MUST(rounds > 0);
	begin();
	if (count <= 2) {
		one_case(512 * KIB, rounds);
		one_case(1024 * MIB, rounds);
	}
	for (int i = 2; i < count; i++) {
		unsigned long kib = argument(count, arguments, i, 0);
		MUST(kib > 0 && kib % 4 == 0);
		one_case(kib * KIB, rounds);
	}
	print_records();
	return 0;
}
