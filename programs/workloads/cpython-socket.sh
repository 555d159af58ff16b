# CPython's tests of the module socket
# package: libpython3.11-testsuite
exec /usr/bin/python3.11 "${0%/*}/data/cpython.py" test_socket
