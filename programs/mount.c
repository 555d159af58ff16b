/* Does a mounted tmpfs enforce its size, belong to the tree in which it is mounted, and exist until it is unused?
 *
 * Options are parsed as on Linux, are reported in /proc/mounts, and can change. The size applies to writes,
 * fallocate and page faults. Paths, links and renames respect the boundaries of file systems. umount fails while a
 * file is open or mapped, while a process is in the mount, or while it contains another mount, and otherwise frees
 * everything. A detached mount is freed with its last user. Needs root: other users may not mount.
 */
#include "check.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#define HUGE (512 * PAGE)

static char base[] = "/tmp/mount_XXXXXX";

/* Returns the path of a name in this program's folder. */
static const char *at(const char *name)
{
	return path_in(base, name);
}

static int tmpfs(const char *name, unsigned long flags, const char *options)
{
	return mount("tmpfs", at(name), "tmpfs", flags, options);
}

/* Reads the line about a mount in /proc/mounts or mountinfo into `line`. Returns 0 if there is no such line. */
static int line_of(const char *file, const char *name, char *line, size_t size)
{
	char wanted[300];
	snprintf(wanted, sizeof wanted, " %s ", at(name));
	FILE *lines = fopen(file, "r");
	NEED(lines);
	int found = 0;
	while (fgets(line, size, lines))
		if (strstr(line, wanted)) {
			found = 1;
			break;
		}
	fclose(lines);
	return found;
}

static int is_mounted(const char *name)
{
	char line[512];
	return line_of("/proc/self/mounts", name, line, sizeof line);
}

static int make(const char *name)
{
	int file = open(at(name), O_CREAT | O_RDWR, 0600);
	NEED(file >= 0);
	return file;
}

static void refusals(void)
{
	NEED(mkdir(at("r"), 0755) == 0);
	close(make("file"));
	CHECK_FAILS(tmpfs("missing", 0, NULL), ENOENT);
	CHECK_FAILS(tmpfs("file", 0, NULL), ENOTDIR);
	CHECK_FAILS(tmpfs("file/x", 0, NULL), ENOTDIR);
	CHECK_FAILS(mount("x", at("r"), "no such type", 0, NULL), ENODEV);
	CHECK_FAILS(mount("x", at("r"), NULL, 0, NULL), EINVAL);
	CHECK_FAILS(mount("x", (char *)8, "tmpfs", 0, NULL), EFAULT);
	CHECK_FAILS(mount("x", at("r"), (char *)8, 0, NULL), EFAULT);
	CHECK_FAILS(mount((char *)8, at("r"), "tmpfs", 0, NULL), EFAULT);
	CHECK_FAILS(mount("x", at("r"), "tmpfs", 0, (char *)8), EFAULT);
	static const char *const bad[] = {
		"unknown", "unknown=1", "size", "size=", "size=1x", "size=1%%", "size=4k,3", "nr_inodes=2%", "mode=8",
		"uid=-1", "uid=x", "gid=4294967295", "huge", "huge=some", "huge=deny",
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK_FAILS(tmpfs("r", 0, bad[i]), EINVAL);
		CHECK(!is_mounted("r"));
	}
	CHECK_FAILS(umount(at("r")), EINVAL);
	CHECK_FAILS(umount(at("missing")), ENOENT);
	CHECK_FAILS(umount((char *)8), EFAULT);
	CHECK_FAILS(umount2(at("r"), 0x100), EINVAL);
	NEED(unlink(at("file")) == 0);
	/* A directory that was removed cannot become a mount point. */
	int gone = open(at("r"), O_PATH);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", gone);
	NEED(rmdir(at("r")) == 0);
	CHECK_FAILS(mount("x", path, "tmpfs", 0, NULL), ENOENT);
	close(gone);
}

