/* Does a thread that waits for a futex wake when Linux wakes it, and at no other time?
 *
 * Covers every operation of futex except priority-inheritance locks: errors, timeouts by every clock, signals and
 * stops, bit masks, requeueing, wake-and-operate, words that are shared over fork and by two mappings, and robust
 * locks whose owner dies.
 */
#include "check.h"
#include <stddef.h>
#include <time.h>

/* From include/uapi/linux/futex.h, which older kernel headers lack. */
enum {
	FUTEX_WAIT,
	FUTEX_WAKE,
	FUTEX_FD,
	FUTEX_REQUEUE,
	FUTEX_CMP_REQUEUE,
	FUTEX_WAKE_OP,
	FUTEX_WAIT_BITSET = 9,
	FUTEX_WAKE_BITSET,
	FUTEX_PRIVATE_FLAG = 128,
	FUTEX_CLOCK_REALTIME = 256,
	FUTEX_WAIT_PRIVATE = FUTEX_WAIT | FUTEX_PRIVATE_FLAG,
	FUTEX_WAKE_PRIVATE = FUTEX_WAKE | FUTEX_PRIVATE_FLAG,
	FUTEX_WAKE_OP_PRIVATE = FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG,
	FUTEX_WAIT_BITSET_PRIVATE = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
};
enum { FUTEX_OP_SET, FUTEX_OP_ADD, FUTEX_OP_OR, FUTEX_OP_ANDN, FUTEX_OP_XOR, FUTEX_OP_OPARG_SHIFT = 8 };
enum { FUTEX_OP_CMP_EQ, FUTEX_OP_CMP_NE, FUTEX_OP_CMP_LT, FUTEX_OP_CMP_LE, FUTEX_OP_CMP_GT, FUTEX_OP_CMP_GE };
#define FUTEX_OP(op, operand, cmp, against) \
	((uint32_t)(op) << 28 | (uint32_t)(cmp) << 24 | ((operand)&0xfffu) << 12 | ((against)&0xfffu))
#define FUTEX_WAITERS 0x80000000u
#define FUTEX_OWNER_DIED 0x40000000u

struct robust_list {
	struct robust_list *next;
};

struct robust_list_head {
	struct robust_list list;
	long futex_offset;
	struct robust_list *list_op_pending;
};

enum { WAITERS = 6 };

/* The memory that parents and children share. */
struct shared {
	uint32_t word, other, third;
	uint32_t arrived;
	uint32_t results[WAITERS];
	int errors[WAITERS];
};

static struct shared *shared;

static long futex(volatile void *address, int operation, uint32_t value, const void *timeout, volatile void *second,
		  uint32_t third)
{
	return syscall(SYS_futex, address, operation, value, timeout, second, third);
}

/* Converts a number to the fourth argument, which is a pointer for the other operations. */
static const void *number(unsigned long value)
{
	return (const void *)value;
}

static uint64_t now(clockid_t clock)
{
	struct timespec time;
	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static struct timespec at(uint64_t nanoseconds)
{
	return (struct timespec){ (time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000) };
}

static void rest(void)
{
	struct timespec time = { 0, 200000 };
	nanosleep(&time, NULL);
}

/* Returns the state letter of a process in /proc, or '?' if it cannot be read. */
static char state_of(pid_t process)
{
	char name[64], line[512];
	snprintf(name, sizeof name, "/proc/%d/stat", process);
	int file = open(name, O_RDONLY);
	if (file < 0)
		return '?';
	ssize_t length = read(file, line, sizeof line - 1);
	close(file);
	if (length <= 0)
		return '?';
	line[length] = 0;
	char *end = strrchr(line, ')');
	return end ? end[2] : '?';
}

/* Starts a child that calls `work` with its index. */
static pid_t started(void (*work)(int), int index)
{
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		work(index);
		end_child();
	}
	return child;
}

