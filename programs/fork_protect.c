/* Does one process ever read what the other wrote, if permissions change between the fork and the writes?
 *
 * After the fork, each process may remove and restore write permission by mprotect(READ) and mprotect(READ |
 * WRITE). A memory manager that restores the permission without checking whether the page is shared would let
 * both processes write to one page. The program tries every order of the six steps (protect, restore and
 * write, in the parent and in the child). Before the fork, the parent's page is written, only read, or
 * untouched. Some runs have a grandchild that only reads.
 */
#include "check.h"

enum { PROTECT, RESTORE, WRITE, STEPS };
enum before { TOUCH_NONE, TOUCH_READ, TOUCH_WRITE, KINDS };

static void step(char *page, int number, char mark)
{
	switch (number) {
	case PROTECT:
		CHECK_EQ(mprotect(page, PAGE, PROT_READ), 0);
		break;
	case RESTORE:
		CHECK_EQ(mprotect(page, PAGE, PROT_READ | PROT_WRITE), 0);
		break;
	case WRITE:
		*(volatile char *)page = mark;
		break;
	}
}

/* Executes one order of steps. Bit i of `order` is 1 if the child executes the i-th step. */
static void run_order(unsigned order, enum before before)
{
	struct turns turns;
	char *page = anonymous(PAGE);
	NEED(page != NULL && turns_open(&turns));
	char first = 0;
	if (before == TOUCH_WRITE)
		first = *page = 'o';
	else if (before == TOUCH_READ)
		CHECK_EQ(*(volatile char *)page, 0);

	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		int done = 0;
		for (int i = 0; i < 2 * STEPS; i++) {
			if (!(order >> i & 1))
				continue;
			NEED(turn_await(turns.to_child));
			step(page, done++, 'c');
			CHECK_EQ(*(volatile char *)page, done == STEPS ? 'c' : first);
			NEED(turn_pass(turns.to_parent));
		}
		/* At the last turn, the parent has executed all of its steps. */
		NEED(turn_await(turns.to_child));
		CHECK_EQ(*(volatile char *)page, 'c');
		end_child();
	}
	/* A process that shares the page and executes no step must keep the contents as of the fork. */
	struct turns watch;
	NEED(turns_open(&watch));
	int done = 0;
	pid_t watcher = -1;
	for (int i = 0; i < 2 * STEPS; i++) {
		if (order >> i & 1) {
			NEED(turn_pass(turns.to_child) && turn_await(turns.to_parent));
		} else {
			step(page, done++, 'p');
		}
		CHECK_EQ(*(volatile char *)page, done == STEPS ? 'p' : first);
		if (i == STEPS - 1) {
			char seen = *(volatile char *)page;
			watcher = fork_checked();
			NEED(watcher >= 0);
			if (watcher == 0) {
				NEED(turn_await(watch.to_child));
				CHECK_EQ(*(volatile char *)page, seen);
				end_child();
			}
		}
	}
	NEED(turn_pass(turns.to_child) && turn_pass(watch.to_child));
	CHECK(exited(wait_for(child), 0));
	CHECK(exited(wait_for(watcher), 0));
	CHECK_EQ(*(volatile char *)page, 'p');
	turns_close(&watch);
	turns_close(&turns);
	munmap(page, PAGE);
}

int main(void)
{
	int orders = 0;
	for (unsigned order = 0; order < 1u << (2 * STEPS); order++) {
		if (__builtin_popcount(order) != STEPS)
			continue;
		orders++;
		for (enum before before = TOUCH_NONE; before < KINDS; before++)
			run_order(order, before);
	}
	CHECK_EQ(orders, 20);
	return checked("fork_protect");
}
