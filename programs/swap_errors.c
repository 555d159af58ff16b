/* If the swap device sometimes fails, is every byte right, and does no process die that handles SIGBUS?
 *
 * Several processes use more memory than the machine has, each with private pages and with pages that it shares with
 * a child. If a page cannot be read from swap, the access raises SIGBUS and is repeated until it succeeds. Needs a
 * swap device that fails, such as that of --policy swap-errors=N.
 *
 * Usage: swap_errors [PROCESSES [MEBIBYTES_EACH [STEPS]]]
 */
#include "check.h"

#include <setjmp.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static sigjmp_buf retry;
static volatile unsigned long errors;
static unsigned long state;

static unsigned long next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void on_error(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	/* The reported address has page granularity. */
	if (info->si_code != BUS_ADRERR)
		_exit(3);
	errors++;
	siglongjmp(retry, 1);
}

static unsigned long next_word(unsigned long word, int index)
{
	return index % 16 ? word : word * 6364136223846793005UL + 1442695040888963407UL;
}

/* Writes the contents that page `number` has after `age` writes. They compress well, and any two pages differ in every
 * word. */
static void stamp(volatile unsigned long *words, unsigned long number, unsigned age)
{
	/* After an error, the write starts again here. */
	(void)sigsetjmp(retry, 1);
	unsigned long word = number * 1000003 + age;
	for (int i = 0; i < 512; i++)
		words[i] = word = next_word(word, i);
}

static int is_stamped(volatile const unsigned long *words, unsigned long number, unsigned age)
{
	(void)sigsetjmp(retry, 1);
	unsigned long word = number * 1000003 + age;
	for (int i = 0; i < 512; i++) {
		word = next_word(word, i);
		if (words[i] != word)
			return 0;
	}
	return 1;
}

static unsigned long *page_of(char *memory, unsigned long page)
{
	return (unsigned long *)(memory + page * PAGE);
}

/* Forks a child, which then shares the pages, and checks that the child reads the same contents. */
static void look_as_child(char *memory, const unsigned char *ages, unsigned long pages)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		for (int i = 0; i < 100; i++) {
			unsigned long page = next_random() % pages;
			if (!is_stamped(page_of(memory, page), page, ages[page]))
				_exit(2);
		}
		_exit(0);
	}
	int status = -1;
	NEED(waitpid(child, &status, 0) == child);
	/* If a page of the child's stack cannot be read, the signal cannot be delivered. */
	int killed = WIFSIGNALED(status) && (WTERMSIG(status) == SIGBUS || WTERMSIG(status) == SIGSEGV);
	CHECK_EQ(killed ? 0 : status, 0);
}

static int use(unsigned long seed, unsigned long pages, long steps)
{
	char *memory = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, PRIVATE, -1, 0);
	NEED(memory != MAP_FAILED);
	unsigned char *ages = calloc(pages, 1);
	NEED(ages);
	/* The program's own memory is locked, so that it can always report. */
	NEED(mlock(ages, pages) == 0);
	state = seed * 2654435761UL + 88172645463325252UL;
	for (unsigned long page = 0; page < pages; page++)
		stamp(page_of(memory, page), page, ages[page] = 1);
	for (long step = 0; step < steps; step++) {
		unsigned long page = next_random() % pages;
		unsigned long chance = next_random() % 256;
		if (!is_stamped(page_of(memory, page), page, ages[page])) {
			printf("page %lu is wrong after %ld steps\n", page, step);
			return 1;
		}
		if (chance == 0)
			look_as_child(memory, ages, pages);
		else if (chance == 1)
			NEED(madvise(page_of(memory, page), PAGE, MADV_PAGEOUT) == 0);
		else if (chance < 100)
			stamp(page_of(memory, page), page, ages[page] = ages[page] % 200 + 1);
	}
	for (unsigned long page = 0; page < pages; page++) {
		if (!is_stamped(page_of(memory, page), page, ages[page])) {
			printf("page %lu is wrong at the end\n", page);
			return 1;
		}
	}
	NEED(munmap(memory, pages * PAGE) == 0);
	return checks_failed ? 1 : errors == 0 ? 4 : 0;
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 2;
	unsigned long pages = (argc > 2 ? strtoul(argv[2], NULL, 0) : 40) * 256;
	long steps = argc > 3 ? atol(argv[3]) : 4000;
	struct sigaction action = { .sa_sigaction = on_error, .sa_flags = SA_SIGINFO };
	NEED(sigaction(SIGBUS, &action, NULL) == 0);
	/* A child does not inherit memory locks. */
	NEED(mlockall(MCL_CURRENT) == 0);
	for (int i = 0; i < processes; i++) {
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			NEED(mlockall(MCL_CURRENT) == 0);
			int result = use(i + 1, pages, steps);
			fflush(stdout);
			_exit(result);
		}
	}
	int harmed = 0;
	for (int i = 0; i < processes; i++) {
		int status = 0;
		NEED(wait(&status) > 0);
		/* The exit code 4 means that all contents were right and no read failed. */
		int unharmed = WIFEXITED(status) && WEXITSTATUS(status) == 4;
		harmed += !unharmed;
		CHECK_EQ(unharmed ? 0 : status, 0);
	}
	CHECK(harmed > 0);
	return checked("swap_errors");
}
