/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts the instructions and the flushes of each CPU; see counters.c.
 */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "api.h"

enum half { USER, KERNEL, HALVES };
enum flush { INVLPG, INVPCID, CR4, FLUSHES };
/* The maximum number of elements of CPUs. It is larger than the number of a guest's CPUs, because CPU 0 gets
 * another element whenever its base changes. */
enum { CPUS = 256 };

/* Prepares to count for a guest with `cpus` CPUs. Returns 0 if this QEMU cannot tell them apart. */
int counters_open(qemu_plugin_id_t id, unsigned int cpus);

/* Is called for each translated block, before other callbacks of its instructions are registered. */
void counters_translated(struct qemu_plugin_tb *block);

/* Is called for each translated instruction, with its bytes. */
void counters_told(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size);

/* Counts an instruction when it begins. */
void count_instruction(struct qemu_plugin_insn *instruction, enum half half);
void count_flush(struct qemu_plugin_insn *instruction, enum flush flush);

/* Whether the guest has several CPUs. */
int has_several_cpus(void);

/* The number of elements in use, one for each known CPU. The first element has the counts of no known CPU. */
unsigned int cpus_known(void);

/* The element of the CPU that executes now, below CPUS; 0 if there is only one CPU. */
unsigned int cpu_now(void);

/* Whether the last instruction of this CPU was the kernel's. */
int was_in_kernel(unsigned int cpu);

/* The counts of a CPU, and below them those of the CPU that executes now. */
uint64_t counted_on(unsigned int cpu, enum half half);
uint64_t counted(enum half half);
uint64_t flushes_counted(enum flush flush);

/* From now on, writes a line with the number of the CPU to the log whenever another CPU than before executes. */
void tell_cpus(void);

/* Writes a line for each CPU, as count.c describes; nothing if there is only one. */
void write_counts(void);

/* The number of the CPU that executes now; the number of CPUs if it is not known. */
unsigned int number_now(void);

/* CR3 and FS.base of the CPU that executes now. CR3 is 0 if QEMU is too old to report it; FS.base is 0 if
 * there is only one CPU. */
unsigned long long cr3_now(void);
unsigned long long thread_now(void);

/* Stores the number of the system call that the CPU makes next. Returns 0 if QEMU is too old to report it. */
int call_number(unsigned long long *number);

#endif
