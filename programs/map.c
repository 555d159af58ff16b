/* Do mmap, munmap, mprotect and brk behave as Linux documents, including the errno of each error?
 */
#include "check.h"

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static void *map(void *at, size_t length, int rights, int flags)
{
	return mmap(at, length, rights, flags, -1, 0);
}

/* Returns the result of an access by a child: 0 if the access is permitted, or the signal that killed the child. */
static int touch(volatile char *byte, int write)
{
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		signal(SIGBUS, SIG_DFL);
		if (write)
			*byte = 1;
		else
			(void)*byte;
		_exit(0);
	}
	int status = wait_for(child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void refusals(void)
{
	CHECK_FAILS((long)map(NULL, 0, RW, PRIVATE), EINVAL);
	CHECK_FAILS((long)map(NULL, PAGE, RW, MAP_ANONYMOUS), EINVAL);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_PRIVATE, -1, 0), EBADF);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1), EINVAL);
	CHECK_FAILS((long)map((void *)0x10001, PAGE, RW, PRIVATE | MAP_FIXED), EINVAL);
	CHECK_FAILS((long)map(NULL, -PAGE, RW, PRIVATE), ENOMEM);
	CHECK_FAILS((long)map(NULL, 1UL << 47, RW, PRIVATE | MAP_NORESERVE), ENOMEM);
	CHECK_FAILS((long)map((void *)(1UL << 47), PAGE, RW, PRIVATE | MAP_FIXED), ENOMEM);
	CHECK_FAILS(munmap((void *)1, PAGE), EINVAL);
	char *page = anonymous(PAGE);
	NEED(page != NULL);
	CHECK_FAILS(munmap(page, 0), EINVAL);
	CHECK_FAILS(munmap(page, -PAGE), EINVAL);
	/* musl's mprotect aligns its arguments, so the system call is made directly. */
	CHECK_FAILS(syscall(SYS_mprotect, page + 1, PAGE, RW), EINVAL);
	CHECK_EQ(mprotect(page, 0, PROT_NONE), 0);
	CHECK_EQ(munmap(page, PAGE), 0);
	/* In an unmapped range munmap succeeds and mprotect fails. */
	CHECK_EQ(munmap(page, PAGE), 0);
	CHECK_FAILS(mprotect(page, PAGE, RW), ENOMEM);

	int file = scratch_file(PAGE);
	NEED(file >= 0);
	char name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	int reader = open(name, O_RDONLY);
	NEED(reader >= 0);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_SHARED, reader, 0), EACCES);
	char *view = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reader, 0);
	NEED(view != MAP_FAILED);
	CHECK_FAILS(mprotect(view, PAGE, RW), EACCES);
	munmap(view, PAGE);
	view = mmap(NULL, PAGE, RW, MAP_PRIVATE, reader, 0);
	CHECK(view != MAP_FAILED);
	munmap(view, PAGE);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_PRIVATE, reader, 1), EINVAL);
	int writer = open(name, O_WRONLY);
	NEED(writer >= 0);
	CHECK_FAILS((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0), EACCES);
	close(writer);
	close(reader);
	close(file);
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_FAILS((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ends[0], 0), ENODEV);
	close(ends[0]);
	close(ends[1]);
}

