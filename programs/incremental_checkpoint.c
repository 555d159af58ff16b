/* Does a chain of incremental checkpoints restore a program's memory exactly?
 *
 * As in CRIU's pre-dumps, the first checkpoint contains every present page. Each later one contains the pages
 * written since the previous checkpoint, and a list of all present pages; a page on the list that the checkpoint
 * does not contain is in an earlier checkpoint. Between two checkpoints the program writes pages, makes the kernel
 * write some, discards some, and changes permissions of parts. The memory restored from the chain must equal the
 * original page for page, including discarded pages. Written pages are found by soft-dirty bits in
 * /proc/self/pagemap, and by PAGEMAP_SCAN with asynchronous uffd-wp.
 *
 * Usage: incremental_checkpoint [SIZE_IN_MIB [ROUNDS]]
 */
#include "track.h"

#define SOFT_DIRTY (1ULL << 55)
#define IN_SWAP (1ULL << 62)
#define PRESENT (1ULL << 63)
#define FRAME ((1ULL << 55) - 1)
enum { PAGE_IS_PRESENT = 8, PAGE_IS_SWAPPED = 16, PAGE_IS_ZERO = 32 };

/* An entry of a checkpoint's page list: the checkpoint that contains the page's contents, and their index in it. */
struct place {
	uint32_t checkpoint, index;
};

struct checkpoint {
	int image;
	uint32_t saved;
	struct place *places;
};

struct tracker {
	const char *name;
	/* Starts tracking. */
	void (*start)(char *memory, size_t size);
	/* Reports for each page whether it is present and not the zero page, and whether it was written since tracking
	 * started, then restarts tracking. A page that was discarded and then read is the zero page, and does not count
	 * as written. */
	void (*ask)(char *memory, size_t size, unsigned char *there, unsigned char *written);
};

static int watcher, pagemap;
static struct region *regions;
static uint64_t *entries;

static void clear(char *memory, size_t size)
{
	(void)memory, (void)size;
	clear_soft_dirty();
}

static uint64_t entry_of(const char *page)
{
	uint64_t entry;
	MUST(pread(pagemap, &entry, sizeof entry, (off_t)((uintptr_t)page / PAGE * sizeof entry)) == sizeof entry);
	return entry;
}

/* Returns the frame number of the zero page, which a read of an unpopulated page maps. */
static uint64_t zero_frame(void)
{
	char *page = fresh(PAGE);
	read_pages(page, PAGE);
	uint64_t entry = entry_of(page);
	MUST(munmap(page, PAGE) == 0);
	return entry & FRAME;
}

/* Returns whether the kernel has soft-dirty bits. A kernel can be built without them. */
static int has_soft_dirty(void)
{
	char *page = fresh(PAGE);
	write_pages(page, PAGE);
	int has = (entry_of(page) & SOFT_DIRTY) != 0;
	MUST(munmap(page, PAGE) == 0);
	return has;
}

static void ask_pagemap(char *memory, size_t size, unsigned char *there, unsigned char *written)
{
	size_t pages = size / PAGE, bytes = pages * sizeof *entries;
	off_t at = (off_t)((uintptr_t)memory / PAGE * sizeof *entries);
	uint64_t zero = zero_frame();
	MUST(pread(pagemap, entries, bytes, at) == (ssize_t)bytes);
	for (size_t page = 0; page < pages; page++) {
		int is_zero = entries[page] & PRESENT && (entries[page] & FRAME) == zero;
		there[page] = (entries[page] & (PRESENT | IN_SWAP)) != 0 && !is_zero;
		written[page] = (entries[page] & SOFT_DIRTY) != 0;
	}
	clear_soft_dirty();
}

static void protect(char *memory, size_t size)
{
	MUST(uffd_watch(watcher, memory, size, WATCH_WRITES) == 0);
	MUST(uffd_protect(watcher, memory, size, 1) == 0);
}

static void mark_regions(char *memory, long found, unsigned char *marks)
{
	MUST(found >= 0);
	for (long i = 0; i < found; i++)
		memset(marks + (regions[i].start - (uintptr_t)memory) / PAGE, 1,
		       (regions[i].end - regions[i].start) / PAGE);
}

static void ask_scan(char *memory, size_t size, unsigned char *there, unsigned char *written)
{
	size_t pages = size / PAGE;
	struct pagemap_scan scan = { .size = sizeof scan, .regions = (uintptr_t)regions, .room = pages };
	scan.start = (uintptr_t)memory;
	scan.end = scan.start + size;
	scan.any = scan.told = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
	scan.inverted = scan.all = PAGE_IS_ZERO;
	memset(there, 0, pages);
	memset(written, 0, pages);
	mark_regions(memory, ioctl(pagemap, PAGEMAP_SCAN, &scan), there);
	mark_regions(memory, scan_written(pagemap, memory, size, regions, pages), written);
}

static const struct tracker trackers[] = {
	{ "soft-dirty", clear, ask_pagemap },
	{ "PAGEMAP_SCAN", protect, ask_scan },
};

/* Saves the present pages that were written since the checkpoint `before`, or all present pages if `before`
 * is NULL. For a present page that was not written, the list refers to the place that `before` has for it. */
