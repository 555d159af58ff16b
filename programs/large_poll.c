/* Can a program wait for as many descriptors as it can open?
 *
 * poll accepts RLIMIT_NOFILE entries, and fails with EINVAL for one more. A million entries contain the descriptor
 * of a pipe, one that is not open, or a negative number, and each must get the right result. select accepts sets
 * with as many descriptors.
 */
#include "check.h"
#include <poll.h>
#include <sys/select.h>

enum { WANTED = 1000000, FEW = 20000 };

static struct pollfd entries[WANTED + 1];
/* The limit, and the number of entries in use. */
static long limit_is, most;
static int ends[2];

static void on_alarm(int signal)
{
	(void)signal;
}

/* In every fourth entry the number is negative, and in every fourth the descriptor is not open. */
static int descriptor_of(long entry)
{
	return entry % 4 == 1 ? -2 : entry % 4 == 3 ? 900 : ends[0];
}

static void fill(int (*descriptor)(long))
{
	for (long entry = 0; entry < most; entry++)
		entries[entry] = (struct pollfd){ .fd = descriptor(entry), .events = POLLIN, .revents = 0x55 };
}

static int the_pipe(long entry)
{
	(void)entry;
	return ends[0];
}

/* Returns the number of entries whose result is wrong. */
static long wrong(short of_pipe)
{
	long count = 0;
	for (long entry = 0; entry < most; entry++) {
		int descriptor = entries[entry].fd;
		short found = descriptor < 0 ? 0 : descriptor == 900 ? POLLNVAL : of_pipe;
		count += entries[entry].revents != found;
	}
	return count;
}

static void one_more_than_the_limit_is_refused(void)
{
	struct rlimit limit;
	NEED(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = 1024;
	NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	most = 1025;
	fill(the_pipe);
	CHECK_EQ(poll(entries, 1024, 0), 0);
	CHECK_FAILS(poll(entries, 1025, 0), EINVAL);
	/* On Linux, fs.nr_open allows 1,048,576 at most. A program without privileges cannot raise its limit. */
	struct rlimit raised = { .rlim_cur = WANTED, .rlim_max = limit.rlim_max > WANTED ? limit.rlim_max : WANTED };
	if (setrlimit(RLIMIT_NOFILE, &raised) != 0) {
		raised.rlim_max = raised.rlim_cur = limit.rlim_max;
		NEED(setrlimit(RLIMIT_NOFILE, &raised) == 0);
	}
	limit_is = (long)raised.rlim_cur;
	CHECK_FAILS(poll(entries, (nfds_t)limit_is + 1, 0), EINVAL);
}

static void each_entry_is_answered_for(void)
{
	char byte = 'x';
	most = FEW;
	fill(the_pipe);
	CHECK_EQ(poll(entries, (nfds_t)most, 0), 0);
	CHECK_EQ(wrong(0), 0);
	CHECK_EQ(write(ends[1], &byte, 1), 1);
	CHECK_EQ(poll(entries, (nfds_t)most, -1), most);
	CHECK_EQ(wrong(POLLIN), 0);
	most = limit_is / 4 * 4;
	fill(descriptor_of);
	CHECK_EQ(poll(entries, (nfds_t)most, -1), most / 4 * 3);
	CHECK_EQ(wrong(POLLIN), 0);
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	most = FEW;
	CHECK_EQ(poll(entries, (nfds_t)most, -1), most / 4);
	CHECK_EQ(wrong(0), 0);
}

/* A wait with the maximum number of entries ends when an entry becomes ready, and another one ends when a signal
 * arrives. */
static void a_wait_ends(void)
{
	char byte = 'x';
	most = limit_is;
	fill(the_pipe);
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(20000);
		CHECK_EQ(write(ends[1], &byte, 1), 1);
		end_child();
	}
	CHECK_EQ(poll(entries, (nfds_t)most, -1), most);
	CHECK_EQ(wrong(POLLIN), 0);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(read(ends[0], &byte, 1), 1);

	struct sigaction action = { .sa_handler = on_alarm };
	NEED(sigaction(SIGALRM, &action, NULL) == 0);
	most = FEW;
	fill(the_pipe);
	ualarm(20000, 0);
	CHECK_FAILS(poll(entries, (nfds_t)most, -1), EINTR);
	CHECK_EQ(wrong(0), 0);
}

/* The descriptor with the highest possible number works as any other. */
static void the_last_descriptor_works(void)
{
	char byte = 'x';
	most = limit_is;
	int last = (int)most - 1;
	CHECK_EQ(dup2(ends[0], last), last);
	CHECK_FAILS(dup2(ends[0], (int)most), EBADF);
	CHECK_EQ(write(ends[1], &byte, 1), 1);
	struct pollfd entry = { .fd = last, .events = POLLIN };
	CHECK_EQ(poll(&entry, 1, 0), 1);

	size_t words = (size_t)most / 64 + 1;
	unsigned long *set = calloc(words, sizeof *set), *before = calloc(words, sizeof *set);
	NEED(set != NULL && before != NULL);
	before[last / 64] |= 1UL << (last % 64);
	before[ends[0] / 64] |= 1UL << (ends[0] % 64);
	memcpy(set, before, words * sizeof *set);
	CHECK_EQ(select((int)most, (fd_set *)set, NULL, NULL, NULL), 2);
	CHECK(memcmp(set, before, words * sizeof *set) == 0);
	free(set);
	free(before);

	/* A child inherits the descriptor. */
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK_EQ(read(last, &byte, 1), 1);
		CHECK_EQ(close(last), 0);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(poll(&entry, 1, 0), 0);
	CHECK_EQ(close(last), 0);
}

int main(void)
{
	NEED(pipe(ends) == 0);
	one_more_than_the_limit_is_refused();
	each_entry_is_answered_for();
	a_wait_ends();
	the_last_descriptor_works();
	return checked("large_poll");
}
