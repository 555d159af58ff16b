/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Attributes each instruction of the guest's kernel to the call chain in which it was executed, without symbols.
 *
 * A CALL stores a return address in a slot of the stack, and a RET loads one from a slot. A frame is
 * identified by the address of its slot. A RET ends the frame whose slot it loads from, and all frames above.
 * Tail calls, retpolines and interrupt stacks do not disturb this, because only equality of slots is
 * compared. If the kernel loads the stack pointer from memory, and the next slot is far away, the kernel has
 * switched to another task. Its chain is the one that was saved for this part of the stack, or a new one if
 * the task is new or has slept since before the profile. Some kernels load the stack pointer in another way;
 * for these, a RET from a far slot that no frame has also means a switch.
 *
 * Each entry into the kernel is a separate frame, which IRETQ or SYSRETQ ends. If `resumes` is set, a kernel
 * may also return to user mode from within calls, and the next entry may continue by returning from the
 * innermost of these calls. The frames of these calls stay, and such a RET ends both the entry's frame and
 * the frame whose slot it loads from. A block of instructions without a jump is credited at the next event,
 * when it is known how many of its instructions have begun. An instruction that faulted is subtracted again.
 *
 * All numbers in the file are little-endian. The file begins with the 8 bytes "MWPROF1\n" and five words of
 * 64 bits: the number of frames that were left without a return; 1 if the end of the run is further back than
 * the journal reaches, and otherwise 0; the number of nodes; the number of blocks; the number of cells. Then
 * follow the nodes, of which the first is the root: parent and kind (32 bits each), the address after the
 * call or of the interrupted instruction, and the address of the first instruction (64 bits each). Then the
 * blocks: the address of the first instruction (64 bits), the number of instructions (32 bits), and the
 * length of each instruction (8 bits). Then the cells: node and block (32 bits each), and the number of
 * executions (64 bits). The first block has no instructions; its cells count how often a node was entered.
 */
#include "profile.h"
#include "alone.h"
#include "bytes.h"
#include "counters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { CALLED, FROM_USER, EXCEPTION, INTERRUPT, TASK };
enum { NO_GATE = -1, UNKNOWN_GATE = -2, CHAINS = 4096, ROOT = 0 };
/* In bytes: the size of a stack; and the maximum distance of a task's next slot below, and above, the place
 * where the task slept. */
enum { STACK = 16384, NEAR = 256, BODY = 64 };
enum { JOURNAL = 1 << 20 };
#define NONE UINT32_MAX

struct block {
	uint64_t start, bytes;
	uint32_t number, count;
	/* The vector whose handler begins here. */
	int gate;
	uint8_t *sizes;
	/* The cell that was incremented last, with its node and CPU. */
	uint32_t node, cpu, cell;
};

struct node {
	uint32_t parent, kind;
	uint64_t from, start;
};

struct frame {
	uint64_t slot, from;
	uint32_t node, parent;
	enum kind kind;
	/* Whether the CPU was in user mode when the frame began. */
	int from_user;
};

/* The frames of a task. */
struct chain {
	struct frame *frames;
	size_t count, room;
	/* The last slot that a CALL or RET used. */
	uint64_t slot;
	struct chain *next;
};

/* Each CPU has its own cells, so that it can discard a pass that it did not end. */
struct cell {
	uint32_t node, block;
	uint64_t total, pass;
};

/* A block that was credited, and the number of instructions that had begun when the block began. */
struct entry {
	uint64_t start;
	uint32_t cell, count;
};

/* A hash table that maps pairs of words to numbers. */
struct index {
	struct pair {
		uint64_t one, other;
		uint32_t number;
	} *pairs;
	size_t count, room;
};

/* The state of a CPU. */
struct progress {
	struct chain *now;
	int leaves, switching, returned;
	/* Whether the kernel has returned to user mode while calls are open. */
	int in_user;
	uint64_t left_at, returned_from;
	/* The block that executes, or only its rest after a mark; and the complete block. */
	struct block *open_block, *open_whole;
	uint32_t open_node;
	uint64_t open_start, last_address;
	/* Whether a pass of the region is open; the thread that began the pass; and the cells to which the
	 * pass was credited. */
	int counting;
	uint64_t thread;
	uint32_t *touched;
	size_t touched_count, touched_room;
};

