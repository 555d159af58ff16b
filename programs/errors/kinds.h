/* The definitions for tables of calls: the addresses and descriptors that calls use, and the reasons to fail. */
#ifndef ERRORS_KINDS_H
#define ERRORS_KINDS_H

#include "../check.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/uio.h>

/* Rows of the tables omit the fields that stay zero. */
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

/* Numbers and constants that not every system's headers contain. */
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
	ADVICE_POISON = 100,
	ADVICE_OFFLINE = 101,
	PREFERRED = 1,
	BIND = 2,
	LOCAL = 4,
	STRICTLY = 1, /* MPOL_MF_STRICT */
	EVENT_FORK = 1 << 1,
	EVENT_REMOVE = 1 << 3,
};

/* The prefix of the names of calls for which the hugetlb pool is filled. For other calls it is empty. */
static const char on_huge_pages[] = "hugetlb ";
#define POOL "8"
#define HUGE_PAGE (2UL << 20)

/* Memory at fixed addresses. The addresses around each range are not mapped. */
#define PAGES 0x20000000UL     /* private, four pages, written */
#define HOLE 0x21000000UL      /* not mapped */
#define READS 0x22000000UL     /* private, readable */
#define CLOSED 0x23000000UL    /* private, without rights */
#define SHARED 0x24000000UL    /* a file's, shared, writable */
#define SHARED_READS 0x25000000UL /* a file's, shared, by a read-only descriptor */
#define SEALED 0x26000000UL    /* private, readable, sealed */
#define LOCKED 0x27000000UL    /* private, locked */
#define EDGE 0x28000000UL      /* two pages, then nothing */
#define WATCHED 0x29000000UL   /* private, empty, of the userfaultfd */
#define MINOR 0x2a000000UL     /* a file's, shared, with a page that is not mapped and a hole, of the userfaultfd */
#define BOUND 0x2b000000UL     /* private, with the policy BIND */
#define PREFERS 0x2c000000UL   /* private, with the policy PREFERRED */
#define BEHIND 0x2d000000UL    /* shared, beyond the end of its file */
#define FORKED 0x2e000000UL    /* private, written, shared with the parent since the fork */
#define POISONED 0x2f000000UL  /* private, poisoned by UFFDIO_POISON */
#define HALF 0x30000000UL      /* private, of the userfaultfd: an empty page, then a written one */
#define CHANGING 0x31000000UL  /* private, of WATCHER_CHANGING */
#define OTHERS 0x32000000UL    /* private, of WATCHER_OTHER */
#define SMALL_PAGES 0x34000000UL /* private, as long as a huge page, in small pages */
#define HUGE 0x40000000UL      /* two huge pages, private */
#define HUGE_SHARED 0x44000000UL /* two huge pages of a file, shared */
#define HUGE_SEALED 0x48000000UL /* one private huge page, sealed */
#define HUGE_FREE 0x4c000000UL /* not mapped */
#define HIGHEST 0x7ffffffff000UL
#define KERNEL 0xffff800000000000UL

/* Descriptors with fixed numbers. */
enum {
	FILE_BOTH = 10,
	FILE_READS,
	FILE_WRITES,
	PIPE,
	PIPE_WRITES,
	FOLDER,
	PATH,
	FILE_SEALED,
	FILE_GROWS,   /* a memfd that is not sealed */
	FILE_NO_EXEC, /* on a file system mounted noexec */
	ZERO,
	WATCHER,
	WATCHER_NEW,      /* a userfaultfd without a handshake */
	WATCHER_OTHER,    /* a userfaultfd that watches OTHERS */
	WATCHER_CHANGING, /* a userfaultfd whose process is taking pages out of CHANGING */
	WATCHER_OF_DEAD,  /* a userfaultfd whose process has ended */
	OWN,
	PARENT_PROCESS, /* a pidfd of the program itself, which runs as root */
	DEAD_PROCESS,   /* a pidfd of a process that was waited for */
	PAGEMAP,
	FILE_MINOR,
	FILE_HUGE,
	NONE = 99
};

/* Words that stand for the IDs of segments and processes, which are known only at run time. */
#define SEGMENT 0x51515151UL
#define LENT_SEGMENT 0x51515152UL    /* a segment of user 1000, four pages */
#define REMOVED_SEGMENT 0x51515153UL
#define SELF 0x50505050UL
#define PARENT 0x50505051UL

