/* Does a program make progress while ksmd scans without sleeping?
 *
 * With sleep_millisecs 0 ksmd never sleeps. On Linux ksmd is a thread with nice 5, so the scheduler gives a program
 * with nice 0 three quarters of the CPU. The scan time that is charged to the program must not exceed ksmd's share.
 */
#include "check.h"
#include <time.h>

#define KSM "/sys/kernel/mm/ksm/"

enum { PAGES = 4096 };

static void set(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, KSM "%s", name);
	int file = open(path, O_WRONLY);
	NEED(file >= 0);
	NEED(write(file, text, strlen(text)) > 0);
	close(file);
}

/* Returns the time that a fixed amount of work takes. */
static long work(void)
{
	struct timespec start, end;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	for (int i = 0; i < 20000000; i++)
		__asm__ volatile("" ::: "memory");
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	return (end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec;
}

int main(void)
{
	char *memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	for (size_t page = 0; page < PAGES; page++)
		memset(memory + page * PAGE, (int)page, PAGE);
	NEED(madvise(memory, PAGES * PAGE, MADV_MERGEABLE) == 0);
	long alone = work();
	set("sleep_millisecs", "0");
	set("pages_to_scan", "1000000");
	set("run", "1");
	long beside = work();
	set("run", "2");
	set("pages_to_scan", "100");
	set("sleep_millisecs", "20");
	/* ksmd gets at most a quarter of the CPU. The rest of the margin is for other processes on Linux. */
	CHECK(beside < 4 * alone);
	return checked("ksm_share");
}
