/* What do mprotect(R) and mprotect(RW) cost for one page, in a loop of both and a write?
 *
 * For a separate mapping, and for a page inside a larger one, which is split and merged each time; with and without
 * the write; alone, or while another thread of the process is busy on another CPU, which may have to be interrupted.
 *
 * Usage: protect_loop [THREADS [ROUNDS]]
 */
#include "experiment.h"

#include <pthread.h>

static volatile int stop, running;

/* Spins, with PAUSE, so that CPUs that take turns yield theirs. */
static void *be_busy(void *unused)
{
	running = 1;
	while (!stop)
		__builtin_ia32_pause();
	return unused;
}

static void one_case(const char *name, char *page, size_t size, int store, unsigned long rounds)
{
	struct series read_only = { 0 }, read_write = { 0 }, stores = { 0 };
	struct counters before = counters_now();
	MARK_BEGIN(2);
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = clock_now();
		MUST(mprotect(page, size, PROT_READ) == 0);
		uint64_t middle = clock_now();
		MUST(mprotect(page, size, PROT_READ | PROT_WRITE) == 0);
		uint64_t end = clock_now();
		add_value(&read_only, middle - start);
		add_value(&read_write, end - middle);
		if (store) {
			start = clock_now();
			write_pages(page, size);
			add_value(&stores, clock_now() - start);
		}
	}
	MARK_END(2);
	struct counters after = counters_now();
	record_series(name, "mprotect(R)", "instructions", &read_only);
	record_series(name, "mprotect(RW)", "instructions", &read_write);
	if (store)
		record_series(name, "write", "instructions", &stores);
	record_counters(name, before, after, rounds);
}

static void all_cases(size_t size, unsigned long rounds)
{
	char *whole = fresh_apart(size), *larger = fresh_apart(64 * PAGE + size);
	char *inside = larger + 32 * PAGE;
	write_pages(whole, size);
	write_pages(larger, 64 * PAGE + size);
	for (int where = 0; where < 2; where++)
		for (int store = 1; store >= 0; store--) {
			char name[96];
			snprintf(name, sizeof name, "%lu KiB, %s, %s", size / KIB, where ? "inside a mapping" : "whole mapping",
				 store ? "with the write" : "without the write");
			one_case(name, where ? inside : whole, size, store, rounds);
		}
	MUST(munmap(whole, size) == 0 && munmap(larger, 64 * PAGE + size) == 0);
}

int main(int count, char **arguments)
{
	unsigned long threads = argument(count, arguments, 1, 1), rounds = argument(count, arguments, 2, 1000);
	pthread_t busy;
	MUST((threads == 1 || threads == 2) && rounds > 0);
	begin();
	if (threads == 2) {
		MUST(pthread_create(&busy, NULL, be_busy, NULL) == 0);
		while (!running)
			__builtin_ia32_pause();
	}
	all_cases(PAGE, rounds);
	all_cases(32 * PAGE, rounds);
	stop = 1;
	if (threads == 2)
		MUST(pthread_join(busy, NULL) == 0);
	print_records();
	return 0;
}
