/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A kernel whose instructions were counted by hand, for the tests of profiles: it passes for an image of Linux, and "runs a
 * program" that makes TIMES system calls by INT $0x80. Each is, in the kernel,
 *
 *     entry     3: two CALLs and IRETQ
 *     work      6 with the CALL and the RET
 *     helper    4 with the RET; with -DINLINED 3 that are part of `work`, without the CALL and the RET
 *     other     2 with the RET; with -DLONGER one more
 *
 * It is entered as Documentation of Xen's PVH says, in 32-bit protected mode.
 */
#ifndef TIMES
#define TIMES 10
#endif
#define KERNEL 0xffffffff80000000
#define TABLES 0x300000

	.section .note, "a", @note
	.align 4
	.long 4, 8, 18
	.asciz "Xen"
	.quad start

	.section .boot, "ax"
	.code32
	.globl start
start:
	/* PML4, and below both of its halves one table of each kind: the first GiB in pages of 2 MiB. */
	movl $TABLES, %edi
	xorl %eax, %eax
	movl $0xc00, %ecx
	rep stosl
	movl $TABLES + 0x1003, TABLES
	movl $TABLES + 0x1003, TABLES + 8 * 511
	movl $TABLES + 0x2003, TABLES + 0x1000
	movl $TABLES + 0x2003, TABLES + 0x1000 + 8 * 510
	movl $TABLES + 0x2000, %edi
	movl $0x83, %eax
1:	movl %eax, (%edi)
	addl $8, %edi
	addl $0x200000, %eax
	cmpl $0x40000000, %eax
	jb 1b
	movl %cr4, %eax
	orl $0x20, %eax
	movl %eax, %cr4
	movl $TABLES, %eax
	movl %eax, %cr3
	movl $0xc0000080, %ecx
	rdmsr
	orl $0x100, %eax
	wrmsr
	movl %cr0, %eax
	orl $0x80000000, %eax
	movl %eax, %cr0
	lgdt descriptors_at
	ljmp $8, $long_mode

	.code64
long_mode:
	movl $16, %eax
	movl %eax, %ss
	movq $KERNEL + 0x400000, %rsp
	movq $TABLES, %rax
	movq %rax, %cr3
	/* The gates of breakpoints and of system calls. */
	movq $breakpoint, %rax
	movl $3 * 16, %edi
	call make_gate
	movq $entry, %rax
	movl $0x80 * 16, %edi
	call make_gate
	lidt interrupts_at
	/* The frame with the time, and the stop at which the machine may be saved: programs/lab/init.c. */
	movl $ready, %esi
	rdtsc
	movl %eax, 5(%rsi)
	movl %edx, 9(%rsi)
	movl $0xe9, %edx
	movl $13, %ecx
	rep outsb
	movl $0x505, %edx
	movl $1, %eax
	outb %al, %dx
	/* The log of this exception shows where the table is. */
	int3
	movl $TIMES, %ebx
	.byte 0x0f, 0x1f, 0x80
	.long 0x4d57fffe
1:	int $0x80
	decl %ebx
	jnz 1b
	/* The switch from the program at which a run ends. */
	movq $TABLES | 8, %rax
	movq %rax, %cr3
	.byte 0x0f, 0x1f, 0x80
	.long 0x4d57ffff
	/* The program exited with code 0. */
	movl $0xe9, %edx
	movl $status, %esi
	movl $9, %ecx
	rep outsb
	xorl %eax, %eax
	outl %eax, $0xf4
2:	hlt
	jmp 2b

/* Writes the gate at RDI bytes into the table, for the handler at RAX. */
make_gate:
	movq $KERNEL + interrupts_low, %rdx
	addq %rdx, %rdi
	movw %ax, (%rdi)
	movw $8, 2(%rdi)
	movw $0x8e00, 4(%rdi)
	shrq $16, %rax
	movw %ax, 6(%rdi)
	shrq $16, %rax
	movl %eax, 8(%rdi)
	ret

ready:
	.byte 'r'
	.long 8, 0, 0
status:
	.byte 'x'
	.long 4, 0
	.align 8
descriptors:
	.quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
descriptors_at:
	.word 23
	.quad descriptors
interrupts_at:
	.word 0xfff
	.quad KERNEL + interrupts_low
	.set interrupts_low, 0x280000

	.text
	.globl breakpoint, entry, work, other
	.type breakpoint, @function
breakpoint:
	iretq

	.type entry, @function
entry:
	call work
	call other
	iretq

	.macro helped
	addl $1, %r8d
	xorl %r9d, %r8d
	addl %r8d, %r10d
	.endm

	.type work, @function
work:
	movl $1, %r8d
	movl $2, %r9d
	xorl %r10d, %r10d
#ifdef INLINED
	helped
#else
	call helper
#endif
	nop
	ret

#ifndef INLINED
	.type helper, @function
	.globl helper
helper:
	helped
	ret
#endif

	.type other, @function
other:
	nop
#ifdef LONGER
	nop
#endif
	ret

	.data
	.asciz "Linux version 0.0.1 (counted by hand)"
