/* Do splice and tee move data between pipes and files as on Linux, and fail with the same errors?
 *
 * Covers pipes, files, sockets and devices; offsets; too little data and too little space; closed ends; and threads
 * that wait. The errors are those of Linux 7.3.
 */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define HERE SPLICE_F_NONBLOCK
#define FULL 65536

static char large[200000], seen[300000];
static volatile sig_atomic_t handled;

static void handle(int number)
{
	(void)number;
	handled++;
}

/* The functions of the C library take `off64_t`, and not every C library has them. */
static long splice_at(int from, long *from_offset, int to, long *to_offset, size_t length, unsigned flags)
{
	return syscall(SYS_splice, from, from_offset, to, to_offset, length, flags);
}

static long move(int from, int to, size_t length, unsigned flags)
{
	return splice_at(from, NULL, to, NULL, length, flags);
}

static long copy(int from, int to, size_t length, unsigned flags)
{
	return syscall(SYS_tee, from, to, length, flags);
}

static int waiting(int pipe_end)
{
	int count = -1;
	ioctl(pipe_end, FIONREAD, &count);
	return count;
}

/* Reads a pipe until it is empty. Returns the number of bytes. */
static int drain(int pipe_end)
{
	int done = 0, count;
	NEED(fcntl(pipe_end, F_SETFL, O_NONBLOCK) == 0);
	while ((count = read(pipe_end, seen + done, sizeof seen - done)) > 0)
		done += count;
	NEED(fcntl(pipe_end, F_SETFL, 0) == 0);
	return done;
}

static int filled_file(void)
{
	int file = scratch_file(0);
	NEED(file >= 0 && write(file, large, sizeof large) == (ssize_t)sizeof large);
	NEED(lseek(file, 0, SEEK_SET) == 0);
	return file;
}

static void refusals(void)
{
	int one[2], other[2], file = filled_file(), target = scratch_file(0);
	long offset = 0, negative = -1;
	NEED(pipe(one) == 0 && pipe(other) == 0);
	CHECK_EQ(splice_at(-1, NULL, -1, NULL, 0, 0xff), 0);
	CHECK_FAILS(move(file, one[1], 1, 0x10), EINVAL);
	CHECK_FAILS(move(-1, one[1], 1, 0), EBADF);
	CHECK_FAILS(move(file, -1, 1, 0), EBADF);
	CHECK_FAILS(move(file, target, 1, 0), EINVAL);
	CHECK_FAILS(move(one[0], one[1], 1, 0), EINVAL);
	CHECK_FAILS(splice_at(one[0], &offset, target, NULL, 1, 0), ESPIPE);
	CHECK_FAILS(splice_at(file, NULL, one[1], &offset, 1, 0), ESPIPE);
	CHECK_FAILS(move(one[1], target, 1, 0), EBADF);
	CHECK_FAILS(move(file, one[0], 1, 0), EBADF);
	CHECK_FAILS(splice_at(file, (long *)8, one[1], NULL, 1, 0), EFAULT);
	CHECK_FAILS(splice_at(file, &negative, one[1], NULL, 1, 0), EINVAL);
	CHECK_FAILS(move(file, one[1], -1UL, 0), EINVAL);
	offset = 5;
	CHECK_FAILS(splice_at(file, &offset, one[1], NULL, (1UL << 63) - 3, 0), EINVAL);
	CHECK_FAILS(move(one[0], target, 10, HERE), EAGAIN);
	CHECK_EQ(copy(-1, -1, 0, 0), 0);
	CHECK_FAILS(copy(-1, -1, 0, 99), EINVAL);
	CHECK_FAILS(copy(one[0], other[1], 5, HERE), EAGAIN);
	CHECK_FAILS(copy(one[0], one[1], 1, 0), EINVAL);
	CHECK_FAILS(copy(file, one[1], 1, 0), EINVAL);
	CHECK_FAILS(copy(one[0], target, 1, 0), EINVAL);
	CHECK_FAILS(copy(one[1], other[1], 1, 0), EBADF);
	CHECK_FAILS(copy(-1, one[1], 1, 0), EBADF);
	NEED(write(one[1], "abc", 3) == 3);
	NEED(fcntl(target, F_SETFL, O_APPEND) == 0);
	CHECK_FAILS(move(one[0], target, 3, 0), EINVAL);
	CHECK_EQ(drain(one[0]), 3);
	close(file);
	close(target);
	for (int end = 0; end < 2; end++) {
		close(one[end]);
		close(other[end]);
	}
}

