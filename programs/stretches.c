// Executes long operations. Each is so large that the kernel needs many scheduling points in it, so that no stretch
// between two of them is long. With a name on the command line, one operation is executed; without a name, all are.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)

/* Not every C library's headers contain this. */
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

/* Not every C library's headers contain these; the values are from include/uapi/linux/userfaultfd.h. */
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

static char *map(size_t size, int rights, int flags) {
	char *at = mmap(NULL, size, rights, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
	CHECK(at != MAP_FAILED);
	return at;
}

// Maps `count` areas of one page each, alternately read-only and writable. If `touched` is set, touches every page.
static char *areas(int count, int touched) {
	char *at = map(count * PAGE, PROT_READ | PROT_WRITE, 0);
	if (touched)
		memset(at, 1, count * PAGE);
	for (int i = 0; i < count; i += 2)
		CHECK(mprotect(at + i * PAGE, PAGE, PROT_READ) == 0);
	return at;
}

// Maps memory, and touches every page.
static char *touched(size_t size) {
	char *at = map(size, PROT_READ | PROT_WRITE, 0);
	for (size_t i = 0; i < size; i += PAGE)
		at[i] = 1;
	return at;
}

// Maps memory, and touches one page in each page table.
static char *sparse(size_t tables) {
	char *at = map(tables * 2 * MIB, PROT_READ | PROT_WRITE, 0);
	CHECK(madvise(at, tables * 2 * MIB, MADV_NOHUGEPAGE) == 0);
	for (size_t i = 0; i < tables; i++)
		at[i * 2 * MIB] = 1;
	return at;
}

#define AREAS 30000
#define LARGE (128 * MIB)

static void munmap_areas(void) {
	char *at = areas(AREAS, 0);
	CHECK(munmap(at, AREAS * PAGE) == 0);
}

static void munmap_touched_areas(void) {
	char *at = areas(AREAS, 1);
	CHECK(munmap(at, AREAS * PAGE) == 0);
}

static void munmap_large(void) { CHECK(munmap(touched(LARGE), LARGE) == 0); }

static void munmap_sparse(void) { CHECK(munmap(sparse(8192), 8192 * 2 * MIB) == 0); }

static void munmap_file_areas(void) {
	int file = memfd_create("file", 0);
	CHECK(ftruncate(file, 2 * PAGE) == 0);
	char *at = map(AREAS * PAGE, PROT_NONE, 0);
	for (int i = 0; i < AREAS; i++)
		CHECK(mmap(at + i * PAGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
	CHECK(munmap(at, AREAS * PAGE) == 0);
	close(file);
}

static void mprotect_areas(void) {
	char *at = areas(AREAS, 1);
	CHECK(mprotect(at, AREAS * PAGE, PROT_NONE) == 0);
	CHECK(mprotect(at, AREAS * PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void mprotect_large(void) {
	char *at = touched(LARGE);
	CHECK(mprotect(at, LARGE, PROT_READ) == 0);
	CHECK(mprotect(at, LARGE, PROT_READ | PROT_WRITE) == 0);
}

static void madvise_areas(void) {
	char *at = areas(AREAS, 1);
	CHECK(madvise(at, AREAS * PAGE, MADV_DONTFORK) == 0);
	CHECK(madvise(at, AREAS * PAGE, MADV_DOFORK) == 0);
	CHECK(madvise(at, AREAS * PAGE, MADV_DONTNEED) == 0);
}

static void madvise_large(void) {
	int advice[] = {MADV_COLD, MADV_PAGEOUT, MADV_FREE, MADV_DONTNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE,
					102 /* MADV_GUARD_INSTALL */, 103 /* MADV_GUARD_REMOVE */};
	char *at = touched(LARGE);
	for (size_t i = 0; i < sizeof advice / sizeof *advice; i++)
		CHECK(madvise(at, LARGE, advice[i]) == 0);
}

static void populate(void) {
	char *at = map(LARGE, PROT_READ | PROT_WRITE, MAP_POPULATE);
	CHECK(at[LARGE - 1] == 0);
	CHECK(munmap(at, LARGE) == 0);
	/* With swap, LARGE exceeds the memory, and the pages populated first are swapped out for the others. */
	at = map(LARGE, PROT_READ | PROT_WRITE, 0);
	CHECK(madvise(at, LARGE, MADV_POPULATE_WRITE) == 0);
	CHECK(munmap(at, LARGE) == 0);
}

static void locking(void) {
	struct rlimit unlimited = {RLIM_INFINITY, RLIM_INFINITY};
	CHECK(setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0);
	char *at = map(LARGE, PROT_READ | PROT_WRITE, 0);
	CHECK(mlock(at, LARGE) == 0);
	CHECK(munlock(at, LARGE) == 0);
	char *many = areas(AREAS, 0);
	CHECK(mlock(many, AREAS * PAGE) == 0);
	CHECK(mlockall(MCL_CURRENT) == 0);
	CHECK(munlockall() == 0);
}

static void forking(void) {
	touched(LARGE);
	areas(AREAS, 1);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void executing(void) {
	touched(LARGE);
	areas(AREAS, 1);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "stretches", "nothing", NULL);
		_exit(1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void large_arguments(void) {
	struct rlimit stack = {64 * MIB, 64 * MIB};
	CHECK(setrlimit(RLIMIT_STACK, &stack) == 0);
	char *word = malloc(100001);
	memset(word, 'x', 100000);
	word[100000] = 0;
	char *arguments[52] = {"stretches", "nothing"};
	for (int i = 2; i < 51; i++)
		arguments[i] = word;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		execv("/proc/self/exe", arguments);
		_exit(1);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void moving(void) {
	char *at = touched(LARGE);
	char *there = map(2 * LARGE, PROT_NONE, 0);
	there = mremap(at, LARGE, LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, there + PAGE);
	CHECK(there != MAP_FAILED && there[LARGE - PAGE] == 1);
	CHECK(mremap(there, LARGE, PAGE, 0) == there);
}

static void looking(void) {
	char *at = touched(LARGE);
	unsigned char *resident = malloc(LARGE / PAGE);
	CHECK(mincore(at, LARGE, resident) == 0 && resident[LARGE / PAGE - 1] & 1);
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	CHECK(pagemap >= 0);
	uint64_t *words = malloc(LARGE / PAGE * 8);
	CHECK(pread(pagemap, words, LARGE / PAGE * 8, (uintptr_t)at / PAGE * 8) == (ssize_t)(LARGE / PAGE * 8));
	close(pagemap);
	int clear = open("/proc/self/clear_refs", O_WRONLY);
	CHECK(clear >= 0 && write(clear, "1", 1) == 1 && write(clear, "4", 1) == 1);
	close(clear);
	CHECK(msync(at, LARGE, MS_SYNC) == 0);
}

static void showing(void) {
	areas(AREAS, 1);
	touched(LARGE);
	const char *names[] = {"/proc/self/maps", "/proc/self/smaps", "/proc/self/smaps_rollup", "/proc/self/status",
						   "/proc/self/numa_maps"};
	char *buffer = malloc(MIB);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int file = open(names[i], O_RDONLY);
		if (file < 0)
			continue;
		while (read(file, buffer, MIB) > 0)
			;
		close(file);
	}
}

static void files(void) {
	int file = memfd_create("file", 0);
	char *buffer = map(64 * MIB, PROT_READ | PROT_WRITE, 0);
	memset(buffer, 3, 64 * MIB);
	CHECK(write(file, buffer, 64 * MIB) == 64 * (ssize_t)MIB);
	CHECK(pread(file, buffer, 64 * MIB, 0) == 64 * (ssize_t)MIB);
	struct iovec parts[2] = {{buffer, 32 * MIB}, {buffer + 32 * MIB, 32 * MIB}};
	CHECK(pwritev(file, parts, 2, 0) == 64 * (ssize_t)MIB);
	int other = memfd_create("other", 0);
	off_t from = 0;
	ssize_t sent = 0, part;
	while ((part = sendfile(other, file, &from, 64 * MIB)) > 0)
		sent += part;
	CHECK(sent == 64 * (ssize_t)MIB);
	CHECK(lseek(file, 0, SEEK_HOLE) == 64 * (off_t)MIB);
	char *shown = mmap(NULL, 64 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
	CHECK(shown != MAP_FAILED);
	for (size_t i = 0; i < 64 * MIB; i += PAGE)
		shown[i]++;
	CHECK(msync(shown, 64 * MIB, MS_SYNC) == 0);
	CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 16 * MIB) == 0);
	CHECK(ftruncate(file, 0) == 0);
	CHECK(fallocate(file, 0, 0, 64 * MIB) == 0);
	close(file);
	close(other);
}

// Raises the limit on descriptors to `count`, or to the hard limit, which only root may raise. Returns the limit.
static rlim_t raise_files(rlim_t count)
{
	struct rlimit limit = {count, count};
	if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
		return count;
	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	return limit.rlim_cur;
}

static void remote(void) {
	char *from = touched(LARGE / 2), *to = map(LARGE / 2, PROT_READ | PROT_WRITE, 0);
	struct iovec here = {to, LARGE / 2}, there = {from, LARGE / 2};
	CHECK(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == LARGE / 2);
	CHECK(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == LARGE / 2);
}

static void descriptors(void) {
	rlim_t limit = raise_files(1 << 20), count = limit < 300000 ? limit : 300000;
	int event = eventfd(0, 0), first = -1, last = -1;
	for (rlim_t i = 10; i < count; i++) {
		last = dup(event);
		CHECK(last >= 0);
		if (first < 0)
			first = last;
	}
	/* The highest possible number, far above the others. */
	int farthest = (int)limit - 1;
	CHECK(dup2(event, farthest) == farthest);
	/* After the close, two numbers below the highest are free: `first` and, after all the numbers in use,
	 * `last` + 1. The search for `last` + 1 passes all the numbers in use. */
	close(first);
	CHECK(dup(event) == first);
	CHECK(dup(event) == last + 1);
	struct pollfd *polled = calloc(count, sizeof *polled);
	for (rlim_t i = 0; i < count; i++)
		polled[i] = (struct pollfd){.fd = event, .events = POLLIN};
	CHECK(poll(polled, count, 0) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		CHECK(syscall(SYS_close_range, first, last, 4 /* CLOSE_RANGE_CLOEXEC */) == 0);
		execl("/proc/self/exe", "stretches", "nothing", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(syscall(SYS_close_range, first, farthest, 0) == 0);
}

static void epoll_items(void) {
	struct rlimit limit = {30000, 30000};
	setrlimit(RLIMIT_NOFILE, &limit);
	int poller = epoll_create1(0), outer = epoll_create1(0);
	struct epoll_event event = {.events = EPOLLIN};
	int made = 0, file;
	while (made < 20000 && (file = eventfd(1, 0)) >= 0) {
		CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, file, &event) == 0);
		made++;
	}
	struct epoll_event *ready = calloc(made, sizeof *ready);
	CHECK(epoll_wait(poller, ready, made, 0) == made);
	/* Each polled file has its own wait queue. */
	struct pollfd *polled = calloc(made, sizeof *polled);
	for (int i = 0; i < made; i++)
		polled[i] = (struct pollfd){.fd = file - i, .events = POLLPRI};
	CHECK(poll(polled, made, 10) == 0);
	CHECK(epoll_ctl(outer, EPOLL_CTL_ADD, poller, &event) == 0);
	CHECK(epoll_wait(outer, ready, made, 0) == 1);
	close(poller);
}

static void processes(void) {
	enum { COUNT = 1000 };
	static pid_t children[COUNT];
	CHECK(setpgid(0, 0) == 0);
	for (int i = 0; i < COUNT; i++) {
		children[i] = fork();
		CHECK(children[i] >= 0);
		if (children[i] == 0) {
			pause();
			_exit(0);
		}
	}
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	for (int i = 0; i < COUNT; i++)
		kill(children[i], SIGKILL);
	for (int i = 0; i < COUNT; i++)
		CHECK(waitpid(-1, NULL, 0) > 0);
}

static void folders(void) {
	char name[64];
	CHECK(mkdir("/tmp/many", 0700) == 0 || errno == EEXIST);
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof name, "/tmp/many/%d", i);
		int file = open(name, O_CREAT | O_RDWR, 0600);
		CHECK(file >= 0);
		close(file);
	}
	int folder = open("/tmp/many", O_RDONLY | O_DIRECTORY);
	static char entries[4 << 20];
	while (syscall(SYS_getdents64, folder, entries, sizeof entries) > 0)
		;
	close(folder);
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof name, "/tmp/many/%d", i);
		CHECK(unlink(name) == 0);
	}
	CHECK(rmdir("/tmp/many") == 0);
}

static void pool(void) {
	FILE *count = fopen("/proc/sys/vm/nr_hugepages", "w");
	if (!count)
		return;
	fprintf(count, "40");
	fclose(count);
	char *at = mmap(NULL, 80 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (at == MAP_FAILED)
		return;
	CHECK(madvise(at, 80 * MIB, MADV_POPULATE_WRITE) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		_exit(0);
	}
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(mprotect(at, 80 * MIB, PROT_READ) == 0);
	CHECK(munmap(at, 80 * MIB) == 0);
}

static void merging(void) {
	char *at = map(32 * MIB, PROT_READ | PROT_WRITE, 0);
	memset(at, 7, 32 * MIB);
	CHECK(madvise(at, 32 * MIB, MADV_MERGEABLE) == 0);
	int run = open("/sys/kernel/mm/ksm/run", O_WRONLY);
	if (run < 0)
		return;
	CHECK(write(run, "1", 1) == 1);
	usleep(200000);
	CHECK(write(run, "2", 1) == 1);
	CHECK(write(run, "0", 1) == 1);
	close(run);
	CHECK(madvise(at, 32 * MIB, MADV_UNMERGEABLE) == 0);
}

// Swaps more than the machine's memory out and in.
static void swapping(void)
{
	size_t size = 3 * LARGE / 2;
	char *at = touched(size);
	CHECK(madvise(at, size, MADV_PAGEOUT) == 0);
	for (size_t i = 0; i < size; i += PAGE)
		at[i]++;
	CHECK(madvise(at, size, MADV_PAGEOUT) == 0);
	CHECK(madvise(at, size, MADV_WILLNEED) == 0);
	CHECK(munmap(at, size) == 0);
}

// A process with the majority of its pages in swap forks, and the child swaps the pages in.
static void forking_from_swap(void)
{
	char *at = touched(LARGE);
	CHECK(madvise(at, LARGE, MADV_PAGEOUT) == 0);
	for (int round = 0; round < 3; round++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			for (size_t i = 0; i < LARGE; i += 8 * PAGE)
				at[i]++;
			_exit(0);
		}
		for (size_t i = 0; i < LARGE; i += 16 * PAGE)
			at[i]++;
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	CHECK(munmap(at, LARGE) == 0);
}

// Reads a file in /proc about a process with many areas, pages and descriptors, first completely and then in small
// pieces.
static void read_all(const char *name)
{
	static char bytes[1 << 20];
	int file = open(name, O_RDONLY);
	if (file < 0)
		return;
	while (read(file, bytes, sizeof bytes) > 0)
		;
	CHECK(lseek(file, 0, SEEK_SET) == 0 || errno == ESPIPE);
	(void)!read(file, bytes, 100);
	close(file);
}

static void showing_others(void)
{
	static const char *const names[] = {"maps", "smaps", "smaps_rollup", "numa_maps", "status", "stat", "statm", "limits",
					    "mounts", "mountinfo", "cmdline", "environ", "auxv"};
	int ready[2];
	CHECK(pipe(ready) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		touched(LARGE);
		areas(AREAS, 1);
		(void)!write(ready[1], "", 1);
		pause();
		_exit(0);
	}
	char name[64], byte;
	CHECK(read(ready[0], &byte, 1) == 1);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(name, sizeof name, "/proc/%d/%s", child, names[i]);
		read_all(name);
	}
	snprintf(name, sizeof name, "/proc/%d/clear_refs", child);
	int file = open(name, O_WRONLY);
	CHECK(file >= 0);
	CHECK(write(file, "1", 1) == 1);
	CHECK(write(file, "4", 1) == 1);
	close(file);
	CHECK(kill(child, SIGKILL) == 0);
	CHECK(waitpid(child, NULL, 0) == child);
	close(ready[0]);
	close(ready[1]);
}

/* Opens many connections over the loopback interface. Reads of the lists of the other address family and of
 * the other protocol skip all of the connections. */
static void connections(void)
{
	enum { MOST = 12000 };
	rlim_t limit = raise_files(2 * MOST + 100);
	int server = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof name;
	CHECK(bind(server, (void *)&name, sizeof name) == 0 && listen(server, 8) == 0);
	CHECK(getsockname(server, (void *)&name, &length) == 0);
	for (rlim_t i = 0; i < MOST && 2 * i + 100 < limit; i++) {
		int client = socket(AF_INET, SOCK_STREAM, 0);
		CHECK(connect(client, (void *)&name, sizeof name) == 0 && accept(server, NULL, NULL) >= 0);
	}
	const char *lists[] = {"/proc/net/tcp6", "/proc/net/tcp", "/proc/net/udp"};
	static char text[1 << 16];
	for (int i = 0; i < 3; i++) {
		int file = open(lists[i], O_RDONLY);
		CHECK(file >= 0);
		while (read(file, text, sizeof text) > 0)
			;
		close(file);
	}
	CHECK(syscall(SYS_close_range, 3L, 0x7fffffffL, 0L) == 0);
}

/* Names many areas, removes the names, and seals the areas. */
static void naming(void)
{
	enum { MANY = 60000 };
	char *at = areas(MANY, 0);
	CHECK(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, MANY * PAGE, "many") == 0);
	CHECK(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, MANY * PAGE, NULL) == 0);
	CHECK(syscall(462, at, MANY * PAGE, 0L) == 0);
}

// Builds a long chain of sockets that only refer to one another. The kernel detects and closes them.
static void passed_sockets(void)
{
	enum { PAIRS = 1500 };
	struct rlimit limit = {8192, 8192};
	setrlimit(RLIMIT_NOFILE, &limit);
	int before[2], pair[2];
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, before) == 0);
	for (int i = 0; i < PAIRS; i++) {
		CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
		char byte = 0, room[CMSG_SPACE(2 * sizeof(int))] = {0};
		struct iovec part = {&byte, 1};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
		struct cmsghdr *passed = CMSG_FIRSTHDR(&message);
		passed->cmsg_level = SOL_SOCKET;
		passed->cmsg_type = SCM_RIGHTS;
		passed->cmsg_len = CMSG_LEN(2 * sizeof(int));
		memcpy(CMSG_DATA(passed), before, 2 * sizeof(int));
		CHECK(sendmsg(pair[0], &message, 0) == 1);
		close(before[0]);
		close(before[1]);
		memcpy(before, pair, sizeof pair);
	}
	close(before[0]);
	close(before[1]);
	/* Closing a socket starts the garbage collection of unreachable sockets. */
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
	close(pair[0]);
	close(pair[1]);
}