static const char *path;
static unsigned int wanted;
static int following, resumes;
static uint64_t gates[VECTORS];

static struct index block_index, site_index, node_index, cell_index;
static struct block **blocks;
static struct node *nodes;
static struct cell *cells;
static uint32_t block_count, node_count, cell_count;
static struct entry *journal;
static uint64_t journaled;
static uint64_t left_open, forgotten;
/* The empty block that counts entries. */
static struct block *entered;

static struct chain *asleep[CHAINS];
/* The progress of each CPU, and a pointer to that of the CPU that executes. */
static struct progress progress[CPUS], *on = progress;

/* The number of instructions that have begun on the CPU. */
static uint64_t begun(enum half half)
{
	return counted_on(on - progress, half);
}

static void *larger(void *old, size_t size)
{
	void *memory = realloc(old, size);
	if (!memory) {
		fprintf(stderr, "the profile does not fit into memory\n");
		_Exit(1);
	}
	return memory;
}

/* Ensures that an array has room for one more element. The array grows by doubling. */
#define ROOM_FOR(array, count) \
	do { \
		if (((count) & ((count) - 1)) == 0) \
			(array) = larger((array), ((count) ? 2 * (size_t)(count) : 1) * sizeof *(array)); \
	} while (0)

static size_t place_of(const struct index *index, uint64_t one, uint64_t other)
{
	uint64_t hash = (one ^ (other << 29 | other >> 35)) * 0x9e3779b97f4a7c15;
	size_t place = hash >> 32 & (index->room - 1);
	while (index->pairs[place].number != NONE && (index->pairs[place].one != one || index->pairs[place].other != other))
		place = (place + 1) & (index->room - 1);
	return place;
}

/* Returns where the number of a pair is stored. If the number is NONE, the pair is new, and the caller stores
 * its number there. */
static uint32_t *number_of(struct index *index, uint64_t one, uint64_t other)
{
	if (2 * index->count >= index->room) {
		struct index grown = { .room = index->room ? 2 * index->room : 1 << 12 };
		grown.pairs = larger(NULL, grown.room * sizeof *grown.pairs);
		for (size_t i = 0; i < grown.room; i++)
			grown.pairs[i].number = NONE;
		for (size_t i = 0; i < index->room; i++)
			if (index->pairs[i].number != NONE)
				grown.pairs[place_of(&grown, index->pairs[i].one, index->pairs[i].other)] = index->pairs[i];
		grown.count = index->count;
		free(index->pairs);
		*index = grown;
	}
	struct pair *pair = &index->pairs[place_of(index, one, other)];
	if (pair->number == NONE) {
		pair->one = one, pair->other = other;
		index->count++;
	}
	return &pair->number;
}

/* Returns the block with this code. Equal code is one block, however often it is translated. */
static struct block *block_with(uint64_t start, const uint8_t *sizes, uint32_t count)
{
	uint64_t bytes = 0, hash = 0;
	for (uint32_t i = 0; i < count; i++)
		bytes += sizes[i], hash = hash * 31 + sizes[i];
	uint32_t *number = number_of(&block_index, start, hash << 16 | count);
	if (*number != NONE)
		return blocks[*number];
	struct block *block = larger(NULL, sizeof *block);
	*block = (struct block){
		.start = start, .bytes = bytes, .number = block_count, .count = count, .gate = UNKNOWN_GATE, .node = NONE
	};
	block->sizes = larger(NULL, count ? count : 1);
	memcpy(block->sizes, sizes, count);
	ROOM_FOR(blocks, block_count);
	blocks[block_count] = block;
	*number = block_count++;
	return block;
}

