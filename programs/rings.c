/* Does an io_uring execute what is submitted, and do its registered buffers stay the program's own pages after a fork?
 */
#include "check.h"
#include <linux/io_uring.h>
#include <sys/uio.h>

#define RW (PROT_READ | PROT_WRITE)

struct ring {
	int file;
	unsigned *head, *tail, *array, *done_head, *done_tail;
	unsigned mask, done_mask;
	struct io_uring_sqe *entries;
	struct io_uring_cqe *completions;
};

static long setup(unsigned entries, struct io_uring_params *wanted)
{
	return syscall(SYS_io_uring_setup, (unsigned long)entries, wanted);
}

static long enter(int file, unsigned submit, unsigned least, unsigned flags)
{
	return syscall(SYS_io_uring_enter, (long)file, (long)submit, (long)least, (long)flags, NULL, 0L);
}

static long enroll(int file, unsigned what, void *argument, unsigned count)
{
	return syscall(SYS_io_uring_register, (long)file, (long)what, argument, (long)count);
}

static int open_ring(struct ring *ring, unsigned entries)
{
	struct io_uring_params wanted;
	memset(&wanted, 0, sizeof wanted);
	ring->file = (int)setup(entries, &wanted);
	if (ring->file < 0)
		return 0;
	NEED(wanted.features & IORING_FEAT_SINGLE_MMAP);
	CHECK_EQ(wanted.sq_entries, entries);
	CHECK_EQ(wanted.cq_entries, 2 * entries);
	size_t length = wanted.sq_off.array + wanted.sq_entries * sizeof(unsigned);
	size_t other = wanted.cq_off.cqes + wanted.cq_entries * sizeof(struct io_uring_cqe);
	char *rings = mmap(NULL, length > other ? length : other, RW, MAP_SHARED | MAP_POPULATE, ring->file,
			   IORING_OFF_SQ_RING);
	NEED(rings != MAP_FAILED);
	ring->entries = mmap(NULL, entries * sizeof(struct io_uring_sqe), RW, MAP_SHARED | MAP_POPULATE, ring->file,
			     IORING_OFF_SQES);
	NEED(ring->entries != MAP_FAILED);
	ring->head = (unsigned *)(rings + wanted.sq_off.head);
	ring->tail = (unsigned *)(rings + wanted.sq_off.tail);
	ring->array = (unsigned *)(rings + wanted.sq_off.array);
	ring->mask = *(unsigned *)(rings + wanted.sq_off.ring_mask);
	ring->done_head = (unsigned *)(rings + wanted.cq_off.head);
	ring->done_tail = (unsigned *)(rings + wanted.cq_off.tail);
	ring->done_mask = *(unsigned *)(rings + wanted.cq_off.ring_mask);
	ring->completions = (struct io_uring_cqe *)(rings + wanted.cq_off.cqes);
	CHECK_EQ(ring->mask, entries - 1);
	CHECK_EQ(ring->done_mask, 2 * entries - 1);
	return 1;
}

static struct io_uring_sqe *next_entry(struct ring *ring)
{
	unsigned tail = *ring->tail, slot = tail & ring->mask;
	struct io_uring_sqe *entry = &ring->entries[slot];
	memset(entry, 0, sizeof *entry);
	ring->array[slot] = slot;
	entry->user_data = 1000 + tail;
	__atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
	return entry;
}

/* Submits the only queued entry and returns its result. */
static int result(struct ring *ring)
{
	unsigned expected = 1000 + *ring->tail - 1;
	CHECK_EQ(enter(ring->file, 1, 1, IORING_ENTER_GETEVENTS), 1);
	CHECK_EQ(*ring->head, *ring->tail);
	unsigned head = *ring->done_head;
	NEED(__atomic_load_n(ring->done_tail, __ATOMIC_ACQUIRE) == head + 1);
	struct io_uring_cqe done = ring->completions[head & ring->done_mask];
	__atomic_store_n(ring->done_head, head + 1, __ATOMIC_RELEASE);
	CHECK_EQ(done.user_data, expected);
	return done.res;
}

