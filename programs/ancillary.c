/* Do control messages of datagram sockets set and report addresses, hop limits and traffic classes, truncated at the
 * end of the buffer?
 */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Not every C library's headers contain these; the values are from include/uapi/linux/in6.h. */
#ifndef IPV6_RECVPKTINFO
#define IPV6_RECVPKTINFO 49
#define IPV6_PKTINFO 50
#define IPV6_RECVHOPLIMIT 51
#define IPV6_HOPLIMIT 52
#define IPV6_RECVTCLASS 66
#define IPV6_TCLASS 67
#endif

struct info_v4 {
	int number;
	struct in_addr source, address;
};

struct info_v6 {
	struct in6_addr address;
	unsigned number;
};

static int bound(int family)
{
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6 };
	int file = socket(family, SOCK_DGRAM, 0);
	NEED(file >= 0);
	if (family == AF_INET)
		NEED(bind(file, (void *)&four, sizeof four) == 0);
	else
		NEED(bind(file, (void *)&six, sizeof six) == 0);
	return file;
}

static void join(int file, int to, int as)
{
	struct sockaddr_in6 name;
	socklen_t length = sizeof name;
	NEED(getsockname(to, (void *)&name, &length) == 0);
	if (as == AF_INET6) {
		/* An IPv6 socket receives what is sent to its own address. */
		name.sin6_addr = (struct in6_addr)IN6ADDR_LOOPBACK_INIT;
		NEED(connect(file, (void *)&name, sizeof name) == 0);
	} else {
		struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = name.sin6_port };
		four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		NEED(connect(file, (void *)&four, sizeof four) == 0);
	}
}

static void set(int file, int level, int name, int value)
{
	CHECK(setsockopt(file, level, name, &value, sizeof value) == 0);
}

static int get(int file, int level, int name)
{
	int value = -1;
	socklen_t length = sizeof value;
	CHECK(getsockopt(file, level, name, &value, &length) == 0);
	return value;
}

/* Sends one byte with one control message. */
static long send_with(int file, int level, int type, const void *data, size_t length)
{
	union {
		char bytes[128];
		struct cmsghdr aligned;
	} control = { 0 };
	struct iovec piece = { "x", 1 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes };
	message.msg_controllen = CMSG_SPACE(length);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = level;
	header->cmsg_type = type;
	header->cmsg_len = CMSG_LEN(length);
	memcpy(CMSG_DATA(header), data, length);
	return sendmsg(file, &message, 0);
}

static long send_number(int file, int level, int type, int value)
{
	return send_with(file, level, type, &value, sizeof value);
}

static char told[256];
static size_t told_length;
static int told_flags;

/* Receives one datagram. The buffer for control messages has `room` bytes. */
static void receive(int file, size_t room)
{
	char text[4];
	struct iovec piece = { text, sizeof text };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = told };
	memset(told, 0x5a, sizeof told);
	message.msg_controllen = room;
	NEED(recvmsg(file, &message, MSG_DONTWAIT) == 1);
	told_length = message.msg_controllen;
	told_flags = message.msg_flags;
}

/* Returns the control message of this level and type with `length` bytes, or NULL if there is none. */
static void *found(int level, int type, size_t length)
{
	size_t at = 0;
	while (at + sizeof(struct cmsghdr) <= told_length) {
		struct cmsghdr *header = (void *)(told + at);
		if (header->cmsg_level == level && header->cmsg_type == type)
			return header->cmsg_len == CMSG_LEN(length) ? (char *)header + CMSG_LEN(0) : NULL;
		at += CMSG_SPACE(header->cmsg_len - CMSG_LEN(0));
	}
	return NULL;
}

static int number(int level, int type, size_t length)
{
	int value = 0;
	void *data = found(level, type, length);
	if (data == NULL)
		return -1;
	memcpy(&value, data, length);
	return value;
}

