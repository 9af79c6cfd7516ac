"""One thread for linear algebra, here and in every process that a test starts; to be imported before numpy.

Threads that wait for each other on tiny matrices do so spinning: on a busy machine a test then takes many times its time.
"""

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
