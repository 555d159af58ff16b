/* Counts down from TIMES while a timer of one millisecond runs whose signal is ignored: 18 + 2 * TIMES instructions, of which
 * 1 + 2 * TIMES are in region 1, however often the timer interrupts.
 */
#include "program.h"
#define SYS_setitimer 38
_start:
	handle	14				/* SIGALRM, 6 */
	mov	$SYS_setitimer, %eax		/* ITIMER_REAL, 5 */
	xor	%edi, %edi
	mov	$every, %esi
	xor	%edx, %edx
	syscall
	mov	$TIMES, %ecx			/* 4 */
	nop
	mark	2				/* region 1 begins */
1:	dec	%ecx				/* 2 * TIMES */
	jnz	1b
	mark	3				/* it ends */
	leave_program				/* 3 */
	.data
	.balign	8
every:	.quad	0, 1000, 0, 1000		/* struct itimerval: seconds and microseconds, twice */
action:	.quad	1, 0, 0, 0			/* SIG_IGN */
