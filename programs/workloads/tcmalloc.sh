# Perl on tcmalloc
# package: libtcmalloc-minimal4 perl-base
LD_PRELOAD=libtcmalloc_minimal.so.4 perl "${0%/*}/data/allocate.pl"
