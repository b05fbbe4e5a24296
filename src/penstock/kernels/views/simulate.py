"""SIMULATE: repeat the plan that is best for arrivals as they are expected, whatever comes (§2.4.3)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernels.views.costs import Cost
from penstock.kernels.views.lgm import Instance, TooManyStates, carry_out, opt_lgm
from penstock.kernels.views.online import AHEAD, Online
from penstock.kernels.views.planner import Planner, Situation, Tables, reduced, within

#: States that the search for a plan may look at.
_MOST = 20_000


class Simulate(Planner):
    """Plans with OPT-LGM for a horizon of steady arrivals, and takes the plan's sets in their order, again and again.

    The plan's *times* are those of the expected arrivals; when fewer or more come, its next set is taken when something
    must be done, and not before. If that set is not enough, the ones after it are taken as well; what then is not
    needed is given back. The plan ends with clearing everything, as a reader would have it, and begins again after it.

    Guarantees
        What is left always fits the bound: `test_planners_keep_the_bound`. For linear costs and arrivals as
        expected, at most the optimum and ⌈T/T0⌉ setups of every table more (Theorem 6):
        `test_simulate_is_near_the_optimum`.
    State and cost
        The sets of one plan. It is made at the first question, and again when costs or rates have changed by a fifth.
        Where OPT-LGM would look at more than 20,000 states the plan is what ONLINE does with the expected arrivals.

    Parameters
        rates: changes of each table that are expected in one unit of time; without them, those seen so far.
        horizon: the time for which to plan: when a reader is expected.
        steps: how many steps of time a plan has.
    """

    def __init__(self, horizon: float, rates: Sequence[float] | None = None, *, steps: int = 500) -> None:
        if not (horizon > 0 and steps > 0):
            raise ValueError("A horizon is longer than nothing, and a plan has steps.")
        self._horizon = horizon
        self._steps = steps
        self._rates = tuple(rates) if rates is not None else None
        self._seen: list[int] = []
        self._began = 0.0
        self._sets: tuple[Tables, ...] = ()
        self._next = 0
        self._made_for: tuple[float, ...] = ()

    def arrived(self, now: float, changes: Sequence[int]) -> None:
        """Counts, where no rates were given."""
        if not self._seen:
            self._seen, self._began = [0] * len(changes), now
        self._seen = [before + new for before, new in zip(self._seen, changes, strict=True)]

    def refreshed(self, now: float) -> None:
        """A plan begins with nothing pending."""
        self._next = 0

    def choose(self, situation: Situation) -> Tables:
        """The plan's next set, and more if need be."""
        rates = self._rates or self._seen_rates(situation.now)
        known = _key(situation.costs, rates, situation.bound)
        if not self._sets or _differ(known, self._made_for):
            self._plan(situation, rates)
            self._made_for = known
        costs = situation.each()
        order: list[int] = []
        for _ in self._sets:
            tables = self._sets[self._next]
            self._next = (self._next + 1) % len(self._sets)
            if self._next == 0:  # the plan's end: everything, also what could wait
                return tuple(table for table, changes in enumerate(situation.pending) if changes)
            order += [table for table in tables if table not in order]
            if within([0.0 if table in order else cost for table, cost in enumerate(costs)], situation.bound):
                break
        # Tables that the plan never mentions are last.
        order += [table for table in range(len(costs)) if table not in order]
        return reduced(order, costs, situation.bound)

    def _seen_rates(self, now: float) -> tuple[float, ...]:
        # Arrivals at times 0 … now are those of now + 1 units.
        return tuple(count / (now - self._began + 1) for count in self._seen)

    def _plan(self, situation: Situation, rates: Sequence[float]) -> None:
        length = self._horizon / self._steps
        ends = [[int(rate * length * (step + 1)) for step in range(self._steps)] for rate in rates]
        columns = [[b - a for a, b in zip([0, *end], end, strict=False)] for end in ends]
        arrivals = tuple(zip(*columns, strict=True))
        instance = Instance(situation.costs, arrivals, situation.bound)
        try:
            actions = opt_lgm(instance, most=_MOST).actions
        except TooManyStates:
            actions = carry_out(Online(ahead=AHEAD), instance).actions
        self._sets = tuple(action.tables for action in actions)
        self._next = 0


def _key(costs: Sequence[Cost], rates: Sequence[float], bound: float) -> tuple[float, ...]:
    """What a plan depends on: rates, and each cost at three sizes."""
    sizes = [max(1, cost.most(bound)) for cost in costs]
    looks = [cost(size // part or 1) for cost, size in zip(costs, sizes, strict=True) for part in (1, 4, 16)]
    return (*rates, *looks, bound)


def _differ(now: Sequence[float], then: Sequence[float]) -> bool:
    return len(now) != len(then) or any(abs(a - b) > 0.2 * max(abs(a), abs(b)) for a, b in zip(now, then, strict=True))
