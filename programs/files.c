/* Do files in memory behave as on Linux: names, offsets, sizes, holes, links to open files, and mappings?
 */
#include "check.h"
#include <dirent.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>

#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif

static int create(const char *name, const char *text)
{
	int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
	NEED(file >= 0);
	NEED(write(file, text, strlen(text)) == (ssize_t)strlen(text));
	return file;
}

static int holds(const char *name, const char *text)
{
	char content[64] = "";
	int file = open(name, O_RDONLY);
	if (file < 0)
		return 0;
	ssize_t length = read(file, content, sizeof content - 1);
	close(file);
	return length == (ssize_t)strlen(text) && memcmp(content, text, (size_t)length) == 0;
}

static void names(void)
{
	int file = create("one", "first");
	CHECK_FAILS(open("one", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
	CHECK_FAILS(open("none", O_RDONLY), ENOENT);
	CHECK_FAILS(open("one/below", O_RDONLY), ENOTDIR);
	CHECK_FAILS(open("one", O_RDONLY | O_DIRECTORY), ENOTDIR);
	CHECK_FAILS(open(".", O_WRONLY), EISDIR);
	CHECK_FAILS(open("", O_RDONLY), ENOENT);
	static char longest[300];
	memset(longest, 'n', 299);
	CHECK_FAILS(open(longest, O_CREAT | O_RDWR, 0644), ENAMETOOLONG);
	CHECK_EQ(mkdir("folder", 0755), 0);
	CHECK_FAILS(mkdir("folder", 0755), EEXIST);
	CHECK_FAILS(rmdir("one"), ENOTDIR);
	CHECK_FAILS(unlink("folder"), EISDIR);
	CHECK_EQ(rename("one", "folder/two"), 0);
	CHECK(holds("folder/two", "first"));
	CHECK_FAILS(open("one", O_RDONLY), ENOENT);
	CHECK_FAILS(rmdir("folder"), ENOTEMPTY);
	/* A rename replaces another file. Its name now refers to the renamed file, and the replaced file is
	 * still open. */
	int other = create("three", "third");
	CHECK_EQ(rename("folder/two", "three"), 0);
	CHECK(holds("three", "first"));
	char byte;
	CHECK_EQ(pread(other, &byte, 1, 0), 1);
	CHECK_EQ(byte, 't');
	struct stat stat_open;
	CHECK_EQ(fstat(other, &stat_open), 0);
	CHECK_EQ(stat_open.st_nlink, 0);
	close(other);
	CHECK_FAILS(rename("folder", "folder/inside"), EINVAL);
	CHECK_FAILS(rename("folder", "three"), ENOTDIR);
	CHECK_FAILS(rename("three", "folder"), EISDIR);
	CHECK_FAILS(rename("none", "some"), ENOENT);
	CHECK_EQ(rename("three", "three"), 0);
	CHECK_EQ(unlink("three"), 0);
	CHECK_FAILS(unlink("three"), ENOENT);
	CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
	CHECK_EQ(read(file, &byte, 1), 1);
	CHECK_EQ(byte, 'f');
	close(file);
	CHECK_EQ(rmdir("folder"), 0);

	CHECK_EQ(symlink("target", "link"), 0);
	CHECK_FAILS(open("link", O_RDONLY), ENOENT);
	close(create("target", "seen"));
	CHECK(holds("link", "seen"));
	char text[16];
	CHECK_EQ(readlink("link", text, sizeof text), 6);
	CHECK(memcmp(text, "target", 6) == 0);
	CHECK_FAILS(readlink("target", text, sizeof text), EINVAL);
	struct stat stat_link;
	CHECK_EQ(lstat("link", &stat_link), 0);
	CHECK(S_ISLNK(stat_link.st_mode));
	CHECK_FAILS(open("link", O_RDONLY | O_NOFOLLOW), ELOOP);
	CHECK_EQ(symlink("loop", "loop"), 0);
	CHECK_FAILS(open("loop", O_RDONLY), ELOOP);
	CHECK_EQ(unlink("loop"), 0);
	CHECK_EQ(unlink("link"), 0);
	CHECK_EQ(link("target", "twin"), 0);
	CHECK_EQ(stat("twin", &stat_link), 0);
	CHECK_EQ(stat_link.st_nlink, 2);
	CHECK_EQ(unlink("target"), 0);
	CHECK(holds("twin", "seen"));
	CHECK_EQ(unlink("twin"), 0);
}

static void offsets(void)
{
	int file = create("data", "0123456789");
	char text[32] = "";
	CHECK_EQ(lseek(file, 3, SEEK_SET), 3);
	CHECK_EQ(read(file, text, 2), 2);
	CHECK(memcmp(text, "34", 2) == 0);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 5);
	CHECK_EQ(lseek(file, -1, SEEK_END), 9);
	CHECK_EQ(read(file, text, 32), 1);
	CHECK_EQ(read(file, text, 32), 0);
	CHECK_FAILS(lseek(file, -1, SEEK_SET), EINVAL);
	CHECK_FAILS(lseek(file, 0, 99), EINVAL);
	CHECK_EQ(pwrite(file, "xy", 2, 4), 2);
	CHECK_EQ(pread(file, text, 4, 3), 4);
	CHECK(memcmp(text, "3xy6", 4) == 0);
	CHECK_FAILS(pread(file, text, 1, -1), EINVAL);
	/* A hole reads as zeroes, and only written pages take blocks. */
	CHECK_EQ(pwrite(file, "end", 3, 1 << 20), 3);
	struct stat stat;
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_size, (1 << 20) + 3);
	CHECK(stat.st_blocks > 0 && stat.st_blocks < 256);
	CHECK_EQ(stat.st_nlink, 1);
	CHECK(S_ISREG(stat.st_mode) && (stat.st_mode & 07777) == 0644);
	CHECK_EQ(pread(file, text, 4, 5000), 4);
	CHECK(memcmp(text, "\0\0\0\0", 4) == 0);
	/* A read of a hole also stops where the caller's buffer becomes inaccessible. */
	char *short_memory = anonymous(2 * PAGE);
	NEED(short_memory != MAP_FAILED && munmap(short_memory + PAGE, PAGE) == 0);
	CHECK_EQ(pread(file, short_memory + PAGE - 1000, 3000, 3 * PAGE), 1000);
	CHECK_FAILS(pread(file, short_memory + PAGE, 3000, 3 * PAGE), EFAULT);
	munmap(short_memory, PAGE);
	CHECK_EQ(ftruncate(file, 6), 0);
	CHECK_EQ(ftruncate(file, 12), 0);
	CHECK_EQ(pread(file, text, 32, 0), 12);
	CHECK(memcmp(text, "0123xy\0\0\0\0\0\0", 12) == 0);
	CHECK_FAILS(ftruncate(file, -1), EINVAL);
	close(file);
	/* With O_APPEND, a write appends to the file whatever the offset is. */
	file = open("data", O_WRONLY | O_APPEND);
	CHECK_EQ(write(file, "A", 1), 1);
	CHECK_EQ(lseek(file, 0, SEEK_SET), 0);
	CHECK_EQ(write(file, "B", 1), 1);
	CHECK_EQ(lseek(file, 0, SEEK_CUR), 14);
	CHECK_FAILS(read(file, text, 1), EBADF);
	close(file);
	file = open("data", O_RDWR | O_TRUNC);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_size, 0);
	CHECK_EQ(fallocate(file, 0, 0, 10000), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_size, 10000);
	CHECK(stat.st_blocks >= 20);
	CHECK_EQ(pwrite(file, "full", 4, 4096), 4);
	/* KEEP_SIZE | PUNCH_HOLE */
	CHECK_EQ(fallocate(file, 3, 4096, 4096), 0);
	CHECK_EQ(pread(file, text, 4, 4096), 4);
	CHECK(memcmp(text, "\0\0\0\0", 4) == 0);
	CHECK_FAILS(fallocate(file, 0, 0, 0), EINVAL);
	/* The last page of the maximum file size has no end that fits in an offset. */
	CHECK_FAILS(fallocate(file, 0, INT64_MAX - 100, 100), EFBIG);
	CHECK_FAILS(fallocate(file, 1 /* KEEP_SIZE */, INT64_MAX - 100, 100), EFBIG);
	CHECK_EQ(fallocate(file, 1, INT64_MAX - 2 * PAGE + 1, PAGE), 0);
	CHECK_EQ(ftruncate(file, INT64_MAX), 0);
	CHECK_EQ(pwrite(file, "end", 3, INT64_MAX - 10), 3);
	CHECK_EQ(lseek(file, INT64_MAX - 100, SEEK_DATA), INT64_MAX - 100);
	CHECK_EQ(lseek(file, INT64_MAX - 100, SEEK_HOLE), INT64_MAX);
	close(file);
	CHECK_EQ(unlink("data"), 0);
}

