/* Are the rules of nested groups (cgroup v2) enforced, and is a group charged for its descendants?
 *
 * Needs a swap device and root. Mounts the cgroup file system if it is not mounted.
 */
#include "check.h"

#include <dirent.h>
#include <poll.h>
#include <sys/mount.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define MIB (1L << 20)
/* Linux also charges page tables, kernel stacks, and pages that CPUs have charged in advance. */
#define BESIDE (3 * MIB)
/* On Linux the charge may be lower by this amount, because CPUs have charged some pages in advance. */
#define AHEAD (MIB / 2)
/* The number of levels of the deep tree. */
#define DEEP 300

/* Changes to the root group, to which all paths are relative. */
static void find_groups(void)
{
	const char *root = "/sys/fs/cgroup";
	if (access("/sys/fs/cgroup/cgroup.procs", F_OK) != 0) {
		root = "/tmp/cgroup";
		mkdir(root, 0755);
		NEED(mount("none", root, "cgroup2", 0, NULL) == 0);
	}
	NEED(chdir(root) == 0);
}

static int set(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	if (file < 0)
		return -1;
	ssize_t done = write(file, text, strlen(text));
	int error = errno;
	close(file);
	errno = error;
	return done == (ssize_t)strlen(text) ? 0 : -1;
}

static const char *text_of(const char *path)
{
	static char text[4096];
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	ssize_t length = read(file, text, sizeof text - 1);
	NEED(length >= 0);
	text[length] = 0;
	close(file);
	return text;
}

static int is(const char *path, const char *text)
{
	return strcmp(text_of(path), text) == 0;
}

static long get(const char *path)
{
	return atol(text_of(path));
}

static void make(const char *path)
{
	NEED(mkdir(path, 0755) == 0);
}

static void unmake(const char *path)
{
	char events[256];
	snprintf(events, sizeof events, "%s/cgroup.events", path);
	/* On Linux a process that was waited for may still be in its group. */
	for (int i = 0; i < 1000 && row_in(events, "populated") == 1; i++)
		usleep(1000);
	CHECK(rmdir(path) == 0);
}

/* Creates "a" and "a/b", both with the memory controller. */
static void make_two(void)
{
	make("a");
	NEED(set("a/cgroup.subtree_control", "+memory") == 0);
	make("a/b");
}

static void unmake_two(void)
{
	unmake("a/b");
	unmake("a");
}

static long links(const char *path)
{
	struct stat found;
	NEED(stat(path, &found) == 0);
	return found.st_nlink;
}

