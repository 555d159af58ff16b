/* What do workers contend for if they write-protect private memory and write to it again? */
#include "scale.h"

static void protect(struct worker *worker)
{
	char *memory = worker->memory;
	if (worker->round == 0)
		map_own(worker, PROT_READ | PROT_WRITE);
	for (size_t page = 0; page < PAGES; page++)
		memory[page * PAGE] = (char)worker->round;
	MUST(mprotect(memory, PAGES * PAGE, PROT_READ) == 0);
	for (size_t page = 0; page < PAGES; page++)
		MUST(memory[page * PAGE] == (char)worker->round);
	MUST(mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
}

int main(int argc, char **argv)
{
	return scale("scale_protect", argc, argv, protect, 2);
}
