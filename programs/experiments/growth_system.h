/* The experiment on growth, with things that the system keeps: futex waiters, cgroups, their limits and mounts. */
#ifndef GROWTH_SYSTEM_H
#define GROWTH_SYSTEM_H

#include "growth.h"
#include "growth_relatives.h"
#include "swap.h"

#include <pthread.h>
#include <sys/mount.h>

/* ---- futex waiters ---- */

enum { MOST_WAITERS = 8000, STACK = 16 * 1024 };
static unsigned long waiter_count;
/* Every second thread waits at a word of its own. The others wait at the first word. */
static uint32_t words[MOST_WAITERS + 1];
static uint32_t *const lonely_word = &words[MOST_WAITERS];

static uint32_t *word_of(unsigned long which)
{
	return which & 1 ? &words[which] : words;
}

static void *wait_for_ever(void *word)
{
	setpriority(PRIO_PROCESS, 0, 19);
	for (;;)
		futex(word, FUTEX_WAIT_PRIVATE, 0);
	return NULL;
}

static pthread_t start_thread(void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t thread;
	MUST(pthread_attr_init(&attributes) == 0);
	MUST(pthread_attr_setstacksize(&attributes, STACK) == 0 && pthread_attr_setguardsize(&attributes, 0) == 0);
	MUST(pthread_create(&thread, &attributes, run, argument) == 0);
	return thread;
}

static void grow_waiters(unsigned long n)
{
	for (; waiter_count < n; waiter_count++)
		start_thread(wait_for_ever, word_of(waiter_count));
	usleep(1000000);
}

/* Wakes at most one thread, and gives it time to wait again. */
static uint64_t wake_at(uint32_t *word, long expected)
{
	uint64_t start = clock_now();
	long woken = futex(word, FUTEX_WAKE_PRIVATE, 1);
	uint64_t cost = clock_now() - start;
	MUST(woken == expected);
	usleep(1000);
	return cost;
}

static uint64_t wake_nobody(unsigned long n)
{
	(void)n;
	return wake_at(lonely_word, 0);
}

static uint64_t wake_own(unsigned long n)
{
	return wake_at(word_of(any_below(n) | 1), 1);
}

static uint64_t wake_common(unsigned long n)
{
	(void)n;
	return wake_at(words, 1);
}

static void *end_at_once(void *nothing)
{
	return nothing;
}

static uint64_t create_and_join(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	MUST(pthread_join(start_thread(end_at_once, NULL), NULL) == 0);
	return clock_now() - start;
}

/* ---- cgroups ---- */

static unsigned long group_count;

static void grow_groups(unsigned long n)
{
	char name[32];
	for (; group_count < n; group_count++) {
		snprintf(name, sizeof name, "growth-%lu", group_count);
		MUST(mkdir(in_group(name, ""), 0755) == 0);
		MUST(group_count > 0 || write_text(in_group(name, "cgroup.procs"), "0"));
	}
}

static uint64_t create_and_remove_group(unsigned long n)
{
	(void)n;
	const char *path = in_group("new", "");
	uint64_t start = clock_now();
	MUST(mkdir(path, 0755) == 0 && rmdir(path) == 0);
	return clock_now() - start;
}

/* ---- cgroups in cgroups ---- */

/* Creates cgroups in the one of this process until it is `n` deep, each with a limit that it does not reach. A cgroup with
 * processes cannot have a controller in the ones below it.
 */
static void grow_levels(unsigned long n)
{
	static unsigned long levels;
	MUST(write_text(in_group("", "cgroup.procs"), "0"));
	MUST(levels > 0 || chdir(in_group("", "")) == 0);
	for (; levels < n; levels++) {
		MUST(levels == 0 || write_text("cgroup.subtree_control", "+memory"));
		MUST(mkdir("level", 0755) == 0 && chdir("level") == 0 && write_text("memory.max", "256M"));
	}
	MUST(write_text("cgroup.procs", "0"));
}

static uint64_t create_and_remove_level(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	MUST(mkdir("new", 0755) == 0 && rmdir("new") == 0);
	return clock_now() - start;
}

/* ---- a cgroup at its limit, in MiB ---- */

enum { MOST_LIMIT = 256, PAGES_TOGETHER = 512 };
static char *beyond_limit;
static unsigned long beyond_count, beyond_next;

static int has_limits(void)
{
	return has_groups() && has_swap();
}

/* Raises the limit of the cgroup, and writes a quarter more than that. */
static void grow_limit(unsigned long n)
{
	char text[32];
	snprintf(text, sizeof text, "%lu", n * MIB);
	if (!beyond_limit) {
		MUST(mkdir(in_group("limit", ""), 0755) == 0 && write_text(in_group("limit", "cgroup.procs"), "0"));
		beyond_limit = mapped((MOST_LIMIT + MOST_LIMIT / 4) * MIB, PROT_READ | PROT_WRITE);
	}
	MUST(write_text(in_group("limit", "memory.max"), text));
	beyond_count = (n + n / 4) * (MIB / PAGE);
	write_pages(beyond_limit, beyond_count * PAGE);
	beyond_next = 0;
}

/* Returns the next page that is in swap. */
static char *next_in_swap(void)
{
	for (;;) {
		char *page = beyond_limit + beyond_next * PAGE;
		beyond_next = (beyond_next + 1) % beyond_count;
		if (!is_present(page))
			return page;
	}
}

/* Returns the cost per page of writes to pages in swap; if `fresh`, after these have lost their contents. Another page must
 * go to swap for each one. */
static uint64_t write_in_swap(int fresh)
{
	static char *pages[PAGES_TOGETHER];
	for (int which = 0; which < PAGES_TOGETHER; which++) {
		pages[which] = next_in_swap();
		if (fresh)
			MUST(madvise(pages[which], PAGE, MADV_DONTNEED) == 0);
	}
	uint64_t start = clock_now();
	for (int which = 0; which < PAGES_TOGETHER; which++)
		*pages[which] = 1;
	return (clock_now() - start) / PAGES_TOGETHER;
}

static uint64_t swap_in_at_limit(unsigned long n)
{
	(void)n;
	return write_in_swap(0);
}

static uint64_t populate_at_limit(unsigned long n)
{
	(void)n;
	return write_in_swap(1);
}

/* ---- mounts ---- */

static unsigned long mount_count;

static const char *mount_point(unsigned long number)
{
	static char name[64];
	snprintf(name, sizeof name, "/tmp/growth/mount-%lu", number);
	return name;
}

static void grow_mounts(unsigned long n)
{
	if (mount_count == 0)
		MUST(mkdir("/tmp/growth", 0755) == 0 && mkdir("/tmp/growth/new", 0755) == 0);
	for (; mount_count < n; mount_count++) {
		const char *name = mount_point(mount_count);
		MUST(mkdir(name, 0755) == 0 && mount("none", name, "tmpfs", 0, NULL) == 0);
	}
}

static uint64_t open_any_mount(unsigned long n)
{
	const char *name = mount_point(any_below(n));
	uint64_t start = clock_now();
	int folder = open(name, O_RDONLY | O_DIRECTORY);
	uint64_t cost = clock_now() - start;
	MUST(folder >= 0 && close(folder) == 0);
	return cost;
}

static uint64_t mount_and_unmount(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	MUST(mount("none", "/tmp/growth/new", "tmpfs", 0, NULL) == 0);
	MUST(umount("/tmp/growth/new") == 0);
	return clock_now() - start;
}

static uint64_t read_mounts(unsigned long n)
{
	(void)n;
	return read_whole("/proc/self/mounts");
}

#endif
