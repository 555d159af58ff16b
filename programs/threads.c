/* Do threads behave as on Linux: what clone shares and writes, which IDs threads have, and how the process ends
 * depending on the order in which its threads exit?
 */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

/* From linux/futex.h, which older kernel headers lack. */
#define FUTEX_WAIT 0

#define THREAD_FLAGS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

static pid_t thread_id(void)
{
	return (pid_t)syscall(SYS_gettid);
}

/* Waits with a futex until a word is 0. The kernel clears such words and wakes their waiters. */
static void await_zero(volatile int *word)
{
	for (int value = *word; value != 0; value = *word)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void *stack_top(char **memory)
{
	*memory = anonymous(64 * 1024);
	return *memory + 64 * 1024;
}

/* ---- what a raw clone does ---- */

static volatile int parent_word, child_word, seen_thread, seen_process, seen_parent, seen_word;
static volatile int shared_value;

static int raw_thread(void *argument)
{
	seen_thread = (int)syscall(SYS_gettid);
	seen_process = (int)syscall(SYS_getpid);
	seen_parent = (int)syscall(SYS_getppid);
	seen_word = child_word;
	shared_value = *(int *)argument;
	syscall(SYS_close, shared_value);
	syscall(SYS_chdir, "/tmp");
	syscall(SYS_exit, 5);
	return 0;
}

static void raw_clone(void)
{
	char *memory, place[64];
	void *top = stack_top(&memory);
	NEED(memory);
	int file = open("/dev/null", O_RDONLY);
	NEED(file >= 0 && chdir("/") == 0);
	child_word = -1;
	pid_t id = clone(raw_thread, top, THREAD_FLAGS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID,
			 &file, &parent_word, NULL, &child_word);
	NEED(id > 0);
	await_zero(&child_word);
	CHECK_EQ(child_word, 0);
	CHECK_EQ(parent_word, id);
	CHECK_EQ(seen_thread, id);
	CHECK_EQ(seen_word, id);
	CHECK_EQ(seen_process, getpid());
	CHECK_EQ(seen_parent, getppid());
	CHECK(id != getpid());
	CHECK_EQ(shared_value, file);
	/* Descriptors and the working directory are shared. */
	CHECK_FAILS(close(file), EBADF);
	CHECK(getcwd(place, sizeof place) && strcmp(place, "/tmp") == 0);
	/* A thread is not a child. */
	CHECK_FAILS(waitpid(id, NULL, WNOHANG), ECHILD);
	CHECK_FAILS(waitpid(-1, NULL, WNOHANG), ECHILD);
	munmap(memory, 64 * 1024);
}

static int nothing(void *argument)
{
	(void)argument;
	return 0;
}

static void impossible_flags(void)
{
	char *memory;
	void *top = stack_top(&memory);
	CHECK_FAILS(clone(nothing, top, CLONE_THREAD, NULL), EINVAL);
	CHECK_FAILS(clone(nothing, top, CLONE_THREAD | CLONE_VM, NULL), EINVAL);
	CHECK_FAILS(clone(nothing, top, CLONE_SIGHAND, NULL), EINVAL);
	CHECK_FAILS(clone(nothing, top, CLONE_THREAD | CLONE_SIGHAND, NULL), EINVAL);
	munmap(memory, 64 * 1024);
}

/* CLONE_VM without CLONE_THREAD creates another process with the same memory. */
static int other_process(void *argument)
{
	seen_process = (int)syscall(SYS_getpid);
	shared_value = *(int *)argument;
	return 3;
}

static void shared_memory_process(void)
{
	char *memory;
	void *top = stack_top(&memory);
	int value = 77;
	shared_value = 0;
	child_word = 1;
	pid_t id = clone(other_process, top, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, &value, NULL, NULL, &child_word);
	NEED(id > 0);
	CHECK(exited(wait_for(id), 3));
	CHECK_EQ(shared_value, 77);
	CHECK_EQ(seen_process, id);
	CHECK_EQ(child_word, 0);
	munmap(memory, 64 * 1024);
}

/* ---- what is private to each thread ---- */

static __thread int own;
static int own_addresses_differ;

static void *use_own(void *argument)
{
	int number = *(int *)argument;
	own = number;
	for (int turn = 0; turn < 100; turn++) {
		if (own != number)
			return NULL;
		own = number;
		sched_yield();
	}
	char name[16];
	snprintf(name, sizeof name, "thread-%d", number);
	prctl(PR_SET_NAME, name);
	char got[16];
	prctl(PR_GET_NAME, got);
	return strcmp(name, got) == 0 ? &own_addresses_differ : NULL;
}

static void thread_local_data(void)
{
	enum { MANY = 8 };
	pthread_t threads[MANY];
	int numbers[MANY];
	char before[16], after[16];
	prctl(PR_GET_NAME, before);
	for (int i = 0; i < MANY; i++) {
		numbers[i] = i;
		NEED(pthread_create(&threads[i], NULL, use_own, &numbers[i]) == 0);
	}
	for (int i = 0; i < MANY; i++) {
		void *result = NULL;
		CHECK_EQ(pthread_join(threads[i], &result), 0);
		CHECK(result != NULL);
	}
	prctl(PR_GET_NAME, after);
	CHECK(strcmp(before, after) == 0);
}

/* ---- memory ---- */

static void *map_and_fill(void *argument)
{
	int seed = *(int *)argument;
	for (int round = 0; round < 50; round++) {
		size_t length = (size_t)(1 + (seed + round) % 7) * PAGE;
		char *memory = anonymous(length);
		if (!memory)
			return NULL;
		memset(memory, seed, length);
		mprotect(memory, length, PROT_READ);
		for (size_t at = 0; at < length; at += 512)
			if (memory[at] != (char)seed)
				return NULL;
		munmap(memory, length);
	}
	return argument;
}

static void memory_of_threads(void)
{
	enum { MANY = 4 };
	pthread_t threads[MANY];
	int seeds[MANY];
	for (int i = 0; i < MANY; i++) {
		seeds[i] = i + 1;
		NEED(pthread_create(&threads[i], NULL, map_and_fill, &seeds[i]) == 0);
	}
	for (int i = 0; i < MANY; i++) {
		void *result = NULL;
		pthread_join(threads[i], &result);
		CHECK(result == &seeds[i]);
	}
}

/* fork copies only the calling thread, although other threads write at the same time. */
static volatile int stop_writing;

static void *write_on(void *argument)
{
	volatile char *memory = argument;
	while (!stop_writing) {
		for (int page = 0; page < 16; page++)
			memory[page * PAGE]++;
		sched_yield();
	}
	return NULL;
}

static void fork_beside_writers(void)
{
	char *memory = anonymous(16 * PAGE);
	pthread_t writer;
	stop_writing = 0;
	NEED(memory && pthread_create(&writer, NULL, write_on, memory) == 0);
	for (int round = 0; round < 20; round++) {
		pid_t child = fork_checked();
		NEED(child >= 0);
		if (child == 0) {
			CHECK_EQ(thread_id(), getpid());
			char before[16];
			for (int page = 0; page < 16; page++)
				before[page] = memory[page * PAGE];
			sched_yield();
			for (int page = 0; page < 16; page++)
				CHECK_EQ(memory[page * PAGE], before[page]);
			end_child();
		}
		CHECK(exited(wait_for(child), 0));
	}
	stop_writing = 1;
	pthread_join(writer, NULL);
	munmap(memory, 16 * PAGE);
}

/* ---- orders of exits ---- */

static void *sleep_then_end_process(void *argument)
{
	usleep(2000);
	_exit(*(int *)argument);
}

static void *sleep_then_end(void *argument)
{
	usleep(2000);
	return argument;
}

static void *for_ever(void *argument)
{
	for (;;)
		pause();
	return argument;
}

/* If the leader exits first, the process continues, and its exit status is that of its last thread. */
static void leader_ends_first(void *unused)
{
	(void)unused;
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, sleep_then_end, NULL) == 0);
	syscall(SYS_exit, 9);
}

