/* Are the limits of /proc/sys/fs enforced: those of open files, of a user's epoll watches, and of pages in a user's
 * pipes?
 *
 * Limits from which root is exempt are checked as another user. All settings are restored at the end. While the
 * program runs, no other process can open files, so it must be the only one on the machine.
 */
#include "check.h"
#include <sys/epoll.h>

#ifndef F_SETPIPE_SZ
#define F_SETPIPE_SZ 1031
#define F_GETPIPE_SZ 1032
#endif
#define FILES "/proc/sys/fs/file-max"
#define WATCHES "/proc/sys/fs/epoll/max_user_watches"
#define SOFT "/proc/sys/fs/pipe-user-pages-soft"
#define HARD "/proc/sys/fs/pipe-user-pages-hard"
#define LARGEST "/proc/sys/fs/pipe-max-size"

static long get(const char *path)
{
	char text[64] = "";
	int file = open(path, O_RDONLY);
	NEED(file >= 0 && read(file, text, sizeof text - 1) > 0);
	close(file);
	return strtol(text, NULL, 10);
}

static int set(const char *path, long value)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%ld\n", value), file = open(path, O_WRONLY);
	NEED(file >= 0);
	int written = (int)write(file, text, (size_t)length);
	int error = errno;
	close(file);
	errno = error;
	return written == length ? 0 : -1;
}

static void become(unsigned user)
{
	NEED(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0);
}

static long open_files(void)
{
	return get("/proc/sys/fs/file-nr");
}

static void no_file(void *unused)
{
	(void)unused;
	int ends[2];
	become(1000);
	CHECK_FAILS(open("/", O_RDONLY), ENFILE);
	CHECK_FAILS(open("/", O_PATH), ENFILE);
	/* The limit is checked before the path is looked up. */
	CHECK_FAILS(open("/no/such/file", O_RDONLY), ENFILE);
	CHECK_FAILS(pipe(ends), ENFILE);
	CHECK_FAILS(epoll_create1(0), ENFILE);
	CHECK_FAILS(memfd_create("one too many", 0), ENFILE);
	/* The limit counts open files, so a duplicate descriptor of an open file does not count. */
	int again = dup(0);
	CHECK(again >= 0);
	close(again);
}

static void files(void)
{
	long limit = get(FILES), before = open_files();
	CHECK(before > 0 && limit >= 8192);
	int file = open("/", O_RDONLY);
	CHECK(open_files() >= before + 1);
	/* Linux's count is inexact by some dozens of files per CPU. */
	NEED(set(FILES, 0) == 0);
	/* The limit does not apply to root. */
	int more = open("/", O_RDONLY);
	CHECK(more >= 0);
	CHECK(exited(in_child(no_file, NULL), 0));
	NEED(set(FILES, limit) == 0);
	close(file), close(more);
	CHECK_EQ(get(FILES), limit);
}

static int watch(int epoll, int file)
{
	struct epoll_event event = { .events = EPOLLIN };
	return epoll_ctl(epoll, EPOLL_CTL_ADD, file, &event);
}

static void watches_as(unsigned user)
{
	int one = epoll_create1(0), two = epoll_create1(0), ends[2], others[2];
	NEED(one >= 0 && two >= 0 && pipe(ends) == 0 && pipe(others) == 0);
	if (user)
		become(user);
	CHECK_EQ(watch(one, ends[0]), 0);
	CHECK_EQ(watch(two, ends[0]), 0);
	CHECK_EQ(watch(two, ends[1]), 0);
	CHECK_FAILS(watch(two, others[0]), ENOSPC);
	CHECK_FAILS(watch(two, ends[0]), EEXIST);
	/* Modifying a watch does not increase the count. */
	struct epoll_event event = { .events = EPOLLOUT };
	CHECK_EQ(epoll_ctl(two, EPOLL_CTL_MOD, ends[1], &event), 0);
	CHECK_FAILS(watch(one, others[0]), ENOSPC);
	CHECK_EQ(epoll_ctl(two, EPOLL_CTL_DEL, ends[1], NULL), 0);
	CHECK_EQ(watch(one, others[0]), 0);
	CHECK_FAILS(watch(one, others[1]), ENOSPC);
	/* A closed file is removed from epolls, and a closed epoll has no watches. */
	close(others[0]);
	CHECK_EQ(watch(one, others[1]), 0);
	CHECK_FAILS(watch(one, ends[1]), ENOSPC);
	close(two);
	CHECK_EQ(watch(one, ends[1]), 0);
	close(one);
}

static void watches_of_root(void *unused)
{
	(void)unused;
	watches_as(0);
}

static void watches_of_another(void *unused)
{
	(void)unused;
	become(1001);
	watches_as(0);
}

/* The watches of an epoll are charged to the user that created it. */
static void watches_of_the_maker(void *unused)
{
	(void)unused;
	watches_as(1002);
}

static void watches(void)
{
	long limit = get(WATCHES);
	CHECK(limit > 1000);
	NEED(set(WATCHES, 3) == 0);
	CHECK(exited(in_child(watches_of_root, NULL), 0));
	CHECK(exited(in_child(watches_of_another, NULL), 0));
	CHECK(exited(in_child(watches_of_the_maker, NULL), 0));
	CHECK_FAILS(set(WATCHES, -1), EINVAL);
	NEED(set(WATCHES, limit) == 0);
}

