/* Are pages swapped out and in with their contents, whether exclusive or not, with their tracking state, and counted as
 * on Linux? Needs a swap device.
 */
#include "check.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define PAGES 64

#define WORD_SOFT_DIRTY (1ULL << 55)
#define WORD_PROTECTED (1ULL << 57)
#define WORD_SWAPPED (1ULL << 62)
#define WORD_PRESENT (1ULL << 63)

static unsigned long state = 88172645463325252UL;

static unsigned long next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Fills pages with contents of three kinds: a repeated word, partly noise, and only noise. */
static void fill(char *memory, int pages, unsigned long seed)
{
	for (int page = 0; page < pages; page++) {
		state = (seed + page) * 2654435761UL + 1;
		unsigned long *words = (unsigned long *)(memory + page * PAGE);
		for (int i = 0; i < 512; i++)
			words[i] = page % 3 == 0 ? seed + page : page % 3 == 1 && i >= 200 ? 7 : next_random();
	}
}

static int filled(const char *memory, int pages, unsigned long seed)
{
	static char expected[PAGES * PAGE];
	NEED(pages <= PAGES);
	fill(expected, pages, seed);
	return memcmp(memory, expected, pages * PAGE) == 0;
}

static unsigned long word(const void *page)
{
	unsigned long word = 0;
	int file = open("/proc/self/pagemap", O_RDONLY);
	NEED(file >= 0);
	NEED(pread(file, &word, 8, (unsigned long)page / PAGE * 8) == 8);
	close(file);
	return word;
}

static int in_swap(const char *memory, int pages)
{
	int count = 0;
	for (int page = 0; page < pages; page++)
		count += (word(memory + page * PAGE) & WORD_SWAPPED) != 0;
	return count;
}

static long number_in(const char *path, const char *name)
{
	static char text[1 << 16];
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	long length = 0, more;
	while ((more = read(file, text + length, sizeof text - 1 - length)) > 0)
		length += more;
	close(file);
	text[length] = 0;
	char *row = strstr(text, name);
	NEED(row);
	return strtol(row + strlen(name), NULL, 10);
}

static struct rusage used(void)
{
	struct rusage usage;
	NEED(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage;
}

static char *fresh(int pages)
{
	char *memory = mmap(NULL, pages * PAGE, RW, PRIVATE, -1, 0);
	NEED(memory != MAP_FAILED);
	return memory;
}

static void page_out(char *memory, int pages)
{
	NEED(madvise(memory, pages * PAGE, MADV_PAGEOUT) == 0);
}

static void out_and_in(void)
{
	char *memory = fresh(PAGES);
	fill(memory, PAGES, 1);
	long out = number_in("/proc/vmstat", "pswpout "), in = number_in("/proc/vmstat", "pswpin ");
	long free_before = number_in("/proc/meminfo", "SwapFree:");
	page_out(memory, PAGES);
	CHECK_EQ(in_swap(memory, PAGES), PAGES);
	CHECK_EQ(number_in("/proc/self/status", "VmSwap:"), PAGES * 4);
	CHECK_EQ(number_in("/proc/meminfo", "SwapFree:"), free_before - PAGES * 4);
	CHECK_EQ(number_in("/proc/vmstat", "pswpout ") - out, PAGES);
	unsigned char resident[PAGES];
	NEED(mincore(memory, PAGES * PAGE, resident) == 0);
	CHECK_EQ(resident[0] & 1, 0);
	struct rusage before = used();
	CHECK(filled(memory, PAGES, 1));
	struct rusage after = used();
	/* Each page is swapped in alone or together with its neighbours. */
	CHECK(after.ru_majflt - before.ru_majflt >= PAGES / 16 && after.ru_majflt - before.ru_majflt <= PAGES);
	/* A write to a page that was swapped in takes no fault, and the written contents survive another swap-out and
	 * swap-in. */
	before = used();
	for (int page = 0; page < PAGES; page += 2)
		memory[page * PAGE] ^= 1;
	after = used();
	CHECK_EQ(after.ru_minflt - before.ru_minflt + after.ru_majflt - before.ru_majflt, 0);
	page_out(memory, PAGES);
	for (int page = 0; page < PAGES; page += 2)
		memory[page * PAGE] ^= 1;
	CHECK(filled(memory, PAGES, 1));
	CHECK(number_in("/proc/vmstat", "pswpin ") - in >= 2 * PAGES);
	page_out(memory, PAGES);
	NEED(munmap(memory, PAGES * PAGE) == 0);
	CHECK_EQ(number_in("/proc/meminfo", "SwapFree:"), free_before);
}

static void over_fork(void)
{
	char *memory = fresh(PAGES);
	fill(memory, PAGES, 2);
	page_out(memory, PAGES);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int right = filled(memory, PAGES / 2, 2);
		fill(memory, PAGES, 3);
		page_out(memory, PAGES);
		_exit(right && filled(memory, PAGES, 3) ? 0 : 1);
	}
	for (int page = 1; page < PAGES; page += 2)
		memory[page * PAGE] ^= 1;
	for (int page = 1; page < PAGES; page += 2)
		memory[page * PAGE] ^= 1;
	int status;
	NEED(waitpid(child, &status, 0) == child);
	/* The parent's later writes are not visible in the child. */
	CHECK_EQ(status, 0);
	CHECK(filled(memory, PAGES, 2));
	NEED(munmap(memory, PAGES * PAGE) == 0);
}

