/* How does a program end that violates a rule? `bad WHAT` violates the rule WHAT, and must be killed by the
 * same signal as on Linux.
 *
 *   jump-to-zero       SIGSEGV      write-kernel      SIGSEGV      overflow-stack    SIGSEGV
 *   write-text         SIGSEGV      execute-data      SIGSEGV      divide            SIGFPE
 *   illegal            SIGILL       privileged        SIGSEGV      beyond-file       SIGBUS
 *   fork-bomb          ends with 0 when fork was refused
 *   exhaust            ends with 0 when mmap was refused, or is killed by SIGKILL when memory runs out
 *   exit CODE, signal NUMBER
 */
#include "check.h"

static volatile int for_ever = 1;

static int overflow(volatile char *above)
{
	volatile char frame[4096];
	frame[0] = *above;
	return for_ever ? overflow(frame) + frame[0] : 0;
}

static void exhaust(void)
{
	for (;;) {
		char *memory = anonymous(4UL << 20);
		if (memory == NULL) {
			CHECK_EQ(errno, ENOMEM);
			_exit(checks_failed != 0);
		}
		for (size_t at = 0; at < 4UL << 20; at += PAGE)
			memory[at] = 1;
	}
}

static void fork_bomb(void)
{
	struct rlimit few = { 64, 64 };
	/* On Linux the limit does not apply to root, so the program changes its user ID. */
	NEED(setrlimit(RLIMIT_NPROC, &few) == 0);
	NEED(syscall(SYS_setresuid, 12345, 12345, 12345) == 0);
	int born = 0;
	for (;;) {
		pid_t child = fork();
		if (child < 0)
			break;
		if (child == 0)
			for (;;)
				pause();
		born++;
	}
	int refused = errno == EAGAIN || errno == ENOMEM;
	printf("bad: fork refused after %s processes\n", born == 63 ? "63" : "other");
	fflush(stdout);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	while (wait(NULL) > 0)
		;
	_exit(refused ? 0 : 1);
}

static const char constant[] = "constant";

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int number = argc > 2 ? atoi(argv[2]) : 0;
	char start = 0;
	if (strcmp(what, "jump-to-zero") == 0) {
		((void (*volatile)(void))0)();
	} else if (strcmp(what, "write-kernel") == 0) {
		*(volatile char *)0xffffffff80100000UL = 1;
	} else if (strcmp(what, "overflow-stack") == 0) {
		overflow(&start);
	} else if (strcmp(what, "write-text") == 0) {
		*(volatile char *)(uintptr_t)constant = 1;
	} else if (strcmp(what, "execute-data") == 0) {
		static unsigned char code[] = { 0xc3 };
		((void (*)(void))(uintptr_t)code)();
	} else if (strcmp(what, "divide") == 0) {
		__asm__ volatile("xor %%edx, %%edx; xor %%ecx, %%ecx; mov $1, %%eax; div %%ecx" ::: "eax", "ecx", "edx");
	} else if (strcmp(what, "illegal") == 0) {
		__asm__ volatile("ud2");
	} else if (strcmp(what, "privileged") == 0) {
		__asm__ volatile("hlt");
	} else if (strcmp(what, "beyond-file") == 0) {
		int file = scratch_file(1);
		char *view = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0);
		NEED(view != MAP_FAILED);
		(void)*(volatile char *)(view + PAGE);
	} else if (strcmp(what, "exhaust") == 0) {
		exhaust();
	} else if (strcmp(what, "fork-bomb") == 0) {
		setpgid(0, 0);
		fork_bomb();
	} else if (strcmp(what, "exit") == 0) {
		return number;
	} else if (strcmp(what, "signal") == 0) {
		kill(getpid(), number);
	} else {
		fprintf(stderr, "usage: bad WHAT [NUMBER]\n");
		return 2;
	}
	return 0;
}
