/* Do files in memory support extended attributes as Linux's tmpfs does, with the same limits, permissions and errors?
 */
#include "check.h"
#include <sys/socket.h>
#include <sys/xattr.h>

#define NAME_MOST 255
#define VALUE_MOST 65536

/* An address that is not mapped. */
static void *volatile bad = (void *)8;

static char large[VALUE_MOST + 1], seen[VALUE_MOST + 1];

/* The kernel's struct xattr_args, which not every C library's headers contain. */
struct arguments {
	uint64_t value;
	uint32_t size, flags;
};

static int listed(const char *list, ssize_t length, const char *name)
{
	for (const char *at = list; at < list + length; at += strlen(at) + 1)
		if (strcmp(at, name) == 0)
			return 1;
	return 0;
}

static void values(int file)
{
	CHECK_FAILS(fgetxattr(file, "user.one", seen, 10), ENODATA);
	CHECK_FAILS(fremovexattr(file, "user.one"), ENODATA);
	CHECK_EQ(flistxattr(file, NULL, 0), 0);
	CHECK_FAILS(fsetxattr(file, "user.one", "12345", 5, XATTR_REPLACE), ENODATA);
	CHECK_EQ(fsetxattr(file, "user.one", "12345", 5, XATTR_CREATE), 0);
	CHECK_FAILS(fsetxattr(file, "user.one", "6", 1, XATTR_CREATE), EEXIST);
	CHECK_FAILS(fsetxattr(file, "user.one", "6", 1, XATTR_CREATE | XATTR_REPLACE), EEXIST);
	CHECK_FAILS(fsetxattr(file, "user.two", "6", 1, XATTR_CREATE | XATTR_REPLACE), ENODATA);
	CHECK_EQ(fgetxattr(file, "user.one", NULL, 0), 5);
	CHECK_FAILS(fgetxattr(file, "user.one", seen, 4), ERANGE);
	CHECK_EQ(fgetxattr(file, "user.one", seen, 6), 5);
	CHECK(memcmp(seen, "12345", 5) == 0);
	CHECK_EQ(fsetxattr(file, "user.one", "67", 2, XATTR_REPLACE), 0);
	CHECK_EQ(fgetxattr(file, "user.one", seen, 6), 2);
	CHECK(memcmp(seen, "67345", 5) == 0);
	CHECK_EQ(fsetxattr(file, "user.empty", NULL, 0, 0), 0);
	CHECK_EQ(fgetxattr(file, "user.empty", seen, 6), 0);
	CHECK_EQ(flistxattr(file, NULL, 0), 9 + 11);
	CHECK_FAILS(flistxattr(file, seen, 19), ERANGE);
	CHECK_EQ(flistxattr(file, seen, 20), 20);
	CHECK(listed(seen, 20, "user.one") && listed(seen, 20, "user.empty"));
	CHECK_EQ(fremovexattr(file, "user.one"), 0);
	CHECK_FAILS(fremovexattr(file, "user.one"), ENODATA);
	CHECK_EQ(fremovexattr(file, "user.empty"), 0);
	CHECK_EQ(flistxattr(file, seen, 20), 0);
}

static void limits(int file)
{
	char name[NAME_MOST + 2];
	memset(name, 'n', sizeof name);
	memcpy(name, "user.", 5);
	name[NAME_MOST + 1] = 0;
	CHECK_FAILS(fsetxattr(file, name, "1", 1, 0), ERANGE);
	CHECK_FAILS(fgetxattr(file, name, seen, 1), ERANGE);
	CHECK_FAILS(fremovexattr(file, name), ERANGE);
	name[NAME_MOST] = 0;
	CHECK_EQ(fsetxattr(file, name, "1", 1, 0), 0);
	CHECK_EQ(flistxattr(file, seen, sizeof seen), NAME_MOST + 1);
	CHECK(strcmp(seen, name) == 0);
	CHECK_EQ(fremovexattr(file, name), 0);
	CHECK_FAILS(fsetxattr(file, "", "1", 1, 0), ERANGE);
	CHECK_FAILS(fsetxattr(file, "user.large", large, VALUE_MOST + 1, 0), E2BIG);
	memset(large, 7, sizeof large);
	CHECK_EQ(fsetxattr(file, "user.large", large, VALUE_MOST, 0), 0);
	CHECK_EQ(fgetxattr(file, "user.large", seen, VALUE_MOST + 1), VALUE_MOST);
	CHECK(memcmp(large, seen, VALUE_MOST) == 0);
	CHECK_FAILS(fgetxattr(file, "user.large", seen, VALUE_MOST - 1), ERANGE);
	CHECK_EQ(fremovexattr(file, "user.large"), 0);
	CHECK_FAILS(fsetxattr(file, "user.one", "1", 1, 4), EINVAL);
	CHECK_FAILS(fsetxattr(file, NULL, "1", 1, 0), EFAULT);
	CHECK_FAILS(fsetxattr(file, "user.one", bad, 1, 0), EFAULT);
	CHECK_FAILS(fsetxattr(file, "user.", "1", 1, 0), EINVAL);
	CHECK_FAILS(fsetxattr(file, "user", "1", 1, 0), EOPNOTSUPP);
	CHECK_FAILS(fsetxattr(file, "other.one", "1", 1, 0), EOPNOTSUPP);
	CHECK_FAILS(fgetxattr(file, "other.one", seen, 1), EOPNOTSUPP);
	CHECK_FAILS(fsetxattr(-1, "user.one", "1", 1, 0), EBADF);
	CHECK_FAILS(fgetxattr(-1, "user.one", seen, 1), EBADF);
	CHECK_FAILS(flistxattr(-1, seen, 1), EBADF);
	CHECK_FAILS(fremovexattr(-1, "user.one"), EBADF);
	CHECK_EQ(fsetxattr(file, "user.one", "1", 1, 0), 0);
	CHECK_FAILS(fgetxattr(file, "user.one", bad, 1), EFAULT);
	CHECK_FAILS(flistxattr(file, bad, 100), EFAULT);
	CHECK_EQ(fremovexattr(file, "user.one"), 0);
}

