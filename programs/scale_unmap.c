/* What do workers contend for if they map, write and unmap private memory? Before frames and page tables are
 * reused, no CPU may have a TLB entry for them.
 */
#include "scale.h"

static void write_and_unmap(struct worker *worker)
{
	map_own(worker, PROT_READ | PROT_WRITE);
	for (size_t page = 0; page < PAGES; page++) {
		worker->memory[page * PAGE] = 1;
		MUST(worker->memory[page * PAGE + 1] == 0);
	}
	MUST(munmap(worker->memory, PAGES * PAGE) == 0);
}

int main(int argc, char **argv)
{
	return scale("scale_unmap", argc, argv, write_and_unmap, 2);
}
