/* Does epoll report each event, as often as Linux does, and to the same processes?
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>

#ifndef EPOLLEXCLUSIVE
#define EPOLLEXCLUSIVE (1U << 28)
#endif

static int control(int set, int operation, int file, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };
	return epoll_ctl(set, operation, file, &event);
}

/* The last event that `found` received. `found` returns the number of ready events. */
static struct epoll_event last;

static int found(int set)
{
	struct epoll_event events[8];
	int count = epoll_wait(set, events, 8, 0);
	if (count > 0)
		last = events[count - 1];
	return count;
}

static void put(int file)
{
	NEED(write(file, "x", 1) == 1);
}

static void get(int file)
{
	char byte;
	NEED(read(file, &byte, 1) == 1);
}

static void errors(void)
{
	int set = epoll_create1(EPOLL_CLOEXEC);
	NEED(set >= 0);
	CHECK_EQ(fcntl(set, F_GETFD), FD_CLOEXEC);
	/* The program makes the system call itself, because not every C library passes the size to the kernel. */
	CHECK_FAILS(syscall(SYS_epoll_create, 0L), EINVAL);
	CHECK_FAILS(epoll_create1(1), EINVAL);
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_FAILS(control(set, EPOLL_CTL_ADD, 999, EPOLLIN, 0), EBADF);
	CHECK_FAILS(control(999, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0), EBADF);
	CHECK_FAILS(control(ends[0], EPOLL_CTL_ADD, ends[1], EPOLLIN, 0), EINVAL);
	CHECK_FAILS(control(set, EPOLL_CTL_ADD, set, EPOLLIN, 0), EINVAL);
	CHECK_FAILS(control(set, 9, ends[0], EPOLLIN, 0), EINVAL);
	CHECK_FAILS(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 0), ENOENT);
	CHECK_FAILS(control(set, EPOLL_CTL_DEL, ends[0], EPOLLIN, 0), ENOENT);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0), 0);
	CHECK_FAILS(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0), EEXIST);
	int again = dup(ends[0]);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, again, EPOLLIN, 0), 0);
	int file = scratch_file(10);
	CHECK_FAILS(control(set, EPOLL_CTL_ADD, file, EPOLLIN, 0), EPERM);
	int folder = open("/", O_RDONLY | O_DIRECTORY);
	CHECK_FAILS(control(set, EPOLL_CTL_ADD, folder, EPOLLIN, 0), EPERM);
	struct epoll_event event;
	CHECK_FAILS(epoll_wait(set, &event, 0, 0), EINVAL);
	CHECK_FAILS(syscall(SYS_epoll_wait, set, &event, -1, 0), EINVAL);
	CHECK_FAILS(epoll_wait(ends[0], &event, 1, 0), EINVAL);
	CHECK_FAILS(epoll_wait(999, &event, 1, 0), EBADF);
	CHECK_FAILS(syscall(SYS_epoll_ctl, set, EPOLL_CTL_MOD, ends[0], 8), EFAULT);
	put(ends[1]);
	CHECK_FAILS(syscall(SYS_epoll_wait, set, 8, 1, 0), EFAULT);
	CHECK_EQ(found(set), 2);
	CHECK_FAILS(control(set, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLEXCLUSIVE | EPOLLONESHOT, 0), EINVAL);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[1], EPOLLOUT | EPOLLEXCLUSIVE, 0), 0);
	CHECK_FAILS(control(set, EPOLL_CTL_MOD, ends[1], EPOLLOUT, 0), EINVAL);
	close(file);
	close(folder);
	close(again);
	close(ends[0]);
	close(ends[1]);
	close(set);
}

