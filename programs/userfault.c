/* Does a userfaultfd handler receive the faults in a program's memory, and does its resolution take effect?
 *
 * If the kernel has no userfaultfd or lacks the features, nothing is checked.
 */
#include "userfault.h"
#include <poll.h>
#include <pthread.h>

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define PAGES 16

static char *memory(int pages)
{
	char *room = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	return room;
}

/* A thread that resolves faults until it is told to stop, and the numbers of faults that it has resolved. */
struct handler {
	int fd, stop[2];
	pthread_t thread;
	char *source;
	/* A fault is counted before it is resolved, because the faulting thread then continues. */
	_Atomic int missing, writes, minor, others, failed;
	unsigned long last;
	unsigned thread_seen;
};

static void *resolve(void *argument)
{
	struct handler *handler = argument;
	for (;;) {
		struct pollfd ready[2] = { { handler->fd, POLLIN, 0 }, { handler->stop[0], POLLIN, 0 } };
		struct message message;
		if (poll(ready, 2, -1) < 0 || ready[1].revents)
			return NULL;
		if (read(handler->fd, &message, sizeof message) != sizeof message)
			continue;
		char *page = (char *)(uintptr_t)(message.address & ~(PAGE - 1));
		handler->last = message.address;
		handler->thread_seen = message.thread;
		int result = 0;
		if (message.event != 0x12) {
			handler->others++;
		} else if (message.flags & FAULT_WP) {
			handler->writes++;
			result = protect(handler->fd, page, 1, 0);
		} else if (message.flags & FAULT_MINOR) {
			handler->minor++;
			result = fill(handler->fd, UFFDIO_CONTINUE, page, 1, 0);
		} else {
			handler->missing++;
			result = copy(handler->fd, page, handler->source, 1, 0, NULL);
		}
		handler->failed += result != 0;
	}
}

static void start(struct handler *handler, int fd, char *source)
{
	memset(handler, 0, sizeof *handler);
	handler->fd = fd;
	handler->source = source;
	NEED(pipe(handler->stop) == 0);
	NEED(pthread_create(&handler->thread, NULL, resolve, handler) == 0);
}

static void stop(struct handler *handler)
{
	NEED(write(handler->stop[1], "x", 1) == 1);
	pthread_join(handler->thread, NULL);
	CHECK_EQ(handler->failed + handler->others, 0);
	close(handler->stop[0]);
	close(handler->stop[1]);
}

