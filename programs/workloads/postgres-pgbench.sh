# PostgreSQL over TCP: pgbench's tables of scale 1, and 300 transactions by two clients
# package: postgresql-15
mark=/workload/mark; test -x $mark || mark=true; export mark
export PATH=/usr/lib/postgresql/15/bin:$PATH
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '
cd /tmp
initdb -D /tmp/data -A trust -N -U nobody > /tmp/initdb.log 2>&1 || { cat /tmp/initdb.log; exit 1; }
pg_ctl -D /tmp/data -w -o "-k /tmp -p 5499 -c fsync=off -c shared_buffers=32MB -c autovacuum=off" -l /tmp/log start > /tmp/start || { cat /tmp/log; exit 1; }
pgbench -h 127.0.0.1 -p 5499 -U nobody -i -s 1 -q postgres 2>&1 | grep -c done
$mark begin 1
pgbench -h 127.0.0.1 -p 5499 -U nobody -c 2 -t 150 -n postgres | grep -E "processed|failed"
$mark end 1
psql -h 127.0.0.1 -p 5499 -U nobody -Atc "select count(*) from pgbench_history" postgres
pg_ctl -D /tmp/data -m fast stop > /tmp/stop && echo stopped'
