/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts the instructions and the flushes of each CPU; see counters.c.
 */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "api.h"

enum half { USER, KERNEL, HALVES };
enum flush { INVLPG, INVPCID, CR4, FLUSHES };
/* The maximum number of CPUs. It is larger than that of a guest, because CPU 0 counts as another one whenever
 * its base changes. */
enum { CPUS = 256 };

/* Prepares to count for a guest with this many CPUs. Returns 0 if this QEMU cannot tell them apart. */
int counters_open(qemu_plugin_id_t id, unsigned int cpus);

/* Is called for each translated block, before other callbacks of its instructions are registered. */
void counters_translated(struct qemu_plugin_tb *block);

/* Is called for each translated instruction. */
void counters_told(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size);

/* Counts an instruction when it begins. */
void count_instruction(struct qemu_plugin_insn *instruction, enum half half);
void count_flush(struct qemu_plugin_insn *instruction, enum flush flush);

/* Whether the guest has several CPUs. */
int has_several_cpus(void);

/* The number of elements in use, one for each known CPU. The first one has what is counted for no known CPU. */
unsigned int cpus_known(void);

/* The CPU that executes now, below CPUS; 0 if there is only one. */
unsigned int cpu_now(void);

/* Whether the last instruction of this CPU was the kernel's. */
int was_in_kernel(unsigned int cpu);

/* The counts of a CPU, or of the CPU that executes now. */
uint64_t counted_on(unsigned int cpu, enum half half);
uint64_t counted(enum half half);
uint64_t flushes_counted(enum flush flush);

/* From now on, writes the number of the CPU to the log before each line of another CPU than the previous
 * line. */
void tell_cpus(void);

/* Writes a line for each CPU, as count.c describes; nothing if there is only one. */
void write_counts(void);

/* The number of the CPU that executes now; the number of CPUs if it is not known. */
unsigned int number_now(void);

/* CR3 and FS.base of that CPU. 0 if QEMU is too old to report CR3; the base is 0 if there is only one CPU. */
unsigned long long cr3_now(void);
unsigned long long thread_now(void);

/* The number of the system call that this CPU makes next. Returns 0 if QEMU is too old to report it. */
int call_number(unsigned long long *number);

#endif
