/* Do pages to which the kernel holds references keep their contents (pages in a pipe, and copies between processes),
 * and does the kernel refuse references to secret memory?
 */
#include "check.h"
#include <limits.h>
#include <sys/uio.h>

#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define RW (PROT_READ | PROT_WRITE)

static ssize_t splice_in(int to, void *memory, size_t length, unsigned flags)
{
	struct iovec piece = { memory, length };
	return vmsplice(to, &piece, 1, flags);
}

static void fill(char *memory, size_t length, int seed)
{
	for (size_t i = 0; i < length; i++)
		memory[i] = (char)(seed + i / 7);
}

/* Reads `length` bytes. Returns whether they are the bytes that `fill` wrote. */
static int comes_out(int from, size_t length, int seed)
{
	static char got[64 * PAGE], wanted[64 * PAGE];
	size_t done = 0;
	fill(wanted, length, seed);
	while (done < length) {
		ssize_t count = read(from, got + done, length - done < 3000 ? length - done : 3000);
		if (count <= 0)
			return 0;
		done += (size_t)count;
	}
	return memcmp(got, wanted, length) == 0;
}

/* A page in a pipe keeps its contents although the process that put it there unmaps it, and the other
 * process, which also maps it, overwrites it. */
static void over_fork(int parent_lends, int before)
{
	int ends[2];
	struct turns turns;
	char *memory = anonymous(2 * PAGE);
	NEED(memory != NULL && pipe(ends) == 0 && turns_open(&turns));
	fill(memory, 2 * PAGE, 3);
	if (before)
		CHECK_EQ(splice_in(ends[1], memory, 2 * PAGE, 0), 2 * PAGE);
	pid_t child = fork_checked();
	int lends = (child != 0) == parent_lends;
	int *mine = child == 0 ? turns.to_child : turns.to_parent;
	int *theirs = child == 0 ? turns.to_parent : turns.to_child;
	if (lends) {
		if (!before)
			CHECK_EQ(splice_in(ends[1], memory, 2 * PAGE, 0), 2 * PAGE);
		CHECK_EQ(munmap(memory, 2 * PAGE), 0);
		turn_pass(theirs);
		turn_await(mine);
		CHECK(comes_out(ends[0], 2 * PAGE, 3));
	} else {
		turn_await(mine);
		memset(memory, 0xff, 2 * PAGE);
		turn_pass(theirs);
	}
	if (child == 0)
		end_child();
	CHECK(exited(wait_for(child), 0));
	turns_close(&turns);
	close(ends[0]);
	close(ends[1]);
	munmap(memory, 2 * PAGE);
}

/* Bytes that vmsplice and write put into a pipe come out in order, even after the pipe was full. */
static void mixed(void)
{
	int ends[2];
	char *memory = anonymous(20 * PAGE), byte;
	NEED(memory != NULL && pipe(ends) == 0);
	fill(memory, 20 * PAGE, 1);
	CHECK_EQ(splice_in(ends[1], memory + 10, 100, 0), 100);
	CHECK_EQ(read(ends[0], &byte, 1), 1);
	CHECK_EQ(byte, memory[10]);
	CHECK_EQ(write(ends[1], memory + 110, 50), 50);
	CHECK_EQ(splice_in(ends[1], memory + 160, 2 * PAGE, 0), 2 * PAGE);
	for (size_t i = 11; i < 160 + 2 * PAGE; i++) {
		if (read(ends[0], &byte, 1) != 1 || byte != memory[i]) {
			CHECK_EQ(i, -1);
			break;
		}
	}
	/* A pipe contains up to sixteen pages. A page that was read partly is not reused before the rest has been
	 * read. */
	CHECK_EQ(splice_in(ends[1], memory, 20 * PAGE, SPLICE_F_NONBLOCK), 16 * PAGE);
	CHECK_FAILS(splice_in(ends[1], memory, PAGE, SPLICE_F_NONBLOCK), EAGAIN);
	static char half[PAGE / 2];
	CHECK_EQ(read(ends[0], half, sizeof half), (ssize_t)sizeof half);
	CHECK_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	CHECK_FAILS(write(ends[1], half, 16), EAGAIN);
	CHECK_EQ(memcmp(half, memory, sizeof half), 0);
	for (int i = 0; i < 31; i++) {
		CHECK_EQ(read(ends[0], half, sizeof half), (ssize_t)sizeof half);
		CHECK_EQ(memcmp(half, memory + (size_t)(i + 1) * sizeof half, sizeof half), 0);
	}
	CHECK_FAILS(splice_in(ends[1], (void *)8, PAGE, 0), EFAULT);
	CHECK_FAILS(splice_in(ends[1], memory, PAGE, 0x100), EINVAL);
	CHECK_FAILS(splice_in(-1, memory, PAGE, 0), EBADF);
	/* vmsplice on the read end copies the pipe's contents into memory. */
	CHECK_EQ(write(ends[1], "word", 4), 4);
	CHECK_EQ(splice_in(ends[0], half, 4, 0), 4);
	CHECK_EQ(memcmp(half, "word", 4), 0);
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK_FAILS(splice_in(ends[1], memory, PAGE, 0), EPIPE);
	signal(SIGPIPE, SIG_DFL);
	close(ends[1]);
	munmap(memory, 20 * PAGE);
}

