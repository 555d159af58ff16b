/* TIMES rounds of nine instructions that do not retire, which a handler skips, and one that does: INT3, a trap.
 * 35 + 83 * TIMES instructions.
 */
#include "program.h"
#define RIP 0xa8				/* of a struct ucontext: uc_mcontext.gregs[REG_RIP] */
_start:
	handle	4				/* SIGILL, 6 */
	handle	5				/* SIGTRAP, 6 */
	handle	7				/* SIGBUS, 6 */
	handle	8				/* SIGFPE, 6 */
	handle	11				/* SIGSEGV, 6 */
	mov	$TIMES, %ebp			/* 1 */
	movabs	$0x8000000000000000, %rbx	/* 1 */
	/* In each round 9 times: 1 that sets the address to continue at, 5 in the handler, 2 in the restorer. */
1:	lea	2f(%rip), %r12
	ud2
2:	lea	2f(%rip), %r12
	cli
2:	lea	2f(%rip), %r12
	hlt
2:	lea	2f(%rip), %r12
	in	$0x60, %al
2:	lea	2f(%rip), %r12
	int	$0x20
2:	lea	2f(%rip), %r12
	mov	%cr0, %rax
2:	lea	2f(%rip), %r12
	mov	(%rbx), %rax			/* a non-canonical address */
2:	lea	2f(%rip), %r12
	mov	0, %al				/* nothing is mapped there */
2:	lea	2f(%rip), %r12
	div	%r13d				/* by zero */
	/* And once the same with an instruction that retires. */
2:	lea	2f(%rip), %r12
	int3
2:	dec	%ebp				/* 2 in each round */
	jnz	1b
	leave_program				/* 3 */
	/* 5 instructions: makes the interrupted context continue at its R12. */
handler:
	mov	%r12, RIP(%rdx)
	nop
	nop
	nop
	ret
	define_action
