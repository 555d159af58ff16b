/* If more memory is used than the machine has, does every page have the right contents after it is swapped in?
 *
 * Several processes together use twice the machine's memory, or the amount in the arguments. Each writes, reads,
 * protects and discards pages and forks at random, and checks the contents of every page. Needs a swap device.
 *
 * Usage: swap_pressure [PROCESSES [MEBIBYTES_EACH [STEPS]]]
 */
#include "check.h"

#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static unsigned long state;

static unsigned long next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Fills a page with its number and age, which occur several times. The majority of the page repeats, so that it
 * compresses well. */
static void stamp(char *page, unsigned long number, unsigned age)
{
	unsigned long *words = (unsigned long *)page;
	for (int i = 0; i < 512; i += 8)
		words[i] = number * 1000003 + age;
}

static int is_stamped(const char *page, unsigned long number, unsigned age)
{
	const unsigned long *words = (const unsigned long *)page;
	unsigned long expected = age ? number * 1000003 + age : 0;
	for (int i = 0; i < 512; i += 8)
		if (words[i] != expected)
			return 0;
	return 1;
}

/* Checks some pages in a forked child, and writes to them there. Returns whether they were right. */
static int child_agrees(char *memory, unsigned char *ages, unsigned long pages)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int right = 1;
		for (int i = 0; i < 200; i++) {
			unsigned long page = next_random() % pages;
			right &= is_stamped(memory + page * PAGE, page, ages[page]);
			ages[page] = 201;
			stamp(memory + page * PAGE, page, ages[page]);
		}
		_exit(right ? 0 : 1);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	return status == 0;
}

static int use(unsigned long seed, unsigned long pages, long steps)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
	unsigned char *ages = calloc(pages, 1);
	NEED(memory != MAP_FAILED && ages);
	state = seed * 2654435761UL + 88172645463325252UL;
	for (unsigned long page = 0; page < pages; page++)
		stamp(memory + page * PAGE, page, ages[page] = 1);
	int right = 1;
	for (long step = 0; step < steps && right; step++) {
		/* In four of five steps, one of the first fifth of the pages is used. */
		unsigned long page = next_random() % (next_random() % 10 < 8 ? pages / 5 : pages);
		char *at = memory + page * PAGE;
		switch (next_random() % 64) {
		case 0:
			NEED(madvise(at, PAGE, MADV_DONTNEED) == 0);
			ages[page] = 0;
			break;
		case 1:
			NEED(mprotect(at, PAGE, PROT_READ) == 0);
			right = is_stamped(at, page, ages[page]);
			NEED(mprotect(at, PAGE, PROT_READ | PROT_WRITE) == 0);
			break;
		case 2:
			if (step % 16 == 0)
				right = child_agrees(memory, ages, pages);
			break;
		case 3 ... 31:
			ages[page] = ages[page] % 200 + 1;
			stamp(at, page, ages[page]);
			break;
		default:
			right = is_stamped(at, page, ages[page]);
		}
		if (!right)
			printf("page %lu is wrong after %ld steps\n", page, step);
	}
	for (unsigned long page = 0; page < pages && right; page++) {
		right = is_stamped(memory + page * PAGE, page, ages[page]);
		if (!right)
			printf("page %lu is wrong at the end\n", page);
	}
	return right;
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 4;
	unsigned long pages = (argc > 2 ? strtoul(argv[2], NULL, 0) : 24) * 256;
	long steps = argc > 3 ? atol(argv[3]) : 20000;
	for (int i = 0; i < processes; i++) {
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			int right = use(i + 1, pages, steps);
			fflush(stdout);
			_exit(right ? 0 : 1);
		}
	}
	for (int i = 0; i < processes; i++) {
		int status = 0;
		NEED(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	return checked("swap_pressure");
}
