/* Do huge pages of shared memory have the same contents for every process that maps them?
 *
 * A file in memory gets 2 MiB pages by a first access and by collapse. It is mapped completely, at another offset
 * within 2 MiB, and privately; read and written as a file; truncated; punched; and shared by fork. Its pages are
 * collapsed while other threads write to them, and no write may be lost. Whether pages are huge is checked only if
 * the kernel has huge pages.
 */
#include "check.h"

#include <fcntl.h>
#include <sched.h>

#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_KEEP_SIZE 1
#define FALLOC_FL_PUNCH_HOLE 2
#endif

#define HUGE (512 * PAGE)
#define SETTING "/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Whether the setting could be changed. If it could, pages with MADV_HUGEPAGE are huge. */
static int gives_huge;

static int set(const char *word)
{
	int file = open(SETTING, O_WRONLY);
	if (file < 0)
		return 0;
	int done = write(file, word, strlen(word)) == (ssize_t)strlen(word);
	close(file);
	return done;
}

/* Returns the KiB of 2 MiB pages of shared memory in the area that begins at this address. */
static long huge_kib(const char *address)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long start, end;
	long kib = -1;
	int here = 0;
	NEED(file);
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start == (unsigned long)address;
		if (here && sscanf(line, "ShmemPmdMapped: %ld kB", &kib) == 1)
			break;
	}
	fclose(file);
	return kib;
}

static int new_file(size_t size)
{
	int file = memfd_create("huge_shared", 0);
	NEED(file >= 0);
	NEED(ftruncate(file, size) == 0);
	return file;
}

