/* Do pages with equal contents share a frame, and does no write become visible in another page?
 *
 * In each case ksmd scans until no more pages can be merged. The program then checks the counts in
 * /sys/kernel/mm/ksm, and the contents of pages that are written, shared by a fork, no longer mergeable, or
 * unmapped.
 */
#include "check.h"
#include <sys/prctl.h>
#include <time.h>

#define KSM "/sys/kernel/mm/ksm/"
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif

enum { PAGES = 32 };

static int set(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, KSM "%s", name);
	int file = open(path, O_WRONLY);
	long written = file < 0 ? -1 : write(file, text, strlen(text));
	close(file);
	return written > 0;
}

static long count(const char *name)
{
	char path[128], text[32] = "";
	snprintf(path, sizeof path, KSM "%s", name);
	int file = open(path, O_RDONLY);
	long length = file < 0 ? -1 : read(file, text, sizeof text - 1);
	close(file);
	return length > 0 ? strtol(text, NULL, 10) : -1;
}

/* Waits until ksmd has completed a full scan since the last change. */
static void scan(void)
{
	struct timespec moment = { .tv_nsec = 1000000 };
	long rounds = count("full_scans");
	NEED(set("run", "1"));
	while (count("full_scans") < rounds + 4)
		nanosleep(&moment, NULL);
	NEED(set("run", "0"));
}

/* Maps memory in which each page is filled with the character at its index, so that equal characters give equal
 * pages. */
static char *map(const char *contents)
{
	size_t pages = strlen(contents);
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	NEED(madvise(memory, pages * PAGE, MADV_NOHUGEPAGE) == 0);
	for (size_t page = 0; page < pages; page++)
		memset(memory + page * PAGE, contents[page], PAGE);
	return memory;
}

static int holds(const char *memory, const char *contents)
{
	for (size_t page = 0; contents[page]; page++)
		for (size_t at = 0; at < PAGE; at++)
			if (memory[page * PAGE + at] != contents[page])
				return 0;
	return 1;
}

static void shared(long frames, long pages)
{
	CHECK_EQ(count("pages_shared"), frames);
	CHECK_EQ(count("pages_sharing"), pages - frames);
}

/* Three of the pages contain a, two contain b, and one contains c. Pages without MADV_MERGEABLE are not scanned. */
static void equal_pages(void)
{
	char *memory = map("abacab"), *other = map("aa");
	CHECK_EQ(madvise(memory, 6 * PAGE, MADV_MERGEABLE), 0);
	scan();
	shared(2, 5);
	CHECK(holds(memory, "abacab"));
	/* The first page now differs from the others in its last byte only. */
	memory[PAGE - 1] = 'x';
	shared(2, 4);
	CHECK(memory[0] == 'a' && memory[PAGE - 1] == 'x');
	CHECK(holds(memory + PAGE, "bacab"));
	scan();
	shared(2, 4);
	memory[PAGE - 1] = 'a';
	scan();
	shared(2, 5);
	CHECK(holds(memory, "abacab") && holds(other, "aa"));
	munmap(memory, 6 * PAGE);
	munmap(other, 2 * PAGE);
	scan();
	shared(0, 0);
}

/* A write to a merged page goes to a private copy, however many pages share the frame. */
static void writes(void)
{
	char expected[PAGES + 1] = "", *memory;
	memset(expected, 'q', PAGES);
	memory = map(expected);
	CHECK_EQ(madvise(memory, PAGES * PAGE, MADV_MERGEABLE), 0);
	long anonymous_pages = row_in("/proc/self/status", "RssAnon");
	for (int round = 0; round < 3; round++) {
		scan();
		shared(1, PAGES);
		/* A merged page is still counted as anonymous. */
		CHECK(labs(row_in("/proc/self/status", "RssAnon") - anonymous_pages) <= PAGES * 4 / 2);
		for (int page = 0; page < PAGES; page++) {
			memory[page * PAGE + page] = 'r';
			CHECK_EQ(memory[page * PAGE + page], 'r');
			memory[page * PAGE + page] = 'q';
			CHECK(holds(memory, expected));
		}
		CHECK_EQ(count("pages_sharing"), 0);
	}
	munmap(memory, PAGES * PAGE);
}

