/* Does /proc/PID/mem permit what debuggers need: is read-only text written in a private copy, and are writes to shared
 * mappings refused?
 */
#include "check.h"
#include <sys/ptrace.h>

#define RW (PROT_READ | PROT_WRITE)

static int memory_of(pid_t id)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/mem", (int)id);
	return open(path, O_RDWR);
}

static long put(int memory, void *at, const char *text)
{
	return pwrite(memory, text, strlen(text), (off_t)(uintptr_t)at);
}

/* A function with a fixed instruction sequence, in text that the program cannot write. */
__attribute__((noinline)) static int answer(void)
{
	int value = 42;
	__asm__ volatile("nop; nop; nop; nop" : "+r"(value));
	return value;
}

static void own(int memory)
{
	char *pages = anonymous(4 * PAGE);
	NEED(pages != NULL);
	memset(pages, 'a', 3 * PAGE);
	CHECK_EQ(mprotect(pages, 4 * PAGE, PROT_READ), 0);
	CHECK_EQ(put(memory, pages, "read"), 4);
	CHECK_EQ(memcmp(pages, "reada", 5), 0);
	/* A write crosses a page boundary into a page that is not populated. */
	CHECK_EQ(put(memory, pages + 3 * PAGE - 2, "edge"), 4);
	CHECK_EQ(memcmp(pages + 3 * PAGE - 2, "edge", 4), 0);
	CHECK_EQ(mprotect(pages, 4 * PAGE, PROT_NONE), 0);
	char text[5] = "";
	CHECK_EQ(pread(memory, text, 4, (off_t)(uintptr_t)pages), 4);
	CHECK_EQ(memcmp(text, "read", 4), 0);
	CHECK_EQ(put(memory, pages, "none"), 4);
	/* The mapping's own permissions do not change. */
	CHECK_EQ(mprotect(pages, PAGE, PROT_READ), 0);
	CHECK_EQ(memcmp(pages, "none", 4), 0);
	CHECK_FAILS(read(open("/dev/zero", O_RDONLY), pages, 1), EFAULT);
	/* A write stops at a hole. */
	CHECK_EQ(munmap(pages + PAGE, PAGE), 0);
	CHECK_EQ(put(memory, pages + PAGE - 2, "hole"), 2);
	CHECK_FAILS(put(memory, pages + PAGE, "hole"), EIO);
	CHECK_FAILS(pread(memory, text, 1, (off_t)(uintptr_t)(pages + PAGE)), EIO);
	CHECK_EQ(munmap(pages, 4 * PAGE), 0);
}

static void files(int memory)
{
	int file = scratch_file(PAGE);
	NEED(file >= 0 && pwrite(file, "file", 4, 0) == 4);
	char *copy = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	char *shown = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	NEED(copy != MAP_FAILED && shown != MAP_FAILED);
	CHECK_EQ(put(memory, copy, "copy"), 4);
	CHECK_EQ(memcmp(copy, "copy", 4), 0);
	CHECK_EQ(memcmp(shown, "file", 4), 0);
	/* The mapping is shared and read-only, so its page must not be replaced by a private copy. */
	CHECK_FAILS(put(memory, shown, "deny"), EIO);
	CHECK_EQ(mprotect(shown, PAGE, PROT_NONE), 0);
	char text[5] = "";
	CHECK_EQ(pread(memory, text, 4, (off_t)(uintptr_t)shown), 4);
	CHECK_EQ(memcmp(text, "file", 4), 0);
	CHECK_EQ(mprotect(shown, PAGE, RW), 0);
	CHECK_EQ(put(memory, shown, "both"), 4);
	CHECK_EQ(pread(file, text, 4, 0), 4);
	CHECK_EQ(memcmp(text, "both", 4), 0);
	CHECK_EQ(memcmp(copy, "copy", 4), 0);
	close(file);
}

static void breakpoint(void)
{
	pid_t child = fork_checked();
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(answer());
	}
	int status;
	NEED(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	int memory = memory_of(child);
	NEED(memory >= 0);
	unsigned char before;
	off_t at = (off_t)(uintptr_t)answer;
	NEED(pread(memory, &before, 1, at) == 1);
	CHECK_EQ(pwrite(memory, "\xcc", 1, at), 1);
	CHECK_EQ(*(unsigned char *)(uintptr_t)answer, before);
	CHECK_EQ(ptrace(PTRACE_CONT, child, NULL, NULL), 0);
	NEED(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
	CHECK_EQ(WSTOPSIG(status), SIGTRAP);
	CHECK_EQ(pwrite(memory, &before, 1, at), 1);
	kill(child, SIGKILL);
	CHECK(killed(wait_for(child), SIGKILL));
	close(memory);
	CHECK_EQ(answer(), 42);
}

int main(void)
{
	int memory = memory_of(getpid());
	NEED(memory >= 0);
	own(memory);
	files(memory);
	breakpoint();
	return checked("forced");
}
