/* Do system calls that access registered memory wait for the handler, or fail, as documented?
 *
 * Copies to and from a program's memory wait for the handler, whichever process makes them, and so do calls
 * that only look up pages. If the userfaultfd excludes faults of the kernel (UFFD_USER_MODE_ONLY) or uses
 * signals (UFFD_FEATURE_SIGBUS), the calls fail with EFAULT, and nothing is filled. An access by a debugger
 * never waits, and neither does a thread that exits.
 */
#include "userfault.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/uio.h>

#define PAGES 4
#define STACK 65536

enum { USER_MODE_ONLY = 1 };

static char *room;
static int ends[2];

static char *memory(int pages)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	return memory;
}

/* Each of the functions below returns the number of bytes that it transferred, or -1 with errno set. */
static long receives(char *at)
{
	if (write(ends[1], "data", 4) != 4)
		return -2;
	long moved = read(ends[0], at, 4);
	char rest[4];
	int error = errno;
	if (moved < 0 && read(ends[0], rest, 4) != 4)
		return -2;
	errno = error;
	return moved;
}

static long sends(char *at)
{
	char rest[4];
	long moved = write(ends[1], at, 4);
	return moved == 4 ? read(ends[0], rest, 4) : moved;
}

static long asks(char *at)
{
	return syscall(SYS_clock_getres, 0, at) == 0 ? 4 : -1;
}

static long names(char *at)
{
	errno = 0;
	/* The memory contains an empty path, so open fails with ENOENT after it has read it. */
	return open(at, O_RDONLY) < 0 && errno == ENOENT ? 4 : -1;
}

static long writes_to(char *at)
{
	char bytes[4] = "data";
	struct iovec own = { bytes, 4 }, other = { at, 4 };
	return process_vm_writev(getpid(), &own, 1, &other, 1, 0);
}

static long reads_from(char *at)
{
	char bytes[4];
	struct iovec own = { bytes, 4 }, other = { at, 4 };
	return process_vm_readv(getpid(), &own, 1, &other, 1, 0);
}

static long lends(char *at)
{
	char rest[4];
	struct iovec piece = { at, 4 };
	long moved = vmsplice(ends[1], &piece, 1, 0);
	return moved == 4 ? read(ends[0], rest, 4) : moved;
}

/* A call, whether it writes to the memory, and the fault that the handler receives for it. */
static const struct {
	long (*call)(char *);
	int stores;
} calls[] = {
	{ receives, 1 }, { sends, 0 }, { asks, 1 }, { names, 0 }, { writes_to, 1 }, { reads_from, 0 }, { lends, 0 },
};
enum { CALLS = sizeof calls / sizeof *calls };

/* A thread that fills and unprotects pages until it is told to stop, and counts the faults. */
struct resolver {
	int fd, stop[2];
	pthread_t thread;
	_Atomic int missing, stores, writes, failed;
};

static void *resolve(void *argument)
{
	struct resolver *resolver = argument;
	for (;;) {
		struct pollfd ready[2] = { { resolver->fd, POLLIN, 0 }, { resolver->stop[0], POLLIN, 0 } };
		struct message message;
		if (poll(ready, 2, -1) < 0 || ready[1].revents)
			return NULL;
		if (read(resolver->fd, &message, sizeof message) != sizeof message)
			continue;
		char *page = (char *)(uintptr_t)(message.address & ~(PAGE - 1));
		int result;
		resolver->stores += message.flags & FAULT_WRITE;
		if (message.flags & FAULT_WP) {
			resolver->writes++;
			result = protect(resolver->fd, page, 1, 0);
		} else {
			resolver->missing++;
			result = fill(resolver->fd, UFFDIO_ZEROPAGE, page, 1, 0);
		}
		resolver->failed += result != 0;
	}
}

static void start(struct resolver *resolver, int fd)
{
	memset(resolver, 0, sizeof *resolver);
	resolver->fd = fd;
	NEED(pipe(resolver->stop) == 0);
	NEED(pthread_create(&resolver->thread, NULL, resolve, resolver) == 0);
}

static void stop(struct resolver *resolver)
{
	NEED(write(resolver->stop[1], "", 1) == 1);
	pthread_join(resolver->thread, NULL);
	CHECK_EQ(resolver->failed, 0);
	close(resolver->stop[0]);
	close(resolver->stop[1]);
}

