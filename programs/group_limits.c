/* Is each group with limits (cgroup v2) charged for what its processes touch, up to its limit?
 *
 * Needs a swap device and root. Mounts the cgroup file system if it is not mounted.
 */
#include "check.h"

#include <sys/mount.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define MIB (1UL << 20)
/* Linux also charges page tables, kernel stacks, and pages that CPUs have charged in advance. */
#define BESIDE (3 * MIB)
/* On Linux the charge may increase by this amount less than expected, because CPUs have charged some pages in
 * advance. */
#define AHEAD (MIB / 2)

static const char *root = "/sys/fs/cgroup";

static void find_groups(void)
{
	if (access("/sys/fs/cgroup/cgroup.procs", F_OK) == 0)
		return;
	root = "/tmp/cgroup";
	mkdir(root, 0755);
	NEED(mount("none", root, "cgroup2", 0, NULL) == 0);
}

static const char *path_of(const char *group, const char *file)
{
	static char path[256];
	snprintf(path, sizeof path, "%s/%s/%s", root, group, file);
	return path;
}

static int set(const char *group, const char *file, const char *text)
{
	int open_file = open(path_of(group, file), O_WRONLY);
	if (open_file < 0)
		return -1;
	ssize_t done = write(open_file, text, strlen(text));
	int error = errno;
	close(open_file);
	errno = error;
	return done == (ssize_t)strlen(text) ? 0 : -1;
}

static long get(const char *group, const char *file)
{
	char text[64] = "";
	int open_file = open(path_of(group, file), O_RDONLY);
	NEED(open_file >= 0);
	NEED(read(open_file, text, sizeof text - 1) > 0);
	close(open_file);
	return strncmp(text, "max", 3) == 0 ? -1 : atol(text);
}

static long row(const char *group, const char *file, const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s", path_of(group, file));
	return row_in(path, name);
}

static void make(const char *group)
{
	NEED(mkdir(path_of(group, ""), 0755) == 0);
}

static void unmake(const char *group)
{
	/* On Linux a process that was waited for may still be in its group. */
	for (int i = 0; i < 1000 && row(group, "cgroup.events", "populated") == 1; i++)
		usleep(1000);
	CHECK(rmdir(path_of(group, "")) == 0);
}

static void enter(const char *group)
{
	NEED(set(group, "cgroup.procs", "0") == 0);
}

static void stamp(char *memory, unsigned long pages)
{
	for (unsigned long page = 0; page < pages; page++)
		for (int at = 0; at < 4096; at += 512)
			*(unsigned long *)(memory + page * PAGE + at) = page * 1000003 + at;
}

static int is_stamped(const char *memory, unsigned long pages)
{
	for (unsigned long page = 0; page < pages; page++)
		for (int at = 0; at < 4096; at += 512)
			if (*(unsigned long *)(memory + page * PAGE + at) != page * 1000003 + at)
				return 0;
	return 1;
}

static void layout(void)
{
	char line[256], *found = NULL;
	FILE *file = fopen("/proc/self/cgroup", "r");
	NEED(file && fgets(line, sizeof line, file));
	fclose(file);
	CHECK(strcmp(line, "0::/\n") == 0);
	file = fopen("/proc/self/mounts", "r");
	NEED(file != NULL);
	while (!found && fgets(line, sizeof line, file))
		found = strstr(line, " cgroup2 ");
	fclose(file);
	CHECK(found != NULL);
	make("a");
	CHECK_FAILS(mkdir(path_of("a", ""), 0755), EEXIST);
	CHECK_EQ(get("a", "memory.max"), -1);
	CHECK(set("a", "memory.max", "16M") == 0);
	CHECK_EQ(get("a", "memory.max"), 16 * MIB);
	CHECK(set("a", "memory.max", "1048577\n") == 0);
	CHECK_EQ(get("a", "memory.max"), MIB);
	CHECK_FAILS(set("a", "memory.max", "much"), EINVAL);
	CHECK(set("a", "memory.max", "max") == 0);
	CHECK_EQ(get("a", "memory.swap.max"), -1);
	CHECK_FAILS(set("a", "cgroup.procs", "x"), EINVAL);
	CHECK_FAILS(set("a", "cgroup.procs", "4194303"), ESRCH);
	CHECK_FAILS(set("", "cgroup.subtree_control", "+nothing"), EINVAL);
	CHECK_FAILS(unlink(path_of("a", "memory.max")), EPERM);
	unmake("a");
	CHECK_FAILS(rmdir(path_of("a", "")), ENOENT);
}

