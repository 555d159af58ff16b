/* What does each operation of memory management cost?
 *
 * Usage: operations [OPERATION]
 *
 * Without an argument, every operation is measured; with the name of an operation, only that one is measured.
 * Region 1 is the operation, so that `memwright compare --functions --region 1` shows which functions of the kernel
 * execute its instructions. Memory is aligned to 2 MiB, and its page table exists before faults are counted.
 */
#include "experiment.h"

#include <pthread.h>
#include <signal.h>

enum { PAGES = 512, CALLS = 128, TIMES = 24, ROOMS = 2 * TIMES };
#define BLOCK (PAGES * PAGE)
#define ROOM (3 * BLOCK)

/* Counts one operation, and adds its instructions to the series. */
#define COUNT(series, operation)                                                                            \
	do {                                                                                                \
		MARK_BEGIN(1);                                                                              \
		uint64_t start = clock_now();                                                               \
		operation;                                                                                  \
		uint64_t end = clock_now();                                                                 \
		MARK_END(1);                                                                                \
		add_value(series, end - start);                                                             \
	} while (0)

static void write_byte(char *page)
{
	*(volatile char *)page = 1;
}

static void read_byte(const char *page)
{
	(void)*(volatile const char *)page;
}

/* The memory blocks of the measured operation. */
static char *rooms[ROOMS];
static int room_count;

/* A block at a multiple of its size, between memory without access, so that it is never merged with a neighbour. */
static char *block_of(int flags, int file)
{
	char *room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(room != MAP_FAILED && room_count < ROOMS);
	rooms[room_count++] = room;
	char *block = (char *)(((uintptr_t)room + BLOCK - 1) & ~(BLOCK - 1));
	MUST(mmap(block, BLOCK, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0) == block);
	return block;
}

