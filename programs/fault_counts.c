/* Which faults are counted, and how often, in ru_minflt of getrusage and in pgfault of /proc/vmstat?
 *
 * Each operation uses new memory. If the kernel faults in a page for a system call, the fault counts as if the
 * program had accessed the page. A fault that fails is counted in pgfault only. With the argument "print", the
 * program prints the counts instead of checking them.
 */
#include "check.h"
#include <setjmp.h>
#include <sys/uio.h>

enum { PAGES = 64, SIZE = PAGES * 4096, HUGE = 2 << 20 };
#define RW (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static char text[1 << 16] __attribute__((aligned(4096)));
static sigjmp_buf back;
static char *area;
static int file;

static long pgfault(void)
{
	int vmstat = open("/proc/vmstat", O_RDONLY);
	NEED(vmstat >= 0);
	size_t length = 0;
	for (ssize_t got; (got = read(vmstat, text + length, sizeof text - 1 - length)) > 0;)
		length += got;
	close(vmstat);
	text[length] = 0;
	char *row = strstr(text, "\npgfault ");
	NEED(row);
	return atol(row + strlen("\npgfault "));
}

/* Reserves SIZE bytes of addresses and one page more, aligned so that fault-around maps as many pages as possible. */
static char *room(void)
{
	uintptr_t around = 16 * 4096;
	char *memory = mmap(NULL, SIZE + 4096 + around, PROT_NONE, ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	return (char *)(((uintptr_t)memory + around - 1) & -around);
}

static char *map_of(size_t size, int protection, int flags, int from)
{
	char *memory = mmap(room(), size, protection, flags | MAP_FIXED, from, 0);
	NEED(memory != MAP_FAILED);
	return memory;
}

static char *map(int protection, int flags, int from)
{
	return map_of(SIZE, protection, flags, from);
}

static void load(char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		(void)((volatile char *)memory)[i * 4096];
}

static void store(char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		((volatile char *)memory)[i * 4096] = 1;
}

static void on_signal(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static void private_memory(void) { area = map(RW, ANONYMOUS, -1); }
static void read_only(void) { area = map(PROT_READ, ANONYMOUS, -1); }
static void loaded(void) { private_memory(), load(area, PAGES); }
static void stored(void) { private_memory(), store(area, PAGES); }
static void protected(void) { stored(); NEED(mprotect(area, SIZE, PROT_READ) == 0); }
static void shared(void) { area = map(RW, MAP_SHARED | MAP_ANONYMOUS, -1); }
static void file_private(void) { area = map(RW, MAP_PRIVATE, file); }
static void file_read_only(void) { area = map(PROT_READ, MAP_PRIVATE, file); }
static void file_locked(void) { file_read_only(); NEED(mlock(area, SIZE) == 0); }
static void locked(void) { stored(); NEED(mlock(area, SIZE) == 0); }
static void nothing(void) { area = NULL; }

static void do_load(void) { load(area, PAGES); }
static void do_store(void) { store(area, PAGES); }
static void do_read(void) { NEED(pread(file, area, SIZE, 0) == SIZE); }
static void do_mlock(void) { NEED(mlock(area, SIZE) == 0); }
static void do_mlock_on_fault(void) { NEED(mlock2(area, SIZE, MLOCK_ONFAULT) == 0); }
static void do_populate_read(void) { NEED(madvise(area, SIZE, MADV_POPULATE_READ) == 0); }
static void do_populate_write(void) { NEED(madvise(area, SIZE, MADV_POPULATE_WRITE) == 0); }
static void map_populate(void) { area = map(RW, ANONYMOUS | MAP_POPULATE, -1); }
static void map_populate_read_only(void) { area = map(PROT_READ, ANONYMOUS | MAP_POPULATE, -1); }
static void map_populate_shared(void) { area = map(RW, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1); }
static void map_populate_file(void) { area = map(PROT_READ, MAP_PRIVATE | MAP_POPULATE, file); }
static void map_populate_file_private(void) { area = map(RW, MAP_PRIVATE | MAP_POPULATE, file); }
static void map_populate_file_shared(void) { area = map(RW, MAP_SHARED | MAP_POPULATE, file); }
static void map_locked(void) { area = map(RW, ANONYMOUS | MAP_LOCKED, -1); }
static void unprotect(void) { NEED(mprotect(area, SIZE, RW) == 0); }
static void unprotect_and_store(void) { unprotect(), store(area, PAGES); }

static void grow_locked(void)
{
	area = mremap(area, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	NEED(area != MAP_FAILED);
}

static void discard_and_store(void)
{
	NEED(madvise(area, SIZE, MADV_DONTNEED) == 0);
	store(area, PAGES);
}

static void remote_read(void)
{
	for (int i = 0; i < PAGES; i++) {
		struct iovec here = { text, 1 }, there = { area + i * 4096, 1 };
		NEED(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1);
	}
}

static void remote_write(void)
{
	for (int i = 0; i < PAGES; i++) {
		struct iovec here = { text, 1 }, there = { area + i * 4096, 1 };
		NEED(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == 1);
	}
}

static void write_by_proc(void)
{
	int memory = open("/proc/self/mem", O_RDWR);
	NEED(memory >= 0);
	for (int i = 0; i < PAGES; i++)
		NEED(pwrite(memory, "x", 1, (off_t)(area + i * 4096)) == 1);
	close(memory);
}

static void beyond_the_end(void)
{
	char *memory = map_of(SIZE + 4096, PROT_READ, MAP_PRIVATE, file);
	if (sigsetjmp(back, 1) == 0)
		load(memory + SIZE, 1);
}

static void no_permission(void)
{
	if (sigsetjmp(back, 1) == 0)
		store(area, 1);
}

static void no_mapping(void)
{
	NEED(munmap(area, SIZE) == 0);
	if (sigsetjmp(back, 1) == 0)
		load(area, 1);
}

static void populate_beyond(void)
{
	char *memory = map_of(SIZE + 4096, PROT_READ, MAP_PRIVATE, file);
	CHECK_FAILS(madvise(memory + SIZE, 4096, MADV_POPULATE_READ), EFAULT);
}

static char *huge_area(int advice)
{
	char *memory = mmap(NULL, 2 * HUGE, RW, ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	memory = (char *)(((uintptr_t)memory + HUGE - 1) & -(uintptr_t)HUGE);
	NEED(madvise(memory, HUGE, advice) == 0);
	return memory;
}

#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
static void huge(void) { area = huge_area(MADV_HUGEPAGE); }
static void store_huge(void) { store(area, HUGE / 4096); }
static void populate_huge(void) { NEED(madvise(area, HUGE, MADV_POPULATE_WRITE) == 0); }
static void mlock_huge(void) { NEED(mlock(area, HUGE) == 0); }

static void hugetlb(void)
{
	area = mmap(NULL, HUGE, RW, ANONYMOUS | MAP_HUGETLB, -1, 0);
	NEED(area != MAP_FAILED);
}

static void hugetlb_populated(void)
{
	area = mmap(NULL, HUGE, RW, ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
	NEED(area != MAP_FAILED);
}

static const struct operation {
	const char *name;
	void (*prepare)(void), (*operate)(void);
	/* The expected number of pages that are faulted in, and the expected number of faults that fail. */
	int minor, failed;
	/* 'h' if the operation needs transparent huge pages, 'p' if it needs a hugetlb pool, 0 otherwise. */
	char needs;
} operations[] = {
	{ "load", private_memory, do_load, PAGES, 0, 0 },
	{ "store", private_memory, do_store, PAGES, 0, 0 },
	{ "store after load", loaded, do_store, PAGES, 0, 0 },
	{ "load of a file", file_read_only, do_load, PAGES / 16, 0, 0 },
	{ "store to a private file", file_private, do_store, PAGES, 0, 0 },
	{ "store to shared memory", shared, do_store, PAGES, 0, 0 },
	{ "read(2) into new memory", private_memory, do_read, PAGES, 0, 0 },
	{ "mprotect(RW) and store", protected, unprotect_and_store, 0, 0, 0 },
	{ "MADV_DONTNEED and store", stored, discard_and_store, PAGES, 0, 0 },
	{ "MAP_POPULATE", nothing, map_populate, PAGES, 0, 0 },
	{ "MAP_POPULATE, read-only", nothing, map_populate_read_only, PAGES, 0, 0 },
	{ "MAP_POPULATE, shared", nothing, map_populate_shared, PAGES, 0, 0 },
	{ "MAP_POPULATE, file", nothing, map_populate_file, PAGES / 16, 0, 0 },
	{ "MAP_POPULATE, private file", nothing, map_populate_file_private, PAGES, 0, 0 },
	{ "MAP_POPULATE, shared file", nothing, map_populate_file_shared, PAGES / 16, 0, 0 },
	{ "MAP_LOCKED", nothing, map_locked, PAGES, 0, 0 },
	{ "MADV_POPULATE_READ", private_memory, do_populate_read, PAGES, 0, 0 },
	{ "MADV_POPULATE_WRITE", private_memory, do_populate_write, PAGES, 0, 0 },
	{ "MADV_POPULATE_WRITE after load", loaded, do_populate_write, PAGES, 0, 0 },
	{ "MADV_POPULATE_WRITE after store", stored, do_populate_write, 0, 0, 0 },
	{ "MADV_POPULATE_READ, beyond the end", nothing, populate_beyond, 0, 1, 0 },
	{ "mlock", private_memory, do_mlock, PAGES, 0, 0 },
	{ "mlock, read-only", read_only, do_mlock, PAGES, 0, 0 },
	{ "mlock after load", loaded, do_mlock, PAGES, 0, 0 },
	{ "mlock of a file", file_read_only, do_mlock, PAGES / 16, 0, 0 },
	{ "mlock2(MLOCK_ONFAULT)", private_memory, do_mlock_on_fault, 0, 0, 0 },
	{ "mprotect(RW) of a locked file", file_locked, unprotect, PAGES, 0, 0 },
	{ "mremap of locked memory", locked, grow_locked, PAGES, 0, 0 },
	{ "process_vm_readv", private_memory, remote_read, PAGES, 0, 0 },
	{ "process_vm_writev", private_memory, remote_write, PAGES, 0, 0 },
	{ "/proc/self/mem", private_memory, write_by_proc, PAGES, 0, 0 },
	{ "load beyond the end of a file", nothing, beyond_the_end, 0, 1, 0 },
	{ "store to read-only memory", read_only, no_permission, 0, 0, 0 },
	{ "load where nothing is mapped", private_memory, no_mapping, 0, 0, 0 },
	{ "store to a huge page", huge, store_huge, 1, 0, 'h' },
	{ "MADV_POPULATE_WRITE of a huge page", huge, populate_huge, 1, 0, 'h' },
	{ "mlock of a huge page", huge, mlock_huge, 1, 0, 'h' },
	{ "store to a hugetlb page", hugetlb, store_huge, 1, 0, 'p' },
	{ "MAP_POPULATE of a hugetlb page", nothing, hugetlb_populated, 1, 0, 'p' },
};

/* Returns whether huge pages are available through madvise, or from the pool. */
static int has(char needs)
{
	char setting[64] = "";
	if (needs == 'h') {
		int enabled = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY);
		if (enabled >= 0 && read(enabled, setting, sizeof setting - 1) <= 0)
			setting[0] = 0;
		close(enabled);
		return setting[0] && !strstr(setting, "[never]");
	}
	int pool = open("/proc/sys/vm/nr_hugepages", O_RDONLY);
	if (pool >= 0 && read(pool, setting, sizeof setting - 1) <= 0)
		setting[0] = 0;
	close(pool);
	return atoi(setting) >= 2;
}

int main(int count, char **words)
{
	int print = count > 1 && strcmp(words[1], "print") == 0;
	struct sigaction action = { .sa_handler = on_signal };
	NEED(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGBUS, &action, NULL) == 0);
	file = memfd_create("pages", 0);
	NEED(file >= 0);
	memset(text, 1, sizeof text);
	for (int i = 0; i < SIZE; i += sizeof text)
		NEED(pwrite(file, text, sizeof text, i) == sizeof text);
	/* Populates the code, the stack and the handler that the loop uses, so that their faults are not counted. */
	struct rusage before, after;
	getrusage(RUSAGE_SELF, &after);
	read_only();
	no_permission();
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
		const struct operation *one = &operations[i];
		if (one->needs && !has(one->needs)) {
			if (print)
				printf("%-36s not to be had\n", one->name);
			continue;
		}
		one->prepare();
		long first = pgfault();
		getrusage(RUSAGE_SELF, &before);
		one->operate();
		getrusage(RUSAGE_SELF, &after);
		long faults = pgfault() - first, minor = after.ru_minflt - before.ru_minflt;
		if (print) {
			printf("%-36s ru_minflt %4ld, pgfault %4ld\n", one->name, minor, faults);
			continue;
		}
		if (minor != one->minor || faults != one->minor + one->failed)
			printf("%s:\n", one->name);
		CHECK_EQ(minor, one->minor);
		CHECK_EQ(faults, one->minor + one->failed);
	}
	return checked("fault_counts");
}
