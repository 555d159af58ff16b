/* Does userfaultfd's read-write protection report the first access to each armed page, and no other access?
 *
 * UFFDIO_RWPROTECT arms pages that are in memory or in swap. In synchronous mode, the next access to an armed page,
 * by the program or by the kernel for it, waits for the handler; most of these tests use SIGBUS instead
 * (UFFD_FEATURE_SIGBUS). In asynchronous mode, PAGEMAP_SCAN reports which pages were accessed. UFFDIO_SET_MODE
 * switches the mode. Other calls keep pages armed or remove the protection, as documented. Prints "skip" if the
 * kernel has no read-write protection.
 */
#include "userfault.h"
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/uio.h>

struct modes {
	uint64_t enable, disable;
};

#define UFFDIO_RWPROTECT _IOWR(0xAA, 9, struct protection)
#define UFFDIO_SET_MODE _IOW(0xAA, 10, struct modes)

enum { RWP = 8, FAULT_RWP = 8, FORK_EVENT = 1 << 1, REMAP_EVENT = 1 << 2 };
enum { RWP_FEATURE = 1 << 17, COUNTS = 1 << 18 };
enum { IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4, IS_HUGE = 1 << 6, IS_ACCESSED = 1 << 9 };
enum { PAGES = 16, HUGE_PAGES = 512 };

static sigjmp_buf back;
static int pagemap;

