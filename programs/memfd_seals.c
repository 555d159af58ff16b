/* Does a sealed file of memfd_create stay unchanged? Can no mapping write to it, whether the mapping existed
 * before, is created later or is made writable? Does sealing fail only while a writable mapping exists?
 */
#include "check.h"
#include <sys/vfs.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x10
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x20
#endif
#define RW (PROT_READ | PROT_WRITE)

static int file_of(unsigned flags)
{
	int file = memfd_create("sealed", flags);
	NEED(file >= 0);
	NEED(ftruncate(file, 4 * PAGE) == 0);
	NEED(pwrite(file, "first", 5, 0) == 5);
	return file;
}

static int seals(int file)
{
	return fcntl(file, F_GET_SEALS);
}

static int seal(int file, int more)
{
	return fcntl(file, F_ADD_SEALS, more);
}

/* Opens the file a second time. */
static int again(int file, int flags)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	return open(path, flags);
}

static void *map(int file, int rights, int flags)
{
	return mmap(NULL, PAGE, rights, flags, file, 0);
}

/* Checks that a file with F_SEAL_WRITE or F_SEAL_FUTURE_WRITE cannot be written in any way. */
static void unwritable(int file)
{
	CHECK_FAILS(pwrite(file, "other", 5, 0), EPERM);
	CHECK_FAILS((long)map(file, RW, MAP_SHARED), EPERM);
	CHECK_FAILS((long)map(file, PROT_WRITE, MAP_SHARED), EPERM);
	CHECK_FAILS(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), EPERM);
	/* The file can be mapped for reading, but the mapping cannot be made writable. */
	char *reads = map(file, PROT_READ, MAP_SHARED);
	CHECK(reads != MAP_FAILED);
	CHECK_FAILS(mprotect(reads, PAGE, RW), EACCES);
	CHECK_FAILS(mprotect(reads, PAGE, PROT_WRITE), EACCES);
	CHECK_EQ(mprotect(reads, PAGE, PROT_NONE), 0);
	CHECK_EQ(mprotect(reads, PAGE, PROT_READ), 0);
	CHECK_EQ(memcmp(reads, "first", 5), 0);
	CHECK_FAILS(madvise(reads, PAGE, MADV_REMOVE), EACCES);
	CHECK_EQ(munmap(reads, PAGE), 0);
	/* A private mapping is writable. */
	char *own = map(file, RW, MAP_PRIVATE);
	CHECK(own != MAP_FAILED);
	own[0] = 'F';
	CHECK_EQ(munmap(own, PAGE), 0);
	/* A second open of the file cannot write to it either. */
	int other = again(file, O_RDWR);
	CHECK(other >= 0);
	CHECK_FAILS((long)map(other, RW, MAP_SHARED), EPERM);
	CHECK_FAILS(pwrite(other, "other", 5, 0), EPERM);
	close(other);
	int reader = again(file, O_RDONLY);
	CHECK(reader >= 0);
	CHECK_FAILS((long)map(reader, RW, MAP_SHARED), EACCES);
	reads = map(reader, PROT_READ, MAP_SHARED);
	CHECK(reads != MAP_FAILED);
	CHECK_EQ(memcmp(reads, "first", 5), 0);
	CHECK_EQ(munmap(reads, PAGE), 0);
	close(reader);
}

static void write_seal(void)
{
	int file = file_of(MFD_ALLOW_SEALING);
	/* Each of the following mappings can be written now or can be made writable, so it prevents the seal. */
	char *writes = map(file, RW, MAP_SHARED);
	NEED(writes != MAP_FAILED);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	CHECK_EQ(mprotect(writes, PAGE, PROT_READ), 0);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	CHECK_EQ(mprotect(writes, PAGE, PROT_NONE), 0);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	CHECK_EQ(munmap(writes, PAGE), 0);
	char *could = map(file, PROT_READ, MAP_SHARED);
	NEED(could != MAP_FAILED);
	CHECK_FAILS(seal(file, F_SEAL_WRITE | F_SEAL_GROW), EBUSY);
	CHECK_EQ(seals(file), 0);
	CHECK_EQ(mprotect(could, PAGE, RW), 0);
	CHECK_EQ(munmap(could, PAGE), 0);
	/* None of the following mappings can write to the file, now or later. */
	int reader = again(file, O_RDONLY);
	NEED(reader >= 0);
	char *reads = map(reader, PROT_READ, MAP_SHARED);
	char *own = map(file, RW, MAP_PRIVATE);
	NEED(reads != MAP_FAILED && own != MAP_FAILED);
	own[1] = 'I';
	CHECK_EQ(seal(file, F_SEAL_WRITE), 0);
	CHECK_EQ(seals(file), F_SEAL_WRITE);
	own[2] = 'R';
	CHECK_EQ(memcmp(reads, "first", 5), 0);
	CHECK_FAILS(mprotect(reads, PAGE, RW), EACCES);
	unwritable(file);
	/* Read-only mappings do not prevent setting the seal again. */
	CHECK_EQ(seal(file, F_SEAL_WRITE | F_SEAL_SHRINK), 0);
	CHECK_FAILS(ftruncate(file, PAGE), EPERM);
	CHECK_EQ(ftruncate(file, 8 * PAGE), 0);
	CHECK_EQ(munmap(reads, PAGE), 0);
	CHECK_EQ(munmap(own, PAGE), 0);
	close(reader);
	close(file);
}

