/* What experiments on swap share. */
#ifndef SWAP_H
#define SWAP_H

#include "experiment.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

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

#endif
