/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What does a snapshot of Redis cost the kernel while records are written? docs/experiments/redis-bgsave.md.
 *
 * redis_bgsave save|none existing|new WRITES RECORDS: starts Redis, fills it with RECORDS values of 1,000 bytes, and
 * sends it WRITES commands that set a record. Their keys are random, from a fixed seed: those of existing records, or
 * of new ones. With "save", a child that Redis forks saves all records at the same time. Region 1 is the command that
 * starts the snapshot, the writes, and the time until the snapshot is complete. Redis has one client, this program,
 * which does not fork in the region. The socket is in the file system, so no network is needed.
 *
 * Prints what Redis reports: the memory of the records, the duration of the fork in microseconds, and the bytes
 * that were copied on write.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

#define SOCKET "/tmp/redis"
enum { VALUE = 1000, BATCH = 20, SEED = 28, A_TENTH = 100000 };

MARK_NAME(1, "save");

static int server;
static char answer[1 << 14];

__attribute__((noreturn)) static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, answer);
	exit(1);
}

static void start_redis(void)
{
	/* Redis would load an older snapshot. */
	unlink("/tmp/dump.rdb");
	if (fork() == 0) {
		execl("/usr/bin/redis-server", "redis-server", "--port", "0", "--unixsocket", SOCKET, "--save", "", "--dir",
		      "/tmp", "--logfile", "/tmp/log", "--enable-debug-command", "yes", NULL);
		_exit(127);
	}
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = SOCKET };
	server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (int i = 0; connect(server, (struct sockaddr *)&address, sizeof address) != 0; i++) {
		if (i == 100)
			fail("Redis does not answer");
		usleep(A_TENTH);
	}
}

/* Sends a command and receives the answer: one line or, after a line `$LENGTH`, that many bytes and a line end. */
static const char *ask(const void *command, size_t length)
{
	size_t got = 0, wanted = 0;

	if (write(server, command, length) != (ssize_t)length)
		fail("write");
	do {
		ssize_t more = read(server, answer + got, sizeof answer - 1 - got);
		if (more <= 0)
			fail("read");
		answer[got += more] = 0;
		const char *end = strstr(answer, "\r\n");
		if (end)
			wanted = end + 2 - answer + (answer[0] == '$' ? atol(answer + 1) + 2 : 0);
	} while (wanted == 0 || got < wanted);
	return answer;
}

static void order(const char *command, const char *expected)
{
	if (strncmp(ask(command, strlen(command)), expected, strlen(expected)) != 0)
		fail(command);
}

/* Returns the value of a field in a section of Redis's report. */
static const char *field(const char *section, const char *name)
{
	char command[64];
	int length = snprintf(command, sizeof command, "INFO %s\r\n", section);
	char *found = strstr((char *)ask(command, length), name);
	if (!found || !(found = strchr(found, ':')))
		fail(name);
	found[strcspn(found, "\r")] = 0;
	return found + 1;
}

static int is_saving(void)
{
	return field("persistence", "rdb_bgsave_in_progress")[0] == '1';
}

/* Sets records at random. The existing ones have the keys that DEBUG POPULATE has given them. The commands are sent in
 * batches, because Redis may answer only once in each time slice: until its slice ends, the saving child has the CPU.
 */
static void write_records(const char *prefix, long writes, long records)
{
	static char commands[BATCH * (VALUE + 128)];
	static const char done[] = "+OK\r\n";
	uint64_t random = SEED;

	for (long sent = 0; sent < writes; sent += BATCH) {
		char key[32], *end = commands;
		for (int i = 0; i < BATCH; i++) {
			random = random * 6364136223846793005 + 1442695040888963407;
			int length = snprintf(key, sizeof key, "%s:%lu", prefix, (unsigned long)((random >> 33) % records));
			end += sprintf(end, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n", length, key, VALUE);
			end = (char *)memset(end, 'x', VALUE) + VALUE;
			end += sprintf(end, "\r\n");
		}
		if (write(server, commands, end - commands) != end - commands)
			fail("write");
		for (size_t got = 0; got < BATCH * strlen(done);) {
			ssize_t more = read(server, answer, sizeof answer - 1);
			if (more <= 0)
				fail("read");
			for (ssize_t i = 0; i < more; i++, got++)
				if (answer[i] != done[got % strlen(done)])
					fail("SET");
		}
	}
}

int main(int count, char **words)
{
	if (count != 5 || atol(words[3]) % BATCH != 0)
		return 2;
	int saves = strcmp(words[1], "save") == 0;
	const char *prefix = strcmp(words[2], "existing") == 0 ? "key" : "new";
	long writes = atol(words[3]), records = atol(words[4]);
	char fill[64];

	start_redis();
	snprintf(fill, sizeof fill, "DEBUG POPULATE %ld key %d\r\n", records, VALUE);
	order(fill, "+OK");
	printf("memory %s\n", field("memory", "used_memory"));
	order("PING\r\n", "+PONG");

	MARK_BEGIN(1);
	if (saves)
		order("BGSAVE\r\n", "+Background");
	write_records(prefix, writes, records);
	if (saves && !is_saving())
		fail("the snapshot was complete before the writes");
	while (saves && is_saving())
		usleep(A_TENTH);
	MARK_END(1);

	if (strcmp(field("persistence", "rdb_last_bgsave_status"), "ok") != 0)
		fail("the snapshot failed");
	printf("fork %s\n", field("stats", "latest_fork_usec"));
	printf("copied %s\n", field("persistence", "rdb_last_cow_size"));
	if (write(server, "SHUTDOWN NOSAVE\r\n", 17) != 17 || wait(NULL) < 0)
		fail("SHUTDOWN");
	return 0;
}