/* Waits until `count` children have started and sleep. */
static void settled(const pid_t *children, int count)
{
	while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < (uint32_t)count)
		rest();
	for (int i = 0; i < count; i++) {
		while (state_of(children[i]) != 'S')
			rest();
	}
}

static void arrive(void)
{
	__atomic_fetch_add(&shared->arrived, 1, __ATOMIC_SEQ_CST);
}

static void begin(void)
{
	memset(shared, 0, sizeof *shared);
}

static void refusals(void)
{
	uint32_t *words = (uint32_t *)anonymous(2 * PAGE);
	NEED(words != NULL);
	char *gone = anonymous(PAGE);
	NEED(gone != NULL && munmap(gone, PAGE) == 0);
	char *middle = (char *)words + 2;
	struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 }, none = { 0, 0 };

	CHECK_FAILS(futex(middle, FUTEX_WAIT, 0, &none, NULL, 0), EINVAL);
	CHECK_FAILS(futex(middle, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_CMP_REQUEUE, 1, number(1), middle, 0), EINVAL);
	CHECK_FAILS(futex(gone, FUTEX_WAIT, 0, &none, NULL, 0), EFAULT);
	CHECK_FAILS(futex(gone, FUTEX_WAIT_PRIVATE, 0, &none, NULL, 0), EFAULT);
	CHECK_FAILS(futex(gone, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	/* FUTEX_WAKE with a private word succeeds whether or not the word is mapped. */
	CHECK_EQ(futex(gone, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
	CHECK_FAILS(futex((void *)-4096L, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), EFAULT);
	CHECK_FAILS(futex(words, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
	CHECK_FAILS(futex(words, FUTEX_WAIT_PRIVATE, 1, &none, NULL, 0), EAGAIN);
	CHECK_FAILS(futex(words, FUTEX_WAIT, 0, &bad, NULL, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_WAIT, 0, &negative, NULL, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_WAIT, 0, gone, NULL, 0), EFAULT);
	CHECK_FAILS(futex(words, FUTEX_WAIT_BITSET, 0, &none, NULL, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0), ENOSYS);
	CHECK_FAILS(futex(words, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 0, NULL, NULL, 0), ENOSYS);
	CHECK_FAILS(futex(words, FUTEX_FD, 1, NULL, NULL, 0), ENOSYS);
	CHECK_FAILS(futex(words, 100, 1, NULL, NULL, 0), ENOSYS);
	CHECK_FAILS(futex(words, FUTEX_REQUEUE, (uint32_t)-1, number(1), words + 1, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_REQUEUE, 1, number((uint32_t)-1), words + 1, 0), EINVAL);
	CHECK_FAILS(futex(words, FUTEX_CMP_REQUEUE, 1, number(1), words + 1, 7), EAGAIN);
	CHECK_FAILS(futex(words, FUTEX_REQUEUE, 1, number(1), gone, 0), EFAULT);
	CHECK_FAILS(futex(words, FUTEX_WAKE_OP, 1, number(1), gone, 0), EFAULT);
	/* An invalid operation changes nothing. An invalid comparison is detected only after the operation was
	 * executed. */
	CHECK_FAILS(futex(words, FUTEX_WAKE_OP, 1, number(1), words + 1, 5u << 28), ENOSYS);
	CHECK_EQ(words[1], 0);
	CHECK_FAILS(futex(words, FUTEX_WAKE_OP, 1, number(1), words + 1, 9u << 24 | 3 << 12), ENOSYS);
	CHECK_EQ(words[1], 3);
	/* A read-only word cannot be changed by the operation. */
	CHECK_EQ(mprotect(words, PAGE, PROT_READ), 0);
	CHECK_FAILS(futex(words, FUTEX_WAKE_OP, 1, number(1), words + 1, 0), EFAULT);
	CHECK_FAILS(futex(words, FUTEX_WAKE_OP_PRIVATE, 1, number(1), words + 1, 0), EFAULT);
	CHECK_FAILS(futex(words, FUTEX_WAKE, 1, NULL, NULL, 0), EFAULT);
	CHECK_FAILS(futex(words, FUTEX_WAIT_PRIVATE, 0, &none, NULL, 0), ETIMEDOUT);
	CHECK_EQ(mprotect(words, PAGE, PROT_NONE), 0);
	CHECK_FAILS(futex(words, FUTEX_WAIT_PRIVATE, 0, &none, NULL, 0), EFAULT);
	munmap(words, 2 * PAGE);
}

static void timeouts(void)
{
	enum { LENGTH = 3000000 };
	uint32_t *word = (uint32_t *)anonymous(PAGE);
	NEED(word != NULL);
	struct timespec length = at(LENGTH);
	/* The page is not populated when the kernel compares the word. */
	uint64_t start = now(CLOCK_MONOTONIC);
	CHECK_FAILS(futex(word, FUTEX_WAIT_PRIVATE, 0, &length, NULL, 0), ETIMEDOUT);
	CHECK(now(CLOCK_MONOTONIC) - start >= LENGTH);
	start = now(CLOCK_MONOTONIC);
	struct timespec end = at(start + LENGTH);
	CHECK_FAILS(futex(word, FUTEX_WAIT_BITSET, 0, &end, NULL, 1), ETIMEDOUT);
	CHECK(now(CLOCK_MONOTONIC) - start >= LENGTH);
	start = now(CLOCK_REALTIME);
	end = at(start + LENGTH);
	CHECK_FAILS(futex(word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &end, NULL, 1), ETIMEDOUT);
	CHECK(now(CLOCK_REALTIME) - start >= LENGTH);
	/* The timeout is in the past, but the value is compared first. */
	end = at(1);
	CHECK_FAILS(futex(word, FUTEX_WAIT_BITSET, 0, &end, NULL, 1), ETIMEDOUT);
	CHECK_FAILS(futex(word, FUTEX_WAIT_BITSET, 1, &end, NULL, 1), EAGAIN);
	CHECK_FAILS(futex(word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &end, NULL, 1), ETIMEDOUT);
	/* No thread is left in the wait queue. */
	CHECK_EQ(futex(word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0), 0);
	CHECK_EQ(futex(word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0), 0);
	munmap(word, PAGE);
}

static void wait_plainly(int index)
{
	arrive();
	shared->results[index] = 100 + (uint32_t)futex(&shared->word, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void wait_with_bit(int index)
{
	arrive();
	shared->results[index] = 100 + (uint32_t)futex(&shared->word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 1u << index);
}

static void wait_privately(int index)
{
	arrive();
	shared->results[index] = 100 + (uint32_t)futex(&shared->word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void wait_for_other(int index)
{
	arrive();
	shared->results[index] = 100 + (uint32_t)futex(&shared->other, FUTEX_WAIT, 0, NULL, NULL, 0);
}

/* Starts `count` children one after another, so that they wait in that order. */
static void line_up(void (*work)(int), pid_t *children, int count)
{
	uint32_t before = shared->arrived;
	for (int i = 0; i < count; i++) {
		children[i] = started(work, i);
		while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < before + (uint32_t)i + 1 ||
		       state_of(children[i]) != 'S')
			rest();
	}
}

static void all_end(const pid_t *children, int count)
{
	for (int i = 0; i < count; i++)
		CHECK(exited(wait_for(children[i]), 0));
}

static void over_fork(void)
{
	pid_t children[WAITERS];
	begin();
	line_up(wait_plainly, children, WAITERS);
	CHECK_EQ(futex(&shared->other, FUTEX_WAKE, WAITERS, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE_PRIVATE, WAITERS, NULL, NULL, 0), 0);
	/* Waiters are woken in FIFO order. A count of 0 wakes one. */
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, 1, NULL, NULL, 0), 1);
	CHECK(exited(wait_for(children[0]), 0));
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, 0, NULL, NULL, 0), 1);
	CHECK(exited(wait_for(children[1]), 0));
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, 2, NULL, NULL, 0), 2);
	CHECK(exited(wait_for(children[2]), 0));
	CHECK(exited(wait_for(children[3]), 0));
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0), WAITERS - 4);
	all_end(children + 4, WAITERS - 4);
	for (int i = 0; i < WAITERS; i++)
		CHECK_EQ(shared->results[i], 100);

	/* Other processes do not wake a private wait. */
	begin();
	line_up(wait_privately, children, 1);
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0), 0);
	CHECK_EQ(kill(children[0], SIGKILL), 0);
	CHECK(killed(wait_for(children[0]), SIGKILL));
	/* A killed waiter is not in the queue any more. */
	begin();
	line_up(wait_plainly, children, 2);
	CHECK_EQ(kill(children[0], SIGKILL), 0);
	CHECK(killed(wait_for(children[0]), SIGKILL));
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, 2, NULL, NULL, 0), 1);
	all_end(children + 1, 1);
}

