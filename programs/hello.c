/* Does a program start with its arguments, its environment and its memory as on Linux?
 *
 * Prints "hello, world", and checks what the kernel passes to a new program: argc and argv, the environment, the
 * auxiliary vector, an aligned stack, and a zeroed bss.
 */
#include "check.h"
#include <elf.h>
#include <sys/auxv.h>

static char bss[3 * PAGE];
static int data = 42;
static __thread int thread_local_data = 7;
static __thread int thread_local_bss;

int main(int argc, char **argv, char **environment)
{
	puts("hello, world");
	NEED(argc >= 1 && argv[argc] == NULL);
	CHECK(strstr(argv[0], "hello") != NULL);
	for (int i = 1; i < argc; i++)
		printf("argument %d: %s\n", i, argv[i]);

	CHECK(environment != NULL);
	CHECK(getenv("PATH") != NULL);
	CHECK_EQ(((uintptr_t)__builtin_frame_address(0)) % 16, 0);

	CHECK_EQ(getauxval(AT_PAGESZ), PAGE);
	CHECK_EQ(getauxval(AT_CLKTCK), 100);
	CHECK_EQ(getauxval(AT_SECURE), 0);
	CHECK_EQ(getauxval(AT_UID), getuid());
	CHECK_EQ(getauxval(AT_EGID), getegid());
	CHECK(getauxval(AT_PHNUM) > 0);
	CHECK_EQ(getauxval(AT_PHENT), sizeof(Elf64_Phdr));
	CHECK(getauxval(AT_ENTRY) != 0);
	CHECK(getauxval(AT_RANDOM) != 0);
	CHECK(strcmp((const char *)getauxval(AT_PLATFORM), "x86_64") == 0);
	CHECK(strstr((const char *)getauxval(AT_EXECFN), "hello") != NULL);

	size_t dirty = 0;
	for (size_t i = 0; i < sizeof bss; i++)
		dirty += bss[i] != 0;
	CHECK_EQ(dirty, 0);
	CHECK_EQ(data, 42);
	CHECK_EQ(thread_local_data, 7);
	CHECK_EQ(thread_local_bss, 0);
	return checked("hello");
}
