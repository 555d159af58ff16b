/* Can folders and mounts that are nested to any depth be removed, and can a program exit without removing them?
 *
 * With the argument "leave", the folders and mounts still exist when the program exits.
 */
#include "check.h"
#include <sys/mount.h>

static char home[] = "/tmp/deep-XXXXXX";

/* Creates nested folders in the working directory, and changes to the innermost one. */
static void descend(int depth)
{
	for (int level = 0; level < depth; level++)
		NEED(mkdir("d", 0777) == 0 && chdir("d") == 0);
}

/* Changes back to the outermost folder, and removes each folder on the way. */
static void ascend(int depth)
{
	for (int level = 0; level < depth; level++)
		NEED(chdir("..") == 0 && rmdir("d") == 0);
}

static void made_and_removed(int depth)
{
	descend(depth);
	ascend(depth);
	CHECK_FAILS(access("d", F_OK), ENOENT);
}

/* Removes the folders while the innermost one is open. */
static void removed_in_use(int depth)
{
	descend(depth);
	int innermost = open(".", O_RDONLY | O_DIRECTORY);
	ascend(depth);
	CHECK_FAILS(openat(innermost, "..", O_RDONLY | O_CREAT, 0600), EISDIR);
	CHECK_FAILS(mkdirat(innermost, "d", 0777), ENOENT);
	CHECK_EQ(close(innermost), 0);
}

/* Unmounting a file system frees the folders in it. */
static void unmounted(int depth)
{
	NEED(mkdir("m", 0777) == 0);
	NEED(mount("deep", "m", "tmpfs", 0, NULL) == 0 && chdir("m") == 0);
	descend(depth);
	int innermost = open(".", O_RDONLY | O_DIRECTORY);
	NEED(chdir(home) == 0);
	CHECK_FAILS(umount2("m", 0), EBUSY);
	CHECK_EQ(umount2("m", MNT_DETACH), 0);
	CHECK_EQ(faccessat(innermost, "..", F_OK, 0), 0);
	close(innermost);
	NEED(mount("deep", "m", "tmpfs", 0, NULL) == 0 && chdir("m") == 0);
	descend(depth);
	NEED(chdir(home) == 0);
	CHECK_EQ(umount2("m", 0), 0);
	CHECK_EQ(rmdir("m"), 0);
}

/* Mounts file systems, each inside the previous one or on top of it. */
static void mounted_in_mounts(int depth, int covering)
{
	NEED(mkdir("m", 0777) == 0 && mount("deep", "m", "tmpfs", 0, NULL) == 0 && chdir("m") == 0);
	for (int level = 0; level < depth; level++) {
		NEED(covering || mkdir("m", 0777) == 0);
		if (covering)
			NEED(chdir(home) == 0);
		NEED(mount("deep", "m", "tmpfs", 0, NULL) == 0 && chdir("m") == 0);
	}
	NEED(chdir(home) == 0);
	for (int level = covering ? 0 : depth; level <= depth; level++)
		CHECK_EQ(umount2("m", MNT_DETACH), 0);
	CHECK_EQ(rmdir("m"), 0);
}

int main(int count, char **arguments)
{
	NEED(mkdtemp(home) != NULL && chdir(home) == 0);
	if (count > 1 && strcmp(arguments[1], "leave") == 0) {
		int depth = count > 2 ? atoi(arguments[2]) : 2000;
		descend(depth);
		NEED(chdir(home) == 0 && mkdir("m", 0777) == 0);
		NEED(mount("deep", "m", "tmpfs", 0, NULL) == 0 && chdir("m") == 0);
		descend(depth);
		return checked("deep_folders");
	}
	made_and_removed(2000);
	made_and_removed(20000);
	removed_in_use(5000);
	unmounted(5000);
	mounted_in_mounts(100, 0);
	mounted_in_mounts(100, 1);
	NEED(chdir("/") == 0 && rmdir(home) == 0);
	return checked("deep_folders");
}
