/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Attributes each instruction of the guest's kernel to the call chain in which it was executed; see profile.c.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "api.h"

/* The number of vectors of an interrupt descriptor table, and the first vector that is not an exception. */
enum { VECTORS = 256, FIRST_INTERRUPT = 32 };
/* The number of the region that is the complete run. */
enum { THE_RUN = 32767 };

/* Writes the profile of `region` to the file `path` when the run has ended. If `resumes` is set, the kernel
 * may return to user mode from within calls, and continue in them at the next entry.
 */
void profile_open(const char *path, unsigned int region, int resumes);

/* Follows the calls and returns of a block of the kernel. */
void profile_translated(struct qemu_plugin_tb *block);

/* Is called when IRETQ or SYSRETQ begins. */
void profile_leaves(unsigned int cpu, void *data);

/* Is called before the stack pointer is loaded from memory. */
void profile_switches(unsigned int cpu, void *data);

/* Passes the address of each vector's handler, or 0 if there is none. */
void profile_gates(const uint64_t *gates);

/* A mark in a block of instructions: the mark's code and, if the block is the kernel's, the rest of the block
 * from the mark on, and the complete block. */
struct mark {
	unsigned int code;
	struct block *rest, *whole;
};

/* Returns a mark with the code `code`, which is the instruction number `at` of a block. */
struct mark *profile_mark(struct qemu_plugin_tb *block, size_t at, unsigned int code);

/* A thread executed a mark. `end` is the number of kernel instructions that had begun at the end of the run.
 * `thread` is the base of FS, by which threads are identified with several CPUs; otherwise it is 0.
 */
void profile_marked(const struct mark *mark, uint64_t end, uint64_t thread);

#endif
