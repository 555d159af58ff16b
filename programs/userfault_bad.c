/* Do invalid uses of userfaultfd and PAGEMAP_SCAN fail as documented, and is everything freed afterwards?
 *
 * Each ioctl gets ranges that are misaligned, wrap around, are empty, are in the kernel's half, belong to another
 * descriptor or are not registered. It also gets unknown modes and features, inaccessible addresses, and closed
 * descriptors. When a handler exits, no thread may keep waiting for it, neither for a fault nor for the read of an
 * event. An event for which the reader has no descriptor stays unread. At the end, the machine has as much free
 * memory as before.
 */
#include "userfault.h"
#include <poll.h>
#include <pthread.h>

struct move {
	uint64_t dst, src, len, mode;
	int64_t moved;
};

enum { IS_PRESENT = 8 };

#define UFFDIO_MOVE _IOWR(0xAA, 5, struct move)
#define KERNEL 0xffff800000000000UL
#define END 0x7ffffffff000UL
#define PAGES 16

enum { EVENT_FORK = 1 << 1, EVENT_REMAP = 1 << 2, EVENT_REMOVE = 1 << 3, EVENT_UNMAP = 1 << 6 };
enum { EVENTS = EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP };

static char *room;
static int fd;

/* A range that every ioctl rejects. */
struct bad_range {
	uint64_t start, length;
};

static size_t bad_ranges(struct bad_range *bad)
{
	uint64_t start = (uintptr_t)room;
	const struct bad_range all[] = {
		{ start + 1, PAGE },	   { start, PAGE + 1 },	      { start, 0 },
		{ start, -PAGE },	   { KERNEL, PAGE },	      { END, PAGE },
		{ END - PAGE, 2 * PAGE },  { -PAGE, PAGE },	      { -PAGE, 2 * PAGE },
		{ start, 1UL << 63 },	   { start + PAGE / 2, PAGE }, { 0, 0 },
	};
	memcpy(bad, all, sizeof all);
	return sizeof all / sizeof *all;
}

/* Returns whether /proc/self/fdinfo of a descriptor contains this text. */
static int shows(int of, const char *what)
{
	char path[64], text[512] = "";
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", of);
	int from = open(path, O_RDONLY);
	NEED(from >= 0 && read(from, text, sizeof text - 1) > 0);
	close(from);
	return strstr(text, what) != NULL;
}

static void handshake(void)
{
	struct api api = { 0xAA, 0, 0 };
	int raw = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	NEED(raw >= 0);
	/* All other ioctls fail before the handshake (UFFDIO_API). */
	CHECK_FAILS(watch(raw, room, 1, WP), EINVAL);
	CHECK_FAILS(protect(raw, room, 1, 1), EINVAL);
	CHECK_FAILS(copy(raw, room, room, 1, 0, NULL), EINVAL);
	char byte;
	CHECK_FAILS(read(raw, &byte, 1), EINVAL);
	struct pollfd poller = { raw, POLLIN, 0 };
	CHECK_EQ(poll(&poller, 1, 0), 1);
	CHECK_EQ(poller.revents, POLLERR);
	/* With unknown features or another version the handshake fails, and the structure is cleared. */
	api.features = 1ULL << 63;
	CHECK_FAILS(ioctl(raw, UFFDIO_API, &api), EINVAL);
	CHECK_EQ(api.features, 0);
	CHECK_EQ(api.api, 0);
	api = (struct api){ 0xAB, 0, 0 };
	CHECK_FAILS(ioctl(raw, UFFDIO_API, &api), EINVAL);
	CHECK_FAILS(ioctl(raw, UFFDIO_API, NULL), EFAULT);
	CHECK_FAILS(ioctl(raw, UFFDIO_API, KERNEL), EFAULT);
	/* A handshake whose result cannot be written has no effect. */
	struct api *answer = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(answer != MAP_FAILED);
	answer->api = 0xAA;
	NEED(mprotect(answer, PAGE, PROT_READ) == 0);
	CHECK_FAILS(ioctl(raw, UFFDIO_API, answer), EFAULT);
	munmap(answer, PAGE);
	CHECK(shows(raw, "API:\taa:0:80000000000007ff\n"));
	api = (struct api){ 0xAA, UNPOPULATED, 0 };
	CHECK_EQ(ioctl(raw, UFFDIO_API, &api), 0);
	CHECK(shows(raw, "pending:\t0\ntotal:\t0\nAPI:\taa:80002000:80000000000007ff\n"));
	/* poll reports readiness only for nonblocking descriptors. */
	CHECK_EQ(poll(&poller, 1, 0), 0);
	CHECK_EQ(fcntl(raw, F_SETFL, 0), 0);
	CHECK_EQ(poll(&poller, 1, 0), 1);
	CHECK_EQ(poller.revents, POLLERR);
	CHECK_EQ(fcntl(raw, F_SETFL, O_NONBLOCK), 0);
	/* A second handshake fails. */
	api = (struct api){ 0xAA, 0, 0 };
	CHECK_FAILS(ioctl(raw, UFFDIO_API, &api), EINVAL);
	CHECK_FAILS(ioctl(raw, 0xAAFF, 0), EINVAL);
	CHECK_FAILS(ioctl(raw, _IOWR(0xAA, 0x22, struct api), &api), EINVAL);
	close(raw);
	CHECK_FAILS(ioctl(raw, UFFDIO_API, &api), EBADF);
	CHECK_FAILS(syscall(SYS_userfaultfd, 0x40000000), EINVAL);
}

