/* Is a forged signal frame handled safely: do selectors and vector state that the processor would not load cause a
 * segmentation fault in the program, without reaching the processor?
 */
#include "check.h"
#include <ucontext.h>

/* From asm/sigcontext.h and asm/ucontext.h. */
enum { SOFTWARE = 464, HEADER = 512, MXCSR = 24, STRICT_SS = 4 };
enum { CODE = REG_CSGSFS };

enum forgery {
	NOTHING,
	CODE_OF_KERNEL,
	CODE_NULL,
	CODE_LOWEST,
	STACK_OF_KERNEL,
	STACK_NULL,
	STACK_NOT_STRICT,
	MXCSR_ALL,
	MXCSR_RESERVED,
	MXCSR_PLAIN,
	FEATURE_RESERVED,
	FORM_COMPACT,
	HEADER_RESERVED,
	STATE_UNALIGNED,
	STATE_BAD,
	FORGERIES
};

/* 1 if the thread continues after the forged frame, 0 if it takes a fault. */
static const char survives[FORGERIES] = {
	[NOTHING] = 1, [CODE_LOWEST] = 1, [STACK_NOT_STRICT] = 1, [MXCSR_ALL] = 1,
};

static volatile int forging;

static void put(char *state, int at, uint32_t value)
{
	memcpy(state + at, &value, sizeof value);
}

static void forge(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)info;
	ucontext_t *frame = context;
	greg_t *regs = frame->uc_mcontext.gregs;
	char *state = (char *)frame->uc_mcontext.fpregs;
	unsigned long selectors = (unsigned long)regs[CODE];
	unsigned long code = selectors & 0xffff, stack = selectors >> 48;
	switch ((enum forgery)forging) {
	case NOTHING:
	case FORGERIES:
		break;
	case CODE_OF_KERNEL:
		code = 0x10;
		break;
	case CODE_NULL:
		code = 0;
		break;
	case CODE_LOWEST:
		code &= ~3UL;
		break;
	case STACK_OF_KERNEL:
		stack = 0x18;
		break;
	case STACK_NULL:
		stack = 0;
		break;
	case STACK_NOT_STRICT:
		stack = 0;
		frame->uc_flags &= ~(unsigned long)STRICT_SS;
		break;
	case MXCSR_ALL:
		put(state, MXCSR, 0x1f80);
		break;
	case MXCSR_RESERVED:
		put(state, MXCSR, 0x10000);
		break;
	case MXCSR_PLAIN:
		/* Removes the magic number that marks the state after the legacy region. */
		put(state, SOFTWARE, 0);
		put(state, MXCSR, 0x80001f80);
		break;
	case FEATURE_RESERVED:
		state[HEADER + 7] |= 0x40;
		break;
	case FORM_COMPACT:
		state[HEADER + 15] |= (char)0x80;
		break;
	case HEADER_RESERVED:
		state[HEADER + 16] = 1;
		break;
	case STATE_UNALIGNED:
		frame->uc_mcontext.fpregs = (void *)(state + 8);
		break;
	case STATE_BAD:
		frame->uc_mcontext.fpregs = (void *)~63UL;
		break;
	}
	regs[CODE] = (greg_t)((selectors & 0x0000ffffffff0000) | code | stack << 48);
}

static void faulted(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	_exit(info->si_code == SI_KERNEL && info->si_addr == NULL ? 17 : 18);
}

static void once(void *which)
{
	forging = *(int *)which;
	raise(SIGUSR1);
	_exit(16);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = forge, .sa_flags = SA_SIGINFO };
	NEED(sigaction(SIGUSR1, &action, NULL) == 0);
	action.sa_sigaction = faulted;
	NEED(sigaction(SIGSEGV, &action, NULL) == 0);
	for (int which = 0; which < FORGERIES; which++) {
		int status = in_child(once, &which);
		if (!CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -status, survives[which] ? 16 : 17))
			printf("that was forgery %d\n", which);
	}
	/* Without a handler, the fault kills the program. */
	action.sa_handler = SIG_DFL;
	action.sa_flags = 0;
	NEED(sigaction(SIGSEGV, &action, NULL) == 0);
	for (int which = 0; which < FORGERIES; which++)
		if (!survives[which])
			CHECK(killed(in_child(once, &which), SIGSEGV));
	return checked("forged_frames");
}
