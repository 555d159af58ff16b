/* Which accesses do protection keys deny, in which threads, and until when?
 *
 * Usage: keys
 * Prints "skip" where the processor or the kernel has no protection keys.
 */
#include "check.h"

#include <setjmp.h>
#include <sys/uio.h>

#define DENY_ACCESS 1u
#define DENY_WRITE 2u
#ifndef SEGV_PKUERR
#define SEGV_PKUERR 4
#endif

static uint32_t rights_now(void)
{
	uint32_t low, high;
	__asm__ volatile(".byte 0x0f, 0x01, 0xee" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static void set_rights(uint32_t rights)
{
	__asm__ volatile(".byte 0x0f, 0x01, 0xef" : : "a"(rights), "c"(0), "d"(0) : "memory");
}

static void refuse(int key, uint32_t what)
{
	set_rights((rights_now() & ~(3u << 2 * key)) | what << 2 * key);
}

static int key_alloc(unsigned long flags, unsigned long rights)
{
	return syscall(SYS_pkey_alloc, flags, rights);
}

static int key_free(int key)
{
	return syscall(SYS_pkey_free, key);
}

static int key_protect(void *memory, size_t size, int rights, int key)
{
	return syscall(SYS_pkey_mprotect, memory, size, rights, key);
}

static sigjmp_buf back;
static volatile siginfo_t last;
static volatile uint32_t handler_rights;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	memcpy((void *)&last, info, sizeof *info);
	handler_rights = rights_now();
	siglongjmp(back, 1);
}

/* Accesses a byte. Returns the key that denied the access, 0 if the access succeeded, or -1 for another fault. */
static int tried(volatile char *at, int write)
{
	uint32_t before = rights_now();
	if (sigsetjmp(back, 1) == 0) {
		if (write)
			*at = 1;
		else
			(void)*at;
		return 0;
	}
	/* siglongjmp does not restore the key rights, so without this call the rights of the handler would stay in effect. */
	set_rights(before);
	if (last.si_signo != SIGSEGV || last.si_code != SEGV_PKUERR || last.si_addr != (void *)at)
		return -1;
	uint32_t key;
	memcpy(&key, (char *)&last + 32, sizeof key);
	return key;
}

static char *fresh(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return memory;
}

/* Returns the key that /proc/self/smaps reports for an address, or -1 if there is none. */
static int shown(void *memory)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	int inside = 0, key = -1;
	CHECK(file != NULL);
	while (fgets(line, sizeof line, file)) {
		unsigned long start, end;
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = (unsigned long)memory >= start && (unsigned long)memory < end;
		else if (inside && sscanf(line, "ProtectionKey: %d", &key) == 1)
			break;
	}
	fclose(file);
	return key;
}

static void arguments_are_checked(void)
{
	char *memory = fresh(PAGE);
	errno = 0;
	CHECK(key_alloc(1, 0) == -1 && errno == EINVAL);
	CHECK(key_alloc(0, 4) == -1 && errno == EINVAL);
	CHECK(key_free(-1) == -1 && errno == EINVAL);
	CHECK(key_free(9) == -1 && errno == EINVAL);
	CHECK(key_free(16) == -1 && errno == EINVAL);
	CHECK(key_protect(memory, PAGE, PROT_READ, 5) == -1 && errno == EINVAL);
	CHECK(key_protect(memory, PAGE, PROT_READ, 99) == -1 && errno == EINVAL);
	CHECK(key_protect(memory + 1, PAGE, PROT_READ, 0) == -1 && errno == EINVAL);
	CHECK(key_protect(memory, PAGE, PROT_READ, -1) == 0);
	CHECK(key_protect(memory, PAGE, PROT_READ | PROT_WRITE, 0) == 0);
	CHECK(tried(memory, 1) == 0);
	munmap(memory, PAGE);
	int keys[16], count = 0;
	for (int key; (key = key_alloc(0, 0)) > 0;)
		keys[count++] = key;
	CHECK(errno == ENOSPC && count == 15);
	for (int i = 0; i < count; i++)
		CHECK(key_free(keys[i]) == 0);
}

static void accesses_are_refused(void)
{
	for (int touched = 0; touched < 2; touched++) {
		char *memory = fresh(2 * PAGE);
		if (touched)
			memset(memory, 7, 2 * PAGE);
		int key = key_alloc(0, DENY_WRITE);
		CHECK(key > 0);
		CHECK((rights_now() >> 2 * key & 3) == DENY_WRITE);
		CHECK(key_protect(memory, PAGE, PROT_READ | PROT_WRITE, key) == 0);
		CHECK(shown(memory) == key && shown(memory + PAGE) == 0);
		CHECK(tried(memory, 0) == 0 && tried(memory, 1) == key && tried(memory + PAGE, 1) == 0);
		CHECK((handler_rights >> 2 * key & 3) == DENY_ACCESS);
		refuse(key, DENY_ACCESS);
		CHECK(tried(memory, 0) == key && tried(memory, 1) == key);
		/* mprotect with other permissions keeps the key. */
		CHECK(mprotect(memory, PAGE, PROT_READ) == 0 && tried(memory, 0) == key);
		CHECK(mprotect(memory, PAGE, PROT_READ | PROT_WRITE) == 0 && tried(memory, 1) == key);
		refuse(key, 0);
		CHECK(tried(memory, 1) == 0 && memory[PAGE - 1] == (touched ? 7 : 0));
		refuse(key, DENY_ACCESS);
		CHECK(key_protect(memory, PAGE, PROT_READ | PROT_WRITE, 0) == 0);
		CHECK(tried(memory, 1) == 0);
		CHECK(key_free(key) == 0);
		munmap(memory, 2 * PAGE);
	}
}