/* Only a privileged process may receive faults of the kernel or fork events, unless vm.unprivileged_userfaultfd permits
 * it. */
static void unprivileged(void *argument)
{
	int allowed = argument != NULL;
	struct api api = { 0xAA, EVENT_FORK, 0 };
	if (setresuid(1000, 1000, 1000) != 0)
		return;
	int all = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK_EQ(all >= 0, allowed);
	CHECK(allowed || errno == EPERM);
	int own = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	NEED(own >= 0);
	CHECK_FAILS(ioctl(own, UFFDIO_API, &api), EPERM);
	/* The privilege is checked before the unknown features. */
	api = (struct api){ 0xAA, EVENT_FORK | 1ULL << 60, 0 };
	CHECK_FAILS(ioctl(own, UFFDIO_API, &api), EPERM);
	api = (struct api){ 0xAA, 0, 0 };
	CHECK_EQ(ioctl(own, UFFDIO_API, &api), 0);
}

static void privileges(void)
{
	static const char path[] = "/proc/sys/vm/unprivileged_userfaultfd";
	char before[2] = "", no = '0', yes = '1', more = '2';
	int setting = open(path, O_RDWR);
	if (setting < 0)
		return;
	NEED(pread(setting, before, 1, 0) == 1);
	CHECK_EQ(pwrite(setting, &no, 1, 0), 1);
	CHECK(exited(in_child(unprivileged, NULL), 0));
	CHECK_EQ(pwrite(setting, &yes, 1, 0), 1);
	CHECK(exited(in_child(unprivileged, room), 0));
	CHECK_FAILS(pwrite(setting, &more, 1, 0), EINVAL);
	CHECK_EQ(pwrite(setting, before, 1, 0), 1);
	close(setting);
}

/* Secret memory is a file whose stores can be tracked; no other mode is supported. */
static void secret(void)
{
	int file = (int)syscall(447, 0), tracker = watcher(ASYNC);
	if (file < 0) {
		close(tracker);
		return;
	}
	NEED(tracker >= 0 && ftruncate(file, PAGE) == 0);
	char *hidden = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(hidden != MAP_FAILED);
	CHECK_FAILS(watch(fd, hidden, 1, MISSING), EINVAL);
	CHECK_FAILS(watch(fd, hidden, 1, WP), EINVAL);
	CHECK_FAILS(watch(tracker, hidden, 1, WP | MISSING), EINVAL);
	CHECK_FAILS(watch(tracker, hidden, 1, MINOR), EINVAL);
	CHECK_EQ(watch(tracker, hidden, 1, WP), 0);
	CHECK_FAILS(fill(tracker, UFFDIO_ZEROPAGE, hidden, 1, 0), EINVAL);
	close(tracker);
	munmap(hidden, PAGE);
	close(file);
}

