/* Segments of shared memory (System V). */
#include "kinds.h"

static const struct call segments_calls[] = {
	{ "shmget", SYS_shmget, { IPC_PRIVATE, PAGE, IPC_CREAT | 0600 },
	  { { "no length", { SET(1, 0) } }, { "too long", { SET(1, -1UL) } },
	    { "no such key", { SET(0, 0x77777), TAKE(2, IPC_CREAT) } }, { "taken", { SET(0, 0x5151), ADD(2, IPC_EXCL) } },
	    { "larger", { SET(0, 0x5151), SET(1, 100 * PAGE) } }, { "no pool", { ADD(2, 04000) } },
	    { "another's", { SET(0, 0x5151), STATE(OTHER_USER) } }, { "no rights", { STATE(OTHER_USER) } },
	    { "no files", { STATE(OTHER_USER | NO_FILES) } }, { "no segments", { STATE(NO_SEGMENTS) } } } },
	{ "shmat", SYS_shmat, { SEGMENT, 0, 0 },
	  { { "id", { SET(0, -1UL) } }, { "removed", { SET(0, REMOVED_SEGMENT) } }, { "unaligned", { SET(1, HOLE + 1) } }, { "taken", { SET(1, PAGES) } },
	    { "over nothing", { ADD(2, 040000) } }, { "in the kernel", { SET(1, KERNEL) } },
	    { "no rights", { STATE(OTHER_USER) } }, { "limit", { STATE(LITTLE_ADDRESS_SPACE) } }, SPLITS_TOO_MANY } },
	{ "shmctl", SYS_shmctl, { SEGMENT, IPC_STAT, AT(bytes) },
	  { { "id", { SET(0, -1UL) } }, { "removed", { SET(0, REMOVED_SEGMENT) } }, { "command", { SET(1, 77) } },
	    { "pointer", { SET(2, BAD_POINTER) } },
	    { "no rights", { STATE(OTHER_USER) } } } },
	{ "shmctl IPC_SET", SYS_shmctl, { SEGMENT, IPC_SET, AT(bytes) },
	  { { "id", { SET(0, -1UL) } }, { "removed", { SET(0, REMOVED_SEGMENT) } }, { "pointer", { SET(2, BAD_POINTER) } },
	    { "no rights", { STATE(OTHER_USER) } } } },
	{ "shmctl SHM_LOCK", SYS_shmctl, { LENT_SEGMENT, SHM_LOCK, 0 },
	  { { "id", { SET(0, -1UL) } }, { "removed", { SET(0, REMOVED_SEGMENT) } },
	    { "another's", { SET(0, SEGMENT), STATE(OTHER_USER) } },
	    { "limit", { STATE(OTHER_USER | NO_LOCKING) } }, { "little limit", { STATE(OTHER_USER | LITTLE_LOCKING) } } } },
	{ "shmdt", SYS_shmdt, { HOLE }, { { "unaligned", { SET(0, HOLE + 1) } }, { "not a segment", { SET(0, PAGES) } } } },
};
