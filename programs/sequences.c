/* After long sequences of mostly valid calls on live objects, does the kernel still work, and has it freed everything?
 *
 * Usage: sequences [CALLS] [SEED]
 *
 * Four workers at a time keep tables of live descriptors, areas, sockets and children, and make calls on them with
 * meaningful arguments. One call in MUTATED gets an invalid argument. A worker makes LIFE calls and exits with
 * everything that it holds, and then another one starts with the next seed. A worker waits only for what it has
 * caused before, so a worker that has not exited after LIMIT seconds counts as hung. The same seed gives the same
 * calls, provided that the kernel schedules the processes in the same way.
 *
 * The program prints a row for each call, with the numbers of attempts and successes, and the memory that was free
 * after the first half of the run and at its end. It fails if a worker hung or crashed. The caller decides how many
 * successes are enough. Mounts and cgroups need root, and swap needs /dev/zram0. Without these, only the calls that
 * need them fail.
 */
#include "sequences/state.h"

#include "sequences/descriptors.h"
#include "sequences/sockets.h"

#include "sequences/memory.h"

#include "sequences/processes.h"

#include "sequences/machine.h"

enum { LIFE = 4000, LIMIT = 600 };

/* The steps of a worker, how often the worker takes each, and whether its child takes them too. */
static const struct {
	void (*work)(void);
	int weight, by_child;
} work[] = {
	{ make_descriptor, 40, 1 }, { move_bytes, 120, 1 },  { use_epoll, 100, 1 },     { use_files, 200, 1 },
	{ use_memory_files, 40, 1 }, { use_locks, 40, 1 },   { meet, 20, 1 },	  { pair, 10, 1 },
	{ talk, 100, 1 },	   { pass_rights, 40, 1 },   { map_area, 30, 1 },       { change_area, 160, 1 },
	{ look_at_pages, 20, 1 },  { copy_between, 20, 1 },  { use_watcher, 90, 1 },  { watch_new, 40, 1 },   { fork_child, 10, 0 },
	{ vfork_child, 8, 0 },     { use_pidfd, 16, 0 },     { execute, 14, 0 },	{ use_futex, 14, 0 },
	{ answer_message, 14, 0 }, { use_signals, 20, 1 },   { trace_child, 24, 0 },    { use_segments, 30, 1 },
	{ use_semaphores, 30, 1 }, { use_ring, 24, 1 },      { use_mounts, 14, 0 },     { use_swap, 30, 0 },
	{ use_groups, 14, 0 },
};
enum { WORKS = sizeof work / sizeof *work };

static void step(void)
{
	int total = 0;
	for (int i = 0; i < WORKS; i++)
		total += work[i].weight;
	long pick = below(total);
	int chosen = 0;
	while ((pick -= work[chosen].weight) >= 0)
		chosen++;
	if (!in_child || work[chosen].by_child)
		work[chosen].work();
	/* Removes a random descriptor from the tables. */
	if (one_in(6))
		drop((enum kind)below(KINDS), (int)below(HELD));
}

/* A fault outside `touch` ends the worker, and the run fails. */
static void on_fault(int number)
{
	if (!touching) {
		signal(number, SIG_DFL);
		return;
	}
	siglongjmp(recovery, 1);
}

/* A worker that has not exited after LIMIT seconds counts as hung. */
static void on_alarm(int number)
{
	static int seconds;
	if (++seconds == LIMIT) {
		signal(number, SIG_DFL);
		raise(number);
	}
}

