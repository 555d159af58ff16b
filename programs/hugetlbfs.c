/* Is a mounted hugetlbfs a file system with huge pages only, whose mount options limit and guarantee the pages of its
 * files?
 *
 * Options are parsed as on Linux and reported in /proc/mounts. Names work as in any file system. The contents can be
 * read and mapped, but not written. Sizes are multiples of 2 MiB. Reservations, faults, fallocate and statfs respect
 * `size`, `min_size` and `nr_inodes`. umount fails while a file is in use, and otherwise returns every page to the
 * pool. Needs root, and at most 16 pages in the pool at the start.
 */
#include "check.h"

#include <setjmp.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define HUGE (2UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define SIZES "/sys/kernel/mm/hugepages/hugepages-2048kB/"
#define MAGIC 0x958458f6
#define POOL 8
#ifndef FALLOC_FL_ZERO_RANGE
#define FALLOC_FL_ZERO_RANGE 0x10
#endif
#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#endif
#ifndef F_SEAL_SEAL
#define F_SEAL_SEAL 1
#define F_SEAL_WRITE 8
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif

static char base[] = "/tmp/hugetlbfs_XXXXXX";
static sigjmp_buf after_bus;

/* Returns the path of a name in this program's mount. */
static const char *at(const char *name)
{
	return path_in(base, name);
}

static void set_pool(long pages)
{
	char text[32];
	int length = snprintf(text, sizeof text, "%ld\n", pages);
	int file = open(SIZES "nr_hugepages", O_WRONLY);
	NEED(file >= 0);
	CHECK_EQ(write(file, text, length), length);
	close(file);
}

static void expect_at(int line, long free, long reserved)
{
	long seen[2] = {number_of(SIZES "free_hugepages"), number_of(SIZES "resv_hugepages")};
	if (seen[0] != free || seen[1] != reserved)
		printf("hugetlbfs.c:%d: %ld free, %ld reserved\n", line, seen[0], seen[1]);
	CHECK_EQ(seen[0], free);
	CHECK_EQ(seen[1], reserved);
}
#define expect(free, reserved) expect_at(__LINE__, free, reserved)

static int hugetlbfs(unsigned long flags, const char *options)
{
	return mount("pages", base, "hugetlbfs", flags, options);
}

static void options_of(const char *options, const char *shown)
{
	char line[512], wanted[600];
	NEED(hugetlbfs(0, options) == 0);
	snprintf(wanted, sizeof wanted, "pages %s hugetlbfs rw,relatime%s 0 0\n", base, shown);
	FILE *lines = fopen("/proc/mounts", "r");
	NEED(lines);
	int found = 0;
	while (fgets(line, sizeof line, lines))
		if (strstr(line, base)) {
			found = 1;
			if (strcmp(line, wanted))
				printf("%s%s", line, wanted);
			CHECK(!strcmp(line, wanted));
		}
	CHECK(found);
	fclose(lines);
	CHECK_EQ(umount(base), 0);
}

