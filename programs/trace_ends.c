/* If a tracer or a tracee is killed, in any stop, is no process left behind?
 *
 * Usage: trace_ends [number of tracees]
 */
#include "check.h"
#include "trace.h"

#include <pthread.h>
#include <sched.h>

static int forks_and_ends(void)
{
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		_exit(1);
	waitpid(child, &status, 0);
	return 2;
}

/* Sends SIGKILL in each stop of a process for which all options are set. */
static void killed_in_each_stop(void)
{
	int stops = 1;
	for (int at = 0; at < stops && at < 30; at++) {
		int status = 0, seen = 0;
		pid_t child = traced_child(forks_and_ends);
		CHECK_EQ(request(PTRACE_SETOPTIONS, child, 0, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK)), 0);
		while (seen < at) {
			CHECK_EQ(request(PTRACE_SYSCALL, child, 0, 0), 0);
			CHECK_EQ(waitpid(child, &status, __WALL), child);
			if (!WIFSTOPPED(status))
				break;
			seen++;
			if (status >> 16 == PTRACE_EVENT_FORK) {
				unsigned long grandchild = 0;
				CHECK_EQ(request(PTRACE_GETEVENTMSG, child, 0, &grandchild), 0);
				CHECK_EQ(stopped_by((pid_t)grandchild), SIGSTOP);
				CHECK_EQ(request(PTRACE_DETACH, (pid_t)grandchild, 0, 0), 0);
			}
		}
		if (seen < at)
			break;
		stops = at + 2;
		CHECK_EQ(kill(child, SIGKILL), 0);
		CHECK_EQ(ended_with(child), 256 + SIGKILL);
	}
	/* The child stops at the entries and exits of raise, fork, wait4 and exit, and for its signal. */
	CHECK(stops > 5 && stops < 20);
}

/* A tracer is killed while its tracee is in a stop or runs. The tracee continues, or is killed together with
 * the tracer (PTRACE_O_EXITKILL). */
static void killed_tracers(void)
{
	int go[2], ready[2];
	CHECK_EQ(pipe(go), 0);
	CHECK_EQ(pipe(ready), 0);
	for (int way = 0; way < 4; way++) {
		char byte;
		pid_t child = fork();
		if (child == 0) {
			while (read(go[0], &byte, 1) != 1)
				;
			_exit(3);
		}
		pid_t tracer = fork();
		if (tracer == 0) {
			long options = PTRACE_O_TRACESYSGOOD | (way & 1 ? PTRACE_O_EXITKILL : 0);
			if (request(PTRACE_SEIZE, child, 0, (void *)options) || request(PTRACE_INTERRUPT, child, 0, 0) ||
			    event_of(child) != PTRACE_EVENT_STOP)
				_exit(1);
			if (way & 2 && request(PTRACE_SYSCALL, child, 0, 0))
				_exit(2);
			if (way & 2 && stopped_by(child) != (SIGTRAP | 0x80))
				_exit(3);
			if (write(ready[1], "", 1) != 1)
				_exit(4);
			for (;;)
				pause();
		}
		CHECK_EQ(read(ready[0], &byte, 1), 1);
		CHECK_EQ(kill(tracer, SIGKILL), 0);
		CHECK_EQ(ended_with(tracer), 256 + SIGKILL);
		if (way & 1) {
			CHECK_EQ(ended_with(child), 256 + SIGKILL);
		} else {
			CHECK_EQ(write(go[1], "", 1), 1);
			CHECK_EQ(ended_with(child), 3);
		}
	}
	for (int i = 0; i < 2; i++) {
		close(go[i]);
		close(ready[i]);
	}
}

/* Two tracers: the second attach fails until the first tracer has detached. */
static void two_tracers(void)
{
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	CHECK_EQ(request(PTRACE_SEIZE, child, 0, 0), 0);
	pid_t second = fork();
	if (second == 0) {
		if (request(PTRACE_SEIZE, child, 0, 0) != -1 || errno != EPERM)
			_exit(1);
		if (request(PTRACE_CONT, child, 0, 0) != -1 || errno != ESRCH)
			_exit(2);
		_exit(waitpid(child, NULL, __WALL) == -1 && errno == ECHILD ? 0 : 3);
	}
	CHECK_EQ(ended_with(second), 0);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(ended_with(child), 256 + SIGKILL);
}

