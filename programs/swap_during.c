/* If memory is scarce while pages are shared, filled and collapsed, is every byte right?
 *
 * A process that uses most of the machine's memory runs throughout. At the same time, a process forks and both
 * processes write (fork), a userfaultfd handler fills memory for which other threads wait (UFFDIO_COPY), and small
 * pages are collapsed into huge ones (MADV_COLLAPSE). Each checks every byte that it wrote. Needs a swap device,
 * because each part uses more memory than the machine has.
 *
 * Usage: swap_during [MEBIBYTES_EACH]
 */
#include "userfault.h"

#include <pthread.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define MIB (1UL << 20)
#define HUGE_SIZE (2 * MIB)
/* The value of UFFDIO_COPY_MODE_WP. */
#define COPY_PROTECTED 2

static void stamp(char *page, unsigned long number, unsigned long age)
{
	unsigned long *words = (unsigned long *)page;
	for (int i = 0; i < 512; i += 16)
		words[i] = number * 1000003 + age;
}

static int is_stamped(const char *page, unsigned long number, unsigned long age)
{
	const unsigned long *words = (const unsigned long *)page;
	for (int i = 0; i < 512; i += 16)
		if (words[i] != number * 1000003 + age)
			return 0;
	return 1;
}

static void stamp_all(char *memory, unsigned long pages, unsigned long age)
{
	for (unsigned long page = 0; page < pages; page++)
		stamp(memory + page * PAGE, page, age);
}

static int all_stamped(const char *memory, unsigned long pages, unsigned long age)
{
	for (unsigned long page = 0; page < pages; page++)
		if (!is_stamped(memory + page * PAGE, page, age))
			return 0;
	return 1;
}

/* The process that accesses its memory in rounds until it is killed. */
static pid_t pressing;
static int stop[2];

static void press(unsigned long pages)
{
	NEED(pipe(stop) == 0);
	pressing = fork_checked();
	NEED(pressing >= 0);
	if (pressing)
		return;
	close(stop[1]);
	NEED(fcntl(stop[0], F_SETFL, O_NONBLOCK) == 0);
	char *memory = anonymous(pages * PAGE), byte;
	NEED(memory != NULL);
	unsigned long age = 0;
	stamp_all(memory, pages, age);
	while (read(stop[0], &byte, 1) != 0) {
		for (unsigned long page = 0; page < pages; page++) {
			char *at = memory + page * PAGE;
			CHECK(is_stamped(at, page, age));
			stamp(at, page, age + 1);
		}
		age++;
	}
	end_child();
}

static void relax(void)
{
	close(stop[0]);
	close(stop[1]);
	CHECK(exited(wait_for(pressing), 0));
}

/* After a fork, both processes have the original contents, and neither reads the other's writes. */
static void forks(unsigned long pages)
{
	char *memory = anonymous(pages * PAGE);
	NEED(memory != NULL);
	stamp_all(memory, pages, 0);
	for (unsigned long round = 0; round < 4; round++) {
		pid_t child = fork_checked();
		NEED(child >= 0);
		if (child == 0) {
			for (unsigned long page = 0; page < pages; page += 3)
				stamp(memory + page * PAGE, page, 100 + round);
			for (unsigned long page = 0; page < pages; page++)
				CHECK(is_stamped(memory + page * PAGE, page, page % 3 ? round : 100 + round));
			end_child();
		}
		CHECK(all_stamped(memory, pages, round));
		stamp_all(memory, pages, round + 1);
		CHECK(exited(wait_for(child), 0));
		CHECK(all_stamped(memory, pages, round + 1));
	}
	NEED(munmap(memory, pages * PAGE) == 0);
}

static int watching;
static char *watched;

