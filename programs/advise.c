/* Do mremap, madvise, mincore and msync do what Linux documents, including the errno if they refuse a call?
 */
#include "check.h"

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

/* Fills each page with a letter that is different for each page. */
static void number(char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		memset(memory + i * PAGE, 'a' + i, PAGE);
}

static int numbered(const char *memory, int pages)
{
	for (int i = 0; i < pages; i++)
		if (memory[i * PAGE] != 'a' + i || memory[i * PAGE + PAGE - 1] != 'a' + i)
			return 0;
	return 1;
}

static int resident(char *page)
{
	unsigned char in = 0;
	return mincore(page, PAGE, &in) == 0 ? in & 1 : -1;
}

static void remap(void)
{
	char *room = mmap(NULL, 32 * PAGE, PROT_NONE, PRIVATE, -1, 0);
	NEED(room != MAP_FAILED);
	char *old = mmap(room, 4 * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
	NEED(old == room);
	number(old, 4);
	/* The mapping cannot grow in place, because the next addresses are in use. */
	CHECK_FAILS((long)mremap(old, 4 * PAGE, 8 * PAGE, 0), ENOMEM);
	char *moved = mremap(old, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	NEED(moved != MAP_FAILED);
	CHECK(moved != old);
	CHECK(numbered(moved, 4));
	CHECK_EQ(moved[7 * PAGE], 0);
	CHECK_FAILS(mincore(old, PAGE, (unsigned char *)(long[1]){ 0 }), ENOMEM);
	/* A mapping that shrinks keeps its first pages. */
	CHECK(mremap(moved, 8 * PAGE, 2 * PAGE, 0) == moved);
	CHECK(numbered(moved, 2));
	CHECK_FAILS(mincore(moved + 2 * PAGE, PAGE, (unsigned char *)(long[1]){ 0 }), ENOMEM);
	/* A mapping grows in place if the next addresses are free. */
	CHECK(mremap(moved, 2 * PAGE, 3 * PAGE, 0) == moved);
	CHECK(numbered(moved, 2));
	CHECK_EQ(moved[2 * PAGE], 0);
	/* A move to a fixed address unmaps what was mapped there. */
	CHECK(mremap(moved, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 8 * PAGE) == room + 8 * PAGE);
	CHECK(numbered(room + 8 * PAGE, 2));
	/* With MREMAP_DONTUNMAP the old range stays mapped, but its pages have moved. */
	char *kept = mremap(room + 8 * PAGE, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	NEED(kept != MAP_FAILED);
	CHECK(numbered(kept, 2));
	CHECK_EQ(room[8 * PAGE], 0);
	CHECK_EQ(kept[0], 'a');
	munmap(kept, 3 * PAGE);

	old = mmap(room, 4 * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
	CHECK_FAILS((long)mremap(old + 1, PAGE, PAGE, 0), EINVAL);
	CHECK_FAILS((long)mremap(old, PAGE, 0, 0), EINVAL);
	CHECK_FAILS((long)mremap(old, PAGE, PAGE, 8), EINVAL);
	CHECK_FAILS((long)mremap(old, PAGE, PAGE, MREMAP_FIXED, room + 8 * PAGE), EINVAL);
	CHECK_FAILS((long)mremap(old, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, old + PAGE), EINVAL);
	CHECK_FAILS((long)mremap(old, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, old + 5), EINVAL);
	CHECK_FAILS((long)mremap(old, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL), EINVAL);
	CHECK_FAILS((long)mremap(old, 0, PAGE, MREMAP_MAYMOVE), EINVAL);
	CHECK_EQ(munmap(old + PAGE, PAGE), 0);
	CHECK_FAILS((long)mremap(old, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE), EFAULT);
	CHECK_FAILS((long)mremap(old + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
	munmap(room, 32 * PAGE);

	/* An old length of 0 creates a second mapping of a shared mapping's pages. */
	char *shared = mmap(NULL, 2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED);
	char *twin = mremap(shared, 0, 2 * PAGE, MREMAP_MAYMOVE);
	NEED(twin != MAP_FAILED);
	twin[0] = 't';
	CHECK_EQ(*(volatile char *)shared, 't');
	munmap(shared, 2 * PAGE);
	CHECK_EQ(*(volatile char *)twin, 't');
	munmap(twin, 2 * PAGE);

	/* A private page that was moved is still shared copy-on-write with a child that was created before the move. */
	char *page = anonymous(PAGE);
	*page = 'o';
	pid_t child = fork_checked();
	if (child == 0) {
		char *there = mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
		NEED(there != MAP_FAILED);
		CHECK_EQ(there[0], 'o');
		there[0] = 'c';
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(*page, 'o');
	munmap(page, PAGE);
}

static void dontneed_and_free(void)
{
	char *memory = anonymous(8 * PAGE);
	NEED(memory != NULL);
	number(memory, 8);
	CHECK_EQ(madvise(memory + PAGE, 2 * PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(memory[0], 'a');
	CHECK_EQ(resident(memory + PAGE), 0);
	CHECK_EQ(memory[PAGE], 0);
	CHECK_EQ(memory[2 * PAGE], 0);
	CHECK_EQ(memory[3 * PAGE], 'd');
	/* After MADV_FREE, each page either has its contents or reads as zeroes. A write cancels the MADV_FREE of its
	 * page. */
	CHECK_EQ(madvise(memory + 4 * PAGE, PAGE, MADV_FREE), 0);
	CHECK(memory[4 * PAGE] == 'e' || memory[4 * PAGE] == 0);
	memory[4 * PAGE] = 'E';
	CHECK_EQ(memory[4 * PAGE], 'E');
	CHECK_FAILS(madvise(memory + 1, PAGE, MADV_DONTNEED), EINVAL);
	CHECK_FAILS(madvise(memory, PAGE, 12345), EINVAL);
	CHECK_EQ(madvise(memory, 0, MADV_DONTNEED), 0);
	CHECK_EQ(madvise(memory, PAGE, MADV_NORMAL), 0);
	CHECK_EQ(madvise(memory, PAGE, MADV_SEQUENTIAL), 0);
	CHECK_EQ(madvise(memory, PAGE, MADV_RANDOM), 0);
	/* If the range contains a hole, the advice applies to the mapped pages and the call returns ENOMEM. */
	CHECK_EQ(munmap(memory + 6 * PAGE, PAGE), 0);
	CHECK_FAILS(madvise(memory + 5 * PAGE, 3 * PAGE, MADV_DONTNEED), ENOMEM);
	CHECK_EQ(memory[5 * PAGE], 0);
	CHECK_EQ(memory[7 * PAGE], 0);
	CHECK_FAILS(madvise(memory + 5 * PAGE, 3 * PAGE, MADV_POPULATE_WRITE), ENOMEM);
	munmap(memory, 8 * PAGE);

	char *shared = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED);
	*shared = 's';
	CHECK_EQ(madvise(shared, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(*shared, 's');
	CHECK_FAILS(madvise(shared, PAGE, MADV_FREE), EINVAL);
	munmap(shared, PAGE);
}

static void populate(void)
{
	char *memory = anonymous(4 * PAGE);
	NEED(memory != NULL);
	CHECK_EQ(madvise(memory, 2 * PAGE, MADV_POPULATE_WRITE), 0);
	CHECK_EQ(resident(memory), 1);
	CHECK_EQ(resident(memory + PAGE), 1);
	CHECK_EQ(resident(memory + 2 * PAGE), 0);
	long before = faults_taken();
	memory[0] = memory[PAGE] = 1;
	CHECK_EQ(faults_taken() - before, 0);
	CHECK_EQ(madvise(memory + 2 * PAGE, PAGE, MADV_POPULATE_READ), 0);
	before = faults_taken();
	CHECK_EQ(*(volatile char *)(memory + 2 * PAGE), 0);
	CHECK_EQ(faults_taken() - before, 0);
	CHECK_EQ(mprotect(memory, PAGE, PROT_READ), 0);
	CHECK_FAILS(madvise(memory, PAGE, MADV_POPULATE_WRITE), EINVAL);
	CHECK_EQ(mprotect(memory, PAGE, PROT_NONE), 0);
	CHECK_FAILS(madvise(memory, PAGE, MADV_POPULATE_READ), EINVAL);
	CHECK_EQ(mprotect(memory, PAGE, PROT_WRITE), 0);
	CHECK_FAILS(madvise(memory, PAGE, MADV_POPULATE_READ), EINVAL);
	CHECK_EQ(madvise(memory, PAGE, MADV_POPULATE_WRITE), 0);
	munmap(memory, 4 * PAGE);
}

static void over_fork(void)
{
	char *memory = anonymous(3 * PAGE);
	NEED(memory != NULL);
	number(memory, 3);
	CHECK_EQ(madvise(memory, PAGE, MADV_DONTFORK), 0);
	CHECK_EQ(madvise(memory + PAGE, PAGE, MADV_WIPEONFORK), 0);
	pid_t child = fork_checked();
	if (child == 0) {
		unsigned char in;
		CHECK_FAILS(mincore(memory, PAGE, &in), ENOMEM);
		CHECK_EQ(memory[PAGE], 0);
		memory[PAGE] = 'x';
		CHECK_EQ(memory[2 * PAGE], 'c');
		/* The child inherits the advice, so the page is zeroed in the child's own child too. */
		pid_t grandchild = fork_checked();
		if (grandchild == 0) {
			CHECK_EQ(memory[PAGE], 0);
			end_child();
		}
		CHECK(exited(wait_for(grandchild), 0));
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK(numbered(memory, 3));
	CHECK_EQ(madvise(memory, PAGE, MADV_DOFORK), 0);
	CHECK_EQ(madvise(memory + PAGE, PAGE, MADV_KEEPONFORK), 0);
	child = fork_checked();
	if (child == 0) {
		CHECK(numbered(memory, 3));
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	munmap(memory, 3 * PAGE);
	char *shared = mmap(NULL, PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK_FAILS(madvise(shared, PAGE, MADV_WIPEONFORK), EINVAL);
	munmap(shared, PAGE);
}

static void residency(void)
{
	unsigned char in[4];
	char *memory = anonymous(4 * PAGE);
	NEED(memory != NULL);
	memory[PAGE] = 1;
	CHECK_EQ(mincore(memory, 4 * PAGE, in), 0);
	CHECK_EQ(in[0] & 1, 0);
	CHECK_EQ(in[1] & 1, 1);
	CHECK_EQ(in[2] & 1, 0);
	CHECK_EQ(mincore(memory, 0, in), 0);
	CHECK_FAILS(mincore(memory + 1, PAGE, in), EINVAL);
	CHECK_EQ(munmap(memory + 2 * PAGE, PAGE), 0);
	CHECK_FAILS(mincore(memory, 4 * PAGE, in), ENOMEM);
	CHECK_FAILS(mincore(memory, PAGE, (unsigned char *)8), EFAULT);
	munmap(memory, 4 * PAGE);
}

static void synchronise(void)
{
	int file = scratch_file(2 * PAGE);
	NEED(file >= 0);
	char *view = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, file, 0);
	NEED(view != MAP_FAILED);
	view[PAGE] = 'v';
	CHECK_EQ(msync(view, 2 * PAGE, MS_SYNC), 0);
	CHECK_EQ(msync(view, 2 * PAGE, MS_ASYNC), 0);
	char stored;
	CHECK_EQ(pread(file, &stored, 1, PAGE), 1);
	CHECK_EQ(stored, 'v');
	CHECK_FAILS(msync(view + 1, PAGE, MS_SYNC), EINVAL);
	CHECK_FAILS(msync(view, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
	CHECK_FAILS(msync(view, PAGE, 64), EINVAL);
	munmap(view + PAGE, PAGE);
	CHECK_FAILS(msync(view, 2 * PAGE, MS_SYNC), ENOMEM);
	munmap(view, PAGE);
	close(file);
}

int main(void)
{
	remap();
	dontneed_and_free();
	populate();
	over_fork();
	residency();
	synchronise();
	return checked("advise");
}