static void files(void)
{
	int one[2], other[2], file = filled_file(), target = scratch_file(0);
	NEED(pipe(one) == 0 && pipe(other) == 0);
	CHECK_EQ(move(file, one[1], 1000, 0), 1000);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 1000);
	CHECK_EQ(move(one[0], target, 300, 0), 300);
	CHECK_EQ(lseek(target, 0, SEEK_CUR), 300);
	long offset = 100;
	CHECK_EQ(splice_at(one[0], NULL, target, &offset, 5000, 0), 700);
	CHECK_EQ(offset, 800);
	CHECK_EQ(lseek(target, 0, SEEK_CUR), 300);
	CHECK(pread(target, seen, 900, 0) == 800 && memcmp(seen, large, 100) == 0);
	CHECK(memcmp(seen + 100, large + 300, 700) == 0);
	offset = 777;
	CHECK_EQ(splice_at(file, &offset, one[1], NULL, 5000, 0), 5000);
	CHECK_EQ(offset, 5777);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 1000);
	CHECK(drain(one[0]) == 5000 && memcmp(seen, large + 777, 5000) == 0);
	/* A splice moves at most as much as fits in the pipe. */
	NEED(lseek(file, 0, SEEK_SET) == 0);
	CHECK_EQ(move(file, one[1], sizeof large, 0), FULL);
	CHECK_FAILS(move(file, one[1], 1, HERE), EAGAIN);
	CHECK_EQ(move(one[0], other[1], 8192, 0), 8192);
	CHECK_EQ(copy(one[0], other[1], 4096, 0), 4096);
	CHECK_EQ(waiting(one[0]), FULL - 8192);
	CHECK(drain(other[0]) == 12288 && memcmp(seen, large, 12288) == 0);
	CHECK(drain(one[0]) == FULL - 8192 && memcmp(seen, large + 8192, FULL - 8192) == 0);
	NEED(lseek(file, 0, SEEK_END) > 0);
	CHECK_EQ(move(file, one[1], 10, 0), 0);
	offset = 1L << 40;
	CHECK_EQ(splice_at(file, &offset, one[1], NULL, 10, 0), 0);
	/* tee leaves the data in its source. */
	NEED(write(one[1], "hello world", 11) == 11);
	CHECK_EQ(copy(one[0], other[1], 5, 0), 5);
	CHECK(drain(other[0]) == 5 && memcmp(seen, "hello", 5) == 0);
	CHECK_EQ(copy(one[0], other[1], 100, 0), 11);
	CHECK(drain(other[0]) == 11 && memcmp(seen, "hello world", 11) == 0);
	CHECK(drain(one[0]) == 11 && memcmp(seen, "hello world", 11) == 0);
	/* A file is copied through two pipes. */
	NEED(lseek(file, 0, SEEK_SET) == 0 && lseek(target, 0, SEEK_SET) == 0 && ftruncate(target, 0) == 0);
	long got, step, part;
	while ((got = move(file, one[1], 30000, 0)) > 0)
		for (; got > 0 && (step = move(one[0], other[1], got, 0)) > 0; got -= step)
			for (long left = step; left > 0 && (part = move(other[0], target, left, 0)) > 0; left -= part)
				;
	CHECK_EQ(pread(target, seen, sizeof seen, 0), sizeof large);
	CHECK(memcmp(seen, large, sizeof large) == 0);
	/* A splice to a file stops at RLIMIT_FSIZE. */
	struct rlimit old, limit;
	NEED(getrlimit(RLIMIT_FSIZE, &old) == 0 && ftruncate(target, 0) == 0);
	limit = old;
	limit.rlim_cur = 100;
	NEED(write(one[1], large, 500) == 500);
	offset = 50;
	handled = 0;
	fflush(stdout);
	NEED(setrlimit(RLIMIT_FSIZE, &limit) == 0);
	long first = splice_at(one[0], NULL, target, &offset, 500, 0);
	long second = splice_at(one[0], NULL, target, &offset, 500, 0);
	int error = errno;
	NEED(setrlimit(RLIMIT_FSIZE, &old) == 0);
	CHECK_EQ(first, 50);
	CHECK_EQ(second, -1);
	CHECK_EQ(error, EFBIG);
	CHECK_EQ(handled, 2);
	CHECK_EQ(drain(one[0]), 450);
	close(file);
	close(target);
	for (int end = 0; end < 2; end++) {
		close(one[end]);
		close(other[end]);
	}
}