static void options_are_told(void)
{
	NEED(mkdir(at("o"), 0755) == 0);
	char line[512], wanted[512];
	struct stat status;
	struct statfs room;
	NEED(mount("a b", at("o"), "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,nr_inodes=5,mode=0710,uid=3,gid=0x4,inode64") == 0);
	NEED(line_of("/proc/self/mounts", "o", line, sizeof line));
	snprintf(wanted, sizeof wanted,
		 "a\\040b %s tmpfs rw,nosuid,nodev,relatime,size=1024k,nr_inodes=5,mode=710,uid=3,gid=4,inode64 0 0\n",
		 at("o"));
	CHECK(strcmp(line, wanted) == 0);
	NEED(line_of("/proc/self/mountinfo", "o", line, sizeof line));
	CHECK(strstr(line, " / "));
	CHECK(strstr(line, " - tmpfs a\\040b rw,size=1024k,nr_inodes=5,mode=710,uid=3,gid=4,inode64\n"));
	NEED(stat(at("o"), &status) == 0);
	CHECK_EQ(status.st_mode, S_IFDIR | 0710);
	CHECK_EQ(status.st_uid, 3);
	CHECK_EQ(status.st_gid, 4);
	NEED(statfs(at("o"), &room) == 0);
	CHECK_EQ(room.f_type, 0x01021994);
	CHECK_EQ(room.f_blocks, 256);
	CHECK_EQ(room.f_bfree, 256);
	CHECK_EQ(room.f_bavail, 256);
	CHECK_EQ(room.f_files, 5);
	CHECK_EQ(room.f_ffree, 4);
	CHECK_EQ(room.f_flags & 0xffff, 0x0020 | 2 | 4 | 0x1000);
	/* The root directory is counted as an inode too. */
	char name[8];
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "o/%d", i);
		close(make(name));
	}
	CHECK_FAILS(mkdir(at("o/more"), 0700), ENOSPC);
	CHECK_FAILS(open(at("o/more"), O_CREAT | O_RDWR, 0600), ENOSPC);
	CHECK_FAILS(open(at("o"), O_TMPFILE | O_RDWR, 0600), ENOSPC);
	NEED(unlink(at("o/1")) == 0);
	CHECK(mkdir(at("o/more"), 0700) == 0);
	CHECK(umount(at("o")) == 0);
	CHECK(!is_mounted("o"));

	CHECK(tmpfs("o", MS_NOEXEC | MS_NOATIME, "huge=within_size,mode=1777,size=50%,inode64") == 0);
	NEED(line_of("/proc/self/mounts", "o", line, sizeof line));
	CHECK(strstr(line, " tmpfs rw,noexec,noatime,"));
	CHECK(strstr(line, ",inode64,huge=within_size 0 0\n"));
	CHECK(umount(at("o")) == 0);
	/* A mount without limits. */
	CHECK(tmpfs("o", 0, "size=0,nr_inodes=0") == 0);
	NEED(statfs(at("o"), &room) == 0);
	CHECK_EQ(room.f_blocks, 0);
	CHECK_EQ(room.f_files, 0);
	int file = make("o/f");
	CHECK_EQ(write(file, "x", 1), 1);
	close(file);
	CHECK(umount(at("o")) == 0);
	NEED(rmdir(at("o")) == 0);
}

