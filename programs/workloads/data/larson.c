/* Replaces blocks at random, as in the benchmark of Larson and Krishnan (Memory Allocation for Long-Running Server
 * Applications, 1998), with one thread at a time.
 *
 * Each round is a thread, which gets the blocks of the thread before it: a block is often freed by another thread than
 * the one that allocated it. The sizes and the order follow from a fixed seed, and the checksum of what the blocks
 * contain is the same with every allocator.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5000, ROUNDS = 12, REPLACEMENTS = 200000, SMALLEST = 8, LARGEST = 1000 };

static struct {
	unsigned char *bytes;
	size_t size;
} blocks[BLOCKS];
static uint64_t random_state = 88172645463325252, checksum;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	return random_state ^= random_state << 17;
}

/* Frees a block, and adds what it contains to the checksum. */
static void release(size_t index)
{
	uint64_t first;

	memcpy(&first, blocks[index].bytes, sizeof first);
	checksum = checksum * 31 + (first ^ blocks[index].bytes[blocks[index].size - 1]);
	free(blocks[index].bytes);
}

/* Allocates a block of a random size, and writes its beginning and its end. */
static void acquire(size_t index)
{
	uint64_t first = next_random();
	size_t size = SMALLEST + first % (LARGEST - SMALLEST + 1);
	unsigned char *bytes = malloc(size);

	if (!bytes)
		exit(1);
	memcpy(bytes, &first, sizeof first);
	bytes[size - 1] = (unsigned char)index;
	blocks[index].bytes = bytes;
	blocks[index].size = size;
}

static void *replace(void *unused)
{
	for (int count = 0; count < REPLACEMENTS; count++) {
		size_t index = next_random() % BLOCKS;
		release(index);
		acquire(index);
	}
	return unused;
}

int main(void)
{
	for (size_t index = 0; index < BLOCKS; index++)
		acquire(index);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, replace, NULL) != 0 || pthread_join(thread, NULL) != 0)
			return 1;
	}
	for (size_t index = 0; index < BLOCKS; index++)
		release(index);
	printf("%d blocks replaced, checksum %016llx\n", ROUNDS * REPLACEMENTS, (unsigned long long)checksum);
	return 0;
}
