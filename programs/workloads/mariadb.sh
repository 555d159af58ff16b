# MariaDB over TCP: a table of 5,000 rows, an index and a query
# package: mariadb-server
mkdir -p /tmp/data /tmp/run
mariadb-install-db --no-defaults --datadir=/tmp/data --user=root --auth-root-authentication-method=normal --skip-test-db > /tmp/install.log 2>&1 || { tail /tmp/install.log; exit 1; }
/usr/sbin/mariadbd --no-defaults --datadir=/tmp/data --user=root --socket=/tmp/run/s --port=3399 --bind-address=127.0.0.1 \
	--innodb-buffer-pool-size=32M --skip-name-resolve --pid-file=/tmp/run/pid 2> /tmp/log &
server=$!
m() { mariadb --no-defaults -h 127.0.0.1 -P 3399 -u root "$@"; }
until m -e 'select 1' > /tmp/answer 2> /tmp/error; do
	kill -0 $server || { tail /tmp/log; exit 1; }
	sleep 0.1
done
m -Ne 'create database d; use d; create table t(a int primary key, b varchar(80));
insert into t select seq, repeat(char(97 + seq % 26), seq % 80) from seq_1_to_5000;
create index b on t(b); select count(*), sum(length(b)), max(b) from t;'
m -e shutdown
wait
echo stopped
