/* What does it cost to merge equal pages, and to write them again?
 *
 * Equal pages are made mergeable, ksmd scans until they share frames, and then each page is written. They are merged
 * once more, and then made unmergeable.
 *
 * Usage: merge_equal [SIZE_IN_MIB]
 */
#include "experiment.h"

#include <time.h>

#define KSM "/sys/kernel/mm/ksm/"

/* Returns a setting of ksmd, or -1 if the kernel has no such file. */
static long setting(const char *name)
{
	char path[128], text[32];
	snprintf(path, sizeof path, KSM "%s", name);
	return read_file(path, text, sizeof text) < 0 ? -1 : strtol(text, NULL, 10);
}

static void set(const char *name, const char *value)
{
	char path[128];
	snprintf(path, sizeof path, KSM "%s", name);
	int file = open(path, O_WRONLY);
	MUST(file >= 0 && write(file, value, strlen(value)) > 0);
	close(file);
}

/* Returns the number of merged pages, one for each shared frame included. */
static long merged_now(void)
{
	return setting("pages_sharing") + setting("pages_shared");
}

/* Starts ksmd and waits until it has nothing left to merge: every page except for the frames that they share. Linux 6.1
 * still counts pages that have been written until ksmd scans them again: there the function waits for that. */
static void merge(const char *name, size_t pages)
{
	char measure[64];
	long scanned = setting("pages_scanned"), rounds = setting("full_scans"), merged;
	long least = merged_now() < (long)pages ? rounds : rounds + 2;
	struct timespec moment = { .tv_nsec = 1000000 };
	uint64_t start = clock_now();
	set("run", "1");
	while ((merged = merged_now()) < (long)pages || setting("full_scans") < least) {
		MUST(setting("full_scans") < rounds + 20);
		nanosleep(&moment, NULL);
	}
	set("run", "0");
	uint64_t took = clock_now() - start;
	record_value(name, "to merge all, per page", "instructions", (double)took / pages);
	snprintf(measure, sizeof measure, "pages scanned, per page");
	if (scanned >= 0)
		record_value(name, measure, "pages", (double)(setting("pages_scanned") - scanned) / pages);
	record_value(name, "pages merged", "pages", merged);
	record_value(name, "frames that they share", "frames", setting("pages_shared"));
}

/* Waits until no page counts as merged any more: Linux 6.1 notices unmerged pages only at the next scan. */
static void end_sharing(void)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	long rounds = setting("full_scans");
	set("run", "1");
	while (setting("pages_sharing") != 0) {
		MUST(setting("full_scans") < rounds + 20);
		nanosleep(&moment, NULL);
	}
	set("run", "0");
}

int main(int count, char **arguments)
{
	size_t size = argument(count, arguments, 1, 100) * MIB, pages = size / PAGE;
	struct series writes = { 0 };
	char name[64];
	MUST(size > 0);
	begin();
	snprintf(name, sizeof name, "%zu MiB of equal pages", size / MIB);
	if (access(KSM "run", W_OK) != 0) {
		printf("note\tno same-page merging\n");
		return 0;
	}
	set("run", "0");
	set("pages_to_scan", "100000");
	set("sleep_millisecs", "0");
	char *memory = fresh_apart(size);
	memset(memory, 0x55, size);
	MUST(madvise(memory, size, MADV_MERGEABLE) == 0);
	merged_now();
	merge(name, pages);
	read_pages(memory, size);
	struct counters before = counters_now();
	for (size_t at = 0; at < size; at += PAGE) {
		uint64_t start = clock_now();
		*(volatile char *)(memory + at) = 0x55;
		add_value(&writes, clock_now() - start);
	}
	struct counters after = counters_now();
	record_series(name, "write of a merged page", "instructions", &writes);
	record_value(name, "write of a merged page: faults", "faults per page", (double)(after.value[FAULTS] - before.value[FAULTS]) / pages);
	merge("the same pages, written", pages);
	uint64_t start = clock_now();
	MUST(madvise(memory, size, MADV_UNMERGEABLE) == 0);
	record_value("the same pages, written", "MADV_UNMERGEABLE, per page", "instructions", (double)(clock_now() - start) / pages);
	end_sharing();
	for (size_t at = 0; at < size; at++)
		MUST(memory[at] == 0x55);
	print_records();
	return 0;
}
