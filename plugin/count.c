/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts the TLB flushes and the instructions that any x86-64 guest executes, without symbols and without
 * help of the guest: the plugin recognises instructions by their bytes when they are translated. It writes
 * lines into QEMU's log, which also has the guest's exceptions and its loads of CR3 (-d int,mmu,plugin), so
 * that everything is in one order:
 *
 *     memwright count API                                          once, when it is loaded
 *     memwright mark CODE CPU CR3 INVLPG INVPCID CR4 USER KERNEL [THREAD]  a mark was executed
 *     memwright cr3 CPU CR3 INVLPG INVPCID CR4 USER KERNEL         this CPU loads CR3 next, which holds this now
 *     memwright enter USER KERNEL                                  the first instruction of an interrupt's handler is next
 *     memwright return USER KERNEL                                 IRETQ is next
 *     memwright switch USER KERNEL                                 the load of another task's stack pointer is next
 *     memwright counts CPU GS INVLPG INVPCID CR4 USER KERNEL       at the first and the last mark, and when a CPU starts
 *     memwright cpu CPU                                            the following instructions are this CPU's
 *     memwright call ADDRESS CR3 NUMBER                            with calls=on: SYSCALL is next, at this user address
 *
 * A mark is the 7-byte NOP of include/memwright/mark.h. With answers=PATH the guest stops at each mark until
 * an answer has come from there, so that the reader of the log can read the guest's memory. An answer is one
 * of three: a "."; a "g" and the addresses of the gates of vectors 0 to 255, 8 bytes each, which enables the
 * lines enter, return and switch; or an "e" and the number of kernel instructions that had begun at the end
 * of the run, 8 bytes. With profile=PATH,region=N a profile of that region is written to a separate file;
 * resumes=on is for a kernel that continues in calls that it had left (profile.c).
 *
 * For a kernel that runs no program, start=ADDRESS is its entry. A line as for the mark of the complete run
 * is written at the entry and at the end of the machine. Each code=FIRST-END is a range of addresses into
 * which the kernel was loaded.
 *
 * Counts are since the start, for the CPU that the line names or, if it names none, that the last line before
 * it named. An instruction is the kernel's if its address is in the upper half or in a range of
 * code=FIRST-END; others are user instructions. An instruction is counted when it begins, and the counts in
 * its own line exclude it. An instruction that faults begins a second time, so the log's reader subtracts
 * one. With counts=off the plugin counts and writes nothing, and only delays CPUs that halt (halt.c).
 *
 * cpus=N is the number of the guest's CPUs, which must take turns (thread=single). The lines counts and cpu,
 * and THREAD, are written only with several CPUs. GS is the base of GS in the kernel, and THREAD is the base
 * of FS. After the lines counts of all CPUs, one with the CPU number N has the counts that belong to no known
 * CPU. If QEMU is too old to report CR3 and NUMBER, CR3 is 0 and NUMBER is missing.
 */
#include "api.h"
#include "alone.h"
#include "bytes.h"
#include "counters.h"
#include "halt.h"
#include "profile.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MARK_MAGIC = 0x4d57, SLOTS = 1024 };

EXPORT int qemu_plugin_version = PLUGIN_API;

struct counts {
	unsigned long long flushes[FLUSHES], begun[HALVES];
};

static int answers = -1, tells_calls;
/* The counts after the last OUT of a kernel that runs alone. */
static struct counts noted;
/* The addresses of the gates, in a hash table. The bits of an address select a slot, and the address is in
 * the first slot from there on that was free. */
static uint64_t gates[SLOTS];
static int knows_gates;

static struct counts counts_now(void)
{
	struct counts now;
	for (int i = 0; i < FLUSHES; i++)
		now.flushes[i] = flushes_counted(i);
	for (int i = 0; i < HALVES; i++)
		now.begun[i] = counted(i);
	return now;
}