// Creates many mounts, reads their lines in /proc, and unmounts them.
static void mounts(void)
{
	char name[64];
	if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0)
		return;
	CHECK(mkdir("/tmp/mounts", 0700) == 0 || errno == EEXIST);
	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof name, "/tmp/mounts/%d", i);
		CHECK(mkdir(name, 0700) == 0 || errno == EEXIST);
		CHECK(syscall(SYS_mount, "none", name, "tmpfs", 0, "") == 0);
	}
	read_all("/proc/self/mounts");
	read_all("/proc/self/mountinfo");
	for (int i = 0; i < 2000; i++) {
		snprintf(name, sizeof name, "/tmp/mounts/%d", i);
		CHECK(syscall(SYS_umount2, name, MNT_DETACH) == 0);
		CHECK(rmdir(name) == 0);
	}
	rmdir("/tmp/mounts");
}

// Creates the threads of a process group, and sends signals to all of them.
static void *sleeper(void *unused)
{
	(void)unused;
	pause();
	return NULL;
}

static void threads(void)
{
	for (int i = 0; i < 500; i++) {
		pthread_t thread;
		pthread_attr_t small;
		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 16384);
		CHECK(pthread_create(&thread, &small, sleeper, NULL) == 0);
	}
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, NULL, 0) == child);
}

