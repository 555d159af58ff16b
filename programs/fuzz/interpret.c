/* Runs scripts of memory operations as real system calls and prints the result of each.
 *
 * The same scripts on two kernels must give the same text. A file holds many scripts; each runs in a separate
 * process, on a range of PAGES pages at a fixed address, with one file in memory of FILE_PAGES pages. A line is
 *
 *     WHO OPERATION [ARGUMENTS]
 *
 * where WHO is P, or C for the child between `fork` and `exit`. Parent and child take turns, line by line. Pages and
 * lengths are numbers of pages in the range.
 *
 *     map PAGE LENGTH PROT KIND OFFSET   KIND: a private, s shared anonymous, f private, F shared file; then flags:
 *                                        n FIXED_NOREPLACE, p POPULATE, r NORESERVE, l LOCKED
 *     unmap PAGE LENGTH                  protect PAGE LENGTH PROT            PROT: of r, w, x; or -
 *     remap PAGE LENGTH NEW_LENGTH TO    TO: a page (MAYMOVE | FIXED), -1 (in place), -2 (MAYMOVE, and unmapped where it
 *                                        left the range), or a page plus 1000 (DONTUNMAP)
 *     advise PAGE LENGTH ADVICE          lock PAGE LENGTH | lockfault PAGE LENGTH | unlock PAGE LENGTH
 *     out PAGE LENGTH                    MADV_PAGEOUT, page by page, except for pages of a file: whether they are
 *                                        reclaimed depends on the state of the file in Linux
 *     write PAGE VALUE | read PAGE       with the signal that a fault may raise
 *     kread PAGE LENGTH OFFSET           pread of the file into memory, from the middle of PAGE on
 *     kwrite PAGE LENGTH                 write of memory to another file
 *     resident PAGE LENGTH               mincore
 *     sync PAGE LENGTH FLAGS             msync
 *     truncate LENGTH | punch PAGE LENGTH of the file
 *     seal PAGE LENGTH                   mseal
 *     watch PAGE LENGTH WHO MODE         UFFDIO_REGISTER; WHO: s faults raise SIGBUS, t like s, but protects only
 *                                        populated pages, a asynchronous, r counts accesses, e or v the userfaultfd
 *                                        that `agree` created, h the child's userfaultfd from a fork event;
 *                                        MODE: of m (missing), w (write protection), n (minor), r (read-write
 *                                        protection)
 *     agree WHO FEATURES ANSWERS         creates the userfaultfd e or v with these features (UFFD_FEATURE_...);
 *                                        ANSWERS: b bytes, w protected bytes, d bytes and a separate wake, z zeroes,
 *                                        x poison, u unregisters the page; k keeps the descriptors of fork events
 *                                        and reads them too, q closes the userfaultfd instead of reading
 *     unwatch PAGE LENGTH WHO            UFFDIO_UNREGISTER
 *     wp PAGE LENGTH WHO 0|1             UFFDIO_WRITEPROTECT
 *     arm PAGE LENGTH WHO 0|1            UFFDIO_RWPROTECT
 *     mode WHO 0|1                       UFFDIO_SET_MODE: whether accesses count (1) or raise SIGBUS
 *     fill PAGE LENGTH FROM MODE [WHO]   UFFDIO_COPY of pages of the file, with this mode;
 *                                        fill and show do nothing if the range has a guard
 *     zero PAGE LENGTH [WHO]             UFFDIO_ZEROPAGE
 *     show PAGE LENGTH MODE WHO          UFFDIO_CONTINUE; MODE: 1 protected
 *     poison PAGE LENGTH WHO             UFFDIO_POISON
 *     move PAGE LENGTH FROM MODE WHO     UFFDIO_MOVE; MODE: 1 over holes
 *     scan PAGE LENGTH KIND              PAGEMAP_SCAN: 0 everything, 1 what was written, 2 like 1, protecting it again,
 *                                        3 like 2, also in memory without asynchronous protection,
 *                                        4 what was accessed
 *     find PAGE LENGTH FLAGS INVERTED ALL ANY ROOM MOST
 *                                        PAGEMAP_SCAN with these masks; ROOM: at most so many runs; MOST: pages
 *     key PAGE LENGTH PROT KEY           pkey_mprotect; KEY: 0, the default, or 1 or 2, which every script has
 *     rights KEY RIGHTS                  the thread's access to pages of the key: 1 none, 2 no stores
 *     clear | dirtied                    4 to /proc/self/clear_refs; which pages are soft-dirty
 *     fork | exit | join                 maps | pages | contents | totals
 *
 * Without a file, the program prints the optional features that the kernel has, one name on each line.
 * Scripts may use no other optional features.
 *
 * Each result is one line: the script's line and what the call returned. For an access, the line also has the
 * page's pagemap entry before the access, and the number of faults that the access took. Lines that begin
 * with `told` follow, one for each message that was read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef PR_SET_THP_DISABLE
#define PR_SET_THP_DISABLE 41
#endif

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
/* include/uapi/linux/fs.h */
struct scanned {
	uint64_t start, end, categories;
};
struct scan_argument {
	uint64_t size, flags, start, end, walk_end, vector, vector_length, most_pages;
	uint64_t inverted, mask, any_of, returned;
};
#define SCAN_PAGES _IOWR('f', 16, struct scan_argument)
enum { WRITTEN = 2, ACCESSED = 512, EVERYTHING = 1 | 2 | 4 | 8 | 16 | 32 | 64 | 256, SCAN_PROTECTS = 1, SCAN_CHECKS = 2 };

