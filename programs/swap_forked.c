/* If pages that a process shares with its children are swapped out, does each process read them back, and is none
 * killed?
 *
 * While one process still maps a page, a copy of it in compressed memory takes space but frees none. A kernel
 * that writes the copy before the last process unmaps the page therefore runs out of memory while swap is
 * almost empty. The pages compress to about a third. Needs a swap device. The machine's memory must hold the
 * shared pages, but not the shared and the other pages together.
 *
 * Usage: swap_forked [MEBIBYTES_SHARED [CHILDREN [OTHER_MEBIBYTES]]]
 */
#include "check.h"

#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW (PROT_READ | PROT_WRITE)
#define WORDS (PAGE / sizeof(unsigned long))

static unsigned long *memory;
static unsigned long pages;

/* Returns one word of a page's noise. All words differ. */
static unsigned long noise(unsigned long page, unsigned long word)
{
	unsigned long value = page * WORDS + word + 88172645463325252UL;
	value *= 0x9e3779b97f4a7c15UL;
	value ^= value >> 29;
	value *= 0xbf58476d1ce4e5b9UL;
	return value ^ value >> 32;
}

static int is_as_written(unsigned long page)
{
	for (unsigned long word = 0; word < WORDS / 3; word += 20)
		if (memory[page * WORDS + word] != noise(page, word))
			return 0;
	return 1;
}

/* Reads every page. Writes to some pages, which makes them private. */
static int use(unsigned long own)
{
	for (unsigned long page = 0; page < pages; page++) {
		if (!is_as_written(page)) {
			printf("page %lu is not as it was written\n", page);
			return 1;
		}
		if (page % 64 == own % 64)
			memory[page * WORDS] = own;
	}
	for (unsigned long page = own % 64; page < pages; page += 64)
		if (memory[page * WORDS] != own) {
			printf("page %lu: another process's store\n", page);
			return 1;
		}
	return 0;
}

int main(int argc, char **argv)
{
	pages = (argc > 1 ? strtoul(argv[1], NULL, 0) : 40) * 256;
	int children = argc > 2 ? atoi(argv[2]) : 2;
	unsigned long others = (argc > 3 ? strtoul(argv[3], NULL, 0) : 40) * 256;
	int ends[2];
	memory = mmap(NULL, pages * PAGE, RW, PRIVATE, -1, 0);
	NEED(memory != MAP_FAILED && pipe(ends) == 0);
	for (unsigned long page = 0; page < pages; page++)
		for (unsigned long word = 0; word < WORDS / 3; word++)
			memory[page * WORDS + word] = noise(page, word);
	for (int child = 0; child < children; child++) {
		pid_t pid = fork();
		NEED(pid >= 0);
		if (pid == 0) {
			char byte;
			close(ends[1]);
			/* The read returns 0 when the parent has used its other memory and closes the pipe. */
			NEED(read(ends[0], &byte, 1) == 0);
			int failed = use(child + 1);
			fflush(stdout);
			_exit(failed);
		}
	}
	char *other = mmap(NULL, others * PAGE, RW, PRIVATE, -1, 0);
	NEED(other != MAP_FAILED);
	for (int round = 0; round < 2; round++)
		for (unsigned long page = 0; page < others; page++)
			other[page * PAGE + round] = page;
	close(ends[1]);
	CHECK_EQ(use(children + 1), 0);
	for (int child = 0; child < children; child++) {
		int status = -1;
		NEED(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	return checked("swap_forked");
}
