/* Sequences on children, threads, signals and traced children. The worker waits only for events that it has caused. */
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/user.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif
#ifndef PTRACE_SEIZE
#define PTRACE_SEIZE 0x4206
#define PTRACE_INTERRUPT 0x4207
#endif

static void step(void);

/* Exits by the system call, without the exit handlers of the C library. */
static _Noreturn void leave(int code)
{
	for (;;)
		raw(SYS_exit_group, code, 0, 0, 0, 0, 0);
}

/* Waits for a child that exits. Returns its exit code, or -1. */
static int await(long child)
{
	int status = 0;
	long got;
	do
		got = DO(wait4, "", SYS_wait4, child, &status, 0x40000000 /* __WALL */, 0);
	while (got == -EINTR);
	return got == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Kills and reaps a child. */
static void put_away(long child)
{
	DO(kill, "", SYS_kill, child, SIGKILL);
	await(child);
}

/* Executes the steps of a forked child: a few operations on the objects that it inherited. */
static _Noreturn void live_as_child(void)
{
	me.budget = 12;
	me.random ^= 0x9e3779b97f4a7c15ULL;
	while (me.budget > 0)
		step();
	leave(CHILD_CODE);
}

static int in_child;

static void fork_child(void)
{
	int lives = one_in(3);
	long child = raw(SYS_fork, 0, 0, 0, 0, 0, 0);
	if (child == 0) {
		in_child = 1;
		if (lives)
			live_as_child();
		leave(CHILD_CODE);
	}
	note(CALL_fork, child);
	if (child > 0)
		await(child);
}

static void vfork_child(void)
{
	pid_t child = vfork();
	if (child == 0)
		leave(CHILD_CODE);
	note(CALL_vfork, child);
	if (child > 0)
		await(child);
}

/* Runs in a child that does nothing until it is killed. */
static _Noreturn void idle(void)
{
	for (;;)
		raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

static void use_pidfd(void)
{
	int pidfd = -1;
	struct clone_args arguments = { .flags = CLONE_PIDFD, .pidfd = (uint64_t)&pidfd, .exit_signal = SIGCHLD };
	long child = raw(SYS_clone3, (long)&arguments, sizeof arguments, 0, 0, 0, 0);
	if (child == 0)
		idle();
	note(CALL_clone3, child);
	if (child < 0)
		return;
	siginfo_t info;
	struct area *area = any_area();
	hold(PIDFD, DO(pidfd_open, "--", SYS_pidfd_open, child, 0));
	hold(RECEIVED, DO(pidfd_getfd, "-dn", SYS_pidfd_getfd, pidfd, any_descriptor(), 0));
	if (area) {
		struct iovec range = { area->at, (size_t)area->pages * PAGE };
		DO(process_madvise, "-pvn-", SYS_process_madvise, pidfd, &range, 1, one_in(2) ? MADV_COLD : MADV_PAGEOUT, 0);
	}
	if (DO(pidfd_send_signal, "", SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0) == 0)
		DO(waitid, "", SYS_waitid, P_PIDFD, pidfd, &info, WEXITED, 0);
	else
		put_away(child);
	hold(PIDFD, pidfd);
}

static int start_leaf(void *unused)
{
	static char *arguments[] = { "sequences", "leaf", NULL };
	(void)unused;
	raw(SYS_execve, (long)"/proc/self/exe", (long)arguments, (long)(arguments + 2), 0, 0, 0);
	leave(1);
}

static char stack[4 * PAGE] __attribute__((aligned(16)));
static volatile int thread_word;

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID };

/* Starts a thread. Until the thread has exited, `thread_word` is not 0: 1 at first, then the thread's ID. */
static long start_thread(int (*work)(void *), void *argument)
{
	thread_word = 1;
	int thread = clone(work, stack + sizeof stack, THREAD, argument, 0, 0, &thread_word);
	if (thread < 0)
		thread_word = 0;
	return note(CALL_clone_thread, thread);
}

static void join_thread(void)
{
	for (int now; (now = thread_word) != 0;)
		raw(SYS_futex, (long)&thread_word, FUTEX_WAIT, now, 0, 0, 0);
}

static void execute(void)
{
	int by_thread = one_in(4);
	long child = raw(SYS_fork, 0, 0, 0, 0, 0, 0);
	if (child == 0) {
		if (by_thread && start_thread(start_leaf, NULL) > 0)
			idle();
		start_leaf(NULL);
	}
	note(CALL_fork, child);
	if (child > 0)
		note(CALL_execve, await(child) == CHILD_CODE ? 0 : -ENOEXEC);
}

static int wait_for_word(void *unused)
{
	uint32_t *word = &shared->word[me.lane];
	struct timespec limit = { 0, 200000000 };
	(void)unused;
	note(CALL_futex_wait, raw(SYS_futex, (long)word, FUTEX_WAIT, 0, (long)&limit, 0, 0));
	return 0;
}

static void use_futex(void)
{
	if (start_thread(wait_for_word, NULL) < 0)
		return;
	while (thread_word && DO(futex_wake, "", SYS_futex, &shared->word[me.lane], FUTEX_WAKE, 1, 0, 0, 0) == 0)
		raw(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	join_thread();
}

static int touch_missing(void *at)
{
	/* Accesses the memory by a system call, so that inaccessible memory causes an error and no signal. */
	raw(SYS_getcwd, (long)at, 64, 0, 0, 0, 0);
	return 0;
}

/* A thread waits for a missing page, and the worker answers its message. */
static void answer_message(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffd_msg message;
	struct timespec limit = { 0, 1000000 };
	long at = DO(mmap, "", SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long watcher = DO(userfaultfd, "", SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
	struct uffdio_register watched = { .range = { (uint64_t)at, PAGE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_copy copy = { .dst = (uint64_t)at, .src = (uint64_t)me.buffer, .len = PAGE };
	if (at >= 0 && watcher >= 0 && DO(uffd_api, "", SYS_ioctl, watcher, UFFDIO_API, &api) == 0 &&
	    DO(uffd_register, "", SYS_ioctl, watcher, UFFDIO_REGISTER, &watched) == 0 &&
	    start_thread(touch_missing, (void *)at) > 0) {
		for (int tries = 0; thread_word && tries < 200; tries++) {
			if (raw(SYS_read, watcher, (long)&message, sizeof message, 0, 0, 0) == sizeof message) {
				note(CALL_uffd_message, 0);
				break;
			}
			raw(SYS_nanosleep, (long)&limit, 0, 0, 0, 0, 0);
		}
		/* Sometimes the userfaultfd is closed before its message is answered. */
		if (!one_in(4))
			DO(uffd_copy, "", SYS_ioctl, watcher, UFFDIO_COPY, &copy);
		DO(close, "", SYS_close, watcher);
		watcher = -1;
		join_thread();
	}
	if (watcher >= 0)
		DO(close, "", SYS_close, watcher);
	if (at >= 0)
		DO(munmap, "", SYS_munmap, at, PAGE);
}

static void use_signals(void)
{
	uint64_t both = 1ULL << (SIGUSR1 - 1) | 1ULL << (SIGRTMIN - 1), was;
	struct timespec none = { 0, 0 };
	siginfo_t info = { .si_code = SI_QUEUE };
	long self = raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
	struct itimerval each_second = { { 1, 0 }, { 1, 0 } }, was_left;
	DO(rt_sigprocmask, "--pn", SYS_rt_sigprocmask, SIG_BLOCK, &both, &was, 8);
	switch (below(3)) {
	case 0:
		DO(kill, "", SYS_kill, self, SIGUSR1);
		break;
	case 1:
		info.si_signo = SIGRTMIN;
		DO(rt_sigqueueinfo, "--p", SYS_rt_sigqueueinfo, self, SIGRTMIN, &info);
		break;
	default:
		break;
	}
	/* A call that blocks unexpectedly is interrupted a little later. */
	if (one_in(2))
		DO(setitimer, "--p", SYS_setitimer, ITIMER_REAL, &each_second, &was_left);
	DO(rt_sigaction, "-ppn", SYS_rt_sigaction, SIGUSR2, 0, me.buffer, 8);
	DO(rt_sigtimedwait, "ppp-", SYS_rt_sigtimedwait, &both, &info, &none, 8);
}

/* Waits for a stop of a traced child. Returns whether the child stopped. */
static int stopped(long child)
{
	int status = 0;
	return DO(wait4, "", SYS_wait4, child, &status, 0x40000000, 0) == child && WIFSTOPPED(status);
}

static void look_at_stopped(long child)
{
	struct user_regs_struct registers;
	long word = 0, at = (long)me.buffer;
	if (DO(ptrace_getregs, "---p", SYS_ptrace, PTRACE_GETREGS, child, 0, &registers) == 0)
		DO(ptrace_setregs, "", SYS_ptrace, PTRACE_SETREGS, child, 0, &registers);
	DO(ptrace_peek, "--pp", SYS_ptrace, PTRACE_PEEKDATA, child, at, &word);
	DO(ptrace_poke, "--p-", SYS_ptrace, PTRACE_POKEDATA, child, at, word + 1);
}

static void trace_child(void)
{
	int seizes = one_in(2);
	long child = raw(SYS_fork, 0, 0, 0, 0, 0, 0);
	if (child == 0)
		idle();
	note(CALL_fork, child);
	if (child < 0)
		return;
	long result = -EIO;
	if (seizes) {
		result = DO(ptrace_seize, "", SYS_ptrace, PTRACE_SEIZE, child, 0, 1 /* PTRACE_O_TRACESYSGOOD */);
		if (DO(ptrace_interrupt, "", SYS_ptrace, PTRACE_INTERRUPT, child, 0, 0) < 0) {
			/* The child is alive and no other process traces it, so the failure means that the kernel lacks the call. */
			lacks(CALL_ptrace_seize);
			lacks(CALL_ptrace_interrupt);
			result = -EIO;
		}
	}
	if (result < 0)
		result = DO(ptrace_attach, "", SYS_ptrace, PTRACE_ATTACH, child, 0, 0);
	if (result < 0 || !stopped(child))
		return put_away(child);
	look_at_stopped(child);
	for (long i = below(4); i > 0; i--) {
		int whole = one_in(3);
		result = whole ? DO(ptrace_syscall, "", SYS_ptrace, PTRACE_SYSCALL, child, 0, 0) : -EIO;
		if (whole && result == -EIO)
			lacks(CALL_ptrace_syscall);
		if (result < 0)
			result = DO(ptrace_step, "", SYS_ptrace, PTRACE_SINGLESTEP, child, 0, 0);
		if (result < 0 || !stopped(child))
			return put_away(child);
	}
	if (one_in(2)) {
		DO(ptrace_continue, "", SYS_ptrace, PTRACE_CONT, child, 0, 0);
		if (DO(kill, "", SYS_kill, child, SIGSTOP) < 0 || !stopped(child))
			return put_away(child);
	}
	/* Sometimes the child is killed while it is traced. */
	if (!one_in(4))
		DO(ptrace_detach, "", SYS_ptrace, PTRACE_DETACH, child, 0, 0);
	put_away(child);
}
