# Perl on jemalloc
# package: libjemalloc2 perl-base
LD_PRELOAD=libjemalloc.so.2 perl programs/workloads/data/allocate.pl
