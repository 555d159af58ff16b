/* Do Unix sockets transfer bytes, messages, open files and names, and report the end of the stream?
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <stddef.h>

static int ready(int file)
{
	struct pollfd wish = { file, POLLIN | POLLOUT | POLLRDHUP, 0 };
	return poll(&wish, 1, 0) < 0 ? -1 : wish.revents;
}

static int option(int file, int name)
{
	int value = -1;
	socklen_t length = sizeof value;
	return getsockopt(file, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

static void refusals(void)
{
	CHECK_FAILS(socket(AF_UNIX, 77, 0), EINVAL);
	CHECK_FAILS(socket(AF_UNIX, SOCK_STREAM, 7), EPROTONOSUPPORT);
	int ends[2];
	CHECK_FAILS(socketpair(AF_UNIX, SOCK_STREAM, 7, ends), EPROTONOSUPPORT);
	CHECK_FAILS(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, 8), EFAULT);
	CHECK_FAILS(send(0, "x", 1, 0), ENOTSOCK);
	CHECK_FAILS(send(999, "x", 1, 0), EBADF);
}

static volatile int broken;

static void on_broken(int signal)
{
	(void)signal;
	broken++;
}

static void streams(void)
{
	int ends[2];
	char text[16] = "";
	NEED(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
	CHECK_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(ends[0], F_GETFL), O_RDWR | O_NONBLOCK);
	struct stat stat;
	CHECK_EQ(fstat(ends[0], &stat), 0);
	CHECK(S_ISSOCK(stat.st_mode));
	CHECK_EQ(option(ends[0], SO_TYPE), SOCK_STREAM);
	CHECK_EQ(option(ends[0], SO_DOMAIN), AF_UNIX);
	CHECK_EQ(option(ends[0], SO_ERROR), 0);
	CHECK_EQ(option(ends[0], SO_ACCEPTCONN), 0);
	CHECK_EQ(option(ends[0], SO_SNDBUF), 212992);
	CHECK_FAILS(getsockopt(ends[0], SOL_SOCKET, 999, text, &(socklen_t){ 4 }), ENOPROTOOPT);
	CHECK_EQ(ready(ends[0]), POLLOUT);
	CHECK_FAILS(recv(ends[0], text, 4, 0), EAGAIN);
	CHECK_FAILS(lseek(ends[0], 0, SEEK_SET), ESPIPE);
	CHECK_EQ(write(ends[0], "hello ", 6), 6);
	CHECK_EQ(send(ends[0], "world", 5, 0), 5);
	CHECK_EQ(ready(ends[1]), POLLIN | POLLOUT);
	int waiting = 0;
	CHECK_EQ(ioctl(ends[1], FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 11);
	CHECK_EQ(recv(ends[1], text, 3, MSG_PEEK), 3);
	CHECK_EQ(recv(ends[1], text, 8, 0), 8);
	CHECK(memcmp(text, "hello wo", 8) == 0);
	CHECK_EQ(read(ends[1], text, sizeof text), 3);
	CHECK(memcmp(text, "rld", 3) == 0);
	/* Writes in the other direction until the socket is full. */
	static char block[4096];
	long sent = 0, got = 0, count;
	while ((count = write(ends[1], block, sizeof block)) > 0)
		sent += count;
	CHECK_EQ(errno, EAGAIN);
	CHECK(sent >= 65536);
	CHECK_EQ(ready(ends[1]), 0);
	while ((count = read(ends[0], block, sizeof block)) > 0)
		got += count;
	CHECK_EQ(got, sent);
	CHECK_EQ(ready(ends[1]), POLLOUT);
	/* First one direction is shut down, and then the other. */
	CHECK_EQ(shutdown(ends[0], SHUT_WR), 0);
	CHECK_EQ(ready(ends[1]), POLLIN | POLLOUT | POLLRDHUP);
	CHECK_EQ(read(ends[1], text, 4), 0);
	signal(SIGPIPE, on_broken);
	CHECK_FAILS(send(ends[0], "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_EQ(broken, 0);
	CHECK_FAILS(write(ends[0], "x", 1), EPIPE);
	CHECK_EQ(broken, 1);
	CHECK_EQ(write(ends[1], "abc", 3), 3);
	close(ends[1]);
	CHECK_EQ(ready(ends[0]), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	CHECK_EQ(read(ends[0], text, 16), 3);
	CHECK_EQ(read(ends[0], text, 16), 0);
	CHECK_FAILS(shutdown(ends[0], 7), EINVAL);
	close(ends[0]);
	/* A close with unread data causes an error for the sender. */
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK_EQ(write(ends[0], "abc", 3), 3);
	close(ends[1]);
	CHECK((ready(ends[0]) & (POLLERR | POLLHUP)) == (POLLERR | POLLHUP));
	CHECK_FAILS(read(ends[0], text, 4), ECONNRESET);
	CHECK_EQ(read(ends[0], text, 4), 0);
	close(ends[0]);
	signal(SIGPIPE, SIG_DFL);
}

static void messages(int type)
{
	int ends[2];
	char text[16] = "";
	NEED(socketpair(AF_UNIX, type, 0, ends) == 0);
	CHECK_EQ(option(ends[0], SO_TYPE), type);
	CHECK_EQ(send(ends[0], "first", 5, 0), 5);
	CHECK_EQ(send(ends[0], "second", 6, 0), 6);
	CHECK_EQ(recv(ends[1], text, 3, 0), 3);
	CHECK_EQ(recv(ends[1], text, 3, MSG_TRUNC), 6);
	CHECK(memcmp(text, "sec", 3) == 0);
	CHECK_FAILS(recv(ends[1], text, 3, MSG_DONTWAIT), EAGAIN);
	struct iovec parts[2] = { { "ab", 2 }, { "cd", 2 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	CHECK_EQ(sendmsg(ends[1], &message, 0), 4);
	struct iovec room = { text, 3 };
	message = (struct msghdr){ .msg_iov = &room, .msg_iovlen = 1 };
	CHECK_EQ(recvmsg(ends[0], &message, 0), 3);
	CHECK_EQ(message.msg_flags & MSG_TRUNC, MSG_TRUNC);
	static char large[300000];
	CHECK_FAILS(send(ends[0], large, sizeof large, 0), EMSGSIZE);
	/* The first wait times out, and a child ends the second. */
	struct timeval brief = { 0, 20000 };
	CHECK_EQ(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief), 0);
	CHECK_FAILS(recv(ends[0], text, 3, 0), EAGAIN);
	brief.tv_usec = 0;
	CHECK_EQ(setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief), 0);
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(10000);
		CHECK_EQ(send(ends[1], "x", 1, 0), 1);
		for (int i = 0; i < 200; i++)
			CHECK_EQ(send(ends[1], large, 4096, 0), 4096);
		end_child();
	}
	CHECK_EQ(recv(ends[0], text, 3, 0), 1);
	for (int i = 0; i < 200; i++)
		CHECK_EQ(recv(ends[0], large, sizeof large, 0), 4096);
	CHECK(exited(wait_for(child), 0));
	close(ends[1]);
	if (type == SOCK_SEQPACKET)
		CHECK_EQ(recv(ends[0], text, 3, 0), 0);
	else
		CHECK_FAILS(send(ends[0], "x", 1, 0), ECONNREFUSED);
	close(ends[0]);
}

static void files_travel(void)
{
	int ends[2], pipes[2];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && pipe(pipes) == 0);
	int on = 1;
	CHECK_EQ(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
	union {
		char bytes[CMSG_SPACE(2 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
		struct cmsghdr align;
	} control;
	struct iovec byte = { "x", 1 };
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1, .msg_control = control.bytes };
	message.msg_controllen = CMSG_SPACE(2 * sizeof(int));
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	*head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET,
				  .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(head), pipes, sizeof pipes);
	CHECK_EQ(sendmsg(ends[0], &message, 0), 1);
	int bad[2] = { 0, 999 };
	memcpy(CMSG_DATA(head), bad, sizeof bad);
	CHECK_FAILS(sendmsg(ends[0], &message, 0), EBADF);
	close(pipes[0]);
	close(pipes[1]);
	CHECK_EQ(write(ends[0], "y", 1), 1);

	char got[4];
	struct iovec room = { got, sizeof got };
	message = (struct msghdr){ .msg_iov = &room, .msg_iovlen = 1, .msg_control = control.bytes,
				   .msg_controllen = sizeof control.bytes };
	CHECK_EQ(recvmsg(ends[1], &message, MSG_CMSG_CLOEXEC), 1);
	int seen[2] = { -1, -1 };
	struct ucred who = { 0, 0, 0 };
	for (head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
		if (head->cmsg_type == SCM_RIGHTS) {
			CHECK_EQ(head->cmsg_len, CMSG_LEN(sizeof seen));
			memcpy(seen, CMSG_DATA(head), sizeof seen);
		}
		if (head->cmsg_type == SCM_CREDENTIALS)
			memcpy(&who, CMSG_DATA(head), sizeof who);
	}
	CHECK_EQ(who.pid, getpid());
	CHECK_EQ(fcntl(seen[0], F_GETFD), FD_CLOEXEC);
	CHECK_EQ(write(seen[1], "z", 1), 1);
	CHECK_EQ(read(seen[0], got, 1), 1);
	CHECK_EQ(got[0], 'z');
	CHECK_EQ(read(ends[1], got, 4), 1);
	CHECK_EQ(got[0], 'y');
	close(seen[0]);
	close(seen[1]);
	struct ucred peer;
	socklen_t length = sizeof peer;
	CHECK_EQ(getsockopt(ends[0], SOL_SOCKET, SO_PEERCRED, &peer, &length), 0);
	CHECK_EQ(peer.pid, getpid());
	close(ends[0]);
	close(ends[1]);
}

static socklen_t name(struct sockaddr_un *address, const char *text, int hidden)
{
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	strcpy(address->sun_path + hidden, text);
	return offsetof(struct sockaddr_un, sun_path) + hidden + strlen(text) + !hidden;
}

static void names(int hidden)
{
	struct sockaddr_un address, seen;
	char text[64];
	snprintf(text, sizeof text, "/tmp/socket-%d-%d", getpid(), hidden);
	socklen_t length = name(&address, text, hidden), room = sizeof seen;
	int server = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	NEED(server >= 0 && client >= 0);
	CHECK_EQ(ready(client), POLLOUT | POLLHUP);
	CHECK_FAILS(connect(client, (void *)&address, length), hidden ? ECONNREFUSED : ENOENT);
	CHECK_FAILS(listen(server, 4), EINVAL);
	CHECK_EQ(bind(server, (void *)&address, length), 0);
	CHECK_FAILS(bind(client, (void *)&address, length), EADDRINUSE);
	CHECK_FAILS(connect(client, (void *)&address, length), ECONNREFUSED);
	CHECK_EQ(listen(server, 4), 0);
	CHECK_EQ(option(server, SO_ACCEPTCONN), 1);
	CHECK_EQ(ready(server), 0);
	CHECK_EQ(connect(client, (void *)&address, length), 0);
	CHECK_FAILS(connect(client, (void *)&address, length), EISCONN);
	CHECK_EQ(ready(server), POLLIN);
	CHECK_EQ(write(client, "early", 5), 5);
	int other = accept4(server, (void *)&seen, &room, SOCK_CLOEXEC);
	NEED(other >= 0);
	CHECK_EQ(room, sizeof(sa_family_t));
	room = sizeof seen;
	CHECK_EQ(getpeername(client, (void *)&seen, &room), 0);
	CHECK_EQ(room, length);
	CHECK(memcmp(&seen, &address, length) == 0);
	room = sizeof seen;
	CHECK_EQ(getsockname(other, (void *)&seen, &room), 0);
	CHECK_EQ(room, length);
	CHECK_EQ(read(other, text, 8), 5);
	CHECK_EQ(write(other, "answer", 6), 6);
	CHECK_EQ(read(client, text, 8), 6);
	close(other);
	CHECK_EQ(read(client, text, 8), 0);
	close(client);
	/* When a listener is closed, clients that wait get ECONNREFUSED. */
	client = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_EQ(connect(client, (void *)&address, length), 0);
	close(server);
	CHECK((ready(client) & POLLHUP) != 0);
	close(client);
	if (!hidden)
		CHECK_EQ(unlink(address.sun_path), 0);
	/* Datagrams are sent to a bound name. */
	server = socket(AF_UNIX, SOCK_DGRAM, 0);
	client = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK_EQ(bind(server, (void *)&address, length), 0);
	CHECK_EQ(bind(client, (void *)&(struct sockaddr){ .sa_family = AF_UNIX }, sizeof(sa_family_t)), 0);
	CHECK_FAILS(send(client, "x", 1, 0), ENOTCONN);
	CHECK_EQ(sendto(client, "one", 3, 0, (void *)&address, length), 3);
	room = sizeof seen;
	CHECK_EQ(recvfrom(server, text, 8, 0, (void *)&seen, &room), 3);
	CHECK_EQ(room, sizeof(sa_family_t) + 6);
	CHECK_EQ(sendto(server, "two", 3, 0, (void *)&seen, room), 3);
	CHECK_EQ(recv(client, text, 8, 0), 3);
	CHECK_EQ(connect(client, (void *)&address, length), 0);
	CHECK_EQ(send(client, "three", 5, 0), 5);
	close(server);
	CHECK_FAILS(send(client, "x", 1, 0), ECONNREFUSED);
	close(client);
	if (!hidden)
		CHECK_EQ(unlink(address.sun_path), 0);
}

/* Two processes transfer many bytes in both directions, each waiting for the other. */
static void flood(void)
{
	int ends[2];
	static unsigned char block[10000];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork_checked();
	if (child == 0) {
		close(ends[0]);
		for (unsigned at = 0; at < 2000000;) {
			for (unsigned i = 0; i < sizeof block; i++)
				block[i] = (unsigned char)((at + i) * 7 >> 3);
			ssize_t count = write(ends[1], block, sizeof block);
			NEED(count > 0);
			at += (unsigned)count;
		}
		end_child();
	}
	close(ends[1]);
	int set = epoll_create1(0), wrong = 0;
	struct epoll_event event = { .events = EPOLLIN };
	CHECK_EQ(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event), 0);
	unsigned at = 0;
	for (;;) {
		NEED(epoll_wait(set, &event, 1, -1) == 1);
		ssize_t count = read(ends[0], block, 7777);
		if (count <= 0)
			break;
		for (ssize_t i = 0; i < count; i++, at++)
			wrong += block[i] != (unsigned char)(at * 7 >> 3);
	}
	CHECK_EQ(at, 2000000);
	CHECK_EQ(wrong, 0);
	CHECK(exited(wait_for(child), 0));
	close(ends[0]);
	close(set);
}

int main(void)
{
	refusals();
	streams();
	messages(SOCK_DGRAM);
	messages(SOCK_SEQPACKET);
	files_travel();
	names(0);
	names(1);
	flood();
	return checked("sockets");
}
