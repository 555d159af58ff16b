/* How many bytes of kernel memory does each thing take that a program creates?
 *
 * Free memory before and after, divided by the number of things. The pages that the program itself touched
 * are subtracted. A kernel may have free pages in lists of each CPU, which do not count as free, so the
 * program creates as many things before the first measurement. A kernel may also keep what was freed for the
 * next thing of the kind, so each kind has a run of its own.
 *
 * Usage: metadata KIND
 */
#include "experiment.h"

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>

enum { AREAS = 30000, TABLES = 10000, PAGES = 50000, PROCESSES = 300, THREADS = 1000, FILES = 20000, PIPES = 8000 };

static long long free_bytes(void)
{
	struct sysinfo info;
	MUST(sysinfo(&info) == 0);
	return (long long)info.freeram * info.mem_unit;
}

static char *mapped(size_t size)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
	MUST(memory != MAP_FAILED);
	return memory;
}

/* A kind of thing. */
struct kind {
	const char *word, *name;
	unsigned long count;
	/* Creates the things, and returns the bytes that they hold for the program. */
	unsigned long (*create)(unsigned long count);
};

static unsigned long create_areas(unsigned long count)
{
	/* Every second page has different permissions. */
	char *memory = mapped(count * PAGE);
	for (unsigned long i = 0; i < count; i += 2)
		MUST(mprotect(memory + i * PAGE, PAGE, PROT_READ) == 0);
	return 0;
}

static unsigned long create_tables(unsigned long count)
{
	char *memory = mapped(count * 2 * MIB);
	madvise(memory, count * 2 * MIB, MADV_NOHUGEPAGE);
	for (unsigned long i = 0; i < count; i++)
		memory[i * 2 * MIB] = 1;
	return count * PAGE;
}

/* The pipe to which each new process or thread writes a byte before it waits. */
static int started[2];

static void wait_for_start(void)
{
	char byte;
	MUST(read(started[0], &byte, 1) == 1);
}

static unsigned long create_processes(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++) {
		pid_t child = fork();
		MUST(child >= 0);
		if (child == 0) {
			MUST(write(started[1], "", 1) == 1);
			for (;;)
				pause();
		}
		wait_for_start();
	}
	return 0;
}

static int sleep_as_thread(void *unused)
{
	(void)unused;
	MUST(write(started[1], "", 1) == 1);
	for (;;)
		pause();
}

static unsigned long create_threads(unsigned long count)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
	for (unsigned long i = 0; i < count; i++) {
		static char *stacks;
		if (i % 64 == 0)
			stacks = mapped(64 * 2 * PAGE);
		MUST(clone(sleep_as_thread, stacks + (i % 64 + 1) * 2 * PAGE, flags, NULL) > 0);
		wait_for_start();
	}
	/* Each thread has populated one page of its stack. */
	return count * PAGE;
}

static unsigned long create_open_files(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++)
		MUST(open("/dev/null", O_RDONLY) >= 0);
	return 0;
}

static unsigned long create_descriptors(unsigned long count)
{
	for (unsigned long i = 0; i < count; i++)
		MUST(dup(0) >= 0);
	return 0;
}

static unsigned long create_pipes(unsigned long count)
{
	int ends[2];
	for (unsigned long i = 0; i < count; i++)
		MUST(pipe(ends) == 0);
	return 0;
}

static unsigned long create_sockets(unsigned long count)
{
	int ends[2];
	for (unsigned long i = 0; i < count; i++)
		MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	return 0;
}

static unsigned long create_watched(unsigned long count)
{
	int set = epoll_create1(0);
	for (unsigned long i = 0; i < count; i++) {
		struct epoll_event event = { .events = EPOLLIN };
		int file = eventfd(0, 0);
		MUST(file >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, file, &event) == 0);
	}
	return 0;
}

static unsigned long create_files(unsigned long count)
{
	static unsigned long number;
	char name[48];
	for (unsigned long i = 0; i < count; i++) {
		snprintf(name, sizeof name, "/tmp/metadata-%lu", number++);
		MUST(close(open(name, O_CREAT | O_RDWR, 0600)) == 0);
	}
	return 0;
}

static unsigned long create_shared_pages(unsigned long count)
{
	int file = memfd_create("metadata", 0);
	MUST(file >= 0 && ftruncate(file, count * PAGE) == 0);
	static char page[PAGE];
	page[0] = 1;
	for (unsigned long i = 0; i < count; i++)
		MUST(write(file, page, PAGE) == (ssize_t)PAGE);
	return count * PAGE;
}

static unsigned long create_file_areas(unsigned long count)
{
	int file = memfd_create("metadata", 0);
	MUST(file >= 0 && ftruncate(file, 2 * count * PAGE) == 0);
	/* In an order in which no two of them merge. */
	for (unsigned long i = count; i-- > 0;)
		MUST(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 2 * i * PAGE) != MAP_FAILED);
	return 0;
}

static const struct kind kinds[] = {
	{ "area", "area of private memory", AREAS, create_areas },
	{ "file-area", "area of a file", AREAS, create_file_areas },
	{ "table", "page table", TABLES, create_tables },
	{ "shared-page", "page of shared memory, without the page", PAGES, create_shared_pages },
	{ "process", "process, forked", PROCESSES, create_processes },
	{ "thread", "thread", THREADS, create_threads },
	{ "descriptor", "descriptor", FILES, create_descriptors },
	{ "open-file", "open file, with its descriptor", FILES, create_open_files },
	{ "pipe", "pipe, empty", PIPES, create_pipes },
	{ "sockets", "pair of sockets", PIPES, create_sockets },
	{ "watched", "eventfd in an epoll", FILES, create_watched },
	{ "file", "file in a tmpfs, empty", FILES, create_files },
};

int main(int count, char **arguments)
{
	const struct kind *kind = NULL;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (count == 2 && strcmp(arguments[1], kinds[i].word) == 0)
			kind = &kinds[i];
	if (!kind) {
		fprintf(stderr, "usage: metadata KIND\n");
		return 2;
	}
	struct rlimit limit = { 2 * FILES + 100, 2 * FILES + 100 };
	MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	MUST(pipe(started) == 0);
	unsigned long own = kind->create(kind->count);
	/* Memory that the kernel frees with a delay is free after this sleep. */
	sleep(2);
	long long before = free_bytes();
	own = kind->create(kind->count);
	sleep(2);
	long long after = free_bytes();
	record_value(kind->name, "kernel memory", "bytes", (double)(before - after - (long long)own) / kind->count);
	print_records();
	fflush(stdout);
	/* Terminates the waiting processes. */
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	return 0;
}
