/* What does the kernel return for pointers to memory that cannot be accessed?
 *
 * Each system call of the list is made with valid arguments except for one pointer. In turn, that pointer is low and
 * unmapped, non-canonical, a kernel address, the last byte of the lower half, a hole between mappings, or
 * inaccessible memory. For memory that the kernel writes, it is also read-only memory; for structures and names, it
 * is also the last byte before a hole. Each call must fail with EFAULT. With --every, each system call number is
 * also called with such pointers in all arguments, by children that may end in any way; the machine must survive
 * this. (Use --every only on a machine without other users.)
 */
#include "check.h"
#include <sys/statfs.h>

/* The kinds of arguments. A capital letter marks an argument that is always longer than one byte, so that it does not
 * fit in the last byte before a hole.
 *   .  a value      s  a name      i  bytes read     o  bytes written     I, O  structures */
struct call {
	long number;
	const char *name;
	const char *kinds;
	long arguments[6];
};

static char good_input[4096], good_output[4096], good_name[] = "/tmp/nobody-has-this-name";
static int null_file, zero_file, scratch, folder, ends[2];

enum { FIRST_BAD = 1, HOLE = 6, NO_RIGHTS, READ_ONLY, STRADDLE, BAD_KINDS };

static char *no_rights, *read_only, *last_byte;

static long bad_pointer(int which)
{
	switch (which) {
	case 1:
		return 8;
	case 2:
		return 0x800000000000L;
	case 3:
		return (long)0xffffffff80000000UL;
	case 4:
		return (long)0xffff888000000000UL;
	case 5:
		return 0x7fffffffffffL;
	case HOLE:
		return (long)(last_byte + 1);
	case NO_RIGHTS:
		return (long)(no_rights + 1);
	case READ_ONLY:
		return (long)(read_only + 3);
	default:
		return (long)last_byte;
	}
}

static int applies(char kind, int bad)
{
	if (kind == '.')
		return 0;
	if (bad == READ_ONLY)
		return kind == 'o' || kind == 'O';
	if (bad == STRADDLE)
		return kind == 's' || kind == 'I' || kind == 'O';
	return 1;
}

