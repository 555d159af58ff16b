/* Do timers of CPU time expire when a process or thread has used that time, and at no other time?
 *
 * Tests ITIMER_VIRTUAL and ITIMER_PROF, POSIX timers with CPU clocks, the clocks of other processes and
 * threads, and clock_nanosleep (kernel/time/posix-cpu-timers.c and itimer.c of Linux).
 */
#include "check.h"
#include <pthread.h>
#include <sys/time.h>
#include <time.h>

#define MILLISECOND 1000000L

static volatile sig_atomic_t caught[65];

static void count(int signal)
{
	caught[signal]++;
}

static long long read_clock(clockid_t clock)
{
	struct timespec now;
	CHECK_EQ(clock_gettime(clock, &now), 0);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void sleep_for(long milliseconds)
{
	struct timespec nap = { milliseconds / 1000, milliseconds % 1000 * MILLISECOND };
	while (nanosleep(&nap, &nap) != 0)
		;
}

/* Uses CPU time in user mode. */
static void use(long milliseconds)
{
	long long end = read_clock(CLOCK_PROCESS_CPUTIME_ID) + milliseconds * MILLISECOND;
	while (read_clock(CLOCK_PROCESS_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 20000; i++)
			;
}

static void set(int which, long first, long interval)
{
	struct itimerval timer = { { 0, interval * 1000 }, { 0, first * 1000 } };
	CHECK_EQ(setitimer(which, &timer, NULL), 0);
}

static long left(int which)
{
	struct itimerval timer;
	CHECK_EQ(getitimer(which, &timer), 0);
	return timer.it_value.tv_sec * 1000000L + timer.it_value.tv_usec;
}

/* A timer expires once. Time in which the process sleeps does not count. */
static void once(int which, int signal)
{
	caught[signal] = 0;
	set(which, 40, 0);
	CHECK(left(which) > 20000 && left(which) <= 44000);
	sleep_for(100);
	CHECK_EQ(caught[signal], 0);
	CHECK(left(which) > 20000);
	use(20);
	CHECK_EQ(caught[signal], 0);
	use(50);
	CHECK_EQ(caught[signal], 1);
	CHECK_EQ(left(which), 0);
	use(60);
	CHECK_EQ(caught[signal], 1);
}

static void repeated(int which, int signal)
{
	caught[signal] = 0;
	set(which, 20, 20);
	for (int i = 0; i < 5; i++) {
		use(24);
		sleep_for(30);
	}
	CHECK(caught[signal] >= 4 && caught[signal] <= 8);
	struct itimerval none = { { 0, 0 }, { 0, 0 } }, before;
	CHECK_EQ(setitimer(which, &none, &before), 0);
	CHECK_EQ(before.it_interval.tv_usec, 20000);
	CHECK(before.it_value.tv_usec > 0 && before.it_value.tv_usec <= 24000);
	int seen = caught[signal];
	use(50);
	CHECK_EQ(caught[signal], seen);
}

static void interval_timers(void)
{
	once(ITIMER_VIRTUAL, SIGVTALRM);
	once(ITIMER_PROF, SIGPROF);
	repeated(ITIMER_VIRTUAL, SIGVTALRM);
	repeated(ITIMER_PROF, SIGPROF);
	struct itimerval bad = { { 0, 0 }, { 0, 1000000 } };
	CHECK_FAILS(setitimer(ITIMER_PROF, &bad, NULL), EINVAL);
	CHECK_FAILS(setitimer(3, NULL, NULL), EINVAL);
	CHECK_FAILS(getitimer(3, &bad), EINVAL);

	/* A child does not inherit timers. */
	set(ITIMER_PROF, 30, 30);
	pid_t child = fork_checked();
	if (child == 0) {
		caught[SIGPROF] = 0;
		CHECK_EQ(left(ITIMER_PROF), 0);
		use(60);
		CHECK_EQ(caught[SIGPROF], 0);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	set(ITIMER_PROF, 0, 0);
}

static timer_t create(clockid_t clock, int signal)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal };
	timer_t timer;
	CHECK_EQ(timer_create(clock, &event, &timer), 0);
	return timer;
}

static void set_timer(timer_t timer, long first, long interval)
{
	struct itimerspec times = { { 0, interval * MILLISECOND }, { 0, first * MILLISECOND } };
	CHECK_EQ(timer_settime(timer, 0, &times, NULL), 0);
}

/* The CPU times of the thread and of the process differ while another thread runs. */
static volatile int stop;

static void *burn(void *clock)
{
	clockid_t own;
	CHECK_EQ(pthread_getcpuclockid(pthread_self(), &own), 0);
	__atomic_store_n((int *)clock, own, __ATOMIC_RELEASE);
	while (!stop)
		for (volatile int i = 0; i < 10000; i++)
			;
	return NULL;
}

static void posix_timers(void)
{
	timer_t process = create(CLOCK_PROCESS_CPUTIME_ID, SIGUSR1), thread = create(CLOCK_THREAD_CPUTIME_ID, SIGUSR2);
	struct itimerspec now;
	caught[SIGUSR1] = caught[SIGUSR2] = 0;
	set_timer(process, 40, 0);
	set_timer(thread, 40, 0);
	sleep_for(100);
	CHECK(caught[SIGUSR1] == 0 && caught[SIGUSR2] == 0);
	CHECK_EQ(timer_gettime(thread, &now), 0);
	CHECK(now.it_value.tv_nsec > 20 * MILLISECOND && now.it_value.tv_nsec <= 40 * MILLISECOND);
	use(60);
	CHECK(caught[SIGUSR1] == 1 && caught[SIGUSR2] == 1);

	/* While this thread sleeps, another one uses CPU time. */
	int other = 0;
	pthread_t helper;
	CHECK_EQ(pthread_create(&helper, NULL, burn, &other), 0);
	while (__atomic_load_n(&other, __ATOMIC_ACQUIRE) == 0)
		sleep_for(1);
	timer_t others = create(other, SIGVTALRM);
	caught[SIGUSR1] = caught[SIGUSR2] = caught[SIGVTALRM] = 0;
	set_timer(process, 40, 0);
	set_timer(thread, 40, 0);
	set_timer(others, 40, 0);
	long long before = read_clock(other), own = read_clock(CLOCK_THREAD_CPUTIME_ID);
	for (int i = 0; i < 20 && (caught[SIGVTALRM] == 0 || caught[SIGUSR1] == 0); i++)
		sleep_for(20);
	CHECK(caught[SIGUSR1] == 1 && caught[SIGVTALRM] == 1 && caught[SIGUSR2] == 0);
	CHECK(read_clock(other) - before >= 39 * MILLISECOND);
	CHECK(read_clock(CLOCK_THREAD_CPUTIME_ID) - own < 30 * MILLISECOND);

	/* A sleep that is measured by the CPU time of the process ends because the other thread uses CPU
	 * time. */
	struct timespec nap = { 0, 30 * MILLISECOND };
	long long start = read_clock(CLOCK_PROCESS_CPUTIME_ID);
	CHECK_EQ(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &nap, NULL), 0);
	CHECK(read_clock(CLOCK_PROCESS_CPUTIME_ID) - start >= 30 * MILLISECOND);
	CHECK(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &nap, NULL) != 0);

	stop = 1;
	CHECK_EQ(pthread_join(helper, NULL), 0);
	/* A timer of the other thread's CPU time does not expire any more, and cannot be set, after that
	 * thread has exited. pthread_join waits for the exit. */
	caught[SIGVTALRM] = 0;
	struct itimerspec soon = { { 0, 0 }, { 0, MILLISECOND } };
	CHECK(timer_settime(others, 0, &soon, NULL) == 0 || errno == ESRCH);
	sleep_for(20);
	CHECK_FAILS(timer_settime(others, 0, &soon, NULL), ESRCH);
	CHECK_EQ(timer_gettime(others, &now), 0);
	use(20);
	CHECK_EQ(caught[SIGVTALRM], 0);
	CHECK_EQ(timer_delete(others), 0);

	/* Expirations while the signal is blocked are counted. */
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	caught[SIGUSR1] = 0;
	set_timer(process, 10, 10);
	use(95);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	CHECK_EQ(caught[SIGUSR1], 1);
	CHECK(timer_getoverrun(process) >= 5 && timer_getoverrun(process) <= 10);
	CHECK_EQ(timer_delete(process), 0);
	CHECK_EQ(timer_delete(thread), 0);
}

