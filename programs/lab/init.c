/* Process 1 of a Linux guest: runs one program, and reports what it printed and how it ended.
 *
 * It mounts what programs read, loads modules, lets the kernel's boot-time work finish (30 guest seconds of sleep cost
 * nothing under the instruction clock), and writes to the port of QEMU's panic device: there QEMU can stop the machine, and
 * its state can be saved. Nothing before that depends on the program.
 *
 * Then it unpacks the program and its files (unpack.h) and runs the program between two marks, with its output redirected to
 * files. Only after that it writes the output to the port of QEMU's debug console: a serial line would cause interrupts.
 * Everything is in frames: a letter ('r' the machine may be saved next, 'o' output, 'e' errors, 'w' what could not be set up,
 * 'm' a path that the program did not find (names.h), 'f' the archive cannot be unpacked, 'b' the notes of the kernel's
 * image, 'n' an error number of execve, 'x' a wait status, the last two four bytes), the length in four bytes, little-endian, and the bytes. Its own files are in /.memwright:
 * "modules", which is part of the boot image, and from the archive "argv" (the program's path, then its arguments) and "env",
 * strings that each end in a zero byte, "folder", the working directory, "input", the program's standard input, "swap" with
 * the kind of the swap device and its size in bytes, and "root" if the program finds the files of a root. As any other process,
 * with the argument "functions", it prints the names and addresses of the kernel's functions.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

enum { CONSOLE_PORT = 0xe9, EXIT_PORT = 0xf4, PANIC_PORT = 0x505, MOST_STRINGS = 4096, THE_RUN = 32767, PAGE = 4096 };

#include "unpack.h"

/* Addresses without memory: the kernel's faults on them appear in QEMU's log, where marks are not visible. */
#define RUN_BEGINS ((const char *)0x4d5700000000)
#define RUN_ENDS ((const char *)0x4d5700001000)

static char buffer[1 << 16];

static void emit(const void *bytes, size_t length)
{
	__asm__ volatile("rep outsb" : "+S"(bytes), "+c"(length) : "d"(CONSOLE_PORT) : "memory");
}

static void send_frame(char kind, const void *bytes, uint32_t length)
{
	emit(&kind, 1);
	emit(&length, sizeof length);
	emit(bytes, length);
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

/* Returns the strings of a file, terminated by a null pointer. */
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

/* Stops the machine if QEMU is to save it, and reports what its clock read just before: while CPUs stop, QEMU may advance
 * the clock to the next timer.
 */
static void stand_still(void)
{
	static struct __attribute__((packed)) {
		char kind;
		uint32_t length;
		uint64_t time;
	} frame = { 'r', sizeof frame.time, 0 };
	const void *bytes = &frame;
	long length = sizeof frame;

	/* Without an interrupt in between, so that the distance from RDTSC to the stop is always the same. */
	__asm__ volatile("cli\n\t"
			 "rdtsc\n\t"
			 "mov %%eax, %c[low](%%rsi)\n\t"
			 "mov %%edx, %c[high](%%rsi)\n\t"
			 "mov %[console], %%edx\n\t"
			 "rep outsb\n\t"
			 "mov %[panic], %%edx\n\t"
			 "mov $1, %%eax\n\t"
			 "out %%al, %%dx\n\t"
			 "sti"
			 : "+S"(bytes), "+c"(length)
			 : [low] "i"(5), [high] "i"(9), [console] "i"(CONSOLE_PORT), [panic] "i"(PANIC_PORT)
			 : "rax", "rdx", "memory");
}

static void warn(const char *what)
{
	send_frame('w', what, strlen(what));
}

/* Loads the modules that came along, in the order of their names. Returns whether all were loaded. */
static int load_modules(void)
{
	struct dirent **modules;
	char path[512];
	int loaded = 1;
	int count = scandir("/.memwright/modules", &modules, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		const char *name = modules[i]->d_name, *packed = strrchr(name, '.');
		if (name[0] == '.' || !packed)
			continue;
		snprintf(path, sizeof path, "/.memwright/modules/%s", name);
		int file = open(path, O_RDONLY | O_CLOEXEC);
		/* MODULE_INIT_COMPRESSED_FILE */
		int flags = strcmp(packed, ".ko") == 0 ? 0 : 4;
		if (file < 0 || syscall(SYS_finit_module, file, "", flags) != 0)
			loaded = 0;
		close(file);
	}
	return loaded;
}

/* Brings the loopback interface up, as on Memwright. Returns whether it is up, or the kernel has no networks. */
static int raise_loopback(void)
{
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int raised = any < 0 || ioctl(any, SIOCSIFFLAGS, &request) == 0;
	if (any >= 0)
		close(any);
	return raised;
}

/* Provides what a program finds on its own machine: the loopback interface, POSIX shared memory, and the names of its own
 * descriptors.
 */
static void serve_root(void)
{
	static const char *const links[][2] = { { "/proc/self/fd", "/dev/fd" },
						{ "/proc/self/fd/0", "/dev/stdin" },
						{ "/proc/self/fd/1", "/dev/stdout" },
						{ "/proc/self/fd/2", "/dev/stderr" } };
	for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
		if (symlink(links[i][0], links[i][1]) && errno != EEXIST)
			warn("a name of a descriptor in /dev is missing\n");
	if (!raise_loopback())
		warn("the loopback interface is down\n");
	if (mkdir("/dev/shm", 01777) || mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL))
		warn("/dev/shm is missing\n");
}

