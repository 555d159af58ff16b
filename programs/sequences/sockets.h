/* Sequences on Unix sockets, and on descriptors sent through them. */
#include <sys/socket.h>
#include <sys/un.h>

/* Stores an abstract name of this worker, or sometimes of another one. Returns the length of the address. */
static socklen_t name_of(int number, struct sockaddr_un *name)
{
	memset(name, 0, sizeof *name);
	name->sun_family = AF_UNIX;
	int lane = one_in(32) ? (int)below(LANES) : me.lane;
	int length = snprintf(name->sun_path + 1, 60, "sequences-%d-%d", lane, number);
	return (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)length);
}

static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };

/* Creates a listening socket, a socket that connects to it, and the accepted socket. */
static void meet(void)
{
	struct sockaddr_un name, other;
	socklen_t length = name_of(me.names++ % 16, &name), room = sizeof other;
	int type = types[below(2) * 2];
	long listener = DO(socket, "n-n", SYS_socket, AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener < 0)
		return;
	long bound = DO(bind, "-pn", SYS_bind, listener, &name, length);
	long listens = DO(listen, "-n", SYS_listen, listener, 1 + below(4));
	if (bound < 0 || listens < 0) {
		DO(close, "", SYS_close, listener);
		return;
	}
	hold(LISTENER, listener);
	long clients = 1 + below(3);
	for (long i = 0; i < clients; i++) {
		long client = DO(socket, "", SYS_socket, AF_UNIX, type | SOCK_NONBLOCK, 0);
		if (client < 0)
			return;
		DO(connect, "-pn", SYS_connect, client, &name, length);
		hold(SOCKET, client);
	}
	hold(PAIR, DO(accept4, "dpp-", SYS_accept4, listener, &other, &room, SOCK_NONBLOCK));
	room = sizeof other;
	DO(getsockname, "dpp", SYS_getsockname, listener, &other, &room);
	room = sizeof other;
	DO(getpeername, "dpp", SYS_getpeername, any(PAIR), &other, &room);
}

static void pair(void)
{
	int two[2];
	if (DO(socketpair, "n-np", SYS_socketpair, AF_UNIX, types[below(3)] | SOCK_NONBLOCK, 0, two) == 0) {
		hold(PAIR, two[0]);
		hold(PAIR, two[1]);
	}
}

static void talk(void)
{
	int on = 1, size = 8192 << below(3);
	socklen_t room = sizeof on;
	int socket = any(one_in(2) ? PAIR : SOCKET);
	struct iovec vector = { me.buffer, (size_t)below(PAGE) };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };
	switch (below(8)) {
	case 0:
	case 1:
		DO(sendmsg, "dp-", SYS_sendmsg, socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case 2:
	case 3:
	case 4:
		DO(recvmsg, "dp-", SYS_recvmsg, socket, &message, MSG_DONTWAIT | (one_in(4) ? MSG_PEEK : 0));
		break;
	case 5:
		DO(setsockopt, "dnnpn", SYS_setsockopt, socket, SOL_SOCKET, one_in(2) ? SO_PASSCRED : SO_SNDBUF,
		   one_in(2) ? &on : &size, sizeof on);
		break;
	case 6:
		DO(getsockopt, "dnnpp", SYS_getsockopt, socket, SOL_SOCKET, one_in(2) ? SO_TYPE : SO_ERROR, &on, &room);
		break;
	default:
		if (one_in(2))
			DO(shutdown, "dn", SYS_shutdown, socket, below(3));
		DO(accept4, "d---", SYS_accept4, any(LISTENER), 0, 0, SOCK_NONBLOCK);
	}
}

/* Sends descriptors of any kind through a socket pair. They are received at the other end, or stay in flight until that
   end is closed. */
static void pass_rights(void)
{
	int two[2], count = 1 + (int)below(3);
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec vector = { me.buffer, 1 };
	struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control };
	if (DO(socketpair, "", SYS_socketpair, AF_UNIX, types[below(3)] | SOCK_NONBLOCK, 0, two) < 0)
		return;
	memset(&control, 0, sizeof control);
	message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	int *sent = (int *)CMSG_DATA(&control.header);
	for (int i = 0; i < count; i++)
		sent[i] = one_in(8) ? two[below(2)] : any_descriptor();
	DO(send_rights, "-p-", SYS_sendmsg, two[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (!one_in(6)) {
		message.msg_controllen = sizeof control;
		if (DO(receive_rights, "-p-", SYS_recvmsg, two[1], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) > 0 &&
		    message.msg_controllen >= CMSG_LEN(sizeof(int)) && control.header.cmsg_type == SCM_RIGHTS) {
			size_t got = (control.header.cmsg_len - CMSG_LEN(0)) / sizeof(int);
			for (size_t i = 0; i < got; i++)
				hold(RECEIVED, sent[i]);
		}
	}
	DO(close, "", SYS_close, two[0]);
	DO(close, "", SYS_close, two[1]);
}
