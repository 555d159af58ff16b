/*
 * Processes fork until memory is exhausted, and each writes a MiB. Hundreds of threads reclaim at the same
 * time, and swap is full. Does one of the threads detect soon that nothing can be reclaimed, so that the OOM
 * killer runs and the other threads continue?
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GENERATIONS = 14, SIZE = 1 << 20 };

/* Sets the oom_score_adj of a process. The OOM killer must choose a process of the storm. It must not choose
 * the process that waits for the storm, or the one that started this program. */
static void set_adjustment(pid_t process, const char *value)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)process);
	FILE *file = fopen(path, "w");
	if (file) {
		fputs(value, file);
		fclose(file);
	}
}

static void storm(void)
{
	set_adjustment(getpid(), "0");
	for (int generation = 0; generation < GENERATIONS; generation++)
		if (fork() < 0)
			break;
	char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory != MAP_FAILED)
		memset(memory, 1, SIZE);
	while (wait(0) > 0)
		;
	_exit(0);
}

int main(void)
{
	set_adjustment(getppid(), "-1000");
	set_adjustment(getpid(), "-1000");
	pid_t child = fork();
	if (child < 0)
		return 1;
	if (child == 0)
		storm();
	int status;
	if (waitpid(child, &status, 0) != child)
		return 1;
	/* The first process of the storm may exit or be killed, like any other process. */
	int is_right = WIFEXITED(status) || (WIFSIGNALED(status) && WTERMSIG(status) == 9);
	puts(is_right ? "fork_storm: ok" : "fork_storm: another ending");
	return !is_right;
}
