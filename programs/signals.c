/* Does a signal report exactly what happened, and does the return from its handler restore the complete state?
 *
 * Covers the siginfo of each kind of fault, of kill and of a child's exit; handlers on the alternate stack, nested
 * handlers, masks and restarted calls; and all general and vector registers after sigreturn.
 */
#include "check.h"
#include <setjmp.h>
#include <time.h>
#include <ucontext.h>

static sigjmp_buf escape;
static volatile int caught, caught_code, caught_signal;
static void *volatile caught_address;
static volatile unsigned long caught_error;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	const ucontext_t *machine = context;
	caught_signal = signal;
	caught_code = info->si_code;
	caught_address = info->si_addr;
	caught_error = (unsigned long)machine->uc_mcontext.gregs[REG_ERR];
	caught++;
	siglongjmp(escape, 1);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };
	sigemptyset(&action.sa_mask);
	CHECK_EQ(sigaction(signal, &action, NULL), 0);
}

/* Accesses the byte and checks the signal, its code and its address. */
static void expect_fault(volatile char *byte, int write, int signal, int code, int line)
{
	caught = 0;
	if (sigsetjmp(escape, 1) == 0) {
		if (write)
			*byte = 1;
		else
			(void)*byte;
	}
	if (!CHECK_EQ(caught, 1) || !CHECK_EQ(caught_signal, signal) || !CHECK_EQ(caught_code, code) ||
	    !CHECK(caught_address == byte))
		printf("  for the access in line %d\n", line);
	/* The page fault's error code: bit 1 is set for a write, and bit 2 for an access from user mode. */
	CHECK_EQ(caught_error & 6, write ? 6 : 4);
}
#define EXPECT_FAULT(byte, write, signal, code) expect_fault((byte), (write), (signal), (code), __LINE__)

static void faults(void)
{
	handle(SIGSEGV, on_fault, 0);
	handle(SIGBUS, on_fault, 0);
	char *page = anonymous(2 * PAGE);
	NEED(page != NULL);
	CHECK_EQ(munmap(page + PAGE, PAGE), 0);
	EXPECT_FAULT(page + PAGE + 123, 0, SIGSEGV, SEGV_MAPERR);
	EXPECT_FAULT(page + PAGE + 123, 1, SIGSEGV, SEGV_MAPERR);
	EXPECT_FAULT((char *)0, 1, SIGSEGV, SEGV_MAPERR);
	EXPECT_FAULT((char *)17, 0, SIGSEGV, SEGV_MAPERR);
	CHECK_EQ(mprotect(page, PAGE, PROT_READ), 0);
	EXPECT_FAULT(page + 77, 1, SIGSEGV, SEGV_ACCERR);
	CHECK_EQ(mprotect(page, PAGE, PROT_NONE), 0);
	EXPECT_FAULT(page + 78, 0, SIGSEGV, SEGV_ACCERR);
	EXPECT_FAULT(page + 4095, 1, SIGSEGV, SEGV_ACCERR);
	munmap(page, PAGE);

	/* Accesses beyond the end of a mapped file. */
	int file = scratch_file(PAGE + 1);
	NEED(file >= 0);
	char *view = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(view != MAP_FAILED);
	CHECK_EQ(view[2 * PAGE - 1], 0);
	EXPECT_FAULT(view + 2 * PAGE, 0, SIGBUS, BUS_ADRERR);
	EXPECT_FAULT(view + 3 * PAGE + 5, 1, SIGBUS, BUS_ADRERR);
	view[PAGE] = 'x';
	CHECK_EQ(ftruncate(file, PAGE), 0);
	EXPECT_FAULT(view + PAGE, 0, SIGBUS, BUS_ADRERR);
	CHECK_EQ(ftruncate(file, 2 * PAGE), 0);
	CHECK_EQ(view[PAGE], 0);
	munmap(view, 4 * PAGE);
	close(file);

	/* An access to a non-canonical address causes a general protection fault, for which no address is reported. */
	caught = 0;
	if (sigsetjmp(escape, 1) == 0)
		(void)*(volatile char *)0x800000000000UL;
	CHECK_EQ(caught, 1);
	CHECK_EQ(caught_signal, SIGSEGV);
	CHECK_EQ(caught_code, SI_KERNEL);
	CHECK(caught_address == NULL);
	/* An access to a kernel address is reported as one to an unmapped address. */
	caught = 0;
	if (sigsetjmp(escape, 1) == 0)
		*(volatile char *)0xffffffff80000000UL = 1;
	CHECK_EQ(caught, 1);
	CHECK_EQ(caught_code, SEGV_MAPERR);
	CHECK(caught_address == (void *)0xffffffff80000000UL);
}

