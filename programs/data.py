"""Do Debian's Python's forks, pipes, threads, and 64 MiB of small objects behave? Prints checksums that no schedule changes."""
import os
import threading
import zlib


def numbers(seed, count):
    for _ in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        yield seed >> 33


def children():
    pipes = []
    for child in range(4):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            data = " ".join(str(n) for n in numbers(child, 20000)).encode()
            while data:
                data = data[os.write(theirs, data):]
            os._exit(child)
        os.close(theirs)
        pipes.append((pid, ours))
    for pid, ours in pipes:
        data = b""
        while part := os.read(ours, 65536):
            data += part
        os.close(ours)
        print("child", len(data), zlib.crc32(data), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def threads():
    lock, ready = threading.Lock(), threading.Semaphore(0)
    results, total = {}, 0

    def work(index):
        nonlocal total
        ordered = sorted(numbers(100 + index, 10000))
        for _ in range(100):
            with lock:
                total += 1
        results[index] = zlib.crc32(repr(ordered).encode())
        ready.release()

    pool = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in pool:
        thread.start()
    for thread in pool:
        ready.acquire()
    for thread in pool:
        thread.join()
    print("threads", total, sorted(results.items()))


def objects():
    # Some 64 MiB: a list, its tuples, strings and integers.
    table = [(n, "entry %08d" % n, n * 2.5) for n in numbers(7, 300000)]
    table.sort()
    check = 0
    for number, text, half in table[::7]:
        check = zlib.crc32(text.encode(), check) ^ number & 0xFFFF ^ int(half) & 0xFF
    print("objects", len(table), check)
    block = bytearray(64 << 20)
    for at in range(0, len(block), 4096):
        block[at] = at >> 12 & 255
    print("block", zlib.crc32(block[:: 4096]))


children()
threads()
objects()