static void folders(void)
{
	CHECK_EQ(mkdir("many", 0755), 0);
	char name[32];
	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "many/entry-%03d", i);
		int file = open(name, O_CREAT | O_WRONLY, 0600);
		NEED(file >= 0);
		close(file);
	}
	DIR *folder = opendir("many");
	NEED(folder != NULL);
	int seen[300] = { 0 }, dots = 0, others = 0;
	struct dirent *entry;
	while ((entry = readdir(folder)) != NULL) {
		int number;
		if (sscanf(entry->d_name, "entry-%d", &number) == 1 && number >= 0 && number < 300) {
			seen[number]++;
			CHECK(entry->d_type == DT_REG);
		} else if (entry->d_name[0] == '.') {
			dots++;
		} else {
			others++;
		}
	}
	int wrong = 0;
	for (int i = 0; i < 300; i++)
		wrong += seen[i] != 1;
	CHECK_EQ(wrong, 0);
	CHECK_EQ(dots, 2);
	CHECK_EQ(others, 0);
	/* If entries are removed while the folder is read, the other entries are still returned. */
	rewinddir(folder);
	int removed = 0;
	while ((entry = readdir(folder)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof name, "many/%s", entry->d_name);
		CHECK_EQ(unlink(name), 0);
		removed++;
	}
	closedir(folder);
	CHECK_EQ(removed, 300);
	CHECK_EQ(rmdir("many"), 0);

	char before[256], now[256];
	CHECK(getcwd(before, sizeof before) == before);
	CHECK_EQ(mkdir("down", 0755), 0);
	CHECK_EQ(chdir("down"), 0);
	CHECK(getcwd(now, sizeof now) == now);
	CHECK(strncmp(now, before, strlen(before)) == 0 && strcmp(now + strlen(before), "/down") == 0);
	int here = open(".", O_RDONLY | O_DIRECTORY);
	CHECK_EQ(chdir("../"), 0);
	CHECK_EQ(fchdir(here), 0);
	int file = openat(here, "relative", O_CREAT | O_RDWR, 0644);
	CHECK(file >= 0);
	close(file);
	CHECK_EQ(faccessat(here, "relative", R_OK | W_OK, 0), 0);
	CHECK_FAILS(access("relative", X_OK), EACCES);
	CHECK_EQ(unlinkat(here, "relative", 0), 0);
	close(here);
	CHECK_EQ(chdir(".."), 0);
	CHECK_EQ(unlinkat(AT_FDCWD, "down", AT_REMOVEDIR), 0);
	CHECK_FAILS(chdir("down"), ENOENT);
	char small[2];
	CHECK(getcwd(small, sizeof small) == NULL && errno == ERANGE);

	mode_t old = umask(077);
	file = open("masked", O_CREAT | O_RDWR, 0666);
	struct stat stat;
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_mode & 0777, 0600);
	CHECK_EQ(umask(old), 077);
	CHECK_EQ(fchmod(file, 0444), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_mode & 0777, 0444);
	close(file);
	CHECK_EQ(unlink("masked"), 0);
	struct statfs system;
	CHECK_EQ(statfs(".", &system), 0);
	CHECK_EQ(system.f_bsize, 4096);
	CHECK(system.f_blocks > 0 && system.f_bfree <= system.f_blocks);
	CHECK_EQ(system.f_namelen, 255);
}

