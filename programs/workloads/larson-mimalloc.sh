# Threads that follow one another replace blocks of 8 to 1,000 bytes at random, on mimalloc
# package: gcc libmimalloc2.0
mark=/workload/mark; test -x $mark || mark=true
gcc -O2 -pthread -o /tmp/larson "${0%/*}/data/larson.c" || exit
$mark begin 1
LD_PRELOAD=libmimalloc.so.2 /tmp/larson || exit
$mark end 1
