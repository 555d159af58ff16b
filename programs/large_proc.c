/* Can the files in /proc about an address space be read when it has the maximum number of areas?
 *
 * 65,000 areas differ from their neighbours in their permissions. Each file is read completely, with reads of
 * several sizes and with pread. Each area must appear once and in order, also while other areas are mapped and
 * unmapped.
 */
#include "check.h"

enum { AREAS = 65000, FILE_MOST = 8 << 20 };

static char *base;
static char whole[FILE_MOST], other[FILE_MOST];

/* What the lines that were read so far contain. */
struct seen {
	/* The number of areas of the range in order, and the number out of order. */
	long areas, wrong;
	/* The number of lines in smaps that end an area, and the sum of the areas' sizes in KiB. */
	long ends, kibibytes;
};

/* Returns the start address of the area after the first `seen->areas` areas of the range, or -1 after the last one. */
static unsigned long next_area(const struct seen *seen)
{
	return (unsigned long)base + (unsigned long)seen->areas * PAGE;
}

static void see_line(struct seen *seen, const char *line)
{
	if ((*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f')) {
		unsigned long start = strtoul(line, NULL, 16);
		if (start < (unsigned long)base || start >= (unsigned long)base + AREAS * PAGE)
			return;
		seen->wrong += start != next_area(seen);
		seen->areas++;
	} else if (strncmp(line, "Size:", 5) == 0) {
		seen->kibibytes += strtol(line + 5, NULL, 10);
	} else if (strncmp(line, "VmFlags:", 8) == 0) {
		seen->ends++;
	}
}

/* Reads a file with reads of `step` bytes, and parses each line. Returns the file's length in bytes, or -1. */
static long see_file(const char *path, size_t step, struct seen *seen)
{
	static char buffer[(1 << 16) + 1];
	static char line[4096];
	size_t have = 0;
	long all = 0, count;
	memset(seen, 0, sizeof *seen);
	int file = open(path, O_RDONLY);
	if (file < 0)
		return -1;
	while ((count = read(file, buffer, step)) > 0) {
		all += count;
		for (char *at = buffer, *end = buffer + count; at < end;) {
			char *newline = memchr(at, '\n', (size_t)(end - at));
			size_t part = (size_t)((newline ? newline : end) - at);
			if (have + part < sizeof line) {
				memcpy(line + have, at, part);
				have += part;
			}
			at += part;
			if (newline) {
				line[have] = 0;
				see_line(seen, line);
				have = 0;
				at++;
			}
		}
	}
	close(file);
	CHECK_EQ(count, 0);
	return all;
}

static long read_whole(const char *path, char *to, size_t step)
{
	long all = 0, count = 0;
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	while (all < FILE_MOST && (count = read(file, to + all, step)) > 0)
		all += count;
	close(file);
	CHECK_EQ(count, 0);
	return all;
}

/* Creates the areas by changing the permissions of every second page of a mapping. */
static void make_areas(void)
{
	base = mmap(NULL, AREAS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(base != MAP_FAILED);
	for (long page = 1; page < AREAS; page += 2)
		NEED(mprotect(base + page * PAGE, PAGE, PROT_READ) == 0);
}

static void maps_have_each_area_once(void)
{
	struct seen seen;
	for (size_t step = 1000; step <= 64000; step *= 64) {
		CHECK(see_file("/proc/self/maps", step, &seen) > 0);
		CHECK_EQ(seen.areas, AREAS);
		CHECK_EQ(seen.wrong, 0);
	}
}

/* Reads at the same offset return the same bytes, whatever the order of the reads. */
static void offsets_are_those_of_one_text(void)
{
	long length = read_whole("/proc/self/maps", whole, 1 << 16);
	NEED(length > AREAS * 30L && length < FILE_MOST);
	CHECK_EQ(read_whole("/proc/self/maps", other, 777), length);
	CHECK(memcmp(whole, other, (size_t)length) == 0);
	int file = open("/proc/self/maps", O_RDONLY);
	NEED(file >= 0);
	long places[] = { length / 4, 12345, 0 };
	for (int at = 0; at < 3; at++) {
		CHECK_EQ(pread(file, other, 100, places[at]), 100);
		CHECK(memcmp(other, whole + places[at], 100) == 0);
	}
	CHECK_EQ(pread(file, other, 100, length + 4096), 0);
	/* pread does not change the file position. */
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 0);
	CHECK_EQ(read(file, other, 50), 50);
	CHECK_EQ(lseek(file, 100000, SEEK_SET), 100000);
	CHECK_EQ(read(file, other + 50, 50), 50);
	CHECK(memcmp(other, whole, 50) == 0);
	CHECK(memcmp(other + 50, whole + 100000, 50) == 0);
	close(file);
}

/* If areas are mapped and unmapped before and after the read position, no other area is omitted or repeated. */
static void changes_lose_and_repeat_nothing(void)
{
	int file = open("/proc/self/maps", O_RDONLY);
	NEED(file >= 0);
	long all = 0, count;
	while (all < 1000000 && (count = read(file, whole + all, 4096)) > 0)
		all += count;
	/* The first pages are merged into one area, and so are the last ones. */
	NEED(mprotect(base, 1000 * PAGE, PROT_NONE) == 0);
	NEED(mprotect(base + (AREAS - 1000) * PAGE, 1000 * PAGE, PROT_NONE) == 0);
	while (all < FILE_MOST - 1 && (count = read(file, whole + all, 4096)) > 0)
		all += count;
	close(file);
	whole[all] = 0;
	long seen = 0, wrong = 0;
	unsigned long last = 0;
	for (char *line = whole; *line;) {
		unsigned long start = strtoul(line, NULL, 16);
		wrong += start <= last;
		last = start;
		seen += start >= (unsigned long)base && start < (unsigned long)base + AREAS * PAGE;
		line = strchr(line, '\n');
		NEED(line != NULL);
		line++;
	}
	CHECK_EQ(wrong, 0);
	CHECK_EQ(seen, AREAS - 999);
	for (long page = 1; page < 1000; page += 2) {
		NEED(mprotect(base + page * PAGE, PAGE, PROT_READ) == 0);
		NEED(mprotect(base + (AREAS - 1000 + page) * PAGE, PAGE, PROT_READ) == 0);
	}
}

static void smaps_sum_up_each_area(void)
{
	struct seen seen;
	CHECK(see_file("/proc/self/smaps", 1 << 16, &seen) > 0);
	CHECK_EQ(seen.areas, AREAS);
	CHECK_EQ(seen.wrong, 0);
	CHECK(seen.ends >= AREAS);
	CHECK(seen.kibibytes >= AREAS * 4L);
	long length = read_whole("/proc/self/smaps_rollup", whole, 4096);
	whole[length] = 0;
	CHECK(strstr(whole, "[rollup]") != NULL);
	CHECK(strstr(whole, "\nRss:") != NULL);
}

static void numa_maps_have_each_area_once(void)
{
	struct seen seen;
	long length = see_file("/proc/self/numa_maps", 1 << 16, &seen);
	/* The kernel may be built without this file. */
	if (length < 0 && errno == ENOENT)
		return;
	CHECK(length > 0);
	CHECK_EQ(seen.areas, AREAS);
	CHECK_EQ(seen.wrong, 0);
}

int main(void)
{
	make_areas();
	maps_have_each_area_once();
	offsets_are_those_of_one_text();
	changes_lose_and_repeat_nothing();
	smaps_sum_up_each_area();
	numa_maps_have_each_area_once();
	return checked("large_proc");
}
