/* Are processes created, ended and waited for as on Linux?
 *
 * Covers wait4 for one child, any child and a process group, waitid for one child and any child, exit codes
 * and signals, the usage that wait4 returns, zombies, orphans, an ignored SIGCHLD, process groups, vfork,
 * execve, and interval timers.
 */
#include "check.h"
#include <elf.h>
#include <sys/time.h>
#include <time.h>

static void rest(long milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	nanosleep(&time, NULL);
}

static pid_t sleeper(void)
{
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		for (;;)
			pause();
	}
	return child;
}

static void codes(void)
{
	static const int cases[] = { 0, 1, 2, 126, 127, 128, 255 };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		pid_t child = fork_checked();
		if (child == 0)
			_exit(cases[i]);
		CHECK_EQ(wait_for(child), cases[i] << 8);
	}
	pid_t child = fork_checked();
	if (child == 0)
		_exit(0x1234);
	CHECK_EQ(wait_for(child), 0x34 << 8);
	static const int signals[] = { SIGKILL, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGALRM };
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		child = sleeper();
		CHECK_EQ(kill(child, signals[i]), 0);
		CHECK_EQ(wait_for(child), signals[i]);
	}
	child = fork_checked();
	if (child == 0) {
		struct rlimit none = { 0, 0 };
		setrlimit(RLIMIT_CORE, &none);
		abort();
	}
	CHECK_EQ(wait_for(child) & 0x7f, SIGABRT);
	/* SIGCHLD and SIGURG are ignored by default. */
	child = sleeper();
	CHECK_EQ(kill(child, SIGCHLD), 0);
	CHECK_EQ(kill(child, SIGURG), 0);
	CHECK_EQ(waitpid(child, NULL, WNOHANG), 0);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK_EQ(wait_for(child), SIGKILL);
}

static void forms(void)
{
	CHECK_FAILS(wait(NULL), ECHILD);
	CHECK_FAILS(waitpid(getpid(), NULL, 0), ECHILD);
	CHECK_FAILS(waitpid(-1, NULL, 0x10000), EINVAL);
	pid_t first = sleeper(), second = sleeper();
	int status = 0;
	CHECK_EQ(waitpid(-1, &status, WNOHANG), 0);
	CHECK_EQ(kill(second, SIGTERM), 0);
	CHECK_EQ(waitpid(second, &status, 0), second);
	CHECK(killed(status, SIGTERM));
	CHECK_EQ(waitpid(first, &status, WNOHANG), 0);
	CHECK_EQ(kill(first, SIGKILL), 0);
	struct rusage usage;
	memset(&usage, 0xff, sizeof usage);
	CHECK_EQ(wait4(-1, &status, 0, &usage), first);
	CHECK(usage.ru_minflt >= 0 && usage.ru_minflt < 1000);
	CHECK(usage.ru_utime.tv_sec >= 0 && usage.ru_utime.tv_usec < 1000000);
	CHECK_EQ(usage.ru_nswap, 0);

	siginfo_t info;
	CHECK_FAILS(waitid(P_ALL, 0, &info, 0), EINVAL);
	CHECK_FAILS(waitid(P_ALL, 0, &info, WEXITED), ECHILD);
	pid_t child = fork_checked();
	if (child == 0)
		_exit(9);
	for (int looks = 0; looks < 2; looks++) {
		memset(&info, 0, sizeof info);
		CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
		CHECK_EQ(info.si_pid, child);
		CHECK_EQ(info.si_signo, SIGCHLD);
		CHECK_EQ(info.si_code, CLD_EXITED);
		CHECK_EQ(info.si_status, 9);
	}
	CHECK_EQ(waitid(P_ALL, 0, NULL, WEXITED), 0);
	CHECK_FAILS(waitid(P_PID, (id_t)child, &info, WEXITED), ECHILD);
	child = sleeper();
	memset(&info, 0xff, sizeof info);
	CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG), 0);
	CHECK_EQ(info.si_pid, 0);
	CHECK_EQ(info.si_signo, 0);
	kill(child, SIGKILL);
	CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED), 0);
	CHECK_EQ(info.si_code, CLD_KILLED);
	CHECK_EQ(info.si_status, SIGKILL);
}

