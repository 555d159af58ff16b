/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * For a kernel that runs no program: the addresses of its code, and the beginning and the end of its run; see
 * alone.c.
 */
#ifndef ALONE_H
#define ALONE_H

#include "api.h"

/* Takes an argument of the plugin, "start=ADDRESS" or "code=FIRST-END". Returns whether it is one of these. */
int alone_argument(const char *argument);

/* Whether an instruction at this address is the kernel's. */
int is_kernel(uint64_t address);

/* With start=ADDRESS, watches for the end of the run. */
void alone_open(qemu_plugin_id_t id);

/* Is called for each translated block, before its instructions. */
void alone_translated(struct qemu_plugin_tb *block);

/* Is called for each translated instruction. Returns whether the run can begin with it: the caller then calls alone_begins
 * when it is executed.
 */
int alone_enters(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size);

/* Returns whether the run begins now: whether the kernel has been entered for the first time. */
int alone_begins(void);

/* Keeps the counts after the instruction that begins now. Defined in count.c. */
void note_counts(int of_kernel);

/* The run has ended. Its counts are those that were kept last if `where_noted` is set, and otherwise those of
 * now. Defined in count.c. */
void end_run(int where_noted);

#endif
