/* Do adjacent areas merge where they do on Linux, and stay separate if their pages come from different places: a fork,
 * another time, or a move?
 */
#include "userfault.h"

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

/* Returns a free range of addresses without adjacent areas that could merge with it. */
static char *room(size_t pages)
{
	char *found = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, PRIVATE, -1, 0);
	NEED(found != MAP_FAILED);
	return found + PAGE;
}

static char *map(char *at, size_t pages)
{
	return mmap(at, pages * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0);
}

static void move(char *from, size_t pages, char *to, int flags)
{
	NEED(mremap(from, pages * PAGE, pages * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to) == to);
}

/* Returns the number of areas that begin in a range. */
static int areas_in(char *at, size_t pages)
{
	char line[512];
	int count = 0;
	FILE *file = fopen("/proc/self/maps", "r");
	NEED(file != NULL);
	while (fgets(line, sizeof line, file)) {
		unsigned long start = strtoul(line, NULL, 16);
		count += start >= (unsigned long)at && start < (unsigned long)at + pages * PAGE;
	}
	fclose(file);
	return count;
}

static long locked(void)
{
	char line[256];
	long value = -1;
	FILE *status = fopen("/proc/self/status", "r");
	NEED(status != NULL);
	while (fgets(line, sizeof line, status))
		if (sscanf(line, "VmLck: %ld", &value) == 1)
			break;
	fclose(status);
	return value;
}