static void levels(void)
{
	int set = epoll_create1(0), ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0x1122334455667788), 0);
	CHECK_EQ(found(set), 0);
	put(ends[1]);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(last.events, EPOLLIN);
	CHECK_EQ(last.data.u64, 0x1122334455667788);
	CHECK_EQ(found(set), 1);
	get(ends[0]);
	CHECK_EQ(found(set), 0);
	/* A condition that is true when a file is added or modified is reported as an event. */
	put(ends[1]);
	CHECK_EQ(control(set, EPOLL_CTL_DEL, ends[0], 0, 0), 0);
	CHECK_EQ(found(set), 0);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[0], 0, 1), 0);
	CHECK_EQ(found(set), 0);
	CHECK_EQ(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN, 2), 0);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(last.data.u64, 2);
	close(ends[1]);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(last.events, EPOLLIN | EPOLLHUP);
	get(ends[0]);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(last.events, EPOLLHUP);
	/* An epoll no longer reports a file that was closed. */
	close(ends[0]);
	CHECK_EQ(found(set), 0);
	/* An epoll still reports a file to which another descriptor refers. */
	NEED(pipe(ends) == 0);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 3), 0);
	int other = dup(ends[0]);
	close(ends[0]);
	put(ends[1]);
	CHECK_EQ(found(set), 1);
	close(other);
	CHECK_EQ(found(set), 0);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[1], EPOLLIN, 4), 0);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(last.events, EPOLLERR);
	close(ends[1]);
	close(set);
}

static void edges(void)
{
	int set = epoll_create1(0), ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLET, 0), 0);
	put(ends[1]);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(found(set), 0);
	put(ends[1]);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(found(set), 0);
	put(ends[1]);
	get(ends[0]);
	get(ends[0]);
	get(ends[0]);
	CHECK_EQ(found(set), 0);
	CHECK_EQ(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 0), 0);
	put(ends[1]);
	CHECK_EQ(found(set), 1);
	put(ends[1]);
	CHECK_EQ(found(set), 0);
	CHECK_EQ(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT, 0), 0);
	CHECK_EQ(found(set), 1);
	CHECK_EQ(found(set), 0);
	close(ends[0]);
	close(ends[1]);
	/* Decrementing a semaphore does not cause an event. */
	int semaphore = eventfd(2, EFD_SEMAPHORE);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, semaphore, EPOLLIN | EPOLLET, 0), 0);
	CHECK_EQ(found(set), 1);
	uint64_t value;
	CHECK_EQ(read(semaphore, &value, 8), 8);
	CHECK_EQ(found(set), 0);
	value = 1;
	CHECK_EQ(write(semaphore, &value, 8), 8);
	CHECK_EQ(found(set), 1);
	close(semaphore);
	close(set);
}

/* If more events are ready than the caller's array can contain, successive calls report all of them in turn. */
static void turns(void)
{
	int set = epoll_create1(0), counters[4], seen[4] = { 0 };
	for (int i = 0; i < 4; i++) {
		counters[i] = eventfd(1, 0);
		CHECK_EQ(control(set, EPOLL_CTL_ADD, counters[i], EPOLLIN, i), 0);
	}
	for (int i = 0; i < 8; i++) {
		struct epoll_event event;
		CHECK_EQ(epoll_wait(set, &event, 1, -1), 1);
		seen[event.data.u64]++;
	}
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(seen[i], 2);
		close(counters[i]);
	}
	close(set);
}

static void nested(void)
{
	int sets[7], ends[2];
	for (int i = 0; i < 7; i++)
		sets[i] = epoll_create1(0);
	NEED(pipe(ends) == 0);
	CHECK_EQ(control(sets[0], EPOLL_CTL_ADD, ends[0], EPOLLIN, 0), 0);
	CHECK_EQ(control(sets[1], EPOLL_CTL_ADD, sets[0], EPOLLIN, 0), 0);
	CHECK_EQ(found(sets[1]), 0);
	put(ends[1]);
	struct pollfd wish = { sets[1], POLLIN, 0 };
	CHECK_EQ(poll(&wish, 1, 0), 1);
	CHECK_EQ(wish.revents, POLLIN);
	CHECK_EQ(found(sets[1]), 1);
	CHECK_EQ(last.events, EPOLLIN);
	CHECK_EQ(found(sets[0]), 1);
	get(ends[0]);
	CHECK_EQ(poll(&wish, 1, 0), 0);
	CHECK_EQ(found(sets[1]), 0);
	CHECK_FAILS(control(sets[0], EPOLL_CTL_ADD, sets[1], EPOLLIN, 0), ELOOP);
	CHECK_EQ(control(sets[2], EPOLL_CTL_ADD, sets[1], EPOLLIN, 0), 0);
	CHECK_FAILS(control(sets[0], EPOLL_CTL_ADD, sets[2], EPOLLIN, 0), ELOOP);
	CHECK_EQ(control(sets[3], EPOLL_CTL_ADD, sets[2], EPOLLIN, 0), 0);
	CHECK_EQ(control(sets[4], EPOLL_CTL_ADD, sets[3], EPOLLIN, 0), 0);
	CHECK_FAILS(control(sets[5], EPOLL_CTL_ADD, sets[4], EPOLLIN, 0), ELOOP);
	CHECK_FAILS(control(sets[5], EPOLL_CTL_ADD, sets[4], EPOLLIN | EPOLLEXCLUSIVE, 0), EINVAL);
	put(ends[1]);
	CHECK_EQ(found(sets[4]), 1);
	for (int i = 0; i < 7; i++)
		close(sets[i]);
	close(ends[0]);
	close(ends[1]);
}

