/* After a fork and the child's exit, does the parent write its pages again without a copy, and without a fault?
 *
 * A page was copied if its frame has changed, which a privileged program reads from /proc/self/pagemap.
 *
 * Usage: fork_reuse [SIZE_IN_KIB]
 */
#include "experiment.h"

static size_t size;

/* The memory that parent and child share. */
struct shared {
	uint64_t child_writes;
	uint64_t child_faults;
};

static struct shared *shared;
static uint64_t *frames_before, *frames_after;

/* Reads the frame number of each page. Returns 0 if frame numbers are not available. */
static int read_frames(const char *memory, uint64_t *frames)
{
	int file = open("/proc/self/pagemap", O_RDONLY);
	size_t length = size / PAGE * 8, done = 0;
	int known = 0;
	if (file < 0)
		return 0;
	while (done < length) {
		long more = pread(file, (char *)frames + done, length - done, (uintptr_t)memory / PAGE * 8 + done);
		if (more <= 0)
			break;
		done += more;
	}
	close(file);
	for (size_t page = 0; page < size / PAGE; page++) {
		frames[page] &= (1ULL << 55) - 1;
		known |= frames[page] != 0;
	}
	return done == length && known;
}

enum child { IDLE, WRITES, LIVES };

static void one_case(const char *name, enum child kind, int protect)
{
	size_t pages = size / PAGE;
	char *memory = fresh_apart(size);
	int ready[2], leave[2];
	char byte = 0;
	MUST(pipe(ready) == 0 && pipe(leave) == 0);
	write_pages(memory, size);
	int known = read_frames(memory, frames_before);
	uint64_t start = clock_now();
	pid_t child = fork();
	uint64_t forked = clock_now() - start;
	MUST(child >= 0);
	if (child == 0) {
		if (kind == WRITES) {
			uint64_t faults = faults_now(), begin = clock_now();
			write_pages(memory, size);
			shared->child_writes = clock_now() - begin;
			shared->child_faults = faults_now() - faults;
		}
		MUST(write(ready[1], &byte, 1) == 1 && read(leave[0], &byte, 1) == 1);
		_exit(0);
	}
	MUST(read(ready[0], &byte, 1) == 1);
	if (kind != LIVES)
		MUST(write(leave[1], &byte, 1) == 1 && waitpid(child, NULL, 0) == child);
	if (protect)
		MUST(mprotect(memory, size, PROT_READ) == 0 && mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
	uint64_t faults = faults_now();
	MARK_BEGIN(5);
	start = clock_now();
	write_pages(memory, size);
	uint64_t written = clock_now() - start;
	MARK_END(5);
	faults = faults_now() - faults;
	known = known && read_frames(memory, frames_after);
	if (kind == LIVES)
		MUST(write(leave[1], &byte, 1) == 1 && waitpid(child, NULL, 0) == child);
	record_value(name, "fork", "instructions", (double)forked);
	if (kind == WRITES) {
		record_value(name, "child's write, per page", "instructions", (double)shared->child_writes / pages);
		record_value(name, "child's write, per page: faults", "faults per page", (double)shared->child_faults / pages);
	}
	record_value(name, "parent's write, per page", "instructions", (double)written / pages);
	record_value(name, "parent's write, per page: faults", "faults per page", (double)faults / pages);
	if (known) {
		size_t copied = 0;
		for (size_t page = 0; page < pages; page++)
			copied += frames_before[page] != frames_after[page];
		record_value(name, "parent's write, per page: copies", "copies per page", (double)copied / pages);
	}
	for (int i = 0; i < 2; i++)
		MUST(close(ready[i]) == 0 && close(leave[i]) == 0);
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	size = argument(count, arguments, 1, 64 * KIB) * KIB;
	MUST(size > 0 && size % PAGE == 0);
	begin();
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	MUST(shared != MAP_FAILED);
	frames_before = malloc(size / PAGE * 8);
	frames_after = malloc(size / PAGE * 8);
	MUST(frames_before && frames_after);
	/* The first fork counts differently for the pages of this program itself: a first measurement is discarded. */
	size_t kept = records_length;
	one_case("", IDLE, 0);
	records_length = kept;
	one_case("idle child, gone", IDLE, 0);
	one_case("idle child, gone; mprotect(R), mprotect(RW)", IDLE, 1);
	one_case("child that wrote all, gone", WRITES, 0);
	one_case("child that wrote all, gone; mprotect(R), mprotect(RW)", WRITES, 1);
	one_case("child that lives", LIVES, 0);
	print_records();
	return 0;
}