/* A remount can change limits, times and huge pages of a mount, but not the owner of its root. */
static void options_change(void)
{
	char line[512], path[64];
	struct statfs room;
	struct stat status;
	NEED(mkdir(at("c"), 0755) == 0);
	CHECK_FAILS(tmpfs("c", MS_REMOUNT, NULL), EINVAL);
	NEED(tmpfs("c", MS_NOATIME | MS_NOSUID, "size=64k,nr_inodes=9,mode=700,inode64") == 0);
	int file = make("c/f");
	NEED(fallocate(file, 0, 0, 8 * PAGE) == 0);
	CHECK_FAILS(tmpfs("c/f", MS_REMOUNT, NULL), EINVAL);
	CHECK_FAILS(tmpfs("c", MS_REMOUNT, "size=28k"), EINVAL);
	CHECK_FAILS(tmpfs("c", MS_REMOUNT, "nr_inodes=1"), EINVAL);
	CHECK_FAILS(tmpfs("c", MS_REMOUNT, "size=32k,unknown"), EINVAL);
	CHECK_FAILS(fallocate(file, 0, 0, 17 * PAGE), ENOSPC);
	CHECK(mount("other", at("c"), "no such type", MS_REMOUNT | MS_NODEV, "size=32k,nr_inodes=2,mode=755,uid=5") == 0);
	NEED(line_of("/proc/self/mounts", "c", line, sizeof line));
	CHECK(!strncmp(line, "tmpfs ", 6));
	CHECK(strstr(line, " tmpfs rw,nodev,noatime,size=32k,nr_inodes=2,mode=700,inode64 0 0\n"));
	NEED(stat(at("c"), &status) == 0);
	CHECK_EQ(status.st_mode, S_IFDIR | 0700);
	CHECK_EQ(status.st_uid, 0);
	NEED(statfs(at("c"), &room) == 0);
	CHECK_EQ(room.f_blocks, 8);
	CHECK_EQ(room.f_bfree, 0);
	CHECK_EQ(room.f_ffree, 0);
	CHECK_FAILS(pwrite(file, "x", 1, 8 * PAGE), ENOSPC);
	CHECK_FAILS(mkdir(at("c/d"), 0700), ENOSPC);
	/* A remount can restore relative times. A limit that was removed cannot be set again. */
	CHECK(tmpfs("c", MS_REMOUNT | MS_RELATIME, "size=0,nr_inodes=0,huge=advise") == 0);
	NEED(line_of("/proc/self/mounts", "c", line, sizeof line));
	CHECK(strstr(line, " tmpfs rw,relatime,size=0k,nr_inodes=0,mode=700,inode64,huge=advise 0 0\n"));
	CHECK_EQ(pwrite(file, "x", 1, 8 * PAGE), 1);
	CHECK(mkdir(at("c/d"), 0700) == 0);
	CHECK_FAILS(tmpfs("c", MS_REMOUNT, "size=1m"), EINVAL);
	CHECK_FAILS(tmpfs("c", MS_REMOUNT, "nr_inodes=100"), EINVAL);
	/* A remount can use the path of an open descriptor. */
	int root = open(at("c"), O_RDONLY | O_DIRECTORY);
	NEED(root >= 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", root);
	CHECK(mount("x", path, "tmpfs", MS_REMOUNT, "huge=never") == 0);
	NEED(line_of("/proc/self/mounts", "c", line, sizeof line));
	CHECK(!strstr(line, "huge"));
	close(root);
	close(file);
	CHECK(umount(at("c")) == 0);
	NEED(rmdir(at("c")) == 0);
}

static volatile sig_atomic_t bus_errors;
static char *faulting;

/* Counts the SIGBUS and replaces the page for which the file system has no space, so that the access can be retried. */
static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)number, (void)context;
	bus_errors += info->si_addr == faulting && info->si_code == BUS_ADRERR;
	if (mmap(faulting, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != faulting)
		_exit(98);
}

