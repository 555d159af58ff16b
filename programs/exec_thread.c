/* When any thread calls execve, do the other threads end, does the new program have the process ID and one thread, and
 * are its descriptors, signal mask and ignored signals kept?
 */
#include "check.h"
#include <dirent.h>
#include <pthread.h>

static char self_path[4096];

static int count_threads(void)
{
	int count = 0;
	DIR *folder = opendir("/proc/self/task");
	if (!folder)
		return -1;
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
		count += entry->d_name[0] != '.';
	closedir(folder);
	return count;
}

/* Runs in the new program and checks its state. argv contains "after", the previous process ID, a descriptor that must
 * be open and one that must be closed. */
static int after(char **argv)
{
	sigset_t mask;
	CHECK_EQ(getpid(), atoi(argv[2]));
	CHECK_EQ(syscall(SYS_gettid), getpid());
	CHECK_EQ(count_threads(), 1);
	CHECK(fcntl(atoi(argv[3]), F_GETFD) >= 0);
	CHECK_FAILS(fcntl(atoi(argv[4]), F_GETFD), EBADF);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	CHECK(sigismember(&mask, SIGUSR2));
	CHECK(!sigismember(&mask, SIGUSR1));
	struct sigaction action;
	sigaction(SIGHUP, NULL, &action);
	CHECK(action.sa_handler == SIG_IGN);
	sigaction(SIGUSR1, NULL, &action);
	CHECK(action.sa_handler == SIG_DFL);
	return checks_failed ? 1 : 0;
}

static void handler(int signal)
{
	(void)signal;
}

static void replace(void)
{
	char id[16], stays[16], closed[16];
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	snprintf(id, sizeof id, "%d", getpid());
	snprintf(stays, sizeof stays, "%d", open("/dev/null", O_RDONLY));
	snprintf(closed, sizeof closed, "%d", open("/dev/null", O_RDONLY | O_CLOEXEC));
	char *words[] = {self_path, "after", id, stays, closed, NULL};
	execv(self_path, words);
	CHECK(!"execv came back");
	_exit(1);
}

static void *replacing_thread(void *argument)
{
	usleep(2000);
	replace();
	return argument;
}

static void *sleeping_thread(void *argument)
{
	for (;;)
		pause();
	return argument;
}

static void *running_thread(void *argument)
{
	for (volatile unsigned long *count = argument;;)
		(*count)++;
	return NULL;
}

static void *reading_thread(void *argument)
{
	char byte;
	int *ends = argument;
	while (read(ends[0], &byte, 1) != 1)
		;
	return NULL;
}

static void *faulting_thread(void *argument)
{
	for (;;) {
		char *memory = anonymous(32 * PAGE);
		memset(memory, 1, 32 * PAGE);
		munmap(memory, 32 * PAGE);
	}
	return argument;
}

static void start_others(void)
{
	static unsigned long count;
	static int ends[2];
	pthread_t thread;
	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, handler);
	NEED(pipe(ends) == 0);
	NEED(pthread_create(&thread, NULL, sleeping_thread, NULL) == 0);
	NEED(pthread_create(&thread, NULL, running_thread, &count) == 0);
	NEED(pthread_create(&thread, NULL, reading_thread, ends) == 0);
	NEED(pthread_create(&thread, NULL, faulting_thread, NULL) == 0);
}

static void from_leader(void *unused)
{
	(void)unused;
	start_others();
	usleep(3000);
	replace();
}

static void from_thread(void *unused)
{
	(void)unused;
	pthread_t thread;
	start_others();
	NEED(pthread_create(&thread, NULL, replacing_thread, NULL) == 0);
	for (;;)
		pause();
}

/* The leader has already exited when another thread calls execve. */
static void from_thread_without_leader(void *unused)
{
	(void)unused;
	pthread_t thread;
	start_others();
	NEED(pthread_create(&thread, NULL, replacing_thread, NULL) == 0);
	syscall(SYS_exit, 7);
}

/* Two threads call execve at the same time. One call succeeds, and the process executes one program. */
static void from_two_threads(void *unused)
{
	(void)unused;
	pthread_t threads[2];
	signal(SIGHUP, SIG_IGN);
	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&threads[i], NULL, replacing_thread, NULL) == 0);
	for (;;)
		pause();
}

/* An execve that fails does not change any thread. */
static void failed(void *unused)
{
	(void)unused;
	static unsigned long count;
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, running_thread, &count) == 0);
	char *words[] = {"/nothing/here", NULL};
	CHECK_FAILS(execv(words[0], words), ENOENT);
	CHECK_EQ(count_threads(), 2);
	unsigned long before = *(volatile unsigned long *)&count;
	usleep(20000);
	CHECK(*(volatile unsigned long *)&count != before);
	exit(checks_failed ? 1 : 0);
}

/* vfork stops only the thread that calls it, and the child can execute a program. */
static void *vfork_thread(void *argument)
{
	int status = -1;
	pid_t child = vfork();
	if (child == 0) {
		char *words[] = {self_path, "nothing", NULL};
		execv(self_path, words);
		_exit(1);
	}
	waitpid(child, &status, 0);
	*(int *)argument = status;
	return NULL;
}

static void vfork_from_threads(void)
{
	pthread_t threads[4];
	int results[4] = {-1, -1, -1, -1};
	for (int i = 0; i < 4; i++)
		NEED(pthread_create(&threads[i], NULL, vfork_thread, &results[i]) == 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(results[i], 0);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return 0;
	if (argc > 2)
		return after(argv);
	NEED(readlink("/proc/self/exe", self_path, sizeof self_path - 1) > 0);
	for (int round = 0; round < 3; round++) {
		CHECK(exited(in_child(from_leader, NULL), 0));
		CHECK(exited(in_child(from_thread, NULL), 0));
		CHECK(exited(in_child(from_thread_without_leader, NULL), 0));
		CHECK(exited(in_child(from_two_threads, NULL), 0));
	}
	CHECK(exited(in_child(failed, NULL), 0));
	vfork_from_threads();
	return checked("exec_thread");
}
