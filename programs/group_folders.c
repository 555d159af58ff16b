/* Do files and folders that are created in a folder with the set-group-ID bit get the folder's group? Which users keep
 * the bit, and which may read a file without updating its access time? Do supplementary groups count in all of this,
 * and for shared memory?
 */
#include "check.h"
#include <grp.h>
#include <sys/ipc.h>
#include <sys/shm.h>
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
	/* A chown to one of the caller's own groups clears the set-user-ID bit, and the set-group-ID bit of a file that is
	 * group-executable.
	 */
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

/* Checks the rights that GROUP gives to a process of which it is a supplementary group. */
static void use_group(int segment)
{
	create("runs", 02755);
	expect("runs", 02755, GROUP);
	CHECK_EQ(chown("runs", (uid_t)-1, OTHER), 0);
	CHECK_EQ(chown("runs", (uid_t)-1, GROUP), 0);
	CHECK_EQ(chmod("runs", 02755), 0);
	expect("runs", 02755, GROUP);
	CHECK_FAILS(chown("runs", (uid_t)-1, GROUP + 1), EPERM);
	CHECK_EQ(unlink("runs"), 0);
	/* The group's permissions decide, even if the permissions for others are wider. */
	int file = open("groups", O_RDONLY);
	CHECK(file >= 0);
	close(file);
	CHECK_FAILS(open("groups", O_WRONLY), EACCES);
	CHECK_FAILS(open("others", O_RDONLY), EACCES);
	CHECK_FAILS(open("closed", O_RDONLY), EACCES);
	CHECK_EQ(access("groups", R_OK), 0);
	CHECK_FAILS(access("groups", W_OK), EACCES);
	CHECK_FAILS(access("others", R_OK), EACCES);
	void *memory = shmat(segment, NULL, SHM_RDONLY);
	CHECK(memory != (void *)-1);
	CHECK_EQ(shmdt(memory), 0);
	CHECK_FAILS((long)shmat(segment, NULL, 0), EACCES);
}

static void as_supplementary(void *segment)
{
	/* The kernel sorts the groups and keeps duplicates. */
	gid_t groups[] = { GROUP, OTHER + 1, GROUP, 5 };
	gid_t sorted[4] = { 0 };
	NEED(setgroups(4, groups) == 0);
	CHECK_EQ(getgroups(4, sorted), 4);
	CHECK(sorted[0] == 5 && sorted[1] == GROUP && sorted[2] == GROUP && sorted[3] == OTHER + 1);
	NEED(setresgid(OTHER, OTHER, OTHER) == 0 && setresuid(USER, USER, USER) == 0);
	use_group(*(int *)segment);
	CHECK_FAILS(setgroups(0, NULL), EPERM);
}

static void as_member_of_many(void *segment)
{
	static gid_t groups[65536], read[65536];
	for (unsigned i = 0; i < 65536; i++)
		groups[i] = (i * 40503 & 65535) + 1000000;
	groups[777] = GROUP;
	NEED(setgroups(65536, groups) == 0);
	CHECK_FAILS(setgroups(65537, groups), EINVAL);
	CHECK_EQ(getgroups(65536, read), 65536);
	CHECK_EQ(read[0], GROUP);
	int ascending = 1;
	for (unsigned i = 1; i < 65536; i++)
		ascending &= read[i - 1] < read[i];
	CHECK(ascending);
	NEED(setresgid(OTHER, OTHER, OTHER) == 0 && setresuid(USER, USER, USER) == 0);
	use_group(*(int *)segment);
}

static void as_member_of_none(void *segment)
{
	become(USER, OTHER);
	CHECK_EQ(getgroups(0, NULL), 0);
	CHECK_FAILS(open("groups", O_RDONLY), EACCES);
	int file = open("others", O_RDONLY);
	CHECK(file >= 0);
	close(file);
	CHECK_FAILS((long)shmat(*(int *)segment, NULL, SHM_RDONLY), EACCES);
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
	create("groups", 0640);
	create("others", 0604);
	int segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0640);
	struct shmid_ds about;
	CHECK(segment >= 0 && shmctl(segment, IPC_STAT, &about) == 0);
	about.shm_perm.gid = GROUP;
	CHECK_EQ(shmctl(segment, IPC_SET, &about), 0);
	CHECK(exited(in_child(as_supplementary, &segment), 0));
	CHECK(exited(in_child(as_member_of_many, &segment), 0));
	CHECK(exited(in_child(as_member_of_none, &segment), 0));
	CHECK_EQ(shmctl(segment, IPC_RMID, NULL), 0);
	CHECK_EQ(unlink("groups") | unlink("others"), 0);
	/* If the folder does not have the bit, new files get the creator's group. */
	CHECK_EQ(chmod(".", 0777), 0);
	create("plain", 02755);
	expect("plain", 02755, getegid());
	CHECK_EQ(unlink("plain") | unlink("roots") | unlink("closed"), 0);
	CHECK(chdir("/") == 0 && rmdir(place) == 0);
	return checked("group_folders");
}
