/* What does a write cost after mprotect has removed the right to write and restored it?
 *
 * Fresh private memory is written, written again, made read-only and writable again, and written a third time.
 * A kernel that restores the right in the entries when mprotect does makes the third write as cheap as the second; one
 * that does not pays a fault for every page.
 *
 * Usage: write_after_protect [ROUNDS [SIZE_IN_KIB]...]
 */
#include "write_after.h"

static void take(char *memory, size_t size)
{
	MUST(mprotect(memory, size, PROT_READ) == 0);
}

static void give(char *memory, size_t size)
{
	MUST(mprotect(memory, size, PROT_READ | PROT_WRITE) == 0);
}

int main(int count, char **arguments)
{
	static const struct change change = {
		.name = "protect",
		.steps = { "mprotect(R)", "mprotect(RW)" },
		.step = { take, give },
	};
	begin();
	write_after(count, arguments, "", &change);
	print_records();
	return 0;
}
