/* Which pages were written since the last query, through an interface like that of Windows' GetWriteWatch?
 *
 * A write watch is set on memory. get_write_watch returns the addresses of pages that were written since the
 * watch was set or last reset, in ascending order and up to the size of the array. With RESET, it resets the
 * pages that it returns; a page that is written during the call is returned by this call or by the next.
 * Writes by the program and by the kernel for it count. Reads, permission changes, merges of areas and
 * get_write_watch itself do not count.
 *
 * Usage: write_watch [SIZE_IN_MIB]
 */
#include "track.h"

#include <pthread.h>

#define ROOM 64
#define ROUNDS 200

enum { KEEP, RESET };

static int watcher, pagemap;

static void watch_writes(void *base, size_t size)
{
	MUST(uffd_watch(watcher, base, size, WATCH_WRITES) == 0);
	MUST(uffd_protect(watcher, base, size, 1) == 0);
}

/* Stores the addresses of the first `*count` written pages, and sets `*count` to their number. */
static void get_write_watch(int flags, void *base, size_t size, void **addresses, size_t *count)
{
	struct region regions[ROOM];
	struct pagemap_scan scan = { .size = sizeof scan, .regions = (uintptr_t)regions, .room = ROOM };
	size_t most = *count;
	scan.flags = SCAN_ASYNC_ONLY | (flags == RESET ? SCAN_PROTECTS : 0);
	scan.start = (uintptr_t)base;
	scan.end = scan.start + size;
	scan.all = scan.told = PAGE_IS_WRITTEN;
	for (*count = 0; *count < most && scan.start < scan.end; scan.start = scan.walk_end) {
		scan.most_pages = most - *count;
		long found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
		MUST(found >= 0);
		for (long i = 0; i < found; i++)
			for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE)
				addresses[(*count)++] = (void *)(uintptr_t)at;
	}
}

static void reset_write_watch(void *base, size_t size)
{
	MUST(uffd_protect(watcher, base, size, 1) == 0);
}

/* Checks that exactly these pages are returned, given as indices from the base. */
static void expect(int line, int flags, char *base, size_t size, const size_t *pages, size_t many)
{
	void *addresses[ROOM];
	size_t count = ROOM;
	get_write_watch(flags, base, size, addresses, &count);
	for (size_t i = 0; i < count && i < many; i++)
		if (addresses[i] != base + pages[i] * PAGE)
			give_up("line %d: %p is told, not page %zu of %p", line, addresses[i], pages[i], (void *)base);
	if (count != many)
		give_up("line %d: %zu pages are told, not %zu", line, count, many);
}

#define EXPECT(flags, base, size, ...)                                                                      \
	do {                                                                                                \
		static const size_t wanted[] = { __VA_ARGS__ };                                             \
		expect(__LINE__, flags, base, size, wanted, sizeof wanted / sizeof *wanted);                \
	} while (0)
#define EXPECT_NONE(flags, base, size) expect(__LINE__, flags, base, size, NULL, 0)

/* Checks which accesses count as writes. */
static void semantics(void)
{
	const size_t size = 64 * PAGE;
	char *base = aligned(size, HUGE, 0), text[8] = "written";
	int pipes[2], zero = open("/dev/zero", O_RDONLY);
	MUST(zero >= 0 && pipe(pipes) == 0);
	base[3 * PAGE] = 1;
	watch_writes(base, size);
	EXPECT_NONE(KEEP, base, size);

	read_pages(base, size);
	EXPECT_NONE(KEEP, base, size);
	base[9 * PAGE] = base[3 * PAGE] = base[4 * PAGE + 17] = base[63 * PAGE] = 1;
	EXPECT(KEEP, base, size, 3, 4, 9, 63);
	EXPECT(KEEP, base + 4 * PAGE, 16 * PAGE, 0, 5);
	EXPECT(RESET, base, 8 * PAGE, 3, 4);
	EXPECT(RESET, base, size, 9, 63);
	EXPECT_NONE(RESET, base, size);

	/* The kernel writes one complete page, and a range that spans two pages. */
	MUST(read(zero, base + 20 * PAGE, PAGE) == (long)PAGE);
	MUST(write(pipes[1], text, 8) == 8 && read(pipes[0], base + 31 * PAGE - 4, 8) == 8);
	EXPECT(RESET, base, size, 20, 30, 31);
	/* The kernel only reads. */
	MUST(write(pipes[1], base + 20 * PAGE, 8) == 8 && read(pipes[0], text, 8) == 8);
	EXPECT_NONE(KEEP, base, size);

	/* Permissions are removed and restored, and areas are split and merged again. */
	base[12 * PAGE] = 1;
	MUST(mprotect(base + 10 * PAGE, 5 * PAGE, PROT_READ) == 0);
	MUST(mprotect(base + 10 * PAGE, 5 * PAGE, PROT_READ | PROT_WRITE) == 0);
	EXPECT(RESET, base, size, 12);
	base[13 * PAGE] = 1;
	EXPECT(KEEP, base, size, 13);
	reset_write_watch(base, size);
	EXPECT_NONE(KEEP, base, size);

	/* A child writes to its own copy. The parent's write to its copy is returned. */
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		write_pages(base, size);
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0) == child);
	EXPECT_NONE(KEEP, base, size);
	base[3 * PAGE] = 5;
	EXPECT(RESET, base, size, 3);

	/* There are more written pages than the array can contain. Those that are not returned are not reset. */
	void *addresses[ROOM];
	write_pages(base, size);
	for (size_t asked = 0; asked < 64; asked += 16) {
		size_t count = 16;
		get_write_watch(RESET, base, size, addresses, &count);
		MUST(count == 16 && addresses[0] == base + asked * PAGE);
	}
	EXPECT_NONE(KEEP, base, size);
	MUST(munmap(base, size) == 0);
	close(zero), close(pipes[0]), close(pipes[1]);
}

