/* Sequences on areas of memory, and on userfaultfds. No length is mutated, because the program's own memory is adjacent
   to the areas. */
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_FREE
#define MADV_FREE 8
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef UFFDIO_MOVE
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 5, struct uffdio_move)
#endif
#ifndef UFFDIO_POISON
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, 8, struct uffdio_poison)
#endif

/* include/uapi/linux/fs.h */
struct scanned {
	uint64_t start, end, categories;
};
struct scan_argument {
	uint64_t size, flags, start, end, walk_end, vector, vector_length, most_pages;
	uint64_t inverted, mask, any_of, returned;
};
#define SCAN_PAGES _IOWR('f', 16, struct scan_argument)

static void forget_area(struct area *area)
{
	DO(munmap, "", SYS_munmap, area->at, area->pages * PAGE);
	area->at = NULL;
}

static void map_area(void)
{
	struct area *area = &me.areas[below(AREAS)];
	if (area->at)
		forget_area(area);
	int memory = one_in(3) ? any(MEMORY) : -1, shared = memory >= 0 && one_in(2);
	long pages = 1 + below(AREA_PAGES), flags = memory >= 0 ? (shared ? MAP_SHARED : MAP_PRIVATE) : MAP_ANONYMOUS | MAP_PRIVATE;
	if (memory < 0 && one_in(4))
		flags = MAP_ANONYMOUS | MAP_SHARED;
	if (one_in(8))
		flags |= MAP_POPULATE;
	long at = DO(mmap, "--n", SYS_mmap, 0, pages * PAGE, PROT_READ | (one_in(8) ? 0 : PROT_WRITE), flags, memory, 0);
	if (at < 0)
		return;
	*area = (struct area){ (char *)at, pages, !(flags & MAP_PRIVATE) };
	for (long i = below(4); i > 0; i--)
		touch(area->at + below(pages) * PAGE, one_in(2));
}

/* Returns the start of a random part of an area, and stores the part's length. */
static char *part(struct area *area, long *length)
{
	long first = below(area->pages);
	*length = (1 + below(area->pages - first)) * PAGE;
	return area->at + first * PAGE;
}

static void change_area(void)
{
	static const int advice[] = { MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT, MADV_MERGEABLE, MADV_UNMERGEABLE,
				      MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTFORK, MADV_DOFORK, 102, 103, MADV_COLLAPSE, 22, 23 };
	struct area *area = any_area();
	if (!area)
		return map_area();
	long length, key, result;
	char *at = part(area, &length);
	switch (below(14)) {
	case 0:
	case 1:
		DO(mprotect, "--n", SYS_mprotect, at, length, one_in(4) ? PROT_NONE : PROT_READ | (one_in(2) ? PROT_WRITE : 0));
		touch(at, one_in(2));
		break;
	case 2:
	case 3:
		DO(madvise, "--n", SYS_madvise, at, length, advice[below(15)]);
		touch(at, one_in(2));
		break;
	case 4: {
		long pages = 1 + below(AREA_PAGES);
		result = DO(mremap, "", SYS_mremap, area->at, area->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE, 0);
		if (result >= 0)
			*area = (struct area){ (char *)result, pages, area->is_shared };
		break;
	}
	case 5:
		DO(mlock, "", SYS_mlock, at, length);
		DO(munlock, "", SYS_munlock, at, length);
		break;
	case 6:
		DO(msync, "--n", SYS_msync, at, length, MS_SYNC);
		break;
	case 7:
		DO(mincore, "--p", SYS_mincore, at, length, me.buffer);
		break;
	case 8:
		if (one_in(2)) {
			/* Sealed areas stay mapped until the worker exits. */
			if (DO(mseal, "", SYS_mseal, area->at, area->pages * PAGE, 0) == 0)
				area->at = NULL;
		} else {
			forget_area(area);
		}
		break;
	case 9:
		key = DO(pkey_alloc, "--", SYS_pkey_alloc, 0, 0);
		if (key < 0)
			break;
		DO(pkey_mprotect, "---n", SYS_pkey_mprotect, at, length, PROT_READ | PROT_WRITE, key);
		DO(pkey_mprotect, "", SYS_pkey_mprotect, at, length, PROT_READ | PROT_WRITE, 0);
		DO(pkey_free, "n", SYS_pkey_free, key);
		break;
	case 10: {
		unsigned long nodes = 1;
		DO(mbind, "--npnn", SYS_mbind, at, length, below(4), &nodes, 8, 0);
		break;
	}
	case 11: {
		void *pages[2] = { at, at + PAGE };
		int status[2];
		DO(move_pages, "--p-p-", SYS_move_pages, 0, 2, pages, 0, status, 0);
		break;
	}
	default:
		map_area();
	}
}

