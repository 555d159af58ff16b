/* Do POSIX timers expire on time, send the expected signals, and count the overruns?
 */
#include "check.h"
#include <pthread.h>
#include <time.h>

#define MS 1000000L
#define MANY 1000

/* Not every C library's <signal.h> has this. */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
#define TO_THREAD 4

struct setting {
	struct timespec interval, value;
};

static volatile sig_atomic_t handled, last_id, last_code, last_overrun, last_value, last_thread;

/* Makes the system calls directly: they name a timer by a number. */
static int create(clockid_t clock, struct sigevent *event, int *id)
{
	return syscall(SYS_timer_create, clock, event, id);
}

static struct timespec of(long nanoseconds)
{
	return (struct timespec){ nanoseconds / 1000000000, nanoseconds % 1000000000 };
}

static int set(int id, int flags, long first, long interval)
{
	struct setting setting = { of(interval), of(first) };
	return syscall(SYS_timer_settime, id, flags, &setting, NULL);
}

static long left(int id, long *interval)
{
	struct setting setting = { { -1, -1 }, { -1, -1 } };
	NEED(syscall(SYS_timer_gettime, id, &setting) == 0);
	if (interval)
		*interval = setting.interval.tv_sec * 1000000000 + setting.interval.tv_nsec;
	return setting.value.tv_sec * 1000000000 + setting.value.tv_nsec;
}

static int overrun(int id)
{
	return syscall(SYS_timer_getoverrun, id);
}

static int delete (int id)
{
	return syscall(SYS_timer_delete, id);
}

static long now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void rest(long nanoseconds)
{
	long end = now(CLOCK_MONOTONIC) + nanoseconds;
	while (now(CLOCK_MONOTONIC) < end)
		usleep(1000);
}

static void handle(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	handled++;
	last_code = info->si_code;
	last_id = info->si_timerid;
	last_overrun = info->si_overrun;
	last_value = info->si_value.sival_int;
	last_thread = syscall(SYS_gettid);
}

static void catch(int number)
{
	struct sigaction action = { 0 };
	action.sa_sigaction = handle;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	NEED(sigaction(number, &action, NULL) == 0);
}

static struct sigevent event(int notify, int number, int value)
{
	struct sigevent event;
	memset(&event, 0, sizeof event);
	event.sigev_notify = notify;
	event.sigev_signo = number;
	event.sigev_value.sival_int = value;
	return event;
}

static void block(int how, int number)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, number);
	NEED(sigprocmask(how, &mask, NULL) == 0);
}

static void errors(void)
{
	int id = -1;
	struct sigevent wrong = event(SIGEV_SIGNAL, 65, 0), strange = event(7, SIGUSR1, 0),
			nobody = event(TO_THREAD, SIGUSR1, 0), good = event(SIGEV_SIGNAL, SIGUSR1, 0);
	nobody.sigev_notify_thread_id = 1;
	CHECK_FAILS(create(77, &good, &id), EINVAL);
	CHECK_FAILS(create(CLOCK_MONOTONIC_RAW, &good, &id), EOPNOTSUPP);
	CHECK_FAILS(create(CLOCK_MONOTONIC, &wrong, &id), EINVAL);
	CHECK_FAILS(create(CLOCK_MONOTONIC, &strange, &id), EINVAL);
	CHECK_FAILS(create(CLOCK_MONOTONIC, &nobody, &id), EINVAL);
	CHECK_FAILS(create(CLOCK_MONOTONIC, (void *)8, &id), EFAULT);
	CHECK_FAILS(create(CLOCK_MONOTONIC, &good, NULL), EFAULT);
	CHECK_EQ(create(CLOCK_MONOTONIC, &good, &id), 0);
	CHECK_FAILS(set(id, 0, -1, 0), EINVAL);
	CHECK_FAILS(syscall(SYS_timer_settime, id, 0, NULL, NULL), EINVAL);
	CHECK_FAILS(syscall(SYS_timer_gettime, id, NULL), EFAULT);
	CHECK_FAILS(set(id + 1, 0, MS, 0), EINVAL);
	CHECK_FAILS(syscall(SYS_timer_gettime, id + 1, &wrong), EINVAL);
	CHECK_FAILS(overrun(id + 1), EINVAL);
	CHECK_FAILS(delete (id + 1), EINVAL);
	CHECK_EQ(left(id, NULL), 0);
	CHECK_EQ(overrun(id), 0);
	CHECK_EQ(delete (id), 0);
	CHECK_FAILS(delete (id), EINVAL);
}