// Write-protects populated and unpopulated memory by uffd-wp, and scans for written pages.
static void watching(void)
{
	int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	if (!CHECK(watcher >= 0))
		return;
	struct uffdio_api api = {.api = UFFD_API,
				 .features = UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_ASYNC};
	CHECK(ioctl(watcher, UFFDIO_API, &api) == 0);
	char *at = map(2 * LARGE, PROT_READ | PROT_WRITE, 0);
	memset(at, 1, LARGE);
	struct uffdio_register all = {.range = {(uintptr_t)at, 2 * LARGE}, .mode = UFFDIO_REGISTER_MODE_WP};
	CHECK(ioctl(watcher, UFFDIO_REGISTER, &all) == 0);
	struct uffdio_writeprotect protect = {.range = all.range, .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	CHECK(ioctl(watcher, UFFDIO_WRITEPROTECT, &protect) == 0);
	for (size_t i = 0; i < 2 * LARGE; i += 2 * PAGE)
		at[i] = 2;
	protect.mode = 0;
	CHECK(ioctl(watcher, UFFDIO_WRITEPROTECT, &protect) == 0);
	CHECK(ioctl(watcher, UFFDIO_UNREGISTER, &all.range) == 0);
	close(watcher);
}

// Sets timers that all expire at the same time, while their owner sleeps and while it runs.
static void timers(void)
{
	struct itimerspec at = {.it_interval = {0, 0}, .it_value = {0, 0}};
	struct timespec now;
	raise_files(25000);
	for (int busy = 0; busy < 2; busy++) {
		int file = -1, last, count = 0;
		CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
		at.it_value.tv_sec = now.tv_sec + 1;
		for (; count < 10000 && (last = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0; count++) {
			file = last;
			CHECK(timerfd_settime(file, TFD_TIMER_ABSTIME, &at, NULL) == 0);
		}
		struct pollfd polled = {.fd = file, .events = POLLIN};
		CHECK(count > 0);
		while (busy && now.tv_sec <= at.it_value.tv_sec)
			CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
		CHECK(poll(&polled, 1, 10000) == 1);
	}
}

// A thread that sleeps until a point in time. `sleepers` starts many threads with the same point in time.
static void *sleep_until(void *instant)
{
	CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, instant, NULL) == 0);
	return NULL;
}

