/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Keeps QEMU's main loop from advancing the clock while a CPU halts.
 */
#ifndef HALT_H
#define HALT_H

#include "api.h"

/* Prepares for halt_translated. */
void halt_open(void);

/* Returns once the main loop sleeps. */
void wait_for_main_loop(void);

/* Is called for each translated instruction. */
void halt_translated(struct qemu_plugin_insn *instruction, const uint8_t *bytes, size_t size);

#endif
