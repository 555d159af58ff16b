/* Does a thread run only on the CPUs in its affinity mask?
 *
 * The results of sched_setaffinity and getcpu agree at once, after yields and after sleeps, for threads and for
 * children. Masks without an existing CPU are refused. Related calls are tested too: policies, priorities, time
 * slices.
 */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { MOST = 64 };

static int cpus[MOST], count;
static volatile long wrong;

static int current(void)
{
	unsigned cpu = 9999, node = 9999;
	CHECK_EQ(syscall(SYS_getcpu, &cpu, &node, NULL), 0);
	CHECK_EQ(node, 0);
	return (int)cpu;
}

static int move_to(int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof set, &set);
}

static int may_run_on(pid_t thread, int cpu)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (sched_getaffinity(thread, sizeof set, &set) != 0)
		return -1;
	return CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
}

static void find_cpus(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	NEED(sched_getaffinity(0, sizeof set, &set) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST; cpu++) {
		if (CPU_ISSET(cpu, &set))
			cpus[count++] = cpu;
	}
	NEED(count > 0);
}

static void rest(long microseconds)
{
	struct timespec time = { 0, microseconds * 1000 };
	nanosleep(&time, NULL);
}

static void one_after_another(void)
{
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < count; i++) {
			CHECK_EQ(move_to(cpus[i]), 0);
			CHECK_EQ(current(), cpus[i]);
			CHECK_EQ(may_run_on(0, cpus[i]), 1);
			sched_yield();
			CHECK_EQ(current(), cpus[i]);
			rest(50);
			CHECK_EQ(current(), cpus[i]);
			pid_t child = fork_checked();
			if (child == 0) {
				CHECK_EQ(current(), cpus[i]);
				CHECK_EQ(may_run_on(0, cpus[i]), 1);
				/* A thread changes its own CPU. */
				CHECK_EQ(move_to(cpus[0]), 0);
				CHECK_EQ(current(), cpus[0]);
				end_child();
			}
			CHECK(exited(wait_for(child), 0));
			CHECK_EQ(may_run_on(0, cpus[i]), 1);
		}
	}
}

static void *stay(void *argument)
{
	int cpu = cpus[(long)argument % count];
	if (move_to(cpu) != 0)
		wrong++;
	for (int i = 0; i < 300; i++) {
		unsigned seen = 9999;
		syscall(SYS_getcpu, &seen, NULL, NULL);
		if (seen != (unsigned)cpu)
			wrong++;
		if (i % 3 == 0)
			sched_yield();
		if (i % 50 == 0)
			rest(20);
	}
	return NULL;
}

static volatile int moved;
static volatile pid_t waiting;

static void *be_moved(void *argument)
{
	(void)argument;
	waiting = (pid_t)syscall(SYS_gettid);
	while (!moved)
		sched_yield();
	CHECK_EQ(current(), cpus[count - 1]);
	return NULL;
}

static void threads(void)
{
	pthread_t thread[8];
	CHECK_EQ(move_to(cpus[0]), 0);
	for (long i = 0; i < 8; i++)
		NEED(pthread_create(&thread[i], NULL, stay, (void *)i) == 0);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	CHECK_EQ(wrong, 0);
	CHECK_EQ(current(), cpus[0]);
	/* A thread changes another thread's CPU. */
	NEED(pthread_create(&thread[0], NULL, be_moved, NULL) == 0);
	while (!waiting)
		sched_yield();
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpus[count - 1], &set);
	CHECK_EQ(sched_setaffinity(waiting, sizeof set, &set), 0);
	CHECK_EQ(may_run_on(waiting, cpus[count - 1]), 1);
	moved = 1;
	CHECK_EQ(pthread_join(thread[0], NULL), 0);
}

static void refusals(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CHECK_FAILS(sched_setaffinity(0, sizeof set, &set), EINVAL);
	CPU_SET(1000, &set);
	CHECK_FAILS(sched_setaffinity(0, sizeof set, &set), EINVAL);
	/* Bits of CPUs that do not exist are ignored. */
	CPU_SET(cpus[0], &set);
	CHECK_EQ(sched_setaffinity(0, sizeof set, &set), 0);
	CHECK_EQ(may_run_on(0, cpus[0]), 1);
	CHECK_EQ(current(), cpus[0]);
	CHECK_FAILS(sched_setaffinity(0x7ffffff, sizeof set, &set), ESRCH);
	CHECK_FAILS(sched_setaffinity(-1, sizeof set, &set), ESRCH);
	CHECK_FAILS(sched_getaffinity(-1, sizeof set, &set), ESRCH);
	CHECK_FAILS(syscall(SYS_sched_setaffinity, 0, sizeof set, (void *)8), EFAULT);
	CHECK_FAILS(syscall(SYS_sched_getaffinity, 0, 0, &set), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_getaffinity, 0, 9, &set), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_getaffinity, 0x7ffffff, sizeof set, &set), ESRCH);
}

static void policies(void)
{
	struct sched_param parameter = { .sched_priority = 77 };
	CHECK_EQ(syscall(SYS_sched_getscheduler, 0), SCHED_OTHER);
	CHECK_EQ(syscall(SYS_sched_getparam, 0, &parameter), 0);
	CHECK_EQ(parameter.sched_priority, 0);
	CHECK_EQ(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &parameter), 0);
	CHECK_EQ(syscall(SYS_sched_setparam, 0, &parameter), 0);
	parameter.sched_priority = 1;
	CHECK_FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &parameter), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_setparam, 0, &parameter), EINVAL);
	parameter.sched_priority = 100;
	CHECK_FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &parameter), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_setscheduler, 0, 99, &parameter), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, NULL), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_getparam, 0, NULL), EINVAL);
	CHECK_FAILS(syscall(SYS_sched_getscheduler, 0x7ffffff), ESRCH);
	CHECK_FAILS(syscall(SYS_sched_getscheduler, -1), EINVAL);
	CHECK_EQ(sched_get_priority_min(SCHED_FIFO), 1);
	CHECK_EQ(sched_get_priority_max(SCHED_RR), 99);
	CHECK_EQ(sched_get_priority_max(SCHED_OTHER), 0);
	CHECK_FAILS(sched_get_priority_max(99), EINVAL);
	struct timespec slice = { -1, -1 };
	CHECK_EQ(syscall(SYS_sched_rr_get_interval, 0, &slice), 0);
	CHECK(slice.tv_sec == 0 && slice.tv_nsec >= 0);
}

int main(void)
{
	find_cpus();
	one_after_another();
	threads();
	refusals();
	policies();
	return checked("affinity");
}
