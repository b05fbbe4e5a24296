"""Queries and rows as in Table 4.1 of 003, and how fast each strategy answers events over them.

All values lie between 0 and 10,000. The paper leaves the time for output out of its measurements. Here a strategy's
answer *is* its output (a run of partners for each query affected), so the load is made such that about as many
queries are affected by an event however many there are: most ranges across end before the nearest partner.

Middles of own ranges are uniform, where Table 4.1 has them normal around a place it does not give: an event's value is
then as good as any other. With Normal(5000, 1000), SSI as it is here would ask 8 groups of 30 for an event of 100
queries, and 24 of 100,000, instead of 19 and 30. The paper's asks all of them, and so does one curve of Figure 4.7(i).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.kernels.standing.query_set import QuerySet
from penstock.kernels.standing.query_table import Queries
from penstock.kernels.standing.router import Router, walked
from penstock.kernels.standing.search import Rows
from penstock.kernels.standing.shape import BandJoin, SelectJoin, Shape
from penstock.models.standing_cost import Coefficients

F64 = npt.NDArray[np.float64]

DOMAIN = 10_000.0
SELECT = SelectJoin((("k",), ("k",)), (("a",), ("c",)))
BAND = BandJoin((("a",), ("c",)))


@dataclass(frozen=True)
class Load:
    """What a measurement is about.

    `selected` is the share of queries whose own range has an event's value; `partners` how many rows an event joins
    with, of `held` in all; `scattered` the share of queries that lie anywhere, not in one of the groups.
    """

    queries: int = 100_000
    groups: int = 30
    selected: float = 0.1
    partners: int = 20
    held: int = 100_000
    affected: float = 10.0
    scattered: float = 0.0
    seed: int = 1

    def bounds(self) -> F64:
        """(own from, own to, across from, across to) of each query."""
        rng = np.random.default_rng(self.seed)
        n = self.queries
        place = (rng.integers(0, self.groups, n) + 0.5) * DOMAIN / self.groups
        place = np.where(rng.random(n) < self.scattered, rng.uniform(0, DOMAIN, n), place)
        own, half = rng.uniform(0, DOMAIN, n), self.selected * DOMAIN / 2
        gap, most = DOMAIN / self.partners, DOMAIN / self.groups / 2
        # Far ones reach a partner mostly; so many of them that about `affected` are affected.
        far = rng.random(n) < min(1.0, self.affected / (n * self.selected))
        reach = np.where(
            far, rng.uniform(0.2, 1.0, (2, n)) * min(gap, most), rng.exponential(1e-4 * min(gap, most), (2, n))
        )
        return np.stack([own - half, own + half, place - reach[0], place + reach[1]], axis=1)


class Bench:
    """A load laid out for some strategies."""

    def __init__(self, load: Load, *, bounds: F64 | None = None, coefficients: Coefficients | None = None) -> None:
        self.load = load
        rng = np.random.default_rng(load.seed + 1)
        self.bounds = load.bounds() if bounds is None else bounds
        keys = max(load.held // load.partners, 1)
        self.values = np.sort(rng.uniform(0, DOMAIN, (keys, load.partners)), axis=1).ravel()
        self.key_of = rng.integers(0, keys, 20_000)
        self.own = np.sort(rng.uniform(0, DOMAIN, 20_000))
        self.coefficients = coefficients or Coefficients()
        self._sets: dict[str, tuple[QuerySet, Router | None]] = {}

    def rows(self, count: int) -> Rows:
        """The first events, spread over all own values."""
        chosen = np.linspace(0, len(self.own) - 1, count).astype(np.int64)
        begin = self.key_of[chosen] * self.load.partners
        return Rows(begin, begin + self.load.partners, np.zeros(count), self.own[chosen])

    def rate(self, strategy: str, rows: Rows | None = None, enough: float = 0.1) -> float:
        """Events a second: the best of two turns, each with as many events as it has time for."""
        self.seconds(strategy, self.rows(20) if rows is None else rows.some(np.arange(min(20, len(rows.own)))))
        few = self.rows(20) if rows is None else rows.some(np.arange(min(20, len(rows.own))))
        once = max(self.seconds(strategy, few) / len(few.own), 1e-8)
        count = int(np.clip(enough / once, 20, 20_000))
        asked = self.rows(count) if rows is None else rows.some(np.arange(min(count, len(rows.own))))
        return len(asked.own) / min(self.seconds(strategy, asked) for _ in range(2))

    def seconds(self, strategy: str, rows: Rows) -> float:
        """Seconds of processor time that a strategy takes for these events: what else the machine does hardly
        matters.
        """
        queries, router = self.set(strategy)
        began = time.process_time()
        walk = (
            router.answers(0, rows, self.values)
            if router
            else queries.answers(queries.strategies[0], 0, rows, self.values)
        )
        for _ in walk:
            pass
        return time.process_time() - began

    def set(self, strategy: str, shape: Shape = SELECT, alpha: float = 0.001) -> tuple[QuerySet, Router | None]:
        """The queries with what the strategy needs."""
        if strategy not in self._sets:
            made = QuerySet(shape, walked(strategy, own=shape.own), alpha=alpha)  # type: ignore[arg-type]
            made.load(Queries(np.arange(len(self.bounds)), self.bounds))
            made.prepare()
            router = Router(made, self.coefficients) if strategy == "dynamic" else None
            if router:
                router.load()
            self._sets[strategy] = made, router
        return self._sets[strategy]


class BandBench(Bench):
    """Band joins: every event meets all rows that are kept."""

    def rows(self, count: int) -> Rows:
        rng = np.random.default_rng(9)
        nothing = np.zeros(count)
        return Rows(
            np.zeros(count, np.int64), np.full(count, len(self.values)), -rng.uniform(0, DOMAIN, count), nothing
        )

    def __init__(self, load: Load, bounds: F64) -> None:
        super().__init__(load, bounds=bounds)
        self.values = np.sort(np.random.default_rng(3).uniform(0, DOMAIN, load.held))

    def set(self, strategy: str, shape: Shape = BAND, alpha: float = 0.001) -> tuple[QuerySet, Router | None]:
        return super().set(strategy, shape, alpha)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The exponent p of y ~ x^p, fitted."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])
