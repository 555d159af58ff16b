/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Counts a kernel that runs no program. Its run begins at its entry, after the firmware, and ends with the machine.
 *
 * A kernel ends the machine by an OUT, to isa-debug-exit or to the register that turns the power off. Only
 * some devices of some versions of QEMU then exit at once. Otherwise the main loop stops the CPU as soon as
 * it wakes up, after a number of instructions that varies. Therefore the block that follows an OUT waits
 * until the main loop sleeps again. The main loop then either has nothing to do, or has asked the CPU to stop
 * and waits for it. In the second case, the CPU stops after this block, and the run has ended at the OUT.
 */
#include "alone.h"
#include "bytes.h"
#include "halt.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 64 };

/* The last OUT that could have ended the run: there was none, it was the last instruction, or the current
 * block follows it. */
enum out { NONE, JUST_NOW, BEFORE_THIS_BLOCK };

static struct {
	uint64_t first, end;
} ranges[MOST_RANGES];
static size_t range_count;
static uint64_t entry;
static int has_entry, has_begun;
static enum out last_out;

int alone_argument(const char *argument)
{
	char *end;
	if (strncmp(argument, "start=", 6) == 0) {
		entry = strtoull(argument + 6, NULL, 0);
		has_entry = 1;
		return 1;
	}
	if (strncmp(argument, "code=", 5) != 0)
		return 0;
	if (range_count < MOST_RANGES) {
		ranges[range_count].first = strtoull(argument + 5, &end, 0);
		ranges[range_count].end = *end == '-' ? strtoull(end + 1, NULL, 0) : 0;
		range_count++;
	}
	return 1;
}

int is_kernel(uint64_t address)
{
	if (address >> 63)
		return 1;
	for (size_t i = 0; i < range_count; i++)
		if (address >= ranges[i].first && address < ranges[i].end)
			return 1;
	return 0;
}

static void at_exit(qemu_plugin_id_t id, void *data)
{
	(void)id, (void)data;
	if (has_begun)
		end_run(last_out != NONE);
}

void alone_open(qemu_plugin_id_t id)
{
	if (has_entry)
		qemu_plugin_register_atexit_cb(id, at_exit, NULL);
}

static void at_block(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	if (last_out == JUST_NOW) {
		wait_for_main_loop();
		last_out = BEFORE_THIS_BLOCK;
	} else
		last_out = NONE;
}

void alone_translated(struct qemu_plugin_tb *block)
{
	if (has_entry)
		qemu_plugin_register_vcpu_insn_exec_cb(qemu_plugin_tb_get_insn(block, 0), at_block,
						       QEMU_PLUGIN_CB_NO_REGS, NULL);
}

static void at_out(unsigned int cpu, void *data)
{
	(void)cpu;
	note_counts(data != NULL);
	last_out = JUST_NOW;
}

/* Whether the instruction is an OUT, to a port in the instruction or in DX, or an OUTS. */
static int is_out(const uint8_t *bytes, size_t size)
{
	size_t at = 0;
	while (at + 1 < size && is_prefix(bytes[at]))
		at++;
	return (bytes[at] & 0xf6) == 0xe6 || (bytes[at] & 0xfe) == 0x6e;
}

int alone_enters(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size)
{
	uint64_t address = qemu_plugin_insn_vaddr(instruction);
	if (!has_entry)
		return 0;
	if (is_out(bytes, size))
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_out, QEMU_PLUGIN_CB_NO_REGS,
						       is_kernel(address) ? &entry : NULL);
	return !has_begun && address == entry;
}

int alone_begins(void)
{
	int begins = !has_begun;
	has_begun = 1;
	return begins;
}
