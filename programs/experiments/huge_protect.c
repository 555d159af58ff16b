/* What does mprotect cost for each 2 MiB page, and does it split the page? What do the first write and a split cost?
 *
 * Usage: huge_protect [ROUNDS [SIZE_IN_MIB]]
 *
 * The memory has MADV_HUGEPAGE, so that the settings always and madvise are alike. The first write is also given without the
 * cost of zeroing as much in the program itself, eight bytes with each instruction of a REP STOSQ. A page is split by
 * discarding 4 KiB of it; the cost of discarding 4 KiB more afterwards is subtracted.
 */
#include "experiment.h"

#define HUGE (2 * MIB)

/* Returns the KiB of this process's memory that are in 2 MiB pages. */
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

/* Writes one byte of each 2 MiB. */
static void write_each(char *memory, size_t size)
{
	for (size_t offset = 0; offset < size; offset += HUGE)
		((volatile char *)memory)[offset + 12345]++;
}

/* Returns the number of instructions for zeroing a populated 2 MiB page. */
static uint64_t zeroing(char *page)
{
	uint64_t words = HUGE / 8, start = clock_now();
	__asm__ volatile("rep stosq" : "+D"(page), "+c"(words) : "a"(0UL) : "memory");
	return clock_now() - start;
}

/* Returns the number of instructions for discarding one page. */
static uint64_t giving_up(char *page)
{
	uint64_t start = clock_now();
	MUST(madvise(page, PAGE, MADV_DONTNEED) == 0);
	return clock_now() - start;
}

/* Splits each 2 MiB page. */
static void split_each(char *memory, size_t size)
{
	const char *name = "split of a 2 MiB page";
	uint64_t whole = 0, part = 0;
	unsigned long before_kib = huge_kib();
	for (size_t offset = 0; offset < size; offset += HUGE) {
		whole += giving_up(memory + offset + 7 * PAGE);
		part += giving_up(memory + offset + 9 * PAGE);
	}
	record_value(name, "per 4 KiB entry made", "instructions", ((double)whole - part) / (size / PAGE));
	record_value(name, "pages split", "pages of 2 MiB", (double)(before_kib - huge_kib()) / (HUGE / KIB));
}

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 4);
	size_t size = argument(count, arguments, 2, 1024) * MIB, pages = size / HUGE;
	struct series first = { 0 }, beyond = { 0 }, second = { 0 };
	char name[64];
	MUST(rounds > 0 && pages > 0 && size % HUGE == 0);
	begin();
	/* The other experiments use small pages only. */
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
		uint64_t whole = clock_now() - start, zeroes = zeroing(memory + offset);
		add_value(&first, whole);
		add_value(&beyond, whole > zeroes ? whole - zeroes : 0);
	}
	snprintf(name, sizeof name, "%lu MiB, first write", size / MIB);
	record_series(name, "of a 2 MiB page", "instructions", &first);
	record_series(name, "of a 2 MiB page, beyond zeroing it", "instructions", &beyond);
	record_counters(name, at_first, counters_now(), pages);
	uint64_t begun = clock_now();
	write_each(memory, size);
	add_value(&second, clock_now() - begun);
	unsigned long before_kib = huge_kib();
	struct protection costs = protect_rounds(memory, size, rounds, write_each);
	unsigned long after_kib = huge_kib();
	snprintf(name, sizeof name, "%lu MiB", size / MIB);
	record_value(name, "in 2 MiB pages before", "MiB", (double)before_kib / 1024);
	record_value(name, "in 2 MiB pages after", "MiB", (double)after_kib / 1024);
	record_parts(name, "mprotect(R), per 2 MiB page", "instructions", &costs.read_only, pages);
	record_parts(name, "mprotect(RW), per 2 MiB page", "instructions", &costs.read_write, pages);
	record_parts(name, "second write, per 2 MiB page", "instructions", &second, pages);
	record_parts(name, "write after it, per 2 MiB page", "instructions", &costs.writes, pages);
	record_ratio(name, "write after it / second write", &costs.writes, &second);
	record_counters(name, costs.before, costs.after, rounds);
	split_each(memory, size);
	print_records();
	return 0;
}
