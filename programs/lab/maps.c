/* Runs a program, and reports how its memory was mapped: the guest's program of a separate run, of which nothing is
 * counted.
 *
 * It traces the program and its descendants, and sends a frame 'p' (init.c) with the text of /proc/PID/maps before a
 * process unmaps or moves memory, executes another program or ends. A frame begins with the number of the image, which
 * counts the execs of the run from 1, the process, and its name: a process that forks shares its image with the child.
 * A frame that equals the last one of its process is not sent again.
 *
 * A system call has two stops, at its begin and at its return.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONSOLE_PORT = 0xe9, MOST_TASKS = 4096, MOST_FRAMES = 4096, TEXT = 1 << 18 };
enum { NOTE_REGISTERS = 1 };

static struct task {
	pid_t id;
	uint32_t image;
	uint64_t sent;
	int in_call, is_new;
} tasks[MOST_TASKS];
static uint32_t images, frames;
static char text[TEXT];

static void emit(const void *bytes, size_t length)
{
	__asm__ volatile("rep outsb" : "+S"(bytes), "+c"(length) : "d"(CONSOLE_PORT) : "memory");
}

static struct task *task_of(pid_t id)
{
	struct task *free = NULL;
	for (int i = 0; i < MOST_TASKS; i++) {
		if (tasks[i].id == id)
			return &tasks[i];
		if (!free && !tasks[i].id)
			free = &tasks[i];
	}
	if (free)
		*free = (struct task){ .id = id, .is_new = 1 };
	return free;
}

static uint64_t hash(const char *bytes, size_t length)
{
	uint64_t value = 14695981039346656037U;
	for (size_t i = 0; i < length; i++)
		value = (value ^ (unsigned char)bytes[i]) * 1099511628211U;
	return value;
}

/* Appends a file of a process to the text. Returns the new length. */
static size_t append(size_t length, pid_t id, const char *name)
{
	char path[64];
	long got;
	snprintf(path, sizeof path, "/proc/%d/%s", id, name);
	int file = open(path, O_RDONLY | O_CLOEXEC);
	while (file >= 0 && length < TEXT && (got = read(file, text + length, TEXT - length)) > 0)
		length += got;
	if (file >= 0)
		close(file);
	return length;
}

static void send_maps(struct task *task)
{
	size_t length = snprintf(text, sizeof text, "%u %d ", task->image, task->id);
	char kind = 'p';
	length = append(append(length, task->id, "comm"), task->id, "maps");
	uint64_t value = hash(text, length);
	uint32_t size = length;
	if (value == task->sent || frames >= MOST_FRAMES)
		return;
	task->sent = value;
	frames++;
	emit(&kind, 1);
	emit(&size, sizeof size);
	emit(text, length);
}

/* Returns whether memory can be gone after the call. */
static int loses_memory(const struct user_regs_struct *registers)
{
	switch (registers->orig_rax) {
	case SYS_munmap:
	case SYS_mremap:
	case SYS_execve:
	case SYS_execveat:
	case SYS_exit_group:
		return 1;
	case SYS_mmap:
		return (registers->r10 & MAP_FIXED) != 0;
	default:
		return 0;
	}
}

static void at_call(struct task *task)
{
	struct user_regs_struct registers;
	struct iovec all = { &registers, sizeof registers };
	task->in_call = !task->in_call;
	if (task->in_call && ptrace(PTRACE_GETREGSET, task->id, NOTE_REGISTERS, &all) == 0 && loses_memory(&registers))
		send_maps(task);
}

/* Handles a stop, and returns the signal to deliver. */
static int at_stop(struct task *task, int status)
{
	int signal = WSTOPSIG(status), event = status >> 16;
	unsigned long child = 0;
	if (signal == (SIGTRAP | 0x80)) {
		at_call(task);
		return 0;
	}
	switch (event) {
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		if (ptrace(PTRACE_GETEVENTMSG, task->id, 0, &child) == 0) {
			struct task *other = task_of(child);
			if (other)
				other->image = task->image;
		}
		return 0;
	case PTRACE_EVENT_EXEC:
		task->image = ++images;
		/* The next stop is at the return of execve. For the first task, there was no stop at its
		 * beginning. */
		task->in_call = 1;
		return 0;
	case PTRACE_EVENT_EXIT:
		send_maps(task);
		return 0;
	case PTRACE_EVENT_STOP:
		return 0;
	}
	return signal;
}

/* Follows all tasks until the first one has ended, and returns its status. */
static int follow(pid_t first)
{
	int status = 0, last = 0;
	pid_t id;
	while ((id = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
		if (id <= 0)
			continue;
		struct task *task = task_of(id);
		if (!WIFSTOPPED(status)) {
			if (task)
				task->id = 0;
			if (id != first)
				continue;
			last = status;
			break;
		}
		int signal = task ? at_stop(task, status) : 0;
		int is_group_stop = status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP;
		ptrace(is_group_stop ? PTRACE_LISTEN : PTRACE_SYSCALL, id, 0, signal);
	}
	return last;
}

int main(int count, char **words)
{
	int options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
		      PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL;
	int ready[2];
	char byte;
	if (count < 3 || pipe2(ready, O_CLOEXEC))
		return 125;
	pid_t child = fork();
	if (child == 0) {
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			_exit(125);
		execv(words[1], words + 2);
		_exit(127);
	}
	if (child < 0 || ptrace(PTRACE_SEIZE, child, 0, options) || iopl(3) || write(ready[1], "", 1) != 1)
		return 125;
	close(ready[0]);
	int status = follow(child);
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	return WEXITSTATUS(status);
}
