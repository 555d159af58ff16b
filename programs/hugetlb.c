/* Do hugetlb pages work as on Linux: the pool and its files in /proc and /sys, reservations, faults, copy-on-write,
 * forks, errors, and what /proc reports about them?
 */
#include "userfault.h"

#include <sys/shm.h>
#include <sys/statfs.h>

#define HUGE (2UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define POOL (MAP_ANONYMOUS | MAP_HUGETLB)
#define SIZES "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define HUGETLBFS_MAGIC 0x958458f6

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef SHM_HUGETLB
#define SHM_HUGETLB 04000
#endif

static int store(const char *path, long value)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%ld\n", value);
	int file = open(path, O_WRONLY);
	NEED(file >= 0);
	int written = write(file, text, length);
	close(file);
	return written == length;
}

static long kibibytes(const char *path, const char *name)
{
	char line[256];
	long value = -1;
	FILE *file = fopen(path, "r");
	NEED(file);
	while (fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name)))
			value = atol(line + strlen(name));
	fclose(file);
	return value;
}

static void expect(long total, long free, long reserved)
{
	CHECK_EQ(number_of(SIZES "nr_hugepages"), total);
	CHECK_EQ(number_of(SIZES "free_hugepages"), free);
	CHECK_EQ(number_of(SIZES "resv_hugepages"), reserved);
	CHECK_EQ(kibibytes("/proc/meminfo", "HugePages_Total:"), total);
	CHECK_EQ(kibibytes("/proc/meminfo", "HugePages_Free:"), free);
	CHECK_EQ(kibibytes("/proc/meminfo", "HugePages_Rsvd:"), reserved);
}

static char *map(unsigned long length, int flags)
{
	char *memory = mmap(NULL, length, RW, POOL | flags, -1, 0);
	NEED(memory != MAP_FAILED);
	CHECK_EQ((unsigned long)memory % HUGE, 0);
	return memory;
}

static void reservations(void)
{
	char *memory = map(3 * HUGE, MAP_PRIVATE);
	expect(4, 4, 3);
	CHECK(mmap(NULL, 2 * HUGE, RW, POOL | MAP_PRIVATE, -1, 0) == MAP_FAILED && errno == ENOMEM);
	CHECK(mmap(NULL, 2 * HUGE, RW, POOL | MAP_SHARED, -1, 0) == MAP_FAILED && errno == ENOMEM);
	memory[HUGE + 5] = 1;
	expect(4, 3, 2);
	CHECK_EQ(memory[2 * HUGE - 1], 0);
	expect(4, 3, 2);
	CHECK_EQ(munmap(memory, HUGE), 0);
	expect(4, 3, 1);
	CHECK_EQ(munmap(memory + HUGE, 2 * HUGE), 0);
	expect(4, 4, 0);
	/* The length is rounded up to whole huge pages. */
	memory = map(HUGE + 1, MAP_PRIVATE);
	expect(4, 4, 2);
	CHECK_EQ(munmap(memory, 2 * HUGE), 0);
	memory = map(8 * HUGE, MAP_PRIVATE | MAP_NORESERVE);
	expect(4, 4, 0);
	memory[0] = 1;
	expect(4, 3, 0);
	CHECK_EQ(munmap(memory, 8 * HUGE), 0);
}

static void sizes_of_the_pool(void)
{
	char *memory = map(2 * HUGE, MAP_PRIVATE);
	memory[0] = 1;
	CHECK(store("/proc/sys/vm/nr_hugepages", 1));
	CHECK_EQ(number_of(SIZES "surplus_hugepages"), 1);
	expect(2, 1, 1);
	CHECK(store(SIZES "nr_hugepages", 4));
	CHECK_EQ(number_of(SIZES "surplus_hugepages"), 0);
	CHECK_EQ(munmap(memory, 2 * HUGE), 0);
	expect(4, 4, 0);
	CHECK(store("/proc/sys/vm/nr_overcommit_hugepages", 2));
	CHECK_EQ(number_of(SIZES "nr_overcommit_hugepages"), 2);
	memory = map(6 * HUGE, MAP_PRIVATE);
	CHECK_EQ(number_of(SIZES "surplus_hugepages"), 2);
	expect(6, 6, 6);
	CHECK_EQ(munmap(memory, 6 * HUGE), 0);
	expect(4, 4, 0);
	CHECK(store(SIZES "nr_overcommit_hugepages", 0));
}