static void mount_options(void)
{
	options_of(NULL, ",pagesize=2M");
	options_of("", ",pagesize=2M");
	options_of(",,=x,rw", ",pagesize=2M");
	options_of("pagesize=2048k,size=5M", ",pagesize=2M,size=4194304");
	options_of("pagesize=2Mx,size=2Mx", ",pagesize=2M,size=2097152");
	options_of("size=50%", ",pagesize=2M,size=8388608");
	options_of("min_size=25%,size=50%", ",pagesize=2M,size=8388608,min_size=4194304");
	options_of("min_size=2M,size=2M", ",pagesize=2M,size=2097152,min_size=2097152");
	options_of("uid=3,gid=0x4,mode=7777,nr_inodes=1k", ",uid=3,gid=4,mode=1777,nr_inodes=1024,pagesize=2M");
	options_of("nr_inodes=1", ",nr_inodes=1,pagesize=2M");
	options_of("size=0", ",pagesize=2M,size=0");
	const char *refused[] = {"size", "size=", "size=-1", "size=k", "min_size=x", "min_size=4M,size=2M", "nr_inodes=-1",
				 "pagesize", "pagesize=0", "pagesize=4k", "pagesize=4M", "pagesize=x", "mode=8", "uid=-1",
				 "gid=x", "uid=4294967295", "unknown", "unknown=1", "huge=always", "nr_blocks=3"};
	for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++)
		if (!CHECK(hugetlbfs(0, refused[i]) == -1 && errno == EINVAL))
			printf("%s\n", refused[i]);
	CHECK_FAILS(hugetlbfs(0, "nr_inodes=0"), ENOMEM);
	CHECK_FAILS(hugetlbfs(0, "min_size=18M"), ENOMEM);
	expect(POOL, 0);
	/* A remount checks the options but does not apply them. */
	NEED(hugetlbfs(0, "size=4M") == 0);
	CHECK_EQ(mount(NULL, base, NULL, MS_REMOUNT | MS_NOSUID, "size=8M,min_size=16M"), 0);
	CHECK_FAILS(mount(NULL, base, NULL, MS_REMOUNT, "pagesize=3M"), EINVAL);
	struct statfs fs;
	CHECK_EQ(statfs(base, &fs), 0);
	CHECK_EQ(fs.f_blocks, 2);
	CHECK(fs.f_flags & 2);
	CHECK_EQ(umount(base), 0);
	expect(POOL, 0);
	char text[4096] = {0};
	int list = open("/proc/filesystems", O_RDONLY);
	CHECK(read(list, text, sizeof text - 1) > 0);
	CHECK(strstr(text, "nodev\thugetlbfs\n"));
	close(list);
}

