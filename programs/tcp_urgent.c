/* Is the last byte of a send with MSG_OOB urgent: is it marked in the stream, received separately, and signalled?
 *
 * A receive stops at the mark and skips the byte unless SO_OOBINLINE is set. MSG_OOB returns the byte once. SIGURG
 * is sent to the owner of the receiver. poll, select and epoll report priority data. A newer urgent byte replaces an
 * older one.
 */
#include "check.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif

static int ends[2];
static volatile int urgent_signals;
static char buffer[64];

static void on_urgent(int number)
{
	(void)number;
	urgent_signals++;
}

/* Connects the two sockets of `ends`: 0 sends and 1 receives. */
static void connect_ends(void)
{
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof name;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	NEED(bind(listener, (void *)&name, sizeof name) == 0 && listen(listener, 1) == 0);
	NEED(getsockname(listener, (void *)&name, &length) == 0);
	CHECK_FAILS(recv(listener, buffer, 1, MSG_OOB), ENOTCONN);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	NEED(connect(ends[0], (void *)&name, sizeof name) == 0);
	ends[1] = accept(listener, NULL, NULL);
	NEED(ends[1] >= 0);
	close(listener);
}

static void close_ends(void)
{
	close(ends[0]);
	close(ends[1]);
}

static void sends(const char *text, int flags)
{
	CHECK_EQ(send(ends[0], text, strlen(text), flags), (long)strlen(text));
	/* Loopback delivers immediately, on Linux after a softirq. */
	usleep(2000);
}

/* Checks that a receive of at most `length` bytes with these flags returns `text`. */
static void gets_at(int line, const char *text, size_t length, int flags)
{
	memset(buffer, 0, sizeof buffer);
	errno = 0;
	long count = recv(ends[1], buffer, length, flags | MSG_DONTWAIT);
	if (count != (long)strlen(text) || memcmp(buffer, text, strlen(text)))
		printf("tcp_urgent.c:%d: %ld (errno %d), \"%s\" instead of \"%s\"\n", line, count, errno, buffer, text);
	CHECK_EQ(count, (long)strlen(text));
	CHECK(!memcmp(buffer, text, strlen(text)));
}
#define gets(text, length, flags) gets_at(__LINE__, text, length, flags)
#define fails(flags, error) CHECK_FAILS(recv(ends[1], buffer, sizeof buffer, (flags) | MSG_DONTWAIT), error)

static int at_mark(void)
{
	int mark = -1;
	CHECK_EQ(ioctl(ends[1], SIOCATMARK, &mark), 0);
	return mark;
}

static int waiting(void)
{
	int count = -1;
	CHECK_EQ(ioctl(ends[1], FIONREAD, &count), 0);
	return count;
}

static int polled(void)
{
	struct pollfd ask = {.fd = ends[1], .events = POLLIN | POLLPRI};
	poll(&ask, 1, 0);
	return ask.revents;
}

