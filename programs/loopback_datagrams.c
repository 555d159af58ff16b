/* Do datagram sockets at the loopback addresses of IPv4 and IPv6 deliver and truncate datagrams, report their senders,
 * and fail as on Linux?
 */
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static int ready(int file)
{
	struct pollfd wish = { file, POLLIN | POLLOUT | POLLRDHUP, 0 };
	return poll(&wish, 1, 0) < 0 ? -1 : wish.revents;
}

static struct sockaddr_in at(int file)
{
	struct sockaddr_in name;
	socklen_t length = sizeof name;
	NEED(getsockname(file, (void *)&name, &length) == 0);
	return name;
}

static int bound(void)
{
	struct sockaddr_in name = { .sin_family = AF_INET };
	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int file = socket(AF_INET, SOCK_DGRAM, 0);
	NEED(file >= 0);
	NEED(bind(file, (void *)&name, sizeof name) == 0);
	return file;
}

static void messages(void)
{
	int one = bound(), two = bound();
	struct sockaddr_in name = at(two), from;
	socklen_t length = sizeof from;
	char text[16];
	CHECK_EQ(ready(one), POLLOUT);
	CHECK_FAILS(send(one, "x", 1, 0), EDESTADDRREQ);
	CHECK_FAILS(listen(one, 1), EOPNOTSUPP);
	CHECK_FAILS(accept(one, NULL, NULL), EOPNOTSUPP);
	CHECK_FAILS(recv(one, text, 4, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(sendto(one, "first", 5, 0, (void *)&name, sizeof name), 5);
	CHECK_EQ(sendto(one, "", 0, 0, (void *)&name, sizeof name), 0);
	CHECK_EQ(sendto(one, "third one", 9, 0, (void *)&name, sizeof name), 9);
	CHECK_EQ(ready(two), POLLIN | POLLOUT);
	int waiting = 0;
	CHECK_EQ(ioctl(two, FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 5);
	CHECK_EQ(recv(two, text, 16, MSG_PEEK), 5);
	CHECK_EQ(recvfrom(two, text, 16, 0, (void *)&from, &length), 5);
	CHECK_EQ(length, sizeof from);
	CHECK_EQ(from.sin_port, at(one).sin_port);
	CHECK_EQ(recv(two, text, 16, 0), 0);
	CHECK_EQ(recv(two, text, 4, MSG_TRUNC), 9);
	struct iovec pieces[2] = { { text, 3 }, { text + 3, 5 } };
	struct mmsghdr headers[2] = { 0 };
	for (int index = 0; index < 2; index++) {
		headers[index].msg_hdr.msg_iov = &pieces[index];
		headers[index].msg_hdr.msg_iovlen = 1;
		headers[index].msg_hdr.msg_name = &name;
		headers[index].msg_hdr.msg_namelen = sizeof name;
	}
	CHECK_EQ(sendmmsg(one, headers, 2, 0), 2);
	CHECK_EQ(headers[1].msg_len, 5);
	headers[0].msg_hdr.msg_name = headers[1].msg_hdr.msg_name = NULL;
	headers[1].msg_len = 0;
	CHECK_EQ(recvmmsg(two, headers, 2, MSG_WAITFORONE, NULL), 2);
	CHECK_EQ(headers[0].msg_len, 3);
	CHECK_EQ(headers[1].msg_len, 5);
	CHECK_FAILS(recvmmsg(two, headers, 2, MSG_DONTWAIT, NULL), EAGAIN);
	static char large[65508];
	CHECK_FAILS(sendto(one, large, 65508, 0, (void *)&name, sizeof name), EMSGSIZE);
	CHECK_EQ(sendto(one, large, 65507, 0, (void *)&name, sizeof name), 65507);
	CHECK_EQ(recv(two, large, sizeof large, 0), 65507);
	name.sin_port = 0;
	CHECK_FAILS(sendto(one, "x", 1, 0, (void *)&name, sizeof name), EINVAL);
	close(one);
	close(two);
}

static void connections(void)
{
	int one = bound(), two = bound(), other = bound();
	struct sockaddr_in name = at(two), own = at(one), peer;
	socklen_t length = sizeof peer;
	char text[4];
	CHECK_FAILS(getpeername(one, (void *)&peer, &length), ENOTCONN);
	CHECK_EQ(connect(one, (void *)&name, sizeof name), 0);
	CHECK_EQ(getpeername(one, (void *)&peer, &length), 0);
	CHECK_EQ(peer.sin_port, name.sin_port);
	/* A connected socket receives datagrams from its peer only. */
	CHECK_EQ(sendto(other, "no", 2, 0, (void *)&own, sizeof own), 2);
	CHECK_EQ(sendto(two, "yes", 3, 0, (void *)&own, sizeof own), 3);
	CHECK_EQ(recv(one, text, 4, MSG_DONTWAIT), 3);
	CHECK_FAILS(recv(one, text, 4, MSG_DONTWAIT), EAGAIN);
	CHECK_EQ(send(one, "abc", 3, 0), 3);
	CHECK_EQ(recv(two, text, 4, MSG_DONTWAIT), 3);
	/* A datagram to a closed port causes ECONNREFUSED. */
	close(two);
	CHECK_EQ(send(one, "abc", 3, 0), 3);
	CHECK_EQ(ready(one), POLLOUT | POLLERR);
	CHECK_FAILS(send(one, "abc", 3, 0), ECONNREFUSED);
	CHECK_EQ(send(one, "abc", 3, 0), 3);
	CHECK_FAILS(recv(one, text, 4, MSG_DONTWAIT), ECONNREFUSED);
	peer.sin_family = AF_UNSPEC;
	CHECK_EQ(connect(one, (void *)&peer, sizeof peer), 0);
	CHECK_FAILS(getpeername(one, (void *)&peer, &length), ENOTCONN);
	/* The port that the kernel chose is released. */
	CHECK_EQ(at(one).sin_port, 0);
	CHECK_EQ(send(other, "ab", 2, MSG_DONTWAIT) < 0 ? errno : 0, EDESTADDRREQ);
	close(one);
	close(other);
}

static void lost(void)
{
	int one = bound(), two = bound(), size = 4096;
	struct sockaddr_in name = at(two);
	static char block[1000];
	CHECK_EQ(setsockopt(two, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
	for (int round = 0; round < 100; round++)
		CHECK_EQ(sendto(one, block, sizeof block, 0, (void *)&name, sizeof name), 1000);
	int got = 0;
	while (recv(two, block, sizeof block, MSG_DONTWAIT) > 0)
		got++;
	CHECK(got > 0 && got < 100);
	CHECK_EQ(sendto(one, block, sizeof block, 0, (void *)&name, sizeof name), 1000);
	CHECK_EQ(recv(two, block, sizeof block, MSG_DONTWAIT), 1000);
	close(one);
	close(two);
}

static void both_families(void)
{
	int six = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
	if (six < 0)
		return;
	struct sockaddr_in6 any = { .sin6_family = AF_INET6 }, from;
	CHECK_EQ(bind(six, (void *)&any, sizeof any), 0);
	CHECK_EQ(setsockopt(six, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on), 0);
	socklen_t length = sizeof any;
	CHECK_EQ(getsockname(six, (void *)&any, &length), 0);
	int four = bound();
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_port = any.sin6_port };
	name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(sendto(four, "abc", 3, 0, (void *)&name, sizeof name), 3);
	char text[4], control[64];
	struct iovec piece = { text, sizeof text };
	struct msghdr header = {
		.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &piece, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof control,
	};
	CHECK_EQ(recvmsg(six, &header, 0), 3);
	CHECK_EQ(header.msg_namelen, sizeof from);
	CHECK(IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
	struct cmsghdr *info = CMSG_FIRSTHDR(&header);
	NEED(info != NULL);
	CHECK_EQ(info->cmsg_level, IPPROTO_IPV6);
	CHECK_EQ(info->cmsg_type, IPV6_PKTINFO);
	CHECK_EQ(sendto(six, "back", 4, 0, (void *)&from, sizeof from), 4);
	CHECK_EQ(recv(four, text, 4, 0), 4);
	int client = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 local = any;
	local.sin6_addr = in6addr_loopback;
	if (connect(client, (void *)&local, sizeof local) == 0) {
		CHECK_EQ(send(client, "six", 3, 0), 3);
		length = sizeof from;
		CHECK_EQ(recvfrom(six, text, 4, 0, (void *)&from, &length), 3);
		CHECK(memcmp(&from.sin6_addr, &in6addr_loopback, 16) == 0);
	}
	close(client);
	close(four);
	close(six);
}

int main(void)
{
	messages();
	connections();
	lost();
	both_families();
	return checked("loopback_datagrams");
}
