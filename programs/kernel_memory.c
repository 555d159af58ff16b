/* What happens to a program that makes the kernel allocate more memory for it than the machine has?
 *
 * Each attempt continues until a call fails or a number of objects has been created. It runs in a separate
 * process, which may be killed for lack of memory. The machine must then be able to run the next attempt.
 */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

static char payload[60000];

static void raise_limit(void)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Checks that errno reports a lack of resources. */
static void refused(void)
{
	CHECK(errno == ENOMEM || errno == EMFILE || errno == ENFILE || errno == ENOSPC || errno == ENOBUFS ||
	      errno == EAGAIN || errno == ETOOMANYREFS || errno == EPERM);
}

/* Adds up to a million entries, to as many epolls as descriptors are available. */
static void watch(void)
{
	enum { FILES = 1000, MOST = 1000000 };
	struct epoll_event event = { .events = EPOLLIN };
	int files[FILES];
	for (int number = 0; number < FILES; number++)
		NEED((files[number] = eventfd(0, 0)) >= 0);
	for (int made = 0; made < MOST;) {
		int set = epoll_create1(0);
		if (set < 0)
			return refused();
		for (int number = 0; number < FILES; number++, made++)
			if (epoll_ctl(set, EPOLL_CTL_ADD, files[number], &event) != 0)
				return refused();
	}
}

/* Fills sockets with bytes and with open files. */
static void fill_sockets(void)
{
	for (int number = 0; number < 400; number++) {
		int ends[2], room = 1 << 20;
		if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0)
			return refused();
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
		while (send(ends[0], payload, sizeof payload, MSG_DONTWAIT) == (ssize_t)sizeof payload)
			;
		refused();
		if (errno == ENOMEM)
			return;
	}
}

static int send_file(int socket, int file)
{
	char byte = 'x';
	struct iovec part = { &byte, 1 };
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	memset(&control, 0, sizeof control);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &file, sizeof file);
	return sendmsg(socket, &message, MSG_DONTWAIT) == 1 ? 0 : -1;
}

/* Nests full sockets in one another's messages, so that a single descriptor refers to all of them. */
static void fill_nested_sockets(void)
{
	int inner = eventfd(0, 0);
	for (int level = 0; level < 400; level++) {
		int ends[2];
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
			return refused();
		if (send_file(ends[0], inner) != 0)
			return refused();
		while (send(ends[0], payload, sizeof payload, MSG_DONTWAIT) > 0)
			;
		refused();
		if (errno == ENOMEM)
			return;
		close(inner);
		close(ends[0]);
		inner = ends[1];
	}
}

static void fill_pipes(void)
{
	for (int number = 0; number < 100; number++) {
		int ends[2];
		if (pipe2(ends, O_NONBLOCK) != 0)
			return refused();
		fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
		while (write(ends[1], payload, sizeof payload) > 0)
			;
		refused();
		if (errno == ENOMEM)
			return;
	}
}

static void open_files(void)
{
	for (int number = 0; number < 100000; number++) {
		int file = number % 3 == 0 ? timerfd_create(CLOCK_MONOTONIC, 0) :
			   number % 3 == 1 ? eventfd(0, 0) :
					     socket(AF_UNIX, SOCK_STREAM, 0);
		if (file < 0)
			return refused();
	}
}

/* Creates areas up to the kernel's limit. */
static void split_areas(void)
{
	enum { PAGES = 400000 };
	char *memory = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return refused();
	for (long page = 0; page < PAGES; page += 2)
		if (mprotect(memory + page * PAGE, PAGE, PROT_READ) != 0)
			return refused();
	CHECK(0);
}

static void lock_records(void)
{
	int file = scratch_file(1 << 20);
	NEED(file >= 0);
	for (int number = 0; number < 3000; number++) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * number, .l_len = 1 };
		if (fcntl(file, F_SETLK, &lock) != 0)
			return refused();
	}
}

static void names(void)
{
	static char name[200];
	char folder[] = "/tmp/names-XXXXXX";
	int made;
	NEED(mkdtemp(folder) != NULL && chdir(folder) == 0);
	memset(name, 'n', sizeof name - 1);
	for (made = 0; made < 50000; made++) {
		snprintf(name, 8, "%07d", made);
		name[7] = 'n';
		int file = open(name, O_CREAT | O_WRONLY, 0600);
		if (file < 0) {
			refused();
			break;
		}
		close(file);
	}
	while (made-- > 0) {
		snprintf(name, 8, "%07d", made);
		name[7] = 'n';
		CHECK_EQ(unlink(name), 0);
	}
	NEED(chdir("/") == 0);
	CHECK_EQ(rmdir(folder), 0);
}

static void attempt(void *work)
{
	raise_limit();
	(*(void (**)(void))work)();
}

int main(void)
{
	static void (*const attempts[])(void) = { watch,      fill_sockets, fill_nested_sockets, fill_pipes,
						  open_files, split_areas,  lock_records,        names };
	for (size_t number = 0; number < sizeof attempts / sizeof *attempts; number++) {
		void (*work)(void) = attempts[number];
		int status = in_child(attempt, &work);
		CHECK(exited(status, 0) || killed(status, SIGKILL));
		/* The memory that the attempt used is free again. */
		char *memory = anonymous(8 << 20);
		NEED(memory != NULL);
		memset(memory, 1, 8 << 20);
		NEED(munmap(memory, 8 << 20) == 0);
	}
	return checked("kernel_memory");
}
