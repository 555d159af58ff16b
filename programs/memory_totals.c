/* Do the rows in /proc about the memory of the machine change if the states that they report change, and does
 * each setting have its effect?
 *
 * Each check changes the state, checks that the rows change by the expected amount, reverts the change, and checks that
 * the rows change back. Because other processes may use memory at the same time, each check is tried several times with
 * a tolerance. With the argument "alone" there are no other processes: the tolerance is smaller, and settings of the
 * whole system are changed too.
 */
#include "check.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1
#endif

static int alone;

/* The amount by which a row of /proc/meminfo (in KiB) or of /proc/vmstat (in pages) changes for this number of
 * pages. */
struct row {
	const char *name;
	long pages;
};

static int in_kibibytes(const struct row *row)
{
	return strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", row->name[0]) != NULL;
}

static long value_of(const struct row *row)
{
	if (in_kibibytes(row))
		return row_in("/proc/meminfo", row->name) / 4;
	return row_in("/proc/vmstat", row->name);
}

static int near(long moved, long wanted)
{
	return labs(moved - wanted) <= labs(wanted) / (alone ? 16 : 4) + 1;
}

/* Makes the change and reverts it, until the rows have changed as expected both times. */
static void moves(const struct row *rows, int count, void (*change)(void), void (*back)(void))
{
	enum { MOST = 8, TRIES = 8 };
	long before[MOST], after[MOST], end[MOST];
	int right = 0;
	NEED(count <= MOST);
	for (int try = 0; try < TRIES && !right; try++) {
		for (int at = 0; at < count; at++)
			before[at] = value_of(&rows[at]);
		change();
		for (int at = 0; at < count; at++)
			after[at] = value_of(&rows[at]);
		back();
		right = 1;
		for (int at = 0; at < count; at++) {
			end[at] = value_of(&rows[at]);
			right &= before[at] >= 0 && near(after[at] - before[at], rows[at].pages) &&
				 near(end[at] - after[at], -rows[at].pages);
		}
	}
	for (int at = 0; at < count && !right; at++)
		printf("%s: %ld, %ld, %ld pages: should move by %ld\n", rows[at].name, before[at], after[at], end[at],
		       rows[at].pages);
	CHECK(right);
}

enum { PAGES = 8192 };
static char *memory;
static int file;

static void anonymous_pages(void)
{
	memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	memset(memory, 1, PAGES * PAGE);
}

static void unmap(void)
{
	munmap(memory, PAGES * PAGE);
}