static int lists(const char *path, const char *name)
{
	int found = 0;
	DIR *directory = opendir(path);
	NEED(directory != NULL);
	for (struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
		found += strcmp(entry->d_name, name) == 0;
	closedir(directory);
	return found;
}

static void names(void)
{
	long before = links(".");
	make("a");
	make("a/b");
	make("a/b/a");
	CHECK_FAILS(mkdir("a/b", 0755), EEXIST);
	CHECK_FAILS(mkdir("a/cgroup.procs", 0755), EEXIST);
	CHECK_FAILS(mkdir("a/x/y", 0755), ENOENT);
	CHECK_FAILS(mkdir("a/x\ny", 0755), EINVAL);
	CHECK_EQ(links("."), before + 1);
	CHECK_EQ(links("a"), 3);
	CHECK_EQ(links("a/b/a"), 2);
	CHECK(lists("a", "b") == 1 && lists("a", "cgroup.procs") == 1 && lists("a", "a") == 0);
	CHECK(is("a/b/a/cgroup.type", "domain\n"));
	CHECK_EQ(access("a/b/a/../../b/cgroup.procs", F_OK), 0);
	CHECK_EQ(access("a/b/a/../../../a/cgroup.events", F_OK), 0);
	CHECK_EQ(row_in("a/cgroup.stat", "nr_descendants"), 2);
	CHECK_EQ(row_in("cgroup.stat", "nr_descendants"), 3);
	CHECK_FAILS(rmdir("a"), EBUSY);
	CHECK_FAILS(rmdir("a/b"), EBUSY);
	CHECK_FAILS(rmdir("a/b/x"), ENOENT);
	/* A group that was removed is still open. */
	int gone = open("a/b/a", O_RDONLY | O_DIRECTORY);
	int processes = open("a/b/a/cgroup.procs", O_RDWR);
	NEED(gone >= 0 && processes >= 0);
	CHECK_EQ(rmdir("a/b/a"), 0);
	char byte;
	CHECK_FAILS(mkdirat(gone, "x", 0755), ENOENT);
	CHECK_FAILS(openat(gone, "cgroup.procs", O_RDONLY), ENOENT);
	CHECK_FAILS(read(processes, &byte, 1), ENODEV);
	CHECK_FAILS(write(processes, "0", 1), ENODEV);
	CHECK_FAILS(write(processes, "", 0), ENODEV);
	close(gone);
	close(processes);
	CHECK_EQ(links("a/b"), 2);
	CHECK_EQ(rmdir("a/b"), 0);
	CHECK_EQ(rmdir("a"), 0);
	CHECK_EQ(links("."), before);
}

static void limits_of_the_tree(void)
{
	make("a");
	make("a/b");
	CHECK(is("a/cgroup.max.depth", "max\n") && is("cgroup.max.descendants", "max\n"));
	CHECK_FAILS(set("a/cgroup.max.depth", "-1"), ERANGE);
	CHECK_FAILS(set("a/cgroup.max.depth", "2147483648"), ERANGE);
	CHECK_FAILS(set("a/cgroup.max.depth", "x"), EINVAL);
	CHECK(set("a/cgroup.max.depth", "0x1\n") == 0 && is("a/cgroup.max.depth", "1\n"));
	CHECK_FAILS(mkdir("a/b/c", 0755), EAGAIN);
	CHECK_FAILS(mkdir("a/b", 0755), EEXIST);
	CHECK_FAILS(mkdir("a/b/c\nd", 0755), EINVAL);
	CHECK(set("a/cgroup.max.depth", "max") == 0 && is("a/cgroup.max.depth", "max\n"));
	CHECK(set("a/cgroup.max.descendants", "1") == 0);
	CHECK_FAILS(mkdir("a/b/c", 0755), EAGAIN);
	CHECK_FAILS(mkdir("a/c", 0755), EAGAIN);
	CHECK(set("a/cgroup.max.descendants", "2") == 0);
	make("a/b/c");
	CHECK_FAILS(mkdir("a/c", 0755), EAGAIN);
	CHECK(set("a/cgroup.max.descendants", "0") == 0);
	unmake("a/b/c");
	unmake("a/b");
	unmake("a");
}

static void controllers(void)
{
	make("a");
	make("a/b");
	CHECK(is("a/cgroup.controllers", "memory\n") && is("a/b/cgroup.controllers", ""));
	CHECK(is("a/cgroup.subtree_control", "") && set("a/cgroup.subtree_control", "") == 0);
	CHECK_FAILS(open("a/b/memory.max", O_RDONLY), ENOENT);
	CHECK_FAILS(set("a/b/cgroup.subtree_control", "+memory"), ENOENT);
	CHECK(set("a/b/cgroup.subtree_control", "-memory") == 0);
	CHECK_FAILS(set("a/cgroup.subtree_control", "+nothing"), EINVAL);
	CHECK_FAILS(set("a/cgroup.subtree_control", "+memory\t-memory"), EINVAL);
	CHECK(set("a/cgroup.subtree_control", " +memory \n") == 0);
	CHECK(is("a/cgroup.subtree_control", "memory\n") && is("a/b/cgroup.controllers", "memory\n"));
	CHECK_EQ(row_in("a/cgroup.stat", "nr_subsys_memory"), 2);
	CHECK(set("a/b/cgroup.subtree_control", "+memory") == 0);
	CHECK_FAILS(set("a/cgroup.subtree_control", "-memory"), EBUSY);
	CHECK_FAILS(set("cgroup.subtree_control", "-memory"), EBUSY);
	/* A group that enables a controller for its children cannot contain processes. */
	CHECK_FAILS(set("a/cgroup.procs", "0"), EBUSY);
	CHECK_FAILS(set("a/b/cgroup.procs", "0"), EBUSY);
	CHECK_FAILS(set("a/b/cgroup.procs", "4194303"), ESRCH);
	CHECK(set("a/b/cgroup.subtree_control", "-memory") == 0);
	CHECK(set("a/b/cgroup.procs", "0") == 0);
	CHECK_FAILS(set("a/b/cgroup.subtree_control", "+memory"), EBUSY);
	CHECK_FAILS(set("a/b/cgroup.subtree_control", "+nothing"), EINVAL);
	CHECK(set("a/b/cgroup.subtree_control", "-memory") == 0);
	CHECK(is("/proc/self/cgroup", "0::/a/b\n"));
	CHECK(is("a/cgroup.procs", "") && get("a/b/cgroup.procs") == getpid());
	CHECK_EQ(row_in("a/cgroup.events", "populated"), 1);
	CHECK_FAILS(rmdir("a/b"), EBUSY);
	/* A controller that is disabled and enabled again starts without limits. */
	CHECK(set("a/b/memory.max", "64M") == 0);
	int limit = open("a/b/memory.max", O_RDONLY);
	NEED(limit >= 0);
	CHECK(set("a/cgroup.subtree_control", "-memory") == 0);
	char text[16];
	CHECK_FAILS(read(limit, text, sizeof text), ENODEV);
	close(limit);
	CHECK(set("a/cgroup.subtree_control", "+memory") == 0);
	CHECK(is("a/b/memory.max", "max\n"));
	CHECK(set("cgroup.procs", "0") == 0);
	CHECK_EQ(row_in("a/cgroup.events", "populated"), 0);
	unmake_two();
}

/* A zombie is not a member of any group, but its /proc file still names its last one. */
static void zombies(void)
{
	make("a");
	make("a/b");
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		NEED(set("a/b/cgroup.procs", "0") == 0);
		end_child();
	}
	siginfo_t info;
	NEED(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/cgroup", child);
	CHECK(is(path, "0::/a/b\n"));
	for (int i = 0; i < 1000 && row_in("a/cgroup.events", "populated") == 1; i++)
		usleep(1000);
	CHECK_EQ(row_in("a/b/cgroup.events", "populated"), 0);
	CHECK_EQ(row_in("a/cgroup.events", "populated"), 0);
	CHECK_EQ(rmdir("a/b"), 0);
	CHECK(is(path, "0::/a/b (deleted)\n"));
	CHECK(exited(wait_for(child), 0));
	unmake("a");
}

static void stamp(char *memory, long bytes)
{
	for (long at = 0; at < bytes; at += 512)
		*(long *)(memory + at) = at * 1000003;
}

static int is_stamped(const char *memory, long bytes)
{
	for (long at = 0; at < bytes; at += 512)
		if (*(long *)(memory + at) != at * 1000003)
			return 0;
	return 1;
}

static char *touched(long bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	stamp(memory, bytes);
	return memory;
}

static int near(long value, long expected)
{
	return value >= expected - AHEAD && value < expected + BESIDE;
}

static void charges(void *nothing)
{
	(void)nothing;
	NEED(set("a/b/cgroup.procs", "0") == 0);
	char *memory = touched(8 * MIB);
	CHECK(near(get("a/b/memory.current"), 8 * MIB) && near(get("a/memory.current"), 8 * MIB));
	CHECK(get("a/c/memory.current") < MIB);
	CHECK(row_in("a/memory.stat", "anon") >= 8 * MIB);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		/* The process enters a descendant group that has no controller of its own. */
		NEED(set("a/c/d/cgroup.procs", "0") == 0);
		touched(4 * MIB);
		CHECK(near(get("a/memory.current"), 12 * MIB));
		CHECK(get("a/c/memory.current") >= 4 * MIB - AHEAD);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	/* Swap slots are charged to each ancestor. */
	NEED(madvise(memory, 8 * MIB, MADV_PAGEOUT) == 0);
	CHECK(get("a/b/memory.swap.current") >= 7 * MIB && get("a/memory.swap.current") >= 7 * MIB);
	CHECK_EQ(get("a/c/memory.swap.current"), 0);
	CHECK(is_stamped(memory, 8 * MIB));
}

static void charged_upwards(void)
{
	make_two();
	make("a/c");
	make("a/c/d");
	CHECK(exited(in_child(charges, NULL), 0));
	CHECK(near(get("a/memory.peak"), 12 * MIB));
	unmake("a/c/d");
	unmake("a/c");
	unmake_two();
}

/* Uses twice the limit of the parent group. */
static void reclaims(void *nothing)
{
	(void)nothing;
	NEED(set("a/b/cgroup.procs", "0") == 0);
	char *memory = touched(16 * MIB);
	for (int round = 0; round < 2; round++) {
		CHECK(is_stamped(memory, 16 * MIB));
		CHECK(get("a/memory.current") <= 8 * MIB);
	}
	CHECK(get("a/memory.swap.current") >= 7 * MIB);
}

static void uses_up(void *nothing)
{
	(void)nothing;
	NEED(set("a/b/cgroup.procs", "0") == 0);
	touched(16 * MIB);
}

static int wait_for_change(int file, char *text, size_t size, int timeout)
{
	struct pollfd polled = { .fd = file, .events = POLLPRI };
	int changed = poll(&polled, 1, timeout);
	ssize_t length = pread(file, text, size - 1, 0);
	NEED(length >= 0);
	text[length] = 0;
	return changed;
}

static void limits_above(void)
{
	make_two();
	NEED(set("a/memory.max", "8M") == 0);
	CHECK(exited(in_child(reclaims, NULL), 0));
	/* The event is counted in the group whose limit was reached, and not in its child. */
	CHECK(row_in("a/memory.events", "max") > 0 && row_in("a/memory.events.local", "max") > 0);
	CHECK_EQ(row_in("a/b/memory.events", "max"), 0);
	CHECK(get("a/memory.peak") <= 8 * MIB);
	/* If no swap slot is free, a process in a descendant is killed. The event is counted in the group of the process and
	 * in the group's ancestors. */
	char text[256];
	int events = open("a/memory.events", O_RDONLY);
	NEED(events >= 0);
	wait_for_change(events, text, sizeof text, 0);
	CHECK_EQ(wait_for_change(events, text, sizeof text, 0), 0);
	NEED(set("a/memory.swap.max", "0") == 0);
	CHECK(killed(in_child(uses_up, NULL), SIGKILL));
	CHECK_EQ(wait_for_change(events, text, sizeof text, 10000), 1);
	close(events);
	CHECK_EQ(row_in("a/memory.events", "oom_kill"), 1);
	CHECK_EQ(row_in("a/memory.events.local", "oom_kill"), 0);
	CHECK_EQ(row_in("a/b/memory.events.local", "oom_kill"), 1);
	CHECK(row_in("a/memory.events.local", "oom") >= 1);
	CHECK_EQ(row_in("a/b/memory.events", "oom"), 0);
	/* Both groups exceed their limits, and the child group's limit is the lower one. */
	NEED(set("a/b/memory.max", "4M") == 0);
	CHECK(killed(in_child(uses_up, NULL), SIGKILL));
	CHECK(row_in("a/b/memory.events.local", "oom") >= 1);
	CHECK_EQ(row_in("a/memory.events", "oom_kill"), 2);
	CHECK(row_in("a/memory.events", "oom") >= row_in("a/memory.events.local", "oom") + 1);
	unmake_two();
}

/* A group's limit of swap applies to all descendants together, and the largest process among them is killed. */
static void swaps(void *nothing)
{
	(void)nothing;
	NEED(set("a/b/cgroup.procs", "0") == 0);
	char *memory = touched(8 * MIB);
	NEED(madvise(memory, 8 * MIB, MADV_PAGEOUT) == 0);
	CHECK(get("a/b/memory.swap.current") <= 4 * MIB);
	CHECK(is_stamped(memory, 8 * MIB));
}

static void swap_limit_above(void)
{
	make_two();
	NEED(set("a/memory.swap.max", "4M") == 0);
	CHECK(exited(in_child(swaps, NULL), 0));
	CHECK(row_in("a/b/memory.swap.events", "max") > 0);
	CHECK(row_in("a/memory.swap.events", "max") >= row_in("a/b/memory.swap.events", "max"));
	unmake_two();
}

static void victims(void)
{
	make_two();
	make("a/c");
	NEED(set("a/memory.max", "12M") == 0 && set("a/memory.swap.max", "0") == 0);
	int ready[2], go[2];
	char byte = 0;
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t large = fork_checked();
	NEED(large >= 0);
	if (large == 0) {
		NEED(set("a/c/cgroup.procs", "0") == 0);
		touched(8 * MIB);
		NEED(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
		end_child();
	}
	NEED(read(ready[0], &byte, 1) == 1);
	pid_t small = fork_checked();
	NEED(small >= 0);
	if (small == 0) {
		NEED(set("a/b/cgroup.procs", "0") == 0);
		char *memory = touched(6 * MIB);
		CHECK(is_stamped(memory, 6 * MIB));
		end_child();
	}
	CHECK(exited(wait_for(small), 0));
	CHECK(killed(wait_for(large), SIGKILL));
	CHECK_EQ(row_in("a/c/memory.events", "oom_kill"), 1);
	CHECK_EQ(row_in("a/b/memory.events", "oom_kill"), 0);
	CHECK_EQ(row_in("a/memory.events", "oom_kill"), 1);
	unmake("a/c");
	unmake_two();
}

/* Creates a chain of groups below "deep", enters the lowest one, and removes the chain. */
static void deep(void)
{
	int home = open(".", O_RDONLY | O_DIRECTORY);
	NEED(home >= 0);
	char text[256], path[2 * DEEP + 16] = "0::", expected[64];
	for (int level = 0; level < DEEP; level++) {
		make("d");
		NEED(set("cgroup.subtree_control", "+memory") == 0);
		NEED(chdir("d") == 0);
		if (level % 10 == 1)
			NEED(set("memory.max", "32M") == 0);
		strcat(path, "/d");
	}
	strcat(path, "\n");
	NEED(fchdir(home) == 0);
	CHECK_EQ(row_in("d/cgroup.stat", "nr_descendants"), DEEP - 1);
	int events = open("d/cgroup.events", O_RDONLY);
	NEED(events >= 0);
	wait_for_change(events, text, sizeof text, 0);
	int go[2];
	char byte = 0;
	NEED(pipe(go) == 0);
	/* Linux charges the kernel's own memory to the groups. */
	long before = get("d/memory.current");
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		for (int level = 0; level < DEEP; level++)
			NEED(chdir("d") == 0);
		NEED(set("cgroup.procs", "0") == 0);
		CHECK(is("/proc/self/cgroup", path));
		char *memory = touched(4 * MIB);
		CHECK(get("memory.current") >= 4 * MIB - AHEAD);
		CHECK(is_stamped(memory, 4 * MIB));
		NEED(fchdir(home) == 0);
		CHECK(near(get("d/memory.current") - before, 4 * MIB));
		NEED(read(go[0], &byte, 1) == 1);
		end_child();
	}
	CHECK_EQ(wait_for_change(events, text, sizeof text, 10000), 1);
	snprintf(expected, sizeof expected, "populated 1\nfrozen 0\n");
	CHECK(strcmp(text, expected) == 0);
	NEED(write(go[1], &byte, 1) == 1);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(wait_for_change(events, text, sizeof text, 10000), 1);
	CHECK(strncmp(text, "populated 0\n", 12) == 0);
	close(events);
	for (int level = 0; level < DEEP; level++)
		NEED(chdir("d") == 0);
	for (int level = 0; level < DEEP; level++)
		NEED(chdir("..") == 0 && rmdir("d") == 0);
	NEED(fchdir(home) == 0);
	CHECK_FAILS(access("d", F_OK), ENOENT);
}

/* Processes move between groups while the groups are removed and created. */
static void races(void)
{
	make("a");
	pid_t maker = fork_checked();
	NEED(maker >= 0);
	if (maker == 0) {
		for (int round = 0; round < 300; round++) {
			CHECK(mkdir("a/b", 0755) == 0 || errno == EEXIST);
			CHECK(rmdir("a/b") == 0 || errno == EBUSY);
		}
		end_child();
	}
	pid_t mover = fork_checked();
	NEED(mover >= 0);
	if (mover == 0) {
		for (int round = 0; round < 300; round++) {
			CHECK(set("a/b/cgroup.procs", "0") == 0 || errno == ENOENT || errno == ENODEV);
			CHECK(set("a/cgroup.procs", "0") == 0);
			CHECK(row_in("a/cgroup.events", "populated") == 1);
		}
		end_child();
	}
	CHECK(exited(wait_for(maker), 0));
	CHECK(exited(wait_for(mover), 0));
	if (access("a/b", F_OK) == 0)
		unmake("a/b");
	unmake("a");
}

int main(void)
{
	find_groups();
	NEED(set("cgroup.subtree_control", "+memory") == 0);
	names();
	limits_of_the_tree();
	controllers();
	zombies();
	charged_upwards();
	limits_above();
	swap_limit_above();
	victims();
	deep();
	races();
	return checked("group_nesting");
}