static uint32_t node_with(uint32_t parent, enum kind kind, uint64_t from, uint64_t start)
{
	uint32_t *site = number_of(&site_index, from, start << 3 | kind);
	if (*site == NONE)
		*site = site_index.count;
	uint32_t *number = number_of(&node_index, parent, *site);
	if (*number == NONE) {
		ROOM_FOR(nodes, node_count);
		nodes[node_count] = (struct node){ parent, kind, from, start };
		*number = node_count++;
	}
	return *number;
}

static uint32_t cell_with(uint32_t node, struct block *block)
{
	uint32_t cpu = on - progress;
	if (block->node == node && block->cpu == cpu)
		return block->cell;
	uint32_t *number = number_of(&cell_index, (uint64_t)cpu << 32 | node, block->number);
	if (*number == NONE) {
		ROOM_FOR(cells, cell_count);
		cells[cell_count] = (struct cell){ .node = node, .block = block->number };
		*number = cell_count++;
	}
	block->node = node, block->cpu = cpu;
	return block->cell = *number;
}

static void credit(uint32_t node, struct block *block, uint32_t count, uint64_t start)
{
	if (count < block->count)
		block = block_with(block->start, block->sizes, count);
	uint32_t number = cell_with(node, block);
	if (cells[number].pass++ == 0) {
		if (on->touched_count == on->touched_room) {
			on->touched_room = on->touched_room ? 2 * on->touched_room : 1024;
			on->touched = larger(on->touched, on->touched_room * sizeof *on->touched);
		}
		on->touched[on->touched_count++] = number;
	}
	journal[journaled++ % JOURNAL] = (struct entry){ start, number, count };
}

/* Returns the address of the last of `count` instructions of a block. */
static uint64_t address_of(const struct block *block, uint32_t count)
{
	uint64_t address = block->start;
	for (uint32_t i = 0; i + 1 < count; i++)
		address += block->sizes[i];
	return address;
}

/* Counts the executed instructions of the block that began last. If `undone` is set, the last of them was
 * undone. */
static void close_block(int undone)
{
	struct block *block = on->open_block;
	on->open_block = NULL;
	if (!block)
		return;
	/* The counts may have decreased: those of no known CPU move to a CPU that starts. */
	if (begun(KERNEL) < on->open_start)
		return;
	uint64_t started = begun(KERNEL) - on->open_start;
	uint32_t first = started < block->count ? started : block->count;
	on->last_address = address_of(block, first);
	if (undone && started)
		started--;
	if (started == 0 || !on->counting)
		return;
	first = started < first ? started : first;
	credit(on->open_node, block, first, on->open_start);
	if (started == first)
		return;
	/* QEMU iterates a repeated instruction within the block, so it has begun several times. */
	struct block *last = block_with(on->last_address, block->sizes + block->count - 1, 1);
	for (uint64_t i = first; i < started; i++)
		credit(on->open_node, last, 1, on->open_start + i);
}

static struct chain *new_chain(void)
{
	struct chain *chain = larger(NULL, sizeof *chain);
	*chain = (struct chain){ 0 };
	return chain;
}

/* Returns the list of chains that sleep with their last slot in this part of memory. */
static struct chain **sleepers(uint64_t part)
{
	return &asleep[(part ^ part >> 12) % CHAINS];
}

static uint64_t distance(uint64_t one, uint64_t other)
{
	return one > other ? one - other : other - one;
}

static struct frame *newest(void)
{
	return on->now->count ? &on->now->frames[on->now->count - 1] : NULL;
}

static void push(enum kind kind, uint64_t slot, uint64_t from)
{
	uint32_t parent = ROOT;
	if (kind == CALLED || kind == EXCEPTION)
		for (size_t i = on->now->count; i-- > 0;)
			if (on->now->frames[i].node != NONE) {
				parent = on->now->frames[i].node;
				break;
			}
	if (on->now->count == on->now->room) {
		on->now->room = on->now->room ? 2 * on->now->room : 64;
		on->now->frames = larger(on->now->frames, on->now->room * sizeof *on->now->frames);
	}
	on->now->frames[on->now->count++] = (struct frame){ slot, from, NONE, parent, kind, on->in_user };
	if (slot)
		on->now->slot = slot;
}

