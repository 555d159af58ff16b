/* Pages are swapped out, and swapped in by a load of each; then each is stored to. Does the store fault again?
 *
 * The pages repeat one byte, or compress to about a half, or not at all: what the device does with them is part of
 * what is measured.
 *
 * Usage: swapin_reuse [SIZE_IN_KIB]
 */
#include "swap.h"

static size_t size;

enum contents { REPEATED, HALF, RANDOM };

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void fill(char *memory, enum contents contents)
{
	for (size_t at = 0; at < size; at += 8) {
		int plain = contents == REPEATED || (contents == HALF && at % 4096 >= 1920);
		*(uint64_t *)(memory + at) = plain ? 0x0101010101010101 : next_random();
	}
}

static uint64_t sum(const char *memory)
{
	uint64_t sum = 0;
	for (size_t at = 0; at < size; at += 8)
		sum = sum * 31 + *(const uint64_t *)(memory + at);
	return sum;
}

/* Records the cost per page and, unless the page repeats a byte, by how much it exceeds that of a page that does. The
 * device stores only the byte of a page that repeats it, and compresses other pages. */
static void record_page(const char *name, const char *what, double instructions, double *plain)
{
	char measure[64];
	snprintf(measure, sizeof measure, "%s, per page", what);
	record_value(name, measure, "instructions", instructions);
	if (!plain)
		return;
	if (*plain == 0) {
		*plain = instructions;
		return;
	}
	snprintf(measure, sizeof measure, "%s, of it for the contents", what);
	record_value(name, measure, "instructions", instructions - *plain);
}

static void page_out(const char *name, char *memory)
{
	static double plain;
	size_t pages = size / PAGE;
	uint64_t start = clock_now();
	MUST(madvise(memory, size, MADV_PAGEOUT) == 0);
	uint64_t took = clock_now() - start;
	if (name)
		record_page(name, "page out", (double)took / pages, &plain);
}

static void pass(const char *name, const char *what, char *memory, int writes, double *plain)
{
	size_t pages = size / PAGE;
	char measure[64];
	struct faults before = both_now();
	MARK_BEGIN(7);
	uint64_t start = clock_now();
	if (writes)
		write_pages(memory, size);
	else
		read_pages(memory, size);
	uint64_t took = clock_now() - start;
	MARK_END(7);
	struct faults after = both_now();
	record_page(name, what, (double)took / pages, plain);
	snprintf(measure, sizeof measure, "%s: major faults", what);
	record_value(name, measure, "faults", (double)(after.major - before.major));
	snprintf(measure, sizeof measure, "%s: minor faults", what);
	record_value(name, measure, "faults", (double)(after.minor - before.minor));
}

static void one_case(const char *name, enum contents contents)
{
	static double plain_read, plain_write;
	char *memory = fresh_apart(size);
	fill(memory, contents);
	uint64_t expected = sum(memory);
	page_out(name, memory);
	pass(name, "read pass", memory, 0, &plain_read);
	MUST(sum(memory) == expected);
	pass(name, "then write pass", memory, 1, NULL);
	page_out(NULL, memory);
	pass(name, "write pass only", memory, 1, &plain_write);
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	size = argument(count, arguments, 1, 2 * KIB) * KIB;
	MUST(size > 0 && size % PAGE == 0);
	begin();
	if (!has_swap()) {
		printf("note\tno swap\n");
		return 0;
	}
	/* Populates the memory that the measurement itself uses. */
	both_now();
	one_case("pages that repeat a byte", REPEATED);
	one_case("pages that compress to a half", HALF);
	one_case("pages that do not compress", RANDOM);
	print_records();
	return 0;
}
