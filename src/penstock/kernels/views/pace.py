"""When something must be done so that a reader who comes at any moment is answered in time.

A reader waits for two things: a refresh that is under way when it comes, for it cannot be stopped; and then for the
refresh of everything else that had arrived when it came. Both together must fit. No refresh makes it better than right
after everything was refreshed, when what arrived meanwhile waits already: a bound below that would have tables
refreshed without end, for nothing, and readers wait for those refreshes as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.kernels.views.costs import Cost
from penstock.kernels.views.planner import Situation, within

#: By how much what waits may grow beyond what there is right after everything was refreshed, at the least.
LEEWAY = 1.25


def allowed(pending: Sequence[int], rates: Sequence[float], costs: Sequence[Cost], available: float) -> float:
    """What refreshing all that waits may cost, if a reader has `available` seconds.

    >>> from penstock.kernels.views.costs import Linear
    >>> flat, steep = Linear(each=0.0, setup=2.0), Linear(each=0.01, setup=0.0)
    >>> allowed([5, 100], [1.0, 1.0], [flat, steep], available=9.0)
    6.99
    """
    again = max(
        (_arriving(table, pending, rates, costs) for table, rate in enumerate(rates) if rate > 0 and pending[table]),
        default=0.0,
    )
    anew = sum(cost(1) for cost, rate in zip(costs, rates, strict=True) if rate > 0)
    floor = sum(cost(max(1, int(rate * anew))) for cost, rate in zip(costs, rates, strict=True) if rate > 0)
    return max(available - again, LEEWAY * floor)


def _arriving(table: int, pending: Sequence[int], rates: Sequence[float], costs: Sequence[Cost]) -> float:
    """What a reader who comes while a table is refreshed waits for, on top of all that waited when that began.

    The later it comes, the less is left of that refresh, and the more has arrived since; with linear costs one of the
    two ends is the worst moment, and the first one unless changes arrive faster than they can be brought in.
    """

    def more(after: float) -> float:
        total = -after
        for other, (cost, rate, waits) in enumerate(zip(costs, rates, pending, strict=True)):
            new = max(1, int(rate * after)) if rate > 0 else 0
            # What a refresh under way takes is part of all that waits; its table begins anew.
            total += cost(new) if other == table else cost(waits + new) - cost(waits)
        return total

    return max(more(0.0), more(costs[table](pending[table])))


def due(
    pending: Sequence[int], rates: Sequence[float], costs: tuple[Cost, ...], available: float, ahead: float, now: float
) -> Situation | None:
    """What a planner is to be asked about now; None if everything can wait for `ahead` seconds more.

    Guarantees
        If every refresh costs what `costs` say, changes arrive at `rates`, and `available` is enough for that at all, a
        reader waits no longer than `available`, whenever it comes, unless another is being answered:
        `test_readers_are_answered_in_time_whenever_they_come`.
    """
    if not any(pending):
        return None
    later = tuple(n + math.ceil(rate * ahead) for n, rate in zip(pending, rates, strict=True))
    situation = Situation(later, costs, allowed(later, rates, costs, available), now)
    return None if within(situation.each(), situation.bound) else situation
