"""Which rows go: those with the lowest scores, until the rest fits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: With more rows than this, a tenth of them goes at the least, so that all rows are scored once for many evictions.
_MANY = 4_096
_SPARE = 10


def with_spare(excess: float, limit: float, rows: int) -> float:
    """How much to free where `excess` must be."""
    return max(excess, limit / _SPARE) if rows > _MANY else excess


def lowest(scores: F64, ages: I64, costs: F64, free: float) -> Mask:
    """Which rows go so that at least `free` is freed: the lowest scores, of equal ones the oldest, then the first.

    >>> lowest(np.array([3.0, 1.0, 1.0]), np.array([0, 5, 9]), np.ones(3), 1.0).tolist()
    [False, False, True]
    """
    gone = np.zeros(len(scores), np.bool_)
    if free <= 0 or not len(scores):
        return gone
    chosen = _likely(scores, costs, free)
    order = chosen[np.lexsort((chosen, -ages[chosen], scores[chosen]))]
    enough = int(np.searchsorted(np.cumsum(costs[order]), free)) + 1
    gone[order[:enough]] = True
    return gone


def _likely(scores: F64, costs: F64, free: float) -> I64:
    """Rows among which those that go surely are: sorting all of them would cost more than the rest of the step."""
    count = min(int(free / max(float(costs.mean()), 1.0) * 1.1) + 16, len(scores) - 1)
    while count < len(scores) - 1:
        threshold = np.partition(scores, count)[count]
        chosen = np.flatnonzero(scores <= threshold)
        if costs[chosen].sum() >= free:
            return chosen
        count = min(2 * count, len(scores) - 1)
    return np.arange(len(scores))
