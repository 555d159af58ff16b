/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts the TLB flushes and the instructions that any x86-64 guest executes, without its symbols or its help: it recognises
 * instructions by their bytes when they are translated. It writes lines into QEMU's log, which also has the guest's
 * exceptions and its loads of CR3 (-d int,mmu,plugin), so that everything is in one order:
 *
 *     memwright count API                                      once, when it is loaded
 *     memwright mark CODE CPU CR3 INVLPG INVPCID CR4 USER KERNEL   a mark was executed; counts are since the start
 *     memwright cr3 CPU CR3 INVLPG INVPCID CR4 USER KERNEL         this CPU loads CR3 next, which holds this now
 *     memwright enter USER KERNEL                                  the first instruction of an interrupt's handler is next
 *     memwright return USER KERNEL                                 IRETQ is next
 *     memwright switch USER KERNEL                                 the load of another task's stack pointer is next
 *     memwright call ADDRESS CR3 NUMBER                            with calls=on: SYSCALL is next, at this user address
 *
 * A mark is the 7-byte NOP of include/memwright/mark.h. With answers=PATH the guest stops at each mark until an answer has
 * come from there, so that the reader of the log can read the guest's memory. An answer is a point; a "g" and the addresses
 * of the gates of vectors 0 to 255, 8 bytes each, which enables the last three lines; or an "e" and the number of kernel
 * instructions that had begun at the end of the run, 8 bytes. With profile=PATH,region=N a profile of that region is written
 * to a separate file; resumes=on is for a kernel that continues in calls that it had left (profile.c).
 *
 * For a kernel that runs no program, start=ADDRESS is its entry, where a line like that of the mark of the run is written, as
 * at the end of the machine; and code=FIRST-END, repeated, is where it was loaded.
 *
 * An instruction is the kernel's if its address is in the upper half or, with code=FIRST-END, in one of these ranges; others
 * are user instructions. It is counted when it begins, and the counts in
 * its own line exclude it. One that faults begins again, and the log's reader subtracts it. With instructions=off, for
 * several CPUs, none are counted, and USER and KERNEL are missing. With counts=off the plugin counts and writes nothing, and
 * only delays CPUs that halt (halt.c). CPUs must take turns (thread=single). CR3 is 0, and NUMBER is missing, where QEMU is too
 * old to report them; otherwise the CPU in its line is not reliable: where CPUs take turns, QEMU 10.0 passes the one that
 * translated, and generates wrong code for counters of several CPUs.
 */
#include "api.h"
#include "alone.h"
#include "bytes.h"
#include "halt.h"
#include "profile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MARK_MAGIC = 0x4d57, THE_RUN = 32767, SLOTS = 1024 };
enum half { USER, KERNEL, HALVES };
enum flush { INVLPG, INVPCID, CR4, FLUSHES };

EXPORT int qemu_plugin_version = PLUGIN_API;

struct counts {
	unsigned long long flushes[FLUSHES], begun[HALVES];
};

static int answers = -1, counts_instructions = 1, tells_calls;
static unsigned long long flushes[FLUSHES];
/* The counts after the last OUT of a kernel that runs alone. */
static struct counts noted;
/* The gates' addresses in a hash table, each in the first free slot from the one that its bits select. */
static uint64_t gates[SLOTS];
static int knows_gates;

#if PLUGIN_API < 2
static uint64_t counters[HALVES];

static void count_here(struct qemu_plugin_insn *instruction, enum half half)
{
	qemu_plugin_register_vcpu_insn_exec_inline(instruction, QEMU_PLUGIN_INLINE_ADD_U64, &counters[half], 1);
}

static unsigned long long counted(enum half half)
{
	return counters[half];
}

uint64_t kernel_begun(void)
{
	return counters[KERNEL];
}

uint64_t user_begun(void)
{
	return counters[USER];
}

static void make_counters(qemu_plugin_id_t id)
{
	(void)id;
}

static unsigned long long cr3_now(void)
{
	return 0;
}

static int call_number(unsigned long long *number)
{
	(void)number;
	return 0;
}
#else
static struct qemu_plugin_scoreboard *counters;

static qemu_plugin_u64 counter(enum half half)
{
	return (qemu_plugin_u64){ counters, half * sizeof(uint64_t) };
}

static void count_here(struct qemu_plugin_insn *instruction, enum half half)
{
	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, QEMU_PLUGIN_INLINE_ADD_U64, counter(half), 1);
}