static void told_v4(void)
{
	int one = bound(AF_INET), two = bound(AF_INET);
	join(one, two, AF_INET);
	NEED(send(one, "x", 1, 0) == 1);
	receive(two, sizeof told);
	CHECK(told_length == 0 && told_flags == 0);
	set(two, SOL_IP, IP_RECVTTL, 1);
	set(two, SOL_IP, IP_RECVTOS, 1);
	set(two, SOL_IP, IP_PKTINFO, 1);
	NEED(send(one, "x", 1, 0) == 1);
	receive(two, sizeof told);
	CHECK_EQ(told_length, CMSG_SPACE(12) + CMSG_SPACE(4) + CMSG_SPACE(1));
	struct info_v4 *info = found(SOL_IP, IP_PKTINFO, sizeof *info);
	NEED(info != NULL);
	CHECK(info->number == 1 && info->address.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(info->source.s_addr == htonl(INADDR_LOOPBACK));
	CHECK_EQ(number(SOL_IP, IP_TTL, 4), 64);
	CHECK_EQ(number(SOL_IP, IP_TOS, 1), 0);

	set(one, SOL_IP, IP_TTL, 9);
	set(one, SOL_IP, IP_TOS, 0x107);
	CHECK_EQ(get(one, SOL_IP, IP_TOS), 7);
	NEED(send(one, "x", 1, 0) == 1);
	receive(two, sizeof told);
	CHECK_EQ(number(SOL_IP, IP_TTL, 4), 9);
	CHECK_EQ(number(SOL_IP, IP_TOS, 1), 7);
	NEED(send_number(one, SOL_IP, IP_TTL, 200) == 1);
	receive(two, sizeof told);
	CHECK_EQ(number(SOL_IP, IP_TTL, 4), 200);
	NEED(send_with(one, SOL_IP, IP_TOS, "\x44", 1) == 1);
	receive(two, sizeof told);
	CHECK_EQ(number(SOL_IP, IP_TOS, 1), 0x44);
	CHECK_EQ(number(SOL_IP, IP_TTL, 4), 9);

	CHECK_FAILS(send_number(one, SOL_IP, IP_TTL, 0), EINVAL);
	CHECK_FAILS(send_number(one, SOL_IP, IP_TTL, -1), EINVAL);
	CHECK_FAILS(send_number(one, SOL_IP, IP_TTL, 256), EINVAL);
	CHECK_FAILS(send_number(one, SOL_IP, IP_TOS, 256), EINVAL);
	CHECK_FAILS(send_with(one, SOL_IP, IP_TOS, "ab", 2), EINVAL);
	CHECK_FAILS(send_number(one, SOL_IP, 99, 1), EINVAL);
	CHECK_FAILS(send_number(one, SOL_SOCKET, 99, 1), EINVAL);
	CHECK_EQ(send_number(one, 77, 1, 1), 1);
	receive(two, sizeof told);
	CHECK_EQ(send_number(one, SOL_IPV6, IPV6_HOPLIMIT, 1), 1);
	receive(two, sizeof told);
	close(one);
	close(two);
}

static void sources_v4(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET }, from;
	int one = socket(AF_INET, SOCK_DGRAM, 0), two = bound(AF_INET);
	NEED(bind(one, (void *)&any, sizeof any) == 0);
	struct sockaddr_in to;
	socklen_t length = sizeof to;
	NEED(getsockname(two, (void *)&to, &length) == 0);
	struct info_v4 info = { 1, { htonl(0x7f000002) }, { 0 } };
	union {
		char bytes[CMSG_SPACE(sizeof info)];
		struct cmsghdr aligned;
	} control = { 0 };
	struct iovec piece = { "x", 1 };
	struct msghdr message = { .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &piece, .msg_iovlen = 1 };
	message.msg_control = control.bytes;
	message.msg_controllen = sizeof control.bytes;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_IP;
	header->cmsg_type = IP_PKTINFO;
	header->cmsg_len = CMSG_LEN(sizeof info);
	memcpy(CMSG_DATA(header), &info, sizeof info);
	CHECK_EQ(sendmsg(one, &message, 0), 1);
	char text[4];
	length = sizeof from;
	CHECK_EQ(recvfrom(two, text, 4, MSG_DONTWAIT, (void *)&from, &length), 1);
	CHECK_EQ(from.sin_addr.s_addr, htonl(0x7f000002));
	info.number = 77;
	memcpy(CMSG_DATA(header), &info, sizeof info);
	CHECK_FAILS(sendmsg(one, &message, 0), ENODEV);
	info.number = 0;
	info.source.s_addr = htonl(0x0a000001);
	memcpy(CMSG_DATA(header), &info, sizeof info);
	CHECK_FAILS(sendmsg(one, &message, 0), ENETUNREACH);
	info.source.s_addr = htonl(0xe0000001);
	memcpy(CMSG_DATA(header), &info, sizeof info);
	CHECK_FAILS(sendmsg(one, &message, 0), EINVAL);
	header->cmsg_len = sizeof control.bytes + 1;
	CHECK_FAILS(sendmsg(one, &message, 0), EINVAL);
	header->cmsg_len = 15;
	CHECK_FAILS(sendmsg(one, &message, 0), EINVAL);
	message.msg_controllen = 15;
	CHECK_EQ(sendmsg(one, &message, 0), 1);
	close(one);
	close(two);
}

