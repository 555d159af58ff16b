/* After a call that removes write permission or unmaps memory has returned, can another thread's store still reach the
 * page?
 *
 * Three threads store to a page continuously, while the first thread write-protects it, unmaps it, forks, or
 * discards its contents. After the call the first thread reads the page twice, some time apart. Neither the page nor
 * memory that was allocated meanwhile may have changed. A thread whose store faults waits until the page is writable
 * again.
 *
 * Usage: `races KIND ROUNDS OFFSET`, where the offset shifts the call relative to the stores. Without arguments, a
 * few rounds of each kind are run.
 */
#include "check.h"
#include "races.h"
#include <pthread.h>
#include <sched.h>

enum { WRITERS = 3, LINE = 8, DECOYS = 2 };

/* The state of a writer. Its fields are in separate cache lines. */
struct writer {
	/* The number of stores that the writer has completed. */
	volatile uint64_t done;
	/* The last generation in which the writer had a store fault, after which it waits. */
	volatile uint64_t parked;
	volatile uint64_t pad[6];
};

static struct writer writers[WRITERS];
static __thread unsigned me;

/* The page contains a pair of words for each writer, which stores to the first word before the second. */
static volatile uint64_t *page;
/* A second mapping of the page, if the page is shared. */
static volatile uint64_t *window;

/* The current generation. A writer whose store faulted in it or in an earlier generation waits for the next
 * one. */
static volatile uint64_t generation;
static volatile int finished;

/* Lets the other threads run, both on their CPUs and on this one. */
static void give_time(unsigned long steps)
{
	for (unsigned long i = 0; i < steps; i++)
		__builtin_ia32_pause();
	sched_yield();
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	uint64_t now = generation;
	if ((uintptr_t)info->si_addr - (uintptr_t)page >= PAGE)
		_exit(98);
	writers[me].parked = now + 1;
	while (generation == now && !finished)
		give_time(1);
}

static void *write_always(void *argument)
{
	me = (unsigned)(uintptr_t)argument;
	volatile uint64_t *pair = page + me * LINE;
	for (unsigned long turn = 1; !finished; turn++) {
		for (int i = 0; i < 64; i++) {
			/* The load and the store are a single instruction, so both use the same mapping of the page. */
			__asm__ volatile("incq %0" : "+m"(pair[0]) : : "memory");
			__asm__ volatile("incq %0" : "+m"(pair[1]) : : "memory");
			writers[me].done++;
		}
		__builtin_ia32_pause();
		/* Lets the other threads run, if there are fewer CPUs than threads. */
		if (turn % 16 == 0)
			sched_yield();
	}
	return NULL;
}

/* Waits until every writer has completed a store. */
static void await_stores(void)
{
	for (unsigned i = 0; i < WRITERS; i++) {
		uint64_t before = writers[i].done;
		while (writers[i].done == before)
			give_time(1);
	}
}

/* Waits until a store of every writer has faulted. The caller then makes the page writable and starts a new
 * generation. */
static void await_parked(void)
{
	for (unsigned i = 0; i < WRITERS; i++) {
		while (writers[i].parked != generation + 1)
			give_time(1);
	}
}

/* Reads a page twice. Returns whether it was unchanged. */
static int is_still(volatile uint64_t *memory)
{
	uint64_t seen[WRITERS * LINE];
	for (unsigned i = 0; i < WRITERS * LINE; i++)
		seen[i] = memory[i];
	give_time(20);
	int still = 1;
	for (unsigned i = 0; i < WRITERS * LINE; i++)
		still &= memory[i] == seen[i];
	return still;
}

/* Checks that no late store has changed newly mapped memory, which may be at the old address. */
static int decoys_are_whole(void)
{
	volatile uint64_t *memory = (volatile uint64_t *)anonymous(DECOYS * PAGE);
	if (memory == NULL)
		return 0;
	for (unsigned i = 0; i < DECOYS * PAGE / 8; i++)
		memory[i] = 0x5a5a5a5a5a5a5a5a;
	give_time(20);
	int whole = 1;
	for (unsigned i = 0; i < DECOYS * PAGE / 8; i++)
		whole &= memory[i] == 0x5a5a5a5a5a5a5a5a;
	return munmap((void *)memory, DECOYS * PAGE) == 0 && whole;
}

