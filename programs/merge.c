/* Do adjacent areas merge where Linux merges them, and stay apart where their pages come from different places: a fork,
 * another time, a move?
 */
#include "check.h"

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

/* A free range of addresses, with nothing beside it that an area could merge with. */
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

/* Returns the number of areas that begin in the range. */
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

/* The child's inherited areas, touched or not, merge with a new mapping only where the parent never touched them. */
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
		/* The child's own copies do not change that. */
		memset(touched, 2, 2 * PAGE);
		CHECK_EQ(mprotect(touched + 2 * PAGE, 2 * PAGE, PROT_READ), 0);
		CHECK_EQ(mprotect(touched + 2 * PAGE, 2 * PAGE, RW), 0);
		CHECK_EQ(areas_in(touched, 4), 2);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
}

/* Parts of one area merge again, unless a fork came between: then the parent's do, the child's do not. */
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

/* Areas of a file's private pages merge by the same rules. */
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

/* Areas touched while they differed in more than rights never merge. */
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

/* A resize that unmaps holes and other areas, and the locked memory after a move with MREMAP_DONTUNMAP. */
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
	CHECK_EQ(areas_in(kept, 4), 1);
	CHECK_EQ(locked() - before, 24);
}

int main(void)
{
	child_apart();
	parts();
	files();
	touched_apart();
	moves();
	return checked("merge");
}