static void closed_ends(void)
{
	int one[2], gone[2], file = filled_file();
	NEED(pipe(one) == 0 && pipe(gone) == 0);
	close(gone[0]);
	handled = 0;
	CHECK_FAILS(move(file, gone[1], 1, 0), EPIPE);
	NEED(write(one[1], "x", 1) == 1);
	CHECK_FAILS(move(one[0], gone[1], 1, 0), EPIPE);
	CHECK_FAILS(copy(one[0], gone[1], 1, 0), EPIPE);
	CHECK_EQ(handled, 3);
	CHECK_EQ(drain(one[0]), 1);
	close(gone[1]);
	NEED(pipe(gone) == 0);
	close(gone[1]);
	CHECK_EQ(move(gone[0], file, 1, 0), 0);
	CHECK_EQ(move(gone[0], one[1], 1, 0), 0);
	CHECK_EQ(copy(gone[0], one[1], 1, 0), 0);
	close(gone[0]);
	close(one[0]);
	close(one[1]);
	close(file);
}

/* Checks from which kinds of files data can be moved, and to which. */
static void kinds(void)
{
	static const struct {
		const char *name;
		int flags, error;
	} rows[] = {
		{ "/dev/null", O_RDONLY, EINVAL },
		{ "/dev/zero", O_RDONLY, 0 },
		{ "/dev/full", O_RDONLY, 0 },
		{ "/dev/urandom", O_RDONLY, 0 },
		{ "/proc/meminfo", O_RDONLY, 0 },
		{ "/proc/stat", O_RDONLY, 0 },
		{ "/proc/swaps", O_RDONLY, EINVAL },
		{ "/proc/self/maps", O_RDONLY, EINVAL },
		{ "/proc/self/status", O_RDONLY, EINVAL },
		{ "/proc/self/mounts", O_RDONLY, 0 },
		{ "/proc/self/mem", O_RDONLY, EINVAL },
		{ "/proc/self/pagemap", O_RDONLY, EINVAL },
		{ "/proc", O_RDONLY, EINVAL },
		{ "/tmp", O_RDONLY, EINVAL },
		{ "/dev/null", O_WRONLY, 0 },
		{ "/dev/zero", O_WRONLY, 0 },
		{ "/dev/full", O_WRONLY, EINVAL },
	};
	int one[2], plain = filled_file();
	for (unsigned row = 0; row < sizeof rows / sizeof *rows; row++) {
		int file = open(rows[row].name, rows[row].flags), reads = rows[row].flags == O_RDONLY;
		NEED(file >= 0 && pipe(one) == 0);
		NEED(reads || write(one[1], "12345", 5) == 5);
		for (int call = 0; call < 2; call++) {
			off_t offset = 0;
			errno = 0;
			long got = call ? (reads ? sendfile(one[1], file, &offset, 5) : sendfile(file, plain, &offset, 5)) :
				   reads ? move(file, one[1], 5, HERE) :
					   move(one[0], file, 5, HERE);
			if (!CHECK_EQ(rows[row].error ? got == -1 && errno == rows[row].error : got == 5, 1))
				printf("%s %d: %ld, errno %d\n", rows[row].name, call, got, errno);
		}
		close(file);
		close(one[0]);
		close(one[1]);
	}
	NEED(pipe(one) == 0 && write(one[1], "12345678", 8) == 8);
	int number = eventfd(3, EFD_NONBLOCK), watcher = epoll_create1(0);
	CHECK_FAILS(move(number, one[1], 8, 0), EINVAL);
	CHECK_FAILS(move(one[0], number, 8, 0), EINVAL);
	CHECK_FAILS(move(watcher, one[1], 8, 0), EINVAL);
	CHECK_EQ(waiting(one[0]), 8);
	close(number);
	close(watcher);
	close(plain);
	close(one[0]);
	close(one[1]);
}

