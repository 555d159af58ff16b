/* Do netlink sockets report the loopback interface and its addresses, and does the kernel handle malformed messages?
 */
#include "check.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static char reply[65536];
static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };

static int opened(void)
{
	int file = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
	NEED(file >= 0);
	return file;
}

static unsigned port_of(int file)
{
	struct sockaddr_nl name;
	socklen_t length = sizeof name;
	NEED(getsockname(file, (void *)&name, &length) == 0 && length == sizeof name);
	return name.nl_pid;
}

/* Writes a request with the body `body` to `place`. Returns the request's length. */
static size_t put(void *place, int type, int flags, unsigned sequence, const void *body, size_t length)
{
	struct nlmsghdr header = { NLMSG_LENGTH(length), type, NLM_F_REQUEST | flags, sequence, 0 };
	memset(place, 0, NLMSG_SPACE(length));
	memcpy(place, &header, sizeof header);
	memcpy((char *)place + NLMSG_HDRLEN, body, length);
	return NLMSG_SPACE(length);
}

static void ask(int file, int type, int flags, const void *body, size_t length)
{
	char request[256];
	size_t size = put(request, type, flags, 7, body, length);
	CHECK_EQ(send(file, request, size, 0), size);
}

static ssize_t next(int file)
{
	return recv(file, reply, sizeof reply, MSG_DONTWAIT);
}

/* Returns the error in the next reply, 0 if it is an acknowledgement, or 1 if it is another reply or there is none. */
static int result(int file)
{
	ssize_t length = next(file);
	struct nlmsghdr *header = (void *)reply;
	if (length < (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) || header->nlmsg_type != NLMSG_ERROR)
		return 1;
	struct nlmsgerr *error = NLMSG_DATA(header);
	CHECK(header->nlmsg_seq == 7 && header->nlmsg_pid == port_of(file) && error->msg.nlmsg_seq == 7);
	CHECK_EQ(!!(header->nlmsg_flags & NLM_F_CAPPED), error->error == 0);
	return error->error;
}

static const void *attribute(struct nlmsghdr *header, size_t head, int type, size_t length)
{
	char *at = (char *)NLMSG_DATA(header) + NLMSG_ALIGN(head), *end = (char *)header + header->nlmsg_len;
	while (at + sizeof(struct rtattr) <= end) {
		struct rtattr *one = (void *)at;
		if ((one->rta_type & NLA_TYPE_MASK) == type)
			return one->rta_len == RTA_LENGTH(length) ? RTA_DATA(one) : NULL;
		at += RTA_ALIGN(one->rta_len);
	}
	return NULL;
}

static void check_link(struct nlmsghdr *header)
{
	struct ifinfomsg *info = NLMSG_DATA(header);
	CHECK_EQ(header->nlmsg_type, RTM_NEWLINK);
	CHECK(info->ifi_family == AF_UNSPEC && info->ifi_type == 772 && info->ifi_index == 1);
	CHECK_EQ(info->ifi_flags, IFF_UP | IFF_LOOPBACK | IFF_RUNNING | 0x10000);
	const void *name = attribute(header, sizeof *info, IFLA_IFNAME, 3);
	CHECK(name != NULL && memcmp(name, "lo", 3) == 0);
	const unsigned *number = attribute(header, sizeof *info, IFLA_MTU, 4);
	CHECK(number != NULL && *number == 65536);
	number = attribute(header, sizeof *info, IFLA_TXQLEN, 4);
	CHECK(number != NULL && *number == 1000);
	name = attribute(header, sizeof *info, IFLA_ADDRESS, 6);
	CHECK(name != NULL && memcmp(name, "\0\0\0\0\0", 6) == 0);
	name = attribute(header, sizeof *info, IFLA_BROADCAST, 6);
	CHECK(name != NULL && memcmp(name, "\0\0\0\0\0", 6) == 0);
	name = attribute(header, sizeof *info, IFLA_QDISC, 8);
	CHECK(name != NULL && memcmp(name, "noqueue", 8) == 0);
	CHECK(attribute(header, sizeof *info, IFLA_OPERSTATE, 1) != NULL);
}

