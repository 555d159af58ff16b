/* Do allocations fail with an error at the limits of a process?
 *
 * Covers RLIMIT_AS, RLIMIT_MEMLOCK, RLIMIT_STACK, the number of areas, and overcommit. Each failing call returns
 * ENOMEM (or EAGAIN as on Linux), changes nothing, and succeeds after the limit is raised. RLIMIT_FSIZE, for files,
 * raises a signal.
 */
#include "check.h"

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static void set_limit(int which, rlim_t value)
{
	struct rlimit limit;
	NEED(getrlimit(which, &limit) == 0);
	limit.rlim_cur = value;
	if (limit.rlim_max < value)
		limit.rlim_max = value;
	NEED(setrlimit(which, &limit) == 0);
}

static void address_space(void *unused)
{
	(void)unused;
	set_limit(RLIMIT_AS, 256UL << 20);
	char *fits = anonymous(32UL << 20);
	NEED(fits != NULL);
	CHECK_FAILS((long)mmap(NULL, 1UL << 30, RW, PRIVATE, -1, 0), ENOMEM);
	CHECK_FAILS((long)mmap(NULL, 1UL << 30, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0), ENOMEM);
	CHECK_FAILS((long)mremap(fits, 32UL << 20, 1UL << 30, MREMAP_MAYMOVE), ENOMEM);
	/* A mapping that replaces another one does not increase the total. */
	CHECK(mmap(fits, 32UL << 20, RW, PRIVATE | MAP_FIXED, -1, 0) == fits);
	set_limit(RLIMIT_AS, RLIM_INFINITY);
	char *now = mmap(NULL, 1UL << 30, RW, PRIVATE | MAP_NORESERVE, -1, 0);
	CHECK(now != MAP_FAILED);
}

static void overcommit(void *unused)
{
	(void)unused;
	/* A request that can never be satisfied fails. A reservation without commitment succeeds. */
	CHECK_FAILS((long)mmap(NULL, 16UL << 40, RW, PRIVATE, -1, 0), ENOMEM);
	char *reserved = mmap(NULL, 16UL << 40, PROT_NONE, PRIVATE, -1, 0);
	CHECK(reserved != MAP_FAILED);
	CHECK_FAILS(mprotect(reserved, 16UL << 40, RW), ENOMEM);
	CHECK_EQ(mprotect(reserved, PAGE, RW), 0);
	reserved[0] = 1;
	char *promised = mmap(NULL, 16UL << 40, RW, PRIVATE | MAP_NORESERVE, -1, 0);
	CHECK(promised != MAP_FAILED);
	promised[8UL << 40] = 1;
	CHECK_EQ(promised[8UL << 40], 1);
}

static void areas(void *unused)
{
	(void)unused;
	/* Changes the permissions of every second page of a range, which adds two areas each time, until the
	 * limit is reached. */
	enum { PAGES = 140000 };
	char *range = mmap(NULL, PAGES * PAGE, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0);
	NEED(range != MAP_FAILED);
	long at;
	for (at = 0; at < PAGES; at += 2)
		if (mprotect(range + at * PAGE, PAGE, PROT_READ) != 0)
			break;
	CHECK_EQ(errno, ENOMEM);
	CHECK(at > 65000 && at <= 65530);
	/* At the limit, a hole fails, because it would require one more area. If the permission changes,
	 * which require two areas each, stopped one area below the limit, one hole succeeds. */
	int holes = 0;
	while (holes < 3 && munmap(range + (PAGES - 2 - 2 * holes) * PAGE, PAGE) == 0)
		holes++;
	CHECK_EQ(errno, ENOMEM);
	CHECK(holes < 2);
	/* A new mapping succeeds at the limit, and fails beyond it. */
	char *last = mmap(NULL, PAGE, PROT_EXEC | PROT_READ, PRIVATE, -1, 0);
	CHECK(last != MAP_FAILED);
	CHECK_FAILS((long)mmap(NULL, PAGE, PROT_EXEC | PROT_READ, PRIVATE, -1, 0), ENOMEM);
	CHECK_EQ(munmap(last, PAGE), 0);
	/* Merging reduces the number of areas. */
	CHECK_EQ(mprotect(range, 1000 * PAGE, PROT_NONE), 0);
	CHECK_EQ(munmap(range + (PAGES - 2) * PAGE, PAGE), 0);
	CHECK_EQ(munmap(range, PAGES * PAGE), 0);
}

