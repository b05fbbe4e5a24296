"""The one interface of all planners: what is pending, what it costs, what to process now.

All planners are lazy: they are asked only when what is pending could no longer be cleared within the bound. Waiting
costs nothing, since processing later never costs more than processing the parts now (Lemma 1). All are greedy: the
changes of a table are processed wholly or not at all. So an answer is a set of tables.

Paper: Batch Incremental Query Result Maintenance, §2.2–2.4 (chapter 2 of 003, Xie's dissertation).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.kernels.views.costs import Cost

#: Tables, by number, in ascending order.
Tables = tuple[int, ...]

#: Up to so many tables with pending changes every minimal set is looked at; beyond, only some.
ENUMERATED = 12
_HAIR = 1e-9


@dataclass(frozen=True)
class Situation:
    """What a planner is asked about: pending changes of each table, their costs, and the bound for clearing all."""

    pending: tuple[int, ...]
    costs: tuple[Cost, ...]
    bound: float
    #: Since when the planner was started, in the unit of its arrivals.
    now: float

    def each(self) -> list[float]:
        """What clearing each table would cost."""
        return [cost(changes) for cost, changes in zip(self.costs, self.pending, strict=True)]


class Planner(ABC):
    """Chooses the tables to process when something must be."""

    @abstractmethod
    def choose(self, situation: Situation) -> Tables:
        """The tables to clear now, so that the rest can be cleared within the bound. Asked only if it cannot."""

    def arrived(self, now: float, changes: Sequence[int]) -> None:  # noqa: B027  (most need not know)
        """Told of all changes, as they come."""

    def refreshed(self, now: float) -> None:  # noqa: B027
        """Told when everything was cleared, for a reader."""


def within(costs: Sequence[float], bound: float) -> bool:
    """Whether all of it can be done within the bound, but for rounding."""
    return sum(costs) <= bound * (1 + _HAIR)


def minimal_sets(costs: Sequence[float], bound: float) -> list[Tables]:
    """Every set of tables whose clearing leaves no more than `bound`, and none of whose parts would do.

    With more than 12 tables that have a cost only some of them, found by taking tables in several orders until it is
    enough, then giving back what is not needed: dearest first, cheapest first, and each table first.

    >>> minimal_sets([3.0, 2.0, 2.0], bound=4.0)
    [(0,), (1, 2)]
    """
    busy = [table for table, cost in enumerate(costs) if cost > 0]
    if within(costs, bound):
        return [()]
    if len(busy) > ENUMERATED:
        return _some_minimal_sets(busy, costs, bound)
    # left[set] is what remains to be done if all but the tables of the set are cleared.
    left = [0.0] * (1 << len(busy))
    for members in range(1, len(left)):
        lowest = members & -members
        left[members] = left[members ^ lowest] + costs[busy[lowest.bit_length() - 1]]
    limit, full, found = bound * (1 + _HAIR), len(left) - 1, []
    for members in range(1, len(left)):
        rest = left[full ^ members]
        if rest <= limit:
            cheapest = min(costs[busy[bit]] for bit in range(len(busy)) if members >> bit & 1)
            if rest + cheapest > limit:
                found.append(tuple(busy[bit] for bit in range(len(busy)) if members >> bit & 1))
    return found


def _some_minimal_sets(busy: Sequence[int], costs: Sequence[float], bound: float) -> list[Tables]:
    falling = sorted(busy, key=lambda table: -costs[table])
    orders = [falling, falling[::-1], *([first, *(t for t in falling if t != first)] for first in busy)]
    return list(dict.fromkeys(reduced(order, costs, bound) for order in orders))


def reduced(order: Sequence[int], costs: Sequence[float], bound: float) -> Tables:
    """A minimal set from the first tables of an order: as many as are needed, without those that then are not."""
    taken: list[int] = []
    rest = list(costs)
    for table in order:
        if within(rest, bound):
            break
        taken.append(table)
        rest[table] = 0.0
    for table in sorted(taken, key=lambda table: costs[table]):
        if within([*rest, costs[table]], bound):
            taken.remove(table)
            rest[table] = costs[table]
    return tuple(sorted(taken))
