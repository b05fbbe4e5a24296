"""All queries of a million subscriptions in one compiled call: the peer that asks each of them again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.subscriptions.a2bnodes import Nodes
from penstock.kernels.subscriptions.a2bsearch import least_between

I64 = npt.NDArray[np.int64]


@njit(cache=True)
def ask(nodes: Nodes, x1: I64, x2: I64) -> int:
    """The number of ranges that are not empty."""
    count = 0
    for i in range(len(x1)):
        some, y = least_between(nodes, 0, x1[i], x2[i])
        count += some and y == y
    return count