static void handshake(void)
{
	CHECK_FAILS(syscall(SYS_userfaultfd, 0x40000000), EINVAL);
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	NEED(fd >= 0);
	char *room = memory(4);
	struct message message;
	struct pollfd ready = { fd, POLLIN, 0 };
	CHECK_FAILS(watch(fd, room, 4, MISSING), EINVAL);
	CHECK_FAILS(read(fd, &message, sizeof message), EINVAL);
	CHECK_EQ(poll(&ready, 1, 0), 1);
	CHECK_EQ(ready.revents, POLLERR);
	struct api api = { 0xAB, 0, 0 };
	CHECK_FAILS(ioctl(fd, UFFDIO_API, &api), EINVAL);
	CHECK_EQ(api.features | api.ioctls, 0);
	api = (struct api){ 0xAA, 1ULL << 60, 0 };
	CHECK_FAILS(ioctl(fd, UFFDIO_API, &api), EINVAL);
	api = (struct api){ 0xAA, 0, 0 };
	CHECK_EQ(ioctl(fd, UFFDIO_API, &api), 0);
	CHECK(api.features & UNPOPULATED);
	CHECK_EQ(api.ioctls & (1 | 2 | 1ULL << 0x3F), 1 | 2 | 1ULL << 0x3F);
	api = (struct api){ 0xAA, 0, 0 };
	CHECK_FAILS(ioctl(fd, UFFDIO_API, &api), EINVAL);
	CHECK_FAILS(read(fd, &message, sizeof message), EAGAIN);
	CHECK_FAILS(read(fd, &message, sizeof message - 1), EINVAL);
	CHECK_FAILS(ioctl(fd, _IO(0xAA, 0x30), 0), EINVAL);

	CHECK_FAILS(watch(fd, room, 4, 0), EINVAL);
	CHECK_FAILS(watch(fd, room, 4, 8), EINVAL);
	CHECK_FAILS(watch(fd, room, 0, MISSING), EINVAL);
	CHECK_FAILS(watch(fd, room + 1, 4, MISSING), EINVAL);
	CHECK_FAILS(watch(fd, (char *)0xffff800000000000, 4, MISSING), EINVAL);
	CHECK_FAILS(watch(fd, (char *)-PAGE, 4, MISSING), EINVAL);
	CHECK_FAILS(watch(fd, NULL, 4, MISSING), EINVAL);
	CHECK_FAILS(watch(fd, room, 4, MINOR), EINVAL);
	CHECK_FAILS(protect(fd, room, 4, 1), ENOENT);
	CHECK_FAILS(copy(fd, room, room, 1, 0, NULL), ENOENT);
	struct registration registration = { range_of(room, 4), MISSING | WP, 0 };
	CHECK_EQ(ioctl(fd, UFFDIO_REGISTER, &registration), 0);
	CHECK(registration.ioctls & 1 << 3 && registration.ioctls & 1 << 6);
	CHECK_EQ(registration.ioctls & 1 << 7, 0);
	int other = watcher(0);
	CHECK_FAILS(watch(other, room, 4, MISSING), EBUSY);
	CHECK_FAILS(protect(fd, room, 4, 8), EINVAL);
	CHECK_FAILS(protect(fd, room, 4, 3), EINVAL);
	CHECK_FAILS(copy(fd, room, room, 1, 8, NULL), EINVAL);
	struct range range = range_of(room, 4);
	CHECK_EQ(ioctl(fd, UFFDIO_WAKE, &range), 0);
	CHECK_EQ(ioctl(fd, UFFDIO_UNREGISTER, &range), 0);
	room[0] = 1;
	close(other);
	close(fd);
	munmap(room, 4 * PAGE);
}

/* The handler must resolve the first access to each page, also if the kernel makes the access. */
static void missing(void)
{
	int fd = watcher(THREAD_FEATURE | EXACT);
	char *room = memory(PAGES), *source = memory(1);
	memset(source, 7, PAGE);
	NEED(fd >= 0 && watch(fd, room, PAGES, MISSING) == 0);
	struct handler handler;
	start(&handler, fd, source);
	CHECK_EQ(room[5], 7);
	CHECK_EQ(handler.last, (unsigned long)(uintptr_t)(room + 5));
	CHECK_EQ(handler.thread_seen, syscall(SYS_gettid));
	room[PAGE] = 1;
	CHECK_EQ(room[PAGE + 1], 7);
	int ends[2];
	NEED(pipe(ends) == 0 && write(ends[1], "data", 4) == 4);
	CHECK_EQ(read(ends[0], room + 2 * PAGE, 4), 4);
	CHECK(memcmp(room + 2 * PAGE, "data\7", 5) == 0);
	CHECK_EQ(write(ends[1], room + 3 * PAGE, 1), 1);
	CHECK_EQ(handler.missing, 4);
	stop(&handler);

	int64_t copied = 0;
	CHECK_FAILS(copy(fd, room, source, 1, 0, &copied), EEXIST);
	CHECK_EQ(copied, -EEXIST);
	CHECK_EQ(copy(fd, room + 4 * PAGE, source, 1, 0, &copied), 0);
	CHECK_EQ(copied, PAGE);
	CHECK_FAILS(copy(fd, room + 5 * PAGE, (char *)PAGE, 1, 0, &copied), EFAULT);
	CHECK_EQ(fill(fd, UFFDIO_ZEROPAGE, room + 6 * PAGE, 2, 0), 0);
	CHECK_EQ(room[6 * PAGE], 0);
	room[7 * PAGE] = 3;
	CHECK_EQ(room[7 * PAGE], 3);
	CHECK_FAILS(fill(fd, UFFDIO_ZEROPAGE, room + 7 * PAGE, 1, 0), EEXIST);
	/* A fill stops at a page that is already present. */
	CHECK_FAILS(fill(fd, UFFDIO_ZEROPAGE, room + 5 * PAGE, 2, 0), EAGAIN);
	CHECK_EQ(room[5 * PAGE], 0);
	/* A discarded page is missing again. */
	madvise(room, PAGE, MADV_DONTNEED);
	start(&handler, fd, source);
	CHECK_EQ(room[0], 7);
	CHECK_EQ(handler.missing, 1);
	stop(&handler);
	/* When the descriptor is closed, waiting threads continue. */
	close(fd);
	CHECK_EQ(room[8 * PAGE], 0);
	close(ends[0]);
	close(ends[1]);
	munmap(room, PAGES * PAGE);
	munmap(source, PAGE);
}