static void told_v6(void)
{
	int one = bound(AF_INET6), two = bound(AF_INET6);
	join(one, two, AF_INET6);
	set(two, SOL_IPV6, IPV6_RECVPKTINFO, 1);
	set(two, SOL_IPV6, IPV6_RECVHOPLIMIT, 1);
	set(two, SOL_IPV6, IPV6_RECVTCLASS, 1);
	CHECK_EQ(get(two, SOL_IPV6, IPV6_RECVTCLASS), 1);
	NEED(send(one, "x", 1, 0) == 1);
	receive(two, sizeof told);
	CHECK_EQ(told_length, CMSG_SPACE(20) + 2 * CMSG_SPACE(4));
	struct info_v6 *info = found(SOL_IPV6, IPV6_PKTINFO, sizeof *info);
	NEED(info != NULL);
	CHECK(info->number == 1 && IN6_IS_ADDR_LOOPBACK(&info->address));
	CHECK_EQ(number(SOL_IPV6, IPV6_HOPLIMIT, 4), 64);
	CHECK_EQ(number(SOL_IPV6, IPV6_TCLASS, 4), 0);

	set(one, SOL_IPV6, IPV6_UNICAST_HOPS, 3);
	set(one, SOL_IPV6, IPV6_TCLASS, 5);
	for (int value = -1; value < 256; value += 64) {
		CHECK_EQ(send_number(one, SOL_IPV6, IPV6_HOPLIMIT, value), 1);
		receive(two, sizeof told);
		CHECK_EQ(number(SOL_IPV6, IPV6_HOPLIMIT, 4), value < 0 ? 3 : value);
		CHECK_EQ(number(SOL_IPV6, IPV6_TCLASS, 4), 5);
		CHECK_EQ(send_number(one, SOL_IPV6, IPV6_TCLASS, value), 1);
		receive(two, sizeof told);
		CHECK_EQ(number(SOL_IPV6, IPV6_HOPLIMIT, 4), 3);
		CHECK_EQ(number(SOL_IPV6, IPV6_TCLASS, 4), value & 255);
	}
	CHECK_FAILS(send_number(one, SOL_IPV6, IPV6_HOPLIMIT, -2), EINVAL);
	CHECK_FAILS(send_number(one, SOL_IPV6, IPV6_HOPLIMIT, 256), EINVAL);
	CHECK_FAILS(send_with(one, SOL_IPV6, IPV6_TCLASS, "ab", 2), EINVAL);
	CHECK_FAILS(send_number(one, SOL_IPV6, 99, 1), EINVAL);
	CHECK_EQ(send_number(one, SOL_IP, IP_TTL, 0), 1);
	receive(two, sizeof told);
	struct info_v6 wrong = { IN6ADDR_LOOPBACK_INIT, 77 };
	CHECK_FAILS(send_with(one, SOL_IPV6, IPV6_PKTINFO, &wrong, sizeof wrong), ENODEV);
	wrong.number = 1;
	CHECK_EQ(send_with(one, SOL_IPV6, IPV6_PKTINFO, &wrong, sizeof wrong), 1);
	receive(two, sizeof told);
	wrong.address.s6_addr[15] = 2;
	CHECK_FAILS(send_with(one, SOL_IPV6, IPV6_PKTINFO, &wrong, sizeof wrong), EINVAL);
	CHECK_FAILS(send_with(one, SOL_IPV6, IPV6_PKTINFO, &wrong, sizeof wrong - 1), EINVAL);

	/* A datagram from an IPv4 socket to an IPv6 socket has a time to live, and control messages of both families
	 * report it. */
	int four = bound(AF_INET);
	join(four, two, AF_INET);
	set(two, SOL_IP, IP_RECVTTL, 1);
	NEED(send(four, "x", 1, 0) == 1);
	receive(two, sizeof told);
	CHECK_EQ(told_length, CMSG_SPACE(20) + CMSG_SPACE(4));
	CHECK_EQ(number(SOL_IP, IP_TTL, 4), 64);
	info = found(SOL_IPV6, IPV6_PKTINFO, sizeof *info);
	CHECK(info != NULL && IN6_IS_ADDR_V4MAPPED(&info->address));
	close(one);
	close(two);
	close(four);
}

