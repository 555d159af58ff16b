/* What does a write cost after userfaultfd has write-protected the memory and removed the protection?
 *
 * Like write-after-protect for mprotect. No thread handles faults here: a write that the kernel does not permit at once,
 * without a handler, would never end.
 *
 * Usage: unprotect [ROUNDS [SIZE_IN_KIB]...]
 */
#include "track.h"
#include "write_after.h"

static int file = -1;

static void watch(char *memory, size_t size)
{
	MUST(uffd_watch(file, memory, size, WATCH_WRITES) == 0);
}

static void protect(char *memory, size_t size)
{
	MUST(uffd_protect(file, memory, size, 1) == 0);
}

static void unprotect(char *memory, size_t size)
{
	MUST(uffd_protect(file, memory, size, 0) == 0);
}

int main(int count, char **arguments)
{
	static const struct change change = {
		.name = "un-protect",
		.steps = { "protect", "un-protect" },
		.step = { protect, unprotect },
		.begin = watch,
	};
	begin();
	file = uffd_open(0);
	need(file >= 0, "userfaultfd");
	write_after(count, arguments, "", &change);
	print_records();
	return 0;
}
