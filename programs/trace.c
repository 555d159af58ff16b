/* Can a process stop another one, inspect it, change it and let it continue?
 *
 * Usage: trace
 */
#include "check.h"

#include <elf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#define FORTY_TWO 42

static long request(int what, pid_t child, void *address, void *data)
{
	return syscall(SYS_ptrace, what, child, address, data);
}

/* Waits for `child`. Returns the signal that stopped it, or -1. */
static int stopped_by(pid_t child)
{
	int status = 0;
	if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status))
		return -1;
	return WSTOPSIG(status);
}

/* Waits for `child`. Returns its exit code, 256 + the signal that killed it, or -1. */
static int ended_with(pid_t child)
{
	int status = 0;
	if (waitpid(child, &status, __WALL) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? 256 + WTERMSIG(status) : -1;
}

static volatile long word = FORTY_TWO;
/* A word in memory that the program cannot write. */
extern const volatile long constant;
__asm__(".section .rodata\n.balign 8\nconstant: .quad 7\n.previous");

/* Creates a child that executes PTRACE_TRACEME, stops, and then calls `then`, whose result is its exit code. */
static pid_t traced_child(int (*then)(void))
{
	pid_t child = fork();
	if (child == 0) {
		if (request(PTRACE_TRACEME, 0, 0, 0))
			_exit(99);
		raise(SIGSTOP);
		_exit(then());
	}
	CHECK_EQ(stopped_by(child), SIGSTOP);
	return child;
}

static int end_at_once(void)
{
	return 0;
}

static int tell_word(void)
{
	return (int)word;
}

static int tell_constant(void)
{
	return (int)constant;
}

/* The tracer reads and writes words of the child, including read-only ones. At an unmapped address it gets EIO. */
static void memory(void)
{
	long seen = 0;
	pid_t child = traced_child(tell_word);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&word, &seen), 0);
	CHECK_EQ(seen, FORTY_TWO);
	CHECK_EQ(request(PTRACE_POKEDATA, child, (void *)&word, (void *)43L), 0);
	CHECK_EQ(word, FORTY_TWO);
	CHECK_FAILS(request(PTRACE_PEEKDATA, child, (void *)8, &seen), EIO);
	CHECK_FAILS(request(PTRACE_POKEDATA, child, (void *)8, (void *)1), EIO);
	CHECK_FAILS(request(PTRACE_PEEKDATA, child, (void *)&word, (void *)8), EFAULT);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 43);

	child = traced_child(tell_constant);
	CHECK_EQ(request(PTRACE_POKETEXT, child, (void *)&constant, (void *)9L), 0);
	CHECK_EQ(request(PTRACE_PEEKTEXT, child, (void *)&constant, &seen), 0);
	CHECK_EQ(seen, 9);
	/* The write went to the child's private copy, and is not visible in this process. */
	CHECK_EQ(constant, 7);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 9);
}

static char *untouched, *none, *shared_read;

static int still_refused(void)
{
	int code = untouched[0] == 5 && untouched[PAGE] == 0 ? 0 : 1;
	pid_t child = fork();
	if (child == 0) {
		*(volatile char *)untouched = 1;
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	/* The write by the tracer did not make the page writable for the program. */
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? code : 2;
}

/* The tracer writes to private memory that the child cannot write, whether touched or not. Writes to shared memory
 * fail. */
static void forced(void)
{
	untouched = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	none = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	none[0] = 6;
	CHECK_EQ(mprotect(none, PAGE, PROT_NONE), 0);
	shared_read = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long seen = 0;
	pid_t child = traced_child(still_refused);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, untouched + PAGE, &seen), 0);
	CHECK_EQ(seen, 0);
	CHECK_EQ(request(PTRACE_POKEDATA, child, untouched, (void *)5L), 0);
	CHECK_EQ(untouched[0], 0);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, none, &seen), 0);
	CHECK_EQ(seen & 0xff, 6);
	CHECK_EQ(request(PTRACE_POKEDATA, child, none, (void *)8L), 0);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, none, &seen), 0);
	CHECK_EQ(seen, 8);
	CHECK_FAILS(request(PTRACE_POKEDATA, child, shared_read, (void *)1L), EIO);
	/* A word that extends into another read-only page. */
	CHECK_EQ(request(PTRACE_POKEDATA, child, untouched + 2 * PAGE - 4, (void *)0L), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	/* The exit of the child's own child raises SIGCHLD. The child stops for the signal although it ignores it. */
	CHECK_EQ(stopped_by(child), SIGCHLD);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGCHLD), 0);
	CHECK_EQ(ended_with(child), 0);
	munmap(untouched, 4 * PAGE);
	munmap(none, PAGE);
	munmap(shared_read, PAGE);
}

