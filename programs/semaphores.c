/* Do calls on semaphore sets perform all of their operations or none, wait, undo the operations of exited processes,
 * and fail if they are invalid?
 */
#include "check.h"
#include <sys/sem.h>
#include <time.h>

union value {
	int one;
	struct semid_ds *status;
	unsigned short *all;
	struct seminfo *limits;
};

static int new_set(int count)
{
	int set = semget(IPC_PRIVATE, count, 0600);
	NEED(set >= 0);
	return set;
}

static int operate(int set, int number, int add, int flags)
{
	struct sembuf one = { number, add, flags };
	return semop(set, &one, 1);
}

static int get(int set, int number)
{
	return semctl(set, number, GETVAL);
}

static void until(int set, int number, int command, int count)
{
	while (semctl(set, number, command) != count)
		usleep(1000);
}

static void values(void)
{
	int set = new_set(3);
	union value argument = { .one = 5 };
	CHECK_EQ(get(set, 0), 0);
	CHECK_EQ(semctl(set, 1, SETVAL, argument), 0);
	CHECK_EQ(get(set, 1), 5);
	CHECK_EQ(semctl(set, 1, GETPID), getpid());
	unsigned short all[3] = { 1, 2, 3 };
	argument.all = all;
	CHECK_EQ(semctl(set, 0, SETALL, argument), 0);
	memset(all, 0, sizeof all);
	CHECK_EQ(semctl(set, 0, GETALL, argument), 0);
	CHECK(all[0] == 1 && all[1] == 2 && all[2] == 3);
	all[1] = 32768;
	CHECK_FAILS(semctl(set, 0, SETALL, argument), ERANGE);
	CHECK_EQ(get(set, 0), 1);
	argument.one = 32768;
	CHECK_FAILS(semctl(set, 0, SETVAL, argument), ERANGE);
	argument.one = -1;
	CHECK_FAILS(semctl(set, 0, SETVAL, argument), ERANGE);
	argument.one = 1;
	CHECK_FAILS(semctl(set, 3, SETVAL, argument), EINVAL);
	CHECK_FAILS(semctl(set, 3, GETVAL), EINVAL);
	CHECK_FAILS(semctl(set, 0, 77), EINVAL);
	CHECK_FAILS(semctl(-1, 0, GETVAL), EINVAL);
	struct semid_ds status;
	argument.status = &status;
	CHECK_EQ(semctl(set, 0, IPC_STAT, argument), 0);
	CHECK_EQ(status.sem_nsems, 3);
	CHECK_EQ(status.sem_perm.mode & 0777, 0600);
	CHECK_EQ(status.sem_perm.uid, geteuid());
	CHECK_EQ(status.sem_otime, 0);
	CHECK(status.sem_ctime != 0);
	status.sem_perm.mode = 0400;
	CHECK_EQ(semctl(set, 0, IPC_SET, argument), 0);
	CHECK_EQ(operate(set, 0, 1, 0), 0);
	CHECK_EQ(semctl(set, 0, IPC_STAT, argument), 0);
	CHECK_EQ(status.sem_perm.mode & 0777, 0400);
	CHECK(status.sem_otime != 0);
	struct seminfo limits;
	argument.limits = &limits;
	CHECK(semctl(0, 0, IPC_INFO, argument) >= 0);
	CHECK_EQ(limits.semvmx, 32767);
	CHECK_EQ(limits.semopm, 500);
	CHECK_EQ(limits.semmsl, 32000);
	/* Every set has an index, up to the one that SEM_INFO returns. */
	int last = semctl(0, 0, SEM_INFO, argument), found = 0;
	CHECK(last >= 0 && limits.semusz >= 1);
	argument.status = &status;
	for (int index = 0; index <= last; index++)
		if (semctl(index, 0, SEM_STAT, argument) == set) {
			found++;
			CHECK_EQ(status.sem_nsems, 3);
		}
	CHECK_EQ(found, 1);
	CHECK_FAILS(semctl(last + 1, 0, SEM_STAT, argument), EINVAL);
	CHECK_FAILS(semctl(-1, 0, SEM_STAT, argument), EINVAL);
	CHECK_EQ(semctl(set, 0, IPC_RMID), 0);
	CHECK_FAILS(semctl(set, 0, GETVAL), EINVAL);
	CHECK_FAILS(operate(set, 0, 1, 0), EINVAL);
}

