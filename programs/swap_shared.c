/* Is shared memory swapped out and in for processes that map it, read it by system calls, truncate it, execute it or
 * track its writes? Without a swap device nothing is swapped, and all other results must be the same.
 *
 * Usage: swap_shared [PROCESSES MEBIBYTES STEPS]. The processes share this much memory, which exceeds the machine's,
 * and access it at random.
 */
#include "check.h"

#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/shm.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MFD_ALLOW_SEALING
#define MFD_ALLOW_SEALING 2
#endif

#define RW (PROT_READ | PROT_WRITE)
#define PAGES 64UL
#define WORD_SWAPPED (1ULL << 62)
#define WORD_PRESENT (1ULL << 63)

/* Whether there is a swap device. */
static int swaps;

static int has_swap(void)
{
	char text[4096];
	int file = open("/proc/swaps", O_RDONLY);
	if (file < 0)
		return 0;
	long length = read(file, text, sizeof text - 1);
	close(file);
	text[length > 0 ? length : 0] = 0;
	char *line = strchr(text, '\n');
	return line && line[1] != 0;
}

static int memory_file(unsigned long pages)
{
	int file = syscall(SYS_memfd_create, "shared", MFD_ALLOW_SEALING);
	NEED(file >= 0 && ftruncate(file, pages * PAGE) == 0);
	return file;
}

static char *show(int file, unsigned long pages, int kind)
{
	char *memory = mmap(NULL, pages * PAGE, RW, kind, file, 0);
	NEED(memory != MAP_FAILED);
	return memory;
}

static void fill(char *memory, unsigned long pages, unsigned long seed)
{
	for (unsigned long page = 0; page < pages; page++) {
		unsigned long *words = (unsigned long *)(memory + page * PAGE);
		for (int i = 0; i < 512; i++)
			words[i] = page % 2 ? seed + page : (seed + page + i) * 2654435761UL;
	}
}

static int filled(const char *memory, unsigned long pages, unsigned long seed)
{
	for (unsigned long page = 0; page < pages; page++) {
		const unsigned long *words = (const unsigned long *)(memory + page * PAGE);
		for (int i = 0; i < 512; i++)
			if (words[i] != (page % 2 ? seed + page : (seed + page + i) * 2654435761UL))
				return 0;
	}
	return 1;
}

static void page_out(char *memory, unsigned long pages)
{
	NEED(madvise(memory, pages * PAGE, MADV_PAGEOUT) == 0);
}

/* Returns the number of pages that are in memory according to mincore. */
static unsigned long there(char *memory, unsigned long pages)
{
	static unsigned char resident[4096];
	unsigned long count = 0;
	NEED(pages <= sizeof resident && mincore(memory, pages * PAGE, resident) == 0);
	for (unsigned long page = 0; page < pages; page++)
		count += resident[page] & 1;
	return count;
}

static long number_in(const char *path, const char *name)
{
	static char text[1 << 16];
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	long length = 0, more;
	while ((more = read(file, text + length, sizeof text - 1 - length)) > 0)
		length += more;
	close(file);
	text[length] = 0;
	char *row = strstr(text, name);
	NEED(row);
	return strtol(row + strlen(name), NULL, 10);
}

static unsigned long word(const void *page)
{
	unsigned long word = 0;
	int file = open("/proc/self/pagemap", O_RDONLY);
	NEED(file >= 0);
	NEED(pread(file, &word, 8, (unsigned long)page / PAGE * 8) == 8);
	close(file);
	return word;
}

/* Returns the number in a row of smaps for the area that begins at a page. */
static long in_area(const void *page, const char *name)
{
	char line[256], start[32];
	long number = -1;
	int inside = 0;
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file);
	snprintf(start, sizeof start, "%lx-", (unsigned long)page);
	while (fgets(line, sizeof line, file)) {
		if (strncmp(line, start, strlen(start)) == 0)
			inside = 1;
		else if (inside && strncmp(line, name, strlen(name)) == 0) {
			number = strtol(line + strlen(name), NULL, 10);
			break;
		}
	}
	fclose(file);
	return number;
}

