/* If there is no memory for another thread, does the call fail with an error, and is everything freed afterwards?
 *
 * Threads are created until a creation fails, because of a limit on the address space or, with `threadbomb memory`,
 * because of the machine's memory (for a small machine only). The existing threads must then still run, exit and be
 * joined, and the next round must create about as many threads as the first.
 */
#include "check.h"
#include <pthread.h>

enum { MOST = 40000, STACK = 64 * 1024, ROUNDS = 3 };

static pthread_t threads[MOST];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int started, released;

static void *body(void *argument)
{
	pthread_mutex_lock(&mutex);
	started++;
	pthread_cond_broadcast(&changed);
	while (!released)
		pthread_cond_wait(&changed, &mutex);
	pthread_mutex_unlock(&mutex);
	return (char *)argument + 1;
}

static int explode(void)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	NEED(pthread_attr_setstacksize(&attributes, STACK) == 0);
	started = released = 0;
	int count = 0, error = 0;
	while (count < MOST) {
		error = pthread_create(&threads[count], &attributes, body, (void *)(uintptr_t)count);
		if (error != 0)
			break;
		count++;
	}
	/* Both errors report a lack of resources; which of them is returned depends on the resource. */
	CHECK(error == EAGAIN || error == ENOMEM);
	pthread_mutex_lock(&mutex);
	while (started < count)
		pthread_cond_wait(&changed, &mutex);
	released = 1;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&mutex);
	int wrong = 0;
	for (int i = 0; i < count; i++) {
		void *result = NULL;
		wrong += pthread_join(threads[i], &result) != 0 || result != (char *)(uintptr_t)i + 1;
	}
	CHECK_EQ(wrong, 0);
	return count;
}

int main(int argc, char **argv)
{
	if (argc < 2 || strcmp(argv[1], "memory") != 0) {
		struct rlimit limit = { 48 << 20, 48 << 20 };
		NEED(setrlimit(RLIMIT_AS, &limit) == 0);
	}
	int first = explode();
	CHECK(first > 50);
	for (int round = 1; round < ROUNDS; round++) {
		int count = explode();
		/* A C library keeps some stacks for later threads, so the numbers can differ. */
		CHECK(count > first - first / 8 && count < first + first / 8);
	}
	return checked("threadbomb");
}
