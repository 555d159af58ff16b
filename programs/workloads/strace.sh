# strace follows a shell and its children
# package: strace
strace -f -c -o /tmp/counts sh -c 'for i in 1 2 3 4 5 6 7 8; do seq $i 20000 | sort -r | md5sum; done'
awk '$NF == "execve" || $NF == "clone" || $NF == "fork" || $NF == "vfork" { print $4, $NF }' /tmp/counts | sort
