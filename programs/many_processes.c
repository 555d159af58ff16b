/* Can two hundred processes exist at the same time, each with private memory, and is each of them reaped?
 *
 * Each child writes its number to every page of 1 MiB of memory that it shares copy-on-write with its parent. It
 * waits until all other children have done so, checks that its pages still contain its number, and exits with a
 * distinct code.
 */
#include "check.h"

enum { CHILDREN = 200, PAGES = 256 };

int main(void)
{
	char *memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	memset(memory, 0xee, PAGES * PAGE);
	int ready[2], go[2];
	NEED(pipe(ready) == 0 && pipe(go) == 0);

	pid_t children[CHILDREN];
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork_checked();
		NEED(children[i] >= 0);
		if (children[i] == 0) {
			close(go[1]);
			for (size_t page = 0; page < PAGES; page++)
				*(int *)(memory + page * PAGE) = i;
			NEED(write(ready[1], "x", 1) == 1);
			char byte;
			/* The read returns 0 when the parent closes its end. */
			NEED(read(go[0], &byte, 1) == 0);
			int wrong = 0;
			for (size_t page = 0; page < PAGES; page++) {
				wrong += *(int *)(memory + page * PAGE) != i;
				wrong += memory[page * PAGE + 4] != (char)0xee;
			}
			CHECK_EQ(wrong, 0);
			_exit(checks_failed ? 255 : i);
		}
	}
	close(ready[1]);
	int seen = 0;
	char byte;
	while (seen < CHILDREN && read(ready[0], &byte, 1) == 1)
		seen++;
	CHECK_EQ(seen, CHILDREN);
	close(go[0]);
	close(go[1]);

	int reaped[CHILDREN] = { 0 };
	for (int i = 0; i < CHILDREN; i++) {
		int status;
		pid_t child = wait(&status);
		NEED(child > 0);
		for (int j = 0; j < CHILDREN; j++) {
			if (children[j] == child) {
				CHECK(exited(status, j));
				reaped[j]++;
			}
		}
	}
	for (int i = 0; i < CHILDREN; i++)
		CHECK_EQ(reaped[i], 1);
	CHECK_FAILS(wait(NULL), ECHILD);
	CHECK_EQ(*(int *)memory, (int)0xeeeeeeee);
	return checked("many_processes");
}
