/* Are signals delivered to the right thread (signals to a thread, signals to the process, signals for which a thread
 * waits), and does each thread have its own mask, pending set and alternate stack?
 */
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/time.h>

static pid_t thread_id(void)
{
	return (pid_t)syscall(SYS_gettid);
}

static int send_to(pid_t thread, int signal)
{
	return (int)syscall(SYS_tgkill, getpid(), thread, signal);
}

static volatile pid_t handled_by, sent_code, sent_by;
static volatile int handled;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	handled_by = thread_id();
	sent_code = info->si_code;
	sent_by = info->si_pid;
	__atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}

static void on(int signal, int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	sigaction(signal, &action, NULL);
}

static void block(int how, int signal)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	pthread_sigmask(how, &set, NULL);
}

static int is_pending(int signal)
{
	sigset_t set;
	sigpending(&set);
	return sigismember(&set, signal);
}

static void await_handled(int count)
{
	while (__atomic_load_n(&handled, __ATOMIC_SEQ_CST) < count)
		sched_yield();
}

/* A thread that stores its ID and executes a function until it is told to stop. */
struct worker {
	pthread_t thread;
	volatile pid_t id;
	volatile int stop;
	int blocks;
	volatile int pending, result, error;
};

static void *spinning(void *argument)
{
	struct worker *self = argument;
	if (self->blocks)
		block(SIG_BLOCK, self->blocks);
	self->id = thread_id();
	while (!self->stop)
		;
	self->pending = is_pending(SIGUSR1);
	return NULL;
}

static void *yielding(void *argument)
{
	struct worker *self = argument;
	if (self->blocks)
		block(SIG_BLOCK, self->blocks);
	self->id = thread_id();
	while (!self->stop)
		sched_yield();
	self->pending = is_pending(SIGUSR1);
	return NULL;
}

static void start(struct worker *worker, void *(*work)(void *), int blocks)
{
	memset(worker, 0, sizeof *worker);
	worker->blocks = blocks;
	NEED(pthread_create(&worker->thread, NULL, work, worker) == 0);
	while (!worker->id)
		sched_yield();
}

static void end(struct worker *worker)
{
	worker->stop = 1;
	pthread_join(worker->thread, NULL);
}

/* tgkill delivers the signal to that thread and to no other, with the code SI_TKILL. */
static void for_one_thread(void)
{
	struct worker one, two;
	on(SIGUSR1, 0);
	start(&one, spinning, 0);
	start(&two, yielding, 0);
	handled = 0;
	CHECK_EQ(send_to(two.id, SIGUSR1), 0);
	await_handled(1);
	CHECK_EQ(handled_by, two.id);
	CHECK_EQ(sent_code, SI_TKILL);
	CHECK_EQ(sent_by, getpid());
	CHECK_EQ(send_to(one.id, SIGUSR1), 0);
	await_handled(2);
	CHECK_EQ(handled_by, one.id);
	CHECK_EQ(send_to(thread_id(), SIGUSR1), 0);
	CHECK_EQ(handled, 3);
	CHECK_EQ(handled_by, thread_id());
	CHECK_FAILS(syscall(SYS_tgkill, getpid() + 1, one.id, 0), ESRCH);
	CHECK_FAILS(syscall(SYS_tgkill, getpid(), 0, 0), EINVAL);
	CHECK_EQ(syscall(SYS_tkill, one.id, 0), 0);
	pid_t gone = one.id;
	end(&one);
	end(&two);
	CHECK_FAILS(send_to(gone, 0), ESRCH);
}

/* A signal that its target thread blocks stays pending for that thread. */
static void blocked_for_one(void)
{
	struct worker worker;
	on(SIGUSR1, 0);
	start(&worker, yielding, SIGUSR1);
	handled = 0;
	CHECK_EQ(send_to(worker.id, SIGUSR1), 0);
	CHECK(!is_pending(SIGUSR1));
	end(&worker);
	CHECK_EQ(worker.pending, 1);
	CHECK_EQ(handled, 0);
	CHECK(!is_pending(SIGUSR1));
}

