# gdb stops a program at a breakpoint 50 times, and at a watchpoint
# package: gdb gcc
cat > /tmp/loop.c <<'END'
#include <stdio.h>
volatile int value;
__attribute__((noinline)) void visit(int i) { value = i * i; }
int main(void) { for (int i = 0; i < 60; i++) visit(i); printf("%d\n", value); }
END
gcc -g -O1 -o /tmp/loop /tmp/loop.c
gdb -nx -q -batch -ex 'set debuginfod enabled off' -ex 'break visit' -ex 'run' -ex 'ignore 1 50' -ex 'continue' -ex 'print i' \
	-ex 'delete' -ex 'watch value' -ex 'continue' -ex 'continue' -ex 'backtrace' -ex 'delete' -ex 'continue' /tmp/loop \
	2>&1 | grep -vE 'warning|libthread|process|0x'
