/* Does khugepaged sleep for alloc_sleep_millisecs if it cannot allocate a huge page?
 *
 * The hugetlb pool takes all memory that could become a huge page. After the pool has been freed, the range is not
 * collapsed until the setting changes. Needs root, and no other user of huge pages.
 */
#include "check.h"
#include <time.h>

#define SETTINGS "/sys/kernel/mm/transparent_hugepage/"
#define POOL "/proc/sys/vm/nr_hugepages"
#define HUGE (2UL << 20)

static char *memory;

static void set(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	NEED(file >= 0);
	CHECK_EQ(write(file, text, strlen(text)), strlen(text));
	close(file);
}

static void rest(long milliseconds)
{
	struct timespec moment = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	nanosleep(&moment, NULL);
}

/* Returns whether the memory is one huge page. Uses only memory that it has used before, because there may be no free
 * memory. */
static int is_huge(void)
{
	static char text[1 << 16];
	size_t length = 0;
	ssize_t more;
	int file = open("/proc/self/smaps", O_RDONLY), here = 0;
	NEED(file >= 0);
	while ((more = read(file, text + length, sizeof text - 1 - length)) > 0)
		length += (size_t)more;
	close(file);
	text[length] = 0;
	for (char *line = text; line; line = strchr(line, '\n')) {
		unsigned long start, end;
		line += *line == '\n';
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)memory && (uintptr_t)memory < end;
		else if (here && strncmp(line, "AnonHugePages:", 14) == 0)
			return atol(line + 14) == (long)(HUGE / 1024);
	}
	return 0;
}

int main(void)
{
	/* While the pool contains all memory, nothing can be allocated. */
	NEED(mlockall(MCL_CURRENT) == 0);
	char *whole = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(whole != MAP_FAILED);
	NEED(madvise(whole, 3 * HUGE, MADV_NOHUGEPAGE) == 0);
	memory = (char *)(((uintptr_t)whole + HUGE - 1) & ~(HUGE - 1));
	memset(memory, 1, HUGE);
	set(SETTINGS "enabled", "madvise");
	set(SETTINGS "khugepaged/defrag", "0");
	set(SETTINGS "khugepaged/pages_to_scan", "4096");
	set(SETTINGS "khugepaged/scan_sleep_millisecs", "10");
	set(SETTINGS "khugepaged/alloc_sleep_millisecs", "600000");
	CHECK_EQ(number_of(SETTINGS "khugepaged/alloc_sleep_millisecs"), 600000);
	set(POOL, "1000000");
	NEED(number_of(POOL) > 0);
	NEED(madvise(memory, HUGE, MADV_HUGEPAGE) == 0);
	/* A new area does not wake khugepaged, which sleeps for 10 milliseconds and then scans. */
	rest(500);
	CHECK(!is_huge());
	set(POOL, "0");
	rest(500);
	CHECK(!is_huge());
	/* A change of the setting ends the sleep. */
	set(SETTINGS "khugepaged/alloc_sleep_millisecs", "10");
	for (int i = 0; i < 500 && !is_huge(); i++)
		rest(10);
	CHECK(is_huge());
	for (size_t at = 0; at < HUGE; at += PAGE)
		CHECK_EQ(memory[at], 1);
	return checked("khugepaged_sleep");
}
