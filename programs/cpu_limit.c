/* Does RLIMIT_CPU end a program that uses the CPU without a pause?
 *
 * At the soft limit the process receives SIGXCPU, and the soft limit in effect increases by a second. At the hard
 * limit the process is killed (kernel/time/posix-cpu-timers.c of Linux, check_process_timers).
 */
#include "check.h"
#include <time.h>

static volatile sig_atomic_t warnings;

static void warned(int signal)
{
	(void)signal;
	warnings++;
}

static void set(rlim_t soft, rlim_t hard)
{
	struct rlimit limit = { soft, hard };
	CHECK_EQ(setrlimit(RLIMIT_CPU, &limit), 0);
}

static rlim_t soft_limit(void)
{
	struct rlimit limit;
	CHECK_EQ(getrlimit(RLIMIT_CPU, &limit), 0);
	return limit.rlim_cur;
}

static double cpu_time(const struct rusage *usage)
{
	return usage->ru_utime.tv_sec + usage->ru_stime.tv_sec + (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1e6;
}

static _Noreturn void spin(void *unused)
{
	(void)unused;
	for (;;)
		__asm__ volatile("" ::: "memory");
}

static void spin_until_warned(void)
{
	while (!warnings)
		__asm__ volatile("" ::: "memory");
}

/* SIGXCPU ends the process after a second of CPU time. Time in which the process sleeps does not count. */
static void second(void *unused)
{
	set(1, RLIM_INFINITY);
	struct timespec nap = { 1, 200000000 };
	CHECK_EQ(nanosleep(&nap, NULL), 0);
	spin(unused);
}

/* In a handler of SIGXCPU, the soft limit has already increased. At the hard limit the process is killed. */
static void handled(void *unused)
{
	CHECK(signal(SIGXCPU, warned) != SIG_ERR);
	/* A limit of 0 is exceeded at the next tick. */
	set(0, 1);
	spin_until_warned();
	CHECK_EQ(warnings, 1);
	CHECK_EQ(soft_limit(), 1);
	if (checks_failed)
		end_child();
	spin(unused);
}

/* A child starts with its parent's limits and no CPU time used. */
static void inherited(void *unused)
{
	CHECK(signal(SIGXCPU, SIG_IGN) != SIG_ERR);
	set(0, RLIM_INFINITY);
	while (soft_limit() == 0)
		;
	set(0, RLIM_INFINITY);
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK(soft_limit() <= 1);
		/* The next SIGXCPU is caused by the child's own CPU time, and has the default action. */
		CHECK(signal(SIGXCPU, SIG_DFL) != SIG_ERR);
		spin(unused);
	}
	CHECK(killed(wait_for(child), SIGXCPU));
}

/* The hard limit has no effect if there is no soft limit. */
static void without_soft(void *unused)
{
	(void)unused;
	set(RLIM_INFINITY, RLIM_INFINITY);
	CHECK_EQ(soft_limit(), RLIM_INFINITY);
	/* A limit that is removed before it is reached has no effect. */
	set(1, RLIM_INFINITY);
	set(RLIM_INFINITY, RLIM_INFINITY);
	CHECK_EQ(soft_limit(), RLIM_INFINITY);
}

int main(void)
{
	struct rusage usage;
	CHECK(killed(in_child(second, NULL), SIGXCPU));
	CHECK_EQ(getrusage(RUSAGE_CHILDREN, &usage), 0);
	CHECK(cpu_time(&usage) >= 0.99 && cpu_time(&usage) < 1.5);
	CHECK(killed(in_child(handled, NULL), SIGKILL));
	CHECK(exited(in_child(inherited, NULL), 0));
	CHECK(exited(in_child(without_soft, NULL), 0));

	/* Another process sets the limit, by prlimit. */
	pid_t child = fork_checked();
	if (child == 0)
		spin(NULL);
	struct rlimit none = { 0, 0 };
	CHECK_EQ(prlimit(child, RLIMIT_CPU, &none, NULL), 0);
	CHECK(killed(wait_for(child), SIGKILL));
	return checked("cpu_limit");
}
