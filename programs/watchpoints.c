/* Can a tracer set hardware breakpoints in a thread's debug registers, and does the thread stop at each matching access
 * and at no other?
 *
 * Usage: watchpoints
 */
#include "check.h"
#include "trace.h"

#include <sched.h>
#include <sys/time.h>

static volatile long watched, other;

__attribute__((noinline)) static void passed(void)
{
	__asm__ volatile("nop");
}

static int stores(void)
{
	other = 1;
	watched = 2;
	other = watched;
	passed();
	watched = 3;
	passed();
	return (int)(watched + other);
}

static void *place(int number)
{
	return (void *)(offsetof(struct user, u_debugreg) + (unsigned long)number * 8);
}

static long debug(pid_t child, int number)
{
	long value = 0;
	CHECK_EQ(request(PTRACE_PEEKUSER, child, place(number), &value), 0);
	return value;
}

static void set_debug(pid_t child, int number, unsigned long value)
{
	CHECK_EQ(request(PTRACE_POKEUSER, child, place(number), (void *)value), 0);
}

/* Continues the child to the next hit. Returns the address of the next instruction. */
static unsigned long next_hit(pid_t child, int slot)
{
	siginfo_t cause;
	struct user_regs_struct regs;
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &cause), 0);
	CHECK_EQ(cause.si_code, 4); /* TRAP_HWBKPT */
	CHECK_EQ(debug(child, 6) & 0xf, 1 << slot);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ((unsigned long)cause.si_addr, regs.rip);
	set_debug(child, 6, 0);
	return regs.rip;
}

/* Watches stores to a single word of 8 bytes. */
static void writes(void)
{
	long value = 0;
	pid_t child = traced_child(stores);
	CHECK_EQ(debug(child, 7), 0);
	set_debug(child, 0, (unsigned long)&watched);
	set_debug(child, 7, 0x90001);
	CHECK_EQ(debug(child, 0), (long)&watched);
	CHECK_EQ(debug(child, 7), 0x90001);
	next_hit(child, 0);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&watched, &value), 0);
	CHECK_EQ(value, 2);
	next_hit(child, 0);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&watched, &value), 0);
	CHECK_EQ(value, 3);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 5);
}

static int stores_at_once(void)
{
	watched = 1;
	raise(SIGUSR1);
	watched = 2;
	passed();
	return (int)watched;
}

/* The breakpoint is effective from the stop on, also for the first instructions, which do not enter the kernel. */
static void at_once(void)
{
	long value = 0;
	pid_t child = traced_child(stores_at_once);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	set_debug(child, 0, (unsigned long)&watched);
	set_debug(child, 7, 0x90001);
	next_hit(child, 0);
	CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&watched, &value), 0);
	CHECK_EQ(value, 2);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 2);
}

/* A single step over the store reports both the step and the breakpoint. */
static void stepped(void)
{
	siginfo_t cause;
	long value = 0;
	pid_t child = traced_child(stores_at_once);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	set_debug(child, 0, (unsigned long)&watched);
	set_debug(child, 7, 0x90001);
	do {
		CHECK_EQ(request(PTRACE_SINGLESTEP, child, 0, 0), 0);
		NEED(stopped_by(child) == SIGTRAP);
		CHECK_EQ(request(PTRACE_PEEKDATA, child, (void *)&watched, &value), 0);
		CHECK_EQ(debug(child, 6) & 0x400f, value == 2 ? 0x4001 : 0x4000);
	} while (value != 2);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &cause), 0);
	CHECK_EQ(cause.si_code, TRAP_TRACE);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 2);
}

static int traps_itself(void)
{
	watched = 1;
	raise(SIGUSR1);
	__asm__ volatile("pushf\n\torl $0x100, (%%rsp)\n\tpopf\n\tmovq $2, %0" : "=m"(watched)::"cc");
	return 4;
}

/* The program sets the trap flag itself. The reported address is not checked, because QEMU loses it. */
static void trapped(void)
{
	pid_t child = traced_child(traps_itself);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGUSR1);
	set_debug(child, 0, (unsigned long)&watched);
	set_debug(child, 7, 0x90001);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(ended_with(child), 256 + SIGKILL);
}

/* Watches loads and stores of another word, with another debug register. */
static void accesses(void)
{
	pid_t child = traced_child(stores);
	set_debug(child, 3, (unsigned long)&watched);
	set_debug(child, 7, 0xb0000040);
	for (int i = 0; i < 4; i++)
		next_hit(child, 3);
	set_debug(child, 7, 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 5);
}

/* A breakpoint on execution: the thread stops before the instruction, and executes it when it continues. */
static void execution(void)
{
	pid_t child = traced_child(stores);
	set_debug(child, 1, (unsigned long)passed);
	set_debug(child, 7, 0x4);
	CHECK_EQ(next_hit(child, 1), (unsigned long)passed);
	CHECK_EQ(next_hit(child, 1), (unsigned long)passed);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 5);
}

enum { PASSES = 400 };

static int passes_often(void)
{
	for (int i = 0; i < PASSES; i++)
		passed();
	return 6;
}

/* Timer interrupts arrive at all times, also before the thread has executed the instruction at which it
 * stopped. The thread must stop there exactly once in each pass. */
static void interrupted(void)
{
	pid_t child = traced_child(passes_often);
	set_debug(child, 1, (unsigned long)passed);
	set_debug(child, 7, 0x4);
	NEED(signal(SIGALRM, SIG_IGN) != SIG_ERR);
	struct itimerval often = { { 0, 17 }, { 0, 17 } }, never = { { 0, 0 }, { 0, 0 } };
	NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
	int hits = 0, status = 0;
	for (;;) {
		NEED(ptrace(PTRACE_CONT, child, 0, 0) == 0);
		status = status_of(child);
		if (status == -1 || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
			break;
		hits++;
	}
	NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK_EQ(hits, PASSES);
	CHECK(exited(status, 6));
}

static int has_a_child(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0) {
		watched = 9;
		_exit((int)watched);
	}
	if (waitpid(child, &status, 0) != child)
		return 1;
	return WEXITSTATUS(status);
}

/* Neither a child of the thread nor other processes that run in between have the breakpoints. */
static void of_one_thread(void)
{
	pid_t child = traced_child(has_a_child);
	set_debug(child, 0, (unsigned long)&watched);
	set_debug(child, 7, 0x90001);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	for (int i = 0; i < 100; i++) {
		watched = i;
		sched_yield();
	}
	CHECK_EQ(stopped_by(child), SIGCHLD);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 9);
}

/* Attempts to set breakpoints that cannot be set. */
static void refused(void)
{
	pid_t child = traced_child(stores);
	CHECK_FAILS(request(PTRACE_POKEUSER, child, place(0), (void *)(1UL << 63)), EINVAL);
	CHECK_FAILS(request(PTRACE_POKEUSER, child, place(4), 0), EIO);
	CHECK_EQ(debug(child, 4), 0);
	set_debug(child, 0, (unsigned long)&watched + 1);
	CHECK_FAILS(request(PTRACE_POKEUSER, child, place(7), (void *)0x90001L), EINVAL);
	CHECK_FAILS(request(PTRACE_POKEUSER, child, place(7), (void *)0x20001L), EINVAL);
	CHECK_FAILS(request(PTRACE_POKEUSER, child, place(7), (void *)0x40001L), EINVAL);
	CHECK_EQ(debug(child, 7), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 5);
}

int main(void)
{
	writes();
	at_once();
	stepped();
	trapped();
	accesses();
	execution();
	interrupted();
	of_one_thread();
	refused();
	return checked("watchpoints");
}