/* Executes a worker, from its first call to its exit. */
static _Noreturn void live(int lane, uint64_t seed)
{
	me.lane = lane;
	me.random = seed * 0x9e3779b97f4a7c15ULL | 1;
	me.budget = LIFE;
	me.shm = me.sem = me.uffd = -1;
	me.buffer = mmap(NULL, BUFFER + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (me.buffer == MAP_FAILED || mprotect(me.buffer + BUFFER, PAGE, PROT_NONE))
		leave(2);
	memset(me.held, -1, sizeof me.held);
	for (int i = 0; i < 8; i++)
		next();
	/* Redirects the standard descriptors, so that no call with a mutated descriptor writes to the output. */
	int nowhere = open("/dev/null", O_RDWR);
	for (int i = 0; i < 3; i++)
		dup2(nowhere, i);
	close(nowhere);
	signal(SIGSEGV, on_fault);
	signal(SIGBUS, on_fault);
	signal(SIGPIPE, SIG_IGN);
	uint64_t queued = 1ULL << (SIGUSR1 - 1) | 1ULL << (SIGRTMIN - 1);
	raw(SYS_rt_sigprocmask, SIG_BLOCK, (long)&queued, 0, 8, 0, 0);
	/* SIGALRM interrupts a call that blocks unexpectedly. */
	struct sigaction at_times = { .sa_handler = on_alarm };
	struct itimerval each_second = { { 1, 0 }, { 1, 0 } };
	sigaction(SIGALRM, &at_times, NULL);
	setitimer(ITIMER_REAL, &each_second, NULL);
	while (me.budget > 0)
		step();
	if (me.shm >= 0)
		raw(SYS_shmctl, me.shm, IPC_RMID, 0, 0, 0, 0);
	if (me.sem >= 0)
		raw(SYS_semctl, me.sem, 0, IPC_RMID, 0, 0, 0);
	leave(0);
}

/* Returns a row of /proc/meminfo in KiB. */
static long memory_row(const char *name)
{
	char line[128];
	long value = -1;
	FILE *file = fopen("/proc/meminfo", "r");
	while (file && value < 0 && fgets(line, sizeof line, file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = atol(line + strlen(name));
	if (file)
		fclose(file);
	return value;
}

static int exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static void prepare(void)
{
	char path[64];
	mkdir("/tmp/sequences", 0755);
	for (int lane = 0; lane < LANES; lane++) {
		snprintf(path, sizeof path, "/tmp/sequences/%d", lane);
		mkdir(path, 0755);
		snprintf(path, sizeof path, "/tmp/sequences/%d/m", lane);
		me.has_mounts = mkdir(path, 0755) == 0 && geteuid() == 0;
		snprintf(path, sizeof path, "/tmp/sequences/%d/c", lane);
		mkdir(path, 0755);
	}
	/* Cgroups are used only if they are mounted and the program is root of the whole machine, so that other users'
	 * cgroups are not changed. */
	me.has_groups = getpid() < 8 && geteuid() == 0 && exists("/sys/fs/cgroup/cgroup.procs") && exists(device);
	if (me.has_groups) {
		int control = open("/sys/fs/cgroup/cgroup.subtree_control", O_WRONLY);
		if (control >= 0 && write(control, "+memory", 7) < 0)
			perror("+memory");
		close(control);
	}
	me.has_swap = exists(device);
}

/* Removes everything that a worker left in its folders. */
static void clear(void)
{
	char path[64];
	for (int lane = 0; lane < LANES; lane++)
		for (int name = 0; name < 6; name++) {
			snprintf(path, sizeof path, "/tmp/sequences/%d/n%d", lane, name);
			if (unlink(path) < 0)
				rmdir(path);
		}
}

/* Runs `lives` workers, LANES at a time. Returns false if one of them hung or crashed. */
static int run(long lives, uint64_t seed)
{
	pid_t workers[LANES] = { 0 };
	long begun = 0, ended = 0;
	int good = 1;
	while (ended < lives) {
		for (int lane = 0; lane < LANES; lane++)
			if (!workers[lane] && begun < lives) {
				begun++;
				workers[lane] = fork();
				if (workers[lane] == 0)
					live(lane, seed + (uint64_t)begun);
			}
		int status = 0;
		pid_t pid = waitpid(-1, &status, 0);
		for (int lane = 0; lane < LANES; lane++)
			if (workers[lane] == pid) {
				workers[lane] = 0;
				ended++;
				if (WIFSIGNALED(status))
					shared->killed[WTERMSIG(status) & 63]++;
				good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
			}
	}
	return good;
}

int main(int count, char **arguments)
{
	if (count > 1 && strcmp(arguments[1], "leaf") == 0)
		return CHILD_CODE;
	long calls = count > 1 ? atol(arguments[1]) : 16000;
	uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 0) : 1;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 2;
	prepare();
	long lives = (calls + LIFE - 1) / LIFE, first = (lives + 1) / 2;
	/* In the first half, the kernel's heap and its lists of free frames grow to their final sizes. */
	int good = run(first, seed << 20);
	clear();
	long before = memory_row("MemFree:");
	good &= run(lives - first, (seed << 20) + (uint64_t)first);
	clear();
	long after = memory_row("MemFree:");
	static const char *const names[] = {
#define X(name) #name,
		CALLS(X)
#undef X
	};
	for (int i = 0; i < CALL_COUNT; i++)
		printf("call %s tried %lu succeeded %lu%s\n", names[i], shared->tried[i], shared->succeeded[i],
		       shared->lacking[i] && shared->lacking[i] == shared->tried[i] ? " missing" : "");
	for (int i = 1; i < 65; i++)
		if (shared->killed[i])
			printf("workers ended by signal %d: %lu\n", i, shared->killed[i]);
	printf("%lu calls of %ld workers, KiB free: %ld after the first half, %ld at the end\n", shared->made, lives, before, after);
	printf("%s sequences\n", good ? "ok" : "not ok");
	return !good;
}
