# gcc compiles and links four C files with optimisation
# package: gcc
mark=/workload/mark; test -x $mark || mark=true
cd /tmp
for unit in 1 2 3 4; do
	{
		echo '#include <stdio.h>'
		echo '#include <stdlib.h>'
		echo '#include <string.h>'
		for function in $(seq 60); do
			echo "int work_${unit}_$function(const char *s, int n) {"
			echo "int sum = $function; for (int i = 0; i < n; i++) { sum = sum * 31 + s[i % (int)strlen(s)]; if (sum & 1) sum ^= i; }"
			echo "return sum; }"
		done
	} > unit$unit.c
done
{
	for unit in 1 2 3 4; do echo "int work_${unit}_7(const char *, int);"; done
	echo '#include <stdio.h>'
	echo 'int main(void) { printf("%d", work_1_7("abc", 9) ^ work_2_7("abc", 9) ^ work_3_7("x", 5) ^ work_4_7("yz", 3)); }'
} > main.c
$mark begin 1
for unit in unit1 unit2 unit3 unit4 main; do gcc -O2 -c $unit.c || exit 1; done
gcc -o program *.o || exit 1
$mark end 1
./program
