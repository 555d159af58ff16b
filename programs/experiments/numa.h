/* What the experiments on several nodes share: threads pinned to a CPU, the node of a page, and the counts of NUMA balancing.
 *
 * A machine of 2n CPUs has the first n on node 0, and the others on node 1.
 */
#ifndef NUMA_H
#define NUMA_H

#include "experiment.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

#define PACE "/sys/kernel/debug/sched/numa_balancing/"

enum balance { FAULTED, HINTED, HINTS, HINTS_LOCAL, MIGRATED, REFUSED, BALANCES };

static const char *const balance_rows[BALANCES] = {
	"\npgfault ", "\nnuma_pte_updates ", "\nnuma_hint_faults ", "\nnuma_hint_faults_local ", "\nnuma_pages_migrated ",
	"\npgmigrate_fail ",
};
static const char *const balance_names[BALANCES] = {
	"faults", "NUMA hint entries installed", "hint faults", "hint faults, local", "pages migrated", "migrations refused",
};
static const char *const balance_units[BALANCES] = {
	"faults", "entries", "faults", "faults", "pages", "pages",
};

/* The faults of the machine, and the counts of NUMA balancing, at one instant. */
struct balancing {
	uint64_t counts[BALANCES];
};

static inline struct balancing balancing_now(void)
{
	struct balancing now;
	MUST(read_file("/proc/vmstat", proc_text, sizeof proc_text) > 0);
	for (int which = 0; which < BALANCES; which++) {
		char *row = strstr(proc_text, balance_rows[which]);
		MUST(row);
		now.counts[which] = strtoull(row + strlen(balance_rows[which]), NULL, 10);
	}
	return now;
}

static inline double moved_by(const struct balancing *before, const struct balancing *after, enum balance which)
{
	return (double)after->counts[which] - before->counts[which];
}

static inline void record_balancing(const char *name, const struct balancing *before, const struct balancing *after)
{
	for (int which = HINTED; which < BALANCES; which++)
		record_value(name, balance_names[which], balance_units[which], moved_by(before, after, which));
	record_value(name, "faults that were no hint faults", "faults",
		     moved_by(before, after, FAULTED) - moved_by(before, after, HINTS));
}

static inline int write_setting(const char *path, const char *value)
{
	int file = open(path, O_WRONLY);
	long written = file < 0 ? -1 : write(file, value, strlen(value));
	close(file);
	return written > 0;
}

/* Enables NUMA balancing with ten times its usual scan rate. Call it before the threads are created whose rate it sets. */
static inline void balance_quickly(void)
{
	if (access(PACE, F_OK) != 0)
		mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	MUST(write_setting("/proc/sys/kernel/numa_balancing", "1"));
	MUST(write_setting(PACE "scan_period_min_ms", "100"));
	MUST(write_setting(PACE "scan_size_mb", "1024"));
	/* Only a kernel that adapts the scan rate has these. */
	write_setting(PACE "scan_delay_ms", "100");
	write_setting(PACE "scan_period_max_ms", "100");
}

static inline void stay_on_cpu(int cpu)
{
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	MUST(sched_setaffinity(0, sizeof cpus, &cpus) == 0);
}

/* Returns the node of a page. */
static inline int node_of(void *page)
{
	int node = -1;
	MUST(syscall(SYS_move_pages, 0, 1UL, &page, NULL, &node, 0) == 0);
	return node;
}

/* Returns the number of pages of the memory on a node. */
static inline size_t pages_on(int node, char *memory, size_t size)
{
	size_t count = 0;
	for (size_t at = 0; at < size; at += PAGE)
		count += node_of(memory + at) == node;
	return count;
}

#endif
