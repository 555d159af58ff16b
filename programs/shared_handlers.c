/* Do processes that clone creates with CLONE_SIGHAND share signal handlers, and no other signal state?
 *
 * The processes also share the address space, and take turns so that only one of them uses the C library at a
 * time.
 */
#include "check.h"
#include <sched.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#define SHARES (CLONE_VM | CLONE_SIGHAND)
#define STACK 65536

static struct turns turns;
static volatile int taken, taker, own_mask_holds, own_pending_holds;

static void count(int signal)
{
	(void)signal;
	taken++;
	taker = (int)syscall(SYS_getpid);
}

static void other(int signal)
{
	(void)signal;
}

static pid_t make(int (*work)(void *), int flags)
{
	char *stack = anonymous(STACK);
	NEED(stack != NULL);
	return clone(work, stack + STACK, flags, NULL);
}

static void set(int signal, void (*handler)(int), int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	NEED(sigaction(signal, &action, NULL) == 0);
}

static void (*handler_of(int signal))(int)
{
	struct sigaction action;
	NEED(sigaction(signal, NULL, &action) == 0);
	return action.sa_handler;
}

static void hold(int how, int signal)
{
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, signal);
	NEED(sigprocmask(how, &signals, NULL) == 0);
}

static int held(int signal)
{
	sigset_t signals;
	NEED(sigprocmask(SIG_BLOCK, NULL, &signals) == 0);
	return sigismember(&signals, signal);
}

static int waits(int signal)
{
	sigset_t signals;
	NEED(sigpending(&signals) == 0);
	return sigismember(&signals, signal);
}

/* Passes the turn to the child. Returns when the child has passed it back. */
static void let_child(void)
{
	NEED(turn_pass(turns.to_child) && turn_await(turns.to_parent));
}

static void let_parent(void)
{
	if (!turn_pass(turns.to_parent) || !turn_await(turns.to_child))
		_exit(50);
}

static int child(void *unused)
{
	(void)unused;
	set(SIGUSR1, count, SA_RESTART);
	hold(SIG_BLOCK, SIGUSR2);
	let_parent();
	/* The parent has set the handler of SIGHUP and sent SIGUSR1 and SIGUSR2. */
	own_mask_holds = held(SIGUSR2) && !held(SIGHUP) && handler_of(SIGHUP) == other;
	own_pending_holds = waits(SIGUSR2) && !waits(SIGTERM);
	set(SIGTERM, SIG_IGN, 0);
	let_parent();
	_exit(7);
}

static void what_is_shared(void)
{
	NEED(turns_open(&turns));
	pid_t made = make(child, SHARES | SIGCHLD);
	NEED(made > 0 && turn_await(turns.to_parent));
	CHECK(handler_of(SIGUSR1) == count);
	CHECK(!held(SIGUSR2));
	set(SIGHUP, other, 0);
	set(SIGUSR2, other, 0);
	hold(SIG_BLOCK, SIGHUP);
	hold(SIG_BLOCK, SIGTERM);
	CHECK_EQ(kill(getpid(), SIGTERM), 0);
	CHECK_EQ(kill(made, SIGUSR1), 0);
	CHECK_EQ(kill(made, SIGUSR2), 0);
	let_child();
	CHECK_EQ(taken, 1);
	CHECK_EQ(taker, made);
	CHECK(own_mask_holds);
	CHECK(own_pending_holds);
	CHECK(!waits(SIGUSR2));
	/* The child now ignores SIGTERM. This has discarded the child's own pending SIGTERM. The parent's
	 * SIGTERM is still pending. */
	CHECK(handler_of(SIGTERM) == SIG_IGN);
	CHECK(waits(SIGTERM));
	hold(SIG_UNBLOCK, SIGTERM);
	CHECK(!waits(SIGTERM));
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	CHECK_EQ(taken, 2);
	CHECK_EQ(taker, getpid());
	NEED(turn_pass(turns.to_child));
	CHECK(exited(wait_for(made), 7));
	/* When one of the processes exits, the other keeps its handlers. */
	CHECK(handler_of(SIGUSR1) == count);
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	CHECK_EQ(taken, 3);
	hold(SIG_UNBLOCK, SIGHUP);
	turns_close(&turns);
}