/* Parent and child map the same merged page, and neither reads what the other writes. */
static void forked(void)
{
	char *memory = map("dddd");
	CHECK_EQ(madvise(memory, 4 * PAGE, MADV_MERGEABLE), 0);
	scan();
	shared(1, 4);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		memset(memory, 'e', PAGE);
		scan();
		_exit(holds(memory, "eddd") ? 0 : 1);
	}
	memset(memory + PAGE, 'f', PAGE);
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(holds(memory, "dfdd"));
	munmap(memory, 4 * PAGE);
}

/* Checks permission changes, and MADV_UNMERGEABLE, on merged pages. */
static void no_more(void)
{
	char *memory = map("gggggg");
	CHECK_EQ(madvise(memory, 6 * PAGE, MADV_MERGEABLE), 0);
	scan();
	shared(1, 6);
	/* A permission change does not make a shared page writable. */
	CHECK_EQ(mprotect(memory, 6 * PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(memory, 6 * PAGE, PROT_READ | PROT_WRITE), 0);
	memory[0] = 'h';
	CHECK(holds(memory + PAGE, "ggggg"));
	memory[0] = 'g';
	CHECK_EQ(madvise(memory + PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(memory[PAGE], 0);
	shared(1, 4);
	CHECK_EQ(madvise(memory, 6 * PAGE, MADV_UNMERGEABLE), 0);
	CHECK_EQ(count("pages_sharing"), 0);
	scan();
	CHECK_EQ(count("pages_sharing"), 0);
	CHECK(holds(memory + 2 * PAGE, "gggg") && holds(memory, "g"));
	CHECK_EQ(madvise(memory, 6 * PAGE, MADV_MERGEABLE), 0);
	memset(memory, 'g', 6 * PAGE);
	scan();
	shared(1, 6);
	/* No page of any process is merged any more. */
	CHECK(set("run", "2"));
	shared(0, 0);
	CHECK(set("run", "0"));
	CHECK(holds(memory, "gggggg"));
	munmap(memory, 6 * PAGE);
}

/* A process makes all of its memory mergeable. */
static void whole_process(void)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		CHECK_EQ(prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0), 0);
		CHECK_EQ(prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0), 0);
		CHECK_EQ(prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0), 1);
		char *memory = map("mmmmmmmm");
		scan();
		CHECK(count("pages_sharing") >= 7);
		CHECK(holds(memory, "mmmmmmmm"));
		CHECK_EQ(prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0), 0);
		CHECK_EQ(count("pages_sharing"), 0);
		CHECK(holds(memory, "mmmmmmmm"));
		fflush(stdout);
		_exit(checks_failed ? 1 : 0);
	}
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Zero-filled pages are merged with the zero page if use_zero_pages is set. */
static void zeroes(void)
{
	static const char zero[4] = { 0 };
	char *memory = map("zzz");
	NEED(set("use_zero_pages", "1"));
	memset(memory, 0, 3 * PAGE);
	CHECK_EQ(madvise(memory, 3 * PAGE, MADV_MERGEABLE), 0);
	scan();
	CHECK_EQ(count("ksm_zero_pages"), 3);
	CHECK_EQ(count("pages_sharing"), 0);
	memory[PAGE] = 1;
	CHECK_EQ(count("ksm_zero_pages"), 2);
	CHECK(memcmp(memory, zero, sizeof zero) == 0 && memory[PAGE] == 1 && memory[2 * PAGE] == 0);
	NEED(set("use_zero_pages", "0"));
	munmap(memory, 3 * PAGE);
	CHECK_EQ(count("ksm_zero_pages"), 0);
}

int main(void)
{
	NEED(set("run", "2") && set("run", "0"));
	NEED(set("pages_to_scan", "10000") && set("sleep_millisecs", "1"));
	equal_pages();
	writes();
	forked();
	no_more();
	whole_process();
	zeroes();
	return checked("ksm");
}
