/* Can a program have a very large number of objects of each kind, at a cost per object that does not increase with
 * their number?
 *
 * The number is larger than what fits in one block of the kernel's heap. Objects of each kind are created, used and
 * freed. Creating one may fail for lack of memory. If an operation takes hours instead of seconds, it exceeds the
 * test's time limit. With the shipped kernel, the account contains the longest stretch without a scheduling point.
 */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/timerfd.h>
#include <linux/userfaultfd.h>

#define MOST 70000

static int files[MOST];
static int most;

static int refused(void)
{
	return errno == ENOMEM || errno == ENFILE || errno == EMFILE || errno == ENOSPC || errno == EAGAIN ||
	       errno == EPERM;
}

static int event(void)
{
	return eventfd(1, 0);
}

static int memory(void)
{
	return (int)syscall(SYS_memfd_create, "many", 0);
}

static int timer(void)
{
	return timerfd_create(CLOCK_MONOTONIC, 0);
}

static int watcher(void)
{
	return (int)syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY);
}

static void give_up(int count)
{
	for (int number = 0; number < count; number++)
		CHECK_EQ(close(files[number]), 0);
}

static void descriptors(int (*make)(void))
{
	int count = 0;
	while (count < most && (files[count] = make()) >= 0)
		count++;
	CHECK(count == most || refused());
	give_up(count);
}

/* An epoll watches many ready files, or many descriptors of a single file. */
static void watched(int one)
{
	int set = epoll_create1(0), file = eventfd(1, 0), count = 0, found = 0, got;
	static struct epoll_event events[1000];
	struct epoll_event wanted = { .events = EPOLLIN };
	NEED(set >= 0 && file >= 0);
	for (; count < most - 2; count++) {
		files[count] = one ? dup(file) : event();
		if (files[count] < 0)
			break;
		if (epoll_ctl(set, EPOLL_CTL_ADD, files[count], &wanted) != 0) {
			close(files[count]);
			break;
		}
	}
	CHECK(count == most - 2 || refused());
	while (found < count && (got = epoll_wait(set, events, 1000, 0)) > 0)
		found += got;
	CHECK(found >= count);
	close(file);
	give_up(count);
	CHECK_EQ(epoll_wait(set, events, 1000, 0), 0);
	close(set);
}

/* Reaps a large number of children that have exited, in the order of their creation or in reverse. */
static void ended_children(int backwards)
{
	static pid_t ids[3000];
	int count = 0;
	for (; count < 3000; count++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		if (child < 0)
			break;
		ids[count] = child;
	}
	CHECK(count == 3000 || refused());
	for (int number = 0; number < count; number++) {
		pid_t wanted = backwards ? ids[count - 1 - number] : -1;
		CHECK(waitpid(wanted, NULL, 0) > 0);
	}
	CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
}

static void mounts(void)
{
	char name[64];
	int count = 0, left;
	for (; count < 3000; count++) {
		snprintf(name, sizeof name, "/tmp/many-%d", count);
		if (mkdir(name, 0755) != 0)
			break;
		if (mount("none", name, "tmpfs", 0, "size=4k") != 0) {
			rmdir(name);
			break;
		}
	}
	CHECK(count == 3000 || refused());
	for (left = 0; left < count; left++) {
		snprintf(name, sizeof name, "/tmp/many-%d", left);
		CHECK_EQ(umount2(name, MNT_DETACH), 0);
		CHECK_EQ(rmdir(name), 0);
	}
}

/* No more signals are queued than the limit permits, and each is received once. */
static void queued_signals(void)
{
	struct rlimit limit = { 1000, 1000 };
	sigset_t all;
	union sigval value = { 0 };
	siginfo_t info;
	struct timespec now = { 0, 0 };
	int count = 0, taken = 0;
	sigfillset(&all);
	NEED(sigprocmask(SIG_BLOCK, &all, NULL) == 0 && setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	while (count < 2000 && sigqueue(getpid(), SIGRTMIN + count % 20, value) == 0)
		count++;
	CHECK(count <= 1000 && count > 900 && errno == EAGAIN);
	/* A signal sent by `kill` becomes pending although the limit has been reached. */
	CHECK_EQ(kill(getpid(), SIGRTMAX), 0);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	while (sigtimedwait(&all, &info, &now) > 0)
		taken++;
	CHECK_EQ(taken, count + 2);
}

/* A file that a process has mapped many times is truncated. */
static void shown(void)
{
	int file = scratch_file(PAGE), count = 0;
	NEED(file >= 0);
	char *place = mmap(NULL, 2UL * PAGE * 20000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(place != MAP_FAILED);
	for (; count < 20000; count++) {
		char *page = mmap(place + 2UL * PAGE * count, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
		if (page == MAP_FAILED)
			break;
		page[0] = 1;
	}
	CHECK(count == 20000 || refused());
	CHECK_EQ(ftruncate(file, 0), 0);
	munmap(place, 2UL * PAGE * 20000);
	close(file);
}

int main(void)
{
	struct rlimit limit = { MOST + 100, MOST + 100 };
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
		NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
		limit.rlim_cur = limit.rlim_max;
		NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	most = limit.rlim_cur - 100 < MOST ? (int)limit.rlim_cur - 100 : MOST;
	descriptors(event);
	descriptors(memory);
	descriptors(timer);
	descriptors(watcher);
	watched(0);
	watched(1);
	ended_children(0);
	ended_children(1);
	mounts();
	shown();
	queued_signals();
	return checked("many_objects");
}
