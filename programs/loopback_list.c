/* Do /proc/net/tcp, tcp6, udp and udp6 list each socket of the machine once, with its addresses, state, byte counts and
 * inode? Do ioctls on sockets return the properties of the loopback interface?
 */
#include "check.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { ESTABLISHED = 1, FIN_WAIT_1 = 4, FIN_WAIT_2 = 5, TIME_WAIT = 6, CLOSE = 7, CLOSE_WAIT = 8, LISTEN = 10 };
enum { MANY = 400 };

struct row {
	unsigned local, remote, state, sent, received, timer, user;
	unsigned long inode;
};

/* Parses a line. Returns whether it describes a socket. */
static int parse(const char *line, struct row *row)
{
	return sscanf(line, "%*d: %*[0-9A-F]:%x %*[0-9A-F]:%x %x %x:%x %x:%*x %*x %u %*d %lu", &row->local, &row->remote,
		      &row->state, &row->sent, &row->received, &row->timer, &row->user, &row->inode) == 8;
}

/* Returns the number of lines in a file that have these ports, and stores the last of them. */
static int find(const char *name, int local, int remote, struct row *found)
{
	int count = 0;
	for (char *line = read_pieces(name, 4096), *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		struct row row;
		*end = 0;
		if (parse(line, &row) && row.local == (unsigned)local && row.remote == (unsigned)remote) {
			*found = row;
			count++;
		}
	}
	return count;
}

static unsigned long inode_of(int file)
{
	struct stat status;
	NEED(fstat(file, &status) == 0);
	return status.st_ino;
}

static int port_of(int file)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	NEED(getsockname(file, (void *)&name, &length) == 0);
	return ntohs(((struct sockaddr_in *)&name)->sin_port);
}

static int bound(int family, int type)
{
	int file = socket(family, type, 0);
	NEED(file >= 0);
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	if (family == AF_INET)
		NEED(bind(file, (void *)&four, sizeof four) == 0);
	else
		NEED(bind(file, (void *)&six, sizeof six) == 0);
	return file;
}

static int joined(int server)
{
	struct sockaddr_storage name;
	socklen_t length = sizeof name;
	NEED(getsockname(server, (void *)&name, &length) == 0);
	int file = socket(name.ss_family, SOCK_STREAM, 0);
	NEED(file >= 0);
	NEED(connect(file, (void *)&name, length) == 0);
	return file;
}

static void streams(int family, const char *name)
{
	struct row row;
	int server = bound(family, SOCK_STREAM), port = port_of(server);
	CHECK(find(name, port, 0, &row) == 0);
	NEED(listen(server, 8) == 0);
	CHECK(find(name, port, 0, &row) == 1);
	CHECK(row.state == LISTEN && row.received == 0 && row.user == getuid() && row.inode == inode_of(server));

	int client = joined(server), from = port_of(client);
	CHECK(find(name, port, 0, &row) == 1);
	CHECK(row.received == 1);
	CHECK(find(name, from, port, &row) == 1);
	CHECK(row.state == ESTABLISHED && row.inode == inode_of(client));
	/* Before accept, the server's end does not belong to a program, so its inode is 0. */
	CHECK(find(name, port, from, &row) == 1);
	CHECK(row.state == ESTABLISHED && row.inode == 0 && row.user == 0);
	int other = accept(server, NULL, NULL);
	NEED(other >= 0);
	CHECK(find(name, port, from, &row) == 1);
	CHECK(row.inode == inode_of(other) && row.received == 0);
	CHECK(find(name, port, 0, &row) == 1);
	CHECK(row.received == 0);

	NEED(write(client, "12345", 5) == 5);
	CHECK(find(name, port, from, &row) == 1);
	CHECK(row.received == 5);
	NEED(shutdown(client, SHUT_WR) == 0);
	CHECK(find(name, from, port, &row) == 1);
	/* The socket enters the second state when the other end acknowledges, which can take 40 ms on Linux. */
	CHECK(row.state == FIN_WAIT_1 || row.state == FIN_WAIT_2);
	CHECK(find(name, port, from, &row) == 1);
	CHECK(row.state == CLOSE_WAIT);
	char bytes[8];
	NEED(read(other, bytes, sizeof bytes) == 5);
	close(other);
	close(client);
	/* The end that closed first is in TIME_WAIT. The other one does not exist any more. */
	CHECK(find(name, from, port, &row) == 1);
	CHECK(row.state == TIME_WAIT && row.timer == 3 && row.inode == 0);
	CHECK(find(name, port, from, &row) == 0);
	close(server);
	CHECK(find(name, port, 0, &row) == 0);
}

static void datagrams(int family, const char *name)
{
	struct row row;
	int one = bound(family, SOCK_DGRAM), two = bound(family, SOCK_DGRAM);
	int first = port_of(one), second = port_of(two);
	CHECK(find(name, first, 0, &row) == 1);
	CHECK(row.state == CLOSE && row.inode == inode_of(one));
	struct sockaddr_storage to;
	socklen_t length = sizeof to;
	NEED(getsockname(two, (void *)&to, &length) == 0);
	NEED(connect(one, (void *)&to, length) == 0);
	CHECK(find(name, first, 0, &row) == 0);
	CHECK(find(name, first, second, &row) == 1);
	CHECK(row.state == ESTABLISHED);
	NEED(write(one, "abc", 3) == 3);
	CHECK(find(name, second, 0, &row) == 1);
	/* Linux reports the size of the buffers, which is larger than the message. */
	CHECK(row.received >= 3);
	close(one);
	CHECK(find(name, first, second, &row) == 0);
	close(two);
}