static void the_size_holds(void)
{
	static char bytes[8 * PAGE];
	struct statfs room;
	NEED(mkdir(at("s"), 0755) == 0);
	NEED(tmpfs("s", 0, "size=16k") == 0);
	int file = make("s/f"), other = make("s/g");
	memset(bytes, 'x', sizeof bytes);
	CHECK_EQ(write(file, bytes, sizeof bytes), 4 * PAGE);
	CHECK_FAILS(write(file, bytes, 1), ENOSPC);
	CHECK_FAILS(write(other, bytes, 1), ENOSPC);
	/* Pages that exist can be written again. */
	CHECK_EQ(pwrite(file, "y", 1, 5), 1);
	NEED(statfs(at("s"), &room) == 0);
	CHECK_EQ(room.f_bfree, 0);
	/* Space is freed in units of pages, and another file can use it. */
	CHECK(ftruncate(file, 2 * PAGE) == 0);
	NEED(statfs(at("s"), &room) == 0);
	CHECK_EQ(room.f_bfree, 2);
	CHECK_FAILS(fallocate(other, 0, 0, 3 * PAGE), ENOSPC);
	NEED(statfs(at("s"), &room) == 0);
	CHECK_EQ(room.f_bfree, 2);
	CHECK(fallocate(other, 0, 0, PAGE) == 0);
	CHECK_EQ(lseek(other, 0, SEEK_END), PAGE);
	CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0);
	NEED(statfs(at("s"), &room) == 0);
	CHECK_EQ(room.f_bfree, 2);

	/* Page 0 is allocated and two pages are free, so two of the four holes after page 0 can be filled. */
	CHECK(ftruncate(other, 5 * PAGE) == 0);
	char *memory = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	NEED(memory != MAP_FAILED);
	struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO}, before;
	NEED(sigaction(SIGBUS, &action, &before) == 0);
	faulting = memory + 3 * PAGE;
	memory[0] = memory[PAGE] = memory[2 * PAGE] = 'z';
	CHECK_EQ(bus_errors, 0);
	memory[3 * PAGE] = 'z';
	CHECK_EQ(bus_errors, 1);
	faulting = memory + 4 * PAGE;
	CHECK_EQ(*(volatile char *)faulting, 0);
	CHECK_EQ(bus_errors, 2);
	NEED(sigaction(SIGBUS, &before, NULL) == 0);
	CHECK_EQ(memory[2 * PAGE], 'z');
	/* A system call returns an error instead of raising a signal. */
	CHECK(munmap(memory, 5 * PAGE) == 0);
	memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, other, 4 * PAGE);
	NEED(memory != MAP_FAILED);
	int zero = open("/dev/zero", O_RDONLY);
	CHECK_FAILS(read(zero, memory, 1), EFAULT);
	close(zero);
	CHECK(munmap(memory, PAGE) == 0);
	/* A file that was unlinked occupies its space until it is closed. */
	CHECK(unlink(at("s/g")) == 0);
	NEED(statfs(at("s"), &room) == 0);
	CHECK_EQ(room.f_bfree, 0);
	close(other);
	NEED(statfs(at("s"), &room) == 0);
	CHECK_EQ(room.f_bfree, 3);
	close(file);
	CHECK(umount(at("s")) == 0);
	NEED(rmdir(at("s")) == 0);
}

static void the_tree(void)
{
	struct stat outside, inside, status;
	char here[256];
	NEED(mkdir(at("t"), 0755) == 0);
	close(make("t/covered"));
	close(make("out"));
	NEED(stat(at("t"), &outside) == 0);
	NEED(tmpfs("t", 0, "size=1m") == 0);
	NEED(stat(at("t"), &inside) == 0);
	CHECK(outside.st_dev != inside.st_dev);
	CHECK_EQ(inside.st_mode, S_IFDIR | 01777);
	CHECK_FAILS(stat(at("t/covered"), &status), ENOENT);
	NEED(mkdir(at("t/d"), 0755) == 0);
	close(make("t/in"));
	/* Paths can lead through the mount point in both directions. */
	NEED(chdir(at("t/d")) == 0);
	NEED(getcwd(here, sizeof here));
	CHECK(strcmp(here, at("t/d")) == 0);
	CHECK(stat("../../t/in", &status) == 0);
	CHECK_EQ(status.st_dev, inside.st_dev);
	CHECK(stat("../..", &status) == 0);
	CHECK_EQ(status.st_dev, outside.st_dev);
	CHECK_FAILS(umount(at("t")), EBUSY);
	NEED(chdir("/") == 0);
	/* The parent directory lists the entries that the mount covers. */
	DIR *listing = opendir(base);
	NEED(listing);
	int seen = 0;
	for (struct dirent *entry; (entry = readdir(listing));)
		if (!strcmp(entry->d_name, "t")) {
			seen++;
			CHECK_EQ(entry->d_ino, outside.st_ino);
			CHECK_EQ(entry->d_type, DT_DIR);
		}
	closedir(listing);
	CHECK_EQ(seen, 1);
	/* A rename to another file system fails, and a mount point cannot be renamed. */
	CHECK_FAILS(rename(at("t/in"), at("in")), EXDEV);
	CHECK_FAILS(rename(at("out"), at("t/out")), EXDEV);
	CHECK_FAILS(link(at("t/in"), at("in")), EXDEV);
	CHECK_FAILS(link(at("out"), at("t/out")), EXDEV);
	CHECK_FAILS(rmdir(at("t")), EBUSY);
	CHECK_FAILS(rename(at("t"), at("u")), EBUSY);
	NEED(mkdir(at("u"), 0755) == 0);
	CHECK_FAILS(rename(at("u"), at("t")), EBUSY);
	NEED(rmdir(at("u")) == 0);
	/* A parent directory of a mount can be moved, together with the mount. */
	NEED(mkdir(at("p"), 0755) == 0 && mkdir(at("p/m"), 0755) == 0);
	NEED(tmpfs("p/m", 0, NULL) == 0);
	CHECK(rename(at("p"), at("q")) == 0);
	CHECK(is_mounted("q/m") && !is_mounted("p/m"));
	CHECK(umount(at("q/m")) == 0);
	NEED(rmdir(at("q/m")) == 0 && rmdir(at("q")) == 0);
	/* A second mount covers the first one, and is mounted on its root. */
	NEED(tmpfs("t", 0, NULL) == 0);
	CHECK_FAILS(stat(at("t/in"), &status), ENOENT);
	CHECK(umount(at("t")) == 0);
	CHECK(stat(at("t/in"), &status) == 0);
	NEED(tmpfs("t/d", 0, NULL) == 0);
	CHECK_FAILS(umount(at("t")), EBUSY);
	CHECK_FAILS(umount(at("t/in")), EINVAL);
	CHECK(umount(at("t/d")) == 0);
	/* umount follows a symbolic link unless UMOUNT_NOFOLLOW is set. */
	NEED(symlink(at("t"), at("l")) == 0);
	CHECK_FAILS(umount2(at("l"), UMOUNT_NOFOLLOW), EINVAL);
	CHECK(umount(at("l")) == 0);
	NEED(unlink(at("l")) == 0);
	CHECK(stat(at("t/covered"), &status) == 0);
	CHECK_FAILS(stat(at("t/in"), &status), ENOENT);
	NEED(unlink(at("t/covered")) == 0 && unlink(at("out")) == 0 && rmdir(at("t")) == 0);
}

