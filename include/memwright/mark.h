/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks of a region of interest. They have no effect on the program; a tool that counts from outside the
 * guest sees them.
 *
 * A mark is the 7-byte NOP with a 32-bit displacement. The upper half of the displacement is a magic number. The lower
 * half is twice the region's number, plus one in the mark at the end of the region. Every x86-64 processor executes a
 * mark as a NOP; on other processors a mark is empty.
 *
 * A region may be executed many times, and regions may be nested. A region belongs to the CPU on which a thread begins
 * it: with several CPUs, pin the thread by sched_setaffinity until it has ended the region.
 */
#ifndef MEMWRIGHT_MARK_H
#define MEMWRIGHT_MARK_H

#define MARK_MAGIC 0x4d570000

#ifdef __x86_64__
#define MARK_CODE(code) __asm__ volatile(".byte 0x0f, 0x1f, 0x80\n\t.long %c0" : : "i"(MARK_MAGIC | (code)) : "memory")
#else
#define MARK_CODE(code) ((void)(code))
#endif

/* `region` is a constant from 0 to 32766. */
#define MARK_BEGIN(region) MARK_CODE((region) << 1)
#define MARK_END(region) MARK_CODE((region) << 1 | 1)

/*
 * MARK_NAME(1, "toggle"); at file scope, or in a function, names region 1 "toggle" in every report.
 *
 * The region is a number, or a macro for one; the name is a string literal: a letter, then up to 63 letters,
 * digits, "_" and "-". A header may name a region for all files that include it. Two names for one region, or
 * one name for two regions, are refused.
 *
 * A name is not an instruction, and the loader does not read it. Each name is an entry of the section
 * .memwright.regions, which is not allocated: the number in 4 bytes, little-endian, then the name and a NUL.
 * Entries follow each other without padding.
 */
#ifdef __x86_64__
#define MARK_NAME(region, name) \
	__asm__(".pushsection .memwright.regions,\"\",@progbits\n\t" \
		".long " MARK_TEXT(region) "\n\t.asciz " MARK_TEXT(name) "\n\t.popsection")
#define MARK_TEXT(tokens) MARK_TEXT_OF(tokens)
#define MARK_TEXT_OF(tokens) #tokens
#else
#define MARK_NAME(region, name) struct mark_name
#endif

#endif
