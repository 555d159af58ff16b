/* A program uses one and a half times the memory that there is. What does each access cost, and how many fault?
 *
 * It accesses all of it from one end to the other, by loads and by stores, then pages at random, of which a fifth gets four
 * of five accesses. A quarter of each page is noise: how it compresses is part of what is measured.
 *
 * Usage: swap_scan [MEBIBYTES]
 */
#include "swap.h"

static size_t pages;
static uint64_t *memory;

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static volatile uint64_t *page(size_t number)
{
	return memory + number * (PAGE / 8);
}

static void fill(void)
{
	for (size_t number = 0; number < pages; number++) {
		volatile uint64_t *words = page(number);
		for (size_t i = 0; i < PAGE / 8; i++)
			words[i] = i < PAGE / 32 ? next_random() : number;
		words[PAGE / 8 - 1] = ~number;
	}
}

static void go_through(int writes)
{
	for (size_t number = 0; number < pages; number++) {
		volatile uint64_t *words = page(number);
		MUST(words[PAGE / 8 - 1] == ~number);
		if (writes)
			words[0]++;
	}
}

static void jump_about(size_t accesses)
{
	for (size_t i = 0; i < accesses; i++) {
		uint64_t random = next_random();
		size_t among = random % 5 ? pages / 5 : pages;
		size_t number = (random >> 16) % among;
		volatile uint64_t *words = page(number);
		MUST(words[PAGE / 8 - 1] == ~number);
		if (random >> 8 & 1)
			words[1]++;
	}
}

static void measured(const char *name, size_t accesses, void (*act)(size_t), size_t argument)
{
	struct faults before = both_now();
	MARK_BEGIN(8);
	uint64_t start = clock_now();
	act(argument);
	uint64_t took = clock_now() - start;
	MARK_END(8);
	struct faults after = both_now();
	record_value(name, "per access", "instructions", (double)took / accesses);
	record_value(name, "major faults", "faults", (double)(after.major - before.major));
	record_value(name, "faults, both kinds", "faults",
		     (double)(after.major - before.major + after.minor - before.minor));
}

static void fill_all(size_t unused)
{
	(void)unused;
	fill();
}

static void scan(size_t writes)
{
	go_through((int)writes);
}

int main(int count, char **arguments)
{
	size_t size = argument(count, arguments, 1, 192) * MIB;
	pages = size / PAGE;
	MUST(pages > 0);
	begin();
	if (!has_swap()) {
		printf("note\tno swap\n");
		return 0;
	}
	both_now();
	memory = (uint64_t *)fresh_apart(size);
	measured("filled for the first time", pages, fill_all, 0);
	measured("one end to the other, loads", pages, scan, 0);
	measured("one end to the other, stores", pages, scan, 1);
	/* After these accesses, the kernel has detected the frequently used fifth. */
	jump_about(pages / 2);
	measured("at random, 80/20, half stores", pages, jump_about, pages);
	print_records();
	return 0;
}