static void exceptions(void)
{
	handle(SIGFPE, on_fault, 0);
	handle(SIGILL, on_fault, 0);
	handle(SIGTRAP, on_fault, 0);
	caught = 0;
	if (sigsetjmp(escape, 1) == 0) {
		void *here;
		__asm__ volatile("lea 1f(%%rip), %0; 1: ud2" : "=r"(here));
	}
	CHECK_EQ(caught, 1);
	CHECK_EQ(caught_signal, SIGILL);
	CHECK_EQ(caught_code, ILL_ILLOPN);
	caught = 0;
	if (sigsetjmp(escape, 1) == 0)
		__asm__ volatile("xor %%edx, %%edx; mov $1, %%eax; xor %%ecx, %%ecx; div %%ecx" ::: "eax", "ecx", "edx");
	CHECK_EQ(caught, 1);
	CHECK_EQ(caught_signal, SIGFPE);
	CHECK_EQ(caught_code, FPE_INTDIV);
	caught = 0;
	if (sigsetjmp(escape, 1) == 0)
		__asm__ volatile("int3");
	CHECK_EQ(caught, 1);
	CHECK_EQ(caught_signal, SIGTRAP);
	/* A privileged instruction causes a general protection fault. */
	caught = 0;
	if (sigsetjmp(escape, 1) == 0)
		__asm__ volatile("cli");
	CHECK_EQ(caught, 1);
	CHECK_EQ(caught_signal, SIGSEGV);
	CHECK_EQ(caught_code, SI_KERNEL);
	signal(SIGFPE, SIG_DFL);
	signal(SIGILL, SIG_DFL);
	signal(SIGTRAP, SIG_DFL);
}

static char alternate[64 * 1024];
static volatile int on_alternate;

static void on_overflow(int signal, siginfo_t *info, void *context)
{
	char here;
	(void)signal;
	(void)context;
	on_alternate = &here >= alternate && &here < alternate + sizeof alternate;
	caught_code = info->si_code;
	stack_t now;
	sigaltstack(NULL, &now);
	on_alternate += (now.ss_flags & SS_ONSTACK) != 0;
	siglongjmp(escape, 1);
}

static volatile int for_ever = 1;

static int overflow(volatile char *above)
{
	volatile char frame[8192];
	frame[0] = *above;
	return for_ever ? overflow(frame) + frame[0] : 0;
}

static void alternate_stack(void)
{
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate }, old;
	CHECK_EQ(sigaltstack(&stack, &old), 0);
	CHECK_EQ(old.ss_flags, SS_DISABLE);
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_STACK, &limit) == 0);
	handle(SIGSEGV, on_overflow, SA_ONSTACK);
	on_alternate = 0;
	char start = 0;
	if (sigsetjmp(escape, 1) == 0)
		overflow(&start);
	CHECK_EQ(on_alternate, 2);
	stack.ss_size = 100;
	CHECK_FAILS(sigaltstack(&stack, NULL), ENOMEM);
	stack.ss_flags = SS_DISABLE;
	CHECK_EQ(sigaltstack(&stack, NULL), 0);
	handle(SIGSEGV, on_fault, 0);
}

static volatile int order[8], order_length;