static void on_bus(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static int load_faults(volatile char *at)
{
	if (sigsetjmp(back, 1))
		return 1;
	(void)*at;
	return 0;
}

static int store_faults(volatile char *at, char value)
{
	if (sigsetjmp(back, 1))
		return 1;
	*at = value;
	return 0;
}

static int arm(int fd, const void *start, long pages)
{
	struct protection protection = { range_of(start, pages), 1 };
	return ioctl(fd, UFFDIO_RWPROTECT, &protection);
}

static int disarm(int fd, const void *start, long pages)
{
	struct protection protection = { range_of(start, pages), 0 };
	return ioctl(fd, UFFDIO_RWPROTECT, &protection);
}

static int set_mode(int fd, uint64_t enable, uint64_t disable)
{
	struct modes modes = { enable, disable };
	return ioctl(fd, UFFDIO_SET_MODE, &modes);
}

/* Returns a bit for each of the first 64 pages that has all categories of `mask` after inversion by `inverted`. */
static uint64_t pages_with(const char *start, long pages, uint64_t mask, uint64_t inverted)
{
	struct region regions[64];
	struct scan scan = { .size = sizeof scan, .start = (uintptr_t)start, .vec = (uintptr_t)regions, .vec_len = 64 };
	scan.end = scan.start + pages * PAGE;
	scan.mask = scan.returned = mask;
	scan.inverted = inverted;
	long found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
	CHECK(found >= 0);
	uint64_t bits = 0;
	for (long i = 0; i < found; i++)
		for (uint64_t at = regions[i].start; at < regions[i].end; at += PAGE)
			bits |= 1UL << (at - (uintptr_t)start) / PAGE;
	return bits;
}

static uint64_t accessed(const char *start, long pages)
{
	return pages_with(start, pages, IS_ACCESSED, 0);
}

/* Returns private memory that was written and is registered. */
static char *filled(int fd, long pages)
{
	char *memory = anonymous(pages * PAGE);
	NEED(memory != NULL);
	NEED(madvise(memory, pages * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	for (long page = 0; page < pages; page++)
		memory[page * PAGE] = (char)(page + 1);
	NEED(watch(fd, memory, pages, RWP) == 0);
	return memory;
}

static void release(char *memory, long pages)
{
	CHECK(munmap(memory, pages * PAGE) == 0);
}

/* Checks the features and errors of the calls. */
static void negotiation(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	NEED(fd >= 0);
	CHECK_FAILS(set_mode(fd, 0, 0), EINVAL);
	struct api api = { 0xAA, COUNTS, 0 };
	CHECK_FAILS(ioctl(fd, UFFDIO_API, &api), EINVAL);
	CHECK_EQ(api.features, 0);
	api = (struct api){ 0xAA, RWP_FEATURE, 0 };
	CHECK(ioctl(fd, UFFDIO_API, &api) == 0);
	CHECK((api.features & (RWP_FEATURE | COUNTS)) == (RWP_FEATURE | COUNTS));
	CHECK(api.ioctls & 1 << 10);

	char *memory = anonymous(PAGES * PAGE);
	struct registration registration = { range_of(memory, PAGES), RWP, 0 };
	CHECK_FAILS(watch(fd, memory, PAGES, RWP | WP), EINVAL);
	CHECK_FAILS(arm(fd, memory, PAGES), ENOENT);
	CHECK(ioctl(fd, UFFDIO_REGISTER, &registration) == 0);
	CHECK_EQ(registration.ioctls & (1 << 9 | 1 << 6), 1 << 9);
	CHECK_FAILS(watch(fd, memory, PAGES, WP), EBUSY);
	CHECK_FAILS(watch(fd, memory, PAGES, MISSING), EBUSY);
	CHECK(watch(fd, memory, PAGES, RWP | MISSING) == 0);
	CHECK(watch(fd, memory, PAGES, RWP) == 0);
	CHECK_FAILS(protect(fd, memory, PAGES, 1), ENOENT);

	struct protection both = { range_of(memory, PAGES), 3 };
	CHECK_FAILS(ioctl(fd, UFFDIO_RWPROTECT, &both), EINVAL);
	both.mode = 4;
	CHECK_FAILS(ioctl(fd, UFFDIO_RWPROTECT, &both), EINVAL);
	both = (struct protection){ { (uintptr_t)memory + 1, PAGE }, 1 };
	CHECK_FAILS(ioctl(fd, UFFDIO_RWPROTECT, &both), EINVAL);
	CHECK_FAILS(ioctl(fd, UFFDIO_RWPROTECT, NULL), EFAULT);
	CHECK_FAILS(set_mode(fd, COUNTS, COUNTS), EINVAL);
	CHECK_FAILS(set_mode(fd, ASYNC, 0), EINVAL);
	CHECK_FAILS(set_mode(fd, 0, RWP_FEATURE), EINVAL);
	CHECK_FAILS(ioctl(fd, UFFDIO_SET_MODE, NULL), EFAULT);
	CHECK(set_mode(fd, 0, 0) == 0);
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(set_mode(fd, 0, COUNTS) == 0);

	/* If a part of the range is not registered, nothing changes. */
	struct range part = range_of(memory, PAGES);
	CHECK(ioctl(fd, UFFDIO_UNREGISTER, &part) == 0);
	CHECK(watch(fd, memory, PAGES, RWP) == 0);
	memory[0] = 1;
	part = range_of(memory + PAGE, 1);
	CHECK(ioctl(fd, UFFDIO_UNREGISTER, &part) == 0);
	CHECK_FAILS(arm(fd, memory, 2), ENOENT);
	CHECK(!load_faults(memory));

	char *closed = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_FAILS(watch(fd, closed, 1, RWP), EINVAL);
	int plain = watcher(0);
	CHECK_FAILS(watch(plain, closed, 1, RWP), EINVAL);
	CHECK_FAILS(set_mode(plain, COUNTS, 0), EINVAL);
	CHECK(set_mode(plain, 0, COUNTS) == 0);
	close(plain);
	release(closed, 1);
	release(memory, PAGES);
	close(fd);
}

/* Checks which accesses fault, and which calls remove the protection. */
static void faults(int fd)
{
	char *memory = filled(fd, PAGES);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK_EQ(pages_with(memory, PAGES, IS_ACCESSED, IS_ACCESSED), 0xffff);
	CHECK_EQ(accessed(memory, PAGES), 0);
	CHECK(load_faults(memory) && store_faults(memory + PAGE, 9));
	CHECK(load_faults(memory));
	CHECK(disarm(fd, memory, 1) == 0);
	CHECK(!load_faults(memory) && !store_faults(memory, 7));
	CHECK(memory[0] == 7);
	CHECK_EQ(accessed(memory, PAGES), 1);
	/* Only pages that are present or in swap are armed. */
	CHECK(madvise(memory + 2 * PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(!load_faults(memory + 2 * PAGE) && memory[2 * PAGE] == 0);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(load_faults(memory + 2 * PAGE));
	CHECK(madvise(memory + 3 * PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(!load_faults(memory + 3 * PAGE));
	CHECK_EQ(accessed(memory, PAGES), 1 << 3);
	/* Pages stay armed when their permissions change. */
	CHECK(mprotect(memory, PAGES * PAGE, PROT_READ) == 0);
	CHECK(load_faults(memory + 4 * PAGE));
	CHECK(mprotect(memory, PAGES * PAGE, PROT_NONE) == 0);
	CHECK(mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(load_faults(memory + 4 * PAGE) && store_faults(memory + 5 * PAGE, 1));
	/* Pages stay armed when they are swapped out. */
	CHECK(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK_EQ(accessed(memory, PAGES), 1 << 3);
	CHECK(load_faults(memory + 4 * PAGE) && store_faults(memory + 5 * PAGE, 1));
	CHECK(load_faults(memory + 4 * PAGE));
	CHECK(disarm(fd, memory + 4 * PAGE, 2) == 0);
	CHECK(!load_faults(memory + 4 * PAGE) && memory[4 * PAGE] == 5 && memory[5 * PAGE] == 6);
	CHECK(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK(arm(fd, memory + 4 * PAGE, 1) == 0);
	CHECK(load_faults(memory + 4 * PAGE) && !load_faults(memory + 5 * PAGE));
	/* Accesses by the kernel are reported too. */
	char bytes[4];
	struct iovec own = { bytes, 4 }, other = { memory + 6 * PAGE, 4 };
	CHECK_FAILS(process_vm_readv(getpid(), &own, 1, &other, 1, 0), EFAULT);
	CHECK_FAILS(write(pagemap, memory + 6 * PAGE, 4), EBADF);
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_FAILS(write(ends[1], memory + 6 * PAGE, 4), EFAULT);
	close(ends[0]);
	close(ends[1]);
	/* After memory is unregistered, it is accessible. */
	struct range all = range_of(memory, PAGES);
	CHECK(ioctl(fd, UFFDIO_UNREGISTER, &all) == 0);
	for (int page = 6; page < PAGES; page++)
		CHECK(!load_faults(memory + page * PAGE) && memory[page * PAGE] == page + 1);
	CHECK(!store_faults(memory, 3));
	release(memory, PAGES);
}

static void child_reads(void *argument)
{
	char *memory = argument;
	for (int page = 0; page < PAGES; page++) {
		CHECK(!load_faults(memory + page * PAGE) && memory[page * PAGE] == page + 1);
		CHECK(!store_faults(memory + page * PAGE, 99));
	}
}

static void child_stores(void *argument)
{
	char *memory = argument;
	for (int page = 0; page < PAGES; page++)
		CHECK(!store_faults(memory + page * PAGE, 99));
}

/* If the userfaultfd requests no events, a child's copies and moved memory are not armed. */
static void copies(int fd)
{
	char *memory = filled(fd, PAGES);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(exited(in_child(child_reads, memory), 0));
	CHECK(load_faults(memory) && load_faults(memory + 5 * PAGE));
	char *there = anonymous(PAGES * PAGE);
	char *moved = mremap(memory, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	CHECK(moved == there);
	for (int page = 0; page < PAGES; page++)
		CHECK(!load_faults(moved + page * PAGE) && moved[page * PAGE] == page + 1);
	release(moved, PAGES);
	/* Areas with different registrations do not merge, and areas with the same registration do. */
	memory = filled(fd, PAGES);
	CHECK(arm(fd, memory + 4 * PAGE, 4) == 0);
	CHECK(mprotect(memory + 6 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(memory + 6 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	for (int page = 0; page < PAGES; page++)
		CHECK_EQ(load_faults(memory + page * PAGE), page >= 4 && page < 8);
	release(memory, PAGES);
	/* Pages that UFFDIO_MOVE moves into memory registered for read-write protection are armed. */
	memory = filled(fd, PAGES);
	char *source = anonymous(PAGE);
	source[0] = 42;
	CHECK(madvise(memory, PAGE, MADV_DONTNEED) == 0);
	struct { uint64_t to, from, length, mode; int64_t moved; } move = { (uintptr_t)memory, (uintptr_t)source, PAGE, 0, 0 };
	CHECK(ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 0xAA, 5, 40), &move) == 0);
	CHECK(load_faults(memory));
	CHECK(disarm(fd, memory, 1) == 0 && memory[0] == 42);
	release(source, 1);
	release(memory, PAGES);
}

/* Checks which accesses are reported in asynchronous mode. */
static void accesses(int fd)
{
	char *memory = filled(fd, PAGES);
	CHECK_EQ(accessed(memory, PAGES), 0xffff);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0);
	CHECK(!load_faults(memory + PAGE) && !store_faults(memory + 3 * PAGE, 9));
	CHECK_EQ(accessed(memory, PAGES), 1 << 1 | 1 << 3);
	CHECK_EQ(pages_with(memory, PAGES, IS_ACCESSED | IS_PRESENT, IS_ACCESSED), 0xffff & ~(1 << 1 | 1 << 3));
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0);
	/* Accesses by the kernel are reported too. */
	int ends[2];
	char bytes[8] = "pipe";
	NEED(pipe(ends) == 0);
	CHECK(write(ends[1], memory + 2 * PAGE, 4) == 4 && read(ends[0], memory + 4 * PAGE, 4) == 4);
	struct iovec own = { bytes, 4 }, other = { memory + 5 * PAGE, 4 };
	CHECK(process_vm_readv(getpid(), &own, 1, &other, 1, 0) == 4);
	other.iov_base = memory + 6 * PAGE;
	CHECK(process_vm_writev(getpid(), &own, 1, &other, 1, 0) == 4);
	CHECK(madvise(memory + 7 * PAGE, PAGE, MADV_POPULATE_READ) == 0);
	CHECK(madvise(memory + 8 * PAGE, PAGE, MADV_POPULATE_WRITE) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0x1f4);
	close(ends[0]);
	close(ends[1]);
	/* Other users of the accessed bit do not affect the reports. */
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(!load_faults(memory + 9 * PAGE) && !store_faults(memory + 10 * PAGE, 1));
	int clear = open("/proc/self/clear_refs", O_WRONLY);
	CHECK(clear >= 0 && write(clear, "1", 1) == 1 && write(clear, "4", 1) == 1);
	close(clear);
	CHECK_EQ(accessed(memory, PAGES), 0x600);
	CHECK(madvise(memory, PAGES * PAGE, MADV_COLD) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0x600);
	CHECK(mprotect(memory, PAGES * PAGE, PROT_READ) == 0);
	CHECK(mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0x600);
	CHECK(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0x600);
	CHECK(!load_faults(memory + 11 * PAGE) && memory[11 * PAGE] == 12);
	CHECK_EQ(accessed(memory, PAGES), 0xe00);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0);
	CHECK(!store_faults(memory + 12 * PAGE, 1));
	CHECK_EQ(accessed(memory, PAGES), 0x1000);
	CHECK(exited(in_child(child_stores, memory), 0));
	CHECK_EQ(accessed(memory, PAGES), 0x1000);
	/* A discarded page is not reported, and a page that is faulted in counts as accessed. */
	CHECK(madvise(memory, 2 * PAGE, MADV_DONTNEED) == 0);
	CHECK_EQ(accessed(memory, PAGES) & 3, 0);
	CHECK(!store_faults(memory, 1));
	CHECK_EQ(accessed(memory, PAGES) & 3, 1);
	/* Memory registered for read-write protection has no pages of the category "written". */
	CHECK_EQ(pages_with(memory, PAGES, IS_WRITTEN, 0), 0);
	/* After the fork, a page is shared with the child until it is written. */
	CHECK(disarm(fd, memory, PAGES) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0xfffd);
	release(memory, PAGES);
}

/* Switches from one mode to the other. */
static void switching(int fd)
{
	char *memory = filled(fd, PAGES);
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(!load_faults(memory) && !store_faults(memory + PAGE, 2));
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	CHECK_EQ(accessed(memory, PAGES), 3);
	CHECK(!load_faults(memory) && !store_faults(memory + PAGE, 2));
	CHECK(load_faults(memory + 2 * PAGE) && store_faults(memory + 3 * PAGE, 9));
	CHECK_EQ(accessed(memory, PAGES), 3);
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(!load_faults(memory + 2 * PAGE) && !store_faults(memory + 3 * PAGE, 4));
	CHECK_EQ(accessed(memory, PAGES), 15);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK_EQ(accessed(memory, PAGES), 0);
	CHECK(!store_faults(memory + 5 * PAGE, 6) && memory[5 * PAGE] == 6);
	CHECK_EQ(accessed(memory, PAGES), 1 << 5);
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	for (int page = 0; page < PAGES; page++)
		CHECK_EQ(load_faults(memory + page * PAGE), page != 5);
	CHECK(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(!load_faults(memory + 6 * PAGE));
	CHECK_EQ(accessed(memory, PAGES), 3 << 5);
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	release(memory, PAGES);
}

/* Shared memory is armed like private memory. */
static void shared(int fd)
{
	int file = (int)syscall(SYS_memfd_create, "shared", 0);
	NEED(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *other = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	for (int page = 0; page < PAGES; page++)
		memory[page * PAGE] = (char)(page + 1);
	CHECK(watch(fd, memory, PAGES, RWP) == 0);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(other[0] == 1);
	CHECK(load_faults(memory) && store_faults(memory + PAGE, 9));
	CHECK(exited(in_child(child_reads, memory), 0));
	CHECK(load_faults(memory) && other[0] == 99);
	CHECK(fallocate(file, 3, 0, PAGE) == 0);
	CHECK(!load_faults(memory) && memory[0] == 0);
	CHECK(disarm(fd, memory, PAGES) == 0);
	CHECK(!store_faults(memory + PAGE, 9) && other[PAGE] == 9);
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(arm(fd, memory, PAGES) == 0);
	other[3 * PAGE] = 1;
	CHECK(!load_faults(memory + 4 * PAGE) && !store_faults(memory + 5 * PAGE, 1));
	CHECK_EQ(accessed(memory, PAGES), 3 << 4);
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	CHECK(load_faults(memory + 6 * PAGE));
	release(memory, PAGES);
	release(other, PAGES);
	close(file);
}

/* Huge pages are armed and accessed as a whole, and as small pages after a split. */
static void huge(int fd, int flags)
{
	const long size = HUGE_PAGES * PAGE;
	char *room = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (room == MAP_FAILED)
		return;
	char *memory = (char *)(((uintptr_t)room + size - 1) & ~(uintptr_t)(size - 1));
	if (flags == 0)
		madvise(memory, size, MADV_HUGEPAGE);
	memory[0] = 1;
	memory[100 * PAGE] = 2;
	CHECK(watch(fd, memory, HUGE_PAGES, RWP) == 0);
	int is_huge = pages_with(memory, 1, IS_HUGE, 0) == 1;
	CHECK(arm(fd, memory, HUGE_PAGES) == 0);
	CHECK(load_faults(memory + 100 * PAGE) && store_faults(memory, 1));
	CHECK_EQ(accessed(memory, HUGE_PAGES), 0);
	CHECK_EQ(pages_with(memory, 1, IS_HUGE, 0), is_huge);
	if (flags == 0) {
		CHECK(disarm(fd, memory, 1) == 0);
		CHECK(!load_faults(memory) && load_faults(memory + 100 * PAGE));
		CHECK_EQ(accessed(memory, 64), 1);
		CHECK(disarm(fd, memory, HUGE_PAGES) == 0);
		CHECK(memory[100 * PAGE] == 2);
		release(room, 2 * HUGE_PAGES);
		room = mmap(room, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		NEED(room != MAP_FAILED);
		madvise(memory, size, MADV_HUGEPAGE);
		memory[0] = 1;
		memory[100 * PAGE] = 2;
		CHECK(watch(fd, memory, HUGE_PAGES, RWP) == 0);
	} else {
		CHECK_FAILS(disarm(fd, memory, 1), EINVAL);
	}
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(arm(fd, memory, HUGE_PAGES) == 0);
	CHECK_EQ(accessed(memory, HUGE_PAGES), 0);
	CHECK(!store_faults(memory + 3 * PAGE, 7));
	CHECK_EQ(accessed(memory, 64), is_huge ? ~0UL : 8);
	CHECK(arm(fd, memory, HUGE_PAGES) == 0);
	CHECK_EQ(accessed(memory, HUGE_PAGES), 0);
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	CHECK(load_faults(memory + 100 * PAGE));
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	CHECK(!load_faults(memory + 100 * PAGE) && memory[100 * PAGE] == 2 && memory[3 * PAGE] == 7);
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	release(room, 2 * HUGE_PAGES);
}

static char *touched;
static volatile int reads, seen;

static void *touch(void *argument)
{
	(void)argument;
	seen = touched[PAGE + 8];
	reads = 1;
	touched[2 * PAGE] = 77;
	reads = 2;
	seen = touched[3 * PAGE];
	reads = 3;
	return NULL;
}

static struct message next_message(int fd)
{
	struct message message = { 0 };
	struct pollfd ready = { fd, POLLIN, 0 };
	NEED(poll(&ready, 1, 10000) == 1);
	CHECK(read(fd, &message, sizeof message) == sizeof message);
	return message;
}

/* The handler receives a message, and the access waits until the handler has resolved it. */
static void handler(void)
{
	int fd = watcher(RWP_FEATURE);
	touched = filled(fd, PAGES);
	CHECK(arm(fd, touched, PAGES) == 0);
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, touch, NULL) == 0);
	struct message message = next_message(fd);
	CHECK_EQ(message.event, 0x12);
	CHECK_EQ(message.flags, FAULT_RWP);
	CHECK_EQ(message.address, (uintptr_t)touched + PAGE);
	CHECK_EQ(reads, 0);
	CHECK(disarm(fd, touched + PAGE, 1) == 0);
	message = next_message(fd);
	CHECK(reads == 1 && seen == 0);
	CHECK_EQ(message.flags, FAULT_RWP | FAULT_WRITE);
	CHECK_EQ(message.address, (uintptr_t)touched + 2 * PAGE);
	/* Without a wake-up, the thread keeps waiting. */
	struct protection quiet = { range_of(touched + 2 * PAGE, 1), 2 };
	CHECK(ioctl(fd, UFFDIO_RWPROTECT, &quiet) == 0);
	usleep(20000);
	CHECK_EQ(reads, 1);
	struct range page = range_of(touched + 2 * PAGE, 1);
	CHECK(ioctl(fd, UFFDIO_WAKE, &page) == 0);
	message = next_message(fd);
	CHECK(reads == 2 && touched[2 * PAGE] == 77);
	CHECK_EQ(message.address, (uintptr_t)touched + 3 * PAGE);
	/* A waiting thread continues when the mode becomes asynchronous. */
	CHECK(set_mode(fd, COUNTS, 0) == 0);
	NEED(pthread_join(thread, NULL) == 0);
	CHECK(reads == 3 && seen == 4);
	CHECK_EQ(accessed(touched, PAGES), 14);
	CHECK(set_mode(fd, 0, COUNTS) == 0);
	CHECK_EQ(accessed(touched, PAGES), 14);
	/* The memory is accessible after the descriptor is closed. */
	close(fd);
	CHECK(!load_faults(touched + 9 * PAGE) && touched[9 * PAGE] == 10);
	release(touched, PAGES);
}

/* If the userfaultfd requests move events, moved memory stays armed. */
static void events(void)
{
	int fd = watcher(RWP_FEATURE | COUNTS | REMAP_EVENT);
	NEED(fd >= 0);
	char *memory = filled(fd, PAGES);
	CHECK(arm(fd, memory, PAGES) == 0);
	CHECK(!load_faults(memory + 2 * PAGE));
	pid_t reader = fork_checked();
	if (reader == 0) {
		next_message(fd);
		end_child();
	}
	char *there = anonymous(PAGES * PAGE);
	char *moved = mremap(memory, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there);
	CHECK(moved == there);
	CHECK(exited(wait_for(reader), 0));
	CHECK_EQ(accessed(moved, PAGES), 4);
	CHECK(!load_faults(moved + 3 * PAGE));
	CHECK_EQ(accessed(moved, PAGES), 12);
	release(moved, PAGES);
	close(fd);
}

int main(void)
{
	int fd = watcher(RWP_FEATURE | SIGBUS_FEATURE);
	if (fd < 0) {
		puts("skip: no read-write protection");
		return checked("uffd_rwp");
	}
	signal(SIGBUS, on_bus);
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	NEED(pagemap >= 0);
	negotiation();
	faults(fd);
	copies(fd);
	switching(fd);
	shared(fd);
	huge(fd, 0);
	huge(fd, MAP_HUGETLB);
	close(fd);
	fd = watcher(RWP_FEATURE | COUNTS);
	accesses(fd);
	close(fd);
	handler();
	events();
	return checked("uffd_rwp");
}
