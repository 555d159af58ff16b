/* Do the values in /proc about memory change if the states that they report change?
 *
 * Each check reads a value, changes the state that the value reports, and checks that the value changes. Linux is the
 * reference. Values that only root may read are checked only as root.
 */
#include "check.h"
#include <sys/ioctl.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_NOHUGEPAGE
#define MADV_NOHUGEPAGE 15
#endif

enum { PRESENT = 63, SWAPPED = 62, OF_A_FILE = 61, GUARD = 58, EXCLUSIVE = 56 };
enum { KIND_ANONYMOUS = 12, KIND_MAPPED = 11, KIND_FREE = 10, KIND_TABLE = 26, KIND_ZERO = 24, KIND_NO_MEMORY = 20 };

static int bit(uint64_t word, int number)
{
	return (int)(word >> number & 1);
}

/* Returns private memory that is backed by 4 KiB pages only. */
static char *small_pages(size_t length)
{
	char *memory = anonymous(length);
	NEED(memory != NULL);
	madvise(memory, length, MADV_NOHUGEPAGE);
	return memory;
}

/* Returns memory as `small_pages` does, between two inaccessible pages, so that no other area can merge with it. */
static char *apart(size_t length)
{
	char *room = mmap(NULL, length + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	NEED(mprotect(room + PAGE, length, PROT_READ | PROT_WRITE) == 0);
	madvise(room + PAGE, length, MADV_NOHUGEPAGE);
	return room + PAGE;
}

static void unmap_apart(char *memory, size_t length)
{
	munmap(memory - PAGE, length + 2 * PAGE);
}

/* Returns the word with this index in a file of 64-bit words, such as /proc/self/pagemap. */
static uint64_t word_at(const char *path, uint64_t index)
{
	uint64_t word = 0;
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	CHECK_EQ(pread(file, &word, sizeof word, (off_t)(index * sizeof word)), sizeof word);
	close(file);
	return word;
}

static uint64_t page_word(const void *address)
{
	return word_at("/proc/self/pagemap", (uintptr_t)address / PAGE);
}

/* Returns the page's word without the soft-dirty bit, which a kernel with that bit sets for every new mapping. */
static uint64_t without_soft_dirty(const void *address)
{
	return page_word(address) & ~(1ULL << 55);
}

static uint64_t frame_of(const void *address)
{
	return page_word(address) & ((1ULL << 55) - 1);
}

/* Returns the number in a row of /proc/self/smaps for the area that contains this address. */
static long area_row(const void *address, const char *name)
{
	char line[512];
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file != NULL);
	unsigned long start, end, at = (unsigned long)(uintptr_t)address;
	int inside = 0;
	long value = -1;
	size_t length = strlen(name);
	while (value < 0 && fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = at >= start && at < end;
		else if (inside && strncmp(line, name, length) == 0 && line[length] == ':')
			value = strtol(line + length + 1, NULL, 10);
	}
	fclose(file);
	return value;
}

/* Returns whether the VmFlags of the area contain this code. */
static int has_code(const void *address, const char *code)
{
	char line[512];
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file != NULL);
	unsigned long start, end, at = (unsigned long)(uintptr_t)address;
	int inside = 0, found = 0;
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = at >= start && at < end;
		else if (inside && strncmp(line, "VmFlags:", 8) == 0)
			for (char *word = strtok(line + 8, " \n"); word; word = strtok(NULL, " \n"))
				found |= strcmp(word, code) == 0;
	}
	fclose(file);
	return found;
}

/* Creates a child that shares the pages until `end_sharer` is called. */
static pid_t sharer(struct turns *turns)
{
	NEED(turns_open(turns));
	pid_t child = fork_checked();
	if (child == 0) {
		turn_await(turns->to_child);
		_exit(0);
	}
	return child;
}

static void end_sharer(struct turns *turns, pid_t child)
{
	turn_pass(turns->to_child);
	CHECK(exited(wait_for(child), 0));
	turns_close(turns);
}