static char *block(void)
{
	return block_of(MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

/* Unmaps all blocks, so that the cost of an operation does not depend on those measured before it. */
static void release(void)
{
	while (room_count > 0)
		MUST(munmap(rooms[--room_count], ROOM) == 0);
}

/* Maps and populates pages, and leaves a hole after them. */
static char *few_pages(size_t size)
{
	char *memory = block();
	MUST(munmap(memory + size, BLOCK - size) == 0);
	write_pages(memory, size);
	return memory;
}

static char *populated(void)
{
	char *memory = block();
	write_pages(memory, BLOCK);
	return memory;
}

/* Creates a file in memory, all of whose pages are in the page cache. */
static int cached_file(void)
{
	static char page[PAGE] = { 1 };
	int file = (int)syscall(SYS_memfd_create, "operations", 0);
	MUST(file >= 0);
	for (int i = 0; i < PAGES; i++)
		MUST(write(file, page, PAGE) == (long)PAGE);
	return file;
}

/* ---- calls on one page ---- */

static void map_page(struct series *costs)
{
	for (int i = 0; i < CALLS; i++) {
		char *page;
		COUNT(costs, page = fresh(PAGE));
		MUST(munmap(page, PAGE) == 0);
	}
}

static void unmap_page(struct series *costs)
{
	for (int i = 0; i < CALLS; i++) {
		char *page = fresh(PAGE);
		write_byte(page);
		COUNT(costs, MUST(munmap(page, PAGE) == 0));
	}
}

static void map_file(struct series *costs)
{
	int file = cached_file();
	for (int i = 0; i < CALLS; i++) {
		char *page;
		COUNT(costs, page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0));
		MUST(page != MAP_FAILED && munmap(page, PAGE) == 0);
	}
	close(file);
}

static void protect_page(struct series *costs)
{
	char *page = few_pages(PAGE);
	for (int i = 0; i < CALLS; i++) {
		COUNT(costs, MUST(mprotect(page, PAGE, PROT_READ) == 0));
		MUST(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
	}
}

/* Protects the second of three pages, so that the area is split in three. */
static void protect_inside(struct series *costs)
{
	char *pages = few_pages(3 * PAGE);
	for (int i = 0; i < CALLS; i++) {
		COUNT(costs, MUST(mprotect(pages + PAGE, PAGE, PROT_READ) == 0));
		MUST(mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	}
}

static void grow_mapping(struct series *costs)
{
	char *pages = few_pages(PAGE);
	for (int i = 0; i < CALLS; i++) {
		COUNT(costs, MUST(mremap(pages, PAGE, 2 * PAGE, 0) == pages));
		MUST(munmap(pages + PAGE, PAGE) == 0);
	}
}

static void grow_heap(struct series *costs)
{
	long end_of_heap = syscall(SYS_brk, 0);
	for (int i = 0; i < CALLS; i++) {
		COUNT(costs, MUST(syscall(SYS_brk, end_of_heap + (long)PAGE) == end_of_heap + (long)PAGE));
		MUST(syscall(SYS_brk, end_of_heap) == end_of_heap);
	}
}

/* ---- calls on many pages ---- */

static void unmap_block(struct series *costs)
{
	for (int i = 0; i < TIMES; i++) {
		char *memory = populated();
		COUNT(costs, MUST(munmap(memory, BLOCK) == 0));
	}
}

static void protect_block(struct series *costs)
{
	char *memory = populated();
	for (int i = 0; i < TIMES; i++) {
		COUNT(costs, MUST(mprotect(memory, BLOCK, PROT_READ) == 0));
		MUST(mprotect(memory, BLOCK, PROT_READ | PROT_WRITE) == 0);
	}
}

static void unprotect_block(struct series *costs)
{
	char *memory = populated();
	for (int i = 0; i < TIMES; i++) {
		MUST(mprotect(memory, BLOCK, PROT_READ) == 0);
		COUNT(costs, MUST(mprotect(memory, BLOCK, PROT_READ | PROT_WRITE) == 0));
	}
}

/* Moves a block to an address that is a page above a multiple of 2 MiB, so that the entries move one by one. */
static void move_block(struct series *costs)
{
	for (int i = 0; i < TIMES; i++) {
		char *memory = populated(), *place = block() + PAGE;
		COUNT(costs, MUST(mremap(memory, BLOCK, BLOCK, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place));
		MUST(munmap(place, BLOCK) == 0);
	}
}

static void advise(struct series *costs, int advice)
{
	char *memory = populated();
	for (int i = 0; i < TIMES; i++) {
		COUNT(costs, MUST(madvise(memory, BLOCK, advice) == 0));
		write_pages(memory, BLOCK);
	}
}

static void discard(struct series *costs)
{
	advise(costs, MADV_DONTNEED);
}

static void discard_lazily(struct series *costs)
{
	advise(costs, MADV_FREE);
}

static void populate(struct series *costs)
{
	for (int i = 0; i < TIMES; i++) {
		char *place = block();
		COUNT(costs, MUST(mmap(place, BLOCK, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0) == place));
		MUST(munmap(place, BLOCK) == 0);
	}
}

static void lock(struct series *costs)
{
	char *memory = populated();
	for (int i = 0; i < TIMES; i++) {
		COUNT(costs, MUST(mlock(memory, BLOCK) == 0));
		MUST(munlock(memory, BLOCK) == 0);
	}
}

static void ask_which(struct series *costs)
{
	static unsigned char which[PAGES];
	char *memory = populated();
	for (int i = 0; i < TIMES; i++)
		COUNT(costs, MUST(mincore(memory, BLOCK, which) == 0));
}

static void page_out(struct series *costs)
{
	char *memory = populated();
	for (int i = 0; i < TIMES; i++) {
		COUNT(costs, MUST(madvise(memory, BLOCK, MADV_PAGEOUT) == 0));
		write_pages(memory, BLOCK);
	}
}

/* ---- faults ---- */

/* Counts the first access to each page of a block but the first one. */
static void first_accesses(struct series *costs, char *memory, int is_write)
{
	if (is_write)
		write_byte(memory);
	else
		read_byte(memory);
	for (char *page = memory + PAGE; page < memory + BLOCK; page += PAGE)
		if (is_write)
			COUNT(costs, write_byte(page));
		else
			COUNT(costs, read_byte(page));
}

static void write_private(struct series *costs)
{
	first_accesses(costs, block(), 1);
}

static void read_private(struct series *costs)
{
	first_accesses(costs, block(), 0);
}

static void write_over_zero(struct series *costs)
{
	char *memory = block();
	read_pages(memory, BLOCK);
	first_accesses(costs, memory, 1);
}

static void write_shared(struct series *costs)
{
	first_accesses(costs, block_of(MAP_SHARED | MAP_ANONYMOUS, -1), 1);
}

static void read_shared(struct series *costs)
{
	first_accesses(costs, block_of(MAP_SHARED | MAP_ANONYMOUS, -1), 0);
}

static void read_file_pages(struct series *costs)
{
	int file = cached_file();
	for (int i = 0; i < TIMES; i++) {
		char *memory = block_of(MAP_SHARED, file);
		COUNT(costs, read_pages(memory, BLOCK));
	}
	close(file);
}

static void write_file_pages(struct series *costs)
{
	int file = cached_file();
	first_accesses(costs, block_of(MAP_SHARED, file), 1);
	close(file);
}

static void copy_file_pages(struct series *costs)
{
	int file = cached_file();
	first_accesses(costs, block_of(MAP_PRIVATE, file), 1);
	close(file);
}

/* The child keeps its pages until the parent kills it. */
static void copy_inherited(struct series *costs)
{
	char *memory = populated();
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	MUST(child > 0);
	first_accesses(costs, memory, 1);
	MUST(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

static void reuse(struct series *costs)
{
	char *memory = populated();
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	MUST(child > 0 && waitpid(child, NULL, 0) == child);
	first_accesses(costs, memory, 1);
}

/* A kernel may swap in neighbours of a page, so that not every page faults. */
static void swap_in(struct series *costs)
{
	char *memory = populated();
	for (int i = 0; i < TIMES; i++) {
		MUST(madvise(memory, BLOCK, MADV_PAGEOUT) == 0);
		COUNT(costs, write_pages(memory, BLOCK));
	}
}

static void write_huge(struct series *costs)
{
	MUST(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) == 0);
	for (int i = 0; i < TIMES; i++) {
		char *memory = block();
		MUST(madvise(memory, BLOCK, MADV_HUGEPAGE) == 0);
		COUNT(costs, write_byte(memory));
		MUST(munmap(memory, BLOCK) == 0);
	}
	MUST(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
}

/* ---- processes ---- */

static void fork_and_wait(void)
{
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	MUST(child > 0 && waitpid(child, NULL, 0) == child);
}

static void fork_small(struct series *costs)
{
	for (int i = 0; i < TIMES; i++)
		COUNT(costs, fork_and_wait());
}

static void fork_large(struct series *costs)
{
	char *memory = fresh(8 * BLOCK);
	write_pages(memory, 8 * BLOCK);
	for (int i = 0; i < TIMES; i++)
		COUNT(costs, fork_and_wait());
	MUST(munmap(memory, 8 * BLOCK) == 0);
}

static void execute(struct series *costs)
{
	for (int i = 0; i < TIMES; i++)
		COUNT(costs, {
			pid_t child = vfork();
			if (child == 0) {
				execl("/proc/self/exe", "operations", "nothing", NULL);
				_exit(1);
			}
			MUST(child > 0 && waitpid(child, NULL, 0) == child);
		});
}

static void *end_at_once(void *argument)
{
	return argument;
}

static void start_thread(struct series *costs)
{
	for (int i = 0; i < TIMES; i++) {
		pthread_t thread;
		COUNT(costs, MUST(pthread_create(&thread, NULL, end_at_once, NULL) == 0 &&
				  pthread_join(thread, NULL) == 0));
	}
}

static const struct operation {
	const char *group, *name;
	void (*count)(struct series *);
	double parts;
} operations[] = {
	{ "call", "mmap of a page", map_page, 1 },
	{ "call", "mmap of a page of a file", map_file, 1 },
	{ "call", "munmap of a page", unmap_page, 1 },
	{ "call", "mprotect of a page", protect_page, 1 },
	{ "call", "mprotect inside an area", protect_inside, 1 },
	{ "call", "mremap to two pages", grow_mapping, 1 },
	{ "call", "brk by a page", grow_heap, 1 },
	{ "per page", "munmap", unmap_block, PAGES },
	{ "per page", "mprotect to read-only", protect_block, PAGES },
	{ "per page", "mprotect to writable", unprotect_block, PAGES },
	{ "per page", "mremap to another address", move_block, PAGES },
	{ "per page", "MADV_DONTNEED", discard, PAGES },
	{ "per page", "MADV_FREE", discard_lazily, PAGES },
	{ "per page", "MADV_PAGEOUT", page_out, PAGES },
	{ "per page", "MAP_POPULATE", populate, PAGES },
	{ "per page", "mlock", lock, PAGES },
	{ "per page", "mincore", ask_which, PAGES },
	{ "fault", "first write", write_private, 1 },
	{ "fault", "first read", read_private, 1 },
	{ "fault", "write over the zero page", write_over_zero, 1 },
	{ "fault", "first write, shared memory", write_shared, 1 },
	{ "fault", "first read, shared memory", read_shared, 1 },
	{ "fault", "read of a cached file, per page", read_file_pages, PAGES },
	{ "fault", "write to a cached file", write_file_pages, 1 },
	{ "fault", "copy of a page of a file", copy_file_pages, 1 },
	{ "fault", "copy of a page of a child too", copy_inherited, 1 },
	{ "fault", "write after the child's exit", reuse, 1 },
	{ "fault", "swap-in, per page", swap_in, PAGES },
	{ "fault", "first write of 2 MiB", write_huge, 1 },
	{ "process", "fork, exit and wait", fork_small, 1 },
	{ "process", "the same with 16 MiB", fork_large, 1 },
	{ "process", "vfork, exec and wait", execute, 1 },
	{ "process", "create and join of a thread", start_thread, 1 },
};

int main(int count, char **arguments)
{
	const char *wanted = count > 1 ? arguments[1] : NULL;
	int found = !wanted;
	if (wanted && !strcmp(wanted, "nothing"))
		return 0;
	begin();
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
		const struct operation *one = &operations[i];
		struct series costs = { 0 };
		if (wanted && strcmp(wanted, one->name))
			continue;
		found = 1;
		one->count(&costs);
		release();
		record_parts(one->group, one->name, "instructions", &costs, one->parts);
	}
	if (!found)
		give_up("no operation is called %s", wanted);
	print_records();
	return 0;
}
