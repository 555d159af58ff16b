# CPython's tests of the module os
# package: libpython3.11-testsuite
exec /usr/bin/python3.11 "${0%/*}/data/cpython.py" test_os