static void names(void)
{
	key_t key = 0x4d770000 + (getpid() & 0xffff);
	CHECK_FAILS(semget(key, 2, 0600), ENOENT);
	CHECK_FAILS(semget(key, 0, IPC_CREAT | 0600), EINVAL);
	CHECK_FAILS(semget(key, -1, IPC_CREAT | 0600), EINVAL);
	CHECK_FAILS(semget(key, 32001, IPC_CREAT | 0600), EINVAL);
	int set = semget(key, 2, IPC_CREAT | 0600);
	NEED(set >= 0);
	CHECK_EQ(semget(key, 0, 0), set);
	CHECK_EQ(semget(key, 2, IPC_CREAT | 0600), set);
	CHECK_FAILS(semget(key, 3, IPC_CREAT | 0600), EINVAL);
	CHECK_FAILS(semget(key, 2, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
	CHECK_EQ(semctl(set, 0, IPC_RMID), 0);
	CHECK_FAILS(semget(key, 0, 0), ENOENT);
}

static void all_or_nothing(void)
{
	int set = new_set(2);
	struct sembuf both[] = { { 0, 2, 0 }, { 1, -1, IPC_NOWAIT } };
	CHECK_FAILS(semop(set, both, 2), EAGAIN);
	CHECK_EQ(get(set, 0), 0);
	CHECK_EQ(operate(set, 1, 1, 0), 0);
	CHECK_EQ(semop(set, both, 2), 0);
	CHECK(get(set, 0) == 2 && get(set, 1) == 0);
	CHECK_FAILS(operate(set, 0, 0, IPC_NOWAIT), EAGAIN);
	CHECK_EQ(operate(set, 1, 0, IPC_NOWAIT), 0);
	CHECK_FAILS(operate(set, 0, 32767, 0), ERANGE);
	CHECK_FAILS(operate(set, 2, 1, 0), EFBIG);
	CHECK_FAILS(semop(set, both, 0), EINVAL);
	CHECK_FAILS(semop(-1, both, 1), EINVAL);
	static struct sembuf many[501];
	CHECK_FAILS(semop(set, many, 501), E2BIG);
	CHECK_FAILS(semop(set, (void *)8, 1), EFAULT);
	struct timespec short_time = { 0, 2000000 }, bad = { 0, 1000000000 };
	struct sembuf down = { 1, -1, 0 };
	CHECK_FAILS(semtimedop(set, &down, 1, &short_time), EAGAIN);
	CHECK_FAILS(semtimedop(set, &down, 1, &bad), EINVAL);
	CHECK_EQ(semctl(set, 1, GETNCNT), 0);
	semctl(set, 0, IPC_RMID);
}

/* Waiters are served in order, even if a later one needs a smaller value. */
static void waiting(void)
{
	int set = new_set(2);
	pid_t children[3];
	for (int child = 0; child < 3; child++) {
		children[child] = fork();
		NEED(children[child] >= 0);
		if (children[child] == 0) {
			if (child == 2)
				_exit(operate(set, 0, 0, 0) ? 1 : 0);
			struct sembuf down[] = { { 0, -1, 0 }, { 1, 1, 0 } };
			_exit(semop(set, down, 2) || get(set, 1) != child + 1);
		}
		if (child < 2)
			until(set, 0, GETNCNT, child + 1);
	}
	CHECK_EQ(waitpid(children[2], NULL, 0), children[2]);
	for (int child = 0; child < 2; child++) {
		int status = -1;
		CHECK_EQ(operate(set, 0, 1, 0), 0);
		CHECK_EQ(waitpid(children[child], &status, 0), children[child]);
		CHECK_EQ(status, 0);
	}
	CHECK_EQ(get(set, 0), 0);
	/* A child waits until the value is 0. */
	CHECK_EQ(operate(set, 0, 3, 0), 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(operate(set, 0, 0, 0) ? 1 : 0);
	until(set, 0, GETZCNT, 1);
	CHECK_EQ(operate(set, 0, -3, 0), 0);
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	/* A child waits until the set is removed. */
	child = fork();
	NEED(child >= 0);
	if (child == 0)
		_exit(operate(set, 0, -1, 0) == -1 && errno == EIDRM ? 0 : 1);
	until(set, 0, GETNCNT, 1);
	CHECK_EQ(semctl(set, 0, IPC_RMID), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
}

static void on_signal(int signal)
{
	(void)signal;
}

static void interrupted(void)
{
	int set = new_set(1);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
		sigaction(SIGUSR1, &action, NULL);
		_exit(operate(set, 0, -1, 0) == -1 && errno == EINTR ? 0 : 1);
	}
	until(set, 0, GETNCNT, 1);
	CHECK_EQ(kill(child, SIGUSR1), 0);
	int status = -1;
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(semctl(set, 0, GETNCNT), 0);
	CHECK_EQ(operate(set, 0, 1, 0), 0);
	CHECK_EQ(get(set, 0), 1);
	semctl(set, 0, IPC_RMID);
}

static void undone(void)
{
	int set = new_set(3), status = -1;
	CHECK_EQ(operate(set, 0, 2, 0), 0);
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0) {
		/* A child does not inherit the adjustments of SEM_UNDO. */
		pid_t grandchild = fork();
		if (grandchild == 0)
			_exit(operate(set, 2, 3, SEM_UNDO) ? 1 : 0);
		waitpid(grandchild, &status, 0);
		if (status || get(set, 2) != 0 || operate(set, 0, -2, SEM_UNDO))
			_exit(1);
		operate(set, 1, 1, 0);
		pause();
	}
	CHECK_EQ(operate(set, 1, -1, 0), 0);
	CHECK_EQ(get(set, 0), 0);
	CHECK_EQ(kill(child, SIGKILL), 0);
	/* The exit of the child undoes its operations, so that this call can complete. */
	CHECK_EQ(operate(set, 0, -2, 0), 0);
	CHECK_EQ(waitpid(child, &status, 0), child);
	/* Setting a value clears the adjustments. An undo that would make a value negative sets it to 0. */
	child = fork();
	NEED(child >= 0);
	if (child == 0) {
		union value one = { .one = 1 };
		if (operate(set, 0, 5, SEM_UNDO) || semctl(set, 0, SETVAL, one))
			_exit(1);
		_exit(operate(set, 1, 4, SEM_UNDO) || operate(set, 1, -3, 0) ? 1 : 0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(get(set, 0), 1);
	CHECK_EQ(get(set, 1), 0);
	semctl(set, 0, IPC_RMID);
}

static void refused(void)
{
	int set = new_set(1), status = -1;
	pid_t child = fork_checked();
	NEED(child >= 0);
	if (child == 0) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(2);
		CHECK_FAILS(semctl(set, 0, GETVAL), EACCES);
		CHECK_FAILS(operate(set, 0, 1, 0), EACCES);
		CHECK_FAILS(operate(set, 0, 0, 0), EACCES);
		CHECK_FAILS(semctl(set, 0, IPC_RMID), EPERM);
		end_child();
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	semctl(set, 0, IPC_RMID);
}

int main(void)
{
	values();
	names();
	all_or_nothing();
	waiting();
	interrupted();
	undone();
	refused();
	return checked("semaphores");
}