static int write_to(const char *path, const void *bytes, size_t length)
{
	int file = open(path, O_WRONLY | O_CLOEXEC);
	int done = file >= 0 && write(file, bytes, length) == (long)length;
	if (file >= 0)
		close(file);
	return done;
}

/* Prepares a compressed device of this many bytes. Returns whether it exists. */
static int make_zram(const char *bytes)
{
	/* The algorithm that Memwright uses, if the kernel has it. */
	if (!write_to("/sys/block/zram0/comp_algorithm", "lz4", 3))
		warn("swap is not compressed by LZ4\n");
	return write_to("/sys/block/zram0/disksize", bytes, strlen(bytes));
}

/* Writes the header of swap (union swap_header of linux/swap.h) to a device of this many bytes, and enables it. */
static int enable_swap(const char *device, const char *bytes)
{
	static uint32_t header[PAGE / sizeof(uint32_t)];
	header[256] = 1;
	header[257] = strtoul(bytes, NULL, 10) / PAGE - 1;
	memcpy((char *)header + PAGE - 10, "SWAPSPACE2", 10);
	return write_to(device, header, PAGE) && swapon(device, 0) == 0;
}

/* Enables the swap device of this kind. */
static void make_swap(const char *kind, const char *bytes)
{
	if (strcmp(kind, "disk") == 0) {
		if (!enable_swap("/dev/vda", bytes))
			warn("no swap: the kernel has no driver of virtio-blk\n");
	} else if (!make_zram(bytes) || !enable_swap("/dev/zram0", bytes)) {
		warn("no swap: the kernel has no zram\n");
	}
}

#include "names.h"

static void redirect(int to, const char *path, int flags)
{
	int file = open(path, flags, 0600);
	dup2(file, to);
	if (file > 2)
		close(file);
}

/* Writes to the log that the run begins, executes the mark, and executes the program, without another instruction of this
 * program between the mark and the exec. Returns an error number.
 */
static int execute(const char *path, char **arguments, char **environment)
{
	long result = SYS_access;
	const char *first = RUN_BEGINS;
	char **second = F_OK;
	register const char *program __asm__("r8") = path;
	register char **strings __asm__("r9") = arguments;

	__asm__ volatile("syscall\n\t"
			 "mov %[program], %%rdi\n\t"
			 "mov %[strings], %%rsi\n\t"
			 "mov %[execve], %%eax\n\t"
			 ".byte 0x0f, 0x1f, 0x80\n\t.long %c[mark]\n\t"
			 "syscall"
			 : "+a"(result), "+D"(first), "+S"(second)
			 : "d"(environment), [program] "r"(program), [strings] "r"(strings), [execve] "i"(SYS_execve),
			   [mark] "i"(MARK_MAGIC | THE_RUN << 1)
			 : "rcx", "r11", "memory");
	return -result;
}

