# stress-ng runs stressors of its class vm for a fixed number of operations
# package: stress-ng
# Without madvise, which dies of SIGBUS on Linux.
for kind in vm mmap mremap brk munmap mprotect; do
	stress-ng --quiet --$kind 1 --$kind-ops 20 --vm-bytes 32M --mmap-bytes 16M --mremap-bytes 8M --timeout 60 && echo $kind
done