static int killed_child(void *unused)
{
	(void)unused;
	let_parent();
	_exit(0);
}

/* If a handler with SA_RESETHAND runs in one process, it is reset for both, and the same signal then kills the other
 * process. */
static void one_of_two(void)
{
	NEED(turns_open(&turns));
	set(SIGTERM, SIG_DFL, 0);
	set(SIGUSR2, count, SA_RESETHAND | SA_RESTART);
	pid_t made = make(killed_child, SHARES | SIGCHLD);
	NEED(made > 0 && turn_await(turns.to_parent));
	taken = 0;
	CHECK_EQ(kill(getpid(), SIGUSR2), 0);
	CHECK_EQ(taken, 1);
	CHECK(handler_of(SIGUSR2) == SIG_DFL);
	CHECK_EQ(kill(made, SIGUSR2), 0);
	CHECK(killed(wait_for(made), SIGUSR2));
	CHECK_EQ(taken, 1);
	turns_close(&turns);
}

static volatile pid_t youngest;

static int grandchild(void *unused)
{
	(void)unused;
	let_parent();
	own_mask_holds = handler_of(SIGUSR1) == count;
	set(SIGHUP, count, 0);
	_exit(own_mask_holds ? 8 : 9);
}

static int maker(void *unused)
{
	(void)unused;
	/* Creates a child of this process's parent. */
	youngest = make(grandchild, SHARES | CLONE_PARENT | SIGCHLD);
	_exit(youngest > 0 ? 0 : 1);
}

static void outlived(void)
{
	NEED(turns_open(&turns));
	pid_t made = make(maker, SHARES | SIGCHLD);
	NEED(made > 0 && turn_await(turns.to_parent));
	CHECK(exited(wait_for(made), 0));
	CHECK(handler_of(SIGHUP) == other);
	NEED(turn_pass(turns.to_child));
	CHECK(exited(wait_for(youngest), 8));
	CHECK(handler_of(SIGHUP) == count);
	turns_close(&turns);
}

static int executes(void *unused)
{
	(void)unused;
	execl("/proc/self/exe", "shared_handlers", "executed", NULL);
	_exit(60);
}

static void exec_parts(int flags)
{
	set(SIGUSR2, SIG_IGN, 0);
	set(SIGWINCH, SIG_DFL, 0);
	pid_t made = make(executes, flags | SIGCHLD);
	NEED(made > 0);
	CHECK(exited(wait_for(made), 0));
	CHECK(handler_of(SIGUSR1) == count);
	CHECK(handler_of(SIGUSR2) == SIG_IGN);
	CHECK(handler_of(SIGWINCH) == SIG_DFL);
}

static int executed(void)
{
	CHECK(handler_of(SIGUSR1) == SIG_DFL);
	CHECK(handler_of(SIGUSR2) == SIG_IGN);
	set(SIGUSR2, SIG_DFL, 0);
	set(SIGWINCH, SIG_IGN, 0);
	return checks_failed != 0;
}

static void not_shared(void *unused)
{
	(void)unused;
	set(SIGUSR1, SIG_IGN, 0);
	CHECK(handler_of(SIGHUP) == count);
}

static void refused(void)
{
	unsigned long long arguments[8] = { SHARES | CLONE_CLEAR_SIGHAND };
	CHECK_FAILS(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_FAILS(syscall(435, arguments, sizeof arguments), EINVAL);
	/* Forked processes change only their own handlers. */
	CHECK(exited(in_child(not_shared, NULL), 0));
	CHECK(handler_of(SIGUSR1) == count);
}

int main(int argument_count, char **arguments)
{
	if (argument_count > 1 && strcmp(arguments[1], "executed") == 0)
		return executed();
	what_is_shared();
	one_of_two();
	outlived();
	exec_parts(SHARES);
	exec_parts(SHARES | CLONE_VFORK);
	refused();
	return checked("shared_handlers");
}
