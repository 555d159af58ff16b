/* Do invalid calls fail with Linux's errors, and do calls succeed that only seem to be invalid?
 */
#include "check.h"
#include <linux/futex.h>
#include <pthread.h>

#ifndef F_SETPIPE_SZ
#define F_SETPIPE_SZ 1031
#endif
#define RW (PROT_READ | PROT_WRITE)

/* mmap checks the descriptor first, then that the length is not 0, then that the file may be mapped. */
static void no_length(void)
{
	char path[] = "/tmp/refused-XXXXXX";
	int both = mkstemp(path);
	int writes = open(path, O_WRONLY), reads = open(path, O_RDONLY);
	NEED(both >= 0 && writes >= 0 && reads >= 0);
	CHECK_FAILS((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE, writes, 0), EINVAL);
	CHECK_FAILS((long)mmap(NULL, 0, RW, MAP_SHARED, reads, 0), EINVAL);
	CHECK_FAILS((long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writes, 0), EACCES);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_SHARED, reads, 0), EACCES);
	CHECK_FAILS((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE, -1, 0), EBADF);
	CHECK_FAILS((long)mmap(NULL, 0, PROT_READ, 0, -1, 0), EBADF);
	CHECK_FAILS((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), EINVAL);
	CHECK_FAILS((long)mmap(NULL, 0, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0), EINVAL);
	close(both), close(writes), close(reads), unlink(path);
}

/* A device that was opened for reading cannot be written, even though it contains only zeroes. */
static void zero_device(void)
{
	int reads = open("/dev/zero", O_RDONLY), both = open("/dev/zero", O_RDWR);
	NEED(reads >= 0 && both >= 0);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_SHARED, reads, 0), EACCES);
	char *zeroes = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, reads, 0);
	NEED(zeroes != MAP_FAILED);
	CHECK_FAILS(mprotect(zeroes, PAGE, RW), EACCES);
	CHECK_EQ(zeroes[0], 0);
	CHECK_EQ(munmap(zeroes, PAGE), 0);
	zeroes = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both, 0);
	NEED(zeroes != MAP_FAILED);
	CHECK_EQ(mprotect(zeroes, PAGE, RW), 0);
	zeroes[0] = 1;
	CHECK_EQ(munmap(zeroes, PAGE), 0);
	zeroes = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, reads, 0);
	NEED(zeroes != MAP_FAILED);
	CHECK_EQ(mprotect(zeroes, PAGE, RW), 0);
	zeroes[0] = 1;
	CHECK_EQ(munmap(zeroes, PAGE), 0);
	close(reads), close(both);
}

