/* What do poll and epoll report for files in /proc and /sys, and for a signalfd on which several processes wait?
 *
 * Files of a process are always ready and cannot be added to an epoll, except for the process's mounts files,
 * which report each change once. Other files in /proc can be added. An attribute in /sys reports a change
 * until it is read. A signalfd in an epoll reports the signals of the process that added it, but a read
 * returns the signals of the process that reads.
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/signalfd.h>

#define READY (POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM)
#define TELLS (POLLIN | POLLRDNORM)
#define CHANGED (POLLERR | POLLPRI)

static int polled(int file)
{
	struct pollfd entry = { .fd = file, .events = 0x1fff };
	poll(&entry, 1, 0);
	return entry.revents;
}

static int reported(int set)
{
	struct epoll_event event = { 0 };
	return epoll_wait(set, &event, 1, 0) == 1 ? (int)event.events : 0;
}

static int watch(int set, int file)
{
	struct epoll_event event = { .events = READY | CHANGED };
	return epoll_ctl(set, EPOLL_CTL_ADD, file, &event);
}

static void proc_files(void)
{
	static const struct {
		const char *name;
		int ready, refused;
	} rows[] = {
		{ "/proc/meminfo", READY, 0 },	      { "/proc/stat", READY, 0 },
		{ "/proc/uptime", READY, 0 },	      { "/proc/sys/vm/overcommit_memory", READY, 0 },
		{ "/proc/swaps", TELLS, 0 },	      { "/proc/mounts", TELLS, 0 },
		{ "/proc/self/mountinfo", TELLS, 0 }, { "/proc/self/maps", READY, EPERM },
		{ "/proc/self/status", READY, EPERM }, { "/proc/self/smaps", READY, EPERM },
		{ "/proc/self/fdinfo/0", READY, EPERM }, { "/proc/self/pagemap", READY, EPERM },
		{ "/proc/self", READY, EPERM },	      { "/proc/sys", READY, EPERM },
	};
	for (unsigned row = 0; row < sizeof rows / sizeof *rows; row++) {
		int file = open(rows[row].name, O_RDONLY), set = epoll_create1(0);
		NEED(file >= 0 && set >= 0);
		int failed = watch(set, file) ? errno : 0;
		if (!CHECK_EQ(failed, rows[row].refused) | !CHECK_EQ(polled(file), rows[row].ready))
			printf("%s\n", rows[row].name);
		if (!rows[row].refused)
			CHECK_EQ(reported(set), rows[row].ready);
		close(file);
		close(set);
	}
}

static void attributes(void)
{
	static const char *const names[] = { "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/cpu/online" };
	char byte;
	for (int row = 0; row < 2; row++) {
		int file = open(names[row], O_RDONLY), set = epoll_create1(0);
		/* Not every machine has this file. */
		if (file < 0)
			continue;
		CHECK_EQ(watch(set, file), 0);
		CHECK_EQ(polled(file), READY | CHANGED);
		CHECK_EQ(reported(set), READY | CHANGED);
		CHECK_EQ(read(file, &byte, 1), 1);
		CHECK_EQ(polled(file), READY);
		CHECK_EQ(reported(set), READY);
		close(file);
		close(set);
	}
}

static void mounts(void)
{
	int file = open("/proc/self/mounts", O_RDONLY), set = epoll_create1(0);
	NEED(file >= 0 && set >= 0 && watch(set, file) == 0);
	if (mkdir("/tmp/polled", 0755) != 0 || mount("none", "/tmp/polled", "tmpfs", 0, NULL) != 0) {
		/* A user without permission to mount cannot cause a change. */
		rmdir("/tmp/polled");
		close(file);
		close(set);
		return;
	}
	CHECK_EQ(reported(set), TELLS | CHANGED);
	CHECK_EQ(reported(set), TELLS);
	/* A process that waits only for changes is woken by a change. */
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(20000);
		CHECK_EQ(umount("/tmp/polled"), 0);
		end_child();
	}
	struct pollfd entry = { .fd = file, .events = POLLPRI };
	CHECK_EQ(poll(&entry, 1, 10000), 1);
	CHECK_EQ(entry.revents, CHANGED);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(polled(file), TELLS);
	rmdir("/tmp/polled");
	close(file);
	close(set);
}

static int set, signals;

static int found(int milliseconds)
{
	struct epoll_event event;
	return epoll_wait(set, &event, 1, milliseconds);
}

static int taken(void)
{
	struct signalfd_siginfo record;
	return read(signals, &record, sizeof record) == sizeof record ? (int)record.ssi_signo : -errno;
}

static void open_signals(int how)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGUSR2);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	signals = signalfd(-1, &mask, SFD_NONBLOCK);
	set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN | how };
	NEED(epoll_ctl(set, EPOLL_CTL_ADD, signals, &event) == 0);
}

static void change(int how)
{
	struct epoll_event event = { .events = EPOLLIN | how };
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_MOD, signals, &event), 0);
}

static void close_signals(void)
{
	close(set);
	close(signals);
}

static void shared_signals(int how)
{
	/* A signal to the child does not make the entry ready. The child's signal is found when the entry is
	 * checked for another reason. */
	open_signals(how);
	pid_t child = fork_checked();
	if (child == 0) {
		change(how);
		raise(SIGUSR1);
		CHECK_EQ(found(20), 0);
		change(how);
		CHECK_EQ(found(0), 1);
		CHECK_EQ(taken(), SIGUSR1);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(found(0), 0);
	close_signals();
	/* If a process without a pending signal checks first, the entry is removed from the ready list. */
	open_signals(how);
	raise(SIGUSR1);
	child = fork_checked();
	if (child == 0) {
		CHECK_EQ(found(0), 0);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(found(0), 0);
	CHECK_EQ(taken(), SIGUSR1);
	close_signals();
	/* An entry that the child added reports the child's signals, and reports one more event after the child has
	 * exited. */
	open_signals(how);
	struct turns turns;
	struct epoll_event event = { .events = EPOLLIN | how };
	NEED(turns_open(&turns) && epoll_ctl(set, EPOLL_CTL_DEL, signals, NULL) == 0);
	child = fork_checked();
	if (child == 0) {
		CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, signals, &event), 0);
		turn_pass(turns.to_parent);
		turn_await(turns.to_child);
		raise(SIGUSR1);
		turn_pass(turns.to_parent);
		turn_await(turns.to_child);
		end_child();
	}
	turn_await(turns.to_parent);
	raise(SIGUSR1);
	CHECK_EQ(found(20), 0);
	turn_pass(turns.to_child);
	turn_await(turns.to_parent);
	CHECK_EQ(found(20), 1);
	turn_pass(turns.to_child);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(found(20), 1);
	CHECK_EQ(taken(), SIGUSR1);
	raise(SIGUSR1);
	/* After the child's exit event, no wakeup reports the entry, although a signal is pending. The entry
	 * is still on the ready list, unless it is edge-triggered. */
	CHECK_EQ(found(20), !how);
	CHECK_EQ(taken(), SIGUSR1);
	turns_close(&turns);
	close_signals();
}

int main(void)
{
	proc_files();
	attributes();
	mounts();
	shared_signals(0);
	shared_signals(EPOLLET);
	return checked("polled_files");
}
