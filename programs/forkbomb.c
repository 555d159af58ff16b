/* Does a fork bomb end at RLIMIT_NPROC, with an error in each of its processes, and is everything freed afterwards?
 *
 * All processes of one user fork until fork fails. Each process gets EAGAIN once, and the number of processes
 * equals the limit exactly. Then all exit, and fork succeeds again. Threads count in the same way as
 * processes.
 */
#include "check.h"
#include <pthread.h>
#include <time.h>

enum { LIMIT = 60, USER = 54321, BOMBS = 3 };

struct shared {
	uint32_t living, most, refused, wrong;
};

static struct shared *shared;

static void rest(void)
{
	struct timespec time = { 0, 100000 };
	nanosleep(&time, NULL);
}

static void note_birth(void)
{
	uint32_t living = __atomic_add_fetch(&shared->living, 1, __ATOMIC_SEQ_CST);
	uint32_t most = __atomic_load_n(&shared->most, __ATOMIC_SEQ_CST);
	while (most < living &&
	       !__atomic_compare_exchange_n(&shared->most, &most, living, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
}

/* Forks until fork fails, in this process and in every child. Returns when fork has failed in every process. */
static void explode(void)
{
	for (;;) {
		pid_t child = fork();
		if (child < 0)
			break;
		if (child == 0)
			note_birth();
	}
	if (errno != EAGAIN)
		__atomic_store_n(&shared->wrong, (uint32_t)errno, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&shared->refused, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&shared->refused, __ATOMIC_SEQ_CST) < LIMIT)
		rest();
	/* Each process reaps its own children. */
	while (wait(NULL) > 0)
		;
	__atomic_fetch_sub(&shared->living, 1, __ATOMIC_SEQ_CST);
}

static void become_user(void)
{
	struct rlimit limit = { LIMIT, LIMIT };
	NEED(setrlimit(RLIMIT_NPROC, &limit) == 0);
	NEED(setuid(USER) == 0);
}

static void bomb(void *argument)
{
	(void)argument;
	pid_t first = getpid();
	become_user();
	note_birth();
	explode();
	if (getpid() != first)
		_exit(0);
	CHECK_EQ(shared->most, LIMIT);
	CHECK_EQ(shared->refused, LIMIT);
	CHECK_EQ(shared->wrong, 0);
	CHECK_EQ(shared->living, 0);
	pid_t child = fork_checked();
	if (child == 0)
		_exit(3);
	CHECK(exited(wait_for(child), 3));
}

static volatile int finished;

static void *idle(void *argument)
{
	while (!finished)
		rest();
	return argument;
}

static void threads(void *argument)
{
	(void)argument;
	become_user();
	pthread_t thread[LIMIT];
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 * 1024);
	int count = 0, error = 0;
	while (count < LIMIT && (error = pthread_create(&thread[count], &attributes, idle, NULL)) == 0)
		count++;
	CHECK_EQ(error, EAGAIN);
	CHECK_EQ(count, LIMIT - 1);
	CHECK_FAILS(fork(), EAGAIN);
	finished = 1;
	for (int i = 0; i < count; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	finished = 0;
	CHECK_EQ(pthread_create(&thread[0], &attributes, idle, NULL), 0);
	finished = 1;
	CHECK_EQ(pthread_join(thread[0], NULL), 0);
}

int main(void)
{
	if (getuid() != 0) {
		printf("forkbomb: only root can become somebody else\n");
		return 0;
	}
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED);
	for (int i = 0; i < BOMBS; i++) {
		memset(shared, 0, sizeof *shared);
		CHECK(exited(in_child(bomb, NULL), 0));
	}
	CHECK(exited(in_child(threads, NULL), 0));
	CHECK_FAILS(wait(NULL), ECHILD);
	return checked("forkbomb");
}
