"""One thread for linear algebra and tables, here and in every process that a test starts; to be imported before numpy.

Threads that wait for each other on tiny matrices do so spinning: on a busy machine a test then takes many times its time.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")
