/* Which error does a memory call give that has one reason to fail, and which one where it has two?
 *
 * Each call has an invocation that works, and reasons to fail: changes of its arguments or of the process's rights. The
 * program makes every call with each reason and with each two that can go together, each in a child of its own, and
 * prints a line for each. It judges nothing: the answers of Linux 7.3 stand in errors.linux.
 */
#include "check.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/uio.h>

/* Rows of the table say what they need. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#ifndef UFFDIO_POISON
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, unsigned long[4])
#endif
#ifndef UFFDIO_MOVE
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, unsigned long[5])
#endif
#ifndef UFFDIO_CONTINUE
#define UFFDIO_CONTINUE _IOWR(UFFDIO, 0x07, unsigned long[4])
#endif
#define REGISTERS_MINOR 4
#define MEMFD_HUGE 4U
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)
#define HUGE_LENGTH (1UL << 47)
#define NEGATIVE (-PAGE)
#define BAD_POINTER 1UL

/* Numbers and constants that not every system's headers have. */
enum {
	CALL_PROCESS_MADVISE = 440,
	CALL_MEMFD_SECRET = 447,
	CALL_PROCESS_MRELEASE = 448,
	CALL_CACHESTAT = 451,
	CALL_MAP_SHADOW_STACK = 453,
	CALL_MSEAL = 462,
	CALL_PIDFD_OPEN = 434,
	DROPPABLE = 0x08,
	CALL_SET_MEMPOLICY_HOME_NODE = 450,
	ADVICE_COLD = 20,
	ADVICE_PAGEOUT = 21,
	ADVICE_DONTNEED_LOCKED = 24,
	ADVICE_COLLAPSE = 25,
	ADVICE_GUARD = 102,
	ADVICE_GUARD_REMOVE = 103,
	PREFERRED = 1,
	BIND = 2,
};

/* The pool of huge pages is filled for the calls that begin with this, and empty for others. */
static const char on_huge_pages[] = "hugetlb ";
#define POOL "8"
#define HUGE_PAGE (2UL << 20)

/* Memory at fixed places, with nothing around it. */
#define PAGES 0x20000000UL     /* private, four pages, written */
#define HOLE 0x21000000UL      /* nothing */
#define READS 0x22000000UL     /* private, to be read */
#define CLOSED 0x23000000UL    /* private, without rights */
#define SHARED 0x24000000UL    /* a file's, shared, writable */
#define SHARED_READS 0x25000000UL /* the same by a descriptor that only reads */
#define SEALED 0x26000000UL    /* private, to be read, sealed */
#define LOCKED 0x27000000UL    /* private, locked */
#define EDGE 0x28000000UL      /* two pages, then nothing */
#define WATCHED 0x29000000UL   /* private, empty, of the userfaultfd */
#define MINOR 0x2a000000UL     /* a file's, shared, with a page that is not mapped and a hole, of the userfaultfd */
#define BOUND 0x2b000000UL     /* private, with the policy BIND */
#define PREFERS 0x2c000000UL   /* private, with the policy PREFERRED */
#define HUGE 0x40000000UL      /* two huge pages, private */
#define HUGE_SHARED 0x44000000UL /* two huge pages of a file, shared */
#define HUGE_SEALED 0x48000000UL /* one, sealed */
#define HUGE_FREE 0x4c000000UL /* nothing */
#define HIGHEST 0x7ffffffff000UL
#define KERNEL 0xffff800000000000UL

/* Descriptors with fixed numbers. */
enum { FILE_BOTH = 10, FILE_READS, FILE_WRITES, PIPE, FOLDER, PATH, FILE_SEALED, ZERO, WATCHER, WATCHER_NEW, OWN, PAGEMAP, FILE_MINOR, FILE_HUGE, NONE = 99 };

/* Words that stand for the id of the segment, and for the process's own. */
#define SEGMENT 0x51515151UL
#define SELF 0x50505050UL

/* What is done to the arguments: words from 8 on are those of the structure behind a pointer. */
struct edit {
	char kind; /* '=' sets, '|' adds bits, '&' takes bits away, '!' changes rights */
	unsigned char word;
	unsigned long value;
};

enum { NO_LOCKING = 1, NO_RIGHTS, LITTLE_ADDRESS_SPACE, LITTLE_LOCKING, NO_DESCRIPTORS };

struct reason {
	const char *name;
	struct edit edits[3];
};

struct call {
	const char *name;
	long number;
	unsigned long words[24];
	struct reason reasons[16];
};

/* The structures behind pointers. */
static unsigned long structure[16], vector[8], other_vector[8];
static char bytes[2 * 4096];
static const char long_name[300] = { [0 ... 298] = 'n' };
static const char missing_path[] = "/no/such/file", folder_path[] = "/";
#define AT(thing) ((unsigned long)(thing))

#define SET(word, value) { '=', word, value }
#define ADD(word, value) { '|', word, value }
#define TAKE(word, value) { '&', word, value }
#define RIGHTS(value) { '!', 0, value }

/* Reasons that many calls share: where the range lies. */
#define UNALIGNED { "unaligned", { SET(0, PAGES + 1) } }
#define IN_A_HOLE { "in a hole", { SET(0, HOLE) } }
#define INTO_A_HOLE { "into a hole", { SET(0, EDGE), SET(1, 4 * PAGE) } }
#define IN_THE_KERNEL { "in the kernel", { SET(0, KERNEL) } }
#define ON_SEALED { "sealed", { SET(0, SEALED) } }
#define ON_LOCKED { "locked", { SET(0, LOCKED) } }
#define ON_SHARED { "shared", { SET(0, SHARED) } }
#define ON_SHARED_READS { "shared to be read", { SET(0, SHARED_READS) } }
#define ON_READS { "to be read", { SET(0, READS) } }
#define ON_CLOSED { "without rights", { SET(0, CLOSED) } }
#define NO_LENGTH { "no length", { SET(1, 0) } }
#define WRAPS { "wraps", { SET(1, -1UL) } }
#define TOO_LONG { "too long", { SET(1, HUGE_LENGTH) } }

#define ADVICE_REASONS                                                                                        \
	UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, ON_SEALED, ON_LOCKED, ON_SHARED, ON_SHARED_READS,   \
	ON_READS, ON_CLOSED, NO_LENGTH, WRAPS

#define ADVICE(text, advice)                                                                                  \
	{ "madvise " text, SYS_madvise, { PAGES, PAGE, advice },                                              \
	  { ADVICE_REASONS, TOO_LONG } }
/* Without a length that reaches the program's own areas, which would go, and those of the kernel, which are others. */
#define ADVICE_BELOW(text, advice)                                                                            \
	{ "madvise " text, SYS_madvise, { PAGES, PAGE, advice }, { ADVICE_REASONS } }