static void pages(void)
{
	char *memory = small_pages(4 * PAGE);
	CHECK_EQ(without_soft_dirty(memory), 0);
	memory[0] = 1;
	CHECK(bit(page_word(memory), PRESENT) && bit(page_word(memory), EXCLUSIVE));
	CHECK(!bit(page_word(memory), OF_A_FILE) && !bit(page_word(memory), SWAPPED));
	CHECK_EQ(without_soft_dirty(memory + PAGE), 0);
	/* The zero page never counts as exclusive. */
	volatile char *untouched = memory + PAGE;
	CHECK_EQ(*untouched, 0);
	CHECK(bit(page_word(memory + PAGE), PRESENT) && !bit(page_word(memory + PAGE), EXCLUSIVE));
	struct turns turns;
	pid_t child = sharer(&turns);
	CHECK(!bit(page_word(memory), EXCLUSIVE));
	end_sharer(&turns, child);
	CHECK(bit(page_word(memory), EXCLUSIVE));
	CHECK_EQ(madvise(memory, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(without_soft_dirty(memory), 0);
	if (madvise(memory + 2 * PAGE, PAGE, MADV_GUARD_INSTALL) == 0) {
		CHECK(bit(page_word(memory + 2 * PAGE), GUARD) && !bit(page_word(memory + 2 * PAGE), PRESENT));
		CHECK(has_code(memory, "gu"));
		CHECK_EQ(madvise(memory + 2 * PAGE, PAGE, MADV_GUARD_REMOVE), 0);
		CHECK(!bit(page_word(memory + 2 * PAGE), GUARD));
	}
	munmap(memory, 4 * PAGE);
	CHECK_EQ(without_soft_dirty(memory), 0);

	int file = scratch_file(2 * PAGE);
	char *view = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	NEED(view != MAP_FAILED);
	volatile char *first = view;
	CHECK_EQ(*first, 0);
	CHECK(bit(page_word(view), PRESENT) && bit(page_word(view), OF_A_FILE));
	view[0] = 1;
	CHECK(bit(page_word(view), PRESENT) && !bit(page_word(view), OF_A_FILE));
	munmap(view, 2 * PAGE);
	close(file);
	/* A position or a size that is not a multiple of 8 is refused. */
	char byte[9];
	int words = open("/proc/self/pagemap", O_RDONLY);
	CHECK_FAILS(pread(words, byte, 8, 4), EINVAL);
	CHECK_FAILS(pread(words, byte, 9, 0), EINVAL);
	close(words);
}

static void as_nobody(void *address)
{
	NEED(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	CHECK_FAILS(open("/proc/kpageflags", O_RDONLY), EACCES);
	CHECK_FAILS(open("/proc/kpagecount", O_RDONLY), EACCES);
	(void)address;
}

/* Another user reads pagemap through a descriptor that root opened. The opener's privileges decide whether frame
 * numbers are visible. */
static void opened_before(void *words)
{
	uint64_t word = 0;
	char own = 1;
	NEED(setresuid(65534, 65534, 65534) == 0);
	off_t at = (off_t)((uintptr_t)&own / PAGE * sizeof word);
	CHECK_EQ(pread(*(int *)words, &word, sizeof word, at), sizeof word);
	CHECK(bit(word, PRESENT) && (word & ((1ULL << 55) - 1)) != 0);
	close(*(int *)words);
	/* Only root may open the file. */
	CHECK_FAILS(open("/proc/kpageflags", O_RDONLY), EACCES);
}

static void frames(void)
{
	if (getuid() != 0)
		return;
	char *memory = small_pages(4 * PAGE);
	memset(memory, 1, 2 * PAGE);
	uint64_t frame = frame_of(memory), next = frame_of(memory + PAGE);
	CHECK(frame != 0 && next != 0 && frame != next);
	uint64_t flags = word_at("/proc/kpageflags", frame);
	CHECK(bit(flags, KIND_ANONYMOUS) && bit(flags, KIND_MAPPED) && !bit(flags, KIND_FREE));
	CHECK_EQ(word_at("/proc/kpagecount", frame), 1);
	/* mremap moves the frame together with its page, fork shares the frame, and a copy uses another frame. */
	char *moved = mremap(memory, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, memory + 3 * PAGE);
	CHECK(moved == memory + 3 * PAGE);
	CHECK_EQ(frame_of(memory + 3 * PAGE), frame);
	struct turns turns;
	pid_t child = sharer(&turns);
	CHECK_EQ(word_at("/proc/kpagecount", frame), 2);
	memory[3 * PAGE] = 2;
	CHECK(frame_of(memory + 3 * PAGE) != frame);
	CHECK_EQ(word_at("/proc/kpagecount", frame), 1);
	CHECK_EQ(word_at("/proc/kpagecount", next), 2);
	end_sharer(&turns, child);
	CHECK_EQ(word_at("/proc/kpagecount", next), 1);
	volatile char *untouched = memory + 2 * PAGE;
	CHECK_EQ(*untouched, 0);
	CHECK(bit(word_at("/proc/kpageflags", frame_of(memory + 2 * PAGE)), KIND_ZERO));

	int file = scratch_file(PAGE);
	char *view = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *again = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(view != MAP_FAILED && again != MAP_FAILED);
	view[0] = 1;
	frame = frame_of(view);
	CHECK(!bit(word_at("/proc/kpageflags", frame), KIND_ANONYMOUS));
	CHECK(bit(word_at("/proc/kpageflags", frame), KIND_MAPPED));
	CHECK_EQ(word_at("/proc/kpagecount", frame), 1);
	CHECK_EQ(again[0], 1);
	CHECK_EQ(frame_of(again), frame);
	CHECK_EQ(word_at("/proc/kpagecount", frame), 2);
	munmap(again, PAGE);
	munmap(view, PAGE);
	CHECK_EQ(word_at("/proc/kpagecount", frame), 0);
	CHECK(!bit(word_at("/proc/kpageflags", frame), KIND_MAPPED));
	close(file);
	munmap(memory, 4 * PAGE);

	CHECK(exited(in_child(as_nobody, NULL), 0));
	int words = open("/proc/self/pagemap", O_RDONLY);
	CHECK(exited(in_child(opened_before, &words), 0));
	close(words);
}

/* Checks the rows of smaps after calls that change them. */
static void areas(void)
{
	char *memory = apart(8 * PAGE);
	CHECK_EQ(area_row(memory, "Size"), 32);
	CHECK_EQ(area_row(memory, "KernelPageSize"), 4);
	CHECK_EQ(area_row(memory, "MMUPageSize"), 4);
	CHECK_EQ(area_row(memory, "Rss"), 0);
	memset(memory, 1, 3 * PAGE);
	const char *const all[] = { "Rss", "Pss", "Private_Dirty", "Referenced", "Anonymous", "Pss_Dirty" };
	for (size_t at = 0; at < sizeof all / sizeof *all; at++)
		if (area_row(memory, all[at]) != 12) {
			printf("%s\n", all[at]);
			CHECK_EQ(area_row(memory, all[at]), 12);
		}
	CHECK_EQ(area_row(memory, "Shared_Dirty"), 0);
	/* The zero page is not counted. */
	volatile char *untouched = memory + 4 * PAGE;
	CHECK_EQ(*untouched, 0);
	CHECK_EQ(area_row(memory, "Rss"), 12);
	struct turns turns;
	pid_t child = sharer(&turns);
	CHECK_EQ(area_row(memory, "Rss"), 12);
	CHECK_EQ(area_row(memory, "Pss"), 6);
	CHECK_EQ(area_row(memory, "Shared_Dirty"), 12);
	CHECK_EQ(area_row(memory, "Private_Dirty"), 0);
	memory[0] = 2;
	CHECK_EQ(area_row(memory, "Pss"), 8);
	CHECK_EQ(area_row(memory, "Private_Dirty"), 4);
	end_sharer(&turns, child);
	CHECK_EQ(area_row(memory, "Private_Dirty"), 12);
	CHECK_EQ(madvise(memory, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(area_row(memory, "Rss"), 8);
	/* mlock populates and locks pages. munlock keeps them populated. */
	CHECK_EQ(area_row(memory, "Locked"), 0);
	CHECK(!has_code(memory, "lo"));
	CHECK_EQ(mlock(memory, 2 * PAGE), 0);
	CHECK_EQ(area_row(memory, "Size"), 8);
	CHECK_EQ(area_row(memory, "Locked"), 8);
	CHECK(has_code(memory, "lo") && !has_code(memory + 2 * PAGE, "lo"));
	CHECK_EQ(area_row(memory + 2 * PAGE, "Locked"), 0);
	CHECK_EQ(munlock(memory, 2 * PAGE), 0);
	CHECK_EQ(area_row(memory, "Size"), 32);
	CHECK_EQ(area_row(memory, "Locked"), 0);
	CHECK_EQ(area_row(memory, "Rss"), 12);
	CHECK_EQ(area_row(memory, "AnonHugePages"), 0);
	CHECK_EQ(area_row(memory, "Swap"), 0);
	unmap_apart(memory, 8 * PAGE);
	CHECK_EQ(area_row(memory, "Size"), -1);
}

/* Checks the codes of VmFlags after the calls that set them. */
static void codes(void)
{
	char *memory = apart(4 * PAGE);
	CHECK(has_code(memory, "rd") && has_code(memory, "wr") && !has_code(memory, "ex") && !has_code(memory, "sh"));
	CHECK(has_code(memory, "mr") && has_code(memory, "mw") && has_code(memory, "me") && has_code(memory, "ac"));
	CHECK_EQ(mprotect(memory, 4 * PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK(has_code(memory, "rd") && !has_code(memory, "wr") && has_code(memory, "ex"));
	struct {
		int set, clear;
		const char *code;
	} advice[] = {
		{ MADV_DONTFORK, MADV_DOFORK, "dc" },
		{ MADV_DONTDUMP, MADV_DODUMP, "dd" },
		{ MADV_WIPEONFORK, MADV_KEEPONFORK, "wf" },
	};
	for (size_t at = 0; at < sizeof advice / sizeof *advice; at++) {
		CHECK(!has_code(memory, advice[at].code));
		CHECK_EQ(madvise(memory, 4 * PAGE, advice[at].set), 0);
		CHECK(has_code(memory, advice[at].code));
		CHECK_EQ(madvise(memory, 4 * PAGE, advice[at].clear), 0);
		CHECK(!has_code(memory, advice[at].code));
	}
	CHECK_EQ(mlock2(memory, 4 * PAGE, MLOCK_ONFAULT), 0);
	CHECK(has_code(memory, "lo") && has_code(memory, "lf"));
	unmap_apart(memory, 4 * PAGE);
	memory = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	NEED(memory != MAP_FAILED);
	CHECK(has_code(memory, "sh") && has_code(memory, "ms") && has_code(memory, "nr"));
	munmap(memory, PAGE);
}

/* Returns the sum of a row over all areas. */
static long sum_of(const char *name)
{
	char line[512];
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file != NULL);
	long sum = 0;
	size_t length = strlen(name);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			sum += strtol(line + length + 1, NULL, 10);
	fclose(file);
	return sum;
}

static void rollup(void)
{
	static const char *const rows[] = { "Rss", "Private_Dirty", "Anonymous", "Shared_Clean" };
	char *memory = small_pages(64 * PAGE);
	/* Makes the C library allocate its buffers before the measurement. */
	sum_of("Rss");
	row_in("/proc/self/smaps_rollup", "Rss");
	long before = row_in("/proc/self/smaps_rollup", "Rss");
	memset(memory, 1, 64 * PAGE);
	CHECK_EQ(row_in("/proc/self/smaps_rollup", "Rss") - before, 256);
	for (size_t at = 0; at < sizeof rows / sizeof *rows; at++)
		CHECK_EQ(row_in("/proc/self/smaps_rollup", rows[at]), sum_of(rows[at]));
	long anonymous_share = row_in("/proc/self/smaps_rollup", "Pss_Anon");
	int file = scratch_file(16 * PAGE);
	char *view = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *memory_view = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(view != MAP_FAILED && memory_view != MAP_FAILED);
	long shared = row_in("/proc/self/smaps_rollup", "Pss_Shmem");
	memset(memory_view, 1, 16 * PAGE);
	CHECK_EQ(row_in("/proc/self/smaps_rollup", "Pss_Shmem") - shared, 64);
	CHECK_EQ(row_in("/proc/self/smaps_rollup", "Pss_Anon"), anonymous_share);
	munmap(memory, 64 * PAGE);
	CHECK_EQ(row_in("/proc/self/smaps_rollup", "Pss_Anon"), anonymous_share - 256);
	munmap(view, 16 * PAGE);
	munmap(memory_view, 16 * PAGE);
	close(file);
}

static void clear(char what)
{
	int file = open("/proc/self/clear_refs", O_WRONLY);
	NEED(file >= 0);
	CHECK_EQ(write(file, &what, 1), 1);
	close(file);
}

/* Flushes the TLB, so that the processor sets the accessed bits of the page-table entries again. */
static void forget_translations(char *memory, size_t length)
{
	CHECK_EQ(mprotect(memory, length, PROT_NONE), 0);
	CHECK_EQ(mprotect(memory, length, PROT_READ | PROT_WRITE), 0);
}

static void references(void)
{
	char *memory = apart(4 * PAGE);
	int file = scratch_file(PAGE);
	char *view = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(view != MAP_FAILED);
	memset(memory, 1, 4 * PAGE);
	view[0] = 1;
	CHECK_EQ(area_row(memory, "Referenced"), 16);
	CHECK_EQ(area_row(view, "Referenced"), 4);
	clear('2');
	CHECK_EQ(area_row(memory, "Referenced"), 0);
	CHECK_EQ(area_row(view, "Referenced"), 4);
	forget_translations(memory, 4 * PAGE);
	memory[PAGE] = 2;
	CHECK_EQ(area_row(memory, "Referenced"), 4);
	clear('3');
	CHECK_EQ(area_row(memory, "Referenced"), 4);
	CHECK_EQ(area_row(view, "Referenced"), 0);
	forget_translations(view, PAGE);
	volatile char *first = view;
	CHECK_EQ(*first, 1);
	CHECK_EQ(area_row(view, "Referenced"), 4);
	clear('1');
	CHECK_EQ(area_row(memory, "Referenced") + area_row(view, "Referenced"), 0);
	/* Neither the pages nor their dirty state are lost. */
	CHECK_EQ(area_row(memory, "Rss"), 16);
	CHECK_EQ(area_row(memory, "Private_Dirty"), 16);
	CHECK_EQ(memory[PAGE], 2);
	munmap(view, PAGE);
	unmap_apart(memory, 4 * PAGE);
	close(file);

	/* The peak (VmHWM) is reset. */
	memory = small_pages(2048 * PAGE);
	memset(memory, 1, 2048 * PAGE);
	munmap(memory, 2048 * PAGE);
	long peak = row_in("/proc/self/status", "VmHWM");
	CHECK(peak >= 8192);
	clear('5');
	CHECK(row_in("/proc/self/status", "VmHWM") <= peak - 4096);
	file = open("/proc/self/clear_refs", O_WRONLY);
	CHECK_FAILS(write(file, "6", 1), EINVAL);
	CHECK_FAILS(write(file, "0", 1), EINVAL);
	CHECK_FAILS(write(file, "x", 1), EINVAL);
	close(file);
}

/* Returns the line of /proc/self/numa_maps for an area. */
static const char *node_line(const void *address)
{
	static char line[512];
	FILE *file = fopen("/proc/self/numa_maps", "r");
	if (!file)
		return NULL;
	int found = 0;
	while (!found && fgets(line, sizeof line, file))
		found = strtoul(line, NULL, 16) == (unsigned long)(uintptr_t)address;
	fclose(file);
	return found ? line : "";
}

static long node_value(const void *address, const char *name)
{
	char wanted[32];
	snprintf(wanted, sizeof wanted, " %s=", name);
	const char *line = node_line(address), *at = strstr(line, wanted);
	return at ? strtol(at + strlen(wanted), NULL, 10) : -1;
}

static void nodes(void)
{
	if (access("/proc/self/numa_maps", R_OK) != 0)
		return;
	char *memory = apart(4 * PAGE);
	CHECK(strstr(node_line(memory), " default") != NULL);
	CHECK_EQ(node_value(memory, "N0"), -1);
	memset(memory, 1, 3 * PAGE);
	CHECK_EQ(node_value(memory, "anon"), 3);
	CHECK_EQ(node_value(memory, "dirty"), 3);
	CHECK_EQ(node_value(memory, "N0"), 3);
	CHECK_EQ(node_value(memory, "kernelpagesize_kB"), 4);
	struct turns turns;
	pid_t child = sharer(&turns);
	CHECK_EQ(node_value(memory, "mapmax"), 2);
	end_sharer(&turns, child);
	CHECK_EQ(node_value(memory, "mapmax"), -1);
	CHECK_EQ(madvise(memory, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(node_value(memory, "N0"), 2);
	unmap_apart(memory, 4 * PAGE);
}

/* The same as struct procmap_query of include/uapi/linux/fs.h. */
struct query {
	uint64_t size, query_flags, query_addr, start, end, flags, page_size, offset, inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};
#define QUERY _IOWR(0x66, 17, struct query)

static int ask(struct query *query, const void *address, uint64_t flags)
{
	int file = open("/proc/self/maps", O_RDONLY);
	NEED(file >= 0);
	query->size = sizeof *query;
	query->query_addr = (uintptr_t)address;
	query->query_flags = flags;
	int result = ioctl(file, QUERY, query);
	int error = errno;
	close(file);
	errno = error;
	return result;
}

static void queries(void)
{
	enum { NEXT = 0x10, A_FILE = 0x20, READ = 1, WRITE = 2, EXECUTE = 4, SHARED = 8 };
	char *room = mmap(NULL, 8 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	char *memory = room + PAGE;
	NEED(mprotect(memory, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	struct query query = { 0 };
	if (ask(&query, memory, 0) != 0 && errno == ENOTTY)
		return;
	CHECK_EQ(ask(&query, memory + PAGE, 0), 0);
	CHECK(query.start == (uintptr_t)memory && query.end == query.start + 4 * PAGE);
	CHECK_EQ(query.flags, READ | WRITE);
	CHECK_EQ(query.page_size, PAGE);
	CHECK_EQ(query.inode, 0);
	CHECK_EQ(mprotect(memory + PAGE, PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(ask(&query, memory + PAGE, 0), 0);
	CHECK(query.start == (uintptr_t)memory + PAGE && query.end == query.start + PAGE);
	CHECK_EQ(query.flags, READ | EXECUTE);
	CHECK_EQ(ask(&query, memory, 0), 0);
	CHECK_EQ(query.end - query.start, PAGE);
	/* A query for the next writable area returns the area after this one. */
	CHECK_EQ(ask(&query, memory + PAGE, NEXT | WRITE), 0);
	CHECK_EQ(query.start, (uintptr_t)memory + 2 * PAGE);
	CHECK_FAILS(ask(&query, memory + PAGE, WRITE), ENOENT);
	munmap(memory, PAGE);
	CHECK_FAILS(ask(&query, memory, 0), ENOENT);
	CHECK_EQ(ask(&query, memory, NEXT), 0);
	CHECK_EQ(query.start, (uintptr_t)memory + PAGE);
	CHECK_FAILS(ask(&query, memory, 0x40), EINVAL);

	char name[] = "/tmp/queried-XXXXXX", seen[64] = "";
	int file = mkstemp(name);
	struct stat stat;
	NEED(file >= 0 && ftruncate(file, 4 * PAGE) == 0 && fstat(file, &stat) == 0);
	char *view = mmap(memory, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 2 * PAGE);
	NEED(view == memory);
	query = (struct query){ .name_size = sizeof seen, .name_addr = (uintptr_t)seen };
	CHECK_EQ(ask(&query, room, NEXT | A_FILE), 0);
	CHECK_EQ(query.start, (uintptr_t)memory);
	CHECK_EQ(query.flags, READ | SHARED);
	CHECK_EQ(query.offset, 2 * PAGE);
	CHECK_EQ(query.inode, stat.st_ino);
	CHECK_EQ(query.name_size, strlen(name) + 1);
	CHECK(strcmp(seen, name) == 0);
	query = (struct query){ .name_size = 4, .name_addr = (uintptr_t)seen };
	CHECK_FAILS(ask(&query, memory, 0), ENAMETOOLONG);
	unlink(name);
	close(file);
	munmap(room, 8 * PAGE);
}

int main(void)
{
	pages();
	frames();
	areas();
	codes();
	rollup();
	references();
	nodes();
	queries();
	return checked("memory_files");
}
