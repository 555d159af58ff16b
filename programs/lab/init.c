/* Process 1 of a Linux guest that runs one program and says what it printed and how it ended.
 *
 * It mounts what programs read, lets the kernel's boot-time work end (30 guest seconds of sleep cost nothing under the
 * instruction clock), and runs the program between two marks, its output going to files. Only then it hands the output
 * over, through the port of QEMU's debug console: a serial line would cost interrupts. Everything is in frames: a letter
 * ('o' output, 'e' errors, 'n' an error number of execve, 'x' a wait status, the last two four bytes), the length in four bytes,
 * lowest first, the bytes. Its own files are in /.memwright: "argv" (the program's path, then its arguments) and "env",
 * strings that each end in a zero byte, and "input" where the program has a standard input.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

enum { CONSOLE_PORT = 0xe9, EXIT_PORT = 0xf4, MOST_STRINGS = 4096, THE_RUN = 32767 };

static char buffer[1 << 16];

static void send(const void *bytes, size_t length)
{
	__asm__ volatile("rep outsb" : "+S"(bytes), "+c"(length) : "d"(CONSOLE_PORT) : "memory");
}

static void send_frame(char kind, const void *bytes, uint32_t length)
{
	send(&kind, 1);
	send(&length, sizeof length);
	send(bytes, length);
}

static void send_file(char kind, const char *path)
{
	int file = open(path, O_RDONLY);
	long length;
	while (file >= 0 && (length = read(file, buffer, sizeof buffer)) > 0)
		send_frame(kind, buffer, length);
	if (file >= 0)
		close(file);
}

/* The strings of a file, after which a null pointer stands. */
static char **read_strings(const char *path)
{
	static char none[1];
	char **strings = calloc(MOST_STRINGS + 1, sizeof *strings);
	struct stat about;
	int file = open(path, O_RDONLY);
	if (!strings || file < 0 || fstat(file, &about) != 0)
		return strings;
	char *text = calloc(about.st_size + 1, 1);
	long length = text ? read(file, text, about.st_size) : 0;
	close(file);
	char *end = text ? text + length : none, *at = text;
	for (int i = 0; i < MOST_STRINGS && at < end; i++, at += strlen(at) + 1)
		strings[i] = at;
	return strings;
}

static void redirect(int to, const char *path, int flags)
{
	int file = open(path, flags, 0600);
	if (file < 0 && to == 0)
		file = open("/dev/null", O_RDONLY);
	dup2(file, to);
	if (file > 2)
		close(file);
}

static void become_program(char **arguments, char **environment, int refusal)
{
	redirect(0, "/.memwright/input", O_RDONLY);
	redirect(1, "/.memwright/output", O_WRONLY | O_CREAT | O_TRUNC);
	redirect(2, "/.memwright/errors", O_WRONLY | O_CREAT | O_TRUNC);
	execve(arguments[0], arguments + 1, environment);
	uint32_t number = errno;
	if (write(refusal, &number, sizeof number) != sizeof number)
		_exit(126);
	_exit(127);
}

int main(void)
{
	int status = 0, refusal[2];
	uint32_t number;
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 01777);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	if (iopl(3) || pipe2(refusal, O_CLOEXEC))
		reboot(RB_POWER_OFF);
	char **arguments = read_strings("/.memwright/argv"), **environment = read_strings("/.memwright/env");
	sleep(30);
	MARK_BEGIN(THE_RUN);
	pid_t child = fork();
	if (child == 0) {
		iopl(0);
		become_program(arguments, environment, refusal[1]);
	}
	while (waitpid(child, &status, 0) != child)
		;
	MARK_END(THE_RUN);
	close(refusal[1]);
	send_file('o', "/.memwright/output");
	send_file('e', "/.memwright/errors");
	if (read(refusal[0], &number, sizeof number) == sizeof number)
		send_frame('n', &number, sizeof number);
	send_frame('x', &status, sizeof status);
	outl(0, EXIT_PORT);
	reboot(RB_POWER_OFF);
	return 1;
}