static unsigned long long counted(enum half half)
{
	return qemu_plugin_u64_sum(counter(half));
}

/* Returns the count of CPU 0: profiles are taken with one CPU. */
uint64_t kernel_begun(void)
{
	return qemu_plugin_u64_get(counter(KERNEL), 0);
}

uint64_t user_begun(void)
{
	return qemu_plugin_u64_get(counter(USER), 0);
}

static struct qemu_plugin_register *cr3, *rax;
static GByteArray *bytes_of_register;

/* Handles are the same for every CPU of a kind. */
static void at_cpu(qemu_plugin_id_t id, unsigned int cpu)
{
	(void)id, (void)cpu;
	GArray *registers = qemu_plugin_get_registers();
	qemu_plugin_reg_descriptor *all = (void *)registers->data;
	for (unsigned int i = 0; i < registers->len; i++)
		if (strcmp(all[i].name, "cr3") == 0)
			cr3 = all[i].handle;
		else if (strcmp(all[i].name, "rax") == 0)
			rax = all[i].handle;
	g_array_free(registers, 1);
}

static unsigned long long value_of(struct qemu_plugin_register *one)
{
	uint64_t value = 0;
	if (!one)
		return 0;
	g_byte_array_set_size(bytes_of_register, 0);
	int size = qemu_plugin_read_register(one, bytes_of_register);
	if (size > 0 && size <= (int)sizeof value)
		memcpy(&value, bytes_of_register->data, size);
	return value;
}

static unsigned long long cr3_now(void)
{
	return value_of(cr3);
}

static int call_number(unsigned long long *number)
{
	*number = value_of(rax);
	return rax != NULL;
}

static void make_counters(qemu_plugin_id_t id)
{
	counters = qemu_plugin_scoreboard_new(HALVES * sizeof(uint64_t));
	bytes_of_register = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, at_cpu);
}
#endif

static struct counts counts_now(void)
{
	struct counts now = { .begun = { 0 } };
	memcpy(now.flushes, flushes, sizeof flushes);
	if (counts_instructions) {
		now.begun[USER] = counted(USER);
		now.begun[KERNEL] = counted(KERNEL);
	}
	return now;
}

/* " USER KERNEL", if instructions are counted. */
static const char *begun(char *text, size_t room, unsigned long long user, unsigned long long kernel)
{
	text[0] = 0;
	if (counts_instructions)
		snprintf(text, room, " %llu %llu", user, kernel);
	return text;
}

/* The same, of now. */
static const char *instructions(char *text, size_t room)
{
	struct counts now = counts_now();
	return begun(text, room, now.begun[USER], now.begun[KERNEL]);
}

static int read_fully(void *to, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = read(answers, (char *)to + done, size - done);
		if (got <= 0)
			return 0;
		done += got;
	}
	return 1;
}

/* Returns the slot that has this address, or the free one where it would go. */
static size_t slot_of(uint64_t address)
{
	size_t slot = (address >> 3) % SLOTS;
	while (gates[slot] && gates[slot] != address)
		slot = (slot + 1) % SLOTS;
	return slot;
}

static void take_gates(const uint64_t *addresses)
{
	memset(gates, 0, sizeof gates);
	for (int i = FIRST_INTERRUPT; i < VECTORS; i++)
		if (addresses[i])
			gates[slot_of(addresses[i])] = addresses[i];
	knows_gates = 1;
	profile_gates(addresses);
}

/* Waits for an answer. Returns the end of the run, if the answer has it. */
static uint64_t take_answer(void)
{
	char answer;
	uint64_t addresses[VECTORS], end = UINT64_MAX;
	/* If the reader is gone, do not wait any more. */
	if (answers < 0)
		return end;
	if (!read_fully(&answer, 1) || (answer == 'g' && !read_fully(addresses, sizeof addresses)) ||
	    (answer == 'e' && !read_fully(&end, sizeof end)))
		answers = -1;
	else if (answer == 'g')
		take_gates(addresses);
	return end;
}

static void write_mark(unsigned int code, unsigned int cpu, unsigned long long holds, const struct counts *counts)
{
	char line[200], text[60];
	snprintf(line, sizeof line, "memwright mark %u %u %llu %llu %llu %llu%s\n", code, cpu, holds, counts->flushes[INVLPG],
		 counts->flushes[INVPCID], counts->flushes[CR4],
		 begun(text, sizeof text, counts->begun[USER], counts->begun[KERNEL]));
	qemu_plugin_outs(line);
}