static void check_address(struct nlmsghdr *header)
{
	struct ifaddrmsg *info = NLMSG_DATA(header);
	int four = info->ifa_family == AF_INET;
	CHECK_EQ(header->nlmsg_type, RTM_NEWADDR);
	CHECK(info->ifa_index == 1 && info->ifa_scope == RT_SCOPE_HOST && info->ifa_flags == IFA_F_PERMANENT);
	CHECK_EQ(info->ifa_prefixlen, four ? 8 : 128);
	const void *address = attribute(header, sizeof *info, IFA_ADDRESS, four ? 4 : 16);
	CHECK(address != NULL && memcmp(address, four ? "\177\0\0\1" : (char *)&in6addr_loopback, four ? 4 : 16) == 0);
	const unsigned *flags = attribute(header, sizeof *info, IFA_FLAGS, 4);
	CHECK(flags != NULL && *flags == IFA_F_PERMANENT);
	/* The address is valid and preferred without a time limit. */
	const unsigned *times = attribute(header, sizeof *info, IFA_CACHEINFO, sizeof(struct ifa_cacheinfo));
	CHECK(times != NULL && times[0] == -1U && times[1] == -1U);
	if (four) {
		CHECK(attribute(header, sizeof *info, IFA_LOCAL, 4) != NULL);
		const void *label = attribute(header, sizeof *info, IFA_LABEL, 3);
		CHECK(label != NULL && memcmp(label, "lo", 3) == 0);
	}
}

/* Receives a dump. Returns the number of entries, and sets a bit in `seen` for each address family. */
static int dumped(int file, void (*check)(struct nlmsghdr *), int *seen)
{
	int count = 0;
	for (*seen = 0;;) {
		ssize_t length = next(file);
		NEED(length >= (ssize_t)NLMSG_HDRLEN);
		char *at = reply;
		while (at + NLMSG_HDRLEN <= reply + length) {
			struct nlmsghdr *header = (void *)at;
			CHECK(header->nlmsg_flags & NLM_F_MULTI);
			CHECK(header->nlmsg_seq == 7 && header->nlmsg_pid == port_of(file));
			if (header->nlmsg_type == NLMSG_DONE)
				return count;
			NEED(header->nlmsg_len >= NLMSG_HDRLEN);
			if (check != NULL)
				check(header);
			*seen |= 1 << *(unsigned char *)NLMSG_DATA(header);
			count++;
			at += NLMSG_ALIGN(header->nlmsg_len);
		}
	}
}

