/* The state of a worker of sequences.c between calls, and the functions and macros by which the worker makes
 * calls.
 *
 * System calls go to the kernel without the C library, because threads without thread-local storage make some too. A call
 * returns what the kernel returned: -errno on failure.
 */
#ifndef STATE_H
#define STATE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The calls that are counted, each separately. */
#define CALLS(X)                                                                                                     \
	X(socket) X(socketpair) X(bind) X(listen) X(connect) X(accept4) X(sendmsg) X(recvmsg) X(send_rights)         \
	X(receive_rights) X(shutdown) X(getsockname) X(getpeername) X(setsockopt) X(getsockopt)                      \
	X(epoll_create1) X(epoll_add) X(epoll_modify) X(epoll_delete) X(epoll_wait) X(poll) X(select)                \
	X(eventfd2) X(timerfd_create) X(timerfd_settime) X(timerfd_gettime) X(signalfd4) X(pipe2) X(read) X(write)   \
	X(readv) X(writev) X(vmsplice) X(splice) X(tee) X(sendfile) X(copy_file_range) X(close) X(dup) X(fcntl)      \
	X(memfd_create) X(add_seals) X(get_seals) X(ftruncate) X(fallocate) X(openat) X(pread) X(pwrite)         \
	X(getdents64) X(mkdirat) X(unlinkat) X(renameat2) X(symlinkat) X(linkat) X(statx)                            \
	X(mmap) X(munmap) X(mprotect) X(mremap) X(madvise) X(mlock) X(munlock) X(msync) X(mincore) X(mseal)          \
	X(pkey_alloc) X(pkey_mprotect) X(pkey_free) X(mbind) X(move_pages)                                           \
	X(userfaultfd) X(uffd_api) X(uffd_register) X(uffd_unregister) X(uffd_writeprotect) X(uffd_copy)             \
	X(uffd_zeropage) X(uffd_move) X(uffd_poison) X(uffd_message) X(pagemap_scan) X(clear_refs)                   \
	X(process_vm_readv) X(process_vm_writev) X(process_madvise)                                                  \
	X(pidfd_open) X(pidfd_send_signal) X(pidfd_getfd) X(waitid)                                                  \
	X(fork) X(vfork) X(clone_thread) X(clone3) X(execve) X(kill) X(wait4) X(futex_wait) X(futex_wake)            \
	X(rt_sigaction) X(rt_sigprocmask) X(rt_sigqueueinfo) X(rt_sigtimedwait) X(setitimer)                         \
	X(ptrace_seize) X(ptrace_interrupt) X(ptrace_attach) X(ptrace_continue) X(ptrace_peek) X(ptrace_poke)        \
	X(ptrace_getregs) X(ptrace_setregs) X(ptrace_step) X(ptrace_syscall) X(ptrace_detach)                        \
	X(shmget) X(shmat) X(shmdt) X(shmctl) X(semget) X(semop) X(semctl)                                           \
	X(setlk) X(getlk) X(ofd_setlk) X(flock)                                                                      \
	X(io_uring_setup) X(io_uring_enter) X(io_uring_register)                                                     \
	X(mount) X(umount2) X(swapon) X(swapoff) X(cgroup_make) X(cgroup_move) X(cgroup_limit) X(cgroup_remove)

enum name {
#define X(name) CALL_##name,
	CALLS(X)
#undef X
	CALL_COUNT
};

/* The kinds of descriptors. */
enum kind {
	SOCKET,
	LISTENER,
	PAIR,
	EPOLL,
	EVENT,
	TIMER,
	SIGNAL,
	PIPE_IN,
	PIPE_OUT,
	MEMORY,
	FILE_,
	PIDFD,
	RECEIVED,
	KINDS
};

enum { PAGE = 4096, HELD = 6, AREAS = 8, AREA_PAGES = 16, LANES = 4, BUFFER = 2 * PAGE, CHILD_CODE = 42 };

/* The memory that all workers share. The counters are exact, because workers increment them atomically. */
struct shared {
	uint64_t tried[CALL_COUNT], succeeded[CALL_COUNT], lacking[CALL_COUNT];
	uint64_t made;
	/* The number of workers that a signal killed, by the number of the signal. */
	uint64_t killed[65];
	/* The words on which a worker's children and threads wait. */
	uint32_t word[LANES];
};

static struct shared *shared;

struct area {
	char *at;
	long pages;
	/* Whether the pages are shared pages of a file, and not private ones. */
	int is_shared;
};

static struct {
	uint64_t random;
	long budget;
	int lane;
	/* The live descriptors of each kind. A free entry contains -1. */
	int held[KINDS][HELD];
	struct area areas[AREAS];
	/* The number of sockets that are bound and listen. */
	int names;
	int shm, sem, key;
	int uffd;
	int scratch;
	int has_groups, has_mounts, has_swap;
	/* BUFFER bytes with a hole after them, so that a call that writes beyond them fails. */
	char *buffer;
} me;

static sigjmp_buf recovery;
static volatile int touching;