static void *serve(void *nothing)
{
	(void)nothing;
	static char source[PAGE] __attribute__((aligned(4096)));
	struct message message;
	while (read(watching, &message, sizeof message) == sizeof message) {
		unsigned long at = message.address & ~(PAGE - 1);
		unsigned long page = (at - (unsigned long)watched) / PAGE;
		/* The fault is a store to a page that was filled write-protected. */
		if (message.flags & FAULT_WP) {
			NEED(protect(watching, (char *)at, 1, 0) == 0);
			continue;
		}
		stamp(source, page, 7);
		if (copy(watching, (char *)at, source, 1, page % 2 ? COPY_PROTECTED : 0, NULL) != 0) {
			NEED(errno == EEXIST);
			struct range range = range_of((char *)at, 1);
			NEED(ioctl(watching, UFFDIO_WAKE, &range) == 0);
		}
	}
	return NULL;
}

static void *check_some(void *first)
{
	unsigned long *bounds = first;
	for (unsigned long page = bounds[0]; page < bounds[1]; page++)
		if (!CHECK(is_stamped(watched + page * PAGE, page, 7)))
			break;
	return NULL;
}

/* Pages that a handler fills are complete and keep their contents. */
static void fills(unsigned long pages)
{
	watched = anonymous(pages * PAGE);
	NEED(watched != NULL);
	watching = watcher(0);
	NEED(watching >= 0 && fcntl(watching, F_SETFL, 0) == 0);
	NEED(watch(watching, watched, pages, MISSING | WP) == 0);
	pthread_t filler, checkers[2];
	NEED(pthread_create(&filler, NULL, serve, NULL) == 0);
	unsigned long bounds[2][2] = { { 0, pages / 2 }, { pages / 4, pages } };
	for (int i = 0; i < 2; i++)
		NEED(pthread_create(&checkers[i], NULL, check_some, bounds[i]) == 0);
	for (int i = 0; i < 2; i++)
		NEED(pthread_join(checkers[i], NULL) == 0);
	CHECK(all_stamped(watched, pages, 7));
	stamp_all(watched, pages, 8);
	NEED(pthread_cancel(filler) == 0 && pthread_join(filler, NULL) == 0);
	close(watching);
	CHECK(all_stamped(watched, pages, 8));
	NEED(munmap(watched, pages * PAGE) == 0);
}

/* Pages are collapsed into huge pages if memory for huge pages is available, and are then swapped out again. */
static void joins(unsigned long pages)
{
	unsigned long length = pages * PAGE / HUGE_SIZE * HUGE_SIZE;
	char *all = anonymous(length + HUGE_SIZE);
	NEED(all != NULL);
	char *memory = (char *)(((unsigned long)all + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1));
	pages = length / PAGE;
	NEED(madvise(memory, length, MADV_NOHUGEPAGE) == 0);
	stamp_all(memory, pages, 0);
	NEED(madvise(memory, length, MADV_HUGEPAGE) == 0);
	for (unsigned long round = 0; round < 3; round++) {
		for (char *at = memory; at < memory + length; at += HUGE_SIZE) {
			if (round == 1)
				madvise(at, HUGE_SIZE, MADV_PAGEOUT);
			/* If there is no memory for a huge page, the range stays unchanged. */
			if (madvise(at, HUGE_SIZE, MADV_COLLAPSE) != 0)
				CHECK(errno == ENOMEM || errno == EAGAIN || errno == EBUSY || errno == EINVAL);
		}
		CHECK(all_stamped(memory, pages, round));
		stamp_all(memory, pages, round + 1);
	}
	CHECK(all_stamped(memory, pages, 3));
	NEED(munmap(all, length + HUGE_SIZE) == 0);
}

int main(int argc, char **argv)
{
	unsigned long pages = (argc > 1 ? strtoul(argv[1], NULL, 0) : 40) * 256;
	void (*parts[])(unsigned long) = { forks, fills, joins };
	for (int i = 0; i < 3; i++) {
		press(pages);
		parts[i](pages);
		relax();
	}
	return checked("swap_during");
}