/* 700 names of 100 bytes exceed the maximum size of a list. */
static void too_many(int file)
{
	char name[101];
	for (int i = 0; i < 700; i++) {
		snprintf(name, sizeof name, "user.%094d", i);
		NEED(fsetxattr(file, name, "1", 1, XATTR_CREATE) == 0);
	}
	CHECK_FAILS(flistxattr(file, seen, VALUE_MOST), E2BIG);
	CHECK_FAILS(flistxattr(file, seen, VALUE_MOST - 1), ERANGE);
	for (int i = 0; i < 700; i++) {
		snprintf(name, sizeof name, "user.%094d", i);
		NEED(fgetxattr(file, name, seen, 1) == 1);
		NEED(fremovexattr(file, name) == 0);
	}
	CHECK_EQ(flistxattr(file, seen, VALUE_MOST), 0);
}

static void paths(const char *folder)
{
	char file[200], link[200], fifo[200];
	snprintf(file, sizeof file, "%s/file", folder);
	snprintf(link, sizeof link, "%s/link", folder);
	snprintf(fifo, sizeof fifo, "%s/fifo", folder);
	int made = open(file, O_CREAT | O_RDWR, 0600);
	NEED(made >= 0 && symlink("file", link) == 0 && mkfifo(fifo, 0600) == 0);
	CHECK_EQ(setxattr(link, "user.one", "1", 1, 0), 0);
	CHECK_EQ(getxattr(file, "user.one", seen, 5), 1);
	CHECK_EQ(lgetxattr(file, "user.one", seen, 5), 1);
	CHECK_FAILS(lgetxattr(link, "user.one", seen, 5), ENODATA);
	CHECK_FAILS(lsetxattr(link, "user.one", "1", 1, 0), EPERM);
	CHECK_FAILS(lremovexattr(link, "user.one"), EPERM);
	CHECK_EQ(listxattr(link, seen, 50), 9);
	CHECK_EQ(llistxattr(link, seen, 50), 0);
	CHECK_EQ(removexattr(link, "user.one"), 0);
	CHECK_FAILS(setxattr(fifo, "user.one", "1", 1, 0), EPERM);
	CHECK_FAILS(getxattr(fifo, "user.one", seen, 1), ENODATA);
	CHECK_EQ(setxattr(folder, "user.one", "1", 1, 0), 0);
	CHECK_EQ(getxattr(folder, "user.one", seen, 5), 1);
	CHECK_FAILS(setxattr("/nowhere/file", "user.one", "1", 1, 0), ENOENT);
	CHECK_FAILS(getxattr("/nowhere/file", "user.one", seen, 1), ENOENT);
	int reference = open(file, O_PATH);
	CHECK_FAILS(fgetxattr(reference, "user.one", seen, 1), EBADF);
	CHECK_FAILS(fsetxattr(reference, "user.one", "1", 1, 0), EBADF);
	close(reference);
	if (syscall(SYS_listxattr + 271, AT_FDCWD, file, 0, NULL, 0) == 0) { /* listxattrat */
		struct arguments new = { (uintptr_t)"abc", 3, 0 }, buffer = { (uintptr_t)seen, 50, 0 };
		CHECK_EQ(syscall(463, AT_FDCWD, file, 0, "user.at", &new, sizeof new), 0);
		CHECK_EQ(syscall(464, AT_FDCWD, link, 0, "user.at", &buffer, sizeof buffer), 3);
		CHECK_EQ(syscall(464, made, "", AT_EMPTY_PATH, "user.at", &buffer, sizeof buffer), 3);
		CHECK_FAILS(syscall(464, AT_FDCWD, link, AT_SYMLINK_NOFOLLOW, "user.at", &buffer, sizeof buffer),
			    ENODATA);
		CHECK_FAILS(syscall(464, AT_FDCWD, file, 0, "user.at", &buffer, 8L), EINVAL);
		CHECK_FAILS(syscall(464, AT_FDCWD, file, 1, "user.at", &buffer, sizeof buffer), EINVAL);
		buffer.flags = 1;
		CHECK_FAILS(syscall(464, AT_FDCWD, file, 0, "user.at", &buffer, sizeof buffer), EINVAL);
		CHECK_EQ(syscall(465, AT_FDCWD, file, 0, seen, 50L), 8);
		CHECK_EQ(syscall(466, AT_FDCWD, file, 0, "user.at"), 0);
		CHECK_FAILS(syscall(466, AT_FDCWD, file, 0, "user.at"), ENODATA);
	}
	struct stat before, after;
	NEED(fstat(made, &before) == 0);
	usleep(20000);
	CHECK_EQ(fsetxattr(made, "user.one", "1", 1, 0), 0);
	NEED(fstat(made, &after) == 0);
	CHECK(before.st_ctim.tv_sec != after.st_ctim.tv_sec || before.st_ctim.tv_nsec != after.st_ctim.tv_nsec);
	CHECK_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	close(made);
	unlink(file);
	unlink(link);
	unlink(fifo);
}

