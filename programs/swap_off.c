/* If a swap device is disabled and enabled again, is everything swapped in, and is nothing lost if there is not enough
 * memory?
 *
 * Usage: swap_off [MEBIBYTES]. If this is more than the machine's memory, the device stays enabled. Needs /dev/zram0
 * or /dev/vda.
 */
#include "check.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/swap.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define PAGES 600UL

/* The path of the swap device, and whether the device is compressed memory. */
static const char *disk_path = "/dev/zram0";
static int is_memory = 1;

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

/* Returns the used KiB in /proc/swaps, or -1 if the device is not listed. */
static long listed(void)
{
	char text[4096];
	int file = open("/proc/swaps", O_RDONLY);
	NEED(file >= 0);
	long length = read(file, text, sizeof text - 1);
	NEED(length > 0);
	close(file);
	text[length] = 0;
	char *row = strstr(text, disk_path);
	long size, used;
	if (!row)
		return -1;
	NEED(sscanf(row + strlen(disk_path), " partition %ld %ld", &size, &used) == 2);
	return used;
}

static void off_and_on(void)
{
	char *memory = mmap(NULL, PAGES * PAGE, RW, PRIVATE, -1, 0);
	NEED(memory != MAP_FAILED);
	fill(memory, PAGES, 1);
	NEED(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK(listed() > 0);
	/* Some pages are shared by several processes, and some are in memory with a copy in swap. */
	int ready[2], go[2], status;
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		char byte = 0;
		int right = filled(memory, PAGES / 2, 1);
		memory[0] ^= 1;
		NEED(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		memory[0] ^= 1;
		_exit(right && filled(memory, PAGES, 1) ? 0 : 1);
	}
	char byte;
	NEED(read(ready[0], &byte, 1) == 1);
	CHECK(filled(memory, PAGES / 3, 1));
	NEED(swapoff(disk_path) == 0);
	CHECK_EQ(listed(), -1);
	CHECK_FAILS(swapoff(disk_path), EINVAL);
	/* After swapoff, no page can be swapped out. */
	NEED(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	struct rusage before, after;
	NEED(getrusage(RUSAGE_SELF, &before) == 0);
	CHECK(filled(memory, PAGES, 1));
	NEED(getrusage(RUSAGE_SELF, &after) == 0);
	CHECK_EQ(after.ru_majflt - before.ru_majflt, 0);
	NEED(write(go[1], &byte, 1) == 1 && waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	NEED(swapon(disk_path, SWAP_FLAG_PREFER | 7) == 0);
	CHECK_EQ(listed(), 0);
	CHECK_FAILS(swapon(disk_path, 0), EBUSY);
	fill(memory, PAGES, 2);
	NEED(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK(listed() > 0);
	CHECK(filled(memory, PAGES, 2));
	NEED(munmap(memory, PAGES * PAGE) == 0);
	CHECK_EQ(listed(), 0);
	close(ready[0]), close(ready[1]), close(go[0]), close(go[1]);
}

/* Shared memory is swapped in even if no process maps it. */
static void shared(void)
{
	int file = syscall(SYS_memfd_create, "shared", 0);
	NEED(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	char *memory = mmap(NULL, PAGES * PAGE, RW, MAP_SHARED, file, 0);
	NEED(memory != MAP_FAILED);
	fill(memory, PAGES, 5);
	NEED(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
	CHECK_EQ(listed(), PAGES * 4);
	NEED(munmap(memory, PAGES * PAGE) == 0);
	CHECK_EQ(listed(), PAGES * 4);
	NEED(swapoff(disk_path) == 0 && swapon(disk_path, 0) == 0);
	CHECK_EQ(listed(), 0);
	static char copy[PAGES * PAGE];
	CHECK_EQ(pread(file, copy, sizeof copy, 0), sizeof copy);
	CHECK(filled(copy, PAGES, 5));
	NEED(close(file) == 0);
}

static void refusals(void)
{
	CHECK_FAILS(swapon(disk_path, 0x80000), EINVAL);
	CHECK_FAILS(swapon("/dev/nothing", 0), ENOENT);
	CHECK_FAILS(swapon("/dev/null", 0), EINVAL);
	CHECK_FAILS(swapoff("/dev/null"), EINVAL);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		NEED(setuid(65534) == 0);
		CHECK_FAILS(swapoff(disk_path), EPERM);
		CHECK_FAILS(swapon(disk_path, 0), EPERM);
		_exit(checks_failed);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
}

/* Reads and writes the device directly, as mkswap does. */
static void as_a_disk(void)
{
	struct stat status;
	NEED(stat(disk_path, &status) == 0);
	CHECK(S_ISBLK(status.st_mode));
	CHECK_FAILS(open(disk_path, O_RDWR | O_EXCL), EBUSY);
	int disk = open(disk_path, O_RDWR);
	NEED(disk >= 0);
	uint64_t size = 0;
	NEED(ioctl(disk, BLKGETSIZE64, &size) == 0);
	CHECK_EQ(lseek(disk, 0, SEEK_END), size);
	static char page[PAGE], header[PAGE];
	CHECK_EQ(pread(disk, header, PAGE, 0), PAGE);
	CHECK(memcmp(header + PAGE - 10, "SWAPSPACE2", 10) == 0);
	CHECK_FAILS(pwrite(disk, header, PAGE, 0), ETXTBSY);
	NEED(swapoff(disk_path) == 0);
	CHECK_EQ(pread(disk, page, PAGE, 3 * PAGE), PAGE);
	/* Compressed memory discards the contents of freed pages. */
	CHECK(!is_memory || (page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0));
	memset(page, 0, PAGE);
	CHECK_EQ(pwrite(disk, "across", 6, 3 * PAGE - 3), 6);
	char across[7] = "";
	CHECK_EQ(pread(disk, across, 6, 3 * PAGE - 3), 6);
	CHECK(strcmp(across, "across") == 0);
	CHECK_FAILS(pwrite(disk, across, 1, size), ENOSPC);
	CHECK_EQ(pread(disk, across, 6, size - 2), 2);
	CHECK_EQ(pread(disk, across, 6, size), 0);
	CHECK_EQ(pwrite(disk, page, PAGE, 0), PAGE);
	CHECK_FAILS(swapon(disk_path, 0), EINVAL);
	/* The header contains a smaller number of pages than the device has. */
	*(uint32_t *)(header + 1028) = 100;
	CHECK_EQ(pwrite(disk, header, PAGE, 0), PAGE);
	CHECK_EQ(fsync(disk), 0);
	NEED(swapon(disk_path, 0) == 0);
	CHECK_EQ(listed(), 0);
	char *memory = mmap(NULL, 200 * PAGE, RW, PRIVATE, -1, 0);
	NEED(memory != MAP_FAILED);
	fill(memory, 200, 3);
	NEED(madvise(memory, 200 * PAGE, MADV_PAGEOUT) == 0);
	CHECK_EQ(listed(), 400);
	CHECK(filled(memory, 200, 3));
	NEED(munmap(memory, 200 * PAGE) == 0);
	NEED(swapoff(disk_path) == 0);
	*(uint32_t *)(header + 1028) = size / PAGE - 1;
	CHECK_EQ(pwrite(disk, header, PAGE, 0), PAGE);
	NEED(swapon(disk_path, 0) == 0);
	close(disk);
}

/* swapoff fails if swap contains more than fits in memory. */
static void refused(unsigned long mebibytes)
{
	unsigned long pages = mebibytes * 256;
	char *memory = mmap(NULL, pages * PAGE, RW, PRIVATE, -1, 0);
	NEED(memory != MAP_FAILED);
	fill(memory, pages, 4);
	CHECK_FAILS(swapoff(disk_path), ENOMEM);
	CHECK(listed() > 0);
	CHECK(filled(memory, pages, 4));
	NEED(munmap(memory, pages * PAGE) == 0);
	NEED(swapoff(disk_path) == 0);
	NEED(swapon(disk_path, 0) == 0);
}

int main(int argc, char **argv)
{
	if (access(disk_path, F_OK) != 0) {
		disk_path = "/dev/vda";
		is_memory = 0;
	}
	NEED(listed() >= 0);
	if (argc > 1) {
		refused(strtoul(argv[1], NULL, 0));
	} else {
		off_and_on();
		shared();
		refusals();
		as_a_disk();
	}
	return checked("swap_off");
}