static void at_mark(unsigned int cpu, void *data)
{
	const struct mark *mark = data;
	struct counts now = counts_now();
	write_mark(mark->code, cpu, cr3_now(), &now);
	profile_marked(mark, take_answer());
}

static void at_start(unsigned int cpu, void *data)
{
	if (alone_begins())
		at_mark(cpu, data);
}

void note_counts(int of_kernel)
{
	noted = counts_now();
	if (counts_instructions)
		noted.begun[of_kernel ? KERNEL : USER]++;
}

/* No CPU runs any more, so its registers cannot be read, and nothing waits for an answer. */
void end_run(int where_noted)
{
	struct mark mark = { .code = THE_RUN << 1 | 1 };
	struct counts counts = where_noted ? noted : counts_now();
	write_mark(mark.code, 0, 0, &counts);
	profile_marked(&mark, counts.begun[KERNEL]);
}

static void write_event(const char *what)
{
	char line[100], counts[60];
	snprintf(line, sizeof line, "memwright %s%s\n", what, instructions(counts, sizeof counts));
	qemu_plugin_outs(line);
}

static void at_entry(unsigned int cpu, void *data)
{
	uint64_t address = (uintptr_t)data;
	(void)cpu;
	if (knows_gates && gates[slot_of(address)] == address)
		write_event("enter");
}

static void at_event(unsigned int cpu, void *data)
{
	(void)cpu;
	if (knows_gates)
		write_event(data);
}

static void at_flush(unsigned int cpu, void *data)
{
	(void)cpu;
	flushes[(uintptr_t)data]++;
}

static void count_flush(struct qemu_plugin_insn *instruction, enum flush flush)
{
	qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_flush, QEMU_PLUGIN_CB_NO_REGS, (void *)(uintptr_t)flush);
}

static void at_cr3(unsigned int cpu, void *data)
{
	char line[200], counts[60];
	(void)data;
	snprintf(line, sizeof line, "memwright cr3 %u %llu %llu %llu %llu%s\n", cpu, cr3_now(), flushes[INVLPG],
		 flushes[INVPCID], flushes[CR4], instructions(counts, sizeof counts));
	qemu_plugin_outs(line);
}

static void at_call(unsigned int cpu, void *data)
{
	char line[100];
	unsigned long long number;
	(void)cpu;
	int length = snprintf(line, sizeof line, "memwright call %llu %llu", (unsigned long long)(uintptr_t)data, cr3_now());
	if (call_number(&number))
		length += snprintf(line + length, sizeof line - length, " %llu", number);
	snprintf(line + length, sizeof line - length, "\n");
	qemu_plugin_outs(line);
}

/* Returns whether a handler of interrupts can begin so: ENDBR64, CLAC, CLD, PUSH of a constant, or a NOP in its place. */
static int may_begin_handler(const uint8_t *bytes, size_t size)
{
	static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa }, clac[] = { 0x0f, 0x01, 0xca };
	if (size >= 4 && memcmp(bytes, endbr64, 4) == 0)
		return 1;
	if (size >= 3 && (memcmp(bytes, clac, 3) == 0 || (bytes[0] == 0x0f && bytes[1] == 0x1f)))
		return 1;
	return bytes[0] == 0xfc || bytes[0] == 0x68 || bytes[0] == 0x6a || bytes[0] == 0x90;
}

/* Callbacks for the begin and end of interrupts and for task switches, which load RSP from the structure at RSI. */
static void tell_interrupts(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size, int begins)
{
	uint64_t address = qemu_plugin_insn_vaddr(instruction);
	if (!counts_instructions || !is_kernel(address))
		return;
	if (begins && may_begin_handler(bytes, size))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_entry, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)address);
	else if (size == 2 && bytes[0] == 0x48 && bytes[1] == 0xcf) {
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, profile_leaves, QEMU_PLUGIN_CB_NO_REGS, NULL);
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_event, QEMU_PLUGIN_CB_NO_REGS, "return");
	} else if (size == 3 && bytes[0] == 0x48 && bytes[1] == 0x0f && bytes[2] == 0x07)
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, profile_leaves, QEMU_PLUGIN_CB_NO_REGS, NULL);
	else if (size == 7 && bytes[0] == 0x48 && bytes[1] == 0x8b && bytes[2] == 0xa6) {
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, profile_switches, QEMU_PLUGIN_CB_NO_REGS, NULL);
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_event, QEMU_PLUGIN_CB_NO_REGS, "switch");
	}
}

