/* madvise with each kind of advice, and advice for another process. */
#include "kinds.h"

#define POPULATES(text, advice)                                                                               \
	{ "madvise " text, SYS_madvise, { PAGES, PAGE, advice },                                              \
	  { ADVICE_REASONS, TOO_LONG, { "behind the end", { SET(0, BEHIND) } },                               \
	    { "poisoned", { SET(0, POISONED) } } } }

static const struct call advice_calls[] = {
	ADVICE("DONTNEED", MADV_DONTNEED), ADVICE("REMOVE", MADV_REMOVE), ADVICE("FREE", MADV_FREE),
	POPULATES("POPULATE_READ", MADV_POPULATE_READ), POPULATES("POPULATE_WRITE", MADV_POPULATE_WRITE),
	ADVICE("GUARD_INSTALL", ADVICE_GUARD), ADVICE("COLD", ADVICE_COLD), ADVICE("WIPEONFORK", MADV_WIPEONFORK),
	ADVICE("WILLNEED", MADV_WILLNEED), ADVICE("MERGEABLE", MADV_MERGEABLE), ADVICE("unknown", 77),
	ADVICE("PAGEOUT", ADVICE_PAGEOUT), ADVICE_BELOW("DONTNEED_LOCKED", ADVICE_DONTNEED_LOCKED),
	ADVICE("COLLAPSE", ADVICE_COLLAPSE), ADVICE_BELOW("GUARD_REMOVE", ADVICE_GUARD_REMOVE),
	ADVICE("HUGEPAGE", MADV_HUGEPAGE), ADVICE("NOHUGEPAGE", MADV_NOHUGEPAGE), ADVICE("KEEPONFORK", MADV_KEEPONFORK),
	ADVICE("UNMERGEABLE", MADV_UNMERGEABLE), ADVICE("DONTFORK", MADV_DONTFORK), ADVICE_BELOW("DODUMP", MADV_DODUMP),
	ADVICE("RANDOM", MADV_RANDOM),
	{ "madvise POISON", SYS_madvise, { HOLE, PAGE, ADVICE_POISON },
	  { { "unaligned", { SET(0, HOLE + 1) } }, NO_LENGTH, WRAPS, { "no rights", { STATE(OTHER_USER) } } } },
	{ "madvise OFFLINE", SYS_madvise, { HOLE, PAGE, ADVICE_OFFLINE },
	  { { "unaligned", { SET(0, HOLE + 1) } }, NO_LENGTH, WRAPS, { "no rights", { STATE(OTHER_USER) } } } },
	{ "madvise COLLAPSE whole", SYS_madvise, { SMALL_PAGES, HUGE_PAGE, ADVICE_COLLAPSE },
	  { { "unaligned", { SET(0, SMALL_PAGES + 1) } }, { "begins within", { SET(0, SMALL_PAGES + PAGE) } },
	    { "too short", { SET(1, PAGE) } }, { "into a hole", { SET(1, 2 * HUGE_PAGE) } }, NO_LENGTH, WRAPS,
	    { "pinned", { STATE(PINNED) } }, { "little group", { STATE(LITTLE_GROUP) } } } },
	{ "process_madvise", CALL_PROCESS_MADVISE, { OWN, AT(structure), 1, ADVICE_COLD, 0, 0, 0, 0, PAGES, PAGE },
	  { { "descriptor", { SET(0, NONE) } }, { "no process", { SET(0, PIPE) } },
	    { "pointer", { SET(1, BAD_POINTER) } }, { "too many", { SET(2, 1025) } },
	    { "advice", { SET(3, 77) } }, { "flags", { SET(4, 1) } },
	    { "unaligned", { SET(8, PAGES + 1) } }, { "in a hole", { SET(8, HOLE) } },
	    { "negative", { SET(9, NEGATIVE) } },
	    { "process ended", { SET(0, DEAD_PROCESS) } },
	    { "another's process, no rights", { SET(0, PARENT_PROCESS), STATE(OTHER_USER) } },
	    { "another's process, no niceness", { SET(0, PARENT_PROCESS), STATE(NO_NICENESS) } },
	    { "another's process, advice for itself", { SET(0, PARENT_PROCESS), SET(3, MADV_DONTNEED) } } } },
};
