"""OPT-LGM: the best plan that is lazy, greedy and minimal, for arrivals that are known.

A shortest path in the graph of states in which something must be done; an edge clears a minimal set of tables and leads
to the next such state. A* finds it, with the least cost of what remains as its estimate (§2.4.1–2.4.2).

The chapter's own estimate counts batches up to the largest that is allowed to *wait*. That is not admissible when
several changes arrive in one step: the batch that is cleared may then be larger. Ours splits what remains of a table
into batches no larger than the largest that can ever occur, at the least cost; it is admissible, and consistent, for
every subadditive cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.kernels.views.costs import Cost
from penstock.kernels.views.planner import Planner, Situation, Tables, minimal_sets, within

State = tuple[int, ...]


@dataclass(frozen=True)
class Instance:
    """Tables with costs, the changes that arrive at each step (one tuple a step), and the bound."""

    costs: tuple[Cost, ...]
    arrivals: tuple[State, ...]
    bound: float
    _sums: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.arrivals or any(len(step) != len(self.costs) for step in self.arrivals):
            raise ValueError("Each step needs a number of changes for each table, and there must be a step.")
        # Changes of each table before step t: _sums[table][t].
        sums = tuple(tuple(accumulate(column, initial=0)) for column in zip(*self.arrivals, strict=True))
        object.__setattr__(self, "_sums", sums)

    @property
    def last(self) -> int:
        """The step at which a reader comes and all is cleared."""
        return len(self.arrivals) - 1

    def remaining(self, step: int, pending: State) -> list[int]:
        """Changes of each table that are still to be processed, with those that arrive after `step`."""
        return [sums[-1] - sums[step + 1] + waiting for sums, waiting in zip(self._sums, pending, strict=True)]

    def next_forced(self, step: int, pending: State) -> tuple[int, State]:
        """The first step after `step` at which the bound breaks, or the last; and what is pending then."""
        low, high = step, self.last
        while high - low > 1:
            middle = (low + high) // 2
            if self._breaks(step, pending, middle):
                high = middle
            else:
                low = middle
        return high, self._pending(step, pending, high)

    def _pending(self, step: int, pending: State, later: int) -> State:
        pairs = zip(self._sums, pending, strict=True)
        return tuple(sums[later + 1] - sums[step + 1] + waiting for sums, waiting in pairs)

    def _breaks(self, step: int, pending: State, later: int) -> bool:
        waiting = self._pending(step, pending, later)
        return not within([cost(changes) for cost, changes in zip(self.costs, waiting, strict=True)], self.bound)


@dataclass(frozen=True)
class Action:
    """At a step, clear these tables."""

    step: int
    tables: Tables


@dataclass(frozen=True)
class Plan:
    """The actions of a plan, the last of which clears everything; its cost; and how many states the search expanded."""

    actions: tuple[Action, ...]
    cost: float
    expanded: int


class TooManyStates(Exception):
    """A search went beyond the number of states it was allowed."""


def opt_lgm(instance: Instance, *, estimate: bool = True, most: int | None = None) -> Plan:
    """The best lazy, greedy, minimal plan.

    Guarantees
        Equal to the best of all such plans: `test_opt_lgm_is_the_best_lgm_plan`. At most twice the best plan of any
        kind (Theorem 1), and equal to it for linear costs (Theorem 2): `test_opt_lgm_against_the_best_plan`.
        No state is expanded twice (Theorem 4). Without `estimate` it is uniform search, which expands more states.
    State and cost
        One entry for each state seen: T^n of them for n tables at worst, where the bound leaves one table little room
        beside another, and the estimate does not know it. Beyond `most` expanded states it raises `TooManyStates`.
        With more than 12 tables the sets are some of the minimal ones (`minimal_sets`), and the plan the best of those.
    """
    empty = (0,) * len(instance.costs)
    largest = _largest_batches(instance)

    def remaining(step: int, pending: State) -> float:
        if not estimate:
            return 0.0
        left = instance.remaining(step, pending)
        return sum(cost.least(n, most) for cost, n, most in zip(instance.costs, left, largest, strict=True))

    start = instance.next_forced(-1, empty)
    spent: dict[tuple[int, State], float] = {start: 0.0}
    came: dict[tuple[int, State], tuple[tuple[int, State], Tables]] = {}
    done: set[tuple[int, State]] = set()
    # Sums of the same costs in another order differ by a hair: promises that do are equal, and of equal ones the later
    # step goes first, or a plateau of plans that are equally good would be searched as a whole.
    hair = 1e-10 * max(remaining(*start), instance.bound)
    queue = [(int(remaining(*start) / hair), 0, start)]
    while True:
        promised, _, node = heapq.heappop(queue)
        if node in done:
            continue
        done.add(node)
        if most is not None and len(done) > most:
            raise TooManyStates
        step, pending = node
        if step > instance.last:
            return Plan(_actions(came, node), spent[node], len(done) - 1)
        costs = [cost(changes) for cost, changes in zip(instance.costs, pending, strict=True)]
        if step == instance.last:
            sets = [tuple(table for table, changes in enumerate(pending) if changes)]
        else:
            sets = minimal_sets(costs, instance.bound)
        for tables in sets:
            rest = tuple(0 if table in tables else changes for table, changes in enumerate(pending))
            after = (step + 1, empty) if step == instance.last else instance.next_forced(step, rest)
            price = spent[node] + sum(costs[table] for table in tables)
            if after not in done and price < spent.get(after, float("inf")):
                spent[after] = price
                came[after] = node, tables
                ahead = 0.0 if after[0] > instance.last else remaining(*after)
                heapq.heappush(queue, (max(promised, int((price + ahead) / hair)), -after[0], after))


def _largest_batches(instance: Instance) -> list[int]:
    """The largest batch of each table that can ever occur: what may wait, and the arrivals of one step."""
    columns = zip(*instance.arrivals, strict=True)
    slack = instance.bound * (1 + 2e-9)
    return [cost.most(slack) + max(column) for cost, column in zip(instance.costs, columns, strict=True)]


def _actions(
    came: dict[tuple[int, State], tuple[tuple[int, State], Tables]], node: tuple[int, State]
) -> tuple[Action, ...]:
    found = []
    while node in came:
        node, tables = came[node]
        found.append(Action(node[0], tables))
    return tuple(found[::-1])


class Follow(Planner):
    """Carries out a plan that was made for exactly the arrivals that come."""

    def __init__(self, plan: Plan) -> None:
        self._sets = {action.step: action.tables for action in plan.actions}

    def choose(self, situation: Situation) -> Tables:
        """What the plan says for this step."""
        return self._sets[int(situation.now)]


@dataclass(frozen=True)
class Outcome:
    """What a planner did: its actions, what they cost together, and the largest cost that ever waited."""

    actions: tuple[Action, ...]
    cost: float
    waited: float


def carry_out(planner: Planner, instance: Instance) -> Outcome:
    """Let a planner work through an instance, step by step, without knowing what comes."""
    pending = (0,) * len(instance.costs)
    actions: list[Action] = []
    spent = waited = 0.0
    for step, arrived in enumerate(instance.arrivals):
        planner.arrived(step, arrived)
        pending = tuple(waiting + new for waiting, new in zip(pending, arrived, strict=True))
        situation = Situation(pending, instance.costs, instance.bound, step)
        costs = situation.each()
        if step == instance.last:
            tables: Tables = tuple(table for table, changes in enumerate(pending) if changes)
        elif within(costs, instance.bound):
            waited = max(waited, sum(costs))
            continue
        else:
            tables = planner.choose(situation)
        actions.append(Action(step, tables))
        spent += sum(costs[table] for table in tables)
        pending = tuple(0 if table in tables else changes for table, changes in enumerate(pending))
        waited = max(waited, _left(costs, tables))
    planner.refreshed(instance.last)
    return Outcome(tuple(actions), spent, waited)


def _left(costs: Sequence[float], cleared: Tables) -> float:
    return sum(cost for table, cost in enumerate(costs) if table not in cleared)
