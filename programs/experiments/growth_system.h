/* The experiment on growth, with things that the system keeps: futex waiters, cgroups and mounts. */
#ifndef GROWTH_SYSTEM_H
#define GROWTH_SYSTEM_H

#include "growth.h"
#include "growth_relatives.h"

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

/* Wakes at most one thread, and gives it the time to wait again. */
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