static void with_bits(void)
{
	pid_t children[4];
	begin();
	line_up(wait_with_bit, children, 4);
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE_BITSET, 4, NULL, NULL, 1u << 30), 0);
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE_BITSET, 4, NULL, NULL, 1u << 2), 1);
	CHECK(exited(wait_for(children[2]), 0));
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 1u << 1 | 1u << 3), 1);
	CHECK(exited(wait_for(children[1]), 0));
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, 4, NULL, NULL, 0), 2);
	CHECK(exited(wait_for(children[0]), 0));
	CHECK(exited(wait_for(children[3]), 0));
}

static void requeued(void)
{
	pid_t children[WAITERS];
	begin();
	line_up(wait_plainly, children, WAITERS);
	CHECK_FAILS(futex(&shared->word, FUTEX_CMP_REQUEUE, 1, number(2), &shared->other, 1), EAGAIN);
	/* One waiter is woken, two are requeued. */
	CHECK_EQ(futex(&shared->word, FUTEX_CMP_REQUEUE, 1, number(2), &shared->other, 0), 3);
	CHECK(exited(wait_for(children[0]), 0));
	CHECK_EQ(futex(&shared->other, FUTEX_WAKE, 1, NULL, NULL, 0), 1);
	CHECK(exited(wait_for(children[1]), 0));
	/* No waiter is woken. All are requeued, after those that were requeued before. */
	CHECK_EQ(futex(&shared->word, FUTEX_REQUEUE, 0, number(INT32_MAX), &shared->other, 0), 3);
	CHECK_EQ(futex(&shared->word, FUTEX_WAKE, WAITERS, NULL, NULL, 0), 0);
	CHECK_EQ(futex(&shared->other, FUTEX_WAKE, 1, NULL, NULL, 0), 1);
	CHECK(exited(wait_for(children[2]), 0));
	/* A requeue to the same word changes nothing. */
	CHECK_EQ(futex(&shared->other, FUTEX_REQUEUE, 0, number(INT32_MAX), &shared->other, 0), 3);
	/* A requeued waiter that was killed is not in the queue any more. */
	CHECK_EQ(kill(children[3], SIGKILL), 0);
	CHECK(killed(wait_for(children[3]), SIGKILL));
	CHECK_EQ(futex(&shared->other, FUTEX_WAKE, WAITERS, NULL, NULL, 0), 2);
	all_end(children + 4, 2);
}

