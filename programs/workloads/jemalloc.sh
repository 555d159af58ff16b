# Perl on jemalloc
# package: libjemalloc2 perl-base
LD_PRELOAD=libjemalloc.so.2 perl "${0%/*}/data/allocate.pl"
