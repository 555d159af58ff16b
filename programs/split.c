/* Does /sys/kernel/debug/split_huge_pages split what is requested, and reject invalid requests?
 *
 * Memory in a 2 MiB page is split by process ID, by the address of a part that was moved away, by thread ID, by the
 * path of its file, and together with all other memory. No byte may be lost, the other process of a fork keeps its
 * mapping, zero-filled pages of anonymous memory are freed, and /proc/kpageflags reports the folios. Needs root and
 * debugfs. Nothing is checked if the file does not exist or if pages are not huge.
 */
#include "check.h"

#include <stdarg.h>

#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define SPLIT "/sys/kernel/debug/split_huge_pages"
#define HUGE (512 * PAGE)

/* Bits from linux/kernel-page-flags.h. */
#define HEAD (1ULL << 15)
#define TAIL (1ULL << 16)
#define THP (1ULL << 22)

/* Writes a split request with this text to the file. */
static long ask(const char *format, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	NEED(length > 0 && length < (int)sizeof text);
	int file = open(SPLIT, O_WRONLY);
	NEED(file >= 0);
	long written = write(file, text, length);
	int error = errno;
	close(file);
	errno = error;
	return written == length ? 0 : written < 0 ? -1 : written;
}

static uint64_t word(const char *path, uint64_t index)
{
	uint64_t value = 0;
	int file = open(path, O_RDONLY);
	NEED(file >= 0 && pread(file, &value, sizeof value, index * sizeof value) == sizeof value);
	close(file);
	return value;
}

/* Returns the flags that describe the folio of the page at `address`. */
static uint64_t folio_flags(const void *address)
{
	uint64_t entry = word("/proc/self/pagemap", (uintptr_t)address / PAGE);
	NEED(entry >> 63);
	return word("/proc/kpageflags", entry & ((1ULL << 55) - 1)) & (HEAD | TAIL | THP);
}

