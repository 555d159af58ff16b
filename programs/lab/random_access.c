/* Increments bytes of 200,000 pages that are drawn at random from 192 MiB, with a fixed seed, and prints how many of the
 * accesses read a page from swap. Run with less memory. An eighth of each page is not compressible.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { PAGE = 4096, PAGES = 192 << 8, ACCESSES = 200000, WORDS = PAGE / sizeof(uint64_t), RANDOM_WORDS = WORDS / 8 };

static uint64_t next(void)
{
	static uint64_t state = 1;
	return state = state * 6364136223846793005 + 1442695040888963407;
}

static long major_faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_majflt;
}

int main(void)
{
	char *memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	for (int page = 0; page < PAGES; page++) {
		uint64_t *words = (uint64_t *)(memory + (size_t)page * PAGE);
		for (unsigned i = 0; i < WORDS; i++)
			words[i] = i < RANDOM_WORDS ? next() : 7;
	}
	long before = major_faults();
	for (int i = 0; i < ACCESSES; i++)
		memory[(next() >> 33) % PAGES * PAGE]++;
	printf("%ld\n", major_faults() - before);
	return 0;
}
