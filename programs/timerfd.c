/* Does a timerfd expire on time and as often as set, and does it wake its readers?
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#define MS 1000000L

static struct itimerspec setting(long first, long interval)
{
	struct itimerspec setting = { { interval / 1000000000, interval % 1000000000 },
				      { first / 1000000000, first % 1000000000 } };
	return setting;
}

static int set(int timer, int flags, long first, long interval)
{
	struct itimerspec wanted = setting(first, interval);
	return timerfd_settime(timer, flags, &wanted, NULL);
}

static long now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static uint64_t take(int timer)
{
	uint64_t count = 0;
	NEED(read(timer, &count, 8) == 8);
	return count;
}

static int ready(int timer, int wait)
{
	struct pollfd wish = { timer, POLLIN, 0 };
	return poll(&wish, 1, wait) < 0 ? -1 : wish.revents;
}

static void errors(void)
{
	CHECK_FAILS(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0), EINVAL);
	CHECK_FAILS(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), ends[2];
	NEED(timer >= 0 && pipe(ends) == 0);
	CHECK_EQ(fcntl(timer, F_GETFD), FD_CLOEXEC);
	uint64_t count;
	CHECK_FAILS(read(timer, &count, 7), EINVAL);
	CHECK_FAILS(read(timer, &count, 8), EAGAIN);
	CHECK_FAILS(write(timer, &count, 8), EINVAL);
	CHECK_EQ(lseek(timer, 5, SEEK_SET), 0);
	CHECK_FAILS(set(timer, 4, MS, 0), EINVAL);
	CHECK_FAILS(set(timer, 0, -1, 0), EINVAL);
	CHECK_FAILS(set(ends[0], 0, MS, 0), EINVAL);
	CHECK_FAILS(set(999, 0, MS, 0), EBADF);
	struct itimerspec left = setting(0, 2000000000);
	left.it_value.tv_nsec = 1000000000;
	CHECK_FAILS(timerfd_settime(timer, 0, &left, NULL), EINVAL);
	CHECK_FAILS(syscall(SYS_timerfd_settime, timer, 0, 8, NULL), EFAULT);
	CHECK_FAILS(syscall(SYS_timerfd_gettime, timer, 8), EFAULT);
	CHECK_EQ(timerfd_gettime(timer, &left), 0);
	CHECK_EQ(left.it_value.tv_sec + left.it_value.tv_nsec + left.it_interval.tv_sec, 0);
	close(timer);
	close(ends[0]);
	close(ends[1]);
}

static void once(clockid_t clock)
{
	int timer = timerfd_create(clock, TFD_NONBLOCK);
	NEED(timer >= 0);
	long start = now(clock);
	CHECK_EQ(set(timer, 0, 20 * MS, 0), 0);
	struct itimerspec left;
	CHECK_EQ(timerfd_gettime(timer, &left), 0);
	CHECK(left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 20 * MS && left.it_value.tv_sec == 0);
	CHECK_EQ(ready(timer, 0), 0);
	CHECK_EQ(ready(timer, -1), POLLIN);
	CHECK(now(clock) - start >= 20 * MS);
	CHECK_EQ(timerfd_gettime(timer, &left), 0);
	CHECK_EQ(left.it_value.tv_nsec, 0);
	CHECK_EQ(ready(timer, 0), POLLIN);
	CHECK_EQ(take(timer), 1);
	CHECK_EQ(ready(timer, 0), 0);
	/* Absolute times in the future and in the past. */
	start = now(clock);
	CHECK_EQ(set(timer, TFD_TIMER_ABSTIME, start + 10 * MS, 0), 0);
	CHECK_EQ(ready(timer, -1), POLLIN);
	CHECK(now(clock) >= start + 10 * MS);
	CHECK_EQ(take(timer), 1);
	CHECK_EQ(set(timer, TFD_TIMER_ABSTIME, 1, 0), 0);
	CHECK_EQ(ready(timer, 100), POLLIN);
	/* Setting the timer clears unread expirations. */
	struct itimerspec wanted = setting(500 * MS, 7 * MS), before;
	CHECK_EQ(set(timer, 0, 300 * MS, 5 * MS), 0);
	CHECK_EQ(ready(timer, 0), 0);
	CHECK_EQ(timerfd_settime(timer, 0, &wanted, &before), 0);
	CHECK(before.it_value.tv_nsec > 200 * MS && before.it_value.tv_nsec <= 300 * MS);
	CHECK_EQ(before.it_interval.tv_nsec, 5 * MS);
	CHECK_EQ(set(timer, 0, 0, 0), 0);
	CHECK_EQ(ready(timer, 0), 0);
	close(timer);
}

static void periodic(void)
{
	int timer = timerfd_create(CLOCK_MONOTONIC, 0);
	NEED(timer >= 0);
	long start = now(CLOCK_MONOTONIC);
	CHECK_EQ(set(timer, 0, 10 * MS, 10 * MS), 0);
	uint64_t count = 0;
	while (count < 5)
		count += take(timer);
	CHECK(now(CLOCK_MONOTONIC) - start >= 50 * MS);
	usleep(100000);
	CHECK(take(timer) >= 9);
	/* Edge-triggered: after each read of the timer, the next expiration is one event. */
	int epoll = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &event), 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(epoll_wait(epoll, &event, 1, 1000), 1);
		CHECK(take(timer) >= 1);
	}
	close(epoll);
	/* The timer still works after a child has closed it, and a reader in another process is woken. */
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK(take(timer) >= 1);
		close(timer);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK(take(timer) >= 1);
	close(timer);
}

int main(void)
{
	errors();
	once(CLOCK_MONOTONIC);
	once(CLOCK_REALTIME);
	once(CLOCK_BOOTTIME);
	periodic();
	return checked("timerfd");
}
