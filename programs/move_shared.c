/* If several processes map a page, does it migrate between nodes for all of them or for none, without losing a write?
 *
 * Usage: `move_shared [ROUNDS]`. With one node there is little to check, because a page that is already on the node
 * does not migrate.
 */
#include "check.h"

enum { CHILDREN = 3, PAGES = 8, MOVE = 1 << 1, MOVE_ALL = 1 << 2, BIND = 2, INTERLEAVE = 3, ADDR = 1 << 1 };

static int nodes;

static long move_page(void *page, int node, int how, int *status)
{
	*status = -1000;
	return syscall(SYS_move_pages, 0, 1UL, &page, &node, status, how);
}

static int node_of(void *page)
{
	int status = -1000;
	if (syscall(SYS_move_pages, 0, 1UL, &page, NULL, &status, 0))
		return -1001;
	return status;
}

/* After every process has mapped the page, every process reports the page's new node. */
static void moves_for_all(char *page, int flags)
{
	int ready[2], go[2], status;
	NEED(pipe(ready) == 0 && pipe(go) == 0);
	pid_t children[CHILDREN];
	page[0] = 5;
	for (int child = 0; child < CHILDREN; child++) {
		children[child] = fork_checked();
		NEED(children[child] >= 0);
		if (children[child] == 0) {
			char byte = page[0];
			CHECK_EQ(byte, 5);
			NEED(write(ready[1], &byte, 1) == 1);
			NEED(read(go[0], &byte, 1) == 1);
			CHECK_EQ(node_of(page), byte);
			page[child + 1] = child + 10;
			end_child();
		}
	}
	for (int child = 0; child < CHILDREN; child++) {
		char byte;
		NEED(read(ready[0], &byte, 1) == 1);
	}
	int here = node_of(page), there = nodes > 1 ? !here : here;
	CHECK_EQ(move_page(page, here, MOVE, &status), 0);
	CHECK_EQ(status, here);
	CHECK_EQ(move_page(page, there, MOVE, &status), 0);
	CHECK_EQ(status, nodes > 1 ? -EACCES : here);
	CHECK_EQ(node_of(page), here);
	int tries = 0;
	while (move_page(page, there, MOVE_ALL, &status) > 0 && tries++ < 100)
		;
	CHECK_EQ(status, there);
	CHECK_EQ(node_of(page), there);
	for (int child = 0; child < CHILDREN; child++) {
		char byte = there;
		NEED(write(go[1], &byte, 1) == 1);
	}
	for (int child = 0; child < CHILDREN; child++)
		CHECK_EQ(wait_for(children[child]), 0);
	CHECK_EQ(page[0], 5);
	for (int child = 0; child < CHILDREN; child++)
		CHECK_EQ(page[child + 1], flags & MAP_SHARED ? child + 10 : 0);
	close(ready[0]);
	close(ready[1]);
	close(go[0]);
	close(go[1]);
}

static char *map(int flags, int file)
{
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
	NEED(memory != MAP_FAILED);
	NEED(madvise(memory, PAGES * PAGE, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	return memory;
}

/* Each child increments its own word of the page as fast as it can. */
static void written_meanwhile(int rounds)
{
	char *memory = map(MAP_SHARED | MAP_ANONYMOUS, -1);
	volatile uint64_t *counts = (volatile uint64_t *)memory;
	volatile uint64_t *end = (volatile uint64_t *)(memory + PAGE);
	pid_t children[CHILDREN];
	for (int child = 0; child < CHILDREN; child++) {
		children[child] = fork_checked();
		NEED(children[child] >= 0);
		if (children[child] == 0) {
			uint64_t count = 0, lost = 0;
			while (!*end) {
				lost += counts[child] != count;
				counts[child] = ++count;
				__builtin_ia32_pause();
			}
			CHECK_EQ(lost, 0);
			CHECK_EQ(counts[child], count);
			end_child();
		}
	}
	int moved = 0, status;
	for (int round = 0; round < rounds; round++) {
		while (round == 0 && !(counts[0] && counts[1] && counts[2]))
			usleep(100);
		int there = nodes > 1 ? round % 2 : 0;
		moved += move_page(memory, there, MOVE_ALL, &status) == 0 && status == there;
	}
	CHECK(moved > rounds / 2);
	*end = 1;
	for (int child = 0; child < CHILDREN; child++)
		CHECK_EQ(wait_for(children[child]), 0);
	munmap(memory, PAGES * PAGE);
}

/* A policy of shared memory applies to every process that maps the memory, whichever process set it. */
static void policies(void)
{
	int file = memfd_create("placed", 0), mode = -1;
	NEED(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	char *one = map(MAP_SHARED, file), *other = map(MAP_SHARED, file);
	unsigned long last = 1UL << (nodes - 1), all = (1UL << nodes) - 1, told = 0;
	CHECK_EQ(syscall(SYS_mbind, one + 2 * PAGE, 2 * PAGE, BIND, &last, 8L, 0), 0);
	CHECK_EQ(syscall(SYS_mbind, one + 4 * PAGE, 4 * PAGE, INTERLEAVE, &all, 8L, 0), 0);
	CHECK_EQ(syscall(SYS_get_mempolicy, &mode, &told, 64L * 16, other + 3 * PAGE, ADDR), 0);
	CHECK(mode == BIND && told == last);
	CHECK_EQ(syscall(SYS_get_mempolicy, &mode, &told, 64L * 16, other + PAGE, ADDR), 0);
	CHECK_EQ(mode, 0);
	int of_last = 0;
	for (int page = 0; page < PAGES; page++) {
		other[page * PAGE] = 1;
		if (page == 2 || page == 3)
			CHECK_EQ(node_of(other + page * PAGE), nodes - 1);
		else if (page > 3)
			of_last += node_of(other + page * PAGE) == nodes - 1;
	}
	CHECK_EQ(of_last, 4 / nodes);
	munmap(one, PAGES * PAGE);
	munmap(other, PAGES * PAGE);
	close(file);
}

int main(int argc, char **argv)
{
	unsigned long present[16] = { 0 };
	NEED(syscall(SYS_get_mempolicy, NULL, present, 64L * 16, NULL, 1 << 2) == 0);
	nodes = present[0] & 2 ? 2 : 1;
	char *memory = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	moves_for_all(memory, MAP_PRIVATE);
	munmap(memory, PAGES * PAGE);
	memory = map(MAP_SHARED | MAP_ANONYMOUS, -1);
	moves_for_all(memory, MAP_SHARED);
	munmap(memory, PAGES * PAGE);
	int file = memfd_create("moved", 0);
	NEED(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	memory = map(MAP_SHARED, file);
	close(file);
	moves_for_all(memory, MAP_SHARED);
	munmap(memory, PAGES * PAGE);
	written_meanwhile(argc > 1 ? atoi(argv[1]) : 50);
	policies();
	return checked("move_shared");
}