static void futex_words(void)
{
	int file = scratch_file(2 * PAGE);
	NEED(file >= 0);
	char *pages = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, file, 0);
	NEED(pages != MAP_FAILED);
	CHECK_EQ(syscall(SYS_futex, pages + PAGE, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(ftruncate(file, PAGE), 0);
	CHECK_FAILS(syscall(SYS_futex, pages + PAGE, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	CHECK_FAILS(syscall(SYS_futex, pages + PAGE, FUTEX_WAIT, 0, NULL, NULL, 0), EFAULT);
	CHECK_FAILS(syscall(SYS_futex, pages, FUTEX_REQUEUE, 1, 1UL, pages + PAGE, 0), EFAULT);
	CHECK_EQ(syscall(SYS_futex, pages + PAGE - 4, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
	/* A private futex is identified by its address alone, so the address need not be mapped. */
	CHECK_EQ(syscall(SYS_futex, pages + PAGE, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(munmap(pages, 2 * PAGE), 0);
	close(file);
}

static void priorities(void)
{
	for (int which = PRIO_PROCESS; which <= PRIO_USER; which++) {
		CHECK(syscall(SYS_getpriority, which, 0) > 0);
		CHECK_FAILS(syscall(SYS_getpriority, which, -1), ESRCH);
		CHECK_FAILS(syscall(SYS_setpriority, which, -1, 0), ESRCH);
		CHECK_FAILS(syscall(SYS_getpriority, which, 0x3fffffff), ESRCH);
	}
	CHECK(syscall(SYS_getpriority, PRIO_PROCESS, getpid()) > 0);
	CHECK(syscall(SYS_getpriority, PRIO_PGRP, getpgrp()) > 0);
	CHECK(syscall(SYS_getpriority, PRIO_USER, getuid()) > 0);
	CHECK_FAILS(syscall(SYS_getpriority, 3, 0), EINVAL);
	CHECK_FAILS(syscall(SYS_getpriority, -1, -1), EINVAL);
}

static void pipe_sizes(void)
{
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, 0), 4096);
	CHECK_EQ(fcntl(ends[0], F_SETPIPE_SZ, 4097), 8192);
	CHECK_FAILS(fcntl(ends[0], F_SETPIPE_SZ, 0x80000001U), EINVAL);
	CHECK_FAILS(fcntl(ends[0], F_SETPIPE_SZ, -1), EINVAL);
	CHECK_EQ(fcntl(ends[0], F_GETPIPE_SZ), 8192);
	close(ends[0]), close(ends[1]);
}

/* From include/uapi/linux/capability.h, which older kernel headers lack. */
enum { CAPABILITY_VERSION_3 = 0x20080522, CAP_KILL = 5, CAP_SETPCAP = 8 };

struct sets {
	uint32_t effective, permitted, inheritable;
};

static int change_sets(struct sets sets[2])
{
	uint32_t header[2] = { CAPABILITY_VERSION_3, 0 };
	return (int)syscall(SYS_capset, header, sets);
}

static void inheritable(void *unused)
{
	(void)unused;
	uint32_t header[2] = { CAPABILITY_VERSION_3, 0 };
	struct sets sets[2];
	NEED(syscall(SYS_capget, header, sets) == 0);
	if (!(sets[0].effective & 1 << CAP_SETPCAP) || !(sets[0].permitted & 1 << CAP_KILL)) {
		printf("refused_calls: capset skipped, for root alone\n");
		return;
	}
	/* With CAP_SETPCAP, any capability of the bounding set can be added to the inheritable set. Without
	 * CAP_SETPCAP, the capability must also be permitted. */
	sets[0].permitted &= ~(1U << CAP_KILL);
	sets[0].effective &= ~(1U << CAP_KILL);
	sets[0].inheritable |= 1 << CAP_KILL;
	CHECK_EQ(change_sets(sets), 0);
	sets[0].effective &= ~(1U << CAP_SETPCAP);
	CHECK_EQ(change_sets(sets), 0);
	sets[0].inheritable = 1;
	CHECK_EQ(change_sets(sets), 0);
	sets[0].inheritable |= 1 << CAP_KILL;
	CHECK_FAILS(change_sets(sets), EPERM);
	sets[0].inheritable = 0;
	CHECK_EQ(change_sets(sets), 0);
}

static volatile sig_atomic_t queued;

static void count(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	queued += info->si_value.sival_int;
}

static int queue(pid_t to, int signal, int code)
{
	siginfo_t info;
	memset(&info, 0, sizeof info);
	info.si_code = code;
	info.si_value.sival_int = 1;
	return (int)syscall(SYS_rt_sigqueueinfo, to, signal, &info);
}

static void *to_threads(void *parent)
{
	pid_t main = *(pid_t *)parent, own = (pid_t)syscall(SYS_gettid);
	/* The ID of a thread refers to its process. */
	CHECK_EQ(queue(own, SIGUSR1, SI_QUEUE), 0);
	CHECK_EQ(queue(main, SIGUSR1, SI_QUEUE), 0);
	CHECK_EQ(queue(own, 0, SI_QUEUE), 0);
	/* A thread may send a signal with a kernel code only to itself. */
	CHECK_EQ(queue(own, SIGUSR1, SI_TKILL), 0);
	CHECK_EQ(queue(own, SIGUSR1, SI_USER), 0);
	CHECK_FAILS(queue(main, SIGUSR1, SI_USER), EPERM);
	CHECK_FAILS(queue(main, SIGUSR1, SI_TKILL), EPERM);
	CHECK_FAILS(queue(0x3fffffff, SIGUSR1, SI_USER), EPERM);
	CHECK_FAILS(queue(0x3fffffff, SIGUSR1, SI_QUEUE), ESRCH);
	CHECK_FAILS(queue(main, 65, SI_QUEUE), EINVAL);
	return NULL;
}

static void queues(void)
{
	struct sigaction action = { .sa_sigaction = count, .sa_flags = SA_SIGINFO | SA_NODEFER };
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	pid_t own = getpid();
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, to_threads, &own) == 0);
	pthread_join(thread, NULL);
	CHECK(queued >= 1);
	CHECK_EQ(queue(own, SIGUSR1, SI_USER), 0);
}

/* Makes rarely used calls that must succeed. */
static void granted(void)
{
	int file = memfd_create("granted", 0), zero = open("/dev/zero", O_RDONLY);
	NEED(file >= 0 && zero >= 0);
	for (int i = 0; i < 4; i++)
		NEED(pwrite(file, (char[]){ (char)('0' + i) }, 1, i * (off_t)PAGE) == 1);
	char *pages = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, file, 0);
	NEED(pages != MAP_FAILED);
	CHECK_EQ(syscall(SYS_remap_file_pages, pages, 2 * PAGE, 0, 2, 0), 0);
	CHECK(pages[0] == '2' && pages[PAGE] == '3' && pages[2 * PAGE] == '2');
	pages[0] = 'x';
	char byte = 0;
	CHECK_EQ(pread(file, &byte, 1, 2 * PAGE), 1);
	CHECK_EQ(byte, 'x');
	CHECK_EQ(munmap(pages, 4 * PAGE), 0);
	/* PROT_GROWSDOWN extends the change down to the start of the stack. */
	char *stack = mmap(NULL, 4 * PAGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN, -1, 0);
	NEED(stack != MAP_FAILED);
	CHECK_EQ(mprotect(stack + 2 * PAGE, PAGE, PROT_READ | PROT_GROWSDOWN), 0);
	CHECK_FAILS(read(zero, stack, 1), EFAULT);
	CHECK_FAILS(read(zero, stack + 2 * PAGE, 1), EFAULT);
	CHECK_EQ(read(zero, stack + 3 * PAGE, 1), 1);
	CHECK_EQ(munmap(stack, 4 * PAGE), 0);
	/* Reports the cached pages of a file with a hole. */
	uint64_t range[2] = { 0, 0 }, counts[5];
	NEED(ftruncate(file, 16 * PAGE) == 0 && pwrite(file, "y", 1, 9 * PAGE) == 1);
	long asked = syscall(451, file, range, counts, 0);
	if (asked != 0 && errno == ENOSYS)
		return; /* Before Linux 6.5. */
	CHECK_EQ(asked, 0);
	CHECK_EQ(counts[0], 5);
	CHECK_EQ(counts[3], 0);
	range[0] = 3 * PAGE + 1, range[1] = 6 * PAGE;
	CHECK_EQ(syscall(451, file, range, counts, 0), 0);
	CHECK_EQ(counts[0], 2);
	close(file), close(zero);
}

/* Checks the names "." and "..", which always exist and can be neither created nor removed. */
static void dots(void)
{
	char folder[] = "/tmp/dots-XXXXXX";
	NEED(mkdtemp(folder) != NULL);
	int here = open(folder, O_RDONLY | O_DIRECTORY);
	NEED(here >= 0 && mkdirat(here, "below", 0700) == 0);
	static const char *const always[] = { ".", "..", "./", "../", "below/..", "below/.", "/", "/..", "//" };
	for (size_t i = 0; i < sizeof always / sizeof *always; i++) {
		const char *name = always[i];
		CHECK_FAILS(openat(here, name, O_CREAT | O_EXCL | O_RDONLY, 0600), EEXIST);
		CHECK_FAILS(openat(here, name, O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
		CHECK_FAILS(openat(here, name, O_CREAT | O_RDONLY, 0600), EISDIR);
		CHECK_FAILS(openat(here, name, O_CREAT | O_TRUNC | O_RDWR, 0600), EISDIR);
		CHECK_FAILS(mkdirat(here, name, 0700), EEXIST);
		CHECK_FAILS(mknodat(here, name, S_IFREG | 0600, 0), EEXIST);
		CHECK_FAILS(symlinkat("x", here, name), EEXIST);
		CHECK_FAILS(linkat(here, "below", here, name, 0), EEXIST);
		CHECK_FAILS(renameat(here, "below", here, name), EBUSY);
		CHECK_FAILS(renameat(here, name, here, "new"), EBUSY);
		CHECK_FAILS(unlinkat(here, name, 0), EISDIR);
	}
	CHECK_FAILS(unlinkat(here, ".", AT_REMOVEDIR), EINVAL);
	CHECK_FAILS(unlinkat(here, "..", AT_REMOVEDIR), ENOTEMPTY);
	CHECK_FAILS(unlinkat(here, "/", AT_REMOVEDIR), EBUSY);
	/* A name that ends with a slash refers to a folder. */
	CHECK_FAILS(openat(here, "below/", O_CREAT | O_EXCL | O_RDONLY, 0600), EISDIR);
	CHECK_FAILS(openat(here, "new/", O_CREAT | O_EXCL | O_RDONLY, 0600), EISDIR);
	CHECK_FAILS(openat(here, "below", O_CREAT | O_EXCL | O_RDONLY, 0600), EEXIST);
	CHECK_FAILS(openat(here, "below", O_CREAT | O_RDONLY, 0600), EISDIR);
	CHECK_EQ(unlinkat(here, "below", AT_REMOVEDIR), 0);
	close(here);
	CHECK_EQ(rmdir(folder), 0);
}

/* A process can access its own open descriptors whatever its user ID is. */
static void own_descriptors(void *unused)
{
	(void)unused;
	char path[64];
	int file = memfd_create("own", 0);
	NEED(file >= 0);
	if (getuid() == 0)
		NEED(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	CHECK(open(path, O_RDWR) >= 0);
	CHECK(getppid() == 1 || chdir("/proc/1/fd") != 0);
}

/* Checks clocks that cannot be set, and invalid times. */
static void clocks(void)
{
	struct timespec bad = { 0, 1000000000 }, good = { 1, 0 };
	struct timeval bad_time = { 0, -1 };
	CHECK_FAILS(syscall(SYS_clock_settime, CLOCK_MONOTONIC, &good), EINVAL);
	CHECK_FAILS(syscall(SYS_clock_settime, CLOCK_MONOTONIC, NULL), EINVAL);
	CHECK_FAILS(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL), EFAULT);
	CHECK_FAILS(syscall(SYS_clock_settime, CLOCK_REALTIME, &bad), EINVAL);
	CHECK_FAILS(syscall(SYS_settimeofday, &bad_time, NULL), EINVAL);
	CHECK_FAILS(syscall(SYS_settimeofday, 8L, NULL), EFAULT);
	CHECK_EQ(syscall(SYS_settimeofday, NULL, NULL), 0);
}

int main(void)
{
	dots();
	CHECK(exited(in_child(own_descriptors, NULL), 0));
	granted();
	no_length();
	zero_device();
	futex_words();
	priorities();
	pipe_sizes();
	CHECK(exited(in_child(inheritable, NULL), 0));
	queues();
	clocks();
	return checked("refused_calls");
}