/* Maps the file at an address that is `beyond` bytes after a multiple of 2 MiB, between inaccessible pages. */
static char *show(int file, size_t size, size_t beyond, int flags)
{
	char *room = mmap(NULL, size + 3 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(room != MAP_FAILED);
	char *place = (char *)(((uintptr_t)room + HUGE) & ~(uintptr_t)(HUGE - 1)) + beyond;
	NEED(mmap(place, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0) == place);
	return place;
}

static unsigned long at(const char *memory, size_t page)
{
	unsigned long word;
	memcpy(&word, memory + page * PAGE + 64, sizeof word);
	return word;
}

static void put(char *memory, size_t page, unsigned long word)
{
	memcpy(memory + page * PAGE + 64, &word, sizeof word);
}

static unsigned long in_file(int file, size_t page)
{
	unsigned long word = 0;
	CHECK_EQ(pread(file, &word, sizeof word, page * PAGE + 64), sizeof word);
	return word;
}

static void first_touch(void)
{
	int file = new_file(2 * HUGE);
	char *whole = show(file, 2 * HUGE, 0, MAP_SHARED);
	char *beside = show(file, 2 * HUGE, PAGE, MAP_SHARED);
	CHECK_EQ(madvise(whole, 2 * HUGE, MADV_HUGEPAGE), 0);
	long before = faults_taken();
	put(whole, 3, 3);
	put(whole, 500, 500);
	if (gives_huge) {
		CHECK_EQ(faults_taken() - before, 1);
		CHECK_EQ(huge_kib(whole), 2048);
	}
	CHECK_EQ(at(beside, 3), 3);
	put(beside, 4, 4);
	put(beside, 700, 700);
	CHECK_EQ(at(whole, 4), 4);
	CHECK_EQ(at(whole, 700), 700);
	CHECK_EQ(huge_kib(beside), 0);
	CHECK_EQ(in_file(file, 500), 500);
	unsigned long word = 77;
	CHECK_EQ(pwrite(file, &word, sizeof word, 500 * PAGE + 64), sizeof word);
	CHECK_EQ(at(whole, 500), 77);
	CHECK_EQ(at(beside, 500), 77);
	/* The child maps the pages by its own page faults. */
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		CHECK_EQ(at(whole, 3), 3);
		put(whole, 5, 55);
		CHECK_EQ(at(beside, 5), 55);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(at(whole, 5), 55);
	CHECK_EQ(munmap(whole, 2 * HUGE), 0);
	CHECK_EQ(at(beside, 3), 3);
	CHECK_EQ(munmap(beside, 2 * HUGE), 0);
	CHECK_EQ(in_file(file, 5), 55);
	close(file);
}

static void cut(void)
{
	int file = new_file(2 * HUGE);
	char *memory = show(file, 2 * HUGE, 0, MAP_SHARED);
	CHECK_EQ(madvise(memory, 2 * HUGE, MADV_HUGEPAGE), 0);
	for (size_t page = 0; page < 1024; page++)
		put(memory, page, page + 1);
	CHECK_EQ(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * PAGE, 50 * PAGE), 0);
	int wrong = 0;
	for (size_t page = 0; page < 1024; page++)
		wrong += at(memory, page) != (page >= 100 && page < 150 ? 0 : page + 1);
	CHECK_EQ(wrong, 0);
	/* One part is unmapped, another becomes read-only, and a third is moved. */
	CHECK_EQ(munmap(memory + 200 * PAGE, PAGE), 0);
	CHECK_EQ(mprotect(memory + 300 * PAGE, PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(memory + 300 * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
	put(memory, 300, 5);
	CHECK_EQ(in_file(file, 300), 5);
	char *moved = mremap(memory + 600 * PAGE, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	NEED(moved != MAP_FAILED);
	CHECK_EQ(at(moved, 3), 604);
	CHECK_EQ(at(moved, 7), 608);
	CHECK_EQ(in_file(file, 200), 201);
	CHECK_EQ(ftruncate(file, 900 * PAGE), 0);
	CHECK_EQ(at(memory, 899), 900);
	CHECK_EQ(ftruncate(file, PAGE), 0);
	CHECK_EQ(at(memory, 0), 1);
	CHECK_EQ(ftruncate(file, 2 * HUGE), 0);
	CHECK_EQ(at(memory, 899), 0);
	CHECK_EQ(at(memory, 1), 0);
	CHECK_EQ(munmap(moved, 8 * PAGE), 0);
	CHECK_EQ(munmap(memory, 2 * HUGE), 0);
	close(file);
}

static void private_copies(void)
{
	int file = new_file(HUGE);
	char *memory = show(file, HUGE, 0, MAP_SHARED);
	char *own = show(file, HUGE, 0, MAP_PRIVATE);
	CHECK_EQ(madvise(memory, HUGE, MADV_HUGEPAGE), 0);
	for (size_t page = 0; page < 512; page++)
		put(memory, page, page + 1);
	CHECK_EQ(at(own, 7), 8);
	put(own, 8, 99);
	CHECK_EQ(at(memory, 8), 9);
	put(memory, 9, 98);
	CHECK_EQ(at(own, 8), 99);
	CHECK_EQ(at(own, 9), 98);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		put(own, 8, 1);
		put(own, 10, 1);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(at(own, 8), 99);
	CHECK_EQ(at(own, 10), 11);
	CHECK_EQ(munmap(own, HUGE), 0);
	CHECK_EQ(munmap(memory, HUGE), 0);
	close(file);
}

/* Writes to one page repeatedly until `*stop` is set. Returns whether a write was lost. */
static int write_on(char *memory, size_t page, volatile int *stop)
{
	for (unsigned long count = 1; !*stop; count++) {
		put(memory, page, count);
		for (int i = 0; i < 50; i++)
			if (at(memory, page) != count)
				return 1;
		if (count % 16 == 0)
			sched_yield();
	}
	return 0;
}

static void collapsed_under_writers(int rounds)
{
	enum { WRITERS = 3 };
	volatile int *stop = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(stop != MAP_FAILED);
	for (int round = 0; round < rounds; round++) {
		int file = new_file(HUGE);
		char *memory = show(file, HUGE, 0, MAP_SHARED);
		pid_t writers[WRITERS];
		*stop = 0;
		for (size_t page = 0; page < 512; page++)
			put(memory, page, page);
		for (int i = 0; i < WRITERS; i++) {
			writers[i] = fork_checked();
			NEED(writers[i] >= 0);
			if (writers[i] == 0) {
				char *own = i == 1 ? show(file, HUGE, PAGE, MAP_SHARED) : memory;
				CHECK_EQ(write_on(own, 100 * (i + 1), stop), 0);
				end_child();
			}
		}
		for (int wait = 0; wait < 3 + round % 3; wait++)
			sched_yield();
		/* The collapse may fail while a process uses one of the pages, but must succeed after the processes
		 * have exited. */
		int done = madvise(memory, HUGE, MADV_COLLAPSE);
		CHECK(done == 0 || errno == EAGAIN || errno == EBUSY);
		for (int wait = 0; wait < 3; wait++)
			sched_yield();
		*stop = 1;
		for (int i = 0; i < WRITERS; i++)
			CHECK(exited(wait_for(writers[i]), 0));
		if (gives_huge) {
			CHECK_EQ(madvise(memory, HUGE, MADV_COLLAPSE), 0);
			CHECK_EQ(huge_kib(memory), 2048);
		}
		int wrong = 0;
		for (size_t page = 0; page < 512; page++) {
			int written = page == 100 || page == 200 || page == 300;
			wrong += !written && at(memory, page) != page;
		}
		CHECK_EQ(wrong, 0);
		CHECK_EQ(at(memory, 200), in_file(file, 200));
		CHECK_EQ(munmap(memory, HUGE), 0);
		close(file);
	}
	CHECK_EQ(munmap((void *)stop, PAGE), 0);
}

/* Stores the selected word of the setting. */
static void setting(char word[32])
{
	char all[128] = "";
	word[0] = 0;
	int file = open(SETTING, O_RDONLY);
	if (file < 0)
		return;
	if (read(file, all, sizeof all - 1) > 0 && strchr(all, '['))
		sscanf(strchr(all, '[') + 1, "%31[^]]", word);
	close(file);
}

int main(int argc, char **argv)
{
	char before[32];
	setting(before);
	gives_huge = set("advise");
	first_touch();
	cut();
	private_copies();
	set("never");
	collapsed_under_writers(argc > 1 ? atoi(argv[1]) : 20);
	set(before);
	return checked("huge_shared");
}
