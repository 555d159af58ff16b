/* How long is a program paused while all its memory is write-protected for a snapshot?
 *
 * Memory of growing size is populated, and protected by one userfaultfd call: the pause before a background snapshot. Then
 * a large, sparsely populated mapping: does the pause grow with the size of the mapping?
 *
 * Usage: snapshot_pause [ROUNDS [SIZE_IN_MIB]...]
 */
#include "track.h"

/* The populated parts of a sparse mapping, and their size. */
#define ISLANDS 16
#define ISLAND (1 * MIB)

static int file;

static void pause_of(const char *name, char *memory, size_t size, size_t populated, unsigned long rounds)
{
	struct series arms = { 0 }, disarms = { 0 };
	struct counters before = counters_now();
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = clock_now();
		MARK_BEGIN(3);
		MUST(uffd_protect(file, memory, size, 1) == 0);
		MARK_END(3);
		add_value(&arms, clock_now() - start);
		start = clock_now();
		MUST(uffd_protect(file, memory, size, 0) == 0);
		add_value(&disarms, clock_now() - start);
	}
	struct counters after = counters_now();
	record_series(name, "pause", "instructions", &arms);
	record_parts(name, "pause, per populated page", "instructions", &arms, populated / PAGE);
	record_series(name, "end of it", "instructions", &disarms);
	record_counters(name, before, after, rounds);
}

static void populated(size_t size, unsigned long rounds)
{
	char name[64], *memory = aligned(size, HUGE, 0);
	write_pages(memory, size);
	MUST(uffd_watch(file, memory, size, WATCH_WRITES) == 0);
	snprintf(name, sizeof name, "%lu MiB populated", size / MIB);
	pause_of(name, memory, size, size, rounds);
	MUST(munmap(memory, size) == 0);
}

/* Populates 1 MiB in each sixteenth of the memory. */
static void sparse(size_t size, unsigned long rounds)
{
	char name[64], *memory = aligned(size, 1024 * MIB, 0);
	for (int island = 0; island < ISLANDS; island++)
		write_pages(memory + size / ISLANDS * island, ISLAND);
	MUST(uffd_watch(file, memory, size, WATCH_WRITES) == 0);
	snprintf(name, sizeof name, "%lu MiB mapped, 16 populated", size / MIB);
	pause_of(name, memory, size, ISLANDS * ISLAND, rounds);
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	static const unsigned long usual[] = { 64, 256, 1024, 4096 };
	unsigned long rounds = argument(count, arguments, 1, 4);
	int sizes = count > 2 ? count - 2 : 4;
	begin();
	file = uffd_open(WP_UNPOPULATED);
	need(file >= 0, "write protection of memory that is not there");
	for (int i = 0; i < sizes; i++) {
		size_t size = (count > 2 ? argument(count, arguments, 2 + i, 0) : usual[i]) * MIB;
		MUST(size > 0 && rounds > 0);
		populated(size, rounds);
		sparse(16 * size, rounds);
	}
	print_records();
	return 0;
}