static void marks(void)
{
	connect_ends();
	fails(MSG_OOB, EINVAL);
	CHECK_EQ(at_mark(), 0);
	CHECK_EQ(polled(), 0);
	sends("abc", 0);
	sends("xyU", MSG_OOB);
	sends("def", 0);
	CHECK_EQ(polled(), POLLIN | POLLPRI);
	CHECK_EQ(waiting(), 5);
	CHECK_EQ(at_mark(), 0);
	gets("abc", 3, MSG_PEEK);
	gets("abcxy", sizeof buffer, MSG_PEEK);
	gets("ab", 2, 0);
	gets("cxy", sizeof buffer, 0);
	CHECK_EQ(at_mark(), 1);
	CHECK_EQ(waiting(), 0);
	gets("U", 1, MSG_OOB | MSG_PEEK);
	gets("U", sizeof buffer, MSG_OOB);
	fails(MSG_OOB, EINVAL);
	CHECK_EQ(polled(), POLLIN);
	CHECK_EQ(at_mark(), 1);
	gets("de", 2, MSG_PEEK);
	gets("def", sizeof buffer, 0);
	CHECK_EQ(at_mark(), 0);
	/* The urgent byte alone does not make the stream readable. A receive that reads beyond the urgent byte discards it. */
	sends("V", MSG_OOB);
	CHECK_EQ(polled(), POLLPRI);
	CHECK_EQ(at_mark(), 1);
	fails(MSG_PEEK, EAGAIN);
	CHECK_EQ(polled(), POLLPRI);
	fails(0, EAGAIN);
	fails(MSG_OOB, EINVAL);
	CHECK_EQ(at_mark(), 0);
	/* Discarding bytes (MSG_TRUNC) also stops at the mark. */
	sends("abU", MSG_OOB);
	sends("cd", 0);
	CHECK_EQ(recv(ends[1], NULL, 10, MSG_TRUNC | MSG_DONTWAIT), 2);
	CHECK_EQ(recv(ends[1], NULL, 1, MSG_TRUNC | MSG_DONTWAIT), 1);
	gets("d", sizeof buffer, 0);
	fails(MSG_OOB, EINVAL);
	/* MSG_WAITALL ends at the mark. */
	sends("abU", MSG_OOB);
	sends("cd", 0);
	CHECK_EQ(recv(ends[1], buffer, 4, MSG_WAITALL), 2);
	CHECK_EQ(recv(ends[1], buffer, 2, MSG_WAITALL), 2);
	CHECK(!memcmp(buffer, "cd", 2));
	/* recvmsg sets MSG_OOB in the flags that it returns. */
	sends("W", MSG_OOB);
	struct iovec part = {buffer, 4};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	CHECK_EQ(recvmsg(ends[1], &message, MSG_OOB), 1);
	CHECK_EQ(message.msg_flags & ~MSG_CMSG_CLOEXEC, MSG_OOB);
	/* A send of zero bytes has no last byte, so nothing is urgent. */
	CHECK_EQ(send(ends[0], "", 0, MSG_OOB), 0);
	fails(MSG_OOB, EINVAL);
	close_ends();
}

static void displaced(void)
{
	connect_ends();
	sends("aU", MSG_OOB);
	sends("bV", MSG_OOB);
	sends("c", 0);
	gets("V", 1, MSG_OOB);
	/* The first urgent byte is now an ordinary byte. */
	gets("aUb", sizeof buffer, 0);
	CHECK_EQ(at_mark(), 1);
	gets("c", sizeof buffer, 0);
	/* If the receiver is at the mark of the first urgent byte, that byte is discarded. */
	sends("aU", MSG_OOB);
	gets("a", sizeof buffer, 0);
	CHECK_EQ(at_mark(), 1);
	sends("bV", MSG_OOB);
	CHECK_EQ(at_mark(), 0);
	gets("b", sizeof buffer, 0);
	CHECK_EQ(at_mark(), 1);
	gets("V", sizeof buffer, MSG_OOB);
	fails(0, EAGAIN);
	CHECK_EQ(at_mark(), 0);
	/* The stream ends after the mark. */
	sends("aX", MSG_OOB);
	shutdown(ends[0], SHUT_WR);
	usleep(2000);
	gets("a", sizeof buffer, 0);
	gets("X", sizeof buffer, MSG_OOB);
	gets("", sizeof buffer, 0);
	close_ends();
}

static void in_line(void)
{
	int on = 1;
	connect_ends();
	CHECK_EQ(setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on), 0);
	sends("abU", MSG_OOB);
	sends("cd", 0);
	fails(MSG_OOB, EINVAL);
	CHECK_EQ(waiting(), 5);
	CHECK_EQ(polled(), POLLIN | POLLPRI);
	gets("ab", sizeof buffer, 0);
	CHECK_EQ(at_mark(), 1);
	gets("Ucd", sizeof buffer, MSG_PEEK);
	gets("Uc", 2, 0);
	CHECK_EQ(at_mark(), 0);
	CHECK_EQ(polled(), POLLIN);
	gets("d", sizeof buffer, 0);
	sends("V", MSG_OOB);
	CHECK_EQ(polled(), POLLIN | POLLPRI);
	gets("V", sizeof buffer, 0);
	close_ends();
}

