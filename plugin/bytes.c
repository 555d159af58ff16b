/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "bytes.h"

#include <string.h>

size_t read_bytes(struct qemu_plugin_insn *instruction, uint8_t *bytes, size_t room)
{
	size_t size = qemu_plugin_insn_size(instruction);
	if (size > room)
		size = room;
#if PLUGIN_API < 3
	memcpy(bytes, qemu_plugin_insn_data(instruction), size);
#else
	size = qemu_plugin_insn_data(instruction, bytes, size);
#endif
	return size;
}

int is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67:
	case 0xf0: case 0xf2: case 0xf3:
		return 1;
	default:
		return (byte & 0xf0) == 0x40;
	}
}
