/* Takes known page faults: the test of `--faults-by` lists their functions and lines. Each argument is a part. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

void touch_twenty(volatile char *memory);

static volatile char *map(int pages, int protection)
{
	return mmap(NULL, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static volatile char *memory(int pages)
{
	return map(pages, PROT_READ | PROT_WRITE);
}

static __attribute__((noinline)) void touch_ten(volatile char *memory)
{
	for (int page = 0; page < 10; page++)
		memory[page * PAGE] = 1; /* ten */
}

static __attribute__((noinline)) void copy_five(volatile char *memory)
{
	for (int page = 0; page < 5; page++)
		memory[page * PAGE] = 2; /* five */
}

static __attribute__((noinline)) void touch_four(void)
{
	volatile char *gone = memory(4);
	for (int page = 0; page < 4; page++)
		gone[page * PAGE] = 1; /* four */
	munmap((void *)gone, 4 * PAGE);
}

static void *touch_seven(void *given)
{
	volatile char *memory = given;
	for (int page = 0; page < 7; page++)
		memory[page * PAGE] = 1; /* seven */
	return NULL;
}

static int known(void)
{
	int file = open("/proc/self/exe", O_RDONLY);
	touch_ten(memory(10));
	touch_twenty(memory(20));
	return read(file, (void *)memory(1), 100) != 100;
}

/* A child copies what its parent wrote, and then executes this program again. */
static int processes(char **arguments)
{
	volatile char *shared = memory(5);
	int status;
	for (int page = 0; page < 5; page++)
		shared[page * PAGE] = 1;
	if (fork() == 0) {
		copy_five(shared);
		execl("/proc/self/exe", arguments[0], "known", NULL);
		_exit(1);
	}
	wait(&status);
	return status;
}

static int thread(void)
{
	pthread_t other;
	pthread_create(&other, NULL, touch_seven, (void *)memory(7));
	return pthread_join(other, NULL);
}

/* Code in anonymous memory: mov byte ptr [rdi], 1; ret. */
static int anonymous(void)
{
	volatile char *code = map(1, PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy((void *)code, "\xc6\x07\x01\xc3", 4);
	((void (*)(volatile char *))code)(memory(1));
	return 0;
}

int main(int count, char **arguments)
{
	if (count != 2)
		return 1;
	if (strcmp(arguments[1], "known") == 0)
		return known();
	if (strcmp(arguments[1], "processes") == 0)
		return processes(arguments);
	if (strcmp(arguments[1], "thread") == 0)
		return thread();
	if (strcmp(arguments[1], "anonymous") == 0)
		return anonymous();
	touch_four();
	return 0;
}
