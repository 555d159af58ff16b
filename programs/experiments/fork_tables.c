/* What do a fork, the child's exit and exec, and the first writes after the fork cost as memory grows?
 *
 * Large sizes consist of the page of zeroes, in small entries, so that a small guest has room for them: one page is
 * written, without which Linux copies no entries.
 *
 * Usage: fork_tables [SIZE_IN_MIB]...
 */
#include "experiment.h"

#define REGION (2 * MIB)

/* Maps memory in which a page is written and all others are read. */
static char *zeroes(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	MUST(memory != MAP_FAILED);
	MUST(madvise(memory, size, MADV_NOHUGEPAGE) == 0 || errno == EINVAL);
	memory[0] = 1;
	for (size_t at = 0; at < size; at += PAGE)
		(void)*(volatile char *)(memory + at);
	return memory;
}

struct pipes {
	int ready[2], leave[2];
};

/* Forks a child that touches nothing and lives until `end_child` is called. Returns the cost of the fork. */
static uint64_t start_child(struct pipes *pipes, pid_t *child)
{
	char byte = 0;
	MUST(pipe(pipes->ready) == 0 && pipe(pipes->leave) == 0);
	uint64_t start = clock_now();
	*child = fork();
	uint64_t forked = clock_now() - start;
	MUST(*child >= 0);
	if (*child == 0) {
		MUST(write(pipes->ready[1], &byte, 1) == 1 && read(pipes->leave[0], &byte, 1) == 1);
		_exit(0);
	}
	MUST(read(pipes->ready[0], &byte, 1) == 1);
	return forked;
}

/* Ends the child and returns the cost until it is reaped. */
static uint64_t end_child(struct pipes *pipes, pid_t child)
{
	char byte = 0;
	uint64_t start = clock_now();
	MUST(write(pipes->leave[1], &byte, 1) == 1 && waitpid(child, NULL, 0) == child);
	uint64_t ended = clock_now() - start;
	for (int i = 0; i < 2; i++)
		MUST(close(pipes->ready[i]) == 0 && close(pipes->leave[i]) == 0);
	return ended;
}

/* The cost of a fork, and of the exit of a child that touches nothing. */
static void fork_and_exit(const char *name)
{
	struct pipes pipes;
	pid_t child;
	uint64_t forked = start_child(&pipes, &child), ended = end_child(&pipes, child);
	record_value(name, "fork", "instructions", (double)forked);
	record_value(name, "exit and wait", "instructions", (double)ended);
}

/* The cost of a child that executes a program at once. */
static void fork_and_exec(const char *name)
{
	uint64_t start = clock_now();
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "fork_tables", "exit", NULL);
		_exit(1);
	}
	int status;
	MUST(waitpid(child, &status, 0) == child && status == 0);
	record_value(name, "fork, exec, exit and wait", "instructions", (double)(clock_now() - start));
}

/* Writes to the first `pages` pages of each region, and records the costs and the faults. */
static void write_regions(const char *name, const char *what, char *memory, size_t size, size_t pages)
{
	char measure[96];
	size_t regions = size / REGION;
	uint64_t faults = faults_now(), start = clock_now();
	for (size_t at = 0; at < size; at += REGION)
		for (size_t page = 0; page < pages; page++)
			*(volatile char *)(memory + at + page * PAGE) = 2;
	uint64_t written = clock_now() - start;
	faults = faults_now() - faults;
	snprintf(measure, sizeof measure, "%s, per region", what);
	record_value(name, measure, "instructions", (double)written / regions);
	snprintf(measure, sizeof measure, "%s, per region: faults", what);
	record_value(name, measure, "faults per region", (double)faults / regions);
}

/* Writes after a fork, while the child lives and after it has exited. */
static void writes(const char *name, size_t size)
{
	struct pipes pipes;
	pid_t child;
	size_t all = REGION / PAGE;
	char *memory = fresh_apart(size);
	write_pages(memory, size);

	uint64_t forked = start_child(&pipes, &child);
	write_regions(name, "first page", memory, size, 1);
	write_regions(name, "then a second page", memory, size, 2);
	uint64_t ended = end_child(&pipes, child);
	record_value(name, "fork", "instructions", (double)forked);
	record_value(name, "exit and wait, one page of each region written", "instructions", (double)ended);

	/* A child that has gone leaves every page to the parent. */
	write_regions(name, "all pages after the exit", memory, size, all);
	start_child(&pipes, &child);
	write_regions(name, "all pages while the child lives", memory, size, all);
	end_child(&pipes, child);

	start_child(&pipes, &child);
	end_child(&pipes, child);
	write_regions(name, "untouched child gone: all pages", memory, size, all);
	start_child(&pipes, &child);
	end_child(&pipes, child);
	MUST(mprotect(memory, size, PROT_READ) == 0 && mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
	write_regions(name, "untouched child gone, mprotect(R), mprotect(RW): all pages", memory, size, all);
	MUST(munmap(memory, size) == 0);
}

int main(int count, char **arguments)
{
	static const char *const usual[] = { "1", "64", "1024", "4096", "16384" };
	if (count > 1 && strcmp(arguments[1], "exit") == 0)
		return 0;
	size_t sizes = count > 1 ? (size_t)count - 1 : sizeof usual / sizeof *usual;
	begin();
	/* The first fork counts differently for the pages of this program itself: a first measurement is discarded. */
	size_t kept = records_length;
	fork_and_exit("");
	fork_and_exec("");
	records_length = kept;
	fork_and_exit("nothing mapped");
	fork_and_exec("nothing mapped");
	for (size_t i = 0; i < sizes; i++) {
		char name[64];
		size_t mib = strtoul(count > 1 ? arguments[i + 1] : usual[i], NULL, 10);
		MUST(mib > 0);
		snprintf(name, sizeof name, "%zu MiB of the page of zeroes", mib);
		char *memory = zeroes(mib * MIB);
		fork_and_exit(name);
		fork_and_exec(name);
		MUST(munmap(memory, mib * MIB) == 0);
	}
	writes("64 MiB written", 64 * MIB);
	print_records();
	return 0;
}