/* Handles a return to user mode, or to the code that an exception or interrupt had interrupted: ends the newest entry into
 * the kernel, with the frames above it.
 */
static void leave_entry(void)
{
	struct frame *frame = newest();
	if (resumes && frame) {
		on->in_user = frame->kind == CALLED || frame->kind == TASK || frame->kind == FROM_USER || frame->from_user;
		if (frame->kind == CALLED || frame->kind == TASK)
			return;
	}
	while (on->now->count) {
		enum kind kind = on->now->frames[--on->now->count].kind;
		if (kind != CALLED)
			return;
		left_open++;
	}
}

/* Saves the current chain, and continues with `other`. */
static void switch_to(struct chain *other)
{
	if (on->now->count) {
		struct chain **sleeper = sleepers(on->now->slot / STACK);
		on->now->next = *sleeper;
		*sleeper = on->now;
	} else {
		free(on->now->frames);
		free(on->now);
	}
	on->now = other;
}

/* Returns the chain of the task that slept with its stack pointer near `slot`. The first slot that such a
 * task uses is a little below the place where it slept, and never far above. If several chains match, returns
 * the one saved last; the others are of tasks that have ended and whose stack was reused.
 */
static struct chain *take_sleeper(uint64_t slot)
{
	for (uint64_t part = (slot - NEAR) / STACK; part <= (slot + NEAR) / STACK; part++)
		for (struct chain **link = sleepers(part); *link; link = &(*link)->next) {
			struct chain *chain = *link;
			if (slot <= chain->slot + BODY && slot + NEAR >= chain->slot) {
				*link = chain->next;
				return chain;
			}
		}
	return NULL;
}

/* Begins a task whose calls are not known. */
static void begin_task(void)
{
	push(TASK, 0, 0);
	newest()->node = node_with(ROOT, TASK, 0, 0);
}

/* Continues with the CPU that executes. */
static void follow_cpu(void)
{
	on = &progress[cpu_now()];
	if (on->now)
		return;
	on->now = new_chain();
	/* A CPU that starts during the run is in calls that are not known. */
	if (following && has_several_cpus())
		begin_task();
}

/* Switches to the chain of the task on another stack. The task slept, or was not seen before. */
static void change_task(uint64_t slot)
{
	struct chain *sleeper = take_sleeper(slot);
	switch_to(sleeper ? sleeper : new_chain());
	if (!sleeper)
		begin_task();
	on->now->slot = slot;
}

/* Handles the use of a slot by a CALL or RET, which can be the first use after a task switch. */
static void arrive(uint64_t slot)
{
	/* The new stack pointer may also be on the same stack. */
	if (on->switching && on->now->slot && distance(on->now->slot, slot) >= STACK)
		change_task(slot);
	on->switching = 0;
}

static int pop_to(uint64_t slot)
{
	size_t entries = 0;
	for (size_t i = on->now->count; i-- > 0;) {
		const struct frame *frame = &on->now->frames[i];
		if (frame->kind != CALLED) {
			if (!resumes || !(frame->kind == FROM_USER || frame->from_user) || entries++)
				return 0;
		} else if (frame->slot == slot) {
			left_open += on->now->count - 1 - i - entries;
			on->now->count = i;
			on->now->slot = slot;
			return 1;
		}
	}
	return 0;
}

/* Handles a RET that loaded from `slot`, and continues at `target`, which is 0 if it is not known. */
static void return_to(uint64_t slot, uint64_t target)
{
	if (pop_to(slot))
		return;
	/* The first function that an entry calls may move its return address from the entry stack to the
	 * task's stack. */
	struct frame *frame = newest();
	int called_by_entry = on->now->count >= 2 && on->now->frames[on->now->count - 2].kind != CALLED;
	if (called_by_entry && frame->kind == CALLED && frame->from == target) {
		on->now->count--;
		on->now->slot = slot;
		return;
	}
	if (on->now->slot && distance(on->now->slot, slot) >= STACK) {
		change_task(slot);
		if (pop_to(slot))
			return;
	}
	/* The frame began before the profile, or the RET is a jump through the stack. */
	on->now->slot = slot;
	while ((frame = newest()) && frame->kind == CALLED && frame->slot < slot) {
		left_open++;
		on->now->count--;
	}
}

