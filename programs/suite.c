/* Runs the programs in its arguments in sequence, and reports how each of them exited:
 *
 *   # begin NAME
 *   ok NAME    or    not ok NAME: exited 1    or    not ok NAME: killed by signal 11
 *   or    not ok NAME: no exit status: Bad address
 *
 * An argument with spaces is split into words. `suite --first PROGRAM...` is for a machine on which little works
 * yet: it exits after the first program that fails.
 */
#include "check.h"

static void end_of(const char *name, int status)
{
	if (exited(status, 0))
		printf("ok %s\n", name);
	else if (status == -1)
		printf("not ok %s: no exit status: %s\n", name, strerror(errno));
	else if (WIFEXITED(status))
		printf("not ok %s: exited %d\n", name, WEXITSTATUS(status));
	else
		printf("not ok %s: killed by signal %d\n", name, WTERMSIG(status));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int first_only = argc > 1 && strcmp(argv[1], "--first") == 0;
	int failed = 0;
	/* The result is in this program's memory, which is locked because a swap device that fails must not prevent the
	 * report. */
	NEED(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	for (int i = 1 + first_only; i < argc; i++) {
		char line[512], *words[16];
		int count = 0;
		snprintf(line, sizeof line, "%s", argv[i]);
		for (char *word = strtok(line, " "); word && count < 15; word = strtok(NULL, " "))
			words[count++] = word;
		words[count] = NULL;
		const char *name = strrchr(words[0], '/');
		name = name ? name + 1 : words[0];
		printf("# begin %s\n", name);
		fflush(stdout);
		pid_t child = fork();
		NEED(child >= 0);
		if (child == 0) {
			/* No program in this folder takes this long, by either the guest's or the host's clock. */
			alarm(300);
			execv(words[0], words);
			printf("cannot execute %s: %s\n", words[0], strerror(errno));
			fflush(stdout);
			_exit(127);
		}
		int status = wait_for(child);
		end_of(name, status);
		if (!exited(status, 0)) {
			failed++;
			if (first_only)
				break;
		}
	}
	return failed ? 1 : 0;
}