/* Returns this program's private memory in KiB. */
static long private_kib(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;
	NEED(file);
	while (fgets(line, sizeof line, file))
		if (sscanf(line, "RssAnon: %ld kB", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

static char value(int page, int zeroes)
{
	return zeroes && page % zeroes == 0 ? 0 : (char)(page % 127 + 1);
}

static void fill(char *memory, int zeroes)
{
	for (int page = 0; page < 512; page++)
		memory[page * PAGE] = value(page, zeroes);
}

static int is_filled(const char *memory, int zeroes)
{
	for (int page = 0; page < 512; page++)
		if (memory[page * PAGE] != value(page, zeroes))
			return 0;
	return 1;
}

/* Maps 2 MiB at an address that is aligned for a huge page. */
static char *aligned(int file, int flags)
{
	char *room = mmap(NULL, 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(room != MAP_FAILED);
	char *memory = (char *)(((uintptr_t)room + HUGE - 1) & ~(HUGE - 1));
	NEED(mmap(memory, HUGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0) == memory);
	return memory;
}

/* Returns anonymous memory in a huge page, or NULL if no huge page is available. */
static char *huge(int zeroes)
{
	char *memory = aligned(-1, MAP_PRIVATE | MAP_ANONYMOUS);
	fill(memory, zeroes);
	if (madvise(memory, HUGE, MADV_COLLAPSE))
		return NULL;
	return memory;
}

static long split(const char *memory, unsigned long bytes, int order)
{
	return ask("%d,0x%lx,0x%lx,%d", getpid(), (unsigned long)memory, (unsigned long)memory + bytes, order);
}

static void refusals(void)
{
	static const char *const BAD[] = {
		" ", "all", "0", "2", "-1", "1,0x1000", "7,0x1000", "7,4096,8192", "7,0x1000,8192",
		"7 0x1000 0x2000", "/", "/tmp", "/tmp,", "/tmp,0x0", "/tmp,0,1", "tmp,0x0,0x1", ",0x0,0x1",
		/* A file that does not exist. */
		"/no such file,0x0,0x1",
	};
	for (unsigned index = 0; index < sizeof BAD / sizeof *BAD; index++)
		CHECK_FAILS(ask("%s", BAD[index]), EINVAL);
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	NEED(waitpid(child, NULL, 0) == child);
	CHECK_FAILS(ask("%d,0x1000,0x2000", child), ESRCH);
	CHECK_FAILS(ask("-7,0x1000,0x2000"), ESRCH);
	/* A process that has exited but was not waited for has no memory. */
	child = fork();
	if (child == 0)
		_exit(0);
	siginfo_t info;
	NEED(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
	CHECK_FAILS(ask("%d,0x1000,0x2000", child), EINVAL);
	waitpid(child, NULL, 0);
	int file = open(SPLIT, O_WRONLY);
	void *volatile nowhere = (void *)8;
	CHECK_FAILS(write(file, nowhere, 5), EFAULT);
	close(file);
}

/* Sends valid requests that change nothing. */
static void nothing(char *memory)
{
	unsigned long start = (unsigned long)memory, end = start + HUGE;
	uint64_t before = folio_flags(memory + PAGE);
	CHECK_EQ(ask("%d,0x%lx,0x%lx", getpid(), start, start), 0);
	CHECK_EQ(ask("%d,0x%lx,0x%lx", getpid(), end, start), 0);
	CHECK_EQ(ask("%d,0x%lx,0x%lx", getpid(), start, start + PAGE - 1), 0);
	CHECK_EQ(ask("%d,0x%lx,0x%lx,9", getpid(), start, end), 0);
	CHECK_EQ(ask("%d,0x%lx,0x%lx,99", getpid(), start, end), 0);
	CHECK_EQ(ask("%d,0x%lx,0x%lx,-1", getpid(), start, end), 0);
	/* A folio of anonymous memory never has exactly two pages. */
	CHECK_EQ(ask("%d,0x%lx,0x%lx,1", getpid(), start, end), 0);
	/* Kernel addresses, and unmapped addresses. */
	CHECK_EQ(ask("%d,0xffff800000000000,0xffffffffffffffff", getpid()), 0);
	CHECK_EQ(ask("%d,0x0,0x1000", getpid()), 0);
	CHECK_EQ(folio_flags(memory + PAGE), before);
}

static void every_order(void)
{
	for (int order = 0; order < 9; order++) {
		char *memory = huge(0);
		if (!memory || order == 1)
			continue;
		CHECK_EQ(folio_flags(memory), HEAD | THP);
		if (order == 0)
			nothing(memory);
		CHECK_EQ(split(memory, HUGE, order), 0);
		CHECK(is_filled(memory, 0));
		uint64_t first = order ? HEAD | THP : 0, second = order ? TAIL | THP : 0;
		for (int page = 0; page < 512; page += 1 << order) {
			CHECK_EQ(folio_flags(memory + page * PAGE), first);
			if (order)
				CHECK_EQ(folio_flags(memory + (page + 1) * PAGE), second);
		}
		munmap(memory, HUGE);
	}
	/* Splits the folio only around one page. The address need not be page-aligned. */
	char *memory = huge(0);
	if (memory) {
		unsigned long inside = (unsigned long)memory + 77;
		CHECK_EQ(ask("%d,0x%lx,0x%lx,7,300", getpid(), inside, inside + PAGE), 0);
		CHECK_EQ(folio_flags(memory), HEAD | THP);
		CHECK_EQ(folio_flags(memory + 128 * PAGE), TAIL | THP);
		CHECK_EQ(folio_flags(memory + 256 * PAGE), HEAD | THP);
		CHECK_EQ(folio_flags(memory + 384 * PAGE), HEAD | THP);
		munmap(memory, HUGE);
	}
}

static void zeroes(void)
{
	char *memory = huge(4);
	if (!memory)
		return;
	long before = private_kib();
	CHECK_EQ(split(memory, HUGE, 0), 0);
	CHECK(private_kib() <= before - 128 * 4 + 64);
	CHECK(is_filled(memory, 4));
	memory[4 * PAGE] = 9;
	CHECK_EQ(memory[4 * PAGE], 9);
	CHECK_EQ(memory[8 * PAGE], 0);
	munmap(memory, HUGE);
}

static void forked(void)
{
	char *memory = huge(4);
	int gate[2];
	if (!memory)
		return;
	NEED(pipe(gate) == 0);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		close(gate[1]);
		int same = read(gate[0], &byte, 1) == 0 && is_filled(memory, 4);
		memory[PAGE] = 0;
		_exit(same ? 0 : 1);
	}
	close(gate[0]);
	CHECK_EQ(split(memory + 9 * PAGE, PAGE, 0), 0);
	CHECK_EQ(folio_flags(memory + PAGE), 0);
	memory[2 * PAGE] = 77;
	close(gate[1]);
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK_EQ(memory[PAGE], value(1, 4));
	CHECK_EQ(memory[2 * PAGE], 77);
	munmap(memory, HUGE);
}

static void moved(void)
{
	char *memory = huge(0);
	if (!memory)
		return;
	char *place = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(mremap(memory + 5 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
	CHECK_EQ(folio_flags(place), TAIL | THP);
	CHECK_EQ(split(place, PAGE, 0), 0);
	CHECK_EQ(folio_flags(place), 0);
	CHECK_EQ(folio_flags(memory), 0);
	CHECK_EQ(place[0], value(5, 0));
	munmap(memory, HUGE);
	munmap(place, PAGE);
}

static void file_pages(void)
{
	int file = memfd_create("split", 0);
	NEED(file >= 0 && ftruncate(file, HUGE) == 0);
	char *memory = aligned(file, MAP_SHARED);
	fill(memory, 4);
	if (madvise(memory, HUGE, MADV_COLLAPSE) == 0 && folio_flags(memory) == (HEAD | THP)) {
		CHECK_EQ(ask("/proc/self/fd/%d,0x200,0x400,3", file), 0);
		CHECK_EQ(folio_flags(memory), HEAD | THP);
		CHECK_EQ(ask("/proc/self/fd/%d,0x10,0x11", file), 0);
		CHECK(is_filled(memory, 4));
		CHECK_EQ(folio_flags(memory), 0);
		CHECK_EQ(folio_flags(memory + PAGE), 0);
		/* Zero-filled pages of a file are not freed. */
		struct stat status;
		NEED(fstat(file, &status) == 0);
		CHECK_EQ(status.st_blocks, HUGE / 512);
		CHECK_EQ(pwrite(file, "x", 1, 7 * PAGE), 1);
		CHECK_EQ(memory[7 * PAGE], 'x');
	}
	munmap(memory, HUGE);
	close(file);
}

static void everything(void)
{
	char *memory = huge(0);
	if (!memory)
		return;
	CHECK_EQ(ask("1"), 0);
	CHECK_EQ(folio_flags(memory), 0);
	CHECK(is_filled(memory, 0));
	munmap(memory, HUGE);
}

int main(void)
{
	if (access(SPLIT, W_OK) == 0) {
		refusals();
		every_order();
		zeroes();
		forked();
		moved();
		file_pages();
		everything();
	}
	return checked("split");
}
