# LMDB loads 60,000 records through its mapping of the file, copies the database and dumps the copy
# package: lmdb-utils perl-base
mkdir -p /tmp/first /tmp/second
perl -e 'print "VERSION=3\nformat=print\ntype=btree\nmapsize=268435456\nHEADER=END\n";
	for (1 .. 60000) { printf " %08d\n %s\n", $_ * 7919 % 1000003, chr(97 + $_ % 26) x ($_ % 300) }
	print "DATA=END\n"' > /tmp/records
mdb_load -f /tmp/records /tmp/first
mdb_stat /tmp/first
mdb_copy -c /tmp/first /tmp/second
mdb_dump -p /tmp/second | md5sum
