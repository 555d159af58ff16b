/* Sequences on System V segments and semaphores, io_urings, mounts, swap and cgroups. */
#include <linux/io_uring.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/sem.h>
#include <sys/shm.h>

static void use_segments(void)
{
	struct shmid_ds about;
	if (me.shm < 0)
		me.shm = (int)DO(shmget, "-nn", SYS_shmget, IPC_PRIVATE, 1 + below(8 * PAGE), IPC_CREAT | 0600);
	long at = DO(shmat, "n-n", SYS_shmat, me.shm, 0, one_in(4) ? SHM_RDONLY : 0);
	DO(shmctl, "nnp", SYS_shmctl, me.shm, IPC_STAT, &about);
	if (at > 0) {
		touch((char *)at, one_in(2));
		/* Sometimes the segment stays attached until the worker exits. */
		if (!one_in(16))
			DO(shmdt, "", SYS_shmdt, at);
	}
	if (one_in(3) && me.shm >= 0) {
		DO(shmctl, "", SYS_shmctl, me.shm, IPC_RMID, 0);
		me.shm = -1;
	}
}

static void use_semaphores(void)
{
	if (me.sem < 0)
		me.sem = (int)DO(semget, "-nn", SYS_semget, IPC_PRIVATE, 4, IPC_CREAT | 0600);
	struct sembuf work[2] = { { (unsigned short)below(4), (short)(below(3) - 1), (short)(IPC_NOWAIT | (one_in(2) ? SEM_UNDO : 0)) },
				  { (unsigned short)below(4), 1, IPC_NOWAIT } };
	DO(semop, "npn", SYS_semop, me.sem, work, 1 + below(2));
	DO(semctl, "nnn-", SYS_semctl, me.sem, below(4), one_in(2) ? GETVAL : SETVAL, below(8));
	if (one_in(3) && me.sem >= 0) {
		DO(semctl, "", SYS_semctl, me.sem, 0, IPC_RMID, 0);
		me.sem = -1;
	}
}

