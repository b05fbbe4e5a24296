"""Expected cumulative benefits, and what they prove: a row that is dominated may go without regret.

`B_x(Δt)` is the number of results that row x is expected to give in the next Δt steps (003 §3.4.1). If `B_x` is nowhere
below `B_y`, keeping x is never worse than keeping y (Theorem 9), and a set of rows that all others dominate can be
dropped by an optimal policy (Corollary 2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def benefits_of_joins(chances: F64) -> F64:
    """`B_x(1), B_x(2), …` of rows from the probabilities that a partner comes 1, 2, … steps from now.

    >>> benefits_of_joins(np.array([[0.5, 0.25, 0.25]])).tolist()
    [[0.5, 0.75, 1.0]]
    """
    return np.cumsum(chances, axis=-1)


def benefits_of_caching(chances: F64) -> F64:
    """The same for a cache, where the next reference is all that counts: `1 - Pr{no reference yet}`.

    >>> benefits_of_caching(np.array([[0.5, 0.5]])).tolist()
    [[0.5, 0.75]]
    """
    return np.asarray(1.0 - np.cumprod(1.0 - chances, axis=-1), np.float64)


def dominates(x: F64, y: F64) -> bool:
    """Whether x is nowhere below y.

    >>> dominates(np.array([0.5, 0.9]), np.array([0.5, 0.8])), dominates(np.array([0.5, 0.7]), np.array([0.4, 0.8]))
    (True, False)
    """
    return bool((x >= y).all())


def dominated_subset(benefits: F64, count: int) -> list[int] | None:
    """`count` rows each of which every other row dominates, the ones an optimal policy may drop; None if there are not.

    >>> dominated_subset(np.array([[1.0, 2.0], [0.5, 1.0], [0.0, 3.0]]), 1) is None
    True
    >>> dominated_subset(np.array([[1.0, 2.0], [0.5, 1.0], [0.6, 3.0]]), 1)
    [1]
    """
    # Whatever is dominated by all others has the least sums; it remains to be seen whether it really is.
    order = np.lexsort((np.arange(len(benefits)), benefits.sum(axis=1)))
    low, high = order[:count], order[count:]
    if all(dominates(benefits[u], benefits[v]) for u in high for v in low):
        return sorted(int(v) for v in low)
    return None
