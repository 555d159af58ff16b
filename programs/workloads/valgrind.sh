# valgrind checks a program that sorts
# package: valgrind
valgrind -q --log-file=/tmp/report sort -r /usr/share/common-licenses/GPL-3 | md5sum
wc -l < /tmp/report
