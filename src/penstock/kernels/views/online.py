"""ONLINE: no knowledge of the future, only of how fast changes came (§2.4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.kernels.views.planner import Planner, Situation, Tables, minimal_sets, within


class Online(Planner):
    """Takes the minimal set that makes the cost for each unit of time least, until something must be done again.

    The cost is what was spent since the last reader and what the set costs; the time, from that reader until the bound
    would break again if changes go on arriving as fast as they did.

    Guarantees
        What is left always fits the bound: `test_planners_keep_the_bound`. No bound on the cost is known; on the
        curves of `tests/papers/test_views.py` it is within 15% of OPT-LGM for steady arrivals.
    State and cost
        A rate for each table; up to 2ⁿ sets are weighed at each action (n ≤ 12, else some: `minimal_sets`).

    Parameters
        memory: how many units of time back an arrival counts half as much as one of now.
        marginal: leave out what was spent before, and weigh each set by its own cost and the time that it buys. The
            chapter's account makes a small cost look good as long as the past was cheap, even if it comes back at once
            (`test_marginal_costs_are_no_trap`). Where one table all but fills the bound, both may be nearly twice
            OPT-LGM.
    """

    def __init__(self, *, memory: float = 100.0, marginal: bool = False) -> None:
        if memory <= 0:
            raise ValueError("Rates need a past to be seen in.")
        self._fading = math.log(2) / memory
        self._marginal = marginal
        self._weight = 0.0
        self._sums: list[float] = []
        self._last = 0.0
        self._since = 0.0
        self._spent = 0.0

    def arrived(self, now: float, changes: Sequence[int]) -> None:
        """Fades what was seen, and adds what came."""
        if not self._sums:
            self._sums, self._last = [0.0] * len(changes), now - 1
        passed = max(now - self._last, 0.0)
        fade = math.exp(-self._fading * passed)
        # Time itself fades alike, so that a steady stream has its own rate from the first moment on.
        self._weight = self._weight * fade + (1 - fade) / self._fading
        self._sums = [before * fade + new for before, new in zip(self._sums, changes, strict=True)]
        self._last = now

    def refreshed(self, now: float) -> None:
        """A new account begins."""
        self._since, self._spent = now, 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Changes of each table in one unit of time, as seen lately."""
        return tuple(total / self._weight if self._weight else 0.0 for total in self._sums)

    def choose(self, situation: Situation) -> Tables:
        """The set with the least cost for each unit of time."""
        costs = situation.each()
        best: tuple[float, float, Tables] | None = None
        for tables in minimal_sets(costs, situation.bound):
            price = sum(costs[table] for table in tables)
            rest = tuple(0 if table in tables else changes for table, changes in enumerate(situation.pending))
            until, spent = self._quiet_for(situation, rest), price
            if not self._marginal:
                until, spent = until + situation.now - self._since, spent + self._spent
            # A set that is enough for ever costs nothing for each unit of time; the cheapest of those.
            rank = (spent / until if until else math.inf, price, tables)
            best = rank if best is None or rank < best else best
        assert best is not None  # clearing everything is always enough, so there is a minimal set
        self._spent += best[1]
        return best[2]

    def _quiet_for(self, situation: Situation, rest: Sequence[int]) -> float:
        """The time until the bound breaks if `rest` is left and changes arrive at their rates."""
        rates = self.rates or (0.0,) * len(rest)

        def breaks(time: float) -> bool:
            later = [int(n + rate * time + 1e-9) for n, rate in zip(rest, rates, strict=True)]
            return not within([f(n) for f, n in zip(situation.costs, later, strict=True)], situation.bound)

        low, high = 0.0, 1.0
        while not breaks(high):
            if high > 1e12:
                return math.inf
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if breaks(middle) else (middle, high)
        return high
