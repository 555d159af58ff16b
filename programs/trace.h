/* The parts that the programs about tracing share. */
#ifndef TRACE_H
#define TRACE_H

#include <elf.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

#ifndef PTRACE_EVENT_STOP
#define PTRACE_EVENT_STOP 128
#endif
#ifndef PTRACE_GET_SYSCALL_INFO
#define PTRACE_GET_SYSCALL_INFO 0x420e
#endif
#ifndef PTRACE_SYSEMU
#define PTRACE_SYSEMU 31
#endif

/* The same as struct ptrace_syscall_info, whose name differs between headers. */
struct call_info {
	uint8_t op, reserved;
	uint16_t flags;
	uint32_t arch;
	uint64_t ip, sp, words[7];
};

static inline long request(int what, pid_t child, void *address, void *data)
{
	return syscall(SYS_ptrace, what, child, address, data);
}

/* Waits for `child`. Returns its wait status, or -1. */
static inline int status_of(pid_t child)
{
	int status = 0;
	return waitpid(child, &status, __WALL) == child ? status : -1;
}

/* Waits for `child`. Returns the signal that stopped it, or -1. */
static inline int stopped_by(pid_t child)
{
	int status = status_of(child);
	return status != -1 && WIFSTOPPED(status) ? WSTOPSIG(status) : -1;
}

/* Waits for `child`. Returns the event for which it stopped, or -1. */
static inline int event_of(pid_t child)
{
	int status = status_of(child);
	return status != -1 && WIFSTOPPED(status) ? status >> 16 : -1;
}

/* Waits for `child`. Returns its exit code, 256 + the signal that killed it, or -1. */
static inline int ended_with(pid_t child)
{
	int status = status_of(child);
	if (status == -1)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : WIFSIGNALED(status) ? 256 + WTERMSIG(status) : -1;
}

/* Creates a child that executes PTRACE_TRACEME, stops, and then calls `then`, whose result is its exit code. */
static inline pid_t traced_child(int (*then)(void))
{
	pid_t child = fork();
	if (child == 0) {
		if (request(PTRACE_TRACEME, 0, 0, 0))
			_exit(99);
		/* musl's raise blocks signals during the call, including one with which the tracer continues the
		 * child. */
		kill(getpid(), SIGSTOP);
		_exit(then());
	}
	CHECK_EQ(stopped_by(child), SIGSTOP);
	return child;
}

#endif
