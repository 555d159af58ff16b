/* Which events does /proc/vmstat count: allocated and mapped huge pages, unmerged pages, pages read from swap, and
 * failed faults?
 *
 * The counts of each operation are known in advance. The program needs swap, root, transparent huge pages set to
 * madvise, and no other process that merges pages or uses huge pages.
 */
#include "check.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { HUGE = 2 << 20, PAGES = 64 };
#define SIZE (PAGES * PAGE)
#define RW (PROT_READ | PROT_WRITE)
#define KSM "/sys/kernel/mm/ksm/"

/* The names of the events, and the count of each at the last call of `begin`. */
static const char *const names[] = { "thp_fault_alloc", "thp_file_mapped", "thp_collapse_alloc", "cow_ksm", "pgmajfault",
				     "pswpin" };
enum { EVENTS = sizeof names / sizeof *names };
static long before[EVENTS];

/* Reads the count of an event. Only the first call takes faults. */
static long event(const char *name)
{
	static char text[1 << 14];
	char wanted[64];
	int file = open("/proc/vmstat", O_RDONLY);
	NEED(file >= 0);
	size_t length = 0;
	for (ssize_t got; (got = read(file, text + length, sizeof text - 1 - length)) > 0;)
		length += got;
	close(file);
	text[length] = 0;
	snprintf(wanted, sizeof wanted, "\n%s ", name);
	char *row = strstr(text, wanted);
	NEED(row);
	return atol(row + strlen(wanted));
}

static void begin(void)
{
	for (int i = 0; i < EVENTS; i++)
		before[i] = event(names[i]);
}

/* Checks that, since `begin`, the event `first` occurred `first_times` times, `second` occurred
 * `second_times` times, and every other event not at all. */
static void counted(const char *first, long first_times, const char *second, long second_times)
{
	for (int i = 0; i < EVENTS; i++) {
		long times = strcmp(names[i], first) == 0 ? first_times : strcmp(names[i], second) == 0 ? second_times : 0;
		if (event(names[i]) - before[i] != times)
			printf("%s:\n", names[i]);
		CHECK_EQ(event(names[i]) - before[i], times);
	}
	begin();
}

