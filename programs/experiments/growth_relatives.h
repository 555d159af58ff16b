/* The experiment on growth, with processes: a chain of forks, and the processes that map a page. */
#ifndef GROWTH_RELATIVES_H
#define GROWTH_RELATIVES_H

#include "growth.h"
#include "swap.h"

#include <sys/mount.h>

/* Not every C library has a header with these. */
enum { FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE };

#ifndef MPOL_MF_MOVE_ALL
#define MPOL_MF_MOVE_ALL 4
#endif

static inline long futex(uint32_t *word, int operation, uint32_t value)
{
	return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static char *shared_memory(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	return memory;
}

/* ---- depth of fork ---- */

enum { INHERITED_PAGES = 256 };
static unsigned long depth, used_pages;
static char *inherited, *common_page;

static void make_inheritance(void)
{
	inherited = mapped(INHERITED_PAGES * PAGE, PROT_READ | PROT_WRITE);
	write_pages(inherited, INHERITED_PAGES * PAGE);
	common_page = shared_memory(PAGE);
	*common_page = 1;
}

/* Lets a child go on with the experiment, whose own child goes on at the next step. Each process waits for its child, and
 * ends as that one does. */
static void grow_depth(unsigned long n)
{
	if (!inherited)
		make_inheritance();
	for (; depth < n; depth++) {
		int status;
		pid_t child = fork();
		MUST(child >= 0);
		if (child == 0)
			continue;
		MUST(waitpid(child, &status, 0) == child);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
}

/* Writes to an inherited page that no process of the chain has written since the page was populated. */
static uint64_t copy_inherited(unsigned long n)
{
	(void)n;
	MUST(used_pages < INHERITED_PAGES);
	char *page = inherited + used_pages++ * PAGE;
	uint64_t start = clock_now();
	*(volatile char *)page = 2;
	return clock_now() - start;
}

static uint64_t read_common(unsigned long n)
{
	(void)n;
	MUST(madvise(common_page, PAGE, MADV_DONTNEED) == 0);
	uint64_t start = clock_now();
	*(volatile char *)common_page;
	return clock_now() - start;
}

static uint64_t drop_inherited(unsigned long n)
{
	(void)n;
	MUST(used_pages < INHERITED_PAGES);
	char *page = inherited + used_pages++ * PAGE;
	uint64_t start = clock_now();
	MUST(madvise(page, PAGE, MADV_DONTNEED) == 0);
	return clock_now() - start;
}

/* Returns whether this process maps the page, from /proc/self/pagemap. */
static int is_present(const char *page)
{
	uint64_t entry;
	int file = open("/proc/self/pagemap", O_RDONLY);
	MUST(file >= 0 && pread(file, &entry, sizeof entry, (uintptr_t)page / PAGE * sizeof entry) == sizeof entry);
	close(file);
	return entry >> 63;
}

/* ---- cgroups, in which pages are reclaimed ---- */

static const char *group_root = "/sys/fs/cgroup";

static const char *in_group(const char *group, const char *file)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s/%s", group_root, group, file);
	return path;
}

static int write_text(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	long written = file < 0 ? -1 : write(file, text, strlen(text));
	close(file);
	return written > 0;
}

/* Finds the hierarchy of cgroups, or mounts it, and enables the memory controller. */
static int has_groups(void)
{
	if (access(in_group("", "cgroup.procs"), F_OK) != 0) {
		group_root = "/tmp/cgroup";
		mkdir(group_root, 0755);
		if (mount("none", group_root, "cgroup2", 0, NULL) != 0)
			return 0;
	}
	return write_text(in_group("", "cgroup.subtree_control"), "+memory");
}

/* ---- processes that map a page, among many that do not ---- */

enum { MEMBERS = 1000, FILE_PAGES = 64 };
static pid_t members[MEMBERS];
/* The processes that map the page are the first ones. This process is another one. */
static unsigned long mappers;
static int page_file;
/* The page of a file, with others after it, and a page that processes share because they inherited it. */
static char *file_pages, *inherited_page;
/* The processes that map the pages touch them once in each round. The last one ends the round. */
static struct {
	uint32_t round, pending;
	/* The cost that a child measured. */
	uint64_t cost;
} *meeting;

/* Accesses the pages once in each round after round `seen`. */
static void touch_for_ever(uint32_t seen)
{
	for (;; seen++) {
		while (__atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE) == seen)
			futex(&meeting->round, FUTEX_WAIT, seen);
		read_pages(file_pages, FILE_PAGES * PAGE);
		*(volatile char *)inherited_page;
		if (__atomic_sub_fetch(&meeting->pending, 1, __ATOMIC_ACQ_REL) == 0)
			futex(&meeting->pending, FUTEX_WAKE, 1);
	}
}

/* Starts a process that maps the pages, or one that does not. */
static void start_member(unsigned long which, int is_mapper)
{
	uint32_t seen = meeting->round;
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0 && is_mapper)
		touch_for_ever(seen);
	if (child == 0) {
		MUST(munmap(file_pages, FILE_PAGES * PAGE) == 0 && munmap(inherited_page, PAGE) == 0);
		for (;;)
			pause();
	}
	members[which] = child;
}