/* If the last thread exits, the process exits too, with that thread's exit code. */
static void thread_ends_process(void *unused)
{
	(void)unused;
	static int code = 21;
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, sleep_then_end_process, &code) == 0);
	syscall(SYS_exit, 9);
}

/* After the leader has exited, the process is not a zombie that can be reaped while other threads still run. */
static int release[2];

static void *end_when_released(void *argument)
{
	char byte;
	(void)!read(release[0], &byte, 1);
	_exit(*(int *)argument);
}

static void zombie_leader_waits(void)
{
	int ends[2];
	NEED(pipe(ends) == 0 && pipe(release) == 0);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		static int code = 4;
		pthread_t thread;
		close(ends[0]);
		NEED(pthread_create(&thread, NULL, end_when_released, &code) == 0);
		CHECK_EQ(write(ends[1], "x", 1), 1);
		syscall(SYS_exit, 9);
	}
	close(ends[1]);
	char byte;
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
	CHECK_EQ(kill(child, 0), 0);
	CHECK_EQ(write(release[1], "x", 1), 1);
	CHECK(exited(wait_for(child), 4));
	close(ends[0]);
	close(release[0]);
	close(release[1]);
}

/* When the process exits, other threads are in every state: running, waiting, in a system call, just created. */
static void *run_for_ever(void *argument)
{
	volatile unsigned long *count = argument;
	for (;;)
		(*count)++;
	return NULL;
}