/* Where huge pages lie. */
#define BEGINS_WITHIN { "begins within", { SET(0, HUGE + PAGE) } }
#define ENDS_WITHIN { "ends within", { SET(1, HUGE_PAGE + PAGE) } }
#define HUGE_INTO_A_HOLE { "into a hole", { SET(1, 4 * HUGE_PAGE) } }
#define HUGE_ON_SHARED { "shared", { SET(0, HUGE_SHARED) } }
#define HUGE_ON_SEALED { "sealed", { SET(0, HUGE_SEALED) } }
#define HUGE_PLACES                                                                                           \
	BEGINS_WITHIN, ENDS_WITHIN, HUGE_INTO_A_HOLE, HUGE_ON_SHARED, HUGE_ON_SEALED, NO_LENGTH, WRAPS,       \
	{ "unaligned", { SET(0, HUGE + 1) } }, { "shared, begins within", { SET(0, HUGE_SHARED + PAGE) } }

#define HUGE_ADVICE(text, advice) { "hugetlb madvise " text, SYS_madvise, { HUGE, HUGE_PAGE, advice }, { HUGE_PLACES } }

#define WATCH(text, request, ...) { "ioctl " text, SYS_ioctl, { WATCHER, request, AT(structure), 0, 0, 0, 0, 0, __VA_ARGS__ },

#define WATCH_REASONS                                                                                         \
	{ "descriptor", { SET(0, NONE) } }, { "another descriptor", { SET(0, PIPE) } },                       \
	{ "no handshake", { SET(0, WATCHER_NEW) } }, { "pointer", { SET(2, BAD_POINTER) } }