static void moved_and_thrown_away(void)
{
	char *memory = fresh(8);
	fill(memory, 8, 4);
	page_out(memory, 8);
	char *moved = mremap(memory, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	NEED(moved != MAP_FAILED);
	CHECK_EQ(in_swap(moved, 8), 8);
	CHECK_EQ(in_swap(memory, 8), 0);
	CHECK(filled(moved, 8, 4));
	page_out(moved, 8);
	NEED(madvise(moved, 4 * PAGE, MADV_DONTNEED) == 0);
	CHECK_EQ(in_swap(moved, 8), 4);
	CHECK_EQ(moved[0], 0);
	NEED(mprotect(moved, 8 * PAGE, PROT_READ) == 0);
	volatile char *kept = moved + 5 * PAGE;
	(void)*kept;
	CHECK(in_swap(moved, 8) <= 3);
	NEED(mprotect(moved, 8 * PAGE, RW) == 0);
	struct rusage before = used();
	*kept = 1;
	struct rusage after = used();
	CHECK_EQ(after.ru_minflt - before.ru_minflt, 0);
	NEED(munmap(memory, 8 * PAGE) == 0 && munmap(moved, 8 * PAGE) == 0);
}

static void clear_soft_dirty(void)
{
	int file = open("/proc/self/clear_refs", O_WRONLY);
	NEED(file >= 0 && write(file, "4", 1) == 1);
	close(file);
}

static void soft_dirty(void)
{
	char *memory = fresh(3);
	fill(memory, 3, 5);
	clear_soft_dirty();
	memory[PAGE] = 1;
	page_out(memory, 3);
	CHECK(!(word(memory) & WORD_SOFT_DIRTY));
	CHECK(word(memory + PAGE) & WORD_SOFT_DIRTY);
	(void)*(volatile char *)memory;
	(void)*(volatile char *)(memory + PAGE);
	CHECK(!(word(memory) & WORD_SOFT_DIRTY));
	CHECK(word(memory + PAGE) & WORD_SOFT_DIRTY);
	memory[0] = 2;
	CHECK(word(memory) & WORD_SOFT_DIRTY);
	clear_soft_dirty();
	CHECK(!(word(memory + 2 * PAGE) & WORD_SOFT_DIRTY));
	memory[2 * PAGE] = 1;
	CHECK(word(memory + 2 * PAGE) & WORD_SOFT_DIRTY);
	NEED(munmap(memory, 3 * PAGE) == 0);
}

static void write_protected(void)
{
	char *memory = fresh(4);
	fill(memory, 4, 6);
	int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	NEED(watcher >= 0);
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	NEED(ioctl(watcher, UFFDIO_API, &api) == 0);
	struct uffdio_register range = {
		.range = { (unsigned long)memory, 4 * PAGE },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	NEED(ioctl(watcher, UFFDIO_REGISTER, &range) == 0);
	struct uffdio_writeprotect protect = {
		.range = { (unsigned long)memory, 2 * PAGE },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	NEED(ioctl(watcher, UFFDIO_WRITEPROTECT, &protect) == 0);
	page_out(memory, 4);
	CHECK_EQ(in_swap(memory, 4), 4);
	CHECK(word(memory) & WORD_PROTECTED);
	CHECK(!(word(memory + 3 * PAGE) & WORD_PROTECTED));
	CHECK(filled(memory, 4, 6));
	CHECK(word(memory) & WORD_PROTECTED);
	protect.mode = 0;
	NEED(ioctl(watcher, UFFDIO_WRITEPROTECT, &protect) == 0);
	memory[0] = 1;
	CHECK(!(word(memory) & WORD_PROTECTED));
	close(watcher);
	NEED(munmap(memory, 4 * PAGE) == 0);
}

static void what_stays(void)
{
	char *memory = fresh(4);
	fill(memory, 4, 7);
	NEED(mlock(memory, 4 * PAGE) == 0);
	CHECK_FAILS(madvise(memory, 4 * PAGE, MADV_PAGEOUT), EINVAL);
	NEED(munlock(memory, 4 * PAGE) == 0);
	page_out(memory, 4);
	NEED(mlock(memory, 4 * PAGE) == 0);
	CHECK_EQ(in_swap(memory, 4), 0);
	CHECK(filled(memory, 4, 7));
	NEED(munmap(memory, 4 * PAGE) == 0);
}

int main(void)
{
	if (number_in("/proc/meminfo", "SwapTotal:") == 0) {
		printf("no swap\n");
		return 1;
	}
	out_and_in();
	over_fork();
	moved_and_thrown_away();
	soft_dirty();
	write_protected();
	what_stays();
	return checked("swap");
}
