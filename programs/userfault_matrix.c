/* Is every write to write-protected memory reported exactly once, however the page was populated and whatever happened
 * to it since?
 *
 * The program tries every combination of a kind of memory, the operation that populates half of it, whether
 * this happens before or after the protection, a later operation, and how writes are reported (by
 * PAGEMAP_SCAN or by a signal at the store). Then the program and the kernel write to some of the pages:
 * populated ones, others, and those in swap. No write may be lost, and no unwritten page may be reported. (A
 * system call that writes to the file of shared memory does not count as a write to this mapping.) A page
 * whose contents were discarded (MADV_DONTNEED, MADV_REMOVE) may be reported. If such a page is anonymous and
 * present, it must be reported.
 *
 * Usage: userfault_matrix dirty-bit|faults      (what the first write of a protected private page costs)
 */
#include "userfault.h"
#include <pthread.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif
#define HUGE (2UL << 20)
#define MOST 16
#define EVENT_REMAP (1 << 2)

enum kind { ANONYMOUS, SHARED, PRIVATE_FILE, HUGETLB, THP, KINDS };
enum populate { READ, WRITE, ZERO_FILL, FILE_WRITE, POPULATES };
enum order { BEFORE, AFTER, ORDERS };
enum event { NOTHING, DONTNEED, REMOVE, PAGEOUT, PAGEOUT_READ, PAGEOUT_SCAN, FORK, MREMAP, TWO_AREAS, EVENTS };
enum telling { SCAN, SIGNAL, TELLINGS };
/* Whether a page must be reported. */
enum told { MUST_NOT, MAY, MUST };

static const char *const names[][EVENTS] = {
	{ "anonymous", "shared", "file, private", "hugetlb", "THP" },
	{ "read", "write", "zero fill", "write to the file" },
	{ "protected first", "populated first" },
	{ "nothing", "MADV_DONTNEED", "MADV_REMOVE", "MADV_PAGEOUT", "MADV_PAGEOUT and reads",
	  "MADV_PAGEOUT and a scan", "fork", "mremap", "two areas" },
	{ "scan", "signal" },
};

struct combination {
	enum kind kind;
	enum populate populate;
	enum order order;
	enum event event;
	enum telling telling;
};

/* The memory of one combination: `count` units of `unit` bytes, at intervals of `stride` bytes. */
static char *base;
static size_t unit, stride, count, whole;
static int fd, file, pagemap, by_dirty, has_swap, signals[MOST];
/* The KiB of swap that were used, by kind of memory. */
static long went_out[KINDS];
static enum told wanted[MOST];
static unsigned char contents[MOST];

static char *at(size_t index)
{
	return base + index * stride;
}

static int is_populated(size_t index)
{
	return index % 2 == 0;
}

static int is_dropped(size_t index)
{
	return index >= count / 4 && index < count / 2;
}

static int is_written(size_t index)
{
	return (7 * index + 3) % 5 < 2;
}

static int is_pageout(enum event event)
{
	return event == PAGEOUT || event == PAGEOUT_READ || event == PAGEOUT_SCAN;
}

static int can_be(const struct combination *one)
{
	int shared = one->kind == SHARED;
	if (one->populate == ZERO_FILL && (one->kind == HUGETLB || one->kind == PRIVATE_FILE))
		return 0;
	if ((one->event == REMOVE || one->populate == FILE_WRITE) && !shared)
		return 0;
	if (is_pageout(one->event) && (!has_swap || one->kind == HUGETLB))
		return 0;
	if (one->event == PAGEOUT_SCAN && one->telling != SCAN)
		return 0;
	return 1;
}

