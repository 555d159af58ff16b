/* What do workers contend for if they map and unmap private memory without touching it? */
#include "scale.h"

#define TIMES 16

static void map_and_unmap(struct worker *worker)
{
	for (int time = 0; time < TIMES; time++) {
		map_own(worker, PROT_READ | PROT_WRITE);
		MUST(munmap(worker->memory, PAGES * PAGE) == 0);
	}
}

int main(int argc, char **argv)
{
	return scale("scale_mmap", argc, argv, map_and_unmap, 2 * TIMES);
}
