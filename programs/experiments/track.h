/* What the experiments on write tracking share: userfaultfd's write protection, and scans for written pages.
 *
 * The structures and numbers are those of include/uapi/linux/userfaultfd.h and fs.h: not every C library's headers are new
 * enough.
 */
#ifndef TRACK_H
#define TRACK_H

#include "experiment.h"

#include <sys/ioctl.h>

#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define HUGE (2 * MIB)

struct uffd_api {
	uint64_t api, features, ioctls;
};
struct uffd_range {
	uint64_t start, length;
};
struct uffd_register {
	struct uffd_range range;
	uint64_t mode, ioctls;
};
struct uffd_protect {
	struct uffd_range range;
	uint64_t mode;
};
struct uffd_message {
	uint8_t event, reserved[7];
	uint64_t flags, address, thread;
};
struct pagemap_scan {
	uint64_t size, flags, start, end, walk_end, regions, room, most_pages;
	uint64_t inverted, all, any, told;
};
struct region {
	uint64_t start, end, categories;
};

#define UFFD_API _IOWR(0xAA, 0x3F, struct uffd_api)
#define UFFD_REGISTER _IOWR(0xAA, 0, struct uffd_register)
#define UFFD_WRITEPROTECT _IOWR(0xAA, 6, struct uffd_protect)
#define PAGEMAP_SCAN _IOWR('f', 16, struct pagemap_scan)

enum { WATCH_MISSING = 1, WATCH_WRITES = 2 };
enum { WP_UNPOPULATED = 1 << 13, WP_ASYNC = 1 << 15 };
enum { FLAG_WP = 2, EVENT_FAULT = 0x12 };
enum { PAGE_IS_WRITTEN = 2, SCAN_PROTECTS = 1, SCAN_ASYNC_ONLY = 2 };

/* Returns a userfaultfd with these features, whose reads block, or -1 if the kernel lacks them. */
static inline int uffd_open(uint64_t features)
{
	int file = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffd_api api = { 0xAA, features, 0 };
	if (file >= 0 && ioctl(file, UFFD_API, &api) != 0) {
		close(file);
		return -1;
	}
	return file;
}

/* Ends the experiment if the kernel lacks the measured feature. The figures are then "not measured". */
static inline void need(int there, const char *what)
{
	if (there)
		return;
	printf("note\tthis kernel has no %s\n", what);
	exit(0);
}

static inline int uffd_watch(int file, const void *start, size_t size, uint64_t mode)
{
	struct uffd_register wanted = { { (uintptr_t)start, size }, mode, 0 };
	return ioctl(file, UFFD_REGISTER, &wanted);
}

static inline int uffd_protect(int file, const void *start, size_t size, int on)
{
	struct uffd_protect wanted = { { (uintptr_t)start, size }, (uint64_t)on };
	return ioctl(file, UFFD_WRITEPROTECT, &wanted);
}

/* Finds the pages written since they were protected, and protects them again. Returns the number of regions. Linux 6.12
 * may report that it stopped before the end although it had reached it: the call is repeated until it reports the end. */
static inline long scan_written(int pagemap, const void *start, size_t size, struct region *regions, size_t room)
{
	struct pagemap_scan scan = { .size = sizeof scan, .flags = SCAN_PROTECTS | SCAN_ASYNC_ONLY };
	long regions_found = 0;
	scan.start = (uintptr_t)start;
	scan.end = scan.start + size;
	scan.all = scan.told = PAGE_IS_WRITTEN;
	while (scan.start < scan.end && regions_found < (long)room) {
		scan.regions = (uintptr_t)(regions + regions_found);
		scan.room = room - regions_found;
		long found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
		if (found < 0)
			return found;
		MUST(scan.walk_end > scan.start);
		regions_found += found;
		scan.start = scan.walk_end;
	}
	return regions_found;
}

/* Returns whether the kernel can scan for written pages. */
static inline int can_scan(int pagemap)
{
	struct pagemap_scan scan = { .size = sizeof scan };
	return ioctl(pagemap, PAGEMAP_SCAN, &scan) == 0;
}

static inline int open_pagemap(void)
{
	int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	MUST(file >= 0);
	return file;
}

/* Reserves `size` bytes that begin `beyond` bytes after a multiple of `alignment`, with nothing on either side. */
static inline char *aligned(size_t size, size_t alignment, size_t beyond)
{
	size_t whole = size + alignment + beyond + 2 * PAGE;
	char *room = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(room != MAP_FAILED);
	char *start = (char *)(((uintptr_t)room + PAGE + alignment - 1) & ~(uintptr_t)(alignment - 1)) + beyond;
	MUST(munmap(room, start - room) == 0);
	MUST(munmap(start + size, room + whole - (start + size)) == 0);
	char *memory = mmap(start, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	MUST(memory == start);
	return memory;
}

/* Returns the next pseudo-random number (xorshift). The sequence is the same in every run. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Returns the number of page-table frames of this process. */
static inline unsigned long table_frames(void)
{
	MUST(read_file("/proc/self/status", proc_text, sizeof proc_text) > 0);
	char *row = strstr(proc_text, "VmPTE:");
	MUST(row);
	return strtoul(row + 6, NULL, 10) / (PAGE / KIB);
}

static inline void clear_soft_dirty(void)
{
	int file = open("/proc/self/clear_refs", O_WRONLY);
	MUST(file >= 0 && write(file, "4", 1) == 1);
	close(file);
}

#endif
