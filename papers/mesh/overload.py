"""A join that is too slow for its stream, without the join: rows arrive one in each unit of time, and every `c_loop`
units the join asks for at most `w` of those that came since it last asked.

Service rate μ = w / c_loop, arrival rate λ = 1, so ρ = λ / μ = c_loop / w.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.mesh.shed.shedder import Shedder

U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def admitted(shedder: Shedder, hashes: U64, *, w: int, c_loop: int) -> Mask:
    """Which rows of the stream the join is given; row i is row i alone, whatever its key."""
    kept = np.zeros(len(hashes), np.bool_)
    rows = np.arange(len(hashes), dtype=np.uint64)
    for start in range(0, len(hashes), c_loop):
        buffer = shedder.open(w, tell_repeats=False)
        buffer.offer(hashes[start : start + c_loop], rows[start : start + c_loop])
        kept[start + buffer.close().rows] = True
    return kept
