/* Can sixteen threads use a C library without affecting one another?
 *
 * In each round every thread locks a mutex, passes a turn to the next thread with condition variables, reads and
 * writes under a reader-writer lock, executes a pthread_once initialisation, uses thread-local data, and maps,
 * writes, protects and unmaps private memory. Sometimes it cancels a thread. Usage: `pthreads ROUNDS OFFSET`, where
 * the offset shifts the threads relative to one another. The threads' common result is compared with that of a
 * single thread.
 */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#ifdef __GLIBC__
#include <unwind.h>
/* Cancelling a thread unwinds its stack with a library that is otherwise loaded only then. Linking it makes it always
 * available. */
void *volatile unwinder = (void *)_Unwind_GetIP;
#endif

enum { THREADS = 16, PAGES = 5, CANCEL_EVERY = 8 };

static unsigned long rounds = 40, offset = 1;
static pthread_barrier_t barrier;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t turn_came[THREADS];
static pthread_key_t key;
static pthread_once_t once;
static __thread unsigned long own_data;

static unsigned turn;
static uint64_t sum, passed_on, first_half, second_half;
static unsigned long once_calls, destroyed, cleaned, cancelled;
static unsigned long wrong;

static void note(int bad)
{
	if (bad)
		__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static uint64_t mix(uint64_t value)
{
	value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
	return value ^ value >> 29;
}

static uint64_t share_of(unsigned index, unsigned long round)
{
	return mix(round * THREADS + index + 1);
}

/* Executes a number of instructions that differs between threads and offsets. */
static void shift(unsigned index)
{
	for (volatile unsigned long i = index * offset * 37 % 1009; i > 0; i--)
		;
}

static void on_once(void)
{
	once_calls++;
}

static void on_destroy(void *value)
{
	note(value == NULL);
	__atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
}

/* Uses memory that no other thread accesses. */
static void use_memory(unsigned index, unsigned long round)
{
	uint32_t *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		note(1);
		return;
	}
	const size_t words = PAGE / sizeof *memory;
	uint32_t pattern = (uint32_t)share_of(index, round);
	for (size_t page = 0; page < PAGES; page++) {
		note(memory[page * words] != 0);
		memory[page * words] = pattern + (uint32_t)page;
		memory[(page + 1) * words - 1] = ~pattern;
	}
	note(mprotect(memory + words, 3 * PAGE, PROT_READ) != 0);
	sched_yield();
	for (size_t page = 0; page < PAGES; page++)
		note(memory[page * words] != pattern + (uint32_t)page || memory[(page + 1) * words - 1] != ~pattern);
	note(mprotect(memory + words, 3 * PAGE, PROT_READ | PROT_WRITE) != 0);
	memory[2 * words] = index;
	note(munmap(memory + words, PAGE) != 0);
	note(memory[2 * words] != index || memory[3 * words] != pattern + 3);
	note(madvise(memory + 3 * words, PAGE, MADV_DONTNEED) != 0);
	note(memory[3 * words] != 0);
	note(munmap(memory, PAGES * PAGE) != 0);
}

static void clean_up(void *argument)
{
	(void)argument;
	__atomic_fetch_add(&cleaned, 1, __ATOMIC_RELAXED);
}

enum { PAUSE, CONDITION, TEST, KINDS };

/* Waits at a cancellation point: in a sleep, for a condition that is never signalled, or in pthread_testcancel. */
static void *wait_forever(void *argument)
{
	pthread_cond_t never = PTHREAD_COND_INITIALIZER;
	pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
	unsigned long kind = (unsigned long)argument;
	pthread_cleanup_push(clean_up, NULL);
	pthread_mutex_lock(&held);
	for (;;) {
		if (kind == PAUSE) {
			pause();
		} else if (kind == CONDITION) {
			pthread_cond_wait(&never, &held);
		} else {
			pthread_testcancel();
			sched_yield();
		}
	}
	pthread_cleanup_pop(0);
	return NULL;
}