static void names(void)
{
	struct stat stat;
	NEED(hugetlbfs(0, "mode=750,uid=5,gid=6,nr_inodes=8") == 0);
	CHECK_EQ(lstat(base, &stat), 0);
	CHECK_EQ(stat.st_mode, S_IFDIR | 0750);
	CHECK(stat.st_uid == 5 && stat.st_gid == 6 && stat.st_nlink == 2 && stat.st_size == 0);
	CHECK_EQ(stat.st_blksize, HUGE);
	int file = open(at("a"), O_CREAT | O_EXCL | O_RDWR, 0640);
	NEED(file >= 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK(stat.st_mode == (S_IFREG | 0640) && stat.st_size == 0 && stat.st_blocks == 0);
	CHECK_EQ(stat.st_blksize, HUGE);
	CHECK_FAILS(open(at("a"), O_CREAT | O_EXCL | O_RDWR, 0640), EEXIST);
	CHECK_FAILS(write(file, "x", 1), EINVAL);
	CHECK_FAILS(pwrite(file, "x", 1, HUGE), EINVAL);
	CHECK_EQ(mkdir(at("d"), 0700), 0);
	CHECK_EQ(link(at("a"), at("d/b")), 0);
	CHECK_EQ(rename(at("a"), at("d/c")), 0);
	CHECK_FAILS(rmdir(at("d")), ENOTEMPTY);
	CHECK_EQ(unlink(at("d/b")), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_nlink, 1);
	CHECK_EQ(mkfifo(at("fifo"), 0600), 0);
	CHECK_EQ(mknod(at("null"), S_IFCHR | 0600, makedev(1, 3)), 0);
	/* A symbolic link is not possible: its target would be stored in the page cache, which has only huge pages. */
	CHECK_FAILS(symlink("d/c", at("link")), EINVAL);
	CHECK_FAILS(lstat(at("link"), &stat), ENOENT);
	CHECK_FAILS(setxattr(at("d/c"), "user.x", "1", 1, 0), EOPNOTSUPP);
	int nameless = open(base, O_TMPFILE | O_RDWR, 0600);
	CHECK(nameless >= 0);
	CHECK_EQ(ftruncate(nameless, HUGE), 0);
	/* The inodes are the root, the folder, two files, the FIFO and the device. */
	close(open(at("7"), O_CREAT | O_RDWR, 0600));
	close(open(at("8"), O_CREAT | O_RDWR, 0600));
	CHECK_FAILS(open(at("9"), O_CREAT | O_RDWR, 0600), ENOSPC);
	CHECK_FAILS(mkdir(at("9"), 0700), ENOSPC);
	CHECK_FAILS(open(base, O_TMPFILE | O_RDWR, 0600), ENOSPC);
	close(nameless);
	CHECK_EQ(mkdir(at("9"), 0700), 0);
	CHECK_FAILS(umount(base), EBUSY);
	CHECK_EQ(fcntl(file, F_GET_SEALS), F_SEAL_SEAL);
	CHECK_FAILS(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
	CHECK_EQ(fsync(file), 0);
	close(file);
	CHECK_EQ(umount(base), 0);
	CHECK_EQ(rmdir(base), 0);
	CHECK_EQ(mkdir(base, 0700), 0);
}

static void contents(void)
{
	struct stat stat;
	char text[16];
	NEED(hugetlbfs(0, NULL) == 0);
	int file = open(at("f"), O_CREAT | O_RDWR, 0600);
	NEED(file >= 0);
	CHECK_FAILS(ftruncate(file, 4096), EINVAL);
	CHECK_FAILS(ftruncate(file, HUGE + 1), EINVAL);
	CHECK_EQ(ftruncate(file, 2 * HUGE), 0);
	CHECK_FAILS(truncate(at("f"), 4095), EINVAL);
	CHECK_EQ(read(file, text, sizeof text), sizeof text);
	CHECK_EQ(pread(file, text, sizeof text, 2 * HUGE - 4), 4);
	CHECK_EQ(pread(file, text, sizeof text, 2 * HUGE), 0);
	CHECK_EQ(lseek(file, 5, SEEK_DATA), 5);
	CHECK_EQ(lseek(file, 5, SEEK_HOLE), 2 * HUGE);
	CHECK_FAILS(lseek(file, 2 * HUGE, SEEK_DATA), ENXIO);
	CHECK_FAILS(mmap(NULL, HUGE, RW, MAP_SHARED, file, 4096), EINVAL);
	CHECK_FAILS(mmap(NULL, HUGE, RW, MAP_SHARED, file, HUGE / 2), EINVAL);
	CHECK_FAILS(mmap((void *)(0x700000000000 + 4096), HUGE, RW, MAP_SHARED | MAP_FIXED, file, 0), EINVAL);
	expect(POOL, 0);
	/* The length is rounded up, and a writable mapping extends the file. */
	char *shared = mmap(NULL, 2 * HUGE + 1, RW, MAP_SHARED, file, 0);
	NEED(shared != MAP_FAILED);
	CHECK_EQ((unsigned long)shared % HUGE, 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_size, 3 * HUGE);
	expect(POOL, 3);
	CHECK_FAILS(munmap(shared, 4096), EINVAL);
	strcpy(shared + HUGE, "shared");
	expect(POOL - 1, 2);
	CHECK_EQ(pread(file, text, 7, HUGE), 7);
	CHECK(!strcmp(text, "shared"));
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_blocks, HUGE / 512);
	char *private = mmap(NULL, 2 * HUGE, RW, MAP_PRIVATE, file, 0);
	NEED(private != MAP_FAILED);
	expect(POOL - 1, 4);
	CHECK(!strcmp(private + HUGE, "shared"));
	private[HUGE] = 'S';
	CHECK_EQ(shared[HUGE], 's');
	expect(POOL - 2, 3);
	CHECK_EQ(munmap(private, 2 * HUGE), 0);
	expect(POOL - 1, 2);
	/* A read-only shared mapping does not extend the file. */
	char *reading = mmap(NULL, 4 * HUGE, PROT_READ, MAP_SHARED, file, 0);
	NEED(reading != MAP_FAILED);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_size, 3 * HUGE);
	expect(POOL - 1, 3);
	CHECK_EQ(munmap(reading, 4 * HUGE), 0);
	CHECK_EQ(munmap(shared, 3 * HUGE), 0);
	/* The file keeps its reservations until it is truncated. */
	expect(POOL - 1, 3);
	CHECK_EQ(ftruncate(file, 2 * HUGE), 0);
	expect(POOL - 1, 1);
	CHECK_EQ(pread(file, text, 7, HUGE), 7);
	CHECK(!strcmp(text, "shared"));
	CHECK_EQ(ftruncate(file, 0), 0);
	expect(POOL, 0);
	CHECK_FAILS(fallocate(file, FALLOC_FL_ZERO_RANGE, 0, HUGE), EOPNOTSUPP);
	CHECK_EQ(fallocate(file, FALLOC_FL_KEEP_SIZE, 0, HUGE), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK(stat.st_size == 0 && stat.st_blocks == HUGE / 512);
	expect(POOL - 1, 0);
	CHECK_EQ(fallocate(file, 0, HUGE, 2 * HUGE), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK(stat.st_size == 3 * HUGE && stat.st_blocks == 3 * HUGE / 512);
	CHECK_FAILS(fallocate(file, 0, 0, 100 * HUGE), ENOSPC);
	expect(0, 0);
	CHECK_EQ(fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 1, 100 * HUGE), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_blocks, HUGE / 512);
	CHECK_EQ(ftruncate(file, 0), 0);
	CHECK_EQ(fallocate(file, 0, 0, 4096), 0);
	CHECK_EQ(fstat(file, &stat), 0);
	CHECK_EQ(stat.st_size, 4096);
	CHECK_EQ(pread(file, text, sizeof text, 4090), 6);
	CHECK_EQ(ftruncate(file, 0), 0);
	int ends[2];
	NEED(pipe(ends) == 0);
	CHECK_EQ(ftruncate(file, HUGE), 0);
	loff_t place = 0;
	CHECK_FAILS(splice(file, &place, ends[1], NULL, 16, 0), EINVAL);
	CHECK_FAILS(sendfile(ends[1], file, NULL, 16), EINVAL);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	place = 0;
	CHECK_FAILS(splice(ends[0], NULL, file, &place, 1, 0), EINVAL);
	int other = open(at("g"), O_CREAT | O_RDWR, 0600);
	loff_t from = 0, to = 0;
	CHECK_FAILS(syscall(SYS_copy_file_range, file, &from, other, &to, 16, 0), EINVAL);
	close(other);
	char line[512];
	shared = mmap(NULL, HUGE, RW, MAP_SHARED, file, 0);
	NEED(shared != MAP_FAILED);
	shared[0] = 1;
	CHECK_FAILS(umount(base), EBUSY);
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;
	while (fgets(line, sizeof line, maps))
		found |= strstr(line, at("f")) != NULL;
	fclose(maps);
	CHECK(found);
	CHECK_EQ(fallocate(file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, HUGE), 0);
	CHECK_EQ(shared[0], 0);
	shared[0] = 1;
	CHECK_EQ(madvise(shared, HUGE, MADV_REMOVE), 0);
	CHECK_EQ(shared[0], 0);
	close(file);
	CHECK_FAILS(umount(base), EBUSY);
	CHECK_EQ(unlink(at("f")), 0);
	CHECK_EQ(munmap(shared, HUGE), 0);
	close(ends[0]);
	close(ends[1]);
	expect(POOL, 0);
	CHECK_EQ(umount(base), 0);
}

static void on_bus(int number)
{
	(void)number;
	siglongjmp(after_bus, 1);
}

/* Returns whether a store raises SIGBUS. */
static int faults(char *place)
{
	if (sigsetjmp(after_bus, 1))
		return 1;
	*(volatile char *)place = 1;
	return 0;
}

static void check_room(long blocks, long free)
{
	struct statfs fs;
	CHECK_EQ(statfs(base, &fs), 0);
	CHECK_EQ(fs.f_type, MAGIC);
	CHECK_EQ(fs.f_bsize, HUGE);
	CHECK_EQ((long)fs.f_blocks, blocks);
	CHECK_EQ((long)fs.f_bfree, free);
	CHECK_EQ((long)fs.f_bavail, free);
	CHECK_EQ(fs.f_namelen, 255);
}

static void limit(void)
{
	struct statfs fs;
	NEED(hugetlbfs(0, "size=6M,nr_inodes=9") == 0);
	check_room(3, 3);
	CHECK_EQ(statfs(base, &fs), 0);
	CHECK(fs.f_files == 9 && fs.f_ffree == 8);
	int file = open(at("f"), O_CREAT | O_RDWR, 0600);
	CHECK_FAILS(mmap(NULL, 4 * HUGE, RW, MAP_SHARED, file, 0), ENOMEM);
	CHECK_FAILS(mmap(NULL, 4 * HUGE, RW, MAP_PRIVATE, file, 0), ENOMEM);
	expect(POOL, 0);
	char *shared = mmap(NULL, 2 * HUGE, RW, MAP_SHARED, file, 0);
	NEED(shared != MAP_FAILED);
	check_room(3, 1);
	expect(POOL, 2);
	CHECK_FAILS(mmap(NULL, 2 * HUGE, RW, MAP_PRIVATE, file, 0), ENOMEM);
	char *private = mmap(NULL, HUGE, RW, MAP_PRIVATE, file, 0);
	NEED(private != MAP_FAILED);
	check_room(3, 0);
	expect(POOL, 3);
	private[0] = 1;
	shared[0] = 1;
	check_room(3, 0);
	expect(POOL - 2, 1);
	/* Without a reservation the fault fails because the mount is full, although the pool is not empty. */
	char *loose = mmap(NULL, 4 * HUGE, RW, MAP_PRIVATE | MAP_NORESERVE, file, 0);
	NEED(loose != MAP_FAILED);
	CHECK(faults(loose + 3 * HUGE));
	CHECK(faults(loose));
	CHECK_FAILS(fallocate(file, 0, 2 * HUGE, HUGE), ENOSPC);
	CHECK_EQ(munmap(private, HUGE), 0);
	check_room(3, 1);
	CHECK(!faults(loose));
	check_room(3, 0);
	expect(POOL - 2, 1);
	CHECK(faults(loose + HUGE));
	/* The child's page counts toward the limit too. */
	CHECK_EQ(madvise(loose, HUGE, MADV_DONTNEED), 0);
	check_room(3, 1);
	CHECK_EQ(fallocate(file, 0, 2 * HUGE, HUGE), 0);
	check_room(3, 0);
	pid_t child = fork();
	if (!child)
		_exit(!faults(loose) || faults(shared + HUGE));
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK_EQ(munmap(shared, 2 * HUGE), 0);
	CHECK_EQ(munmap(loose, 4 * HUGE), 0);
	check_room(3, 0);
	CHECK_EQ(ftruncate(file, HUGE), 0);
	check_room(3, 2);
	CHECK_EQ(unlink(at("f")), 0);
	check_room(3, 2);
	close(file);
	check_room(3, 3);
	expect(POOL, 0);
	CHECK_EQ(umount(base), 0);
	/* A mount without limits. */
	NEED(hugetlbfs(0, "nr_inodes=9") == 0);
	check_room(0, 0);
	CHECK_EQ(statfs(base, &fs), 0);
	CHECK(fs.f_files == 0 && fs.f_ffree == 0);
	CHECK_EQ(umount(base), 0);
}

static void guarantee(void)
{
	NEED(hugetlbfs(0, "size=8M,min_size=4M") == 0);
	expect(POOL, 2);
	check_room(4, 4);
	int file = open(at("f"), O_CREAT | O_RDWR, 0600);
	char *shared = mmap(NULL, 3 * HUGE, RW, MAP_SHARED, file, 0);
	NEED(shared != MAP_FAILED);
	expect(POOL, 3);
	for (int i = 0; i < 3; i++)
		shared[i * HUGE] = 1;
	expect(POOL - 3, 0);
	check_room(4, 1);
	CHECK_EQ(munmap(shared, 3 * HUGE), 0);
	CHECK_EQ(ftruncate(file, 2 * HUGE), 0);
	expect(POOL - 2, 0);
	CHECK_EQ(ftruncate(file, HUGE), 0);
	expect(POOL - 1, 1);
	CHECK_EQ(ftruncate(file, 0), 0);
	expect(POOL, 2);
	CHECK_EQ(fallocate(file, 0, 0, 3 * HUGE), 0);
	close(file);
	/* A detached mount is freed when its last file is closed. */
	file = open(at("f"), O_RDWR);
	CHECK_EQ(umount2(base, MNT_DETACH), 0);
	expect(POOL - 3, 0);
	close(file);
	usleep(100000);
	expect(POOL, 0);
	NEED(hugetlbfs(0, "min_size=4M") == 0);
	expect(POOL, 2);
	check_room(-1, -1);
	file = open(at("f"), O_CREAT | O_RDWR, 0600);
	CHECK_EQ(fallocate(file, 0, 0, 4 * HUGE), 0);
	expect(POOL - 4, 0);
	CHECK_EQ(ftruncate(file, 3 * HUGE), 0);
	expect(POOL - 3, 1);
	CHECK_EQ(ftruncate(file, 0), 0);
	expect(POOL, 2);
	/* A fault can use the guaranteed pages even if the pool has no other free page. */
	char *rest = mmap(NULL, (POOL - 2) * HUGE, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	NEED(rest != MAP_FAILED);
	expect(POOL, POOL);
	CHECK_EQ(ftruncate(file, 3 * HUGE), 0);
	shared = mmap(NULL, 3 * HUGE, RW, MAP_SHARED | MAP_NORESERVE, file, 0);
	NEED(shared != MAP_FAILED);
	CHECK(!faults(shared));
	CHECK(!faults(shared + HUGE));
	CHECK(faults(shared + 2 * HUGE));
	CHECK_EQ(munmap(rest, (POOL - 2) * HUGE), 0);
	CHECK(!faults(shared + 2 * HUGE));
	CHECK_EQ(munmap(shared, 3 * HUGE), 0);
	CHECK_EQ(ftruncate(file, 0), 0);
	expect(POOL, 2);
	close(file);
	CHECK_EQ(umount(base), 0);
	expect(POOL, 0);
}

/* Many files use inodes, but no pages. */
static void many(void)
{
	enum { FILES = 5000 };
	char name[32];
	NEED(hugetlbfs(0, "size=2M") == 0);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "%d", i);
		int file = open(at(name), O_CREAT | O_EXCL | O_RDWR, 0600);
		NEED(file >= 0);
		NEED(ftruncate(file, 64 * HUGE) == 0);
		close(file);
	}
	check_room(1, 1);
	for (int i = 0; i < FILES; i += 2) {
		snprintf(name, sizeof name, "%d", i);
		NEED(unlink(at(name)) == 0);
	}
	expect(POOL, 0);
	CHECK_EQ(umount(base), 0);
}

static void refused(void)
{
	pid_t child = fork();
	if (!child) {
		NEED(setuid(1000) == 0);
		CHECK_FAILS(hugetlbfs(0, NULL), EPERM);
		_exit(checks_failed);
	}
	int status;
	NEED(waitpid(child, &status, 0) == child);
	CHECK_EQ(status, 0);
	CHECK_FAILS(mount("pages", "/nowhere", "hugetlbfs", 0, NULL), ENOENT);
}

int main(void)
{
	NEED(mkdtemp(base));
	signal(SIGBUS, on_bus);
	long before = number_of(SIZES "nr_hugepages");
	set_pool(POOL);
	NEED(number_of(SIZES "nr_hugepages") == POOL);
	mount_options();
	names();
	contents();
	limit();
	guarantee();
	many();
	refused();
	set_pool(before);
	CHECK_EQ(rmdir(base), 0);
	return checked("hugetlbfs");
}