static void who_uses_it_keeps_it(void)
{
	NEED(mkdir(at("b"), 0755) == 0);
	NEED(tmpfs("b", 0, "size=1m") == 0);
	NEED(mkdir(at("b/d"), 0755) == 0);
	/* A mount is busy while a file is open, also after the file was unlinked. */
	int file = make("b/d/f");
	CHECK_FAILS(umount(at("b")), EBUSY);
	NEED(unlink(at("b/d/f")) == 0);
	CHECK_FAILS(umount(at("b")), EBUSY);
	CHECK_FAILS(umount2(at("b"), MNT_FORCE), EBUSY);
	/* A mapping alone keeps the mount busy too. */
	NEED(ftruncate(file, PAGE) == 0);
	char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(memory != MAP_FAILED);
	close(file);
	memory[0] = 1;
	CHECK_FAILS(umount(at("b")), EBUSY);
	CHECK_EQ(memory[0], 1);
	NEED(munmap(memory, PAGE) == 0);
	/* An open directory, an O_PATH descriptor, or a bound socket keeps the mount busy too. */
	file = open(at("b"), O_RDONLY | O_DIRECTORY);
	NEED(file >= 0);
	CHECK_FAILS(umount(at("b")), EBUSY);
	close(file);
	file = open(at("b/d"), O_PATH);
	NEED(file >= 0);
	CHECK_FAILS(umount(at("b")), EBUSY);
	close(file);
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	snprintf(name.sun_path, sizeof name.sun_path, "%s", at("b/s"));
	int bound = socket(AF_UNIX, SOCK_STREAM, 0);
	NEED(bound >= 0 && bind(bound, (struct sockaddr *)&name, sizeof name) == 0);
	CHECK_FAILS(umount(at("b")), EBUSY);
	close(bound);
	/* The working directory or the root of a process keeps the mount busy too. */
	for (int root = 0; root < 2; root++) {
		int ready[2], over[2];
		NEED(pipe(ready) == 0 && pipe(over) == 0);
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			close(over[1]);
			char byte = root ? chroot(at("b/d")) != 0 : chdir(at("b/d")) != 0;
			if (write(ready[1], &byte, 1) != 1 || read(over[0], &byte, 1) != 0)
				_exit(1);
			_exit(0);
		}
		close(over[0]);
		char byte;
		NEED(read(ready[0], &byte, 1) == 1);
		CHECK_EQ(byte, 0);
		CHECK_FAILS(umount(at("b")), EBUSY);
		close(over[1]), close(ready[0]), close(ready[1]);
		int status;
		NEED(waitpid(child, &status, 0) == child);
		CHECK_EQ(status, 0);
	}
	CHECK(umount(at("b")) == 0);
	CHECK_FAILS(umount(at("b")), EINVAL);
	NEED(rmdir(at("b")) == 0);
}

