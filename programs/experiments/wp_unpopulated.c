/* What does it cost to write-protect untouched memory, and to use it later?
 *
 * DEFAULT protects only populated pages. PRE-READ and MADV_POPULATE_READ map the zero page everywhere first. WP_UNPOPULATED
 * installs markers. Each range is protected once; then 64 pages all over it are read for the first time, and written for
 * the first time; then the protection is removed, and the memory unmapped. Without "async" a second thread removes the
 * protection of each written page.
 *
 * Usage: wp_unpopulated [SIZE_IN_MIB [SIZE_OF_A_SPARSE_FILE_IN_MIB]]
 */
#include "track.h"

#include <pthread.h>

#define TOUCHES 64
#define GIB (1024 * MIB)

enum way { DEFAULT, PRE_READ, POPULATE_READ, UNPOPULATED };
static const char *const ways[] = { "DEFAULT", "PRE-READ", "MADV_POPULATE_READ", "WP_UNPOPULATED" };

struct method {
	enum way way;
	int async, missing;
	size_t beyond;
};

static int file;

/* Removes the protection of every page at which a thread waits. */
static void *release(void *unused)
{
	struct uffd_message message;
	while (read(file, &message, sizeof message) == sizeof message)
		if (message.event == EVENT_FAULT && message.flags & FLAG_WP)
			uffd_protect(file, (void *)(uintptr_t)(message.address & ~(PAGE - 1)), PAGE, 0);
	return unused;
}

static void touches(const char *name, const char *measure, char *memory, size_t size, int write)
{
	struct series costs = { 0 };
	uint64_t before = faults_now();
	char what[64];
	for (int i = 0; i < TOUCHES; i++) {
		volatile char *at = memory + size / TOUCHES * i;
		uint64_t start = clock_now();
		if (write)
			*at = 1;
		else
			(void)*at;
		add_value(&costs, clock_now() - start);
	}
	record_series(name, measure, "instructions", &costs);
	snprintf(what, sizeof what, "%s: faults", measure);
	record_value(name, what, "faults per page", (double)(faults_now() - before) / TOUCHES);
}

/* Protects, accesses and unmaps `memory`, which is registered. */
static void one_case(const char *name, const struct method *method, char *memory, size_t size)
{
	unsigned long tables = table_frames();
	uint64_t faults = faults_now(), start = clock_now();
	if (method->way == PRE_READ)
		read_pages(memory, size);
	else if (method->way == POPULATE_READ)
		MUST(madvise(memory, size, MADV_POPULATE_READ) == 0);
	uint64_t protecting = clock_now();
	MUST(uffd_protect(file, memory, size, 1) == 0);
	uint64_t end = clock_now();
	record_value(name, "arming", "instructions", end - start);
	if (method->way == PRE_READ || method->way == POPULATE_READ)
		record_value(name, "of these, the protection", "instructions", end - protecting);
	record_value(name, "arming: faults", "faults", faults_now() - faults);
	record_value(name, "arming: page-table frames", "frames", table_frames() - tables);
	if (!method->missing) {
		pthread_t thread;
		MUST(method->async || pthread_create(&thread, NULL, release, NULL) == 0);
		touches(name, "first read", memory, size, 0);
		touches(name, "first write", memory, size, 1);
		if (!method->async)
			MUST(pthread_cancel(thread) == 0 && pthread_join(thread, NULL) == 0);
	}
	start = clock_now();
	MUST(uffd_protect(file, memory, size, 0) == 0);
	record_value(name, "un-protect", "instructions", clock_now() - start);
	start = clock_now();
	MUST(munmap(memory, size) == 0);
	record_value(name, "munmap", "instructions", clock_now() - start);
	close(file);
}

static void anonymous(const struct method *method, size_t size, int huge)
{
	char name[96];
	file = uffd_open((method->way == UNPOPULATED ? WP_UNPOPULATED : 0) | (method->async ? WP_ASYNC : 0));
	if (file < 0)
		return;
	char *memory = aligned(size, GIB, method->beyond);
	uint64_t modes = WATCH_WRITES | (method->missing ? WATCH_MISSING : 0);
	if (huge)
		madvise(memory, size, MADV_HUGEPAGE);
	MUST(uffd_watch(file, memory, size, modes) == 0);
	snprintf(name, sizeof name, "%lu MiB%s%s, %s%s%s", size / MIB, huge ? ", huge pages" : "",
		 method->beyond ? ", no alignment" : "", ways[method->way], method->async ? ", async" : "",
		 method->missing ? ", missing pages too" : "");
	one_case(name, method, memory, size);
}

static void sparse_file(size_t size)
{
	const struct method method = { UNPOPULATED, 1, 0, 0 };
	char name[96];
	int memfd = (int)syscall(SYS_memfd_create, "sparse", 0);
	file = uffd_open(WP_ASYNC | WP_UNPOPULATED);
	MUST(memfd >= 0 && ftruncate(memfd, (off_t)size) == 0);
	if (file < 0)
		return;
	char *room = aligned(size, GIB, 0);
	char *memory = mmap(room, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memfd, 0);
	MUST(memory == room && uffd_watch(file, memory, size, WATCH_WRITES) == 0);
	snprintf(name, sizeof name, "%lu MiB, sparse file, async", size / MIB);
	one_case(name, &method, memory, size);
	close(memfd);
}

int main(int count, char **arguments)
{
	static const struct method methods[] = {
		{ DEFAULT, 0, 0, 0 },	  { PRE_READ, 0, 0, 0 },    { POPULATE_READ, 0, 0, 0 },
		{ UNPOPULATED, 0, 0, 0 }, { UNPOPULATED, 1, 0, 0 }, { UNPOPULATED, 0, 1, 0 },
		/* 5 MiB and 5 pages beyond a boundary of page tables. */
		{ UNPOPULATED, 0, 0, 5 * MIB + 5 * PAGE },
	};
	size_t size = argument(count, arguments, 1, 10240) * MIB;
	size_t sparse = argument(count, arguments, 2, 40960) * MIB;
	MUST(size >= MIB && sparse >= MIB);
	begin();
	file = uffd_open(0);
	need(file >= 0, "userfaultfd");
	close(file);
	for (int huge = 0; huge < 2; huge++) {
		prctl(PR_SET_THP_DISABLE, !huge, 0, 0, 0);
		for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
			anonymous(&methods[i], size, huge);
	}
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	sparse_file(sparse);
	print_records();
	return 0;
}
