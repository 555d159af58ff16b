/* Calls a function in each of TIMES pages of its own text: 5 + 5 * TIMES instructions. The fetches fault; how many of them
 * do depends on the kernel's fault-around.
 */
#include "program.h"
_start:
	mov	$function, %ebx			/* 2 */
	mov	$TIMES, %ebp
1:	call	*%rbx				/* 5 * TIMES, with the RET */
	add	$PAGE, %rbx
	dec	%ebp
	jnz	1b
	leave_program				/* 3 */
	.balign	PAGE
function:
	.rept	TIMES
	ret
	.balign	PAGE
	.endr
