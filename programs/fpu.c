/* Does each process keep its floating-point and vector registers, whatever other processes execute in between?
 *
 * Several processes keep different values in the x87 stack, the control words and the vector registers, during a loop
 * that is long enough to be preempted many times and during system calls that yield the CPU.
 */
#include "check.h"
#include <sched.h>
#include <time.h>

enum { PROCESSES = 6, ROUNDS = 40, SPIN = 400000 };

static unsigned char vectors[16][32], seen[16][32];

/* Loads sixteen registers, spins, and stores them, in one block of assembly so that the compiler uses none of them in
 * between. */
static void hold_ymm(long spin)
{
	__asm__ volatile("vmovdqu 0x000(%1), %%ymm0; vmovdqu 0x020(%1), %%ymm1; vmovdqu 0x040(%1), %%ymm2;"
			 "vmovdqu 0x060(%1), %%ymm3; vmovdqu 0x0e0(%1), %%ymm7; vmovdqu 0x100(%1), %%ymm8;"
			 "vmovdqu 0x180(%1), %%ymm12; vmovdqu 0x1e0(%1), %%ymm15;"
			 "1: dec %0; jnz 1b;"
			 "vmovdqu %%ymm0, 0x000(%2); vmovdqu %%ymm1, 0x020(%2); vmovdqu %%ymm2, 0x040(%2);"
			 "vmovdqu %%ymm3, 0x060(%2); vmovdqu %%ymm7, 0x0e0(%2); vmovdqu %%ymm8, 0x100(%2);"
			 "vmovdqu %%ymm12, 0x180(%2); vmovdqu %%ymm15, 0x1e0(%2); vzeroupper"
			 : "+r"(spin)
			 : "r"(vectors), "r"(seen)
			 : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm7", "xmm8", "xmm12", "xmm15");
}

static void hold_xmm(long spin)
{
	__asm__ volatile("movdqu 0x000(%1), %%xmm0; movdqu 0x020(%1), %%xmm1; movdqu 0x040(%1), %%xmm2;"
			 "movdqu 0x060(%1), %%xmm3; movdqu 0x0e0(%1), %%xmm7; movdqu 0x100(%1), %%xmm8;"
			 "movdqu 0x180(%1), %%xmm12; movdqu 0x1e0(%1), %%xmm15;"
			 "1: dec %0; jnz 1b;"
			 "movdqu %%xmm0, 0x000(%2); movdqu %%xmm1, 0x020(%2); movdqu %%xmm2, 0x040(%2);"
			 "movdqu %%xmm3, 0x060(%2); movdqu %%xmm7, 0x0e0(%2); movdqu %%xmm8, 0x100(%2);"
			 "movdqu %%xmm12, 0x180(%2); movdqu %%xmm15, 0x1e0(%2)"
			 : "+r"(spin)
			 : "r"(vectors), "r"(seen)
			 : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm7", "xmm8", "xmm12", "xmm15");
}

/* Keeps three values on the x87 stack while it spins. */
static void hold_x87(long spin, double first)
{
	double values[3] = { first, first * 2, first * 3 }, back[3];
	__asm__ volatile("fldl 0(%1); fldl 8(%1); fldl 16(%1);"
			 "1: dec %0; jnz 1b;"
			 "fstpl 16(%2); fstpl 8(%2); fstpl 0(%2)"
			 : "+r"(spin)
			 : "r"(values), "r"(back)
			 : "memory", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)");
	for (int i = 0; i < 3; i++)
		CHECK(values[i] == back[i]);
}

static void run_one(int me)
{
	static const int used[] = { 0, 1, 2, 3, 7, 8, 12, 15 };
	int avx = __builtin_cpu_supports("avx");
	/* Each process has its own rounding mode, in MXCSR and in the x87 control word. */
	uint32_t control = 0x1f80u | (uint32_t)(me % 4) << 13, control_back;
	uint16_t word = (uint16_t)(0x37f & ~0xc00) | (uint16_t)(me % 4 << 10), word_back;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 16; i++)
			for (int j = 0; j < 32; j++)
				vectors[i][j] = (unsigned char)(me * 37 + round * 11 + i * 3 + j);
		memset(seen, 0, sizeof seen);
		__asm__ volatile("ldmxcsr %0" ::"m"(control));
		__asm__ volatile("fldcw %0" ::"m"(word));
		if (avx)
			hold_ymm(SPIN);
		else
			hold_xmm(SPIN);
		for (size_t i = 0; i < sizeof used / sizeof *used; i++)
			CHECK_EQ(memcmp(vectors[used[i]], seen[used[i]], avx ? 32 : 16), 0);
		hold_x87(SPIN / 4, 1.5 + me);
		if (round % 8 == 0) {
			struct timespec moment = { 0, 1000000 };
			nanosleep(&moment, NULL);
		} else {
			sched_yield();
		}
		__asm__ volatile("stmxcsr %0" : "=m"(control_back));
		__asm__ volatile("fnstcw %0" : "=m"(word_back));
		CHECK_EQ(control_back & 0x6000, control & 0x6000);
		CHECK_EQ(word_back & 0xc00, word & 0xc00);
	}
}

int main(void)
{
	/* A new program starts with the default control words. */
	uint32_t control;
	uint16_t word;
	__asm__ volatile("stmxcsr %0" : "=m"(control));
	__asm__ volatile("fnstcw %0" : "=m"(word));
	CHECK_EQ(control, 0x1f80);
	CHECK_EQ(word, 0x37f);
	pid_t children[PROCESSES];
	for (int i = 0; i < PROCESSES; i++) {
		children[i] = fork_checked();
		NEED(children[i] >= 0);
		if (children[i] == 0) {
			run_one(i);
			end_child();
		}
	}
	for (int i = 0; i < PROCESSES; i++)
		CHECK(exited(wait_for(children[i]), 0));

	/* A child inherits the control word. */
	control = 0x1f80u | 1u << 13;
	__asm__ volatile("ldmxcsr %0" ::"m"(control));
	pid_t child = fork_checked();
	if (child == 0) {
		uint32_t inherited;
		__asm__ volatile("stmxcsr %0" : "=m"(inherited));
		CHECK_EQ(inherited & 0x6000, 0x2000);
		end_child();
	}
	CHECK(exited(wait_for(child), 0));
	return checked("fpu");
}