static void protected(unsigned long round)
{
	shift(round);
	NEED(mprotect((void *)page, PAGE, PROT_READ) == 0);
	NEED(is_still(page));
	await_parked();
	NEED(mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE) == 0);
	generation++;
}

static void unmapped(unsigned long round)
{
	shift(round);
	NEED(munmap((void *)page, PAGE) == 0);
	if (window != NULL) {
		NEED(is_still(window));
		await_parked();
		NEED(mremap((void *)window, 0, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page) == page);
	} else {
		NEED(decoys_are_whole());
		await_parked();
		void *again = mmap((void *)page, PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		NEED(again == page);
	}
	generation++;
}

/* The child's page is a copy from a single moment: the first word of each pair equals the second, or is larger by
 * one. */
static void forked(unsigned long round)
{
	shift(round);
	uint64_t before[WRITERS];
	for (unsigned i = 0; i < WRITERS; i++)
		before[i] = page[i * LINE];
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int wrong = !is_still(page);
		for (unsigned i = 0; i < WRITERS; i++) {
			volatile uint64_t *pair = page + i * LINE;
			wrong |= (pair[0] - pair[1] > 1) << 1;
			wrong |= (pair[0] < before[i]) << 2;
		}
		_exit(wrong);
	}
	await_stores();
	for (unsigned i = 0; i < WRITERS; i++)
		NEED(page[i * LINE] > before[i]);
	NEED(exited(wait_for(child), 0));
}

/* After MADV_DONTNEED the counts in the page start at 0, and contain only later stores. */
static void dropped(unsigned long round)
{
	uint64_t before[WRITERS];
	shift(round);
	for (unsigned i = 0; i < WRITERS; i++)
		before[i] = writers[i].done;
	NEED(madvise((void *)page, PAGE, MADV_DONTNEED) == 0);
	for (unsigned i = 0; i < WRITERS; i++) {
		uint64_t second = page[i * LINE + 1];
		uint64_t first = page[i * LINE];
		uint64_t since = writers[i].done - before[i];
		NEED(first <= since + 1 && second <= since + 1);
	}
	NEED(decoys_are_whole());
}

static const struct {
	const char *name;
	void (*round)(unsigned long round);
	int shared;
} kinds[] = {
	{ "protect", protected, 0 }, { "unmap", unmapped, 0 }, { "unmap-shared", unmapped, 1 },
	{ "fork", forked, 0 },	     { "drop", dropped, 0 },
};

static void race(unsigned kind, unsigned long rounds)
{
	int shared = kinds[kind].shared;
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
	NEED(page != MAP_FAILED);
	window = NULL;
	if (shared) {
		window = mremap((void *)page, 0, PAGE, MREMAP_MAYMOVE);
		NEED(window != MAP_FAILED);
	}
	finished = 0;
	pthread_t threads[WRITERS];
	for (uintptr_t i = 0; i < WRITERS; i++)
		NEED(pthread_create(&threads[i], NULL, write_always, (void *)i) == 0);
	for (unsigned long round = 0; round < rounds; round++) {
		await_stores();
		kinds[kind].round(round);
		checks_made++;
	}
	finished = 1;
	for (unsigned i = 0; i < WRITERS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(munmap((void *)page, PAGE), 0);
	if (shared)
		CHECK_EQ(munmap((void *)window, PAGE), 0);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	NEED(sigaction(SIGSEGV, &action, NULL) == 0);
	unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 20;
	offset = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	int known = 0;
	for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
		if (argc < 2 || strcmp(argv[1], "all") == 0 || strcmp(argv[1], kinds[kind].name) == 0) {
			known = 1;
			race(kind, rounds);
		}
	}
	CHECK(known);
	return checked("races");
}
