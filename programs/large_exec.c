/* How many bytes of arguments and environment can a program receive?
 *
 * The limit is a quarter of the stack limit and at most six megabytes, including the pointers; the limit of one
 * string is 128 KiB. The program executes itself. Within the limits, it finds every byte on its stack and in /proc;
 * with one more byte, execve fails with E2BIG.
 */
#include "check.h"

enum { STRING_MOST = 128 << 10, ALL_MOST = 6 << 20 };

static const char SELF[] = "/proc/self/exe";
static char bytes[ALL_MOST + STRING_MOST];
static char *strings[400000];
static char contents[ALL_MOST + STRING_MOST];

/* Checks that a file contains exactly these bytes. */
static void file_is(const char *path, const char *wanted, size_t length)
{
	size_t all = 0;
	long count = 0;
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	while (all < sizeof contents && (count = read(file, contents + all, sizeof contents - all)) > 0)
		all += (size_t)count;
	close(file);
	CHECK_EQ(count, 0);
	CHECK_EQ(all, length);
	CHECK(all == length && memcmp(contents, wanted, length) == 0);
}

/* Returns the length of a list of adjacent strings including their NULs, or -1 if a string has unexpected bytes. */
static long list_length(char **list)
{
	char *at = list[0];
	for (long number = 0; list[number]; number++) {
		size_t length = strlen(list[number]);
		if (list[number] != at || (number > 0 && length > 0 && at[length - 1] != 'a' + number % 26))
			return -1;
		at += length + 1;
	}
	return list[0] ? at - list[0] : 0;
}

/* Runs in the executed program and checks its arguments and environment. */
static int executed(char **arguments, char **environment)
{
	long length = list_length(arguments);
	CHECK(length > 0);
	file_is("/proc/self/cmdline", arguments[0], (size_t)length);
	if (environment[0]) {
		length = list_length(environment);
		CHECK(length > 0);
		file_is("/proc/self/environ", environment[0], (size_t)length);
	}
	return checks_failed ? 1 : 0;
}

/* Creates `count` strings of `length` bytes including their NULs. The first string is the executed program's
 * instruction. */
static void make_strings(long count, size_t length)
{
	char *at = bytes;
	for (long number = 0; number < count; number++) {
		memset(at, number == 0 ? 'x' : 'a' + (int)(number % 26), length - 1);
		at[length - 1] = 0;
		strings[number] = at;
		at += length;
	}
	strings[count] = NULL;
}

/* Executes this program in a child. Returns 0 if the program exited with 0, and otherwise the errno of execve or -1. */
static int outcome(char **arguments, char **environment)
{
	int result[2], error = 0;
	NEED(pipe(result) == 0);
	fcntl(result[1], F_SETFD, FD_CLOEXEC);
	pid_t child = fork_checked();
	if (child == 0) {
		execve(SELF, arguments, environment);
		error = errno;
		_exit(write(result[1], &error, sizeof error) == sizeof error ? 0 : 98);
	}
	close(result[1]);
	long count = read(result[0], &error, sizeof error);
	close(result[0]);
	int status = wait_for(child);
	if (count == sizeof error)
		return error;
	return exited(status, 0) ? 0 : -1;
}

static char *nothing[] = { NULL };

/* Checks that strings and pointers with exactly `room` bytes are accepted, and that one more byte is not. */
static void fills(size_t room)
{
	/* The path counts toward the limit too. */
	size_t left = room - sizeof SELF;
	long count = (long)(left / 100008);
	make_strings(count, 100000);
	left -= (size_t)count * 100008;
	/* The last string fills the remaining bytes. */
	char *last = bytes + count * 100000L;
	memset(last, 'a' + (int)(count % 26), left - 9);
	last[left - 9] = 0;
	strings[count] = last;
	strings[count + 1] = NULL;
	CHECK_EQ(outcome(strings, nothing), 0);
	last[left - 9] = 'a' + (char)(count % 26);
	last[left - 8] = 0;
	CHECK_EQ(outcome(strings, nothing), E2BIG);
}

static void set_stack(rlim_t bytes_of_stack)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_STACK, &limit) == 0);
	limit.rlim_cur = bytes_of_stack;
	NEED(setrlimit(RLIMIT_STACK, &limit) == 0);
}

int main(int count, char **arguments, char **environment)
{
	if (count > 0 && arguments[0][0] == 'x')
		return executed(arguments, environment);
	set_stack(8 << 20);
	make_strings(10, 100000);
	CHECK_EQ(outcome(strings, nothing), 0);
	make_strings(26, 100000);
	CHECK_EQ(outcome(strings, nothing), E2BIG);
	fills(2 << 20);
	set_stack(64 << 20);
	CHECK_EQ(outcome(strings, nothing), 0);
	fills(ALL_MOST);
	/* Pointers count in the same way as strings: 300,000 strings of 10 bytes take 5.4 MB, and 400,000 would take
	 * 7.2 MB. */
	make_strings(300000, 10);
	CHECK_EQ(outcome(strings, nothing), 0);
	make_strings(399999, 10);
	CHECK_EQ(outcome(strings, nothing), E2BIG);
	/* Arguments and environment share the limit. */
	make_strings(50, 50000);
	char *argument[] = { strings[0], NULL };
	CHECK_EQ(outcome(argument, strings), 0);
	CHECK_EQ(outcome(strings, strings), 0);
	make_strings(63, 50000);
	CHECK_EQ(outcome(strings, strings), E2BIG);
	/* The limit for a single string. */
	make_strings(2, STRING_MOST);
	CHECK_EQ(outcome(strings, nothing), 0);
	make_strings(2, STRING_MOST + 1);
	CHECK_EQ(outcome(strings, nothing), E2BIG);
	/* A small amount always fits. */
	set_stack(256 << 10);
	make_strings(2, 60000);
	CHECK_EQ(outcome(strings, nothing), 0);
	make_strings(2, 66000);
	CHECK_EQ(outcome(strings, nothing), E2BIG);
	return checked("large_exec");
}
