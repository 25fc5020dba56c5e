"""Mutants: what the tests would notice. One thread alone runs here, so that a process can be forked at any time."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")
