/* Does an eventfd count, fail and wait as on Linux?
 */
#include "check.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int ready(int file)
{
	struct pollfd wish = { file, POLLIN | POLLOUT, 0 };
	return poll(&wish, 1, 0) < 0 ? -1 : wish.revents;
}

int main(void)
{
	uint64_t value = 0;
	int counter = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
	NEED(counter >= 0);
	CHECK_EQ(fcntl(counter, F_GETFD), FD_CLOEXEC);
	CHECK_EQ(fcntl(counter, F_GETFL), O_RDWR | O_NONBLOCK);
	CHECK_FAILS(eventfd(0, 4), EINVAL);
	/* An eventfd has no file position, but lseek succeeds. */
	CHECK_EQ(lseek(counter, 5, SEEK_SET), 0);
	CHECK_FAILS(lseek(counter, 0, 99), EINVAL);
	CHECK_FAILS(pread(counter, &value, 8, 0), ESPIPE);
	int waiting = epoll_create1(0);
	CHECK_EQ(lseek(waiting, 5, SEEK_SET), 0);
	close(waiting);
	CHECK_EQ(ready(counter), POLLIN | POLLOUT);
	CHECK_FAILS(read(counter, &value, 7), EINVAL);
	CHECK_FAILS(write(counter, &value, 7), EINVAL);
	CHECK_EQ(read(counter, &value, 8), 8);
	CHECK_EQ(value, 3);
	CHECK_FAILS(read(counter, &value, 8), EAGAIN);
	CHECK_EQ(ready(counter), POLLOUT);
	value = 5;
	CHECK_EQ(write(counter, &value, 8), 8);
	CHECK_EQ(write(counter, &value, 8), 8);
	CHECK_EQ(read(counter, &value, 8), 8);
	CHECK_EQ(value, 10);
	value = UINT64_MAX;
	CHECK_FAILS(write(counter, &value, 8), EINVAL);
	value = UINT64_MAX - 1;
	CHECK_EQ(write(counter, &value, 8), 8);
	CHECK_EQ(ready(counter), POLLIN);
	value = 1;
	CHECK_FAILS(write(counter, &value, 8), EAGAIN);
	value = 0;
	CHECK_EQ(write(counter, &value, 8), 8);
	CHECK_EQ(read(counter, &value, 8), 8);
	CHECK_EQ(value, UINT64_MAX - 1);
	close(counter);

	int semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
	CHECK_EQ(read(semaphore, &value, 8), 8);
	CHECK_EQ(value, 1);
	CHECK_EQ(read(semaphore, &value, 8), 8);
	CHECK_EQ(value, 1);
	CHECK_FAILS(read(semaphore, &value, 8), EAGAIN);
	close(semaphore);

	/* A reader waits until a writer has written, and a writer waits until a reader has read. */
	int turn = eventfd(0, 0), full = eventfd(0, 0);
	value = UINT64_MAX - 1;
	CHECK_EQ(write(full, &value, 8), 8);
	pid_t child = fork_checked();
	if (child == 0) {
		usleep(10000);
		value = 7;
		CHECK_EQ(write(turn, &value, 8), 8);
		usleep(10000);
		CHECK_EQ(read(full, &value, 8), 8);
		CHECK_EQ(value, UINT64_MAX - 1);
		end_child();
	}
	CHECK_EQ(read(turn, &value, 8), 8);
	CHECK_EQ(value, 7);
	value = 2;
	CHECK_EQ(write(full, &value, 8), 8);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(read(full, &value, 8), 8);
	CHECK_EQ(value, 2);

	char link[64] = "", name[64];
	snprintf(name, sizeof name, "/proc/self/fd/%d", turn);
	CHECK(readlink(name, link, sizeof link - 1) > 0);
	CHECK(strcmp(link, "anon_inode:[eventfd]") == 0);
	return checked("eventfd");
}