static void sleepers(void)
{
	enum { COUNT = 3000 };
	static pthread_t threads[COUNT];
	struct timespec instant;
	pthread_attr_t small;
	int count = 0;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &instant) == 0);
	instant.tv_sec += 2;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 16384);
	while (count < COUNT && pthread_create(&threads[count], &small, sleep_until, &instant) == 0)
		count++;
	CHECK(count > 0);
	while (count > 0)
		CHECK(pthread_join(threads[--count], NULL) == 0);
}

// Sets many timers on the CPU time of a process with many threads, and on that of one of its threads. They expire
// together, while other threads sleep, wake and exit.
static void cpu_timers(void)
{
	enum { TIMERS = 4000, THREADS = 2000 };
	static pthread_t threads[THREADS];
	static timer_t timers[2 * TIMERS];
	struct rlimit limit = {2 * TIMERS + 100, 2 * TIMERS + 100};
	struct itimerspec at = {.it_interval = {0, 1000000}, .it_value = {0, 30000000}};
	struct timespec instant, used = {0, 0};
	sigset_t set;
	int count = 0;
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(clock_gettime(CLOCK_MONOTONIC, &instant) == 0);
	instant.tv_sec++;
	while (count < THREADS && pthread_create(&threads[count], NULL, sleep_until, &instant) == 0)
		count++;
	CHECK(count > 100);
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
	for (int i = 0; i < 2 * TIMERS; i++) {
		clockid_t clock = i % 2 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
		CHECK(timer_create(clock, &event, &timers[i]) == 0);
		CHECK(timer_settime(timers[i], 0, &at, NULL) == 0);
	}
	for (int round = 0; round < 20; round++) {
		siginfo_t info;
		struct timespec nap = {0, 1000000};
		CHECK(nanosleep(&nap, NULL) == 0);
		long end = used.tv_nsec + 10000000L * (round + 1);
		do
			CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0);
		while (used.tv_sec == 0 && used.tv_nsec < end);
		for (int taken = 0; taken < 1000 && sigtimedwait(&set, &info, &(struct timespec){0, 0}) > 0; taken++)
			;
	}
	for (int i = 0; i < count; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

// A parent exits that has many children: some have exited, some have a parent-death signal, and some are traced by it.
static void orphans(void)
{
	for (int kind = 0; kind < 3; kind++) {
		pid_t parent = fork();
		CHECK(parent >= 0);
		if (parent == 0) {
			for (int i = 0; i < 1500; i++) {
				pid_t child = fork();
				if (child > 0)
					continue;
				if (kind == 1)
					prctl(PR_SET_PDEATHSIG, SIGKILL);
				if (kind == 2)
					ptrace(PTRACE_TRACEME, 0, NULL, NULL);
				if (kind == 2)
					raise(SIGSTOP);
				if (kind == 1)
					pause();
				_exit(0);
			}
			usleep(200000);
			_exit(0);
		}
		CHECK(waitpid(parent, NULL, 0) == parent);
	}
}

// Makes one large read from /dev/zero.
static void zeroes(void)
{
	int file = open("/dev/zero", O_RDONLY);
	CHECK(file >= 0);
	CHECK(read(file, touched(LARGE), LARGE) == LARGE);
	close(file);
}

// Writes a byte at each of many offsets that are far apart. `sparse_file` then maps, punches, truncates and closes such
// a file.
static void fill_sparsely(int file)
{
	for (off_t i = 0; i < 10000; i++)
		CHECK(pwrite(file, "x", 1, i << 27) == 1);
}

static void sparse_file(void)
{
	int file = memfd_create("sparse", 0);
	CHECK(file >= 0 && ftruncate(file, 1L << 42) == 0);
	fill_sparsely(file);
	char *at = mmap(NULL, 1L << 40, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
	CHECK(at != MAP_FAILED);
	for (size_t i = 0; i < 3000; i++)
		at[i << 28] = 1;
	CHECK(msync(at, 1L << 40, MS_SYNC) == 0);
	CHECK(madvise(at, 1L << 39, MADV_REMOVE) == 0);
	CHECK(munmap(at, 1L << 40) == 0);
	CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1L << 42) == 0);
	fill_sparsely(file);
	CHECK(ftruncate(file, 0) == 0);
	CHECK(ftruncate(file, 1L << 42) == 0);
	fill_sparsely(file);
	close(file);
}

