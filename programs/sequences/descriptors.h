/* Sequences on pipes, events, timers, epolls, files, seals and locks. */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/timerfd.h>

#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#endif
#ifndef F_OFD_SETLK
#define F_OFD_SETLK 37
#endif

static void make_descriptor(void)
{
	int two[2];
	uint64_t mask = 1ULL << (SIGUSR1 - 1) | 1ULL << (SIGRTMIN - 1);
	switch (below(5)) {
	case 0:
		hold(EVENT, DO(eventfd2, "n-", SYS_eventfd2, below(3), EFD_NONBLOCK | (one_in(2) ? EFD_SEMAPHORE : 0)));
		break;
	case 1:
		hold(TIMER, DO(timerfd_create, "n-", SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK));
		break;
	case 2:
		hold(SIGNAL, DO(signalfd4, "-pn-", SYS_signalfd4, -1, &mask, 8, O_NONBLOCK));
		break;
	case 3:
		if (DO(pipe2, "p-", SYS_pipe2, two, O_NONBLOCK) == 0) {
			hold(PIPE_IN, two[0]);
			hold(PIPE_OUT, two[1]);
		}
		break;
	default: {
		int other = any_descriptor();
		/* A duplicate descriptor is closed at once, and the file stays open. */
		long copy = DO(dup, "d", SYS_dup, other);
		if (copy >= 3)
			DO(close, "", SYS_close, copy);
		DO(fcntl, "d-", SYS_fcntl, other, one_in(2) ? F_GETFL : F_GETFD, 0);
	}
	}
}

static void move_bytes(void)
{
	int out = any(one_in(2) ? PIPE_OUT : PAIR), in = any(one_in(2) ? PIPE_IN : PAIR);
	struct iovec two[2] = { { me.buffer, (size_t)below(300) }, { me.buffer + PAGE, (size_t)below(PAGE) } };
	uint64_t count = (uint64_t)below(3);
	switch (below(9)) {
	case 0:
		DO(write, "dpn", SYS_write, out, me.buffer, below(2 * PAGE));
		break;
	case 1:
		DO(read, "dpn", SYS_read, in, me.buffer, below(2 * PAGE));
		break;
	case 2:
		DO(writev, "dpv", SYS_writev, out, two, 2);
		break;
	case 3:
		DO(readv, "dpv", SYS_readv, in, two, 2);
		break;
	case 4:
		DO(write, "dpn", SYS_write, any(EVENT), &count, 8);
		break;
	case 5:
		DO(read, "dpn", SYS_read, any((enum kind[]){ EVENT, TIMER, SIGNAL, RECEIVED }[below(4)]), me.buffer, 128);
		break;
	case 6:
		/* With SPLICE_F_NONBLOCK (2), vmsplice to a full pipe fails with EAGAIN. */
		DO(vmsplice, "dpvn", SYS_vmsplice, any(PIPE_OUT), two, 2, 2);
		DO(read, "dpn", SYS_read, any(PIPE_IN), me.buffer, 2 * PAGE);
		break;
	case 7: {
		long from = below(PAGE), to = below(PAGE);
		DO(write, "dpn", SYS_write, any(PIPE_OUT), me.buffer, below(PAGE));
		DO(splice, "d-d-nn", SYS_splice, any(PIPE_IN), 0, any(PIPE_OUT), 0, below(PAGE), 2);
		DO(tee, "ddnn", SYS_tee, any(PIPE_IN), any(PIPE_OUT), below(PAGE), 2);
		DO(splice, "dpd-nn", SYS_splice, any(MEMORY), &from, any(PIPE_OUT), 0, 1 + below(PAGE), 2);
		DO(tee, "ddnn", SYS_tee, any(PIPE_IN), any(PIPE_OUT), 1 + below(PAGE), 2);
		DO(splice, "d-dpnn", SYS_splice, any(PIPE_IN), 0, any(MEMORY), &to, 1 + below(PAGE), 2);
		break;
	}
	default: {
		struct itimerspec in_a_while = { { 0, one_in(4) ? 1000000 : 0 }, { 0, 1 + below(1000000) } }, was;
		int timer = any(TIMER);
		DO(timerfd_settime, "dnpp", SYS_timerfd_settime, timer, 0, &in_a_while, &was);
		DO(timerfd_gettime, "dp", SYS_timerfd_gettime, timer, &was);
	}
	}
}

/* Returns a file for an epoll to watch. Sometimes it is another epoll, or the epoll itself. */
static int awaited(void)
{
	static const enum kind kinds[] = { SOCKET, LISTENER, PAIR, EVENT, TIMER, SIGNAL, PIPE_IN, PIPE_OUT, PIDFD, EPOLL };
	return any(kinds[below(10)]);
}

static void use_epoll(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | (one_in(3) ? (uint32_t)EPOLLET : 0) |
					       (one_in(4) ? (uint32_t)EPOLLONESHOT : 0) };
	struct epoll_event found[4];
	struct pollfd polled[3] = { { any_descriptor(), POLLIN, 0 }, { any_descriptor(), POLLOUT, 0 }, { -1, 0, 0 } };
	struct timeval none = { 0, 0 };
	fd_set reading;
	int epoll = any(EPOLL), what = awaited();
	switch (below(5)) {
	case 0:
		hold(EPOLL, DO(epoll_create1, "n", SYS_epoll_create1, EPOLL_CLOEXEC));
		break;
	case 1:
		if (DO(epoll_add, "d-dp", SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, what, &event) == 0 || one_in(2)) {
			event.events ^= EPOLLOUT;
			DO(epoll_modify, "d-dp", SYS_epoll_ctl, epoll, EPOLL_CTL_MOD, what, &event);
		}
		if (one_in(2))
			DO(epoll_delete, "d-d", SYS_epoll_ctl, epoll, EPOLL_CTL_DEL, what, 0);
		break;
	case 2:
		DO(epoll_wait, "dpv-", SYS_epoll_wait, epoll, found, 4, 0);
		break;
	case 3:
		DO(poll, "pv-", SYS_poll, polled, 3, 0);
		break;
	default:
		FD_ZERO(&reading);
		for (int i = 0; i < 3; i++) {
			int one = any_descriptor();
			if (one >= 0 && one < FD_SETSIZE)
				FD_SET(one, &reading);
		}
		DO(select, "vpp--", SYS_select, 256, &reading, 0, 0, &none);
	}
}

