/* Which pages were written since the last scan: what does the scan cost, and what does a write cost?
 *
 * 1 GiB is populated, write-protected asynchronously, and then, in rounds: some of its pages are written, and one
 * PAGEMAP_SCAN finds them and protects them again. "Random" pages are spread over the memory, "clustered" ones are
 * adjacent, within one hundredth of it. Each round must find exactly the pages that were written in it.
 *
 * Usage: async_scan [ROUNDS [SIZE_IN_MIB]]
 */
#include "track.h"

static int pagemap;
static struct region *regions;
static unsigned char *wanted;
static size_t pages;

/* Writes to about `dirty` pages, and records which. */
static uint64_t write_some(char *memory, size_t dirty, int clustered, uint64_t *random, uint64_t *instructions)
{
	size_t within = clustered ? dirty : pages, first = clustered ? next_random(random) % (pages - dirty) : 0;
	uint32_t *chosen = malloc(dirty * sizeof *chosen + 1);
	uint64_t different = 0;
	MUST(chosen);
	memset(wanted, 0, pages);
	for (size_t i = 0; i < dirty; i++) {
		chosen[i] = clustered ? first + i : next_random(random) % within;
		different += !wanted[chosen[i]];
		wanted[chosen[i]] = 1;
	}
	uint64_t start = clock_now();
	for (size_t i = 0; i < dirty; i++)
		*(volatile char *)(memory + chosen[i] * PAGE) = 1;
	*instructions = clock_now() - start;
	free(chosen);
	return different;
}

/* Checks that the scan reported the pages that were written, and no others. */
static void check_found(const char *memory, long found, uint64_t different)
{
	uint64_t told = 0;
	MUST(found >= 0);
	for (long i = 0; i < found; i++)
		for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE, told++)
			MUST(wanted[(at - (uintptr_t)memory) / PAGE]);
	MUST(told == different);
}

static void rounds_of(const char *name, char *memory, size_t size, size_t dirty, int clustered, unsigned long rounds)
{
	struct series writes = { 0 }, scans = { 0 }, round_costs = { 0 };
	uint64_t random = 88172645463325252, faults = 0, flushes = 0, sum = 0;
	int knows_flushes = 1;
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t writing = 0;
		struct counters before = counters_now();
		uint64_t different = write_some(memory, dirty, clustered, &random, &writing);
		uint64_t at_fault = faults_now();
		faults += at_fault - before.value[FAULTS];
		struct counters middle = counters_now();
		uint64_t start = clock_now();
		MARK_BEGIN(3);
		long found = scan_written(pagemap, memory, size, regions, pages);
		MARK_END(3);
		uint64_t scanning = clock_now() - start;
		struct counters after = counters_now();
		check_found(memory, found, different);
		add_value(&writes, writing);
		add_value(&scans, scanning);
		add_value(&round_costs, writing + scanning);
		knows_flushes &= after.known >> FLUSHES;
		flushes += after.value[FLUSHES] - middle.value[FLUSHES];
		sum += different;
	}
	record_series(name, "scan and re-protect", "instructions", &scans);
	if (sum > 0) {
		/* Divided by the average number of pages written in a round. */
		record_parts(name, "scan, per dirty page", "instructions", &scans, (double)sum / rounds);
		record_series(name, "writes", "instructions", &writes);
		record_series(name, "whole round", "instructions", &round_costs);
	}
	record_value(name, "faults", "faults per round", (double)faults / rounds);
	if (knows_flushes)
		record_value(name, "flushes, local", "flushes per round", (double)flushes / rounds);
}

static void arm(const char *name, int file, char *memory, size_t size, size_t unit)
{
	MUST(uffd_watch(file, memory, size, WATCH_WRITES) == 0);
	uint64_t start = clock_now();
	MUST(uffd_protect(file, memory, size, 1) == 0);
	record_value(name, "arming, per page", "instructions", (double)(clock_now() - start) / (size / unit));
}

/* Pages of 2 MiB: protected as they are, and split where they are written. */
static void huge_pages(int file, size_t size)
{
	char *memory = aligned(size, HUGE, 0);
	MUST(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
	if (madvise(memory, size, MADV_HUGEPAGE) == 0) {
		for (size_t at = 0; at < size; at += HUGE)
			((volatile char *)memory)[at] = 1;
		arm("pages of 2 MiB", file, memory, size, HUGE);
		uint64_t before = faults_now();
		for (size_t at = 0; at < size; at += HUGE)
			((volatile char *)memory)[at + 5 * PAGE] = 1;
		double writes = size / HUGE;
		record_value("pages of 2 MiB", "faults per 2 MiB page written", "faults", (faults_now() - before) / writes);
		long found = scan_written(pagemap, memory, size, regions, pages);
		uint64_t told = 0;
		for (long i = 0; i < found; i++)
			told += (regions[i].end - regions[i].start) / PAGE;
		record_value("pages of 2 MiB", "written, per 2 MiB page written", "pages of 4 KiB", told / writes);
	}
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 4);
	size_t size = argument(count, arguments, 2, 1024) * MIB;
	int file = uffd_open(WP_ASYNC | WP_UNPOPULATED);
	begin();
	pages = size / PAGE;
	pagemap = open_pagemap();
	need(file >= 0 && can_scan(pagemap), "asynchronous write protection");
	regions = calloc(pages, sizeof *regions);
	wanted = calloc(pages, 1);
	MUST(rounds > 0 && regions && wanted && size % HUGE == 0);
	memset(regions, 0, pages * sizeof *regions);
	memset(wanted, 0, pages);
	char *memory = aligned(size, HUGE, 0), name[64];
	write_pages(memory, size);
	snprintf(name, sizeof name, "%lu MiB", size / MIB);
	arm(name, file, memory, size, PAGE);
	/* Pages accessed before count as written once. */
	MUST(scan_written(pagemap, memory, size, regions, pages) == 0);
	rounds_of("nothing touched", memory, size, 0, 0, rounds);
	rounds_of("1 %, clustered", memory, size, pages / 100, 1, rounds);
	rounds_of("1 %, random", memory, size, pages / 100, 0, rounds);
	rounds_of("nothing touched since", memory, size, 0, 0, 1);
	MUST(munmap(memory, size) == 0);
	huge_pages(file, size);
	print_records();
	return 0;
}