// Queries the nodes of many pages, migrates the pages to node 0, and binds them and many areas to that node.
static void placing(void)
{
	enum { COUNT = 32768 };
	static void *pages[COUNT];
	static int nodes[COUNT], status[COUNT];
	char *at = touched(COUNT * PAGE);
	unsigned long first = 1;
	for (int i = 0; i < COUNT; i++)
		pages[i] = at + i * PAGE;
	CHECK(syscall(SYS_move_pages, 0, COUNT, pages, NULL, status, 0) == 0);
	CHECK(syscall(SYS_move_pages, 0, COUNT, pages, nodes, status, 2 /* MPOL_MF_MOVE */) == 0);
	CHECK(syscall(SYS_mbind, at, COUNT * PAGE, 2 /* MPOL_BIND */, &first, 64, 3 /* STRICT, MOVE */) == 0);
	CHECK(syscall(SYS_migrate_pages, 0, 64, &first, &first) >= 0);
	char *many = areas(AREAS, 0);
	CHECK(syscall(SYS_mbind, many, AREAS * PAGE, 2, &first, 64, 0) == 0);
}

// Creates a userfaultfd. `filling` fills memory with each ioctl, and `watching_areas` registers many areas.
static int watcher_with(uint64_t features)
{
	int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	CHECK(watcher >= 0 && ioctl(watcher, UFFDIO_API, &api) == 0);
	return watcher;
}

