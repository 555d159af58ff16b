/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The first access to each page of shared anonymous memory: docs/cases/shared-memory.md. Region 1 is the first writes of 4,095
 * pages, region 2 the first reads of as many others. The first page of each mapping is touched before its region.
 */
#include <stddef.h>
#include <sys/mman.h>

#include "mark.h"

enum { PAGES = 4096, PAGE = 4096 };

MARK_NAME(1, "write");
MARK_NAME(2, "read");

static volatile char *shared_memory(void)
{
	return mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
	volatile char *written = shared_memory(), *read = shared_memory();
	if (written == MAP_FAILED || read == MAP_FAILED)
		return 1;
	written[0] = 1;
	(void)read[0];
	MARK_BEGIN(1);
	for (int i = 1; i < PAGES; i++)
		written[i * PAGE] = 1;
	MARK_END(1);
	MARK_BEGIN(2);
	for (int i = 1; i < PAGES; i++)
		(void)read[i * PAGE];
	MARK_END(2);
	return 0;
}
