/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Asks which pages of populated memory are resident: docs/cases/mincore-scan.md. Region 1 is the calls.
 */
#include <stddef.h>
#include <sys/mman.h>

#include "mark.h"

enum { PAGES = 16384, PAGE = 4096, ROUNDS = 4 };

static unsigned char resident[PAGES];

int main(void)
{
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED || madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE))
		return 1;
	for (int i = 0; i < PAGES; i++)
		memory[i * PAGE] = 1;
	MARK_BEGIN(1);
	for (int i = 0; i < ROUNDS; i++)
		if (mincore(memory, PAGES * PAGE, resident))
			return 1;
	MARK_END(1);
	return 0;
}
