/* The experiment on growth, with pages in a state of their own: swapped and merged. */
#ifndef GROWTH_PAGES_H
#define GROWTH_PAGES_H

#include "growth.h"
#include "growth_relatives.h"
#include "swap.h"

/* ---- swapped pages, in MiB ---- */

enum { MOST_SWAPPED = 64, PAGES_AROUND = 64 };
static char *swapped;
static unsigned long swapped_size;

static void grow_swapped(unsigned long n)
{
	if (!swapped)
		swapped = mapped(MOST_SWAPPED * MIB, PROT_READ | PROT_WRITE);
	write_pages(swapped + swapped_size, n * MIB - swapped_size);
	swapped_size = n * MIB;
	MUST(madvise(swapped, swapped_size, MADV_PAGEOUT) == 0);
}

/* Returns any page that is swapped. */
static char *any_swapped(unsigned long n)
{
	for (;;) {
		char *page = swapped + any_below(n * MIB / PAGE) * PAGE;
		if (!is_present(page))
			return page;
	}
}

/* Swaps a page out again, with those around it that a kernel may have read ahead. */
static void swap_out_around(char *page)
{
	size_t block = PAGES_AROUND * PAGE;
	char *start = swapped + (page - swapped) / block * block;
	MUST(madvise(start, block, MADV_PAGEOUT) == 0);
}

static uint64_t swap_in_any(unsigned long n)
{
	char *page = any_swapped(n);
	uint64_t start = clock_now();
	*(volatile char *)page;
	uint64_t cost = clock_now() - start;
	swap_out_around(page);
	return cost;
}

static uint64_t replace_swapped(unsigned long n)
{
	char *page = any_swapped(n);
	uint64_t start = clock_now();
	MUST(munmap(page, PAGE) == 0);
	MUST(mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == page);
	uint64_t cost = clock_now() - start;
	*page = 1;
	swap_out_around(page);
	return cost;
}

/* ---- merged pages ---- */

#define MERGING "/sys/kernel/mm/ksm/"

enum { MOST_MERGED = 16384 };
static char *merged;
static unsigned long merged_count, unmerged_count;

static int can_merge(void)
{
	return access(MERGING "run", W_OK) == 0;
}

static void set_merging(const char *name, const char *value)
{
	char path[64];
	snprintf(path, sizeof path, MERGING "%s", name);
	int file = open(path, O_WRONLY);
	MUST(file >= 0 && write(file, value, strlen(value)) > 0 && close(file) == 0);
}

static long merging_count(const char *name)
{
	char path[64], text[32];
	snprintf(path, sizeof path, MERGING "%s", name);
	MUST(read_file(path, text, sizeof text) > 0);
	return strtol(text, NULL, 10);
}

/* Starts ksmd until all of the pages are merged, then stops it. */
static void grow_merged(unsigned long n)
{
	if (!merged) {
		set_merging("pages_to_scan", "100000");
		set_merging("sleep_millisecs", "0");
		merged = mapped(MOST_MERGED * PAGE, PROT_READ | PROT_WRITE);
		MUST(madvise(merged, MOST_MERGED * PAGE, MADV_MERGEABLE) == 0);
	}
	memset(merged + merged_count * PAGE, 0x55, (n - merged_count) * PAGE);
	merged_count = n;
	unmerged_count = 0;
	long first = merging_count("full_scans");
	set_merging("run", "1");
	while (merging_count("pages_sharing") + merging_count("pages_shared") < (long)n) {
		MUST(merging_count("full_scans") < first + 20);
		usleep(1000);
	}
	set_merging("run", "0");
}

static uint64_t write_merged(unsigned long n)
{
	MUST(unmerged_count < n);
	char *page = merged + unmerged_count++ * PAGE;
	uint64_t start = clock_now();
	*(volatile char *)page = 0x55;
	return clock_now() - start;
}

static uint64_t migrate_merged(unsigned long n)
{
	return migrate(merged + (n - 1) * PAGE);
}

#endif