/* A detached mount is removed from the tree at once, together with the mounts in it. It continues to work for
 * the processes in it. */
static void detached_for_others(void)
{
	char byte = 0, path[256];
	struct stat status;
	struct statfs room;
	NEED(mkdir(at("x"), 0755) == 0);
	NEED(tmpfs("x", 0, "size=1m") == 0);
	NEED(mkdir(at("x/d"), 0755) == 0 && mkdir(at("x/in"), 0755) == 0);
	NEED(tmpfs("x/in", 0, NULL) == 0);
	int inner = make("x/in/g"), file = make("x/d/f");
	int root = open(at("x"), O_RDONLY | O_DIRECTORY), below = open(at("x/d"), O_PATH);
	NEED(root >= 0 && below >= 0);
	NEED(write(file, "1234", 4) == 4);
	char *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(memory != MAP_FAILED);
	CHECK_FAILS(umount(at("x")), EBUSY);
	CHECK_FAILS(umount2(at("x"), MNT_DETACH | MNT_EXPIRE), EINVAL);
	CHECK_FAILS(umount2(at("x/d"), MNT_DETACH), EINVAL);
	CHECK(umount2(at("x"), MNT_DETACH) == 0);
	CHECK_FAILS(umount2(at("x"), MNT_DETACH), EINVAL);
	CHECK(!is_mounted("x") && !is_mounted("x/in"));
	CHECK_FAILS(stat(at("x/d/f"), &status), ENOENT);
	/* The files of the detached mount continue to work. */
	CHECK_EQ(memory[3], '4');
	memory[3] = '5';
	CHECK_EQ(pread(file, &byte, 1, 3), 1);
	CHECK_EQ(byte, '5');
	CHECK_EQ(write(inner, "x", 1), 1);
	int again = openat(root, "d/f", O_RDONLY);
	CHECK(again >= 0);
	close(again);
	again = openat(below, "new", O_CREAT | O_RDWR, 0600);
	CHECK(again >= 0);
	close(again);
	CHECK(fstatat(below, "../d/new", &status, 0) == 0);
	CHECK(fstatfs(root, &room) == 0);
	CHECK_EQ(room.f_blocks, 256);
	/* The root of the detached mount has no parent, and the mounts in it do not exist any more. */
	struct stat here, above;
	NEED(fstat(root, &here) == 0 && fstatat(root, "..", &above, 0) == 0);
	CHECK_EQ(here.st_ino, above.st_ino);
	CHECK_EQ(here.st_dev, above.st_dev);
	NEED(fstatat(root, "in", &above, 0) == 0);
	CHECK_EQ(here.st_dev, above.st_dev);
	CHECK_FAILS(fstatat(root, "in/g", &status, 0), ENOENT);
	/* A working directory in a detached mount has no path, and nothing can be mounted on it. */
	NEED(fchdir(root) == 0);
	CHECK(syscall(SYS_getcwd, path, sizeof path) > 0);
	CHECK(strcmp(path, "(unreachable)/") == 0);
	NEED(fchdir(below) == 0);
	CHECK(syscall(SYS_getcwd, path, sizeof path) > 0);
	CHECK(strcmp(path, "(unreachable)/d") == 0);
	CHECK_FAILS(mount("y", ".", "tmpfs", 0, NULL), ENOENT);
	NEED(chdir("/") == 0);
	/* Another file system can be mounted at the mount point, and the directory can be removed. */
	NEED(tmpfs("x", 0, NULL) == 0);
	CHECK_FAILS(stat(at("x/d"), &status), ENOENT);
	CHECK(umount(at("x")) == 0);
	NEED(rmdir(at("x")) == 0);
	close(root), close(below), close(inner), close(file);
	CHECK_EQ(memory[3], '5');
	NEED(munmap(memory, PAGE) == 0);
	/* An unused mount frees its pages when it is detached, so mounting can be repeated without a limit. */
	NEED(mkdir(at("x"), 0755) == 0);
	for (int i = 0; i < 16; i++) {
		NEED(tmpfs("x", 0, "size=16m") == 0);
		file = make("x/f");
		CHECK(fallocate(file, 0, 0, 16UL << 20) == 0);
		CHECK(umount2(at("x"), MNT_DETACH) == 0);
		close(file);
	}
	NEED(rmdir(at("x")) == 0);
}