static void locked(void *unused)
{
	(void)unused;
	char *memory = anonymous(64 * PAGE);
	NEED(memory != NULL);
	/* The limit does not apply to root, but to any other user. */
	set_limit(RLIMIT_MEMLOCK, 16 * PAGE);
	if (geteuid() == 0) {
		CHECK_EQ(mlock(memory, 32 * PAGE), 0);
		CHECK_EQ(munlock(memory, 32 * PAGE), 0);
		NEED(syscall(SYS_setresuid, 1000, 1000, 1000) == 0);
	}
	CHECK_EQ(mlock(memory, 16 * PAGE), 0);
	/* Memory that is already locked is not counted twice. */
	CHECK_EQ(mlock(memory, 16 * PAGE), 0);
	CHECK_FAILS(mlock(memory + 16 * PAGE, PAGE), ENOMEM);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, PRIVATE | MAP_LOCKED, -1, 0), EAGAIN);
	CHECK_EQ(munlock(memory, PAGE), 0);
	CHECK_EQ(mlock(memory + 16 * PAGE, PAGE), 0);
	CHECK_FAILS(mlockall(MCL_CURRENT), ENOMEM);
	CHECK_EQ(munlockall(), 0);
	set_limit(RLIMIT_MEMLOCK, 0);
	CHECK_FAILS(mlock(memory, PAGE), EPERM);
}

static void lock_calls(void)
{
	char *memory = anonymous(8 * PAGE);
	NEED(memory != NULL);
	unsigned char resident[8];
	CHECK_EQ(mlock(memory + 2 * PAGE + 5, PAGE), 0);
	CHECK_EQ(mincore(memory, 8 * PAGE, resident), 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(resident[i] & 1, i == 2 || i == 3);
	/* MADV_DONTNEED does not discard locked pages. */
	memory[2 * PAGE] = 'l';
	CHECK_FAILS(madvise(memory + 2 * PAGE, PAGE, MADV_DONTNEED), EINVAL);
	CHECK_EQ(munlock(memory, 8 * PAGE), 0);
	CHECK_EQ(madvise(memory + 2 * PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(memory[2 * PAGE], 0);
	CHECK_EQ(syscall(SYS_mlock2, memory + 4 * PAGE, 2 * PAGE, MLOCK_ONFAULT), 0);
	CHECK_EQ(mincore(memory, 8 * PAGE, resident), 0);
	CHECK_EQ(resident[4] & 1, 0);
	CHECK_FAILS(syscall(SYS_mlock2, memory, PAGE, 2), EINVAL);
	CHECK_FAILS(mlockall(0), EINVAL);
	CHECK_EQ(munmap(memory + 6 * PAGE, PAGE), 0);
	CHECK_FAILS(mlock(memory, 8 * PAGE), ENOMEM);
	munmap(memory, 8 * PAGE);

	CHECK_EQ(mlockall(MCL_FUTURE), 0);
	memory = anonymous(2 * PAGE);
	NEED(memory != NULL);
	CHECK_EQ(mincore(memory, 2 * PAGE, resident), 0);
	CHECK_EQ((resident[0] & 1) + (resident[1] & 1), 2);
	CHECK_EQ(munlockall(), 0);
	munmap(memory, 2 * PAGE);
}

static void deep(int levels)
{
	volatile char frame[4096];
	frame[0] = (char)levels;
	if (levels > 0)
		deep(levels - 1);
	frame[1] = frame[0];
}

static void small_stack(void *unused)
{
	(void)unused;
	set_limit(RLIMIT_STACK, 1 << 20);
	deep(128);
	deep(1024);
}

static void default_stack(void *unused)
{
	(void)unused;
	deep(1500);
}

static void file_size(void *unused)
{
	(void)unused;
	int file = scratch_file(0);
	NEED(file >= 0);
	/* An offset that is too large causes an error but no signal. */
	CHECK_FAILS(pwrite(file, "xy", 2, INT64_MAX), EINVAL);
	CHECK_FAILS(pwrite(file, "xy", 2, INT64_MAX - 1), EINVAL);
	set_limit(RLIMIT_FSIZE, PAGE);
	CHECK_EQ(pwrite(file, "xy", 2, PAGE - 1), 1);
	/* This write raises SIGXFSZ, which ends the program. */
	CHECK_FAILS(pwrite(file, "xy", 2, PAGE), EFBIG);
}

int main(void)
{
	CHECK(killed(in_child(file_size, NULL), SIGXFSZ));
	CHECK(exited(in_child(address_space, NULL), 0));
	CHECK(exited(in_child(overcommit, NULL), 0));
	CHECK(exited(in_child(areas, NULL), 0));
	CHECK(exited(in_child(locked, NULL), 0));
	lock_calls();
	CHECK(killed(in_child(small_stack, NULL), SIGSEGV));
	CHECK(exited(in_child(default_stack, NULL), 0));
	struct rlimit stack;
	CHECK_EQ(getrlimit(RLIMIT_STACK, &stack), 0);
	CHECK_EQ(stack.rlim_cur, 8 << 20);
	return checked("limits");
}
