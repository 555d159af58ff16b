/* Are these processes counted: processes that exit, that outlive the program, and that the OOM killer kills?
 *
 * Usage: `left_behind BORN LEFT HUNGRY`. BORN children exit at once. HUNGRY children, one after another,
 * write memory until they are killed. LEFT children still sleep when the program exits. The rows about
 * processes in the account must equal these numbers.
 */
#include "check.h"

static pid_t born(void (*life)(void))
{
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		life();
		_exit(0);
	}
	return child;
}

static void leave_at_once(void)
{
}

static void sleep_for_good(void)
{
	for (;;)
		pause();
}

static void write_memory(void)
{
	enum { STEP = 1 << 20 };
	for (;;) {
		char *memory = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory == MAP_FAILED)
			_exit(1);
		memset(memory, 1, STEP);
	}
}

int main(int count, char **arguments)
{
	int numbers[3] = { 1, 1, 0 };
	for (int i = 1; i < count && i <= 3; i++)
		numbers[i - 1] = atoi(arguments[i]);
	for (int i = 0; i < numbers[0]; i++)
		CHECK_EQ(wait_for(born(leave_at_once)), 0);
	for (int i = 0; i < numbers[2]; i++)
		CHECK_EQ(wait_for(born(write_memory)), SIGKILL);
	for (int i = 0; i < numbers[1]; i++)
		born(sleep_for_good);
	return checked("left_behind");
}
