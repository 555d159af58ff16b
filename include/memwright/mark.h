/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks of a region of interest: a tool that counts from outside sees them pass, the program does nothing.
 *
 * A mark is the 7-byte NOP with a 32-bit displacement. The upper half of the displacement is a magic number, the
 * lower half is twice the region's number, plus one at its end. Every x86-64 processor executes it as a NOP; elsewhere
 * it is nothing at all. A region may be passed many times, and regions may lie in each other.
 */
#ifndef MEMWRIGHT_MARK_H
#define MEMWRIGHT_MARK_H

#define MARK_MAGIC 0x4d570000

#ifdef __x86_64__
#define MARK_CODE(code) __asm__ volatile(".byte 0x0f, 0x1f, 0x80\n\t.long %c0" : : "i"(MARK_MAGIC | (code)) : "memory")
#else
#define MARK_CODE(code) ((void)(code))
#endif

/* Region 0 to 32766, a constant. */
#define MARK_BEGIN(region) MARK_CODE((region) << 1)
#define MARK_END(region) MARK_CODE((region) << 1 | 1)

#endif
