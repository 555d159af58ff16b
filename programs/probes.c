/* What do probes in the code of files count, in which processes, and what do they leave unchanged?
 *
 * Usage: probes
 * Prints "skip" where the kernel has no probes, or does not permit them.
 */
#include "check.h"

#include <pthread.h>
#include <sys/ioctl.h>

/* From linux/perf_event.h: the first 72 bytes of struct perf_event_attr, and some constants. */
struct event_attributes {
	uint32_t type, size;
	uint64_t config, sample_period, sample_type, read_format, flags;
	uint32_t wakeup_events, bp_type;
	uint64_t config1, config2;
};
#define EVENT_ENABLE 0x2400
#define EVENT_DISABLE 0x2401
#define EVENT_RESET 0x2403

static struct event_attributes described(const char *path, uint64_t offset)
{
	struct event_attributes attributes;
	memset(&attributes, 0, sizeof attributes);
	attributes.size = sizeof attributes;
	FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
	unsigned type = 0;
	if (file && fscanf(file, "%u", &type) != 1)
		type = 0;
	if (file)
		fclose(file);
	attributes.type = type;
	attributes.config1 = (uintptr_t)path;
	attributes.config2 = offset;
	return attributes;
}

static int event(struct event_attributes *attributes, pid_t thread)
{
	return syscall(SYS_perf_event_open, attributes, thread, -1, -1, 0);
}

static uint64_t count(int descriptor)
{
	uint64_t value = ~0ull;
	CHECK_EQ(read(descriptor, &value, sizeof value), sizeof value);
	return value;
}

/* Code for a separate file, by offset: at 0 "mov $7,%eax; ret", at 64 "add %rsi,%rdi; mov %rdi,%rax; ret", at 128 "rep
 * stosb; ret", at 192 "mov (%rdi),%eax; ret", at 256 "jmp", at 320 "lea (%rip)". */
static const unsigned char code[512] = {
	[0] = 0xb8, 7, 0, 0, 0, 0xc3,
	[64] = 0x48, 0x01, 0xf7, 0x48, 0x89, 0xf8, 0xc3,
	[128] = 0xf3, 0xaa, 0xc3,
	[192] = 0x8b, 0x07, 0xc3,
	[256] = 0xeb, 0xfe,
	[320] = 0x48, 0x8d, 0x05, 0, 0, 0, 0, 0xc3,
};

static const char *path = "/tmp/probed_code";
static int file;

static unsigned char *map_code(void)
{
	unsigned char *memory = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	NEED(memory != MAP_FAILED);
	return memory;
}

static int call(unsigned char *at)
{
	return ((int (*)(void))at)();
}

static long sum(unsigned char *at, long left, long right)
{
	return ((long (*)(long, long))at)(left, right);
}

static void counts(void)
{
	unsigned char *before = map_code();
	struct event_attributes attributes = described(path, 0);
	int probe = event(&attributes, 0);
	NEED(probe >= 0);
	unsigned char *after = map_code();
	CHECK_EQ(count(probe), 0);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(call(before), 7);
	CHECK_EQ(count(probe), 10);
	/* The probe is also active in a mapping that is created later. */
	CHECK_EQ(call(after), 7);
	CHECK_EQ(count(probe), 11);
	CHECK_EQ(before[0], 0xcc);
	/* The file's contents are unchanged, also for other processes. */
	unsigned char first = 0;
	CHECK_EQ(pread(file, &first, 1, 0), 1);
	CHECK_EQ(first, 0xb8);
	CHECK_EQ(ioctl(probe, EVENT_DISABLE, 0), 0);
	CHECK_EQ(call(before), 7);
	CHECK_EQ(count(probe), 11);
	CHECK_EQ(ioctl(probe, EVENT_ENABLE, 0), 0);
	CHECK_EQ(call(before), 7);
	CHECK_EQ(count(probe), 12);
	CHECK_EQ(ioctl(probe, EVENT_RESET, 0), 0);
	CHECK_EQ(count(probe), 0);

	/* Two probes are at the same address, and a third is at another one. */
	int second = event(&attributes, 0);
	struct event_attributes other = described(path, 64);
	int adds = event(&other, 0);
	CHECK(second >= 0 && adds >= 0);
	CHECK_EQ(call(before), 7);
	CHECK_EQ(sum(before + 64, 40, 2), 42);
	CHECK_EQ(count(probe), 1);
	CHECK_EQ(count(second), 1);
	CHECK_EQ(count(adds), 1);
	close(probe);
	CHECK_EQ(call(before), 7);
	CHECK_EQ(count(second), 2);
	CHECK_EQ(before[0], 0xcc);
	close(second);
	CHECK_EQ(before[0], 0xb8);
	CHECK_EQ(after[0], 0xb8);
	CHECK_EQ(call(before), 7);
	close(adds);

	/* An instruction with a repeat prefix hits the probe once per iteration. */
	struct event_attributes repeated = described(path, 128);
	int stores = event(&repeated, 0);
	char bytes[32] = "";
	__asm__ volatile("call *%[at]" : : [at] "r"(before + 128), "D"(bytes), "c"(20L), "a"('x') : "memory");
	CHECK_EQ(bytes[19], 'x');
	CHECK_EQ(bytes[20], 0);
	uint64_t rounds = count(stores);
	/* Some processors, including QEMU's, need one more iteration to detect the end. */
	CHECK(rounds == 20 || rounds == 21);
	close(stores);

	/* A mapping keeps the probe when it is moved. */
	probe = event(&attributes, 0);
	unsigned char *moved = mremap(after, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, before);
	CHECK(moved == before);
	CHECK_EQ(call(moved), 7);
	CHECK_EQ(count(probe), 1);
	close(probe);
	CHECK_EQ(moved[0], 0xb8);
	munmap(before, PAGE);
}

