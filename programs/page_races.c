/* Are all writes kept if pages change their frames while threads write to them?
 *
 * Three threads write to pages continuously, and check that each page still contains what they wrote last. In
 * the kind "migrate", the first thread migrates the pages between nodes, and NUMA balancing moves them back.
 * In the kind "merge", most pages are equal most of the time, and are merged as fast as they are written. A
 * write that races with a migration or a merge either reaches the page's new frame or faults. It must never
 * be lost, and never become visible in another page.
 *
 * Usage: `page_races KIND ROUNDS OFFSET`, where KIND is migrate, merge or all. The offset shifts the calls relative
 * to the writes. A round of migration is one call for all pages, and four rounds of merging are one scan of all
 * pages.
 */
#include "check.h"
#include "races.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define KSM "/sys/kernel/mm/ksm/"
#define PACE "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms"

enum { WRITERS = 3, PAGES = 48, MOVE = 1 << 1 };

static char *memory;
static volatile int finished;
/* The value that all writers currently write. */
static volatile uint64_t value;
/* The last value that was written to each page, and each writer's number of lost writes. */
static uint64_t last[PAGES], lost[WRITERS];

static volatile uint64_t *word_of(int page)
{
	return (volatile uint64_t *)(memory + page * PAGE + PAGE / 2);
}

static void *write_always(void *argument)
{
	int me = (int)(intptr_t)argument;
	for (unsigned long round = 0; !finished; round++) {
		for (int page = me; page < PAGES; page += WRITERS) {
			volatile uint64_t *word = word_of(page);
			lost[me] += *word != last[page];
			last[page] = value;
			*word = last[page];
		}
		__builtin_ia32_pause();
		/* Lets the other threads run, if there are fewer CPUs than threads. */
		if (round % 16 == 0)
			sched_yield();
	}
	return NULL;
}

static int write_file(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	long written = file < 0 ? -1 : write(file, text, strlen(text));
	close(file);
	return written > 0;
}

static long read_number(const char *path)
{
	char text[32] = "";
	int file = open(path, O_RDONLY);
	long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	close(file);
	return length > 0 ? strtol(text, NULL, 10) : -1;
}

/* Returns the number of merged pages that were copied. */
static long copies(void)
{
	char row[128];
	long count = -1;
	FILE *file = fopen("/proc/vmstat", "r");
	NEED(file != NULL);
	while (fgets(row, sizeof row, file))
		if (sscanf(row, "cow_ksm %ld", &count) == 1)
			break;
	fclose(file);
	return count;
}

static void start(pthread_t *threads)
{
	finished = 0;
	value = 1;
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	NEED(madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE) == 0);
	memset(last, 0, sizeof last);
	memset(lost, 0, sizeof lost);
	memset(memory, 0, PAGES * PAGE);
	for (intptr_t i = 0; i < WRITERS; i++)
		NEED(pthread_create(&threads[i], NULL, write_always, (void *)i) == 0);
}

static void end(pthread_t *threads)
{
	finished = 1;
	for (int i = 0; i < WRITERS; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(lost[i], 0);
	}
	for (int page = 0; page < PAGES; page++)
		CHECK_EQ(*word_of(page), last[page]);
	munmap(memory, PAGES * PAGE);
}

/* Migrates the pages between nodes. A page with an extra reference cannot be migrated at that moment. */
static void migrate(unsigned long rounds)
{
	pthread_t threads[WRITERS];
	void *pages[PAGES];
	int nodes[PAGES], found[PAGES];
	unsigned long moved = 0;
	NEED(write_file(PACE, "1"));
	start(threads);
	for (int page = 0; page < PAGES; page++)
		pages[page] = memory + page * PAGE;
	for (unsigned long round = 0; round < rounds; round++) {
		for (int page = 0; page < PAGES; page++)
			nodes[page] = (round + page) % 2;
		long refused = syscall(SYS_move_pages, 0, (unsigned long)PAGES, pages, nodes, found, MOVE);
		NEED(refused >= 0);
		for (int page = 0; page < PAGES; page++)
			moved += found[page] == nodes[page];
		value++;
		shift_and_give_way(round);
	}
	end(threads);
	CHECK(moved > rounds);
	NEED(write_file(PACE, "1000"));
}

/* The written value changes rarely enough that scans find equal pages, and often enough that each merged page
 * is soon written again.
 */
static void merge(unsigned long scans)
{
	pthread_t threads[WRITERS];
	struct timespec moment = { .tv_nsec = 100000 };
	long copied = copies();
	NEED(write_file(KSM "pages_to_scan", "1000") && write_file(KSM "sleep_millisecs", "1"));
	start(threads);
	CHECK_EQ(madvise(memory, PAGES * PAGE, MADV_MERGEABLE), 0);
	NEED(write_file(KSM "run", "1"));
	for (unsigned long scan = 0; scan < scans; scan++) {
		long before = read_number(KSM "full_scans");
		for (unsigned long tries = 0; read_number(KSM "full_scans") == before; tries++) {
			shift_and_give_way(tries);
			nanosleep(&moment, NULL);
		}
		if (scan % 8 == 7)
			value++;
	}
	end(threads);
	CHECK(copies() - copied > (long)scans);
	NEED(write_file(KSM "run", "2") && write_file(KSM "run", "0"));
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "all";
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 100;
	int all = strcmp(kind, "all") == 0;
	offset = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	if (all || strcmp(kind, "migrate") == 0)
		migrate(rounds);
	if (all || strcmp(kind, "merge") == 0)
		merge(rounds / 4);
	return checked("page_races");
}