static void clocks(void)
{
	clockid_t clock;
	pid_t child = fork_checked();
	if (child == 0) {
		use(30);
		sleep_for(2000);
		_exit(0);
	}
	CHECK_EQ(clock_getcpuclockid(child, &clock), 0);
	sleep_for(500);
	long long used = read_clock(clock);
	CHECK(used >= 30 * MILLISECOND && used < 200 * MILLISECOND);
	struct timespec resolution;
	CHECK_EQ(clock_getres(clock, &resolution), 0);
	CHECK(exited(wait_for(child), 0));
	CHECK_FAILS(clock_gettime(clock, &resolution), EINVAL);
	CHECK_FAILS(clock_gettime(-13, &resolution), EINVAL);
	CHECK_FAILS(clock_gettime(-0x400000 * 8 + 2, &resolution), EINVAL);
}

int main(int count_of_arguments, char **arguments)
{
	if (count_of_arguments > 1) {
		/* The interval timer continues after execve. */
		CHECK(left(ITIMER_PROF) > 0);
		use(60);
		return 1;
	}
	signal(SIGVTALRM, count);
	signal(SIGPROF, count);
	signal(SIGUSR1, count);
	signal(SIGUSR2, count);
	interval_timers();
	posix_timers();
	clocks();
	pid_t child = fork_checked();
	if (child == 0) {
		set(ITIMER_PROF, 40, 0);
		execl("/proc/self/exe", arguments[0], "again", (char *)NULL);
		_exit(1);
	}
	CHECK(killed(wait_for(child), SIGPROF));
	return checked("cpu_timers");
}