static void tell(struct qemu_plugin_tb *block, size_t place)
{
	struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, place);
	uint8_t bytes[16] = { 0 };
	size_t size = read_bytes(instruction, bytes, sizeof bytes - 4), at = 0;
	unsigned int displacement, extended = 0;
	halt_translated(instruction, bytes, size);
	if (alone_enters(instruction, bytes, size))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_start, QEMU_PLUGIN_CB_R_REGS,
						       profile_mark(block, place, THE_RUN << 1));
	tell_interrupts(instruction, bytes, size, place == 0);
	uint64_t address = qemu_plugin_insn_vaddr(instruction);
	if (tells_calls && size == 2 && bytes[0] == 0x0f && bytes[1] == 0x05 && !(address >> 63))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_call, QEMU_PLUGIN_CB_R_REGS,
						       (void *)(uintptr_t)address);
	if (size == 7 && bytes[0] == 0x0f && bytes[1] == 0x1f && bytes[2] == 0x80) {
		memcpy(&displacement, bytes + 3, sizeof displacement);
		if (displacement >> 16 == MARK_MAGIC)
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_mark, QEMU_PLUGIN_CB_R_REGS,
							       profile_mark(block, place, displacement & 0xffff));
		return;
	}
	while (at < size && is_prefix(bytes[at])) {
		/* REX.R selects another register with the same number. */
		extended = (bytes[at] & 0xf4) == 0x44;
		at++;
	}
	if (at + 2 >= size || bytes[at] != 0x0f)
		return;
	uint8_t modrm = bytes[at + 2], reg = modrm >> 3 & 7;
	if (bytes[at + 1] == 0x01 && reg == 7 && modrm < 0xc0)
		count_flush(instruction, INVLPG);
	else if (bytes[at + 1] == 0x38 && bytes[at + 2] == 0x82)
		count_flush(instruction, INVPCID);
	else if (bytes[at + 1] == 0x22 && reg == 4 && !extended)
		count_flush(instruction, CR4);
	else if (bytes[at + 1] == 0x22 && reg == 3 && !extended)
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_cr3, QEMU_PLUGIN_CB_R_REGS, NULL);
}

static void at_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);
	(void)id;
	profile_translated(block);
	alone_translated(block);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
		/* Registers the line before the count, so that the counts in the line exclude this instruction. */
		tell(block, i);
		if (counts_instructions)
			count_here(instruction, is_kernel(qemu_plugin_insn_vaddr(instruction)) ? KERNEL : USER);
	}
}

static void at_uncounted_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
	size_t count = qemu_plugin_tb_n_insns(block);
	(void)id;
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
		uint8_t bytes[4] = { 0 };
		halt_translated(instruction, bytes, read_bytes(instruction, bytes, sizeof bytes));
	}
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *about, int count, char **arguments)
{
	char line[40];
	const char *profile = NULL;
	unsigned int region = 0;
	int resumes = 0, counts = 1;
	(void)about;
	for (int i = 0; i < count; i++)
		if (strncmp(arguments[i], "answers=", 8) == 0)
			answers = open(arguments[i] + 8, O_RDONLY | O_CLOEXEC);
		else if (strcmp(arguments[i], "instructions=off") == 0)
			counts_instructions = 0;
		else if (strcmp(arguments[i], "counts=off") == 0)
			counts = 0;
		else if (strncmp(arguments[i], "profile=", 8) == 0)
			profile = strdup(arguments[i] + 8);
		else if (strcmp(arguments[i], "calls=on") == 0)
			tells_calls = 1;
		else if (strcmp(arguments[i], "resumes=on") == 0)
			resumes = 1;
		else if (strncmp(arguments[i], "region=", 7) == 0)
			region = strtoul(arguments[i] + 7, NULL, 10);
		else
			alone_argument(arguments[i]);
	halt_open();
	alone_open(id);
	if (!counts) {
		qemu_plugin_register_vcpu_tb_trans_cb(id, at_uncounted_translation);
		return 0;
	}
	make_counters(id);
	if (profile)
		profile_open(profile, region, resumes);
	snprintf(line, sizeof line, "memwright count %d\n", PLUGIN_API);
	qemu_plugin_outs(line);
	qemu_plugin_register_vcpu_tb_trans_cb(id, at_translation);
	return 0;
}
