/* Is SIGCHLD pending as soon as a wait returns the change for which it is sent?
 *
 * Usage: trace_notices. A tracer blocks SIGCHLD and waits for stops and exits of tracees, of children and of
 * orphans. This is repeated while it ignores the signal, and with SA_NOCLDSTOP and SA_NOCLDWAIT.
 */
#include "check.h"
#include "trace.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#define ROUNDS 300

static sigset_t chld;

/* Receives a pending SIGCHLD without waiting. Returns its si_code or -1, and stores the sender and the status. */
static int taken(pid_t *from, int *status)
{
	siginfo_t info;
	struct timespec none = {0, 0};
	if (sigtimedwait(&chld, &info, &none) != SIGCHLD)
		return -1;
	*from = info.si_pid;
	*status = info.si_status;
	return info.si_code;
}

/* Checks that SIGCHLD is pending for `child` with this code and status, and receives it. */
static void expect_at(int line, pid_t child, int code, int status)
{
	pid_t from = 0;
	int shown = 0;
	int seen = taken(&from, &shown);
	if (seen != code || (code != -1 && (from != child || shown != status)))
		printf("trace_notices.c:%d: code %d, from %d (%d), status %x\n", line, seen, from, child, shown);
	CHECK_EQ(seen, code);
	if (code != -1) {
		CHECK_EQ(from, child);
		CHECK_EQ(shown, status);
	}
}
#define expect(child, code, status) expect_at(__LINE__, child, code, status)

static void react(void (*handler)(int), int flags)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	CHECK_EQ(sigaction(SIGCHLD, &action, NULL), 0);
}

/* Creates a traced child that stops itself `stops` times and exits with 7. */
static pid_t stopping_child(int stops)
{
	pid_t child = fork();
	if (child == 0) {
		if (request(PTRACE_TRACEME, 0, 0, 0))
			_exit(1);
		while (stops--)
			raise(SIGUSR1);
		_exit(7);
	}
	NEED(child > 0);
	return child;
}

/* Checks the signals for stops of a tracee, with a wait that blocks and with one that does not. */
static void stops(int code)
{
	pid_t child = stopping_child(ROUNDS);
	for (int i = 0; i < ROUNDS; i++) {
		int status = 0;
		if (i % 2)
			while (waitpid(child, &status, __WALL | WNOHANG) == 0)
				;
		else
			CHECK_EQ(waitpid(child, &status, __WALL), child);
		CHECK_EQ(WSTOPSIG(status), SIGUSR1);
		expect(child, code, SIGUSR1);
		CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	}
	CHECK_EQ(ended_with(child), 7);
	expect(child, CLD_EXITED, 7);
}

/* Checks the signals for stops and exits of children that have no tracer. */
static void children(int code)
{
	for (int i = 0; i < ROUNDS / 10; i++) {
		int status = 0;
		pid_t child = fork();
		if (child == 0) {
			raise(SIGSTOP);
			_exit(7);
		}
		CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
		CHECK(WIFSTOPPED(status));
		expect(child, code, SIGSTOP);
		CHECK_EQ(kill(child, SIGKILL), 0);
		CHECK_EQ(ended_with(child), 256 + SIGKILL);
		/* SIGKILL can also cause a signal for the continuation of the stopped child, with which the
		 * signal for the exit merges. */
		expect(child, CLD_KILLED, SIGKILL);
	}
}

static void *ends(void *unused)
{
	return unused;
}

/* The tracer is also notified of the exit of a traced thread that is not the leader. */
static void threads(void)
{
	pid_t child = fork();
	if (child == 0) {
		pthread_t thread;
		if (request(PTRACE_TRACEME, 0, 0, 0))
			_exit(1);
		raise(SIGUSR1);
		for (int i = 0; i < ROUNDS / 10; i++) {
			pthread_create(&thread, NULL, ends, NULL);
			pthread_join(thread, NULL);
		}
		_exit(7);
	}
	CHECK_EQ(stopped_by(child), SIGUSR1);
	expect(child, CLD_TRAPPED, SIGUSR1);
	CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACECLONE), 0);
	CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
	int ended = 0, status, shown;
	pid_t from;
	for (;;) {
		pid_t id = waitpid(-1, &status, __WALL);
		NEED(id > 0);
		if (id == child && WIFEXITED(status))
			break;
		/* The signals for several threads merge, so only one is pending. */
		if (WIFEXITED(status))
			ended++;
		else
			CHECK_EQ(request(PTRACE_CONT, id, 0, 0), 0);
		(void)taken(&from, &shown);
	}
	/* The signal for this exit can have merged with that for a thread's exit, which was received above. */
	(void)taken(&from, &shown);
	CHECK_EQ(ended, ROUNDS / 10);
}

/* The tracer adopts a zombie. */
static void orphans(void)
{
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	for (int i = 0; i < ROUNDS / 10; i++) {
		int pipes[2];
		pid_t orphan = 0, from = 0;
		int status = 0;
		NEED(pipe(pipes) == 0);
		pid_t child = fork();
		if (child == 0) {
			siginfo_t info;
			pid_t own = fork();
			if (own == 0)
				_exit(5);
			waitid(P_PID, own, &info, WEXITED | WNOWAIT);
			_exit(write(pipes[1], &own, sizeof own) != sizeof own);
		}
		CHECK_EQ(read(pipes[0], &orphan, sizeof orphan), (long)sizeof orphan);
		while (waitpid(orphan, NULL, WNOHANG) != orphan)
			;
		/* The pending signal is for the exit of the orphan or of the child, which is waited for next. */
		CHECK_EQ(taken(&from, &status), CLD_EXITED);
		CHECK(from == orphan || from == child);
		CHECK_EQ(ended_with(child), 0);
		(void)taken(&from, &status);
		close(pipes[0]);
		close(pipes[1]);
	}
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

static void nothing(int number)
{
	(void)number;
}

int main(void)
{
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	CHECK_EQ(sigprocmask(SIG_BLOCK, &chld, NULL), 0);
	void (*handlers[])(int) = {SIG_DFL, nothing};
	for (int i = 0; i < 2; i++) {
		react(handlers[i], 0);
		stops(CLD_TRAPPED);
		children(CLD_STOPPED);
		threads();
		orphans();
		react(handlers[i], SA_NOCLDSTOP);
		stops(-1);
		children(-1);
		/* A traced child is a zombie until its tracer has waited for it. */
		react(handlers[i], SA_NOCLDWAIT);
		stops(CLD_TRAPPED);
		pid_t child = fork();
		if (child == 0)
			_exit(3);
		CHECK_FAILS(waitpid(child, NULL, 0), ECHILD);
		expect(child, CLD_EXITED, 3);
	}
	/* A tracer that ignores SIGCHLD gets no signal for stops. It gets one for the exit of a tracee,
	 * because the signal is blocked. */
	react(SIG_IGN, 0);
	stops(-1);
	pid_t child = fork();
	if (child == 0)
		_exit(3);
	CHECK_FAILS(waitpid(child, NULL, 0), ECHILD);
	expect(child, -1, 0);
	return checked("trace_notices");
}
