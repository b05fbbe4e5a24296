"""HEEB's sums from one step to the next, without summing again (003, Corollaries 3 and 4).

Each step multiplies what is there by e^{1/α} > 1, rounding errors included: after n steps an error of 1e-16 has grown
to e^{n/α} times that. So a sum must be taken anew before n is some ten times α; `reseed_after` says when.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def next_join(benefit: F64, chance: F64, alpha: float) -> F64:
    """`H` one step later, of rows that did or did not meet the partner that came with probability `chance`.

    >>> next_join(np.array([1.0]), np.array([0.5]), 1e9).round(6).tolist()
    [0.5]
    """
    return math.exp(1.0 / alpha) * benefit - chance


def next_cached(benefit: F64, chance: F64, alpha: float) -> F64:
    """The same for a cache, where it is known that the row was not referenced.

    >>> next_cached(np.array([1.0]), np.array([0.5]), 1e9).round(6).tolist()
    [1.0]
    """
    return (math.exp(1.0 / alpha) * benefit - chance) / (1.0 - chance)


def reseed_after(alpha: float, allowed: float = 1e-6) -> int:
    """Steps after which an error of one rounding has grown to `allowed`.

    >>> reseed_after(10.0)
    222
    """
    return max(int(alpha * math.log(allowed / np.finfo(np.float64).eps)), 1)


def cached_benefit(chances: F64, fades: F64) -> F64:
    """`H` of cached rows by its definition: Σ_d Pr{first reference d steps from now} · L(d).

    `fades` is L: e^{-d/α}, 1 up to some d, 1 everywhere ("inf"), or 1/d ("inv"); the last two converge for caches only.

    >>> cached_benefit(np.array([[0.5, 0.5]]), np.array([1.0, 1.0])).tolist()
    [0.75]
    """
    unmet = np.cumprod(1.0 - chances, axis=1)
    before = np.concatenate([np.ones((len(chances), 1)), unmet[:, :-1]], axis=1)
    return (chances * before) @ fades