static void placement(void)
{
	char *base = map(NULL, 8 * PAGE, PROT_NONE, PRIVATE);
	NEED(base != MAP_FAILED);
	/* A fixed mapping replaces what is mapped in its range, and nothing else. */
	CHECK(map(base + 2 * PAGE, 2 * PAGE, RW, PRIVATE | MAP_FIXED) == base + 2 * PAGE);
	base[2 * PAGE] = 1;
	CHECK_EQ(touch(base + PAGE, 0), SIGSEGV);
	CHECK_EQ(touch(base + 4 * PAGE, 0), SIGSEGV);
	CHECK(map(base + 2 * PAGE, PAGE, RW, PRIVATE | MAP_FIXED) == base + 2 * PAGE);
	CHECK_EQ(base[2 * PAGE], 0);
	CHECK_FAILS((long)map(base + 7 * PAGE, 2 * PAGE, RW, PRIVATE | MAP_FIXED_NOREPLACE), EEXIST);
	CHECK_EQ(munmap(base + 5 * PAGE, PAGE), 0);
	CHECK(map(base + 5 * PAGE, PAGE, RW, PRIVATE | MAP_FIXED_NOREPLACE) == base + 5 * PAGE);
	CHECK_EQ(munmap(base + 6 * PAGE, PAGE), 0);
	/* A hint address is used if it is free. It is not an error if it is in use. */
	CHECK(map(base + 6 * PAGE, PAGE, RW, PRIVATE) == base + 6 * PAGE);
	char *other = map(base + 6 * PAGE, PAGE, RW, PRIVATE);
	CHECK(other != MAP_FAILED && other != base + 6 * PAGE);
	munmap(other, PAGE);
	CHECK_EQ(munmap(base, 8 * PAGE), 0);
	CHECK_EQ(touch(base + 2 * PAGE, 0), SIGSEGV);
	/* The range that was just unmapped is reused first. */
	CHECK(map(NULL, 8 * PAGE, RW, PRIVATE) == base);
	CHECK_EQ(base[2 * PAGE], 0);
	munmap(base, 8 * PAGE);
	/* New mappings are placed at descending addresses, adjacent to one another. */
	char *first = anonymous(PAGE);
	char *second = map(NULL, PAGE, PROT_READ, PRIVATE);
	CHECK(second == first - PAGE);
	munmap(second, PAGE);
	munmap(first, PAGE);
}

