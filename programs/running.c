/* Is the file of a running program protected against writes and truncation, whatever path is used to open it?
 */
#include "check.h"

/* Copies this program to `path`. */
static void copy_to(const char *path)
{
	static char bytes[65536];
	int from = open("/proc/self/exe", O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0755);
	NEED(from >= 0 && to >= 0);
	ssize_t count;
	while ((count = read(from, bytes, sizeof bytes)) > 0)
		NEED(write(to, bytes, (size_t)count) == count);
	close(from);
	close(to);
}

/* Checks that the file at `path` cannot be written in any way. */
static void refused(const char *path)
{
	CHECK_FAILS(open(path, O_RDONLY | O_TRUNC), ETXTBSY);
	CHECK_FAILS(open(path, O_WRONLY), ETXTBSY);
	CHECK_FAILS(open(path, O_RDWR), ETXTBSY);
	CHECK_FAILS(open(path, O_WRONLY | O_APPEND), ETXTBSY);
	CHECK_FAILS(open(path, O_RDWR | O_TRUNC), ETXTBSY);
	CHECK_FAILS(open(path, O_RDWR | O_CREAT, 0755), ETXTBSY);
	CHECK_FAILS(open(path, O_RDONLY | O_CREAT | O_TRUNC, 0755), ETXTBSY);
	CHECK_FAILS(truncate(path, 0), ETXTBSY);
	CHECK_FAILS(truncate(path, 1 << 30), ETXTBSY);
}

/* Runs in the copy. Checks that its file cannot be written through any path, and is unchanged afterwards. */
static int as_copy(const char *path)
{
	struct stat before, after;
	NEED(stat("/proc/self/exe", &before) == 0);
	refused("/proc/self/exe");
	refused(path);
	char name[64];
	int file = open(path, O_RDONLY);
	NEED(file >= 0);
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	refused(name);
	CHECK_FAILS(ftruncate(file, 0), EINVAL);
	/* The file cannot be written under another name either, or after it was unlinked. */
	char other[64];
	snprintf(other, sizeof other, "%s.other", path);
	CHECK_EQ(link(path, other), 0);
	refused(other);
	CHECK_EQ(unlink(other), 0);
	CHECK_EQ(unlink(path), 0);
	refused("/proc/self/exe");
	refused(name);
	CHECK_EQ(stat("/proc/self/exe", &after), 0);
	CHECK_EQ(after.st_size, before.st_size);
	return checks_failed ? 1 : 0;
}

static void run(void *path)
{
	execl(path, path, "copy", NULL);
	_exit(98);
}

static void open_for_writing(void)
{
	char path[] = "/tmp/running-XXXXXX";
	int file = mkstemp(path);
	NEED(file >= 0);
	close(file);
	copy_to(path);
	chmod(path, 0755);
	/* While the file is open for writing, it cannot be executed. */
	file = open(path, O_WRONLY);
	NEED(file >= 0);
	CHECK_FAILS(execl(path, path, "copy", NULL), ETXTBSY);
	/* A shared writable mapping prevents the execution too, although its descriptor is closed. */
	int both = open(path, O_RDWR);
	NEED(both >= 0);
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both, 0);
	NEED(page != MAP_FAILED);
	close(both);
	close(file);
	CHECK_FAILS(execl(path, path, "copy", NULL), ETXTBSY);
	CHECK_EQ(munmap(page, PAGE), 0);
	CHECK(exited(in_child(run, path), 0));
	/* The copy has unlinked its own file. */
	CHECK_FAILS(open(path, O_RDONLY), ENOENT);
}

/* After a program has exited, its file can be written again. */
static void ended(void)
{
	char path[] = "/tmp/running-XXXXXX";
	int file = mkstemp(path);
	NEED(file >= 0);
	close(file);
	copy_to(path);
	chmod(path, 0755);
	pid_t child = fork_checked();
	if (child == 0) {
		execl(path, path, "wait", NULL);
		_exit(98);
	}
	NEED(child > 0);
	char exe[64], link[256];
	snprintf(exe, sizeof exe, "/proc/%d/exe", (int)child);
	ssize_t length;
	do
		length = readlink(exe, link, sizeof link);
	while (length != (ssize_t)strlen(path) || memcmp(link, path, strlen(path)) != 0);
	CHECK_FAILS(open(exe, O_RDONLY | O_TRUNC), ETXTBSY);
	CHECK_FAILS(open(path, O_WRONLY), ETXTBSY);
	kill(child, SIGKILL);
	CHECK(killed(wait_for(child), SIGKILL));
	file = open(path, O_WRONLY | O_TRUNC);
	CHECK(file >= 0);
	close(file);
	unlink(path);
}

int main(int count, char **arguments)
{
	if (count > 1 && strcmp(arguments[1], "copy") == 0)
		return as_copy(arguments[0]);
	if (count > 1)
		for (;;)
			pause();
	open_for_writing();
	ended();
	return checked("running");
}
