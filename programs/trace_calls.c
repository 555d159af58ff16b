/* What does a tracer observe and change in the stops at the entry and the exit of a system call?
 *
 * Usage: trace_calls
 */
#include "check.h"
#include "trace.h"

#include <time.h>

static int two_calls(void)
{
	long group = syscall(SYS_getppid);
	long big = syscall(1000, 1, 2, 3, 4, 5, 6);
	return group > 0 && big == -1 && errno == ENOSYS ? 7 : 1;
}

/* Each call stops twice. Bit 7 marks these stops, and PTRACE_GET_SYSCALL_INFO reports whether a stop is the
 * entry or the exit. */
static void both_ends(void)
{
	struct user_regs_struct regs;
	struct call_info info;
	siginfo_t cause;
	unsigned long message = 9;
	pid_t child = traced_child(two_calls);
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	CHECK_EQ(request(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info), 24);
	CHECK_EQ(info.op, 0);
	CHECK_EQ(info.arch, 0xc000003e);
	/* The exit stop of the call that sent the signal. */
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGTRAP | 0x80) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_GETEVENTMSG, child, 0, &message), 0);
	while (message == 2) {
		CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
		CHECK_EQ(status_of(child), (SIGTRAP | 0x80) << 8 | 0x7f);
		CHECK_EQ(request(PTRACE_GETEVENTMSG, child, 0, &message), 0);
	}
	CHECK_EQ(message, 1);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	while (regs.orig_rax != SYS_getppid) {
		CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
		CHECK_EQ(status_of(child), (SIGTRAP | 0x80) << 8 | 0x7f);
		CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	}
	CHECK_EQ(regs.rax, -ENOSYS);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &cause), 0);
	CHECK_EQ(cause.si_signo, SIGTRAP);
	CHECK_EQ(cause.si_code, SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info), 80);
	CHECK_EQ(info.op, 1);
	CHECK_EQ(info.words[0], SYS_getppid);
	CHECK_EQ(info.ip, regs.rip);
	CHECK_EQ(info.sp, regs.rsp);
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGTRAP | 0x80) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info), 33);
	CHECK_EQ(info.op, 2);
	CHECK_EQ(info.words[0], getpid());
	CHECK_EQ(info.words[1] & 0xff, 0);
	/* A call whose number does not exist in any kernel. */
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGTRAP | 0x80) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info), 80);
	CHECK_EQ(info.words[0], 1000);
	for (int i = 1; i <= 6; i++)
		CHECK_EQ(info.words[i], i);
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGTRAP | 0x80) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_GET_SYSCALL_INFO, child, (void *)sizeof info, &info), 33);
	CHECK_EQ(info.words[0], -ENOSYS);
	CHECK_EQ(info.words[1] & 0xff, 1);
	/* Without PTRACE_SYSCALL there is no stop. */
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 7);
}

/* Continues the child to the entry stop of the next call with this number. Returns the child's registers. */
static struct user_regs_struct until_call(pid_t child, unsigned long number)
{
	struct user_regs_struct regs;
	unsigned long message = 0;
	do {
		CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
		CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
		CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
		CHECK_EQ(request(PTRACE_GETEVENTMSG, child, 0, &message), 0);
	} while (regs.orig_rax != number || message != 1);
	return regs;
}

static int three_results(void)
{
	long skipped = syscall(SYS_getppid);
	long replaced = syscall(SYS_getppid);
	long changed = syscall(SYS_getppid);
	return skipped == 1234 && replaced == getpid() && changed == 4321 ? 8 : 2;
}

/* The tracer skips a call, replaces it by another one, and changes its result. */
static void changes(void)
{
	pid_t child = traced_child(three_results);
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	struct user_regs_struct regs = until_call(child, SYS_getppid);
	regs.orig_rax = -1;
	regs.rax = 1234;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.rax, 1234);
	regs = until_call(child, SYS_getppid);
	regs.orig_rax = SYS_getpid;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	regs = until_call(child, SYS_getppid);
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.rax, getpid());
	regs.rax = 4321;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 8);
}

static int emulated(void)
{
	return syscall(SYS_getppid) == 77 && syscall(SYS_getpid) != 77 ? 9 : 3;
}

/* PTRACE_SYSEMU stops once for each call, which is not executed. */
static void emulation(void)
{
	struct user_regs_struct regs;
	pid_t child = traced_child(emulated);
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	regs = until_call(child, SYS_getppid);
	/* A call that is continued by PTRACE_SYSCALL is executed and stops again at its exit. */
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	regs.rax = 77;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	CHECK_EQ(request(PTRACE_SYSEMU, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_getpid);
	regs.rax = 5;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 9);
}

static int sleeper(void)
{
	int ends[2];
	char byte;
	if (pipe(ends) || write(ends[1], "", 0))
		return 4;
	return read(ends[0], &byte, 1) == 44 ? 10 : 5;
}

/* A call that a signal interrupts returns an internal restart error, and is then restarted. */
static void restarts(void)
{
	struct user_regs_struct regs;
	pid_t child = traced_child(sleeper);
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	regs = until_call(child, SYS_read);
	unsigned long at = regs.rip;
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	usleep(20000);
	CHECK_EQ(kill(child, SIGWINCH), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.rax, -512);
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGWINCH);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.rax, -512);
	CHECK_EQ(regs.rip, at);
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, (void *)(long)SIGWINCH), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_read);
	CHECK_EQ(regs.rip, at);
	regs.orig_rax = -1;
	regs.rax = 44;
	CHECK_EQ(request(PTRACE_SETREGS, child, 0, &regs), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 10);
}

static int call_once(void)
{
	syscall(SYS_getppid);
	return 11;
}

/* A single step over a system call executes that call and no further instruction. */
static void steps_over_calls(void)
{
	struct user_regs_struct before, after;
	siginfo_t cause;
	pid_t child = traced_child(call_once);
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	before = until_call(child, SYS_getppid);
	CHECK_EQ(request(PTRACE_SINGLESTEP, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &after), 0);
	CHECK_EQ(after.rip, before.rip);
	CHECK_EQ(after.rax, getpid());
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &cause), 0);
	CHECK_EQ(cause.si_signo, SIGTRAP);
	CHECK_EQ(cause.si_code, TRAP_BRKPT);
	CHECK_EQ(request(PTRACE_SINGLESTEP, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &cause), 0);
	CHECK_EQ(cause.si_code, TRAP_TRACE);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &after), 0);
	CHECK(after.rip != before.rip);
	CHECK_EQ(request(PTRACE_KILL, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 256 + SIGKILL);
}

int main(void)
{
	both_ends();
	changes();
	emulation();
	restarts();
	steps_over_calls();
	return checked("trace_calls");
}