static long raw(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

/* xorshift64* */
static uint64_t next(void)
{
	me.random ^= me.random >> 12;
	me.random ^= me.random << 25;
	me.random ^= me.random >> 27;
	return me.random * 2685821657736338717ULL >> 16;
}

static long below(long bound)
{
	return (long)(next() % (uint64_t)bound);
}

static int one_in(long count)
{
	return below(count) == 0;
}

static long note(enum name name, long result)
{
	__atomic_add_fetch(&shared->tried[name], 1, __ATOMIC_RELAXED);
	if (result >= 0)
		__atomic_add_fetch(&shared->succeeded[name], 1, __ATOMIC_RELAXED);
	if (result == -ENOSYS)
		__atomic_add_fetch(&shared->lacking[name], 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&shared->made, 1, __ATOMIC_RELAXED);
	me.budget--;
	return result;
}

/* Returns an argument, which is sometimes mutated. `what` is its kind: n a number, v the length of a list, p a pointer,
 * d a descriptor, - never mutated. A list never becomes longer than its buffer, because the kernel would write beyond
 * the buffer. */
static long mutated(char what, long argument)
{
	static const long numbers[] = { 0, -1, 1, 7, PAGE - 1, PAGE, 1L << 31, 1L << 40, INT64_MAX, INT64_MIN };
	static const long lengths[] = { 0, -1, 1L << 31, INT64_MIN };
	static const long pointers[] = { 0, 8, -PAGE, 0x7ffffffff000, INT64_MIN, 0x1000 };
	switch (what) {
	case 'n':
		return one_in(2) ? numbers[below(10)] : argument ^ 1L << below(32);
	case 'v':
		return lengths[below(4)];
	case 'p':
		return pointers[below(6)];
	case 'd': {
		int other = me.held[below(KINDS)][below(HELD)];
		return one_in(4) ? (long)numbers[below(10)] : other;
	}
	default:
		return argument;
	}
}

/* One of this number of calls gets an invalid argument. */
enum { MUTATED = 24 };

/* Records that the kernel does not have a call, which is the only possible cause of a failure. */
static void lacks(enum name name)
{
	__atomic_add_fetch(&shared->lacking[name], 1, __ATOMIC_RELAXED);
}

static long call(enum name name, const char *what, long number, long a, long b, long c, long d, long e, long f)
{
	long arguments[6] = { a, b, c, d, e, f };
	long length = (long)strlen(what);
	if (length && one_in(MUTATED)) {
		long which = below(length);
		arguments[which] = mutated(what[which], arguments[which]);
	}
	return note(name, raw(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
			      arguments[5]));
}

#define PICK(_0, _1, _2, _3, _4, _5, _6, NAME, ...) NAME
#define A0(name, what, nr) call(CALL_##name, what, nr, 0, 0, 0, 0, 0, 0)
#define A1(name, what, nr, a) call(CALL_##name, what, nr, (long)(a), 0, 0, 0, 0, 0)
#define A2(name, what, nr, a, b) call(CALL_##name, what, nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define A3(name, what, nr, a, b, c) call(CALL_##name, what, nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define A4(name, what, nr, a, b, c, d)                                                                               \
	call(CALL_##name, what, nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define A5(name, what, nr, a, b, c, d, e)                                                                            \
	call(CALL_##name, what, nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)
#define A6(name, what, nr, a, b, c, d, e, f)                                                                         \
	call(CALL_##name, what, nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
/* DO(name, what may be mutated, number, arguments...) */
#define DO(name, what, ...) PICK(__VA_ARGS__, A6, A5, A4, A3, A2, A1, A0)(name, what, __VA_ARGS__)

/* Adds a descriptor to its table, and closes another one if the table is full. */
static void hold(enum kind kind, long descriptor)
{
	if (descriptor < 3)
		return;
	int *table = me.held[kind];
	int place = (int)below(HELD);
	for (int i = 0; i < HELD; i++)
		if (table[i] < 0)
			place = i;
	if (table[place] >= 0)
		DO(close, "", SYS_close, table[place]);
	table[place] = (int)descriptor;
}

/* Closes a descriptor of the table and removes it. */
static void drop(enum kind kind, int place)
{
	if (me.held[kind][place] < 0)
		return;
	DO(close, "", SYS_close, me.held[kind][place]);
	me.held[kind][place] = -1;
}

/* Returns a live descriptor of the kind, or -1 if there is none. */
static int any(enum kind kind)
{
	int start = (int)below(HELD);
	for (int i = 0; i < HELD; i++)
		if (me.held[kind][(start + i) % HELD] >= 0)
			return me.held[kind][(start + i) % HELD];
	return -1;
}

/* Returns a live descriptor of any kind, or -1 if there is none. */
static int any_descriptor(void)
{
	int start = (int)below(KINDS);
	for (int i = 0; i < KINDS; i++) {
		int found = any((enum kind)((start + i) % KINDS));
		if (found >= 0)
			return found;
	}
	return -1;
}

/* Returns a live area, or NULL if there is none. */
static struct area *any_area(void)
{
	int start = (int)below(AREAS);
	for (int i = 0; i < AREAS; i++)
		if (me.areas[(start + i) % AREAS].at)
			return &me.areas[(start + i) % AREAS];
	return NULL;
}

/* Loads or stores one byte. Returns whether it succeeded. */
static int touch(char *at, int store)
{
	if (sigsetjmp(recovery, 1)) {
		touching = 0;
		return 0;
	}
	touching = 1;
	if (store)
		*(volatile char *)at = 1;
	else
		(void)*(volatile char *)at;
	touching = 0;
	return 1;
}

#endif
