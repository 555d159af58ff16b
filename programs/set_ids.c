/* Does a file lose the set-user-ID and set-group-ID bits when an unprivileged user changes its contents?
 */
#include "check.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { OTHER = 1000, OWN_GROUP = 1000, FOREIGN_GROUP = 5 };

static int file;
static char *mapped, path[] = "/set-ids-XXXXXX";

static int plain_write(void)
{
	return write(file, "x", 1) == 1;
}

static int write_at(void)
{
	return pwrite(file, "x", 1, 0) == 1;
}

static int vectors(void)
{
	struct iovec part = { "xy", 2 };
	return writev(file, &part, 1) == 2;
}

static int send(void)
{
	int zero = memfd_create("zero", 0);
	NEED(ftruncate(zero, 10) == 0);
	int sent = sendfile(file, zero, NULL, 4) == 4;
	close(zero);
	return sent;
}

static int cut(void)
{
	return ftruncate(file, 7) == 0;
}

static int cut_by_name(void)
{
	return truncate(path, 8) == 0;
}

static int cut_by_opening(void)
{
	int again = open(path, O_WRONLY | O_TRUNC);
	close(again);
	return again >= 0;
}

static int room(void)
{
	return fallocate(file, 0, 0, 100) == 0;
}

static int hole(void)
{
	return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE) == 0;
}

static int nothing_written(void)
{
	return write(file, "x", 0) == 0;
}

static int only_read(void)
{
	char byte;
	return pread(file, &byte, 1, 0) >= 0;
}

static int through_memory(void)
{
	mapped[0]++;
	return 1;
}

static const struct {
	int (*change)(void);
	int keeps;
} changes[] = {
	{ plain_write, 0 }, { write_at, 0 }, { vectors, 0 }, { send, 0 }, { cut, 0 }, { cut_by_name, 0 },
	{ cut_by_opening, 0 }, { room, 0 }, { hole, 0 }, { nothing_written, 1 }, { only_read, 1 }, { through_memory, 1 },
};

static const struct {
	unsigned before, group, after;
} modes[] = {
	{ 04777, FOREIGN_GROUP, 0777 }, { 02777, FOREIGN_GROUP, 0777 }, { 06777, OWN_GROUP, 0777 },
	/* Without group execution, the set-group-ID bit means mandatory locking, and a member of the group keeps it. */
	{ 02767, FOREIGN_GROUP, 0767 }, { 02767, OWN_GROUP, 02767 }, { 06767, OWN_GROUP, 02767 },
	{ 01777, FOREIGN_GROUP, 01777 }, { 0666, FOREIGN_GROUP, 0666 },
};

static unsigned mode_now(void)
{
	struct stat status;
	NEED(fstat(file, &status) == 0);
	return status.st_mode & 07777;
}

static void change_it(void *work)
{
	if (getuid() == 0)
		NEED(setresgid(OTHER, OTHER, OTHER) == 0 && setresuid(OTHER, OTHER, OTHER) == 0);
	CHECK((*(int (**)(void))work)());
}

static void change_as_root(void *work)
{
	CHECK((*(int (**)(void))work)());
}

int main(void)
{
	if (getuid() != 0) {
		printf("set_ids: skipped, for root alone\n");
		return 0;
	}
	file = mkstemp(path);
	NEED(file >= 0 && ftruncate(file, PAGE) == 0);
	mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	NEED(mapped != MAP_FAILED);
	for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
		for (size_t j = 0; j < sizeof modes / sizeof *modes; j++) {
			int (*change)(void) = changes[i].change;
			NEED(ftruncate(file, PAGE) == 0);
			NEED(fchown(file, 0, modes[j].group) == 0 && fchmod(file, modes[j].before) == 0);
			/* A change by root does not clear the bits. */
			CHECK(exited(in_child(change_as_root, &change), 0));
			CHECK_EQ(mode_now(), modes[j].before);
			NEED(ftruncate(file, PAGE) == 0);
			CHECK(exited(in_child(change_it, &change), 0));
			if (!CHECK_EQ(mode_now(), changes[i].keeps ? modes[j].before : modes[j].after))
				printf("change %zu, mode %o\n", i, modes[j].before);
		}
	unlink(path);
	return checked("set_ids");
}
