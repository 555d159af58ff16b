/* The experiment on growth, with connections over the loopback interface. */
#ifndef GROWTH_NETWORK_H
#define GROWTH_NETWORK_H

#include "growth.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { MOST_CONNECTIONS = 10000, MESSAGE = 64 };
static int clients[MOST_CONNECTIONS], servers[MOST_CONNECTIONS];
static unsigned long connection_count;
static int connection_set = -1, listening = -1;
static struct sockaddr_in server_name;

/* Brings the loopback interface up, if it is not, and starts to listen. Returns whether there is such an interface. */
static int has_network(void)
{
	struct ifreq interface = { .ifr_name = "lo" };
	socklen_t length = sizeof server_name;
	if ((listening = socket(AF_INET, SOCK_STREAM, 0)) < 0 || ioctl(listening, SIOCGIFFLAGS, &interface) < 0)
		return 0;
	if (!(interface.ifr_flags & IFF_UP)) {
		interface.ifr_flags |= IFF_UP;
		MUST(ioctl(listening, SIOCSIFFLAGS, &interface) == 0);
	}
	server_name.sin_family = AF_INET;
	server_name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	MUST(bind(listening, (void *)&server_name, sizeof server_name) == 0 && listen(listening, 8) == 0);
	MUST(getsockname(listening, (void *)&server_name, &length) == 0);
	MUST((connection_set = epoll_create1(0)) >= 0);
	return 1;
}

static void connect_ends(int ends[2])
{
	MUST((ends[0] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
	MUST(connect(ends[0], (void *)&server_name, sizeof server_name) == 0);
	MUST((ends[1] = accept(listening, NULL, NULL)) >= 0);
}

/* A client sends a message. The server waits for one on all connections, and answers. */
static uint64_t exchange_over(unsigned long connection)
{
	static char message[MESSAGE];
	struct epoll_event found;
	int client = clients[connection];
	uint64_t start = clock_now();
	MUST(write(client, message, MESSAGE) == MESSAGE);
	MUST(epoll_wait(connection_set, &found, 1, -1) == 1);
	int server = servers[found.data.u64];
	MUST(read(server, message, MESSAGE) == MESSAGE);
	MUST(write(server, message, MESSAGE) == MESSAGE);
	MUST(read(client, message, MESSAGE) == MESSAGE);
	return clock_now() - start;
}

/* Each new connection is used once, because its first messages take memory. */
static void grow_connections(unsigned long n)
{
	if (connection_count == 0) {
		struct rlimit limit = { 2 * MOST_CONNECTIONS + 100, 2 * MOST_CONNECTIONS + 100 };
		MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	for (; connection_count < n; connection_count++) {
		int ends[2];
		connect_ends(ends);
		clients[connection_count] = ends[0];
		servers[connection_count] = ends[1];
		struct epoll_event event = { .events = EPOLLIN, .data.u64 = connection_count };
		MUST(epoll_ctl(connection_set, EPOLL_CTL_ADD, ends[1], &event) == 0);
		exchange_over(connection_count);
	}
}

static uint64_t request_and_reply(unsigned long n)
{
	return exchange_over(any_below(n));
}

static uint64_t connect_and_close(unsigned long n)
{
	int ends[2];
	(void)n;
	uint64_t start = clock_now();
	connect_ends(ends);
	close(ends[0]);
	close(ends[1]);
	return clock_now() - start;
}

static uint64_t read_connections(unsigned long n)
{
	return read_whole("/proc/net/tcp") / n;
}

#endif