__attribute__((noinline)) static long add(long left, long right)
{
	__asm__ volatile("" : "+r"(left), "+r"(right));
	return left + right;
}

/* Stops with known values in registers, and returns their values after the stop. */
static int from_registers(void)
{
	long result;
	register long r12 __asm__("r12") = 1200;
	register long xmm __asm__("r13") = 5;
	__asm__ volatile("movq %[in], %%xmm7\n\t"
			 "mov %[tgkill], %%eax\n\t"
			 "syscall\n\t"
			 "movq %%xmm7, %[in]\n\t"
			 : "=a"(result), "+r"(r12), [in] "+r"(xmm)
			 : [tgkill] "i"(SYS_tgkill), "D"((long)getpid()), "S"((long)syscall(SYS_gettid)), "d"((long)SIGUSR1)
			 : "rcx", "r11", "memory", "xmm7");
	return (int)add(r12 - 1200, xmm * 10) + (int)result;
}

static void registers(void)
{
	struct user_regs_struct regs, again;
	struct user_fpregs_struct fp;
	long seen = 0;
	pid_t child = traced_child(from_registers);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.r12, 1200);
	CHECK_EQ(regs.cs, 0x33);
	CHECK_EQ(regs.ss, 0x2b);
	CHECK_EQ(regs.orig_rax, SYS_tgkill);
	CHECK_EQ(regs.rax, 0);
	CHECK_EQ(request(PTRACE_PEEKUSER, child, (void *)offsetof(struct user, regs.r12), &seen), 0);
	CHECK_EQ(seen, 1200);
	CHECK_EQ(request(PTRACE_PEEKUSER, child, (void *)offsetof(struct user, u_debugreg[0]), &seen), 0);
	CHECK_EQ(seen, 0);
	CHECK_FAILS(request(PTRACE_PEEKUSER, child, (void *)4, &seen), EIO);
	CHECK_FAILS(request(PTRACE_PEEKUSER, child, (void *)(sizeof(struct user) + 16), &seen), EIO);
	CHECK_EQ(request(PTRACE_POKEUSER, child, (void *)offsetof(struct user, regs.r12), (void *)1203L), 0);
	struct iovec whole = {&again, sizeof again};
	CHECK_EQ(request(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &whole), 0);
	CHECK_EQ(whole.iov_len, sizeof again);
	regs.r12 = 1203;
	CHECK_EQ(memcmp(&regs, &again, sizeof regs), 0);
	again.cs = 0x10;
	CHECK_FAILS(request(PTRACE_SETREGS, child, 0, &again), EIO);
	again = regs;
	again.fs_base = ~0UL << 47;
	CHECK_FAILS(request(PTRACE_SETREGS, child, 0, &again), EIO);
	/* Reads a part of a register set. */
	struct iovec part = {&again, 16};
	CHECK_EQ(request(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &part), 0);
	CHECK_EQ(part.iov_len, 16);
	part.iov_len = 12;
	CHECK_FAILS(request(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &part), EINVAL);
	CHECK_FAILS(request(PTRACE_GETREGSET, child, (void *)0x7777, &whole), EINVAL);

	CHECK_EQ(request(PTRACE_GETFPREGS, child, 0, &fp), 0);
	CHECK_EQ(fp.xmm_space[7 * 4], 5);
	fp.xmm_space[7 * 4] = 2;
	CHECK_EQ(request(PTRACE_SETFPREGS, child, 0, &fp), 0);
	static char area[16384] __attribute__((aligned(64)));
	struct iovec state = {area, sizeof area};
	CHECK_EQ(request(PTRACE_GETREGSET, child, (void *)NT_X86_XSTATE, &state), 0);
	CHECK(state.iov_len >= 576 && state.iov_len < sizeof area);
	CHECK_EQ(((struct user_fpregs_struct *)area)->xmm_space[7 * 4], 2);
	((struct user_fpregs_struct *)area)->xmm_space[7 * 4] = 4;
	CHECK_EQ(request(PTRACE_SETREGSET, child, (void *)NT_X86_XSTATE, &state), 0);
	/* A feature that no processor supports. */
	area[519] |= 0x40;
	CHECK_FAILS(request(PTRACE_SETREGSET, child, (void *)NT_X86_XSTATE, &state), EINVAL);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 43);
}

static volatile sig_atomic_t taken;

static void take(int signal)
{
	taken += signal;
}

