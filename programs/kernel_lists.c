/* What happens to a program that makes lists in the kernel grow while memory is exhausted?
 *
 * After memory has been used up, timers are set, threads wait and signals are queued. Each call must succeed
 * or fail with an error. Each attempt runs in a separate process, which may be killed for lack of memory. The
 * machine must then be able to run the next attempt.
 */
#include "check.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/timerfd.h>
#include <time.h>

/* The counts shared by all attempts. Semaphore sets outlive the processes that create them. */
struct made {
	int sets;
	int ids[4000];
};
static struct made *made;

/* Returns whether errno reports a lack of resources. */
static int refused(void)
{
	return errno == ENOMEM || errno == EAGAIN || errno == ENOSPC || errno == EMFILE || errno == ENFILE ||
	       errno == EPERM;
}

static void raise_files(void)
{
	struct rlimit limit = { 40000, 40000 };
	/* Root may raise the limit. For other users, the limit stays unchanged. */
	if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
		return;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Creates timers until there is no memory for another one, then sets all of them. */
static void set_timers(void)
{
	static int files[40000];
	int count = 0, set = 0;
	struct itimerspec far = { .it_value = { .tv_sec = 100000 } }, old;
	while (count < 40000 && (files[count] = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0)
		count++;
	CHECK(count == 40000 || refused());
	for (int number = 0; number < count; number++, set++) {
		far.it_value.tv_nsec = number * 7919L % 1000003;
		if (timerfd_settime(files[number], 0, &far, NULL) != 0)
			break;
	}
	CHECK(set == count || errno == ENOMEM);
	/* Timers that are set can be set again, and all can be read and cleared. */
	for (int number = 0; number < count; number++) {
		CHECK_EQ(timerfd_gettime(files[number], &old), 0);
		CHECK_EQ(old.it_value.tv_sec != 0, number < set);
	}
	far.it_value.tv_sec = 0;
	far.it_value.tv_nsec = 0;
	for (int number = 0; number < set; number += 2)
		CHECK(timerfd_settime(files[number], 0, &far, NULL) == 0 || errno == ENOMEM);
}

enum { THREADS = 4000 };
static int word, other_word, started;

static void *wait_for_word(void *unused)
{
	struct timespec far = { .tv_sec = 100000 };
	__atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
		if (syscall(SYS_futex, &word, FUTEX_WAIT, 0, &far, NULL, 0) != 0 && errno == ENOMEM)
			sched_yield();
	return unused;
}

/* Many threads wait for one futex with a timeout. They are requeued to another futex, and all are woken. */
static void wait_together(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	int count = 0;
	NEED(pthread_attr_init(&attributes) == 0);
	NEED(pthread_attr_setstacksize(&attributes, 16384) == 0);
	NEED(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	while (count < THREADS && (errno = pthread_create(&thread, &attributes, wait_for_word, NULL)) == 0)
		count++;
	CHECK(count == THREADS || refused());
	while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < count)
		sched_yield();
	/* At most a tenth of the threads are woken, and wait again. Some threads may not have begun to wait
	 * before. All threads that wait are then requeued. */
	long woken = syscall(SYS_futex, &word, FUTEX_WAKE, count / 10, NULL, NULL, 0);
	CHECK(woken >= 0 && woken <= count / 10);
	for (int step = 0; step < 3; step++) {
		long moved = syscall(SYS_futex, &word, FUTEX_REQUEUE, 1, count / 2, &other_word, 0);
		CHECK(moved >= 0 ? moved <= 1 + count / 2 : errno == ENOMEM);
	}
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	CHECK(syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0) >= 0);
	CHECK(syscall(SYS_futex, &other_word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0) >= 0);
}

/* Many processes wait in many wait queues at the same time. */
static void poll_together(void)
{
	enum { FILES = 200 };
	static struct pollfd files[FILES];
	int children = 0;
	for (int number = 0; number < FILES; number++) {
		files[number].fd = eventfd(0, 0);
		files[number].events = POLLIN;
		NEED(files[number].fd >= 0);
	}
	for (; children < 2000; children++) {
		pid_t child = fork();
		if (child < 0)
			break;
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			int ready = poll(files, FILES, -1);
			_exit(ready == 1 || (ready < 0 && errno == ENOMEM) ? 0 : 1);
		}
	}
	CHECK(children > 0);
	CHECK(children == 2000 || refused());
	uint64_t one = 1;
	CHECK_EQ(write(files[FILES - 1].fd, &one, sizeof one), sizeof one);
	for (int child = 0; child < children; child++) {
		int status;
		NEED(wait(&status) > 0);
		CHECK(exited(status, 0) || killed(status, SIGKILL));
	}
}

/* Creates large and small semaphore sets, and performs an operation with SEM_UNDO on each. */
static void make_sets(void)
{
	static const int sizes[] = { 32000, 1000, 1 }, counts[] = { 300, 1000, 1000 };
	struct sembuf add = { .sem_num = 0, .sem_op = 1, .sem_flg = SEM_UNDO };
	for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++) {
		for (int number = 0; number < counts[size]; number++) {
			int id = semget(IPC_PRIVATE, sizes[size], 0600);
			if (id < 0) {
				CHECK(refused());
				break;
			}
			made->ids[made->sets++] = id;
			CHECK(semop(id, &add, 1) == 0 || errno == ENOMEM || errno == ENOSPC);
		}
	}
}

static void remove_sets(void)
{
	while (made->sets > 0)
		CHECK_EQ(semctl(made->ids[--made->sets], 0, IPC_RMID), 0);
}

/* Queues signals up to the limit, and receives all of them. */
static void queue_signals(void)
{
	enum { MOST = 30000 };
	sigset_t set;
	union sigval value = { 0 };
	struct timespec now = { 0, 0 };
	int queued = 0, taken = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	NEED(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	while (queued < MOST && sigqueue(getpid(), SIGRTMIN, value) == 0)
		queued++;
	CHECK(queued == MOST || errno == EAGAIN);
	for (; taken < 100 && sigtimedwait(&set, NULL, &now) == SIGRTMIN; taken++)
		;
	CHECK_EQ(taken, queued < 100 ? queued : 100);
}

/* Makes the OOM killer choose this process and its children before the process that counts their results. */
static void go_first(void)
{
	int file = open("/proc/self/oom_score_adj", O_WRONLY);
	NEED(file >= 0);
	NEED(write(file, "1000", 4) == 4);
	NEED(close(file) == 0);
}

static void attempt(void *work)
{
	go_first();
	raise_files();
	(*(void (**)(void))work)();
}

int main(void)
{
	static void (*const attempts[])(void) = { set_timers, wait_together, poll_together, make_sets,
						  queue_signals };
	made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(made != MAP_FAILED);
	for (size_t number = 0; number < sizeof attempts / sizeof *attempts; number++) {
		void (*work)(void) = attempts[number];
		int status = in_child(attempt, &work);
		CHECK(exited(status, 0) || killed(status, SIGKILL));
		remove_sets();
		/* The memory that the attempt used is free again. */
		char *memory = anonymous(8 << 20);
		NEED(memory != NULL);
		memset(memory, 1, 8 << 20);
		NEED(munmap(memory, 8 << 20) == 0);
	}
	return checked("kernel_lists");
}