static void groups(void)
{
	pid_t child = sleeper();
	CHECK_EQ(getpgid(child), getpgrp());
	CHECK_EQ(setpgid(child, child), 0);
	CHECK_EQ(getpgid(child), child);
	CHECK_EQ(waitpid(0, NULL, WNOHANG), -1);
	CHECK_EQ(errno, ECHILD);
	CHECK_EQ(kill(-child, SIGTERM), 0);
	CHECK_EQ(waitpid(-child, NULL, 0), child);
	CHECK_FAILS(kill(-child, 0), ESRCH);
	child = fork_checked();
	if (child == 0) {
		CHECK_EQ(setsid(), getpid());
		CHECK_EQ(getsid(0), getpid());
		CHECK_EQ(getpgrp(), getpid());
		CHECK_FAILS(setsid(), EPERM);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
}

static void orphans(void)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	pid_t child = fork_checked();
	if (child == 0) {
		pid_t me = getpid();
		if (fork_checked() == 0) {
			while (getppid() == me)
				rest(1);
			/* The process was adopted, because its own parent has exited. */
			pid_t parent = getppid();
			NEED(write(ends[1], &parent, sizeof parent) == sizeof parent);
			_exit(0);
		}
		_exit(0);
	}
	CHECK(exited(wait_for(child), 0));
	pid_t parent = 0;
	CHECK_EQ(read(ends[0], &parent, sizeof parent), sizeof parent);
	CHECK(parent > 0 && parent != child);
	close(ends[0]);
	close(ends[1]);

	/* If SIGCHLD is ignored, no zombie remains. */
	signal(SIGCHLD, SIG_IGN);
	child = fork_checked();
	if (child == 0)
		_exit(3);
	CHECK_FAILS(waitpid(child, NULL, 0), ECHILD);
	CHECK_FAILS(kill(child, 0), ESRCH);
	signal(SIGCHLD, SIG_DFL);

	/* A zombie keeps its process ID. */
	child = fork_checked();
	if (child == 0)
		_exit(0);
	siginfo_t info;
	CHECK_EQ(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	CHECK_EQ(kill(child, 0), 0);
	CHECK(exited(wait_for(child), 0));
	CHECK_FAILS(kill(child, 0), ESRCH);
}

static volatile int written_by_child;

static void with_vfork(void)
{
	written_by_child = 0;
	pid_t child = vfork();
	if (child == 0) {
		/* The memory is shared, and the parent waits for the child. */
		written_by_child = 1;
		_exit(5);
	}
	CHECK_EQ(written_by_child, 1);
	CHECK(exited(wait_for(child), 5));
	char *const words[] = { "/proc/self/exe", "exec", "7", NULL };
	child = vfork();
	if (child == 0) {
		execve("/proc/self/exe", words, (char *const[]){ "KEY=value", NULL });
		_exit(99);
	}
	CHECK(exited(wait_for(child), 7));
}

/* Checks what execve passed, in the executed program. */
static int executed(int argc, char **argv)
{
	CHECK_EQ(argc, 3);
	CHECK(getenv("KEY") != NULL && strcmp(getenv("KEY"), "value") == 0);
	CHECK(getenv("PATH") == NULL);
	struct sigaction action;
	CHECK_EQ(sigaction(SIGUSR1, NULL, &action), 0);
	CHECK(action.sa_handler == SIG_DFL);
	if (checks_failed)
		return 98;
	return atoi(argv[2]);
}

static void on_signal(int signal)
{
	(void)signal;
}

static void with_execve(void)
{
	char *const words[] = { "wait", "exec", "11", NULL };
	char *const environment[] = { "KEY=value", NULL };
	signal(SIGUSR1, on_signal);
	signal(SIGUSR2, SIG_IGN);
	char *page = anonymous(PAGE);
	*page = 1;
	pid_t child = fork_checked();
	if (child == 0) {
		execve("/proc/self/exe", words, environment);
		_exit(99);
	}
	CHECK(exited(wait_for(child), 11));
	CHECK_EQ(*page, 1);
	/* An execve that fails does not change the program. */
	CHECK_FAILS(execve("/nowhere/at/all", words, environment), ENOENT);
	CHECK_FAILS(execve("/tmp", words, environment), EACCES);
	CHECK_FAILS(execve("/dev/null", words, environment), EACCES);
	char name[] = "/tmp/text-XXXXXX";
	int file = mkstemp(name);
	NEED(file >= 0);
	CHECK_FAILS(execve(name, words, environment), EACCES);
	CHECK_EQ(fchmod(file, 0755), 0);
	NEED(write(file, "just text\n", 10) == 10);
	close(file);
	CHECK_FAILS(execve(name, words, environment), ENOEXEC);
	CHECK_EQ(unlink(name), 0);
	munmap(page, PAGE);
	signal(SIGUSR1, SIG_DFL);
	signal(SIGUSR2, SIG_DFL);
}

/* Writes an executable file. Stores its name in `name`, which must end in six X. */
static void executable(char *name, const void *contents, unsigned long size)
{
	int file = mkstemp(name);
	NEED(file >= 0);
	NEED(write(file, contents, size) == (ssize_t)size);
	NEED(fchmod(file, 0755) == 0);
	close(file);
}

/* Executes an ELF file whose interpreter is not an ELF image. */
static void with_a_bad_interpreter(void)
{
	char *const words[] = { "wait", NULL };
	char text[100], interpreter[] = "/tmp/interpreter-XXXXXX", program[] = "/tmp/program-XXXXXX";
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr parts[2];
		char path[sizeof interpreter];
	} image = { 0 };
	memset(text, 'x', sizeof text);
	executable(interpreter, text, sizeof text);
	memcpy(image.header.e_ident, ELFMAG, SELFMAG);
	image.header.e_ident[EI_CLASS] = ELFCLASS64;
	image.header.e_ident[EI_DATA] = ELFDATA2LSB;
	image.header.e_ident[EI_VERSION] = EV_CURRENT;
	image.header.e_type = ET_DYN;
	image.header.e_machine = EM_X86_64;
	image.header.e_version = EV_CURRENT;
	image.header.e_phoff = sizeof image.header;
	image.header.e_ehsize = sizeof image.header;
	image.header.e_phentsize = sizeof image.parts[0];
	image.header.e_phnum = 2;
	image.parts[0] = (Elf64_Phdr){ .p_type = PT_INTERP, .p_offset = sizeof image.header + sizeof image.parts,
				       .p_filesz = sizeof interpreter, .p_memsz = sizeof interpreter };
	image.parts[1] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = sizeof image,
				       .p_memsz = sizeof image, .p_align = 4096 };
	memcpy(image.path, interpreter, sizeof interpreter);
	executable(program, &image, sizeof image);
	CHECK_FAILS(execve(program, words, words), ELIBBAD);
	CHECK_EQ(unlink(interpreter), 0);
	CHECK_FAILS(execve(program, words, words), ENOENT);
	CHECK_EQ(unlink(program), 0);
}

static void on_alarm(int signal)
{
	(void)signal;
	written_by_child++;
}

static void timers(void)
{
	written_by_child = 0;
	signal(SIGALRM, on_alarm);
	struct itimerval once = { { 0, 0 }, { 0, 20000 } }, left;
	CHECK_EQ(setitimer(ITIMER_REAL, &once, NULL), 0);
	CHECK_EQ(getitimer(ITIMER_REAL, &left), 0);
	CHECK(left.it_value.tv_sec == 0 && left.it_value.tv_usec > 0);
	CHECK_EQ(pause(), -1);
	CHECK_EQ(written_by_child, 1);
	CHECK_EQ(alarm(100), 0);
	unsigned before = alarm(0);
	CHECK(before == 100 || before == 99);
	struct timespec start, end;
	CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &start), 0);
	rest(30);
	CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &end), 0);
	long passed = (end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec;
	CHECK(passed >= 30 * 1000000L);
	signal(SIGALRM, SIG_DFL);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "exec") == 0)
		return executed(argc, argv);
	codes();
	forms();
	groups();
	orphans();
	with_vfork();
	with_execve();
	with_a_bad_interpreter();
	timers();
	return checked("wait");
}