enum { PAGE = 4096, PAGES = 24, FILE_PAGES = 12, REPORT = 1 << 20 };

static char *const range = (char *)0x200000000000;

/* The report to which parent and child write in turns. */
struct report {
	size_t length;
	char text[REPORT];
};

static struct report *report;
static int file, other_file;
/* The userfaultfds of every script: `told`, whose faults raise a signal; `told_late`, which does the same but
 * protects only populated pages; `untold`, for asynchronous write protection; and `counting`, which counts
 * accesses. */
static int told, told_late, untold, counting;
/* The protection keys of every script, which are 0 if the machine has none, and the thread's rights for them. */
enum { KEYS = 2 };
static int keys[KEYS + 1];
static unsigned refused[KEYS + 1];
static sigjmp_buf recovery;
static int to_child[2], to_parent[2];

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(report->text + report->length, REPORT - report->length, format, arguments);
	va_end(arguments);
	if (length < 0 || report->length + length >= REPORT)
		_exit(3);
	report->length += length;
}

static long faults(void)
{
	struct rusage usage;
	/* Counts this thread only, because the reader thread takes faults too. */
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_minflt;
}

static void caught(int signal, siginfo_t *info, void *unused)
{
	(void)unused;
	long offset = (char *)info->si_addr - range;
	say(" %s code %d at %ld", signal == SIGBUS ? "SIGBUS" : "SIGSEGV", info->si_code,
	    offset >= 0 && offset < (long)PAGES * PAGE ? offset : -1);
	siglongjmp(recovery, 1);
}

static char *page_at(long page)
{
	return range + page * PAGE;
}

static int protection(const char *text)
{
	return (strchr(text, 'r') ? PROT_READ : 0) | (strchr(text, 'w') ? PROT_WRITE : 0) |
	       (strchr(text, 'x') ? PROT_EXEC : 0);
}

/* Addresses are printed as pages of the range. */
static void say_address(void *result)
{
	if (result == MAP_FAILED)
		say(" errno %d", errno);
	else
		say(" page %ld", (long)((char *)result - range) / PAGE);
}

static void say_result(long result)
{
	if (result < 0)
		say(" errno %d", errno);
	else
		say(" %ld", result);
}

