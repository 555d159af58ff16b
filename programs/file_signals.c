/* Does the owner of a pipe or socket receive a signal when input or output becomes possible?
 */
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef F_SETSIG
#define F_SETSIG 10
#define F_GETSIG 11
#endif
#ifndef F_SETOWN_EX
#define F_SETOWN_EX 15
#define F_GETOWN_EX 16
#endif

struct owner {
	int kind;
	pid_t id;
};

static volatile sig_atomic_t plain, detailed, last_file, last_band, last_code;

static void handle(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (number == SIGIO) {
		plain++;
		return;
	}
	detailed++;
	last_code = info->si_code;
	last_band = info->si_band;
	last_file = info->si_fd;
}

static void catch(int number)
{
	struct sigaction action = { 0 };
	action.sa_sigaction = handle;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	NEED(sigaction(number, &action, NULL) == 0);
}

static void errors(int file)
{
	struct owner owner = { 9, getpid() };
	CHECK_EQ(fcntl(file, F_GETOWN), 0);
	CHECK_EQ(fcntl(file, F_GETSIG), 0);
	CHECK_FAILS(fcntl(file, F_SETSIG, 65), EINVAL);
	CHECK_FAILS(fcntl(file, F_SETOWN, 0x7ffffff0), ESRCH);
	CHECK_FAILS(fcntl(file, F_SETOWN, -0x7ffffff0), ESRCH);
	CHECK_FAILS(fcntl(file, F_SETOWN_EX, &owner), EINVAL);
	CHECK_FAILS(fcntl(file, F_SETOWN_EX, NULL), EFAULT);
	owner.kind = 1;
	CHECK_EQ(fcntl(file, F_SETOWN_EX, &owner), 0);
	owner.id = 0;
	CHECK_EQ(fcntl(file, F_GETOWN_EX, &owner), 0);
	CHECK_EQ(owner.kind, 1);
	CHECK_EQ(owner.id, getpid());
	CHECK_EQ(fcntl(file, F_SETOWN, -getpgrp()), 0);
	owner.kind = 0;
	CHECK_EQ(fcntl(file, F_GETOWN_EX, &owner), 0);
	CHECK_EQ(owner.kind, 2);
	CHECK_EQ(owner.id, getpgrp());
	CHECK_EQ(fcntl(file, F_SETOWN, 0), 0);
	CHECK_EQ(fcntl(file, F_GETOWN), 0);
	CHECK_FAILS(ioctl(file, FIOASYNC, NULL), EFAULT);
	int on = 1, regular = scratch_file(10);
	CHECK_FAILS(ioctl(regular, FIOASYNC, &on), ENOTTY);
	on = 0;
	CHECK_EQ(ioctl(regular, FIOASYNC, &on), 0);
	close(regular);
}

static void sockets(void)
{
	int ends[2], on = 1;
	char byte;
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	errors(ends[0]);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK_EQ(plain, 0);
	CHECK_EQ(fcntl(ends[0], F_SETOWN, getpid()), 0);
	CHECK_EQ(fcntl(ends[0], F_GETOWN), getpid());
	CHECK_EQ(ioctl(ends[0], FIOASYNC, &on), 0);
	CHECK(fcntl(ends[0], F_GETFL) & O_ASYNC);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK(plain >= 1);
	CHECK_EQ(fcntl(ends[0], F_SETSIG, SIGRTMIN), 0);
	CHECK_EQ(fcntl(ends[0], F_GETSIG), SIGRTMIN);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK(detailed >= 1);
	CHECK_EQ(last_file, ends[0]);
	CHECK_EQ(last_code, POLL_IN);
	CHECK_EQ(last_band, POLLIN | POLLRDNORM);
	CHECK_EQ(fcntl(ends[0], F_SETFL, 0), 0);
	CHECK_EQ(fcntl(ends[0], F_GETFL) & O_ASYNC, 0);
	int before = plain + detailed;
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK_EQ(plain + detailed, before);
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	close(ends[0]);
	close(ends[1]);
}

static void other_gets_it(void *argument)
{
	int *ends = argument;
	int begun = plain;
	NEED(fcntl(ends[0], F_SETOWN, getpid()) == 0);
	NEED(fcntl(ends[0], F_SETFL, O_ASYNC) == 0);
	NEED(write(ends[3], "r", 1) == 1);
	for (int i = 0; i < 5000 && plain == begun; i++)
		usleep(1000);
	CHECK(plain > begun);
}

static void pipes(void)
{
	int ends[4];
	char byte;
	NEED(pipe(ends) == 0 && pipe(ends + 2) == 0);
	plain = 0;
	pid_t child = fork_checked();
	if (child == 0) {
		other_gets_it(ends);
		end_child();
	}
	NEED(read(ends[2], &byte, 1) == 1);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(plain, 0);
	/* There is no signal, because the owner has exited. */
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK_EQ(plain, 0);
	/* A pipe becomes writable. */
	NEED(fcntl(ends[1], F_SETOWN, getpid()) == 0 && fcntl(ends[1], F_SETFL, O_ASYNC | O_NONBLOCK) == 0);
	static char page[4096];
	while (write(ends[1], page, sizeof page) > 0)
		;
	CHECK_EQ(errno, EAGAIN);
	plain = 0;
	for (int i = 0; i < 3; i++)
		CHECK_EQ(read(ends[0], page, sizeof page), 4096);
	CHECK(plain >= 1);
}

int main(void)
{
	catch(SIGIO);
	catch(SIGRTMIN);
	sockets();
	pipes();
	return checked("file_signals");
}