static char fifo[] = "/limits-XXXXXX";

static int size_of_new(int *end)
{
	int ends[2];
	*end = -1;
	if (pipe(ends) != 0)
		return -1;
	int size = fcntl(ends[0], F_GETPIPE_SZ);
	close(ends[1]);
	*end = ends[0];
	return size;
}

static void small_pipes(void *unused)
{
	(void)unused;
	int ends[4];
	become(1003);
	CHECK_EQ(size_of_new(&ends[0]), 65536);
	CHECK_EQ(size_of_new(&ends[1]), 65536);
	/* 32 of 40 pages are in use. */
	CHECK_EQ(size_of_new(&ends[2]), 8192);
	CHECK_FAILS(fcntl(ends[2], F_SETPIPE_SZ, 65536), EPERM);
	CHECK_EQ(fcntl(ends[2], F_GETPIPE_SZ), 8192);
	CHECK_EQ(fcntl(ends[2], F_SETPIPE_SZ, 16384), 16384);
	CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, 4096), 4096);
	CHECK_EQ(fcntl(ends[2], F_SETPIPE_SZ, 65536), 65536);
	close(ends[1]);
	CHECK_EQ(size_of_new(&ends[3]), 65536);
	CHECK_FAILS(fcntl(ends[3], F_SETPIPE_SZ, 1 << 20), EPERM);
	close(ends[3]);
	/* A named pipe has a buffer while it is open. */
	int named = open(fifo, O_RDWR);
	CHECK_EQ(fcntl(named, F_GETPIPE_SZ), 65536);
	int fifth = -1;
	CHECK_EQ(size_of_new(&fifth), 8192);
	close(fifth), close(named);
	CHECK_EQ(size_of_new(&fifth), 65536);
	close(fifth);
	named = open(fifo, O_RDWR);
	CHECK_EQ(fcntl(named, F_SETPIPE_SZ, 4096), 4096);
	CHECK_EQ(write(named, "abc", 3), 3);
	close(named);
	named = open(fifo, O_RDWR | O_NONBLOCK);
	CHECK_EQ(fcntl(named, F_GETPIPE_SZ), 65536);
	CHECK_FAILS(read(named, &named, 1), EAGAIN);
	close(named);
}

static void no_pipe(void *unused)
{
	(void)unused;
	int ends[3];
	become(1004);
	CHECK_EQ(size_of_new(&ends[0]), 65536);
	CHECK_EQ(size_of_new(&ends[1]), 65536);
	CHECK_EQ(size_of_new(&ends[2]), -1);
	CHECK_EQ(errno, ENFILE);
	CHECK_FAILS(fcntl(ends[1], F_SETPIPE_SZ, 1 << 18), EPERM);
	CHECK_EQ(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
	CHECK_EQ(size_of_new(&ends[2]), 65536);
}

static void small_largest(void *unused)
{
	(void)unused;
	int end;
	become(1005);
	CHECK_EQ(size_of_new(&end), 16384);
	CHECK_FAILS(fcntl(end, F_SETPIPE_SZ, 16385), EPERM);
	CHECK_EQ(fcntl(end, F_SETPIPE_SZ, 4096), 4096);
	CHECK_EQ(fcntl(end, F_SETPIPE_SZ, 16384), 16384);
}

static void pipes(void)
{
	long soft = get(SOFT), hard = get(HARD), largest = get(LARGEST);
	CHECK_EQ(soft, 16384);
	CHECK_EQ(hard, 0);
	CHECK_EQ(largest, 1 << 20);
	NEED(set(SOFT, 40) == 0);
	NEED(mkstemp(fifo) >= 0 && unlink(fifo) == 0 && mkfifo(fifo, 0666) == 0 && chmod(fifo, 0666) == 0);
	CHECK(exited(in_child(small_pipes, NULL), 0));
	unlink(fifo);
	/* Root is exempt from the limit. */
	int ends[4];
	for (int i = 0; i < 3; i++)
		CHECK_EQ(size_of_new(&ends[i]), 65536);
	CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, 1 << 21), 1 << 21);
	for (int i = 0; i < 3; i++)
		close(ends[i]);
	NEED(set(SOFT, 0) == 0 && set(HARD, 40) == 0);
	CHECK(exited(in_child(no_pipe, NULL), 0));
	NEED(set(HARD, hard) == 0 && set(SOFT, soft) == 0);
	NEED(set(LARGEST, 16000) == 0);
	CHECK_EQ(get(LARGEST), 16384);
	CHECK(exited(in_child(small_largest, NULL), 0));
	NEED(set(LARGEST, 1) == 0);
	CHECK_EQ(get(LARGEST), 4096);
	NEED(set(LARGEST, largest) == 0);
	CHECK_EQ(get(LARGEST), largest);
}

int main(void)
{
	if (getuid() != 0) {
		printf("system_limits: skipped, for root alone\n");
		return 0;
	}
	files();
	watches();
	pipes();
	return checked("system_limits");
}
