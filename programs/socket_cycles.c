/* Are sockets closed to which only their own messages refer, and is the number of files in flight limited?
 *
 * Every ring of sockets contains the write end of the same pipe, whose reader reads the end of the file after all
 * rings have been closed. Each ring also contains bytes, in total more than the memory of a small machine.
 */
#include "check.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#define RINGS 10000

static char payload[12 * 1024];

/* Sends bytes and one open file. */
static int send_file(int socket, int file, size_t length)
{
	struct iovec part = { payload, length };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	memset(&control, 0, sizeof control);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &file, sizeof file);
	return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)length ? 0 : -1;
}

/* Receives one open file. */
static int receive_file(int socket)
{
	int file = -1;
	struct iovec part = { payload, sizeof payload };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	if (recvmsg(socket, &message, MSG_DONTWAIT) > 0 && CMSG_FIRSTHDR(&message))
		memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
	return file;
}

/* Creates a ring of a socket pair. Each end is in a message, either in its own queue or in that of the other
 * end. */
static void make_ring(int kind, int type, int writer)
{
	int ends[2];
	NEED(socketpair(AF_UNIX, type, 0, ends) == 0);
	NEED(send_file(ends[0], writer, sizeof payload) == 0);
	NEED(send_file(ends[0], ends[kind], 1) == 0);
	NEED(send_file(ends[1], ends[1 - kind], 1) == 0);
	close(ends[0]);
	close(ends[1]);
}

/* Creates a ring of a connection that was never accepted, whose queue contains the listener. */
static void make_listening_ring(int writer)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t length = sizeof name;
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	NEED(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family) == 0);
	NEED(getsockname(listener, (struct sockaddr *)&name, &length) == 0);
	NEED(listen(listener, 1) == 0);
	NEED(connect(client, (struct sockaddr *)&name, length) == 0);
	NEED(send_file(client, writer, sizeof payload) == 0);
	NEED(send_file(client, listener, 1) == 0);
	close(client);
	close(listener);
}

/* Closes sockets, which starts the garbage collection of unreachable ones, until the pipe has no writer. */
static int ended(int reader)
{
	for (int attempt = 0; attempt < 1000; attempt++) {
		struct pollfd wish = { reader, POLLIN, 0 };
		int ends[2];
		NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		NEED(send_file(ends[0], ends[0], 1) == 0);
		close(ends[0]);
		close(ends[1]);
		if (poll(&wish, 1, 10) == 1)
			return wish.revents == POLLHUP;
	}
	return 0;
}

static void collected(int rings)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
	int ends[2];
	NEED(pipe(ends) == 0);
	for (int ring = 0; ring < rings; ring++)
		if (ring % 7 == 6)
			make_listening_ring(ends[1]);
		else
			make_ring(ring % 2, types[ring % 3], ends[1]);
	close(ends[1]);
	CHECK(ended(ends[0]));
	close(ends[0]);
}

/* A ring that is still reachable through a descriptor is not collected, and its files can be received. */
static void kept(void)
{
	int ends[2], other[2];
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
	NEED(send_file(ends[0], other[0], 1) == 0);
	NEED(send_file(other[1], ends[0], 1) == 0);
	NEED(send_file(other[0], other[1], 1) == 0);
	close(other[0]);
	close(other[1]);
	close(ends[0]);
	collected(100);
	int first = receive_file(ends[1]);
	NEED(first >= 0);
	int back = receive_file(first);
	NEED(back >= 0);
	CHECK_EQ(write(back, "y", 1), 1);
	char byte = 0;
	CHECK_EQ(read(ends[1], &byte, 1), 1);
	CHECK_EQ(byte, 'y');
	close(first);
	close(back);
	close(ends[1]);
}

#define ALLOWED 32

/* The number of a user's files in flight is limited to the number of files that the user may have open, plus those of
 * the one message that passed the check. */
static void bounded(void *unused)
{
	(void)unused;
	struct rlimit limit = { ALLOWED, ALLOWED };
	int ends[2], sent = 0;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	NEED(setgid(23456) == 0 && setuid(23456) == 0);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	while (sent < 10 * ALLOWED && send_file(ends[0], 0, 1) == 0)
		sent++;
	CHECK_EQ(sent, ALLOWED + 1);
	CHECK_FAILS(send_file(ends[0], 0, 1), ETOOMANYREFS);
	CHECK_EQ(write(ends[0], "z", 1), 1);
	int file = receive_file(ends[1]);
	CHECK(file >= 0);
	CHECK_EQ(send_file(ends[0], 0, 1), 0);
	CHECK_FAILS(send_file(ends[0], 0, 1), ETOOMANYREFS);
	close(file);
	close(ends[1]);
	close(ends[0]);
	NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK_EQ(send_file(ends[0], 0, 1), 0);
}

int main(int count, char **arguments)
{
	collected(count > 1 ? atoi(arguments[1]) : RINGS);
	kept();
	CHECK(exited(in_child(bounded, NULL), 0));
	return checked("socket_cycles");
}
