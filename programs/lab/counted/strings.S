/* REP string instructions over TIMES bytes, and over none. 15 instructions beside them, and for the REP instructions what
 * the documentation of the account says: the number of iterations, and one at which the instruction ends.
 *
 *     15 + (TIMES + 1) + (TIMES + 1) + (TIMES + 1) + 1
 */
#include "program.h"
_start:
	mov	$bytes, %edi			/* 3 */
	mov	$TIMES, %ecx
	mov	$7, %al
	rep stosb
	mov	$bytes, %esi			/* 3 */
	mov	$others, %edi
	mov	$TIMES, %ecx
	rep movsb
	mov	$bytes, %esi			/* 4 */
	mov	$others, %edi
	mov	$TIMES, %ecx
	cmp	%ecx, %ecx
	repe cmpsb
	mov	$bytes, %edi			/* 2 */
	xor	%ecx, %ecx
	rep stosb
	leave_program				/* 3 */
	.bss
	.balign	PAGE
bytes:	.skip	TIMES + 1
others:	.skip	TIMES + 1
