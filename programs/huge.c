/* Do huge pages behave as small pages do?
 *
 * Memory with MADV_HUGEPAGE is shared by fork, written in every order, and protected, unmapped, discarded and moved
 * completely and in part. Contents, permissions and residency must be the same as with small pages. A collapse makes
 * the pages huge again. Whether pages are huge is checked only if the kernel has huge pages.
 */
#include "check.h"

#include <sys/prctl.h>

#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#define MADV_NOHUGEPAGE 15
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef PR_SET_THP_DISABLE
#define PR_SET_THP_DISABLE 41
#define PR_GET_THP_DISABLE 42
#endif

#define HUGE (512 * PAGE)

/* Whether new memory with MADV_HUGEPAGE gets huge pages. */
static int gives_huge;

/* Returns the KiB of 2 MiB pages in the area that begins at this address. */
static long huge_kib(const char *address)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long start;
	long kib = -1;
	int here = 0;
	NEED(file);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-", &start) == 1 && strchr(line, '-') && strchr(line, ' '))
			here = start == (unsigned long)address;
		if (here && sscanf(line, "AnonHugePages: %ld kB", &kib) == 1)
			break;
	}
	fclose(file);
	return kib;
}

/* Returns aligned memory with MADV_HUGEPAGE, between inaccessible pages. */
static char *fresh(int huge_pages, int advice)
{
	size_t size = huge_pages * HUGE;
	char *room = mmap(NULL, size + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(room != MAP_FAILED);
	char *memory = (char *)(((uintptr_t)room + HUGE) & ~(uintptr_t)(HUGE - 1));
	NEED(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
	NEED(madvise(memory, size, advice) == 0);
	return memory;
}

static void fill(char *memory, size_t pages)
{
	for (size_t page = 0; page < pages; page++)
		memset(memory + page * PAGE, (int)(page % 251) + 1, 8);
}

/* Returns the number of pages in the range whose contents are not those that `fill` wrote. */
static int wrong(const char *memory, size_t first, size_t end)
{
	int count = 0;
	for (size_t page = first; page < end; page++)
		for (int byte = 0; byte < 8; byte++)
			count += memory[page * PAGE + byte] != (char)(page % 251 + 1);
	return count;
}

static void first_touch(void)
{
	char *memory = fresh(2, MADV_HUGEPAGE);
	CHECK_EQ(*(volatile char *)(memory + 5 * PAGE), 0);
	memory[7 * PAGE] = 1;
	gives_huge = huge_kib(memory) == 2048;
	CHECK_EQ(memory[6 * PAGE], 0);
	CHECK_EQ(memory[7 * PAGE], 1);
	long before = faults_taken();
	memory[HUGE + 1] = 1;
	memory[HUGE + 511 * PAGE] = 1;
	if (gives_huge) {
		CHECK_EQ(faults_taken() - before, 1);
		CHECK_EQ(huge_kib(memory), 4096);
	}
	unsigned char resident[1024];
	CHECK_EQ(mincore(memory, 2 * HUGE, resident), 0);
	CHECK(resident[7] & 1);
	CHECK_EQ(munmap(memory, 2 * HUGE), 0);
	memory = fresh(1, MADV_NOHUGEPAGE);
	fill(memory, 512);
	CHECK_EQ(huge_kib(memory), 0);
	CHECK_EQ(munmap(memory, HUGE), 0);
}

/* Parent and child write in the order that `order` gives: p (parent) and c (child) write to the first page, P
 * and C to the last page. */
static void share(const char *order)
{
	char *memory = fresh(1, MADV_HUGEPAGE);
	struct turns turns;
	fill(memory, 512);
	NEED(turns_open(&turns));
	pid_t child = fork_checked();
	NEED(child >= 0);
	for (const char *who = order; *who; who++) {
		int upper = *who == 'P' || *who == 'C', by_child = *who == 'c' || *who == 'C';
		char *place = memory + (upper ? 511 * PAGE : 0) + 100;
		if (by_child != (child == 0)) {
			if (child == 0)
				NEED(turn_await(turns.to_child));
			else
				NEED(turn_await(turns.to_parent));
			CHECK_EQ(*place, 0);
			continue;
		}
		*place = *who;
		CHECK_EQ(*place, *who);
		*place = 0;
		NEED(turn_pass(child == 0 ? turns.to_parent : turns.to_child));
	}
	CHECK_EQ(wrong(memory, 0, 512), 0);
	if (child == 0)
		end_child();
	CHECK(exited(wait_for(child), 0));
	turns_close(&turns);
	memory[300 * PAGE + 100] = 'x';
	CHECK_EQ(wrong(memory, 0, 512), 0);
	CHECK_EQ(munmap(memory, HUGE), 0);
}

static void stay(void *memory)
{
	CHECK_EQ(wrong(memory, 0, 512), 0);
	((char *)memory)[9 * PAGE] = 'c';
}

static void in_part(void)
{
	char *memory = fresh(3, MADV_HUGEPAGE);
	fill(memory, 3 * 512);
	CHECK_EQ(mprotect(memory + 10 * PAGE, 10 * PAGE, PROT_READ), 0);
	memory[9 * PAGE + 100] = memory[20 * PAGE + 100] = 1;
	CHECK_EQ(wrong(memory, 0, 3 * 512), 0);
	CHECK_EQ(mprotect(memory + 10 * PAGE, 10 * PAGE, PROT_READ | PROT_WRITE), 0);
	memory[15 * PAGE + 100] = 1;
	CHECK(exited(in_child(stay, memory), 0));
	CHECK_EQ(wrong(memory, 0, 512), 0);
	/* Unmapping makes a hole in the second huge page. */
	CHECK_EQ(munmap(memory + HUGE + 5 * PAGE, PAGE), 0);
	unsigned char resident;
	CHECK_FAILS(mincore(memory + HUGE + 5 * PAGE, PAGE, &resident), ENOMEM);
	CHECK_EQ(wrong(memory, 512, 517), 0);
	CHECK_EQ(wrong(memory, 518, 1024), 0);
	/* Discarded pages read as zeroes, and the other pages keep their contents. */
	CHECK_EQ(madvise(memory + 2 * HUGE, 100 * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(memory[2 * HUGE + 99 * PAGE], 0);
	CHECK_EQ(wrong(memory, 1124, 1536), 0);
	CHECK_EQ(munmap(memory, 3 * HUGE), 0);
}

static void moved(void)
{
	char *memory = fresh(2, MADV_HUGEPAGE), *target = fresh(4, MADV_HUGEPAGE);
	fill(memory, 1024);
	CHECK_EQ(mremap(memory, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target), target);
	CHECK_EQ(wrong(target, 0, 512), 0);
	if (gives_huge)
		CHECK_EQ(huge_kib(target), 2048);
	/* A move to an address that is not aligned to 2 MiB maps small pages. */
	char *odd = target + HUGE + 3 * PAGE;
	CHECK_EQ(mremap(memory + HUGE, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, odd), odd);
	CHECK_EQ(wrong(odd - HUGE, 512, 1024), 0);
	CHECK_EQ(munmap(target, 4 * HUGE), 0);
}

static void collapsed(void)
{
	char *memory = fresh(1, MADV_NOHUGEPAGE);
	fill(memory, 300);
	CHECK_FAILS(madvise(memory, HUGE, MADV_COLLAPSE), EINVAL);
	CHECK_EQ(madvise(memory, HUGE, MADV_HUGEPAGE), 0);
	int done = madvise(memory, HUGE, MADV_COLLAPSE) == 0;
	/* The call may fail if the kernel has no collapse or no contiguous free memory. */
	CHECK(done || errno == EINVAL || errno == ENOMEM || errno == EAGAIN);
	if (done)
		CHECK_EQ(huge_kib(memory), 2048);
	CHECK_EQ(wrong(memory, 0, 300), 0);
	CHECK_EQ(memory[300 * PAGE], 0);
	memory[400 * PAGE] = 1;
	CHECK_EQ(munmap(memory, HUGE), 0);
}

static void refused(void)
{
	CHECK_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1);
	CHECK_FAILS(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0), EINVAL);
	char *memory = fresh(1, MADV_HUGEPAGE);
	memory[0] = 1;
	CHECK_EQ(huge_kib(memory), 0);
	CHECK_EQ(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
	CHECK_EQ(munmap(memory, HUGE), 0);
}

/* Returns two bits of the page's entry in pagemap: whether it is present, and whether it is a page of a file. */
static int shown_as(const char *page)
{
	uint64_t word = 0;
	int words = open("/proc/self/pagemap", O_RDONLY);
	NEED(words >= 0);
	NEED(pread(words, &word, sizeof word, (off_t)((uintptr_t)page / PAGE * sizeof word)) == sizeof word);
	close(words);
	return (int)(word >> 63 << 1 | (word >> 61 & 1));
}

/* Neither the huge zero page nor the small zero page that replaces its parts is a page of a file. */
static void zeroes(void)
{
	char *memory = fresh(1, MADV_HUGEPAGE);
	CHECK_EQ(memory[0], 0);
	if (gives_huge) {
		CHECK_EQ(shown_as(memory + 5 * PAGE), 2);
		CHECK_EQ(madvise(memory, PAGE, MADV_DONTNEED), 0);
	}
	CHECK_EQ(memory[5 * PAGE], 0);
	CHECK_EQ(shown_as(memory + 5 * PAGE), 2);
	munmap(memory, HUGE);
}

int main(void)
{
	static const char *const orders[] = { "pc", "cp", "pcPC", "cCpP", "PcCp", "ccpp", "" };
	first_touch();
	for (unsigned i = 0; i < sizeof orders / sizeof *orders; i++)
		share(orders[i]);
	in_part();
	moved();
	collapsed();
	refused();
	zeroes();
	return checked("huge");
}
