"""Tests; imported before any of them, and before numpy."""

import os

# Before numpy is loaded: threads of BLAS and OpenMP wait by spinning, which takes a fifth of the
# time of a core that two tests share; those who test threads set their number themselves.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Otherwise each of the hundreds of processes that tests start compiles the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
