/* Are pages of files in memory swapped out if no process maps the files, and only system calls write and read
 * them?
 *
 * The files are larger than the memory. While they are in use, none of the program's other requests may fail for lack
 * of memory. Without a swap device the files are small.
 *
 * Usage: swap_calls [MEBIBYTES], the size of the largest file.
 */
#include "check.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/uio.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 2
#endif

#define RW (PROT_READ | PROT_WRITE)
#define MIB 256UL

static int memory_file(void)
{
	int file = syscall(SYS_memfd_create, "calls", MFD_ALLOW_SEALING);
	NEED(file >= 0);
	return file;
}

/* Fills a page with its number and its age at many offsets, so that the page compresses well. */
static void stamp(char *page, unsigned long number, unsigned long age)
{
	unsigned long *words = (unsigned long *)page;
	for (int i = 0; i < 512; i++)
		words[i] = i % 4 ? number : number << 32 | age;
}

static int is_stamped(const char *page, unsigned long number, unsigned long age)
{
	const unsigned long *words = (const unsigned long *)page;
	for (int i = 0; i < 512; i++)
		if (words[i] != (i % 4 ? number : number << 32 | age))
			return 0;
	return 1;
}

static void write_pages(int file, unsigned long first, unsigned long pages, unsigned long age)
{
	static char bytes[16 * PAGE];
	for (unsigned long page = first; page < first + pages; page += 16) {
		unsigned long count = first + pages - page < 16 ? first + pages - page : 16;
		for (unsigned long i = 0; i < count; i++)
			stamp(bytes + i * PAGE, page + i, age);
		NEED(pwrite(file, bytes, count * PAGE, page * PAGE) == (long)(count * PAGE));
	}
}

/* Returns the number of pages with unexpected contents. */
static unsigned long wrong(int file, unsigned long first, unsigned long pages, unsigned long age)
{
	static char bytes[16 * PAGE];
	unsigned long bad = 0;
	for (unsigned long page = first; page < first + pages; page += 16) {
		unsigned long count = first + pages - page < 16 ? first + pages - page : 16;
		NEED(pread(file, bytes, count * PAGE, page * PAGE) == (long)(count * PAGE));
		for (unsigned long i = 0; i < count; i++)
			bad += !is_stamped(bytes + i * PAGE, page + i, age);
	}
	return bad;
}

static unsigned long state = 88172645463325252UL;

static unsigned long next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Accesses the pages in order, at random, and in order again. */
static void written_and_read(int file, unsigned long pages)
{
	write_pages(file, 0, pages, 1);
	CHECK_EQ(wrong(file, 0, pages, 1), 0);
	for (int i = 0; i < 2000; i++) {
		unsigned long page = next_random() % pages;
		CHECK_EQ(wrong(file, page, 1, 1), 0);
		write_pages(file, page, 1, 1);
	}
	write_pages(file, pages / 3, pages / 3, 2);
	CHECK_EQ(wrong(file, 0, pages / 3, 1), 0);
	CHECK_EQ(wrong(file, pages / 3, pages / 3, 2), 0);
	unsigned long rest = 2 * (pages / 3);
	CHECK_EQ(wrong(file, rest, pages - rest, 1), 0);
}

/* Removing part of a page swaps the page in. Allocations succeed although memory is full. */
static void cut_and_made(int file, unsigned long pages)
{
	static char page[PAGE], zeroes[PAGE];
	for (unsigned long number = 8; number < pages; number += pages / 8) {
		int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
		NEED(pread(file, page, PAGE, number * PAGE) == PAGE);
		CHECK_EQ(fallocate(file, hole, number * PAGE + 100, 200), 0);
		memset(page + 100, 0, 200);
		char found[PAGE];
		NEED(pread(file, found, PAGE, number * PAGE) == PAGE);
		CHECK(memcmp(page, found, PAGE) == 0);
	}
	int other = memory_file();
	CHECK_EQ(fallocate(other, 0, 0, 8 * MIB * PAGE), 0);
	NEED(pread(other, page, PAGE, 5 * MIB * PAGE) == PAGE);
	CHECK(memcmp(page, zeroes, PAGE) == 0);
	NEED(close(other) == 0);
	CHECK_EQ(ftruncate(file, (pages - 5) * PAGE - 1000), 0);
	CHECK_EQ(ftruncate(file, pages * PAGE), 0);
	NEED(pread(file, page, PAGE, (pages - 6) * PAGE) == PAGE);
	CHECK(memcmp(page + PAGE - 1000, zeroes, 1000) == 0 && page[PAGE - 1001] == 0 && page[0] != 0);
}