/* Two processes trace each other and exit. */
static void mutual(void)
{
	int ready[2];
	CHECK_EQ(pipe(ready), 0);
	pid_t one = fork();
	if (one == 0) {
		pid_t other;
		if (read(ready[0], &other, sizeof other) != sizeof other)
			_exit(1);
		if (request(PTRACE_SEIZE, other, 0, 0))
			_exit(2);
		for (;;)
			pause();
	}
	pid_t other = fork();
	if (other == 0) {
		pid_t self = getpid();
		if (request(PTRACE_SEIZE, one, 0, 0) || write(ready[1], &self, sizeof self) != sizeof self)
			_exit(1);
		for (;;)
			pause();
	}
	usleep(20000);
	/* The exit of `one` is reported to its parent only after its tracer, `other`, has exited. */
	CHECK_EQ(kill(one, SIGKILL), 0);
	CHECK_EQ(kill(other, SIGKILL), 0);
	CHECK_EQ(ended_with(other), 256 + SIGKILL);
	CHECK_EQ(ended_with(one), 256 + SIGKILL);
	close(ready[0]);
	close(ready[1]);
}

/* Many tracees: every stop and every exit is reported once. */
static void many(int count)
{
	int status, stops = 0, ends = 0;
	for (int i = 0; i < count; i++) {
		pid_t child = fork();
		if (child == 0) {
			if (request(PTRACE_TRACEME, 0, 0, 0))
				_exit(99);
			raise(SIGUSR1);
			_exit(5);
		}
	}
	while (ends < count) {
		pid_t child = waitpid(-1, &status, __WALL);
		NEED(child > 0);
		if (WIFSTOPPED(status)) {
			stops++;
			CHECK_EQ(WSTOPSIG(status), SIGUSR1);
			CHECK_EQ(request(PTRACE_CONT, child, 0, 0), 0);
		} else {
			ends++;
			CHECK_EQ(status, 5 << 8);
		}
	}
	CHECK_EQ(stops, count);
	CHECK_EQ(waitpid(-1, &status, __WALL), -1);
}

static void *starts_and_ends(void *unused)
{
	return unused;
}

static int has_threads(void)
{
	pthread_t threads[4];
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, starts_and_ends, NULL);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
	return 6;
}

/* A tracer exits without ever waiting for its tracee's threads. */
static void unwaited(void)
{
	pid_t tracer = fork();
	if (tracer == 0) {
		int status;
		pid_t child = fork();
		if (child == 0)
			_exit(request(PTRACE_TRACEME, 0, 0, 0) ? 99 : (raise(SIGSTOP), has_threads()));
		if (waitpid(child, &status, __WALL) != child)
			_exit(1);
		if (request(PTRACE_SETOPTIONS, child, 0, (void *)PTRACE_O_TRACECLONE) || request(PTRACE_CONT, child, 0, 0))
			_exit(2);
		/* Each thread waits for its tracer, which waits for the leader only. */
		for (int i = 0; i < 8; i++) {
			unsigned long thread = 0;
			if (event_of(child) != PTRACE_EVENT_CLONE || request(PTRACE_GETEVENTMSG, child, 0, &thread))
				_exit(3);
			if (stopped_by((pid_t)thread) != SIGSTOP || request(PTRACE_CONT, (pid_t)thread, 0, 0))
				_exit(4);
			if (request(PTRACE_CONT, child, 0, 0))
				_exit(5);
		}
		_exit(0);
	}
	CHECK_EQ(ended_with(tracer), 0);
}

int main(int argc, char **argv)
{
	killed_in_each_stop();
	killed_tracers();
	two_tracers();
	mutual();
	many(argc > 1 ? atoi(argv[1]) : 100);
	unwaited();
	return checked("trace_ends");
}
