/* Is memory copied exactly when it must be, for several ways to share it and every order of writes?
 *
 * Private anonymous pages, private file pages and mappings of the zero page are shared by fork, by a fork in the
 * child and with the page cache, and are populated by MADV_POPULATE_READ and _WRITE. Processes write in every order.
 * Shared mappings must never be copied. The exit of a child must not change the parent's memory.
 */
#include "check.h"

enum kind { ANONYMOUS, FILE_PRIVATE, ANONYMOUS_SHARED, FILE_SHARED, KINDS };
enum fill { FILL_NONE, FILL_READ, FILL_WRITE, FILL_POPULATE_READ, FILL_POPULATE_WRITE, FILLS };

static int is_shared(enum kind kind)
{
	return kind == ANONYMOUS_SHARED || kind == FILE_SHARED;
}

static int is_file(enum kind kind)
{
	return kind == FILE_PRIVATE || kind == FILE_SHARED;
}

static char *map_kind(enum kind kind, int *file)
{
	int flags = is_shared(kind) ? MAP_SHARED : MAP_PRIVATE;
	*file = -1;
	if (is_file(kind)) {
		*file = scratch_file(PAGE);
		NEED(*file >= 0);
		NEED(pwrite(*file, "f", 1, 0) == 1);
	} else {
		flags |= MAP_ANONYMOUS;
	}
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, *file, 0);
	NEED(page != MAP_FAILED);
	return page;
}

static char apply_fill(char *page, enum fill fill, enum kind kind)
{
	char first = is_file(kind) ? 'f' : 0;
	switch (fill) {
	case FILL_NONE:
		break;
	case FILL_READ:
		CHECK_EQ(*(volatile char *)page, first);
		break;
	case FILL_WRITE:
		*page = first = 'w';
		break;
	case FILL_POPULATE_READ:
		CHECK_EQ(madvise(page, PAGE, MADV_POPULATE_READ), 0);
		break;
	case FILL_POPULATE_WRITE:
		CHECK_EQ(madvise(page, PAGE, MADV_POPULATE_WRITE), 0);
		break;
	case FILLS:
		break;
	}
	return first;
}

/* Three processes (0: parent, 1: child, 2: grandchild) write in this order. Each must then read its own mark, or the
 * last mark written if the page is shared. */
static void three_writers(enum kind kind, enum fill fill, const int order[3])
{
	int file;
	char *page = map_kind(kind, &file);
	char first = apply_fill(page, fill, kind);
	struct turns turns[3];
	for (int i = 1; i < 3; i++)
		NEED(turns_open(&turns[i]));

	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		int me = 1;
		pid_t grandchild = fork_checked();
		NEED(grandchild >= 0);
		if (grandchild == 0)
			me = 2;
		char mine = (char)('0' + me);
		NEED(turn_await(turns[me].to_child));
		if (!is_shared(kind))
			CHECK_EQ(*(volatile char *)page, first);
		*(volatile char *)page = mine;
		NEED(turn_pass(turns[me].to_parent));
		NEED(turn_await(turns[me].to_child));
		CHECK_EQ(*(volatile char *)page, is_shared(kind) ? '0' + order[2] : mine);
		if (me == 1)
			CHECK(exited(wait_for(grandchild), 0));
		end_child();
	}
	for (int i = 0; i < 3; i++) {
		if (order[i] == 0) {
			if (!is_shared(kind))
				CHECK_EQ(*(volatile char *)page, first);
			*(volatile char *)page = '0';
		} else {
			NEED(turn_pass(turns[order[i]].to_child) && turn_await(turns[order[i]].to_parent));
		}
	}
	NEED(turn_pass(turns[2].to_child) && turn_pass(turns[1].to_child));
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(*(volatile char *)page, is_shared(kind) ? '0' + order[2] : '0');
	if (is_file(kind)) {
		char stored;
		CHECK_EQ(pread(file, &stored, 1, 0), 1);
		char wanted = kind == FILE_SHARED ? (char)('0' + order[2]) : 'f';
		CHECK_EQ(stored, wanted);
		close(file);
	}
	for (int i = 1; i < 3; i++)
		turns_close(&turns[i]);
	munmap(page, PAGE);
}

/* A later write to a file is visible in a private page that was not written, and invisible in a private page
 * that was written. */
static void private_and_file(void)
{
	int file = scratch_file(2 * PAGE);
	NEED(file >= 0);
	char *page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	NEED(page != MAP_FAILED);
	CHECK_EQ(page[0], 0);
	CHECK_EQ(pwrite(file, "n", 1, 0), 1);
	CHECK_EQ(*(volatile char *)page, 'n');
	page[1] = 'm';
	CHECK_EQ(pwrite(file, "x", 1, 0), 1);
	CHECK_EQ(*(volatile char *)page, 'n');
	CHECK_EQ(page[1], 'm');
	/* After the private copy is discarded, the file's page is mapped again. */
	CHECK_EQ(madvise(page, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(*(volatile char *)page, 'x');
	CHECK_EQ(page[1], 0);
	munmap(page, 2 * PAGE);
	close(file);
}

/* When the last process that maps a page writes to it, the page is not copied, and its contents are kept. */
static void owners_leave(void)
{
	char *memory = anonymous(8 * PAGE);
	NEED(memory != NULL);
	memset(memory, 'a', 8 * PAGE);
	for (int round = 0; round < 4; round++) {
		pid_t child = fork_checked();
		NEED(child >= 0);
		if (child == 0) {
			for (int i = 0; i < 8; i += 2)
				memory[i * PAGE + 1] = (char)('0' + round);
			end_child();
		}
		CHECK(exited(wait_for(child), 0));
		for (int i = 0; i < 8; i++) {
			CHECK_EQ(memory[i * PAGE + 1], 'a');
			memory[i * PAGE] = (char)('A' + round);
		}
	}
	for (int i = 0; i < 8; i++)
		CHECK_EQ(memory[i * PAGE], 'D');
	munmap(memory, 8 * PAGE);
}

/* A system call that writes to memory shared copy-on-write copies it as a store does. */
static void kernel_writes(void)
{
	char *page = anonymous(PAGE);
	NEED(page != NULL);
	strcpy(page, "before");
	int ends[2];
	NEED(pipe(ends) == 0);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		NEED(write(ends[1], "child!", 6) == 6);
		CHECK_EQ(read(ends[0], page, 6), 6);
		CHECK(strcmp(page, "child!") == 0);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK(strcmp(page, "before") == 0);
	close(ends[0]);
	close(ends[1]);
	munmap(page, PAGE);
}

int main(void)
{
	static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	for (enum kind kind = ANONYMOUS; kind < KINDS; kind++)
		for (enum fill fill = FILL_NONE; fill < FILLS; fill++)
			for (int order = 0; order < 6; order++)
				three_writers(kind, fill, orders[order]);
	private_and_file();
	owners_leave();
	kernel_writes();
	return checked("cow");
}