static void operated(void)
{
	static const struct {
		uint32_t before, operation, after;
		int second;
	} cases[] = {
		{ 5, FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_EQ, 5), 9, 1 },
		{ 5, FUTEX_OP(FUTEX_OP_SET, 9, FUTEX_OP_CMP_EQ, 6), 9, 0 },
		{ 5, FUTEX_OP(FUTEX_OP_ADD, 2047, FUTEX_OP_CMP_NE, 6), 2052, 1 },
		{ 5, FUTEX_OP(FUTEX_OP_ADD, -1, FUTEX_OP_CMP_NE, 5), 4, 0 },
		{ 5, FUTEX_OP(FUTEX_OP_OR, 2, FUTEX_OP_CMP_LT, 6), 7, 1 },
		{ 5, FUTEX_OP(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_LE, 5), 4, 1 },
		{ 5, FUTEX_OP(FUTEX_OP_XOR, 6, FUTEX_OP_CMP_GT, 5), 3, 0 },
		{ 5, FUTEX_OP(FUTEX_OP_XOR, 6, FUTEX_OP_CMP_GE, 5), 3, 1 },
		{ 0xffffffff, FUTEX_OP(FUTEX_OP_ADD, 1, FUTEX_OP_CMP_LT, 0), 0, 1 },
		{ 0, FUTEX_OP(FUTEX_OP_OR | FUTEX_OP_OPARG_SHIFT, 31, FUTEX_OP_CMP_EQ, 0), 0x80000000, 1 },
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		pid_t children[2];
		begin();
		shared->other = cases[i].before;
		line_up(wait_plainly, children, 1);
		/* The second operation waits whatever the value of its word is. */
		shared->other = 0;
		line_up(wait_for_other, children + 1, 1);
		shared->other = cases[i].before;
		long woken = futex(&shared->word, FUTEX_WAKE_OP, 1, number(1), &shared->other, cases[i].operation);
		CHECK_EQ(woken, 1 + cases[i].second);
		CHECK_EQ(shared->other, cases[i].after);
		CHECK(exited(wait_for(children[0]), 0));
		if (!cases[i].second)
			CHECK_EQ(futex(&shared->other, FUTEX_WAKE, 1, NULL, NULL, 0), 1);
		CHECK(exited(wait_for(children[1]), 0));
	}
	/* The operation succeeds on a page that is not populated, and on one that is shared with a child. */
	uint32_t *words = (uint32_t *)anonymous(PAGE);
	NEED(words != NULL);
	uint32_t plus_7 = FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_EQ, 0);
	CHECK_EQ(futex(words, FUTEX_WAKE_OP_PRIVATE, 1, number(1), words + 1, plus_7), 0);
	CHECK_EQ(words[1], 7);
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK_EQ(futex(words, FUTEX_WAKE_OP, 1, number(1), words + 1, plus_7), 0);
		CHECK_EQ(words[1], 14);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(words[1], 7);
	munmap(words, PAGE);
}

