/* Are restartable sequences aborted as on Linux, and does a thread's rseq area contain its CPU?
 */
#include "check.h"
#include <sched.h>
#include <sys/auxv.h>
#include <sys/time.h>
#if defined(__GLIBC__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define LIBRARY_REGISTERS 1
#else
#define LIBRARY_REGISTERS 0
#endif

#define SIGNATURE 0x53053053
#define UNREGISTER 1

struct area {
	uint32_t start, cpu;
	uint64_t section;
	uint32_t flags, node, id, rest;
	char more[32];
} __attribute__((aligned(64)));

struct section {
	uint32_t version, flags;
	uint64_t start, length, abort;
} __attribute__((aligned(32)));

static struct area area, other;
static struct section wrong;
static volatile sig_atomic_t handled, section_seen;

static long rseq(void *address, unsigned length, int flags, unsigned signature)
{
	return syscall(334, address, length, flags, signature);
}

static void handle(int number)
{
	(void)number;
	handled++;
	section_seen = area.section != 0;
}

/* Spins in a critical section until it is aborted. */
static void spin(void)
{
	__asm__ volatile(".pushsection rseq_sections, \"aw\"\n"
			 ".balign 32\n"
			 "9: .long 0, 0\n"
			 ".quad 1f, 2f - 1f, 4f\n"
			 ".popsection\n"
			 "lea 9b(%%rip), %%rax\n"
			 "mov %%rax, 8(%0)\n"
			 "1: pause\n"
			 "jmp 1b\n"
			 "2: hlt\n"
			 ".long 0x53053053\n"
			 "4:\n"
			 :
			 : "r"(&area)
			 : "rax", "memory");
}

static void on_cpu(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	NEED(sched_setaffinity(0, sizeof set, &set) == 0);
}

static int cpu_now(void)
{
	unsigned cpu = 99;
	NEED(syscall(SYS_getcpu, &cpu, NULL, NULL) == 0);
	return cpu;
}

/* Unregisters the rseq area of the C library. */
static void leave_library(void)
{
#if LIBRARY_REGISTERS
	if (__rseq_size > 0) {
		char *own = (char *)__builtin_thread_pointer() + __rseq_offset;
		CHECK_EQ(((struct area *)own)->cpu, cpu_now());
		CHECK_FAILS(rseq(&area, 32, 0, SIGNATURE), EINVAL);
		NEED(rseq(own, 32, UNREGISTER, SIGNATURE) == 0);
		CHECK_EQ(((struct area *)own)->cpu, (uint32_t)-1);
	}
#endif
}

static void errors(void)
{
	CHECK_FAILS(rseq(&area, 32, UNREGISTER, SIGNATURE), EINVAL);
	CHECK_FAILS(rseq(&area, 31, 0, SIGNATURE), EINVAL);
	CHECK_FAILS(rseq((char *)&area + 8, 32, 0, SIGNATURE), EINVAL);
	CHECK_FAILS(rseq(&area, 32, 2, SIGNATURE), EINVAL);
	CHECK_FAILS(rseq((void *)0xffff800000000000, 32, 0, SIGNATURE), EFAULT);
	CHECK_FAILS(rseq((void *)0x40, 32, 0, SIGNATURE), EFAULT);
	area.cpu = -1;
	area.section = 77;
	CHECK_EQ(rseq(&area, 32, 0, SIGNATURE), 0);
	CHECK_EQ(area.cpu, cpu_now());
	CHECK_EQ(area.start, area.cpu);
	CHECK_EQ(area.section, 0);
	CHECK_FAILS(rseq(&area, 32, 0, SIGNATURE), EBUSY);
	CHECK_FAILS(rseq(&area, 32, 0, 1), EPERM);
	CHECK_FAILS(rseq(&area, 64, 0, SIGNATURE), EINVAL);
	CHECK_FAILS(rseq(&other, 32, 0, SIGNATURE), EINVAL);
	CHECK_FAILS(rseq(&area, 32, UNREGISTER, 1), EPERM);
	CHECK_FAILS(rseq(&other, 32, UNREGISTER, SIGNATURE), EINVAL);
	CHECK_EQ(rseq(&area, 32, UNREGISTER, SIGNATURE), 0);
	CHECK_EQ(area.cpu, (uint32_t)-1);
	CHECK_EQ(area.start, 0);
	CHECK(getauxval(27) >= 28);
	CHECK(getauxval(28) >= 32);
}