static void names(void)
{
	int one = opened(), two = opened();
	CHECK_EQ(port_of(one), 0);
	struct sockaddr_nl name = kernel;
	CHECK_FAILS(bind(one, (void *)&name, sizeof name - 1), EINVAL);
	name.nl_family = AF_INET;
	CHECK_FAILS(bind(one, (void *)&name, sizeof name), EINVAL);
	name = kernel;
	CHECK_EQ(bind(one, (void *)&name, sizeof name), 0);
	CHECK_EQ(port_of(one), getpid());
	CHECK_FAILS(bind(one, (void *)&name, sizeof name), EINVAL);
	CHECK_EQ(bind(two, (void *)&name, sizeof name), 0);
	CHECK((int)port_of(two) < -4096);
	name.nl_pid = getpid();
	name.nl_groups = 1;
	CHECK_EQ(bind(one, (void *)&name, sizeof name), 0);
	close(two);
	two = opened();
	CHECK_FAILS(bind(two, (void *)&name, sizeof name), EADDRINUSE);
	close(one);
	CHECK_EQ(bind(two, (void *)&name, sizeof name), 0);
	struct sockaddr_nl peer;
	socklen_t length = sizeof peer;
	CHECK_EQ(getpeername(two, (void *)&peer, &length), 0);
	CHECK(peer.nl_family == AF_NETLINK && peer.nl_pid == 0 && peer.nl_groups == 0);
	CHECK_EQ(connect(two, (void *)&kernel, sizeof kernel), 0);
	CHECK_FAILS(listen(two, 1), EOPNOTSUPP);
	CHECK_FAILS(accept(two, NULL, NULL), EOPNOTSUPP);
	CHECK_FAILS(shutdown(two, SHUT_RD), EOPNOTSUPP);
	CHECK_FAILS(socket(AF_NETLINK, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
	CHECK_FAILS(socket(AF_NETLINK, SOCK_RAW, 31), EPROTONOSUPPORT);
	CHECK_FAILS(socket(AF_NETLINK, SOCK_RAW, 32), EPROTONOSUPPORT);
	int value = 1, all = 0;
	CHECK_EQ(setsockopt(two, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &value, 4), 0);
	length = sizeof all;
	CHECK_EQ(getsockopt(two, SOL_NETLINK, NETLINK_EXT_ACK, &all, &length), 0);
	CHECK_EQ(all, 0);
	value = 0;
	CHECK_FAILS(setsockopt(two, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &value, 4), EINVAL);
	CHECK_FAILS(setsockopt(two, SOL_NETLINK, 77, &value, 4), ENOPROTOOPT);
	CHECK_FAILS(setsockopt(two, SOL_IP, 1, &value, 4), ENOPROTOOPT);
	close(two);
}

static void dumps(void)
{
	int file = opened(), seen;
	struct pollfd wish = { file, POLLIN | POLLOUT, 0 };
	CHECK_EQ(poll(&wish, 1, 0), 1);
	CHECK_EQ(wish.revents, POLLOUT);
	CHECK_FAILS(next(file), EAGAIN);
	struct ifinfomsg links = { 0 };
	ask(file, RTM_GETLINK, NLM_F_DUMP | NLM_F_ACK, &links, sizeof links);
	CHECK_EQ(poll(&wish, 1, 0), 1);
	CHECK_EQ(wish.revents, POLLIN | POLLOUT);
	CHECK_EQ(dumped(file, check_link, &seen), 1);
	CHECK_FAILS(next(file), EAGAIN);
	struct rtgenmsg general = { AF_UNSPEC };
	ask(file, RTM_GETLINK, NLM_F_DUMP, &general, 1);
	CHECK_EQ(dumped(file, check_link, &seen), 1);
	ask(file, RTM_GETADDR, NLM_F_DUMP, &general, 1);
	CHECK_EQ(dumped(file, check_address, &seen), 2);
	CHECK_EQ(seen, 1 << AF_INET | 1 << AF_INET6);
	general.rtgen_family = AF_INET6;
	ask(file, RTM_GETADDR, NLM_F_DUMP, &general, 1);
	CHECK_EQ(dumped(file, check_address, &seen), 1);
	CHECK_EQ(seen, 1 << AF_INET6);
	general.rtgen_family = AF_BRIDGE;
	ask(file, RTM_GETLINK, NLM_F_DUMP, &general, 1);
	CHECK_EQ(dumped(file, NULL, &seen), 0);
	struct rtmsg routes = { .rtm_family = AF_INET };
	ask(file, RTM_GETROUTE, NLM_F_DUMP, &routes, sizeof routes);
	CHECK_EQ(dumped(file, NULL, &seen), 3);

	/* MSG_TRUNC reports a truncated reply. MSG_PEEK leaves a reply in the queue. */
	ask(file, RTM_GETLINK, NLM_F_DUMP, &links, sizeof links);
	ssize_t whole = recv(file, reply, 20, MSG_PEEK | MSG_TRUNC);
	CHECK(whole > 100);
	struct sockaddr_nl from;
	struct iovec piece = { reply, 20 };
	struct msghdr message = { .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1 };
	CHECK_EQ(recvmsg(file, &message, 0), 20);
	CHECK_EQ(message.msg_flags, MSG_TRUNC);
	CHECK(message.msg_namelen == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0);
	CHECK_EQ(dumped(file, NULL, &seen), 0);
	close(file);
}

static void single(void)
{
	int file = opened();
	struct {
		struct ifinfomsg info;
		struct rtattr head;
		char name[20];
	} link = { .info.ifi_index = 1 };
	ask(file, RTM_GETLINK, NLM_F_ACK, &link.info, sizeof link.info);
	CHECK(next(file) > 0);
	check_link((void *)reply);
	CHECK_EQ(result(file), 0);
	link.info.ifi_index = 9;
	ask(file, RTM_GETLINK, 0, &link.info, sizeof link.info);
	CHECK_EQ(result(file), -ENODEV);
	link.info.ifi_index = 0;
	ask(file, RTM_GETLINK, 0, &link.info, sizeof link.info);
	CHECK_EQ(result(file), -EINVAL);
	link.head = (struct rtattr){ RTA_LENGTH(3), IFLA_IFNAME };
	strcpy(link.name, "lo");
	ask(file, RTM_GETLINK, 0, &link, sizeof link.info + RTA_SPACE(3));
	CHECK(next(file) > 0);
	check_link((void *)reply);
	strcpy(link.name, "x0");
	ask(file, RTM_GETLINK, 0, &link, sizeof link.info + RTA_SPACE(3));
	CHECK_EQ(result(file), -ENODEV);
	memset(link.name, 'l', sizeof link.name);
	link.head.rta_len = RTA_LENGTH(20);
	ask(file, RTM_GETLINK, 0, &link, sizeof link);
	CHECK_EQ(result(file), -ERANGE);
	/* An attribute that extends beyond the end of the message is ignored. */
	link.head.rta_len = 200;
	ask(file, RTM_GETLINK, 0, &link, sizeof link);
	CHECK_EQ(result(file), -EINVAL);
	CHECK_FAILS(next(file), EAGAIN);
	close(file);
}

static void hostile(void)
{
	int file = opened(), seen;
	static char bytes[65536];
	CHECK_FAILS(send(file, bytes, 0, 0), ENODATA);
	/* A message that is too short or too long is ignored, together with everything after it. */
	for (unsigned length = 0; length < 16; length++)
		CHECK_EQ(send(file, bytes, length + 1, 0), length + 1);
	struct nlmsghdr header = { 15, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 7, 0 };
	for (int index = 0; index < 3; index++) {
		header.nlmsg_len = (unsigned[]){ 15, 4000, -1U }[index];
		memcpy(bytes, &header, sizeof header);
		CHECK_EQ(send(file, bytes, 200, 0), 200);
	}
	CHECK_FAILS(next(file), EAGAIN);
	struct ifinfomsg links = { 0 };
	ask(file, 0x7fff, 0, &links, sizeof links);
	CHECK_EQ(result(file), -EOPNOTSUPP);
	ask(file, RTM_GETLINK, NLM_F_ACK, &links, 0);
	CHECK_EQ(result(file), 0);
	ask(file, NLMSG_NOOP, NLM_F_ACK, &links, 4);
	CHECK_EQ(result(file), 0);
	CHECK_FAILS(sendto(file, bytes, 64, MSG_OOB, NULL, 0), EOPNOTSUPP);
	struct sockaddr_nl nobody = { .nl_family = AF_NETLINK, .nl_pid = 999999 };
	CHECK_FAILS(sendto(file, bytes, 64, 0, (void *)&nobody, sizeof nobody), ECONNREFUSED);
	static char large[400000];
	CHECK_FAILS(send(file, large, sizeof large, 0), EMSGSIZE);
	CHECK_FAILS(send(file, NULL, 64, 0), EFAULT);

	/* Several requests in one send are answered in order. */
	struct rtgenmsg general = { AF_INET };
	size_t end = put(bytes, 0x7fff, 0, 7, &general, 1);
	end += put(bytes + end, NLMSG_NOOP, NLM_F_ACK, 7, &general, 1);
	end += put(bytes + end, RTM_GETADDR, NLM_F_DUMP, 7, &general, 1);
	CHECK_EQ(send(file, bytes, end, 0), end);
	CHECK_EQ(result(file), -EOPNOTSUPP);
	CHECK_EQ(result(file), 0);
	CHECK_EQ(dumped(file, check_address, &seen), 1);
	CHECK_FAILS(next(file), EAGAIN);
	close(file);
}

/* Sends requests without receiving replies, until the kernel drops replies. The next receive reports that once. */
static void flood(void)
{
	int file = opened(), lost = 0, seen;
	static char bytes[65536];
	struct rtgenmsg general = { AF_UNSPEC };
	size_t end = 0;
	int count = 0;
	for (; end + 20 <= sizeof bytes; count++)
		end += put(bytes + end, NLMSG_NOOP, NLM_F_ACK, 7, &general, 1);
	for (int sent = 0; sent < 100000; sent += count)
		CHECK_EQ(send(file, bytes, end, 0), end);
	struct pollfd wish = { file, POLLIN, 0 };
	CHECK_EQ(poll(&wish, 1, 0), 1);
	CHECK_EQ(wish.revents, POLLIN | POLLERR);
	int replies = 0;
	for (;;) {
		ssize_t length = next(file);
		if (length < 0 && errno == ENOBUFS) {
			lost++;
			continue;
		}
		if (length < 0)
			break;
		replies++;
	}
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(lost, 1);
	CHECK(replies > 50 && replies < 5000);
	ask(file, RTM_GETLINK, NLM_F_DUMP, &general, 1);
	CHECK_EQ(dumped(file, check_link, &seen), 1);
	close(file);
}

static void without_privileges(void)
{
	pid_t child = fork_checked();
	if (child == 0) {
		NEED(setresuid(1000, 1000, 1000) == 0);
		int file = opened(), seen;
		struct ifinfomsg link = { .ifi_index = 1 };
		ask(file, RTM_NEWLINK, 0, &link, sizeof link);
		CHECK_EQ(result(file), -EPERM);
		ask(file, RTM_DELLINK, 0, &link, sizeof link);
		CHECK_EQ(result(file), -EPERM);
		ask(file, RTM_GETLINK, NLM_F_DUMP, &link, sizeof link);
		CHECK_EQ(dumped(file, check_link, &seen), 1);
		struct sockaddr_nl nobody = { .nl_family = AF_NETLINK, .nl_pid = 999999 };
		CHECK_FAILS(sendto(file, &link, sizeof link, 0, (void *)&nobody, sizeof nobody), EPERM);
		CHECK_FAILS(connect(file, (void *)&nobody, sizeof nobody), EPERM);
		end_child();
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
}

int main(void)
{
	names();
	dumps();
	single();
	hostile();
	flood();
	without_privileges();
	return checked("netlink");
}