static void map(char **words)
{
	long page = atol(words[0]), length = atol(words[1]), offset = atol(words[4]);
	const char *kind = words[3];
	int flags = strpbrk(kind, "sF") ? MAP_SHARED : MAP_PRIVATE;
	int anonymous = strpbrk(kind, "as") != NULL;
	flags |= anonymous ? MAP_ANONYMOUS : 0;
	flags |= strchr(kind, 'n') ? MAP_FIXED_NOREPLACE : MAP_FIXED;
	flags |= strchr(kind, 'p') ? MAP_POPULATE : 0;
	flags |= strchr(kind, 'r') ? MAP_NORESERVE : 0;
	flags |= strchr(kind, 'l') ? MAP_LOCKED : 0;
	say_address(mmap(page_at(page), length * PAGE, protection(words[2]), flags, anonymous ? -1 : file,
			 offset * PAGE));
}

static void remap(char **words)
{
	long page = atol(words[0]), length = atol(words[1]), longer = atol(words[2]), to = atol(words[3]);
	int flags = 0;
	if (to >= 1000) {
		to -= 1000;
		flags |= MREMAP_DONTUNMAP;
	}
	if (to >= 0)
		flags |= MREMAP_MAYMOVE | MREMAP_FIXED;
	if (to == -2)
		flags |= MREMAP_MAYMOVE;
	char *now = mremap(page_at(page), length * PAGE, longer * PAGE, flags, page_at(to < 0 ? 0 : to));
	if (to == -2 && now != MAP_FAILED && now != page_at(page)) {
		/* The kernel has moved the memory to an address of its choice, which differs between kernels. */
		say(" elsewhere");
		munmap(now, longer * PAGE);
	} else {
		say_address(now);
	}
}

/* Returns the userfaultfd with this name, or `told` if none is named. */
static int watcher_named(const char *name)
{
	if (name && strchr("evh", *name))
		return source_named(*name);
	if (name && *name == 'r')
		return counting;
	return name && *name == 'a' ? untold : name && *name == 't' ? told_late : told;
}

static long watch(char **words)
{
	struct registration wanted = {
		.pages = { (uintptr_t)page_at(atol(words[0])), atol(words[1]) * PAGE },
		.mode = (strchr(words[3], 'm') ? MISSING : 0) |
			(strchr(words[3], 'w') ? WRITES : 0) |
			(strchr(words[3], 'n') ? MINOR : 0) |
			(strchr(words[3], 'r') ? ACCESSES : 0),
	};
	return ioctl(watcher_named(words[2]), WATCH, &wanted);
}

static long unwatch(char **words)
{
	struct pages wanted = { (uintptr_t)page_at(atol(words[0])), atol(words[1]) * PAGE };
	return ioctl(watcher_named(words[2]), UNWATCH, &wanted);
}

/* Executes UFFDIO_WRITEPROTECT or UFFDIO_RWPROTECT, as `command` says. */
static long write_protect(unsigned long command, char **words)
{
	struct protection wanted = {
		.pages = { (uintptr_t)page_at(atol(words[0])), atol(words[1]) * PAGE },
		.mode = atoi(words[3]) ? PROTECTED : 0,
	};
	return ioctl(watcher_named(words[2]), command, &wanted);
}

static long set_mode(char **words)
{
	uint64_t counts = atoi(words[1]) ? HAS_COUNTS : 0;
	struct modes wanted = { counts, HAS_COUNTS & ~counts };
	return ioctl(watcher_named(words[0]), SET_MODE, &wanted);
}

/* Prints the pagemap entry of a page: p if the page is present, f if it is a page of a file or of shared
 * memory, s if it is swapped; then x if only this process maps it, w if a userfaultfd write-protects it, and
 * g for a guard. */
static void say_entry(uint64_t entry)
{
	say("%s%s%s%s", entry >> 63 ? (entry >> 61 & 1 ? "f" : "p") : entry >> 62 & 1 ? "s" : ".",
	    entry >> 56 & 1 ? "x" : "", entry >> 57 & 1 ? "w" : "", entry >> 58 & 1 ? "g" : "");
}

