# 20,000 rows inserted in WAL mode, an index, and a query
# package: sqlite3
mark=/workload/mark; test -x $mark || mark=true
sqlite3 /tmp/base "
PRAGMA journal_mode=WAL;
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);" ".shell $mark begin 1" "
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO t SELECT i, hex(i * 2654435761 % 4294967296) || printf('%064d', i) FROM n;" ".shell $mark end 1" "
CREATE INDEX b ON t(b);
PRAGMA wal_checkpoint(TRUNCATE);
SELECT count(*), sum(length(b)), max(b) FROM t WHERE b > '35';"
