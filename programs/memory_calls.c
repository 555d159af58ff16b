/* Do the calls and files about huge pages, NUMA nodes and merging accept and refuse the same arguments as on Linux?
 *
 * The checks apply to any machine with at least one node, and settings are restored. No hugetlb pool is needed.
 */
#include "check.h"
#include <sys/prctl.h>
#include <sys/utsname.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif

enum {
	BIND = 2,
	INTERLEAVE = 3,
	LOCAL = 4,
	STATIC = 1 << 15,
	RELATIVE = 1 << 14,
	BALANCING = 1 << 13,
	ADDR = 1 << 1,
	ALLOWED = 1 << 2,
	STRICT = 1 << 0,
	MOVE = 1 << 1,
};

#define HUGE (2UL << 20)
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define KSM "/sys/kernel/mm/ksm/"

static char *text_of(const char *path)
{
	static char text[1 << 18];
	int file = open(path, O_RDONLY);
	size_t length = 0;
	long count;
	while ((count = read(file, text + length, sizeof text - 1 - length)) > 0)
		length += count;
	text[length] = 0;
	close(file);
	return text;
}

/* Returns the result of writing this text to a file: a count, or a negative errno. */
static long wrote(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	if (file < 0)
		return -errno;
	long count = write(file, text, strlen(text));
	long result = count < 0 ? -errno : count;
	close(file);
	return result;
}

/* Maps memory of two huge pages at an aligned address. */
static char *aligned(int flags, int file)
{
	char *space = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(space != MAP_FAILED);
	char *memory = (char *)(((uintptr_t)space + HUGE - 1) & ~(HUGE - 1));
	NEED(munmap(space, 4 * HUGE) == 0);
	NEED(mmap(memory, 2 * HUGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0) == memory);
	return memory;
}