static void *pass(void *at)
{
	CHECK_EQ(call(at), 7);
	CHECK_EQ(call(at), 7);
	return NULL;
}

/* Only the selected thread is counted, although other threads and children execute the same code. */
static void others(void)
{
	unsigned char *memory = map_code();
	struct event_attributes attributes = described(path, 0);
	int probe = event(&attributes, 0);
	NEED(probe >= 0);
	pthread_t thread;
	CHECK_EQ(pthread_create(&thread, NULL, pass, memory), 0);
	pthread_join(thread, NULL);
	CHECK_EQ(count(probe), 0);
	int ends[2];
	CHECK_EQ(pipe(ends), 0);
	pid_t child = fork_checked();
	if (child == 0) {
		char byte;
		pass(memory);
		close(probe);
		/* Waits until the parent has removed the probe. */
		CHECK_EQ(read(ends[0], &byte, 1), 1);
		CHECK_EQ(call(memory), 7);
		end_child();
	}
	CHECK_EQ(call(memory), 7);
	CHECK_EQ(count(probe), 1);
	close(probe);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	CHECK_EQ(wait_for(child), 0);
	CHECK_EQ(memory[0], 0xb8);
	close(ends[0]);
	close(ends[1]);
	munmap(memory, PAGE);
}

static volatile uintptr_t fault_place, fault_address;
static unsigned char *readable;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	fault_place = registers[REG_RIP];
	fault_address = (uintptr_t)info->si_addr;
	registers[REG_RDI] = (greg_t)readable;
}

/* A fault of the probed instruction is reported at the instruction's own address, where it is executed again. */
static void faults(void)
{
	static unsigned char word[4] = {5, 0, 0, 0};
	unsigned char *memory = map_code();
	struct event_attributes attributes = described(path, 192);
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &action, NULL);
	int probe = event(&attributes, 0);
	NEED(probe >= 0);
	readable = word;
	CHECK_EQ((int)sum(memory + 192, 16, 0), 5);
	CHECK_EQ(fault_place, (uintptr_t)memory + 192);
	CHECK_EQ(fault_address, 16);
	CHECK(count(probe) >= 1);
	close(probe);
	signal(SIGSEGV, SIG_DFL);
	munmap(memory, PAGE);
}

static void refused(void)
{
	struct event_attributes attributes = described(path, 0);
	CHECK_FAILS(event(NULL, 0), EFAULT);
	CHECK_FAILS(event(&attributes, 999999), ESRCH);
	CHECK_FAILS(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 1 << 20), EINVAL);
	attributes = described("/nowhere", 0);
	CHECK_FAILS(event(&attributes, 0), ENOENT);
	attributes = described("/", 0);
	CHECK_FAILS(event(&attributes, 0), EINVAL);
	attributes = described(path, 1 << 20);
	CHECK_FAILS(event(&attributes, 0), EINVAL);
}

int main(void)
{
	file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0700);
	NEED(file >= 0 && write(file, code, sizeof code) == (ssize_t)sizeof code);
	struct event_attributes attributes = described(path, 0);
	int probe = attributes.type ? event(&attributes, 0) : -1;
	if (probe < 0) {
		puts("skip: no probes");
		unlink(path);
		return 0;
	}
	close(probe);
	counts();
	others();
	faults();
	refused();
	unlink(path);
	return checked("probes");
}