static void watch(int watcher, char *at, size_t size, uint64_t mode)
{
	struct uffdio_register all = {.range = {(uintptr_t)at, size}, .mode = mode};
	CHECK(ioctl(watcher, UFFDIO_REGISTER, &all) == 0);
}

/* Ioctls that older kernel headers lack (include/uapi/linux/userfaultfd.h). */
#define COMMAND_CONTINUE _IOWR(0xaa, 7, uint64_t[4])
#define COMMAND_POISON _IOWR(0xaa, 8, uint64_t[4])
#define COMMAND_MOVE _IOWR(0xaa, 5, uint64_t[5])

static void filling(void)
{
	int watcher = watcher_with(1 << 14 | 1 << 16); /* POISON, MOVE */
	char *at = map(4 * LARGE, PROT_READ | PROT_WRITE, 0), *from = touched(LARGE / 2);
	watch(watcher, at, 4 * LARGE, UFFDIO_REGISTER_MODE_MISSING);
	uint64_t start = (uintptr_t)at;
	struct uffdio_copy copy = {.dst = start, .src = (uintptr_t)from, .len = LARGE / 2};
	CHECK(ioctl(watcher, UFFDIO_COPY, &copy) == 0);
	struct uffdio_zeropage zeroes = {.range = {start + LARGE, LARGE}};
	CHECK(ioctl(watcher, UFFDIO_ZEROPAGE, &zeroes) == 0);
	uint64_t poison[4] = {start + 2 * LARGE, LARGE};
	CHECK(ioctl(watcher, COMMAND_POISON, poison) == 0);
	uint64_t move[5] = {start + 3 * LARGE, (uintptr_t)from, LARGE / 2};
	CHECK(ioctl(watcher, COMMAND_MOVE, move) == 0);
	close(watcher);
	watcher = watcher_with(1 << 10); /* MINOR_SHMEM */
	int file = memfd_create("filled", 0);
	CHECK(ftruncate(file, LARGE) == 0 && fallocate(file, 0, 0, LARGE) == 0);
	char *shared = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(shared != MAP_FAILED);
	watch(watcher, shared, LARGE, 4 /* MINOR */);
	uint64_t go_on[4] = {(uintptr_t)shared, LARGE};
	CHECK(ioctl(watcher, COMMAND_CONTINUE, go_on) == 0);
	close(file);
	close(watcher);
}

