/* How many paths through epolls may lead to one file, and does checking them terminate?
 *
 * If the epolls of each layer watch the epolls of the next, the number of paths is exponential in the number of
 * layers. `epoll_ctl` must check for loops, for the depth and for the number of paths without following every path
 * (fs/eventpoll.c of Linux, ep_loop_check and reverse_path_check).
 */
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { LAYERS = 5, WIDTH = 30 };

static int watch(int outer, int inner)
{
	struct epoll_event event = {.events = EPOLLIN};
	return epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
}

static int new_epoll(void)
{
	int epoll = epoll_create1(0);
	CHECK(epoll >= 0);
	return epoll;
}

/* Every epoll of a layer watches every epoll of the layer below. */
static void layers(void)
{
	int epolls[LAYERS][WIDTH];
	for (int layer = 0; layer < LAYERS; layer++)
		for (int place = 0; place < WIDTH; place++) {
			epolls[layer][place] = new_epoll();
			for (int below = 0; layer > 0 && below < WIDTH; below++)
				CHECK_EQ(watch(epolls[layer][place], epolls[layer - 1][below]), 0);
		}
	/* One more layer exceeds the maximum depth. A loop is detected whatever its length. */
	int over = new_epoll();
	CHECK_FAILS(watch(over, epolls[LAYERS - 1][0]), ELOOP);
	CHECK_FAILS(watch(epolls[0][0], epolls[LAYERS - 1][WIDTH - 1]), ELOOP);
	CHECK_FAILS(watch(epolls[0][0], epolls[0][0]), EINVAL);
	/* If epolls[0][0] watched this file, more than 10 paths with four links would lead to the file. */
	int file = eventfd(0, 0);
	CHECK(file >= 0);
	CHECK_FAILS(watch(epolls[0][0], file), EINVAL);
	/* After the error, the epoll does not watch the file. */
	CHECK_FAILS(epoll_ctl(epolls[0][0], EPOLL_CTL_DEL, file, NULL), ENOENT);
	CHECK_FAILS(watch(epolls[0][0], file), EINVAL);
	/* Only one path leads to a file that an epoll of the top layer watches. */
	CHECK_EQ(watch(epolls[LAYERS - 1][0], file), 0);
	close(file);
	close(over);
	for (int layer = 0; layer < LAYERS; layer++)
		for (int place = 0; place < WIDTH; place++)
			close(epolls[layer][place]);
}

/* Checks that at most `most` epolls can watch the first epoll of a chain with `links` links to a file. */
static void fan(int links, int most)
{
	int file = eventfd(0, 0);
	int bottom = new_epoll(), top = bottom;
	CHECK_EQ(file >= 0 && watch(bottom, file), 0);
	int chain[LAYERS], length = 0;
	for (; length < links - 1; length++) {
		chain[length] = new_epoll();
		CHECK_EQ(watch(chain[length], top), 0);
		top = chain[length];
	}
	int outer[501];
	for (int i = 0; i < most; i++) {
		outer[i] = new_epoll();
		CHECK_EQ(watch(outer[i], top), 0);
	}
	outer[most] = new_epoll();
	CHECK_FAILS(watch(outer[most], top), EINVAL);
	/* After a path is removed, another one can be added. */
	CHECK_EQ(epoll_ctl(outer[0], EPOLL_CTL_DEL, top, NULL), 0);
	CHECK_EQ(watch(outer[most], top), 0);
	CHECK_FAILS(watch(outer[most], top), EEXIST);
	/* The number of paths that do not end in a file is not limited. But if there are too many, no file
	 * can be added at their end. */
	CHECK_EQ(epoll_ctl(bottom, EPOLL_CTL_DEL, file, NULL), 0);
	CHECK_EQ(watch(outer[0], top), 0);
	CHECK_FAILS(watch(bottom, file), EINVAL);
	/* Events propagate through every link. */
	CHECK_EQ(epoll_ctl(outer[0], EPOLL_CTL_DEL, top, NULL), 0);
	CHECK_EQ(watch(bottom, file), 0);
	CHECK_EQ(eventfd_write(file, 1), 0);
	struct epoll_event event;
	for (int i = 1; i <= most; i++)
		CHECK_EQ(epoll_wait(outer[i], &event, 1, 0), 1);
	for (int i = 0; i <= most; i++)
		close(outer[i]);
	while (length > 0)
		close(chain[--length]);
	close(bottom);
	close(file);
}

int main(void)
{
	layers();
	fan(1, 500);
	fan(2, 100);
	fan(3, 50);
	fan(4, 10);
	return checked("epoll_paths");
}
