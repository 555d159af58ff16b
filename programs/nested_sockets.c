/* Can open files in one another's messages, nested to any depth, be closed?
 *
 * Each socket is in a message in the next socket's queue, and the innermost message contains the write end of a
 * pipe. The pipe's reader reads the end of the file when the last of the sockets is closed.
 */
#include "check.h"
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Sends open files in one message. */
static int send_files(int socket, const int *files, int count)
{
	char byte = 'x';
	struct iovec part = { &byte, 1 };
	union {
		char bytes[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control.bytes,
				  .msg_controllen = CMSG_SPACE(count * sizeof(int)) };
	memset(&control, 0, sizeof control);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), files, count * sizeof(int));
	return sendmsg(socket, &message, 0) == 1 ? 0 : -1;
}

/* Waits until the pipe has no writer. Returns whether this happened. */
static int ended(int reader)
{
	char byte;
	alarm(120);
	ssize_t got = read(reader, &byte, 1);
	alarm(0);
	return got == 0;
}

enum carrier { STREAMS, DATAGRAMS, SEQUENCES, EPOLLS, CONNECTIONS };

/* Creates a listener, `ends[1]`, and a client, `ends[0]`, whose connection is never accepted. The client's
 * messages are queued at the listener. */
static void connection(int ends[2])
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t length = sizeof name;
	ends[1] = socket(AF_UNIX, SOCK_STREAM, 0);
	ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	NEED(bind(ends[1], (struct sockaddr *)&name, sizeof name.sun_family) == 0);
	NEED(getsockname(ends[1], (struct sockaddr *)&name, &length) == 0);
	NEED(listen(ends[1], 1) == 0);
	NEED(connect(ends[0], (struct sockaddr *)&name, length) == 0);
}

/* Nests `depth` sockets. The innermost message contains the file `innermost`. Returns the outermost socket. */
static int nest(enum carrier carrier, int depth, int innermost)
{
	static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOCK_STREAM };
	int files[2] = { innermost, -1 };
	for (int level = 0; level < depth; level++) {
		int ends[2];
		if (carrier == CONNECTIONS)
			connection(ends);
		else
			NEED(socketpair(AF_UNIX, types[carrier], 0, ends) == 0);
		NEED(send_files(ends[0], files, files[1] < 0 ? 1 : 2) == 0);
		close(ends[0]);
		close(files[0]);
		if (files[1] >= 0)
			close(files[1]);
		files[0] = ends[1];
		if (carrier == EPOLLS) {
			/* The next socket's queue gets the socket and an epoll that watches it. */
			struct epoll_event event = { .events = EPOLLIN };
			files[1] = epoll_create1(0);
			NEED(epoll_ctl(files[1], EPOLL_CTL_ADD, files[0], &event) == 0);
		}
	}
	if (files[1] >= 0)
		close(files[1]);
	return files[0];
}

static void close_outermost(enum carrier carrier, int depth)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	int outermost = nest(carrier, depth, ends[1]);
	close(outermost);
	CHECK(ended(ends[0]));
	close(ends[0]);
}

/* A receive whose control buffer is too small closes those files in flight that do not fit. */
static void receive_without_room(int depth)
{
	int ends[2];
	char byte;
	NEED(pipe(ends) == 0);
	int outermost = nest(STREAMS, depth, ends[1]);
	CHECK_EQ(read(outermost, &byte, 1), 1);
	CHECK(ended(ends[0]));
	close(outermost);
	close(ends[0]);
}

static void leave_open(void *depth)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	nest(DATAGRAMS, *(int *)depth, ends[1]);
}

int main(void)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	/* Raises the limit of files in flight, which not every user may do. */
	struct rlimit higher = { 100000, 100000 };
	if (limit.rlim_max >= higher.rlim_max || setrlimit(RLIMIT_NOFILE, &higher) != 0) {
		limit.rlim_cur = limit.rlim_max;
		NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	for (enum carrier carrier = STREAMS; carrier <= CONNECTIONS; carrier++)
		for (int depth = 100; depth <= 1000; depth *= 10)
			close_outermost(carrier, depth);
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	close_outermost(STREAMS, limit.rlim_cur > 20000 ? 20000 : (int)limit.rlim_cur);
	receive_without_room(2000);
	int depth = 5000;
	CHECK(exited(in_child(leave_open, &depth), 0));
	return checked("nested_sockets");
}
