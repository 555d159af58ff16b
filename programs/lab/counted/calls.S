/* TIMES system calls: 4 + 4 * TIMES instructions. */
#include "program.h"
_start:
	mov	$TIMES, %ebx			/* 1 */
1:	mov	$SYS_getppid, %eax		/* 4 * TIMES */
	syscall
	dec	%ebx
	jnz	1b
	leave_program				/* 3 */