static void ranges(void)
{
	struct bad_range bad[16];
	size_t many = bad_ranges(bad);
	for (size_t i = 0; i < many; i++) {
		struct range range = { bad[i].start, bad[i].length };
		struct registration registration = { range, WP, 0 };
		struct protection protection = { range, 1 };
		struct filling filling = { range, 0, 0 };
		struct copy into = { range.start, (uintptr_t)room, range.len, 0, 0 };
		struct move move = { range.start, (uintptr_t)room, range.len, 0, 0 };
		struct move from = { (uintptr_t)room, range.start, range.len, 0, 0 };
		CHECK_FAILS(ioctl(fd, UFFDIO_REGISTER, &registration), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_UNREGISTER, &range), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_WAKE, &range), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_WRITEPROTECT, &protection), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_ZEROPAGE, &filling), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_CONTINUE, &filling), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_POISON, &filling), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_COPY, &into), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_MOVE, &move), EINVAL);
		CHECK_FAILS(ioctl(fd, UFFDIO_MOVE, &from), EINVAL);
	}
}

/* Checks the ioctls on holes, on memory that is mapped but not registered, and on memory that another
 * descriptor has registered. */
static void foreign(void)
{
	char *hole = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *other = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *readable = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int second = watcher(0);
	int64_t copied = 0;
	NEED(hole != MAP_FAILED && other != MAP_FAILED && readable != MAP_FAILED && second >= 0);
	munmap(hole, PAGES * PAGE);
	CHECK_FAILS(watch(fd, hole, 1, WP), EINVAL);
	CHECK_FAILS(protect(fd, hole, 1, 1), ENOENT);
	CHECK_FAILS(copy(fd, hole, room, 1, 0, &copied), ENOENT);
	CHECK_FAILS(fill(fd, UFFDIO_ZEROPAGE, hole, 1, 0), ENOENT);
	CHECK_FAILS(protect(fd, other, 1, 1), ENOENT);
	CHECK_FAILS(copy(fd, other, room, 1, 0, &copied), ENOENT);
	CHECK_EQ(copied, -ENOENT);
	CHECK_FAILS(fill(fd, UFFDIO_POISON, other, 1, 0), ENOENT);
	CHECK_EQ(watch(second, other, PAGES, MISSING | WP), 0);
	CHECK_FAILS(watch(fd, other, 1, WP), EBUSY);
	struct range range = range_of(other, 1);
	CHECK_FAILS(ioctl(fd, UFFDIO_UNREGISTER, &range), EINVAL);
	/* Any descriptor of this address space may protect and fill memory that another one has registered. */
	CHECK_EQ(protect(fd, other, 1, 1), 0);
	CHECK_EQ(protect(fd, other, 1, 0), 0);
	CHECK_EQ(fill(fd, UFFDIO_ZEROPAGE, other, 1, 0), 0);
	/* The registration fails with no mode, with an unknown mode, and with a mode that this memory does
	 * not support. */
	CHECK_FAILS(watch(fd, room, PAGES, 0), EINVAL);
	CHECK_FAILS(watch(fd, room, PAGES, 8), EINVAL);
	CHECK_FAILS(watch(fd, room, PAGES, 1UL << 40), EINVAL);
	CHECK_FAILS(watch(fd, room, PAGES, MINOR), EINVAL);
	/* Only the first half of the range is mapped. */
	CHECK_EQ(munmap(other + 8 * PAGE, 8 * PAGE), 0);
	CHECK_FAILS(protect(second, other + 8 * PAGE, 8, 1), ENOENT);
	CHECK_FAILS(copy(second, other + 7 * PAGE, room, 2, 0, &copied), ENOENT);
	close(second);
	munmap(other, 8 * PAGE);
	munmap(readable, PAGE);
}

