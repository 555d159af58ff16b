/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts the instructions and the flushes of each CPU.
 *
 * With one CPU, the code that QEMU generates for an instruction adds to a counter. With several CPUs that
 * take turns, this would be wrong in QEMU 10: the generated code always uses the number of the CPU that
 * translated the instruction, and multiplies that constant in place by the size of a scoreboard's element.
 * Therefore the elements have one byte, so that QEMU multiplies by 1, and the counters overlap, one byte
 * apart. The value of a counter has no meaning by itself. But while one block of instructions executes, only
 * the block's counter changes, and the difference is the number of instructions of the block that have begun.
 *
 * The CPU that executes is identified by the base of GS, which every x86-64 kernel sets to the address of
 * per-CPU data in the upper half; in user mode, that base is in KERNEL_GS_BASE. The callback of each block
 * reads the base, which takes as long as the block itself. While the kernel starts, up to the first SYSRETQ
 * or mark, only the callbacks of HLT and PAUSE read it, and no instructions are counted. QEMU's number of the
 * CPU is passed to the callbacks of memory accesses by IRETQ, far returns and LTR, because QEMU's own
 * functions make these accesses. A CPU that has executed none of these instructions when the run begins, or
 * that starts later, gets the first free number, in the order in which the bases appeared.
 */
#include "counters.h"
#include "alone.h"

#include <stdio.h>
#include <string.h>

static unsigned int cpu_count;

enum { UNKNOWN = -1, NOT_USED = -2 };

struct cpu {
	uint64_t base;
	/* QEMU's number of the CPU, or a negative value. */
	int number;
	enum half half;
	uint64_t begun[HALVES], flushes[FLUSHES];
};

/* The first element has the counts before the kernel has set a base or, if there is only one CPU, all counts. */
static struct cpu cpus[CPUS] = { { .number = UNKNOWN } };
static unsigned int running, known = 1;

int has_several_cpus(void)
{
	return cpu_count > 1;
}

unsigned int cpus_known(void)
{
	return known;
}

unsigned int cpu_now(void)
{
	return running;
}

int was_in_kernel(unsigned int cpu)
{
	return cpus[cpu].half == KERNEL;
}

unsigned int number_now(void)
{
	if (!has_several_cpus())
		return 0;
	return cpus[running].number >= 0 ? (unsigned int)cpus[running].number : cpu_count;
}

uint64_t counted(enum half half)
{
	return counted_on(running, half);
}

uint64_t flushes_counted(enum flush flush)
{
	return cpus[running].flushes[flush];
}

static void at_flush(unsigned int cpu, void *data)
{
	(void)cpu;
	cpus[running].flushes[(uintptr_t)data]++;
}

void count_flush(struct qemu_plugin_insn *instruction, enum flush flush)
{
	qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_flush, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)flush);
}

#if PLUGIN_API < 2
static uint64_t counters[HALVES];

void count_instruction(struct qemu_plugin_insn *instruction, enum half half)
{
	qemu_plugin_register_vcpu_insn_exec_inline(instruction, QEMU_PLUGIN_INLINE_ADD_U64, &counters[half], 1);
}

uint64_t counted_on(unsigned int cpu, enum half half)
{
	(void)cpu;
	return counters[half];
}

int counters_open(qemu_plugin_id_t id, unsigned int count)
{
	(void)id;
	return count == 1;
}

void counters_translated(struct qemu_plugin_tb *block)
{
	(void)block;
}

void counters_told(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size)
{
	(void)instruction, (void)bytes, (void)size;
}

void tell_cpus(void)
{
}

void write_counts(void)
{
}

unsigned long long cr3_now(void)
{
	return 0;
}

unsigned long long thread_now(void)
{
	return 0;
}

int call_number(unsigned long long *number)
{
	(void)number;
	return 0;
}
#else
static struct qemu_plugin_scoreboard *counters;
/* The registers that are read, and their names in QEMU. */
enum name { CR3, RAX, FS_BASE, GS_BASE, KERNEL_GS_BASE, REGISTERS };
static const char *const names[REGISTERS] = { "cr3", "rax", "fs_base", "gs_base", "k_gs_base" };
static struct qemu_plugin_register *registers[REGISTERS];
static GByteArray *bytes_read;
/* Whether the run has begun. The numbers of the CPUs are then fixed. */
static int telling;
/* Whether every block is attributed to its CPU. */
static int attributing;

/* The counters of several CPUs, each of eight bytes, one byte apart. */
static uint8_t overlaid[CPUS + sizeof(uint64_t)];
/* The counter of the block that executes, the counter's value when the block began, and the half of the
 * block's address. */
static unsigned int block_counter;
static uint64_t block_began;
static enum half block_half;

static uint64_t value_of(unsigned int counter)
{
	uint64_t value;
	memcpy(&value, overlaid + counter, sizeof value);
	return value;
}

/* Adds the instructions of the current block that have begun since the last call to the counts of the CPU
 * that executes. */
static void settle(void)
{
	uint64_t value = value_of(block_counter);
	if (!attributing)
		return;
	cpus[running].begun[block_half] += value - block_began;
	block_began = value;
}