/* Two mappings of a file at different addresses contain the same futexes. */
static void two_mappings(void)
{
	int file = scratch_file(3 * PAGE);
	NEED(file >= 0);
	uint32_t *all = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	uint32_t *last = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 2 * PAGE);
	uint32_t *readable = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 2 * PAGE);
	NEED(all != MAP_FAILED && last != MAP_FAILED && readable != MAP_FAILED);
	uint32_t *word = all + 2 * PAGE / 4 + 5;
	for (int round = 0; round < 2; round++) {
		begin();
		pid_t child = fork_checked();
		if (child == 0) {
			arrive();
			CHECK_EQ(futex(word, FUTEX_WAIT, 0, NULL, NULL, 0), 0);
			end_child();
		}
		settled(&child, 1);
		CHECK_EQ(futex(all + 5, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
		CHECK_EQ(futex(last + 4, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
		CHECK_EQ(futex((round ? readable : last) + 5, FUTEX_WAKE, 1, NULL, NULL, 0), 1);
		CHECK(exited(wait_for(child), 0));
	}
	munmap(all, 3 * PAGE);
	munmap(last, PAGE);
	munmap(readable, PAGE);
	close(file);
}

static volatile int handled;

static void on_signal(int signal)
{
	(void)signal;
	handled++;
}

static void handle(int flags)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
	sigaction(SIGUSR1, &action, NULL);
	handled = 0;
}

static void wait_interrupted(int restart)
{
	handle(restart ? SA_RESTART : 0);
	arrive();
	long result = futex(&shared->word, FUTEX_WAIT, 0, NULL, NULL, 0);
	CHECK_EQ(handled, 1);
	if (restart) {
		/* The call was restarted, and compares the value again. */
		CHECK(result == 0 || (result == -1 && errno == EAGAIN));
	} else {
		CHECK_EQ(result, -1);
		CHECK_EQ(errno, EINTR);
	}
}

static void wait_long(int restart)
{
	handle(restart ? SA_RESTART : 0);
	struct timespec hour = { 3600, 0 };
	arrive();
	/* With a timeout, a signal handler always ends the wait. */
	CHECK_FAILS(futex(&shared->word, FUTEX_WAIT, 0, &hour, NULL, 0), EINTR);
	CHECK_EQ(handled, 1);
}

static void wait_over_stop(int relative)
{
	uint64_t start = now(CLOCK_MONOTONIC), length = 20000000;
	struct timespec timeout = at(relative ? length : start + length);
	arrive();
	int operation = relative ? FUTEX_WAIT : FUTEX_WAIT_BITSET;
	CHECK_FAILS(futex(&shared->word, operation, 0, &timeout, NULL, 1), ETIMEDOUT);
	uint64_t passed = now(CLOCK_MONOTONIC) - start;
	CHECK(passed >= length);
}

static void signals(void)
{
	for (int flag = 0; flag < 2; flag++) {
		begin();
		pid_t child = started(wait_interrupted, flag);
		settled(&child, 1);
		CHECK_EQ(kill(child, SIGUSR1), 0);
		if (flag) {
			rest();
			settled(&child, 1);
			__atomic_store_n(&shared->word, 1, __ATOMIC_SEQ_CST);
			futex(&shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
		}
		CHECK(exited(wait_for(child), 0));
		begin();
		child = started(wait_long, flag);
		settled(&child, 1);
		CHECK_EQ(kill(child, SIGUSR1), 0);
		CHECK(exited(wait_for(child), 0));
		/* A process that is stopped and continued waits until the same time. */
		begin();
		child = started(wait_over_stop, flag);
		settled(&child, 1);
		CHECK_EQ(kill(child, SIGSTOP), 0);
		int status;
		CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
		CHECK(WIFSTOPPED(status));
		CHECK_EQ(kill(child, SIGCONT), 0);
		CHECK(exited(wait_for(child), 0));
	}
}

/* A lock in the robust list of an owner that exits. */
struct lock {
	struct robust_list list;
	uint32_t word;
	uint32_t pad;
};

struct locks {
	struct robust_list_head head;
	struct lock lock[4];
};

static struct locks *locks;

enum { NORMAL, PENDING, UNLOCKED_PENDING, CIRCLE, CUT, MISALIGNED, KINDS };

/* Builds a list with four locks, of which this process holds all except the third, and exits. */
static void hold(int kind)
{
	struct robust_list_head *head = &locks->head;
	uint32_t me = (uint32_t)syscall(SYS_gettid);
	head->futex_offset = offsetof(struct lock, word);
	head->list_op_pending = NULL;
	head->list.next = &locks->lock[0].list;
	for (int i = 0; i < 4; i++) {
		locks->lock[i].list.next = i == 3 ? &head->list : &locks->lock[i + 1].list;
		locks->lock[i].word = i == 2 ? 1 | FUTEX_WAITERS : me | (i == 1 ? FUTEX_WAITERS : 0);
	}
	switch (kind) {
	case PENDING:
		/* The last lock is being added: this process holds it, but the list does not contain it yet. */
		locks->lock[2].list.next = &head->list;
		head->list_op_pending = &locks->lock[3].list;
		break;
	case UNLOCKED_PENDING:
		/* The second lock was just unlocked, but its waiter has not been woken yet. */
		locks->lock[0].list.next = &locks->lock[2].list;
		locks->lock[1].word = 0;
		head->list_op_pending = &locks->lock[1].list;
		break;
	case CIRCLE:
		locks->lock[3].list.next = &locks->lock[0].list;
		break;
	case CUT:
		locks->lock[1].list.next = (struct robust_list *)8;
		break;
	case MISALIGNED:
		head->futex_offset += 2;
		break;
	default:
		break;
	}
	NEED(syscall(SYS_set_robust_list, head, sizeof *head) == 0);
	struct robust_list_head *seen = NULL;
	size_t length = 0;
	CHECK_EQ(syscall(SYS_get_robust_list, 0, &seen, &length), 0);
	CHECK(seen == head && length == sizeof *head);
	shared->third = me;
	arrive();
	while (__atomic_load_n(&shared->other, __ATOMIC_SEQ_CST) == 0)
		rest();
	if (shared->other == 2)
		kill(getpid(), SIGKILL);
}

/* Waits for the second lock until its owner has exited. */
static void wait_for_owner(int kind)
{
	uint32_t seen = __atomic_load_n(&locks->lock[1].word, __ATOMIC_SEQ_CST);
	struct timespec hour = { 3600, 0 };
	arrive();
	long result = futex(&locks->lock[1].word, FUTEX_WAIT, seen, &hour, NULL, 0);
	CHECK_EQ(result, 0);
	uint32_t after = __atomic_load_n(&locks->lock[1].word, __ATOMIC_SEQ_CST);
	CHECK_EQ(after, kind == UNLOCKED_PENDING ? 0 : (FUTEX_WAITERS | FUTEX_OWNER_DIED));
}

static void owner_died(int kind, int how)
{
	begin();
	memset(locks, 0, sizeof *locks);
	pid_t owner = started(hold, kind);
	settled(&owner, 1);
	uint32_t id = shared->third;
	int waits = kind == NORMAL || kind == PENDING || kind == UNLOCKED_PENDING || kind == CIRCLE || kind == CUT;
	pid_t waiter = 0;
	if (waits) {
		waiter = started(wait_for_owner, kind);
		while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < 2 || state_of(waiter) != 'S')
			rest();
	}
	__atomic_store_n(&shared->other, (uint32_t)how, __ATOMIC_SEQ_CST);
	int status = wait_for(owner);
	CHECK(how == 2 ? killed(status, SIGKILL) : exited(status, 0));
	if (waits)
		CHECK(exited(wait_for(waiter), 0));
	int untouched = kind == MISALIGNED;
	CHECK_EQ(locks->lock[0].word, untouched ? id : FUTEX_OWNER_DIED);
	if (kind != UNLOCKED_PENDING)
		CHECK_EQ(locks->lock[1].word, FUTEX_WAITERS | (untouched ? id : FUTEX_OWNER_DIED));
	CHECK_EQ(locks->lock[2].word, 1 | FUTEX_WAITERS);
	CHECK_EQ(locks->lock[3].word, untouched || kind == CUT ? id : FUTEX_OWNER_DIED);
}

static void exec_with_locks(void)
{
	begin();
	memset(locks, 0, sizeof *locks);
	pid_t child = fork_checked();
	if (child == 0) {
		shared->other = 1;
		hold(NORMAL);
		char *const words[] = { "futexes", "nothing", NULL };
		execv("/proc/self/exe", words);
		_exit(99);
	}
	CHECK(exited(wait_for(child), 7));
	CHECK_EQ(locks->lock[0].word, FUTEX_OWNER_DIED);
	CHECK_EQ(locks->lock[3].word, FUTEX_OWNER_DIED);
}

static void robust(void)
{
	for (int kind = 0; kind < KINDS; kind++) {
		owner_died(kind, 1);
		owner_died(kind, 2);
	}
	exec_with_locks();
	struct robust_list_head *seen;
	size_t length;
	CHECK_FAILS(syscall(SYS_set_robust_list, &locks->head, 8), EINVAL);
	CHECK_FAILS(syscall(SYS_get_robust_list, 0x7ffffff, &seen, &length), ESRCH);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "nothing") == 0)
		return 7;
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	locks = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED && locks != MAP_FAILED);
	refusals();
	timeouts();
	over_fork();
	with_bits();
	requeued();
	operated();
	two_mappings();
	signals();
	robust();
	return checked("futexes");
}
