# memcached over TCP: 5,000 values are set and read back
# package: memcached
memcached -u nobody -p 11311 -U 0 -t 2 -m 64 &
server=$!
/usr/bin/python3 -S -c '
import socket, time
for attempt in range(100):
    try:
        connection = socket.create_connection(("127.0.0.1", 11311))
        break
    except OSError:
        time.sleep(0.05)
stream = connection.makefile("rwb")
right = 0
for i in range(5000):
    stream.write(b"set k%d 0 0 200\r\n%s\r\n" % (i, bytes([97 + i % 26]) * 200))
    stream.flush()
    assert stream.readline() == b"STORED\r\n"
for i in range(5000):
    stream.write(b"get k%d\r\n" % i)
    stream.flush()
    stream.readline()
    right += stream.readline() == bytes([97 + i % 26]) * 200 + b"\r\n"
    stream.readline()
print(right)'
kill $server
wait $server
echo ended
