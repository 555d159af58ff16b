/* How does the cost of an operation grow with what there is?
 *
 * Each run repeats its operations while one thing becomes more: areas, resident memory, descriptors,
 * directory entries, processes, forks, processes that map a page, futex waiters, swapped pages, merged pages,
 * cgroups, the limit of a cgroup, mounts, connections or levels of cgroups. The figure is the cheapest of a
 * few repetitions. For each operation a last record has the exponent of the growth between the smallest and
 * the largest size: 0 for a constant cost, 1 for a cost proportional to the size.
 *
 * Usage: growth areas|memory|descriptors|directory|processes|depth|mappers|waiters|swapped|merged|cgroups|limit|
 *               mounts|connections|levels
 */
#include "growth_network.h"
#include "growth_pages.h"
#include "growth_relatives.h"
#include "growth_system.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

/* Returns the binary logarithm of a number of at least 1. */
static double logarithm(double number)
{
	double result = 0, part = 1;
	for (; number >= 2; number /= 2)
		result++;
	for (int bit = 0; bit < 40; bit++) {
		number *= number;
		part /= 2;
		if (number >= 2) {
			number /= 2;
			result += part;
		}
	}
	return result;
}

/* ---- areas ---- */

enum { MOST_AREAS = 60000 };
static char *areas[MOST_AREAS];
static unsigned long area_count;
static int protection_of(unsigned long which)
{
	return which & 1 ? PROT_READ : PROT_READ | PROT_WRITE;
}

static void grow_areas(unsigned long n)
{
	for (; area_count < n; area_count++)
		areas[area_count] = mapped(PAGE, protection_of(area_count));
}