static int move(struct ring *ring, int operation, int file, void *memory, unsigned length, unsigned long offset)
{
	struct io_uring_sqe *entry = next_entry(ring);
	entry->opcode = (unsigned char)operation;
	entry->fd = file;
	entry->addr = (unsigned long)memory;
	entry->len = length;
	entry->off = offset;
	return result(ring);
}

static void operations(struct ring *ring)
{
	int file = scratch_file(0);
	char bytes[32] = "";
	NEED(file >= 0);
	CHECK_EQ(move(ring, IORING_OP_NOP, -1, NULL, 0, 0), 0);
	CHECK_EQ(move(ring, 250, -1, NULL, 0, 0), -EINVAL);
	CHECK_EQ(move(ring, IORING_OP_WRITE, file, "a ring of words", 15, 3), 15);
	CHECK_EQ(move(ring, IORING_OP_READ, file, bytes, 32, 5), 13);
	CHECK_EQ(memcmp(bytes, "ring of words", 13), 0);
	struct iovec two[] = { { bytes, 4 }, { bytes + 8, 4 } };
	CHECK_EQ(move(ring, IORING_OP_WRITEV, file, two, 2, 0), 8);
	CHECK_EQ(pread(file, bytes + 16, 8, 0), 8);
	CHECK_EQ(memcmp(bytes + 16, "ringword", 8), 0);
	CHECK_EQ(move(ring, IORING_OP_READV, file, two, 1, 4), 4);
	CHECK_EQ(memcmp(bytes, "word", 4), 0);
	CHECK_EQ(move(ring, IORING_OP_READ, -1, bytes, 1, 0), -EBADF);
	CHECK_EQ(move(ring, IORING_OP_READ, file, (void *)8, 1, 0), -EFAULT);
	CHECK_EQ(move(ring, IORING_OP_READ_FIXED, file, bytes, 1, 0), -EFAULT);
	close(file);
	/* It is not an error to submit nothing. */
	CHECK_EQ(enter(ring->file, 1, 0, 0), 0);
}

static void fixed(struct ring *ring)
{
	int file = scratch_file(0);
	char *memory = anonymous(3 * PAGE), *out = anonymous(3 * PAGE);
	struct iovec whole = { memory + 100, 2 * PAGE };
	struct turns turns;
	NEED(file >= 0 && memory != NULL && out != NULL && turns_open(&turns));
	CHECK_FAILS(enroll(ring->file, IORING_UNREGISTER_BUFFERS, NULL, 0), ENXIO);
	struct iovec nowhere = { (void *)8, 100 };
	CHECK_FAILS(enroll(ring->file, IORING_REGISTER_BUFFERS, &nowhere, 1), EFAULT);
	CHECK_EQ(enroll(ring->file, IORING_REGISTER_BUFFERS, &whole, 1), 0);
	CHECK_FAILS(enroll(ring->file, IORING_REGISTER_BUFFERS, &whole, 1), EBUSY);
	pid_t child = fork_checked();
	if (child == 0) {
		turn_await(turns.to_child);
		end_child();
	}
	/* The child got a copy of the page at the fork, so this process still maps the page that was registered. */
	memset(memory, 7, 3 * PAGE);
	CHECK_EQ(move(ring, IORING_OP_WRITE_FIXED, file, memory + 200, PAGE, 0), PAGE);
	CHECK_EQ(pread(file, out, PAGE, 0), (ssize_t)PAGE);
	CHECK_EQ(memcmp(out, memory, PAGE), 0);
	/* The registered page stays in memory whatever the permissions of the mapping become. */
	CHECK_EQ(mprotect(memory, 3 * PAGE, PROT_READ), 0);
	CHECK_EQ(mprotect(memory, 3 * PAGE, RW), 0);
	memset(memory, 8, 3 * PAGE);
	CHECK_EQ(move(ring, IORING_OP_WRITE_FIXED, file, memory + 200, PAGE, 0), PAGE);
	CHECK_EQ(pread(file, out, PAGE, 0), (ssize_t)PAGE);
	CHECK_EQ(memcmp(out, memory, PAGE), 0);
	CHECK_EQ(pwrite(file, "in", 2, 0), 2);
	CHECK_EQ(move(ring, IORING_OP_READ_FIXED, file, memory + PAGE + 99, 2, 0), 2);
	CHECK_EQ(memcmp(memory + PAGE + 99, "in", 2), 0);
	CHECK_EQ(move(ring, IORING_OP_READ_FIXED, file, memory + 99, 2, 0), -EFAULT);
	CHECK_EQ(move(ring, IORING_OP_READ_FIXED, file, memory + 100, 2 * PAGE + 1, 0), -EFAULT);
	turn_pass(turns.to_child);
	CHECK(exited(wait_for(child), 0));
	turns_close(&turns);
	CHECK_EQ(enroll(ring->file, IORING_UNREGISTER_BUFFERS, NULL, 0), 0);
	/* Registers the buffer again; this time the close of the ring releases it. */
	CHECK_EQ(enroll(ring->file, IORING_REGISTER_BUFFERS, &whole, 1), 0);
	CHECK_EQ(munmap(memory, 3 * PAGE), 0);
	munmap(out, 3 * PAGE);
	close(file);
}

