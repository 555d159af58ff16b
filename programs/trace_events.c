/* Does a tracer receive the events of its tracee, for new processes and threads, execve and exits, in order?
 *
 * Usage: trace_events
 */
#include "check.h"
#include "trace.h"

#include <pthread.h>
#include <sched.h>

static const char *self;

static unsigned long message_of(pid_t child)
{
	unsigned long message = 0;
	CHECK_EQ(request(PTRACE_GETEVENTMSG, child, 0, &message), 0);
	return message;
}

static void set(pid_t child, long options)
{
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)options), 0);
}

static void go(pid_t child)
{
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
}

static int forks(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(21);
	return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
}

/* fork: the parent stops and reports the child's ID. The child starts in a stop of its own. */
static void fork_event(void)
{
	siginfo_t cause;
	struct user_regs_struct regs;
	pid_t child = traced_child(forks);
	set(child, PTRACE_O_TRACEFORK);
	go(child);
	CHECK_EQ(event_of(child), PTRACE_EVENT_FORK);
	CHECK_EQ(request(PTRACE_GETSIGINFO, child, 0, &cause), 0);
	CHECK_EQ(cause.si_signo, SIGTRAP);
	CHECK_EQ(cause.si_code, SIGTRAP | PTRACE_EVENT_FORK << 8);
	CHECK_EQ(cause.si_pid, child);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.rax, -ENOSYS);
	pid_t grandchild = message_of(child);
	CHECK(grandchild > 0);
	CHECK_EQ(stopped_by(grandchild), SIGSTOP);
	CHECK_EQ(request(PTRACE_GETREGS, grandchild, 0, &regs), 0);
	CHECK_EQ(regs.rax, 0);
	/* The child inherits the options. */
	set(grandchild, PTRACE_O_TRACEEXIT);
	go(grandchild);
	CHECK_EQ(event_of(grandchild), PTRACE_EVENT_EXIT);
	CHECK_EQ(message_of(grandchild), 21 << 8);
	go(child);
	go(grandchild);
	CHECK_EQ(ended_with(grandchild), 21);
	CHECK_EQ(stopped_by(child), SIGCHLD);
	go(child);
	CHECK_EQ(ended_with(child), 21);
}

static int vforks(void)
{
	int status = 0;
	pid_t child = vfork();
	if (child == 0)
		_exit(22);
	return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 1;
}

/* vfork: there is one event when the child exists, and one event when the child has released the memory. */
static void vfork_event(void)
{
	pid_t child = traced_child(vforks);
	set(child, PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE);
	go(child);
	CHECK_EQ(event_of(child), PTRACE_EVENT_VFORK);
	pid_t grandchild = message_of(child);
	CHECK_EQ(stopped_by(grandchild), SIGSTOP);
	go(child);
	go(grandchild);
	CHECK_EQ(ended_with(grandchild), 22);
	/* The child may stop for SIGCHLD before or after this event. */
	int status = status_of(child), done = status >> 16 == PTRACE_EVENT_VFORK_DONE;
	if (done)
		CHECK_EQ(message_of(child), grandchild);
	go(child);
	status = status_of(child);
	CHECK(done || status >> 16 == PTRACE_EVENT_VFORK_DONE);
	go(child);
	CHECK_EQ(ended_with(child), 22);
}

static void *nothing(void *argument)
{
	return argument;
}

static int starts_a_thread(void)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL))
		return 1;
	return 23;
}

/* A new thread is traced from its start, and its exit is reported to the tracer. */
static void clone_event(void)
{
	pid_t child = traced_child(starts_a_thread);
	set(child, PTRACE_O_TRACECLONE);
	go(child);
	CHECK_EQ(event_of(child), PTRACE_EVENT_CLONE);
	pid_t thread = message_of(child);
	CHECK_EQ(stopped_by(thread), SIGSTOP);
	/* The thread has stopped, and that was already reported. */
	CHECK_EQ(waitpid(thread, NULL, __WALL | WNOHANG), 0);
	CHECK_EQ(waitpid(-1, NULL, __WALL | WNOHANG), 0);
	go(child);
	go(thread);
	/* The exit of the process may be reported before the thread has exited. */
	int code = ended_with(thread);
	CHECK(code == 0 || code == 23);
	CHECK_EQ(ended_with(child), 23);
	CHECK_EQ(waitpid(thread, NULL, __WALL), -1);
}

static int executes(void)
{
	execl(self, self, "child", NULL);
	return 1;
}

