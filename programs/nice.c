/* Do nice values determine shares of the CPU, and which processes may change them?
 *
 * getpriority and setpriority (kernel/sys.c of Linux), and fields 18 and 19 of /proc/PID/stat.
 */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

static int nice_of(int which, int who)
{
	errno = 0;
	int value = getpriority(which, who);
	CHECK_EQ(errno, 0);
	return value;
}

/* Checks fields 18 and 19 of the stat file. */
static void check_fields(int nice)
{
	char text[1024];
	int file = open("/proc/self/stat", O_RDONLY);
	ssize_t length = read(file, text, sizeof text - 1);
	close(file);
	CHECK(length > 0);
	text[length] = 0;
	char *at = strrchr(text, ')');
	for (int field = 2; field < 18; field++)
		at = strchr(at + 1, ' ');
	int priority, value;
	CHECK_EQ(sscanf(at, "%d %d", &priority, &value), 2);
	CHECK_EQ(priority, 20 + nice);
	CHECK_EQ(value, nice);
}

static void *other_thread(void *id)
{
	/* A thread starts with the nice value of its creator. A change by process ID applies to the thread with that ID
	 * only. */
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), 3);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 4), 0);
	*(int *)id = (int)syscall(SYS_gettid);
	CHECK_EQ(nice_of(PRIO_PROCESS, *(int *)id), 4);
	return NULL;
}

static void selections(void *unused)
{
	(void)unused;
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), 0);
	check_fields(0);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 3), 0);
	check_fields(3);
	int id;
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, other_thread, &id), 0);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), 3);

	/* Values outside the range are clamped, and for a group the lowest nice value is returned. */
	CHECK_EQ(setpgid(0, 0), 0);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 100), 0);
	CHECK_EQ(nice_of(PRIO_PGRP, 0), 19);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, -100), 0);
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), -20);
	check_fields(-20);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 5), 0);
	pid_t child = fork_checked();
	if (child == 0) {
		pause();
		_exit(0);
	}
	CHECK_EQ(nice_of(PRIO_PROCESS, child), 5);
	CHECK_EQ(setpriority(PRIO_PROCESS, child, -3), 0);
	CHECK_EQ(nice_of(PRIO_PGRP, 0), -3);
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), 5);
	CHECK_EQ(setpriority(PRIO_PGRP, getpgrp(), 7), 0);
	CHECK_EQ(nice_of(PRIO_PROCESS, child), 7);
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), 7);
	CHECK_EQ(kill(child, SIGKILL), 0);
	wait_for(child);
	CHECK_FAILS(setpriority(PRIO_PROCESS, child, 0), ESRCH);
	CHECK_FAILS(setpriority(PRIO_PGRP, 0x3fffffff, 0), ESRCH);
	CHECK_FAILS(setpriority(3, 0, 0), EINVAL);
}

static void rights(void *unused)
{
	(void)unused;
	struct rlimit limit = { 0, 0 };
	CHECK_EQ(setrlimit(RLIMIT_NICE, &limit), 0);
	pid_t parent = getppid();
	CHECK_EQ(setuid(1000), 0);
	CHECK_FAILS(setpriority(PRIO_PROCESS, 0, -1), EACCES);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 2), 0);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 2), 0);
	CHECK_FAILS(setpriority(PRIO_PROCESS, 0, 1), EACCES);
	CHECK_FAILS(setpriority(PRIO_PROCESS, parent, 10), EPERM);
	CHECK_EQ(nice_of(PRIO_USER, 0), 2);
	CHECK_EQ(setpriority(PRIO_USER, 1000, 6), 0);
	CHECK_EQ(nice_of(PRIO_PROCESS, 0), 6);
}

/* With RLIMIT_NICE, the owner of a thread may lower its nice value to 20 minus the limit. */
static void limited(void *unused)
{
	(void)unused;
	struct rlimit limit = { 18, 18 };
	CHECK_EQ(setrlimit(RLIMIT_NICE, &limit), 0);
	CHECK_EQ(setuid(1000), 0);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 9), 0);
	CHECK_EQ(setpriority(PRIO_PROCESS, 0, 2), 0);
	CHECK_FAILS(setpriority(PRIO_PROCESS, 0, 1), EACCES);
}

static double time_of(pid_t child)
{
	clockid_t clock;
	struct timespec used;
	CHECK_EQ(clock_getcpuclockid(child, &clock), 0);
	CHECK_EQ(clock_gettime(clock, &used), 0);
	return used.tv_sec + used.tv_nsec / 1e9;
}

/* Two children on one CPU get time in proportion to their weights, 3.06 to 1 for 5 steps. */
static void shares(int first, int second)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
	pid_t children[2];
	for (int i = 0; i < 2; i++) {
		children[i] = fork_checked();
		if (children[i] == 0) {
			setpriority(PRIO_PROCESS, 0, i == 0 ? first : second);
			for (;;)
				__asm__ volatile("" ::: "memory");
		}
	}
	struct timespec nap = { 0, 300000000 };
	nanosleep(&nap, NULL);
	double ratio = time_of(children[0]) / time_of(children[1]);
	CHECK(ratio > 2.4 && ratio < 4);
	for (int i = 0; i < 2; i++) {
		kill(children[i], SIGKILL);
		wait_for(children[i]);
	}
}

int main(void)
{
	CHECK(exited(in_child(selections, NULL), 0));
	CHECK(exited(in_child(rights, NULL), 0));
	CHECK(exited(in_child(limited, NULL), 0));
	shares(0, 5);
	shares(-5, 0);
	shares(14, 19);
	return checked("nice");
}