static void sockets(void)
{
	int one[2], ends[2];
	long offset = 0;
	NEED(pipe(one) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	NEED(write(ends[0], "stream data", 11) == 11);
	CHECK_EQ(move(ends[1], one[1], 6, 0), 6);
	CHECK_EQ(move(ends[1], one[1], 600, 0), 5);
	CHECK_FAILS(move(ends[1], one[1], 6, HERE), EAGAIN);
	CHECK_EQ(move(one[0], ends[1], 100, 0), 11);
	CHECK(read(ends[0], seen, 100) == 11 && memcmp(seen, "stream data", 11) == 0);
	CHECK_FAILS(splice_at(ends[1], &offset, one[1], NULL, 6, 0), EINVAL);
	CHECK_FAILS(splice_at(one[0], NULL, ends[1], &offset, 6, 0), EINVAL);
	close(ends[0]);
	CHECK_EQ(move(ends[1], one[1], 6, 0), 0);
	NEED(write(one[1], "zz", 2) == 2);
	CHECK_FAILS(move(one[0], ends[1], 6, 0), EPIPE);
	CHECK_EQ(drain(one[0]), 2);
	close(ends[1]);
	/* A datagram is read once, and the part that does not fit is discarded. */
	NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
	NEED(write(ends[0], large, 9000) == 9000 && write(ends[0], "two", 3) == 3);
	CHECK_EQ(move(ends[1], one[1], 60000, 0), 9000);
	CHECK_EQ(move(ends[1], one[1], 2, 0), 2);
	NEED(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
	CHECK_FAILS(move(ends[1], one[1], 2, 0), EAGAIN);
	CHECK(drain(one[0]) == 9002 && memcmp(seen, large, 9000) == 0);
	NEED(write(one[1], large, 10000) == 10000);
	CHECK_EQ(move(one[0], ends[0], 10000, 0), 10000);
	CHECK(recv(ends[1], seen, sizeof seen, 0) == 10000 && memcmp(seen, large, 10000) == 0);
	close(ends[0]);
	close(ends[1]);
	close(one[0]);
	close(one[1]);
}

static void waits(void)
{
	int one[2], other[2], ends[2], file = filled_file(), target = scratch_file(0);
	NEED(pipe(one) == 0 && pipe(other) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(20000);
		CHECK_EQ(write(one[1], "late", 4), 4);
		end_child();
	}
	CHECK_EQ(move(one[0], target, 10, 0), 4);
	CHECK(exited(wait_for(child), 0));
	NEED(move(file, one[1], FULL, 0) == FULL);
	child = fork_checked();
	if (child == 0) {
		usleep(20000);
		CHECK_EQ(read(one[0], seen, 5000), 5000);
		end_child();
	}
	CHECK(move(file, one[1], 4000, 0) > 0);
	CHECK(exited(wait_for(child), 0));
	drain(one[0]);
	/* A signal interrupts a call that waits. */
	for (int call = 0; call < 3; call++) {
		handled = 0;
		ualarm(20000, 0);
		if (call == 0)
			CHECK_FAILS(move(one[0], target, 10, 0), EINTR);
		else if (call == 1)
			CHECK_FAILS(copy(one[0], other[1], 10, 0), EINTR);
		else
			CHECK_FAILS(move(ends[0], one[1], 10, 0), EINTR);
		CHECK_EQ(handled, 1);
	}
	NEED(fcntl(one[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
	CHECK_FAILS(move(one[0], target, 10, 0), EAGAIN);
	CHECK_FAILS(move(one[0], other[1], 10, 0), EAGAIN);
	CHECK_FAILS(copy(one[0], other[1], 10, 0), EAGAIN);
	CHECK_FAILS(move(ends[0], one[1], 10, 0), EAGAIN);
	close(file);
	close(target);
	for (int end = 0; end < 2; end++) {
		close(one[end]);
		close(other[end]);
		close(ends[end]);
	}
}

int main(void)
{
	for (unsigned place = 0; place < sizeof large; place++)
		large[place] = (char)(place * 31 + place / 777);
	struct sigaction action = { .sa_handler = handle };
	sigaction(SIGPIPE, &action, NULL);
	sigaction(SIGXFSZ, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	refusals();
	files();
	closed_ends();
	kinds();
	sockets();
	waits();
	return checked("splice");
}
