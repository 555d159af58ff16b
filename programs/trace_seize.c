/* Can a tracer stop and follow a process with PTRACE_SEIZE, without sending it a signal?
 *
 * Usage: trace_seize
 */
#include "check.h"
#include "trace.h"

#include <pthread.h>
#include <sched.h>

static int ends[2];

/* Creates a child that waits for a byte and exits with it. */
static pid_t waiting_child(void)
{
	pid_t child = fork();
	if (child == 0) {
		char byte;
		_exit(read(ends[0], &byte, 1) == 1 ? byte : 77);
	}
	return child;
}

static void end(pid_t child, char code)
{
	CHECK_EQ(write(ends[1], &code, 1), 1);
	CHECK_EQ(ended_with(child), code);
}

static long cause_of(pid_t child)
{
	siginfo_t cause;
	return request(PTRACE_GETSIGINFO, child, 0, &cause) == 0 ? cause.si_code : -errno;
}

/* A seized process runs until it is interrupted. */
static void interrupted(void)
{
	pid_t child = waiting_child();
	CHECK_FAILS(request(PTRACE_SEIZE, child, (void *)1, 0), EIO);
	CHECK_FAILS(request(PTRACE_SEIZE, child, 0, (void *)0x400), EIO);
	CHECK_FAILS(request(PTRACE_INTERRUPT, child, 0, 0), ESRCH);
	CHECK_EQ(request(PTRACE_SEIZE, child, 0, (void *)PTRACE_O_TRACESYSGOOD), 0);
	CHECK_FAILS(request(PTRACE_SEIZE, child, 0, 0), EPERM);
	CHECK_EQ(waitpid(child, NULL, __WALL | WNOHANG), 0);
	CHECK_FAILS(request(PTRACE_CONT, child, 0, 0), ESRCH);
	CHECK_EQ(request(PTRACE_INTERRUPT, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGTRAP | PTRACE_EVENT_STOP << 8) << 8 | 0x7f);
	CHECK_EQ(cause_of(child), SIGTRAP | PTRACE_EVENT_STOP << 8);
	/* A second interrupt request during the stop causes another stop. */
	CHECK_EQ(request(PTRACE_INTERRUPT, child, 0, 0), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(event_of(child), PTRACE_EVENT_STOP);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(waitpid(child, NULL, __WALL | WNOHANG), 0);
	/* A signal is reported as without PTRACE_SEIZE. */
	CHECK_EQ(kill(child, SIGWINCH), 0);
	CHECK_EQ(status_of(child), SIGWINCH << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGWINCH), 0);
	end(child, 3);

	/* PTRACE_INTERRUPT fails for a tracee that was attached by PTRACE_ATTACH. */
	child = waiting_child();
	CHECK_EQ(request(PTRACE_ATTACH, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGSTOP);
	CHECK_FAILS(request(PTRACE_INTERRUPT, child, 0, 0), EIO);
	CHECK_FAILS(request(PTRACE_LISTEN, child, 0, 0), EIO);
	CHECK_EQ(request(PTRACE_DETACH, child, 0, 0), 0);
	end(child, 4);
}

/* A group stop: the tracer listens, and is notified when the process continues. */
static void listens(void)
{
	pid_t child = waiting_child();
	CHECK_EQ(request(PTRACE_SEIZE, child, 0, 0), 0);
	CHECK_EQ(kill(child, SIGSTOP), 0);
	CHECK_EQ(status_of(child), SIGSTOP << 8 | 0x7f);
	CHECK_FAILS(request(PTRACE_LISTEN, child, 0, 0), EIO);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGSTOP), 0);
	CHECK_EQ(status_of(child), (SIGSTOP | PTRACE_EVENT_STOP << 8) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_LISTEN, child, 0, 0), 0);
	/* The thread is still stopped, but has nothing to report, and refuses requests that need a stopped thread. */
	CHECK_EQ(waitpid(child, NULL, __WALL | WNOHANG), 0);
	CHECK_FAILS(request(PTRACE_CONT, child, 0, 0), ESRCH);
	CHECK_EQ(kill(child, SIGCONT), 0);
	CHECK_EQ(status_of(child), (SIGTRAP | PTRACE_EVENT_STOP << 8) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(status_of(child), SIGCONT << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGCONT), 0);

	/* The thread is interrupted while the tracer listens. */
	CHECK_EQ(kill(child, SIGSTOP), 0);
	CHECK_EQ(stopped_by(child), SIGSTOP);
	CHECK_EQ(request(PTRACE_CONT, child, 0, (void *)(long)SIGSTOP), 0);
	CHECK_EQ(event_of(child), PTRACE_EVENT_STOP);
	CHECK_EQ(request(PTRACE_LISTEN, child, 0, 0), 0);
	CHECK_EQ(request(PTRACE_INTERRUPT, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGSTOP | PTRACE_EVENT_STOP << 8) << 8 | 0x7f);
	/* The thread is killed while the tracer listens. */
	CHECK_EQ(request(PTRACE_LISTEN, child, 0, 0), 0);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(ended_with(child), 256 + SIGKILL);
}