static void read_entries_of(const char *whose, long page, uint64_t *entries, int count)
{
	int descriptor = open(whose, O_RDONLY);
	size_t length = count * sizeof *entries;
	if (pread(descriptor, entries, length, ((uintptr_t)range / PAGE + page) * 8) != (ssize_t)length)
		_exit(4);
	close(descriptor);
}

static void read_entries(long page, uint64_t *entries, int count)
{
	read_entries_of("/proc/self/pagemap", page, entries, count);
}

/* Returns whether the range contains a guard. Up to 6.18, Linux replaces a guard by a page; later versions do
 * not (pte_is_uffd_marker). If the userfaultfd is the child's, the range is in the child's memory. */
static int is_guarded(char **words, const char *who)
{
	uint64_t entries[PAGES];
	int count = atoi(words[1]), of_child = who && *who == 'h' && source_named('h') >= 0;
	char whose[64] = "/proc/self/pagemap";
	if (of_child)
		snprintf(whose, sizeof whose, "/proc/%d/pagemap", (int)told_shared->threads[1]);
	read_entries_of(whose, atol(words[0]), entries, count);
	for (int page = 0; page < count; page++)
		if (entries[page] >> 58 & 1)
			return 1;
	return 0;
}

/* Executes UFFDIO_COPY. The printed result includes the filled length, also if the call failed early. */
static void fill(char **words)
{
	static char pages[PAGES * PAGE];
	long length = atol(words[1]) * PAGE;
	if (is_guarded(words, words[4])) {
		say(" guarded");
		return;
	}
	memset(pages, 0, sizeof pages);
	if (pread(file, pages, length, atol(words[2]) * PAGE) < 0)
		_exit(4);
	struct filling wanted = {
		.to = (uintptr_t)page_at(atol(words[0])),
		.from = (uintptr_t)pages,
		.length = length,
		.mode = atoi(words[3]) ? FILL_PROTECTED : 0,
	};
	say_result(ioctl(watcher_named(words[4]), FILL, &wanted));
	say(" copied %lld", (long long)wanted.done);
}

/* Executes a fill ioctl that needs no source, such as UFFDIO_ZEROPAGE. */
static void place(unsigned long command, char **words, uint64_t mode, const char *who)
{
	struct zeroing wanted = {
		.pages = { (uintptr_t)page_at(atol(words[0])), atol(words[1]) * PAGE },
		.mode = mode,
	};
	say_result(ioctl(watcher_named(who), command, &wanted));
	say(" done %lld", (long long)wanted.done);
}

static void show(char **words)
{
	if (is_guarded(words, words[3]))
		say(" guarded");
	else
		place(SHOW, words, atoi(words[2]) ? FILL_PROTECTED : 0, words[3]);
}

static void move(char **words)
{
	struct filling wanted = {
		.to = (uintptr_t)page_at(atol(words[0])),
		.from = (uintptr_t)page_at(atol(words[2])),
		.length = atol(words[1]) * PAGE,
		.mode = atoi(words[3]) ? OVER_HOLES : 0,
	};
	say_result(ioctl(watcher_named(words[4]), MOVE, &wanted));
	say(" moved %lld", (long long)wanted.done);
}

static void scan_pages(char **words, struct scan_argument wanted)
{
	struct scanned found[PAGES];
	wanted.size = sizeof wanted;
	wanted.start = (uintptr_t)page_at(atol(words[0]));
	wanted.end = (uintptr_t)page_at(atol(words[0]) + atol(words[1]));
	wanted.vector = (uintptr_t)found;
	/* The soft-dirty category is returned only if the script requests it, because not every kernel has it. */
	wanted.returned = EVERYTHING | wanted.inverted | wanted.mask | wanted.any_of;
	int descriptor = open("/proc/self/pagemap", O_RDONLY);
	int regions = ioctl(descriptor, SCAN_PAGES, &wanted);
	say_result(regions);
	close(descriptor);
	for (int i = 0; i < regions; i++)
		say(" %ld-%ld:%lx", (long)(found[i].start - (uintptr_t)range) / PAGE,
		    (long)(found[i].end - (uintptr_t)range) / PAGE, (long)found[i].categories);
	say(" until %ld", (long)(wanted.walk_end - (uintptr_t)range) / PAGE);
}

