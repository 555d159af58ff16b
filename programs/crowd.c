/* Do all threads that change one address space make progress, even if fewer CPUs than threads really run?
 *
 * Six threads each repeat these steps 300 times: map private memory, write to it, remove and restore write
 * permission, fork a child that reads it, move it, and unmap it. Each step waits for the other threads' changes of
 * the address space, and for TLB flushes on other CPUs. Usage: `crowd [ROUNDS]`, 300 by default. If there are more
 * virtual CPUs than real ones, a CPU that waits must not prevent the CPU that it waits for from running. A kernel
 * whose CPUs spin without a limit makes no progress.
 */
#include "check.h"
#include <pthread.h>

enum { THREADS = 6, PAGES = 4 };

static unsigned long rounds = 300;

static struct worker {
	pthread_t thread;
	unsigned long number, done, wrong;
	const char *what;
} workers[THREADS];

static int failed(struct worker *worker, const char *what)
{
	worker->wrong++;
	worker->what = what;
	return 0;
}

/* Returns whether all pages contain the value that this round wrote. */
static int holds(const unsigned char *memory, unsigned char value)
{
	for (unsigned long page = 0; page < PAGES; page++)
		if (memory[page * PAGE] != value)
			return 0;
	return 1;
}

static int child_sees(const unsigned char *memory, unsigned char value)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(holds(memory, value) ? 0 : 1);
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int round_of(struct worker *worker, unsigned char value)
{
	unsigned char *memory =
		mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return failed(worker, "mmap");
	for (unsigned long page = 0; page < PAGES; page++)
		memory[page * PAGE] = value;
	if (mprotect(memory, PAGES * PAGE, PROT_READ) || mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE))
		return failed(worker, "mprotect");
	if (!child_sees(memory, value))
		return failed(worker, "what a child sees");
	memory[0] = value + 1;
	memory[0] = value;
	unsigned char *moved = mremap(memory, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED)
		return failed(worker, "mremap");
	if (!holds(moved, value) || moved[PAGES * PAGE] != 0)
		return failed(worker, "what was moved");
	if (munmap(moved, 2 * PAGES * PAGE))
		return failed(worker, "munmap");
	return 1;
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	for (unsigned long round = 0; round < rounds; round++)
		worker->done += round_of(worker, (unsigned char)(worker->number * 40 + round % 37 + 1));
	return NULL;
}

int main(int count, char **arguments)
{
	if (count > 1)
		rounds = strtoul(arguments[1], NULL, 0);
	for (unsigned long number = 0; number < THREADS; number++) {
		workers[number].number = number;
		NEED(pthread_create(&workers[number].thread, NULL, work, &workers[number]) == 0);
	}
	for (unsigned long number = 0; number < THREADS; number++) {
		struct worker *worker = &workers[number];
		NEED(pthread_join(worker->thread, NULL) == 0);
		if (!CHECK_EQ(worker->wrong, 0))
			printf("thread %lu: %s\n", number, worker->what);
		CHECK_EQ(worker->done, rounds);
	}
	return checked("crowd");
}