/* System calls access memory with the program's key rights. */
static void calls_are_refused(void)
{
	char *memory = fresh(PAGE);
	int pipes[2], key = key_alloc(0, 0);
	memset(memory, 3, PAGE);
	CHECK(pipe(pipes) == 0 && key > 0);
	CHECK(key_protect(memory, PAGE, PROT_READ | PROT_WRITE, key) == 0);
	refuse(key, DENY_WRITE);
	CHECK(write(pipes[1], memory, 8) == 8);
	CHECK(read(pipes[0], memory, 8) == -1 && errno == EFAULT);
	refuse(key, DENY_ACCESS);
	CHECK(write(pipes[1], memory, 8) == -1 && errno == EFAULT);
	struct iovec range = { memory, 8 };
	CHECK(vmsplice(pipes[1], &range, 1, 0) == -1 && errno == EFAULT);
	refuse(key, 0);
	CHECK(read(pipes[0], memory, 8) == 8);
	/* The keys of another process do not apply. */
	refuse(key, DENY_ACCESS);
	int file = open("/proc/self/mem", O_RDONLY);
	char byte = 0;
	CHECK(file >= 0 && pread(file, &byte, 1, (off_t)(uintptr_t)memory) == 1 && byte == 3);
	close(file);
	refuse(key, 0);
	key_protect(memory, PAGE, PROT_READ | PROT_WRITE, 0);
	key_free(key);
	munmap(memory, PAGE);
	close(pipes[0]);
	close(pipes[1]);
}

static void children_inherit(void)
{
	char *memory = fresh(PAGE);
	int status, key = key_alloc(0, 0);
	CHECK(key > 0 && key_protect(memory, PAGE, PROT_READ | PROT_WRITE, key) == 0);
	memory[0] = 1;
	refuse(key, DENY_ACCESS);
	pid_t child = fork();
	if (child == 0) {
		int bad = tried(memory, 0) != key;
		refuse(key, 0);
		bad |= tried(memory, 1) != 0;
		bad |= key_free(key) != 0;
		_exit(bad);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(tried(memory, 0) == key);
	refuse(key, 0);
	CHECK(memory[0] == 1);
	key_protect(memory, PAGE, PROT_READ | PROT_WRITE, 0);
	CHECK(key_free(key) == 0);
	munmap(memory, PAGE);
}

static void code_cannot_be_read(void)
{
	unsigned char *memory = (unsigned char *)fresh(PAGE);
	memory[0] = 0xc3;
	CHECK(mprotect(memory, PAGE, PROT_EXEC) == 0);
	((void (*)(void))memory)();
	int key = tried((char *)memory, 0);
	CHECK(key > 0 && shown(memory) == key);
	/* The program can neither use nor free the key that the kernel uses for execute-only memory. */
	CHECK(key_free(key) == -1 && errno == EINVAL);
	CHECK(key_protect(memory, PAGE, PROT_READ, key) == -1 && errno == EINVAL);
	CHECK(mprotect(memory, PAGE, PROT_READ) == 0);
	CHECK(shown(memory) == 0 && tried((char *)memory, 0) == 0 && memory[0] == 0xc3);
	munmap(memory, PAGE);
	memory = mmap(NULL, PAGE, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED && tried((char *)memory, 0) == key);
	munmap(memory, PAGE);
}

static int unblocks;

static void leave(int signal)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, signal);
	if (unblocks)
		sigprocmask(SIG_UNBLOCK, &mask, NULL);
	_exit(7);
}

/* The thread's key rights deny access to its rseq area. The handler of the fault runs, but a fatal SIGSEGV is already
 * pending. */
static void handler_of(int wanted)
{
	static uint32_t area[8] __attribute__((aligned(32)));
	struct sigaction action = { .sa_handler = leave };
	int status;
	pid_t child = fork();
	if (child == 0) {
		/* The C library may already have registered its own area. */
		syscall(SYS_rseq, area, sizeof area, 0, 0x53053053);
		sigaction(SIGSEGV, &action, NULL);
		set_rights(0x55555555);
		*(volatile int *)16 = 1;
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, wanted);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	int key = key_alloc(0, 0);
	if (key < 0) {
		puts("skip: no protection keys");
		return 0;
	}
	CHECK(key == 1 && key_free(key) == 0);
	CHECK(rights_now() == 0x55555550);
	set_rights(0x55555554);
	arguments_are_checked();
	accesses_are_refused();
	calls_are_refused();
	children_inherit();
	code_cannot_be_read();
	handler_of(7 << 8);
	unblocks = 1;
	handler_of(SIGSEGV);
	return checked("keys");
}