/* Checks membership of processes and of their children. A group with members cannot be removed. */
static void members(void)
{
	make("a");
	int ready[2], go[2], status;
	char byte = 0, line[64] = "";
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		enter("a");
		pid_t grandchild = fork();
		NEED(grandchild >= 0);
		if (grandchild == 0) {
			FILE *file = fopen("/proc/self/cgroup", "r");
			NEED(file && fgets(line, sizeof line, file));
			_exit(strcmp(line, "0::/a\n") != 0);
		}
		CHECK(exited(wait_for(grandchild), 0));
		NEED(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		end_child();
	}
	NEED(read(ready[0], &byte, 1) == 1);
	CHECK_EQ(get("a", "cgroup.procs"), child);
	CHECK_EQ(row("a", "cgroup.events", "populated"), 1);
	CHECK_FAILS(rmdir(path_of("a", "")), EBUSY);
	/* The child moves to the root group and back. */
	char id[16];
	snprintf(id, sizeof id, "%d", child);
	NEED(set("", "cgroup.procs", id) == 0);
	CHECK_EQ(row("a", "cgroup.events", "populated"), 0);
	NEED(set("a", "cgroup.procs", id) == 0);
	NEED(write(go[1], &byte, 1) == 1);
	status = wait_for(child);
	CHECK(exited(status, 0));
	unmake("a");
}

/* Pages that a process touches are charged to its group. */
static void touches(void *nothing)
{
	(void)nothing;
	enter("a");
	long before = get("a", "memory.current");
	long faults = row("a", "memory.stat", "pgfault");
	char *memory = anonymous(8 * MIB);
	NEED(memory != NULL);
	madvise(memory, 8 * MIB, MADV_NOHUGEPAGE);
	volatile char sum = 0;
	for (unsigned long at = 0; at < 8 * MIB; at += PAGE)
		sum += memory[at];
	CHECK(get("a", "memory.current") < before + (long)BESIDE);
	stamp(memory, 8 * MIB / PAGE);
	long after = get("a", "memory.current");
	CHECK(after >= before + 8 * (long)MIB - (long)AHEAD && after < before + 8 * (long)MIB + (long)BESIDE);
	CHECK(row("a", "memory.stat", "anon") >= 8 * (long)MIB);
	CHECK(row("a", "memory.stat", "pgfault") >= faults + 4096);
	/* Pages that a fork shares are charged once. */
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		CHECK(is_stamped(memory, 8 * MIB / PAGE));
		CHECK(get("a", "memory.current") < after + (long)BESIDE);
		stamp(memory, 2 * MIB / PAGE);
		CHECK(get("a", "memory.current") >= after + 2 * (long)MIB - (long)AHEAD);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK(get("a", "memory.peak") < before + 10 * (long)MIB + (long)BESIDE);
	char *shared = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED);
	stamp(shared, 4 * MIB / PAGE);
	CHECK(get("a", "memory.current") >= before + 12 * (long)MIB - (long)AHEAD);
	CHECK(row("a", "memory.stat", "shmem") >= 4 * (long)MIB);
	munmap(shared, 4 * MIB);
	munmap(memory, 8 * MIB);
	CHECK(get("a", "memory.current") < before + (long)BESIDE);
	CHECK(get("a", "memory.peak") >= after);
}

/* Uses twice the group's limit. The process is not killed, because half of its pages are reclaimed. */
static void twice(void *nothing)
{
	(void)nothing;
	enter("a");
	unsigned long pages = 16 * MIB / PAGE;
	char *memory = anonymous(pages * PAGE);
	NEED(memory != NULL);
	stamp(memory, pages);
	for (int round = 0; round < 2; round++) {
		CHECK(is_stamped(memory, pages));
		CHECK(get("a", "memory.current") <= 8 * (long)MIB);
	}
	CHECK(get("a", "memory.swap.current") >= 7 * (long)MIB);
	/* The kernel makes a copy that is larger than the group's limit. */
	int file = scratch_file(12 * MIB);
	CHECK_EQ(pread(file, memory, 12 * MIB, 0), 12 * MIB);
	CHECK(get("a", "memory.current") <= 8 * (long)MIB);
	CHECK(memory[0] == 0 && memory[12 * MIB - 1] == 0);
	close(file);
	/* Two processes share the pages. */
	stamp(memory, pages);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		CHECK(is_stamped(memory, pages));
		memset(memory, 7, 4 * MIB);
		CHECK(memory[0] == 7 && memory[4 * MIB - 1] == 7);
		end_child();
	}
	CHECK(is_stamped(memory, pages));
	CHECK(exited(wait_for(child), 0));
	CHECK(is_stamped(memory, pages));
}

/* Creates a group with a limit of 8 MiB, and runs a child in it that reaches the limit but is not killed. */
static void reaches_limit(void (*run)(void *))
{
	make("a");
	NEED(set("a", "memory.max", "8M") == 0);
	CHECK(exited(in_child(run, NULL), 0));
	CHECK(row("a", "memory.events", "max") > 0);
	CHECK_EQ(row("a", "memory.events", "oom_kill"), 0);
}

