/* Do stream sockets at the loopback addresses connect, transfer bytes, report the end of the stream, and fail as on
 * Linux?
 */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int ready(int file)
{
	struct pollfd wish = { file, POLLIN | POLLOUT | POLLRDHUP, 0 };
	return poll(&wish, 1, 0) < 0 ? -1 : wish.revents;
}

static int option(int file, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof value;
	return getsockopt(file, level, name, &value, &length) == 0 ? value : -1;
}

static struct sockaddr_in local(int port)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = htons(port) };
	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return name;
}

static int port_of(int file)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	NEED(getsockname(file, (void *)&name, &length) == 0);
	return ntohs(((struct sockaddr_in *)&name)->sin_port);
}

static int join(int file, int port)
{
	struct sockaddr_in name = local(port);
	return connect(file, (void *)&name, sizeof name);
}

static int listener(int backlog)
{
	int file = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in name = local(0);
	NEED(file >= 0);
	NEED(bind(file, (void *)&name, sizeof name) == 0);
	NEED(listen(file, backlog) == 0);
	return file;
}

static void pair(int ends[2])
{
	int server = listener(8);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	NEED(join(ends[0], port_of(server)) == 0);
	ends[1] = accept(server, NULL, NULL);
	NEED(ends[1] >= 0);
	close(server);
}