static void scan(char **words)
{
	int kind = atoi(words[2]);
	scan_pages(words, (struct scan_argument){
		.flags = kind == 2 ? SCAN_PROTECTS | SCAN_CHECKS : kind == 3 ? SCAN_PROTECTS : 0,
		.vector_length = PAGES,
		.mask = kind == 4 ? ACCESSED : 0,
		.any_of = kind == 0 || kind == 4 ? EVERYTHING : WRITTEN,
	});
}

static void find(char **words)
{
	scan_pages(words, (struct scan_argument){
		.flags = atoi(words[2]),
		.inverted = atoi(words[3]),
		.mask = atoi(words[4]),
		.any_of = atoi(words[5]),
		.vector_length = atoi(words[6]),
		.most_pages = atoi(words[7]),
	});
}

/* Sets the thread's rights for the script's keys; for other keys the thread keeps its rights. */
static void apply_rights(void)
{
	unsigned rights = 0;
	if (!keys[1])
		return;
	__asm__ volatile("rdpkru" : "=a"(rights) : "c"(0) : "edx");
	for (int key = 1; key <= KEYS; key++) {
		rights &= ~(3u << 2 * keys[key]);
		rights |= refused[key] << 2 * keys[key];
	}
	__asm__ volatile("wrpkru" : : "a"(rights), "c"(0), "d"(0) : "memory");
}

static void set_rights(char **words)
{
	int key = atoi(words[0]);
	if (key < 1 || key > KEYS)
		_exit(4);
	refused[key] = atoi(words[1]) & 3;
	apply_rights();
}

static void clear(void)
{
	int descriptor = open("/proc/self/clear_refs", O_WRONLY);
	say_result(write(descriptor, "4", 1));
	close(descriptor);
}

static void page_out(char **words)
{
	uint64_t entry;
	long first = atol(words[0]), length = atol(words[1]);
	for (long page = first; page < first + length; page++) {
		read_entries(page, &entry, 1);
		if (!(entry >> 61 & 1))
			say_result(madvise(page_at(page), PAGE, 21));
	}
}

/* Accesses a page. The memory that counting uses is populated first, so that between the two counts only the
 * access can fault. */
static void touch(char **words, int write)
{
	volatile unsigned char *byte = (volatile unsigned char *)page_at(atol(words[0])) + 64;
	volatile unsigned char value = write ? atol(words[1]) : 0;
	volatile long before = 0, after = 0;
	uint64_t entry;
	read_entries(atol(words[0]), &entry, 1);
	say(" ");
	say_entry(entry);
	if (sigsetjmp(recovery, 1)) {
		apply_rights();
		return;
	}
	after = faults();
	before = faults();
	if (write)
		*byte = value;
	else
		value = *byte;
	after = faults();
	if (write)
		say(" done faults %ld", after - before);
	else
		say(" %u faults %ld", value, after - before);
}

static void resident(char **words)
{
	unsigned char vector[PAGES] = { 0 };
	long length = atol(words[1]);
	int result = mincore(page_at(atol(words[0])), length * PAGE, vector);
	say_result(result);
	if (result == 0) {
		say(" ");
		for (long page = 0; page < length; page++)
			say("%d", vector[page] & 1);
	}
}

/* Prints the areas of the range as in /proc/self/maps, but without device and inode, which differ between kernels. */
static void maps(void)
{
	char line[512];
	FILE *stream = fopen("/proc/self/maps", "r");
	while (stream && fgets(line, sizeof line, stream)) {
		unsigned long start, end, offset;
		char rights[8], path[256] = "";
		sscanf(line, "%lx-%lx %7s %lx %*s %*s %255[^\n]", &start, &end, rights, &offset, path);
		if (end <= (unsigned long)range || start >= (unsigned long)page_at(PAGES))
			continue;
		say("\n  %ld-%ld %s %lx %s", (long)(start - (unsigned long)range) / PAGE,
		    (long)(end - (unsigned long)range) / PAGE, rights, offset, path);
	}
	if (stream)
		fclose(stream);
}