static void uses_up(void *pages)
{
	enter("a");
	char *memory = anonymous((unsigned long)pages * PAGE);
	NEED(memory != NULL);
	stamp(memory, (unsigned long)pages);
	CHECK(is_stamped(memory, (unsigned long)pages));
}

static void over(void)
{
	reaches_limit(twice);
	CHECK(get("a", "memory.peak") <= 8 * (long)MIB);
	CHECK(get("a", "memory.peak") >= 7 * (long)MIB);
	CHECK(get("a", "memory.swap.current") < (long)AHEAD);
	/* Without swap, a process that exceeds the limit is killed. No other process is killed. */
	char *mine = anonymous(32 * MIB);
	NEED(mine != NULL);
	stamp(mine, 32 * MIB / PAGE);
	NEED(set("a", "memory.swap.max", "0") == 0);
	CHECK(killed(in_child(uses_up, (void *)(16 * MIB / PAGE)), SIGKILL));
	CHECK_EQ(row("a", "memory.events", "oom_kill"), 1);
	CHECK(row("a", "memory.events", "oom") >= 1);
	CHECK(get("a", "memory.swap.current") <= (long)AHEAD);
	CHECK(is_stamped(mine, 32 * MIB / PAGE));
	munmap(mine, 32 * MIB);
	/* The limit of swap is enforced. */
	NEED(set("a", "memory.swap.max", "4M") == 0);
	CHECK(exited(in_child(uses_up, (void *)(10 * MIB / PAGE)), 0));
	CHECK(killed(in_child(uses_up, (void *)(16 * MIB / PAGE)), SIGKILL));
	CHECK_EQ(row("a", "memory.events", "oom_kill"), 2);
	unmake("a");
}

static void fill_swap(void *bytes)
{
	size_t size = (size_t)bytes;
	enter("a");
	char *memory = anonymous(size);
	NEED(memory != NULL);
	stamp(memory, size / PAGE);
	CHECK_EQ(madvise(memory, size, MADV_PAGEOUT), 0);
	CHECK(is_stamped(memory, size / PAGE));
}

/* A page gets no swap slot, because the group's limit is reached or because no slot is free. */
static void refused_slots(void)
{
	size_t swap = row_in("/proc/meminfo", "SwapTotal") * 1024;
	NEED(swap > 0);
	make("a");
	CHECK(exited(in_child(fill_swap, (void *)(swap + 4 * MIB)), 0));
	CHECK_EQ(row("a", "memory.swap.events", "max"), 0);
	CHECK(row("a", "memory.swap.events", "fail") > 0);
	unmake("a");
	make("a");
	NEED(set("a", "memory.swap.max", "4M") == 0);
	CHECK(exited(in_child(fill_swap, (void *)(8 * MIB)), 0));
	CHECK(row("a", "memory.swap.events", "max") > 0);
	CHECK_EQ(row("a", "memory.swap.events", "fail"), row("a", "memory.swap.events", "max"));
	unmake("a");
}