static void set(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	NEED(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
	close(file);
}

/* Maps `size` bytes at a multiple of 2 MiB. The 2 MiB before and after the mapping are not mapped. */
static char *aligned(size_t size, int flags)
{
	char *room = mmap(NULL, size + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	char *memory = (char *)(((uintptr_t)room + HUGE) & -(uintptr_t)HUGE);
	NEED(mmap(memory, size, RW, flags | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == memory);
	return memory;
}

static void store(volatile char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		memory[i * PAGE] = (char)(i + 1);
}

static void load(volatile char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		(void)memory[i * PAGE];
}

static void in_a_child(void (*act)(volatile char *, int), char *memory, int pages)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		act(memory, pages);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void huge_pages(void)
{
	char *memory = aligned(3 * HUGE, MAP_PRIVATE);
	CHECK_EQ(madvise(memory, 3 * HUGE, MADV_HUGEPAGE), 0);
	begin();
	store(memory, 1);
	counted("thp_fault_alloc", 1, "", 0);
	CHECK_EQ(madvise(memory + HUGE, 2 * HUGE, MADV_POPULATE_WRITE), 0);
	counted("thp_fault_alloc", 2, "", 0);
	char *shared = aligned(HUGE, MAP_SHARED);
	store(shared, 100);
	counted("", 0, "", 0);
	NEED(madvise(shared, HUGE, MADV_COLLAPSE) == 0);
	counted("thp_collapse_alloc", 1, "thp_file_mapped", 1);
	in_a_child(load, shared, HUGE / PAGE);
	counted("thp_file_mapped", 1, "", 0);
	char *small = aligned(HUGE, MAP_PRIVATE);
	store(small, HUGE / PAGE);
	counted("", 0, "", 0);
	NEED(madvise(small, HUGE, MADV_COLLAPSE) == 0);
	counted("thp_collapse_alloc", 1, "", 0);
	NEED(madvise(small, HUGE, MADV_PAGEOUT) == 0);
	begin();
	NEED(madvise(small, HUGE, MADV_COLLAPSE) == 0);
	/* The collapse swaps in each page separately, and each page swapped in counts as a major fault. */
	long read = event("pswpin") - before[EVENTS - 1];
	CHECK_EQ(read, HUGE / PAGE);
	before[2]++;
	counted("pgmajfault", read, "pswpin", read);
	munmap(shared, HUGE);
}

static void merged_pages(void)
{
	char *memory = aligned(SIZE, MAP_PRIVATE);
	for (int i = 0; i < PAGES; i++)
		memset(memory + i * PAGE, 7, PAGE);
	NEED(madvise(memory, SIZE, MADV_MERGEABLE) == 0);
	set(KSM "sleep_millisecs", "0");
	set(KSM "pages_to_scan", "1000");
	set(KSM "run", "1");
	char text[32] = "";
	for (int tries = 0; atol(text) != PAGES - 1 && tries < 1000; tries++) {
		usleep(10000);
		int file = open(KSM "pages_sharing", O_RDONLY);
		NEED(file >= 0 && read(file, text, sizeof text - 1) > 0);
		close(file);
	}
	set(KSM "run", "0");
	usleep(50000);
	NEED(atol(text) == PAGES - 1);
	begin();
	store(memory, 8);
	counted("cow_ksm", 8, "", 0);
	in_a_child(store, memory, PAGES);
	counted("cow_ksm", PAGES - 8, "", 0);
	/* 8 of these 16 pages are still merged. MADV_UNMERGEABLE copies each of them. */
	NEED(madvise(memory, 16 * PAGE, MADV_UNMERGEABLE) == 0);
	counted("cow_ksm", 8, "", 0);
	set(KSM "run", "2");
	set(KSM "run", "0");
	counted("cow_ksm", PAGES - 16, "", 0);
}

/* Returns the number of faults since the previous call. */
static long faults(void)
{
	static long last;
	long now = event("pgfault"), since = now - last;
	last = now;
	return since;
}

/* A call that populates memory and fails takes two faults on the page at which it fails, or one fault if it
 * fails at the first page. */
static void pages_beyond_the_end(void)
{
	int file = memfd_create("short", 0);
	NEED(file >= 0 && ftruncate(file, SIZE) == 0);
	char *memory = mmap(NULL, 2 * SIZE, RW, MAP_SHARED, file, 0);
	NEED(memory != MAP_FAILED);
	/* Makes the memory that the checks write to exclusive to this process again after the forks. */
	CHECK_FAILS(madvise(memory + 1, PAGE, MADV_POPULATE_READ), EINVAL);
	faults();
	CHECK_EQ(faults() >= 0, 1);
	faults();
	CHECK_FAILS(madvise(memory, 2 * SIZE, MADV_POPULATE_WRITE), EFAULT);
	CHECK_EQ(faults(), PAGES + 2);
	CHECK_FAILS(madvise(memory, 2 * SIZE, MADV_POPULATE_READ), EFAULT);
	CHECK_EQ(faults(), 2);
	CHECK_FAILS(madvise(memory + SIZE, SIZE, MADV_POPULATE_READ), EFAULT);
	CHECK_EQ(faults(), 1);
	CHECK_FAILS(mlock(memory, 2 * SIZE), ENOMEM);
	CHECK_EQ(faults(), 2);
	CHECK_FAILS(mlock(memory + SIZE, SIZE), ENOMEM);
	CHECK_EQ(faults(), 1);
	NEED(munlock(memory, 2 * SIZE) == 0);
	faults();
	char *other = aligned(2 * SIZE, MAP_PRIVATE);
	other = mmap(other, 2 * SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE | MAP_FIXED, file, 0);
	NEED(other != MAP_FAILED);
	/* Each fault maps 16 pages. Two more faults are beyond the end of the file. */
	CHECK_EQ(faults(), PAGES / 16 + 2);
	CHECK(mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE, file, (off_t)SIZE) != MAP_FAILED);
	CHECK_EQ(faults(), 1);
	close(file);
}

int main(void)
{
	huge_pages();
	merged_pages();
	pages_beyond_the_end();
	return checked("event_counts");
}