/* All other allocations of the program succeed too. */
static void not_refused(int file, unsigned long pages)
{
	static char bytes[16 * PAGE], copy[16 * PAGE];
	int ends[2], status;
	CHECK_EQ(wrong(file, 16, 1, 1), 0);
	write_pages(file, 0, pages, 3);
	NEED(pipe(ends) == 0);
	stamp(bytes + 5 * PAGE, 1, 1);
	CHECK_EQ(write(ends[1], bytes, sizeof bytes), (long)sizeof bytes);
	write_pages(file, 0, pages, 4);
	CHECK_EQ(read(ends[0], copy, sizeof copy), (long)sizeof copy);
	CHECK(memcmp(bytes, copy, sizeof copy) == 0);
	NEED(close(ends[0]) == 0 && close(ends[1]) == 0);

	char *memory = mmap(NULL, 4 * MIB * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	CHECK_EQ(madvise(memory, 4 * MIB * PAGE, MADV_POPULATE_WRITE), 0);
	for (unsigned long page = 0; page < 4 * MIB; page++)
		stamp(memory + page * PAGE, page, 9);
	write_pages(file, 0, pages, 5);
	CHECK_EQ(mlock(memory, MIB * PAGE / 4), 0);

	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		write_pages(file, 0, pages / 2, 6);
		for (unsigned long page = 0; page < 4 * MIB; page++)
			if (!is_stamped(memory + page * PAGE, page, 9))
				_exit(1);
		/* Executes a file whose pages are all in swap. */
		char *arguments[] = {"swap_calls", "--exit", NULL}, *none[] = {NULL};
		execve("/proc/self/exe", arguments, none);
		_exit(2);
	}
	NEED(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	CHECK_EQ(wrong(file, 0, pages / 2, 6), 0);

	struct iovec own = {copy, PAGE}, there = {memory + 2 * MIB * PAGE, PAGE};
	CHECK_EQ(process_vm_readv(getpid(), &own, 1, &there, 1, 0), PAGE);
	CHECK(is_stamped(copy, 2 * MIB, 9));
	NEED(munmap(memory, 4 * MIB * PAGE) == 0);
}

/* Swaps out memory that is not mapped any more, and a SysV segment that no process has attached. */
static void shown_no_more(int file, unsigned long pages)
{
	unsigned long some = pages / 8;
	int segment = shmget(IPC_PRIVATE, some * PAGE, 0600), other = memory_file();
	NEED(segment >= 0 && ftruncate(other, some * PAGE) == 0);
	char *memory = shmat(segment, NULL, 0);
	char *shown = mmap(NULL, some * PAGE, RW, MAP_SHARED, other, 0);
	NEED(memory != (char *)-1 && shown != MAP_FAILED);
	for (unsigned long page = 0; page < some; page++) {
		stamp(memory + page * PAGE, page, 7);
		stamp(shown + page * PAGE, page, 8);
	}
	NEED(shmdt(memory) == 0 && munmap(shown, some * PAGE) == 0);
	write_pages(file, 0, pages, 7);
	memory = shmat(segment, NULL, 0);
	NEED(memory != (char *)-1);
	unsigned long bad = 0;
	for (unsigned long page = 0; page < some; page++)
		bad += !is_stamped(memory + page * PAGE, page, 7);
	CHECK_EQ(bad, 0);
	CHECK_EQ(wrong(other, 0, some, 8), 0);
	CHECK_EQ(wrong(file, 0, pages, 7), 0);
	NEED(shmctl(segment, IPC_RMID, NULL) == 0 && shmdt(memory) == 0 && close(other) == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--exit") == 0)
		return 42;
	unsigned long pages = argc > 1 ? strtoul(argv[1], NULL, 0) * MIB : 2 * MIB;
	int file = memory_file();
	written_and_read(file, pages);
	cut_and_made(file, pages);
	not_refused(file, pages);
	shown_no_more(file, pages);
	NEED(close(file) == 0);
	return checked("swap_calls");
}
