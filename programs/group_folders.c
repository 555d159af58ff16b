/* Do files and folders that are created in a folder with the set-group-ID bit get the folder's group? Which users keep
 * the bit, and which may read a file without updating its access time?
 */
#include "check.h"
#include <grp.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif
#ifndef O_NOATIME
#define O_NOATIME 01000000
#endif

enum { USER = 1000, GROUP = 2000, OTHER = 3000 };

static void expect(const char *name, unsigned mode, unsigned group)
{
	struct stat stat;
	if (!CHECK(lstat(name, &stat) == 0))
		return;
	CHECK_EQ(stat.st_mode & 07777, mode);
	CHECK_EQ(stat.st_gid, group);
}

static void become(unsigned user, unsigned group)
{
	NEED(setgroups(0, NULL) == 0);
	NEED(setresgid(group, group, group) == 0);
	NEED(setresuid(user, user, user) == 0);
}

static void create(const char *name, unsigned mode)
{
	int file = open(name, O_RDWR | O_CREAT | O_EXCL, mode);
	CHECK(file >= 0);
	close(file);
}

static void fill(unsigned group)
{
	create("file", 0644);
	expect("file", 0644, group);
	CHECK_EQ(mkdir("folder", 0750), 0);
	expect("folder", 02750, group);
	/* The inner folder inherits the set-group-ID bit. */
	create("folder/file", 0600);
	expect("folder/file", 0600, group);
	CHECK_EQ(mkdir("folder/folder", 0700), 0);
	expect("folder/folder", 02700, group);
	CHECK_EQ(symlink("file", "link"), 0);
	expect("link", 0777, group);
	CHECK_EQ(mknod("fifo", S_IFIFO | 0640, 0), 0);
	expect("fifo", 0640, group);
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "socket" };
	int end = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_EQ(bind(end, (struct sockaddr *)&address, sizeof address), 0);
	close(end);
	struct stat stat;
	CHECK_EQ(lstat("socket", &stat), 0);
	CHECK_EQ(stat.st_gid, group);
	int nameless = open(".", O_TMPFILE | O_RDWR, 0600);
	CHECK(nameless >= 0);
	CHECK_EQ(fstat(nameless, &stat), 0);
	CHECK_EQ(stat.st_gid, group);
	close(nameless);
	CHECK_EQ(unlink("file") | unlink("link") | unlink("fifo") | unlink("socket"), 0);
	CHECK_EQ(unlink("folder/file") | rmdir("folder/folder") | rmdir("folder"), 0);
}

static void as_other(void *unused)
{
	(void)unused;
	become(USER, OTHER);
	fill(GROUP);
	/* The set-group-ID bit of a group-executable file is cleared. Without group execution, where it enables
	 * mandatory locking, the bit stays set. */
	create("runs", 02755);
	expect("runs", 0755, GROUP);
	create("locks", 02745);
	expect("locks", 02745, GROUP);
	CHECK_EQ(chmod("runs", 02755), 0);
	expect("runs", 0755, GROUP);
	CHECK_EQ(chmod("locks", 02644), 0);
	expect("locks", 0644, GROUP);
	CHECK_EQ(chmod("locks", 04755), 0);
	expect("locks", 04755, GROUP);
	/* Changing the group to one of the caller's own clears the bit. */
	CHECK_EQ(chown("locks", (uid_t)-1, OTHER), 0);
	expect("locks", 0755, OTHER);
	CHECK_EQ(chmod("locks", 06755), 0);
	expect("locks", 06755, OTHER);
	CHECK_EQ(chown("locks", (uid_t)-1, OTHER), 0);
	expect("locks", 0755, OTHER);
	CHECK_EQ(chmod("locks", 06745), 0);
	CHECK_EQ(chown("locks", (uid_t)-1, OTHER), 0);
	expect("locks", 02745, OTHER);
	CHECK_EQ(unlink("runs") | unlink("locks"), 0);
	/* Only the owner may use O_NOATIME. */
	create("own", 0644);
	int file = open("own", O_RDONLY | O_NOATIME);
	CHECK(file >= 0);
	close(file);
	CHECK_FAILS(open("roots", O_RDONLY | O_NOATIME), EPERM);
	CHECK_FAILS(open("closed", O_RDONLY | O_NOATIME), EACCES);
	file = open("roots", O_RDONLY);
	CHECK(file >= 0);
	CHECK_FAILS(fcntl(file, F_SETFL, O_NOATIME), EPERM);
	CHECK_EQ(fcntl(file, F_SETFL, O_NONBLOCK), 0);
	close(file);
	CHECK_EQ(unlink("own"), 0);
}

static void as_member(void *unused)
{
	(void)unused;
	become(USER, GROUP);
	create("runs", 02755);
	expect("runs", 02755, GROUP);
	CHECK_EQ(chmod("runs", 02750), 0);
	expect("runs", 02750, GROUP);
	CHECK_EQ(unlink("runs"), 0);
}

static void as_root(void)
{
	fill(GROUP);
	create("runs", 02755);
	expect("runs", 02755, GROUP);
	CHECK_EQ(chown("runs", USER, (gid_t)-1), 0);
	expect("runs", 0755, GROUP);
	CHECK_EQ(unlink("runs"), 0);
	int file = open("roots", O_RDONLY | O_NOATIME);
	CHECK(file >= 0);
	CHECK_EQ(fcntl(file, F_SETFL, 0), 0);
	CHECK_EQ(fcntl(file, F_SETFL, O_NOATIME), 0);
	close(file);
}

int main(void)
{
	if (geteuid() != 0) {
		printf("group_folders: skipped, for root alone\n");
		return 0;
	}
	umask(0);
	char place[] = "/tmp/folders-XXXXXX";
	NEED(mkdtemp(place) != NULL && chdir(place) == 0);
	create("roots", 0644);
	create("closed", 0600);
	CHECK_EQ(chown(".", 0, GROUP), 0);
	CHECK_EQ(chmod(".", 02777), 0);
	as_root();
	CHECK(exited(in_child(as_other, NULL), 0));
	CHECK(exited(in_child(as_member, NULL), 0));
	/* If the folder does not have the bit, new files get the creator's group. */
	CHECK_EQ(chmod(".", 0777), 0);
	create("plain", 02755);
	expect("plain", 02755, getegid());
	CHECK_EQ(unlink("plain") | unlink("roots") | unlink("closed"), 0);
	CHECK(chdir("/") == 0 && rmdir(place) == 0);
	return checked("group_folders");
}