/* Seizes a process that is already stopped. */
static void seizes_a_stopped_one(void)
{
	int status = 0;
	pid_t child = waiting_child();
	CHECK_EQ(kill(child, SIGSTOP), 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	CHECK_EQ(request(PTRACE_SEIZE, child, 0, 0), 0);
	CHECK_EQ(status_of(child), (SIGSTOP | PTRACE_EVENT_STOP << 8) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_DETACH, child, 0, 0), 0);
	CHECK_EQ(kill(child, SIGCONT), 0);
	end(child, 5);
}

/* A child of a seized process starts in a stop that is not caused by a signal. */
static void follows(void)
{
	int go[2];
	unsigned long grandchild = 0;
	CHECK_EQ(pipe(go), 0);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		int status = 0;
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		pid_t one = fork();
		if (one == 0)
			_exit(6);
		waitpid(one, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	CHECK_EQ(request(PTRACE_SEIZE, child, 0, (void *)PTRACE_O_TRACEFORK), 0);
	CHECK_EQ(write(go[1], "", 1), 1);
	CHECK_EQ(event_of(child), PTRACE_EVENT_FORK);
	CHECK_EQ(request(PTRACE_GETEVENTMSG, child, 0, &grandchild), 0);
	CHECK_EQ(status_of(grandchild), (SIGTRAP | PTRACE_EVENT_STOP << 8) << 8 | 0x7f);
	CHECK_EQ(request(PTRACE_CONT, grandchild, 0, 0), 0);
	CHECK_EQ(ended_with(grandchild), 6);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(stopped_by(child), SIGCHLD);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	CHECK_EQ(ended_with(child), 6);
	close(go[0]);
	close(go[1]);
}

static pid_t subject;

static void *other_thread(void *unused)
{
	(void)unused;
	CHECK_FAILS(request(PTRACE_CONT, subject, 0, 0), ESRCH);
	CHECK_FAILS(request(PTRACE_INTERRUPT, subject, 0, 0), ESRCH);
	CHECK_EQ(waitpid(subject, NULL, __WALL | __WNOTHREAD | WNOHANG), -1);
	CHECK_EQ(errno, ECHILD);
	return NULL;
}

static void *tracing_thread(void *unused)
{
	(void)unused;
	CHECK_EQ(request(PTRACE_SEIZE, subject, 0, 0), 0);
	CHECK_EQ(request(PTRACE_INTERRUPT, subject, 0, 0), 0);
	CHECK_EQ(event_of(subject), PTRACE_EVENT_STOP);
	return NULL;
}

/* Only the thread that attached is the tracer. When it exits, its tracee continues. */
static void one_thread_traces(void)
{
	pthread_t thread;
	int parent[2];
	CHECK_EQ(pipe(parent), 0);
	/* Uses a grandchild, because any thread of the parent could wait for a child, even without tracing
	 * it. */
	pid_t middle = fork();
	if (middle == 0) {
		pid_t child = waiting_child();
		if (write(parent[1], &child, sizeof child) != sizeof child)
			_exit(1);
		_exit(ended_with(child));
	}
	CHECK_EQ(read(parent[0], &subject, sizeof subject), sizeof subject);
	CHECK_EQ(request(PTRACE_SEIZE, subject, 0, 0), 0);
	CHECK_EQ(request(PTRACE_INTERRUPT, subject, 0, 0), 0);
	CHECK_EQ(event_of(subject), PTRACE_EVENT_STOP);
	pthread_create(&thread, NULL, other_thread, NULL);
	pthread_join(thread, NULL);
	CHECK_EQ(request(PTRACE_DETACH, subject, 0, 0), 0);
	pthread_create(&thread, NULL, tracing_thread, NULL);
	pthread_join(thread, NULL);
	while (request(PTRACE_SEIZE, subject, 0, 0) == -1 && errno == EPERM)
		sched_yield();
	CHECK_EQ(write(ends[1], "\7", 1), 1);
	CHECK_EQ(ended_with(subject), 7);
	CHECK_EQ(ended_with(middle), 7);
	close(parent[0]);
	close(parent[1]);
}

/* Attempts to trace the process itself, and a process that has exited. */
static void refused(void)
{
	CHECK_FAILS(request(PTRACE_SEIZE, getpid(), 0, 0), EPERM);
	CHECK_FAILS(request(PTRACE_INTERRUPT, getpid(), 0, 0), ESRCH);
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	siginfo_t info;
	CHECK_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
	CHECK_FAILS(request(PTRACE_SEIZE, child, 0, 0), EPERM);
	CHECK_EQ(ended_with(child), 0);
	CHECK_FAILS(request(PTRACE_SEIZE, child, 0, 0), ESRCH);
}

int main(void)
{
	CHECK_EQ(pipe(ends), 0);
	interrupted();
	listens();
	seizes_a_stopped_one();
	follows();
	one_thread_traces();
	refused();
	return checked("trace_seize");
}