/* "INVLPG INVPCID CR4 USER KERNEL" */
static const char *words_of(const struct counts *counts, char *text, size_t room)
{
	snprintf(text, room, "%llu %llu %llu %llu %llu", counts->flushes[INVLPG], counts->flushes[INVPCID],
		 counts->flushes[CR4], counts->begun[USER], counts->begun[KERNEL]);
	return text;
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

/* Returns the slot with this address, or the free slot in which it would be stored. */
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

/* Waits for an answer. Returns the end of the run if the answer contains it, and UINT64_MAX otherwise. */
static uint64_t take_answer(void)
{
	char answer;
	uint64_t addresses[VECTORS], end = UINT64_MAX;
	/* If the reader of the log is gone, do not wait any more. */
	if (answers < 0)
		return end;
	if (!read_fully(&answer, 1) || (answer == 'g' && !read_fully(addresses, sizeof addresses)) ||
	    (answer == 'e' && !read_fully(&end, sizeof end)))
		answers = -1;
	else if (answer == 'g')
		take_gates(addresses);
	return end;
}

static void write_mark(unsigned int code, unsigned long long holds, const struct counts *counts, unsigned long long thread)
{
	char line[200], words[120];
	int length = snprintf(line, sizeof line, "memwright mark %u %u %llu %s", code, number_now(), holds,
			      words_of(counts, words, sizeof words));
	if (has_several_cpus())
		length += snprintf(line + length, sizeof line - length, " %llu", thread);
	snprintf(line + length, sizeof line - length, "\n");
	qemu_plugin_outs(line);
}

static void at_mark(unsigned int cpu, void *data)
{
	const struct mark *mark = data;
	(void)cpu;
	if (mark->code >> 1 == THE_RUN) {
		tell_cpus();
		write_counts();
	}
	struct counts now = counts_now();
	unsigned long long thread = thread_now();
	write_mark(mark->code, cr3_now(), &now, thread);
	profile_marked(mark, take_answer(), thread);
}

static void at_start(unsigned int cpu, void *data)
{
	if (alone_begins())
		at_mark(cpu, data);
}

void note_counts(int of_kernel)
{
	noted = counts_now();
	noted.begun[of_kernel ? KERNEL : USER]++;
}

/* No CPU runs any more, so its registers cannot be read, and nothing waits for an answer. */
void end_run(int where_noted)
{
	struct mark mark = { .code = THE_RUN << 1 | 1 };
	struct counts counts = where_noted ? noted : counts_now();
	write_mark(mark.code, 0, &counts, 0);
	profile_marked(&mark, counts.begun[KERNEL], 0);
}

static void write_event(const char *what)
{
	char line[100];
	struct counts now = counts_now();
	snprintf(line, sizeof line, "memwright %s %llu %llu\n", what, now.begun[USER], now.begun[KERNEL]);
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

static void at_cr3(unsigned int cpu, void *data)
{
	char line[200], words[120];
	struct counts now = counts_now();
	(void)cpu, (void)data;
	snprintf(line, sizeof line, "memwright cr3 %u %llu %s\n", number_now(), cr3_now(), words_of(&now, words, sizeof words));
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

/* Returns whether the handler of an interrupt can begin with these bytes: ENDBR64, CLAC, CLD, PUSH of a
 * constant, or a NOP in its place. */
static int may_begin_handler(const uint8_t *bytes, size_t size)
{
	static const uint8_t endbr64[] = { 0xf3, 0x0f, 0x1e, 0xfa }, clac[] = { 0x0f, 0x01, 0xca };
	if (size >= 4 && memcmp(bytes, endbr64, 4) == 0)
		return 1;
	if (size >= 3 && (memcmp(bytes, clac, 3) == 0 || (bytes[0] == 0x0f && bytes[1] == 0x1f)))
		return 1;
	return bytes[0] == 0xfc || bytes[0] == 0x68 || bytes[0] == 0x6a || bytes[0] == 0x90;
}

/* Registers callbacks for the begin and end of interrupts, and for task switches, which load RSP from the
 * structure at RSI. */
static void tell_interrupts(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size, int begins)
{
	uint64_t address = qemu_plugin_insn_vaddr(instruction);
	if (!is_kernel(address))
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
	counters_told(instruction, bytes, size);
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
		/* With the prefix REX.R, the same number means another register. */
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
	counters_translated(block);
	profile_translated(block);
	alone_translated(block);
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
		/* The line is registered before the count, so that the counts in the line exclude this
		 * instruction. */
		tell(block, i);
		count_instruction(instruction, is_kernel(qemu_plugin_insn_vaddr(instruction)) ? KERNEL : USER);
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
	unsigned int region = 0, cpus = 1;
	int resumes = 0, counts = 1;
	(void)about;
	for (int i = 0; i < count; i++)
		if (strncmp(arguments[i], "answers=", 8) == 0)
			answers = open(arguments[i] + 8, O_RDONLY | O_CLOEXEC);
		else if (strncmp(arguments[i], "cpus=", 5) == 0)
			cpus = strtoul(arguments[i] + 5, NULL, 10);
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
	if (!counters_open(id, cpus)) {
		fprintf(stderr, "several CPUs are counted by a later QEMU\n");
		return -1;
	}
	if (profile)
		profile_open(profile, region, resumes);
	snprintf(line, sizeof line, "memwright count %d\n", PLUGIN_API);
	qemu_plugin_outs(line);
	qemu_plugin_register_vcpu_tb_trans_cb(id, at_translation);
	return 0;
}
