/* Prepares each call: creates the mappings, descriptors, files and segments that it uses, and sets the state of the
   child that makes it. */
#ifndef ERRORS_PREPARE_H
#define ERRORS_PREPARE_H

#include "kinds.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

/* The path at which cgroups are mounted, if necessary by this program. */
static const char *groups = "/sys/fs/cgroup";
static const char own_groups[] = HERE "/groups";

static int segment, lent_segment, removed_segment;

static void at(unsigned long place, size_t length, int rights, int flags, int file)
{
	NEED(mmap((void *)place, length, rights, flags | MAP_FIXED, file, 0) == (void *)place);
}

static void become(int file, int number)
{
	NEED(file >= 0 && dup2(file, number) == number);
	close(file);
}

static void again(int number, int flags)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", FILE_BOTH);
	become(open(path, flags), number);
}

static void write_text(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);
	NEED(file >= 0 && write(file, text, strlen(text)) > 0);
	close(file);
}

/* Returns whether a call is on hugetlb pages. The hugetlb pool contains pages only for such calls. */
static int is_on_huge_pages(const struct call *call)
{
	return strncmp(call->name, on_huge_pages, sizeof on_huge_pages - 1) == 0;
}

static void fill_pool(const char *pages)
{
	write_text("/proc/sys/vm/nr_hugepages", pages);
}

/* The system settings that a call's state changes. The parent restores them. */
static struct control {
	unsigned state;
	const char *path, *changed;
	char usual[32];
} controls[] = {
	{ NO_FILES, "/proc/sys/fs/file-max", "0", "" },
	{ FEW_AREAS, "/proc/sys/vm/max_map_count", "1", "" },
	{ NO_SEGMENTS, "/proc/sys/kernel/shmall", "0", "" },
	{ NO_PROMISES, "/proc/sys/vm/overcommit_ratio", "0", "" },
	{ NO_PROMISES, "/proc/sys/vm/overcommit_memory", "2", "" },
};
enum { CONTROLS = sizeof controls / sizeof *controls };

static void read_controls(void)
{
	for (int i = 0; i < CONTROLS; i++) {
		int file = open(controls[i].path, O_RDONLY);
		NEED(file >= 0 && read(file, controls[i].usual, sizeof controls[i].usual - 1) > 0);
		close(file);
	}
}

static void change_controls(unsigned long state)
{
	for (int i = 0; i < CONTROLS; i++)
		if (controls[i].state & state)
			write_text(controls[i].path, controls[i].changed);
}

static void restore_controls(void)
{
	for (int i = 0; i < CONTROLS; i++)
		write_text(controls[i].path, controls[i].usual);
}

/* Creates the named files. One of them is in a file system mounted noexec, which is also read-only if the
 * kernel supports read-only mounts.
 * */
