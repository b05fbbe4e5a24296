"""ONLINE: no knowledge of the future, only of how fast changes came (§2.4.4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.kernels.views.planner import Planner, Situation, Tables, minimal_sets, within

#: Actions that views look ahead.
AHEAD = 4
#: Minimal sets up to which it is looked further ahead than one action.
_FEW = 20


@dataclass(frozen=True)
class _Choice:
    """A set of tables, what clearing them costs, the time until something must be done again, and what waits then."""

    tables: Tables
    price: float
    until: float
    later: tuple[int, ...]

    @property
    def rank(self) -> tuple[float, float, Tables]:
        """By the cost for each unit of time; a set that is enough for ever costs nothing, the cheapest of those."""
        return self.price / self.until, self.price, self.tables


class Online(Planner):
    """Takes the minimal set that makes the cost for each unit of time least, until something must be done again.

    The cost is what was spent since the last reader and what the set costs; the time, from that reader until the bound
    would break again if changes go on arriving as fast as they did.

    Guarantees
        What is left always fits the bound: `test_planners_keep_the_bound`. No bound on the cost is known; on the
        curves of `tests/papers/test_views.py` it is within 15% of OPT-LGM for steady arrivals.
    State and cost
        A rate for each table; up to 2ⁿ sets are weighed at each action (n ≤ 12, else some: `minimal_sets`). With more
        than 20 sets to choose from none is looked further ahead of than one action.

    Parameters
        memory: how many units of time back an arrival counts half as much as one of now.
        ahead: leave out what was spent before, and weigh each set by what so many actions cost, beginning with it, and
            the time that they buy; those after it are chosen by their own cost and time. The chapter's account makes a
            small cost look good as long as the past was cheap, even if it comes back at once
            (`test_what_is_ahead_is_no_trap`).
    """

    def __init__(self, *, memory: float = 100.0, ahead: int = 0) -> None:
        if memory <= 0 or ahead < 0:
            raise ValueError("Rates need a past to be seen in, and what is ahead is not behind.")
        self._fading = math.log(2) / memory
        self._ahead = ahead
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
        choices = self._choices(situation)
        ahead = min(self._ahead, 1) if len(choices) > _FEW else self._ahead
        best = min(choices, key=lambda one: self._account(situation, one, ahead).rank)
        self._spent += best.price
        return best.tables

    def _choices(self, situation: Situation) -> list[_Choice]:
        costs, found = situation.each(), []
        for tables in minimal_sets(costs, situation.bound):
            rest = tuple(0 if table in tables else changes for table, changes in enumerate(situation.pending))
            until, later = self._quiet_for(situation, rest)
            found.append(_Choice(tables, sum(costs[table] for table in tables), until, later))
        return found

    def _account(self, situation: Situation, first: _Choice, ahead: int) -> _Choice:
        """A set with all that is weighed with it: what was done before, or what would be done after it."""
        if not ahead:
            passed = situation.now - self._since
            return replace(first, price=first.price + self._spent, until=first.until + passed)
        price, until, last = first.price, first.until, first
        for _ in range(ahead - 1):
            if last.until == math.inf:
                break
            last = min(self._choices(replace(situation, pending=last.later)), key=lambda one: one.rank)
            price, until = price + last.price, until + last.until
        return replace(first, price=price, until=until)

    def _quiet_for(self, situation: Situation, rest: Sequence[int]) -> tuple[float, tuple[int, ...]]:
        """The time until the bound breaks if `rest` is left and changes arrive at their rates; and what waits then."""
        rates = self.rates or (0.0,) * len(rest)

        def later(time: float) -> tuple[int, ...]:
            return tuple(int(n + rate * time + 1e-9) for n, rate in zip(rest, rates, strict=True))

        def breaks(time: float) -> bool:
            return not within([f(n) for f, n in zip(situation.costs, later(time), strict=True)], situation.bound)

        low, high = 0.0, 1.0
        while not breaks(high):
            if high > 1e12:
                return math.inf, tuple(rest)
            low, high = high, 2 * high
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if breaks(middle) else (middle, high)
        return high, later(high)