static void use_ring(void)
{
	enum { ENTRIES = 4 };
	struct io_uring_params made;
	memset(&made, 0, sizeof made);
	long ring = DO(io_uring_setup, "np", SYS_io_uring_setup, ENTRIES, &made);
	if (ring < 0)
		return;
	long bytes = made.sq_off.array + made.sq_entries * 4, other = made.cq_off.cqes + made.cq_entries * sizeof(struct io_uring_cqe);
	bytes = bytes > other ? bytes : other;
	long rings = DO(mmap, "", SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
	long entries = DO(mmap, "", SYS_mmap, 0, made.sq_entries * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
			  IORING_OFF_SQES);
	struct iovec fixed = { me.buffer, BUFFER };
	int registered = 0;
	if (one_in(2))
		registered = DO(io_uring_register, "d-pn", SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &fixed, 1) == 0;
	if (rings > 0 && entries > 0 && made.sq_entries <= ENTRIES) {
		unsigned *tail = (unsigned *)(rings + made.sq_off.tail), *array = (unsigned *)(rings + made.sq_off.array);
		struct io_uring_sqe *all = (struct io_uring_sqe *)entries;
		unsigned count = 1 + (unsigned)below(made.sq_entries);
		for (unsigned i = 0; i < count; i++) {
			unsigned slot = (*tail + i) & (made.sq_entries - 1);
			memset(&all[slot], 0, sizeof all[slot]);
			/* Uses only operations that never block, such as reads and writes of files. */
			all[slot].opcode = (unsigned char)(one_in(2) ? IORING_OP_NOP : one_in(2) ? IORING_OP_WRITE : IORING_OP_READ);
			all[slot].fd = any(MEMORY);
			all[slot].addr = one_in(MUTATED) ? 8 : (uint64_t)me.buffer;
			all[slot].len = (unsigned)below(PAGE);
			array[slot] = slot;
		}
		__atomic_store_n(tail, *tail + count, __ATOMIC_RELEASE);
		DO(io_uring_enter, "d", SYS_io_uring_enter, ring, count, 0, 0, 0, 0);
	}
	if (registered && one_in(2))
		DO(io_uring_register, "d-", SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, 0, 0);
	/* Closes the descriptor before the mappings are unmapped. The mappings keep the ring alive. */
	DO(close, "", SYS_close, ring);
	if (rings > 0)
		DO(munmap, "", SYS_munmap, rings, bytes);
	if (entries > 0)
		DO(munmap, "", SYS_munmap, entries, made.sq_entries * sizeof(struct io_uring_sqe));
}

static void use_mounts(void)
{
	char place[64], file[80], copy[64];
	if (!me.has_mounts)
		return;
	snprintf(place, sizeof place, "/tmp/sequences/%d/m", me.lane);
	snprintf(copy, sizeof copy, "/tmp/sequences/%d/c", me.lane);
	snprintf(file, sizeof file, "%s/inside", place);
	long opened = -1;
	if (DO(mount, "ppp-p", SYS_mount, "tmpfs", place, "tmpfs", 0, "size=64k") == 0) {
		opened = DO(openat, "-p-", SYS_openat, AT_FDCWD, file, O_RDWR | O_CREAT, 0600);
		if (opened >= 0)
			DO(pwrite, "dpnn", SYS_pwrite64, opened, me.buffer, PAGE, 0);
		if (one_in(3))
			DO(mount, "pp-n-", SYS_mount, place, place, 0, MS_REMOUNT | (one_in(2) ? MS_RDONLY : 0), "size=128k");
	}
	if (one_in(3) && DO(mount, "", SYS_mount, place, copy, 0, MS_BIND, 0) == 0)
		DO(umount2, "", SYS_umount2, copy, one_in(2) ? MNT_DETACH : 0);
	/* While a file is open, the mount is busy. It is then detached, and freed when its last user closes it. */
	if (one_in(2) && opened >= 0) {
		DO(close, "", SYS_close, opened);
		opened = -1;
	}
	while (DO(umount2, "", SYS_umount2, place, 0) == 0 || DO(umount2, "", SYS_umount2, place, MNT_DETACH) == 0)
		;
	if (opened >= 0)
		DO(close, "", SYS_close, opened);
}

static const char device[] = "/dev/zram0";

static void use_swap(void)
{
	struct area *area = any_area();
	if (!me.has_swap || me.lane != 0)
		return;
	DO(swapoff, "p", SYS_swapoff, device);
	DO(swapon, "p-", SYS_swapon, device, 0);
	if (area && DO(madvise, "", SYS_madvise, area->at, area->pages * PAGE, MADV_PAGEOUT) == 0)
		touch(area->at, 1);
}

/* The path at which cgroups are mounted. */
static const char *groups = "/sys/fs/cgroup";

/* Writes a text to a file of a group. Returns what the write returned. */
static long tell_group(enum name name, const char *group, const char *which, const char *text)
{
	char at[96];
	snprintf(at, sizeof at, "%s%s/%s", groups, group, which);
	long file = raw(SYS_openat, AT_FDCWD, (long)at, O_WRONLY | O_CLOEXEC, 0, 0, 0);
	long result = file < 0 ? file : raw(SYS_write, file, (long)text, (long)strlen(text), 0, 0, 0);
	if (file >= 0)
		raw(SYS_close, file, 0, 0, 0, 0, 0);
	return note(name, result);
}

static void use_groups(void)
{
	static const char *limits[] = { "max", "40000000", "12582912" };
	char group[32], at[64];
	if (!me.has_groups)
		return;
	snprintf(group, sizeof group, "/g%d-%ld", me.lane, below(3));
	snprintf(at, sizeof at, "%s%s", groups, group);
	long made = DO(cgroup_make, "-p-", SYS_mkdirat, AT_FDCWD, at, 0755);
	if (made == -EEXIST && DO(cgroup_remove, "--n", SYS_unlinkat, AT_FDCWD, at, AT_REMOVEDIR) == 0)
		/* The cgroup was left by a worker that exited in it. */
		made = DO(cgroup_make, "-p-", SYS_mkdirat, AT_FDCWD, at, 0755);
	if (made < 0)
		return;
	tell_group(CALL_cgroup_limit, group, "memory.max", limits[below(3)]);
	tell_group(CALL_cgroup_move, group, "cgroup.procs", "0");
	map_area();
	change_area();
	tell_group(CALL_cgroup_limit, group, "memory.max", "max");
	tell_group(CALL_cgroup_move, "", "cgroup.procs", "0");
	DO(cgroup_remove, "--n", SYS_unlinkat, AT_FDCWD, at, AT_REMOVEDIR);
}