static const struct call calls[] = {
	{ "mmap", SYS_mmap, { 0, PAGE, RW, PRIVATE, -1UL, 0 },
	  { NO_LENGTH, WRAPS, TOO_LONG,
	    { "no type", { TAKE(3, MAP_TYPE) } },
	    { "offset", { SET(5, 1) } },
	    { "fixed, unaligned", { SET(0, PAGES + 1), ADD(3, MAP_FIXED) } },
	    { "fixed, too high", { SET(0, HIGHEST), ADD(3, MAP_FIXED) } },
	    { "fixed, taken", { SET(0, PAGES), ADD(3, MAP_FIXED_NOREPLACE) } },
	    { "fixed, sealed", { SET(0, SEALED), ADD(3, MAP_FIXED) } },
	    { "no pool", { ADD(3, MAP_HUGETLB) } },
	    { "no such huge page", { ADD(3, MAP_HUGETLB | 5 << 26) } },
	    { "locked, limit", { ADD(3, MAP_LOCKED), RIGHTS(NO_LOCKING) } },
	    { "limit", { RIGHTS(LITTLE_ADDRESS_SPACE) } },
	    { "no file", { TAKE(3, MAP_ANONYMOUS) } },
	    { "droppable, growing", { TAKE(3, MAP_PRIVATE), ADD(3, DROPPABLE | MAP_GROWSDOWN) } },
	    { "locked, little limit", { ADD(3, MAP_LOCKED), RIGHTS(LITTLE_LOCKING) } } } },
	{ "mmap file", SYS_mmap, { 0, PAGE, RW, MAP_SHARED, FILE_BOTH, 0 },
	  { NO_LENGTH, WRAPS, TOO_LONG,
	    { "no type", { TAKE(3, MAP_TYPE) } },
	    { "unknown flag", { ADD(3, MAP_SHARED_VALIDATE | 0x80000000UL) } },
	    { "descriptor", { SET(4, NONE) } },
	    { "a path", { SET(4, PATH) } },
	    { "a folder", { SET(4, FOLDER) } },
	    { "a pipe", { SET(4, PIPE) } },
	    { "writes only", { SET(4, FILE_WRITES) } },
	    { "reads only", { SET(4, FILE_READS) } },
	    { "sealed file", { SET(4, FILE_SEALED) } },
	    { "offset", { SET(5, 1) } },
	    { "offset too large", { SET(5, 0x7ffffffffffff000UL) } },
	    { "fixed, taken", { SET(0, PAGES), ADD(3, MAP_FIXED_NOREPLACE) } },
	    { "growing", { ADD(3, MAP_GROWSDOWN) } } } },
	{ "munmap", SYS_munmap, { PAGES, PAGE },
	  { UNALIGNED, IN_A_HOLE, IN_THE_KERNEL, ON_SEALED, NO_LENGTH, WRAPS, TOO_LONG } },
	{ "mprotect", SYS_mprotect, { PAGES, PAGE, RW },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, ON_SEALED, ON_SHARED_READS, NO_LENGTH, WRAPS, TOO_LONG,
	    { "unknown right", { ADD(2, 0x100) } },
	    { "grows down", { ADD(2, PROT_GROWSDOWN) } },
	    { "grows up", { ADD(2, PROT_GROWSUP) } } } },
	{ "pkey_mprotect", SYS_pkey_mprotect, { PAGES, PAGE, RW, -1UL },
	  { UNALIGNED, IN_A_HOLE, ON_SEALED, ON_SHARED_READS, NO_LENGTH, WRAPS,
	    { "unknown right", { ADD(2, 0x100) } },
	    { "no such key", { SET(3, 16) } },
	    { "free key", { SET(3, 5) } } } },
	{ "mremap", SYS_mremap, { PAGES, PAGE, 2 * PAGE, MREMAP_MAYMOVE, 0 },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, ON_SEALED,
	    { "no old length", { SET(1, 0) } },
	    { "no new length", { SET(2, 0) } },
	    { "new length too long", { SET(2, HUGE_LENGTH) } },
	    { "unknown flag", { ADD(3, 0x100) } },
	    { "fixed, stays", { TAKE(3, MREMAP_MAYMOVE), ADD(3, MREMAP_FIXED) } },
	    { "fixed, unaligned", { SET(4, HOLE + 1), ADD(3, MREMAP_FIXED) } },
	    { "fixed, overlaps", { SET(4, PAGES), ADD(3, MREMAP_FIXED) } },
	    { "fixed, sealed", { SET(4, SEALED), ADD(3, MREMAP_FIXED) } },
	    { "keeps the old", { ADD(3, MREMAP_DONTUNMAP) } },
	    { "limit", { RIGHTS(LITTLE_ADDRESS_SPACE) } },
	    { "locked, little limit", { SET(0, LOCKED), RIGHTS(LITTLE_LOCKING) } } } },
	ADVICE("DONTNEED", MADV_DONTNEED), ADVICE("REMOVE", MADV_REMOVE), ADVICE("FREE", MADV_FREE),
	ADVICE("POPULATE_READ", MADV_POPULATE_READ), ADVICE("POPULATE_WRITE", MADV_POPULATE_WRITE),
	ADVICE("GUARD_INSTALL", ADVICE_GUARD), ADVICE("COLD", ADVICE_COLD), ADVICE("WIPEONFORK", MADV_WIPEONFORK),
	ADVICE("WILLNEED", MADV_WILLNEED), ADVICE("MERGEABLE", MADV_MERGEABLE), ADVICE("unknown", 77),
	ADVICE("PAGEOUT", ADVICE_PAGEOUT), ADVICE_BELOW("DONTNEED_LOCKED", ADVICE_DONTNEED_LOCKED),
	ADVICE("COLLAPSE", ADVICE_COLLAPSE), ADVICE_BELOW("GUARD_REMOVE", ADVICE_GUARD_REMOVE),
	ADVICE("HUGEPAGE", MADV_HUGEPAGE), ADVICE("NOHUGEPAGE", MADV_NOHUGEPAGE), ADVICE("KEEPONFORK", MADV_KEEPONFORK),
	ADVICE("UNMERGEABLE", MADV_UNMERGEABLE), ADVICE("DONTFORK", MADV_DONTFORK), ADVICE_BELOW("DODUMP", MADV_DODUMP),
	ADVICE("RANDOM", MADV_RANDOM),
	{ "process_madvise", CALL_PROCESS_MADVISE, { OWN, AT(structure), 1, ADVICE_COLD, 0, 0, 0, 0, PAGES, PAGE },
	  { { "descriptor", { SET(0, NONE) } }, { "no process", { SET(0, PIPE) } },
	    { "pointer", { SET(1, BAD_POINTER) } }, { "too many", { SET(2, 1025) } },
	    { "advice", { SET(3, 77) } }, { "flags", { SET(4, 1) } },
	    { "unaligned", { SET(8, PAGES + 1) } }, { "in a hole", { SET(8, HOLE) } },
	    { "negative", { SET(9, NEGATIVE) } } } },
	{ "mlock", SYS_mlock, { PAGES, PAGE },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, ON_CLOSED, NO_LENGTH, WRAPS, TOO_LONG,
	    { "limit", { RIGHTS(NO_LOCKING) } }, { "little limit", { RIGHTS(LITTLE_LOCKING) } } } },
	{ "mlock2", SYS_mlock2, { PAGES, PAGE, MLOCK_ONFAULT },
	  { UNALIGNED, IN_A_HOLE, ON_CLOSED, NO_LENGTH, WRAPS,
	    { "flags", { SET(2, 2) } }, { "limit", { RIGHTS(NO_LOCKING) } } } },
	{ "munlock", SYS_munlock, { PAGES, PAGE },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, NO_LENGTH, WRAPS, TOO_LONG } },
	{ "mlockall", SYS_mlockall, { MCL_CURRENT },
	  { { "nothing", { TAKE(0, MCL_CURRENT) } }, { "unknown flag", { ADD(0, 0x100) } },
	    { "only on fault", { TAKE(0, MCL_CURRENT), ADD(0, 4) } }, { "limit", { RIGHTS(NO_LOCKING) } },
	    { "little limit", { RIGHTS(LITTLE_LOCKING) } } } },
	{ "munlockall", SYS_munlockall, { 0 }, { { "limit", { RIGHTS(NO_LOCKING) } } } },
	{ "msync", SYS_msync, { PAGES, PAGE, MS_SYNC },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, NO_LENGTH, WRAPS, TOO_LONG,
	    { "both ways", { ADD(2, MS_ASYNC) } }, { "unknown flag", { ADD(2, 0x100) } },
	    { "locked", { SET(0, LOCKED), ADD(2, MS_INVALIDATE) } } } },
	{ "mincore", SYS_mincore, { PAGES, PAGE, AT(bytes) },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, NO_LENGTH, WRAPS, TOO_LONG,
	    { "pointer", { SET(2, BAD_POINTER) } } } },
	{ "mseal", CALL_MSEAL, { PAGES, PAGE, 0 },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, NO_LENGTH, WRAPS, TOO_LONG, { "flags", { SET(2, 1) } } } },
	{ "remap_file_pages", SYS_remap_file_pages, { SHARED, PAGE, 0, 0, 0 },
	  { { "private", { SET(0, PAGES) } }, IN_A_HOLE, NO_LENGTH, WRAPS, { "rights", { SET(2, 1) } },
	    { "offset", { SET(3, 1UL << 52) } }, { "sealed", { SET(0, SEALED) } } } },
	{ "brk", SYS_brk, { 0 }, { { "high", { SET(0, HIGHEST) } } } },
	{ "userfaultfd", SYS_userfaultfd, { UFFD_USER_MODE_ONLY },
	  { { "flags", { ADD(0, 0x100) } }, { "kernel too, no rights", { TAKE(0, UFFD_USER_MODE_ONLY), RIGHTS(NO_RIGHTS) } },
	    { "no descriptors", { RIGHTS(NO_DESCRIPTORS) } } } },
	WATCH("UFFDIO_API", UFFDIO_API, UFFD_API, 0) {
		{ "descriptor", { SET(0, NONE) } }, { "first time", { SET(0, WATCHER_NEW) } },
		{ "pointer", { SET(2, BAD_POINTER) } }, { "version", { SET(8, 0xab) } },
		{ "feature", { SET(9, 1UL << 60) } } } },
	WATCH("UFFDIO_REGISTER", UFFDIO_REGISTER, PAGES, PAGE, UFFDIO_REGISTER_MODE_MISSING, 0) {
		WATCH_REASONS, { "unaligned", { SET(8, PAGES + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "to be read, shared", { SET(8, SHARED_READS) } }, { "in the kernel", { SET(8, KERNEL) } },
		{ "no length", { SET(9, 0) } }, { "unaligned length", { SET(9, 1) } }, { "wraps", { SET(9, NEGATIVE) } },
		{ "no mode", { SET(10, 0) } }, { "unknown mode", { SET(10, 1UL << 60) } },
		{ "minor faults", { SET(10, 4) } } } },
	WATCH("UFFDIO_UNREGISTER", UFFDIO_UNREGISTER, WATCHED, PAGE) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched", { SET(8, PAGES) } }, { "no length", { SET(9, 0) } },
		{ "unaligned length", { SET(9, 1) } }, { "wraps", { SET(9, NEGATIVE) } } } },
	WATCH("UFFDIO_WAKE", UFFDIO_WAKE, WATCHED, PAGE) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "no length", { SET(9, 0) } }, { "unaligned length", { SET(9, 1) } }, { "wraps", { SET(9, NEGATIVE) } } } },
	WATCH("UFFDIO_COPY", UFFDIO_COPY, WATCHED, PAGES, PAGE, 0, 0) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched", { SET(8, PAGES) } }, { "source", { SET(9, HOLE) } },
		{ "no length", { SET(10, 0) } }, { "unaligned length", { SET(10, 1) } }, { "wraps", { SET(10, NEGATIVE) } },
		{ "unknown mode", { SET(11, 1UL << 60) } }, { "protects", { SET(11, 2) } } } },
	WATCH("UFFDIO_ZEROPAGE", UFFDIO_ZEROPAGE, WATCHED, PAGE, 0, 0) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched", { SET(8, PAGES) } }, { "no length", { SET(9, 0) } },
		{ "unaligned length", { SET(9, 1) } }, { "wraps", { SET(9, NEGATIVE) } },
		{ "unknown mode", { SET(10, 1UL << 60) } } } },
	WATCH("UFFDIO_WRITEPROTECT", UFFDIO_WRITEPROTECT, WATCHED + 2 * PAGE, PAGE, 1) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched so", { SET(8, WATCHED) } }, { "no length", { SET(9, 0) } },
		{ "unaligned length", { SET(9, 1) } }, { "wraps", { SET(9, NEGATIVE) } },
		{ "unknown mode", { SET(10, 1UL << 60) } }, { "both modes", { SET(10, 3) } } } },
	WATCH("UFFDIO_CONTINUE", UFFDIO_CONTINUE, MINOR, PAGE, 0, 0) {
		WATCH_REASONS, { "unaligned", { SET(8, MINOR + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched", { SET(8, SHARED) } }, { "not shared", { SET(8, WATCHED) } },
		{ "hole of the file", { SET(8, MINOR + PAGE) } }, { "mapped", { SET(8, MINOR + 2 * PAGE) } },
		{ "no length", { SET(9, 0) } }, { "unaligned length", { SET(9, 1) } }, { "wraps", { SET(9, NEGATIVE) } },
		{ "unknown mode", { SET(10, 1UL << 60) } }, { "protects", { SET(10, 2) } } } },
	WATCH("UFFDIO_POISON", UFFDIO_POISON, WATCHED, PAGE, 0, 0) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched", { SET(8, PAGES) } }, { "no length", { SET(9, 0) } },
		{ "wraps", { SET(9, NEGATIVE) } }, { "unknown mode", { SET(10, 1UL << 60) } } } },
	WATCH("UFFDIO_MOVE", UFFDIO_MOVE, WATCHED, PAGES, PAGE, 0, 0) {
		WATCH_REASONS, { "unaligned", { SET(8, WATCHED + 1) } }, { "in a hole", { SET(8, HOLE) } },
		{ "not watched", { SET(8, READS) } }, { "from a hole", { SET(9, HOLE) } },
		{ "unaligned source", { SET(9, PAGES + 1) } }, { "shared source", { SET(9, SHARED) } },
		{ "no length", { SET(10, 0) } }, { "wraps", { SET(10, NEGATIVE) } },
		{ "unknown mode", { SET(11, 1UL << 60) } } } },
	{ "pagemap read", SYS_pread64, { PAGEMAP, AT(bytes), 8, (PAGES / PAGE) * 8 },
	  { { "descriptor", { SET(0, NONE) } }, { "pointer", { SET(1, BAD_POINTER) } },
	    { "unaligned count", { SET(2, 7) } }, { "nothing", { SET(2, 0) } }, { "unaligned place", { SET(3, 1) } },
	    { "negative place", { SET(3, -8UL) } } } },
	{ "PAGEMAP_SCAN", SYS_ioctl,
	  { PAGEMAP, 0xc0606610UL, AT(structure), 0, 0, 0, 0, 0, 96, 0, PAGES, PAGES + PAGE, 0, AT(vector), 1, 0, 0, 0, 1, 1 },
	  { { "pointer", { SET(2, BAD_POINTER) } }, { "size", { SET(8, 8) } }, { "flags", { SET(9, 8) } },
	    { "unaligned", { SET(10, PAGES + 1) } }, { "backwards", { SET(11, HOLE - 2 * HOLE + PAGE) } },
	    { "in the kernel", { SET(10, KERNEL), SET(11, KERNEL + PAGE) } },
	    { "bad vector", { SET(13, BAD_POINTER) } }, { "no vector", { SET(13, 0) } },
	    { "inverted", { SET(16, 1UL << 60) } }, { "mask", { SET(17, 1UL << 60) } },
	    { "returned", { SET(19, 1UL << 60) } } } },
	{ "shmget", SYS_shmget, { IPC_PRIVATE, PAGE, IPC_CREAT | 0600 },
	  { { "no length", { SET(1, 0) } }, { "too long", { SET(1, -1UL) } },
	    { "no such key", { SET(0, 0x77777), TAKE(2, IPC_CREAT) } }, { "taken", { SET(0, 0x5151), ADD(2, IPC_EXCL) } },
	    { "larger", { SET(0, 0x5151), SET(1, 100 * PAGE) } }, { "no pool", { ADD(2, 04000) } } } },
	{ "shmat", SYS_shmat, { SEGMENT, 0, 0 },
	  { { "id", { SET(0, -1UL) } }, { "unaligned", { SET(1, HOLE + 1) } }, { "taken", { SET(1, PAGES) } },
	    { "over nothing", { ADD(2, 040000) } }, { "in the kernel", { SET(1, KERNEL) } },
	    { "no rights", { RIGHTS(NO_RIGHTS) } }, { "limit", { RIGHTS(LITTLE_ADDRESS_SPACE) } } } },
	{ "shmctl", SYS_shmctl, { SEGMENT, IPC_STAT, AT(bytes) },
	  { { "id", { SET(0, -1UL) } }, { "command", { SET(1, 77) } }, { "pointer", { SET(2, BAD_POINTER) } },
	    { "no rights", { RIGHTS(NO_RIGHTS) } } } },
	{ "shmctl IPC_SET", SYS_shmctl, { SEGMENT, IPC_SET, AT(bytes) },
	  { { "id", { SET(0, -1UL) } }, { "pointer", { SET(2, BAD_POINTER) } }, { "no rights", { RIGHTS(NO_RIGHTS) } } } },
	{ "shmdt", SYS_shmdt, { HOLE }, { { "unaligned", { SET(0, HOLE + 1) } }, { "not a segment", { SET(0, PAGES) } } } },
	{ "memfd_create", SYS_memfd_create, { AT("name"), 0 },
	  { { "pointer", { SET(0, BAD_POINTER) } }, { "long name", { SET(0, AT(long_name)) } },
	    { "flags", { ADD(1, 0x100) } }, { "both modes", { ADD(1, 0x18) } },
	    { "no such huge page", { ADD(1, 4 | 5 << 26) } }, { "no descriptors", { RIGHTS(NO_DESCRIPTORS) } } } },
	{ "memfd_secret", CALL_MEMFD_SECRET, { 0 },
	  { { "flags", { ADD(0, 0x100) } }, { "no descriptors", { RIGHTS(NO_DESCRIPTORS) } } } },
	{ "F_ADD_SEALS", SYS_fcntl, { FILE_BOTH, F_ADD_SEALS, F_SEAL_GROW },
	  { { "descriptor", { SET(0, NONE) } }, { "a path", { SET(0, PATH) } }, { "reads only", { SET(0, FILE_READS) } },
	    { "a pipe", { SET(0, PIPE) } }, { "a folder", { SET(0, FOLDER) } }, { "sealed", { SET(0, FILE_SEALED) } },
	    { "unknown seal", { ADD(2, 0x100) } }, { "mapped", { ADD(2, F_SEAL_WRITE) } } } },
	{ "fallocate", SYS_fallocate, { FILE_BOTH, 0, 0, PAGE },
	  { { "descriptor", { SET(0, NONE) } }, { "a path", { SET(0, PATH) } }, { "reads only", { SET(0, FILE_READS) } },
	    { "a pipe", { SET(0, PIPE) } }, { "a folder", { SET(0, FOLDER) } }, { "sealed", { SET(0, FILE_SEALED) } },
	    { "a device", { SET(0, ZERO) } }, { "unknown mode", { ADD(1, 0x100) } },
	    { "hole that grows", { ADD(1, FALLOC_FL_PUNCH_HOLE) } },
	    { "hole", { ADD(1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) } },
	    { "negative place", { SET(2, NEGATIVE) } }, { "no length", { SET(3, 0) } },
	    { "negative length", { SET(3, NEGATIVE) } }, { "too long", { SET(3, 0x7ffffffffffff000UL) } } } },
	{ "ftruncate", SYS_ftruncate, { FILE_BOTH, 4 * PAGE },
	  { { "descriptor", { SET(0, NONE) } }, { "a path", { SET(0, PATH) } }, { "reads only", { SET(0, FILE_READS) } },
	    { "a pipe", { SET(0, PIPE) } }, { "a folder", { SET(0, FOLDER) } }, { "sealed", { SET(0, FILE_SEALED) } },
	    { "a device", { SET(0, ZERO) } }, { "negative", { SET(1, NEGATIVE) } }, { "shorter", { SET(1, 1) } } } },
	{ "mbind", SYS_mbind, { PAGES, PAGE, BIND, AT(structure), 64, 0, 0, 0, 1 },
	  { UNALIGNED, IN_A_HOLE, INTO_A_HOLE, NO_LENGTH, WRAPS,
	    { "mode", { SET(2, 77) } }, { "pointer", { SET(3, BAD_POINTER) } }, { "no mask", { SET(3, 0) } },
	    { "mask too long", { SET(4, 1UL << 20) } }, { "flags", { SET(5, 0x100) } },
	    { "empty mask", { SET(8, 0) } }, { "no such node", { SET(8, 1UL << 40) } },
	    { "moves all, no rights", { SET(5, 4), RIGHTS(NO_RIGHTS) } } } },
	{ "set_mempolicy", SYS_set_mempolicy, { BIND, AT(structure), 64, 0, 0, 0, 0, 0, 1 },
	  { { "mode", { SET(0, 77) } }, { "pointer", { SET(1, BAD_POINTER) } }, { "no mask", { SET(1, 0) } },
	    { "mask too long", { SET(2, 1UL << 20) } }, { "empty mask", { SET(8, 0) } },
	    { "no such node", { SET(8, 1UL << 40) } }, { "both kinds of node", { ADD(0, 0xc000) } } } },
	{ "get_mempolicy", SYS_get_mempolicy, { AT(bytes), AT(structure), 1024, PAGES, 2 },
	  { { "pointer", { SET(0, BAD_POINTER) } }, { "mask", { SET(1, BAD_POINTER) } }, { "short mask", { SET(2, 1) } },
	    { "in a hole", { SET(3, HOLE) } }, { "flags", { ADD(4, 0x100) } }, { "no address wanted", { TAKE(4, 2) } },
	    { "which nodes", { ADD(4, 4) } } } },
	{ "set_mempolicy_home_node", CALL_SET_MEMPOLICY_HOME_NODE, { BOUND, PAGE, 0, 0 },
	  { { "unaligned", { SET(0, BOUND + 1) } }, IN_A_HOLE, { "into a hole", { SET(1, 8 * PAGE) } }, IN_THE_KERNEL, NO_LENGTH,
	    WRAPS, { "no policy", { SET(0, PAGES) } }, { "another policy", { SET(0, PREFERS) } }, { "sealed", { SET(0, SEALED) } },
	    { "no such node", { SET(2, 1000) } }, { "node that is not there", { SET(2, 9) } }, { "flags", { SET(3, 1) } } } },
	{ "migrate_pages", SYS_migrate_pages, { 0, 64, AT(structure), AT(structure), 0, 0, 0, 0, 1 },
	  { { "process", { SET(0, 0x3fffffff) } }, { "mask too long", { SET(1, 1UL << 20) } },
	    { "old", { SET(2, BAD_POINTER) } }, { "new", { SET(3, BAD_POINTER) } },
	    { "no such node", { SET(8, 1UL << 40) } }, { "no rights", { SET(0, 1), RIGHTS(NO_RIGHTS) } } } },
	{ "move_pages", SYS_move_pages, { 0, 1, AT(structure), AT(vector), AT(other_vector), 2, 0, 0, PAGES },
	  { { "process", { SET(0, 0x3fffffff) } }, { "pages", { SET(2, BAD_POINTER) } },
	    { "nodes", { SET(3, BAD_POINTER) } }, { "status", { SET(4, BAD_POINTER) } }, { "flags", { SET(5, 1) } },
	    { "in a hole", { SET(8, HOLE) } }, { "all, no rights", { SET(5, 4), RIGHTS(NO_RIGHTS) } } } },
	{ "swapon", SYS_swapon, { AT(missing_path), 0 },
	  { { "pointer", { SET(0, BAD_POINTER) } }, { "a folder", { SET(0, AT(folder_path)) } },
	    { "flags", { SET(1, 0x1000000) } }, { "no rights", { RIGHTS(NO_RIGHTS) } } } },
	{ "swapoff", SYS_swapoff, { AT(missing_path) },
	  { { "pointer", { SET(0, BAD_POINTER) } }, { "a folder", { SET(0, AT(folder_path)) } },
	    { "no rights", { RIGHTS(NO_RIGHTS) } } } },
	{ "process_vm_readv", SYS_process_vm_readv, { SELF, AT(structure), 1, AT(structure + 2), 1, 0, 0, 0, AT(bytes), 8, PAGES, 8 },
	  { { "process", { SET(0, 0x3fffffff) } }, { "local pointer", { SET(1, BAD_POINTER) } },
	    { "too many local", { SET(2, 1025) } }, { "remote pointer", { SET(3, BAD_POINTER) } },
	    { "too many remote", { SET(4, 1025) } }, { "flags", { SET(5, 1) } }, { "local hole", { SET(8, HOLE) } },
	    { "negative local", { SET(9, NEGATIVE) } }, { "remote hole", { SET(10, HOLE) } },
	    { "negative remote", { SET(11, NEGATIVE) } }, { "none local", { SET(2, 0) } } } },
	{ "process_vm_writev", SYS_process_vm_writev, { SELF, AT(structure), 1, AT(structure + 2), 1, 0, 0, 0, AT(bytes), 8, PAGES, 8 },
	  { { "process", { SET(0, 0x3fffffff) } }, { "too many local", { SET(2, 1025) } },
	    { "remote pointer", { SET(3, BAD_POINTER) } }, { "flags", { SET(5, 1) } }, { "local hole", { SET(8, HOLE) } },
	    { "remote hole", { SET(10, HOLE) } }, { "to be read", { SET(10, READS) } },
	    { "negative remote", { SET(11, NEGATIVE) } } } },
	{ "membarrier", SYS_membarrier, { 0, 0, 0 },
	  { { "command", { SET(0, 1UL << 30) } }, { "not registered", { SET(0, 8) } }, { "flags", { SET(1, 2) } },
	    { "a CPU", { SET(1, 1) } } } },
	{ "process_mrelease", CALL_PROCESS_MRELEASE, { OWN, 0 },
	  { { "descriptor", { SET(0, NONE) } }, { "no process", { SET(0, PIPE) } }, { "flags", { SET(1, 1) } } } },
	{ "map_shadow_stack", CALL_MAP_SHADOW_STACK, { 0, PAGE, 0 },
	  { NO_LENGTH, { "unaligned", { SET(0, HOLE + 1) } }, { "flags", { SET(2, 0x100) } } } },
	{ "cachestat", CALL_CACHESTAT, { FILE_BOTH, AT(structure), AT(bytes), 0, 0, 0, 0, 0, 0, PAGE },
	  { { "descriptor", { SET(0, NONE) } }, { "a pipe", { SET(0, PIPE) } }, { "a path", { SET(0, PATH) } },
	    { "a folder", { SET(0, FOLDER) } }, { "range", { SET(1, BAD_POINTER) } }, { "answer", { SET(2, BAD_POINTER) } },
	    { "flags", { SET(3, 1) } } } },
	{ "pkey_alloc", SYS_pkey_alloc, { 0, 0 }, { { "flags", { SET(0, 1) } }, { "rights", { SET(1, 0x100) } } } },
	{ "pkey_free", SYS_pkey_free, { 5 }, { { "no such key", { SET(0, 77) } } } },
	{ "hugetlb mmap", SYS_mmap, { 0, HUGE_PAGE, RW, PRIVATE | MAP_HUGETLB, -1UL, 0 },
	  { NO_LENGTH, WRAPS, TOO_LONG,
	    { "a small page", { SET(1, PAGE) } },
	    { "more than the pool", { SET(1, 9 * HUGE_PAGE) } },
	    { "no reservation", { ADD(3, MAP_NORESERVE) } },
	    { "no type", { TAKE(3, MAP_TYPE) } },
	    { "offset", { SET(5, 1) } },
	    { "fixed, begins within", { SET(0, HUGE_FREE + PAGE), ADD(3, MAP_FIXED) } },
	    { "fixed, into a huge page", { SET(0, HUGE + PAGE), ADD(3, MAP_FIXED) } },
	    { "fixed, taken", { SET(0, HUGE), ADD(3, MAP_FIXED_NOREPLACE) } },
	    { "fixed, sealed", { SET(0, HUGE_SEALED), ADD(3, MAP_FIXED) } },
	    { "no such huge page", { ADD(3, 5 << 26) } },
	    { "no pool", { ADD(3, 30 << 26) } },
	    { "locked, limit", { ADD(3, MAP_LOCKED), RIGHTS(NO_LOCKING) } },
	    { "limit", { RIGHTS(LITTLE_ADDRESS_SPACE) } } } },
	{ "hugetlb mmap file", SYS_mmap, { 0, HUGE_PAGE, RW, MAP_SHARED, FILE_HUGE, 0 },
	  { NO_LENGTH, WRAPS, TOO_LONG,
	    { "a small page", { SET(1, PAGE) } },
	    { "more than the pool", { SET(1, 9 * HUGE_PAGE) } },
	    { "small offset", { SET(5, PAGE) } },
	    { "behind the end", { SET(5, 2 * HUGE_PAGE) } },
	    { "offset too large", { SET(5, 0x7fffffffffe00000UL) } },
	    { "offset", { SET(5, 1) } },
	    { "fixed, begins within", { SET(0, HUGE_FREE + PAGE), ADD(3, MAP_FIXED) } },
	    { "fixed, taken", { SET(0, HUGE), ADD(3, MAP_FIXED_NOREPLACE) } },
	    { "private", { TAKE(3, MAP_TYPE), ADD(3, MAP_PRIVATE) } },
	    { "unknown flag", { ADD(3, MAP_SHARED_VALIDATE | 0x80000000UL) } } } },
	{ "hugetlb mmap small over huge", SYS_mmap, { HUGE, PAGE, RW, PRIVATE | MAP_FIXED, -1UL, 0 },
	  { { "begins within", { SET(0, HUGE + PAGE) } }, { "a huge page", { SET(1, HUGE_PAGE) } }, HUGE_ON_SEALED } },
	{ "hugetlb munmap", SYS_munmap, { HUGE, HUGE_PAGE }, { HUGE_PLACES } },
	{ "hugetlb mprotect", SYS_mprotect, { HUGE, HUGE_PAGE, PROT_READ },
	  { HUGE_PLACES, { "unknown right", { ADD(2, 0x100) } }, { "grows down", { ADD(2, PROT_GROWSDOWN) } } } },
	{ "hugetlb mremap", SYS_mremap, { HUGE, HUGE_PAGE, HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, HUGE_FREE },
	  { HUGE_PLACES, { "longer", { SET(2, 2 * HUGE_PAGE) } }, { "a small page", { SET(2, PAGE) } },
	    { "to within", { SET(4, HUGE_FREE + PAGE) } }, { "overlaps", { SET(4, HUGE) } },
	    { "onto sealed", { SET(4, HUGE_SEALED) } }, { "stays", { TAKE(3, MREMAP_MAYMOVE | MREMAP_FIXED) } },
	    { "keeps the old", { ADD(3, MREMAP_DONTUNMAP) } } } },
	{ "hugetlb mlock", SYS_mlock, { HUGE, HUGE_PAGE }, { HUGE_PLACES, { "limit", { RIGHTS(NO_LOCKING) } } } },
	{ "hugetlb munlock", SYS_munlock, { HUGE, HUGE_PAGE }, { HUGE_PLACES } },
	{ "hugetlb msync", SYS_msync, { HUGE, HUGE_PAGE, MS_SYNC }, { HUGE_PLACES } },
	{ "hugetlb mincore", SYS_mincore, { HUGE, HUGE_PAGE, AT(bytes) }, { HUGE_PLACES } },
	{ "hugetlb mseal", CALL_MSEAL, { HUGE, HUGE_PAGE, 0 }, { HUGE_PLACES } },
	{ "hugetlb mbind", SYS_mbind, { HUGE, HUGE_PAGE, BIND, AT(structure), 64, 0, 0, 0, 1 }, { HUGE_PLACES } },
	{ "hugetlb fallocate", SYS_fallocate, { FILE_HUGE, 0, 0, HUGE_PAGE },
	  { { "a small page", { SET(3, PAGE) } }, { "small offset", { SET(2, PAGE) } }, { "more than the pool", { SET(3, 9 * HUGE_PAGE) } },
	    { "hole", { ADD(1, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) } }, { "zeroes", { ADD(1, 0x10) } },
	    { "no length", { SET(3, 0) } }, { "negative place", { SET(2, NEGATIVE) } } } },
	{ "hugetlb ftruncate", SYS_ftruncate, { FILE_HUGE, HUGE_PAGE },
	  { { "a small page", { SET(1, PAGE) } }, { "longer", { SET(1, 3 * HUGE_PAGE) } }, { "negative", { SET(1, NEGATIVE) } } } },
	HUGE_ADVICE("DONTNEED", MADV_DONTNEED), HUGE_ADVICE("DONTNEED_LOCKED", ADVICE_DONTNEED_LOCKED),
	HUGE_ADVICE("FREE", MADV_FREE), HUGE_ADVICE("REMOVE", MADV_REMOVE), HUGE_ADVICE("COLD", ADVICE_COLD),
	HUGE_ADVICE("PAGEOUT", ADVICE_PAGEOUT), HUGE_ADVICE("POPULATE_READ", MADV_POPULATE_READ),
	HUGE_ADVICE("POPULATE_WRITE", MADV_POPULATE_WRITE), HUGE_ADVICE("COLLAPSE", ADVICE_COLLAPSE),
	HUGE_ADVICE("GUARD_INSTALL", ADVICE_GUARD), HUGE_ADVICE("GUARD_REMOVE", ADVICE_GUARD_REMOVE),
	HUGE_ADVICE("WIPEONFORK", MADV_WIPEONFORK), HUGE_ADVICE("KEEPONFORK", MADV_KEEPONFORK),
	HUGE_ADVICE("HUGEPAGE", MADV_HUGEPAGE), HUGE_ADVICE("MERGEABLE", MADV_MERGEABLE),
	HUGE_ADVICE("WILLNEED", MADV_WILLNEED), HUGE_ADVICE("DODUMP", MADV_DODUMP),
};