static void watching_areas(void)
{
	int watcher = watcher_with(0);
	char *many = areas(AREAS, 0);
	watch(watcher, many, AREAS * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	struct uffdio_range all = {(uintptr_t)many, AREAS * PAGE};
	CHECK(ioctl(watcher, UFFDIO_UNREGISTER, &all) == 0);
	watch(watcher, many, AREAS * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	close(watcher);
}

// Many epolls watch the same file.
static void watched_file(void)
{
	struct epoll_event event = {.events = EPOLLIN};
	int file = eventfd(0, 0), count = 0, poller;
	uint64_t one = 1;
	raise_files(20000);
	for (; count < 15000 && (poller = epoll_create1(0)) >= 0; count++)
		CHECK(epoll_ctl(poller, EPOLL_CTL_ADD, file, &event) == 0);
	CHECK(count > 0);
	CHECK(write(file, &one, sizeof one) == sizeof one);
	close(file);
}

// Collapses huge pages, has a child copy them, splits them at their ends, and frees them.
static void huge_pages(void)
{
	char *at = map(2 * LARGE, PROT_READ | PROT_WRITE, 0);
	CHECK(madvise(at, 2 * LARGE, MADV_NOHUGEPAGE) == 0);
	for (size_t i = 0; i < LARGE; i += PAGE)
		at[i] = 1;
	CHECK(madvise(at, 2 * LARGE, MADV_HUGEPAGE) == 0);
	/* Linux may find a page busy. */
	CHECK(madvise(at, LARGE, 25 /* MADV_COLLAPSE */) == 0 || errno == EAGAIN || errno == EINVAL);
	for (size_t i = LARGE; i < 2 * LARGE; i += PAGE)
		at[i] = 1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		for (size_t i = 0; i < LARGE; i += 2 * MIB)
			at[i] = 2;
		_exit(0);
	}
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(mprotect(at + PAGE, 2 * LARGE - 2 * PAGE, PROT_READ) == 0);
	CHECK(madvise(at + PAGE, 2 * LARGE - 2 * PAGE, MADV_FREE) == 0);
	CHECK(madvise(at, 2 * LARGE, MADV_COLD) == 0);
	CHECK(munmap(at, 2 * LARGE) == 0);
}

// Open file descriptions hold locks on one file: first shared locks of the complete file, then one byte each.
static void lock_holders(void) {
	enum { COUNT = 100000, BYTES = 4000 };
	rlim_t limit = raise_files(1 << 20);
	int count = limit < COUNT + 16 ? (int)limit - 16 : COUNT;
	char path[] = "/tmp/locksXXXXXX";
	int file = mkstemp(path);
	CHECK(file >= 0);
	int *files = calloc(count, sizeof *files);
	for (int i = 0; i < count; i++) {
		files[i] = open(path, O_RDWR);
		CHECK(files[i] >= 0);
		CHECK(flock(files[i], LOCK_SH) == 0);
		struct flock byte = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2L * i, .l_len = 1};
		if (i < BYTES)
			CHECK(fcntl(files[i], F_OFD_SETLK, &byte) == 0);
	}
	CHECK(flock(file, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
	for (int i = 0; i < count; i++)
		close(files[i]);
	CHECK(flock(file, LOCK_EX | LOCK_NB) == 0);
	CHECK(unlink(path) == 0 && close(file) == 0);
}

// Processes wait for semaphores of a large set. One call sets all of the semaphores, and the processes' operations are
// undone.
static void semaphores(void)
{
	enum { COUNT = 32000, PROCESSES = 400 };
	static unsigned short values[COUNT];
	int set = semget(IPC_PRIVATE, COUNT, 0600);
	CHECK(set >= 0);
	for (int i = 0; i < PROCESSES; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			/* Half of the processes perform an operation with SEM_UNDO before they wait. */
			struct sembuf add = {i % 7, 1, SEM_UNDO}, take = {100 + i / 2, -1, SEM_UNDO};
			if (i % 2)
				semop(set, &add, 1);
			struct sembuf both[2] = {take, {0, 0, 0}};
			semop(set, both, i % 3 ? 1 : 2);
			_exit(0);
		}
	}
	usleep(200000);
	for (int i = 0; i < COUNT; i++)
		values[i] = i >= 100;
	CHECK(semctl(set, 0, SETALL, values) == 0);
	usleep(200000);
	CHECK(semctl(set, 0, IPC_RMID) == 0);
	for (int i = 0; i < PROCESSES; i++)
		CHECK(wait(NULL) > 0);
}

static void nothing(void) {}

static const struct {
	const char *name;
	void (*run)(void);
} OPERATIONS[] = {
	{"munmap_areas", munmap_areas},
	{"munmap_touched_areas", munmap_touched_areas},
	{"munmap_large", munmap_large},
	{"munmap_sparse", munmap_sparse},
	{"munmap_file_areas", munmap_file_areas},
	{"mprotect_areas", mprotect_areas},
	{"mprotect_large", mprotect_large},
	{"madvise_areas", madvise_areas},
	{"madvise_large", madvise_large},
	{"populate", populate},
	{"locking", locking},
	{"forking", forking},
	{"executing", executing},
	{"large_arguments", large_arguments},
	{"moving", moving},
	{"looking", looking},
	{"showing", showing},
	{"files", files},
	{"remote", remote},
	{"descriptors", descriptors},
	{"epoll_items", epoll_items},
	{"processes", processes},
	{"folders", folders},
	{"pool", pool},
	{"merging", merging},
	{"swapping", swapping},
	{"forking_from_swap", forking_from_swap},
	{"showing_others", showing_others},
	{"passed_sockets", passed_sockets},
	{"connections", connections},
	{"naming", naming},
	{"mounts", mounts},
	{"threads", threads},
	{"watching", watching},
	{"timers", timers},
	{"sleepers", sleepers},
	{"cpu_timers", cpu_timers},
	{"orphans", orphans},
	{"zeroes", zeroes},
	{"sparse_file", sparse_file},
	{"placing", placing},
	{"filling", filling},
	{"watching_areas", watching_areas},
	{"watched_file", watched_file},
	{"huge_pages", huge_pages},
	{"lock_holders", lock_holders},
	{"semaphores", semaphores},
	{"nothing", nothing},
};

int main(int count, char **arguments) {
	for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
		if (count > 1 && !strcmp(arguments[1], "list"))
			puts(OPERATIONS[i].name);
		if (count > 1 && strcmp(arguments[1], OPERATIONS[i].name))
			continue;
		// The operation runs in a separate process, whose exit is a long operation too.
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			checks_failed = 0;
			OPERATIONS[i].run();
			end_child();
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		if (!CHECK_EQ(status, 0))
			printf("%s failed\n", OPERATIONS[i].name);
	}
	return count > 1 && !strcmp(arguments[1], "list") ? 0 : checked("stretches");
}
