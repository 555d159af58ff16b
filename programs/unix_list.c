/* Does /proc/net/unix list each Unix socket of the machine once, with its type, state, inode and name?
 */
#include "check.h"
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { UNCONNECTED = 1, CONNECTING = 2, CONNECTED = 3 };
enum { MANY = 300 };

struct row {
	unsigned references, protocol, flags, type, state;
	unsigned long inode;
	char name[128];
};

/* Returns the number of rows with this inode, or with this name if the inode is 0, and stores the last of them. */
static int find(unsigned long inode, const char *name, struct row *found)
{
	int count = 0;
	for (char *line = read_pieces("/proc/net/unix", 4096), *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		struct row row = { 0 };
		*end = 0;
		if (sscanf(line, "%*x: %x %x %x %x %x %lu %127[^\n]", &row.references, &row.protocol, &row.flags,
			   &row.type, &row.state, &row.inode, row.name) < 6)
			continue;
		if (row.inode == inode && (inode != 0 || strcmp(row.name, name) == 0)) {
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

static int named(int type, const char *name, size_t length)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	memcpy(address.sun_path, name, length);
	int file = socket(AF_UNIX, type, 0);
	NEED(file >= 0);
	NEED(bind(file, (void *)&address, sizeof address.sun_family + length) == 0);
	return file;
}

static void rows(void)
{
	struct row row;
	const char *header = "Num       RefCount Protocol Flags    Type St Inode Path\n";
	CHECK(strncmp(read_pieces("/proc/net/unix", 4096), header, strlen(header)) == 0);
	int plain = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	NEED(plain >= 0);
	unsigned long inode = inode_of(plain);
	CHECK_EQ(find(inode, "", &row), 1);
	CHECK(row.references == 2 && row.protocol == 0 && row.flags == 0 && row.type == SOCK_SEQPACKET);
	CHECK(row.state == UNCONNECTED && row.name[0] == 0);
	close(plain);
	CHECK_EQ(find(inode, "", &row), 0);

	unlink("/tmp/unix_list");
	int datagrams = named(SOCK_DGRAM, "/tmp/unix_list", 15);
	CHECK_EQ(find(inode_of(datagrams), "", &row), 1);
	CHECK(row.type == SOCK_DGRAM && row.state == UNCONNECTED && strcmp(row.name, "/tmp/unix_list") == 0);
	close(datagrams);
	unlink("/tmp/unix_list");

	int server = named(SOCK_STREAM, "\0unix\0list", 10);
	NEED(listen(server, 4) == 0);
	CHECK_EQ(find(inode_of(server), "", &row), 1);
	CHECK(row.flags == 0x10000 && row.state == UNCONNECTED && strcmp(row.name, "@unix@list") == 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	memcpy(address.sun_path, "\0unix\0list", 10);
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	NEED(client >= 0 && connect(client, (void *)&address, sizeof address.sun_family + 10) == 0);
	CHECK_EQ(find(inode_of(client), "", &row), 1);
	CHECK(row.references == 3 && row.state == CONNECTED && row.name[0] == 0);
	/* Before accept, the server's end does not belong to a program, so its inode is 0. */
	CHECK_EQ(find(0, "@unix@list", &row), 1);
	CHECK_EQ(row.state, CONNECTING);
	int other = accept(server, NULL, NULL);
	NEED(other >= 0);
	CHECK_EQ(find(0, "@unix@list", &row), 0);
	CHECK_EQ(find(inode_of(other), "", &row), 1);
	CHECK(row.state == CONNECTED && strcmp(row.name, "@unix@list") == 0);
	int pair[2];
	NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	CHECK_EQ(find(inode_of(pair[0]), "", &row), 1);
	CHECK_EQ(row.state, CONNECTED);
	close(pair[0]);
	close(pair[1]);
	close(other);
	close(client);
	close(server);
}

/* Reads the list of many sockets with reads of several sizes. */
static void many(void)
{
	static int files[MANY];
	static unsigned long inodes[MANY];
	struct rlimit limit = { 1024, 1024 };
	getrlimit(RLIMIT_NOFILE, &limit);
	NEED(limit.rlim_cur > MANY + 10);
	for (int index = 0; index < MANY; index++) {
		files[index] = socket(AF_UNIX, SOCK_STREAM, 0);
		NEED(files[index] >= 0);
		inodes[index] = inode_of(files[index]);
	}
	for (size_t piece = 100; piece < 20000; piece *= 7) {
		static char seen[MANY];
		memset(seen, 0, sizeof seen);
		for (char *line = read_pieces("/proc/net/unix", piece), *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
			unsigned long inode;
			if (sscanf(line, "%*x: %*x %*x %*x %*x %*x %lu", &inode) != 1)
				continue;
			for (int index = 0; index < MANY; index++)
				seen[index] += inodes[index] == inode;
		}
		for (int index = 0; index < MANY; index++)
			if (seen[index] != 1)
				CHECK_EQ(seen[index], 1);
	}
	for (int index = 0; index < MANY; index++)
		close(files[index]);
}

/* The counts of the loopback interface are present, in the same columns as on Linux. */
static void counts(void)
{
	static char text[4096];
	int file = open("/proc/net/dev", O_RDONLY);
	NEED(file >= 0);
	ssize_t length = read(file, text, sizeof text - 1);
	NEED(length > 0);
	close(file);
	char *line = strstr(text, "    lo: ");
	NEED(line != NULL);
	unsigned long values[16];
	int seen = 0, used = 0;
	for (line += 7; seen < 16 && sscanf(line, "%lu%n", &values[seen], &used) == 1; seen++)
		line += used;
	CHECK_EQ(seen, 16);
	CHECK_EQ(*line, '\n');
}

int main(void)
{
	rows();
	many();
	counts();
	return checked("unix_list");
}