static long make(long number, const long *a)
{
	return syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static void try_call(const struct call *call)
{
	int arguments = (int)strlen(call->kinds);
	for (int at = 0; at < arguments; at++) {
		for (int bad = FIRST_BAD; bad < BAD_KINDS; bad++) {
			if (!applies(call->kinds[at], bad))
				continue;
			long now[6] = { 0 };
			for (int i = 0; i < arguments; i++) {
				char kind = call->kinds[i];
				now[i] = kind == '.'		    ? call->arguments[i] :
					 call->arguments[i] != 0    ? call->arguments[i] :
					 kind == 's'		    ? (long)good_name :
					 kind == 'o' || kind == 'O' ? (long)good_output :
								      (long)good_input;
			}
			now[at] = bad_pointer(bad);
			/* An earlier call may have overwritten the last byte before the hole. */
			*last_byte = 'n';
			errno = 0;
			long result = make(call->number, now);
			checks_made++;
			if (result != -1 || errno != EFAULT) {
				checks_failed++;
				printf("%s: argument %d = 0x%lx gave %ld, errno %d (%s), not EFAULT\n", call->name, at + 1,
				       now[at], result, errno, strerror(errno));
			}
		}
	}
}

#define CALL(name, kinds, ...) { SYS_##name, #name, kinds, { __VA_ARGS__ } }

static void listed(void)
{
	memset(good_input, 0, sizeof good_input);
	const struct call calls[] = {
		CALL(read, ".o.", zero_file, 0, 64),
		CALL(write, ".i.", ends[1], 0, 64),
		CALL(pread64, ".o..", zero_file, 0, 64, 0),
		CALL(pwrite64, ".i..", scratch, 0, 64, 0),
		CALL(readv, ".I.", zero_file, 0, 2),
		CALL(writev, ".I.", scratch, 0, 2),
		CALL(open, "s.", 0, O_RDONLY),
		CALL(openat, ".s.", AT_FDCWD, 0, O_RDONLY),
		CALL(access, "s.", 0, R_OK),
		CALL(faccessat, ".s.", AT_FDCWD, 0, R_OK),
		CALL(stat, "s", 0),
		CALL(lstat, "s", 0),
		CALL(stat, "sO", (long)"/", 0),
		CALL(fstat, ".O", null_file, 0),
		CALL(newfstatat, ".s..", AT_FDCWD, 0, (long)good_output, 0),
		CALL(newfstatat, ".sO.", AT_FDCWD, (long)"/", 0, 0),
		CALL(statx, ".s...", AT_FDCWD, 0, 0, 0x7ff, (long)good_output),
		CALL(statfs, "sO", (long)"/", 0),
		CALL(fstatfs, ".O", scratch, 0),
		CALL(getdents64, ".O.", folder, 0, 4096),
		CALL(getcwd, "O.", 0, 4096),
		CALL(chdir, "s", 0),
		CALL(rename, "ss", 0, 0),
		CALL(mkdir, "s.", 0, 0755),
		CALL(rmdir, "s", 0),
		CALL(unlink, "s", 0),
		CALL(unlinkat, ".s.", AT_FDCWD, 0, 0),
		CALL(symlink, "s", 0),
		CALL(readlink, "s..", 0, (long)good_output, 4000),
		CALL(readlink, "so.", (long)"/proc/self/exe", 0, 4000),
		CALL(readlinkat, ".so.", AT_FDCWD, (long)"/proc/self/exe", 0, 4000),
		CALL(chmod, "s.", 0, 0600),
		CALL(truncate, "s.", 0, 0),
		CALL(setxattr, "s....", 0, (long)"user.x", (long)"x", 1, 0),
		CALL(setxattr, ".s...", (long)"/", 0, (long)"x", 1, 0),
		CALL(fsetxattr, "..i..", scratch, (long)"user.x", 0, 1, 0),
		CALL(fgetxattr, ".s..", scratch, 0, (long)good_output, 1),
		CALL(removexattr, "s.", 0, (long)"user.x"),
		CALL(memfd_create, "s.", 0, 0),
		CALL(sendfile, "..I.", null_file, scratch, 0, 10),
		CALL(pipe, "O", 0),
		CALL(pipe2, "O.", 0, 0),
		CALL(poll, "I..", 0, 1, 0),
		CALL(ppoll, "I..", 0, 1, 0),
		CALL(ioctl, "..O", ends[0], 0x541b /* FIONREAD */, 0),
		CALL(rt_sigaction, ".I..", SIGUSR1, 0, 0, 8),
		CALL(rt_sigaction, "..O.", SIGUSR1, 0, 0, 8),
		CALL(rt_sigprocmask, ".I..", SIG_BLOCK, 0, 0, 8),
		CALL(rt_sigprocmask, "..O.", SIG_BLOCK, 0, 0, 8),
		CALL(rt_sigpending, "O.", 0, 8),
		CALL(rt_sigsuspend, "I.", 0, 8),
		CALL(sigaltstack, "I", 0),
		CALL(sigaltstack, ".O", 0, 0),
		CALL(nanosleep, "I.", 0, 0),
		CALL(clock_nanosleep, "..I.", 1, 0, 0, 0),
		CALL(clock_gettime, ".O", 1, 0),
		CALL(clock_getres, ".O", 1, 0),
		CALL(gettimeofday, "O.", 0, 0),
		CALL(time, "O", 0),
		CALL(times, "O", 0),
		CALL(setitimer, ".I.", 0, 0, 0),
		CALL(getitimer, ".O", 0, 0),
		CALL(uname, "O", 0),
		CALL(sysinfo, "O", 0),
		CALL(getrusage, ".O", 0, 0),
		CALL(getrlimit, ".O", RLIMIT_STACK, 0),
		CALL(prlimit64, "...O", 0, RLIMIT_STACK, 0, 0),
		CALL(prlimit64, "..I.", 0, RLIMIT_STACK, 0, 0),
		CALL(getrandom, "o..", 0, 64, 0),
		CALL(mincore, "..o", (long)good_output & ~0xfffL, 4096, 0),
		CALL(arch_prctl, ".O", 0x1003 /* ARCH_GET_FS */, 0),
		CALL(prctl, ".s", 15 /* PR_SET_NAME */, 0),
		CALL(prctl, ".O", 16 /* PR_GET_NAME */, 0),
		CALL(sched_getaffinity, "..O", 0, 128, 0),
		CALL(getresuid, "OOO", 0, 0, 0),
		CALL(execve, "s..", 0, 0, 0),
		CALL(execve, ".I.", (long)"/proc/self/exe", 0, 0),
		CALL(capget, "I.", 0, (long)good_output),
	};
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
		try_call(&calls[i]);
}

/* wait4 with a bad pointer for the status fails, but it reaps the child. */
static void wait_status(void)
{
	for (int bad = FIRST_BAD; bad <= READ_ONLY; bad++) {
		pid_t child = fork_checked();
		if (child == 0)
			_exit(3);
		CHECK_FAILS(syscall(SYS_wait4, child, bad_pointer(bad), 0, 0), EFAULT);
		CHECK_FAILS(waitpid(child, NULL, 0), ECHILD);
	}
}

/* Checks that SIGSEGV kills a process if the kernel cannot write a signal frame to its stack. */
static void no_frame(void)
{
	pid_t child = fork_checked();
	if (child == 0) {
		signal(SIGUSR1, exit);
		long process = getpid();
		__asm__ volatile("mov %0, %%rsp; mov $62, %%eax; mov $10, %%esi; syscall; hlt"
				 :
				 : "r"(0xffffffff80000000UL), "D"(process)
				 : "memory", "rax", "rsi", "rcx", "r11");
	}
	CHECK(killed(wait_for(child), SIGSEGV));
}

/* Returns whether a call is skipped because it has an effect with any pointers: it ends this process, creates a
 * process, sends signals to the processes 0 to 3, or waits without a time limit. */
static int is_left_out(long number)
{
	switch (number) {
	case SYS_exit:
	case SYS_exit_group:
	case SYS_pause:
	case SYS_reboot:
	case SYS_fork:
	case SYS_vfork:
	case SYS_clone:
	case 435: /* clone3 */
	case SYS_kill:
	case SYS_tkill:
	case SYS_tgkill:
	case SYS_rt_sigqueueinfo:
	case SYS_rt_tgsigqueueinfo:
		return 1;
	default:
		return 0;
	}
}

/* Makes every call with each kind of bad pointer in all arguments. The children that make the calls may end in any way,
 * but must end soon. */
static void every_number(void)
{
	long survived = 0, ended = 0, tried = 0;
	for (int bad = FIRST_BAD; bad < BAD_KINDS; bad++) {
		for (long number = 0; number < 480; number++) {
			if (is_left_out(number))
				continue;
			pid_t child = fork_checked();
			NEED(child >= 0);
			tried++;
			if (child == 0) {
				alarm(1);
				long pointer = bad_pointer(bad);
				long arguments[6] = { pointer, pointer, pointer, pointer, pointer, pointer };
				make(number, arguments);
				for (int first = 0; first < 4; first++) {
					arguments[0] = first;
					make(number, arguments);
				}
				arguments[0] = AT_FDCWD;
				make(number, arguments);
				arguments[2] = 64;
				arguments[0] = ends[0];
				make(number, arguments);
				_exit(0);
			}
			int status = wait_for(child);
			if (exited(status, 0))
				survived++;
			else
				ended++;
		}
	}
	CHECK(survived > 1000);
	CHECK_EQ(survived + ended, tried);
}

int main(int argc, char **argv)
{
	null_file = open("/dev/null", O_RDWR);
	zero_file = open("/dev/zero", O_RDWR);
	scratch = scratch_file(PAGE);
	folder = open("/", O_RDONLY | O_DIRECTORY);
	NEED(null_file >= 0 && zero_file >= 0 && scratch >= 0 && folder >= 0);
	NEED(pipe2(ends, O_NONBLOCK) == 0);
	char *room = anonymous(6 * PAGE);
	NEED(room != NULL);
	memset(room, 'n', 6 * PAGE);
	no_rights = room;
	read_only = room + 2 * PAGE;
	last_byte = room + 5 * PAGE - 1;
	NEED(mprotect(no_rights, PAGE, PROT_NONE) == 0);
	NEED(mprotect(read_only, PAGE, PROT_READ) == 0);
	NEED(munmap(room + 5 * PAGE, PAGE) == 0);
	listed();
	wait_status();
	no_frame();
	if (argc > 1 && strcmp(argv[1], "--every") == 0)
		every_number();
	CHECK_EQ(read_only[3], 'n');
	return checked("badptr");
}
