/* Do pipes, poll and descriptors work as on Linux: how much fits, which side waits, which is woken, and what is
 * inherited?
 */
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <time.h>

static int ready(int file, short events)
{
	struct pollfd wish = { file, events, 0 };
	return poll(&wish, 1, 0) < 0 ? -1 : wish.revents;
}

static void capacity(void)
{
	int ends[2];
	NEED(pipe2(ends, O_NONBLOCK) == 0);
	static char block[4096];
	long fits = 0;
	while (write(ends[1], block, sizeof block) == (ssize_t)sizeof block)
		fits += sizeof block;
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(fits, 65536);
	CHECK_EQ(ready(ends[1], POLLOUT), 0);
	CHECK_EQ(ready(ends[0], POLLIN), POLLIN);
	int waiting = 0;
	CHECK_EQ(ioctl(ends[0], FIONREAD, &waiting), 0);
	CHECK_EQ(waiting, 65536);
	CHECK_EQ(read(ends[0], block, sizeof block), 4096);
	CHECK_EQ(ready(ends[1], POLLOUT), POLLOUT);
	while (read(ends[0], block, sizeof block) > 0)
		;
	CHECK_EQ(errno, EAGAIN);
	CHECK_EQ(ready(ends[0], POLLIN), 0);
	CHECK_EQ(write(ends[1], "abc", 3), 3);
	CHECK_EQ(read(ends[0], block, 2), 2);
	CHECK_EQ(read(ends[0], block, 2), 1);
	CHECK_EQ(block[0], 'c');
	CHECK_FAILS(lseek(ends[0], 0, SEEK_CUR), ESPIPE);
	CHECK_FAILS(pread(ends[0], block, 1, 0), ESPIPE);
	CHECK_FAILS(read(ends[1], block, 1), EBADF);
	CHECK_FAILS(write(ends[0], block, 1), EBADF);
	struct stat stat;
	CHECK_EQ(fstat(ends[0], &stat), 0);
	CHECK(S_ISFIFO(stat.st_mode));
	close(ends[0]);
	close(ends[1]);
	CHECK_FAILS(close(ends[1]), EBADF);
}

static volatile int broken;

static void on_broken(int signal)
{
	(void)signal;
	broken++;
}

static void ends_close(void)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	close(ends[1]);
	CHECK_EQ(ready(ends[0], POLLIN), POLLIN | POLLHUP);
	char byte;
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	CHECK_EQ(ready(ends[0], POLLIN), POLLHUP);
	CHECK_EQ(read(ends[0], &byte, 1), 0);
	close(ends[0]);
	CHECK_EQ(ready(ends[0], POLLIN), POLLNVAL);

	NEED(pipe(ends) == 0);
	close(ends[0]);
	CHECK_EQ(ready(ends[1], POLLOUT), POLLOUT | POLLERR);
	signal(SIGPIPE, on_broken);
	CHECK_FAILS(write(ends[1], "x", 1), EPIPE);
	CHECK_EQ(broken, 1);
	signal(SIGPIPE, SIG_DFL);
	pid_t child = fork_checked();
	if (child == 0) {
		ssize_t unused = write(ends[1], "x", 1);
		_exit((int)unused);
	}
	CHECK(killed(wait_for(child), SIGPIPE));
	close(ends[1]);
}

/* A writer and a reader transfer more than the capacity of a pipe, in pieces of odd sizes. No byte is lost or
 * reordered. */
static void stream(void)
{
	enum { LENGTH = 1 << 20 };
	int ends[2];
	NEED(pipe(ends) == 0);
	pid_t child = fork_checked();
	if (child == 0) {
		close(ends[0]);
		static unsigned char block[10007];
		long sent = 0;
		while (sent < LENGTH) {
			size_t length = LENGTH - sent < (long)sizeof block ? (size_t)(LENGTH - sent) : sizeof block;
			for (size_t i = 0; i < length; i++)
				block[i] = (unsigned char)((sent + (long)i) % 251);
			NEED(write(ends[1], block, length) == (ssize_t)length);
			sent += (long)length;
		}
		end_child();
	}
	close(ends[1]);
	static unsigned char block[3001];
	long received = 0, wrong = 0;
	ssize_t length;
	while ((length = read(ends[0], block, sizeof block)) > 0) {
		for (ssize_t i = 0; i < length; i++)
			wrong += block[i] != (received + i) % 251;
		received += length;
	}
	CHECK_EQ(received, LENGTH);
	CHECK_EQ(wrong, 0);
	CHECK(exited(wait_for(child), 0));
	close(ends[0]);
}