static void end_member(unsigned long which)
{
	if (members[which] == 0)
		return;
	kill(members[which], SIGKILL);
	MUST(waitpid(members[which], NULL, 0) == members[which]);
	members[which] = 0;
}

static void end_members(void)
{
	for (unsigned long which = 0; which < MEMBERS; which++)
		end_member(which);
}

/* Fills the file again, and lets every process that maps its pages touch them. */
static void touch_by_all(void)
{
	MUST(ftruncate(page_file, FILE_PAGES * PAGE) == 0);
	write_pages(file_pages, FILE_PAGES * PAGE);
	__atomic_store_n(&meeting->pending, mappers, __ATOMIC_RELEASE);
	__atomic_add_fetch(&meeting->round, 1, __ATOMIC_ACQ_REL);
	futex(&meeting->round, FUTEX_WAKE, MEMBERS);
	for (;;) {
		uint32_t pending = __atomic_load_n(&meeting->pending, __ATOMIC_ACQUIRE);
		if (pending == 0)
			break;
		futex(&meeting->pending, FUTEX_WAIT, pending);
	}
	/* Gives the last process time to wait again. */
	usleep(1000);
}

static void make_pages(void)
{
	meeting = (void *)shared_memory(PAGE);
	MUST((page_file = memfd_create("growth", 0)) >= 0 && ftruncate(page_file, FILE_PAGES * PAGE) == 0);
	file_pages = mmap(NULL, FILE_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, page_file, 0);
	MUST(file_pages != MAP_FAILED);
	inherited_page = mapped(PAGE, PROT_READ | PROT_WRITE);
	*inherited_page = 1;
	for (unsigned long which = 0; which < MEMBERS; which++)
		start_member(which, 0);
}

/* Replaces processes by ones that map the pages. This process maps them too. */
static void grow_mappers(unsigned long n)
{
	if (!meeting)
		make_pages();
	for (; mappers < n - 1; mappers++) {
		end_member(mappers);
		start_member(mappers, 1);
	}
	touch_by_all();
}

/* Truncates the file by its last page. */
static uint64_t truncate_page(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	MUST(ftruncate(page_file, (FILE_PAGES - 1) * PAGE) == 0);
	uint64_t cost = clock_now() - start;
	touch_by_all();
	return cost;
}

/* Migrates a page from one of the two nodes to the other. */
static uint64_t migrate(char *page)
{
	int node = -1, status = -1;
	/* Populates the page again, because it may have been reclaimed. */
	*(volatile char *)page;
	MUST(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &node, 0) == 0 && node >= 0);
	int other = !node;
	uint64_t start = clock_now();
	long result = syscall(SYS_move_pages, 0, 1UL, &page, &other, &status, MPOL_MF_MOVE_ALL);
	uint64_t cost = clock_now() - start;
	return result == 0 && status == other ? cost : UNAVAILABLE;
}

static uint64_t migrate_file_page(unsigned long n)
{
	(void)n;
	return migrate(file_pages);
}

static uint64_t migrate_inherited_page(unsigned long n)
{
	(void)n;
	return migrate(inherited_page);
}

static uint64_t protect_file_page(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	MUST(mprotect(file_pages, PAGE, PROT_READ) == 0);
	uint64_t cost = clock_now() - start;
	MUST(mprotect(file_pages, PAGE, PROT_READ | PROT_WRITE) == 0);
	return cost;
}

/* Returns the number of pages of the file that this process does not map. */
static unsigned long pages_gone(void)
{
	unsigned long gone = 0;
	for (int page = 0; page < FILE_PAGES; page++)
		gone += !is_present(file_pages + page * PAGE);
	return gone;
}

/* Fills the file in a cgroup of its own, whose limit then falls to half of the file. Returns the cost per page of the file
 * that is reclaimed. */
static uint64_t lower_limit(void)
{
	char text[32];
	snprintf(text, sizeof text, "%lu", FILE_PAGES / 2 * PAGE);
	MUST(ftruncate(page_file, 0) == 0 && write_text(in_group("reclaim", "cgroup.procs"), "0"));
	touch_by_all();
	int limit = open(in_group("reclaim", "memory.max"), O_WRONLY);
	MUST(limit >= 0);
	uint64_t start = clock_now();
	MUST(write(limit, text, strlen(text)) > 0);
	uint64_t cost = clock_now() - start;
	unsigned long gone = pages_gone();
	return gone > 0 ? cost / gone : UNAVAILABLE;
}

/* Reclaims pages of the file by the limit of a cgroup: MADV_PAGEOUT does not reclaim pages that other processes map. A
 * child lowers the limit, because the kernel kills the process that lowers it if nothing can be reclaimed. */
static uint64_t reclaim_file_pages(unsigned long n)
{
	(void)n;
	if (!has_swap() || !has_groups())
		return UNAVAILABLE;
	MUST(mkdir(in_group("reclaim", ""), 0755) == 0 || errno == EEXIST);
	meeting->cost = UNAVAILABLE;
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		meeting->cost = lower_limit();
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0) == child);
	MUST(write_text(in_group("reclaim", "memory.max"), "max"));
	touch_by_all();
	return meeting->cost;
}

#endif