static void between_processes(void)
{
	struct turns turns;
	char *theirs = anonymous(3 * PAGE), *mine = anonymous(3 * PAGE);
	NEED(theirs != NULL && mine != NULL && turns_open(&turns));
	pid_t child = fork_checked();
	if (child == 0) {
		fill(theirs, 3 * PAGE, 9);
		munmap(theirs + 2 * PAGE, PAGE);
		turn_pass(turns.to_parent);
		turn_await(turns.to_child);
		CHECK_EQ(theirs[5], 'x');
		CHECK_EQ(theirs[PAGE + 5], 'y');
		end_child();
	}
	turn_await(turns.to_parent);
	struct iovec own[] = { { mine, 100 }, { mine + PAGE, 2 * PAGE - 100 } };
	struct iovec other[] = { { theirs, 3 * PAGE } };
	CHECK_EQ(process_vm_readv(child, own, 2, other, 1, 0), 2 * PAGE);
	fill(theirs, 2 * PAGE, 9);
	CHECK_EQ(memcmp(mine, theirs, 100), 0);
	CHECK_EQ(memcmp(mine + PAGE, theirs + 100, 2 * PAGE - 100), 0);
	struct iovec gone = { theirs + 2 * PAGE, 10 };
	CHECK_FAILS(process_vm_readv(child, own, 2, &gone, 1, 0), EFAULT);
	CHECK_FAILS(process_vm_readv(child, own, 2, other, 1, 1), EINVAL);
	/* Only the part of the remote memory that is copied must be mapped. */
	struct iovec endless = { theirs, (size_t)SSIZE_MAX };
	CHECK_EQ(process_vm_readv(child, own, 1, &endless, 1, 0), 100);
	CHECK_EQ(process_vm_readv(child, own, 2, &endless, 1, 0), 2 * PAGE);
	struct iovec negative = { theirs, (size_t)SSIZE_MAX + 1 };
	CHECK_FAILS(process_vm_readv(child, own, 1, &negative, 1, 0), EINVAL);
	struct iovec nowhere[] = { { theirs, 50 }, { (void *)-PAGE, PAGE } };
	CHECK_EQ(process_vm_readv(child, own, 1, nowhere, 2, 0), 50);
	CHECK_FAILS(process_vm_readv(child, own, 1, nowhere + 1, 1, 0), EFAULT);
	CHECK_EQ(process_vm_readv(child, own, 0, other, 1, 0), 0);
	CHECK_EQ(process_vm_readv(child, own, 2, other, 0, 0), 0);
	CHECK_FAILS(process_vm_readv(0x7ffffff, own, 2, other, 1, 0), ESRCH);
	struct iovec two = { "xy", 2 };
	struct iovec places[] = { { theirs + 5, 1 }, { theirs + PAGE + 5, 1 } };
	CHECK_EQ(process_vm_writev(child, &two, 1, places, 2, 0), 2);
	/* The call also works on the process's own memory. */
	CHECK_EQ(process_vm_writev(getpid(), &two, 1, &(struct iovec){ mine, 2 }, 1, 0), 2);
	CHECK_EQ(memcmp(mine, "xy", 2), 0);
	turn_pass(turns.to_child);
	CHECK(exited(wait_for(child), 0));
	turns_close(&turns);
	munmap(mine, 3 * PAGE);
	munmap(theirs, 3 * PAGE);
}

