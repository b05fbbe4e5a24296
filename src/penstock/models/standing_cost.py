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

F64 = npt.NDArray[np.float64]

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

    def costs(self, partners: F64, selected: F64, load: Load) -> F64:
        """The cost of each row (columns) by each of `CHOICES` (rows)."""
        found = [terms(name, partners, selected, load) @ np.array(getattr(self, name)) for name in CHOICES]
        found[0] = found[0] + self._cold(partners, selected, load)
        return np.stack(found)

    def _cold(self, partners: F64, selected: F64, load: Load) -> F64 | float:
        """What the scattered queries cost beside the hot groups."""
        scattered = load.queries - load.hot
        if not scattered:
            return 0.0
        rest = Load(scattered, 0, 0)
        share = scattered / max(load.queries, 1)
        return terms("select_first", partners, selected * share, rest) @ np.array(self.select_first)

    def choose_band(self, partners: F64, queries: int, groups: int) -> npt.NDArray[np.int64]:
        """For each row 0 for ssi, 1 for merge."""
        searched, merged = self.band
        return (searched * groups * np.log2(partners + 1) > merged * (partners + queries)).astype(np.int64)

    def choose(self, partners: F64, selected: F64, load: Load) -> npt.NDArray[np.int64]:
        """For each row the number of the cheapest of `CHOICES`."""
        return np.argmin(self.costs(partners, selected, load), axis=0)


def terms(name: str, partners: F64, selected: F64, load: Load) -> F64:
    """The terms of a strategy's cost, one row for each row of the stream."""
    one = (partners > 0).astype(np.float64)
    log_k = np.log2(partners + 1)
    log_n = one * np.log2(load.queries + 1)
    selected = one * selected
    if name == "join_first":
        columns: Sequence[F64] = (partners * np.log2(load.queries + 1), partners * selected)
    elif name == "join_first_scan":
        columns = (log_k, one * load.queries, selected * log_k)
    elif name == "select_first":
        columns = (log_n, selected, selected * log_k)
    else:
        depth = load.groups * np.log2(load.hot / max(load.groups, 1) + 1)
        columns = (one * load.groups, load.groups * log_k, one * depth)
    return np.stack(columns, axis=1)


def fit(name: str, partners: F64, selected: F64, loads: Sequence[Load], seconds: F64) -> tuple[float, ...]:
    """Coefficients that explain these times the best, none below 0: non-negative least squares of relative errors."""
    from scipy.optimize import nnls

    rows = np.concatenate([terms(name, partners[i : i + 1], selected[i : i + 1], load) for i, load in enumerate(loads)])
    found, _ = nnls(rows / seconds[:, None], np.full(len(seconds), 1e9))
    return tuple(float(value) for value in found)