/* Creates a thread and cancels it, while it waits or before it starts. */
static void cancel_one(unsigned index, unsigned long round)
{
	pthread_t thread;
	void *result = NULL;
	unsigned long kind = (index + round / CANCEL_EVERY) % KINDS;
	if (pthread_create(&thread, NULL, wait_forever, (void *)kind) != 0) {
		note(1);
		return;
	}
	if (index % 2)
		sched_yield();
	note(pthread_cancel(thread) != 0);
	note(pthread_join(thread, &result) != 0);
	note(result != PTHREAD_CANCELED);
	__atomic_fetch_add(&cancelled, 1, __ATOMIC_RELAXED);
}

static void one_round(unsigned index, unsigned long round)
{
	shift(index);
	own_data += share_of(index, round);
	uint64_t *kept = pthread_getspecific(key);
	*kept += share_of(index, round);

	pthread_mutex_lock(&mutex);
	sum += share_of(index, round);
	pthread_mutex_unlock(&mutex);

	use_memory(index, round);
	note(pthread_once(&once, on_once) != 0);

	if (index % 4 == round % 4) {
		pthread_rwlock_wrlock(&lock);
		first_half += share_of(index, round);
		shift(index);
		second_half -= share_of(index, round);
		pthread_rwlock_unlock(&lock);
	} else {
		pthread_rwlock_rdlock(&lock);
		note(first_half + second_half != 0);
		pthread_rwlock_unlock(&lock);
	}

	pthread_mutex_lock(&mutex);
	while (turn != index)
		pthread_cond_wait(&turn_came[index], &mutex);
	passed_on = mix(passed_on + index);
	turn = (turn + 1) % THREADS;
	pthread_cond_signal(&turn_came[turn]);
	pthread_mutex_unlock(&mutex);

	if ((round + index) % CANCEL_EVERY == 0)
		cancel_one(index, round);
	note(own_data != *kept);
}

static void *body(void *argument)
{
	unsigned index = (unsigned)(unsigned long)argument;
	uint64_t kept = 0;
	note(pthread_setspecific(key, &kept) != 0);
	for (unsigned long round = 0; round < rounds; round++) {
		int serial = pthread_barrier_wait(&barrier);
		note(serial != 0 && serial != PTHREAD_BARRIER_SERIAL_THREAD);
		one_round(index, round);
		/* No thread uses `once` between the two barriers. */
		if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			once = (pthread_once_t)PTHREAD_ONCE_INIT;
	}
	return (void *)kept;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = strtoul(argv[1], NULL, 0);
	if (argc > 2)
		offset = strtoul(argv[2], NULL, 0);
	NEED(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
	NEED(pthread_key_create(&key, on_destroy) == 0);
	once = (pthread_once_t)PTHREAD_ONCE_INIT;
	pthread_t threads[THREADS];
	for (unsigned i = 0; i < THREADS; i++)
		pthread_cond_init(&turn_came[i], NULL);
	for (unsigned long i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, body, (void *)i) == 0);
	uint64_t total = 0, expected_total = 0, expected_passed = 0;
	unsigned long expected_cancelled = 0;
	for (unsigned i = 0; i < THREADS; i++) {
		void *own = NULL;
		CHECK_EQ(pthread_join(threads[i], &own), 0);
		total += (uint64_t)own;
	}
	for (unsigned long round = 0; round < rounds; round++) {
		for (unsigned i = 0; i < THREADS; i++) {
			expected_total += share_of(i, round);
			expected_passed = mix(expected_passed + i);
			expected_cancelled += (round + i) % CANCEL_EVERY == 0;
		}
	}
	CHECK_EQ(wrong, 0);
	CHECK_EQ(sum, expected_total);
	CHECK_EQ(total, expected_total);
	CHECK_EQ(passed_on, expected_passed);
	CHECK_EQ(first_half + second_half, 0);
	CHECK_EQ(once_calls, rounds);
	CHECK_EQ(destroyed, THREADS);
	CHECK_EQ(cancelled, expected_cancelled);
	CHECK(cleaned <= cancelled);
	return checked("pthreads");
}
