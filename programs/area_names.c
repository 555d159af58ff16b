/* Does PR_SET_VMA name anonymous memory, does /proc/self/maps contain the name, and are the same calls refused as on
 * Linux?
 */
#include "check.h"
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

static int set_name(void *memory, size_t pages, const char *name)
{
	return prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, pages * PAGE, name);
}

/* Returns the number of pages from `memory` to the end of its area. Stores the text after the inode in `name`. */
static size_t area_at(const void *memory, char name[128])
{
	static char text[1 << 18];
	size_t length = 0;
	int file = open("/proc/self/maps", O_RDONLY);
	NEED(file >= 0);
	for (ssize_t count; (count = read(file, text + length, sizeof text - 1 - length)) > 0;)
		length += count;
	text[length] = 0;
	close(file);
	for (char *line = text; line != NULL && *line; line = strchr(line, '\n'), line += line != NULL) {
		unsigned long from, to;
		char *end = strchr(line, '\n');
		*name = 0;
		NEED(end != NULL && sscanf(line, "%lx-%lx", &from, &to) == 2);
		*end = 0;
		sscanf(line, "%*x-%*x %*s %*x %*s %*u %127[^\n]", name);
		*end = '\n';
		if (from <= (unsigned long)memory && (unsigned long)memory < to)
			return (to - from) / PAGE;
	}
	return 0;
}

static int is_named(const void *memory, const char *expected)
{
	char name[128];
	return area_at(memory, name) > 0 && strcmp(name, expected) == 0;
}

