/* Two threads, each on a CPU of its own. Tests check the exact counts of their regions:
 *
 *     two_cpus PASSES PAGES   region 1 is a loop of PASSES on CPU 0, and region 2 at the same time one of twice as many on
 *                             CPU 1: a region has 1 + 2 * its passes instructions, the first of which is the begin mark;
 *                             then, in region 3, CPU 0 unmaps PAGES one by one while the other thread runs on CPU 1
 *     two_cpus move PASSES    a thread begins region 1 on CPU 0 and ends it on CPU 1, PASSES times
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "mark.h"

enum { PAGE = 4096 };

static volatile int ready, stop;
static unsigned long passes, pages;

static void run_on(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		exit(2);
}

/* Waits until both threads have come here, so that both run at the same time. */
static void meet(void)
{
	__atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
	while (ready < 2)
		__asm__ volatile("pause");
}

/* A loop between the marks of a region, with no other instruction. */
#define LOOP(region, count) \
	do { \
		unsigned long left = (count); \
		__asm__ volatile(".byte 0x0f, 0x1f, 0x80\n\t.long %c1\n1:\tdec %0\n\tjnz 1b\n\t" \
				 ".byte 0x0f, 0x1f, 0x80\n\t.long %c1 + 1" \
				 : "+r"(left) : "i"(MARK_MAGIC | (region) << 1)); \
	} while (0)

static void *on_cpu_1(void *nothing)
{
	run_on(1);
	meet();
	LOOP(2, 2 * passes);
	while (!stop)
		__asm__ volatile("pause");
	return nothing;
}

static void unmap_pages(void)
{
	char *memory = mmap(NULL, 2 * pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		exit(2);
	memset(memory, 1, 2 * pages * PAGE);
	MARK_BEGIN(3);
	for (unsigned long page = 0; page < pages; page++)
		munmap(memory + 2 * page * PAGE, PAGE);
	MARK_END(3);
}

static void move(unsigned long times)
{
	while (times--) {
		run_on(0);
		MARK_BEGIN(1);
		run_on(1);
		MARK_END(1);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc != 3)
		return 2;
	pages = strtoul(argv[2], NULL, 10);
	if (strcmp(argv[1], "move") == 0) {
		move(pages);
		return 0;
	}
	passes = strtoul(argv[1], NULL, 10);
	if (pthread_create(&thread, NULL, on_cpu_1, NULL))
		return 2;
	run_on(0);
	meet();
	LOOP(1, passes);
	unmap_pages();
	stop = 1;
	pthread_join(thread, NULL);
	return 0;
}
