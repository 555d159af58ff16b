/* What does mprotect cost for each 2 MiB page, and is one split?
 *
 * Usage: huge_protect [ROUNDS [SIZE_IN_MIB]]
 *
 * The memory asks for huge pages by madvise, so that the settings always and madvise are alike.
 */
#include "experiment.h"

#define HUGE (2 * MIB)

/* KiB of this process's memory in 2 MiB pages. */
static unsigned long huge_kib(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kib = 0;
	char line[128];
	MUST(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "AnonHugePages: %lu kB", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

/* One byte of each 2 MiB. */
static void write_each(char *memory, size_t size)
{
	for (size_t offset = 0; offset < size; offset += HUGE)
		((volatile char *)memory)[offset + 12345]++;
}

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 4);
	size_t size = argument(count, arguments, 2, 1024) * MIB, pages = size / HUGE;
	struct series first = { 0 }, second = { 0 };
	char name[64];
	MUST(rounds > 0 && pages > 0 && size % HUGE == 0);
	begin();
	/* Every experiment but this one wants small pages. */
	MUST(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
	char *room = mmap(NULL, size + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(room != MAP_FAILED);
	char *memory = (char *)(((uintptr_t)room + HUGE) & ~(uintptr_t)(HUGE - 1));
	MUST(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
	MUST(madvise(memory, size, MADV_HUGEPAGE) == 0);
	struct counters at_first = counters_now();
	for (size_t offset = 0; offset < size; offset += HUGE) {
		uint64_t start = clock_now();
		((volatile char *)memory)[offset] = 1;
		add_value(&first, clock_now() - start);
	}
	snprintf(name, sizeof name, "%lu MiB, first write", size / MIB);
	record_series(name, "of a 2 MiB page", "instructions", &first);
	record_counters(name, at_first, counters_now(), 1);
	uint64_t begun = clock_now();
	write_each(memory, size);
	add_value(&second, clock_now() - begun);
	unsigned long before_kib = huge_kib();
	struct protection costs = protect_rounds(memory, size, rounds, write_each);
	unsigned long after_kib = huge_kib();
	snprintf(name, sizeof name, "%lu MiB", size / MIB);
	record_value(name, "in 2 MiB pages before", "MiB", (double)before_kib / 1024);
	record_value(name, "in 2 MiB pages after", "MiB", (double)after_kib / 1024);
	record_value(name, "mprotect(R), per 2 MiB page", "instructions", (double)costs.read_only.sum / rounds / pages);
	record_value(name, "mprotect(RW), per 2 MiB page", "instructions", (double)costs.read_write.sum / rounds / pages);
	record_value(name, "second write, per 2 MiB page", "instructions", (double)second.sum / pages);
	record_value(name, "write after it, per 2 MiB page", "instructions", (double)costs.writes.sum / rounds / pages);
	record_counters(name, costs.before, costs.after, rounds);
	print_records();
	return 0;
}