/* A signal to the process is delivered to a thread that does not block it. */
static void for_the_process(void)
{
	struct worker one, two;
	on(SIGUSR1, 0);
	start(&one, yielding, SIGUSR1);
	start(&two, spinning, 0);
	block(SIG_BLOCK, SIGUSR1);
	handled = 0;
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	await_handled(1);
	CHECK_EQ(handled_by, two.id);
	CHECK_EQ(sent_code, SI_USER);
	end(&two);
	/* If all threads block the signal, it stays pending for the process, and the first thread to unblock it
	 * receives it. */
	CHECK_EQ(kill(getpid(), SIGUSR1), 0);
	CHECK(is_pending(SIGUSR1));
	end(&one);
	CHECK_EQ(one.pending, 1);
	CHECK_EQ(handled, 1);
	block(SIG_UNBLOCK, SIGUSR1);
	CHECK_EQ(handled, 2);
	CHECK_EQ(handled_by, thread_id());
}

/* If the chosen thread exits or blocks the signal before it is delivered, another thread receives it. */
static void *end_at_once(void *argument)
{
	return argument;
}

static void taken_over(void)
{
	on(SIGUSR1, SA_RESTART);
	handled = 0;
	int wanted = 0;
	for (int round = 0; round < 200; round++) {
		pthread_t thread;
		block(SIG_UNBLOCK, SIGUSR1);
		NEED(pthread_create(&thread, NULL, end_at_once, NULL) == 0);
		block(SIG_BLOCK, SIGUSR1);
		kill(getpid(), SIGUSR1);
		pthread_join(thread, NULL);
		block(SIG_UNBLOCK, SIGUSR1);
		wanted++;
		await_handled(wanted);
	}
	CHECK_EQ(handled, wanted);
}

/* Blocking calls of a thread are interrupted or restarted by its own signals, and continue if a signal is for another
 * thread. */
static int ends[2];

static void *reading(void *argument)
{
	struct worker *self = argument;
	char byte;
	self->id = thread_id();
	self->result = (int)read(ends[0], &byte, 1);
	self->error = errno;
	return NULL;
}

static void interrupted_calls(void)
{
	struct worker worker;
	NEED(pipe(ends) == 0);
	on(SIGUSR1, 0);
	handled = 0;
	start(&worker, reading, 0);
	usleep(2000);
	CHECK_EQ(send_to(worker.id, SIGUSR1), 0);
	pthread_join(worker.thread, NULL);
	CHECK_EQ(worker.result, -1);
	CHECK_EQ(worker.error, EINTR);
	CHECK_EQ(handled, 1);
	on(SIGUSR1, SA_RESTART);
	start(&worker, reading, 0);
	usleep(2000);
	CHECK_EQ(send_to(worker.id, SIGUSR1), 0);
	await_handled(2);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	pthread_join(worker.thread, NULL);
	CHECK_EQ(worker.result, 1);
	on(SIGUSR1, 0);
	start(&worker, reading, 0);
	usleep(2000);
	CHECK_EQ(send_to(thread_id(), SIGUSR1), 0);
	CHECK_EQ(write(ends[1], "x", 1), 1);
	pthread_join(worker.thread, NULL);
	CHECK_EQ(worker.result, 1);
	close(ends[0]);
	close(ends[1]);
}

/* sigwait and related calls: a thread that waits for a signal receives it, although it blocks the signal. */
static void *waiting(void *argument)
{
	struct worker *self = argument;
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	self->id = thread_id();
	self->result = sigwaitinfo(&set, &info);
	self->error = info.si_code;
	return NULL;
}

static void waited_for(void)
{
	struct worker one, two;
	block(SIG_BLOCK, SIGUSR2);
	start(&one, waiting, 0);
	usleep(2000);
	CHECK_EQ(kill(getpid(), SIGUSR2), 0);
	pthread_join(one.thread, NULL);
	CHECK_EQ(one.result, SIGUSR2);
	CHECK_EQ(one.error, SI_USER);
	/* If two threads wait, each signal is received once. */
	start(&one, waiting, 0);
	start(&two, waiting, 0);
	usleep(2000);
	CHECK_EQ(send_to(two.id, SIGUSR2), 0);
	pthread_join(two.thread, NULL);
	CHECK_EQ(two.result, SIGUSR2);
	/* glibc reports SI_TKILL as SI_USER here. */
	CHECK(two.error == SI_TKILL || two.error == SI_USER);
	CHECK_EQ(kill(getpid(), SIGUSR2), 0);
	pthread_join(one.thread, NULL);
	CHECK_EQ(one.result, SIGUSR2);
	CHECK(!is_pending(SIGUSR2));
	/* No signal arrives, so the timeout expires. */
	sigset_t set;
	struct timespec moment = {0, 1000000};
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK_FAILS(sigtimedwait(&set, NULL, &moment), EAGAIN);
	block(SIG_UNBLOCK, SIGUSR2);
}

