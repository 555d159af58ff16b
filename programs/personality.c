/* Does a process keep its personality, and does a program start at fixed addresses if its personality requires that?
 */
#include "check.h"
#include <sys/personality.h>

#ifndef ADDR_NO_RANDOMIZE
#define ADDR_NO_RANDOMIZE 0x0040000
#endif

/* Executes this program, which prints the address of its stack. Returns the address. */
static unsigned long stack_of_another(char *name)
{
	int ends[2];
	unsigned long address = 0;
	NEED(pipe(ends) == 0);
	pid_t child = fork_checked();
	if (child == 0) {
		NEED(dup2(ends[1], 1) == 1);
		execl("/proc/self/exe", name, "stack", NULL);
		_exit(97);
	}
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(read(ends[0], &address, sizeof address), sizeof address);
	close(ends[0]);
	close(ends[1]);
	return address;
}

int main(int count, char **arguments)
{
	if (count > 1) {
		unsigned long address = (unsigned long)&count;
		if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE))
			return 3;
		return write(1, &address, sizeof address) == sizeof address ? 0 : 1;
	}
	CHECK_EQ(personality(0xffffffff), 0);
	CHECK_EQ(personality(ADDR_NO_RANDOMIZE), 0);
	CHECK_EQ(personality(0xffffffff), ADDR_NO_RANDOMIZE);
	unsigned long first = stack_of_another(arguments[0]), second = stack_of_another(arguments[0]);
	CHECK(first != 0);
	CHECK_EQ(first, second);
	CHECK_EQ(personality(0), ADDR_NO_RANDOMIZE);
	CHECK_EQ(personality(0xffffffff), 0);
	return checked("personality");
}
