/* Do process_madvise and process_mrelease affect the process to which the pidfd refers, and no other?
 */
#include "check.h"
#include <poll.h>
#include <sys/uio.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#endif

static int pidfd_of(pid_t process)
{
	return (int)syscall(SYS_pidfd_open, (long)process, 0L);
}

static long advise(int process, const struct iovec *pieces, long count, int advice, unsigned flags)
{
	return syscall(SYS_process_madvise, (long)process, pieces, count, (long)advice, (long)flags);
}

static long release(int process, unsigned flags)
{
	return syscall(SYS_process_mrelease, (long)process, (long)flags);
}

/* Creates a child that writes to all of the memory and then sleeps. */
static pid_t sleeper(char *memory, size_t length)
{
	struct turns turns;
	NEED(turns_open(&turns));
	pid_t child = fork_checked();
	if (child == 0) {
		memset(memory, 2, length);
		turn_pass(turns.to_parent);
		for (;;)
			pause();
	}
	NEED(turn_await(turns.to_parent));
	turns_close(&turns);
	return child;
}

/* Returns a process's anonymous memory in KiB, or -1 if it has hardly any. */
static long resident(pid_t process)
{
	char name[64], line[256];
	snprintf(name, sizeof name, "/proc/%d/status", process);
	FILE *status = fopen(name, "r");
	NEED(status != NULL);
	long value = -1;
	while (fgets(line, sizeof line, status))
		if (sscanf(line, "RssAnon: %ld", &value) == 1)
			break;
	fclose(status);
	return value;
}

static void advice(void)
{
	char *memory = anonymous(4 * PAGE);
	NEED(memory != NULL);
	memset(memory, 1, 4 * PAGE);
	pid_t child = sleeper(memory, 4 * PAGE);
	int other = pidfd_of(child), self = pidfd_of(getpid());
	NEED(other >= 0 && self >= 0);
	struct iovec pieces[2] = { { memory, PAGE }, { memory + 2 * PAGE, 2 * PAGE } };
	CHECK_EQ(advise(other, pieces, 2, MADV_COLD, 0), 3 * PAGE);
	/* Advice that changes contents is permitted for the caller's own memory only. */
	CHECK_FAILS(advise(other, pieces, 2, MADV_DONTNEED, 0), EINVAL);
	CHECK_EQ(memory[0], 1);
	CHECK_EQ(advise(self, pieces, 1, MADV_DONTNEED, 0), PAGE);
	CHECK_EQ(memory[0], 0);
	CHECK_EQ(memory[PAGE], 1);
	CHECK_FAILS(advise(other, pieces, 2, 999, 0), EINVAL);
	CHECK_FAILS(advise(other, pieces, 2, MADV_COLD, 1), EINVAL);
	CHECK_FAILS(advise(other, pieces, 2000, MADV_COLD, 0), EINVAL);
	CHECK_FAILS(advise(99, pieces, 2, MADV_COLD, 0), EBADF);
	CHECK_FAILS(advise(1, pieces, 2, MADV_COLD, 0), EBADF);
	/* The result includes the first range although the second one contains a hole. */
	NEED(munmap(memory + 3 * PAGE, PAGE) == 0);
	CHECK_EQ(advise(self, pieces, 2, MADV_DONTNEED, 0), PAGE);
	CHECK_FAILS(advise(self, pieces + 1, 1, MADV_DONTNEED, 0), ENOMEM);

	CHECK_EQ(kill(child, SIGKILL), 0);
	struct pollfd ended = { other, POLLIN, 0 };
	CHECK_EQ(poll(&ended, 1, -1), 1);
	CHECK_FAILS(advise(other, pieces, 1, MADV_COLD, 0), ESRCH);
	wait_for(child);
	CHECK_FAILS(advise(other, pieces, 1, MADV_COLD, 0), ESRCH);
	close(other);
	close(self);
	munmap(memory, 3 * PAGE);
}

static void by_nobody(void *process)
{
	int other = *(int *)process;
	char byte = 0;
	struct iovec piece = { (void *)((uintptr_t)&byte & -PAGE), PAGE };
	NEED(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	CHECK_FAILS(advise(other, &piece, 1, MADV_COLD, 0), EACCES);
	int self = pidfd_of(getpid());
	CHECK_EQ(advise(self, &piece, 1, MADV_COLD, 0), PAGE);
}

static void released(void)
{
	enum { PAGES = 4096 };
	char *memory = anonymous(PAGES * PAGE);
	NEED(memory != NULL);
	pid_t child = sleeper(memory, PAGES * PAGE);
	int other = pidfd_of(child);
	NEED(other >= 0);
	if (getuid() == 0)
		CHECK(exited(in_child(by_nobody, &other), 0));
	CHECK(resident(child) >= PAGES * 4);
	/* process_mrelease accepts only a process that is exiting. */
	CHECK_FAILS(release(other, 0), EINVAL);
	CHECK(resident(child) >= PAGES * 4);
	CHECK_FAILS(release(other, 1), EINVAL);
	CHECK_FAILS(release(99, 0), EBADF);
	CHECK_EQ(kill(child, SIGKILL), 0);
	/* Either the memory is released by this call, or the process has already exited. */
	errno = 0;
	long result = release(other, 0);
	CHECK(result == 0 || (result == -1 && errno == ESRCH));
	CHECK(killed(wait_for(child), SIGKILL));
	CHECK_FAILS(release(other, 0), ESRCH);
	close(other);
	munmap(memory, PAGES * PAGE);
}

int main(void)
{
	advice();
	released();
	return checked("remote");
}
