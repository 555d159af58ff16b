/* Does a signalfd return the signals that were sent, in order, to each process that may read them?
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

static int ready(int file, int wait)
{
	struct pollfd wish = { file, POLLIN, 0 };
	return poll(&wish, 1, wait) < 0 ? -1 : wish.revents;
}

int main(void)
{
	sigset_t mask, none;
	sigemptyset(&none);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGRTMIN + 1);
	sigaddset(&mask, SIGKILL);
	NEED(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
	int file = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
	NEED(file >= 0);
	CHECK_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
	CHECK_FAILS(signalfd(-1, &mask, 1), EINVAL);
	CHECK_FAILS(signalfd(0, &mask, 0), EINVAL);
	CHECK_FAILS(signalfd(999, &mask, 0), EBADF);
	CHECK_EQ(lseek(file, 5, SEEK_SET), 0);
	CHECK_FAILS(syscall(SYS_signalfd4, -1, &mask, 4L, 0), EINVAL);
	CHECK_FAILS(syscall(SYS_signalfd4, -1, 8, 8L, 0), EFAULT);

	struct signalfd_siginfo info[4];
	CHECK_FAILS(read(file, info, sizeof info[0] - 1), EINVAL);
	CHECK_FAILS(read(file, info, sizeof info), EAGAIN);
	CHECK_EQ(ready(file, 0), 0);
	raise(SIGUSR1);
	CHECK_EQ(ready(file, 0), POLLIN);
	union sigval value = { .sival_int = 42 };
	CHECK_EQ(sigqueue(getpid(), SIGRTMIN + 1, value), 0);
	value.sival_int = 43;
	CHECK_EQ(sigqueue(getpid(), SIGRTMIN + 1, value), 0);
	CHECK_EQ(read(file, info, sizeof info), 3 * sizeof info[0]);
	CHECK_EQ(info[0].ssi_signo, SIGUSR1);
	CHECK_EQ(info[0].ssi_code, SI_TKILL);
	CHECK_EQ(info[0].ssi_pid, getpid());
	CHECK_EQ(info[0].ssi_uid, getuid());
	CHECK_EQ(info[1].ssi_signo, SIGRTMIN + 1);
	CHECK_EQ(info[1].ssi_code, SI_QUEUE);
	CHECK_EQ(info[1].ssi_int, 42);
	CHECK_EQ(info[2].ssi_int, 43);
	CHECK_EQ(ready(file, 0), 0);

	/* The mask of an existing signalfd is changed. */
	kill(getpid(), SIGUSR1);
	CHECK_EQ(ready(file, 0), POLLIN);
	CHECK_EQ(signalfd(file, &none, 0), file);
	CHECK_EQ(ready(file, 0), 0);
	CHECK_EQ(signalfd(file, &mask, 0), file);
	CHECK_EQ(ready(file, 0), POLLIN);
	CHECK_EQ(read(file, info, sizeof info), sizeof info[0]);
	CHECK_EQ(info[0].ssi_code, SI_USER);

	/* poll, epoll and a blocking read report the exit of a child. */
	int set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, file, &event), 0);
	CHECK_EQ(fcntl(file, F_SETFL, 0), 0);
	for (int way = 0; way < 3; way++) {
		pid_t child = fork_checked();
		if (child == 0) {
			usleep(20000);
			_exit(way + 3);
		}
		if (way == 0)
			CHECK_EQ(ready(file, -1), POLLIN);
		if (way == 1)
			CHECK_EQ(epoll_wait(set, &event, 1, -1), 1);
		CHECK_EQ(read(file, info, sizeof info[0]), sizeof info[0]);
		CHECK_EQ(info[0].ssi_signo, SIGCHLD);
		CHECK_EQ(info[0].ssi_code, CLD_EXITED);
		CHECK_EQ(info[0].ssi_pid, child);
		CHECK_EQ(info[0].ssi_status, way + 3);
		CHECK(exited(wait_for(child), way + 3));
	}
	/* A child reads its own signals from the same open file. */
	kill(getpid(), SIGUSR1);
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK_EQ(ready(file, 0), 0);
		raise(SIGRTMIN + 1);
		CHECK_EQ(read(file, info, sizeof info), sizeof info[0]);
		CHECK_EQ(info[0].ssi_signo, SIGRTMIN + 1);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK(read(file, info, sizeof info) >= (ssize_t)sizeof info[0]);
	return checked("signalfd");
}
