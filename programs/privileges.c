/* Does prctl store what a process sets about its privileges and its descendants, and does each setting have its effect?
 */
#include "check.h"
#include <sys/prctl.h>

#ifndef PR_CAP_AMBIENT
#define PR_CAP_AMBIENT 47
#define PR_CAP_AMBIENT_IS_SET 1
#define PR_CAP_AMBIENT_RAISE 2
#define PR_CAP_AMBIENT_LOWER 3
#define PR_CAP_AMBIENT_CLEAR_ALL 4
#endif
#ifndef PR_GET_TID_ADDRESS
#define PR_GET_TID_ADDRESS 40
#endif
#define VERSION 0x20080522
#define KILL 5
#define NET_RAW 13

/* From linux/capability.h, which musl's headers lack. */
struct header {
	uint32_t version;
	int process;
};

struct data {
	uint32_t effective, permitted, inheritable;
};

static unsigned long long row(const char *name)
{
	char line[256];
	unsigned long long value = -1;
	FILE *file = fopen("/proc/self/status", "r");
	NEED(file != NULL);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtoull(strchr(line, ':') + 1, NULL, 16);
	fclose(file);
	return value;
}

static int ambient(int operation, int number)
{
	return prctl(PR_CAP_AMBIENT, operation, number, 0, 0);
}

static void no_new(void *argument)
{
	(void)argument;
	CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
	CHECK_FAILS(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
	CHECK_FAILS(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0), EINVAL);
	CHECK_FAILS(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0), EINVAL);
	CHECK_FAILS(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0), EINVAL);
	CHECK_EQ(row("NoNewPrivs"), 0);
	CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	CHECK_EQ(row("NoNewPrivs"), 1);
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
}

static void keeps(void *argument)
{
	(void)argument;
	CHECK_EQ(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0), 0);
	CHECK_FAILS(prctl(PR_SET_KEEPCAPS, 2, 0, 0, 0), EINVAL);
	CHECK_EQ(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0), 1);
	CHECK_EQ(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), 1 << 4);
	unsigned long long before = row("CapPrm");
	NEED(setuid(1000) == 0);
	CHECK_EQ(row("CapPrm"), before);
	CHECK_EQ(row("CapEff"), 0);
	CHECK_FAILS(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0), EPERM);
	CHECK_FAILS(prctl(PR_CAPBSET_DROP, KILL, 0, 0, 0), EPERM);
}

static void lost(void *argument)
{
	(void)argument;
	NEED(setuid(1000) == 0);
	CHECK_EQ(row("CapPrm"), 0);
}

static void bounded(void *argument)
{
	(void)argument;
	CHECK_EQ(prctl(PR_CAPBSET_READ, KILL, 0, 0, 0), 1);
	CHECK_FAILS(prctl(PR_CAPBSET_READ, 63, 0, 0, 0), EINVAL);
	CHECK_FAILS(prctl(PR_CAPBSET_DROP, 63, 0, 0, 0), EINVAL);
	CHECK_EQ(prctl(PR_CAPBSET_DROP, KILL, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_CAPBSET_READ, KILL, 0, 0, 0), 0);
	CHECK_EQ(row("CapBnd") >> KILL & 1, 0);
	CHECK_EQ(row("CapEff") >> KILL & 1, 1);
	execl("/proc/self/exe", "privileges", "bounded", NULL);
	_exit(97);
}

static void raised(void *argument)
{
	(void)argument;
	struct header header = { VERSION, 0 };
	struct data data[2];
	CHECK_FAILS(ambient(PR_CAP_AMBIENT_RAISE, KILL), EPERM);
	CHECK_FAILS(ambient(PR_CAP_AMBIENT_RAISE, 63), EINVAL);
	CHECK_FAILS(ambient(9, KILL), EINVAL);
	NEED(syscall(SYS_capget, &header, data) == 0);
	data[0].inheritable |= 1 << KILL | 1 << NET_RAW;
	NEED(syscall(SYS_capset, &header, data) == 0);
	CHECK_EQ(ambient(PR_CAP_AMBIENT_RAISE, KILL), 0);
	CHECK_EQ(ambient(PR_CAP_AMBIENT_RAISE, NET_RAW), 0);
	CHECK_EQ(ambient(PR_CAP_AMBIENT_IS_SET, KILL), 1);
	CHECK_EQ(ambient(PR_CAP_AMBIENT_LOWER, NET_RAW), 0);
	CHECK_EQ(ambient(PR_CAP_AMBIENT_IS_SET, NET_RAW), 0);
	CHECK_EQ(row("CapAmb"), 1 << KILL);
	CHECK_EQ(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
	NEED(setuid(1000) == 0);
	CHECK_EQ(row("CapAmb"), 0);
	NEED(syscall(SYS_capget, &header, data) == 0);
	data[0].effective = 1 << KILL;
	NEED(syscall(SYS_capset, &header, data) == 0);
	CHECK_EQ(ambient(PR_CAP_AMBIENT_RAISE, KILL), 0);
	execl("/proc/self/exe", "privileges", "raised", NULL);
	_exit(97);
}

static void secured(void *argument)
{
	(void)argument;
	CHECK_FAILS(prctl(PR_SET_SECUREBITS, 1 << 20, 0, 0, 0), EPERM);
	CHECK_EQ(prctl(PR_SET_SECUREBITS, 1 << 4 | 1 << 5, 0, 0, 0), 0);
	CHECK_FAILS(prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0), EPERM);
	CHECK_FAILS(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0), EPERM);
	CHECK_EQ(prctl(PR_SET_SECUREBITS, 1 << 4 | 1 << 5 | 1, 0, 0, 0), 0);
	execl("/proc/self/exe", "privileges", "secured", NULL);
	_exit(97);
}

