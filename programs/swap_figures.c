/* Do the figures about swap match the facts: which process has a page in swap, and which pages are both in memory and
 * in swap?
 *
 * Pages are swapped out, a fork copies the swap entries, and one of the two processes swaps the pages in. Needs a
 * swap device.
 */
#include "check.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

enum { PAGES = 2048 };

static char *memory;

/* Returns a row of /proc/self/smaps for the memory, in pages. */
static long pages_of(const char *name)
{
	char line[512];
	long value = -1;
	int here = 0;
	size_t length = strlen(name);
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file != NULL);
	while (value < 0 && fgets(line, sizeof line, file)) {
		unsigned long start, end;
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)memory && (uintptr_t)memory < end;
		else if (here && strncmp(line, name, length) == 0 && line[length] == ':')
			value = atol(line + length + 1);
	}
	fclose(file);
	NEED(value >= 0);
	return value / 4;
}

static long cached(void)
{
	long rows[] = { row_in("/proc/meminfo", "SwapCached") / 4, row_in("/proc/vmstat", "nr_swapcached") };
	CHECK(labs(rows[0] - rows[1]) <= PAGES / 16);
	return rows[0];
}

static void load(void)
{
	for (size_t page = 0; page < PAGES; page++)
		CHECK_EQ(memory[page * PAGE], (char)(page % 100 + 1));
}

int main(void)
{
	struct turns turns;
	memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL && turns_open(&turns));
	madvise(memory, PAGES * PAGE, 15 /* MADV_NOHUGEPAGE */);
	for (size_t page = 0; page < PAGES; page++)
		memset(memory + page * PAGE, (int)(page % 100 + 1), PAGE);
	CHECK_EQ(pages_of("SwapPss"), 0);
	NEED(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	long out = pages_of("Swap");
	NEED(out > PAGES * 7 / 8);
	CHECK_EQ(pages_of("SwapPss"), out);
	long before = cached();
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		turn_await(turns.to_child);
		end_child();
	}
	/* Two swap entries refer to each slot. */
	CHECK_EQ(pages_of("Swap"), out);
	CHECK_EQ(pages_of("SwapPss"), out / 2);
	/* When this process swaps a page in, the page's slot is kept for the other process. */
	load();
	CHECK_EQ(pages_of("Swap"), 0);
	CHECK_EQ(pages_of("SwapPss"), 0);
	CHECK(labs(cached() - before - out) <= PAGES / 16);
	turn_pass(turns.to_child);
	CHECK(exited(wait_for(child), 0));
	munmap(memory, PAGES * PAGE);
	CHECK(labs(cached() - before) <= PAGES / 16);
	turns_close(&turns);
	return checked("swap_figures");
}
