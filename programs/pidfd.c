/* Does a pidfd refer to the same process for ever: to its exit, its signals and its files?
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_pidfd_send_signal 424
#define SYS_pidfd_getfd 438
#endif

static int pidfd_of(pid_t process, unsigned flags)
{
	return (int)syscall(SYS_pidfd_open, (long)process, (long)flags);
}

static int send_by(int file, int signal, siginfo_t *info)
{
	return (int)syscall(SYS_pidfd_send_signal, (long)file, (long)signal, info, 0L);
}

static int ready(int file, int wait)
{
	struct pollfd wish = { file, POLLIN, 0 };
	return poll(&wish, 1, wait) < 0 ? -1 : wish.revents;
}

/* Creates a child that waits for SIGKILL, or reads a byte from `pipe_end` and exits with the code `code`. */
static pid_t child_with(int pipe_end, int code)
{
	pid_t child = fork_checked();
	if (child == 0) {
		char byte;
		if (pipe_end < 0)
			for (;;)
				pause();
		_exit(read(pipe_end, &byte, 1) == 1 ? code : 99);
	}
	return child;
}

static void endings(void)
{
	int ends[2];
	siginfo_t info;
	NEED(pipe(ends) == 0);
	pid_t child = child_with(ends[0], 7);
	int file = pidfd_of(child, 0), patient = pidfd_of(child, O_NONBLOCK);
	NEED(file >= 0 && patient >= 0);
	CHECK_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(ready(file, 0), 0);
	CHECK_EQ(waitid(P_PIDFD, file, &info, WEXITED | WNOHANG), 0);
	CHECK_FAILS(waitid(P_PIDFD, patient, &info, WEXITED), EAGAIN);
	int set = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, file, &event), 0);
	CHECK_EQ(epoll_wait(set, &event, 1, 0), 0);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK_EQ(ready(file, -1), POLLIN);
	CHECK_EQ(epoll_wait(set, &event, 1, 0), 1);
	CHECK_EQ(waitpid(child, NULL, WNOHANG), child);
	/* The child has been reaped. No signal can be sent to it any more, although its process ID may be reused. */
	CHECK_FAILS(send_by(file, 0, NULL), ESRCH);
	CHECK_FAILS(waitid(P_PIDFD, file, &info, WEXITED), ECHILD);
	CHECK((ready(file, 0) & POLLIN) != 0);
	CHECK_FAILS(pidfd_of(child, 0), ESRCH);
	close(file);
	close(patient);

	child = child_with(ends[0], 9);
	file = pidfd_of(child, 0);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	info.si_pid = 0;
	CHECK_EQ(waitid(P_PIDFD, file, &info, WEXITED), 0);
	CHECK_EQ(info.si_pid, child);
	CHECK_EQ(info.si_status, 9);
	close(file);
	close(set);
	close(ends[0]);
	close(ends[1]);
}

static volatile int taken, sender;

static void on_signal(int signal, siginfo_t *info, void *context)
{
	(void)context;
	taken = signal;
	sender = info->si_code;
}

static void signals(void)
{
	pid_t child = child_with(-1, 0);
	int file = pidfd_of(child, 0), ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(send_by(file, 0, NULL), 0);
	CHECK_FAILS(send_by(file, 65, NULL), EINVAL);
	CHECK_FAILS(send_by(999, 0, NULL), EBADF);
	CHECK_FAILS(send_by(ends[0], 0, NULL), EBADF);
	CHECK_FAILS(syscall(SYS_pidfd_send_signal, (long)file, 0L, NULL, 8L), EINVAL);
	CHECK_FAILS(syscall(SYS_pidfd_send_signal, (long)file, 9L, 8L, 0L), EFAULT);
	siginfo_t info = { .si_signo = SIGUSR1, .si_code = SI_USER };
	CHECK_FAILS(send_by(file, SIGUSR2, &info), EINVAL);
	CHECK_FAILS(send_by(file, SIGUSR1, &info), EPERM);
	CHECK_EQ(send_by(file, SIGKILL, NULL), 0);
	CHECK(killed(wait_for(child), SIGKILL));
	close(file);

	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigaction(SIGUSR1, &action, NULL);
	file = pidfd_of(getpid(), 0);
	CHECK_EQ(send_by(file, SIGUSR1, NULL), 0);
	CHECK_EQ(taken, SIGUSR1);
	CHECK_EQ(sender, SI_USER);
	info.si_code = SI_QUEUE;
	CHECK_EQ(send_by(file, SIGUSR1, &info), 0);
	CHECK_EQ(sender, SI_QUEUE);
	close(file);
	close(ends[0]);
	close(ends[1]);
}

static void files(void)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	pid_t child = child_with(ends[0], 5);
	int file = pidfd_of(child, 0), own = ends[1];
	/* Closes the parent's end. The child's copy of it is still open. */
	close(ends[1]);
	int copy = (int)syscall(SYS_pidfd_getfd, (long)file, (long)own, 0L);
	if (CHECK(copy >= 0)) {
		CHECK_EQ(fcntl(copy, F_GETFD), FD_CLOEXEC);
		CHECK_EQ(write(copy, "x", 1), 1);
	}
	CHECK_FAILS(syscall(SYS_pidfd_getfd, (long)file, 999L, 0L), EBADF);
	CHECK_FAILS(syscall(SYS_pidfd_getfd, (long)file, 0L, 1L), EINVAL);
	CHECK_FAILS(syscall(SYS_pidfd_getfd, 999L, 0L, 0L), EBADF);
	CHECK(exited(wait_for(child), 5));
	close(copy);
	close(file);
	close(ends[0]);
}

int main(void)
{
	CHECK_FAILS(pidfd_of(0, 0), EINVAL);
	CHECK_FAILS(pidfd_of(-1, 0), EINVAL);
	CHECK_FAILS(pidfd_of(getpid(), 1), EINVAL);
	CHECK_FAILS(pidfd_of(32000000, 0), ESRCH);
	CHECK_FAILS(waitid(P_PIDFD, 999, NULL, WEXITED), EBADF);
	endings();
	signals();
	files();
	return checked("pidfd");
}