static int take_signals(void)
{
	signal(SIGUSR1, take);
	signal(SIGUSR2, take);
	raise(SIGUSR1);
	raise(SIGUSR1);
	raise(SIGUSR1);
	return taken;
}

/* The tracer intercepts every signal, and delivers it, suppresses it or replaces it. */
static void signals(void)
{
	siginfo_t info;
	pid_t child = traced_child(take_signals);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &info), 0);
	CHECK_EQ(info.si_signo, SIGUSR1);
	CHECK_EQ(info.si_code, SI_TKILL);
	CHECK_EQ(info.si_pid, child);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGUSR1), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	CHECK_FAILS(request(PTRACE_CONT, child, 0, (void *)65L), EIO);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGUSR2), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	uint64_t mask = 0;
	CHECK_EQ(request(PTRACE_GETSIGMASK, child, (void *)8, &mask), 0);
	CHECK_FAILS(request(PTRACE_GETSIGMASK, child, (void *)4, &mask), EINVAL);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), SIGUSR1 + SIGUSR2);

	child = traced_child(take_signals);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGKILL), 0);
	CHECK_EQ(ended_with(child), 256 + SIGKILL);
	child = traced_child(end_at_once);
	CHECK_EQ(request(PTRACE_KILL, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 256 + SIGKILL);
}

static int few_instructions(void)
{
	__asm__ volatile("nop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop\n\tnop");
	return 3;
}

/* Single-steps the child, then lets it run until it exits. */
static void steps(void)
{
	struct user_regs_struct regs;
	pid_t child = traced_child(few_instructions);
	unsigned long before = 0, moves = 0;
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(request(PTRACE_SINGLESTEP, child, 0, 0), 0);
		CHECK_EQ(stopped_by(child), SIGTRAP);
		CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
		CHECK_EQ(regs.eflags & 0x100, 0);
		moves += regs.rip != before;
		before = regs.rip;
	}
	CHECK(moves > 15);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 3);
}

/* Sets a breakpoint as debuggers do. */
static void breakpoint(void)
{
	struct user_regs_struct regs;
	long text = 0;
	pid_t child = traced_child(few_instructions);
	void *at = (void *)few_instructions;
	CHECK_EQ(request(PTRACE_PEEKTEXT, child, at, &text), 0);
	CHECK_EQ(request(PTRACE_POKETEXT, child, at, (void *)((text & ~0xffL) | 0xcc)), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.rip, (unsigned long)at + 1);
	CHECK_EQ(request(PTRACE_POKETEXT, child, at, (void *)text), 0);
	regs.rip--;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 3);
}

static long tracer_of(pid_t child)
{
	char name[64], line[128];
	long tracer = -1;
	snprintf(name, sizeof name, "/proc/%d/status", child);
	FILE *file = fopen(name, "r");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "TracerPid: %ld", &tracer);
	if (file)
		fclose(file);
	return tracer;
}

static char state_of(pid_t child)
{
	char name[64], line[128], state = '?';
	snprintf(name, sizeof name, "/proc/%d/status", child);
	FILE *file = fopen(name, "r");
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "State: %c", &state);
	if (file)
		fclose(file);
	return state;
}

/* Attaches to a process that did not request to be traced. */
static void attach(void)
{
	int ends[2];
	CHECK_EQ(pipe(ends), 0);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		/* A blocked read continues after the stop. */
		_exit(read(ends[0], &byte, 1) == 1 ? byte : 77);
	}
	CHECK_FAILS(request(PTRACE_CONT, child, 0, 0), ESRCH);
	CHECK_EQ(tracer_of(child), 0);
	CHECK_EQ(request(PTRACE_ATTACH, child, 0, 0), 0);
	CHECK_FAILS(request(PTRACE_ATTACH, child, 0, 0), EPERM);
	CHECK_EQ(stopped_by(child), SIGSTOP);
	CHECK_EQ(tracer_of(child), getpid());
	CHECK_EQ(state_of(child), 't');
	CHECK_FAILS(request(12345, child, 0, 0), EIO);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_FAILS(request(PTRACE_CONT, child, 0, 0), ESRCH);
	/* Any signal makes the blocked child stop again. */
	CHECK_EQ(kill(child, SIGWINCH), 0);
	CHECK_EQ(stopped_by(child), SIGWINCH);
	CHECK_EQ(request(PTRACE_DETACH, child, 0, 0), 0);
	CHECK_EQ(tracer_of(child), 0);
	CHECK_EQ(write(ends[1], "\5", 1), 1);
	CHECK_EQ(ended_with(child), 5);
	close(ends[0]);
	close(ends[1]);
	CHECK_FAILS(request(PTRACE_ATTACH, getpid(), 0, 0), EPERM);
	CHECK_FAILS(request(PTRACE_ATTACH, 0, 0, 0), ESRCH);
	CHECK_FAILS(request(PTRACE_ATTACH, -1, 0, 0), ESRCH);
}

