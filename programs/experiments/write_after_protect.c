/* What does a write cost after mprotect has taken the right to write and given it back?
 *
 * Fresh private memory is written, written again, protected against writes, given back, and written a third time.
 * A kernel that re-derives the right when mprotect gives it back makes the third write as cheap as the second; one
 * that does not pays a fault for every page.
 *
 * Usage: write_after_protect [ROUNDS [SIZE_IN_KIB]...]
 */
#include "experiment.h"

enum { FIRST, SECOND, THIRD, READ_ONLY, READ_WRITE, STEPS };

static const char *const names[STEPS] = {
	"first write", "second write", "write after protect", "mprotect(R)", "mprotect(RW)",
};

static void whole(char *memory, size_t size)
{
	memset(memory, 7, size);
}

static void one_case(const char *name, size_t size, unsigned long rounds, void (*touch)(char *, size_t))
{
	struct series times[STEPS] = { 0 };
	uint64_t faults[STEPS] = { 0 };
	for (unsigned long round = 0; round < rounds; round++) {
		char *memory = fresh_apart(size);
		for (int step = FIRST; step <= THIRD; step++) {
			if (step == THIRD) {
				uint64_t start = clock_now();
				MUST(mprotect(memory, size, PROT_READ) == 0);
				uint64_t middle = clock_now();
				MUST(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
				add_value(&times[READ_WRITE], clock_now() - middle);
				add_value(&times[READ_ONLY], middle - start);
			}
			uint64_t before = faults_now();
			MARK_BEGIN(1);
			uint64_t start = clock_now();
			touch(memory, size);
			add_value(&times[step], clock_now() - start);
			MARK_END(1);
			faults[step] += faults_now() - before;
		}
		MUST(munmap(memory, size) == 0);
	}
	for (int step = 0; step < STEPS; step++) {
		record_series(name, names[step], "instructions", &times[step]);
		if (step <= THIRD) {
			char measure[64];
			snprintf(measure, sizeof measure, "%s: faults", names[step]);
			record_value(name, measure, "per round", (double)faults[step] / rounds);
		}
	}
	double first = (double)times[FIRST].sum / rounds, second = (double)times[SECOND].sum / rounds;
	record_value(name, "first write / second write", "ratio", first / second);
	record_value(name, "write after protect / second write", "ratio", (double)times[THIRD].sum / rounds / second);
}

int main(int count, char **arguments)
{
	static const unsigned long usual[] = { 4, 16, 64, 512 };
	unsigned long rounds = argument(count, arguments, 1, 1000);
	int sizes = count > 2 ? count - 2 : 4;
	MUST(rounds > 0);
	begin();
	for (int i = 0; i < sizes; i++) {
		unsigned long kib = count > 2 ? argument(count, arguments, 2 + i, 0) : usual[i];
		char name[64];
		MUST(kib > 0 && kib % 4 == 0);
		snprintf(name, sizeof name, "%lu KiB, a byte of each page", kib);
		one_case(name, kib * KIB, rounds, write_pages);
		snprintf(name, sizeof name, "%lu KiB, every byte", kib);
		one_case(name, kib * KIB, rounds, whole);
	}
	print_records();
	return 0;
}
