/* Does memory follow the threads that use it?
 *
 * The access patterns of the programs that are used to evaluate NUMA balancing, in small: numa01, two processes on two
 * nodes, each of which has threads that write all of its memory; numa02, one process whose threads write a part of its
 * memory each. All memory is first touched on node 0, so half of it is on the wrong node. Threads stay on their CPUs:
 * whether they should be moved to their memory instead is a question for a scheduler.
 *
 * Usage: autonuma numa01|numa02 [PASSES [KIB_OF_A_THREAD]]
 */
#include "numa.h"

enum { THREADS = 4 };

/* Barriers: for the processes after their memory is populated, and for all threads before they start. */
static struct {
	pthread_barrier_t ready, begin;
} *meeting;
static unsigned long passes;

struct part {
	int cpu;
	char *memory;
	size_t size;
};

static void *write_part(void *argument)
{
	const struct part *part = argument;
	stay_on_cpu(part->cpu);
	pthread_barrier_wait(&meeting->begin);
	for (unsigned long pass = 0; pass < passes; pass++)
		for (size_t at = 0; at < part->size; at += PAGE)
			(*(volatile char *)(part->memory + at))++;
	return NULL;
}

/* Runs threads on these CPUs that write all of the memory, or a part each. Returns when they have ended. */
static void run_threads(int first, int threads, char *memory, size_t size, int is_shared)
{
	struct part parts[THREADS];
	pthread_t handles[THREADS];
	size_t each = size / threads;
	for (int i = 0; i < threads; i++) {
		parts[i] = (struct part){ first + i, is_shared ? memory : memory + i * each, is_shared ? size : each };
		MUST(pthread_create(&handles[i], NULL, write_part, &parts[i]) == 0);
	}
	pthread_barrier_wait(&meeting->begin);
	for (int i = 0; i < threads; i++)
		MUST(pthread_join(handles[i], NULL) == 0);
}

/* Returns the number of pages that are on the node of the CPUs that use them. */
static size_t pages_at_home(char *memory, size_t size, int is_shared, int node)
{
	if (is_shared)
		return pages_on(node, memory, size);
	return pages_on(0, memory, size / 2) + pages_on(1, memory + size / 2, size / 2);
}

int main(int count, char **arguments)
{
	const char *shape = count > 1 ? arguments[1] : "numa01";
	int is_shared = strcmp(shape, "numa01") == 0;
	passes = argument(count, arguments, 2, 20000);
	size_t each = argument(count, arguments, 3, 4 * KIB) * KIB, size;
	int processes = is_shared ? 2 : 1, own = THREADS / processes, status = 0;
	pthread_barrierattr_t shared;
	pid_t other = 0;
	/* A thread of numa01 also writes the other threads' parts. */
	passes /= processes;
	MUST(is_shared || strcmp(shape, "numa02") == 0);
	size = each * own;
	MUST(passes > 0 && each > 0 && each % PAGE == 0);
	begin();
	stay_on_cpu(0);
	balance_quickly();
	meeting = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(meeting != MAP_FAILED);
	MUST(pthread_barrierattr_init(&shared) == 0);
	MUST(pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED) == 0);
	MUST(pthread_barrier_init(&meeting->ready, &shared, processes) == 0);
	MUST(pthread_barrier_init(&meeting->begin, &shared, THREADS + processes) == 0);
	balancing_now();
	if (is_shared)
		MUST((other = fork()) >= 0);
	char *memory = fresh_apart(size);
	write_pages(memory, size);
	pthread_barrier_wait(&meeting->ready);
	struct balancing before = balancing_now();
	uint64_t start = clock_now();
	run_threads(is_shared && !other ? own : 0, own, memory, size, is_shared);
	/* The exit code is the percentage of the process's pages that are on its node. */
	if (is_shared && !other)
		_exit(pages_on(1, memory, size) * 100 * PAGE / size);
	if (is_shared)
		MUST(waitpid(other, &status, 0) == other && WIFEXITED(status));
	uint64_t took = clock_now() - start;
	struct balancing after = balancing_now();
	double hints = moved_by(&before, &after, HINTS), local = moved_by(&before, &after, HINTS_LOCAL);
	double home = 100.0 * pages_at_home(memory, size, is_shared, 0) * PAGE / size;
	if (is_shared)
		home = (home + WEXITSTATUS(status)) / 2;
	record_value(shape, "to the end", "instructions", took);
	record_balancing(shape, &before, &after);
	record_value(shape, "hint faults, local, of all", "%", hints > 0 ? 100 * local / hints : 0);
	record_value(shape, "pages where they are used in the end, of all", "%", home);
	print_records();
	return 0;
}