static void pages(void)
{
	uint64_t entries[PAGES];
	read_entries(0, entries, PAGES);
	say(" ");
	for (int page = 0; page < PAGES; page++)
		say_entry(entries[page]);
}

static void dirtied(void)
{
	uint64_t entries[PAGES];
	read_entries(0, entries, PAGES);
	for (int page = 0; page < PAGES; page++)
		say("%s%d", page ? "" : " ", (int)(entries[page] >> 55 & 1));
}

/* Prints a byte of each readable page. Reading can populate pages, so this is the last operation of a script. */
static void contents(void)
{
	for (volatile long page = 0; page < PAGES; page++) {
		if (sigsetjmp(recovery, 1)) {
			apply_rights();
			continue;
		}
		say(" %u", ((volatile unsigned char *)page_at(page))[64]);
	}
}

static void totals(void)
{
	static const char *const wanted[] = { "VmLck:" };
	char line[256];
	FILE *stream = fopen("/proc/self/status", "r");
	while (stream && fgets(line, sizeof line, stream))
		for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
			if (!strncmp(line, wanted[i], strlen(wanted[i])))
				say(" %ld", atol(line + strlen(wanted[i])));
	if (stream)
		fclose(stream);
}

static long range_call(const char *name, char **words)
{
	char *start = page_at(atol(words[0]));
	size_t length = atol(words[1]) * PAGE;
	if (!strcmp(name, "unmap"))
		return munmap(start, length);
	if (!strcmp(name, "protect"))
		return mprotect(start, length, protection(words[2]));
	if (!strcmp(name, "advise"))
		return madvise(start, length, atoi(words[2]));
	if (!strcmp(name, "lock"))
		return mlock(start, length);
	if (!strcmp(name, "lockfault"))
		return syscall(SYS_mlock2, start, length, 1);
	if (!strcmp(name, "unlock"))
		return munlock(start, length);
	if (!strcmp(name, "seal"))
		return syscall(SYS_mseal, start, length, 0);
	if (!strcmp(name, "watch"))
		return watch(words);
	if (!strcmp(name, "unwatch"))
		return unwatch(words);
	if (!strcmp(name, "wp"))
		return write_protect(PROTECT, words);
	if (!strcmp(name, "arm"))
		return write_protect(ARM, words);
	if (!strcmp(name, "key"))
		return syscall(SYS_pkey_mprotect, start, length, protection(words[2]), keys[atoi(words[3]) % (KEYS + 1)]);
	if (!strcmp(name, "sync"))
		return msync(start, length, atoi(words[2]));
	if (!strcmp(name, "kread"))
		return pread(file, start + PAGE / 2, length, atol(words[2]) * PAGE);
	if (!strcmp(name, "kwrite"))
		return pwrite(other_file, start + PAGE / 2, length, 0);
	if (!strcmp(name, "punch"))
		return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, atol(words[0]) * PAGE, length);
	fprintf(stderr, "no such operation: %s\n", name);
	_exit(2);
}

static void agree(char **words)
{
	int descriptor = add_watcher(*words[0], strtoul(words[1], NULL, 16), words[2]);
	say(descriptor < 0 ? " refused" : " 0");
}