static void modes(void)
{
	int64_t copied = 0;
	CHECK_EQ(madvise(room, PAGES * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(watch(fd, room, PAGES, MISSING | WP), 0);
	CHECK_FAILS(protect(fd, room, 1, 4), EINVAL);
	CHECK_FAILS(protect(fd, room, 1, 3), EINVAL);
	CHECK_FAILS(protect(fd, room, 1, 1UL << 63), EINVAL);
	CHECK_FAILS(copy(fd, room, room + 8 * PAGE, 1, 4, &copied), EINVAL);
	CHECK_FAILS(fill(fd, UFFDIO_ZEROPAGE, room, 1, 2), EINVAL);
	CHECK_FAILS(fill(fd, UFFDIO_CONTINUE, room, 1, 4), EINVAL);
	CHECK_FAILS(fill(fd, UFFDIO_POISON, room, 1, 2), EINVAL);
	struct move move = { (uintptr_t)room, (uintptr_t)room + PAGE, PAGE, 4, 0 };
	CHECK_FAILS(ioctl(fd, UFFDIO_MOVE, &move), EINVAL);
	/* UFFDIO_CONTINUE does not apply to anonymous memory. */
	CHECK_FAILS(fill(fd, UFFDIO_CONTINUE, room, 1, 0), EINVAL);
	/* Invalid arguments, and source addresses that cannot be used. */
	CHECK_FAILS(ioctl(fd, UFFDIO_WRITEPROTECT, NULL), EFAULT);
	CHECK_FAILS(ioctl(fd, UFFDIO_REGISTER, KERNEL), EFAULT);
	CHECK_FAILS(ioctl(fd, UFFDIO_COPY, END), EFAULT);
	char *unmapped = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(unmapped != MAP_FAILED);
	CHECK_FAILS(copy(fd, room, unmapped, 1, 0, &copied), EFAULT);
	CHECK_EQ(copied, -EFAULT);
	CHECK_FAILS(copy(fd, room, (void *)KERNEL, 1, 0, &copied), EINVAL);
	/* A fill of two pages fails at the page that is already present: here the first one, then the second
	 * one. */
	CHECK_EQ(fill(fd, UFFDIO_ZEROPAGE, room, 1, 0), 0);
	CHECK_FAILS(fill(fd, UFFDIO_ZEROPAGE, room, 2, 0), EEXIST);
	struct filling filling = { range_of(room + PAGE, 2), 0, 0 };
	CHECK_EQ(fill(fd, UFFDIO_ZEROPAGE, room + 2 * PAGE, 1, 0), 0);
	CHECK_FAILS(ioctl(fd, UFFDIO_ZEROPAGE, &filling), EAGAIN);
	CHECK_EQ(filling.filled, (int64_t)PAGE);
	munmap(unmapped, PAGE);
	/* Another registration can add modes, and can remove all modes except uffd-wp, even if no page is
	 * protected. */
	CHECK_FAILS(watch(fd, room, PAGES, MISSING), EBUSY);
	CHECK_FAILS(watch(fd, room + PAGE, 1, MISSING), EBUSY);
	CHECK_EQ(watch(fd, room, PAGES, WP), 0);
	CHECK_EQ(watch(fd, room, PAGES, MISSING | WP), 0);
	struct range range = range_of(room, PAGES);
	CHECK_EQ(ioctl(fd, UFFDIO_UNREGISTER, &range), 0);
	CHECK_EQ(watch(fd, room, PAGES, MISSING), 0);
	CHECK_EQ(ioctl(fd, UFFDIO_UNREGISTER, &range), 0);
}

static void scans(void)
{
	struct region regions[4];
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	NEED(pagemap >= 0);
	const struct scan good = { .size = sizeof good, .start = (uintptr_t)room, .end = (uintptr_t)room + PAGES * PAGE,
				   .vec = (uintptr_t)regions, .vec_len = 4, .returned = IS_WRITTEN };
	struct scan scan = good;
	CHECK(ioctl(pagemap, PAGEMAP_SCAN, &scan) >= 0);
	scan = good, scan.size--;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = good, scan.flags = 4;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = good, scan.start++;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = good, scan.mask = 1ULL << 40;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = good, scan.returned = 1ULL << 63;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = good, scan.vec = 0;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EINVAL);
	scan = good, scan.vec = KERNEL;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EFAULT);
	scan = good, scan.end = KERNEL;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EFAULT);
	scan = good, scan.flags = 2;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EPERM);
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, NULL), EFAULT);
	/* Where uffd-wp is not registered, no page counts as written. */
	*(volatile char *)room = 1;
	scan = good, scan.mask = IS_PRESENT, scan.returned = IS_PRESENT | IS_WRITTEN;
	CHECK_EQ(ioctl(pagemap, PAGEMAP_SCAN, &scan), 1);
	CHECK_EQ(regions[0].categories, IS_PRESENT);
	scan.mask = IS_WRITTEN;
	CHECK_EQ(ioctl(pagemap, PAGEMAP_SCAN, &scan), 0);
	CHECK_EQ(scan.walk_end, scan.end);
	scan.inverted = IS_WRITTEN;
	CHECK(ioctl(pagemap, PAGEMAP_SCAN, &scan) >= 1);
	CHECK_EQ(regions[0].start, (uintptr_t)room);
	CHECK_EQ(watch(fd, room, PAGES, WP), 0);
	scan = good, scan.mask = IS_PRESENT, scan.returned = IS_PRESENT | IS_WRITTEN;
	CHECK_EQ(ioctl(pagemap, PAGEMAP_SCAN, &scan), 1);
	CHECK_EQ(regions[0].categories, IS_PRESENT | IS_WRITTEN);
	struct range whole = range_of(room, PAGES);
	CHECK_EQ(ioctl(fd, UFFDIO_UNREGISTER, &whole), 0);
	/* If the regions cannot be written, the end address is still written. */
	*(volatile char *)room = 1;
	char *readable = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(readable != MAP_FAILED);
	scan = good, scan.vec = (uintptr_t)readable, scan.mask = scan.returned = IS_PRESENT, scan.walk_end = 1;
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EFAULT);
	CHECK_EQ(scan.walk_end, scan.end);
	munmap(readable, PAGE);
	/* A process that has exited has no memory, whichever process scans it. */
	char path[64];
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	snprintf(path, sizeof path, "/proc/%d/pagemap", child);
	int other = open(path, O_RDONLY);
	NEED(other >= 0);
	scan = good, scan.mask = scan.returned = IS_PRESENT;
	CHECK_EQ(ioctl(other, PAGEMAP_SCAN, &scan), 1);
	CHECK_EQ(kill(child, SIGKILL), 0);
	wait_for(child);
	scan.walk_end = 1;
	CHECK_FAILS(ioctl(other, PAGEMAP_SCAN, &scan), ESRCH);
	CHECK_EQ(scan.walk_end, 1);
	/* The exit of the process is checked before the argument. */
	CHECK_FAILS(ioctl(other, PAGEMAP_SCAN, NULL), ESRCH);
	CHECK_EQ(pread(other, regions, 8, (off_t)((uintptr_t)room / PAGE * 8)), 0);
	close(other);
	close(pagemap);
	CHECK_FAILS(ioctl(pagemap, PAGEMAP_SCAN, &scan), EBADF);
}

