/* If memory is swapped out and in while its writes are tracked, is each write reported, and nothing else?
 *
 * Several processes together use more than the machine's memory. Each writes, reads, protects and discards pages and
 * forks at random, and sometimes scans for the pages written since its last scan. Half of the processes use
 * soft-dirty bits, and half use asynchronous uffd-wp and PAGEMAP_SCAN. Every byte is checked too. Needs a swap
 * device.
 *
 * Usage: swap_tracked [PROCESSES [MEBIBYTES_EACH [SECONDS]]], where the seconds are of the machine's clock, and 0
 * means 20000 steps.
 */
#include "userfault.h"

#include <time.h>

#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)
#define WORD_SOFT_DIRTY (1ULL << 55)
#define STEPS 20000

enum { PROTECTS = 1, ASYNC_ONLY = 2 };

/* The state of a page: how often it was written, and whether it was written since the last scan. */
struct page {
	unsigned char age, written, thrown_away;
};

static unsigned long state;
static char *memory;
static struct page *known;
static unsigned long pages;

static unsigned long next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static unsigned long *words_of(unsigned long page)
{
	return (unsigned long *)(memory + page * PAGE);
}

/* Writes contents that mostly repeat, so that the page compresses well. */
static void write_page(unsigned long page)
{
	unsigned char age = known[page].age % 200 + 1;
	for (int i = 0; i < 512; i += 8)
		words_of(page)[i] = page * 1000003 + age;
	known[page] = (struct page) { .age = age, .written = 1 };
}

static int is_right(unsigned long page)
{
	unsigned long expected = known[page].age ? page * 1000003 + known[page].age : 0;
	for (int i = 0; i < 512; i += 8)
		if (words_of(page)[i] != expected)
			return 0;
	return 1;
}

/* Compares the report `told` for a page with what the program did to it. A discarded page may be reported or not. */
static void judge(unsigned long page, int told, const char *by)
{
	struct page *one = &known[page];
	if (!one->thrown_away && told != one->written) {
		printf("page %lu: %s by %s\n", page, told ? "told, not written" : "written, not told", by);
		checks_failed++;
	}
	one->written = one->thrown_away = 0;
}

static void ask_soft_dirty(int pagemap)
{
	static uint64_t words[512];
	for (unsigned long first = 0; first < pages; first += 512) {
		unsigned long count = pages - first < 512 ? pages - first : 512;
		unsigned long at = ((unsigned long)memory / PAGE + first) * 8;
		NEED(pread(pagemap, words, count * 8, at) == (long)count * 8);
		for (unsigned long i = 0; i < count; i++)
			judge(first + i, (words[i] & WORD_SOFT_DIRTY) != 0, "soft-dirty");
	}
	int clear = open("/proc/self/clear_refs", O_WRONLY);
	NEED(clear >= 0 && write(clear, "4", 1) == 1);
	close(clear);
}

static void ask_scan(int pagemap)
{
	static unsigned char told[1 << 20];
	static struct region regions[64];
	NEED(pages <= sizeof told);
	memset(told, 0, pages);
	struct scan scan = { .size = sizeof scan, .flags = PROTECTS | ASYNC_ONLY };
	scan.start = (uintptr_t)memory;
	scan.end = scan.start + pages * PAGE;
	scan.vec = (uintptr_t)regions;
	scan.vec_len = 64;
	scan.mask = scan.returned = IS_WRITTEN;
	for (; scan.start < scan.end; scan.start = scan.walk_end) {
		long found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
		NEED(found >= 0);
		for (long i = 0; i < found; i++)
			for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE)
				told[(at - (uintptr_t)memory) / PAGE] = 1;
	}
	for (unsigned long page = 0; page < pages; page++)
		judge(page, told[page], "PAGEMAP_SCAN");
}

/* A forked child reads the same contents, and writes to its own copies. */
static void look_as_child(void)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int right = 1;
		for (int i = 0; i < 200; i++) {
			unsigned long page = next_random() % pages;
			right &= is_right(page);
			write_page(page);
			right &= is_right(page);
		}
		_exit(right ? 0 : 1);
	}
	int status = -1;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
}

static void step(unsigned long page)
{
	char *at = memory + page * PAGE;
	unsigned long chance = next_random() % 64;
	if (chance == 0) {
		NEED(madvise(at, PAGE, MADV_DONTNEED) == 0);
		known[page] = (struct page) { .thrown_away = 1 };
	} else if (chance == 1) {
		NEED(mprotect(at, PAGE, PROT_READ) == 0);
		CHECK(is_right(page));
		NEED(mprotect(at, PAGE, RW) == 0);
	} else if (chance < 32) {
		write_page(page);
	} else {
		CHECK(is_right(page));
	}
}

static time_t now(void)
{
	struct timespec time;
	NEED(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
	return time.tv_sec;
}

static int use(unsigned long seed, time_t seconds)
{
	int scans = seed % 2, pagemap = open("/proc/self/pagemap", O_RDONLY);
	memory = mmap(NULL, pages * PAGE, RW, PRIVATE, -1, 0);
	known = calloc(pages, sizeof *known);
	NEED(memory != MAP_FAILED && known && pagemap >= 0);
	state = seed * 2654435761UL + 88172645463325252UL;
	if (scans) {
		int fd = watcher(ASYNC | UNPOPULATED);
		NEED(fd >= 0 && watch(fd, memory, pages, WP) == 0 && protect(fd, memory, pages, 1) == 0);
	}
	for (unsigned long page = 0; page < pages; page++)
		write_page(page);
	time_t start = now();
	for (long done = 0; checks_failed == 0; done++) {
		if (done % 1024 == 0 && (seconds ? now() - start >= seconds : done >= STEPS))
			break;
		/* In four of five steps, one of the first fifth of the pages is used. */
		step(next_random() % (next_random() % 10 < 8 ? pages / 5 : pages));
		if (done % 2048 == 2047) {
			scans ? ask_scan(pagemap) : ask_soft_dirty(pagemap);
			look_as_child();
		}
	}
	for (unsigned long page = 0; page < pages; page++)
		CHECK(is_right(page));
	return checks_failed != 0;
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 4;
	pages = (argc > 2 ? strtoul(argv[2], NULL, 0) : 24) * 256;
	time_t seconds = argc > 3 ? atol(argv[3]) : 0;
	for (int i = 0; i < processes; i++) {
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			int failed = use(i + 1, seconds);
			fflush(stdout);
			_exit(failed);
		}
	}
	for (int i = 0; i < processes; i++) {
		int status = 0;
		NEED(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	return checked("swap_tracked");
}