static void shared_pages(void)
{
	file = (int)syscall(SYS_memfd_create, "totals", (long)MFD_CLOEXEC);
	NEED(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(memory != MAP_FAILED);
	memset(memory, 1, PAGES * PAGE);
}

static void close_shared(void)
{
	munmap(memory, PAGES * PAGE);
	close(file);
}

static void map_shared(void)
{
	memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
	NEED(memory != MAP_FAILED);
}

static void lock(void)
{
	CHECK_EQ(mlock(memory, PAGES * PAGE), 0);
}

static void unlock(void)
{
	CHECK_EQ(munlock(memory, PAGES * PAGE), 0);
}

static void promise(void)
{
	memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
}

/* The number of page tables that `tables` allocates, by accessing one page in each. */
enum { TABLES = 1024 };

static void tables(void)
{
	size_t step = 2UL << 20;
	memory = mmap(NULL, TABLES * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(memory != MAP_FAILED);
	madvise(memory, TABLES * step, 15 /* MADV_NOHUGEPAGE */);
	for (size_t at = 0; at < TABLES; at++)
		memory[at * step] = 1;
}

static void drop_tables(void)
{
	munmap(memory, TABLES * (2UL << 20));
}

static void rows(void)
{
	const struct row taken[] = {
		{ "AnonPages", PAGES }, { "nr_anon_pages", PAGES }, { "Committed_AS", PAGES },
	};
	moves(taken, 3, anonymous_pages, unmap);
	/* The amount of free memory changes with every file that any process reads. */
	const struct row left[] = {
		{ "MemFree", -PAGES }, { "MemAvailable", -PAGES }, { "nr_free_pages", -PAGES },
	};
	if (alone) {
		moves(left, 3, anonymous_pages, unmap);
		moves(left, 3, shared_pages, close_shared);
	}
	const struct row promised[] = { { "Committed_AS", PAGES } };
	moves(promised, 1, promise, unmap);
	const struct row shared[] = {
		{ "Cached", PAGES }, { "Shmem", PAGES }, { "nr_shmem", PAGES }, { "nr_file_pages", PAGES },
		{ "Mapped", PAGES },
	};
	moves(shared, 5, shared_pages, close_shared);
	shared_pages();
	munmap(memory, PAGES * PAGE);
	const struct row mapped[] = { { "Mapped", PAGES }, { "nr_mapped", PAGES } };
	moves(mapped, 2, map_shared, unmap);
	close(file);
	anonymous_pages();
	const struct row locked[] = {
		{ "Mlocked", PAGES }, { "Unevictable", PAGES }, { "nr_mlock", PAGES }, { "nr_unevictable", PAGES },
	};
	moves(locked, 4, lock, unlock);
	unmap();
	const struct row below[] = { { "PageTables", TABLES }, { "nr_page_table_pages", TABLES } };
	moves(below, 2, tables, drop_tables);
	CHECK(row_in("/proc/meminfo", "MemTotal") > row_in("/proc/meminfo", "MemFree"));
}

/* Checks event counts, which can only increase. */
static void events(void)
{
	enum { TOUCHED = 2000 };
	long faults = row_in("/proc/vmstat", "pgfault"), freed = row_in("/proc/vmstat", "pglazyfree");
	char *touched = anonymous(TOUCHED * PAGE);
	NEED(touched != NULL);
	madvise(touched, TOUCHED * PAGE, 15 /* MADV_NOHUGEPAGE */);
	for (size_t at = 0; at < TOUCHED; at++)
		touched[at * PAGE] = 1;
	long more = row_in("/proc/vmstat", "pgfault") - faults;
	CHECK(more >= TOUCHED && (!alone || more < TOUCHED + 100));
	CHECK_EQ(madvise(touched, TOUCHED * PAGE, MADV_FREE), 0);
	more = row_in("/proc/vmstat", "pglazyfree") - freed;
	CHECK(more >= TOUCHED - 256 && (!alone || more == TOUCHED));
	munmap(touched, TOUCHED * PAGE);
	CHECK(row_in("/proc/vmstat", "oom_kill") >= 0);
}

static long setting(const char *name)
{
	char path[128], text[64] = "";
	snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
	int from = open(path, O_RDONLY);
	NEED(from >= 0 && read(from, text, sizeof text - 1) > 0);
	close(from);
	return strtol(text, NULL, 10);
}

/* Writes a setting of /proc/sys/vm. Returns 0 or the errno. */
static int set(const char *name, const char *value)
{
	char path[128];
	snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
	int to = open(path, O_WRONLY);
	if (to < 0)
		return errno;
	int error = write(to, value, strlen(value)) == (ssize_t)strlen(value) ? 0 : errno;
	close(to);
	return error;
}

static void *fixed_at(unsigned long address)
{
	return mmap((void *)address, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static void as_nobody(void *unused)
{
	(void)unused;
	unsigned long lowest = (unsigned long)setting("mmap_min_addr");
	NEED(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	CHECK_EQ(fixed_at(lowest), lowest);
	CHECK_FAILS(fixed_at(lowest - PAGE), EPERM);
	CHECK_EQ(set("overcommit_memory", "1"), EACCES);
	CHECK_EQ(set("max_map_count", "1000"), EACCES);
	CHECK_EQ(set("drop_caches", "1"), EACCES);
}

static void settings(void)
{
	char *huge, *part;
	enum { MANY = 1000 };
	CHECK_EQ(setting("overcommit_memory"), 0);
	CHECK_EQ(set("overcommit_memory", "3"), EINVAL);
	CHECK_EQ(set("overcommit_memory", "x"), EINVAL);
	/* More than the total memory can be committed only if overcommit is unlimited. */
	size_t beyond = (size_t)row_in("/proc/meminfo", "MemTotal") * 1024 + (256UL << 20);
	CHECK(mmap(NULL, beyond, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	CHECK_EQ(set("overcommit_memory", "1"), 0);
	CHECK_EQ(setting("overcommit_memory"), 1);
	huge = mmap(NULL, beyond, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(huge != MAP_FAILED);
	munmap(huge, beyond);
	/* A ratio or an amount determines the commit limit. */
	long total = row_in("/proc/meminfo", "MemTotal"), ratio = setting("overcommit_ratio");
	CHECK(labs(row_in("/proc/meminfo", "CommitLimit") - total * ratio / 100) <= 4);
	CHECK_EQ(set("overcommit_ratio", "25"), 0);
	CHECK_EQ(setting("overcommit_ratio"), 25);
	CHECK(labs(row_in("/proc/meminfo", "CommitLimit") - total / 4) <= 4);
	CHECK_EQ(set("overcommit_kbytes", "131072"), 0);
	CHECK_EQ(setting("overcommit_kbytes"), 131072);
	CHECK_EQ(setting("overcommit_ratio"), 0);
	CHECK_EQ(row_in("/proc/meminfo", "CommitLimit"), 131072);
	CHECK_EQ(set("overcommit_memory", "2"), 0);
	part = anonymous(64UL << 20);
	CHECK(part != NULL);
	CHECK(anonymous(96UL << 20) == NULL && errno == ENOMEM);
	munmap(part, 64UL << 20);
	CHECK_EQ(set("overcommit_memory", "0"), 0);
	char old[32];
	snprintf(old, sizeof old, "%ld", ratio);
	CHECK_EQ(set("overcommit_ratio", old), 0);
	CHECK_EQ(setting("overcommit_kbytes"), 0);

	long most = setting("max_map_count");
	CHECK_EQ(set("max_map_count", "200"), 0);
	part = anonymous(MANY * PAGE);
	NEED(part != NULL);
	int made = 0;
	while (made < MANY / 2 && mprotect(part + 2 * (size_t)made * PAGE, PAGE, PROT_NONE) == 0)
		made++;
	CHECK(made > 50 && made < 100 && errno == ENOMEM);
	snprintf(old, sizeof old, "%ld", most);
	CHECK_EQ(set("max_map_count", old), 0);
	CHECK_EQ(setting("max_map_count"), most);
	CHECK_EQ(mprotect(part + 2 * (size_t)made * PAGE, PAGE, PROT_NONE), 0);
	munmap(part, MANY * PAGE);
	CHECK_EQ(set("drop_caches", "1"), 0);
	CHECK_EQ(set("drop_caches", "9"), EINVAL);
}

int main(int argc, char **argv)
{
	alone = argc > 1 && strcmp(argv[1], "alone") == 0;
	rows();
	events();
	if (getuid() == 0)
		CHECK(exited(in_child(as_nobody, NULL), 0));
	if (alone)
		settings();
	return checked("memory_totals");
}
