/* Do first accesses of several workers to private memory scale? Half of the pages are written, half are read, and all
 * are then discarded. In the next round the kinds of access are exchanged, and the pages must read as zeroes.
 */
#include "scale.h"

static void touch(struct worker *worker)
{
	char *memory = worker->memory;
	if (worker->round == 0)
		map_own(worker, PROT_READ | PROT_WRITE);
	char *written = memory + (worker->round % 2 ? PAGES / 2 * PAGE : 0);
	char *read = memory + (worker->round % 2 ? 0 : PAGES / 2 * PAGE);
	for (size_t page = 0; page < PAGES / 2; page++)
		written[page * PAGE] = (char)(1 + page);
	for (size_t page = 0; page < PAGES / 2; page++)
		MUST(read[page * PAGE] == 0);
	for (size_t page = 0; page < PAGES / 2; page++)
		MUST(written[page * PAGE] == (char)(1 + page));
	MUST(madvise(memory, PAGES * PAGE, MADV_DONTNEED) == 0);
}

int main(int argc, char **argv)
{
	return scale("scale_fault", argc, argv, touch, PAGES + 1);
}
