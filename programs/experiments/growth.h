/* What the parts of the experiment on growth share: an operation, the growth of one thing, and simple operations. */
#ifndef GROWTH_H
#define GROWTH_H

#include "experiment.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>

enum { MOST_SIZES = 6, MOST_OPERATIONS = 10, TIMES = 8 };

/* The cost of an operation that the kernel or the machine does not offer. Such an operation has no record. */
#define UNAVAILABLE UINT64_MAX

/* An operation on the N existing things. */
struct operation {
	const char *name;
	/* Executes the operation once, and returns its cost. */
	uint64_t (*measure)(unsigned long n);
};

/* A kind of thing whose number grows. */
struct dimension {
	const char *word, *things;
	unsigned long sizes[MOST_SIZES];
	/* Creates things of this kind until there are N. */
	void (*grow)(unsigned long n);
	struct operation operations[MOST_OPERATIONS];
	/* Returns whether the kernel has things of this kind. NULL if every kernel has. */
	int (*is_offered)(void);
};

static inline char *mapped(size_t size, int protection)
{
	char *memory = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(memory != MAP_FAILED);
	return memory;
}

static inline uint64_t read_whole(const char *path)
{
	static char text[64 * KIB];
	uint64_t start = clock_now();
	int file = open(path, O_RDONLY);
	MUST(file >= 0);
	while (read(file, text, sizeof text) > 0)
		;
	close(file);
	return clock_now() - start;
}

static uint32_t random_state = 1;

static inline unsigned long any_below(unsigned long bound)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % bound;
}

static inline uint64_t read_status(unsigned long n)
{
	(void)n;
	return read_whole("/proc/self/status");
}

static inline uint64_t fork_once(void)
{
	uint64_t start = clock_now();
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0)
		_exit(0);
	MUST(waitpid(child, NULL, 0) == child);
	return clock_now() - start;
}

static inline uint64_t fork_exit_wait(unsigned long n)
{
	(void)n;
	return fork_once();
}

static inline uint64_t map_and_touch(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	char *memory = mapped(PAGE, PROT_READ | PROT_WRITE);
	*memory = 1;
	MUST(munmap(memory, PAGE) == 0);
	return clock_now() - start;
}

#endif