static void future_write_seal(void)
{
	int file = file_of(MFD_ALLOW_SEALING);
	char *writes = map(file, RW, MAP_SHARED);
	NEED(writes != MAP_FAILED);
	CHECK_EQ(seal(file, F_SEAL_FUTURE_WRITE), 0);
	/* Existing mappings can still be written, and can regain write permission. */
	writes[5] = '!';
	CHECK_EQ(mprotect(writes, PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(writes, PAGE, RW), 0);
	writes[6] = '!';
	unwritable(file);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	CHECK_EQ(munmap(writes, PAGE), 0);
	/* A mapping created after the seal cannot be written, so it does not prevent another seal. */
	char *reads = map(file, PROT_READ, MAP_SHARED);
	NEED(reads != MAP_FAILED);
	CHECK_EQ(seal(file, F_SEAL_WRITE), 0);
	CHECK_EQ(munmap(reads, PAGE), 0);
	unwritable(file);
	close(file);
}

static void held_by_child(void *pages)
{
	CHECK_EQ(mprotect(pages, PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(pages, PAGE, RW), 0);
}

/* A writable mapping prevents the seal also if it is in a child, was moved, or was split. */
static void elsewhere(void)
{
	int file = file_of(MFD_ALLOW_SEALING);
	char *pages = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, file, 0);
	NEED(pages != MAP_FAILED);
	struct turns turns;
	NEED(turns_open(&turns));
	pid_t child = fork_checked();
	if (child == 0) {
		turn_await(turns.to_child);
		held_by_child(pages);
		end_child();
	}
	CHECK_EQ(munmap(pages, 4 * PAGE), 0);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	turn_pass(turns.to_child);
	CHECK(exited(wait_for(child), 0));
	turns_close(&turns);
	pages = mmap(NULL, 4 * PAGE, RW, MAP_SHARED, file, 0);
	NEED(pages != MAP_FAILED);
	CHECK_EQ(munmap(pages + PAGE, 3 * PAGE), 0);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	char *moved = mremap(pages, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
	NEED(moved != MAP_FAILED);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EBUSY);
	CHECK_EQ(munmap(moved, 2 * PAGE), 0);
	CHECK_EQ(seal(file, F_SEAL_WRITE), 0);
	close(file);
}

static void others(void)
{
	int file = file_of(0);
	CHECK_EQ(seals(file), F_SEAL_SEAL);
	CHECK_FAILS(seal(file, F_SEAL_WRITE), EPERM);
	close(file);
	file = file_of(MFD_ALLOW_SEALING);
	CHECK_FAILS(seal(file, 0x1000), EINVAL);
	int reader = again(file, O_RDONLY);
	CHECK_FAILS(seal(reader, F_SEAL_GROW), EPERM);
	CHECK_FAILS(seal(reader, 0x1000), EPERM);
	close(reader);
	CHECK_EQ(seal(file, F_SEAL_GROW), 0);
	CHECK_FAILS(ftruncate(file, 5 * PAGE), EPERM);
	CHECK_FAILS(pwrite(file, "x", 1, 4 * PAGE), EPERM);
	CHECK_FAILS(fallocate(file, 0, 4 * PAGE, PAGE), EPERM);
	CHECK_FAILS(fallocate(file, FALLOC_FL_KEEP_SIZE, 4 * PAGE, PAGE), EPERM);
	CHECK_EQ(seal(file, F_SEAL_SEAL), 0);
	CHECK_FAILS(seal(file, F_SEAL_SHRINK), EPERM);
	CHECK_FAILS(seal(file, 0), EPERM);
	close(file);
	/* An executable file whose mode is sealed cannot be written any more. */
	file = file_of(MFD_ALLOW_SEALING);
	CHECK_EQ(fchmod(file, 0755), 0);
	char *writes = map(file, RW, MAP_SHARED);
	NEED(writes != MAP_FAILED);
	if (seal(file, F_SEAL_EXEC) != 0 && errno == EINVAL)
		return; /* Before Linux 6.3. */
	CHECK_FAILS(seal(file, F_SEAL_EXEC), EBUSY);
	CHECK_EQ(munmap(writes, PAGE), 0);
	CHECK_EQ(seal(file, F_SEAL_EXEC), 0);
	CHECK_EQ(seals(file),
		 F_SEAL_EXEC | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
	CHECK_FAILS(fchmod(file, 0644), EPERM);
	unwritable(file);
	close(file);
	file = file_of(MFD_ALLOW_SEALING);
	CHECK_EQ(fchmod(file, 0644), 0);
	CHECK_EQ(seal(file, F_SEAL_EXEC), 0);
	CHECK_EQ(seals(file), F_SEAL_EXEC);
	close(file);
}

/* The file system of these files has no limit, so statfs reports a size of 0. */
static void room(void)
{
	int file = file_of(MFD_ALLOW_SEALING);
	struct statfs status;
	NEED(fstatfs(file, &status) == 0);
	CHECK(status.f_bsize == 4096 && status.f_namelen == 255);
	CHECK(status.f_blocks == 0 && status.f_bfree == 0 && status.f_files == 0 && status.f_ffree == 0);
	close(file);
}

int main(void)
{
	write_seal();
	future_write_seal();
	elsewhere();
	others();
	room();
	return checked("memfd_seals");
}