/* An unnamed pipe can be opened again through its descriptor, whether or not its other end is open. */
static void opened_again(void)
{
	char name[64], byte = 0;
	int ends[2];

	NEED(pipe(ends) == 0);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	close(ends[1]);
	snprintf(name, sizeof name, "/proc/self/fd/%d", ends[0]);
	int reader = open(name, O_RDONLY);
	CHECK(reader >= 0);
	CHECK_EQ(read(reader, &byte, 1), 1);
	CHECK_EQ(byte, 'x');
	CHECK_EQ(read(reader, &byte, 1), 0);
	/* After a new writer has opened the pipe, the reader waits for bytes again. */
	int writer = open(name, O_WRONLY | O_NONBLOCK);
	CHECK(writer >= 0);
	CHECK_EQ(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
	CHECK_FAILS(read(reader, &byte, 1), EAGAIN);
	close(reader);
	close(ends[0]);
	/* The pipe can also be opened through its write end while it has no reader. */
	snprintf(name, sizeof name, "/proc/self/fd/%d", writer);
	int second = open(name, O_WRONLY | O_NONBLOCK);
	CHECK(second >= 0);
	CHECK_EQ(signal(SIGPIPE, SIG_IGN) != SIG_ERR, 1);
	CHECK_FAILS(write(second, "x", 1), EPIPE);
	close(second);
	second = open(name, O_WRONLY);
	CHECK(second >= 0);
	close(second);
	close(writer);
}

/* Writes of up to 4096 bytes are atomic, whichever processes make them. */
static void whole_writes(void)
{
	enum { WRITERS = 4, RECORDS = 100, LENGTH = 1000 };
	int ends[2];
	NEED(pipe(ends) == 0);
	pid_t writers[WRITERS];
	for (int i = 0; i < WRITERS; i++) {
		writers[i] = fork_checked();
		if (writers[i] == 0) {
			char record[LENGTH];
			memset(record, 'A' + i, LENGTH);
			for (int j = 0; j < RECORDS; j++)
				NEED(write(ends[1], record, LENGTH) == LENGTH);
			end_child();
		}
	}
	close(ends[1]);
	int records = 0, torn = 0;
	char record[LENGTH];
	for (;;) {
		ssize_t length = 0, more;
		while (length < LENGTH && (more = read(ends[0], record + length, (size_t)(LENGTH - length))) > 0)
			length += more;
		if (length < LENGTH)
			break;
		records++;
		for (int i = 1; i < LENGTH; i++)
			torn += record[i] != record[0];
	}
	CHECK_EQ(records, WRITERS * RECORDS);
	CHECK_EQ(torn, 0);
	for (int i = 0; i < WRITERS; i++)
		CHECK(exited(wait_for(writers[i]), 0));
	close(ends[0]);
}

static long milliseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void waiting(void)
{
	int first[2], second[2];
	NEED(pipe(first) == 0 && pipe(second) == 0);
	struct pollfd wishes[3] = { { first[0], POLLIN, 0 }, { second[0], POLLIN, 0 }, { -1, POLLIN, 77 } };
	long start = milliseconds();
	CHECK_EQ(poll(wishes, 3, 30), 0);
	CHECK(milliseconds() - start >= 29);
	CHECK_EQ(wishes[2].revents, 0);
	pid_t child = fork_checked();
	if (child == 0) {
		struct timespec time = { 0, 20 * 1000000 };
		nanosleep(&time, NULL);
		NEED(write(second[1], "x", 1) == 1);
		end_child();
	}
	CHECK_EQ(poll(wishes, 3, -1), 1);
	CHECK_EQ(wishes[0].revents, 0);
	CHECK_EQ(wishes[1].revents, POLLIN);
	CHECK(exited(wait_for(child), 0));
	fd_set set;
	FD_ZERO(&set);
	FD_SET(first[0], &set);
	FD_SET(second[0], &set);
	struct timeval time = { 10, 0 };
	CHECK_EQ(select(second[0] + 1, &set, NULL, NULL, &time), 1);
	CHECK(!FD_ISSET(first[0], &set) && FD_ISSET(second[0], &set));
	CHECK_EQ(poll(NULL, 0, 5), 0);
	CHECK_FAILS(poll(wishes, 1 << 20, 0), EINVAL);
	close(first[0]);
	close(first[1]);
	close(second[0]);
	close(second[1]);
}

static void descriptors(void)
{
	int ends[2];
	NEED(pipe2(ends, O_CLOEXEC) == 0);
	CHECK_EQ(fcntl(ends[0], F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(ends[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	CHECK_EQ(fcntl(ends[1], F_GETFL) & O_ACCMODE, O_WRONLY);
	int copy = dup(ends[1]);
	CHECK(copy > ends[1]);
	CHECK_EQ(fcntl(copy, F_GETFD), 0);
	CHECK_EQ(dup2(ends[1], 50), 50);
	CHECK_EQ(dup2(50, 50), 50);
	CHECK_EQ(fcntl(ends[1], F_DUPFD, 60), 60);
	CHECK_EQ(fcntl(ends[1], F_DUPFD_CLOEXEC, 60), 61);
	CHECK_EQ(fcntl(61, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(dup3(ends[1], 62, O_CLOEXEC), 62);
	CHECK_FAILS(dup3(ends[1], ends[1], 0), EINVAL);
	CHECK_FAILS(dup2(63, 64), EBADF);
	CHECK_FAILS(dup2(ends[1], -1), EBADF);
	/* Duplicates of a descriptor share the file status flags. */
	CHECK_EQ(fcntl(copy, F_SETFL, O_NONBLOCK), 0);
	CHECK(fcntl(ends[1], F_GETFL) & O_NONBLOCK);
	CHECK_FAILS(fcntl(ends[1], 9999, 0), EINVAL);
	close(copy);
	close(ends[1]);
	for (int file = 50; file < 63; file++)
		close(file);
	char byte;
	CHECK_EQ(read(ends[0], &byte, 1), 0);
	close(ends[0]);

	/* New descriptors get the lowest free numbers. */
	int lowest = dup(0);
	close(lowest);
	NEED(pipe(ends) == 0);
	CHECK_EQ(ends[0], lowest);
	CHECK_EQ(ends[1], lowest + 1);
	struct iovec parts[3] = { { "on", 2 }, { "", 0 }, { "e", 1 } };
	CHECK_EQ(writev(ends[1], parts, 3), 3);
	char head[2], tail[4];
	struct iovec into[2] = { { head, 2 }, { tail, 4 } };
	CHECK_EQ(readv(ends[0], into, 2), 3);
	CHECK(head[0] == 'o' && head[1] == 'n' && tail[0] == 'e');
	CHECK_FAILS(writev(ends[1], parts, -1), EINVAL);
	CHECK_FAILS(writev(ends[1], parts, 1025), EINVAL);
	close(ends[0]);
	close(ends[1]);

	/* Checks the limit of open files. */
	struct rlimit limit, few;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	few = limit;
	few.rlim_cur = (rlim_t)lowest + 1;
	NEED(setrlimit(RLIMIT_NOFILE, &few) == 0);
	CHECK_FAILS(pipe(ends), EMFILE);
	CHECK_EQ(dup(0), lowest);
	CHECK_FAILS(dup(0), EMFILE);
	close(lowest);
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

int main(void)
{
	capacity();
	ends_close();
	stream();
	opened_again();
	whole_writes();
	waiting();
	descriptors();
	return checked("pipes");
}