static void secrets(void)
{
	int file = (int)syscall(SYS_memfd_secret, 0UL), ends[2];
	if (file < 0 && errno == ENOSYS)
		return;
	NEED(file >= 0 && pipe(ends) == 0);
	char bytes[16] = "";
	CHECK_FAILS(syscall(SYS_memfd_secret, 1UL), EINVAL);
	CHECK_EQ(ftruncate(file, 2 * PAGE), 0);
	CHECK_FAILS(ftruncate(file, PAGE), EINVAL);
	CHECK_FAILS(read(file, bytes, 16), EINVAL);
	CHECK_FAILS(write(file, bytes, 16), EINVAL);
	CHECK_FAILS((long)mmap(NULL, PAGE, RW, MAP_PRIVATE, file, 0), EINVAL);
	char *secret = mmap(NULL, 2 * PAGE, RW, MAP_SHARED, file, 0);
	NEED(secret != MAP_FAILED);
	CHECK_FAILS(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0), EPERM);
	CHECK_FAILS(mprotect(secret, PAGE, PROT_READ | PROT_EXEC), EACCES);
	for (int present = 0; present < 2; present++) {
		CHECK_FAILS(splice_in(ends[1], secret, PAGE, 0), EFAULT);
		struct iovec own = { bytes, 16 }, other = { secret, 16 };
		CHECK_FAILS(process_vm_readv(getpid(), &own, 1, &other, 1, 0), EFAULT);
		CHECK_FAILS(process_vm_writev(getpid(), &own, 1, &other, 1, 0), EFAULT);
		secret[0] = 's';
	}
	/* The program itself may copy its secret memory. */
	CHECK_EQ(write(ends[1], secret, 4), 4);
	CHECK_EQ(read(ends[0], secret + PAGE, 4), 4);
	CHECK_EQ(secret[PAGE], 's');
	pid_t child = fork_checked();
	if (child == 0) {
		secret[1] = 't';
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(secret[1], 't');
	CHECK_EQ(munmap(secret, 2 * PAGE), 0);
	close(file);
	close(ends[0]);
	close(ends[1]);
}

/* A copy within one process's memory proceeds upwards. If the target begins inside the source, it therefore copies
 * bytes that it has written itself. */
static void overlapping(void)
{
	static const int distances[] = { 8, 16, 63, 100, 1024, 1500, 4096, 5000 };
	static const int lengths[] = { 20, 100, 1024, 4096, 9000, 20000 };
	static char expected[16 * PAGE];
	char *memory = anonymous(sizeof expected);
	NEED(memory != NULL);
	for (unsigned run = 0; run < 4 * 8 * 6; run++) {
		int writes = run & 1, down = run >> 1 & 1, distance = distances[run >> 2 & 7], length = lengths[run >> 5];
		if (distance >= length)
			continue;
		char *from = memory + 2 * PAGE + 100, *to = down ? from - distance : from + distance;
		for (unsigned place = 0; place < sizeof expected; place++)
			memory[place] = expected[place] = (char)(place * 7 + place / 256);
		for (int place = 0; place < length; place++)
			expected[to - memory + place] = expected[from - memory + place];
		struct iovec source = { from, length }, target = { to, length };
		long got = writes ? process_vm_writev(getpid(), &source, 1, &target, 1, 0) :
				    process_vm_readv(getpid(), &target, 1, &source, 1, 0);
		CHECK_EQ(got, length);
		CHECK(memcmp(memory, expected, sizeof expected) == 0);
	}
	munmap(memory, sizeof expected);
}

int main(void)
{
	for (int which = 0; which < 4; which++)
		over_fork(which & 1, which >> 1);
	mixed();
	between_processes();
	overlapping();
	secrets();
	return checked("lend");
}