static uint64_t map_and_unmap(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	char *memory = mapped(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	MUST(munmap(memory, PAGE) == 0);
	return clock_now() - start;
}

static uint64_t fill_any_hole(unsigned long n)
{
	unsigned long which = any_below(n);
	MUST(munmap(areas[which], PAGE) == 0);
	uint64_t start = clock_now();
	areas[which] = mapped(PAGE, protection_of(which));
	return clock_now() - start;
}

static uint64_t protect_any(unsigned long n)
{
	char *memory = areas[any_below(n)];
	uint64_t start = clock_now();
	MUST(mprotect(memory, PAGE, PROT_NONE) == 0);
	uint64_t cost = clock_now() - start;
	MUST(mprotect(memory, PAGE, protection_of(0)) == 0);
	return cost;
}

static uint64_t fault_in_any(unsigned long n)
{
	char *memory = areas[any_below(n) & ~1UL];
	MUST(madvise(memory, PAGE, MADV_DONTNEED) == 0);
	uint64_t start = clock_now();
	*(volatile char *)memory;
	return clock_now() - start;
}

static uint64_t read_maps(unsigned long n)
{
	(void)n;
	return read_whole("/proc/self/maps");
}

/* ---- resident memory, in MiB ---- */

enum { MOST_RESIDENT = 4096 };
static char *resident;
static unsigned long resident_size;

static void grow_memory(unsigned long n)
{
	if (!resident) {
		resident = mapped(MOST_RESIDENT * MIB, PROT_READ | PROT_WRITE);
		/* Pages of one size, wherever the mapping is. */
		madvise(resident, MOST_RESIDENT * MIB, MADV_NOHUGEPAGE);
	}
	write_pages(resident + resident_size, n * MIB - resident_size);
	resident_size = n * MIB;
}

static uint64_t read_stat(unsigned long n)
{
	(void)n;
	return read_whole("/proc/self/stat");
}

static uint64_t read_statm(unsigned long n)
{
	(void)n;
	return read_whole("/proc/self/statm");
}

static uint64_t read_meminfo(unsigned long n)
{
	(void)n;
	return read_whole("/proc/meminfo");
}

static uint64_t read_vmstat(unsigned long n)
{
	(void)n;
	return read_whole("/proc/vmstat");
}

static uint64_t read_rollup(unsigned long n)
{
	(void)n;
	return read_whole("/proc/self/smaps_rollup");
}

static uint64_t move_all(unsigned long n)
{
	static char *place;
	(void)n;
	if (!place)
		place = mapped(MOST_RESIDENT * MIB, PROT_NONE);
	uint64_t start = clock_now();
	char *moved = mremap(resident, resident_size, resident_size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
	uint64_t cost = clock_now() - start;
	MUST(moved == place);
	MUST(mremap(place, resident_size, resident_size, MREMAP_MAYMOVE | MREMAP_FIXED, resident) == resident);
	return cost;
}

/* ---- descriptors ---- */

enum { MOST_DESCRIPTORS = 30000 };
static int events[MOST_DESCRIPTORS];
static unsigned long event_count;
static int set = -1;

static void watch(int descriptor)
{
	struct epoll_event event = { .events = EPOLLIN };
	MUST(epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0);
}

static void grow_descriptors(unsigned long n)
{
	if (set < 0) {
		struct rlimit limit = { MOST_DESCRIPTORS + 100, MOST_DESCRIPTORS + 100 };
		MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		MUST((set = epoll_create1(0)) >= 0);
	}
	for (; event_count < n; event_count++) {
		MUST((events[event_count] = eventfd(0, EFD_NONBLOCK)) >= 0);
		watch(events[event_count]);
	}
}

static uint64_t wait_for_one(unsigned long n)
{
	struct epoll_event found[8];
	uint64_t one = 1;
	int event = events[any_below(n)];
	MUST(write(event, &one, sizeof one) == sizeof one);
	uint64_t start = clock_now();
	MUST(epoll_wait(set, found, 8, 0) == 1);
	uint64_t cost = clock_now() - start;
	MUST(read(event, &one, sizeof one) == sizeof one);
	MUST(epoll_wait(set, found, 8, 0) == 0);
	return cost;
}

static uint64_t add_and_remove(unsigned long n)
{
	(void)n;
	int event = eventfd(0, EFD_NONBLOCK);
	uint64_t start = clock_now();
	watch(event);
	MUST(epoll_ctl(set, EPOLL_CTL_DEL, event, NULL) == 0);
	uint64_t cost = clock_now() - start;
	close(event);
	return cost;
}

static uint64_t open_and_close(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	int copy = dup(set);
	MUST(copy >= 0 && close(copy) == 0);
	return clock_now() - start;
}

/* ---- directory entries ---- */

static unsigned long entry_count;

static const char *entry(unsigned long number)
{
	static char name[32];
	snprintf(name, sizeof name, "entry-%lu", number);
	return name;
}

static void grow_directory(unsigned long n)
{
	if (entry_count == 0)
		MUST(mkdir("/tmp/growth", 0755) == 0 && chdir("/tmp/growth") == 0);
	for (; entry_count < n; entry_count++)
		MUST(close(open(entry(entry_count), O_CREAT | O_RDWR, 0644)) == 0);
}

static uint64_t create_one(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	int file = open("new", O_CREAT | O_RDWR, 0644);
	uint64_t cost = clock_now() - start;
	MUST(file >= 0 && close(file) == 0 && unlink("new") == 0);
	return cost;
}

static uint64_t unlink_one(unsigned long n)
{
	(void)n;
	MUST(close(open("new", O_CREAT | O_RDWR, 0644)) == 0);
	uint64_t start = clock_now();
	MUST(unlink("new") == 0);
	return clock_now() - start;
}

static uint64_t stat_any(unsigned long n)
{
	struct stat status;
	const char *name = entry(any_below(n));
	uint64_t start = clock_now();
	MUST(stat(name, &status) == 0);
	return clock_now() - start;
}

/* ---- processes ---- */

static unsigned long process_count;
static pid_t idle[1000];
static char *common;

static void grow_processes(unsigned long n)
{
	if (!common) {
		common = shared_memory(PAGE);
		*common = 1;
	}
	for (; process_count < n; process_count++) {
		pid_t child = fork();
		MUST(child >= 0);
		if (child == 0) {
			*(volatile char *)common;
			for (;;)
				pause();
		}
		idle[process_count] = child;
	}
	usleep(1000);
}

static uint64_t yield_once(unsigned long n)
{
	(void)n;
	uint64_t start = clock_now();
	sched_yield();
	return clock_now() - start;
}

static const struct dimension dimensions[] = {
	{ "areas", "areas", { 10, 1000, 20000, 60000 }, grow_areas,
	  { { "mmap and munmap of a page", map_and_unmap },
	    { "mmap into any hole", fill_any_hole },
	    { "mprotect of any area", protect_any },
	    { "fault in any area", fault_in_any },
	    { "read of /proc/self/maps", read_maps } } },
	{ "memory", "MiB resident", { 1, 16, 256, 1024, 4096 }, grow_memory,
	  { { "read of /proc/self/stat", read_stat },
	    { "read of /proc/self/statm", read_statm },
	    { "read of /proc/self/status", read_status },
	    { "read of /proc/meminfo", read_meminfo },
	    { "read of /proc/vmstat", read_vmstat },
	    { "read of /proc/self/smaps_rollup", read_rollup },
	    { "mremap of all of it", move_all },
	    { "fork, exit and wait", fork_exit_wait } } },
	{ "descriptors", "descriptors", { 10, 1000, 30000 }, grow_descriptors,
	  { { "epoll_wait, one ready", wait_for_one },
	    { "epoll_ctl, add and remove", add_and_remove },
	    { "dup and close", open_and_close } } },
	{ "directory", "entries", { 10, 1000, 20000, 30000 }, grow_directory,
	  { { "create", create_one }, { "unlink", unlink_one }, { "stat of any entry", stat_any } } },
	{ "processes", "idle processes", { 1, 100, 400, 1000 }, grow_processes,
	  { { "fork, exit and wait", fork_exit_wait },
	    { "sched_yield", yield_once },
	    { "mmap, write and munmap of a page", map_and_touch } } },
	{ "depth", "forks deep", { 1, 10, 100 }, grow_depth,
	  { { "fork, exit and wait", fork_exit_wait },
	    { "first write of an inherited page", copy_inherited },
	    { "MADV_DONTNEED of an inherited page", drop_inherited },
	    { "read fault in a shared page", read_common } } },
	{ "mappers", "mappers", { 1, 20, 400 }, grow_mappers,
	  { { "ftruncate by a page", truncate_page },
	    { "move_pages of a page of a file", migrate_file_page },
	    { "move_pages of an inherited page", migrate_inherited_page },
	    { "mprotect of a page", protect_file_page },
	    { "reclaim of a page by a lower limit", reclaim_file_pages } } },
	{ "waiters", "futex waiters", { 10, 1000, 8000 }, grow_waiters,
	  { { "FUTEX_WAKE without a waiter", wake_nobody },
	    { "FUTEX_WAKE of the only waiter", wake_own },
	    { "FUTEX_WAKE of one of half of the waiters", wake_common },
	    { "create and join of a thread", create_and_join } } },
	{ "swapped", "MiB swapped", { 1, 16, 64 }, grow_swapped,
	  { { "swap-in of a page", swap_in_any },
	    { "munmap and mmap of a page", replace_swapped },
	    { "read of /proc/self/status", read_status },
	    { "fork, exit and wait", fork_exit_wait } }, has_swap },
	{ "merged", "merged pages", { 256, 4096, 16384 }, grow_merged,
	  { { "first write of a page", write_merged },
	    { "move_pages of a page", migrate_merged },
	    { "fork, exit and wait", fork_exit_wait } }, can_merge },
	{ "cgroups", "cgroups", { 1, 100, 1000 }, grow_groups,
	  { { "fork, exit and wait", fork_exit_wait },
	    { "mmap, write and munmap of a page", map_and_touch },
	    { "create and remove of a cgroup", create_and_remove_group } }, has_groups },
	{ "limit", "MiB at the limit", { 16, 64, 256 }, grow_limit,
	  { { "first write of a page", populate_at_limit }, { "swap-in of a page", swap_in_at_limit } }, has_limits },
	{ "mounts", "mounts", { 10, 1000, 10000 }, grow_mounts,
	  { { "open of a mount", open_any_mount },
	    { "mount and umount", mount_and_unmount },
	    { "read of /proc/self/mounts", read_mounts } } },
	{ "connections", "connections", { 10, 1000, 10000 }, grow_connections,
	  { { "request and reply", request_and_reply },
	    { "connect, accept and close", connect_and_close },
	    { "read of /proc/net/tcp, per connection", read_connections } }, has_network },
	{ "levels", "levels of cgroups", { 1, 10, 100 }, grow_levels,
	  { { "fork, exit and wait", fork_exit_wait },
	    { "mmap, write and munmap of a page", map_and_touch },
	    { "create and remove of a cgroup", create_and_remove_level } }, has_groups },
};

static uint64_t costs[MOST_OPERATIONS][MOST_SIZES];

/* Returns the cost of the cheapest repetition. */
static uint64_t least_cost(const struct operation *operation, unsigned long n)
{
	uint64_t least = UNAVAILABLE;
	for (int time = 0; time < TIMES; time++) {
		uint64_t cost = operation->measure(n);
		least = cost < least ? cost : least;
	}
	return least;
}

/* Records an operation at each size, with the exponent of the growth from the smallest to the largest. */
static void record_growth(const struct dimension *of, int which, int sizes)
{
	const char *name = of->operations[which].name;
	char measure[64];
	for (int size = 0; size < sizes; size++) {
		snprintf(measure, sizeof measure, "%lu %s", of->sizes[size], of->things);
		if (costs[which][size] != UNAVAILABLE)
			record_value(name, measure, "instructions", costs[which][size]);
	}
	if (costs[which][0] == UNAVAILABLE || costs[which][sizes - 1] == UNAVAILABLE)
		return;
	double least = logarithm(costs[which][0]), most = logarithm(costs[which][sizes - 1]);
	double spread = logarithm((double)of->sizes[sizes - 1] / of->sizes[0]);
	record_value(name, "exponent", "power", (most - least) / spread);
}

static void measure_growth(const struct dimension *of)
{
	int sizes = 0, operations = 0;
	while (operations < MOST_OPERATIONS && of->operations[operations].name)
		operations++;
	for (; sizes < MOST_SIZES && of->sizes[sizes]; sizes++) {
		unsigned long n = of->sizes[sizes];
		of->grow(n);
		for (int which = 0; which < operations; which++)
			costs[which][sizes] = least_cost(&of->operations[which], n);
	}
	for (int which = 0; which < operations; which++)
		record_growth(of, which, sizes);
}

int main(int count, char **arguments)
{
	const struct dimension *of = NULL;
	for (size_t i = 0; i < sizeof dimensions / sizeof *dimensions; i++)
		if (count == 2 && strcmp(arguments[1], dimensions[i].word) == 0)
			of = &dimensions[i];
	if (!of) {
		fprintf(stderr, "usage: growth areas|memory|descriptors|directory|processes|depth|mappers|waiters|swapped|"
				"merged|cgroups|limit|mounts|connections|levels\n");
		return 2;
	}
	if (of->is_offered && !of->is_offered()) {
		printf("note\tno %s\n", of->things);
		return 0;
	}
	measure_growth(of);
	print_records();
	for (unsigned long i = 0; i < process_count; i++)
		kill(idle[i], SIGKILL);
	end_members();
	return 0;
}
