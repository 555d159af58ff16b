/* What do system calls return for a directory whose path is longer than any path that a call accepts?
 *
 * 400 directories with names of 250 bytes are nested. getcwd and readlink fail because the path of the innermost one
 * exceeds their limits, while /proc/self/maps prints the full path of a file in it.
 */
#include "check.h"

enum { DEPTH = 400, NAME = 250 };

static char name[NAME + 1], buffer[8192];
static char maps[1 << 18];

static void descend(void)
{
	memset(name, 'n', NAME);
	for (int depth = 0; depth < DEPTH; depth++)
		NEED(mkdir(name, 0755) == 0 && chdir(name) == 0);
}

static void ascend(void)
{
	for (int depth = 0; depth < DEPTH; depth++)
		NEED(chdir("..") == 0 && rmdir(name) == 0);
}

static void calls_have_no_room(void)
{
	CHECK_FAILS(syscall(SYS_getcwd, buffer, sizeof buffer), ENAMETOOLONG);
	CHECK_FAILS(readlink("/proc/self/cwd", buffer, sizeof buffer), ENAMETOOLONG);
	int file = open("file", O_RDWR | O_CREAT, 0644);
	NEED(file >= 0 && ftruncate(file, PAGE) == 0);
	snprintf(buffer, sizeof buffer, "/proc/self/fd/%d", file);
	static char target[8192];
	CHECK_FAILS(readlink(buffer, target, sizeof target), ENAMETOOLONG);
	close(file);
}

static void maps_show_the_whole_path(void)
{
	int file = open("file", O_RDWR);
	NEED(file >= 0);
	void *memory = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
	NEED(memory != MAP_FAILED);
	close(file);
	long all = 0, count;
	file = open("/proc/self/maps", O_RDONLY);
	NEED(file >= 0);
	while (all < (long)sizeof maps - 1 && (count = read(file, maps + all, sizeof maps - 1 - (size_t)all)) > 0)
		all += count;
	close(file);
	maps[all] = 0;
	char *end = strstr(maps, "n/file\n");
	CHECK(end != NULL);
	long names = 0;
	for (char *at = end ? end + 1 : maps; at - (NAME + 1) >= maps && memcmp(at - NAME, name, NAME) == 0; at -= NAME + 1)
		names++;
	CHECK_EQ(names, DEPTH);
	CHECK(munmap(memory, PAGE) == 0);
	CHECK(unlink("file") == 0);
}

int main(void)
{
	NEED(chdir("/tmp") == 0);
	descend();
	calls_have_no_room();
	maps_show_the_whole_path();
	ascend();
	return checked("deep_paths");
}
