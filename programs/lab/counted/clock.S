/* Reads the clock TIMES times and writes the first and the last reading to standard output: 11 + 7 * TIMES instructions,
 * of which 7 * (TIMES - 1) are between the two readings.
 */
#include "program.h"
#define SYS_write 1
#define SYS_clock_gettime 228
_start:
	mov	$TIMES, %ebx			/* 3 */
	mov	$readings, %r12d
	mov	%r12d, %r13d
1:	mov	$SYS_clock_gettime, %eax	/* CLOCK_MONOTONIC, 7 * TIMES */
	mov	$1, %edi
	mov	%r13d, %esi
	syscall
	lea	16(%r12), %r13d			/* all but the first are stored after it */
	dec	%ebx
	jnz	1b
	mov	$SYS_write, %eax		/* 5 */
	mov	$1, %edi
	mov	%r12d, %esi
	mov	$32, %edx
	syscall
	leave_program				/* 3 */
	.bss
	.balign	16
readings:
	.skip	32				/* struct timespec, twice */
