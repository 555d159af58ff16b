/* Definitions that the programs in this folder share: checks, and children that make checks.
 *
 * Each program answers one question. It prints only failed checks and one final line, and exits with 0 if and only if
 * no check failed. The same program must pass on Linux, which is the reference.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL

/* Not every C library's headers contain these; the values are from include/uapi/asm-generic/mman-common.h, mman.h and
 * linux/mman.h. */
#ifndef MADV_FREE
#define MADV_FREE 8
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#define MADV_KEEPONFORK 19
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

static int checks_made, checks_failed;

/* Checks the condition. If it is false, prints the line number, the condition and errno, and continues. */
#define CHECK(condition) check_that(!!(condition), __FILE__, __LINE__, #condition)

/* Checks that two integers are equal. If they are not, prints both. */
#define CHECK_EQ(seen, wanted) \
	check_equal((long long)(seen), (long long)(wanted), __FILE__, __LINE__, #seen, #wanted)

/* Checks that the call fails with this errno. */
#define CHECK_FAILS(call, error)                                                                            \
	do {                                                                                                \
		errno = 0;                                                                                  \
		long long check_result = (long long)(call);                                                 \
		check_failure(check_result, errno, (error), __FILE__, __LINE__, #call, #error);             \
	} while (0)

/* Checks a condition that all later checks require. If it is false, prints the line number and exits. */
#define NEED(condition)                                                                 \
	do {                                                                            \
		if (!CHECK(condition)) {                                                \
			fflush(stdout);                                                 \
			_exit(99);                                                      \
		}                                                                       \
	} while (0)

static inline int check_that(int holds, const char *file, int line, const char *text)
{
	checks_made++;
	if (!holds) {
		checks_failed++;
		printf("%s:%d: not so: %s (errno %d, %s)\n", file, line, text, errno, strerror(errno));
		fflush(stdout);
	}
	return holds;
}

static inline int check_equal(long long seen, long long wanted, const char *file, int line, const char *seen_text,
			      const char *wanted_text)
{
	checks_made++;
	if (seen != wanted) {
		checks_failed++;
		printf("%s:%d: %s is %lld (0x%llx), not %s = %lld (0x%llx)\n", file, line, seen_text, seen, seen,
		       wanted_text, wanted, wanted);
		fflush(stdout);
	}
	return seen == wanted;
}

static inline int check_failure(long long result, int seen, int wanted, const char *file, int line, const char *text,
				const char *wanted_text)
{
	checks_made++;
	int holds = result == -1 && seen == wanted;
	if (!holds) {
		checks_failed++;
		printf("%s:%d: %s gave %lld, errno %d (%s), not %s\n", file, line, text, result, seen, strerror(seen),
		       wanted_text);
		fflush(stdout);
	}
	return holds;
}

/* Prints the final line. Returns the exit code of main. */
static inline int checked(const char *name)
{
	printf("%s: %d checks, %d failed\n", name, checks_made, checks_failed);
	fflush(stdout);
	return checks_failed ? 1 : 0;
}

/* Exits from a child, with 0 if and only if none of its own checks failed. Failed checks of the parent do not count. */
static inline _Noreturn void end_child(void)
{
	fflush(stdout);
	_exit(checks_failed ? 1 : 0);
}

/* Forks. The child's number of failed checks starts at 0. */
static inline pid_t fork_checked(void)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		checks_failed = 0;
	return child;
}

/* Reads a file in pieces of `piece` bytes. The text is valid until the next call. */
static inline char *read_pieces(const char *path, size_t piece)
{
	static char text[1 << 20];
	size_t length = 0;
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	for (;;) {
		ssize_t count = read(file, text + length, piece);
		NEED(count >= 0);
		if (count == 0)
			break;
		length += count;
		NEED(length + piece < sizeof text);
	}
	text[length] = 0;
	close(file);
	return text;
}

/* Returns the number in the row "name ... number" of a file, or -1 if there is no such row. */
static inline long row_in(const char *path, const char *name)
{
	char line[512];
	FILE *file = fopen(path, "r");
	NEED(file != NULL);
	long value = -1;
	size_t length = strlen(name);
	while (value < 0 && fgets(line, sizeof line, file))
		if (strncmp(line, name, length) == 0 && strchr(": \t", line[length]))
			value = strtol(line + length + 1, NULL, 10);
	fclose(file);
	return value;
}

/* Returns the number at the beginning of a file. */
static inline long number_of(const char *path)
{
	char text[64] = "";
	int file = open(path, O_RDONLY);
	NEED(file >= 0 && read(file, text, sizeof text - 1) > 0);
	close(file);
	return atol(text);
}

/* Returns the path of a name in a folder. The text is valid until the eighth call after this one. */
static inline const char *path_in(const char *folder, const char *name)
{
	static char paths[8][256];
	static int next;
	char *path = paths[next++ % 8];
	snprintf(path, sizeof paths[0], "%s/%s", folder, name);
	return path;
}

/* Waits for a child and returns its wait status. */
static inline int wait_for(pid_t child)
{
	int status = -1;
	pid_t got;
	do
		got = waitpid(child, &status, 0);
	while (got < 0 && errno == EINTR);
	return got == child ? status : -1;
}

/* Runs a function in a child and returns the child's wait status. */
static inline int in_child(void (*work)(void *), void *argument)
{
	pid_t child = fork_checked();
	if (child < 0)
		return -1;
	if (child == 0) {
		work(argument);
		end_child();
	}
	return wait_for(child);
}

/* Returns whether the process exited with this code. */
static inline int exited(int status, int code)
{
	return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

/* Returns whether the process was killed by this signal. */
static inline int killed(int status, int signal)
{
	return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

/* Returns private anonymous memory, readable and writable. */
static inline char *anonymous(size_t length)
{
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return memory == MAP_FAILED ? NULL : memory;
}

/* Returns a descriptor of an unnamed file in /tmp with this length. */
static inline int scratch_file(size_t length)
{
	char name[] = "/tmp/scratch-XXXXXX";
	int file = mkstemp(name);
	if (file >= 0) {
		unlink(name);
		if (ftruncate(file, (off_t)length) != 0) {
			close(file);
			return -1;
		}
	}
	return file;
}

/* Returns the number of minor and major faults that this process has taken. */
static inline long faults_taken(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt + usage.ru_majflt;
}

/* Pipes over which a parent and its child take turns. */
struct turns {
	int to_child[2], to_parent[2];
};

static inline int turns_open(struct turns *turns)
{
	return pipe(turns->to_child) == 0 && pipe(turns->to_parent) == 0;
}

static inline void turns_close(struct turns *turns)
{
	close(turns->to_child[0]);
	close(turns->to_child[1]);
	close(turns->to_parent[0]);
	close(turns->to_parent[1]);
}

static inline int turn_pass(int pipe_end[2])
{
	return write(pipe_end[1], "x", 1) == 1;
}

static inline int turn_await(int pipe_end[2])
{
	char byte;
	return read(pipe_end[0], &byte, 1) == 1;
}

#endif