static void on_user(int signal, siginfo_t *info, void *context)
{
	(void)context;
	CHECK_EQ(info->si_pid, getpid());
	CHECK_EQ(info->si_uid, getuid());
	CHECK_EQ(info->si_code, SI_USER);
	order[order_length++] = signal;
	if (signal == SIGUSR1) {
		/* The signal is blocked by sa_mask until this handler returns. */
		kill(getpid(), SIGUSR2);
		order[order_length++] = 0;
	}
}

static void masks(void)
{
	struct sigaction action = { .sa_sigaction = on_user, .sa_flags = SA_SIGINFO };
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR2);
	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
	CHECK_EQ(sigaction(SIGUSR2, &action, NULL), 0);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	CHECK_EQ(order_length, 3);
	CHECK(order[0] == SIGUSR1 && order[1] == 0 && order[2] == SIGUSR2);

	sigset_t block, old, pending;
	sigemptyset(&block);
	sigaddset(&block, SIGUSR2);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &block, &old), 0);
	order_length = 0;
	CHECK_EQ(kill(getpid(), SIGUSR2), 0);
	CHECK_EQ(kill(getpid(), SIGUSR2), 0);
	CHECK_EQ(order_length, 0);
	CHECK_EQ(sigpending(&pending), 0);
	CHECK_EQ(sigismember(&pending, SIGUSR2), 1);
	/* A standard signal can be pending only once. */
	CHECK_EQ(sigprocmask(SIG_SETMASK, &old, NULL), 0);
	CHECK_EQ(order_length, 1);

	/* A fault kills the program if its signal is blocked. */
	pid_t child = fork_checked();
	if (child == 0) {
		sigemptyset(&block);
		sigaddset(&block, SIGSEGV);
		sigprocmask(SIG_BLOCK, &block, NULL);
		*(volatile char *)16 = 1;
		_exit(0);
	}
	CHECK(killed(wait_for(child), SIGSEGV));
	struct sigaction kill_action = { .sa_handler = SIG_IGN };
	CHECK_FAILS(sigaction(SIGKILL, &kill_action, NULL), EINVAL);
	CHECK_FAILS(kill(getpid(), 65), EINVAL);
	CHECK_FAILS(kill(1 << 22, 0), ESRCH);
	CHECK_EQ(kill(getpid(), 0), 0);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
}

static void on_nothing(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	(void)context;
	caught++;
}

/* A signal interrupts a blocking read. The read continues with SA_RESTART, and fails with EINTR without it. */
static void restart(void)
{
	for (int restarts = 0; restarts < 2; restarts++) {
		int ends[2];
		NEED(pipe(ends) == 0);
		handle(SIGUSR1, on_nothing, restarts ? SA_RESTART : 0);
		caught = 0;
		pid_t parent = getpid();
		pid_t child = fork_checked();
		if (child == 0) {
			struct timespec moment = { 0, 50 * 1000 * 1000 };
			nanosleep(&moment, NULL);
			kill(parent, SIGUSR1);
			nanosleep(&moment, NULL);
			NEED(write(ends[1], "x", 1) == 1);
			end_child();
		}
		char byte;
		ssize_t got = read(ends[0], &byte, 1);
		if (restarts) {
			CHECK_EQ(got, 1);
		} else {
			CHECK_EQ(got, -1);
			CHECK_EQ(errno, EINTR);
		}
		CHECK_EQ(caught, 1);
		CHECK(exited(wait_for(child), 0));
		close(ends[0]);
		close(ends[1]);
	}
	/* A sleep is never restarted, and returns the remaining time. */
	pid_t parent = getpid();
	pid_t child = fork_checked();
	if (child == 0) {
		struct timespec moment = { 0, 50 * 1000 * 1000 };
		nanosleep(&moment, NULL);
		kill(parent, SIGUSR1);
		end_child();
	}
	struct timespec long_time = { 100, 0 }, left = { 0, 0 };
	CHECK_FAILS(nanosleep(&long_time, &left), EINTR);
	CHECK(left.tv_sec >= 90 && left.tv_sec < 100);
	CHECK(exited(wait_for(child), 0));
	signal(SIGUSR1, SIG_DFL);
}