static int gate_at(struct block *block)
{
	if (block->gate == UNKNOWN_GATE) {
		block->gate = NO_GATE;
		for (int i = 0; i < VECTORS; i++)
			if (gates[i] == block->start)
				block->gate = i;
	}
	return block->gate;
}

/* Returns the node of a frame that begins with this instruction; counts how often the node was entered. */
static uint32_t enter(const struct frame *frame, uint64_t start)
{
	uint32_t node = node_with(frame->parent, frame->kind, frame->from, start);
	if (on->counting)
		credit(node, entered, 0, begun(KERNEL));
	return node;
}

/* Whether an exception undoes the instruction that it interrupts. All exceptions do, except debug, NMI,
 * breakpoint, overflow, double fault and machine check.
 */
static int is_fault(int vector)
{
	return vector >= 0 && vector < FIRST_INTERRUPT && vector != 1 && vector != 2 && vector != 3 && vector != 4 &&
	       vector != 8 && vector != 18;
}

/* Returns whether IRETQ and SYSRETQ themselves can raise this exception: a segment, stack or protection
 * exception. */
static int is_of_return(int vector)
{
	return vector >= 10 && vector <= 13;
}

/* Records that `block` runs in the newest frame. `whole` is the complete block if `block` is only its rest. */
static void open_in_frame(struct block *block, struct block *whole)
{
	struct frame *frame = newest();
	if (frame->node == NONE)
		frame->node = enter(frame, block->start);
	on->open_block = block, on->open_whole = whole, on->open_node = frame->node, on->open_start = begun(KERNEL);
}

static void at_block(unsigned int cpu, void *data)
{
	struct block *block = data;
	(void)cpu;
	if (!following)
		return;
	follow_cpu();
	int vector = gate_at(block);
	int left = on->leaves && (!is_of_return(vector) || begun(USER) != on->left_at);
	close_block(is_fault(vector) && on->now->count && !left);
	if (on->returned)
		return_to(on->returned_from, vector == NO_GATE ? block->start : 0);
	if (left) {
		leave_entry();
		on->switching = 0;
	}
	on->leaves = on->returned = 0;
	if (vector >= FIRST_INTERRUPT)
		push(INTERRUPT, 0, 0);
	else if (on->now->count == 0 || on->in_user)
		push(FROM_USER, 0, 0);
	else if (vector != NO_GATE)
		push(EXCEPTION, 0, on->last_address + 1);
	on->in_user = 0;
	open_in_frame(block, block);
}

/* Returns whether a reported access belongs to the last instruction of the current block. This is checked
 * because QEMU 7.2 attributes accesses of later instructions, which its own functions make, to the last
 * instruction with a callback.
 */
static int is_of(const struct block *block)
{
	return following && on->open_block && on->open_whole == block;
}

/* Called for the accesses of a block's final CALL. The load of a call through memory is ignored. */
static void at_call(unsigned int cpu, qemu_plugin_meminfo_t about, uint64_t slot, void *data)
{
	const struct block *block = data;
	(void)cpu;
	follow_cpu();
	if (!is_of(block) || !qemu_plugin_mem_is_store(about))
		return;
	close_block(0);
	arrive(slot);
	push(CALLED, slot, block->start + block->bytes);
}

/* Called for the load of a block's final RET. */
static void at_return(unsigned int cpu, qemu_plugin_meminfo_t about, uint64_t slot, void *data)
{
	(void)cpu, (void)about;
	follow_cpu();
	if (!is_of(data))
		return;
	close_block(0);
	arrive(slot);
	on->returned = 1, on->returned_from = slot;
}

