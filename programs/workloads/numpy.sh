# NumPy multiplies, sorts and reduces arrays of 16 MiB
# package: python3-numpy
OPENBLAS_NUM_THREADS=1 /usr/bin/python3 -c '
import numpy
random = numpy.random.default_rng(1)
one = random.random((512, 512))
print(round(float((one @ one.T).sum()), 3))
many = random.random(1 << 21)
many.sort()
print(float(many[0] < many[-1]), round(float((many * many + many).sum()), 3))'