/* Every call waits for a missing page, and a call that writes to the memory also waits for a protected one. */
static void calls_wait(int fd)
{
	struct resolver resolver;
	CHECK_EQ(watch(fd, room, PAGES, MISSING | WP), 0);
	for (int i = 0; i < CALLS; i++) {
		CHECK_EQ(madvise(room, PAGE, MADV_DONTNEED), 0);
		start(&resolver, fd);
		CHECK_EQ(calls[i].call(room), 4);
		stop(&resolver);
		CHECK_EQ(resolver.missing, 1);
		CHECK_EQ(resolver.writes, 0);
		CHECK_EQ(resolver.stores, calls[i].stores);
		room[0] = 0;
		CHECK_EQ(protect(fd, room, 1, 1), 0);
		start(&resolver, fd);
		CHECK_EQ(calls[i].call(room), 4);
		stop(&resolver);
		CHECK_EQ(resolver.missing, 0);
		CHECK_EQ(resolver.writes, calls[i].stores);
		CHECK_EQ(protect(fd, room, 1, 0), 0);
	}
	/* Only the second of the two pages is missing, and everything is copied. */
	madvise(room + PAGE, PAGE, MADV_DONTNEED);
	start(&resolver, fd);
	CHECK_EQ(writes_to(room + PAGE - 2), 4);
	CHECK_EQ(memcmp(room + PAGE - 2, "data", 4), 0);
	stop(&resolver);
	CHECK_EQ(resolver.missing, 1);
}

/* Every call on memory that is not populated fails, and no page is filled. */
static void calls_fail(int fd)
{
	struct message message;
	unsigned char resident = 0;
	CHECK_EQ(watch(fd, room, PAGES, MISSING | WP), 0);
	for (int i = 0; i < CALLS; i++) {
		CHECK_EQ(madvise(room, PAGE, MADV_DONTNEED), 0);
		CHECK_FAILS(calls[i].call(room), EFAULT);
		CHECK_FAILS(read(fd, &message, sizeof message), EAGAIN);
		CHECK(mincore(room, PAGE, &resident) == 0 && !(resident & 1));
	}
	CHECK_EQ(fill(fd, UFFDIO_ZEROPAGE, room, 1, 0), 0);
	CHECK_EQ(protect(fd, room, 1, 1), 0);
	CHECK_FAILS(receives(room), EFAULT);
	CHECK_EQ(sends(room), 4);
	CHECK_EQ(protect(fd, room, 1, 0), 0);
}

/* Accesses by the program itself are still reported. */
static void program_waits(int fd)
{
	struct resolver resolver;
	madvise(room, PAGE, MADV_DONTNEED);
	start(&resolver, fd);
	room[0] = 1;
	stop(&resolver);
	CHECK_EQ(resolver.missing, 1);
}

/* An access by a debugger fails if it would need the handler. */
static void debugger(int fd)
{
	char byte = 7;
	struct message message;
	int self = open("/proc/self/mem", O_RDWR);
	NEED(self >= 0);
	madvise(room, PAGE, MADV_DONTNEED);
	CHECK_FAILS(pread(self, &byte, 1, (off_t)(uintptr_t)room), EIO);
	CHECK_FAILS(pwrite(self, &byte, 1, (off_t)(uintptr_t)room), EIO);
	CHECK_FAILS(read(fd, &message, sizeof message), EAGAIN);
	close(self);
}

static int nothing(void *argument)
{
	syscall(SYS_exit, 0);
	return argument != NULL;
}

static struct {
	void *next;
	long distance;
	void *pending;
} robust;

static void *owner(void *argument)
{
	robust.next = argument;
	CHECK_EQ(syscall(SYS_set_robust_list, &robust, sizeof robust), 0);
	return NULL;
}

/* A thread that exits never waits. The words that it would clear, and its robust list, are left unchanged. */
static void endings(int fd)
{
	struct resolver resolver;
	pthread_t thread;
	char *stack = memory(STACK / PAGE);
	madvise(room, PAGES * PAGE, MADV_DONTNEED);
	start(&resolver, fd);
	pid_t child = clone(nothing, stack + STACK, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, NULL, NULL, NULL, room);
	NEED(child > 0);
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(exited(status, 0));
	NEED(pthread_create(&thread, NULL, owner, room + PAGE) == 0);
	pthread_join(thread, NULL);
	stop(&resolver);
	CHECK_EQ(resolver.missing, 0);
	munmap(stack, STACK);
}

int main(void)
{
	int fd = watcher(UNPOPULATED);
	if (fd < 0)
		return checked("userfault_calls");
	NEED(pipe(ends) == 0);
	room = memory(PAGES);
	CHECK_EQ(lseek(fd, 5, SEEK_SET), 0);
	calls_wait(fd);
	debugger(fd);
	endings(fd);
	close(fd);

	fd = watcher(SIGBUS_FEATURE | UNPOPULATED);
	NEED(fd >= 0);
	calls_fail(fd);
	close(fd);

	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY);
	struct api api = { 0xAA, UNPOPULATED, 0 };
	NEED(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
	calls_fail(fd);
	program_waits(fd);
	close(fd);
	close(ends[0]);
	close(ends[1]);
	munmap(room, PAGES * PAGE);
	return checked("userfault_calls");
}
