/* What the experiments share: the clock, the counters, and the records that they print.
 *
 * An experiment measures with RDTSC, which under the instruction clock counts retired instructions, kernel and user, and
 * reads counters of the kernel before and after. It prints only after everything is measured. Each record is one line of
 * tab-separated fields:
 *
 *     value   CASE  MEASURE  UNIT  VALUE
 *     series  CASE  MEASURE  UNIT  MINIMUM  MEDIAN  MEAN  MAXIMUM
 *     note    TEXT
 *
 * A counter that the kernel does not have gives no record. The same file runs on any Linux.
 */
#ifndef EXPERIMENT_H
#define EXPERIMENT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

#define PAGE 4096UL
#define KIB 1024UL
#define MIB (1024UL * KIB)

#ifndef PR_SET_THP_DISABLE
#define PR_SET_THP_DISABLE 41
#endif

/* Ends the experiment, because figures after a failure would be invalid. */
static void __attribute__((noreturn, format(printf, 1, 2))) give_up(const char *format, ...)
{
	va_list arguments;
	int error = errno;
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, " (errno %d)\n", error);
	exit(1);
}

#define MUST(condition)                                                                                     \
	do {                                                                                                \
		if (!(condition))                                                                           \
			give_up("%s:%d: %s failed", __FILE__, __LINE__, #condition);                        \
	} while (0)

static inline uint64_t clock_now(void)
{
	uint32_t low, high;
	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

/* The maximum number of values of a series that are kept for its median. */
#define SAMPLES 512

/* Many values of one measure. Up to SAMPLES values are all kept, and the median is exact. Of a longer series every second
 * value is kept, then every fourth, and so on: the median is that of SAMPLES / 2 to SAMPLES evenly spaced values. */
struct series {
	uint64_t count, sum, min, max;
	unsigned kept, shift;
	uint64_t samples[SAMPLES];
};

static inline void add_value(struct series *series, uint64_t value)
{
	if (!series->count || value < series->min)
		series->min = value;
	if (value > series->max)
		series->max = value;
	if (!(series->count & ((UINT64_C(1) << series->shift) - 1))) {
		if (series->kept == SAMPLES) {
			for (unsigned i = 0; i < SAMPLES / 2; i++)
				series->samples[i] = series->samples[2 * i];
			series->kept = SAMPLES / 2;
			series->shift++;
		}
		series->samples[series->kept++] = value;
	}
	series->sum += value;
	series->count++;
}

static int compare_values(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
	return (a > b) - (a < b);
}

/* Returns the median of the kept values. If their number is even, this is the lower of the two middle ones. */
static inline uint64_t median_of(const struct series *series)
{
	uint64_t sorted[SAMPLES];
	MUST(series->kept > 0);
	memcpy(sorted, series->samples, series->kept * sizeof *sorted);
	qsort(sorted, series->kept, sizeof *sorted, compare_values);
	return sorted[(series->kept - 1) / 2];
}

static inline double mean_of(const struct series *series)
{
	return (double)series->sum / series->count;
}

/* Counters of the kernel, for this process or the machine. */
enum counter { FAULTS, CPUS_INTERRUPTED, FLUSHES, TRANSLATIONS, COUNTERS };

struct counters {
	uint64_t value[COUNTERS];
	unsigned known;
};

/* Reads a complete file of /proc. Returns its length, or -1. */
static long read_file(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY);
	size_t length = 0;
	if (file < 0)
		return -1;
	for (;;) {
		long more = read(file, text + length, size - 1 - length);
		if (more <= 0)
			break;
		length += more;
	}
	close(file);
	text[length] = 0;
	return length;
}

static char proc_text[1 << 18];

/* Sums the TLB shootdown interrupts received by all CPUs. Returns 0 if the kernel does not count them. */
static int read_interrupts(uint64_t *sum)
{
	if (read_file("/proc/interrupts", proc_text, sizeof proc_text) < 0)
		return 0;
	char *row = strstr(proc_text, "TLB:");
	if (!row)
		return 0;
	*sum = 0;
	row += 4;
	for (;;) {
		char *end;
		uint64_t count = strtoull(row, &end, 10);
		if (end == row)
			return 1;
		*sum += count;
		row = end;
	}
}

/* Stores the sum of rows of /proc/vmstat in `*sum`. Returns 0 if a row is missing. */
static int read_rows(const char *const *names, uint64_t *sum)
{
	if (read_file("/proc/vmstat", proc_text, sizeof proc_text) < 0)
		return 0;
	*sum = 0;
	for (; *names; names++) {
		char *row = strstr(proc_text, *names);
		if (!row)
			return 0;
		*sum += strtoull(row + strlen(*names), NULL, 10);
	}
	return 1;
}

/* Reads how often the initiating CPUs flushed their own TLBs. Linux does not count that. */
static int read_flushes(uint64_t *sum)
{
	static const char *const names[] = { "memwright_flush_local ", NULL };
	return read_rows(names, sum);
}

/* Reads how many single translations and full flushes there were. Linux counts them with CONFIG_DEBUG_TLBFLUSH. */
static int read_translations(uint64_t *sum)
{
	static const char *const names[] = { "nr_tlb_local_flush_all ", "nr_tlb_local_flush_one ", NULL };
	return read_rows(names, sum);
}

static uint64_t faults_now(void)
{
	struct rusage usage;
	MUST(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt;
}

static inline struct counters counters_now(void)
{
	struct counters now = { .known = 1 << FAULTS };
	now.known |= read_interrupts(&now.value[CPUS_INTERRUPTED]) << CPUS_INTERRUPTED;
	now.known |= read_flushes(&now.value[FLUSHES]) << FLUSHES;
	now.known |= read_translations(&now.value[TRANSLATIONS]) << TRANSLATIONS;
	now.value[FAULTS] = faults_now();
	return now;
}

/* The records, which are printed at the end, because printing would affect the measurement. */
static char records[1 << 18];
static size_t records_length;

static void __attribute__((format(printf, 1, 2))) keep(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(records + records_length, sizeof records - records_length, format, arguments);
	va_end(arguments);
	MUST(length >= 0 && records_length + length < sizeof records);
	records_length += length;
}

static inline void record_statistics(const char *which, const char *measure, const char *unit, double minimum,
				     double median, double mean, double maximum)
{
	keep("series\t%s\t%s\t%s\t%.2f\t%.2f\t%.2f\t%.2f\n", which, measure, unit, minimum, median, mean, maximum);
}

/* A series in which every value covers `parts` equal parts: its statistics are recorded per part. */
static inline void record_parts(const char *which, const char *measure, const char *unit, const struct series *series,
				double parts)
{
	record_statistics(which, measure, unit, series->min / parts, median_of(series) / parts, mean_of(series) / parts,
			  series->max / parts);
}

static inline void record_series(const char *which, const char *measure, const char *unit, const struct series *series)
{
	record_parts(which, measure, unit, series, 1);
}

/* Records the ratio of two series: minimum by minimum, median by median, and so on. */
static inline void record_ratio(const char *which, const char *measure, const struct series *one,
				const struct series *other)
{
	record_statistics(which, measure, "ratio", (double)one->min / other->min,
			  (double)median_of(one) / median_of(other), mean_of(one) / mean_of(other),
			  (double)one->max / other->max);
}

static inline void record_value(const char *which, const char *measure, const char *unit, double value)
{
	keep("value\t%s\t%s\t%s\t%.2f\n", which, measure, unit, value);
}

/* Records the change of the counters per round. */
static inline void record_counters(const char *which, struct counters before, struct counters after, double rounds)
{
	static const char *const names[COUNTERS] = { "faults", "CPUs interrupted", "flushes, local",
						     "translations flushed" };
	static const char *const units[COUNTERS] = { "faults per round", "CPUs per round", "flushes per round",
						     "translations per round" };
	for (int i = 0; i < COUNTERS; i++)
		if (before.known & after.known & 1u << i)
			record_value(which, names[i], units[i], (after.value[i] - before.value[i]) / rounds);
}

static void print_records(void)
{
	size_t done = 0;
	while (done < records_length) {
		long more = write(1, records + done, records_length - done);
		if (more <= 0)
			exit(1);
		done += more;
	}
}

/* Makes the kernel use only 4 KiB pages. A kernel without larger pages may refuse the call. */
static inline void begin(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	/* Populates the memory that the measurement itself uses. */
	for (int i = 0; i < 3; i++) {
		counters_now();
		clock_now();
	}
	memset(records, 0, sizeof records);
}

/* Maps new anonymous memory. */
static inline char *fresh(size_t size)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(memory != MAP_FAILED);
	return memory;
}

/* Like `fresh`, but with a hole on either side, so that no protection change merges it with another area. */
static inline char *fresh_apart(size_t size)
{
	char *memory = fresh(size + 2 * PAGE);
	MUST(munmap(memory, PAGE) == 0 && munmap(memory + PAGE + size, PAGE) == 0);
	return memory + PAGE;
}

/* Writes one byte of each page. */
static inline void write_pages(char *memory, size_t size)
{
	for (size_t at = 0; at < size; at += PAGE)
		*(volatile char *)(memory + at) = 1;
}

static inline void read_pages(const char *memory, size_t size)
{
	for (size_t at = 0; at < size; at += PAGE)
		(void)*(volatile const char *)(memory + at);
}

/* The cost of an mprotect that removes the right to write and restores it, and of the writes after it. */
struct protection {
	struct series read_only, read_write, writes;
	struct counters before, after;
};

static inline struct protection protect_rounds(char *memory, size_t size, unsigned long rounds,
					       void (*touch)(char *, size_t))
{
	struct protection costs = { 0 };
	costs.before = counters_now();
	MARK_BEGIN(3);
	for (unsigned long round = 0; round < rounds; round++) {
		uint64_t start = clock_now();
		MUST(mprotect(memory, size, PROT_READ) == 0);
		uint64_t middle = clock_now();
		MUST(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
		uint64_t end = clock_now();
		touch(memory, size);
		add_value(&costs.writes, clock_now() - end);
		add_value(&costs.read_only, middle - start);
		add_value(&costs.read_write, end - middle);
	}
	MARK_END(3);
	costs.after = counters_now();
	return costs;
}

static inline unsigned long argument(int count, char **arguments, int which, unsigned long usual)
{
	return which < count ? strtoul(arguments[which], NULL, 0) : usual;
}

#endif
