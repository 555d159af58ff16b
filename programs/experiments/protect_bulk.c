/* What does mprotect cost for each page of a large populated mapping?
 *
 * Usage: protect_bulk [ROUNDS [SIZE_IN_KIB]...]
 */
#include "experiment.h"

static void one_case(size_t size, unsigned long rounds)
{
	struct series read_only = { 0 }, read_write = { 0 }, writes = { 0 };
	size_t pages = size / PAGE;
	char *memory = fresh_apart(size);
	char name[64];
	write_pages(memory, size);
	struct counters before = counters_now();
	MARK_BEGIN(3);
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = clock_now();
		MUST(mprotect(memory, size, PROT_READ) == 0);
		uint64_t middle = clock_now();
		MUST(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
		uint64_t end = clock_now();
		write_pages(memory, size);
		add_value(&writes, clock_now() - end);
		add_value(&read_only, middle - start);
		add_value(&read_write, end - middle);
	}
	MARK_END(3);
	struct counters after = counters_now();
	snprintf(name, sizeof name, "%lu KiB", size / KIB);
	record_value(name, "mprotect(R), per page", "instructions", (double)read_only.sum / rounds / pages);
	record_value(name, "mprotect(RW), per page", "instructions", (double)read_write.sum / rounds / pages);
	record_value(name, "write after it, per page", "instructions", (double)writes.sum / rounds / pages);
	record_counters(name, before, after, rounds);
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