/* Returns the number of rows in /proc/net/tcp that have the port `port`, and the sum of their other columns. */
static int rows_of(int port, const char *name, size_t piece, unsigned long *sum)
{
	int rows = 0;
	*sum = 0;
	for (char *line = read_pieces(name, piece), *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		struct row row;
		*end = 0;
		if (!parse(line, &row) || (row.local != (unsigned)port && row.remote != (unsigned)port))
			continue;
		rows++;
		*sum += row.local * 3UL + row.remote * 5UL + row.state * 7UL + row.inode * 11UL;
	}
	return rows;
}

/* Reads of any size return the same text, which contains every socket once. */
static void many(void)
{
	static int ends[MANY][2];
	int server = bound(AF_INET, SOCK_STREAM), port = port_of(server);
	unsigned long expected = port * 3UL + LISTEN * 7UL + inode_of(server) * 11UL, sum;
	NEED(listen(server, 8) == 0);
	for (int i = 0; i < MANY; i++) {
		ends[i][0] = joined(server);
		NEED((ends[i][1] = accept(server, NULL, NULL)) >= 0);
		expected += (port + port_of(ends[i][0])) * 8UL + 2 * ESTABLISHED * 7UL;
		expected += (inode_of(ends[i][0]) + inode_of(ends[i][1])) * 11UL;
	}
	size_t pieces[] = { 37, 4096, 1 << 18 };
	for (int i = 0; i < 3; i++) {
		CHECK(rows_of(port, "/proc/net/tcp", pieces[i], &sum) == 2 * MANY + 1);
		CHECK(sum == expected);
	}
	CHECK(rows_of(port, "/proc/self/net/tcp", 4096, &sum) == 2 * MANY + 1);
	for (int i = 0; i < MANY; i++) {
		close(ends[i][0]);
		close(ends[i][1]);
	}
	close(server);
}

static void interfaces(void)
{
	CHECK(if_nametoindex("lo") == 1);
	CHECK(if_nametoindex("none") == 0 && errno == ENODEV);
	char name[IF_NAMESIZE];
	CHECK(if_indextoname(1, name) != NULL && strcmp(name, "lo") == 0);
	struct ifreq request = { .ifr_name = "lo" };
	int four = socket(AF_INET, SOCK_DGRAM, 0), six = socket(AF_INET6, SOCK_DGRAM, 0), local = socket(AF_UNIX, SOCK_DGRAM, 0);
	NEED(four >= 0 && six >= 0 && local >= 0);
	CHECK(ioctl(local, SIOCGIFFLAGS, &request) == 0);
	CHECK(request.ifr_flags == (IFF_UP | IFF_LOOPBACK | IFF_RUNNING));
	CHECK(ioctl(six, SIOCGIFMTU, &request) == 0);
	CHECK(request.ifr_mtu == 65536);
	CHECK(ioctl(six, SIOCGIFADDR, &request) < 0 && errno == ENOTTY);
	CHECK(ioctl(four, SIOCGIFADDR, &request) == 0);
	struct sockaddr_in *address = (void *)&request.ifr_addr;
	CHECK(address->sin_family == AF_INET && address->sin_addr.s_addr == htonl(INADDR_LOOPBACK));
	CHECK(ioctl(four, SIOCGIFNETMASK, &request) == 0);
	CHECK(address->sin_addr.s_addr == htonl(0xff000000));
	CHECK(ioctl(four, SIOCGIFADDR, (void *)8) < 0 && errno == EFAULT);
	strcpy(request.ifr_name, "lo:1");
	CHECK(ioctl(four, SIOCGIFADDR, &request) < 0 && errno == EADDRNOTAVAIL);

	struct ifreq list[8];
	struct ifconf all = { .ifc_len = 0 };
	CHECK(ioctl(four, SIOCGIFCONF, &all) == 0);
	CHECK(all.ifc_len >= (int)sizeof *list);
	all.ifc_len = sizeof list;
	all.ifc_req = list;
	CHECK(ioctl(four, SIOCGIFCONF, &all) == 0);
	CHECK(all.ifc_len >= (int)sizeof *list && strcmp(list[0].ifr_name, "lo") == 0);
	all.ifc_len = sizeof *list - 1;
	CHECK(ioctl(four, SIOCGIFCONF, &all) == 0);
	CHECK(all.ifc_len == 0);
	all.ifc_len = sizeof list;
	all.ifc_req = (void *)8;
	CHECK(ioctl(four, SIOCGIFCONF, &all) < 0 && errno == EFAULT);
	close(four);
	close(six);
	close(local);
}

static void headers(void)
{
	CHECK(strncmp(read_pieces("/proc/net/tcp", 4096), "  sl  local_address rem_address   st tx_queue rx_queue tr ", 58) == 0);
	CHECK(strcspn(read_pieces("/proc/net/tcp", 4096), "\n") == 149);
	CHECK(strcspn(read_pieces("/proc/net/udp", 4096), "\n") == 127);
	CHECK(strncmp(read_pieces("/proc/net/tcp6", 4096), "  sl  local_address                         remote_address ", 59) == 0);
	CHECK(strncmp(read_pieces("/proc/net/udp6", 4096), "  sl  local_address                         remote_address ", 59) == 0);
	CHECK(strstr(read_pieces("/proc/net/if_inet6", 4096), "00000000000000000000000000000001 01 80 10 80       lo\n") != NULL);
	char link[32] = "";
	NEED(readlink("/proc/net", link, sizeof link - 1) > 0);
	CHECK(strcmp(link, "self/net") == 0);
}

int main(void)
{
	headers();
	interfaces();
	streams(AF_INET, "/proc/net/tcp");
	streams(AF_INET6, "/proc/net/tcp6");
	datagrams(AF_INET, "/proc/net/udp");
	datagrams(AF_INET6, "/proc/net/udp6");
	many();
	return checked("loopback_list");
}