static struct checkpoint save(char *memory, size_t pages, const unsigned char *there, const unsigned char *written,
			      const struct checkpoint *before, uint32_t number)
{
	struct checkpoint now = { (int)syscall(SYS_memfd_create, "pages", 0), 0, calloc(pages, sizeof *now.places) };
	MUST(now.image >= 0 && now.places);
	for (size_t page = 0; page < pages; page++) {
		int known = before && before->places[page].checkpoint;
		if (!there[page])
			continue;
		if (known && !written[page]) {
			now.places[page] = before->places[page];
			continue;
		}
		MUST(write(now.image, memory + page * PAGE, PAGE) == (ssize_t)PAGE);
		now.places[page] = (struct place){ number, now.saved++ };
	}
	return now;
}

static void restore_and_compare(const char *memory, size_t pages, const struct checkpoint *chain, uint32_t last)
{
	char *restored = fresh(pages * PAGE);
	for (size_t page = 0; page < pages; page++) {
		struct place place = chain[last].places[page];
		if (!place.checkpoint)
			continue;
		MUST(pread(chain[place.checkpoint].image, restored + page * PAGE, PAGE, (off_t)(place.index * PAGE)) ==
		     (ssize_t)PAGE);
	}
	for (size_t page = 0; page < pages; page++)
		if (memcmp(restored + page * PAGE, memory + page * PAGE, PAGE) != 0)
			give_up("page %zu is restored wrongly", page);
	MUST(munmap(restored, pages * PAGE) == 0);
}

/* Executes the program's operations between two checkpoints, on about one page in fifty. */
static void work(char *memory, size_t pages, uint64_t *random)
{
	static int pipes[2] = { -1, -1 };
	if (pipes[0] < 0)
		MUST(pipe(pipes) == 0);
	for (size_t i = 0; i < pages / 100; i++) {
		uint64_t chosen = next_random(random);
		char *page = memory + chosen % pages * PAGE;
		*(volatile uint64_t *)(page + (chosen >> 40) % (PAGE / 8) * 8) = chosen;
	}
	for (int i = 0; i < 8; i++) {
		char *page = memory + next_random(random) % pages * PAGE;
		MUST(write(pipes[1], random, sizeof *random) == sizeof *random);
		MUST(read(pipes[0], page + 100, sizeof *random) == sizeof *random);
	}
	/* Discards groups of four pages, of which one is written again, one is read, and two are not accessed. */
	for (int i = 0; i < 8; i++) {
		char *page = memory + next_random(random) % (pages - 4) * PAGE;
		MUST(madvise(page, 4 * PAGE, MADV_DONTNEED) == 0);
		*(volatile char *)page = 1;
		(void)*(volatile char *)(page + PAGE);
	}
	char *part = memory + next_random(random) % (pages - 16) * PAGE;
	MUST(mprotect(part, 16 * PAGE, PROT_READ) == 0);
	MUST(mprotect(part, 16 * PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void chain_of(const struct tracker *tracker, size_t size, uint32_t rounds)
{
	size_t pages = size / PAGE;
	char name[64], *memory = aligned(size, HUGE, 0);
	unsigned char *there = calloc(pages, 1), *written = calloc(pages, 1);
	struct checkpoint *chain = calloc(rounds + 2, sizeof *chain);
	struct series asks = { 0 }, saved = { 0 };
	uint64_t random = 88172645463325252, first = 0, faults = 0;
	MUST(there && written && chain);
	/* The last quarter of the memory is accessed only at random. */
	for (size_t page = 0; page < pages / 4 * 3; page++)
		*(volatile uint64_t *)(memory + page * PAGE) = page;
	tracker->start(memory, size);
	for (uint32_t round = 1; round <= rounds; round++) {
		uint64_t start = clock_now();
		tracker->ask(memory, size, there, written);
		uint64_t asked = clock_now() - start;
		chain[round] = save(memory, pages, there, written, round > 1 ? &chain[round - 1] : NULL, round);
		restore_and_compare(memory, pages, chain, round);
		if (round == 1)
			first = chain[round].saved;
		else {
			add_value(&asks, asked);
			add_value(&saved, chain[round].saved);
		}
		uint64_t before = faults_now();
		work(memory, pages, &random);
		faults += faults_now() - before;
	}
	snprintf(name, sizeof name, "%lu MiB, %s", size / MIB, tracker->name);
	record_value(name, "first checkpoint", "pages", first);
	record_series(name, "each later one", "pages", &saved);
	record_series(name, "asking what was written", "instructions", &asks);
	record_value(name, "faults of the program", "faults per round", (double)faults / rounds);
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	size_t size = argument(count, arguments, 1, 64) * MIB;
	unsigned long rounds = argument(count, arguments, 2, 6);
	begin();
	MUST(size >= MIB && rounds > 1);
	watcher = uffd_open(WP_ASYNC | WP_UNPOPULATED);
	pagemap = open_pagemap();
	regions = calloc(size / PAGE, sizeof *regions);
	entries = calloc(size / PAGE, sizeof *entries);
	MUST(regions && entries);
	need(watcher >= 0 && can_scan(pagemap), "asynchronous write protection");
	need(zero_frame() != 0, "frame numbers for this user");
	for (size_t i = has_soft_dirty() ? 0 : 1; i < sizeof trackers / sizeof *trackers; i++)
		chain_of(&trackers[i], size, (uint32_t)rounds);
	print_records();
	return 0;
}