/* execve, with the event and with the older SIGTRAP. */
static void exec_event(void)
{
	struct user_regs_struct regs;
	pid_t child = traced_child(executes);
	set(child, PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD);
	go(child);
	CHECK_EQ(event_of(child), PTRACE_EVENT_EXEC);
	CHECK_EQ(message_of(child), child);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_execve);
	CHECK_EQ(regs.rax, -ENOSYS);
	/* Next is the exit stop of the call. */
	CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGTRAP | 0x80);
	CHECK_EQ(message_of(child), 2);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_execve);
	CHECK_EQ(regs.rax, 0);
	go(child);
	CHECK_EQ(ended_with(child), 31);

	child = traced_child(executes);
	go(child);
	CHECK_EQ(status_of(child), SIGTRAP << 8 | 0x7f);
	go(child);
	CHECK_EQ(ended_with(child), 31);
}

static void *executes_too(void *unused)
{
	execl(self, self, "child", NULL);
	return unused;
}

static int executes_from_a_thread(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, executes_too, NULL);
	pthread_join(thread, NULL);
	return 1;
}

/* execve of a thread: the thread gets the leader's ID, and the event reports its previous ID. */
static void exec_of_a_thread(void)
{
	pid_t child = traced_child(executes_from_a_thread);
	set(child, PTRACE_O_TRACEEXEC | PTRACE_O_TRACECLONE);
	go(child);
	CHECK_EQ(event_of(child), PTRACE_EVENT_CLONE);
	pid_t thread = message_of(child);
	CHECK_EQ(stopped_by(thread), SIGSTOP);
	go(child);
	go(thread);
	CHECK_EQ(event_of(child), PTRACE_EVENT_EXEC);
	CHECK_EQ(message_of(child), thread);
	CHECK_FAILS(request(PTRACE_CONT, thread, 0, 0), ESRCH);
	go(child);
	CHECK_EQ(ended_with(child), 31);
}

static int ends(void)
{
	return 24;
}

/* At the exit event, also for a process that a signal kills, the registers can still be read. */
static void exit_event(void)
{
	struct user_regs_struct regs;
	pid_t child = traced_child(ends);
	set(child, PTRACE_O_TRACEEXIT);
	go(child);
	CHECK_EQ(event_of(child), PTRACE_EVENT_EXIT);
	CHECK_EQ(message_of(child), 24 << 8);
	CHECK_EQ(request(PTRACE_GETREGS, child, 0, &regs), 0);
	CHECK_EQ(regs.orig_rax, SYS_exit_group);
	go(child);
	CHECK_EQ(ended_with(child), 24);

	child = traced_child(ends);
	set(child, PTRACE_O_TRACEEXIT);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGTERM), 0);
	CHECK_EQ(event_of(child), PTRACE_EVENT_EXIT);
	CHECK_EQ(message_of(child), SIGTERM);
	go(child);
	CHECK_EQ(ended_with(child), 256 + SIGTERM);
}

static void *pauses(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static int ends_with_threads(void)
{
	pthread_t thread;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, pauses, NULL);
	return 25;
}

/* exit_group: every thread is reported once, the leader last. */
static void exit_of_all(void)
{
	int status, threads = 0;
	pid_t child = traced_child(ends_with_threads), last = 0;
	set(child, PTRACE_O_TRACECLONE);
	go(child);
	for (;;) {
		pid_t one = waitpid(-1, &status, __WALL);
		if (one == -1)
			break;
		last = one;
		if (!WIFSTOPPED(status)) {
			threads++;
			CHECK_EQ(status, 25 << 8);
		} else if (request(PTRACE_CONT, one, 0, 0) == -1) {
			CHECK_EQ(errno, ESRCH);
		}
	}
	CHECK_EQ(errno, ECHILD);
	CHECK_EQ(threads, 4);
	CHECK_EQ(last, child);
}

/* Without the options there are no events, and the child is not traced. */
static void no_events(void)
{
	pid_t child = traced_child(forks);
	CHECK_FAILS(request(PTRACE_SETOPTIONS, child, 0, (void *)0x400), EINVAL);
	go(child);
	CHECK_EQ(stopped_by(child), SIGCHLD);
	CHECK_EQ(message_of(child), 0);
	go(child);
	CHECK_EQ(ended_with(child), 21);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "child"))
		return 31;
	self = argv[0];
	fork_event();
	vfork_event();
	clone_event();
	exec_event();
	exec_of_a_thread();
	exit_event();
	exit_of_all();
	no_events();
	return checked("trace_events");
}
