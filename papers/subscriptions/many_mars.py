"""Many questions for Mar in one compiled call, so that their time is the tree's and not the caller's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.subscriptions.a2bnodes import Nodes
from penstock.kernels.subscriptions.mar import mar


@njit(cache=True)
def ask(nodes: Nodes, questions: npt.NDArray[np.int64]) -> int:
    """How many of the questions have a Mar that is not empty."""
    count = 0
    for i in range(len(questions)):
        some, _, left, _, right = mar(nodes, 0, questions[i, 0], questions[i, 1])
        count += some and left <= right
    return count