/* Receives with a buffer of each size. Messages are truncated at the end of the buffer, and the bytes after the
 * messages are unchanged. */
static void cut(int family)
{
	int one = bound(family), two = bound(family);
	join(one, two, family);
	if (family == AF_INET) {
		set(two, SOL_IP, IP_RECVTTL, 1);
		set(two, SOL_IP, IP_RECVTOS, 1);
	} else {
		set(two, SOL_IPV6, IPV6_RECVHOPLIMIT, 1);
		set(two, SOL_IPV6, IPV6_RECVTCLASS, 1);
	}
	const size_t first = CMSG_SPACE(4), last = CMSG_LEN(family == AF_INET ? 1 : 4);
	for (size_t room = 0; room <= 64; room++) {
		NEED(send(one, "x", 1, 0) == 1);
		receive(two, room);
		size_t expected = room;
		if (room < 16)
			expected = 0;
		else if (room >= first && room < first + 16)
			expected = first;
		else if (room >= first + CMSG_SPACE(1))
			expected = first + CMSG_SPACE(1);
		CHECK_EQ(told_length, expected);
		CHECK_EQ(told_flags, room < first + last ? MSG_CTRUNC : 0);
		struct cmsghdr *header = (void *)told;
		if (room >= 16)
			CHECK_EQ(header->cmsg_len, room < CMSG_LEN(4) ? room : CMSG_LEN(4));
		for (size_t at = expected; at < sizeof told; at++)
			if (told[at] != 0x5a)
				NEED(told[at] == 0x5a);
	}
	/* If the buffer is NULL, its size is ignored. */
	NEED(send(one, "x", 1, 0) == 1);
	char text[4];
	struct iovec piece = { text, 4 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_controllen = 64 };
	CHECK_EQ(recvmsg(two, &message, MSG_DONTWAIT), 1);
	CHECK(message.msg_controllen == 0 && message.msg_flags == MSG_CTRUNC);
	close(one);
	close(two);
}

static void streams(void)
{
	int file = socket(AF_INET6, SOCK_STREAM, 0);
	NEED(file >= 0);
	set(file, SOL_IPV6, IPV6_RECVPKTINFO, 1);
	set(file, SOL_IPV6, IPV6_RECVHOPLIMIT, 1);
	set(file, SOL_IPV6, IPV6_RECVTCLASS, 1);
	set(file, SOL_IPV6, IPV6_UNICAST_HOPS, 7);
	CHECK_EQ(get(file, SOL_IPV6, IPV6_UNICAST_HOPS), 7);
	/* The two bits that report congestion belong to the protocol, so a program cannot set them. */
	set(file, SOL_IPV6, IPV6_TCLASS, 255);
	CHECK_EQ(get(file, SOL_IPV6, IPV6_TCLASS), 252);
	set(file, SOL_IP, IP_TOS, 255);
	CHECK_EQ(get(file, SOL_IP, IP_TOS), 252);
	set(file, SOL_IP, IP_RECVTTL, 1);
	set(file, SOL_IP, IP_RECVTOS, 1);
	set(file, SOL_IP, IP_PKTINFO, 1);
	set(file, SOL_IP, IP_RECVERR, 1);
	close(file);
}

int main(void)
{
	told_v4();
	sources_v4();
	told_v6();
	cut(AF_INET);
	cut(AF_INET6);
	streams();
	return checked("ancillary");
}