static qemu_plugin_u64 counter(enum half half)
{
	if (!has_several_cpus())
		return (qemu_plugin_u64){ counters, half * sizeof(uint64_t) };
	/* QEMU adds this offset to the address of the scoreboard, which may move until all CPUs have been
	 * created. */
	return (qemu_plugin_u64){ counters, overlaid - (uint8_t *)qemu_plugin_scoreboard_find(counters, 0) };
}

void count_instruction(struct qemu_plugin_insn *instruction, enum half half)
{
	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, QEMU_PLUGIN_INLINE_ADD_U64, counter(half), 1);
}

uint64_t counted_on(unsigned int cpu, enum half half)
{
	if (!has_several_cpus())
		return qemu_plugin_u64_get(counter(half), 0);
	settle();
	return cpus[cpu].begun[half];
}

static uint64_t read_register(enum name name)
{
	uint64_t value = 0;
	if (!registers[name])
		return 0;
	g_byte_array_set_size(bytes_read, 0);
	int size = qemu_plugin_read_register(registers[name], bytes_read);
	if (size > 0 && size <= (int)sizeof value)
		memcpy(&value, bytes_read->data, size);
	return value;
}

unsigned long long cr3_now(void)
{
	return read_register(CR3);
}

unsigned long long thread_now(void)
{
	return has_several_cpus() ? read_register(FS_BASE) : 0;
}

int call_number(unsigned long long *number)
{
	*number = read_register(RAX);
	return registers[RAX] != NULL;
}

/* Returns the sums over the elements with this CPU number or, if `number` is negative, over all elements
 * without a number. */
static struct cpu sum_of(int number)
{
	struct cpu sum = { .number = number };
	for (unsigned int cpu = 0; cpu < known; cpu++) {
		if (cpus[cpu].number != number && (cpus[cpu].number >= 0 || number >= 0))
			continue;
		sum.base = cpus[cpu].base;
		for (int i = 0; i < HALVES; i++)
			sum.begun[i] += cpus[cpu].begun[i];
		for (int i = 0; i < FLUSHES; i++)
			sum.flushes[i] += cpus[cpu].flushes[i];
	}
	return sum;
}

static void write_counts_of(int number)
{
	char line[200];
	struct cpu sum = sum_of(number);
	snprintf(line, sizeof line, "memwright counts %u %llu %llu %llu %llu %llu %llu\n",
		 number >= 0 ? (unsigned int)number : cpu_count, (unsigned long long)sum.base,
		 (unsigned long long)sum.flushes[INVLPG], (unsigned long long)sum.flushes[INVPCID],
		 (unsigned long long)sum.flushes[CR4], (unsigned long long)sum.begun[USER],
		 (unsigned long long)sum.begun[KERNEL]);
	qemu_plugin_outs(line);
}

static int is_taken(int number)
{
	for (unsigned int cpu = 1; cpu < known; cpu++)
		if (cpus[cpu].number == number)
			return 1;
	return 0;
}

/* Returns the first number that no CPU has, or UNKNOWN if there is none. */
static int free_number(void)
{
	for (unsigned int number = 0; number < cpu_count; number++)
		if (!is_taken(number))
			return number;
	return UNKNOWN;
}

/* Clears the counts that belong to no known CPU. */
static void forget_unknown(void)
{
	memset(cpus[0].begun, 0, sizeof cpus[0].begun);
	memset(cpus[0].flushes, 0, sizeof cpus[0].flushes);
}

/* Adds a CPU that starts during the run. The counts without a base since they were last cleared belong to
 * this CPU. */
static void add_late(struct cpu *late)
{
	late->number = free_number();
	memcpy(late->begun, cpus[0].begun, sizeof late->begun);
	memcpy(late->flushes, cpus[0].flushes, sizeof late->flushes);
	forget_unknown();
	if (late->number >= 0)
		write_counts_of(late->number);
}

/* Returns the CPU with this base, which is new if it was not seen before. */
static unsigned int cpu_with(uint64_t base)
{
	for (unsigned int cpu = 1; cpu < known; cpu++)
		if (cpus[cpu].base == base)
			return cpu;
	if (known == CPUS)
		return 0;
	cpus[known] = (struct cpu){ .base = base, .number = UNKNOWN, .half = KERNEL };
	known++;
	if (telling)
		add_late(&cpus[known - 1]);
	return known - 1;
}

/* Returns the CPU that executes. A program can set a base in the upper half only by WRGSBASE. */
static unsigned int find_cpu(void)
{
	uint64_t base = read_register(GS_BASE);
	if (!(base >> 63))
		base = read_register(KERNEL_GS_BASE);
	if (running && cpus[running].base == base)
		return running;
	return base >> 63 ? cpu_with(base) : 0;
}

static void tell_cpu(void)
{
	char line[60];
	snprintf(line, sizeof line, "memwright cpu %u\n", number_now());
	qemu_plugin_outs(line);
}