static void others(void)
{
	int ends[2], sockets[2];
	NEED(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	CHECK_FAILS(fsetxattr(ends[0], "user.one", "1", 1, 0), EPERM);
	CHECK_FAILS(fgetxattr(ends[0], "user.one", seen, 1), ENODATA);
	CHECK_FAILS(fgetxattr(ends[0], "security.one", seen, 1), EOPNOTSUPP);
	CHECK_EQ(flistxattr(ends[0], seen, 50), 0);
	CHECK_FAILS(fgetxattr(sockets[0], "security.one", seen, 1), EOPNOTSUPP);
	CHECK_FAILS(getxattr("/proc/self/status", "user.one", seen, 1), EOPNOTSUPP);
	CHECK_FAILS(getxattr("/proc/self/status", "security.selinux", seen, 1), EOPNOTSUPP);
	CHECK_EQ(listxattr("/proc/self/status", seen, 50), 0);
}

static void unprivileged(void *argument)
{
	char *file = argument;
	NEED(setgid(1000) == 0 && setuid(1000) == 0);
	CHECK_EQ(listxattr(file, seen, 200), 11 + 15);
	CHECK(listed(seen, 26, "user.shown") && listed(seen, 26, "security.shown"));
	CHECK_FAILS(getxattr(file, "trusted.hidden", seen, 5), ENODATA);
	CHECK_FAILS(setxattr(file, "trusted.hidden", "1", 1, 0), EPERM);
	CHECK_FAILS(removexattr(file, "trusted.hidden"), EPERM);
	CHECK_EQ(getxattr(file, "security.shown", seen, 5), 1);
	CHECK_FAILS(setxattr(file, "security.shown", "1", 1, 0), EPERM);
	CHECK_FAILS(removexattr(file, "security.shown"), EPERM);
	CHECK_EQ(getxattr(file, "user.shown", seen, 5), 1);
	CHECK_FAILS(setxattr(file, "user.shown", "1", 1, 0), EACCES);
	CHECK_FAILS(removexattr(file, "user.shown"), EACCES);
	char value[20] = { 0, 0, 0, 2 };
	CHECK_FAILS(setxattr(file, "security.capability", value, 20, 0), EPERM);
}

static void privileged(const char *folder)
{
	char file[200];
	snprintf(file, sizeof file, "%s/file", folder);
	int made = open(file, O_CREAT | O_RDWR, 0644);
	NEED(made >= 0 && chmod(folder, 0755) == 0);
	CHECK_EQ(fsetxattr(made, "trusted.hidden", "1", 1, 0), 0);
	CHECK_EQ(fsetxattr(made, "security.shown", "1", 1, 0), 0);
	CHECK_EQ(fsetxattr(made, "user.shown", "1", 1, 0), 0);
	CHECK_EQ(flistxattr(made, seen, 200), 15 + 11 + 15);
	CHECK(exited(in_child(unprivileged, file), 0));
	char value[20] = { 0, 0, 0, 2 };
	CHECK_FAILS(fsetxattr(made, "security.capability", value, 19, 0), EINVAL);
	CHECK_EQ(fsetxattr(made, "security.capability", value, 20, 0), 0);
	CHECK_EQ(fgetxattr(made, "security.capability", seen, 50), 20);
	CHECK_EQ(fremovexattr(made, "security.capability"), 0);
	close(made);
	unlink(file);
}

int main(void)
{
	char folder[] = "/dev/shm/xattrs-XXXXXX";
	int memory = memfd_create("xattrs", 0);
	NEED(memory >= 0);
	if (mkdtemp(folder) == NULL) {
		strcpy(folder, "/tmp/xattrs-XXXXXX");
		NEED(mkdtemp(folder) != NULL);
	}
	values(memory);
	limits(memory);
	too_many(memory);
	paths(folder);
	others();
	if (geteuid() == 0)
		privileged(folder);
	rmdir(folder);
	return checked("xattrs");
}
