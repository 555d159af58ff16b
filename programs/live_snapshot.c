/* Can the memory of a running program be saved as of one instant, while the program continues to write?
 *
 * This is a background snapshot such as QEMU makes of a guest. One userfaultfd call write-protects all memory, and
 * its duration is the pause. Afterwards one thread continues to write pages at random, while another one saves the
 * pages in order to a file and removes their protection. A page at which the writer waits is saved first. Every page
 * in the file must have the contents as of the pause. Half of the memory was never populated, and reads as zeroes.
 *
 * Usage: live_snapshot [SIZE_IN_MIB [WRITES_PER_PAGE]]
 */
#include "track.h"

#include <pthread.h>

#define WORDS (PAGE / sizeof(uint64_t))

static size_t pages;
static unsigned long writes_per_page;
static char *memory;
/* The number of writes to each page, which is also the value of every word in it. */
static uint32_t *versions, *saved_versions;
static unsigned char *saved;
static int watcher, image;
static int ready[2], go[2];
static volatile int writer_done;
static size_t saved_because_written, saved_in_turn;
static struct series stops;

static uint64_t word_of(size_t page, uint32_t version, size_t word)
{
	return version ? ((uint64_t)version << 32 | page) * 0x9e3779b97f4a7c15 + word : 0;
}

static void write_page(size_t page)
{
	volatile uint64_t *at = (volatile uint64_t *)(memory + page * PAGE);
	uint32_t version = versions[page] + 1;
	for (size_t word = 0; word < WORDS; word++)
		at[word] = word_of(page, version, word);
	versions[page] = version;
}

/* The program that is saved. While all of its memory is being write-protected, it pauses between two pages. */
static void *writer(void *unused)
{
	uint64_t random = 88172645463325252;
	char byte = 0;
	for (size_t page = 0; page < pages; page += 2)
		write_page(page);
	MUST(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
	for (size_t i = 0; i < pages * writes_per_page; i++) {
		size_t page = next_random(&random) % pages;
		uint64_t start = clock_now();
		write_page(page);
		add_value(&stops, clock_now() - start);
	}
	writer_done = 1;
	return unused;
}

static void save(size_t page)
{
	MUST(pwrite(image, memory + page * PAGE, PAGE, (off_t)(page * PAGE)) == (ssize_t)PAGE);
	saved[page] = 1;
	MUST(uffd_protect(watcher, memory + page * PAGE, PAGE, 0) == 0);
}

/* Saves the pages at which the writer waits. If a page has been saved since, only wakes the writer. */
static void save_what_is_written(void)
{
	struct uffd_message message;
	while (read(watcher, &message, sizeof message) == sizeof message) {
		MUST(message.event == EVENT_FAULT && message.flags & FLAG_WP);
		size_t page = (message.address - (uintptr_t)memory) / PAGE;
		MUST(page < pages);
		saved_because_written += !saved[page];
		if (saved[page])
			MUST(uffd_protect(watcher, memory + page * PAGE, PAGE, 0) == 0);
		else
			save(page);
	}
	MUST(errno == EAGAIN);
}

static void *saver(void *unused)
{
	for (size_t page = 0; page < pages; page++) {
		save_what_is_written();
		if (!saved[page]) {
			save(page);
			saved_in_turn++;
		}
		/* Yields the CPU, because on a single CPU the writer would otherwise not run before everything is
		 * saved. */
		if (page % 8 == 0)
			sched_yield();
	}
	while (!writer_done) {
		save_what_is_written();
		sched_yield();
	}
	return unused;
}

static void check_image(void)
{
	uint64_t words[WORDS];
	for (size_t page = 0; page < pages; page++) {
		MUST(pread(image, words, sizeof words, (off_t)(page * PAGE)) == (ssize_t)sizeof words);
		for (size_t word = 0; word < WORDS; word++)
			if (words[word] != word_of(page, saved_versions[page], word))
				give_up("page %zu of the snapshot is not what it was at its instant", page);
	}
}

static void check_memory(void)
{
	for (size_t page = 0; page < pages; page++)
		for (size_t word = 0; word < WORDS; word++)
			if (((uint64_t *)(memory + page * PAGE))[word] != word_of(page, versions[page], word))
				give_up("page %zu lost what was written to it", page);
}

int main(int count, char **arguments)
{
	size_t size = argument(count, arguments, 1, 256) * MIB;
	writes_per_page = argument(count, arguments, 2, 1);
	pages = size / PAGE;
	begin();
	watcher = uffd_open(WP_UNPOPULATED);
	need(watcher >= 0, "write protection of memory that is not there");
	memory = aligned(size, HUGE, 0);
	image = (int)syscall(SYS_memfd_create, "snapshot", 0);
	versions = calloc(pages, sizeof *versions);
	saved_versions = calloc(pages, sizeof *saved_versions);
	saved = calloc(pages, 1);
	MUST(fcntl(watcher, F_SETFL, O_NONBLOCK) == 0);
	MUST(pages > 0 && image >= 0 && ftruncate(image, (off_t)size) == 0 && versions && saved_versions && saved);
	MUST(pipe(ready) == 0 && pipe(go) == 0);
	MUST(uffd_watch(watcher, memory, size, WATCH_WRITES) == 0);
	/* Populates the array, so that its page faults are not counted. */
	memset(&stops, 0, sizeof stops);

	pthread_t threads[2];
	char byte = 0;
	MUST(pthread_create(&threads[0], NULL, writer, NULL) == 0);
	MUST(read(ready[0], &byte, 1) == 1);
	uint64_t start = clock_now();
	MUST(uffd_protect(watcher, memory, size, 1) == 0);
	uint64_t pause = clock_now() - start;
	memcpy(saved_versions, versions, pages * sizeof *versions);
	uint64_t faults = faults_now();
	MUST(write(go[1], &byte, 1) == 1);
	MUST(pthread_create(&threads[1], NULL, saver, NULL) == 0);
	MUST(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
	faults = faults_now() - faults;
	check_image();
	check_memory();

	char name[64];
	snprintf(name, sizeof name, "%lu MiB, half of it touched", size / MIB);
	record_value(name, "pause", "instructions", pause);
	record_value(name, "pages saved, once each", "pages", saved_because_written + saved_in_turn);
	record_value(name, "of these, before a write", "pages", saved_because_written);
	record_value(name, "faults meanwhile", "faults", faults);
	record_series(name, "write of a page, stops included", "instructions", &stops);
	MUST(saved_because_written + saved_in_turn == pages);
	print_records();
	return 0;
}
