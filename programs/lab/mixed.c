/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What makes the calls of a kernel hard to follow from outside: children and threads, so that tasks switch; signals; faults
 * in system calls; enough time for interrupts. Region 1 is executed twice.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mark.h"

enum { PAGE = 4096, PAGES = 64, CALLS = 100 };

static volatile int handled;

static void handle(int signal)
{
	handled = signal;
}

static void *pass_on(void *ends)
{
	char byte;
	int *pipes = ends;
	while (read(pipes[0], &byte, 1) == 1)
		if (write(pipes[3], &byte, 1) != 1)
			return ends;
	return NULL;
}

/* Sends a byte to another thread and back, many times. */
static int talk(void)
{
	int pipes[4];
	char byte = 1;
	pthread_t thread;
	if (pipe(pipes) || pipe(pipes + 2) || pthread_create(&thread, NULL, pass_on, pipes))
		return 0;
	for (int i = 0; i < 50; i++)
		if (write(pipes[1], &byte, 1) != 1 || read(pipes[2], &byte, 1) != 1)
			return 0;
	close(pipes[1]);
	return pthread_join(thread, NULL) == 0;
}

int main(void)
{
	char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int pipes[2];
	if (memory == MAP_FAILED || pipe(pipes))
		return 1;
	signal(SIGUSR1, handle);
	for (int pass = 0; pass < 2; pass++) {
		MARK_BEGIN(1);
		for (int i = 0; i < CALLS; i++)
			getppid();
		MARK_END(1);
	}
	/* Faults in read(2), and then a bad address. */
	for (int i = 0; i < PAGES; i++)
		if (write(pipes[1], "x", 1) != 1 || read(pipes[0], memory + i * PAGE, 1) != 1)
			return 1;
	char *volatile nowhere = (char *)8;
	if (write(pipes[1], nowhere, 1) >= 0)
		return 1;
	for (int i = 0; i < 20; i++)
		raise(SIGUSR1);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		if (child == 0) {
			memory[0] = i;
			_exit(i);
		}
		if (waitpid(child, NULL, 0) != child)
			return 1;
	}
	for (volatile int i = 0; i < 2000000; i++)
		;
	return handled == SIGUSR1 && talk() ? 0 : 1;
}
