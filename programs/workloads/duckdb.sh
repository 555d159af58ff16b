# DuckDB loads 400,000 rows into a database, and groups and joins them with two threads
# package: python3 python3-pip
# pypi: duckdb==2.0.1
mark=/workload/mark; test -x $mark || mark=true; export mark
/usr/bin/python3 /dev/stdin <<'END'
import os
import duckdb

db = duckdb.connect('/tmp/sales.db', config={'threads': 2, 'memory_limit': '256MB'})
db.execute("""create table sales as
    select i as id, (i * 7919) % 1009 as shop, ((i * 104729) % 10007) / 100.0 as price, 'item ' || ((i * 31) % 5003) as item
    from range(400000) t(i)""")
os.system(os.environ['mark'] + ' begin 1')
print(db.execute('select count(*), count(distinct item), sum(price)::bigint from sales').fetchall())
print(db.execute('''select shop, count(*), round(avg(price), 3) from sales
    group by shop order by 2 desc, 1 limit 3''').fetchall())
print(db.execute('''select a.item, count(*) from sales a join sales b on a.id = b.id + 5003
    where b.price > 99 group by a.item order by 2 desc, 1 limit 2''').fetchall())
os.system(os.environ['mark'] + ' end 1')
db.close()
END
