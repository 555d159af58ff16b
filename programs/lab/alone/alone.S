/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A kernel that is not Linux and runs no program, whose instructions were counted by hand. QEMU boots it by the entry of
 * Xen's PVH or, with -DMULTIBOOT, by a header of multiboot 1; both enter it in 32-bit protected mode. It runs where it is
 * loaded, prints a line on COM1, and marks region 1:
 *
 *     the region     6: the begin mark, two CALLs, two for a load of CR3 with the same value, and a NOP
 *     fill           3 with the RET, and 4 for each of FAULTS pages: the first write of each faults
 *     page_fault     11 for each of these faults
 *     flush          3 with the RET, and 4 for each of FLUSHES pages: INVLPG
 *
 * It exits with STATUS by isa-debug-exit; with -DPOWEROFF it turns the power off, with -DHANG it never ends, and with
 * -DTRIPLE it has no exception handlers when it raises an exception, at its first instruction.
 */
#ifndef FAULTS
#define FAULTS 7
#endif
#ifndef FLUSHES
#define FLUSHES 5
#endif
#ifndef STATUS
#define STATUS 0
#endif
#define TABLES 0x300000
#define SMALL (TABLES + 0x3000)
#define VECTORS 0x280000
#define STACK 0x400000
#define FRAME 0x500000
/* The pages that fault: in the second GiB. */
#define PAGES 0x40000000

#ifdef MULTIBOOT
	.section .note, "a"
	.align 4
header:
	.long 0x1badb002, 0x10000, -(0x1badb002 + 0x10000)
	.long header, first, end, end, start
#else
	.section .note, "a", @note
	.align 4
	.long 4, 8, 18
	.asciz "Xen"
	.quad start
#endif

	.text
	.code32
	.globl start
	.type start, @function
start:
#ifdef TRIPLE
	lidt nothing
	int3
#endif
	/* The first GiB in pages of 2 MiB, and the first 2 MiB of the second in a table of 4 KiB pages, all absent. */
	cld
	movl $TABLES, %edi
	xorl %eax, %eax
	movl $0x1400, %ecx
	rep stosl
	movl $TABLES + 0x1003, TABLES
	movl $TABLES + 0x2003, TABLES + 0x1000
	movl $TABLES + 0x4003, TABLES + 0x1008
	movl $SMALL + 3, TABLES + 0x4000
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
	.type long_mode, @function
long_mode:
	movl $16, %eax
	movl %eax, %ss
	movl %eax, %ds
	movl %eax, %es
	movl $STACK, %esp
	/* The log shows a load of CR3 only once paging is enabled. */
	movq %cr3, %rax
	movq %rax, %cr3
	movl $breakpoint, %eax
	movl $VECTORS + 3 * 16, %edi
	call make_gate
	movl $page_fault, %eax
	movl $VECTORS + 14 * 16, %edi
	call make_gate
	lidt vectors_at
	/* The log of this exception shows where the vectors are. */
	int3
	movl $line, %esi
	movl $line_end - line, %ecx
	movl $0x3f8, %edx
	rep outsb
#ifdef HANG
2:	jmp 2b
#endif
	.byte 0x0f, 0x1f, 0x80
	.long 0x4d570002
	call fill
	call flush
	movq %cr3, %rax
	movq %rax, %cr3
	nop
	.byte 0x0f, 0x1f, 0x80
	.long 0x4d570003
#ifdef POWEROFF
	movl $0x604, %edx
	movl $0x2000, %eax
	outw %ax, %dx
#else
	movl $0xf4, %edx
	movl $STATUS, %eax
	outl %eax, %dx
#endif
3:	jmp 3b

	.type fill, @function
fill:
	movl $FAULTS, %ecx
	movl $PAGES, %edi
1:	movb $1, (%rdi)
	addq $4096, %rdi
	decl %ecx
	jnz 1b
	ret

	.type flush, @function
flush:
	movl $FLUSHES, %ecx
	movl $PAGES, %edi
1:	invlpg (%rdi)
	addq $4096, %rdi
	decl %ecx
	jnz 1b
	ret

	/* Maps the page, and returns to the write. */
	.type page_fault, @function
page_fault:
	pushq %rax
	pushq %rdx
	movq %cr2, %rax
	shrq $12, %rax
	andl $511, %eax
	movl $FRAME + 3, %edx
	movq %rdx, SMALL(, %rax, 8)
	popq %rdx
	popq %rax
	addq $8, %rsp
	iretq

	.type breakpoint, @function
breakpoint:
	iretq

	/* Makes the gate at RDI for the handler at EAX, which is in the first 4 GiB. */
	.type make_gate, @function
make_gate:
	movw %ax, (%rdi)
	movw $8, 2(%rdi)
	movw $0x8e00, 4(%rdi)
	shrl $16, %eax
	movw %ax, 6(%rdi)
	movl $0, 8(%rdi)
	ret

	.data
line:
	.ascii "counted by hand\n"
line_end:
	.align 8
descriptors:
	.quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
descriptors_at:
	.word 23
	.quad descriptors
vectors_at:
	.word 0xfff
	.quad VECTORS
#ifdef TRIPLE
nothing:
	.word 0
	.quad 0
#endif