/* Each thread has its own alternate stack. A new thread has none. */
static void *has_no_stack(void *argument)
{
	stack_t stack;
	sigaltstack(NULL, &stack);
	*(int *)argument = stack.ss_flags;
	return NULL;
}

static void alternate_stacks(void)
{
	int flags = 0;
	pthread_t thread;
	stack_t stack = {.ss_sp = anonymous(64 * 1024), .ss_size = 64 * 1024}, got;
	NEED(stack.ss_sp && sigaltstack(&stack, NULL) == 0);
	NEED(pthread_create(&thread, NULL, has_no_stack, &flags) == 0);
	pthread_join(thread, NULL);
	CHECK_EQ(flags, SS_DISABLE);
	sigaltstack(NULL, &got);
	CHECK(got.ss_sp == stack.ss_sp);
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
}

/* A fault raises its signal in the faulting thread. */
static volatile pid_t faulted_by;
static char *guarded;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	faulted_by = thread_id();
	mprotect((char *)((uintptr_t)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
}

static void *faulting(void *argument)
{
	struct worker *self = argument;
	self->id = thread_id();
	guarded[0] = 1;
	self->result = faulted_by == self->id;
	return NULL;
}

static void faults(void)
{
	struct worker worker;
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &action, NULL);
	for (int round = 0; round < 20; round++) {
		guarded = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		start(&worker, faulting, 0);
		pthread_join(worker.thread, NULL);
		CHECK_EQ(worker.result, 1);
		munmap(guarded, PAGE);
	}
	signal(SIGSEGV, SIG_DFL);
}

/* An interval timer belongs to the process. Any thread may be interrupted, but only one of them per expiration. */
static void interval_timer(void)
{
	struct worker workers[3];
	struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	on(SIGALRM, SA_RESTART);
	handled = 0;
	for (int i = 0; i < 3; i++)
		start(&workers[i], spinning, 0);
	setitimer(ITIMER_REAL, &often, NULL);
	await_handled(20);
	setitimer(ITIMER_REAL, &never, NULL);
	for (int i = 0; i < 3; i++)
		end(&workers[i]);
	CHECK(handled >= 20);
}

/* Threads send signals to one another in a circle, and no signal is lost. */
enum { CIRCLE = 6, LAPS = 300 };
static volatile pid_t circle[CIRCLE];
static volatile int taken[CIRCLE];
static __thread int place;

static void pass_on(int signal)
{
	(void)signal;
	taken[place]++;
}

static void *in_circle(void *argument)
{
	sigset_t empty;
	sigemptyset(&empty);
	place = *(int *)argument;
	block(SIG_BLOCK, SIGUSR1);
	circle[place] = thread_id();
	for (int lap = 1; lap <= LAPS; lap++) {
		while (taken[place] < lap)
			sigsuspend(&empty);
		if (place + 1 < CIRCLE)
			send_to(circle[place + 1], SIGUSR1);
		else if (lap < LAPS)
			send_to(circle[0], SIGUSR1);
	}
	return NULL;
}

static void round_the_circle(void)
{
	pthread_t threads[CIRCLE];
	int places[CIRCLE];
	signal(SIGUSR1, pass_on);
	for (int i = 0; i < CIRCLE; i++) {
		places[i] = i;
		NEED(pthread_create(&threads[i], NULL, in_circle, &places[i]) == 0);
		while (!circle[i])
			sched_yield();
	}
	send_to(circle[0], SIGUSR1);
	for (int i = 0; i < CIRCLE; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(taken[i], LAPS);
	}
}

int main(void)
{
	for_one_thread();
	blocked_for_one();
	for_the_process();
	taken_over();
	interrupted_calls();
	waited_for();
	alternate_stacks();
	faults();
	interval_timer();
	round_the_circle();
	return checked("signals_threads");
}
