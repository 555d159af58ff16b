/* Does a sealed mapping stay unchanged? Do the calls fail that would unmap, replace, move, resize or re-protect it or,
 * if it is not writable, discard it?
 */
#include "check.h"

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103

#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

/* Returns writable memory that cannot merge with adjacent areas. */
static char *alone(size_t length)
{
	char *room = mmap(NULL, length + 2 * PAGE, PROT_NONE, PRIVATE, -1, 0);
	NEED(room != MAP_FAILED);
	NEED(mprotect(room + PAGE, length, RW) == 0);
	return room + PAGE;
}

static int seal(void *at, size_t length)
{
	return (int)syscall(SYS_mseal, at, length, 0UL);
}

/* Returns whether the VmFlags of the area that begins at `at` contain this code. */
static int has_code(void *at, const char *code)
{
	char line[512], wanted[32];
	int here = 0, found = -1;
	snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)at);
	FILE *file = fopen("/proc/self/smaps", "r");
	NEED(file != NULL);
	while (fgets(line, sizeof line, file)) {
		if (strncmp(line, wanted, strlen(wanted)) == 0)
			here = 1;
		if (here && strncmp(line, "VmFlags:", 8) == 0) {
			found = strstr(line, code) != NULL;
			break;
		}
	}
	fclose(file);
	return found;
}

/* Returns the number of areas that begin in the range. */
static int areas_in(char *at, size_t length)
{
	char line[512];
	int count = 0;
	FILE *file = fopen("/proc/self/maps", "r");
	NEED(file != NULL);
	while (fgets(line, sizeof line, file)) {
		unsigned long start = strtoul(line, NULL, 16);
		count += start >= (unsigned long)at && start < (unsigned long)at + length;
	}
	fclose(file);
	return count;
}

static void refusals(void)
{
	char *five = alone(5 * PAGE);
	CHECK_FAILS(syscall(SYS_mseal, five, PAGE, 1UL), EINVAL);
	CHECK_FAILS(seal(five + 1, PAGE), EINVAL);
	CHECK_FAILS(seal(five, -PAGE), EINVAL);
	CHECK_FAILS(seal(five, -1UL), EINVAL);
	CHECK_EQ(seal(five, 0), 0);
	CHECK_EQ(munmap(five + 2 * PAGE, PAGE), 0);
	/* If the range contains a hole, nothing is sealed. */
	CHECK_FAILS(seal(five, 5 * PAGE), ENOMEM);
	CHECK_FAILS(seal(five + 2 * PAGE, PAGE), ENOMEM);
	CHECK_EQ(has_code(five, " sl"), 0);
	CHECK_EQ(munmap(five, 5 * PAGE), 0);
}

static void stays(void)
{
	char *five = alone(5 * PAGE);
	memset(five, 7, 5 * PAGE);
	/* Sealing a part splits the area. Sealing a sealed page again has no effect. */
	CHECK_EQ(seal(five + PAGE, 3 * PAGE), 0);
	CHECK_EQ(areas_in(five, 5 * PAGE), 3);
	CHECK_EQ(has_code(five + PAGE, " sl"), 1);
	CHECK_EQ(seal(five + PAGE, PAGE), 0);
	CHECK_EQ(areas_in(five, 5 * PAGE), 3);

	CHECK_FAILS(munmap(five, 5 * PAGE), EPERM);
	CHECK_FAILS(munmap(five + 3 * PAGE, 2 * PAGE), EPERM);
	CHECK_FAILS(mprotect(five, 5 * PAGE, PROT_READ), EPERM);
	/* The page below the sealed ones is changed, and the page above them is not. */
	CHECK_EQ(mprotect(five, PAGE, RW), 0);
	CHECK_FAILS(mprotect(five + PAGE, PAGE, RW), EPERM);
	CHECK_FAILS((long)mmap(five, 5 * PAGE, RW, PRIVATE | MAP_FIXED, -1, 0), EPERM);
	CHECK_FAILS((long)mremap(five + PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EPERM);
	CHECK_FAILS((long)mremap(five + PAGE, PAGE, PAGE, 0), EPERM);
	CHECK_FAILS((long)mremap(five + 2 * PAGE, 2 * PAGE, PAGE, 0), EPERM);
	/* A move over sealed memory fails too. */
	char *other = anonymous(PAGE);
	NEED(other != NULL);
	CHECK_FAILS((long)mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, five + 2 * PAGE), EPERM);
	CHECK_EQ(five[2 * PAGE], 7);
	/* Sealed memory that is writable may be discarded. */
	CHECK_EQ(madvise(five + PAGE, PAGE, MADV_DONTNEED), 0);
	CHECK_EQ(five[PAGE], 0);
	/* Calls that change neither the mapping nor its contents succeed. */
	CHECK_EQ(mlock(five + PAGE, PAGE), 0);
	CHECK_EQ(munlock(five + PAGE, PAGE), 0);
	CHECK_EQ(madvise(five + PAGE, PAGE, MADV_WILLNEED), 0);
	CHECK_EQ(munmap(five, PAGE), 0);
	CHECK_EQ(munmap(five + 4 * PAGE, PAGE), 0);
}

static void discards(void)
{
	static const int refused[] = { MADV_DONTNEED,   MADV_DONTNEED_LOCKED, MADV_FREE,         MADV_REMOVE,
				       MADV_DONTFORK, MADV_WIPEONFORK,      MADV_GUARD_INSTALL };
	static const int allowed[] = { MADV_NORMAL,   MADV_WILLNEED, MADV_DONTDUMP, MADV_DODUMP,
				       MADV_DOFORK, MADV_KEEPONFORK, MADV_GUARD_REMOVE };
	char *pages = alone(2 * PAGE);
	memset(pages, 7, 2 * PAGE);
	CHECK_EQ(mprotect(pages, 2 * PAGE, PROT_READ), 0);
	CHECK_EQ(seal(pages, 2 * PAGE), 0);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
		CHECK_FAILS(madvise(pages, PAGE, refused[i]), EPERM);
	for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
		CHECK_EQ(madvise(pages, PAGE, allowed[i]), 0);
	CHECK_EQ(pages[0], 7);

	/* Pages of a file may be discarded, because they can be read again. */
	int file = scratch_file(PAGE);
	NEED(file >= 0);
	char *mapped = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	NEED(mapped != MAP_FAILED);
	CHECK_EQ(seal(mapped, PAGE), 0);
	CHECK_EQ(madvise(mapped, PAGE, MADV_DONTNEED), 0);
	CHECK_FAILS(mprotect(mapped, PAGE, RW), EPERM);
	close(file);
}

/* A process with CAP_SYS_RAWIO may map page zero, and seal it. */
static void zero(void)
{
	CHECK_EQ((long)mmap(NULL, PAGE, PROT_NONE, PRIVATE | MAP_FIXED, -1, 0), 0);
	CHECK_EQ(seal(NULL, PAGE), 0);
	CHECK_FAILS(mprotect(NULL, PAGE, RW), EPERM);
	CHECK_FAILS(munmap(NULL, PAGE), EPERM);
}

static void inherited(void *pages)
{
	CHECK_FAILS(munmap(pages, PAGE), EPERM);
	CHECK_FAILS(mprotect(pages, PAGE, PROT_NONE), EPERM);
}

int main(void)
{
	refusals();
	stays();
	discards();
	char *pages = anonymous(PAGE);
	NEED(pages != NULL);
	CHECK_EQ(seal(pages, PAGE), 0);
	CHECK(exited(in_child(inherited, pages), 0));
	if (geteuid() == 0)
		zero();
	return checked("seal");
}