static void prepare_files(void)
{
	NEED(mkdir(HERE, 0755) == 0 && mkdir(HERE "/still", 0755) == 0);
	int file = open(file_path, O_RDWR | O_CREAT, 0600);
	NEED(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	close(file);
	NEED(symlink(loop_path, loop_path) == 0 && mkfifo(pipe_path, 0600) == 0);
	NEED(mount("none", HERE "/still", "tmpfs", MS_NOEXEC, NULL) == 0);
	file = open(still_path, O_RDWR | O_CREAT, 0600);
	NEED(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
	close(file);
	mount("none", HERE "/still", NULL, MS_REMOUNT | MS_RDONLY | MS_NOEXEC, NULL);
	become(open(still_path, O_RDONLY), FILE_NO_EXEC);
}

static void remove_files(void)
{
	close(FILE_NO_EXEC);
	NEED(umount(HERE "/still") == 0 && rmdir(HERE "/still") == 0);
	NEED(unlink(pipe_path) == 0 && unlink(loop_path) == 0 && unlink(file_path) == 0 && rmdir(HERE) == 0);
}

static const char *of_groups(const char *file)
{
	static char path[128];
	snprintf(path, sizeof path, "%s/%s", groups, file);
	return path;
}

static void prepare_group(void)
{
	if (access(of_groups("cgroup.procs"), F_OK) != 0) {
		groups = own_groups;
		NEED(mkdir(groups, 0755) == 0 && mount("none", groups, "cgroup2", 0, NULL) == 0);
	}
	write_text(of_groups("cgroup.subtree_control"), "+memory");
	NEED(mkdir(of_groups("little"), 0755) == 0);
	write_text(of_groups("little/memory.max"), "1M");
}

/* Repeats rmdir, because on Linux a child that was waited for may still be in its cgroup. */
static void remove_group(void)
{
	int gone = 0;
	for (int i = 0; i < 1000 && !gone; i++) {
		gone = rmdir(of_groups("little")) == 0;
		if (!gone)
			usleep(1000);
	}
	NEED(gone);
	if (groups == own_groups)
		NEED(umount(groups) == 0 && rmdir(groups) == 0);
}

static void prepare_segments(void)
{
	segment = shmget(0x5151, PAGE, IPC_CREAT | 0600);
	lent_segment = shmget(IPC_PRIVATE, 4 * PAGE, IPC_CREAT | 0600);
	removed_segment = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
	NEED(segment >= 0 && lent_segment >= 0 && removed_segment >= 0);
	struct shmid_ds status;
	NEED(shmctl(lent_segment, IPC_STAT, &status) == 0);
	status.shm_perm.uid = 1000;
	NEED(shmctl(lent_segment, IPC_SET, &status) == 0);
	NEED(shmctl(removed_segment, IPC_RMID, NULL) == 0);
}

static void remove_segments(void)
{
	shmctl(segment, IPC_RMID, NULL);
	shmctl(lent_segment, IPC_RMID, NULL);
}

static void prepare(void)
{
	int ends[2];
	become(memfd_create("both", MFD_ALLOW_SEALING), FILE_BOTH);
	NEED(ftruncate(FILE_BOTH, 4 * PAGE) == 0);
	become(memfd_create("grows", 0), FILE_GROWS);
	again(FILE_READS, O_RDONLY);
	again(FILE_WRITES, O_WRONLY);
	again(PATH, O_PATH);
	NEED(pipe(ends) == 0);
	become(ends[0], PIPE);
	become(ends[1], PIPE_WRITES);
	become(open("/", O_RDONLY | O_DIRECTORY), FOLDER);
	become(memfd_create("sealed", MFD_ALLOW_SEALING), FILE_SEALED);
	NEED(ftruncate(FILE_SEALED, 4 * PAGE) == 0);
	snprintf(sealed_path, sizeof sealed_path, "/proc/self/fd/%d", FILE_SEALED);
	NEED(fcntl(FILE_SEALED, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	become(open("/dev/zero", O_RDWR), ZERO);
	become(open("/proc/self/pagemap", O_RDONLY), PAGEMAP);
	become((int)syscall(CALL_PIDFD_OPEN, getpid(), 0), PARENT_PROCESS);
	at(PAGES, 4 * PAGE, RW, PRIVATE, -1);
	memset((void *)PAGES, 7, 4 * PAGE);
	at(READS, 4 * PAGE, PROT_READ, PRIVATE, -1);
	at(CLOSED, 4 * PAGE, PROT_NONE, PRIVATE, -1);
	at(SHARED, 4 * PAGE, RW, MAP_SHARED, FILE_BOTH);
	at(SHARED_READS, 4 * PAGE, PROT_READ, MAP_SHARED, FILE_READS);
	at(SEALED, 4 * PAGE, PROT_READ, PRIVATE, -1);
	at(LOCKED, 4 * PAGE, RW, PRIVATE, -1);
	at(EDGE, 2 * PAGE, RW, PRIVATE, -1);
	at(WATCHED, 4 * PAGE, RW, PRIVATE, -1);
	at(BOUND, 4 * PAGE, RW, PRIVATE, -1);
	at(PREFERS, 4 * PAGE, RW, PRIVATE, -1);
	at(FORKED, 4 * PAGE, RW, PRIVATE, -1);
	memset((void *)FORKED, 7, 4 * PAGE);
	unsigned long first_node = 1;
	NEED(syscall(SYS_mbind, BOUND, 4 * PAGE, BIND, &first_node, 64, 0) == 0);
	NEED(syscall(SYS_mbind, PREFERS, 4 * PAGE, PREFERRED, &first_node, 64, 0) == 0);
	become(memfd_create("minor", 0), FILE_MINOR);
	NEED(ftruncate(FILE_MINOR, 4 * PAGE) == 0);
	NEED(pwrite(FILE_MINOR, "a", 1, 0) == 1 && pwrite(FILE_MINOR, "c", 1, 2 * PAGE) == 1);
	prepare_files();
	prepare_group();
	prepare_segments();
	read_controls();
}

static void prepare_huge_pages(void)
{
	become(memfd_create("huge", MEMFD_HUGE), FILE_HUGE);
	NEED(ftruncate(FILE_HUGE, 2 * HUGE_PAGE) == 0);
	at(HUGE, 2 * HUGE_PAGE, RW, PRIVATE | MAP_HUGETLB, -1);
	at(HUGE_SHARED, 2 * HUGE_PAGE, RW, MAP_SHARED, FILE_HUGE);
	at(HUGE_SEALED, HUGE_PAGE, RW, PRIVATE | MAP_HUGETLB, -1);
	NEED(syscall(CALL_MSEAL, HUGE_SEALED, HUGE_PAGE, 0) == 0);
}

static void watcher(int number, unsigned long features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	become((int)syscall(SYS_userfaultfd, 0), number);
	NEED(ioctl(number, UFFDIO_API, &api) == 0);
}

static void watch_by(int number, unsigned long place, unsigned long length, unsigned long mode)
{
	struct uffdio_register request = { .range = { place, length }, .mode = mode };
	NEED(ioctl(number, UFFDIO_REGISTER, &request) == 0);
}

static void watch_minor_faults(void)
{
	at(MINOR, 4 * PAGE, RW, MAP_SHARED, FILE_MINOR);
	((volatile char *)MINOR)[2 * PAGE] = 'c';
	watch_by(WATCHER, MINOR, 4 * PAGE, REGISTERS_MINOR);
}

/* Registers memory only for calls on the userfaultfd, because other calls on registered memory would wait for a
   handler. */
static void prepare_watched(const struct call *call)
{
	watch_by(WATCHER, WATCHED, 2 * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	watch_by(WATCHER, WATCHED + 2 * PAGE, 2 * PAGE, UFFDIO_REGISTER_MODE_WP);
	at(HALF, 2 * PAGE, RW, PRIVATE, -1);
	((volatile char *)HALF)[PAGE] = 'h';
	watch_by(WATCHER, HALF, 2 * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	watcher(WATCHER_OTHER, 0);
	at(OTHERS, 4 * PAGE, RW, PRIVATE, -1);
	watch_by(WATCHER_OTHER, OTHERS, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	if (call->words[1] == UFFDIO_CONTINUE)
		watch_minor_faults();
}

static void map_behind_end(void)
{
	int file = memfd_create("empty", 0);
	at(BEHIND, 4 * PAGE, RW, MAP_SHARED, file);
	close(file);
}

static void poison(void)
{
	at(POISONED, 4 * PAGE, RW, PRIVATE, -1);
	watch_by(WATCHER, POISONED, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	unsigned long request[4] = { POISONED, 4 * PAGE };
	NEED(ioctl(WATCHER, UFFDIO_POISON, request) == 0);
}

static void prepare_small_pages(void)
{
	at(SMALL_PAGES, HUGE_PAGE, RW, PRIVATE, -1);
	NEED(madvise((void *)SMALL_PAGES, HUGE_PAGE, MADV_NOHUGEPAGE) == 0);
	memset((void *)SMALL_PAGES, 7, HUGE_PAGE);
	NEED(madvise((void *)SMALL_PAGES, HUGE_PAGE, MADV_HUGEPAGE) == 0);
}

/* Creates the objects that the child does not inherit from the parent. */
static void prepare_child(const struct call *call)
{
	become((int)syscall(CALL_PIDFD_OPEN, getpid(), 0), OWN);
	watcher(WATCHER, 0);
	become((int)syscall(SYS_userfaultfd, 0), WATCHER_NEW);
	/* Makes the parent's pages exclusive to the child. */
	memset((void *)PAGES, 7, 4 * PAGE);
	if (call->number == SYS_ioctl)
		prepare_watched(call);
	if (call->words[0] == SMALL_PAGES)
		prepare_small_pages();
	if (is_on_huge_pages(call))
		prepare_huge_pages();
	NEED(mlock((void *)LOCKED, 4 * PAGE) == 0);
	NEED(syscall(CALL_MSEAL, SEALED, 4 * PAGE, 0) == 0);
	become(open("/proc/self/pagemap", O_RDONLY), PAGEMAP);
}

/* Causes a remove event, and waits in the kernel until the event is read, which never happens. */
static void *take_out(void *unused)
{
	(void)unused;
	madvise((void *)CHANGING, PAGE, MADV_DONTNEED);
	return NULL;
}

/* Puts the process into the state in which its layout is changing (mmap_changing), for as long as its thread waits. */
static void change_layout(void)
{
	at(CHANGING, 4 * PAGE, RW, PRIVATE, -1);
	watcher(WATCHER_CHANGING, EVENT_REMOVE);
	watch_by(WATCHER_CHANGING, CHANGING, 4 * PAGE, UFFDIO_REGISTER_MODE_MISSING);
	pthread_t thread;
	NEED(pthread_create(&thread, NULL, take_out, NULL) == 0);
	struct pollfd event = { .fd = WATCHER_CHANGING, .events = POLLIN };
	NEED(fcntl(WATCHER_CHANGING, F_SETFL, O_NONBLOCK) == 0);
	while (poll(&event, 1, -1) != 1 || !(event.revents & POLLIN))
		;
}

/* Creates a userfaultfd of a process that has exited: a child that shared the descriptors, but not the memory. */
static void outlive_watched(void)
{
	pid_t child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
	NEED(child >= 0);
	if (child == 0) {
		watcher(WATCHER_OF_DEAD, 0);
		_exit(0);
	}
	NEED(exited(wait_for(child), 0));
}

static void outlive_process(void)
{
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(0);
	become((int)syscall(CALL_PIDFD_OPEN, child, 0), DEAD_PROCESS);
	NEED(exited(wait_for(child), 0));
}

/* Creates the mapping or descriptor that `word`, a word of the call, names, if few calls use it. */
static void prepare_named(unsigned long word)
{
	switch (word) {
	case BEHIND:
		map_behind_end();
		break;
	case POISONED:
		poison();
		break;
	case WATCHER_CHANGING:
		change_layout();
		break;
	case WATCHER_OF_DEAD:
		outlive_watched();
		break;
	case DEAD_PROCESS:
		outlive_process();
		break;
	}
}

static void limit(int which, unsigned long value)
{
	struct rlimit limit = { value, which == RLIMIT_FSIZE ? RLIM_INFINITY : value };
	NEED(setrlimit(which, &limit) == 0);
}

/* Raises the limit on file sizes again, because it also applies to the program's output. */
static void lift_limit_of_files(void)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	setrlimit(RLIMIT_FSIZE, &limit);
}

static void give_up_niceness(void)
{
	struct {
		unsigned version;
		int process;
	} header = { 0x20080522, 0 };
	struct {
		unsigned effective, permitted, inheritable;
	} words[2];
	NEED(syscall(SYS_capget, &header, words) == 0);
	words[0].effective &= ~(1U << 23);
	NEED(syscall(SYS_capset, &header, words) == 0);
}

static void pin(void)
{
	struct iovec page = { (void *)(SMALL_PAGES + 5 * PAGE), PAGE };
	int ends[2];
	NEED(pipe(ends) == 0 && vmsplice(ends[1], &page, 1, 0) == (long)PAGE);
}

/* Capabilities are dropped last, because other changes of the state need some of them. Only the calling
 * thread drops them, because another thread may wait forever. */
static void enter_state(unsigned long state)
{
	change_controls(state);
	while (state & ALL_KEYS && syscall(SYS_pkey_alloc, 0, 0) >= 0)
		;
	if (state & PINNED)
		pin();
	if (state & LITTLE_GROUP)
		write_text(of_groups("little/cgroup.procs"), "0");
	if (state & (NO_LOCKING | LITTLE_LOCKING))
		limit(RLIMIT_MEMLOCK, state & NO_LOCKING ? 0 : PAGE);
	if (state & LITTLE_FILES) {
		signal(SIGXFSZ, SIG_IGN);
		limit(RLIMIT_FSIZE, PAGE);
	}
	if (state & LITTLE_ADDRESS_SPACE)
		limit(RLIMIT_AS, PAGE);
	if (state & NO_DESCRIPTORS)
		limit(RLIMIT_NOFILE, 0);
	if (state & NO_NICENESS)
		give_up_niceness();
	if (state & OTHER_USER)
		NEED(syscall(SYS_setresgid, 1000, 1000, 1000) == 0 && syscall(SYS_setresuid, 1000, 1000, 1000) == 0);
}

#endif
