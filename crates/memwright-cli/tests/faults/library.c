/* The library of faults.c. */
void touch_twenty(volatile char *memory)
{
	for (int page = 0; page < 20; page++)
		memory[page * 4096] = 1; /* in the library */
}