static void *store(void *page)
{
	*(volatile char *)page = 7;
	return page;
}

static void *load(void *page)
{
	return *(volatile char *)page == 0 ? page : NULL;
}

static void await_message(int from)
{
	struct pollfd poller = { from, POLLIN, 0 };
	CHECK_EQ(poll(&poller, 1, 5000), 1);
}

/* If the descriptor is closed while threads wait, they continue, and the memory is not registered any more. */
static void closed_while_waiting(void)
{
	pthread_t threads[2];
	void *result;
	int dying = watcher(0);
	NEED(dying >= 0);
	char *memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memory[0] = 1;
	CHECK_EQ(watch(dying, memory, 2, MISSING | WP), 0);
	CHECK_EQ(protect(dying, memory, 1, 1), 0);
	NEED(pthread_create(&threads[0], NULL, store, memory) == 0);
	NEED(pthread_create(&threads[1], NULL, load, memory + PAGE) == 0);
	await_message(dying);
	close(dying);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pthread_join(threads[i], &result), 0);
		CHECK(result == memory + (i ? PAGE : 0));
	}
	CHECK_EQ(memory[0], 7);
	munmap(memory, 2 * PAGE);
}

/* The handler is another process. Killing it closes the descriptor. */
static void killed_while_waiting(void)
{
	pthread_t thread;
	void *result;
	char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int dying = watcher(0), told[2];
	char byte;
	memory[0] = 1;
	NEED(dying >= 0 && pipe(told) == 0);
	CHECK_EQ(watch(dying, memory, 1, WP), 0);
	CHECK_EQ(protect(dying, memory, 1, 1), 0);
	pid_t monitor = fork();
	NEED(monitor >= 0);
	if (monitor == 0) {
		struct message message;
		await_message(dying);
		byte = read(dying, &message, sizeof message) == sizeof message;
		if (write(told[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(dying);
	NEED(pthread_create(&thread, NULL, store, memory) == 0);
	CHECK(read(told[0], &byte, 1) == 1 && byte == 1);
	CHECK_EQ(kill(monitor, SIGKILL), 0);
	wait_for(monitor);
	CHECK_EQ(pthread_join(thread, &result), 0);
	CHECK_EQ(memory[0], 7);
	close(told[0]), close(told[1]);
	munmap(memory, PAGE);
}

/* The program that waits is killed, and the handler then gets errors. */
static void killed_while_it_waits(void)
{
	int sockets[2];
	NEED(pipe(sockets) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int own = watcher(0);
		if (watch(own, memory, 1, MISSING) != 0 || write(sockets[1], "", 1) != 1)
			_exit(1);
		store(memory);
		_exit(2);
	}
	char byte;
	CHECK_EQ(read(sockets[0], &byte, 1), 1);
	struct timespec moment = { 0, 20000000 };
	nanosleep(&moment, NULL);
	CHECK_EQ(kill(child, SIGKILL), 0);
	int status = wait_for(child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(sockets[0]), close(sockets[1]);
}

/* The operation that a thread executes on memory, which causes an event. */
enum doing { MOVES, REMOVES, UNMAPS, FORKS, DOINGS };

struct deed {
	enum doing doing;
	char *memory, *elsewhere;
	int did, fork_reads[2];
	pid_t child;
};

static void *perform(void *argument)
{
	struct deed *deed = argument;
	size_t length = 2 * PAGE;
	switch (deed->doing) {
	case MOVES:
		deed->did = mremap(deed->memory, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, deed->elsewhere) ==
			    deed->elsewhere;
		break;
	case REMOVES:
		deed->did = madvise(deed->memory, length, MADV_DONTNEED) == 0;
		break;
	case UNMAPS:
		deed->did = munmap(deed->memory, length) == 0;
		break;
	case FORKS:
	case DOINGS:
		deed->child = fork();
		if (deed->child == 0) {
			char byte;
			if (deed->fork_reads[0] >= 0 && read(deed->fork_reads[0], &byte, 1) != 1)
				_exit(1);
			_exit(*(volatile char *)deed->memory == 0 ? 0 : 2);
		}
		deed->did = deed->child > 0;
		break;
	}
	return argument;
}

/* Maps two registered pages that are missing, and reserves addresses for two more. */
static struct deed prepare(enum doing doing, int by)
{
	struct deed deed = { .doing = doing, .fork_reads = { -1, -1 } };
	deed.memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(deed.memory != MAP_FAILED);
	deed.elsewhere = deed.memory + 2 * PAGE;
	CHECK_EQ(watch(by, deed.memory, 2, MISSING | WP), 0);
	return deed;
}

/* Checks that the operation completed, and that the memory is not registered any more. */
static void conclude(struct deed *deed)
{
	char *now = deed->doing == MOVES ? deed->elsewhere : deed->memory;
	CHECK(deed->did);
	if (deed->doing != UNMAPS)
		CHECK_EQ(*(volatile char *)now, 0);
	if (deed->doing == FORKS)
		CHECK(exited(wait_for(deed->child), 0));
	munmap(deed->memory, 4 * PAGE);
}

/* The descriptor is closed before the event is read. Until it is closed, its ioctls fail. A fork would wait forever,
 * because the unfinished child also has the descriptor. */
static void closed_before_it_is_read(void)
{
	for (enum doing doing = 0; doing < FORKS; doing++) {
		pthread_t thread;
		int dying = watcher(EVENTS);
		NEED(dying >= 0);
		struct deed deed = prepare(doing, dying);
		struct range range = range_of(deed.memory, 1);
		int64_t copied = 0;
		NEED(pthread_create(&thread, NULL, perform, &deed) == 0);
		await_message(dying);
		CHECK_FAILS(copy(dying, deed.memory, room, 1, 0, &copied), EAGAIN);
		CHECK_EQ(copied, -EAGAIN);
		CHECK_FAILS(fill(dying, UFFDIO_ZEROPAGE, deed.memory, 1, 0), EAGAIN);
		CHECK_FAILS(protect(dying, deed.memory, 1, 1), EAGAIN);
		CHECK_EQ(ioctl(dying, UFFDIO_WAKE, &range), 0);
		close(dying);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		conclude(&deed);
	}
}

/* The handler is another process, which is killed before it reads the event. */
static void killed_before_it_reads(void)
{
	for (enum doing doing = 0; doing < DOINGS; doing++) {
		pthread_t thread;
		int dying = watcher(EVENTS), told[2];
		char byte;
		NEED(dying >= 0 && pipe(told) == 0);
		pid_t monitor = fork();
		NEED(monitor >= 0);
		if (monitor == 0) {
			await_message(dying);
			if (write(told[1], "", 1) != 1)
				_exit(1);
			for (;;)
				pause();
		}
		struct deed deed = prepare(doing, dying);
		close(dying);
		NEED(pthread_create(&thread, NULL, perform, &deed) == 0);
		CHECK_EQ(read(told[0], &byte, 1), 1);
		CHECK_EQ(kill(monitor, SIGKILL), 0);
		wait_for(monitor);
		CHECK_EQ(pthread_join(thread, NULL), 0);
		close(told[0]), close(told[1]);
		conclude(&deed);
	}
}

/* The thread that waits for the read of the event is killed. A fork then creates no child. */
static void killed_before_it_is_read(void)
{
	for (enum doing doing = 0; doing < DOINGS; doing++) {
		int told[2];
		char byte;
		NEED(pipe(told) == 0);
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			int own = watcher(EVENTS);
			struct deed deed = prepare(doing, own);
			if (write(told[1], "", 1) != 1)
				_exit(1);
			close(told[1]);
			perform(&deed);
			_exit(2);
		}
		close(told[1]);
		CHECK_EQ(read(told[0], &byte, 1), 1);
		struct timespec moment = { 0, 20000000 };
		nanosleep(&moment, NULL);
		CHECK_EQ(kill(child, SIGKILL), 0);
		int status = wait_for(child);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		/* No process has the other end of the pipe, so the fork created no child. */
		CHECK_EQ(read(told[0], &byte, 1), 0);
		close(told[0]);
	}
}

/* Checks that ioctls on a child's userfaultfd fail after the child has exited. */
static void gone(int heir, char *memory)
{
	struct range range = range_of(memory, 1);
	int64_t copied = 0;
	CHECK_FAILS(copy(heir, memory, room, 1, 0, &copied), ESRCH);
	CHECK_FAILS(fill(heir, UFFDIO_ZEROPAGE, memory, 1, 0), ESRCH);
	CHECK_FAILS(protect(heir, memory, 1, 1), ESRCH);
	CHECK_FAILS(watch(heir, memory, 1, MISSING), ENOMEM);
	CHECK_FAILS(ioctl(heir, UFFDIO_UNREGISTER, &range), ENOMEM);
	CHECK_EQ(ioctl(heir, UFFDIO_WAKE, &range), 0);
}

/* If the reader of a fork event has no free descriptor, the event stays unread until the reader has one. The
 * child's memory is then registered, unless the new descriptor is closed. */
static void no_room_for_a_fork(int closes)
{
	pthread_t thread;
	struct message message;
	struct rlimit limit, less;
	int own = watcher(EVENTS), next;
	NEED(own >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
	struct deed deed = prepare(FORKS, own);
	NEED(pipe(deed.fork_reads) == 0);
	NEED(pthread_create(&thread, NULL, perform, &deed) == 0);
	await_message(own);
	next = dup(own);
	NEED(next >= 0);
	close(next);
	less = (struct rlimit){ (rlim_t)next, limit.rlim_max };
	NEED(setrlimit(RLIMIT_NOFILE, &less) == 0);
	CHECK_FAILS(read(own, &message, sizeof message), EMFILE);
	await_message(own);
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	CHECK_EQ(read(own, &message, sizeof message), (long)sizeof message);
	CHECK_EQ(message.event, 0x13);
	int heir = (int)(uint32_t)message.flags;
	CHECK_EQ(fcntl(heir, F_GETFD), FD_CLOEXEC);
	CHECK(fcntl(heir, F_GETFL) & O_NONBLOCK);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK(deed.did);
	if (closes)
		close(heir);
	CHECK_EQ(write(deed.fork_reads[1], "", 1), 1);
	if (!closes) {
		await_message(heir);
		CHECK_EQ(read(heir, &message, sizeof message), (long)sizeof message);
		CHECK_EQ(message.event, 0x12);
		CHECK_EQ(message.address, (uintptr_t)deed.memory);
		CHECK_EQ(fill(heir, UFFDIO_ZEROPAGE, deed.memory, 1, 0), 0);
	}
	CHECK(exited(wait_for(deed.child), 0));
	if (!closes) {
		gone(heir, deed.memory);
		close(heir);
	}
	close(deed.fork_reads[0]), close(deed.fork_reads[1]);
	close(own);
	munmap(deed.memory, 4 * PAGE);
}

static long free_memory(void)
{
	char text[4096] = "";
	int from = open("/proc/meminfo", O_RDONLY);
	NEED(from >= 0 && read(from, text, sizeof text - 1) > 0);
	close(from);
	char *row = strstr(text, "MemFree:");
	NEED(row);
	return strtol(row + 8, NULL, 10);
}

static void commands(uint64_t features)
{
	fd = watcher(features);
	NEED(fd >= 0);
	ranges();
	foreign();
	modes();
	scans();
	secret();
	close(fd);
	CHECK_FAILS(protect(fd, room, 1, 1), EBADF);
	CHECK_FAILS(watch(fd, room, 1, WP), EBADF);
}

static void everything(void)
{
	handshake();
	privileges();
	commands(UNPOPULATED);
	commands(UNPOPULATED | EVENTS);
	closed_while_waiting();
	killed_while_waiting();
	killed_while_it_waits();
	closed_before_it_is_read();
	killed_before_it_reads();
	killed_before_it_is_read();
	no_room_for_a_fork(0);
	no_room_for_a_fork(1);
}

int main(int argc, char **argv)
{
	room = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	fd = watcher(UNPOPULATED);
	if (fd < 0)
		return checked("userfault_bad");
	close(fd);
	/* The first pass fills caches. On a machine without other processes, the third pass leaves as much free memory
	 * as the second. */
	everything();
	everything();
	long before = free_memory();
	everything();
	if (argc > 1 && strcmp(argv[1], "alone") == 0)
		CHECK_EQ(free_memory(), before);
	return checked("userfault_bad");
}
