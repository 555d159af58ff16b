/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * What count.c needs of QEMU's interface for TCG plugins, declared for its versions 1 to 3: Debian's packages come without
 * qemu-plugin.h. PLUGIN_API is the version to build for: 1 for QEMU 7.2 to 8.2, 2 for 9.0, 3 from 9.1 on.
 */
#ifndef API_H
#define API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

typedef void (*qemu_plugin_vcpu_udata_cb_t)(unsigned int cpu, void *data);
typedef void (*qemu_plugin_udata_cb_t)(qemu_plugin_id_t id, void *data);
typedef void (*qemu_plugin_vcpu_tb_trans_cb_t)(qemu_plugin_id_t id, struct qemu_plugin_tb *block);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_tb_trans_cb_t callback);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, qemu_plugin_udata_cb_t callback, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction, qemu_plugin_vcpu_udata_cb_t callback,
					    enum qemu_plugin_cb_flags flags, void *data);

/* `about` describes the size and the kind of the access at `address`. */
typedef uint32_t qemu_plugin_meminfo_t;
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_RW = 3 };
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t about);
typedef void (*qemu_plugin_vcpu_mem_cb_t)(unsigned int cpu, qemu_plugin_meminfo_t about, uint64_t address, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction, qemu_plugin_vcpu_mem_cb_t callback,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw accesses, void *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *instruction);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
void qemu_plugin_outs(const char *text);

#if PLUGIN_API < 2
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, enum qemu_plugin_op operation,
						void *counter, uint64_t amount);
#else
struct qemu_plugin_scoreboard;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int cpu);
uint64_t qemu_plugin_u64_get(qemu_plugin_u64 counter, unsigned int cpu);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *instruction,
							 enum qemu_plugin_op operation, qemu_plugin_u64 counter,
							 uint64_t amount);

/* Registers of the CPU for which a callback is called, identified by name. The two arrays are GLib's. */
struct qemu_plugin_register;
typedef struct {
	struct qemu_plugin_register *handle;
	const char *name, *feature;
} qemu_plugin_reg_descriptor;
typedef struct {
	char *data;
	unsigned int len;
} GArray;
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;
typedef void (*qemu_plugin_vcpu_simple_cb_t)(qemu_plugin_id_t id, unsigned int cpu);
void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_simple_cb_t callback);
GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to);
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);
char *g_array_free(GArray *array, int and_data);
#endif

#if PLUGIN_API < 3
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction);
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *instruction, void *to, size_t room);
#endif

#endif