/* Returns whether the tree contains a file system with this device number. */
static int has_place(dev_t device)
{
	char line[512], wanted[64];
	snprintf(wanted, sizeof wanted, " %u:%u ", major(device), minor(device));
	FILE *lines = fopen("/proc/self/mountinfo", "r");
	NEED(lines);
	int found = 0;
	while (!found && fgets(line, sizeof line, lines))
		found = strstr(line, wanted) != NULL;
	fclose(lines);
	return found;
}

/* A process that enters the mount just before umount prevents the umount. A process that tries to enter it later finds
   the mount removed. */
static void nobody_is_left_behind(int rounds)
{
	NEED(mkdir(at("w"), 0755) == 0);
	int over[2];
	NEED(pipe(over) == 0);
	NEED(fcntl(over[0], F_SETFL, O_NONBLOCK) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		char byte;
		close(over[1]);
		checks_failed = 0;
		for (long turn = 0; read(over[0], &byte, 1) != 0; turn++) {
			int file = open(at(turn % 2 ? "w/d/../f" : "w/d/e/../../d/g"), O_RDONLY);
			struct stat status;
			if (file >= 0) {
				NEED(fstat(file, &status) == 0);
				CHECK(has_place(status.st_dev));
				close(file);
			}
			sched_yield();
		}
		_exit(checks_failed);
	}
	close(over[0]);
	for (int i = 0; i < rounds; i++) {
		NEED(tmpfs("w", 0, "size=1m") == 0);
		NEED(mkdir(at("w/d"), 0755) == 0 && mkdir(at("w/d/e"), 0755) == 0);
		close(make("w/f")), close(make("w/d/g"));
		sched_yield();
		while (umount(at("w")) != 0) {
			NEED(errno == EBUSY);
			sched_yield();
		}
		CHECK(!is_mounted("w"));
	}
	close(over[1]);
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	NEED(rmdir(at("w")) == 0);
}

static void flags_hold(void)
{
	struct stat status;
	NEED(mkdir(at("f"), 0755) == 0);
	NEED(tmpfs("f", MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL) == 0);
	NEED(mknod(at("f/null"), S_IFCHR | 0666, makedev(1, 3)) == 0);
	CHECK_FAILS(open(at("f/null"), O_RDONLY), EACCES);
	int file = open(at("f/program"), O_CREAT | O_RDWR, 0755);
	NEED(file >= 0 && write(file, "#!/bin/true\n", 12) == 12);
	CHECK_FAILS(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0), EPERM);
	void *memory = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
	NEED(memory != MAP_FAILED);
	CHECK_FAILS(mprotect(memory, PAGE, PROT_READ | PROT_EXEC), EACCES);
	NEED(munmap(memory, PAGE) == 0);
	CHECK_FAILS(access(at("f/program"), X_OK), EACCES);
	CHECK(access(at("f"), X_OK) == 0);
	close(file);
	char *arguments[] = {"program", NULL};
	CHECK_FAILS(execv(at("f/program"), arguments), EACCES);
	struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
	NEED(utimensat(AT_FDCWD, at("f/program"), long_ago, 0) == 0);
	char byte;
	file = open(at("f/program"), O_RDONLY);
	NEED(file >= 0 && read(file, &byte, 1) == 1 && fstat(file, &status) == 0);
	CHECK_EQ(status.st_atime, 1000);
	close(file);
	CHECK(umount(at("f")) == 0);
	NEED(rmdir(at("f")) == 0);
}

