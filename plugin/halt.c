/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Under the instruction clock, QEMU's main loop advances the clock to the next timer whenever it wakes up and
 * finds all CPUs halted (icount_start_warp_timer in QEMU's softmmu/icount.c or accel/tcg/icount-common.c). A
 * CPU counts as halted before the instructions that it executed last are added to the clock. If the main loop
 * wakes up in between, the timer is late by these instructions, and two runs of a guest differ. The main loop
 * wakes up whenever the guest sets a timer, which Linux does just before it halts.
 *
 * Therefore a CPU executes HLT or MWAIT only after the main loop has gone back to sleep. The main loop can go
 * to sleep meanwhile, because a CPU that executes guest code does not hold QEMU's lock.
 */
#include "halt.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAUSE_MICROSECONDS = 20 };

/* The descriptor of the file that states whether the main loop's thread, the first of the process, sleeps; -1
 * if it cannot be opened. */
static int status = -1;

/* Whether the main loop sleeps. Also true if its state cannot be read. */
static int main_loop_sleeps(void)
{
	char text[200];
	ssize_t length = pread(status, text, sizeof text - 1, 0);
	if (length <= 0)
		return 1;
	text[length] = 0;
	/* The name of the thread, in parentheses, can contain any character. */
	const char *behind = strrchr(text, ')');
	return !behind || (behind[1] == ' ' && behind[2] == 'S');
}

void wait_for_main_loop(void)
{
	while (!main_loop_sleeps())
		usleep(PAUSE_MICROSECONDS);
}

static void at_halt(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	wait_for_main_loop();
}

void halt_open(void)
{
	char path[60];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
	status = open(path, O_RDONLY | O_CLOEXEC);
}

void halt_translated(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size)
{
	static const uint8_t mwait[] = { 0x0f, 0x01, 0xc9 };
	int halts = (size == 1 && bytes[0] == 0xf4) || (size == sizeof mwait && memcmp(bytes, mwait, sizeof mwait) == 0);
	if (halts)
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_halt, QEMU_PLUGIN_CB_NO_REGS, NULL);
}