static long major_faults(void)
{
	struct rusage usage;
	NEED(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_majflt;
}

static void out_and_in(void)
{
	int file = memory_file(PAGES);
	char *memory = show(file, PAGES, MAP_SHARED);
	fill(memory, PAGES, 1);
	long slots = number_in("/proc/meminfo", "SwapFree:");
	struct stat before, after;
	NEED(fstat(file, &before) == 0);
	page_out(memory, PAGES);
	NEED(fstat(file, &after) == 0);
	CHECK_EQ(after.st_blocks, before.st_blocks);
	CHECK_EQ(lseek(file, 0, SEEK_DATA), 0);
	CHECK_EQ(lseek(file, 0, SEEK_HOLE), PAGES * PAGE);
	if (swaps) {
		CHECK_EQ(there(memory, PAGES), 0);
		CHECK_EQ(slots - number_in("/proc/meminfo", "SwapFree:"), PAGES * 4);
		CHECK_EQ(number_in("/proc/self/status", "VmSwap:"), 0);
		CHECK_EQ(in_area(memory, "Swap:"), PAGES * 4);
		CHECK_EQ(in_area(memory, "SwapPss:"), 0);
		/* For shared memory, the entry in pagemap does not contain the location of an unmapped page. */
		CHECK_EQ(word(memory) & (WORD_SWAPPED | WORD_PRESENT), 0);
		long faults = major_faults();
		CHECK(filled(memory, PAGES, 1));
		long more = major_faults() - faults;
		CHECK(more >= (long)PAGES / 16 && more <= (long)PAGES);
		CHECK_EQ(number_in("/proc/meminfo", "SwapFree:"), slots);
	}
	CHECK(filled(memory, PAGES, 1));
	page_out(memory, PAGES);
	fill(memory, PAGES / 2, 2);
	CHECK(filled(memory, PAGES / 2, 2));
	page_out(memory, PAGES);
	/* System calls swap pages in without taking a fault. */
	static char copy[PAGES * PAGE];
	CHECK_EQ(pread(file, copy, PAGES / 2 * PAGE, 0), PAGES / 2 * PAGE);
	CHECK(filled(copy, PAGES / 2, 2));
	page_out(memory, PAGES);
	CHECK_EQ(pwrite(file, "written", 8, 5 * PAGE + 100), 8);
	fill(copy, 1, 2);
	CHECK(memcmp(memory, copy, PAGE) == 0 && memcmp(memory + 5 * PAGE + 100, "written", 8) == 0);
	NEED(munmap(memory, PAGES * PAGE) == 0);
	memory = show(file, PAGES, MAP_SHARED);
	CHECK(memcmp(memory, copy, PAGE) == 0);
	page_out(memory, PAGES);
	NEED(munmap(memory, PAGES * PAGE) == 0 && close(file) == 0);
	CHECK_EQ(number_in("/proc/meminfo", "SwapFree:"), slots);
}

static void sent_elsewhere(void)
{
	int file = memory_file(4), ends[2];
	char *memory = show(file, 4, MAP_SHARED);
	static char copy[4 * PAGE];
	NEED(pipe(ends) == 0);
	fill(memory, 4, 3);
	page_out(memory, 4);
	off_t from = 0;
	CHECK_EQ(sendfile(ends[1], file, &from, 2 * PAGE), 2 * PAGE);
	CHECK_EQ(sendfile(ends[1], file, &from, 2 * PAGE), 2 * PAGE);
	unsigned long done = 0;
	while (done < sizeof copy) {
		long more = read(ends[0], copy + done, sizeof copy - done);
		NEED(more > 0);
		done += more;
	}
	CHECK(filled(copy, 4, 3));
	NEED(munmap(memory, 4 * PAGE) == 0 && close(file) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* A page that several processes map stays in memory if only one of them pages it out. Each process reads what another
 * one writes. */
static void of_several(void)
{
	char *memory = show(-1, PAGES, MAP_SHARED | MAP_ANONYMOUS);
	fill(memory, PAGES, 4);
	page_out(memory, PAGES);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int right = filled(memory, PAGES, 4);
		fill(memory, PAGES, 5);
		_exit(right ? 0 : 1);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK(filled(memory, PAGES, 5));
	int from[2], to[2];
	char byte = 0;
	NEED(pipe(from) == 0 && pipe(to) == 0);
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int right = filled(memory, PAGES, 5);
		NEED(write(to[1], &byte, 1) == 1 && read(from[0], &byte, 1) == 1);
		_exit(right && filled(memory, PAGES, 5) ? 0 : 1);
	}
	NEED(read(to[0], &byte, 1) == 1);
	page_out(memory, PAGES);
	CHECK_EQ(there(memory, PAGES), PAGES);
	NEED(write(from[1], &byte, 1) == 1 && waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	page_out(memory, PAGES);
	if (swaps)
		CHECK_EQ(there(memory, PAGES), 0);
	CHECK(filled(memory, PAGES, 5));
	NEED(munmap(memory, PAGES * PAGE) == 0);
	for (int i = 0; i < 2; i++)
		NEED(close(from[i]) == 0 && close(to[i]) == 0);
}

static void cut_off(void)
{
	int file = memory_file(8);
	char *memory = show(file, 8, MAP_SHARED);
	static char zeroes[PAGE], copy[8 * PAGE];
	fill(memory, 8, 6);
	fill(copy, 8, 6);
	page_out(memory, 8);
	NEED(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE + 100, 3 * PAGE) == 0);
	memset(copy + PAGE + 100, 0, 3 * PAGE);
	CHECK(memcmp(memory, copy, 8 * PAGE) == 0);
	page_out(memory, 8);
	NEED(ftruncate(file, 5 * PAGE + 7) == 0 && ftruncate(file, 8 * PAGE) == 0);
	memset(copy + 5 * PAGE + 7, 0, 3 * PAGE - 7);
	CHECK(memcmp(memory, copy, 8 * PAGE) == 0);
	page_out(memory, 8);
	NEED(madvise(memory, 2 * PAGE, MADV_REMOVE) == 0);
	CHECK(memcmp(memory, zeroes, PAGE) == 0 && memcmp(memory + 4 * PAGE, copy + 4 * PAGE, PAGE) == 0);
	page_out(memory, 8);
	CHECK_EQ(fallocate(file, 0, 0, 8 * PAGE), 0);
	CHECK(memcmp(memory + 4 * PAGE, copy + 4 * PAGE, 4 * PAGE) == 0);
	NEED(munmap(memory, 8 * PAGE) == 0 && close(file) == 0);
}

static void private_over_shared(void)
{
	int file = memory_file(8);
	char *memory = show(file, 8, MAP_SHARED);
	fill(memory, 8, 7);
	page_out(memory, 8);
	char *own = show(file, 8, MAP_PRIVATE);
	CHECK(filled(own, 4, 7));
	own[0] ^= 1;
	own[5 * PAGE] ^= 1;
	CHECK(filled(memory, 8, 7));
	page_out(own, 8);
	page_out(memory, 8);
	own[0] ^= 1;
	own[5 * PAGE] ^= 1;
	CHECK(filled(own, 8, 7) && filled(memory, 8, 7));
	NEED(munmap(own, 8 * PAGE) == 0 && munmap(memory, 8 * PAGE) == 0 && close(file) == 0);
}

static void locked(void)
{
	int file = memory_file(2);
	char *memory = show(file, 2, MAP_SHARED);
	fill(memory, 2, 8);
	NEED(mlock(memory, PAGE) == 0);
	char *again = show(file, 2, MAP_SHARED);
	CHECK(filled(again, 2, 8));
	CHECK_FAILS(madvise(memory, PAGE, MADV_PAGEOUT), EINVAL);
	NEED(munmap(again, 2 * PAGE) == 0);
	NEED(madvise(memory + PAGE, PAGE, MADV_PAGEOUT) == 0);
	CHECK_EQ(there(memory, 1), 1);
	CHECK(filled(memory, 2, 8));
	NEED(munmap(memory, 2 * PAGE) == 0 && close(file) == 0);
}

static void segments(void)
{
	int segment = shmget(IPC_PRIVATE, PAGES * PAGE, 0600);
	NEED(segment >= 0);
	char *memory = shmat(segment, NULL, 0);
	NEED(memory != (char *)-1);
	fill(memory, PAGES, 9);
	page_out(memory, PAGES);
	if (swaps) {
		struct shm_info info;
		NEED(shmctl(0, SHM_INFO, (struct shmid_ds *)&info) >= 0);
		CHECK(info.shm_swp >= PAGES);
	}
	NEED(shmdt(memory) == 0);
	memory = shmat(segment, NULL, 0);
	NEED(memory != (char *)-1);
	CHECK(filled(memory, PAGES, 9));
	page_out(memory, PAGES);
	/* Every segment has an index, up to the one that SHM_INFO returns. */
	struct shmid_ds status;
	struct shm_info info;
	int last = shmctl(0, SHM_INFO, (struct shmid_ds *)&info), found = 0;
	for (int index = 0; index <= last; index++)
		found += shmctl(index, SHM_STAT, &status) == segment && status.shm_segsz == PAGES * PAGE;
	CHECK(found == 1 && info.used_ids >= 1);
	CHECK(shmctl(last + 1, SHM_STAT, &status) < 0 && errno == EINVAL);
	NEED(shmctl(segment, IPC_RMID, NULL) == 0 && shmdt(memory) == 0);
}

/* Executes a program whose file is in swap. */
static void executed(void)
{
	int own = open("/proc/self/exe", O_RDONLY);
	struct stat status;
	NEED(own >= 0 && fstat(own, &status) == 0);
	unsigned long pages = (status.st_size + PAGE - 1) / PAGE;
	int file = memory_file(pages);
	char *memory = show(file, pages, MAP_SHARED);
	long done = 0, more;
	while ((more = read(own, memory + done, status.st_size - done)) > 0)
		done += more;
	NEED(done == status.st_size);
	page_out(memory, pages);
	if (swaps)
		CHECK_EQ(there(memory, pages), 0);
	NEED(munmap(memory, pages * PAGE) == 0);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	int only = open(path, O_RDONLY);
	NEED(only >= 0 && close(file) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		char *arguments[] = {"swap_shared", "--exit", NULL}, *none[] = {NULL};
		fexecve(only, arguments, none);
		_exit(1);
	}
	int ended;
	NEED(waitpid(child, &ended, 0) == child);
	CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 42);
	NEED(close(only) == 0 && close(own) == 0);
}

/* Pages stay write-protected by userfaultfd while they are swapped out, until the protection is removed. */
static void watched(void)
{
	int user = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
	if (user < 0 || ioctl(user, UFFDIO_API, &api) != 0)
		return;
	int file = memory_file(8);
	char *memory = show(file, 8, MAP_SHARED);
	fill(memory, 8, 10);
	struct uffdio_register range = {
		.range = {.start = (unsigned long)memory, .len = 8 * PAGE},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	NEED(ioctl(user, UFFDIO_REGISTER, &range) == 0);
	struct uffdio_writeprotect protect = {
		.range = {.start = (unsigned long)memory, .len = 4 * PAGE},
		.mode = UFFDIO_WRITEPROTECT_MODE_WP,
	};
	NEED(ioctl(user, UFFDIO_WRITEPROTECT, &protect) == 0);
	page_out(memory, 8);
	unsigned long expected = 1ULL << 57;
	CHECK_EQ(word(memory + PAGE) & expected, expected);
	CHECK_EQ(word(memory + 5 * PAGE) & expected, 0);
	if (swaps) {
		/* The location is also known if the page table contains a marker. */
		CHECK_EQ(word(memory + PAGE) & (WORD_SWAPPED | WORD_PRESENT), WORD_SWAPPED);
		CHECK_EQ(word(memory + 5 * PAGE) & (WORD_SWAPPED | WORD_PRESENT), 0);
	}
	CHECK(filled(memory, 8, 10));
	CHECK_EQ(word(memory + PAGE) & expected, expected);
	memory[5 * PAGE] ^= 1;
	page_out(memory, 8);
	memory[5 * PAGE] ^= 1;
	protect.mode = 0;
	NEED(ioctl(user, UFFDIO_WRITEPROTECT, &protect) == 0);
	CHECK_EQ(word(memory + PAGE) & expected, 0);
	memory[PAGE] ^= 1;
	memory[PAGE] ^= 1;
	CHECK(filled(memory, 8, 10));
	NEED(munmap(memory, 8 * PAGE) == 0 && close(file) == 0 && close(user) == 0);
}

static unsigned long state;

static unsigned long next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

/* Fills a page with its number and age, which occur several times. The majority of the page repeats, so that it
 * compresses well. */
static void stamp(char *page, unsigned long number, unsigned long age)
{
	_Atomic unsigned long *words = (_Atomic unsigned long *)page;
	for (int i = 0; i < 512; i += 8)
		atomic_store_explicit(&words[i], number << 32 | age, memory_order_relaxed);
}

/* Returns whether a page contains its number at every offset and, unless `age` is negative, also this age. */
static int is_stamped(const char *page, unsigned long number, long age)
{
	_Atomic unsigned long *words = (_Atomic unsigned long *)page;
	for (int i = 0; i < 512; i += 8) {
		unsigned long seen = atomic_load_explicit(&words[i], memory_order_relaxed);
		if (seen >> 32 != number || (age >= 0 && (long)(seen & 0xffffffff) != age))
			return 0;
	}
	return 1;
}

/* Writes this process's share of the pages, through the mapping and by system calls, and reads all pages. */
static int use(int file, char *memory, unsigned long pages, int self, int processes, long steps)
{
	unsigned *ages = calloc(pages, sizeof *ages);
	char copy[PAGE];
	NEED(ages);
	state = (self + 1) * 2654435761UL + 88172645463325252UL;
	for (long step = 0; step < steps; step++) {
		unsigned long page = next_random() % (next_random() % 10 < 8 ? pages / 5 : pages);
		unsigned long own = page - page % processes + self;
		if (own >= pages)
			continue;
		char *at = memory + own * PAGE;
		int right = 1;
		switch (next_random() % 8) {
		case 0:
			stamp(at, own, ++ages[own]);
			break;
		case 1:
			stamp(copy, own, ++ages[own]);
			right = pwrite(file, copy, PAGE, own * PAGE) == PAGE;
			break;
		case 2:
			right = pread(file, copy, PAGE, own * PAGE) == PAGE && is_stamped(copy, own, ages[own]);
			break;
		case 3:
			if (next_random() % 16 == 0)
				right = madvise(at, PAGE, MADV_PAGEOUT) == 0;
			break;
		case 4:
			right = is_stamped(at, own, ages[own]);
			break;
		default:
			right = is_stamped(memory + page * PAGE, page, -1);
		}
		if (!right) {
			printf("page %lu or %lu is wrong after %ld steps\n", page, own, step);
			return 0;
		}
	}
	for (unsigned long page = self; page < pages; page += processes)
		if (!is_stamped(memory + page * PAGE, page, ages[page])) {
			printf("page %lu is wrong at the end\n", page);
			return 0;
		}
	return 1;
}

static void under_pressure(int processes, unsigned long pages, long steps)
{
	int file = memory_file(pages);
	char *memory = show(file, pages, MAP_SHARED);
	for (unsigned long page = 0; page < pages; page++)
		stamp(memory + page * PAGE, page, 0);
	for (int i = 0; i < processes; i++) {
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			int right = use(file, memory, pages, i, processes, steps);
			fflush(stdout);
			_exit(right ? 0 : 1);
		}
	}
	for (int i = 0; i < processes; i++) {
		int status = 0;
		NEED(wait(&status) > 0);
		CHECK_EQ(status, 0);
	}
	for (unsigned long page = 0; page < pages; page++)
		NEED(is_stamped(memory + page * PAGE, page, -1));
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--exit") == 0)
		return 42;
	swaps = has_swap();
	if (argc > 3) {
		under_pressure(atoi(argv[1]), strtoul(argv[2], NULL, 0) * 256, atol(argv[3]));
		return checked("swap_shared under pressure");
	}
	out_and_in();
	sent_elsewhere();
	of_several();
	cut_off();
	private_over_shared();
	locked();
	segments();
	executed();
	watched();
	return checked("swap_shared");
}