static const struct {
	int number;
	const char *name;
} errors[] = {
#define E(name) { name, #name }
	E(EPERM), E(ENOENT), E(ESRCH), E(EINTR), E(EIO), E(ENXIO), E(E2BIG), E(EBADF), E(EAGAIN), E(ENOMEM), E(EACCES),
	E(EFAULT), E(EBUSY), E(EEXIST), E(ENODEV), E(ENOTDIR), E(EISDIR), E(EINVAL), E(ENFILE), E(EMFILE), E(ENOTTY),
	E(EFBIG), E(ENOSPC), E(ESPIPE), E(ERANGE), E(ENOSYS), E(EOVERFLOW), E(EOPNOTSUPP), E(ETXTBSY), E(ENAMETOOLONG),
};

static const char *name_of(int number)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].number == number)
			return errors[i].name;
	static char text[16];
	snprintf(text, sizeof text, "%d", number);
	return number ? text : "0";
}

static int segment;

static void at(unsigned long place, size_t length, int rights, int flags, int file)
{
	NEED(mmap((void *)place, length, rights, flags | MAP_FIXED, file, 0) == (void *)place);
}

static void become(int file, int number)
{
	NEED(file >= 0 && dup2(file, number) == number);
	close(file);
}

static void again(int number, int flags)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", FILE_BOTH);
	become(open(path, flags), number);
}