static void creation(void)
{
	int ends[2];
	CHECK_FAILS(socket(AF_INET, SOCK_STREAM, IPPROTO_UDP), EPROTONOSUPPORT);
	CHECK_FAILS(socket(AF_INET, SOCK_DGRAM, IPPROTO_TCP), EPROTONOSUPPORT);
	CHECK_FAILS(socket(AF_INET, 77, 0), EINVAL);
	CHECK_FAILS(socketpair(AF_INET, SOCK_STREAM, 0, ends), EOPNOTSUPP);
	int file = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	NEED(file >= 0);
	CHECK_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(file, F_GETFL), O_RDWR | O_NONBLOCK);
	CHECK_EQ(option(file, SOL_SOCKET, SO_DOMAIN), AF_INET);
	CHECK_EQ(option(file, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
	CHECK_EQ(option(file, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	CHECK_EQ(ready(file), POLLOUT | POLLHUP);
	char byte;
	CHECK_FAILS(read(file, &byte, 1), ENOTCONN);
	CHECK_FAILS(send(file, "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_FAILS(shutdown(file, SHUT_RD), ENOTCONN);
	CHECK_FAILS(accept(file, NULL, NULL), EINVAL);
	struct sockaddr_in name;
	socklen_t length = sizeof name;
	CHECK_FAILS(getpeername(file, (void *)&name, &length), ENOTCONN);
	CHECK_EQ(getsockname(file, (void *)&name, &length), 0);
	CHECK_EQ(name.sin_family, AF_INET);
	CHECK_EQ(name.sin_port, 0);
	name = local(0);
	CHECK_FAILS(bind(file, (void *)&name, 8), EINVAL);
	name.sin_family = AF_INET6;
	CHECK_FAILS(bind(file, (void *)&name, sizeof name), EAFNOSUPPORT);
	name.sin_family = AF_INET;
	name.sin_addr.s_addr = htonl(0xc0000201);
	CHECK_FAILS(bind(file, (void *)&name, sizeof name), EADDRNOTAVAIL);
	name = local(0);
	CHECK_EQ(bind(file, (void *)&name, sizeof name), 0);
	CHECK(port_of(file) >= 1024);
	CHECK_FAILS(bind(file, (void *)&name, sizeof name), EINVAL);
	close(file);
}

static void bytes(void)
{
	int server = listener(8);
	CHECK_EQ(option(server, SOL_SOCKET, SO_ACCEPTCONN), 1);
	CHECK_EQ(ready(server), 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(join(client, port_of(server)), 0);
	CHECK_FAILS(join(client, port_of(server)), EISCONN);
	CHECK_EQ(ready(server), POLLIN);
	struct sockaddr_in name;
	socklen_t length = sizeof name;
	int end = accept4(server, (void *)&name, &length, SOCK_NONBLOCK);
	NEED(end >= 0);
	CHECK_EQ(length, sizeof name);
	CHECK_EQ(ntohs(name.sin_port), port_of(client));
	CHECK_EQ(ntohl(name.sin_addr.s_addr), INADDR_LOOPBACK);
	CHECK_EQ(port_of(end), port_of(server));
	CHECK_EQ(getpeername(client, (void *)&name, &length), 0);
	CHECK_EQ(ntohs(name.sin_port), port_of(server));
	char text[16];
	CHECK_FAILS(read(end, text, 4), EAGAIN);
	CHECK_EQ(write(client, "hello ", 6), 6);
	CHECK_EQ(send(client, "world", 5, 0), 5);
	CHECK_EQ(ready(end), POLLIN | POLLOUT);
	int waiting = 0;
	CHECK_EQ(ioctl(end, FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 11);
	CHECK_EQ(recv(end, text, 16, MSG_PEEK), 11);
	CHECK_EQ(recv(end, text, 3, 0), 3);
	CHECK_EQ(recv(end, NULL, 2, MSG_TRUNC), 2);
	CHECK_EQ(recv(end, text, 16, MSG_DONTWAIT), 6);
	CHECK(memcmp(text, " world", 6) == 0);
	CHECK_EQ(ready(end), POLLOUT);
	/* Writes until the socket is full, and reads until it is empty again. */
	static char block[4096];
	long sent = 0, got = 0, count;
	while ((count = write(end, block, sizeof block)) > 0)
		sent += count;
	CHECK_EQ(errno, EAGAIN);
	CHECK(sent >= 65536);
	CHECK_EQ(ready(end), 0);
	while (got < sent && (count = read(client, block, sizeof block)) > 0)
		got += count;
	CHECK_EQ(got, sent);
	struct pollfd wish = { end, POLLOUT, 0 };
	CHECK_EQ(poll(&wish, 1, 5000), 1);
	close(end);
	close(client);
	close(server);
}

static void ends(void)
{
	int pair_of[2];
	char text[16];
	signal(SIGPIPE, SIG_IGN);
	pair(pair_of);
	CHECK_EQ(shutdown(pair_of[0], SHUT_WR), 0);
	CHECK_EQ(ready(pair_of[1]), POLLIN | POLLOUT | POLLRDHUP);
	CHECK_EQ(read(pair_of[1], text, 4), 0);
	CHECK_FAILS(write(pair_of[0], "x", 1), EPIPE);
	CHECK_EQ(write(pair_of[1], "abc", 3), 3);
	CHECK_EQ(read(pair_of[0], text, 4), 3);
	CHECK_EQ(ready(pair_of[0]), POLLOUT);
	CHECK_EQ(shutdown(pair_of[1], SHUT_WR), 0);
	CHECK_EQ(read(pair_of[0], text, 4), 0);
	CHECK_EQ(ready(pair_of[0]), POLLIN | POLLOUT | POLLRDHUP | POLLHUP);
	CHECK_FAILS(shutdown(pair_of[0], 7), EINVAL);
	close(pair_of[0]);
	close(pair_of[1]);
	/* A close ends the stream. Bytes that the peer sends afterwards cause a reset. */
	pair(pair_of);
	CHECK_EQ(write(pair_of[0], "abc", 3), 3);
	close(pair_of[0]);
	CHECK_EQ(ready(pair_of[1]), POLLIN | POLLOUT | POLLRDHUP);
	CHECK_EQ(write(pair_of[1], "x", 1), 1);
	CHECK_EQ(ready(pair_of[1]), POLLIN | POLLOUT | POLLRDHUP | POLLHUP | POLLERR);
	CHECK_FAILS(write(pair_of[1], "x", 1), EPIPE);
	CHECK_EQ(read(pair_of[1], text, 8), 3);
	CHECK_EQ(read(pair_of[1], text, 8), 0);
	close(pair_of[1]);
	/* A close with unread bytes resets the connection. */
	pair(pair_of);
	CHECK_EQ(write(pair_of[0], "abc", 3), 3);
	close(pair_of[1]);
	CHECK_EQ(ready(pair_of[0]), POLLIN | POLLOUT | POLLRDHUP | POLLHUP | POLLERR);
	CHECK_EQ(option(pair_of[0], SOL_SOCKET, SO_ERROR), ECONNRESET);
	CHECK_EQ(read(pair_of[0], text, 8), 0);
	CHECK_FAILS(write(pair_of[0], "x", 1), EPIPE);
	close(pair_of[0]);
	pair(pair_of);
	CHECK_EQ(write(pair_of[0], "abc", 3), 3);
	close(pair_of[1]);
	CHECK_FAILS(read(pair_of[0], text, 8), ECONNRESET);
	close(pair_of[0]);
	/* A close with SO_LINGER and a timeout of 0 also resets the connection. */
	pair(pair_of);
	struct linger linger = { 1, 0 };
	CHECK_EQ(setsockopt(pair_of[1], SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	CHECK_EQ(write(pair_of[1], "abc", 3), 3);
	close(pair_of[1]);
	CHECK_EQ(read(pair_of[0], text, 8), 3);
	CHECK_FAILS(read(pair_of[0], text, 8), ECONNRESET);
	close(pair_of[0]);
}

static void refusals(void)
{
	int server = listener(1), port = port_of(server);
	close(server);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_FAILS(join(client, port), ECONNREFUSED);
	close(client);
	client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_FAILS(join(client, port), EINPROGRESS);
	CHECK_EQ(ready(client), POLLIN | POLLOUT | POLLRDHUP | POLLHUP | POLLERR);
	CHECK_EQ(option(client, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
	CHECK_EQ(option(client, SOL_SOCKET, SO_ERROR), 0);
	close(client);
	server = listener(1);
	client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_FAILS(join(client, port_of(server)), EINPROGRESS);
	struct pollfd wish = { client, POLLOUT, 0 };
	CHECK_EQ(poll(&wish, 1, 5000), 1);
	CHECK_EQ(option(client, SOL_SOCKET, SO_ERROR), 0);
	CHECK_EQ(join(client, port_of(server)), 0);
	CHECK_FAILS(join(client, port_of(server)), EISCONN);
	/* A connection that was not accepted is closed together with its listener. */
	close(server);
	char byte;
	CHECK_FAILS(read(client, &byte, 1), ECONNRESET);
	close(client);
}

static void *accepts(void *server)
{
	usleep(100000);
	return (void *)(long)accept((int)(long)server, NULL, NULL);
}

static void full_backlog(void)
{
	int server = listener(0), port = port_of(server);
	int first = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(join(first, port), 0);
	int second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK_FAILS(join(second, port), EINPROGRESS);
	usleep(10000);
	CHECK_EQ(ready(second), 0);
	CHECK_FAILS(join(second, port), EALREADY);
	close(second);
	int third = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;
	void *got;
	NEED(pthread_create(&thread, NULL, accepts, (void *)(long)server) == 0);
	CHECK_EQ(join(third, port), 0);
	pthread_join(thread, &got);
	CHECK((long)got >= 0);
	close((int)(long)got);
	close(first);
	close(third);
	close(server);
}

static void ports(void)
{
	int on = 1, one = listener(4), port = port_of(one);
	struct sockaddr_in name = local(port);
	int two = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_FAILS(bind(two, (void *)&name, sizeof name), EADDRINUSE);
	CHECK_EQ(setsockopt(two, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
	CHECK_FAILS(bind(two, (void *)&name, sizeof name), EADDRINUSE);
	name.sin_addr.s_addr = htonl(INADDR_ANY);
	CHECK_FAILS(bind(two, (void *)&name, sizeof name), EADDRINUSE);
	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	CHECK_EQ(bind(two, (void *)&name, sizeof name), 0);
	close(two);
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	two = socket(AF_INET6, SOCK_STREAM, 0);
	if (two >= 0) {
		CHECK_FAILS(bind(two, (void *)&six, sizeof six), EADDRINUSE);
		CHECK_EQ(setsockopt(two, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on), 0);
		CHECK_EQ(bind(two, (void *)&six, sizeof six), 0);
		close(two);
	}
	/* The end that closes first still occupies its port (TIME_WAIT). */
	int client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(join(client, port), 0);
	int end = accept(one, NULL, NULL);
	close(end);
	close(client);
	close(one);
	name = local(port);
	two = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_FAILS(bind(two, (void *)&name, sizeof name), EADDRINUSE);
	close(two);
	/* Two sockets share a port. */
	one = socket(AF_INET, SOCK_STREAM, 0);
	two = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(setsockopt(one, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
	CHECK_EQ(setsockopt(two, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
	name = local(0);
	CHECK_EQ(bind(one, (void *)&name, sizeof name), 0);
	name = local(port_of(one));
	CHECK_EQ(bind(two, (void *)&name, sizeof name), 0);
	CHECK_EQ(listen(one, 100), 0);
	CHECK_EQ(listen(two, 100), 0);
	int clients[32], shares[2] = { 0 };
	for (int index = 0; index < 32; index++) {
		clients[index] = socket(AF_INET, SOCK_STREAM, 0);
		CHECK_EQ(join(clients[index], ntohs(name.sin_port)), 0);
	}
	fcntl(one, F_SETFL, O_NONBLOCK);
	fcntl(two, F_SETFL, O_NONBLOCK);
	while ((end = accept(one, NULL, NULL)) >= 0 && ++shares[0])
		close(end);
	while ((end = accept(two, NULL, NULL)) >= 0 && ++shares[1])
		close(end);
	CHECK_EQ(shares[0] + shares[1], 32);
	CHECK(shares[0] > 2 && shares[1] > 2);
	for (int index = 0; index < 32; index++)
		close(clients[index]);
	close(one);
	close(two);
}

static void itself(void)
{
	int file = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in name = local(0);
	char text[4];
	CHECK_EQ(bind(file, (void *)&name, sizeof name), 0);
	CHECK_EQ(join(file, port_of(file)), 0);
	CHECK_EQ(write(file, "abc", 3), 3);
	CHECK_EQ(read(file, text, 4), 3);
	close(file);
}

static void options(void)
{
	int pair_of[2], value;
	pair(pair_of);
	int file = pair_of[0];
	static const int settings[][3] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },   { IPPROTO_TCP, TCP_CORK, 1 },	{ IPPROTO_TCP, TCP_KEEPIDLE, 30 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 5 }, { IPPROTO_TCP, TCP_KEEPCNT, 3 },	{ IPPROTO_TCP, TCP_USER_TIMEOUT, 9 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },   { SOL_SOCKET, SO_REUSEADDR, 1 },	{ SOL_SOCKET, SO_BROADCAST, 1 },
		{ SOL_SOCKET, SO_PRIORITY, 3 },	   { IPPROTO_IP, IP_TTL, 5 },		{ IPPROTO_IP, IP_RECVERR, 1 },
		{ SOL_SOCKET, SO_SNDBUF, 65536 },  { SOL_SOCKET, SO_RCVBUF, 65536 },
	};
	for (unsigned index = 0; index < sizeof settings / sizeof *settings; index++) {
		const int *it = settings[index];
		value = it[2];
		CHECK_EQ(setsockopt(file, it[0], it[1], &value, sizeof value), 0);
		int doubled = it[0] == SOL_SOCKET && (it[1] == SO_SNDBUF || it[1] == SO_RCVBUF);
		CHECK_EQ(option(file, it[0], it[1]), doubled ? 2 * value : value);
	}
	value = 0;
	CHECK_FAILS(setsockopt(file, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value), EINVAL);
	CHECK_FAILS(setsockopt(file, IPPROTO_TCP, 9999, &value, sizeof value), ENOPROTOOPT);
	CHECK_FAILS(setsockopt(file, IPPROTO_UDP, 1, &value, sizeof value), ENOPROTOOPT);
	CHECK_FAILS(getsockopt(file, IPPROTO_TCP, 9999, &value, &(socklen_t){ 4 }), ENOPROTOOPT);
	CHECK_FAILS(getsockopt(file, IPPROTO_UDP, 1, &value, &(socklen_t){ 4 }), EOPNOTSUPP);
	CHECK_FAILS(setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &value, 2), EINVAL);
	char name[16] = "";
	socklen_t length = sizeof name;
	CHECK_EQ(getsockopt(file, IPPROTO_TCP, TCP_CONGESTION, name, &length), 0);
	CHECK(name[0] != 0);
	struct tcp_info info;
	length = sizeof info;
	CHECK_EQ(getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
	CHECK_EQ(info.tcpi_state, TCP_ESTABLISHED);
	struct timeval time = { 0, 20000 };
	CHECK_EQ(setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time), 0);
	CHECK_FAILS(read(file, name, 1), EAGAIN);
	close(pair_of[0]);
	close(pair_of[1]);
}

static void edges(void)
{
	int pair_of[2];
	pair(pair_of);
	int poller = epoll_create1(0);
	struct epoll_event event = { EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, { .fd = 1 } };
	CHECK_EQ(epoll_ctl(poller, EPOLL_CTL_ADD, pair_of[1], &event), 0);
	CHECK_EQ(epoll_wait(poller, &event, 1, 0), 1);
	CHECK_EQ(event.events, EPOLLOUT);
	CHECK_EQ(epoll_wait(poller, &event, 1, 0), 0);
	CHECK_EQ(write(pair_of[0], "a", 1), 1);
	CHECK_EQ(epoll_wait(poller, &event, 1, 1000), 1);
	CHECK_EQ(event.events, EPOLLIN | EPOLLOUT);
	CHECK_EQ(epoll_wait(poller, &event, 1, 0), 0);
	CHECK_EQ(write(pair_of[0], "b", 1), 1);
	CHECK_EQ(epoll_wait(poller, &event, 1, 1000), 1);
	CHECK_EQ(shutdown(pair_of[0], SHUT_WR), 0);
	CHECK_EQ(epoll_wait(poller, &event, 1, 1000), 1);
	CHECK_EQ(event.events, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
	close(pair_of[0]);
	close(pair_of[1]);
	close(poller);
}

int main(void)
{
	creation();
	bytes();
	ends();
	refusals();
	full_backlog();
	ports();
	itself();
	options();
	edges();
	return checked("loopback");
}
