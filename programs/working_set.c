/* Which pages does a program use, and can all others be paged out without a fault on those that stay?
 *
 * The program keeps its working set in memory. In each interval it arms all of its memory (asynchronous read-write
 * protection of userfaultfd), accesses some pages, uses PAGEMAP_SCAN to find the pages in memory that were not
 * accessed, and pages them out. The pages that remain in memory are those that were accessed, and every byte must
 * still be right. Then the working set changes. Needs a swap device.
 *
 * Usage: working_set [SIZE_IN_MIB]
 */
#include "swap.h"
#include "access.h"

#define INTERVALS 4
#define ROOM 512

static int watcher, pagemap;
static char *memory;
static size_t pages;
static struct region regions[ROOM];

/* Returns the location of the number that each page contains at two offsets. */
static uint64_t *number_in(size_t page)
{
	return (uint64_t *)(memory + page * PAGE + 128);
}

static void fill(void)
{
	for (size_t page = 0; page < pages; page++)
		*number_in(page) = page * 7 + 1;
}

static void arm(void)
{
	MUST(uffd_arm(watcher, memory, pages * PAGE) == 0);
}

/* Calls `act`, if it is not NULL, with each run of pages that have these categories after inversion. Returns the total
 * number of these pages. */
static size_t each_run(uint64_t all, uint64_t inverted, void (*act)(char *start, size_t size))
{
	struct pagemap_scan scan = { .size = sizeof scan, .regions = (uintptr_t)regions, .room = ROOM };
	size_t found = 0;
	scan.start = (uintptr_t)memory;
	scan.end = scan.start + pages * PAGE;
	scan.all = scan.told = all;
	scan.inverted = inverted;
	for (; scan.start < scan.end; scan.start = scan.walk_end) {
		long runs = ioctl(pagemap, PAGEMAP_SCAN, &scan);
		MUST(runs >= 0 && scan.walk_end > scan.start);
		for (long i = 0; i < runs; i++) {
			size_t size = regions[i].end - regions[i].start;
			if (act)
				act((char *)(uintptr_t)regions[i].start, size);
			found += size / PAGE;
		}
	}
	return found;
}

static void page_out(char *start, size_t size)
{
	MUST(madvise(start, size, MADV_PAGEOUT) == 0);
}

/* Accesses the working set: one page in `step`, beginning with `first`. Every eighth access is a store. */
static size_t use(size_t first, size_t step)
{
	size_t used = 0;
	for (size_t page = first; page < pages; page += step, used++) {
		volatile uint64_t *number = number_in(page);
		MUST(*number == page * 7 + 1);
		if (used % 8 == 0)
			*number = page * 7 + 1;
	}
	return used;
}

/* Runs some intervals with the same working set. The first interval finds the working set, and the others keep it. */
static void intervals(const char *name, size_t first, size_t step)
{
	struct series arming = { 0 }, using = { 0 }, asking = { 0 };
	size_t used = 0, left = 0, out = 0;
	uint64_t faults = 0;
	for (int interval = 0; interval < INTERVALS; interval++) {
		/* The pages of the last working set are swapped in before the interval begins. */
		if (interval == 0)
			use(first, step);
		uint64_t start = clock_now();
		arm();
		add_value(&arming, clock_now() - start);
		uint64_t before = faults_now();
		start = clock_now();
		used = use(first, step);
		add_value(&using, clock_now() - start);
		faults += faults_now() - before;
		MUST(each_run(PAGE_IS_ACCESSED, 0, NULL) == used);
		start = clock_now();
		size_t idle = each_run(PAGE_IS_PRESENT | PAGE_IS_ACCESSED, PAGE_IS_ACCESSED, NULL);
		add_value(&asking, clock_now() - start);
		MUST(each_run(PAGE_IS_PRESENT | PAGE_IS_ACCESSED, PAGE_IS_ACCESSED, page_out) == idle);
		out += idle;
		left = each_run(PAGE_IS_PRESENT, 0, NULL);
		MUST(left == used);
	}
	record_value(name, "pages used", "pages", used);
	record_value(name, "pages in memory", "pages", left);
	record_value(name, "pages paged out", "pages", out);
	record_series(name, "arming", "instructions", &arming);
	record_series(name, "accesses", "instructions", &using);
	record_value(name, "accesses: faults", "faults per interval", faults / (double)INTERVALS);
	record_series(name, "asking for idle pages", "instructions", &asking);
}

/* Measures the cost of arming if every page is in memory and was accessed. */
static void cost(void)
{
	struct series first = { 0 }, again = { 0 };
	for (int round = 0; round < 4; round++) {
		fill();
		uint64_t start = clock_now();
		arm();
		add_value(&first, (clock_now() - start) / pages);
		start = clock_now();
		arm();
		add_value(&again, (clock_now() - start) / pages);
	}
	record_series("all pages in memory", "arming, per page", "instructions", &first);
	record_series("all pages in memory", "arming again, per page", "instructions", &again);
}

int main(int count, char **arguments)
{
	size_t size = argument(count, arguments, 1, 64) * MIB;
	begin();
	watcher = uffd_open(RWP | RWP_ASYNC);
	pagemap = open_pagemap();
	need(watcher >= 0, "read-write protection");
	need(has_swap(), "swap device here");
	memory = aligned(size, HUGE, 0);
	pages = size / PAGE;
	MUST(madvise(memory, size, 15) == 0 || errno == EINVAL);
	fill();
	MUST(uffd_watch(watcher, memory, size, WATCH_ACCESSES) == 0);
	cost();
	intervals("every fourth page", 0, 4);
	intervals("another quarter", 1, 4);
	intervals("one page in 32", 2, 32);
	for (size_t page = 0; page < pages; page++)
		MUST(*number_in(page) == page * 7 + 1);
	print_records();
	return 0;
}