/* The largest process of a group is killed. No other process is killed. */
static void largest(void)
{
	make("a");
	NEED(set("a", "memory.max", "8M") == 0 && set("a", "memory.swap.max", "0") == 0);
	int ready[2], go[2];
	char byte = 0;
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t small = fork_checked();
	NEED(small >= 0);
	if (small == 0) {
		enter("a");
		char *memory = anonymous(MIB);
		NEED(memory != NULL);
		stamp(memory, MIB / PAGE);
		NEED(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		CHECK(is_stamped(memory, MIB / PAGE));
		end_child();
	}
	NEED(read(ready[0], &byte, 1) == 1);
	CHECK(killed(in_child(uses_up, (void *)(16 * MIB / PAGE)), SIGKILL));
	NEED(write(go[1], &byte, 1) == 1);
	CHECK(exited(wait_for(small), 0));
	CHECK_EQ(row("a", "memory.events", "oom_kill"), 1);
	unmake("a");
}

/* A limit below the current usage takes effect immediately. */
static void lowered(void)
{
	make("a");
	int ready[2], go[2];
	char byte = 0;
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		enter("a");
		char *memory = anonymous(8 * MIB);
		NEED(memory != NULL);
		stamp(memory, 8 * MIB / PAGE);
		NEED(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		CHECK(is_stamped(memory, 8 * MIB / PAGE));
		CHECK(get("a", "memory.current") <= 4 * (long)MIB);
		end_child();
	}
	NEED(read(ready[0], &byte, 1) == 1);
	CHECK(get("a", "memory.current") >= 8 * (long)MIB);
	NEED(set("a", "memory.max", "4M") == 0);
	CHECK(get("a", "memory.current") <= 4 * (long)MIB);
	CHECK(get("a", "memory.swap.current") >= 3 * (long)MIB);
	NEED(write(go[1], &byte, 1) == 1);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(row("a", "memory.events", "oom_kill"), 0);
	unmake("a");
}

/* Several processes share one limit. */
static void together(void)
{
	make("a");
	NEED(set("a", "memory.max", "12M") == 0);
	pid_t children[4];
	for (int i = 0; i < 4; i++) {
		children[i] = fork_checked();
		NEED(children[i] >= 0);
		if (children[i] == 0) {
			enter("a");
			char *memory = anonymous(6 * MIB);
			NEED(memory != NULL);
			for (int round = 0; round < 3; round++) {
				stamp(memory, 6 * MIB / PAGE);
				CHECK(is_stamped(memory, 6 * MIB / PAGE));
			}
			end_child();
		}
	}
	for (int i = 0; i < 4; i++)
		CHECK(exited(wait_for(children[i]), 0));
	CHECK_EQ(row("a", "memory.events", "oom_kill"), 0);
	CHECK(get("a", "memory.peak") <= 12 * (long)MIB);
	unmake("a");
}

/* Uses its complete limit while it shares pages with children. Each child writes to shared pages and to private
 * ones. */
static void shares(void *nothing)
{
	(void)nothing;
	enter("a");
	unsigned long pages = 7 * MIB / PAGE;
	char *memory = anonymous(pages * PAGE);
	NEED(memory != NULL);
	madvise(memory, pages * PAGE, MADV_NOHUGEPAGE);
	stamp(memory, pages);
	/* The first children share nearly all of their pages with the parent, and the last ones only a few. */
	for (int round = 0; round < 6; round++) {
		pid_t child = fork_checked();
		NEED(child >= 0);
		if (child == 0) {
			unsigned long kept = pages >> (2 * round);
			munmap(memory + kept * PAGE, (pages - kept) * PAGE);
			for (unsigned long page = 0; page < kept; page += 2)
				memset(memory + page * PAGE, round, PAGE);
			char *own = anonymous(2 * MIB);
			NEED(own != NULL);
			for (unsigned long page = 0; page < 2 * MIB / PAGE; page++) {
				memset(own + page * PAGE, page, PAGE);
				if (page % 32 == 0)
					CHECK(get("a", "memory.current") <= 8 * (long)MIB);
			}
			for (unsigned long page = 1; page < kept; page += 2)
				CHECK(*(unsigned long *)(memory + page * PAGE) == page * 1000003);
			for (unsigned long page = 0; page < 2 * MIB / PAGE; page++)
				CHECK(own[page * PAGE] == (char)page);
			end_child();
		}
		CHECK(exited(wait_for(child), 0));
		CHECK(get("a", "memory.current") <= 8 * (long)MIB);
	}
	CHECK(is_stamped(memory, pages));
}

static void shared(void)
{
	reaches_limit(shares);
	CHECK(get("a", "memory.peak") <= 8 * (long)MIB);
	unmake("a");
}

/* Writes four times the group's limit to an unmapped file in memory. */
static void stores_by_calls(void *nothing)
{
	(void)nothing;
	enter("a");
	unsigned long pages = 32 * MIB / PAGE;
	static char page[PAGE];
	int file = syscall(SYS_memfd_create, "calls", 0);
	NEED(file >= 0);
	long most = 0;
	for (unsigned long number = 0; number < pages; number++) {
		memset(page, number & 0xff, sizeof page);
		NEED(write(file, page, sizeof page) == (long)sizeof page);
		if (number % 256 == 0) {
			long now = get("a", "memory.current");
			most = now > most ? now : most;
		}
	}
	CHECK(most >= 7 * (long)MIB && most <= 8 * (long)MIB);
	CHECK(get("a", "memory.swap.current") >= 20 * (long)MIB);
	for (unsigned long number = 0; number < pages; number++) {
		NEED(pread(file, page, sizeof page, number * PAGE) == (long)sizeof page);
		CHECK(page[0] == (char)number && page[PAGE - 1] == (char)number);
	}
	CHECK(get("a", "memory.current") <= 8 * (long)MIB);
}

static void by_calls(void)
{
	reaches_limit(stores_by_calls);
	CHECK(get("a", "memory.current") <= (long)BESIDE);
	unmake("a");
}

int main(void)
{
	find_groups();
	NEED(set("", "cgroup.subtree_control", "+memory") == 0);
	layout();
	members();
	make("a");
	CHECK(exited(in_child(touches, NULL), 0));
	unmake("a");
	over();
	refused_slots();
	largest();
	lowered();
	together();
	shared();
	by_calls();
	return checked("group_limits");
}
