"""What each strategy costs for one row: the cost model of 003, §4.5.1, with coefficients to be fitted on the machine.

With n queries, g stabbing groups, k partners of the row (`kj`), s queries whose own range has its value (`ks`), in
nanoseconds:

================= ==========================================================
join_first        α·k·log n + β·k·s
join_first_scan   α·log k + β·n + γ·s·log k
select_first      α·log n + β·s + γ·s·log k
hotspot           α·g + β·g·log k + γ·g·log(n in hot groups / g), and
                  what select_first costs for the scattered queries
band joins        α·g·log k for ssi, β·(k + n) for merge
================= ==========================================================

The paper has √n for a look into the index of rectangles; here that index is ordered by own ranges, and a look at it
passes through what the row's own value selects. A row without partners costs nothing by any of them. Output is the
same for all and is left out. As in the paper the estimates need not be right: they need to tell apart what differs by
much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

F64 = npt.NDArray[np.float64]
I8 = npt.NDArray[np.int8]

#: Partners whose logarithm is looked up.
_FEW = 256
#: The strategies among which rows are divided.
CHOICES = ("hotspot", "select_first", "join_first", "join_first_scan")


@dataclass(frozen=True)
class Load:
    """What costs depend on beside the row: queries in all and in hot groups, and how many of these there are."""

    queries: int
    hot: int
    groups: int


@dataclass(frozen=True)
class Coefficients:
    """Nanoseconds for each term of each strategy, in the order of the table above."""

    join_first: tuple[float, float] = (5.0, 1.8)
    join_first_scan: tuple[float, float, float] = (1.0, 1.4, 7.0)
    select_first: tuple[float, float, float] = (10.0, 0.5, 5.5)
    hotspot: tuple[float, float, float] = (2.0, 7.0, 0.5)
    band: tuple[float, float] = (6.0, 1.2)

    def weights(self, load: Load) -> F64:
        """What each feature of a row (columns) costs by each of `CHOICES` (rows)."""
        found = np.stack([_weights(name, getattr(self, name), load) for name in CHOICES])
        if scattered := load.queries - load.hot:
            # The scattered queries beside the hot groups, of which a row selects its share.
            share = np.array([1.0, 1.0, 1.0, *(scattered / load.queries,) * 3])
            found[0] += share * _weights("select_first", self.select_first, Load(scattered, 0, 0))
        return found

    def band_weights(self, load: Load) -> F64:
        """The same of band joins, by ssi and by merge."""
        searched, merged = self.band
        return np.array([[0, searched * load.groups, 0, 0, 0, 0], [merged * load.queries, 0, merged, 0, 0, 0]])


def costs(partners: F64, selected: F64, weights: F64) -> F64:
    """The cost of each row (columns) by each strategy (rows)."""
    found: F64 = weights @ _features(partners, selected)
    return found


def _features(partners: F64, selected: F64) -> F64:
    """What of a row costs depend on, all 0 without partners: 1, log k, k, s, s·log k, k·s."""
    one, log_k = (partners > 0).astype(np.float64), np.log2(partners + 1)
    return np.stack([one, log_k, partners, one * selected, selected * log_k, partners * selected])


def _weights(name: str, given: Sequence[float], load: Load) -> F64:
    """What each feature costs by a strategy with these coefficients."""
    log_n = float(np.log2(load.queries + 1))
    if name == "join_first":
        return np.array([0, 0, given[0] * log_n, 0, 0, given[1]])
    if name == "join_first_scan":
        return np.array([given[1] * load.queries, given[0], 0, 0, given[2], 0])
    if name == "select_first":
        return np.array([given[0] * log_n, 0, 0, given[1], given[2], 0])
    depth = float(np.log2(load.hot / max(load.groups, 1) + 1))
    return load.groups * np.array([given[0] + given[2] * depth, given[1], 0, 0, 0, 0])


@njit(cache=True)
def cheapest(partners: F64, selected: F64, weights: F64) -> I8:
    """For each row the number of its cheapest strategy."""
    found = np.zeros(partners.size, np.int8)
    logs = np.log2(np.arange(1.0, _FEW + 1))
    for row in range(partners.size):
        k, s = partners[row], selected[row]
        if k > 0:
            log_k, least, best = logs[int(k)] if k < _FEW else np.log2(k + 1), np.inf, 0
            for choice in range(weights.shape[0]):
                cost = _cost(k, log_k, s, weights[choice])
                best = choice if cost < least else best
                least = min(cost, least)
            found[row] = best
    return found


@njit(cache=True)
def for_all(partners: F64, selected: F64, weights: F64) -> tuple[int, float, float]:
    """The strategy that is the cheapest for all rows; what it costs; and what the cheapest for each would.

    One compiled pass: a batch that is then answered as a whole must not pay for having been looked at.
    """
    alone, divided = np.zeros(weights.shape[0]), 0.0
    for row in range(partners.size):
        k, s = partners[row], selected[row]
        if k > 0:
            log_k, least = np.log2(k + 1), np.inf
            for choice in range(weights.shape[0]):
                cost = _cost(k, log_k, s, weights[choice])
                alone[choice] += cost
                least = min(cost, least)
            divided += least
    best = int(alone.argmin())
    return best, alone[best], divided


@njit(cache=True, inline="always")
def _cost(k: float, log_k: float, s: float, weights: F64) -> float:
    fixed = weights[0] + weights[1] * log_k + weights[2] * k
    return fixed + s * (weights[3] + weights[4] * log_k + weights[5] * k)


def terms(name: str, partners: F64, selected: F64, load: Load) -> F64:
    """The terms of a strategy's cost, one row for each row of the stream."""
    units = np.eye(len(getattr(Coefficients, name)))
    return np.stack([_weights(name, unit, load) @ _features(partners, selected) for unit in units.tolist()], axis=1)


def fit(name: str, partners: F64, selected: F64, loads: Sequence[Load], seconds: F64) -> tuple[float, ...]:
    """Coefficients that explain these times the best, none below 0: non-negative least squares of relative errors."""
    from scipy.optimize import nnls

    rows = np.concatenate([terms(name, partners[i : i + 1], selected[i : i + 1], load) for i, load in enumerate(loads)])
    found, _ = nnls(rows / seconds[:, None], np.full(len(seconds), 1e9))
    return tuple(float(value) for value in found)
