/* Is every write reported, whatever its race with arming, with the scan that re-protects, and with the removal of
 * protection?
 *
 * Three threads increment counts in pages with asynchronous uffd-wp, and record each count elsewhere after
 * storing it. Meanwhile the first thread repeatedly scans and re-protects, or removes all protection,
 * protects everything and scans. A count that was recorded before a scan began must have been reported by
 * that scan or an earlier one, and no count may be lost. If the kernel uses the processor's dirty bit, a
 * count that was recorded before a scan is not reported by a later one. If the kernel lets stores fault
 * instead, a store that races with a scan may be reported by this scan and by the next.
 *
 * Usage: `track_races KIND ROUNDS OFFSET dirty-bit|faults`, where KIND is scan, arm or all. The offset shifts the
 * calls relative to the stores.
 */
#include "userfault.h"
#include "races.h"
#include <pthread.h>
#include <sched.h>

enum { WRITERS = 3, PAGES = 24, LINE = 8 };

static char *memory;
static int fd, pagemap, by_dirty;
static volatile int finished;

/* The count that was last stored in each page. The records are in separate cache lines. */
static volatile uint64_t noted[PAGES][LINE];
/* The count recorded before the last scan that reported the page, and the count in the page after that scan. */
static uint64_t before_told[PAGES], seen[PAGES];

static volatile uint64_t *count_in(int page)
{
	return (volatile uint64_t *)(memory + page * PAGE);
}

static void *write_always(void *argument)
{
	int me = (int)(intptr_t)argument;
	uint64_t count = 0;
	while (!finished) {
		count++;
		for (int page = me; page < PAGES; page += WRITERS) {
			*count_in(page) = count;
			__atomic_store_n(&noted[page][0], count, __ATOMIC_SEQ_CST);
		}
		__builtin_ia32_pause();
		/* Lets the other threads run, if there are fewer CPUs than threads. */
		if (count % 16 == 0)
			sched_yield();
	}
	return NULL;
}

static void note_all(uint64_t *counts)
{
	for (int page = 0; page < PAGES; page++)
		counts[page] = __atomic_load_n(&noted[page][0], __ATOMIC_SEQ_CST);
}

/* Scans for written pages and re-protects them. Stores in `told` which pages were reported. */
static void scan(int *told)
{
	struct region regions[PAGES];
	struct scan scan = { .size = sizeof scan, .flags = 3, .start = (uintptr_t)memory, .vec = (uintptr_t)regions };
	scan.end = scan.start + PAGES * PAGE;
	scan.vec_len = PAGES;
	scan.mask = scan.returned = IS_WRITTEN;
	memset(told, 0, PAGES * sizeof *told);
	long found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
	NEED(found >= 0);
	for (long i = 0; i < found; i++)
		for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE)
			told[(at - (uintptr_t)memory) / PAGE] = 1;
}

/* Records the counts of the pages that were just reported. */
static void remember(const int *told, const uint64_t *before)
{
	for (int page = 0; page < PAGES; page++) {
		if (!told[page])
			continue;
		before_told[page] = before[page];
		seen[page] = *count_in(page);
	}
}

static void scan_round(void)
{
	uint64_t before[PAGES];
	int told[PAGES];
	note_all(before);
	scan(told);
	for (int page = 0; page < PAGES; page++) {
		uint64_t now = *count_in(page);
		/* The count must have increased since the start of the last scan that reported the page. */
		if (told[page])
			CHECK(now > before_told[page] || !by_dirty);
		else
			CHECK(before[page] <= seen[page]);
	}
	remember(told, before);
}

static void arm_round(void)
{
	uint64_t armed[PAGES], before[PAGES];
	int told[PAGES];
	CHECK_EQ(protect(fd, memory, PAGES, 0), 0);
	scan(told);
	for (int page = 0; page < PAGES; page++)
		CHECK(told[page]);
	CHECK_EQ(protect(fd, memory, PAGES, 0), 0);
	CHECK_EQ(protect(fd, memory, PAGES, 1), 0);
	note_all(armed);
	for (int i = 0; i < 40; i++)
		__builtin_ia32_pause();
	note_all(before);
	scan(told);
	for (int page = 0; page < PAGES; page++)
		/* Of two stores that were recorded after the arming, the first may have happened before it,
		 * but the second happened after it and must be reported. */
		CHECK(told[page] || before[page] < armed[page] + 2);
	remember(told, before);
}

static void race(void (*round)(void), unsigned long rounds)
{
	pthread_t threads[WRITERS];
	int told[PAGES];
	finished = 0;
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	memset((void *)noted, 0, sizeof noted);
	memset(before_told, 0, sizeof before_told);
	memset(seen, 0, sizeof seen);
	fd = watcher(UNPOPULATED | ASYNC);
	NEED(fd >= 0);
	CHECK_EQ(watch(fd, memory, PAGES, WP), 0);
	CHECK_EQ(protect(fd, memory, PAGES, 1), 0);
	for (intptr_t i = 0; i < WRITERS; i++)
		NEED(pthread_create(&threads[i], NULL, write_always, (void *)i) == 0);
	for (unsigned long i = 0; i < rounds && checks_failed < 10; i++) {
		round();
		shift_and_give_way(i);
	}
	finished = 1;
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	scan(told);
	for (int page = 0; page < PAGES; page++) {
		CHECK_EQ(*count_in(page), noted[page][0]);
		CHECK(told[page] || seen[page] == noted[page][0] || round == arm_round);
	}
	scan(told);
	for (int page = 0; page < PAGES; page++)
		CHECK(!told[page]);
	close(fd);
	munmap(memory, PAGES * PAGE);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "all";
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 100;
	offset = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	by_dirty = argc > 4 && strcmp(argv[4], "dirty-bit") == 0;
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	fd = watcher(UNPOPULATED | ASYNC);
	if (fd < 0)
		return checked("track_races");
	close(fd);
	if (strcmp(kind, "arm") != 0)
		race(scan_round, rounds);
	if (strcmp(kind, "scan") != 0)
		race(arm_round, rounds);
	return checked("track_races");
}
