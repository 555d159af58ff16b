/* What the experiments on accesses share: userfaultfd's read-write protection (Linux 7.3 include/uapi/linux/userfaultfd.h). */
#ifndef ACCESS_H
#define ACCESS_H

#include "track.h"

struct uffd_modes {
	uint64_t enable, disable;
};

#define UFFD_RWPROTECT _IOWR(0xAA, 9, struct uffd_protect)
#define UFFD_SET_MODE _IOW(0xAA, 10, struct uffd_modes)

enum { WATCH_ACCESSES = 8, RWP = 1 << 17, RWP_ASYNC = 1 << 18 };
enum { PAGE_IS_PRESENT = 1 << 3, PAGE_IS_ACCESSED = 1 << 9 };

/* Protects memory against accesses. */
static inline int uffd_arm(int file, const void *start, size_t size)
{
	struct uffd_protect wanted = { { (uintptr_t)start, size }, 1 };
	return ioctl(file, UFFD_RWPROTECT, &wanted);
}

#endif
