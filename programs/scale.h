/* The parts that the scale_* programs share. Threads or processes, each on its own CPU and with private memory, execute
 * rounds of one operation.
 *
 *         scale_NAME [WORKERS [ROUNDS [processes]]]
 *
 * Every worker has a slot of 4 MiB and uses less than the first 2 MiB of it, so that no two workers share an area or
 * a lowest-level page table. One round is not counted, because it populates page tables and fills caches. The
 * workers synchronise in user mode by spinning, without locks. The program prints the number of TLB shootdown
 * interrupts in the counted rounds and, if the kernel has them, the lock statistics.
 */
#ifndef SCALE_H
#define SCALE_H

#include "check.h"
#include <pthread.h>
#include <sched.h>

#define SLOT (4UL << 20)
/* The number of pages that a worker uses in a round. It is less than what a CPU keeps in its list of free frames. */
#define PAGES 128UL
#define MOST_WORKERS 64
/* The number of slots whose page-table entries share a cache line. */
#define ALIGNED 16

/* Checks a condition in a worker. CHECK cannot be used, because its count is in memory that all workers would then
 * write. */
#define MUST(condition)                                                                \
	do {                                                                           \
		if (!(condition)) {                                                    \
			printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			fflush(stdout);                                                \
			_exit(99);                                                     \
		}                                                                      \
	} while (0)

struct worker {
	int index;
	unsigned char round;
	char *memory;
	pthread_t thread;
	pid_t process;
} __attribute__((aligned(64)));

/* The memory that the workers share, also if they are processes. */
struct meeting {
	/* The number of workers that have reached a barrier, summed over all barriers. */
	int arrived;
	/* The number of workers that do not share their CPU. */
	int alone;
};

static struct worker workers[MOST_WORKERS];
static struct meeting *meeting;
static int count = 2;
static unsigned rounds = 4;
static void (*scale_round)(struct worker *);

static void meet(int number)
{
	__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&meeting->arrived, __ATOMIC_ACQUIRE) < number * count)
		__builtin_ia32_pause();
}

/* Resets the lock statistics by writing a 0. Returns whether the kernel has them. */
static int statistics_begin(int file)
{
	return file >= 0 && pwrite(file, "0", 1, 0) == 1;
}

/* Returns the number of TLB shootdown interrupts, from the row TLB of /proc/interrupts. */
static long shootdowns(int file)
{
	static char text[1 << 16];
	ssize_t length = pread(file, text, sizeof text - 1, 0);
	MUST(length > 0);
	text[length] = 0;
	char *at = strstr(text, "TLB:");
	MUST(at);
	long sum = 0;
	for (at += 4; *at != '\n'; at++) {
		char *end = at;
		sum += strtol(at, &end, 10);
		if (end == at)
			break;
		at = end - 1;
	}
	return sum;
}

static void statistics_print(int file)
{
	char text[8192];
	ssize_t length = pread(file, text, sizeof text - 1, 0);
	MUST(length > 0);
	text[length] = 0;
	fputs(text, stdout);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	cpu_set_t own;
	CPU_ZERO(&own);
	CPU_SET(worker->index, &own);
	/* If there are fewer CPUs, some workers share one. */
	if (sched_setaffinity(0, sizeof own, &own) == 0) {
		unsigned cpu = ~0U;
		MUST(syscall(SYS_getcpu, &cpu, NULL, NULL) == 0);
		MUST(cpu == (unsigned)worker->index);
		__atomic_add_fetch(&meeting->alone, 1, __ATOMIC_RELAXED);
	}
	int file = -1, interrupts = -1;
	long before = 0;
	if (worker->index == 0) {
		file = open("/proc/lock_stat", O_RDWR | O_CLOEXEC);
		interrupts = open("/proc/interrupts", O_RDONLY | O_CLOEXEC);
	}
	scale_round(worker);
	meet(1);
	if (worker->index == 0)
		before = shootdowns(interrupts);
	int counted = worker->index == 0 && statistics_begin(file);
	meet(2);
	for (unsigned round = 0; round < rounds; round++) {
		worker->round++;
		scale_round(worker);
	}
	meet(3);
	if (worker->index == 0)
		printf("%ld interrupted\n", shootdowns(interrupts) - before);
	if (counted)
		statistics_print(file);
	if (file >= 0)
		close(file);
	if (interrupts >= 0)
		close(interrupts);
	/* No worker exits before the statistics have been read. */
	meet(4);
	return NULL;
}

static inline void begin(struct worker *worker, int processes)
{
	if (!processes) {
		NEED(pthread_create(&worker->thread, NULL, work, worker) == 0);
		return;
	}
	worker->process = fork();
	NEED(worker->process >= 0);
	if (worker->process == 0) {
		work(worker);
		_exit(0);
	}
}

static inline void await(struct worker *worker, int processes)
{
	int status = -1;
	if (!processes)
		NEED(pthread_join(worker->thread, NULL) == 0);
	else
		NEED(waitpid(worker->process, &status, 0) == worker->process && status == 0);
}

/* Executes the rounds on all workers, and prints the number of operations in all counted rounds. Returns the exit code
 * of main. */
static inline int scale(const char *name, int argc, char **argv, void (*round)(struct worker *), unsigned operations)
{
	int processes = argc > 3 && strcmp(argv[3], "processes") == 0;
	if (argc > 1)
		count = atoi(argv[1]);
	if (argc > 2)
		rounds = (unsigned)atoi(argv[2]);
	NEED(count >= 1 && count <= MOST_WORKERS);
	scale_round = round;
	meeting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(meeting != MAP_FAILED);
	size_t slots = (size_t)count + ALIGNED;
	char *reserved = mmap(NULL, SLOT * slots, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(reserved != MAP_FAILED);
	char *first = (char *)(((uintptr_t)reserved + ALIGNED * SLOT - 1) & ~(ALIGNED * SLOT - 1));
	for (int index = 0; index < count; index++) {
		workers[index].index = index;
		workers[index].memory = first + SLOT * (size_t)index;
		NEED(munmap(workers[index].memory, SLOT / 2) == 0);
	}
	for (int index = 1; index < count; index++)
		begin(&workers[index], processes);
	work(&workers[0]);
	for (int index = 1; index < count; index++)
		await(&workers[index], processes);
	printf("%s: %d %s, %d on CPUs of their own, %u rounds, %u operations\n", name, count,
	       processes ? "processes" : "threads", meeting->alone, rounds, (unsigned)count * rounds * operations);
	return checked(name);
}

/* Maps a worker's memory in its slot. */
static inline void map_own(struct worker *worker, int rights)
{
	void *memory = mmap(worker->memory, PAGES * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	MUST(memory == worker->memory);
}

#endif