/* From now on, attributes every block to its CPU. */
static void attribute(void)
{
	if (attributing)
		return;
	attributing = 1;
	running = find_cpu();
	block_began = value_of(block_counter);
}

static void at_sysretq(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	attribute();
}

/* Called when a CPU waits. Before blocks are attributed, this adds the CPU to the known CPUs. */
static void at_wait(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	if (!attributing)
		find_cpu();
}

static void at_block(unsigned int translated_by, void *half)
{
	if (!attributing) {
		block_counter = translated_by;
		block_half = (uintptr_t)half;
		return;
	}
	settle();
	unsigned int cpu = find_cpu();
	int changes = cpu != running;
	running = cpu;
	block_counter = translated_by;
	block_began = value_of(translated_by);
	block_half = (uintptr_t)half;
	cpus[cpu].half = block_half;
	if (changes && telling)
		tell_cpu();
}

void counters_translated(struct qemu_plugin_tb *block)
{
	struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(block, 0);
	if (!has_several_cpus())
		return;
	enum half half = is_kernel(qemu_plugin_insn_vaddr(first)) ? KERNEL : USER;
	qemu_plugin_register_vcpu_insn_exec_cb(first, at_block, QEMU_PLUGIN_CB_R_REGS, (void *)(uintptr_t)half);
}

/* Called for accesses that QEMU's own functions make, which pass the number of the CPU that executes. */
static void at_numbered(unsigned int cpu, qemu_plugin_meminfo_t about, uint64_t address, void *data)
{
	(void)about, (void)address, (void)data;
	unsigned int found = attributing ? running : find_cpu();
	if (found && !telling && cpu < cpu_count)
		cpus[found].number = cpu;
}

void counters_told(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size)
{
	int iretq = size == 2 && bytes[0] == 0x48 && bytes[1] == 0xcf;
	int retfq = size == 2 && bytes[0] == 0x48 && bytes[1] == 0xcb;
	int ltr = size == 3 && bytes[0] == 0x0f && bytes[1] == 0x00 && (bytes[2] >> 3 & 7) == 3;
	if (has_several_cpus() && (iretq || retfq || ltr))
		qemu_plugin_register_vcpu_mem_cb(instruction, at_numbered, QEMU_PLUGIN_CB_R_REGS, QEMU_PLUGIN_MEM_RW, NULL);
	int hlt = size == 1 && bytes[0] == 0xf4, pause = size == 2 && bytes[0] == 0xf3 && bytes[1] == 0x90;
	if (has_several_cpus() && (hlt || pause))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_wait, QEMU_PLUGIN_CB_R_REGS, NULL);
	int sysretq = size == 3 && bytes[0] == 0x48 && bytes[1] == 0x0f && bytes[2] == 0x07;
	if (has_several_cpus() && sysretq)
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_sysretq, QEMU_PLUGIN_CB_R_REGS, NULL);
}

/* Adds the counts of earlier elements with the same CPU number to this element: the base of CPU 0 changed
 * while the kernel started. */
static void take_over(unsigned int cpu)
{
	for (unsigned int earlier = 1; earlier < cpu; earlier++) {
		if (cpus[cpu].number < 0 || cpus[earlier].number != cpus[cpu].number)
			continue;
		for (int i = 0; i < HALVES; i++)
			cpus[cpu].begun[i] += cpus[earlier].begun[i];
		for (int i = 0; i < FLUSHES; i++)
			cpus[cpu].flushes[i] += cpus[earlier].flushes[i];
		cpus[earlier] = (struct cpu){ .base = cpus[earlier].base, .number = NOT_USED };
	}
}

void tell_cpus(void)
{
	if (!has_several_cpus() || telling)
		return;
	attribute();
	settle();
	for (unsigned int cpu = 1; cpu < known; cpu++)
		take_over(cpu);
	for (unsigned int cpu = 1; cpu < known; cpu++)
		if (cpus[cpu].number == UNKNOWN)
			cpus[cpu].number = free_number();
	forget_unknown();
	telling = 1;
	tell_cpu();
}

void write_counts(void)
{
	if (!has_several_cpus())
		return;
	settle();
	for (unsigned int number = 0; number <= cpu_count; number++)
		write_counts_of(number < cpu_count ? (int)number : UNKNOWN);
}

/* Handles are the same for every CPU of a kind. */
static void at_cpu(qemu_plugin_id_t id, unsigned int cpu)
{
	(void)id, (void)cpu;
	GArray *found = qemu_plugin_get_registers();
	qemu_plugin_reg_descriptor *all = (void *)found->data;
	for (unsigned int i = 0; i < found->len; i++)
		for (int name = 0; name < REGISTERS; name++)
			if (strcmp(all[i].name, names[name]) == 0)
				registers[name] = all[i].handle;
	g_array_free(found, 1);
}

int counters_open(qemu_plugin_id_t id, unsigned int count)
{
	cpu_count = count;
	counters = qemu_plugin_scoreboard_new(has_several_cpus() ? 1 : HALVES * sizeof(uint64_t));
	bytes_read = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, at_cpu);
	return 1;
}
#endif
