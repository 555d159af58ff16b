/* The calls of userfaultfd, for the interpreter of scripts.
 *
 * The structures and numbers are copied from include/uapi/linux/userfaultfd.h, because the C library has no
 * kernel headers.
 */
#ifndef WATCH_H
#define WATCH_H

#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct api {
	uint64_t version, features, calls;
};
struct pages {
	uint64_t start, length;
};
struct registration {
	struct pages pages;
	uint64_t mode, calls;
};
struct protection {
	struct pages pages;
	uint64_t mode;
};
struct modes {
	uint64_t enable, disable;
};
struct filling {
	uint64_t to, from, length, mode;
	int64_t done;
};
struct zeroing {
	struct pages pages;
	uint64_t mode;
	int64_t done;
};
/* A message of a userfaultfd. Its three words are, for a fault, the flags, the address and the thread; for a
 * fork, the new descriptor; for a move, the old address, the new address and the length; for a removal or an
 * unmapping, the start and the end. */
struct message {
	uint8_t event, reserved[7];
	uint64_t words[3];
};
/* UFFDIO_ZEROPAGE, UFFDIO_CONTINUE and UFFDIO_POISON have arguments of the same layout, and so have UFFDIO_COPY and
   UFFDIO_MOVE. */
#define MOVE _IOWR(0xaa, 5, struct filling)
#define SHOW _IOWR(0xaa, 7, struct zeroing)
#define POISON _IOWR(0xaa, 8, struct zeroing)
#define WATCH_API _IOWR(0xaa, 0x3f, struct api)
#define WATCH _IOWR(0xaa, 0, struct registration)
#define UNWATCH _IOR(0xaa, 1, struct pages)
#define WAKE _IOR(0xaa, 2, struct pages)
#define FILL _IOWR(0xaa, 3, struct filling)
#define ZERO _IOWR(0xaa, 4, struct zeroing)
#define PROTECT _IOWR(0xaa, 6, struct protection)
#define ARM _IOWR(0xaa, 9, struct protection)
#define SET_MODE _IOW(0xaa, 10, struct modes)
enum { VERSION = 0xaa, MISSING = 1, WRITES = 2, MINOR = 4, ACCESSES = 8, FILL_ASLEEP = 1, FILL_PROTECTED = 2, PROTECTED = 1, OVER_HOLES = 2 };
enum {
	HAS_WRITES = 1 << 0,
	HAS_FORK = 1 << 1,
	HAS_MISSING_SHMEM = 1 << 5,
	HAS_SIGNAL = 1 << 7,
	HAS_MINOR_SHMEM = 1 << 10,
	HAS_WRITES_SHMEM = 1 << 12,
	HAS_UNPOPULATED = 1 << 13,
	HAS_POISON = 1 << 14,
	HAS_ASYNC = 1 << 15,
	HAS_MOVE = 1 << 16,
	HAS_ACCESSES = 1 << 17,
	HAS_COUNTS = 1 << 18,
};
enum { TOLD_FAULT = 0x12, TOLD_FORK, TOLD_MOVE, TOLD_REMOVE, TOLD_UNMAP };
enum { FAULT_STORES = 1, FAULT_PROTECTED = 2, FAULT_MINOR = 4, FAULT_ARMED = 8 };

/* Returns a userfaultfd with those of `features` that the kernel has, or -1 if this user cannot create one. */
static int watcher(uint64_t features)
{
	struct api probe = { .version = VERSION }, api = { .version = VERSION };
	int descriptor = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	int known = descriptor >= 0 && ioctl(descriptor, WATCH_API, &probe) == 0;
	close(descriptor);
	if (!known)
		return -1;
	descriptor = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	api.features = features & probe.features;
	if (ioctl(descriptor, WATCH_API, &api) == 0)
		return descriptor;
	close(descriptor);
	return -1;
}

#endif