static void write_protection(void)
{
	int fd = watcher(UNPOPULATED);
	char *room = memory(PAGES);
	memset(room, 1, PAGES / 2 * PAGE);
	NEED(fd >= 0 && watch(fd, room, PAGES, WP) == 0);
	CHECK_EQ(protect(fd, room, PAGES, 1), 0);
	struct handler handler;
	start(&handler, fd, NULL);
	CHECK_EQ(room[0], 1);
	/* A read of an unpopulated page succeeds. */
	CHECK_EQ(room[(PAGES - 1) * PAGE], 0);
	CHECK_EQ(handler.writes, 0);
	room[0] = 2;
	CHECK_EQ(handler.writes, 1);
	room[1] = 2;
	CHECK_EQ(handler.writes, 1);
	room[(PAGES - 1) * PAGE] = 2;
	CHECK_EQ(handler.writes, 2);
	room[(PAGES - 2) * PAGE] = 2;
	CHECK_EQ(handler.writes, 3);
	/* mprotect keeps uffd-wp protection, and discarding the page removes it. */
	NEED(mprotect(room, PAGES * PAGE, PROT_READ) == 0);
	NEED(mprotect(room, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	room[PAGE] = 2;
	CHECK_EQ(handler.writes, 4);
	madvise(room + 2 * PAGE, PAGE, MADV_DONTNEED);
	room[2 * PAGE] = 2;
	CHECK_EQ(handler.writes, 4);
	/* Stores by the kernel are reported too. */
	int ends[2];
	NEED(pipe(ends) == 0 && write(ends[1], "data", 4) == 4);
	CHECK_EQ(read(ends[0], room + 3 * PAGE, 4), 4);
	CHECK_EQ(handler.writes, 5);
	/* A child does not inherit the registration. */
	pid_t child = fork();
	if (child == 0) {
		room[4 * PAGE] = 9;
		_exit(room[4 * PAGE] != 9);
	}
	int status = 0;
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK_EQ(room[4 * PAGE], 1);
	room[4 * PAGE] = 2;
	CHECK_EQ(handler.writes, 6);
	/* One call removes the protection of all pages. */
	CHECK_EQ(protect(fd, room, PAGES, 0), 0);
	memset(room, 3, PAGES * PAGE);
	CHECK_EQ(handler.writes, 6);
	stop(&handler);
	close(ends[0]);
	close(ends[1]);
	close(fd);
	munmap(room, PAGES * PAGE);
}

static void shared(void)
{
	int fd = watcher(0);
	int file = (int)syscall(SYS_memfd_create, "watched", 0);
	NEED(fd >= 0 && file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	char *room = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *alias = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *source = memory(1);
	NEED(room != MAP_FAILED && alias != MAP_FAILED);
	memset(source, 7, PAGE);
	NEED(watch(fd, room, 4, MISSING | WP | MINOR) == 0);
	struct handler handler;
	start(&handler, fd, source);
	CHECK_EQ(room[0], 7);
	CHECK_EQ(handler.missing, 1);
	CHECK_EQ(alias[0], 7);
	alias[PAGE] = 5;
	CHECK_EQ(room[PAGE], 5);
	CHECK_EQ(handler.minor, 1);
	CHECK_FAILS(fill(fd, UFFDIO_CONTINUE, room + 2 * PAGE, 1, 0), EFAULT);
	CHECK_EQ(protect(fd, room, 4, 1), 0);
	room[0] = 1;
	CHECK_EQ(handler.writes, 1);
	/* A missing page is reported first, and filling it removes the protection. */
	madvise(room + PAGE, PAGE, MADV_DONTNEED);
	room[PAGE] = 1;
	CHECK_EQ(handler.minor, 2);
	CHECK_EQ(handler.writes, 1);
	CHECK_EQ(alias[PAGE], 1);
	/* The protection of a shared object's page is kept after the page is unmapped. */
	NEED(watch(fd, alias, 4, WP) == 0);
	CHECK_EQ(protect(fd, alias, 4, 1), 0);
	madvise(alias, 4 * PAGE, MADV_DONTNEED);
	CHECK_EQ(alias[PAGE], 1);
	alias[PAGE] = 2;
	CHECK_EQ(handler.writes, 2);
	alias[2 * PAGE] = 2;
	CHECK_EQ(handler.writes, 3);
	stop(&handler);
	close(fd);
	munmap(room, 4 * PAGE);
	munmap(alias, 4 * PAGE);
	munmap(source, PAGE);
	close(file);
}

static volatile sig_atomic_t signals;
static void *signal_at;

static void note(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	signals++;
	signal_at = info->si_addr;
	/* Removes the cause of the fault, so that the access succeeds when it is repeated. */
	mprotect((void *)((uintptr_t)info->si_addr & ~(PAGE - 1)), PAGE, PROT_NONE);
	mmap((void *)((uintptr_t)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void signalled(void)
{
	struct sigaction action = { 0 }, old;
	action.sa_sigaction = note;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGBUS, &action, &old);
	int fd = watcher(SIGBUS_FEATURE | UNPOPULATED | POISON);
	char *room = memory(4);
	NEED(fd >= 0 && watch(fd, room, 4, MISSING | WP) == 0);
	room[5] = 1;
	CHECK_EQ(signals, 1);
	CHECK(signal_at == room + 5);
	CHECK_EQ(fill(fd, UFFDIO_POISON, room + PAGE, 1, 0), 0);
	CHECK_FAILS(fill(fd, UFFDIO_POISON, room + PAGE, 1, 0), EEXIST);
	CHECK_FAILS(madvise(room + PAGE, PAGE, MADV_POPULATE_READ), EHWPOISON);
	CHECK_FAILS(madvise(room + PAGE, PAGE, MADV_POPULATE_WRITE), EHWPOISON);
	CHECK_FAILS(mlock(room + PAGE, PAGE), ENOMEM);
	CHECK_EQ(munlock(room + PAGE, PAGE), 0);
	room[PAGE] = 1;
	CHECK_EQ(signals, 2);
	int ends[2];
	NEED(pipe(ends) == 0 && write(ends[1], "data", 4) == 4);
	CHECK_FAILS(read(ends[0], room + 2 * PAGE, 4), EFAULT);
	CHECK_EQ(signals, 2);
	close(ends[0]);
	close(ends[1]);
	close(fd);
	munmap(room, 4 * PAGE);
	sigaction(SIGBUS, &old, NULL);
}

/* Scans for the pages written since the last scan, and re-protects them. Returns the number of regions. */
static int written(int pagemap, const char *room, int pages, struct region *regions, int most)
{
	struct scan scan = { .size = sizeof scan, .flags = 3, .start = (uint64_t)(uintptr_t)room };
	scan.end = scan.start + (uint64_t)pages * PAGE;
	scan.vec = (uint64_t)(uintptr_t)regions;
	scan.vec_len = (uint64_t)most;
	scan.mask = scan.returned = IS_WRITTEN;
	int found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
	CHECK(found >= 0 && scan.walk_end >= scan.start);
	return found;
}

static void tracking(void)
{
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	int fd = watcher(ASYNC | UNPOPULATED);
	struct region regions[PAGES];
	char *room = memory(PAGES);
	NEED(pagemap >= 0);
	memset(room, 1, PAGES / 2 * PAGE);
	NEED(fd >= 0 && watch(fd, room, PAGES, WP) == 0);
	CHECK_EQ(protect(fd, room, PAGES, 1), 0);
	CHECK_EQ(written(pagemap, room, PAGES, regions, PAGES), 0);
	room[PAGE] = 2;
	room[2 * PAGE] = 2;
	room[(PAGES - 1) * PAGE] = 2;
	volatile char sum = room[4 * PAGE];
	(void)sum;
	CHECK_EQ(written(pagemap, room, PAGES, regions, PAGES), 2);
	CHECK_EQ(regions[0].start, (uintptr_t)room + PAGE);
	CHECK_EQ(regions[0].end, (uintptr_t)room + 3 * PAGE);
	CHECK_EQ(regions[1].start, (uintptr_t)room + (PAGES - 1) * PAGE);
	CHECK_EQ(regions[1].categories, IS_WRITTEN);
	CHECK_EQ(written(pagemap, room, PAGES, regions, PAGES), 0);
	int ends[2];
	NEED(pipe(ends) == 0 && write(ends[1], "data", 4) == 4);
	CHECK_EQ(read(ends[0], room + 3 * PAGE, 4), 4);
	CHECK_EQ(written(pagemap, room, PAGES, regions, 1), 1);
	CHECK_EQ(regions[0].start, (uintptr_t)room + 3 * PAGE);
	/* The buffer has space for one region, so the next scan reports the rest. */
	room[0] = room[5 * PAGE] = 3;
	CHECK_EQ(written(pagemap, room, PAGES, regions, 1), 1);
	CHECK_EQ(regions[0].start, (uintptr_t)room);
	CHECK_EQ(written(pagemap, room, PAGES, regions, 1), 1);
	CHECK_EQ(regions[0].start, (uintptr_t)room + 5 * PAGE);
	/* Stores of a child are not reported here. */
	pid_t child = fork();
	if (child == 0) {
		memset(room, 9, PAGES * PAGE);
		_exit(0);
	}
	int status = 0;
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EQ(written(pagemap, room, PAGES, regions, PAGES), 0);
	room[PAGE] = 4;
	CHECK_EQ(written(pagemap, room, PAGES, regions, PAGES), 1);

	struct scan scan = { .size = sizeof scan - 8 };
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = (struct scan){ .size = sizeof scan, .flags = 8 };
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = (struct scan){ .size = sizeof scan, .start = 1, .end = PAGE };
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = (struct scan){ .size = sizeof scan, .mask = 1ULL << 40 };
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	char *plain = memory(1);
	scan = (struct scan){ .size = sizeof scan, .flags = 2, .start = (uint64_t)(uintptr_t)plain };
	scan.end = scan.start + PAGE;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EPERM);
	CHECK_FAILS(ioctl(pagemap, _IO('f', 17), 0), EINVAL);
	close(ends[0]);
	close(ends[1]);
	close(fd);
	close(pagemap);
	munmap(plain, PAGE);
	munmap(room, PAGES * PAGE);
}

/* Returns the number of resident pages. */
static int resident(char *room, int pages)
{
	unsigned char here[PAGES];
	int count = 0;
	NEED(mincore(room, pages * PAGE, here) == 0);
	for (int i = 0; i < pages; i++)
		count += here[i] & 1;
	return count;
}

/* Reserves addresses for twice as many pages, and maps, locks and registers the first half. */
static char *locked(int fd, int pages, int protection, int flags)
{
	char *room = mmap(NULL, 2 * pages * PAGE, protection, flags | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED && munmap(room + pages * PAGE, pages * PAGE) == 0);
	NEED(mlock(room, pages * PAGE) == 0);
	NEED(watch(fd, room, pages, MISSING) == 0);
	return room;
}

/* If locked memory grows, the new pages wait for the handler. */
static void growing(int fd, struct handler *handler)
{
	int known = handler->missing;
	char *room = locked(fd, 4, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	CHECK_EQ(resident(room, 4), 4);
	CHECK(mremap(room, 4 * PAGE, 7 * PAGE, 0) == room);
	CHECK_EQ(handler->missing - known, 3);
	CHECK_EQ(resident(room, 7), 7);
	CHECK_EQ(room[6 * PAGE], 7);
	/* Pages outside the new part do not wait. */
	NEED(munlock(room, PAGE) == 0 && madvise(room, PAGE, MADV_DONTNEED) == 0);
	CHECK(mremap(room + PAGE, 6 * PAGE, 7 * PAGE, 0) == room + PAGE);
	CHECK_EQ(handler->missing - known, 4);
	/* Memory that was moved is not registered any more. */
	char *free = memory(10);
	CHECK(mremap(room + PAGE, 7 * PAGE, 9 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, free) == free);
	CHECK_EQ(handler->missing - known, 4);
	CHECK_EQ(resident(free, 9), 9);
	CHECK_EQ(free[8 * PAGE], 0);
	munmap(free, 10 * PAGE);
	munmap(room, PAGE);

	known = handler->missing;
	room = locked(fd, 2, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	NEED(syscall(SYS_mlock2, room, 2 * PAGE, MLOCK_ONFAULT) == 0);
	CHECK(mremap(room, 2 * PAGE, 4 * PAGE, 0) == room);
	CHECK_EQ(handler->missing - known, 0);
	CHECK_EQ(resident(room, 4), 2);
	munmap(room, 4 * PAGE);
}

/* A permission change does not wait for the handler. Pages that need the handler, and all pages after them in
 * the area, are left to later faults. */
static void gaining(int fd, struct handler *handler)
{
	int known = handler->missing;
	char *room = locked(fd, 4, PROT_READ, MAP_PRIVATE);
	NEED(madvise(room + PAGE, PAGE, MADV_DONTNEED_LOCKED) == 0);
	CHECK_EQ(mprotect(room, 4 * PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(handler->missing - known, 0);
	CHECK_EQ(resident(room, 4), 3);
	CHECK_EQ(room[PAGE], 7);
	CHECK_EQ(handler->missing - known, 1);
	munmap(room, 4 * PAGE);
	room = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED && watch(fd, room, 2, MISSING) == 0);
	CHECK_FAILS(mlock(room, 2 * PAGE), ENOMEM);
	CHECK_EQ(mprotect(room, 2 * PAGE, PROT_READ | PROT_WRITE), 0);
	CHECK_EQ(resident(room, 2), 0);
	CHECK_EQ(handler->missing - known, 1);
	munmap(room, 2 * PAGE);
}

/* Locking all current and future memory waits for the handler in registered memory, but not in the adjacent memory. */
static void all_of_it(int fd, struct handler *handler)
{
	int known = handler->missing;
	char *room = memory(6);
	NEED(munmap(room + 2 * PAGE, 4 * PAGE) == 0 && watch(fd, room, 2, MISSING) == 0);
	CHECK_EQ(mlockall(MCL_CURRENT | MCL_FUTURE), 0);
	CHECK_EQ(handler->missing - known, 2);
	/* Uses the system call directly, because not every C library has sbrk. */
	uintptr_t heap = ((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1);
	char *first = (char *)heap;
	NEED((uintptr_t)syscall(SYS_brk, heap + PAGE) == heap + PAGE && watch(fd, first, 1, MISSING) == 0);
	CHECK_EQ((uintptr_t)syscall(SYS_brk, heap + 3 * PAGE), heap + 3 * PAGE);
	CHECK_EQ(resident(first, 3), 3);
	char *beside = mmap(room + 2 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(beside == room + 2 * PAGE);
	CHECK_EQ(resident(beside, 2), 2);
	CHECK_EQ(handler->missing - known, 2);
	munlockall();
	/* With MCL_ONFAULT future mappings are not populated, even with MAP_POPULATE. */
	CHECK_EQ(mlockall(MCL_FUTURE | MCL_ONFAULT), 0);
	beside = mmap(room + 4 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(beside == room + 4 * PAGE);
	CHECK_EQ(resident(beside, 2), 0);
	munlockall();
	munmap(room, 6 * PAGE);
}

/* Resolves three faults, and reads one move event. Linux reports missing pages before the move event, but
 * rejects their resolution with EAGAIN until the event has been read. A page whose resolution is rejected is
 * unregistered. */
static void *answer(void *argument)
{
	static char contents[PAGE];
	int fd = *(int *)argument, faults = 0, moves = 0;
	while (faults < 3 || moves < 1) {
		struct pollfd ready = { fd, POLLIN, 0 };
		struct message message;
		if (poll(&ready, 1, -1) < 0 || read(fd, &message, sizeof message) != sizeof message)
			continue;
		if (message.event != 0x12) {
			moves++;
			continue;
		}
		faults++;
		char *page = (char *)(uintptr_t)(message.address & ~(PAGE - 1));
		struct range range = range_of(page, 1);
		if (copy(fd, page, contents, 1, 0, NULL) != 0)
			CHECK(errno == EAGAIN && ioctl(fd, UFFDIO_UNREGISTER, &range) == 0);
	}
	return NULL;
}

/* With move events, memory stays registered after mremap, including the part by which it grew. */
static void following(void)
{
	enum { EVENT_REMAP = 1 << 2 };
	int fd = watcher(EVENT_REMAP);
	NEED(fd >= 0);
	char *room = locked(fd, 2, PROT_READ | PROT_WRITE, MAP_PRIVATE), *free = memory(5);
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, answer, &fd) == 0);
	CHECK(mremap(room, 2 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, free) == free);
	CHECK_EQ(resident(free, 5), 5);
	pthread_join(thread, NULL);
	close(fd);
	munmap(free, 5 * PAGE);
}

/* If a userfaultfd raises signals instead of sending messages, locking its memory populates no page. Memory
 * after it is populated. */
static void refusing(void)
{
	int fd = watcher(SIGBUS_FEATURE);
	NEED(fd >= 0);
	char *room = locked(fd, 2, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	CHECK(mremap(room, 2 * PAGE, 4 * PAGE, 0) == room);
	CHECK_EQ(resident(room, 4), 2);
	char *next = mmap(room + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(next != MAP_FAILED);
	CHECK_EQ(mlockall(MCL_CURRENT), 0);
	CHECK_EQ(resident(room, 4), 2);
	CHECK_EQ(resident(next, 1), 1);
	munlockall();
	munmap(next, PAGE);
	munmap(room, 4 * PAGE);
	close(fd);
}

static void locking(void)
{
	int fd = watcher(0);
	char *source = memory(1);
	memset(source, 7, PAGE);
	NEED(fd >= 0);
	struct handler handler;
	start(&handler, fd, source);
	growing(fd, &handler);
	gaining(fd, &handler);
	all_of_it(fd, &handler);
	stop(&handler);
	close(fd);
	following();
	refusing();
	munmap(source, PAGE);
}

static void *touch(void *page)
{
	*(volatile char *)page = 1;
	return page;
}

/* A waiting thread continues when the descriptor is closed, and exits when it is killed. */
static void abandoned(void)
{
	int fd = watcher(0);
	char *room = memory(1);
	pthread_t thread;
	struct pollfd ready = { fd, POLLIN, 0 };
	NEED(fd >= 0 && watch(fd, room, 1, MISSING) == 0);
	NEED(pthread_create(&thread, NULL, touch, room) == 0);
	CHECK_EQ(poll(&ready, 1, -1), 1);
	close(fd);
	pthread_join(thread, NULL);
	CHECK_EQ(room[0], 1);
	munmap(room, PAGE);

	int told[2];
	NEED(pipe(told) == 0);
	pid_t child = fork();
	if (child == 0) {
		fd = watcher(0);
		room = memory(1);
		ready.fd = fd;
		if (fd < 0 || watch(fd, room, 1, MISSING) != 0 || pthread_create(&thread, NULL, touch, room) != 0)
			_exit(98);
		poll(&ready, 1, -1);
		if (write(told[1], "x", 1) != 1)
			_exit(98);
		pthread_join(thread, NULL);
		_exit(97);
	}
	char byte;
	NEED(child > 0 && read(told[0], &byte, 1) == 1);
	kill(child, SIGKILL);
	int status = 0;
	NEED(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(told[0]);
	close(told[1]);
}

int main(void)
{
	int fd = watcher(ASYNC | UNPOPULATED | POISON | EXACT);
	if (fd >= 0) {
		close(fd);
		handshake();
		missing();
		write_protection();
		shared();
		signalled();
		tracking();
		locking();
		abandoned();
	}
	return checked("userfault");
}