void profile_leaves(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	follow_cpu();
	on->leaves = 1, on->left_at = begun(USER);
}

void profile_switches(unsigned int cpu, void *data)
{
	(void)cpu, (void)data;
	follow_cpu();
	on->switching = 1;
}

static int is_call(const uint8_t *bytes, size_t size)
{
	return bytes[0] == 0xe8 || (size > 1 && bytes[0] == 0xff && (bytes[1] >> 3 & 7) == 2);
}

static int is_return(const uint8_t *bytes)
{
	return bytes[0] == 0xc3 || bytes[0] == 0xc2;
}

/* Returns a block with the instructions from number `from` on; NULL if they are not the kernel's. */
static struct block *block_from(struct qemu_plugin_tb *translated, size_t from)
{
	size_t count = qemu_plugin_tb_n_insns(translated) - from;
	struct qemu_plugin_insn *first = count ? qemu_plugin_tb_get_insn(translated, from) : NULL;
	if (!path || !first || !is_kernel(qemu_plugin_insn_vaddr(first)))
		return NULL;
	uint8_t *sizes = larger(NULL, count);
	for (size_t i = 0; i < count; i++)
		sizes[i] = qemu_plugin_insn_size(qemu_plugin_tb_get_insn(translated, from + i));
	struct block *block = block_with(qemu_plugin_insn_vaddr(first), sizes, count);
	free(sizes);
	return block;
}

void profile_translated(struct qemu_plugin_tb *translated)
{
	size_t count = qemu_plugin_tb_n_insns(translated);
	struct block *block = block_from(translated, 0);
	uint8_t bytes[16] = { 0 };
	if (!block)
		return;
	struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(translated, 0);
	qemu_plugin_register_vcpu_insn_exec_cb(first, at_block, QEMU_PLUGIN_CB_NO_REGS, block);
	/* Calls and returns end a block. The callbacks are not limited to loads or to stores: QEMU 7.2 mixes the two up. */
	struct qemu_plugin_insn *last = qemu_plugin_tb_get_insn(translated, count - 1);
	size_t size = read_bytes(last, bytes, sizeof bytes), at = 0;
	while (at < size && is_prefix(bytes[at]))
		at++;
	if (is_call(bytes + at, size - at))
		qemu_plugin_register_vcpu_mem_cb(last, at_call, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, block);
	else if (is_return(bytes + at))
		qemu_plugin_register_vcpu_mem_cb(last, at_return, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, block);
}

struct mark *profile_mark(struct qemu_plugin_tb *translated, size_t at, unsigned int code)
{
	struct mark *mark = larger(NULL, sizeof *mark);
	*mark = (struct mark){ code, block_from(translated, at), block_from(translated, 0) };
	return mark;
}

void profile_open(const char *file, unsigned int region, int kernel_resumes)
{
	path = file;
	wanted = region;
	resumes = kernel_resumes;
	journal = larger(NULL, JOURNAL * sizeof *journal);
	node_with(NONE, TASK, 0, 0);
	entered = block_with(0, (const uint8_t *)"", 0);
}

void profile_gates(const uint64_t *addresses)
{
	memcpy(gates, addresses, sizeof gates);
}

/* Removes the counts that were added after `end` instructions had begun. */
static void cut_at(uint64_t end)
{
	uint64_t first = journaled > JOURNAL ? journaled - JOURNAL : 0;
	while (journaled > first) {
		struct entry *entry = &journal[(journaled - 1) % JOURNAL];
		if (entry->start + entry->count <= end)
			return;
		struct cell *cell = &cells[entry->cell];
		cell->pass--;
		uint64_t start = entry->start;
		struct block *block = blocks[cell->block];
		uint32_t node = cell->node;
		journaled--;
		if (start < end) {
			credit(node, block, end - start, start);
			return;
		}
	}
	forgotten = first > 0;
}

static void discard_pass(struct progress *of)
{
	for (size_t i = 0; i < of->touched_count; i++)
		cells[of->touched[i]].pass = 0;
	of->touched_count = 0;
	of->counting = 0;
}