static void once(clockid_t clock)
{
	int id;
	struct sigevent wish = event(SIGEV_SIGNAL, SIGUSR1, 42);
	long interval;
	handled = 0;
	NEED(create(clock, &wish, &id) == 0);
	long begin = now(clock);
	CHECK_EQ(set(id, 0, 20 * MS, 0), 0);
	long remaining = left(id, &interval);
	CHECK(remaining > 0 && remaining <= 20 * MS);
	CHECK_EQ(interval, 0);
	while (!handled)
		usleep(1000);
	CHECK(now(clock) >= begin + 20 * MS);
	CHECK_EQ(handled, 1);
	CHECK_EQ(last_code, SI_TIMER);
	CHECK_EQ(last_id, id);
	CHECK_EQ(last_value, 42);
	CHECK_EQ(last_overrun, 0);
	CHECK_EQ(left(id, NULL), 0);
	/* Absolute times: one in the future, and one far in the past. */
	CHECK_EQ(set(id, TIMER_ABSTIME, now(clock) + 10 * MS, 0), 0);
	while (handled < 2)
		usleep(1000);
	CHECK_EQ(set(id, TIMER_ABSTIME, 1, 0), 0);
	rest(5 * MS);
	CHECK_EQ(handled, 3);
	/* The timer is cleared before it expires. */
	CHECK_EQ(set(id, 0, 10 * MS, 5 * MS), 0);
	CHECK_EQ(set(id, 0, 0, 5 * MS), 0);
	CHECK_EQ(left(id, &interval), 0);
	rest(20 * MS);
	CHECK_EQ(handled, 3);
	CHECK_EQ(delete (id), 0);
}

static void often(int number)
{
	int id;
	struct sigevent wish = event(SIGEV_SIGNAL, number, 1);
	long interval;
	handled = 0;
	NEED(create(CLOCK_MONOTONIC, &wish, &id) == 0);
	CHECK_EQ(set(id, 0, 5 * MS, 5 * MS), 0);
	while (handled < 4)
		usleep(1000);
	left(id, &interval);
	CHECK_EQ(interval, 5 * MS);
	/* While the signal is blocked, expirations are counted, and only one signal is pending for all of them. */
	block(SIG_BLOCK, number);
	CHECK_EQ(set(id, 0, 5 * MS, 5 * MS), 0);
	rest(52 * MS);
	long remaining = left(id, NULL);
	CHECK(remaining > 0 && remaining <= 5 * MS);
	handled = 0;
	CHECK_EQ(set(id, 0, 2 * MS, 2 * MS), 0);
	rest(41 * MS);
	/* A second timer with the same signal number has its own pending signal. */
	int second;
	struct sigevent other = event(SIGEV_SIGNAL, number, 2);
	NEED(create(CLOCK_MONOTONIC, &other, &second) == 0);
	CHECK_EQ(set(second, 0, MS, 0), 0);
	rest(5 * MS);
	block(SIG_UNBLOCK, number);
	CHECK(handled >= 2);
	CHECK(overrun(id) >= 0);
	block(SIG_BLOCK, number);
	CHECK_EQ(set(id, 0, MS, 1000), 0);
	rest(10 * MS);
	sigset_t mask;
	siginfo_t info;
	sigemptyset(&mask);
	sigaddset(&mask, number);
	CHECK_EQ(sigwaitinfo(&mask, &info), number);
	CHECK_EQ(info.si_code, SI_TIMER);
	CHECK_EQ(info.si_value.sival_int, 1);
	CHECK(info.si_overrun > 5000);
	CHECK_EQ(overrun(id), info.si_overrun);
	/* A signal that is pending when its timer is cleared or deleted is discarded. */
	rest(5 * MS);
	CHECK_EQ(set(id, 0, 0, 0), 0);
	CHECK_EQ(set(second, 0, MS, 0), 0);
	rest(5 * MS);
	CHECK_EQ(delete (second), 0);
	handled = 0;
	block(SIG_UNBLOCK, number);
	CHECK_EQ(handled, 0);
	CHECK_EQ(delete (id), 0);
}

static void ignored(void)
{
	int id;
	struct sigevent wish = event(SIGEV_SIGNAL, SIGUSR1, 3);
	NEED(create(CLOCK_MONOTONIC, &wish, &id) == 0);
	signal(SIGUSR1, SIG_IGN);
	handled = 0;
	CHECK_EQ(set(id, 0, 2 * MS, 2 * MS), 0);
	rest(20 * MS);
	CHECK_EQ(handled, 0);
	catch(SIGUSR1);
	rest(20 * MS);
	CHECK(handled >= 2);
	CHECK_EQ(delete (id), 0);
}