static void *read_for_ever(void *argument)
{
	char byte;
	int *ends = argument;
	(void)!read(ends[0], &byte, 1);
	return NULL;
}

static void *fault_for_ever(void *argument)
{
	for (;;) {
		char *memory = anonymous(64 * PAGE);
		if (memory) {
			memset(memory, 1, 64 * PAGE);
			munmap(memory, 64 * PAGE);
		}
	}
	return argument;
}

static void *make_for_ever(void *argument)
{
	for (;;) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, sleep_then_end, argument) == 0)
			pthread_join(thread, NULL);
	}
	return NULL;
}

static void end_in_every_state(void *unused)
{
	(void)unused;
	static unsigned long count;
	static int ends[2];
	pthread_t thread;
	NEED(pipe(ends) == 0);
	NEED(pthread_create(&thread, NULL, run_for_ever, &count) == 0);
	NEED(pthread_create(&thread, NULL, read_for_ever, ends) == 0);
	NEED(pthread_create(&thread, NULL, fault_for_ever, NULL) == 0);
	NEED(pthread_create(&thread, NULL, for_ever, NULL) == 0);
	NEED(pthread_create(&thread, NULL, make_for_ever, NULL) == 0);
	usleep(20000);
	NEED(pthread_create(&thread, NULL, for_ever, NULL) == 0);
	exit(33);
}

static void *fault_badly(void *argument)
{
	usleep(1000);
	*(volatile int *)argument = 1;
	return NULL;
}

/* A fault in one thread kills all threads. */
static void fault_kills_all(void *unused)
{
	(void)unused;
	pthread_t thread;
	signal(SIGSEGV, SIG_DFL);
	NEED(pthread_create(&thread, NULL, for_ever, NULL) == 0);
	NEED(pthread_create(&thread, NULL, fault_badly, NULL) == 0);
	for (;;)
		pause();
}

static void orders_of_ends(void)
{
	CHECK(exited(in_child(leader_ends_first, NULL), 0));
	CHECK(exited(in_child(thread_ends_process, NULL), 21));
	zombie_leader_waits();
	for (int round = 0; round < 3; round++)
		CHECK(exited(in_child(end_in_every_state, NULL), 33));
	CHECK(killed(in_child(fault_kills_all, NULL), SIGSEGV));
}

/* ---- many, one after another, and usage ---- */

static void *add_one(void *argument)
{
	__atomic_fetch_add((int *)argument, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void many_threads(void)
{
	int count = 0;
	for (int round = 0; round < 50; round++) {
		pthread_t threads[8];
		for (int i = 0; i < 8; i++)
			NEED(pthread_create(&threads[i], NULL, add_one, &count) == 0);
		for (int i = 0; i < 8; i++)
			pthread_join(threads[i], NULL);
	}
	CHECK_EQ(count, 400);
}

static void *spend(void *argument)
{
	for (volatile int turn = 0; turn < 2000000; turn++)
		;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, argument);
	return NULL;
}

static long long nanoseconds(struct timespec time)
{
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void usage_of_threads(void)
{
	struct rusage own_before, own_after;
	struct timespec before, after, spent;
	pthread_t thread;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	getrusage(RUSAGE_THREAD, &own_before);
	NEED(pthread_create(&thread, NULL, spend, &spent) == 0);
	pthread_join(thread, NULL);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	getrusage(RUSAGE_THREAD, &own_after);
	/* The usage of a thread that has exited counts toward its process. */
	CHECK(nanoseconds(after) - nanoseconds(before) >= nanoseconds(spent));
	CHECK(nanoseconds(spent) > 0);
	CHECK(own_after.ru_minflt >= own_before.ru_minflt);
}

int main(void)
{
	raw_clone();
	impossible_flags();
	shared_memory_process();
	thread_local_data();
	memory_of_threads();
	fork_beside_writers();
	orders_of_ends();
	many_threads();
	usage_of_threads();
	return checked("threads");
}
