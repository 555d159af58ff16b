/* What do NUMA hint entries cost a program that writes all the time?
 *
 * A thread on node 0 loads and stores a byte of each page, over and over, while another sleeps on node 1. The pages are on
 * the thread's own node, or on the other one, from which they are migrated, or cannot be, because the thread's own node is
 * full. A hint fault should be the only one: if it does not restore write permission too, the store causes another.
 *
 * Usage: numa_hint own|other|full [MILLIONS_OF_INSTRUCTIONS [SIZE_IN_KIB]]
 */
#include "numa.h"

static const char *place;
static int is_own, is_full;
static uint64_t most;
static size_t size;
static char *memory;
static pthread_barrier_t met;

static void touch(void)
{
	write_pages(memory, size);
}

/* Sleeps on the other node, because Linux does not scan a process with a single thread. Touches the pages first, if they
 * are to be on that node. */
static void *neighbour(void *touches_first)
{
	stay_on_cpu(1);
	if (touches_first)
		touch();
	pthread_barrier_wait(&met);
	pause();
	return NULL;
}

/* Allocates memory on the calling thread's node until the node is full. Later allocations are on the other node. */
static void fill_node(void)
{
	size_t room = 1024 * MIB;
	char *hoard = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(hoard != MAP_FAILED);
	for (size_t at = 0; at < room; at += PAGE) {
		hoard[at] = 1;
		if (node_of(hoard + at) != 0)
			return;
	}
	give_up("the node has more than %zu bytes", room);
}

/* A load and a store of each page, as two instructions, so that either may fault. */
static void write_all(void)
{
	for (size_t at = 0; at < size; at += PAGE) {
		volatile char *byte = memory + at;
		char seen = *byte;
		__asm__ volatile("" : "+r"(seen));
		*byte = seen + 1;
	}
}

/* Linux sets a thread's scan rate when the thread is created: the writing thread is created after the rate is set. */
static void *measure(void *unused)
{
	struct series passes = { 0 };
	pthread_t thread;
	(void)unused;
	stay_on_cpu(0);
	memory = fresh_apart(size);
	MUST(pthread_barrier_init(&met, NULL, 2) == 0);
	MUST(pthread_create(&thread, NULL, neighbour, is_own ? NULL : &met) == 0);
	pthread_barrier_wait(&met);
	if (is_own)
		touch();
	if (is_full)
		fill_node();
	balancing_now();
	MUST(pages_on(is_own ? 0 : 1, memory, size) == size / PAGE);
	struct balancing before = balancing_now();
	uint64_t start = clock_now(), now = start, last;
	do {
		last = now;
		write_all();
		now = clock_now();
		add_value(&passes, now - last);
	} while (now - start < most);
	struct balancing after = balancing_now();
	double hints = moved_by(&before, &after, HINTS);
	record_balancing(place, &before, &after);
	record_value(place, "pages on the own node in the end, of all", "%", 100.0 * pages_on(0, memory, size) * PAGE / size);
	/* The difference includes scans and ticks. */
	if (hints > 0)
		record_value(place, "more than without, per hint fault", "instructions",
			     (double)(passes.sum - passes.count * passes.min) / hints);
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t thread;
	place = count > 1 ? arguments[1] : "own";
	most = argument(count, arguments, 2, 600) * 1000000UL;
	size = argument(count, arguments, 3, 8 * KIB) * KIB;
	is_own = strcmp(place, "own") == 0;
	is_full = strcmp(place, "full") == 0;
	MUST(is_own || is_full || strcmp(place, "other") == 0);
	MUST(size > 0 && size % PAGE == 0);
	begin();
	balance_quickly();
	MUST(pthread_create(&thread, NULL, measure, NULL) == 0);
	MUST(pthread_join(thread, NULL) == 0);
	print_records();
	return 0;
}