static void silent(void)
{
	int id;
	struct sigevent wish = event(SIGEV_NONE, 0, 0);
	NEED(create(CLOCK_REALTIME, &wish, &id) == 0);
	handled = 0;
	CHECK_EQ(set(id, 0, 3 * MS, 0), 0);
	CHECK(left(id, NULL) > 0);
	rest(10 * MS);
	CHECK_EQ(left(id, NULL), 0);
	CHECK_EQ(set(id, 0, 3 * MS, 100 * MS), 0);
	rest(10 * MS);
	CHECK(left(id, NULL) > 50 * MS);
	CHECK_EQ(handled, 0);
	CHECK_EQ(delete (id), 0);
}

static void *target(void *argument)
{
	*(volatile int *)argument = syscall(SYS_gettid);
	for (int i = 0; i < 1000 && !handled; i++)
		usleep(1000);
	return NULL;
}

static void to_thread(void)
{
	volatile int thread = 0;
	pthread_t other;
	int id;
	handled = 0;
	NEED(pthread_create(&other, NULL, target, (void *)&thread) == 0);
	while (!thread)
		usleep(1000);
	struct sigevent wish = event(TO_THREAD, SIGUSR1, 4);
	wish.sigev_notify_thread_id = thread;
	NEED(create(CLOCK_MONOTONIC, &wish, &id) == 0);
	CHECK_EQ(set(id, 0, 5 * MS, 0), 0);
	pthread_join(other, NULL);
	CHECK_EQ(handled, 1);
	CHECK_EQ(last_thread, thread);
	CHECK_EQ(delete (id), 0);
}

static void not_inherited(void *argument)
{
	CHECK_FAILS(delete (*(int *)argument), EINVAL);
	CHECK_FAILS(set(*(int *)argument, 0, MS, 0), EINVAL);
}

static void limited(void *argument)
{
	(void)argument;
	int ids[20], made = 0;
	struct rlimit few = { 10, 10 };
	NEED(setrlimit(RLIMIT_SIGPENDING, &few) == 0);
	NEED(setgid(1000) == 0 && setuid(1000) == 0);
	while (made < 20 && create(CLOCK_MONOTONIC, NULL, &ids[made]) == 0)
		made++;
	CHECK(made <= 10);
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(delete (ids[0]), 0);
	CHECK_EQ(create(CLOCK_MONOTONIC, NULL, &ids[0]), 0);
}

static void many(void)
{
	static int ids[MANY];
	struct sigevent wish = event(SIGEV_SIGNAL, SIGRTMIN, 5);
	catch(SIGRTMIN);
	handled = 0;
	for (int i = 0; i < MANY; i++) {
		NEED(create(CLOCK_MONOTONIC, &wish, &ids[i]) == 0);
		NEED(set(ids[i], 0, 5 * MS, 0) == 0);
	}
	for (int i = 0; i < 5000 && handled < MANY; i++)
		usleep(1000);
	CHECK_EQ(handled, MANY);
	for (int i = 0; i < MANY; i++)
		NEED(delete (ids[i]) == 0);
}

int main(int count, char **arguments)
{
	if (count > 1) {
		CHECK_FAILS(delete (atoi(arguments[1])), EINVAL);
		return checked("posix_timers");
	}
	catch(SIGUSR1);
	catch(SIGALRM);
	errors();
	once(CLOCK_MONOTONIC);
	once(CLOCK_REALTIME);
	once(CLOCK_BOOTTIME);
	often(SIGUSR1);
	catch(SIGRTMIN + 1);
	often(SIGRTMIN + 1);
	ignored();
	silent();
	to_thread();
	many();
	int id;
	NEED(create(CLOCK_MONOTONIC, NULL, &id) == 0);
	handled = 0;
	CHECK_EQ(set(id, 0, 2 * MS, 0), 0);
	rest(10 * MS);
	CHECK_EQ(handled, 1);
	CHECK_EQ(last_value, id);
	CHECK(exited(in_child(not_inherited, &id), 0));
	if (geteuid() == 0)
		CHECK(exited(in_child(limited, NULL), 0));
	char number[20];
	snprintf(number, sizeof number, "%d", id);
	pid_t child = fork_checked();
	if (child == 0) {
		NEED(create(CLOCK_MONOTONIC, NULL, &id) == 0);
		snprintf(number, sizeof number, "%d", id);
		fclose(stdout);
		NEED(open("/dev/null", O_WRONLY) >= 0);
		execl("/proc/self/exe", arguments[0], number, NULL);
		_exit(98);
	}
	CHECK(exited(wait_for(child), 0));
	return checked("posix_timers");
}
