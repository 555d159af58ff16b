# Python forks 40 children of a process with 64 MiB, and each child writes a part
# package: python3-minimal
mark=/workload/mark; test -x $mark || mark=true; export mark
/usr/bin/python3 -S -c '
import os
memory = bytearray(b"x" * (64 << 20))
os.system(os.environ["mark"] + " begin 1")
for child in range(40):
    pid = os.fork()
    if pid == 0:
        for page in range(child * 4096, len(memory), 4096 * 64):
            memory[page] = child
        os._exit(memory[:1 << 20].count(child) % 100)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os.system(os.environ["mark"] + " end 1")'