static volatile int rings;

static void ring(int signal)
{
	(void)signal;
	rings++;
}

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void waits(void)
{
	int set = epoll_create1(0), ends[2];
	struct epoll_event event;
	NEED(pipe(ends) == 0);
	CHECK_EQ(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN, 0), 0);
	long start = milliseconds();
	CHECK_EQ(epoll_wait(set, &event, 1, 30), 0);
	CHECK(milliseconds() - start >= 30);
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(20000);
		put(ends[1]);
		end_child();
	}
	CHECK_EQ(epoll_wait(set, &event, 1, -1), 1);
	get(ends[0]);
	CHECK(exited(wait_for(child), 0));
	/* A signal ends the wait. A blocked signal ends it only if the mask of the call unblocks it. */
	struct sigaction action = { .sa_handler = ring, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &action, NULL);
	ualarm(20000, 0);
	CHECK_FAILS(epoll_wait(set, &event, 1, -1), EINTR);
	CHECK_EQ(rings, 1);
	sigset_t blocked, before, now;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	sigprocmask(SIG_BLOCK, &blocked, &before);
	raise(SIGALRM);
	CHECK_EQ(epoll_wait(set, &event, 1, 10), 0);
	CHECK_EQ(rings, 1);
	CHECK_FAILS(epoll_pwait(set, &event, 1, -1, &before), EINTR);
	CHECK_EQ(rings, 2);
	sigprocmask(SIG_BLOCK, NULL, &now);
	CHECK_EQ(sigismember(&now, SIGALRM), 1);
	struct timespec timeout = { 0, 20000000 };
	start = milliseconds();
	CHECK_EQ(syscall(SYS_epoll_pwait2, set, &event, 1, &timeout, &before, 8L), 0);
	CHECK(milliseconds() - start >= 20);
	timeout.tv_nsec = 1000000000;
	CHECK_FAILS(syscall(SYS_epoll_pwait2, set, &event, 1, &timeout, NULL, 8L), EINVAL);
	CHECK_FAILS(syscall(SYS_epoll_pwait, set, &event, 1, 0, &before, 4L), EINVAL);
	sigprocmask(SIG_SETMASK, &before, NULL);
	close(ends[0]);
	close(ends[1]);
	close(set);
}

/* Returns how many of several children that wait for the same event are woken. */
static int woken(uint32_t more)
{
	int start[2], done[2], event = eventfd(0, EFD_NONBLOCK);
	NEED(pipe(start) == 0 && pipe(done) == 0);
	pid_t children[3];
	for (int i = 0; i < 3; i++) {
		children[i] = fork_checked();
		if (children[i] == 0) {
			int set = epoll_create1(0);
			struct epoll_event found;
			CHECK_EQ(control(set, EPOLL_CTL_ADD, event, EPOLLIN | more, 0), 0);
			put(start[1]);
			int count = epoll_wait(set, &found, 1, 300);
			if (count == 1)
				put(done[1]);
			end_child();
		}
	}
	for (int i = 0; i < 3; i++)
		get(start[0]);
	usleep(50000);
	uint64_t value = 1;
	CHECK_EQ(write(event, &value, 8), 8);
	for (int i = 0; i < 3; i++)
		CHECK(exited(wait_for(children[i]), 0));
	int count;
	static char bytes[8];
	close(done[1]);
	count = (int)read(done[0], bytes, sizeof bytes);
	close(done[0]);
	close(start[0]);
	close(start[1]);
	close(event);
	return count;
}

int main(void)
{
	errors();
	levels();
	edges();
	turns();
	nested();
	waits();
	CHECK_EQ(woken(0), 3);
	int one = woken(EPOLLEXCLUSIVE);
	CHECK(one >= 1 && one <= 3);
	return checked("epoll");
}
