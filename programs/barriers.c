/* Does membarrier order the memory accesses of other threads that execute no barrier themselves?
 *
 * One thread repeatedly stores to one word and loads another, without a barrier in between. A second thread stores
 * to the other word and loads the first, with membarrier in between. If neither load returns the other thread's
 * store, membarrier did not order the accesses. Usage: `barriers ROUNDS`.
 */
#include "check.h"
#include <pthread.h>
#include <sched.h>

/* From include/uapi/linux/membarrier.h, which older kernel headers lack. */
enum {
	QUERY = 0,
	GLOBAL = 1,
	GLOBAL_EXPEDITED = 2,
	REGISTER_GLOBAL_EXPEDITED = 4,
	PRIVATE_EXPEDITED = 8,
	REGISTER_PRIVATE_EXPEDITED = 16,
	GET_REGISTRATIONS = 512,
};

static long membarrier(int command, unsigned flags)
{
	return syscall(SYS_membarrier, command, flags, 0);
}

/* Each word is in a separate cache line. */
static struct {
	volatile uint64_t word;
	uint64_t pad[15];
} fast_word, slow_word, fast_saw, round_begun, round_ended;

static void *store_and_load(void *argument)
{
	uint64_t rounds = (uint64_t)(uintptr_t)argument;
	for (uint64_t round = 1; round <= rounds; round++) {
		for (unsigned spins = 0; round_begun.word != round; spins++) {
			__builtin_ia32_pause();
			if (spins % 100 == 99)
				sched_yield();
		}
		fast_word.word = round;
		__asm__ volatile("" : : : "memory");
		fast_saw.word = slow_word.word;
		round_ended.word = round;
	}
	return NULL;
}

static void order(int command, uint64_t rounds)
{
	pthread_t thread;
	fast_word.word = slow_word.word = round_begun.word = round_ended.word = 0;
	NEED(pthread_create(&thread, NULL, store_and_load, (void *)(uintptr_t)rounds) == 0);
	uint64_t both_missed = 0;
	for (uint64_t round = 1; round <= rounds; round++) {
		round_begun.word = round;
		for (volatile uint64_t i = round * 7 % 50; i > 0; i--)
			;
		slow_word.word = round;
		__asm__ volatile("" : : : "memory");
		if (membarrier(command, 0) != 0)
			both_missed += 1000000;
		uint64_t seen = fast_word.word;
		for (unsigned spins = 0; round_ended.word != round; spins++) {
			__builtin_ia32_pause();
			if (spins % 100 == 99)
				sched_yield();
		}
		both_missed += seen != round && fast_saw.word != round;
	}
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(both_missed, 0);
}

static void registrations(void)
{
	long commands = membarrier(QUERY, 0);
	NEED(commands > 0);
	long needed = GLOBAL | GLOBAL_EXPEDITED | REGISTER_GLOBAL_EXPEDITED | PRIVATE_EXPEDITED |
		      REGISTER_PRIVATE_EXPEDITED;
	CHECK_EQ(commands & needed, needed);
	CHECK_FAILS(membarrier(QUERY, 1), EINVAL);
	CHECK_FAILS(membarrier(PRIVATE_EXPEDITED, 1), EINVAL);
	CHECK_FAILS(membarrier(GLOBAL | PRIVATE_EXPEDITED, 0), EINVAL);
	CHECK_FAILS(membarrier(1 << 20, 0), EINVAL);
	CHECK_FAILS(membarrier(PRIVATE_EXPEDITED, 0), EPERM);
	CHECK_EQ(membarrier(GLOBAL_EXPEDITED, 0), 0);
	CHECK_EQ(membarrier(GLOBAL, 0), 0);
	CHECK_EQ(membarrier(GET_REGISTRATIONS, 0), 0);
	CHECK_EQ(membarrier(REGISTER_PRIVATE_EXPEDITED, 0), 0);
	CHECK_EQ(membarrier(REGISTER_PRIVATE_EXPEDITED, 0), 0);
	CHECK_EQ(membarrier(GET_REGISTRATIONS, 0), REGISTER_PRIVATE_EXPEDITED);
	CHECK_EQ(membarrier(PRIVATE_EXPEDITED, 0), 0);
	pid_t child = fork_checked();
	if (child == 0) {
		CHECK_EQ(membarrier(PRIVATE_EXPEDITED, 0), 0);
		char *const words[] = { "barriers", "executed", NULL };
		execv("/proc/self/exe", words);
		_exit(99);
	}
	CHECK(exited(wait_for(child), 7));
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "executed") == 0)
		return membarrier(PRIVATE_EXPEDITED, 0) == -1 && errno == EPERM ? 7 : 8;
	uint64_t rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 2000;
	registrations();
	order(PRIVATE_EXPEDITED, rounds);
	order(GLOBAL_EXPEDITED, rounds / 10);
	return checked("barriers");
}