/* Returns which of two 2 MiB parts of a new file are huge pages, after a write to the first part and an access to the
 * second. */
static int huge_pages(const char *options, int asks)
{
	static char bytes[HUGE];
	NEED(tmpfs("h", 0, options) == 0);
	int file = make("h/f"), huge = 0;
	for (unsigned long i = 0; i < HUGE; i++)
		bytes[i] = i / 3;
	CHECK_EQ(write(file, bytes, HUGE), HUGE);
	NEED(ftruncate(file, 2 * HUGE) == 0);
	char *memory = mmap((void *)(1UL << 40), 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
	NEED(memory != MAP_FAILED);
	if (asks)
		NEED(madvise(memory, 2 * HUGE, 14) == 0);
	CHECK(memcmp(memory, bytes, HUGE) == 0);
	memory[HUGE + 5] = 1;
	/* All blocks of a huge page are allocated, so if the second part is huge, the file has the blocks of both
	 * parts. */
	struct stat status;
	NEED(fstat(file, &status) == 0);
	huge |= (status.st_blocks >= 2 * (long)HUGE / 512) << 1;
	FILE *maps = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long mapped = 0, is_here = 0;
	NEED(maps);
	while (fgets(line, sizeof line, maps)) {
		if (strstr(line, "/h/f"))
			is_here = 1;
		if (is_here && sscanf(line, "ShmemPmdMapped: %lu kB", &mapped) == 1)
			break;
	}
	fclose(maps);
	/* If huge page-table entries map more than the second part, the first part is huge too. */
	huge |= mapped * 1024 > (huge & 2 ? HUGE : 0);
	NEED(munmap(memory, 2 * HUGE) == 0);
	close(file);
	CHECK(umount(at("h")) == 0);
	return huge;
}

static void huge_pages_as_it_was_mounted(void)
{
	NEED(mkdir(at("h"), 0755) == 0);
	CHECK_EQ(huge_pages("huge=never", 1), 0);
	CHECK_EQ(huge_pages(NULL, 1), 0);
	CHECK_EQ(huge_pages("huge=always", 0), 3);
	CHECK_EQ(huge_pages("huge=within_size", 0), 3);
	CHECK_EQ(huge_pages("huge=advise", 0), 0);
	CHECK_EQ(huge_pages("huge=advise", 1), 2);
	/* If there is no space for a huge page, small pages may still fit. */
	NEED(tmpfs("h", 0, "huge=always,size=1m") == 0);
	static char bytes[HUGE];
	int file = make("h/f");
	CHECK_EQ(write(file, bytes, HUGE), HUGE / 2);
	close(file);
	CHECK(umount(at("h")) == 0);
	NEED(rmdir(at("h")) == 0);
}

static void others_are_refused(void)
{
	NEED(mkdir(at("e"), 0777) == 0);
	NEED(tmpfs("e", 0, NULL) == 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		checks_failed = 0;
		if (setuid(1000))
			_exit(1);
		CHECK_FAILS(mount("x", "/tmp", "tmpfs", 0, NULL), EPERM);
		CHECK_FAILS(mount("x", "/tmp", "no such type", 0, NULL), EPERM);
		CHECK_FAILS(umount("/tmp"), EPERM);
		CHECK_FAILS(umount("/missing"), ENOENT);
		_exit(checks_failed);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK(umount(at("e")) == 0);
	NEED(rmdir(at("e")) == 0);
}

int main(void)
{
	NEED(mkdtemp(base));
	NEED(chmod(base, 0755) == 0);
	if (geteuid() != 0) {
		CHECK_FAILS(mount("x", base, "tmpfs", 0, NULL), EPERM);
		NEED(rmdir(base) == 0);
		return checked("mount");
	}
	refusals();
	options_are_told();
	options_change();
	the_size_holds();
	the_tree();
	who_uses_it_keeps_it();
	detached_for_others();
	nobody_is_left_behind(100);
	flags_hold();
	huge_pages_as_it_was_mounted();
	others_are_refused();
	CHECK(rmdir(base) == 0);
	return checked("mount");
}
