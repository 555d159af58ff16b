/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The bytes of an instruction.
 */
#ifndef BYTES_H
#define BYTES_H

#include "api.h"

/* Reads the bytes of an instruction, at most `room`, and returns their number. */
size_t read_bytes(struct qemu_plugin_insn *instruction, uint8_t *bytes, size_t room);

/* Whether `byte` can be a prefix of an opcode in 64-bit code. */
int is_prefix(uint8_t byte);

#endif
