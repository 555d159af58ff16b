/* What does a write cost when the kernel tracks writes?
 *
 * Fresh private memory is written, written again, and written a third time after its stores are tracked: by soft-dirty
 * bits that were cleared, or by userfaultfd's asynchronous write protection. A kernel that reads the processor's dirty
 * bit makes the third write as cheap as the second; one that removes the right to write pays a fault for every page.
 *
 * Usage: write_after_clear [ROUNDS [SIZE_IN_KIB]...]
 */
#include "track.h"
#include "write_after.h"

static int file = -1;

static void clear(char *memory, size_t size)
{
	(void)memory;
	(void)size;
	clear_soft_dirty();
}

static void watch(char *memory, size_t size)
{
	file = uffd_open(WP_ASYNC | WP_UNPOPULATED);
	MUST(file >= 0 && uffd_watch(file, memory, size, WATCH_WRITES) == 0);
}

static void arm(char *memory, size_t size)
{
	MUST(uffd_protect(file, memory, size, 1) == 0);
}

static void finish(void)
{
	close(file);
}

/* Returns whether the kernel tracks soft-dirty: some kernels are built without it. */
static int keeps_soft_dirty(void)
{
	uint64_t word = 0;
	char *page = fresh(PAGE);
	int pagemap = open_pagemap();
	*page = 1;
	clear_soft_dirty();
	*(volatile char *)page = 2;
	MUST(pread(pagemap, &word, sizeof word, (uintptr_t)page / PAGE * sizeof word) == sizeof word);
	close(pagemap);
	MUST(munmap(page, PAGE) == 0);
	return word >> 55 & 1;
}

int main(int count, char **arguments)
{
	static const struct change soft_dirty = {
		.name = "clear",
		.steps = { "clearing soft-dirty, of the whole process" },
		.step = { clear },
	};
	static const struct change async = {
		.name = "clear",
		.steps = { "asynchronous protection" },
		.step = { arm },
		.begin = watch,
		.end = finish,
	};
	begin();
	int probe = uffd_open(WP_ASYNC | WP_UNPOPULATED);
	if (probe >= 0) {
		close(probe);
		write_after(count, arguments, ", asynchronous protection", &async);
	}
	/* This is measured last, because the memory stays tracked. */
	if (keeps_soft_dirty())
		write_after(count, arguments, ", soft-dirty", &soft_dirty);
	print_records();
	return 0;
}
