/* Do the exit, the stop and the continuation of a process reach threads that run, wait, fault and create
 * threads, and is each reported to the parent once?
 */
#include "check.h"
#include <dirent.h>
#include <pthread.h>
#include <sched.h>

static volatile unsigned long *progress;

static void *running(void *argument)
{
	for (volatile unsigned long *count = argument;;)
		(*count)++;
	return NULL;
}

static void *sleeping(void *argument)
{
	for (;;)
		pause();
	return argument;
}

static void *blocking_all(void *argument)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	for (;;)
		sched_yield();
	return argument;
}

static void *reading(void *argument)
{
	char byte;
	int *ends = argument;
	while (read(ends[0], &byte, 1) != 0)
		;
	return NULL;
}

static void *faulting(void *argument)
{
	for (;;) {
		char *memory = anonymous(64 * PAGE);
		memset(memory, 1, 64 * PAGE);
		munmap(memory, 64 * PAGE);
	}
	return argument;
}

static void *vforking(void *argument)
{
	for (;;) {
		pid_t child = vfork();
		if (child == 0)
			_exit(0);
		if (child > 0)
			waitpid(child, NULL, 0);
	}
	return argument;
}

static void *making(void *argument)
{
	for (;;) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, sleeping, NULL) != 0)
			usleep(1000);
		else if (pthread_cancel(thread) == 0)
			pthread_join(thread, NULL);
	}
	return argument;
}

static void *mapping(void *argument)
{
	char *memory = argument;
	for (;;) {
		mprotect(memory, 16 * PAGE, PROT_READ);
		mprotect(memory, 16 * PAGE, PROT_READ | PROT_WRITE);
		for (int page = 0; page < 16; page++)
			memory[page * PAGE] = 1;
	}
	return NULL;
}

/* Starts threads, at least one of each kind. */
static void start_all(void)
{
	static int ends[2];
	pthread_t thread;
	NEED(pipe(ends) == 0);
	struct {
		void *(*work)(void *);
		void *argument;
	} all[] = {
		{running, (void *)progress}, {sleeping, NULL},	{blocking_all, NULL}, {reading, ends},
		{faulting, NULL},	     {vforking, NULL},	{making, NULL},	      {mapping, anonymous(16 * PAGE)},
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		NEED(pthread_create(&thread, NULL, all[i].work, all[i].argument) == 0);
}

static pid_t start_child(void)
{
	int ready[2];
	char byte;
	NEED(pipe(ready) == 0);
	*progress = 0;
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		start_all();
		NEED(write(ready[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	CHECK_EQ(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	while (*progress == 0)
		sched_yield();
	return child;
}

/* Stores the state letters of all threads of a process, and returns the number of threads. */
static int states(pid_t process, char *letters, int room)
{
	char path[64], line[512];
	int count = 0;
	snprintf(path, sizeof path, "/proc/%d/task", process);
	DIR *folder = opendir(path);
	if (!folder)
		return -1;
	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
		if (entry->d_name[0] == '.' || count >= room)
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", process, entry->d_name);
		FILE *file = fopen(path, "r");
		if (!file)
			continue;
		if (fgets(line, sizeof line, file) && strrchr(line, ')'))
			letters[count++] = strrchr(line, ')')[2];
		fclose(file);
	}
	closedir(folder);
	return count;
}

static void killed_by(int signal)
{
	pid_t child = start_child();
	CHECK_EQ(kill(child, signal), 0);
	CHECK(killed(wait_for(child), signal));
	CHECK_FAILS(kill(child, 0), ESRCH);
}

static void stopped_and_continued(void)
{
	int status;
	pid_t child = start_child();
	for (int round = 0; round < 3; round++) {
		CHECK_EQ(kill(child, SIGSTOP), 0);
		CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
		CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
		/* A stop is reported only once. */
		CHECK_EQ(waitpid(child, &status, WUNTRACED | WNOHANG), 0);
		/* Every thread is stopped. A thread in vfork waits for its child before it stops. */
		char letters[64];
		int count = states(child, letters, sizeof letters);
		CHECK(count >= 9);
		for (int i = 0; i < count; i++)
			CHECK(letters[i] == 'T' || letters[i] == 'D');
		unsigned long before = *progress;
		usleep(20000);
		CHECK_EQ(*progress, before);
		CHECK_EQ(kill(child, SIGCONT), 0);
		CHECK_EQ(waitpid(child, &status, WCONTINUED), child);
		CHECK(WIFCONTINUED(status));
		while (*progress == before)
			sched_yield();
	}
	/* A stopped process can be killed. */
	CHECK_EQ(kill(child, SIGSTOP), 0);
	CHECK_EQ(waitpid(child, &status, WUNTRACED), child);
	CHECK_EQ(kill(child, SIGKILL), 0);
	CHECK(killed(wait_for(child), SIGKILL));
}

/* exit_group is called by a thread while others create threads, and by two threads at once. The process has a single
 * exit status. */
static void *ending(void *argument)
{
	usleep(1000);
	syscall(SYS_exit_group, *(int *)argument);
	return NULL;
}

static void ended_by_two(void)
{
	static int codes[2] = {51, 52};
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		pthread_t thread;
		start_all();
		for (int i = 0; i < 2; i++)
			NEED(pthread_create(&thread, NULL, ending, &codes[i]) == 0);
		for (;;)
			pause();
	}
	int status = wait_for(child);
	CHECK(exited(status, 51) || exited(status, 52));
}

/* The last reference to a pipe is released only when the process has exited. */
static void pipe_closes_at_the_end(void)
{
	int ends[2];
	char byte;
	NEED(pipe(ends) == 0);
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		start_all();
		usleep(1000);
		_exit(0);
	}
	close(ends[1]);
	CHECK_EQ(read(ends[0], &byte, 1), 0);
	CHECK(exited(wait_for(child), 0));
	close(ends[0]);
}

int main(void)
{
	progress = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(progress != MAP_FAILED);
	for (int round = 0; round < 3; round++) {
		killed_by(SIGKILL);
		killed_by(SIGTERM);
		ended_by_two();
		pipe_closes_at_the_end();
	}
	stopped_and_continued();
	return checked("group_exit");
}