/* A number may be followed only by a newline. An empty write is not a number, and changes nothing. */
static void attributes(void)
{
	const char *const numbers[] = { KSM "pages_to_scan", KSM "sleep_millisecs", KSM "max_page_sharing",
		THP "khugepaged/pages_to_scan", THP "khugepaged/max_ptes_none" };
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		const char *path = numbers[i];
		char before[32];
		snprintf(before, sizeof before, "%ld", strtol(text_of(path), NULL, 10));
		CHECK_EQ(wrote(path, before), strlen(before));
		CHECK_EQ(wrote(path, ""), 0);
		CHECK_EQ(wrote(path, " 5"), -EINVAL);
		CHECK_EQ(wrote(path, "5 "), -EINVAL);
		CHECK_EQ(wrote(path, "5\n\n"), -EINVAL);
		CHECK_EQ(wrote(path, "\n"), -EINVAL);
		CHECK_EQ(wrote(path, "-5"), -EINVAL);
		CHECK_EQ(wrote(path, "0x5"), -EINVAL);
		CHECK(strtol(text_of(path), NULL, 10) == strtol(before, NULL, 10));
	}
	CHECK_EQ(wrote(KSM "max_page_sharing", "4294967296"), -ERANGE);
	CHECK_EQ(wrote(KSM "max_page_sharing", "1"), -EINVAL);
	CHECK_EQ(wrote(KSM "merge_across_nodes", "2"), -EINVAL);
	CHECK_EQ(wrote(KSM "merge_across_nodes", "18446744073709551616"), -ERANGE);
	CHECK_EQ(wrote(KSM "use_zero_pages", "2"), -EINVAL);
	CHECK_EQ(wrote(KSM "use_zero_pages", "0x1"), 3);
	CHECK_EQ(wrote(THP "enabled", ""), 0);
	CHECK_EQ(wrote(THP "enabled", "never "), -EINVAL);
	CHECK_EQ(wrote("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "x"), -EINVAL);
	CHECK_EQ(wrote("/proc/sys/vm/nr_overcommit_hugepages", ""), 0);
	CHECK_EQ(wrote("/proc/sys/vm/nr_overcommit_hugepages", "+1"), -EINVAL);
	/* Not even root can write a read-only file. */
	CHECK_EQ(wrote(THP "hpage_pmd_size", "1"), -EACCES);
	CHECK_EQ(wrote(KSM "full_scans", "1"), -EACCES);
}

/* A collapse of memory that was never populated does nothing. */
static void collapse_of_nothing(void)
{
	char *memory = aligned(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK_FAILS(madvise(memory, HUGE, MADV_COLLAPSE), EINVAL);
	CHECK_FAILS(madvise(memory, PAGE, MADV_COLLAPSE), EINVAL);
	CHECK_EQ(madvise(memory, 0, MADV_COLLAPSE), 0);
	/* The zero page does not count as a private page. */
	NEED(madvise(memory, 2 * HUGE, MADV_NOHUGEPAGE) == 0);
	for (size_t page = 0; page < HUGE / PAGE; page++)
		CHECK_EQ(((volatile char *)memory)[page * PAGE], 0);
	NEED(madvise(memory, 2 * HUGE, MADV_HUGEPAGE) == 0);
	CHECK_FAILS(madvise(memory, HUGE, MADV_COLLAPSE), EINVAL);
	memory[5 * PAGE] = 1;
	CHECK_EQ(madvise(memory, HUGE, MADV_COLLAPSE), 0);
	CHECK_EQ(madvise(memory, PAGE, MADV_COLLAPSE), 0);
	CHECK_EQ(memory[5 * PAGE], 1);
	munmap(memory, 2 * HUGE);
	memory = aligned(MAP_SHARED | MAP_ANONYMOUS, -1);
	CHECK_FAILS(madvise(memory, HUGE, MADV_COLLAPSE), EINVAL);
	memory[HUGE] = 1;
	CHECK_FAILS(madvise(memory, HUGE, MADV_COLLAPSE), EINVAL);
	CHECK_EQ(madvise(memory + HUGE, HUGE, MADV_COLLAPSE), 0);
	munmap(memory, 2 * HUGE);
}

/* Nodes that are possible but do not exist are accepted in a mask, without any effect. */
static void masks(void)
{
	unsigned long far[16] = { 1, 1 }, none[16] = { 0, 1 }, beyond[17] = { 1, [16] = 1 }, told[16];
	int mode = -1;
	CHECK_EQ(syscall(SYS_set_mempolicy, BIND, far, 129UL), 0);
	CHECK_EQ(syscall(SYS_get_mempolicy, &mode, told, 1025UL, NULL, 0UL), 0);
	CHECK(mode == BIND && told[0] == 1);
	CHECK_EQ(syscall(SYS_set_mempolicy, BIND | STATIC, far, 129UL), 0);
	CHECK_FAILS(syscall(SYS_set_mempolicy, BIND, none, 129UL), EINVAL);
	CHECK_EQ(syscall(SYS_set_mempolicy, BIND | RELATIVE, none, 129UL), 0);
	CHECK_FAILS(syscall(SYS_set_mempolicy, BIND, beyond, 1026UL), EINVAL);
	CHECK_FAILS(syscall(SYS_set_mempolicy, LOCAL, none, 129UL), EINVAL);
	CHECK_EQ(syscall(SYS_set_mempolicy, 0, NULL, 0UL), 0);
	/* The length is so large that adding to it overflows to 0 words. */
	CHECK_EQ(syscall(SYS_get_mempolicy, NULL, told, ~0UL, NULL, (unsigned long)ALLOWED), 0);
	CHECK_EQ(syscall(SYS_get_mempolicy, NULL, told, 1025UL, NULL, (unsigned long)ALLOWED), 0);
	CHECK(told[0] & 1);
}

static void ranges(void)
{
	unsigned long first = 1;
	char *memory = aligned(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	/* A length that overflows to 0 makes an empty range, which needs no nodes. */
	CHECK_EQ(syscall(SYS_mbind, memory, ~0UL, BIND, &first, 64UL, 0), 0);
	CHECK_FAILS(syscall(SYS_mbind, memory, -PAGE, BIND, &first, 64UL, 0), EINVAL);
	CHECK_EQ(syscall(SYS_mbind, memory, 0UL, BIND, NULL, 0UL, 0), 0);
	CHECK_FAILS(syscall(SYS_mbind, memory, 0UL, BIND | STATIC | RELATIVE, &first, 64UL, 0), EINVAL);
	CHECK_FAILS(syscall(SYS_mbind, memory + 1, 0UL, BIND, &first, 64UL, 0), EINVAL);
	/* Without MPOL_MF_MOVE_ALL, a page that other processes share is not moved and is not reported as misplaced. */
	memory[0] = 1;
	pid_t child = fork_checked();
	if (child == 0) {
		pause();
		_exit(0);
	}
	CHECK_EQ(syscall(SYS_mbind, memory, PAGE, BIND, &first, 64UL, STRICT | MOVE), 0);
	kill(child, SIGKILL);
	siginfo_t end;
	CHECK_EQ(waitid(P_PID, child, &end, WEXITED | WNOWAIT), 0);
	/* A zombie exists, but has no memory. */
	void *page = memory;
	int node = 0, status = -1;
	CHECK_FAILS(syscall(SYS_move_pages, child, 1UL, &page, &node, &status, MOVE), EINVAL);
	CHECK_FAILS(syscall(SYS_migrate_pages, child, 64UL, &first, &first), EINVAL);
	CHECK_EQ(waitpid(child, NULL, 0), child);
	CHECK_FAILS(syscall(SYS_move_pages, child, 1UL, &page, &node, &status, MOVE), ESRCH);
	munmap(memory, 2 * HUGE);
}

/* Returns the line of /proc/self/numa_maps for this memory, without its address. */
static char *policy_line(const char *memory)
{
	char address[32];
	snprintf(address, sizeof address, "%08lx ", (unsigned long)memory);
	char *line = strstr(text_of("/proc/self/numa_maps"), address);
	NEED(line != NULL);
	line[strcspn(line, "\n")] = 0;
	return line + strlen(address);
}

static void shown(void)
{
	unsigned long first = 1;
	char *memory = aligned(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK_EQ(syscall(SYS_mbind, memory, 2 * HUGE, BIND | BALANCING, &first, 64UL, 0), 0);
	CHECK(strncmp(policy_line(memory), "bind=balancing:0", 16) == 0);
	CHECK_EQ(syscall(SYS_mbind, memory, 2 * HUGE, BIND | BALANCING | STATIC, &first, 64UL, 0), 0);
	CHECK(strncmp(policy_line(memory), "bind=static|balancing:0", 23) == 0);
	munmap(memory, 2 * HUGE);
	memory = aligned(MAP_SHARED | MAP_ANONYMOUS, -1);
	CHECK_EQ(syscall(SYS_mbind, memory, 2 * HUGE, INTERLEAVE, &first, 64UL, 0), 0);
	CHECK(strstr(policy_line(memory), " file=/dev/zero\\040(deleted)") != NULL);
	munmap(memory, 2 * HUGE);
	/* THP_enabled is 0 only for a process that has disabled huge pages completely. */
	CHECK(strstr(text_of("/proc/self/status"), "\nTHP_enabled:\t1\nuntag_mask:\t0xffffffffffffffff\n") != NULL);
	CHECK_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	CHECK(strstr(text_of("/proc/self/status"), "\nTHP_enabled:\t0\n") != NULL);
	CHECK_EQ(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
	/* ksm_mergeable reflects MADV_MERGEABLE. */
	memory = aligned(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	CHECK(strstr(text_of("/proc/self/ksm_stat"), "ksm_mergeable: no\n") != NULL);
	CHECK_EQ(madvise(memory, PAGE, MADV_MERGEABLE), 0);
	CHECK(strstr(text_of("/proc/self/ksm_stat"), "ksm_mergeable: yes\n") != NULL);
	CHECK_EQ(madvise(memory, PAGE, MADV_UNMERGEABLE), 0);
	CHECK(strstr(text_of("/proc/self/ksm_stat"), "ksm_mergeable: no\n") != NULL);
	CHECK_EQ(prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0), 0);
	CHECK(strstr(text_of("/proc/self/ksm_stat"), "ksm_mergeable: yes\n") != NULL);
	CHECK_EQ(prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0), 0);
	munmap(memory, 2 * HUGE);
}

/* Since Linux 7, a hugetlb area that is not inherited (MADV_DONTFORK) can never be made inheritable again. */
static void kept_from_children(void)
{
	struct utsname name;
	NEED(uname(&name) == 0);
	char *memory = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
	NEED(memory != MAP_FAILED);
	CHECK_EQ(madvise(memory, HUGE, MADV_DONTFORK), 0);
	if (strtol(name.release, NULL, 10) >= 7)
		CHECK_FAILS(madvise(memory, HUGE, MADV_DOFORK), EINVAL);
	munmap(memory, HUGE);
}

int main(void)
{
	attributes();
	collapse_of_nothing();
	masks();
	ranges();
	shown();
	kept_from_children();
	return checked("memory_calls");
}