/* Passes the listener of the names to the first process. Both ends of the socket are closed at exec. */
static void let_names_be_watched(int socket)
{
	int listener = install_listener();
	if (listener >= 0) {
		pass_file(socket, listener);
		close(listener);
	}
	close(socket);
}

static void become_program(char **arguments, char **environment, const char *folder, int refusal)
{
	redirect(0, "/.memwright/input", O_RDONLY);
	redirect(1, "/.memwright/output", O_WRONLY | O_CREAT | O_TRUNC);
	redirect(2, "/.memwright/errors", O_WRONLY | O_CREAT | O_TRUNC);
	/* Lets the parent reach its wait. */
	usleep(10000);
	uint32_t number = chdir(folder) == 0 ? execute(arguments[0], arguments + 1, environment) : errno;
	if (write(refusal, &number, sizeof number) != sizeof number)
		_exit(126);
	_exit(127);
}

/* Prints the lines of /proc/kallsyms for code: "ffffffff81000000 T name". */
static int print_functions(void)
{
	static char line[1024];
	FILE *names = fopen("/proc/kallsyms", "r");
	if (!names)
		return 1;
	while (fgets(line, sizeof line, names)) {
		const char *kind = strchr(line, ' ');
		if (kind && kind[1] && strchr("tTwW", kind[1]))
			fputs(line, stdout);
	}
	return fclose(names) || fclose(stdout);
}

int main(int count, char **words)
{
	int status = 0, refusal[2], names[2] = { -1, -1 };
	uint32_t number;
	if (getpid() != 1)
		return count == 2 && strcmp(words[1], "functions") == 0 ? print_functions() : 1;
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 01777);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	if (iopl(3) || pipe2(refusal, O_CLOEXEC))
		reboot(RB_POWER_OFF);
	int loaded = load_modules();
	sleep(30);
	stand_still();
	if (!loaded)
		warn("a module was not loaded\n");
	if (!unpack()) {
		send_frame('f', NULL, 0);
		outl(0, EXIT_PORT);
	}
	char **arguments = read_strings("/.memwright/argv"), **environment = read_strings("/.memwright/env");
	char **folder = read_strings("/.memwright/folder"), **swap = read_strings("/.memwright/swap");
	if (swap && swap[0] && swap[1])
		make_swap(swap[0], swap[1]);
	if (access("/.memwright/root", F_OK) == 0)
		serve_root();
	if (source.is_watched)
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, names);
	/* Lets the kernel finish work that it deferred while files were created. */
	sleep(2);
	pid_t child = fork();
	if (child == 0) {
		iopl(0);
		if (source.is_watched) {
			close(names[0]);
			let_names_be_watched(names[1]);
		}
		become_program(arguments, environment, folder && folder[0] ? folder[0] : "/", refusal[1]);
	}
	if (source.is_watched) {
		close(names[1]);
		int listener = pass_file(names[0], -1);
		if (listener >= 0)
			watch_names(listener, child);
		else
			warn("names that the program does not find are not reported: the kernel has no seccomp filters\n");
	}
	/* Makes the page exclusive to this process before the run begins: then the kernel need not copy it in the wait. */
	*(volatile int *)&status = 0;
	while (waitpid(child, &status, 0) != child)
		;
	MARK_END(THE_RUN);
	access(RUN_ENDS, F_OK);
	close(refusal[1]);
	send_file('o', "/.memwright/output");
	send_file('e', "/.memwright/errors");
	send_file('b', "/sys/kernel/notes");
	if (read(refusal[0], &number, sizeof number) == sizeof number)
		send_frame('n', &number, sizeof number);
	send_frame('x', &status, sizeof status);
	outl(0, EXIT_PORT);
	reboot(RB_POWER_OFF);
	return 1;
}