/* A change of one word, or of the state. Words below 8 are arguments, and words from 8 on are in the structure to which
   an argument points. */
struct edit {
	char kind; /* '=' sets, '|' adds bits, '&' removes bits, '!' adds to the state */
	unsigned char word;
	unsigned long value;
};

/* The state in which a call is made. */
enum {
	OTHER_USER = 1 << 0,           /* user 1000 */
	NO_LOCKING = 1 << 1,           /* RLIMIT_MEMLOCK, 0 */
	LITTLE_LOCKING = 1 << 2,       /* RLIMIT_MEMLOCK, a page */
	LITTLE_ADDRESS_SPACE = 1 << 3, /* RLIMIT_AS, a page */
	NO_DESCRIPTORS = 1 << 4,       /* RLIMIT_NOFILE, 0 */
	LITTLE_FILES = 1 << 5,         /* RLIMIT_FSIZE, a page, and SIGXFSZ ignored */
	NO_FILES = 1 << 6,             /* fs.file-max, 0, from which root is exempt */
	FEW_AREAS = 1 << 7,            /* vm.max_map_count, one */
	NO_SEGMENTS = 1 << 8,          /* kernel.shmall, 0 */
	ALL_KEYS = 1 << 9,             /* every protection key is allocated */
	LITTLE_GROUP = 1 << 10,        /* in a group with a limit of 1 MiB */
	PINNED = 1 << 11,              /* a page of SMALL_PAGES is in a pipe */
	NO_PROMISES = 1 << 12,         /* vm.overcommit_memory is 2, and only swap counts */
	NO_NICENESS = 1 << 13,         /* root without CAP_SYS_NICE */
};

struct reason {
	const char *name;
	struct edit edits[4];
};

struct call {
	const char *name;
	long number;
	unsigned long words[24];
	struct reason reasons[24];
};

/* The structures to which arguments point. */
static unsigned long structure[16], vector[8], other_vector[8];
static char bytes[2 * 4096];
static const char long_name[300] = { [0 ... 298] = 'n' };
static const char missing_path[] = "/no/such/file", folder_path[] = "/", device_path[] = "/dev/null", swap_path[] = "/dev/zram0";
static const int absent_nodes[] = { 9 };

/* Files that are created for the calls that name one. */
#define HERE "/tmp/errors"
static const char file_path[] = HERE "/file", through_file_path[] = HERE "/file/below", loop_path[] = HERE "/loop",
		  pipe_path[] = HERE "/pipe", still_path[] = HERE "/still/file", running_path[] = "/proc/self/exe";
static char sealed_path[64];

#define AT(thing) ((unsigned long)(thing))

#define SET(word, value) { '=', word, value }
#define ADD(word, value) { '|', word, value }
#define TAKE(word, value) { '&', word, value }
#define STATE(value) { '!', 0, value }

/* Reasons to fail that many calls share: the position of the range. */
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
#define SPLITS_TOO_MANY { "too many areas", { STATE(FEW_AREAS) } }

#define ADVICE_REASONS                                                                                        \
	UNALIGNED, IN_A_HOLE, INTO_A_HOLE, IN_THE_KERNEL, ON_SEALED, ON_LOCKED, ON_SHARED, ON_SHARED_READS,   \
	ON_READS, ON_CLOSED, NO_LENGTH, WRAPS, SPLITS_TOO_MANY

#define ADVICE(text, advice)                                                                                  \
	{ "madvise " text, SYS_madvise, { PAGES, PAGE, advice },                                              \
	  { ADVICE_REASONS, TOO_LONG } }
/* Like ADVICE, but without the reason TOO_LONG: so long a range contains the program's own areas, which would
 * be unmapped, and the kernel's areas, which differ between kernels. */
#define ADVICE_BELOW(text, advice)                                                                            \
	{ "madvise " text, SYS_madvise, { PAGES, PAGE, advice }, { ADVICE_REASONS } }

/* Reasons to fail: the position of a range of huge pages. */
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
#define FILL_REASONS                                                                                          \
	WATCH_REASONS, { "layout changes", { SET(0, WATCHER_CHANGING) } }, { "process ended", { SET(0, WATCHER_OF_DEAD) } }

#endif