static void look_at_pages(void)
{
	struct area *area = any_area();
	if (!area)
		return;
	struct scanned runs[4];
	struct scan_argument scan = { .size = sizeof scan, .start = (uint64_t)area->at,
				      .end = (uint64_t)(area->at + area->pages * PAGE), .vector = (uint64_t)runs,
				      .vector_length = 4, .any_of = 2 | 8 | 16, .flags = one_in(3) };
	scan.mask = scan.flags ? 2 : 0;
	long file = DO(openat, "", SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
	if (file >= 0) {
		DO(pagemap_scan, "d-p", SYS_ioctl, file, SCAN_PAGES, &scan);
		DO(close, "", SYS_close, file);
	}
	if (one_in(3)) {
		file = DO(openat, "", SYS_openat, AT_FDCWD, "/proc/self/clear_refs", O_WRONLY | O_CLOEXEC, 0);
		if (file >= 0) {
			DO(clear_refs, "", SYS_write, file, "4", 1);
			DO(close, "", SYS_close, file);
		}
	}
}

static void copy_between(void)
{
	struct area *area = any_area();
	long pid = raw(SYS_getpid, 0, 0, 0, 0, 0, 0);
	if (!area)
		return;
	struct iovec here = { me.buffer, PAGE }, there = { area->at, (size_t)(1 + below(PAGE)) };
	DO(process_vm_readv, "-pvpv-", SYS_process_vm_readv, pid, &here, 1, &there, 1, 0);
	DO(process_vm_writev, "-pvpv-", SYS_process_vm_writev, pid, &here, 1, &there, 1, 0);
}

static void open_watcher(void)
{
	if (me.uffd >= 0)
		DO(close, "", SYS_close, me.uffd);
	/* An access by the worker itself to a missing page raises a signal. In `answer_message`, a thread waits instead. */
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	me.uffd = (int)DO(userfaultfd, "", SYS_userfaultfd, O_NONBLOCK | O_CLOEXEC);
	if (me.uffd >= 0)
		DO(uffd_api, "--p", SYS_ioctl, me.uffd, UFFDIO_API, &api);
	else
		me.uffd = -1;
}

static void use_watcher(void)
{
	struct area *area = any_area();
	if (me.uffd < 0 || one_in(12))
		open_watcher();
	if (!area)
		return map_area();
	long length;
	char *at = part(area, &length);
	struct uffdio_range range = { (uint64_t)at, (uint64_t)length };
	struct uffdio_register watched = { .range = { (uint64_t)area->at, (uint64_t)area->pages * PAGE },
					   .mode = 1 + (uint64_t)below(3) };
	struct uffdio_writeprotect protect = { .range = range, .mode = (uint64_t)below(2) };
	struct uffdio_copy copy = { .dst = (uint64_t)at, .src = (uint64_t)me.buffer, .len = PAGE, .mode = one_in(3) ? 2 : 0 };
	struct uffdio_zeropage zero = { .range = { (uint64_t)at, PAGE } };
	struct uffdio_poison poison = { .range = { (uint64_t)at, PAGE } };
	switch (below(8)) {
	case 0:
	case 1:
		DO(uffd_register, "d-p", SYS_ioctl, me.uffd, UFFDIO_REGISTER, &watched);
		break;
	case 2:
		DO(uffd_writeprotect, "d-p", SYS_ioctl, me.uffd, UFFDIO_WRITEPROTECT, &protect);
		touch(at, 1);
		break;
	case 3:
		DO(madvise, "", SYS_madvise, at, PAGE, MADV_DONTNEED);
		DO(uffd_copy, "d-p", SYS_ioctl, me.uffd, UFFDIO_COPY, &copy);
		break;
	case 4:
		DO(madvise, "", SYS_madvise, at, PAGE, MADV_DONTNEED);
		DO(uffd_zeropage, "d-p", SYS_ioctl, me.uffd, UFFDIO_ZEROPAGE, &zero);
		touch(at, 1);
		break;
	case 5: {
		long from = DO(mmap, "", SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (from < 0)
			break;
		touch((char *)from, 1);
		struct uffdio_move move = { .dst = (uint64_t)at, .src = (uint64_t)from, .len = PAGE };
		DO(madvise, "", SYS_madvise, at, PAGE, MADV_DONTNEED);
		DO(uffd_move, "d-p", SYS_ioctl, me.uffd, UFFDIO_MOVE, &move);
		DO(munmap, "", SYS_munmap, from, PAGE);
		break;
	}
	case 6:
		DO(madvise, "", SYS_madvise, at, PAGE, MADV_DONTNEED);
		DO(uffd_poison, "d-p", SYS_ioctl, me.uffd, UFFDIO_POISON, &poison);
		touch(at, 0);
		break;
	default:
		DO(uffd_unregister, "d-p", SYS_ioctl, me.uffd, UFFDIO_UNREGISTER, &watched.range);
	}
}

/* Copies, fills, moves, poisons and protects pages of a new area. Unmaps them while they are registered, or afterwards.
 */
static void watch_new(void)
{
	enum { WATCHED = 6 };
	if (me.uffd < 0)
		open_watcher();
	long at = DO(mmap, "", SYS_mmap, 0, WATCHED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at < 0)
		return;
	struct uffdio_register watched = { .range = { (uint64_t)at, WATCHED * PAGE }, .mode = 3 };
	long page = at + below(WATCHED) * PAGE, other = at + below(WATCHED) * PAGE;
	struct uffdio_copy copy = { .dst = (uint64_t)page, .src = (uint64_t)me.buffer, .len = PAGE, .mode = one_in(3) ? 2 : 0 };
	struct uffdio_zeropage zero = { .range = { (uint64_t)other, PAGE } };
	struct uffdio_poison poison = { .range = { (uint64_t)other, PAGE } };
	struct uffdio_writeprotect protect = { .range = { (uint64_t)page, PAGE }, .mode = 1 };
	struct uffdio_move move = { .dst = (uint64_t)other, .src = (uint64_t)page, .len = PAGE };
	DO(uffd_register, "d-p", SYS_ioctl, me.uffd, UFFDIO_REGISTER, &watched);
	DO(uffd_copy, "d-p", SYS_ioctl, me.uffd, UFFDIO_COPY, &copy);
	DO(uffd_writeprotect, "d-p", SYS_ioctl, me.uffd, UFFDIO_WRITEPROTECT, &protect);
	touch((char *)page, 1);
	if (one_in(2)) {
		protect.mode = 0;
		DO(uffd_writeprotect, "d-p", SYS_ioctl, me.uffd, UFFDIO_WRITEPROTECT, &protect);
		touch((char *)page, 1);
	}
	switch (below(3)) {
	case 0:
		DO(uffd_zeropage, "d-p", SYS_ioctl, me.uffd, UFFDIO_ZEROPAGE, &zero);
		break;
	case 1:
		DO(uffd_poison, "d-p", SYS_ioctl, me.uffd, UFFDIO_POISON, &poison);
		break;
	default:
		DO(uffd_move, "d-p", SYS_ioctl, me.uffd, UFFDIO_MOVE, &move);
	}
	touch((char *)other, one_in(2));
	if (one_in(2))
		DO(uffd_unregister, "d-p", SYS_ioctl, me.uffd, UFFDIO_UNREGISTER, &watched.range);
	DO(munmap, "", SYS_munmap, at, WATCHED * PAGE);
}