static void perform(const char *name, char **words)
{
	if (!strcmp(name, "map"))
		map(words);
	else if (!strcmp(name, "agree"))
		agree(words);
	else if (!strcmp(name, "remap"))
		remap(words);
	else if (!strcmp(name, "write"))
		touch(words, 1);
	else if (!strcmp(name, "read"))
		touch(words, 0);
	else if (!strcmp(name, "resident"))
		resident(words);
	else if (!strcmp(name, "out"))
		page_out(words);
	else if (!strcmp(name, "fill"))
		fill(words);
	else if (!strcmp(name, "zero"))
		place(ZERO, words, 0, words[2]);
	else if (!strcmp(name, "show"))
		show(words);
	else if (!strcmp(name, "poison"))
		place(POISON, words, 0, words[2]);
	else if (!strcmp(name, "move"))
		move(words);
	else if (!strcmp(name, "find"))
		find(words);
	else if (!strcmp(name, "rights"))
		set_rights(words);
	else if (!strcmp(name, "mode"))
		say_result(set_mode(words));
	else if (!strcmp(name, "scan"))
		scan(words);
	else if (!strcmp(name, "clear"))
		clear();
	else if (!strcmp(name, "dirtied"))
		dirtied();
	else if (!strcmp(name, "truncate"))
		say_result(ftruncate(file, atol(words[0]) * PAGE));
	else if (!strcmp(name, "maps"))
		maps();
	else if (!strcmp(name, "pages"))
		pages();
	else if (!strcmp(name, "contents"))
		contents();
	else if (!strcmp(name, "totals"))
		totals();
	else
		say_result(range_call(name, words));
}

static void pass(int *pipe)
{
	char byte = 0;
	if (write(pipe[1], &byte, 1) != 1)
		_exit(4);
}

static void await(int *pipe)
{
	char byte;
	if (read(pipe[0], &byte, 1) != 1)
		_exit(4);
}

/* Prints the messages that the reader thread read during a line. */
static void say_told(char why)
{
	if (!reader_runs)
		return;
	ask_reader(why);
	say("%.*s", (int)told_shared->length, told_shared->text);
	told_shared->length = 0;
}

/* Runs the lines of one script, in a separate process. */
static void run_script(char **lines, int count)
{
	char me = 'P';
	pid_t child = 0;
	for (int i = 0; i < count; i++) {
		char copy[256], *words[12] = { 0 };
		int number = 0;
		snprintf(copy, sizeof copy, "%s", lines[i]);
		char *rest = NULL;
		for (char *word = strtok_r(copy, " ", &rest); word && number < 10; word = strtok_r(NULL, " ", &rest))
			words[number++] = word;
		if (number < 2 || *words[0] != me)
			continue;
		if (i > 0 && *lines[i - 1] != me && (me == 'C' || child))
			await(me == 'C' ? to_child : to_parent);
		say("%s:", lines[i]);
		int over = !strcmp(words[1], "exit");
		if (!strcmp(words[1], "fork")) {
			if (pipe(to_child) || pipe(to_parent))
				_exit(4);
			child = fork();
			if (child == 0) {
				me = 'C';
				told_shared->threads[1] = getpid();
				alarm(2);
			} else {
				say(" %d", child > 0);
				say_told('f');
				say("\n");
			}
			if (me == 'C')
				continue;
		} else if (!strcmp(words[1], "join")) {
			int status = -1;
			waitpid(child, &status, 0);
			child = 0;
			for (int end = 0; end < 2; end++) {
				close(to_child[end]);
				close(to_parent[end]);
			}
			say(" %d", status);
			say_told('j');
			say("\n");
		} else {
			if (!over)
				perform(words[1], words + 2);
			say_told('l');
			say("\n");
		}
		if (i + 1 < count && *lines[i + 1] != me && (me == 'C' || child))
			pass(me == 'C' ? to_parent : to_child);
		if (over)
			_exit(0);
	}
}

/* Allocates a protection key. Returns 0, the default key of every page, if there are none. */
static int new_key(void)
{
	int key = syscall(SYS_pkey_alloc, 0, 0);
	return key < 0 ? 0 : key;
}

