/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Attributes each instruction of the guest's kernel to the call chain in which it was executed; see profile.c.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "api.h"

/* Vectors of an interrupt descriptor table, and the first that is no exception. */
enum { VECTORS = 256, FIRST_INTERRUPT = 32 };
/* The region that is the complete run. */
enum { THE_RUN = 32767 };

/* Writes the profile of this region to this file when the run has ended. If `resumes` is set, the kernel may return to user
 * mode from within calls, and continue in them at the next entry.
 */
void profile_open(const char *path, unsigned int region, int resumes);

/* Follows the calls and returns of a block of the kernel. */
void profile_translated(struct qemu_plugin_tb *block);

/* IRETQ or SYSRETQ begins. */
void profile_leaves(unsigned int cpu, void *data);

/* The stack pointer is loaded from memory next. */
void profile_switches(unsigned int cpu, void *data);

/* A handler begins at each of these addresses that is not 0. */
void profile_gates(const uint64_t *gates);

/* A mark in a block of instructions: its code; if the kernel executes it, the rest of the block, and the complete block. */
struct mark {
	unsigned int code;
	struct block *rest, *whole;
};

/* Returns the mark that is this instruction of a block. */
struct mark *profile_mark(struct qemu_plugin_tb *block, size_t at, unsigned int code);

/* A thread executed a mark; `end` is how many instructions of the kernel had begun where the run ended. Threads are known by
 * the base of FS, with several CPUs only.
 */
void profile_marked(const struct mark *mark, uint64_t end, uint64_t thread);

#endif
