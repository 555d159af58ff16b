/* Is a page soft-dirty if it was written since the soft-dirty bits were cleared, and only then?
 *
 * Without an argument, the kernel may track stores in any way. With "no-faults", a store to tracked private memory
 * must not take a page fault; with "faults", it must take one. If the kernel has no soft-dirty bits, nothing is
 * checked.
 */
#include "check.h"

#define PAGES 64

static int pagemap = -1;

static int soft_dirty(const char *page)
{
	uint64_t word = 0;
	off_t offset = (off_t)((uintptr_t)page / PAGE * sizeof word);
	NEED(pread(pagemap, &word, sizeof word, offset) == sizeof word);
	return word >> 55 & 1;
}

static int count(const char *memory, int pages)
{
	int found = 0;
	for (int page = 0; page < pages; page++)
		found += soft_dirty(memory + page * PAGE);
	return found;
}

static void clear(void)
{
	int file = open("/proc/self/clear_refs", O_WRONLY);
	NEED(file >= 0 && write(file, "4", 1) == 1);
	close(file);
}

/* Returns the number of page faults that this process has taken. */
static long faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

/* Maps memory between inaccessible pages, so that it does not merge with other areas. */
static char *fresh(int pages)
{
	char *room = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	NEED(mprotect(room + PAGE, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
	return room + PAGE;
}

static void stores(long wanted)
{
	char *memory = fresh(PAGES);
	memset(memory, 1, PAGES * PAGE);
	CHECK_EQ(count(memory, PAGES), PAGES);
	clear();
	CHECK_EQ(count(memory, PAGES), 0);
	volatile char sum = 0;
	for (int page = 0; page < PAGES; page++)
		sum += memory[page * PAGE];
	CHECK_EQ(count(memory, PAGES), 0);
	long before = faults();
	for (int page = 0; page < PAGES; page += 2)
		memory[page * PAGE] = 2;
	long taken = faults() - before;
	if (wanted >= 0)
		CHECK_EQ(taken, wanted * PAGES / 2);
	for (int page = 0; page < PAGES; page++)
		CHECK_EQ(soft_dirty(memory + page * PAGE), page % 2 == 0);
	munmap(memory, PAGES * PAGE);
}

/* Stores that the kernel makes for the program count as writes. */
static void kernel_writes(void)
{
	char *memory = fresh(4);
	memset(memory, 1, 4 * PAGE);
	int ends[2];
	NEED(pipe(ends) == 0 && write(ends[1], "data", 4) == 4);
	clear();
	CHECK_EQ(read(ends[0], memory + PAGE, 4), 4);
	CHECK_EQ(write(ends[1], memory + 2 * PAGE, 1), 1);
	CHECK_EQ(count(memory, 4), 1);
	CHECK(soft_dirty(memory + PAGE));
	struct stat stat;
	CHECK_EQ(fstat(ends[0], (struct stat *)(void *)(memory + 3 * PAGE)), fstat(ends[0], &stat));
	CHECK(soft_dirty(memory + 3 * PAGE));
	close(ends[0]);
	close(ends[1]);
	munmap(memory, 4 * PAGE);
}

/* Unpopulated memory is soft-dirty until the bits are cleared, and again after it was discarded and written. */
static void unpopulated(void)
{
	char *memory = fresh(4);
	CHECK_EQ(count(memory, 4), 4);
	clear();
	CHECK_EQ(count(memory, 4), 0);
	memory[PAGE] = 1;
	CHECK(soft_dirty(memory + PAGE));
	clear();
	madvise(memory + PAGE, PAGE, MADV_DONTNEED);
	CHECK_EQ(count(memory, 4), 0);
	volatile char seen = memory[PAGE];
	CHECK_EQ(seen, 0);
	CHECK_EQ(count(memory, 4), 0);
	memory[PAGE] = 1;
	CHECK_EQ(count(memory, 4), 1);
	munmap(memory, 4 * PAGE);
}

/* A permission change does not count as a store, and hides no earlier store. */
static void protection(void)
{
	char *memory = fresh(4);
	memset(memory, 1, 4 * PAGE);
	clear();
	memory[0] = 2;
	NEED(mprotect(memory, 4 * PAGE, PROT_READ) == 0);
	CHECK_EQ(count(memory, 4), 1);
	NEED(mprotect(memory, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK_EQ(count(memory, 4), 1);
	memory[PAGE] = 2;
	CHECK_EQ(count(memory, 4), 2);
	NEED(mprotect(memory, 4 * PAGE, PROT_NONE) == 0);
	NEED(mprotect(memory, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK_EQ(count(memory, 4), 2);
	munmap(memory, 4 * PAGE);
}

/* Each process has its own soft-dirty bits, also for pages that it shares. */
static void family(void)
{
	char *memory = fresh(4);
	memset(memory, 1, 4 * PAGE);
	clear();
	memory[0] = 2;
	pid_t child = fork();
	if (child == 0) {
		close(pagemap);
		pagemap = open("/proc/self/pagemap", O_RDONLY);
		NEED(pagemap >= 0);
		CHECK(soft_dirty(memory));
		CHECK_EQ(count(memory, 4), 1);
		memory[PAGE] = 3;
		CHECK_EQ(count(memory, 4), 2);
		clear();
		CHECK_EQ(count(memory, 4), 0);
		memory[2 * PAGE] = 3;
		CHECK_EQ(count(memory, 4), 1);
		_exit(checks_failed != 0);
	}
	int status = 0;
	NEED(child > 0 && waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK_EQ(count(memory, 4), 1);
	/* The pages are exclusive to this process again. */
	NEED(mprotect(memory, 4 * PAGE, PROT_READ) == 0);
	NEED(mprotect(memory, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK_EQ(count(memory, 4), 1);
	memory[3 * PAGE] = 2;
	CHECK_EQ(count(memory, 4), 2);
	munmap(memory, 4 * PAGE);
}

/* A store through one mapping of a shared object does not count for another mapping. */
static void shared(void)
{
	int file = (int)syscall(SYS_memfd_create, "shared", 0);
	NEED(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	char *one = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *two = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(one != MAP_FAILED && two != MAP_FAILED);
	memset(one, 1, 4 * PAGE);
	memset(two, 1, 4 * PAGE);
	clear();
	one[PAGE] = 2;
	two[2 * PAGE] = 2;
	CHECK_EQ(count(one, 4), 1);
	CHECK_EQ(count(two, 4), 1);
	CHECK(soft_dirty(one + PAGE) && soft_dirty(two + 2 * PAGE));
	/* Writes to a private copy of one of the object's pages. */
	char *copy = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	NEED(copy != MAP_FAILED);
	CHECK_EQ(copy[PAGE], 2);
	clear();
	CHECK_EQ(count(copy, 4), 0);
	copy[PAGE] = 3;
	CHECK_EQ(count(copy, 4), 1);
	CHECK_EQ(one[PAGE], 2);
	munmap(one, 4 * PAGE);
	munmap(two, 4 * PAGE);
	munmap(copy, 4 * PAGE);
	close(file);
}

static void moved(void)
{
	char *memory = fresh(4), *target = fresh(4);
	memset(memory, 1, 4 * PAGE);
	clear();
	NEED(mremap(memory, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
	CHECK_EQ(count(target, 2), 2);
	CHECK_EQ(count(memory + 2 * PAGE, 2), 0);
	munmap(memory + 2 * PAGE, 2 * PAGE);
	munmap(target, 4 * PAGE);
}

/* Returns whether the kernel has soft-dirty bits. */
static int kept(void)
{
	char *memory = fresh(1);
	memory[0] = 1;
	int kept = soft_dirty(memory);
	munmap(memory, PAGE);
	return kept;
}

int main(int count, char **arguments)
{
	long wanted = -1;
	if (count > 1)
		wanted = strcmp(arguments[1], "faults") == 0;
	pagemap = open("/proc/self/pagemap", O_RDONLY);
	NEED(pagemap >= 0);
	if (kept()) {
		stores(wanted);
		kernel_writes();
		unpopulated();
		protection();
		family();
		shared();
		moved();
	}
	return checked("soft_dirty");
}