static void prepare(void)
{
	struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_NODEFER };
	char page[PAGE];
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	file = memfd_create("fuzz", 0);
	other_file = memfd_create("other", 0);
	uint64_t common = HAS_SIGNAL | HAS_WRITES | HAS_MISSING_SHMEM | HAS_WRITES_SHMEM | HAS_MINOR_SHMEM | HAS_POISON |
			  HAS_MOVE;
	told = watcher(common | HAS_UNPOPULATED);
	told_late = watcher(common);
	untold = watcher(common | HAS_UNPOPULATED | HAS_ASYNC);
	counting = watcher(common | HAS_UNPOPULATED | HAS_ACCESSES | HAS_COUNTS);
	for (int key = 1; key <= KEYS; key++)
		keys[key] = new_key();
	for (int i = 0; i < FILE_PAGES; i++) {
		memset(page, 100 + i, sizeof page);
		if (pwrite(file, page, PAGE, (long)i * PAGE) != PAGE)
			_exit(4);
	}
}

static void flush_report(void)
{
	size_t done = 0;
	while (done < report->length) {
		long more = write(1, report->text + done, report->length - done);
		if (more <= 0)
			_exit(4);
		done += more;
	}
	report->length = 0;
}

/* Prints the optional features that this kernel has. */
static int probe(void)
{
	struct api api = { .version = VERSION };
	struct scan_argument empty = { .size = sizeof empty };
	int descriptor = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	uint64_t features = descriptor >= 0 && ioctl(descriptor, WATCH_API, &api) == 0 ? api.features : 0;
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t entry = 0;
	*(volatile char *)page = 1;
	if (pread(pagemap, &entry, sizeof entry, (uintptr_t)page / PAGE * 8) == sizeof entry && entry >> 55 & 1)
		puts("soft-dirty");
	if (features & HAS_WRITES)
		puts("watch");
	if (features & HAS_ASYNC)
		puts("watch-async");
	if (features & HAS_UNPOPULATED)
		puts("watch-unpopulated");
	if (features & HAS_ACCESSES)
		puts("accesses");
	if (features & HAS_MOVE)
		puts("move");
	if (features & HAS_POISON)
		puts("poison");
	if (features & HAS_MINOR_SHMEM)
		puts("minor");
	/* Fork events may need a privilege. */
	if (watcher(HAS_FORK) >= 0)
		puts("events");
	if (new_key() > 0)
		puts("keys");
	if (ioctl(pagemap, SCAN_PAGES, &empty) >= 0 || errno != ENOTTY)
		puts("scan");
	if (madvise(page, PAGE, 102) == 0)
		puts("guard");
	if (syscall(SYS_mseal, page, PAGE, 0) == 0)
		puts("seal");
	return 0;
}

int main(int count, char **arguments)
{
	if (count == 1)
		return probe();
	static char *lines[4096];
	int input = count == 2 ? open(arguments[1], O_RDONLY) : -1;
	struct stat status;
	if (input < 0 || fstat(input, &status)) {
		fprintf(stderr, "usage: interpret [FILE]\n");
		return 2;
	}
	char *text = mmap(NULL, status.st_size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE, input, 0);
	report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	told_shared = mmap(NULL, sizeof *told_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (text == MAP_FAILED || report == MAP_FAILED || told_shared == MAP_FAILED)
		return 4;
	told_range = range;
	told_pages = PAGES;
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	/* Runs on one CPU, because Linux keeps per-CPU lists of pages, and which pages it pages out depends
	 * on these lists. */
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	for (char *line = strtok(text, "\n"); line;) {
		int length = 0;
		char *title = line;
		while ((line = strtok(NULL, "\n")) && strncmp(line, "script", 6) && length < 4096)
			lines[length++] = line;
		char *rest = line;
		say("%s\n", title);
		pid_t child = fork();
		if (child == 0) {
			/* No line of a script may block. A script that blocks is killed, which is a finding too. */
			alarm(2);
			prepare();
			run_script(lines, length);
			_exit(0);
		}
		int ended = 0;
		waitpid(child, &ended, 0);
		say("end %d\n", ended);
		flush_report();
		line = rest;
	}
	return 0;
}