static void rights(void)
{
	char *page = anonymous(3 * PAGE);
	NEED(page != NULL);
	memset(page, 'x', 3 * PAGE);
	static const struct {
		int rights, read, write;
	} cases[] = {
		{ PROT_NONE, SIGSEGV, SIGSEGV },
		{ PROT_READ, 0, SIGSEGV },
		{ PROT_WRITE, 0, 0 },
		{ RW, 0, 0 },
		{ PROT_EXEC, 0, SIGSEGV },
		{ PROT_READ | PROT_EXEC, 0, SIGSEGV },
		{ PROT_NONE, SIGSEGV, SIGSEGV },
		{ RW, 0, 0 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		CHECK_EQ(mprotect(page + PAGE, PAGE, cases[i].rights), 0);
		/* On x86 executable memory is readable, unless the processor has protection keys. */
		if (cases[i].rights != PROT_EXEC)
			CHECK_EQ(touch(page + PAGE, 0), cases[i].read);
		CHECK_EQ(touch(page + PAGE, 1), cases[i].write);
		CHECK_EQ(touch(page, 1), 0);
		CHECK_EQ(touch(page + 2 * PAGE, 1), 0);
	}
	CHECK_EQ(page[PAGE], 'x');
	/* A change over a range with a hole is applied up to the hole. */
	CHECK_EQ(munmap(page + PAGE, PAGE), 0);
	CHECK_FAILS(mprotect(page, 3 * PAGE, PROT_READ), ENOMEM);
	CHECK_EQ(touch(page, 1), SIGSEGV);
	CHECK_EQ(touch(page + 2 * PAGE, 1), 0);
	munmap(page, 3 * PAGE);
}

static void code(void)
{
	/* mov eax, 42; ret */
	static const unsigned char bytes[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
	unsigned char *page = map(NULL, PAGE, RW, PRIVATE);
	NEED(page != MAP_FAILED);
	memcpy(page, bytes, sizeof bytes);
	pid_t child = fork_checked();
	if (child == 0) {
		((int (*)(void))page)();
		_exit(0);
	}
	CHECK(killed(wait_for(child), SIGSEGV));
	CHECK_EQ(mprotect(page, PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(((int (*)(void))page)(), 42);
	CHECK_EQ(mprotect(page, PAGE, RW), 0);
	page[1] = 43;
	CHECK_EQ(mprotect(page, PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(((int (*)(void))page)(), 43);
	munmap(page, PAGE);
}

static void reservation(void)
{
	/* Reserves half a TiB of addresses, of which only a few pages are used. */
	size_t length = 512UL << 30;
	char *range = map(NULL, length, PROT_NONE, PRIVATE | MAP_NORESERVE);
	NEED(range != MAP_FAILED);
	for (size_t at = 0; at < length; at += length / 8) {
		CHECK_EQ(mprotect(range + at, PAGE, RW), 0);
		range[at] = 'r';
	}
	for (size_t at = 0; at < length; at += length / 8)
		CHECK_EQ(range[at], 'r');
	CHECK_EQ(touch(range + length - PAGE, 0), SIGSEGV);
	CHECK_EQ(munmap(range, length), 0);
	CHECK_EQ(touch(range, 0), SIGSEGV);
}

/* Returns the number of page faults that one write to each of the pages takes. */
static long faults_of_writes(char *memory, int pages)
{
	long before = faults_taken();
	for (int i = 0; i < pages; i++)
		memory[i * PAGE] = 1;
	return faults_taken() - before;
}

static void populate(void)
{
	char *plain = anonymous(64 * PAGE);
	NEED(plain != NULL);
	/* The first call also populates the code that counts. */
	CHECK(faults_of_writes(plain, 64) >= 64);
	CHECK_EQ(faults_of_writes(plain, 64), 0);
	munmap(plain, 64 * PAGE);
	char *memory = map(NULL, 64 * PAGE, RW, PRIVATE | MAP_POPULATE);
	NEED(memory != MAP_FAILED);
	CHECK_EQ(faults_of_writes(memory, 64), 0);
	munmap(memory, 64 * PAGE);
}

static void grows_down(void)
{
	/* The stack can grow into the free addresses below it. It is directly below another mapping, which is
	 * permitted. */
	char *room = map(NULL, 1024 * PAGE, PROT_NONE, PRIVATE);
	NEED(room != MAP_FAILED);
	CHECK_EQ(munmap(room, 1024 * PAGE), 0);
	char *stack = map(room + 1023 * PAGE, PAGE, RW, PRIVATE | MAP_FIXED | MAP_GROWSDOWN);
	NEED(stack == room + 1023 * PAGE);
	for (int i = 0; i < 16; i++)
		stack[-i * (long)PAGE] = (char)i;
	for (int i = 0; i < 16; i++)
		CHECK_EQ(stack[-i * (long)PAGE], i);
	CHECK_EQ(munmap(stack - 15 * PAGE, 16 * PAGE), 0);

	/* The stack stops growing at the guard gap (256 pages) above the next lower mapping. */
	char *below = map(room, PAGE, RW, PRIVATE | MAP_FIXED);
	NEED(below == room);
	stack = map(room + 300 * PAGE, PAGE, RW, PRIVATE | MAP_FIXED | MAP_GROWSDOWN);
	NEED(stack == room + 300 * PAGE);
	CHECK_EQ(touch(stack - 40 * PAGE, 1), 0);
	CHECK_EQ(touch(room + 200 * PAGE, 1), SIGSEGV);
	munmap(room, 1024 * PAGE);
}

static void program_break(void)
{
	char *start = sbrk(0);
	CHECK(sbrk(3 * PAGE) == start);
	memset(start, 'b', 3 * PAGE);
	CHECK(sbrk(-2 * (long)PAGE) == start + 3 * PAGE);
	CHECK(sbrk(2 * PAGE) == start + PAGE);
	/* Memory that was freed reads as zeroes after it is mapped again, and the rest keeps its contents. */
	CHECK_EQ(start[0], 'b');
	char *next = (char *)(((uintptr_t)start + PAGE - 1) & ~(PAGE - 1)) + PAGE;
	CHECK_EQ(next[0], 0);
	CHECK(syscall(SYS_brk, 0x1000) == (long)sbrk(0));
	struct rlimit limit, small;
	NEED(getrlimit(RLIMIT_DATA, &limit) == 0);
	small = limit;
	small.rlim_cur = 16 * PAGE;
	NEED(setrlimit(RLIMIT_DATA, &small) == 0);
	long now = syscall(SYS_brk, 0);
	CHECK_EQ(syscall(SYS_brk, now + (1 << 20)), now);
	NEED(setrlimit(RLIMIT_DATA, &limit) == 0);
	CHECK_EQ(syscall(SYS_brk, now + (1 << 20)), now + (1 << 20));
	CHECK_EQ(syscall(SYS_brk, now), now);
	CHECK_EQ(brk(start), 0);
}

int main(void)
{
	refusals();
	placement();
	rights();
	code();
	reservation();
	populate();
	grows_down();
	/* musl's sbrk does not move the break, in which case the break is not tested. */
	if (sbrk(PAGE) != (void *)-1) {
		sbrk(-(long)PAGE);
		program_break();
	}
	return checked("map");
}
