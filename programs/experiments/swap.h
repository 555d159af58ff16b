/* Swap for an experiment: where nobody has turned it on, as on a Linux that has just booted, the program does, if there
 * is compressed memory to be had. */
#ifndef SWAP_H
#define SWAP_H

#include "experiment.h"

#include <sys/swap.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

#define SWAP_BYTES "268435456"

struct faults {
	uint64_t minor, major;
};

static inline struct faults both_now(void)
{
	struct rusage usage;
	MUST(getrusage(RUSAGE_SELF, &usage) == 0);
	return (struct faults){ usage.ru_minflt, usage.ru_majflt };
}

static inline int has_swap(void)
{
	static char text[4096];
	long length = read_file("/proc/swaps", text, sizeof text);
	char *end = length > 0 ? strchr(text, '\n') : NULL;
	return end && end[1];
}

/* Linux: makes a swap area of compressed memory (the header is union swap_header of linux/swap.h) and turns it on. */
static inline int make_swap(void)
{
	static const char bytes[] = SWAP_BYTES;
	static uint32_t header[PAGE / 4];
	int file = open("/sys/block/zram0/comp_algorithm", O_WRONLY);
	if (file >= 0) {
		/* What Memwright compresses with, if the kernel has it. */
		if (write(file, "lz4", 3) != 3)
			printf("note\tnot compressed with lz4\n");
		close(file);
	}
	file = open("/sys/block/zram0/disksize", O_WRONLY);
	if (file < 0 || write(file, bytes, sizeof bytes - 1) < 0)
		return 0;
	close(file);
	header[256] = 1;
	header[257] = strtoul(bytes, NULL, 10) / PAGE - 1;
	memcpy((char *)header + PAGE - 10, "SWAPSPACE2", 10);
	file = open("/dev/zram0", O_WRONLY);
	if (file < 0 || write(file, header, PAGE) != (long)PAGE)
		return 0;
	close(file);
	return swapon("/dev/zram0", 0) == 0;
}

#endif