static void told(void)
{
	connect_ends();
	struct sigaction action = {.sa_handler = on_urgent};
	CHECK_EQ(sigaction(SIGURG, &action, NULL), 0);
	sends("U", MSG_OOB);
	CHECK_EQ(urgent_signals, 0);
	CHECK_EQ(fcntl(ends[1], F_SETOWN, getpid()), 0);
	sends("V", MSG_OOB);
	CHECK_EQ(urgent_signals, 1);
	CHECK_EQ(fcntl(ends[1], F_SETOWN, -getpgrp()), 0);
	sends("a", 0);
	CHECK_EQ(urgent_signals, 1);
	sends("W", MSG_OOB);
	CHECK_EQ(urgent_signals, 2);
	CHECK_EQ(fcntl(ends[1], F_SETOWN, 0), 0);
	sends("X", MSG_OOB);
	CHECK_EQ(urgent_signals, 2);
	gets("X", sizeof buffer, MSG_OOB);
	while (recv(ends[1], buffer, sizeof buffer, MSG_DONTWAIT) > 0)
		;

	fd_set exceptional;
	struct timeval none = {0, 0};
	FD_ZERO(&exceptional);
	FD_SET(ends[1], &exceptional);
	CHECK_EQ(select(ends[1] + 1, NULL, NULL, &exceptional, &none), 0);
	int queue = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLPRI | EPOLLET};
	CHECK_EQ(epoll_ctl(queue, EPOLL_CTL_ADD, ends[1], &event), 0);
	CHECK_EQ(epoll_wait(queue, &event, 1, 0), 0);
	sends("Y", MSG_OOB);
	FD_SET(ends[1], &exceptional);
	CHECK_EQ(select(ends[1] + 1, NULL, NULL, &exceptional, &none), 1);
	CHECK(FD_ISSET(ends[1], &exceptional));
	CHECK_EQ(epoll_wait(queue, &event, 1, 0), 1);
	CHECK_EQ(event.events, EPOLLPRI);
	CHECK_EQ(epoll_wait(queue, &event, 1, 0), 0);
	gets("Y", sizeof buffer, MSG_OOB);
	CHECK_EQ(select(ends[1] + 1, NULL, NULL, &exceptional, &none), 0);
	close(queue);

	/* A wait for priority data or for space ends when priority data arrives. */
	pid_t child = fork();
	if (child == 0) {
		usleep(50000);
		_exit(send(ends[0], "Z", 1, MSG_OOB) != 1);
	}
	struct pollfd ask = {.fd = ends[1], .events = POLLPRI};
	CHECK_EQ(poll(&ask, 1, 10000), 1);
	CHECK_EQ(ask.revents, POLLPRI);
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	close_ends();
}

/* After a thousand urgent bytes in a long stream, only one mark remains. */
static void many(void)
{
	long sent = 0, received = 0, count;
	connect_ends();
	for (int i = 0; i < 1000; i++) {
		CHECK_EQ(send(ends[0], "0123456U", 8, MSG_OOB), 8);
		sent += 8;
	}
	usleep(20000);
	while ((count = recv(ends[1], buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
		received += count;
	CHECK_EQ(received, sent - 1);
	close_ends();
}

int main(void)
{
	int datagrams = socket(AF_INET, SOCK_DGRAM, 0), mark;
	/* On a Linux kernel without an init system, the loopback interface is down. */
	struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	(void)ioctl(datagrams, SIOCSIFFLAGS, &loopback);
	CHECK_FAILS(send(datagrams, "x", 1, MSG_OOB), EOPNOTSUPP);
	CHECK_FAILS(ioctl(datagrams, SIOCATMARK, &mark), ENOTTY);
	close(datagrams);
	/* The init process of Linux is not in a process group. */
	(void)setpgid(0, 0);
	marks();
	displaced();
	in_line();
	told();
	many();
	return checked("tcp_urgent");
}
