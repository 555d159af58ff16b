/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Asks for 16 MiB to be paged out where there is no swap, then writes to it: docs/cases/pageout-without-swap.md. Region 1 is
 * the call, region 2 the writes. The memory is aligned to 2 MiB, so that it can consist of huge pages.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "mark.h"

enum { PAGES = 4096, PAGE = 4096, HUGE_PAGE = 512 * PAGE };

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

MARK_NAME(1, "pageout");
MARK_NAME(2, "writes");

static void write_pages(char *memory)
{
	for (int i = 0; i < PAGES; i++)
		((volatile char *)memory)[i * PAGE] = 1;
}

int main(void)
{
	char *room = mmap(NULL, PAGES * PAGE + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (room == MAP_FAILED)
		return 1;
	char *memory = (char *)(((uintptr_t)room + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
	write_pages(memory);
	MARK_BEGIN(1);
	if (madvise(memory, PAGES * PAGE, MADV_PAGEOUT))
		return 1;
	MARK_END(1);
	MARK_BEGIN(2);
	write_pages(memory);
	MARK_END(2);
	return 0;
}
