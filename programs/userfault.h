/* Definitions of userfaultfd and PAGEMAP_SCAN for the programs in this folder that test them.
 *
 * The structures and constants are those of include/uapi/linux/userfaultfd.h and fs.h, because not every C library's
 * headers are recent enough.
 */
#ifndef USERFAULT_H
#define USERFAULT_H

#include "check.h"

#include <sys/ioctl.h>

struct api {
	uint64_t api, features, ioctls;
};
struct range {
	uint64_t start, len;
};
struct registration {
	struct range range;
	uint64_t mode, ioctls;
};
struct copy {
	uint64_t dst, src, len, mode;
	int64_t copy;
};
struct filling {
	struct range range;
	uint64_t mode;
	int64_t filled;
};
struct protection {
	struct range range;
	uint64_t mode;
};
struct message {
	uint8_t event, reserved[7];
	uint64_t flags, address;
	uint32_t thread, more;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t inverted, mask, anyof, returned;
};
struct region {
	uint64_t start, end, categories;
};

#define UFFDIO_API _IOWR(0xAA, 0x3F, struct api)
#define UFFDIO_REGISTER _IOWR(0xAA, 0, struct registration)
#define UFFDIO_UNREGISTER _IOR(0xAA, 1, struct range)
#define UFFDIO_WAKE _IOR(0xAA, 2, struct range)
#define UFFDIO_COPY _IOWR(0xAA, 3, struct copy)
#define UFFDIO_ZEROPAGE _IOWR(0xAA, 4, struct filling)
#define UFFDIO_WRITEPROTECT _IOWR(0xAA, 6, struct protection)
#define UFFDIO_CONTINUE _IOWR(0xAA, 7, struct filling)
#define UFFDIO_POISON _IOWR(0xAA, 8, struct filling)
#define PAGEMAP_SCAN _IOWR('f', 16, struct scan)

enum { MISSING = 1, WP = 2, MINOR = 4 };
enum { FAULT_WRITE = 1, FAULT_WP = 2, FAULT_MINOR = 4 };
enum { SIGBUS_FEATURE = 1 << 7, THREAD_FEATURE = 1 << 8, EXACT = 1 << 11, UNPOPULATED = 1 << 13, POISON = 1 << 14, ASYNC = 1 << 15 };
enum { IS_WRITTEN = 2 };

static inline int watcher(uint64_t features)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct api api = { 0xAA, features, 0 };
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static inline struct range range_of(const void *start, long pages)
{
	return (struct range){ (uint64_t)(uintptr_t)start, (uint64_t)pages * PAGE };
}

static inline int watch(int fd, const void *start, long pages, uint64_t mode)
{
	struct registration registration = { range_of(start, pages), mode, 0 };
	return ioctl(fd, UFFDIO_REGISTER, &registration);
}

static inline int protect(int fd, const void *start, long pages, uint64_t mode)
{
	struct protection protection = { range_of(start, pages), mode };
	return ioctl(fd, UFFDIO_WRITEPROTECT, &protection);
}

static inline int copy(int fd, void *to, const void *from, long pages, uint64_t mode, int64_t *copied)
{
	struct copy copy = { (uint64_t)(uintptr_t)to, (uint64_t)(uintptr_t)from, (uint64_t)pages * PAGE, mode, 0 };
	int result = ioctl(fd, UFFDIO_COPY, &copy);
	if (copied)
		*copied = copy.copy;
	return result;
}

static inline int fill(int fd, unsigned long command, const void *start, long pages, uint64_t mode)
{
	struct filling filling = { range_of(start, pages), mode, 0 };
	return ioctl(fd, command, &filling);
}

#endif