static char *contended;
static volatile int over;
static volatile uint64_t last_written[ROOM];

static void *write_all_the_time(void *unused)
{
	for (uint64_t value = 1; !over; value++)
		for (int page = 0; page < ROOM; page++) {
			*(volatile uint64_t *)(contended + page * PAGE) = value;
			last_written[page] = value;
		}
	return unused;
}

/* A page that changed since it was last returned is returned again, also if other threads write during the call. */
static void beside_a_writer(void)
{
	const size_t size = ROOM * PAGE;
	uint64_t seen[ROOM] = { 0 };
	pthread_t thread;
	contended = aligned(size, HUGE, 0);
	watch_writes(contended, size);
	MUST(pthread_create(&thread, NULL, write_all_the_time, NULL) == 0);
	for (int round = 0; round <= ROUNDS; round++) {
		void *addresses[ROOM];
		size_t count = ROOM;
		if (round == ROUNDS) {
			over = 1;
			MUST(pthread_join(thread, NULL) == 0);
		}
		get_write_watch(RESET, contended, size, addresses, &count);
		for (size_t i = 0; i < count; i++) {
			size_t page = ((char *)addresses[i] - contended) / PAGE;
			seen[page] = *(volatile uint64_t *)addresses[i];
		}
		sched_yield();
	}
	for (int page = 0; page < ROOM; page++)
		MUST(seen[page] == last_written[page]);
	MUST(munmap(contended, size) == 0);
}

static void cost(size_t size, size_t written)
{
	char name[64], *base = aligned(size, HUGE, 0);
	void **addresses = calloc(written + 1, sizeof *addresses);
	struct series asks = { 0 }, writes = { 0 };
	uint64_t faults = 0;
	MUST(addresses);
	memset(addresses, 0, (written + 1) * sizeof *addresses);
	write_pages(base, size);
	watch_writes(base, size);
	for (int round = 0; round < 4; round++) {
		size_t count = written + 1, step = written ? size / PAGE / written : 0;
		uint64_t before = faults_now(), start = clock_now();
		for (size_t i = 0; i < written; i++)
			*(volatile char *)(base + i * step * PAGE) = 1;
		add_value(&writes, clock_now() - start);
		faults += faults_now() - before;
		start = clock_now();
		get_write_watch(RESET, base, size, addresses, &count);
		add_value(&asks, clock_now() - start);
		MUST(count == written);
	}
	snprintf(name, sizeof name, "%lu MiB, %zu pages written", size / MIB, written);
	record_series(name, "get and reset", "instructions", &asks);
	record_series(name, "writes", "instructions", &writes);
	record_value(name, "writes: faults", "faults per round", faults / 4.0);
	MUST(munmap(base, size) == 0);
	free(addresses);
}

int main(int count, char **arguments)
{
	size_t size = argument(count, arguments, 1, 64) * MIB;
	begin();
	watcher = uffd_open(WP_ASYNC | WP_UNPOPULATED);
	pagemap = open_pagemap();
	need(watcher >= 0 && can_scan(pagemap), "asynchronous write protection");
	semantics();
	beside_a_writer();
	cost(size, 0);
	cost(size, 1);
	cost(size, size / PAGE / 100);
	cost(size, size / PAGE);
	print_records();
	return 0;
}
