/* Sends itself a signal TIMES times and handles it: 15 + 9 * TIMES instructions. */
#include "program.h"
_start:
	handle	10				/* SIGUSR1, 6 */
	mov	$SYS_getpid, %eax		/* 4 */
	syscall
	mov	%eax, %ebx
	mov	$TIMES, %ebp
1:	mov	$SYS_kill, %eax			/* 6 * TIMES */
	mov	%ebx, %edi
	mov	$10, %esi
	syscall
	dec	%ebp
	jnz	1b
	nop					/* 2 */
	nop
	leave_program				/* 3 */
handler:
	ret					/* 1 * TIMES, and 2 in the restorer */
	define_action
