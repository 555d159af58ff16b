# CPython's tests of multiprocessing by fork
# package: libpython3.11-testsuite
exec /usr/bin/python3.11 "${0%/*}/data/cpython.py" test_multiprocessing_fork
