/* Loads from TIMES new pages: 15 + 4 * TIMES instructions. Each load faults once, and retires once. */
#include "program.h"
_start:
	map_memory (TIMES*PAGE)			/* 8 */
	cmp	$-PAGE, %rax			/* 4 */
	ja	2f
	mov	%rax, %rbx
	mov	$TIMES, %ecx
1:	mov	(%rbx), %al			/* 4 * TIMES */
	add	$PAGE, %rbx
	dec	%ecx
	jnz	1b
2:	leave_program				/* 3 */