/* The pool holds pages for the calls on huge pages alone. */
static int is_on_huge_pages(const struct call *call)
{
	return strncmp(call->name, on_huge_pages, sizeof on_huge_pages - 1) == 0;
}

static void fill_pool(const char *pages)
{
	int pool = open("/proc/sys/vm/nr_hugepages", O_WRONLY);
	NEED(pool >= 0 && write(pool, pages, strlen(pages)) > 0);
	close(pool);
}

static void prepare_huge_pages(void)
{
	become(memfd_create("huge", MEMFD_HUGE), FILE_HUGE);
	NEED(ftruncate(FILE_HUGE, 2 * HUGE_PAGE) == 0);
	at(HUGE, 2 * HUGE_PAGE, RW, PRIVATE | MAP_HUGETLB, -1);
	at(HUGE_SHARED, 2 * HUGE_PAGE, RW, MAP_SHARED, FILE_HUGE);
	at(HUGE_SEALED, HUGE_PAGE, RW, PRIVATE | MAP_HUGETLB, -1);
	NEED(syscall(CALL_MSEAL, HUGE_SEALED, HUGE_PAGE, 0) == 0);
}

static void watch(unsigned long place, unsigned long mode)
{
	struct uffdio_register request = { .range = { place, 2 * PAGE }, .mode = mode };
	NEED(ioctl(WATCHER, UFFDIO_REGISTER, &request) == 0);
}

