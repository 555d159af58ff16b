# Redis fills a third of the memory, and 500 random keys are written while a forked child saves it
# package: redis-server
mark=/workload/mark; test -x $mark || mark=true
cd /tmp
redis-server --port 6391 --save '' --dir /tmp --logfile /tmp/log --daemonize no --enable-debug-command yes &
until redis-cli -p 6391 ping > /tmp/answer 2> /tmp/error; do sleep 0.05; done
# A record of 1,000 bytes takes about 1,200 bytes.
while read -r name kib unit; do
	test $name = MemTotal: && records=$((kib * 1024 / 3 / 1200))
done < /proc/meminfo
redis-cli -p 6391 debug populate $records key 1000 > /tmp/answer
$mark begin 1
redis-cli -p 6391 bgsave > /tmp/answer
redis-benchmark -p 6391 -q -t set -n 500 -r $records -d 1000 -c 1 > /tmp/benchmark
until redis-cli -p 6391 info persistence | grep -q rdb_bgsave_in_progress:0; do sleep 0.2; done
$mark end 1
redis-cli -p 6391 info stats | grep latest_fork_usec >&2
redis-cli -p 6391 info persistence | grep -E 'rdb_last_cow_size|rdb_last_bgsave_status' >&2
redis-cli -p 6391 shutdown nosave
wait
echo saved