/* In a child, an inherited area merges with a new mapping only if the parent never touched the area. */
static void child_apart(void)
{
	char *touched = room(4), *fresh = room(4);
	map(touched, 2);
	map(fresh, 2);
	touched[0] = 1;
	pid_t child = fork_checked();
	map(touched + 2 * PAGE, 2);
	map(fresh + 2 * PAGE, 2);
	CHECK_EQ(areas_in(touched, 4), child == 0 ? 2 : 1);
	CHECK_EQ(areas_in(fresh, 4), 1);
	if (child == 0) {
		/* The inherited area still does not merge after the child has made private copies. */
		memset(touched, 2, 2 * PAGE);
		CHECK_EQ(mprotect(touched + 2 * PAGE, 2 * PAGE, PROT_READ), 0);
		CHECK_EQ(mprotect(touched + 2 * PAGE, 2 * PAGE, RW), 0);
		CHECK_EQ(areas_in(touched, 4), 2);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
}

/* Parts of one area merge again. After a fork in between, they merge again in the parent, but not in the
 * child. */
static void parts(void)
{
	char *pages = room(2);
	map(pages, 2);
	memset(pages, 1, 2 * PAGE);
	CHECK_EQ(mprotect(pages, PAGE, PROT_READ), 0);
	CHECK_EQ(areas_in(pages, 2), 2);
	pid_t child = fork_checked();
	CHECK_EQ(mprotect(pages, PAGE, RW), 0);
	CHECK_EQ(areas_in(pages, 2), child == 0 ? 2 : 1);
	if (child == 0)
		end_child();
	CHECK(exited(wait_for(child), 0));
}

/* Areas with private pages of a file merge by the same rules. */
static void files(void)
{
	int file = scratch_file(2 * PAGE);
	NEED(file >= 0);
	char *pages = room(2);
	NEED(mmap(pages, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, 0) == pages);
	memset(pages, 1, 2 * PAGE);
	CHECK_EQ(mprotect(pages, PAGE, PROT_READ), 0);
	pid_t child = fork_checked();
	CHECK_EQ(mprotect(pages, PAGE, RW), 0);
	CHECK_EQ(areas_in(pages, 2), child == 0 ? 2 : 1);
	if (child == 0)
		end_child();
	CHECK(exited(wait_for(child), 0));
	close(file);
}

/* Areas that were touched while they differed in more than permissions never merge. */
static void touched_apart(void)
{
	char *pages = room(2), *alike = room(2);
	map(pages, 2);
	map(alike, 2);
	CHECK_EQ(madvise(pages, PAGE, MADV_DONTFORK), 0);
	pages[0] = 1;
	pages[PAGE] = 1;
	CHECK_EQ(madvise(pages, PAGE, MADV_DOFORK), 0);
	CHECK_EQ(areas_in(pages, 2), 2);
	CHECK_EQ(mprotect(alike, PAGE, PROT_READ | PROT_EXEC | PROT_WRITE), 0);
	alike[0] = 1;
	alike[PAGE] = 1;
	CHECK_EQ(mprotect(alike, PAGE, RW), 0);
	CHECK_EQ(areas_in(alike, 2), 1);
}

/* Checks a resize that unmaps holes and other areas, and the accounting of locked memory after a move with
 * MREMAP_DONTUNMAP. */
static void moves(void)
{
	char *pages = room(7);
	CHECK_EQ(munmap(pages, 7 * PAGE), 0);
	map(pages, 2);
	mmap(pages + 3 * PAGE, PAGE, PROT_READ, PRIVATE | MAP_FIXED, -1, 0);
	map(pages + 5 * PAGE, 2);
	CHECK_EQ(mremap(pages, 7 * PAGE, 6 * PAGE, 0) == pages, 1);
	CHECK_FAILS(msync(pages + 6 * PAGE, PAGE, MS_ASYNC), ENOMEM);
	CHECK_EQ(msync(pages + 5 * PAGE, PAGE, MS_ASYNC), 0);
	CHECK_EQ(mremap(pages, 6 * PAGE, PAGE, MREMAP_MAYMOVE) == pages, 1);
	CHECK_FAILS(msync(pages + 3 * PAGE, PAGE, MS_ASYNC), ENOMEM);
	CHECK_EQ(msync(pages, PAGE, MS_ASYNC), 0);
	CHECK_FAILS((long)mremap(pages, 3 * PAGE, 4 * PAGE, MREMAP_MAYMOVE), EFAULT);

	char *kept = room(4), *target = room(2);
	map(kept, 4);
	long before = locked();
	CHECK_EQ(mlock(kept, 4 * PAGE), 0);
	CHECK_EQ(mremap(kept, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, target) == target,
		 1);
	/* The part that was moved is split off. It is not locked any more, and is not counted as locked. */
	CHECK_EQ(areas_in(kept, 4), 2);
	CHECK_EQ(locked() - before, 16);
	CHECK_EQ(munmap(target, 2 * PAGE), 0);
	CHECK_EQ(locked() - before, 8);
	CHECK_EQ(mlock(kept, 4 * PAGE), 0);
	CHECK_EQ(areas_in(kept, 4), 1);
	CHECK_EQ(locked() - before, 16);
	CHECK_EQ(munmap(kept, 4 * PAGE), 0);
	CHECK_EQ(locked() - before, 0);
}

/* An area does not merge with the area that it leaves behind with MREMAP_DONTUNMAP, even if both have no
 * page. It merges with other areas. */
static void left_behind(void)
{
	char *pages = room(12);
	map(pages, 4);
	move(pages, 4, pages + 4 * PAGE, MREMAP_DONTUNMAP);
	CHECK_EQ(areas_in(pages, 8), 2);
	CHECK_EQ(munmap(pages + 4 * PAGE, 4 * PAGE), 0);
	move(pages + 2 * PAGE, 2, pages + 4 * PAGE, MREMAP_DONTUNMAP);
	CHECK_EQ(areas_in(pages, 6), 2);
	map(pages + 8 * PAGE, 2);
	move(pages, 2, pages + 6 * PAGE, MREMAP_DONTUNMAP);
	CHECK_EQ(areas_in(pages + 4 * PAGE, 6), 1);
	/* Without the flag, the moved part merges with the rest of its area. */
	pages = room(6);
	map(pages, 4);
	move(pages, 2, pages + 4 * PAGE, 0);
	CHECK_EQ(areas_in(pages, 6), 1);
}

/* A move that also shrinks the mapping reduces the commit charge accordingly. */
static void shrinks(void)
{
	const char *totals = "/proc/meminfo";
	char *pages = room(12000);
	long before = row_in(totals, "Committed_AS");
	map(pages, 8192);
	NEED(mremap(pages, 8192 * PAGE, 1024 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages + 8200 * PAGE) ==
	     pages + 8200 * PAGE);
	/* Other processes may run, so the value is compared with half of the 28 MiB. */
	CHECK(row_in(totals, "Committed_AS") - before < 4096 + 14336);
	CHECK_EQ(munmap(pages, 12000 * PAGE), 0);
	CHECK(row_in(totals, "Committed_AS") - before < 14336);
}

/* Maps pages of a file privately at a fixed address. */
static char *map_file(char *at, size_t pages, int file, size_t first)
{
	char *found = mmap(at, pages * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, (off_t)(first * PAGE));
	NEED(found == at);
	return at;
}

/* Private areas of adjacent parts of a file merge only if the addresses at which their private pages were created are
 * adjacent too. */
static void moved_files(void)
{
	int file = scratch_file(4 * PAGE);
	NEED(file >= 0);
	char *pages = room(10);
	/* An area with a private page is moved beside a new area. Moving it back makes it mergeable again. */
	map_file(pages, 2, file, 0)[0] = 1;
	move(pages, 2, pages + 6 * PAGE, 0);
	map_file(pages + 8 * PAGE, 2, file, 2);
	CHECK_EQ(areas_in(pages + 6 * PAGE, 4), 2);
	move(pages + 6 * PAGE, 2, pages, 0);
	map_file(pages + 2 * PAGE, 2, file, 2);
	CHECK_EQ(areas_in(pages, 4), 1);
	/* If the area is moved in two halves over the same distance, the halves merge again. Over different
	 * distances, they do not merge. */
	move(pages, 1, pages + 6 * PAGE, 0);
	move(pages + PAGE, 2, pages + 7 * PAGE, 0);
	CHECK_EQ(areas_in(pages + 6 * PAGE, 3), 1);
	move(pages + 6 * PAGE, 1, pages, 0);
	move(pages + 7 * PAGE, 1, pages + 5 * PAGE, 0);
	move(pages + 5 * PAGE, 1, pages + PAGE, 0);
	CHECK_EQ(areas_in(pages, 2), 1);
	move(pages + 8 * PAGE, 1, pages + 2 * PAGE, 0);
	CHECK_EQ(areas_in(pages, 3), 1);
	CHECK_EQ(pages[0], 1);
	/* An area without private pages merges as a new one does, although it was moved. */
	pages = room(10);
	map_file(pages, 2, file, 0);
	map_file(pages + 6 * PAGE, 2, file, 2);
	move(pages + 6 * PAGE, 2, pages + 2 * PAGE, 0);
	CHECK_EQ(areas_in(pages, 4), 1);
	/* The area that MREMAP_DONTUNMAP leaves behind also merges as a new one does. */
	pages = room(10);
	map_file(pages, 2, file, 0)[0] = 1;
	move(pages, 2, pages + 6 * PAGE, MREMAP_DONTUNMAP);
	map_file(pages + 2 * PAGE, 2, file, 2);
	CHECK_EQ(areas_in(pages, 4), 1);
	/* Areas that differ only in their permissions share an anon_vma only if the addresses at which their
	 * private pages are created are adjacent. These areas do not share one, so they stay separate when
	 * their permissions become equal. */
	pages = room(10);
	map_file(pages, 2, file, 0);
	map_file(pages + 6 * PAGE, 2, file, 2)[0] = 1;
	CHECK_EQ(mprotect(pages + 6 * PAGE, 2 * PAGE, PROT_READ), 0);
	move(pages + 6 * PAGE, 2, pages + 2 * PAGE, 0);
	pages[0] = 1;
	CHECK_EQ(mprotect(pages + 2 * PAGE, 2 * PAGE, RW), 0);
	CHECK_EQ(areas_in(pages, 4), 2);
	close(file);
}

/* Memory that loses its userfaultfd registration by a move does not merge with the adjacent memory, which is still
 * registered. */
static void moved_watched(void)
{
	int fd = watcher(0);
	if (fd < 0)
		return;
	char *pages = room(8), *tail = room(8);
	map(pages, 2);
	map(pages + 6 * PAGE, 2);
	NEED(watch(fd, pages, 2, WP) == 0 && watch(fd, pages + 6 * PAGE, 2, WP) == 0);
	move(pages + 6 * PAGE, 2, pages + 2 * PAGE, 0);
	CHECK_EQ(areas_in(pages, 4), 2);
	CHECK_EQ(protect(fd, pages, 2, 1), 0);
	CHECK_FAILS(protect(fd, pages + 2 * PAGE, 2, 1), ENOENT);
	/* A part is moved beside the rest of its area. */
	map(tail + 4 * PAGE, 4);
	NEED(watch(fd, tail + 4 * PAGE, 4, WP) == 0);
	move(tail + 6 * PAGE, 2, tail + 2 * PAGE, 0);
	CHECK_EQ(areas_in(tail, 8), 2);
	CHECK_EQ(protect(fd, tail + 4 * PAGE, 2, 1), 0);
	CHECK_FAILS(protect(fd, tail + 2 * PAGE, 2, 1), ENOENT);
	/* Memory that was moved beside never registered memory does not merge with it at once, but at the
	 * next permission change. */
	pages = room(8);
	map(pages, 2);
	map(pages + 6 * PAGE, 2);
	NEED(watch(fd, pages + 6 * PAGE, 2, WP) == 0);
	move(pages + 6 * PAGE, 2, pages + 2 * PAGE, 0);
	CHECK_EQ(areas_in(pages, 4), 2);
	CHECK_EQ(mprotect(pages + 2 * PAGE, 2 * PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(pages + 2 * PAGE, 2 * PAGE, RW), 0);
	CHECK_EQ(areas_in(pages, 4), 1);
	close(fd);
}

int main(void)
{
	child_apart();
	parts();
	files();
	moved_files();
	moved_watched();
	touched_apart();
	moves();
	left_behind();
	shrinks();
	return checked("merge");
}