static void prepare(void)
{
	int ends[2];
	become(memfd_create("both", MFD_ALLOW_SEALING), FILE_BOTH);
	NEED(ftruncate(FILE_BOTH, 4 * PAGE) == 0);
	again(FILE_READS, O_RDONLY);
	again(FILE_WRITES, O_WRONLY);
	again(PATH, O_PATH);
	NEED(pipe(ends) == 0);
	become(ends[0], PIPE);
	become(open("/", O_RDONLY | O_DIRECTORY), FOLDER);
	become(memfd_create("sealed", MFD_ALLOW_SEALING), FILE_SEALED);
	NEED(ftruncate(FILE_SEALED, 4 * PAGE) == 0);
	NEED(fcntl(FILE_SEALED, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	become(open("/dev/zero", O_RDWR), ZERO);
	become(open("/proc/self/pagemap", O_RDONLY), PAGEMAP);
	at(PAGES, 4 * PAGE, RW, PRIVATE, -1);
	memset((void *)PAGES, 7, 4 * PAGE);
	at(READS, 4 * PAGE, PROT_READ, PRIVATE, -1);
	at(CLOSED, 4 * PAGE, PROT_NONE, PRIVATE, -1);
	at(SHARED, 4 * PAGE, RW, MAP_SHARED, FILE_BOTH);
	at(SHARED_READS, 4 * PAGE, PROT_READ, MAP_SHARED, FILE_READS);
	at(SEALED, 4 * PAGE, PROT_READ, PRIVATE, -1);
	at(LOCKED, 4 * PAGE, RW, PRIVATE, -1);
	at(EDGE, 2 * PAGE, RW, PRIVATE, -1);
	at(WATCHED, 4 * PAGE, RW, PRIVATE, -1);
	at(BOUND, 4 * PAGE, RW, PRIVATE, -1);
	at(PREFERS, 4 * PAGE, RW, PRIVATE, -1);
	unsigned long first_node = 1;
	NEED(syscall(SYS_mbind, BOUND, 4 * PAGE, BIND, &first_node, 64, 0) == 0);
	NEED(syscall(SYS_mbind, PREFERS, 4 * PAGE, PREFERRED, &first_node, 64, 0) == 0);
	become(memfd_create("minor", 0), FILE_MINOR);
	NEED(ftruncate(FILE_MINOR, 4 * PAGE) == 0);
	NEED(pwrite(FILE_MINOR, "a", 1, 0) == 1 && pwrite(FILE_MINOR, "c", 1, 2 * PAGE) == 1);
	segment = shmget(0x5151, PAGE, IPC_CREAT | 0600);
	NEED(segment >= 0);
}

static void watch_minor_faults(void)
{
	at(MINOR, 4 * PAGE, RW, MAP_SHARED, FILE_MINOR);
	((volatile char *)MINOR)[2 * PAGE] = 'c';
	struct uffdio_register request = { .range = { MINOR, 4 * PAGE }, .mode = REGISTERS_MINOR };
	NEED(ioctl(WATCHER, UFFDIO_REGISTER, &request) == 0);
}

/* What a fork does not hand on is made in the child. Memory is watched only where the call is the userfaultfd's: others
 * would wait for an answer. */
static void prepare_child(const struct call *call)
{
	become((int)syscall(CALL_PIDFD_OPEN, getpid(), 0), OWN);
	struct uffdio_api api = { .api = UFFD_API };
	become((int)syscall(SYS_userfaultfd, 0), WATCHER);
	NEED(ioctl(WATCHER, UFFDIO_API, &api) == 0);
	become((int)syscall(SYS_userfaultfd, 0), WATCHER_NEW);
	/* The parent's pages become the child's own. */
	memset((void *)PAGES, 7, 4 * PAGE);
	if (call->number == SYS_ioctl) {
		watch(WATCHED, UFFDIO_REGISTER_MODE_MISSING);
		watch(WATCHED + 2 * PAGE, UFFDIO_REGISTER_MODE_WP);
	}
	if (call->number == SYS_ioctl && call->words[1] == UFFDIO_CONTINUE)
		watch_minor_faults();
	if (is_on_huge_pages(call))
		prepare_huge_pages();
	NEED(mlock((void *)LOCKED, 4 * PAGE) == 0);
	NEED(syscall(CALL_MSEAL, SEALED, 4 * PAGE, 0) == 0);
	become(open("/proc/self/pagemap", O_RDONLY), PAGEMAP);
}

static void take_rights(unsigned long which)
{
	struct rlimit limit = { 0, 0 };
	switch (which) {
	case NO_LOCKING:
		NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		NEED(setresuid(1000, 1000, 1000) == 0);
		break;
	case NO_RIGHTS:
		NEED(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
		break;
	case LITTLE_LOCKING:
		limit.rlim_cur = limit.rlim_max = PAGE;
		NEED(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
		NEED(setresuid(1000, 1000, 1000) == 0);
		break;
	case NO_DESCRIPTORS:
		NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
		break;
	case LITTLE_ADDRESS_SPACE:
		limit.rlim_cur = limit.rlim_max = PAGE;
		NEED(setrlimit(RLIMIT_AS, &limit) == 0);
		break;
	}
}

static void edit(unsigned long *words, const struct reason *reason, unsigned long *rights)
{
	for (int i = 0; i < 3; i++) {
		const struct edit *edit = &reason->edits[i];
		if (edit->kind == '=')
			words[edit->word] = edit->value;
		else if (edit->kind == '|')
			words[edit->word] |= edit->value;
		else if (edit->kind == '&')
			words[edit->word] &= ~edit->value;
		else if (edit->kind == '!')
			*rights = edit->value;
	}
}

/* Two reasons that change the same word for good, or rights twice, do not go together. */
static int together(const struct reason *one, const struct reason *two)
{
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 3; j++) {
			const struct edit *a = &one->edits[i], *b = &two->edits[j];
			if (a->kind && b->kind && a->word == b->word && (a->kind == '!') == (b->kind == '!') &&
			    (a->kind == '=' || b->kind == '=' || a->kind == '!'))
				return 0;
		}
	return 1;
}

static void once(const struct call *call, const struct reason *one, const struct reason *two)
{
	printf("%s%s%s%s%s: ", call->name, one ? ", " : "", one ? one->name : "", two ? " + " : "", two ? two->name : "");
	fflush(stdout);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		unsigned long words[24], rights = 0;
		memcpy(words, call->words, sizeof words);
		prepare_child(call);
		if (one)
			edit(words, one, &rights);
		if (two)
			edit(words, two, &rights);
		for (int i = 0; i < 6; i++) {
			if (words[i] == SEGMENT)
				words[i] = (unsigned long)segment;
			else if (words[i] == SELF)
				words[i] = (unsigned long)getpid();
		}
		memcpy(structure, words + 8, sizeof structure);
		take_rights(rights);
		errno = 0;
		long result = syscall(call->number, words[0], words[1], words[2], words[3], words[4], words[5]);
		if (result == -1 || (call->number == SYS_ioctl && result < 0))
			printf("%s\n", name_of(errno));
		else
			printf("ok\n");
		fflush(stdout);
		_exit(0);
	}
	int status = wait_for(child);
	if (!exited(status, 0))
		printf("ended with %x\n", status);
}

int main(int count, char **arguments)
{
	prepare();
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		const struct call *call = &calls[i];
		if (count > 1 && strcmp(arguments[1], call->name) != 0)
			continue;
		fill_pool(is_on_huge_pages(call) ? POOL : "0");
		once(call, NULL, NULL);
		for (int a = 0; a < 16 && call->reasons[a].name; a++) {
			once(call, &call->reasons[a], NULL);
			for (int b = a + 1; b < 16 && call->reasons[b].name; b++)
				if (together(&call->reasons[a], &call->reasons[b]))
					once(call, &call->reasons[a], &call->reasons[b]);
		}
	}
	fill_pool("0");
	shmctl(segment, IPC_RMID, NULL);
	return 0;
}