static char *map(size_t pages, int flags)
{
	/* Inaccessible pages on both sides prevent a merge with other areas. */
	char *memory = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	NEED(memory != MAP_FAILED);
	memory += PAGE;
	NEED(mmap(memory, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
	return memory;
}

static void names(void)
{
	char name[128], *memory = map(8, MAP_PRIVATE);
	CHECK(set_name(memory, 8, "eight pages") == 0);
	CHECK(is_named(memory, "[anon:eight pages]") && area_at(memory, name) == 8);
	/* A part of the area gets another name, which is then removed. */
	CHECK(set_name(memory + 2 * PAGE, 3, "three") == 0);
	CHECK(is_named(memory, "[anon:eight pages]") && area_at(memory, name) == 2);
	CHECK(is_named(memory + 4 * PAGE, "[anon:three]") && area_at(memory + 2 * PAGE, name) == 3);
	CHECK(is_named(memory + 5 * PAGE, "[anon:eight pages]") && area_at(memory + 5 * PAGE, name) == 3);
	CHECK(set_name(memory + 2 * PAGE, 3, "eight pages") == 0);
	CHECK(area_at(memory, name) == 8);
	/* The name was copied by the call, so a later change of the buffer has no effect. */
	strcpy(name, "first");
	CHECK(set_name(memory, 8, name) == 0);
	strcpy(name, "later");
	CHECK(is_named(memory, "[anon:first]"));
	CHECK(set_name(memory, 8, "") == 0);
	CHECK(is_named(memory, "[anon:]"));
	CHECK(set_name(memory, 8, NULL) == 0);
	CHECK(is_named(memory, ""));
	char *shared = map(4, MAP_SHARED);
	CHECK(is_named(shared, "/dev/zero (deleted)"));
	CHECK(set_name(shared, 4, "common") == 0);
	CHECK(is_named(shared, "[anon_shmem:common]"));
	CHECK(set_name(shared, 4, NULL) == 0);
	CHECK(is_named(shared, "/dev/zero (deleted)"));
	munmap(shared, 4 * PAGE);
	munmap(memory, 8 * PAGE);
}

/* Memory keeps its name when it is moved, when its permissions change, and when a child inherits it. */
static void changes(void)
{
	char name[128], *memory = map(4, MAP_PRIVATE), *place = map(8, MAP_PRIVATE);
	memset(memory, 1, 4 * PAGE);
	NEED(set_name(memory, 4, "moves") == 0);
	NEED(mprotect(memory + PAGE, PAGE, PROT_READ) == 0);
	CHECK(is_named(memory + PAGE, "[anon:moves]") && area_at(memory + PAGE, name) == 1);
	NEED(mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(area_at(memory, name) == 4);
	NEED(mremap(memory, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
	CHECK(is_named(place, "[anon:moves]") && area_at(place, name) == 6 && *place == 1);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		int kept = is_named(place, "[anon:moves]") && set_name(place, 6, "child's") == 0;
		_exit(kept && is_named(place, "[anon:child's]") ? 0 : 1);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(is_named(place, "[anon:moves]"));
	/* An area without a name does not merge with an area that has one. */
	NEED(mmap(place + 6 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	CHECK(is_named(place + 6 * PAGE, "") && area_at(place, name) == 6);
	munmap(place, 8 * PAGE);
}

static void refusals(void)
{
	static const char longest[] = "0123456789012345678901234567890123456789012345678901234567890123456789012345678";
	static const char longer[] = "01234567890123456789012345678901234567890123456789012345678901234567890123456789";
	char *memory = map(4, MAP_PRIVATE);
	CHECK(set_name(memory, 4, longest) == 0);
	CHECK(set_name(memory, 4, longer) < 0 && errno == EINVAL);
	CHECK(set_name(memory, 4, (char *)8) < 0 && errno == EFAULT);
	CHECK(set_name(memory + 1, 3, "odd") < 0 && errno == EINVAL);
	CHECK(set_name((void *)-PAGE, 4, "wraps") < 0 && errno == EINVAL);
	CHECK(set_name(memory, 0, "nothing") == 0);
	CHECK(set_name(NULL, 0, "nothing") == 0);
	const char *bad[] = { "a[b", "a]b", "a\\b", "a`b", "a$b", "a\nb", "a\x7f", "\xc3\xa9" };
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK(set_name(memory, 4, bad[i]) < 0 && errno == EINVAL);
	CHECK(prctl(PR_SET_VMA, 1, memory, PAGE, "a") < 0 && errno == EINVAL);
	/* The length is rounded up to whole pages. */
	CHECK(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, PAGE + 1, "two") == 0);
	char name[128];
	CHECK(is_named(memory, "[anon:two]") && area_at(memory, name) == 2);
	/* The areas after a hole are named too. */
	NEED(munmap(memory + PAGE, PAGE) == 0);
	CHECK(set_name(memory, 4, "holes") < 0 && errno == ENOMEM);
	CHECK(is_named(memory, "[anon:holes]") && is_named(memory + 3 * PAGE, "[anon:holes]"));
	/* Mappings of files cannot be named. The areas before such a mapping are named. */
	int file = memfd_create("file", 0);
	NEED(file >= 0 && ftruncate(file, PAGE) == 0);
	NEED(mmap(memory + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == memory + PAGE);
	CHECK(set_name(memory, 4, "files") < 0 && errno == EBADF);
	CHECK(is_named(memory, "[anon:files]") && is_named(memory + 3 * PAGE, "[anon:holes]"));
	close(file);
	munmap(memory, 4 * PAGE);
}

/* Creates many areas, each with a distinct name. */
static void many(void)
{
	enum { MANY = 1000 };
	char text[128], *memory = map(MANY, MAP_PRIVATE);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MANY; i++) {
			snprintf(text, sizeof text, "page %d of %d", i, round);
			NEED(set_name(memory + i * PAGE, 1, text) == 0);
		}
		CHECK(is_named(memory, round == 0 ? "[anon:page 0 of 0]" : round == 1 ? "[anon:page 0 of 1]" : "[anon:page 0 of 2]"));
	}
	CHECK(is_named(memory + 999 * PAGE, "[anon:page 999 of 2]"));
	NEED(set_name(memory, MANY, NULL) == 0);
	CHECK(area_at(memory, text) == MANY);
	munmap(memory, MANY * PAGE);
}

int main(void)
{
	names();
	changes();
	refusals();
	many();
	return checked("area_names");
}