/* Reserves `whole` bytes of addresses, aligned to a huge page. */
static char *room(void)
{
	char *start = mmap(NULL, whole + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(start != MAP_FAILED);
	return (char *)(((uintptr_t)start + HUGE - 1) & ~(HUGE - 1));
}

static void make(enum kind kind)
{
	int flags = MAP_FIXED | (kind == SHARED ? MAP_SHARED : MAP_PRIVATE);
	unit = kind == HUGETLB ? HUGE : PAGE;
	stride = kind == HUGETLB ? HUGE : kind == THP ? 64 * PAGE : PAGE;
	count = kind == HUGETLB ? 8 : MOST;
	whole = count * stride;
	file = -1;
	memset(contents, 0, sizeof contents);
	if (kind == SHARED || kind == PRIVATE_FILE) {
		file = (int)syscall(SYS_memfd_create, "matrix", 0);
		NEED(file >= 0 && ftruncate(file, (off_t)whole) == 0);
	} else {
		flags |= MAP_ANONYMOUS | (kind == HUGETLB ? MAP_HUGETLB : 0);
	}
	if (kind == PRIVATE_FILE)
		for (size_t i = 0; i < count; i++) {
			contents[i] = (unsigned char)(0x40 + i);
			NEED(pwrite(file, &contents[i], 1, (off_t)(i * stride)) == 1);
		}
	base = mmap(room(), whole, PROT_READ | PROT_WRITE, flags, file, 0);
	NEED(base != MAP_FAILED);
	madvise(base, whole, kind == THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

static void unprotect_at(int number, siginfo_t *info, void *context)
{
	size_t index = ((char *)info->si_addr - base) / stride;
	(void)number, (void)context;
	if (index >= count || protect(fd, at(index), (long)(unit / PAGE), 0) != 0)
		_exit(98);
	signals[index]++;
}

static void store(const struct combination *one, size_t index, unsigned char value)
{
	*(volatile unsigned char *)at(index) = value;
	contents[index] = value;
	/* If the protection may have been removed, there may be no signal. */
	if (one->telling == SCAN || wanted[index] != MAY)
		wanted[index] = MUST;
}

/* Populates every second page. Whether a page is then present or still protected is as on Linux. */
static void populate(const struct combination *one)
{
	for (size_t i = 0; i < count; i++) {
		struct filling filling = { range_of(at(i), 1), 0, 0 };
		if (!is_populated(i))
			continue;
		switch (one->populate) {
		case READ:
			CHECK_EQ(*(volatile unsigned char *)at(i), contents[i]);
			break;
		case WRITE:
			store(one, i, (unsigned char)(0x80 + i));
			break;
		case ZERO_FILL:
			/* A marker in anonymous memory prevents the fill. Shared memory is filled, without
			 * protection. */
			if (ioctl(fd, UFFDIO_ZEROPAGE, &filling) != 0)
				CHECK(errno == EEXIST);
			else if (one->order == BEFORE)
				wanted[i] = MAY;
			break;
		case FILE_WRITE:
			contents[i] = (unsigned char)(0xa0 + i);
			CHECK_EQ(pwrite(file, &contents[i], 1, (off_t)(i * stride)), 1);
			break;
		case POPULATES:
			break;
		}
	}
}

static void arm(void)
{
	CHECK_EQ(protect(fd, base, (long)(whole / PAGE), 1), 0);
	for (size_t i = 0; i < count; i++)
		wanted[i] = MUST_NOT;
}

static void drop(const struct combination *one)
{
	size_t first = count / 4, many = count / 2 - first;
	int file_stays = one->kind == SHARED || one->kind == PRIVATE_FILE || one->kind == HUGETLB;
	CHECK_EQ(madvise(at(first), many * stride, one->event == REMOVE ? MADV_REMOVE : MADV_DONTNEED), 0);
	for (size_t i = first; i < first + many; i++) {
		int went = one->kind == ANONYMOUS && one->populate == WRITE && is_populated(i);
		if (one->kind == SHARED && one->event == DONTNEED)
			continue;
		contents[i] = one->kind == PRIVATE_FILE ? (unsigned char)(0x40 + i) : 0;
		if (went && one->telling == SCAN)
			wanted[i] = MUST;
		else if (wanted[i] == MUST && one->telling == SIGNAL)
			continue;
		else if (!file_stays || wanted[i] == MUST || one->event == REMOVE ||
			 (is_populated(i) && one->populate == WRITE))
			wanted[i] = MAY;
	}
}

/* Writes by a child are not reported. */
static void fork_a_child(const struct combination *one)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		signal(SIGBUS, SIG_DFL);
		for (size_t i = 0; i < count; i++) {
			/* The hugetlb pool contains huge pages for the parent only. */
			if (one->kind == HUGETLB && !is_populated(i))
				continue;
			if (*(volatile unsigned char *)at(i) != contents[i])
				_exit(1);
			/* A child without a userfaultfd has no protection. */
			if (one->kind != SHARED && one->kind != HUGETLB)
				*(volatile unsigned char *)at(i) = 0xff;
		}
		_exit(0);
	}
	CHECK(exited(wait_for(child), 0));
}

static void *read_of_move(void *unused)
{
	struct message message;
	while (read(fd, &message, sizeof message) != sizeof message)
		sched_yield();
	CHECK_EQ(message.event, 0x14);
	return unused;
}

static void move(void)
{
	pthread_t thread;
	char *to = room();
	NEED(pthread_create(&thread, NULL, read_of_move, NULL) == 0);
	char *now = mremap(base, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	CHECK(now == to);
	pthread_join(thread, NULL);
	base = to;
}

/* Returns the number of regions, and records in `told` for each unit whether a region contains it. Other pages of the
 * memory may be reported only if their contents were discarded. */
static void scan(const struct combination *one, int *told)
{
	struct region regions[4 * MOST];
	struct scan scan = { .size = sizeof scan, .flags = 3, .start = (uintptr_t)base, .end = (uintptr_t)base + whole };
	scan.vec = (uintptr_t)regions;
	scan.vec_len = 4 * MOST;
	scan.mask = scan.returned = IS_WRITTEN;
	memset(told, 0, MOST * sizeof *told);
	long found = ioctl(pagemap, PAGEMAP_SCAN, &scan);
	CHECK(found >= 0);
	CHECK_EQ(scan.walk_end, scan.end);
	for (long i = 0; i < found; i++)
		for (uint64_t page = regions[i].start; page < regions[i].end; page += PAGE) {
			size_t offset = page - (uintptr_t)base, index = offset / stride;
			int dropped = (one->event == DONTNEED || one->event == REMOVE) && is_dropped(index);
			if (offset % stride < unit)
				told[index] = 1;
			else
				CHECK(dropped);
		}
}

static long free_swap(void)
{
	char text[4096] = "";
	int from = open("/proc/meminfo", O_RDONLY);
	NEED(from >= 0 && read(from, text, sizeof text - 1) > 0);
	close(from);
	char *row = strstr(text, "SwapFree:");
	NEED(row);
	return strtol(row + 9, NULL, 10);
}

/* Swaps out all pages. In PAGEOUT_SCAN, a scan finds them in swap. Otherwise reads swap in one page or, in
 * PAGEOUT_READ, every page, and the next operation swaps in the others. */
static void page_out(const struct combination *one)
{
	int told[MOST];
	long before = free_swap();
	CHECK_EQ(madvise(base, whole, MADV_PAGEOUT), 0);
	went_out[one->kind] += before - free_swap();
	if (one->event != PAGEOUT_SCAN)
		CHECK_EQ(*(volatile unsigned char *)at(2), contents[2]);
	for (size_t i = 0; i < count && one->event == PAGEOUT_READ; i++)
		CHECK_EQ(*(volatile unsigned char *)at(i), contents[i]);
	if (one->event != PAGEOUT_SCAN)
		return;
	scan(one, told);
	for (size_t i = 0; i < count; i++) {
		CHECK(told[i] ? wanted[i] != MUST_NOT : wanted[i] != MUST);
		wanted[i] = MUST_NOT;
	}
}

static void happen(const struct combination *one)
{
	switch (one->event) {
	case DONTNEED:
	case REMOVE:
		drop(one);
		break;
	case PAGEOUT:
	case PAGEOUT_READ:
	case PAGEOUT_SCAN:
		page_out(one);
		break;
	case FORK:
		fork_a_child(one);
		break;
	case MREMAP:
		move();
		break;
	case NOTHING:
	case TWO_AREAS:
	case EVENTS:
		break;
	}
}

static long faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* Checks the number of faults that writes to present, protected pages took. */
static void check_faults(const struct combination *one, long found)
{
	int simple = one->event == NOTHING || one->event == TWO_AREAS;
	long written = 0, most = 0;
	if (one->telling != SCAN || one->order != AFTER || one->populate != WRITE || !simple)
		return;
	for (size_t i = 0; i < count; i++)
		written += is_written(i) && is_populated(i);
	most = written;
	if (by_dirty && (one->kind == ANONYMOUS || one->kind == PRIVATE_FILE))
		most = 0;
	CHECK_EQ(found, most);
}

static void write_some(const struct combination *one)
{
	static int pipes[2] = { -1, -1 };
	int by_kernel = one->telling == SCAN;
	if (pipes[0] < 0)
		NEED(pipe(pipes) == 0);
	long before = faults();
	for (size_t i = 0; i < count; i++)
		if (is_written(i) && is_populated(i))
			store(one, i, (unsigned char)(0xc0 + i));
	check_faults(one, faults() - before);
	for (size_t i = 0; i < count; i++) {
		unsigned char value = (unsigned char)(0xc0 + i);
		if (!is_written(i) || is_populated(i))
			continue;
		if (!by_kernel) {
			store(one, i, value);
			continue;
		}
		CHECK(write(pipes[1], &value, 1) == 1 && read(pipes[0], at(i), 1) == 1);
		contents[i] = value;
		wanted[i] = MUST;
		by_kernel = 0;
	}
}

static void check_told(const struct combination *one)
{
	int told[MOST];
	if (one->telling == SCAN) {
		scan(one, told);
	} else {
		for (size_t i = 0; i < count; i++) {
			told[i] = signals[i] > 0;
			CHECK(signals[i] <= 1 || one->event == DONTNEED);
		}
	}
	for (size_t i = 0; i < count; i++) {
		CHECK(told[i] || wanted[i] != MUST);
		CHECK(!told[i] || wanted[i] != MUST_NOT);
		CHECK_EQ(*(volatile unsigned char *)at(i), contents[i]);
	}
	if (one->telling != SCAN)
		return;
	/* The scan has re-protected everything, so the next one reports one write and no read. */
	store(one, 3, 0x77);
	scan(one, told);
	for (size_t i = 0; i < count; i++) {
		/* Linux protects nothing in place of a discarded hugetlb page, and reports a page that a
		 * later read maps there. */
		int may = one->kind == HUGETLB && wanted[i] == MAY;
		CHECK(told[i] == (i == 3) || may);
	}
}

static void try_one(const struct combination *one)
{
	int failed = checks_failed;
	uint64_t features = UNPOPULATED | (one->telling == SCAN ? ASYNC : SIGBUS_FEATURE);
	if (one->event == MREMAP)
		features |= EVENT_REMAP;
	fd = watcher(features);
	NEED(fd >= 0);
	make(one->kind);
	if (one->event == TWO_AREAS)
		CHECK_EQ(madvise(base + whole / 2, whole / 2, MADV_DONTDUMP), 0);
	for (size_t i = 0; i < MOST; i++)
		wanted[i] = MUST_NOT;
	/* Populates the memory before its registration, unless the operation is one that needs registered
	 * memory. */
	int early = one->order == AFTER && one->populate != ZERO_FILL;
	if (early)
		populate(one);
	CHECK_EQ(watch(fd, base, (long)(whole / PAGE), WP), 0);
	memset(signals, 0, sizeof signals);
	if (one->order == AFTER && !early)
		populate(one);
	arm();
	if (one->order == BEFORE)
		populate(one);
	happen(one);
	write_some(one);
	check_told(one);
	CHECK_EQ(protect(fd, base, (long)(whole / PAGE), 0), 0);
	munmap(base, whole);
	close(fd);
	if (file >= 0)
		close(file);
	if (checks_failed > failed)
		printf("that was: %s, %s, %s, %s, %s\n", names[0][one->kind], names[1][one->populate],
		       names[2][one->order], names[3][one->event], names[4][one->telling]);
}

/* Returns whether a file of the kernel contains more than its heading. */
static int lines(const char *path)
{
	char text[4096];
	int from = open(path, O_RDONLY), found = 0;
	long length = from < 0 ? 0 : read(from, text, sizeof text);
	for (long i = 0; i < length; i++)
		found += text[i] == '\n';
	close(from);
	return found;
}

int main(int argc, char **argv)
{
	int pool = open("/proc/sys/vm/nr_hugepages", O_WRONLY), tried = 0;
	by_dirty = argc > 1 && strcmp(argv[1], "dirty-bit") == 0;
	has_swap = lines("/proc/swaps") > 1;
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	fd = watcher(UNPOPULATED | ASYNC);
	if (fd < 0)
		return checked("userfault_matrix");
	close(fd);
	NEED(pagemap >= 0 && pool >= 0 && write(pool, "8", 1) == 1);
	struct sigaction action = { .sa_sigaction = unprotect_at, .sa_flags = SA_SIGINFO };
	NEED(sigaction(SIGBUS, &action, NULL) == 0);
	struct combination one;
	for (one.kind = 0; one.kind < KINDS; one.kind++)
		for (one.populate = 0; one.populate < POPULATES; one.populate++)
			for (one.order = 0; one.order < ORDERS; one.order++)
				for (one.event = 0; one.event < EVENTS; one.event++)
					for (one.telling = 0; one.telling < TELLINGS; one.telling++)
						if (can_be(&one)) {
							try_one(&one);
							tried++;
						}
	CHECK(tried >= 264);
	if (has_swap)
		CHECK(went_out[ANONYMOUS] > 0 && went_out[SHARED] > 0 && went_out[THP] > 0);
	CHECK(pwrite(pool, "0", 1, 0) == 1);
	return checked("userfault_matrix");
}