/* A tracer observes a group stop as two stops: that for the signal, and the group stop itself. */
static void group_stop(void)
{
	siginfo_t info;
	pid_t child = traced_child(end_at_once);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &info), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGSTOP), 0);
	CHECK_EQ(stopped_by(child), SIGSTOP);
	/* This is the group stop and not the delivery of a signal, so there is no siginfo. */
	CHECK_FAILS(request(PTRACE_GETSIGINFO, child, 0, &info), EINVAL);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 0);

	/* Attaches to a process that was already stopped. */
	child = fork();
	if (child == 0) {
		raise(SIGSTOP);
		_exit(4);
	}
	int status = 0;
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	CHECK(WIFSTOPPED(status));
	CHECK_EQ(request(PTRACE_ATTACH, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGSTOP);
	/* The process is still stopped after it is detached. */
	CHECK_EQ(request(PTRACE_DETACH, child, 0, 0), 0);
	while (state_of(child) == 't')
		sched_yield();
	CHECK_EQ(kill(child, SIGCONT), 0);
	CHECK_EQ(ended_with(child), 4);
}

/* Tests a tracer that is not the parent, and a tracer that exits. */
static void others(void)
{
	int ready[2], go[2];
	CHECK_EQ(pipe(ready), 0);
	CHECK_EQ(pipe(go), 0);
	for (int kills = 0; kills < 2; kills++) {
		pid_t child = fork();
		if (child == 0) {
			char byte;
			_exit(read(go[0], &byte, 1) == 1 ? 6 : 77);
		}
		pid_t tracer = fork();
		if (tracer == 0) {
			int status;
			if (request(PTRACE_ATTACH, child, 0, 0) || waitpid(child, &status, 0) != child)
				_exit(1);
			if (kills && request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_EXITKILL))
				_exit(2);
			/* The tracer exits while the tracee is stopped. */
			_exit(0);
		}
		CHECK_EQ(ended_with(tracer), 0);
		if (kills) {
			CHECK_EQ(ended_with(child), 256 + SIGKILL);
		} else {
			/* The signal for which the tracee was stopped is discarded when the tracer exits. */
			CHECK_EQ(write(go[1], "\1", 1), 1);
			CHECK_EQ(ended_with(child), 6);
		}
	}
	/* Tests the exit of a tracee that is not the tracer's child. */
	pid_t child = fork();
	if (child == 0) {
		char byte;
		_exit(read(go[0], &byte, 1) == 1 ? 8 : 77);
	}
	pid_t tracer = fork();
	if (tracer == 0) {
		if (request(PTRACE_ATTACH, child, 0, 0) || stopped_by(child) != SIGSTOP)
			_exit(1);
		if (request(PTRACE_CONT, child, 0, 0))
			_exit(2);
		if (write(ready[1], "r", 1) != 1)
			_exit(3);
		_exit(ended_with(child) == 8 ? 0 : 4);
	}
	char byte;
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	CHECK_EQ(write(go[1], "\1", 1), 1);
	CHECK_EQ(ended_with(tracer), 0);
	CHECK_EQ(ended_with(child), 8);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
	}
}

/* execve raises SIGTRAP in a traced process. */
static void executes(char *self)
{
	pid_t child = fork();
	if (child == 0) {
		request(PTRACE_TRACEME, 0, 0, 0);
		execl(self, self, "child", NULL);
		_exit(99);
	}
	CHECK_EQ(stopped_by(child), SIGTRAP);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 31);
}

static _Atomic int turns, leave;

static void *turn(void *unused)
{
	(void)unused;
	while (!leave) {
		turns++;
		sched_yield();
	}
	return NULL;
}

static int with_a_thread(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, turn, NULL);
	while (turns < 3)
		sched_yield();
	raise(SIGUSR1);
	leave = 1;
	pthread_join(thread, NULL);
	return 12;
}

/* One thread is stopped while the other continues. */
static void one_of_two(void)
{
	long first = 0, second = 0;
	pid_t child = traced_child(with_a_thread);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&turns, &first), 0);
	do {
		CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&turns, &second), 0);
		sched_yield();
	} while ((int)second == (int)first);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 12);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "child"))
		return 31;
	memory();
	forced();
	registers();
	signals();
	steps();
	breakpoint();
	attach();
	group_stop();
	others();
	executes(argv[0]);
	one_of_two();
	return checked("trace");
}