static siginfo_t child_info;

static void on_child(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	child_info = *info;
	caught++;
}

static void child_ends(void)
{
	handle(SIGCHLD, on_child, SA_RESTART);
	caught = 0;
	pid_t child = fork_checked();
	if (child == 0)
		_exit(17);
	CHECK(exited(wait_for(child), 17));
	CHECK_EQ(caught, 1);
	CHECK_EQ(child_info.si_code, CLD_EXITED);
	CHECK_EQ(child_info.si_status, 17);
	CHECK_EQ(child_info.si_pid, child);
	child = fork_checked();
	if (child == 0) {
		kill(getpid(), SIGKILL);
		_exit(0);
	}
	CHECK(killed(wait_for(child), SIGKILL));
	CHECK_EQ(caught, 2);
	CHECK_EQ(child_info.si_code, CLD_KILLED);
	CHECK_EQ(child_info.si_status, SIGKILL);
	signal(SIGCHLD, SIG_DFL);
}

static void on_clobber(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	(void)context;
	caught++;
	/* Changes every register that an ordinary function may change, and all vector registers. */
	__asm__ volatile("xor %%eax, %%eax; xor %%ecx, %%ecx; xor %%edx, %%edx; xor %%esi, %%esi; xor %%edi, %%edi;"
			 "xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d; xor %%r11d, %%r11d" ::
				 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11");
	if (__builtin_cpu_supports("avx"))
		__asm__ volatile("vzeroall");
	else
		__asm__ volatile("pxor %xmm0, %xmm0; pxor %xmm7, %xmm7; pxor %xmm15, %xmm15");
}

struct registers {
	uint64_t general[15];
	uint64_t flags;
	unsigned char vector[16][32];
};

/* Loads every register, sends the signal in the same block of assembly, and stores every register. */
static void through_signal(const struct registers *in, struct registers *out, long process, int avx)
{
	static struct registers *volatile target;
	target = out;
	if (avx) {
		__asm__ volatile(
			"vmovdqu 0x80(%0), %%ymm0; vmovdqu 0xa0(%0), %%ymm1; vmovdqu 0xc0(%0), %%ymm2;"
			"vmovdqu 0x160(%0), %%ymm7; vmovdqu 0x180(%0), %%ymm8; vmovdqu 0x260(%0), %%ymm15" ::"r"(in)
			: "xmm0", "xmm1", "xmm2", "xmm7", "xmm8", "xmm15");
	} else {
		__asm__ volatile("movdqu 0x80(%0), %%xmm0; movdqu 0xa0(%0), %%xmm1; movdqu 0xc0(%0), %%xmm2;"
				 "movdqu 0x160(%0), %%xmm7; movdqu 0x180(%0), %%xmm8; movdqu 0x260(%0), %%xmm15" ::"r"(in)
				 : "xmm0", "xmm1", "xmm2", "xmm7", "xmm8", "xmm15");
	}
	/* kill(process, SIGUSR1). The system call changes rax, rcx and r11; all other registers must be restored. */
	__asm__ volatile("lea -128(%%rsp), %%rsp;"
			 "push %%rbx; push %%rbp; push %%r12; push %%r13; push %%r14; push %%r15;"
			 "push %1;"
			 "mov %2, %%rdi; mov $10, %%esi;"
			 "mov 0x08(%0), %%rbx; mov 0x18(%0), %%rdx; mov 0x30(%0), %%rbp; mov 0x38(%0), %%r8;"
			 "mov 0x40(%0), %%r9; mov 0x48(%0), %%r10; mov 0x58(%0), %%r12; mov 0x60(%0), %%r13;"
			 "mov 0x68(%0), %%r14; mov 0x70(%0), %%r15;"
			 "mov $62, %%eax; std; stc; syscall;"
			 "pushfq; push %%rdi; mov 16(%%rsp), %%rdi;"
			 "mov %%rax, 0x00(%%rdi); mov %%rbx, 0x08(%%rdi); mov %%rdx, 0x18(%%rdi); mov %%rsi, 0x20(%%rdi);"
			 "mov %%rbp, 0x30(%%rdi); mov %%r8, 0x38(%%rdi); mov %%r9, 0x40(%%rdi); mov %%r10, 0x48(%%rdi);"
			 "mov %%r12, 0x58(%%rdi); mov %%r13, 0x60(%%rdi); mov %%r14, 0x68(%%rdi); mov %%r15, 0x70(%%rdi);"
			 "pop %%rax; mov %%rax, 0x28(%%rdi); pop %%rax; mov %%rax, 0x78(%%rdi); cld;"
			 "pop %%rax; pop %%r15; pop %%r14; pop %%r13; pop %%r12; pop %%rbp; pop %%rbx;"
			 "lea 128(%%rsp), %%rsp"
			 :
			 : "a"(in), "c"(out), "D"(process)
			 : "rdx", "rsi", "r8", "r9", "r10", "r11", "memory");
	if (avx) {
		__asm__ volatile("vmovdqu %%ymm0, 0x80(%0); vmovdqu %%ymm1, 0xa0(%0); vmovdqu %%ymm2, 0xc0(%0);"
				 "vmovdqu %%ymm7, 0x160(%0); vmovdqu %%ymm8, 0x180(%0); vmovdqu %%ymm15, 0x260(%0)" ::"r"(
					 target)
				 : "memory");
	} else {
		__asm__ volatile("movdqu %%xmm0, 0x80(%0); movdqu %%xmm1, 0xa0(%0); movdqu %%xmm2, 0xc0(%0);"
				 "movdqu %%xmm7, 0x160(%0); movdqu %%xmm8, 0x180(%0); movdqu %%xmm15, 0x260(%0)" ::"r"(
					 target)
				 : "memory");
	}
}

static void registers_survive(void)
{
	static struct registers in, out;
	handle(SIGUSR1, on_clobber, 0);
	for (int i = 0; i < 15; i++)
		in.general[i] = 0x0101010101010101UL * (unsigned)(i + 1);
	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 32; j++)
			in.vector[i][j] = (unsigned char)(16 * i + j + 1);
	int avx = __builtin_cpu_supports("avx");
	caught = 0;
	through_signal(&in, &out, getpid(), avx);
	CHECK_EQ(caught, 1);
	CHECK_EQ(out.general[0], 0);
	static const int kept[] = { 1, 3, 6, 7, 8, 9, 11, 12, 13, 14 };
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		CHECK_EQ(out.general[kept[i]], in.general[kept[i]]);
	CHECK_EQ(out.general[4], SIGUSR1);
	CHECK_EQ(out.general[5], getpid());
	/* Checks the direction and carry flags. */
	CHECK_EQ(out.flags & 0x401, 0x401);
	static const int vectors[] = { 0, 1, 2, 7, 8, 15 };
	for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
		CHECK_EQ(memcmp(out.vector[vectors[i]], in.vector[vectors[i]], avx ? 32 : 16), 0);
	signal(SIGUSR1, SIG_DFL);
}

/* The handler makes the page accessible and returns, and the access is repeated. */
static char *repaired;

static void on_repair(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)info;
	(void)context;
	caught++;
	mprotect(repaired, PAGE, PROT_READ | PROT_WRITE);
}

static void repair(void)
{
	repaired = anonymous(PAGE);
	NEED(repaired != NULL);
	handle(SIGSEGV, on_repair, 0);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(mprotect(repaired, PAGE, PROT_READ), 0);
		caught = 0;
		*(volatile char *)repaired = (char)i;
		CHECK_EQ(caught, 1);
		CHECK_EQ(*repaired, i);
	}
	munmap(repaired, PAGE);
	signal(SIGSEGV, SIG_DFL);
}

int main(void)
{
	faults();
	exceptions();
	alternate_stack();
	masks();
	restart();
	child_ends();
	registers_survive();
	repair();
	return checked("signals");
}
