# Perl on mimalloc
# package: libmimalloc2.0 perl-base
LD_PRELOAD=libmimalloc.so.2 perl "${0%/*}/data/allocate.pl"
