/* Which pages were accessed since the last interval: what does it cost to arm memory, to access it, to scan and arm it
 * again, and to make accesses wait?
 *
 * 1 GiB is populated and armed against accesses (userfaultfd's read-write protection, asynchronous). In each round some
 * of its pages are accessed, a PAGEMAP_SCAN finds them, and all memory is armed again. "Random" pages are spread over the
 * memory, "clustered" ones are adjacent. Each round must find exactly the pages that were accessed in it. An access is a
 * load of one word; every eighth is a store.
 *
 * Usage: access_scan [ROUNDS [SIZE_IN_MIB [OTHERS]]]; OTHERS threads of the program run meanwhile, on CPUs of their own.
 */
#include "access.h"

#include <pthread.h>

static int watcher, pagemap;
static struct region *regions;
static unsigned char *wanted;
static uint32_t *chosen;
static char *memory;
static size_t pages, size;

/* Chooses about `count` pages. Returns how many are different. */
static uint64_t choose(size_t count, int clustered, uint64_t *random)
{
	size_t first = clustered && count < pages ? next_random(random) % (pages - count) : 0;
	uint64_t different = 0;
	memset(wanted, 0, pages);
	for (size_t i = 0; i < count; i++) {
		chosen[i] = clustered ? first + i : next_random(random) % pages;
		different += !wanted[chosen[i]];
		wanted[chosen[i]] = 1;
	}
	return different;
}

static uint64_t access_chosen(size_t count)
{
	uint64_t start = clock_now();
	for (size_t i = 0; i < count; i++) {
		volatile uint64_t *word = (uint64_t *)(memory + chosen[i] * PAGE);
		if (i % 8)
			(void)*word;
		else
			*word = i;
	}
	return clock_now() - start;
}

/* Finds the accessed pages. Returns the number of regions. */
static long scan_accessed(void)
{
	struct pagemap_scan scan = { .size = sizeof scan };
	long found = 0;
	scan.start = (uintptr_t)memory;
	scan.end = scan.start + size;
	scan.all = scan.told = PAGE_IS_ACCESSED;
	while (scan.start < scan.end) {
		scan.regions = (uintptr_t)(regions + found);
		scan.room = pages - found;
		long more = ioctl(pagemap, PAGEMAP_SCAN, &scan);
		MUST(more >= 0 && scan.walk_end > scan.start);
		found += more;
		scan.start = scan.walk_end;
	}
	return found;
}

/* Checks that the scan reported the pages that were accessed, and no others. Linux 7.3 reports some of them twice. */
static void check_found(long found, uint64_t different)
{
	uint64_t told = 0;
	for (long i = 0; i < found; i++)
		for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE) {
			unsigned char *page = &wanted[(at - (uintptr_t)memory) / PAGE];
			MUST(*page);
			told += *page == 1;
			*page = 2;
		}
	MUST(told == different);
}

static void rounds_of(const char *name, size_t count, int clustered, unsigned long rounds)
{
	struct series accesses = { 0 }, scans = { 0 }, armings = { 0 }, both = { 0 };
	uint64_t random = 88172645463325252, sum = 0;
	struct counters before = counters_now(), after;
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t different = choose(count, clustered, &random);
		add_value(&accesses, access_chosen(count));
		uint64_t start = clock_now();
		long found = scan_accessed();
		uint64_t middle = clock_now();
		MUST(uffd_arm(watcher, memory, size) == 0);
		uint64_t end = clock_now();
		check_found(found, different);
		add_value(&scans, middle - start);
		add_value(&armings, end - middle);
		add_value(&both, end - start);
		sum += different;
	}
	after = counters_now();
	if (count)
		record_parts(name, "accesses, per access", "instructions", &accesses, count);
	record_series(name, "scan", "instructions", &scans);
	record_series(name, "arming again", "instructions", &armings);
	if (sum > 0)
		record_parts(name, "scan and arming again, per page accessed", "instructions", &both, (double)sum / rounds);
	record_counters(name, before, after, rounds);
}

/* Makes accesses wait for a handler, then reverts that. All pages are still armed. */
static void toggle(void)
{
	struct uffd_modes wait = { 0, RWP_ASYNC }, count = { RWP_ASYNC, 0 };
	uint64_t start = clock_now();
	MUST(ioctl(watcher, UFFD_SET_MODE, &wait) == 0);
	uint64_t middle = clock_now();
	MUST(ioctl(watcher, UFFD_SET_MODE, &count) == 0);
	uint64_t end = clock_now();
	record_value("change of the mode", "accesses wait, per armed page", "instructions", (double)(middle - start) / pages);
	record_value("change of the mode", "accesses wait no longer", "instructions", end - middle);
	MUST(uffd_arm(watcher, memory, size) == 0);
}

static void *run_on(void *unused)
{
	(void)unused;
	for (;;)
		__builtin_ia32_pause();
	return NULL;
}

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 4), others = argument(count, arguments, 3, 0);
	uint64_t random = 1;
	size = argument(count, arguments, 2, 1024) * MIB;
	begin();
	pages = size / PAGE;
	watcher = uffd_open(RWP | RWP_ASYNC);
	pagemap = open_pagemap();
	need(watcher >= 0 && can_scan(pagemap), "asynchronous read-write protection");
	regions = calloc(pages, sizeof *regions);
	wanted = calloc(pages, 1);
	chosen = calloc(pages, sizeof *chosen);
	MUST(rounds > 0 && regions && wanted && chosen && size % HUGE == 0);
	/* Not zero: a compiler drops what calloc has done already, and the pages must be there. */
	memset(regions, 1, pages * sizeof *regions);
	memset(chosen, 1, pages * sizeof *chosen);
	memset(wanted, 1, pages);
	memory = aligned(size, HUGE, 0);
	write_pages(memory, size);
	for (unsigned long i = 0; i < others; i++) {
		pthread_t thread;
		MUST(pthread_create(&thread, NULL, run_on, NULL) == 0);
	}
	choose(pages / 10, 0, &random);
	access_chosen(pages / 10);
	record_value("not watched", "accesses, per access", "instructions", (double)access_chosen(pages / 10) / (pages / 10));
	MUST(uffd_watch(watcher, memory, size, WATCH_ACCESSES) == 0);
	uint64_t start = clock_now();
	MUST(uffd_arm(watcher, memory, size) == 0);
	record_value("all memory", "arming, per page", "instructions", (double)(clock_now() - start) / pages);
	MUST(scan_accessed() == 0);
	rounds_of("nothing accessed", 0, 0, rounds);
	rounds_of("1 %, clustered", pages / 100, 1, rounds);
	rounds_of("1 %, random", pages / 100, 0, rounds);
	rounds_of("10 %, clustered", pages / 10, 1, rounds);
	rounds_of("10 %, random", pages / 10, 0, rounds);
	rounds_of("100 %", pages, 1, rounds);
	toggle();
	print_records();
	return 0;
}