static void refusals(void)
{
	char *memory = map(2 * HUGE, MAP_PRIVATE);
	CHECK(mmap(NULL, HUGE, RW, POOL | MAP_PRIVATE | 12 << 26, -1, 0) == MAP_FAILED && errno == EINVAL);
	CHECK(mmap(memory + PAGE, HUGE, RW, POOL | MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EINVAL);
	CHECK_FAILS(munmap(memory, PAGE), EINVAL);
	CHECK_FAILS(munmap(memory + PAGE, HUGE), EINVAL);
	CHECK_FAILS(mprotect(memory + PAGE, HUGE, PROT_READ), EINVAL);
	CHECK_FAILS(madvise(memory + PAGE, HUGE, MADV_DONTNEED), EINVAL);
	CHECK_FAILS(madvise(memory, HUGE, MADV_FREE), EINVAL);
	CHECK(mremap(memory, 2 * HUGE, 3 * HUGE, MREMAP_MAYMOVE) == MAP_FAILED);
	/* A partial huge page at the end of the range is not affected. */
	memory[0] = 7;
	CHECK_EQ(madvise(memory, HUGE - PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(memory[0], 7);
	CHECK_EQ(madvise(memory, HUGE, MADV_DONTNEED), 0);
	expect(4, 4, 2);
	CHECK_EQ(memory[0], 0);
	CHECK_EQ(mlock(memory, 2 * HUGE), 0);
	expect(4, 2, 0);
	CHECK_EQ(munmap(memory, 2 * HUGE), 0);
}

static void forks(void)
{
	char *memory = map(HUGE, MAP_PRIVATE), *shared = map(HUGE, MAP_SHARED);
	memory[0] = shared[0] = 1;
	memory[HUGE - 1] = 9;
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		memory[0] = shared[0] = 2;
		_exit(memory[HUGE - 1] == 9 ? 0 : 1);
	}
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(memory[0], 1);
	CHECK_EQ(shared[0], 2);
	memory[0] = 3;
	expect(4, 2, 0);
	CHECK_EQ(mprotect(memory, HUGE, PROT_READ), 0);
	CHECK_EQ(mprotect(memory, HUGE, RW), 0);
	memory[1] = 4;
	CHECK_EQ(memory[0], 3);
	CHECK_EQ(munmap(memory, HUGE), 0);
	CHECK_EQ(munmap(shared, HUGE), 0);
	expect(4, 4, 0);
}

/* If the pool is exhausted, a copy takes the page from the child for the process that reserved it. The child
 * is killed at its next access, even if it has moved its mapping. */
static void exhausted(int moves)
{
	char *memory = map(4 * HUGE, MAP_PRIVATE);
	for (int page = 0; page < 4; page++)
		memory[page * HUGE] = page;
	int ready[2], go[2];
	char byte = 0;
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (!child) {
		byte = memory[3 * HUGE];
		if (moves) {
			char *elsewhere = mmap(NULL, 5 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			NEED(elsewhere != MAP_FAILED);
			elsewhere += -(uintptr_t)elsewhere % HUGE;
			NEED(mremap(memory, 4 * HUGE, 4 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) == elsewhere);
			memory = elsewhere;
		}
		NEED(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		byte = memory[0];
		_exit(1);
	}
	NEED(read(ready[0], &byte, 1) == 1);
	CHECK_EQ(byte, 3);
	memory[0] = 5;
	NEED(write(go[1], &byte, 1) == 1);
	int status;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	CHECK_EQ(memory[0], 5);
	CHECK_EQ(munmap(memory, 4 * HUGE), 0);
	expect(4, 4, 0);
}

static void files(void)
{
	int file = syscall(SYS_memfd_create, "pages", MFD_HUGETLB);
	NEED(file >= 0);
	CHECK_FAILS(ftruncate(file, PAGE), EINVAL);
	CHECK_EQ(ftruncate(file, 2 * HUGE), 0);
	struct stat status;
	struct statfs system;
	CHECK_EQ(fstat(file, &status), 0);
	CHECK_EQ(status.st_size, 2 * HUGE);
	CHECK_EQ(status.st_blksize, HUGE);
	CHECK_EQ(fstatfs(file, &system), 0);
	CHECK_EQ((unsigned int)system.f_type, HUGETLBFS_MAGIC);
	CHECK_EQ(system.f_bsize, HUGE);
	char *one = mmap(NULL, 2 * HUGE, RW, MAP_SHARED, file, 0);
	char *own = mmap(NULL, HUGE, RW, MAP_PRIVATE, file, HUGE);
	NEED(one != MAP_FAILED && own != MAP_FAILED);
	CHECK(mmap(NULL, HUGE, RW, MAP_SHARED, file, PAGE) == MAP_FAILED && errno == EINVAL);
	expect(4, 4, 3);
	one[HUGE] = 1;
	CHECK_EQ(own[0], 1);
	own[0] = 2;
	CHECK_EQ(one[HUGE], 1);
	expect(4, 2, 1);
	char byte = 0;
	CHECK_EQ(pread(file, &byte, 1, HUGE), 1);
	CHECK_EQ(byte, 1);
	CHECK_FAILS(pwrite(file, &byte, 1, 0), EINVAL);
	CHECK_EQ(fallocate(file, 0, 0, HUGE), 0);
	expect(4, 1, 0);
	CHECK_EQ(madvise(one, HUGE, MADV_REMOVE), 0);
	expect(4, 2, 0);
	CHECK_EQ(munmap(own, HUGE), 0);
	CHECK_EQ(munmap(one, 2 * HUGE), 0);
	expect(4, 3, 0);
	close(file);
	expect(4, 4, 0);
}

/* Returns the number of resident pages of all SysV segments. */
static unsigned long pages_of_segments(void)
{
	struct shm_info info;
	NEED(shmctl(0, SHM_INFO, (void *)&info) >= 0);
	return info.shm_rss;
}

static void segments(void)
{
	unsigned long before = pages_of_segments();
	int id = shmget(IPC_PRIVATE, HUGE, SHM_HUGETLB | IPC_CREAT | 0600);
	CHECK(id >= 0);
	expect(4, 4, 1);
	char *one = shmat(id, NULL, 0), *other = shmat(id, NULL, 0);
	NEED(one != (char *)-1 && other != (char *)-1);
	one[9] = 9;
	CHECK_EQ(other[9], 9);
	CHECK_EQ(pages_of_segments() - before, HUGE / PAGE);
	struct shmid_ds status;
	CHECK_EQ(shmctl(id, IPC_STAT, &status), 0);
	CHECK_EQ(status.shm_nattch, 2);
	CHECK_EQ(status.shm_segsz, HUGE);
	CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
	CHECK_EQ(shmdt(one), 0);
	CHECK_FAILS(shmdt(one), EINVAL);
	CHECK_EQ(other[9], 9);
	CHECK_EQ(shmdt(other), 0);
	expect(4, 4, 0);
	id = shmget(77, 3 * PAGE, IPC_CREAT | IPC_EXCL | 0600);
	CHECK(id >= 0);
	CHECK_FAILS(shmget(77, PAGE, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
	CHECK_FAILS(shmget(77, 4 * PAGE, 0600), EINVAL);
	CHECK_FAILS(shmget(78, PAGE, 0600), ENOENT);
	CHECK_EQ(shmget(77, PAGE, 0600), id);
	one = shmat(id, NULL, SHM_RDONLY);
	NEED(one != (char *)-1);
	CHECK_EQ(one[PAGE], 0);
	CHECK_FAILS(mprotect(one, PAGE, RW), EACCES);
	CHECK_EQ(shmdt(one), 0);
	CHECK_EQ(shmctl(id, IPC_RMID, NULL), 0);
}

static void shown(void)
{
	long before = kibibytes("/proc/self/status", "VmRSS:");
	char *memory = map(2 * HUGE, MAP_PRIVATE);
	CHECK_EQ(madvise(memory, 2 * HUGE, MADV_POPULATE_WRITE), 0);
	CHECK(kibibytes("/proc/self/status", "VmRSS:") < before + 1024);
	CHECK_EQ(kibibytes("/proc/self/status", "HugetlbPages:"), 2 * HUGE / 1024);
	char line[512];
	long page = 0, own = 0;
	int found = 0;
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file);
	while (fgets(line, sizeof line, file)) {
		if (strchr(line, '-') && strtoul(line, NULL, 16) == (unsigned long)memory) {
			found = 1;
			CHECK(strstr(line, "/anon_hugepage (deleted)"));
		} else if (found == 1 && !strncmp(line, "KernelPageSize:", 15)) {
			page = atol(line + 15);
		} else if (found == 1 && !strncmp(line, "Private_Hugetlb:", 16)) {
			own = atol(line + 16);
		} else if (found == 1 && !strncmp(line, "VmFlags:", 8)) {
			CHECK(strstr(line, " ht "));
			found = 2;
		}
	}
	fclose(file);
	CHECK_EQ(found, 2);
	CHECK_EQ(page, 2048);
	CHECK_EQ(own, 4096);
	file = fopen("/proc/self/numa_maps", "r");
	NEED(file);
	found = 0;
	while (fgets(line, sizeof line, file)) {
		if (strtoul(line, NULL, 16) != (unsigned long)memory)
			continue;
		found = 1;
		CHECK(strstr(line, " huge ") && strstr(line, " anon=2 ") && strstr(line, " dirty=2 "));
		CHECK(strstr(line, " N0=2 ") && strstr(line, " kernelpagesize_kB=2048\n"));
	}
	fclose(file);
	CHECK_EQ(found, 1);
	unsigned char there[2 * HUGE / PAGE];
	CHECK_EQ(mincore(memory, 2 * HUGE, there), 0);
	CHECK(there[0] & there[511] & there[1023] & 1);
	CHECK_EQ(munmap(memory, 2 * HUGE), 0);
}

/* Reads pagemap of hugetlb memory that is registered with userfaultfd. PAGEMAP_SCAN reports the category of
 * huge pages for absent pages too, and their entries in pagemap are not those of swapped pages. */
static void watched(void)
{
	enum { IS_HUGE = 1 << 6 };
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	int fd = watcher(UNPOPULATED | POISON), file = (int)syscall(SYS_memfd_create, "pages", MFD_HUGETLB);
	if (fd < 0 || file < 0)
		return;
	NEED(pagemap >= 0 && ftruncate(file, 2 * HUGE) == 0);
	char *shared = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *own = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	NEED(shared != MAP_FAILED && own != MAP_FAILED);
	shared[0] = 's';
	CHECK_EQ(watch(fd, own, 2 * HUGE / PAGE, MINOR | WP), 0);
	CHECK_FAILS(fill(fd, UFFDIO_CONTINUE, own + HUGE, HUGE / PAGE, 0), EFAULT);
	CHECK_EQ(fill(fd, UFFDIO_CONTINUE, own, HUGE / PAGE, 0), 0);
	CHECK_EQ(own[0], 's');
	own[0] = 'o';
	CHECK_EQ(shared[0], 's');
	CHECK_EQ(protect(fd, own + HUGE, HUGE / PAGE, 1), 0);
	uint64_t word = 0;
	CHECK_EQ(pread(pagemap, &word, sizeof word, (off_t)((uintptr_t)(own + HUGE) / PAGE * sizeof word)), 8);
	CHECK_EQ(word >> 56, 2);
	struct region regions[2];
	struct scan scan = { .size = sizeof scan, .start = (uintptr_t)own, .end = (uintptr_t)own + 2 * HUGE };
	scan.vec = (uintptr_t)regions, scan.vec_len = 2, scan.returned = IS_HUGE;
	CHECK_EQ(ioctl(pagemap, PAGEMAP_SCAN, &scan), 1);
	CHECK_EQ(regions[0].end - regions[0].start, 2 * HUGE);
	CHECK_EQ(regions[0].categories, IS_HUGE);
	close(fd);
	CHECK_EQ(munmap(own, 2 * HUGE), 0);
	CHECK_EQ(munmap(shared, 2 * HUGE), 0);
	close(file);
	close(pagemap);
}

int main(void)
{
	long before = number_of(SIZES "nr_hugepages");
	CHECK_EQ(number_of(SIZES "resv_hugepages"), 0);
	CHECK(store(SIZES "nr_hugepages", 4));
	expect(4, 4, 0);
	reservations();
	sizes_of_the_pool();
	refusals();
	forks();
	exhausted(0);
	exhausted(1);
	files();
	segments();
	shown();
	watched();
	CHECK(store(SIZES "nr_hugepages", before));
	return checked("hugetlb");
}