static void begin_pass(struct progress *of, uint64_t thread)
{
	discard_pass(of);
	journaled = 0;
	of->counting = 1;
	of->thread = thread;
}

static void end_pass(struct progress *of)
{
	for (size_t i = 0; i < of->touched_count; i++) {
		struct cell *cell = &cells[of->touched[i]];
		cell->total += cell->pass;
		cell->pass = 0;
	}
	of->touched_count = 0;
	of->counting = 0;
}

/* Begins the run on every CPU. If the last instruction of a CPU was the kernel's, the CPU is in calls that
 * are not known. */
static void begin_run(void)
{
	struct progress *marked = on;
	following = 1;
	for (unsigned int cpu = 0; has_several_cpus() && cpu < cpus_known(); cpu++) {
		on = &progress[cpu];
		if (!on->now)
			on->now = new_chain();
		if (on != marked && was_in_kernel(cpu))
			begin_task();
	}
	on = marked;
}

/* Ends this thread's pass on the CPU that executes. A pass that the thread began on another CPU is discarded. */
static void end_pass_of(uint64_t thread)
{
	if (on->counting && on->thread == thread) {
		end_pass(on);
		return;
	}
	for (unsigned int cpu = 0; thread && cpu < CPUS; cpu++)
		if (progress[cpu].counting && progress[cpu].thread == thread)
			discard_pass(&progress[cpu]);
}

/* Begins or ends a pass of the complete run, which covers every CPU. */
static void pass_run(int ends, uint64_t end)
{
	/* With one CPU, counts after the end of the run are removed. With several CPUs, the run ends with the
	 * mark. */
	if (ends && on->counting && !has_several_cpus())
		cut_at(end);
	struct progress *marked = on;
	for (on = progress; on < progress + CPUS; on++)
		if (!ends) {
			begin_pass(on, 0);
		} else if (on->counting) {
			close_block(0);
			end_pass(on);
		}
	on = marked;
}

static void put(FILE *file, uint64_t value, size_t bytes)
{
	fwrite(&value, bytes, 1, file);
}

static void write_profile(void)
{
	FILE *file = fopen(path, "wb");
	if (!file)
		return;
	fwrite("MWPROF1\n", 8, 1, file);
	put(file, left_open, 8);
	put(file, forgotten, 8);
	put(file, node_count, 8);
	put(file, block_count, 8);
	put(file, cell_count, 8);
	for (uint32_t i = 0; i < node_count; i++) {
		put(file, nodes[i].parent, 4);
		put(file, nodes[i].kind, 4);
		put(file, nodes[i].from, 8);
		put(file, nodes[i].start, 8);
	}
	for (uint32_t i = 0; i < block_count; i++) {
		put(file, blocks[i]->start, 8);
		put(file, blocks[i]->count, 4);
		fwrite(blocks[i]->sizes, 1, blocks[i]->count, file);
	}
	for (uint32_t i = 0; i < cell_count; i++) {
		put(file, cells[i].node, 4);
		put(file, cells[i].block, 4);
		put(file, cells[i].total, 8);
	}
	fclose(file);
}

void profile_marked(const struct mark *mark, uint64_t end, uint64_t thread)
{
	unsigned int region = mark->code >> 1, ends = mark->code & 1;
	if (!path)
		return;
	follow_cpu();
	close_block(0);
	if (region == THE_RUN && !ends)
		begin_run();
	if (region == wanted && region == THE_RUN && following)
		pass_run(ends, end);
	else if (region == wanted && following && !ends)
		begin_pass(on, thread);
	else if (region == wanted && following)
		end_pass_of(thread);
	if (region == THE_RUN && ends) {
		following = 0;
		write_profile();
	} else if (following && mark->rest) {
		/* The kernel executed the mark: the rest of the block is counted as a block of its own. */
		if (on->now->count == 0)
			push(FROM_USER, 0, 0);
		open_in_frame(mark->rest, mark->whole);
	}
}
