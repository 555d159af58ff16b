# Redis over TCP: 20,000 writes by its benchmark, and a snapshot by a forked child
# package: redis-server
mark=/workload/mark; test -x $mark || mark=true
cd /tmp
redis-server --port 6390 --save '' --dir /tmp --logfile /tmp/log --daemonize no &
until redis-cli -p 6390 ping > /tmp/answer 2> /tmp/error; do sleep 0.05; done
redis-benchmark -p 6390 -q -t set -n 20000 -r 20000 -d 256 -c 10 > /tmp/benchmark
$mark begin 1
redis-cli -p 6390 bgsave > /tmp/answer
until redis-cli -p 6390 info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.05; done
$mark end 1
redis-cli -p 6390 dbsize | head -c 2
echo
redis-cli -p 6390 shutdown nosave
wait
echo saved