/* The pages of buffers count as pinned, for a process that may not lock more than its limit. */
static void pinned_pages(void)
{
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		struct ring ring;
		char *memory = anonymous(5 * PAGE);
		struct iovec first = { memory + 100, 2 * PAGE };
		struct iovec both[] = { { memory, PAGE }, { memory + 3 * PAGE, 2 * PAGE } };
		NEED(setuid(65534) == 0 && open_ring(&ring, 4));
		CHECK_EQ(row_in("/proc/self/status", "VmPin"), 0);
		/* The buffer spans three pages. */
		CHECK_EQ(enroll(ring.file, IORING_REGISTER_BUFFERS, &first, 1), 0);
		CHECK_EQ(row_in("/proc/self/status", "VmPin"), 3 * 4);
		CHECK_FAILS(enroll(ring.file, IORING_REGISTER_BUFFERS, &first, 1), EBUSY);
		CHECK_EQ(row_in("/proc/self/status", "VmPin"), 3 * 4);
		CHECK_EQ(enroll(ring.file, IORING_UNREGISTER_BUFFERS, NULL, 0), 0);
		CHECK_EQ(row_in("/proc/self/status", "VmPin"), 0);
		CHECK_EQ(enroll(ring.file, IORING_REGISTER_BUFFERS, both, 2), 0);
		CHECK_EQ(row_in("/proc/self/status", "VmPin"), 3 * 4);
		munmap(memory, 5 * PAGE);
		CHECK_EQ(row_in("/proc/self/status", "VmPin"), 3 * 4);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
}

static void refusals(void)
{
	struct io_uring_params wanted;
	memset(&wanted, 0, sizeof wanted);
	CHECK_FAILS(setup(0, &wanted), EINVAL);
	CHECK_FAILS(setup(1, NULL), EFAULT);
	wanted.flags = 1U << 31;
	CHECK_FAILS(setup(1, &wanted), EINVAL);
	CHECK_FAILS(enter(-1, 0, 0, 0), EBADF);
	CHECK_FAILS(enter(1, 0, 0, 0), EOPNOTSUPP);
}

int main(void)
{
	struct ring ring;
	if (!open_ring(&ring, 4)) {
		/* The kernel may have been built without io_uring. */
		CHECK(errno == ENOSYS || errno == EPERM);
		return checked("rings");
	}
	refusals();
	operations(&ring);
	fixed(&ring);
	pinned_pages();
	close(ring.file);
	return checked("rings");
}
