/* What the hand-counted programs share. The header of each states how many instructions it retires in user mode as a
 * function of TIMES, a macro of the compiler's command line. They are static, and have no C library.
 */
#ifndef TIMES
#define TIMES 100
#endif
#define PAGE 4096
#define SYS_mmap 9
#define SYS_rt_sigaction 13
#define SYS_rt_sigreturn 15
#define SYS_getpid 39
#define SYS_exit 60
#define SYS_kill 62
#define SYS_getppid 110

/* mmap of this many bytes of private anonymous memory: 8 instructions, the address in RAX. */
.macro map_memory bytes
	mov	$SYS_mmap, %eax
	xor	%edi, %edi
	mov	$\bytes, %rsi
	mov	$3, %edx			/* PROT_READ | PROT_WRITE */
	mov	$0x22, %r10d			/* MAP_PRIVATE | MAP_ANONYMOUS */
	mov	$-1, %r8
	xor	%r9d, %r9d
	syscall
.endm

/* exit(0): 3 instructions. */
.macro leave_program
	mov	$SYS_exit, %eax
	xor	%edi, %edi
	syscall
.endm

/* rt_sigaction(signal, &action, NULL, 8): 6 instructions. */
.macro handle signal
	mov	$SYS_rt_sigaction, %eax
	mov	$\signal, %edi
	mov	$action, %esi
	xor	%edx, %edx
	mov	$8, %r10d
	syscall
.endm

/* struct sigaction as the kernel has it: SA_RESTORER | SA_SIGINFO | SA_NODEFER. */
.macro define_action
	.data
	.balign	8
action:
	.quad	handler, 0x44000004, restorer, 0
	.text
	/* 2 instructions. */
restorer:
	mov	$SYS_rt_sigreturn, %eax
	syscall
.endm

/* A mark of include/memwright/mark.h: 1 instruction. */
.macro mark code
	.byte	0x0f, 0x1f, 0x80
	.long	0x4d570000 | \code
.endm

	.section .note.GNU-stack, "", @progbits
	.text
	.globl	_start
