/* Do accesses to anonymous memory take exactly the necessary number of page faults?
 *
 * The program counts its own faults (getrusage) during one access per page, and compares the number with Linux's. A
 * first write takes one fault per page, and a read followed by a write takes two. A write takes none after mprotect
 * removed and restored write permission. After a fork, each page takes one fault when it is copied, and one when its
 * last owner reuses it.
 */
#include "check.h"

enum { PAGES = 64 };

#define RW (PROT_READ | PROT_WRITE)

static long reads(volatile char *memory)
{
	long before = faults_taken();
	for (int i = 0; i < PAGES; i++)
		(void)memory[(size_t)i * PAGE];
	return faults_taken() - before;
}

static long writes(volatile char *memory)
{
	long before = faults_taken();
	for (int i = 0; i < PAGES; i++)
		memory[(size_t)i * PAGE] = 1;
	return faults_taken() - before;
}

/* Populates the code and the stack that the measurement uses, so that they cause no faults later. */
static void warm_up(void)
{
	char *memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	reads(memory);
	writes(memory);
	munmap(memory, PAGES * PAGE);
}

static char *fresh(void)
{
	char *memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	/* Disables huge pages. 15 is MADV_NOHUGEPAGE, which may fail on a kernel without huge pages. */
	madvise(memory, PAGES * PAGE, 15);
	return memory;
}

static void first_touch(void)
{
	char *memory = fresh();
	CHECK_EQ(writes(memory), PAGES);
	CHECK_EQ(writes(memory), 0);
	CHECK_EQ(reads(memory), 0);
	CHECK_EQ(madvise(memory, PAGES * PAGE, MADV_DONTNEED), 0);
	/* A read maps the zero page, and a later write maps a private page. */
	CHECK_EQ(reads(memory), PAGES);
	CHECK_EQ(reads(memory), 0);
	CHECK_EQ(writes(memory), PAGES);
	CHECK_EQ(writes(memory), 0);
	munmap(memory, PAGES * PAGE);
}

static void protection(void)
{
	char *memory = fresh();
	CHECK_EQ(writes(memory), PAGES);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(mprotect(memory, PAGES * PAGE, PROT_READ), 0);
		CHECK_EQ(reads(memory), 0);
		CHECK_EQ(mprotect(memory, PAGES * PAGE, RW), 0);
		CHECK_EQ(writes(memory), 0);
	}
	CHECK_EQ(mprotect(memory, PAGES * PAGE, PROT_NONE), 0);
	CHECK_EQ(mprotect(memory, PAGES * PAGE, RW), 0);
	CHECK_EQ(writes(memory), 0);
	munmap(memory, PAGES * PAGE);
}

/* After a fork the child copies each page, and the parent then becomes the only owner of the original: one fault
 * each. */
static void after_fork(int protect)
{
	char *memory = fresh();
	CHECK_EQ(writes(memory), PAGES);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		/* This process also shares its own stack and data with its parent. */
		warm_up();
		CHECK_EQ(reads(memory), 0);
		if (protect) {
			CHECK_EQ(mprotect(memory, PAGES * PAGE, PROT_READ), 0);
			CHECK_EQ(mprotect(memory, PAGES * PAGE, RW), 0);
		}
		CHECK_EQ(writes(memory), PAGES);
		CHECK_EQ(writes(memory), 0);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	warm_up();
	if (protect) {
		CHECK_EQ(mprotect(memory, PAGES * PAGE, PROT_READ), 0);
		CHECK_EQ(mprotect(memory, PAGES * PAGE, RW), 0);
	}
	/* After the child has exited, the pages are exclusive to this process again. A kernel may detect this when
	 * write permission is restored, or at each write. */
	long faults = writes(memory);
	CHECK(faults == PAGES || (protect && faults == 0));
	CHECK_EQ(writes(memory), 0);
	munmap(memory, PAGES * PAGE);
}

static void shared_memory(void)
{
	char *memory = mmap(NULL, PAGES * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	CHECK_EQ(writes(memory), PAGES);
	CHECK_EQ(writes(memory), 0);
	CHECK_EQ(mprotect(memory, PAGES * PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(memory, PAGES * PAGE, RW), 0);
	CHECK_EQ(writes(memory), 0);
	munmap(memory, PAGES * PAGE);
}

static void moved(void)
{
	char *memory = fresh();
	CHECK_EQ(writes(memory), PAGES);
	char *there = mremap(memory, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);
	NEED(there != MAP_FAILED);
	CHECK_EQ(writes(there), 0);
	munmap(there, 2 * PAGES * PAGE);
}

/* Pages that a system call populates count as this process's faults too. */
static void by_system_calls(void)
{
	char *memory = fresh();
	int zero = open("/dev/zero", O_RDONLY);
	NEED(zero >= 0);
	static char small[PAGE];
	CHECK_EQ(read(zero, small, PAGE), PAGE);
	long before = faults_taken();
	CHECK_EQ(read(zero, memory, PAGES * PAGE), PAGES * PAGE);
	CHECK_EQ(faults_taken() - before, PAGES);
	CHECK_EQ(writes(memory), 0);
	close(zero);
	munmap(memory, PAGES * PAGE);
}

int main(void)
{
	warm_up();
	first_touch();
	protection();
	after_fork(0);
	after_fork(1);
	shared_memory();
	moved();
	by_system_calls();
	return checked("faults");
}
