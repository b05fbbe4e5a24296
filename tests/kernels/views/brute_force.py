"""The judges of the planners: every plan is tried. Slow and obvious; for a handful of steps."""

from __future__ import annotations

from functools import cache
from itertools import chain, combinations, product

from penstock.kernels.views.lgm import Instance


def best_plan(instance: Instance) -> float:
    """The least cost of any valid plan: any number of changes of any table, at any step."""

    @cache
    def least(step: int, waiting: tuple[int, ...]) -> float:
        pending = tuple(a + b for a, b in zip(waiting, instance.arrivals[step], strict=True))
        if step == instance.last:
            return cost(instance, pending)
        found = []
        for taken in product(*(range(n + 1) for n in pending)):
            rest = tuple(a - b for a, b in zip(pending, taken, strict=True))
            if cost(instance, rest) <= instance.bound:
                found.append(cost(instance, taken) + least(step + 1, rest))
        return min(found)

    return least(0, (0,) * len(instance.costs))


def best_lgm_plan(instance: Instance) -> float:
    """The least cost of any plan that acts only when it must, clears whole tables, and no more of them than needed."""

    def least(step: int, waiting: tuple[int, ...]) -> float:
        pending = tuple(a + b for a, b in zip(waiting, instance.arrivals[step], strict=True))
        if step == instance.last:
            return cost(instance, pending)
        if cost(instance, pending) <= instance.bound:
            return least(step + 1, pending)
        tables = range(len(pending))
        sets = list(chain.from_iterable(combinations(tables, size) for size in range(len(pending) + 1)))
        valid = [set(one) for one in sets if cost(instance, without(pending, one)) <= instance.bound]
        minimal = [one for one in valid if not any(other < one for other in valid)]
        return min(
            cost(instance, without(pending, [t for t in tables if t not in one]))
            + least(step + 1, without(pending, one))
            for one in minimal
        )

    return least(0, (0,) * len(instance.costs))


def cost(instance: Instance, changes: tuple[int, ...]) -> float:
    return sum(f(n) for f, n in zip(instance.costs, changes, strict=True))


def without(pending: tuple[int, ...], tables: object) -> tuple[int, ...]:
    return tuple(0 if table in tables else n for table, n in enumerate(pending))  # type: ignore[operator]
