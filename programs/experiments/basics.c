/* What do the basic operations cost: a call, a fault, a mapping, a fork?
 *
 * Usage: basics [ROUNDS]
 */
#include "experiment.h"

enum { PAGES = 1024 };

static void null_call(unsigned long rounds)
{
	struct series calls = { 0 };
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = clock_now();
		syscall(SYS_getppid);
		add_value(&calls, clock_now() - start);
	}
	record_series("system call", "getppid", "instructions", &calls);
}

/* Measures the faults of single pages, with existing page tables. */
static void faults(unsigned long rounds)
{
	struct series writes = { 0 }, reads = { 0 }, over_zero = { 0 }, unmapped = { 0 };
	for (unsigned long round = 0; round < rounds / 100 + 1; round++) {
		char *memory = fresh(2 * PAGES * PAGE);
		char *second = memory + PAGES * PAGE;
		/* The first page of each 2 MiB also allocates a page table, so it is a separate measure. */
		for (size_t at = 0; at < 2 * PAGES * PAGE; at += 512 * PAGE)
			write_pages((char *)(((uintptr_t)memory + at) | (511 * PAGE)), 1);
		for (size_t page = 0; page < PAGES - 512; page++) {
			char *first = memory + page * PAGE, *other = second + page * PAGE;
			if (((uintptr_t)first / PAGE & 511) == 511 || ((uintptr_t)other / PAGE & 511) == 511)
				continue;
			uint64_t start = clock_now();
			*(volatile char *)first = 1;
			add_value(&writes, clock_now() - start);
			start = clock_now();
			(void)*(volatile char *)other;
			add_value(&reads, clock_now() - start);
			start = clock_now();
			*(volatile char *)other = 1;
			add_value(&over_zero, clock_now() - start);
		}
		MUST(munmap(memory, 2 * PAGES * PAGE) == 0);
		memory = fresh(PAGES * PAGE);
		write_pages(memory, PAGES * PAGE);
		uint64_t start = clock_now();
		MUST(munmap(memory, PAGES * PAGE) == 0);
		add_value(&unmapped, clock_now() - start);
	}
	record_series("fault", "first write of a page", "instructions", &writes);
	record_series("fault", "first read of a page", "instructions", &reads);
	record_series("fault", "write over the zero page", "instructions", &over_zero);
	record_parts("munmap", "4 MiB populated, per page", "instructions", &unmapped, PAGES);
}

static void mappings(unsigned long rounds)
{
	struct series map = { 0 }, unmap = { 0 }, full = { 0 }, same = { 0 };
	char *constant = fresh_apart(PAGE);
	*constant = 1;
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = clock_now();
		char *page = fresh(PAGE);
		add_value(&map, clock_now() - start);
		start = clock_now();
		MUST(munmap(page, PAGE) == 0);
		add_value(&unmap, clock_now() - start);
		page = fresh(PAGE);
		*page = 1;
		start = clock_now();
		MUST(munmap(page, PAGE) == 0);
		add_value(&full, clock_now() - start);
		start = clock_now();
		MUST(mprotect(constant, PAGE, PROT_READ | PROT_WRITE) == 0);
		add_value(&same, clock_now() - start);
	}
	record_series("mmap", "4 KiB", "instructions", &map);
	record_series("munmap", "4 KiB, empty", "instructions", &unmap);
	record_series("munmap", "4 KiB, populated", "instructions", &full);
	record_series("mprotect", "that changes nothing", "instructions", &same);
}

static void forks(const char *name, size_t size, int times)
{
	struct series forked = { 0 };
	char *memory = fresh(size);
	write_pages(memory, size);
	for (int i = 0; i < times; i++) {
		uint64_t start = clock_now();
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		add_value(&forked, clock_now() - start);
		MUST(child > 0 && waitpid(child, NULL, 0) == child);
	}
	MUST(munmap(memory, size) == 0);
	record_series("fork", name, "instructions", &forked);
}

int main(int count, char **arguments)
{
	unsigned long rounds = argument(count, arguments, 1, 1000);
	MUST(rounds > 0);
	begin();
	null_call(rounds);
	mappings(rounds);
	faults(rounds);
	forks("small process", PAGE, 20);
	forks("64 MiB populated", 64 * MIB, 5);
	print_records();
	return 0;
}
