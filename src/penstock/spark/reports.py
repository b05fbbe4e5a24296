"""The numbers of steps on their way from the workers to the driver: an accumulator of Spark's.

Spark counts what a task added once the task has succeeded, before the micro-batch ends. A slot that steps twice in a
micro-batch, because something had to be run again, is told of once: by its later step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.accumulators import AccumulatorParam

from penstock.kernels.contract import Metric

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

#: Numbers by name, of each slot, of each step of a flow: a micro-batch of a query.
Numbers = Mapping[str, float]
_Steps = dict[tuple[str, str, int], dict[int, Numbers]]

_COMBINE: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}


class _Merged(AccumulatorParam[_Steps]):
    """Steps put together."""

    def zero(self, value: _Steps) -> _Steps:
        return {}

    def addInPlace(self, value1: _Steps, value2: _Steps) -> _Steps:
        for step, slots in value2.items():
            value1.setdefault(step, {}).update(slots)
        return value1


class Reports:
    """What has been told in a session and not yet been taken: no more than the last step of each query."""

    def __init__(self, context: SparkContext) -> None:
        self.told: Accumulator[_Steps] = context.accumulator({}, _Merged())

    def take(self, query: str, batch: int) -> dict[str, list[Numbers]]:
        """By flow, what each slot said of a micro-batch. Of earlier ones nobody will ask any more."""
        steps = self.told.value
        found = {}
        for flow, of, number in [step for step in steps if step[1] == query and step[2] <= batch]:
            slots = steps.pop((flow, of, number))
            if number == batch:
                found[flow] = list(slots.values())
        return found


@dataclass(frozen=True)
class Teller:
    """Tells what the steps of a flow did; travels to the workers."""

    flow: str
    told: Accumulator[_Steps]

    def tell(self, query: str, batch: int, slot: int, numbers: Numbers) -> None:
        """One step of one slot."""
        self.told.add({(self.flow, query, batch): {slot: {name: float(value) for name, value in numbers.items()}}})


def combined(slots: Iterable[Numbers], reports: Iterable[Metric]) -> dict[str, float]:
    """The numbers of all slots put together, each as its metric says.

    >>> combined([{"wait_a": 2, "wait_b": 1, "n": 1}, {"wait_a": 5, "n": 2}], [Metric("wait_", "max"), Metric("n")])
    {'wait_a': 5, 'wait_b': 1, 'n': 3}
    """
    ways = {metric.name: metric.combine for metric in reports}
    # The longest name that fits is that of its family.
    families = sorted((name for name in ways if name.endswith("_")), key=len)
    found: dict[str, list[float]] = {}
    for said in slots:
        for name, value in said.items():
            found.setdefault(name, []).append(value)
    for name in found.keys() - ways.keys():
        ways[name] = [ways[family] for family in families if name.startswith(family)][-1]
    return {name: _COMBINE[ways[name]](values) for name, values in found.items()}
