/* Marks the beginning or the end of a region for a shell script: `mark begin 1`, `mark end 1`. The regions are 1 to 8.
 */
#include <stdlib.h>
#include <string.h>

#include "mark.h"

#define REGION(number) \
	case (number) << 1: \
		MARK_BEGIN(number); \
		return 0; \
	case (number) << 1 | 1: \
		MARK_END(number); \
		return 0

int main(int count, char **words)
{
	if (count != 3 || (strcmp(words[1], "begin") != 0 && strcmp(words[1], "end") != 0))
		return 2;
	switch (atoi(words[2]) << 1 | (strcmp(words[1], "end") == 0)) {
		REGION(1);
		REGION(2);
		REGION(3);
		REGION(4);
		REGION(5);
		REGION(6);
		REGION(7);
		REGION(8);
	}
	return 2;
}
