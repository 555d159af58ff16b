/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Makes dirty pages of a shared mapping read-only and writable again: docs/cases/mprotect-toggle.md. Region 1 is the toggles.
 */
#include <stddef.h>
#include <sys/mman.h>

#include "mark.h"

enum { PAGES = 1024, PAGE = 4096, ROUNDS = 10 };

int main(void)
{
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	for (int i = 0; i < PAGES; i++)
		memory[i * PAGE] = 1;
	MARK_BEGIN(1);
	for (int i = 0; i < ROUNDS; i++)
		if (mprotect(memory, PAGES * PAGE, PROT_READ) || mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE))
			return 1;
	MARK_END(1);
	return 0;
}