static void nameless(void)
{
	int file = open(".", O_TMPFILE | O_RDWR, 0600);
	CHECK(file >= 0);
	struct stat stat;
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_nlink, 0);
	CHECK_EQ(write(file, "temporary", 9), 9);
	close(file);

	file = (int)syscall(SYS_memfd_create, "in memory", 1);
	NEED(file >= 0);
	CHECK_EQ(fcntl(file, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(ftruncate(file, 2 * PAGE), 0);
	char *view = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(view != MAP_FAILED);
	strcpy(view + PAGE, "mapped");
	char text[8];
	CHECK_EQ(pread(file, text, 7, PAGE), 7);
	CHECK(strcmp(text, "mapped") == 0);
	CHECK_EQ(pwrite(file, "W", 1, PAGE), 1);
	CHECK_EQ(view[PAGE], 'W');
	/* The mapping keeps the file alive after its descriptor is closed. */
	close(file);
	CHECK_EQ(view[PAGE + 1], 'a');
	munmap(view, 2 * PAGE);
}

static void sending(void)
{
	enum { LENGTH = 300000 };
	int from = open("from", O_CREAT | O_RDWR, 0600), to = open("to", O_CREAT | O_RDWR, 0600);
	NEED(from >= 0 && to >= 0);
	static unsigned char bytes[LENGTH], copy[LENGTH];
	for (int i = 0; i < LENGTH; i++)
		bytes[i] = (unsigned char)(i * 7 % 253);
	CHECK_EQ(write(from, bytes, LENGTH), LENGTH);
	off_t at = 1000;
	long sent = 0;
	ssize_t part;
	while ((part = sendfile(to, from, &at, LENGTH)) > 0)
		sent += part;
	CHECK_EQ(sent, LENGTH - 1000);
	CHECK_EQ(at, LENGTH);
	CHECK_EQ(lseek(from, 0, SEEK_CUR), LENGTH);
	CHECK_EQ(pread(to, copy, LENGTH, 0), LENGTH - 1000);
	CHECK_EQ(memcmp(copy, bytes + 1000, LENGTH - 1000), 0);
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(lseek(from, 10, SEEK_SET), 10);
	CHECK_EQ(sendfile(ends[1], from, NULL, 100), 100);
	CHECK_EQ(lseek(from, 0, SEEK_CUR), 110);
	CHECK_EQ(read(ends[0], copy, LENGTH), 100);
	CHECK_EQ(memcmp(copy, bytes + 10, 100), 0);
	/* sendfile cannot read from a pipe or a folder. */
	CHECK_EQ(write(ends[1], "sent", 4), 4);
	CHECK_FAILS(sendfile(to, ends[0], NULL, 4), EINVAL);
	CHECK_EQ(read(ends[0], copy, LENGTH), 4);
	int folder = open(".", O_RDONLY | O_DIRECTORY);
	CHECK_FAILS(sendfile(to, folder, NULL, 4), EINVAL);
	close(folder);
	CHECK_EQ(syncfs(ends[0]), 0);
	close(ends[0]);
	close(ends[1]);
	/* Two ranges of the same file must not overlap. The source range is truncated at the end of the file. */
	loff_t first = LENGTH - 100, second = LENGTH + 50;
	CHECK_EQ(copy_file_range(from, &first, from, &second, 1000, 0), 100);
	CHECK_EQ(pread(from, copy, 100, LENGTH + 50), 100);
	CHECK_EQ(memcmp(copy, bytes + LENGTH - 100, 100), 0);
	first = 0, second = 50;
	CHECK_FAILS(copy_file_range(from, &first, from, &second, 100, 0), EINVAL);
	first = LENGTH + 200, second = LENGTH + 100;
	CHECK_EQ(copy_file_range(from, &first, from, &second, 1000, 0), 0);
	close(from);
	close(to);
	CHECK_EQ(unlink("from"), 0);
	CHECK_EQ(unlink("to"), 0);
}

static volatile int faulted;

static void on_fault(int signal)
{
	(void)signal;
	faulted++;
	_exit(checks_failed ? 1 : 42);
}

/* Truncating a file unmaps the pages beyond its end in every process, including private copies. */
static void truncation(void)
{
	int file = scratch_file(4 * PAGE);
	NEED(file >= 0);
	char *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	char *private = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	NEED(shared != MAP_FAILED && private != MAP_FAILED);
	memset(shared, 's', 4 * PAGE);
	private[2 * PAGE] = 'p';
	private[0] = 'q';
	/* Each child has its own pipes for turns, because any reader of a shared pipe could receive the byte. */
	struct turns turns[3];
	pid_t children[3];
	for (int i = 0; i < 3; i++) {
		NEED(turns_open(&turns[i]));
		children[i] = fork_checked();
		if (children[i] == 0) {
			/* Maps the page in this process before the file is truncated. */
			CHECK_EQ(*(volatile char *)(shared + 2 * PAGE), 's');
			CHECK_EQ(*(volatile char *)(private + 2 * PAGE), 'p');
			NEED(turn_pass(turns[i].to_parent));
			NEED(turn_await(turns[i].to_child));
			CHECK_EQ(*(volatile char *)shared, 's');
			CHECK_EQ(*(volatile char *)private, 'q');
			signal(SIGBUS, on_fault);
			volatile char *at = i == 0 ? shared + 2 * PAGE : i == 1 ? private + 2 * PAGE : shared + PAGE;
			(void)*at;
			end_child();
		}
		NEED(turn_await(turns[i].to_parent));
	}
	CHECK_EQ(ftruncate(file, PAGE + 100), 0);
	for (int i = 0; i < 3; i++) {
		NEED(turn_pass(turns[i].to_child));
		CHECK(exited(wait_for(children[i]), i == 2 ? 0 : 42));
	}
	/* The rest of the last page is zeroed. */
	CHECK_EQ(shared[PAGE + 99], 's');
	CHECK_EQ(shared[PAGE + 100], 0);
	CHECK_EQ(ftruncate(file, 4 * PAGE), 0);
	CHECK_EQ(shared[2 * PAGE], 0);
	CHECK_EQ(private[2 * PAGE], 0);
	CHECK_EQ(private[0], 'q');
	munmap(shared, 4 * PAGE);
	munmap(private, 4 * PAGE);
	for (int i = 0; i < 3; i++)
		turns_close(&turns[i]);
	close(file);
}

static void devices(void)
{
	char bytes[64];
	memset(bytes, 'x', sizeof bytes);
	int device = open("/dev/null", O_RDWR);
	CHECK_EQ(write(device, bytes, 64), 64);
	CHECK_EQ(read(device, bytes, 64), 0);
	struct stat stat;
	CHECK_EQ(fstat(device, &stat), 0);
	CHECK(S_ISCHR(stat.st_mode) && stat.st_rdev == 0x103);
	close(device);
	device = open("/dev/zero", O_RDWR);
	CHECK_EQ(read(device, bytes, 64), 64);
	CHECK_EQ(bytes[63], 0);
	char *zeroes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, device, 0);
	CHECK(zeroes != MAP_FAILED && zeroes[5] == 0);
	zeroes[5] = 1;
	munmap(zeroes, PAGE);
	close(device);
	device = open("/dev/full", O_RDWR);
	CHECK_FAILS(write(device, bytes, 1), ENOSPC);
	CHECK_EQ(read(device, bytes, 64), 64);
	close(device);
	device = open("/dev/urandom", O_RDONLY);
	char more[64];
	CHECK_EQ(read(device, bytes, 64), 64);
	CHECK_EQ(read(device, more, 64), 64);
	CHECK(memcmp(bytes, more, 64) != 0);
	close(device);
}

int main(void)
{
	char folder[] = "/tmp/files-XXXXXX";
	NEED(mkdtemp(folder) != NULL && chdir(folder) == 0);
	names();
	offsets();
	folders();
	nameless();
	sending();
	truncation();
	devices();
	CHECK_EQ(chdir("/"), 0);
	/* All files that the program created have been removed. */
	CHECK_EQ(rmdir(folder), 0);
	return checked("files");
}
