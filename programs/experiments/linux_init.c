/* Process 1 of a Linux guest that runs one program and says what it printed.
 *
 * It mounts what programs read, loads the modules of the archive, lets the kernel's boot-time work end (30 guest
 * seconds of sleep cost nothing under the instruction clock), runs /program with the strings of /arguments, its output
 * going to files, and only then hands both outputs over, through the port of QEMU's debug console: a serial line would
 * cost interrupts. Each is one frame: a letter ('o' output, 'e' errors, 'x' exit status, four bytes), its length in
 * four bytes, lowest first, the bytes.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONSOLE_PORT = 0xe9, EXIT_PORT = 0xf4, MOST_ARGUMENTS = 64 };

static char buffer[1 << 20];
static char strings[1 << 16];

static void send(const void *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		outb(((const uint8_t *)bytes)[i], CONSOLE_PORT);
}

static void send_frame(char kind, const void *bytes, uint32_t length)
{
	send(&kind, 1);
	send(&length, sizeof length);
	send(bytes, length);
}

static size_t read_whole(const char *path, char *to, size_t room)
{
	size_t length = 0;
	int file = open(path, O_RDONLY);
	while (file >= 0 && length < room) {
		long more = read(file, to + length, room - length);
		if (more <= 0)
			break;
		length += more;
	}
	close(file);
	return length;
}

/* Loads what the archive brings, in the order of the names. */
static void load_modules(void)
{
	struct dirent **modules;
	char path[512];
	int count = scandir("/modules", &modules, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		const char *name = modules[i]->d_name, *packed = strrchr(name, '.');
		if (name[0] == '.' || !packed)
			continue;
		snprintf(path, sizeof path, "/modules/%s", name);
		int file = open(path, O_RDONLY | O_CLOEXEC);
		/* MODULE_INIT_COMPRESSED_FILE */
		int flags = strcmp(packed, ".ko") == 0 ? 0 : 4;
		if (file < 0 || syscall(SYS_finit_module, file, "", flags) != 0)
			fprintf(stderr, "%s: not loaded\n", path);
		close(file);
	}
}

static void become_program(void)
{
	char *arguments[MOST_ARGUMENTS + 1] = { 0 };
	char *environment[] = { "PATH=/usr/bin:/bin", "HOME=/", "TERM=dumb", NULL };
	size_t length = read_whole("/arguments", strings, sizeof strings - 1);
	int count = 0;
	for (size_t at = 0; at < length && count < MOST_ARGUMENTS; at += strlen(strings + at) + 1)
		arguments[count++] = strings + at;
	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(open("/output", O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
	dup2(open("/errors", O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
	execve("/program", arguments, environment);
	perror("execve");
	_exit(127);
}

int main(void)
{
	int status = 0;
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 01777);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	if (ioperm(CONSOLE_PORT, 1, 1) || ioperm(EXIT_PORT, 4, 1))
		reboot(RB_POWER_OFF);
	load_modules();
	sleep(30);
	pid_t child = fork();
	if (child == 0)
		become_program();
	while (waitpid(child, &status, 0) != child)
		;
	send_frame('o', buffer, read_whole("/output", buffer, sizeof buffer));
	send_frame('e', buffer, read_whole("/errors", buffer, sizeof buffer));
	send_frame('x', &status, sizeof status);
	outl(0, EXIT_PORT);
	reboot(RB_POWER_OFF);
	return 1;
}
