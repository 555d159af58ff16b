/* Do record locks of fcntl work as on Linux: their order, merging and splitting, and the detection of deadlocks?
 */
#include "check.h"
#include <sched.h>

static struct flock range(int kind, off_t start, off_t length)
{
	struct flock lock = { .l_type = (short)kind, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
	return lock;
}

static int set(int file, int kind, off_t start, off_t length)
{
	struct flock lock = range(kind, start, length);
	return fcntl(file, F_SETLK, &lock);
}

static int wait_set(int file, int kind, off_t start, off_t length)
{
	struct flock lock = range(kind, start, length);
	return fcntl(file, F_SETLKW, &lock);
}

/* Checks which lock conflicts with a lock of everything from `start` on. */
static void expect(int file, off_t start, int kind, off_t first, off_t length, pid_t holder)
{
	struct flock lock = range(F_WRLCK, start, 0);
	CHECK_EQ(fcntl(file, F_GETLK, &lock), 0);
	CHECK_EQ(lock.l_type, kind);
	if (kind == F_UNLCK)
		return;
	CHECK_EQ(lock.l_start, first);
	CHECK_EQ(lock.l_len, length);
	CHECK_EQ(lock.l_pid, holder);
}

struct child {
	pid_t id;
	struct turns turns;
};

/* Creates a child that acquires its locks, reports that, and keeps the locks until the parent lets it exit. */
static struct child holder(int file, void (*take)(int))
{
	struct child child;
	NEED(turns_open(&child.turns));
	child.id = fork_checked();
	NEED(child.id >= 0);
	if (child.id == 0) {
		take(file);
		turn_pass(child.turns.to_parent);
		turn_await(child.turns.to_child);
		end_child();
	}
	NEED(turn_await(child.turns.to_parent));
	return child;
}

static void end(struct child *child)
{
	turn_pass(child->turns.to_child);
	CHECK(exited(wait_for(child->id), 0));
	turns_close(&child->turns);
}

static void high_first(int file)
{
	CHECK_EQ(set(file, F_WRLCK, 100, 10), 0);
	CHECK_EQ(set(file, F_WRLCK, 50, 10), 0);
}

static void low(int file)
{
	CHECK_EQ(set(file, F_WRLCK, 0, 10), 0);
}

/* F_GETLK returns the lowest conflicting lock of the process that locked first. */
static void order(int file)
{
	struct child first = holder(file, high_first), second = holder(file, low);
	expect(file, 0, F_WRLCK, 50, 10, first.id);
	expect(file, 60, F_WRLCK, 100, 10, first.id);
	end(&first);
	expect(file, 0, F_WRLCK, 0, 10, second.id);
	end(&second);
	expect(file, 0, F_UNLCK, 0, 0, 0);
}

static void parts(int file)
{
	CHECK_EQ(set(file, F_WRLCK, 0, 10), 0);
	CHECK_EQ(set(file, F_WRLCK, 20, 10), 0);
	CHECK_EQ(set(file, F_WRLCK, 10, 10), 0);
	CHECK_EQ(set(file, F_WRLCK, 30, 0), 0);
	CHECK_EQ(set(file, F_RDLCK, 40, 10), 0);
	CHECK_EQ(set(file, F_UNLCK, 60, 10), 0);
}

/* Adjacent locks of the same kind merge, and an unlock in the middle splits a lock. */
static void joined(int file)
{
	struct child child = holder(file, parts);
	expect(file, 0, F_WRLCK, 0, 40, child.id);
	expect(file, 40, F_RDLCK, 40, 10, child.id);
	expect(file, 50, F_WRLCK, 50, 10, child.id);
	expect(file, 60, F_WRLCK, 70, 0, child.id);
	CHECK_FAILS(set(file, F_RDLCK, 39, 1), EAGAIN);
	CHECK_EQ(set(file, F_RDLCK, 40, 10), 0);
	CHECK_EQ(set(file, F_WRLCK, 60, 10), 0);
	CHECK_EQ(set(file, F_UNLCK, 0, 0), 0);
	end(&child);
}

/* Each of `count` children holds the lock of its own byte and waits for the next byte, which the next child
 * holds. This process holds the last byte, and closes the cycle by a request for the first one. */
static void circle(int file, int count)
{
	struct turns turns[16];
	pid_t ids[16];
	for (int i = 0; i < count; i++) {
		NEED(turns_open(&turns[i]));
		ids[i] = fork_checked();
		NEED(ids[i] >= 0);
		if (ids[i] == 0) {
			CHECK_EQ(set(file, F_WRLCK, i, 1), 0);
			turn_pass(turns[i].to_parent);
			turn_await(turns[i].to_child);
			/* The process gets the lock after the next process has unlocked it. */
			CHECK_EQ(wait_set(file, F_WRLCK, i + 1, 1), 0);
			end_child();
		}
		NEED(turn_await(turns[i].to_parent));
	}
	CHECK_EQ(set(file, F_WRLCK, count, 1), 0);
	for (int i = 0; i < count; i++)
		turn_pass(turns[i].to_child);
	/* The cycle is complete only when all processes wait. */
	struct flock lock = range(F_WRLCK, 0, 1);
	int refused;
	do {
		usleep(20000);
		refused = 0;
		for (int i = 0; i < count; i++) {
			char path[64], text[64] = "";
			snprintf(path, sizeof path, "/proc/%d/stat", (int)ids[i]);
			int stat = open(path, O_RDONLY);
			NEED(stat >= 0 && read(stat, text, sizeof text - 1) > 0);
			close(stat);
			const char *state = strrchr(text, ')');
			refused += state && state[2] == 'S';
		}
	} while (refused < count);
	CHECK_FAILS(fcntl(file, F_SETLKW, &lock), EDEADLK);
	/* A request that does not wait fails with EAGAIN instead of EDEADLK. */
	CHECK_FAILS(set(file, F_WRLCK, 0, 1), EAGAIN);
	CHECK_EQ(set(file, F_UNLCK, 0, 0), 0);
	for (int i = 0; i < count; i++) {
		CHECK(exited(wait_for(ids[i]), 0));
		turns_close(&turns[i]);
	}
	expect(file, 0, F_UNLCK, 0, 0, 0);
}

/* One holder has many ranges. Each of them is found, and a lock of everything merges them. */
static void many(int file)
{
	for (off_t i = 0; i < 2000; i++)
		NEED(set(file, F_WRLCK, 2 * ((i * 7) % 2000), 1) == 0);
	pid_t parent = getpid(), child = fork_checked();
	if (child == 0) {
		expect(file, 0, F_WRLCK, 0, 1, parent);
		expect(file, 1999, F_WRLCK, 2000, 1, parent);
		CHECK_EQ(set(file, F_WRLCK, 1999, 1), 0);
		CHECK_FAILS(set(file, F_RDLCK, 1998, 2), EAGAIN);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(set(file, F_WRLCK, 0, 4000), 0);
	child = fork_checked();
	if (child == 0) {
		expect(file, 7, F_WRLCK, 0, 4000, parent);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(set(file, F_UNLCK, 0, 0), 0);
}

/* Waits until a process is asleep. */
static void asleep(pid_t process)
{
	char path[64], text[256], state = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", process);
	while (state != 'S') {
		int file = open(path, O_RDONLY);
		NEED(file >= 0);
		ssize_t length = read(file, text, sizeof text - 1);
		close(file);
		NEED(length > 0);
		text[length] = 0;
		char *name_end = strrchr(text, ')');
		NEED(name_end != NULL);
		state = name_end[2];
		sched_yield();
	}
}

/* Many processes wait for the same byte or for overlapping ranges. A writer has its range exclusively, and every
 * process gets its lock. */
static void crowd(int file, int kinds)
{
	enum { WAITERS = 60 };
	static volatile int *inside;
	pid_t waiters[WAITERS];
	inside = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(inside != MAP_FAILED);
	CHECK_EQ(set(file, F_WRLCK, 0, 100), 0);
	for (int number = 0; number < WAITERS; number++) {
		waiters[number] = fork_checked();
		NEED(waiters[number] >= 0);
		if (waiters[number] != 0)
			continue;
		int reads = kinds > 1 && number % 4 == 3, first = kinds > 2 ? number % 7 : 0;
		int length = kinds > 2 ? 3 : 1;
		CHECK_EQ(wait_set(file, reads ? F_RDLCK : F_WRLCK, first, length), 0);
		for (int byte = first; byte < first + length; byte++) {
			/* A reader adds one to the count, and a writer adds a thousand. */
			int all = __sync_add_and_fetch(&inside[byte], reads ? 1 : 1000);
			CHECK(reads ? all < 1000 : all == 1000);
		}
		sched_yield();
		for (int byte = first; byte < first + length; byte++)
			__sync_sub_and_fetch(&inside[byte], reads ? 1 : 1000);
		/* Some waiters unlock the range, and the others exit while they hold the lock. */
		if (number % 2)
			CHECK_EQ(set(file, F_UNLCK, 0, 0), 0);
		end_child();
	}
	for (int number = 0; number < WAITERS; number++)
		asleep(waiters[number]);
	/* A waiter that is killed without having the lock does not block others. */
	CHECK_EQ(kill(waiters[0], SIGKILL), 0);
	CHECK(killed(wait_for(waiters[0]), SIGKILL));
	CHECK_EQ(set(file, F_UNLCK, 0, 0), 0);
	for (int number = 1; number < WAITERS; number++)
		CHECK(exited(wait_for(waiters[number]), 0));
	munmap((void *)inside, PAGE);
}

static pid_t first_heir(int file, struct turns *turns)
{
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		CHECK_EQ(wait_set(file, F_WRLCK, 0, 1), 0);
		turn_pass(turns->to_parent);
		turn_await(turns->to_child);
		/* The second child holds byte 1 and waits for byte 0, which the parent held before and this
		 * child holds now. */
		CHECK_FAILS(wait_set(file, F_WRLCK, 1, 1), EDEADLK);
		end_child();
	}
	asleep(child);
	return child;
}

/* A lock gets another holder while processes wait for it. They then wait for the new holder. */
static void handed_on(int file)
{
	struct turns turns;
	NEED(turns_open(&turns));
	CHECK_EQ(set(file, F_WRLCK, 0, 1), 0);
	pid_t first = first_heir(file, &turns);
	pid_t second = fork_checked();
	NEED(second >= 0);
	if (second == 0) {
		CHECK_EQ(set(file, F_WRLCK, 1, 1), 0);
		CHECK_EQ(wait_set(file, F_WRLCK, 0, 1), 0);
		end_child();
	}
	asleep(second);
	CHECK_EQ(set(file, F_UNLCK, 0, 1), 0);
	NEED(turn_await(turns.to_parent));
	asleep(second);
	turn_pass(turns.to_child);
	CHECK(exited(wait_for(first), 0));
	CHECK(exited(wait_for(second), 0));
	turns_close(&turns);
}

int main(void)
{
	int file = scratch_file(0);
	NEED(file >= 0);
	order(file);
	joined(file);
	circle(file, 1);
	circle(file, 2);
	circle(file, 9);
	many(file);
	for (int kinds = 1; kinds <= 3; kinds++)
		crowd(file, kinds);
	handed_on(file);
	return checked("record_locks");
}
