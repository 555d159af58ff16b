/* What the experiments on the cost of a write after a change of the memory share: fresh private memory is written, written
 * again, changed, and written a third time.
 */
#ifndef WRITE_AFTER_H
#define WRITE_AFTER_H

#include "experiment.h"

/* The change between the second write and the third, in one or two steps. */
struct change {
	/* The name of the change in "write after ...". */
	const char *name;
	/* The steps, in order; the second may be NULL. */
	const char *steps[2];
	void (*step[2])(char *memory, size_t size);
	/* Called before the first write and at the end. May be NULL. */
	void (*begin)(char *memory, size_t size);
	void (*end)(void);
};

static inline void every_byte(char *memory, size_t size)
{
	memset(memory, 7, size);
}

static inline void write_after_case(const char *name, size_t size, unsigned long rounds, const struct change *change,
				    void (*touch)(char *, size_t))
{
	struct series writes[3] = { 0 }, steps[2] = { 0 };
	uint64_t faults[3] = { 0 };
	char names[3][64] = { "first write", "second write" }, measure[256];
	snprintf(names[2], sizeof names[2], "write after %s", change->name);
	for (unsigned long round = 0; round < rounds; round++) {
		char *memory = fresh_apart(size);
		if (change->begin)
			change->begin(memory, size);
		for (int write = 0; write < 3; write++) {
			for (int step = 0; write == 2 && step < 2; step++) {
				if (!change->step[step])
					continue;
				uint64_t start = clock_now();
				change->step[step](memory, size);
				add_value(&steps[step], clock_now() - start);
			}
			uint64_t before = faults_now();
			MARK_BEGIN(1);
			uint64_t start = clock_now();
			touch(memory, size);
			add_value(&writes[write], clock_now() - start);
			MARK_END(1);
			faults[write] += faults_now() - before;
		}
		MUST(munmap(memory, size) == 0);
		if (change->end)
			change->end();
	}
	for (int write = 0; write < 3; write++) {
		record_series(name, names[write], "instructions", &writes[write]);
		snprintf(measure, sizeof measure, "%s: faults", names[write]);
		record_value(name, measure, "faults per round", (double)faults[write] / rounds);
	}
	for (int step = 0; step < 2; step++)
		if (change->step[step])
			record_series(name, change->steps[step], "instructions", &steps[step]);
	record_ratio(name, "first write / second write", &writes[0], &writes[1]);
	snprintf(measure, sizeof measure, "%s / second write", names[2]);
	record_ratio(name, measure, &writes[2], &writes[1]);
}

/* Measures the sizes on the command line, or the usual ones, once with one byte written per page and once with all bytes. */
static inline void write_after(int count, char **arguments, const char *suffix, const struct change *change)
{
	static const unsigned long usual[] = { 4, 16, 64, 512 };
	unsigned long rounds = argument(count, arguments, 1, 1000);
	int sizes = count > 2 ? count - 2 : 4;
	MUST(rounds > 0);
	for (int i = 0; i < sizes; i++) {
		unsigned long kib = count > 2 ? argument(count, arguments, 2 + i, 0) : usual[i];
		char name[96];
		MUST(kib > 0 && kib % 4 == 0);
		snprintf(name, sizeof name, "%lu KiB, a byte of each page%s", kib, suffix);
		write_after_case(name, kib * KIB, rounds, change, write_pages);
		snprintf(name, sizeof name, "%lu KiB, every byte%s", kib, suffix);
		write_after_case(name, kib * KIB, rounds, change, every_byte);
	}
}

#endif
