"""The process from which Spark forks its Python workers, with everything a kernel needs already imported.

A worker that imports NumPy, Arrow, pandas and Numba for itself takes seconds and some fifty megabytes of its own.
Forked from here it starts at once, and shares them with all others. Used by sessions that Penstock makes.

Spark collects garbage after every task. What was imported is never garbage, and looking through it took some 60 ms a
task: so it is frozen, and no collection looks at it (nor touches, and so copies, the memory that workers share).
"""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
from pyspark.daemon import manager

import penstock.spark.host
import penstock.spark.sink  # noqa: F401 - imported for the workers
from penstock.kernels.mesh.index import Cursor, build, probe, sift
from penstock.tables.keys import hash_keys


def warm() -> None:
    """Load the compiled functions that every join uses, so that no worker does it again."""
    hashes = hash_keys([pa.array([1, 2, 3])])
    index = build([(0, hashes)], [(0, hashes)], 3, 0, 1 << 64)
    survivors, pairs = np.empty(3, np.int32), np.empty((2, 3), np.int64)
    probe(index, hashes, survivors[: sift(index, hashes, survivors)], Cursor(), 0, pairs[0], pairs[1])


if __name__ == "__main__":
    warm()
    gc.freeze()
    manager()