/* Returns a path in the worker's folder, or sometimes in another worker's. */
static const char *path(void)
{
	static char names[4][64];
	static int turn;
	char *name = names[turn++ % 4];
	int lane = one_in(16) ? (int)below(LANES) : me.lane;
	snprintf(name, 64, "/tmp/sequences/%d/n%ld", lane, below(6));
	return name;
}

static void use_files(void)
{
	long folder;
	switch (below(9)) {
	case 0:
		hold(FILE_, DO(openat, "-pn", SYS_openat, AT_FDCWD, path(), O_RDWR | O_CREAT | O_NONBLOCK | (one_in(8) ? O_TRUNC : 0), 0600));
		break;
	case 1:
		DO(unlinkat, "-pn", SYS_unlinkat, AT_FDCWD, path(), one_in(2) ? AT_REMOVEDIR : 0);
		DO(mkdirat, "-pn", SYS_mkdirat, AT_FDCWD, path(), 0700);
		break;
	case 2:
		DO(renameat2, "-p-pn", SYS_renameat2, AT_FDCWD, path(), AT_FDCWD, path(), below(3));
		break;
	case 3: {
		const char *made = path(), *from = path();
		DO(unlinkat, "-pn", SYS_unlinkat, AT_FDCWD, made, 0);
		if (one_in(2)) {
			DO(symlinkat, "p-p", SYS_symlinkat, from, AT_FDCWD, made);
			if (one_in(2))
				break;
			DO(unlinkat, "-pn", SYS_unlinkat, AT_FDCWD, made, 0);
		}
		hold(FILE_, DO(openat, "-p-", SYS_openat, AT_FDCWD, from, O_RDWR | O_CREAT | O_NONBLOCK, 0600));
		DO(linkat, "-p-pn", SYS_linkat, AT_FDCWD, from, AT_FDCWD, made, 0);
		break;
	}
	case 4:
		DO(statx, "-pnnp", SYS_statx, AT_FDCWD, path(), 0, 0x7ff, me.buffer);
		folder = DO(openat, "-p-", SYS_openat, AT_FDCWD, "/tmp/sequences", O_RDONLY | O_DIRECTORY, 0);
		if (folder >= 0) {
			DO(getdents64, "-pn", SYS_getdents64, folder, me.buffer, PAGE);
			DO(close, "", SYS_close, folder);
		}
		break;
	case 5:
		DO(pwrite, "dpnn", SYS_pwrite64, any(one_in(2) ? FILE_ : MEMORY), me.buffer, below(PAGE), below(8 * PAGE));
		break;
	case 6:
		DO(pread, "dpnn", SYS_pread64, any(one_in(2) ? FILE_ : MEMORY), me.buffer, below(PAGE), below(8 * PAGE));
		break;
	case 7:
		DO(sendfile, "dd-n", SYS_sendfile, any(one_in(2) ? PIPE_OUT : PAIR), any(MEMORY), 0, below(2 * PAGE));
		break;
	default: {
		long from = 0, to = 3 * PAGE;
		DO(copy_file_range, "dpdpnn", SYS_copy_file_range, any(FILE_), &from, any(FILE_), &to, below(2 * PAGE), 0);
	}
	}
}

static void use_memory_files(void)
{
	int memory = any(MEMORY);
	switch (below(4)) {
	case 0: {
		long made = DO(memfd_create, "pn", SYS_memfd_create, "sequence", MFD_ALLOW_SEALING | MFD_CLOEXEC);
		hold(MEMORY, made);
		DO(fallocate, "dn--", SYS_fallocate, made, 0, 0, PAGE * (1 + below(8)));
		break;
	}
	case 1:
		DO(ftruncate, "dn", SYS_ftruncate, memory, PAGE * below(AREA_PAGES));
		break;
	case 2:
		DO(fallocate, "dn--", SYS_fallocate, memory, below(4), PAGE * below(4), PAGE * (1 + below(8)));
		break;
	default:
		/* F_SEAL_SEAL (1) is added rarely, because no seal can be added after it. */
		DO(add_seals, "d--", SYS_fcntl, memory, F_ADD_SEALS, one_in(8) ? 1 : 2 << below(4));
		DO(get_seals, "d--", SYS_fcntl, memory, F_GET_SEALS, 0);
	}
}

static void use_locks(void)
{
	struct flock lock = { .l_type = (short)below(3), .l_whence = SEEK_SET, .l_start = below(64), .l_len = below(32) };
	int file = any(FILE_);
	switch (below(4)) {
	case 0:
		DO(setlk, "d-p", SYS_fcntl, file, F_SETLK, &lock);
		break;
	case 1:
		lock.l_type = F_WRLCK;
		DO(getlk, "d-p", SYS_fcntl, file, F_GETLK, &lock);
		break;
	case 2:
		DO(ofd_setlk, "d-p", SYS_fcntl, file, F_OFD_SETLK, &lock);
		break;
	default:
		DO(flock, "d-", SYS_flock, file, (one_in(2) ? LOCK_EX : one_in(2) ? LOCK_SH : LOCK_UN) | LOCK_NB);
	}
}