/* Runs in the executed program and checks what execve kept. */
static int executed(const char *what)
{
	if (strcmp(what, "bounded") == 0) {
		CHECK_EQ(row("CapEff") >> KILL & 1, 0);
		CHECK_EQ(row("CapPrm") >> KILL & 1, 0);
	} else if (strcmp(what, "raised") == 0) {
		CHECK_EQ(row("CapEff"), 1 << KILL);
		CHECK_EQ(row("CapPrm"), 1 << KILL);
		CHECK_EQ(row("CapAmb"), 1 << KILL);
	} else {
		CHECK_EQ(row("CapEff"), 0);
		CHECK_EQ(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), 1 << 5 | 1);
	}
	return checks_failed ? 1 : 0;
}

/* A child exits before its own child, which then becomes a child of the process that adopts orphans
 * (PR_SET_CHILD_SUBREAPER). */
static void adopts(void *argument)
{
	(void)argument;
	int adopting = -1, ends[2];
	pid_t orphan;
	CHECK_EQ(prctl(PR_GET_CHILD_SUBREAPER, &adopting, 0, 0, 0), 0);
	CHECK_EQ(adopting, 0);
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_CHILD_SUBREAPER, &adopting, 0, 0, 0), 0);
	CHECK_EQ(adopting, 1);
	CHECK_FAILS(prctl(PR_GET_CHILD_SUBREAPER, NULL, 0, 0, 0), EFAULT);
	NEED(pipe(ends) == 0);
	pid_t self = getpid(), child = fork_checked();
	if (child == 0) {
		CHECK_EQ(prctl(PR_GET_CHILD_SUBREAPER, &adopting, 0, 0, 0), 0);
		CHECK_EQ(adopting, 0);
		pid_t parent = getpid();
		orphan = fork_checked();
		if (orphan == 0) {
			while (getppid() == parent)
				usleep(1000);
			CHECK_EQ(getppid(), self);
			end_child();
		}
		pid_t early = fork_checked();
		if (early == 0)
			_exit(4);
		NEED(write(ends[1], &orphan, sizeof orphan) == sizeof orphan);
		NEED(write(ends[1], &early, sizeof early) == sizeof early);
		usleep(20000);
		end_child();
	}
	pid_t early;
	NEED(read(ends[0], &orphan, sizeof orphan) == sizeof orphan);
	NEED(read(ends[0], &early, sizeof early) == sizeof early);
	CHECK(exited(wait_for(child), 0));
	CHECK(exited(wait_for(orphan), 0));
	CHECK(exited(wait_for(early), 4));
	CHECK_FAILS(waitpid(-1, NULL, 0), ECHILD);
	CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

static void others(void *argument)
{
	(void)argument;
	int *word = NULL, own;
	NEED(syscall(SYS_set_tid_address, &own) == getpid());
	CHECK_EQ(syscall(SYS_prctl, PR_GET_TID_ADDRESS, &word, 0, 0, 0), 0);
	CHECK(word == &own);
	syscall(SYS_set_tid_address, NULL);
	int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
	CHECK(slack > 0);
	CHECK_EQ(prctl(PR_SET_TIMERSLACK, 70000, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 70000);
	CHECK_EQ(prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0), 0);
	CHECK_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), slack);
	CHECK_FAILS(prctl(12345, 0, 0, 0, 0), EINVAL);
	CHECK_FAILS(prctl(PR_SET_DUMPABLE, 7, 0, 0, 0), EINVAL);
}

int main(int count, char **arguments)
{
	if (count > 1)
		return executed(arguments[1]);
	CHECK(exited(in_child(no_new, NULL), 0));
	CHECK(exited(in_child(adopts, NULL), 0));
	CHECK(exited(in_child(others, NULL), 0));
	if (geteuid() == 0) {
		CHECK(exited(in_child(lost, NULL), 0));
		CHECK(exited(in_child(keeps, NULL), 0));
		CHECK(exited(in_child(bounded, NULL), 0));
		CHECK(exited(in_child(raised, NULL), 0));
		CHECK(exited(in_child(secured, NULL), 0));
	}
	return checked("privileges");
}