static void by_signal(void)
{
	struct itimerval soon = { { 0, 0 }, { 0, 10000 } };
	signal(SIGALRM, handle);
	NEED(setitimer(ITIMER_REAL, &soon, NULL) == 0);
	spin();
	CHECK_EQ(area.section, 0);
	while (!handled)
		usleep(1000);
	CHECK_EQ(handled, 1);
	CHECK_EQ(section_seen, 0);
}

/* Shares a CPU with another process, so that the thread is preempted. */
static void by_preemption(void)
{
	on_cpu(0);
	CHECK_EQ(area.cpu, 0);
	pid_t child = fork_checked();
	if (child == 0)
		for (;;)
			;
	spin();
	CHECK_EQ(area.section, 0);
	CHECK_EQ(area.cpu, 0);
	NEED(kill(child, SIGKILL) == 0);
	CHECK(killed(wait_for(child), SIGKILL));
}

static void by_migration(int cpus)
{
	for (int cpu = 0; cpu < cpus; cpu++) {
		on_cpu(cpu);
		CHECK_EQ(area.cpu, cpu);
		CHECK_EQ(area.start, cpu);
	}
	if (cpus < 2)
		return;
	on_cpu(1);
	pid_t parent = getpid(), child = fork_checked();
	if (child == 0) {
		on_cpu(0);
		usleep(20000);
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(0, &set);
		CHECK_EQ(sched_setaffinity(parent, sizeof set, &set), 0);
		end_child();
	}
	spin();
	CHECK_EQ(area.section, 0);
	CHECK(exited(wait_for(child), 0));
	CHECK_EQ(area.cpu, 0);
}

static void inherited(void *argument)
{
	(void)argument;
	CHECK_EQ(area.cpu, cpu_now());
	CHECK_FAILS(rseq(&area, 32, 0, SIGNATURE), EBUSY);
	CHECK_EQ(rseq(&area, 32, UNREGISTER, SIGNATURE), 0);
}

static int not_inherited(void *argument)
{
	(void)argument;
	int fails = syscall(334, &area, 32, UNREGISTER, SIGNATURE) == -1 && errno == EINVAL;
	_exit(fails ? 0 : 1);
}

static void announced(void *argument)
{
	wrong = *(struct section *)argument;
	signal(SIGUSR1, handle);
	area.section = (uintptr_t)&wrong;
	raise(SIGUSR1);
}

static void wrong_sections(void)
{
	static uint32_t words[4] = { SIGNATURE, SIGNATURE, 1, 1 };
	uint64_t good = (uintptr_t)&words[1], bad = (uintptr_t)&words[3];
	struct section outside = { 0, 0, 4096, 16, good }, unsigned_one = { 0, 0, 4096, 16, bad },
		       newer = { 1, 0, 4096, 16, good }, endless = { 0, 0, 4096, -1L, good },
		       inside = { 0, 0, good, 16, good };
	CHECK(exited(in_child(announced, &outside), 0));
	CHECK(killed(in_child(announced, &unsigned_one), SIGSEGV));
	CHECK(killed(in_child(announced, &newer), SIGSEGV));
	CHECK(killed(in_child(announced, &endless), SIGSEGV));
	CHECK(killed(in_child(announced, &inside), SIGSEGV));
	area.section = (uintptr_t)&outside;
	raise(SIGUSR2);
	CHECK_EQ(area.section, 0);
}

int main(void)
{
	static char stack[65536];
	leave_library();
	errors();
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	NEED(rseq(&area, 32, 0, SIGNATURE) == 0);
	CHECK(area.id < (uint32_t)sysconf(_SC_NPROCESSORS_CONF));
	by_signal();
	by_preemption();
	by_migration(cpus);
	CHECK(exited(in_child(inherited, NULL), 0));
	CHECK_EQ(area.cpu, cpu_now());
	pid_t child = clone(not_inherited, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	CHECK(exited(wait_for(child), 0));
	signal(SIGUSR2, handle);
	wrong_sections();
	return checked("rseq");
}
