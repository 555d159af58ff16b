/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Attributes each instruction of the guest's kernel to the chain of calls that it was executed in; profile.c says how.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "api.h"

/* Vectors of an interrupt descriptor table, and the first that is no exception. */
enum { VECTORS = 256, FIRST_INTERRUPT = 32 };

/* Instructions of the kernel, and of programs, that have begun by now; count.c has both. */
uint64_t kernel_begun(void);
uint64_t user_begun(void);

/* Writes the profile of this region to this file, when the run has ended. A kernel that resumes returns to user mode from
 * within calls, and goes on in them at the next entry.
 */
void profile_open(const char *path, unsigned int region, int resumes);

/* Follows calls and returns of a block of the kernel's. */
void profile_translated(struct qemu_plugin_tb *block);

/* IRETQ or SYSRETQ begins. */
void profile_leaves(unsigned int cpu, void *data);

/* The stack pointer is loaded from memory next. */
void profile_switches(unsigned int cpu, void *data);

/* A handler begins at each of these addresses that is not 0. */
void profile_gates(const uint64_t *gates);

/* A mark in a block of instructions: its code; where the kernel executes it, the instructions from it on, and all of them. */
struct mark {
	unsigned int code;
	struct block *rest, *whole;
};

/* The mark that is this instruction of a block. */
struct mark *profile_mark(struct qemu_plugin_tb *block, size_t at, unsigned int code);

/* A mark was executed; `end` is how many instructions of the kernel had begun where the run ended. */
void profile_marked(const struct mark *mark, uint64_t end);

#endif
