/* Functions that vary the time at which two racing threads meet. */
#ifndef RACES_H
#define RACES_H

#include <sched.h>

/* Shifts the calls of one thread relative to the stores of the others. */
static unsigned long offset;

/* Executes a number of instructions that differs between rounds. */
static inline void shift(unsigned long round)
{
	for (volatile unsigned long i = (offset * 31 + round * 7) % 101; i > 0; i--)
		;
}

/* Does what `shift` does, and also lets the other threads run, on their CPUs and sometimes on this one. */
static inline void shift_and_give_way(unsigned long round)
{
	shift(round);
	for (unsigned long i = 0; i < 20; i++)
		__builtin_ia32_pause();
	if (round % 8 == 0)
		sched_yield();
}

#endif
