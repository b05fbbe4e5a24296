"""The plan of several queries over one operator: each has a channel with its own rows and columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.kernels.answering import Answering, Answers
from penstock.kernels.contract import RESULTS, Metric
from penstock.plan.base import Plan, Side


@dataclass(frozen=True)
class AnsweringPlan(Plan):
    """`plan`, with its results answered to queries by channel.

    `answers` makes them anew for every kernel, because they may remember. `texts` says what they are, for checkpoints:
    a batch that is half done must be finished for the same queries; with `fixed`, state depends on which there are.
    """

    plan: Plan
    answers: Mapping[str, Callable[[], Answers]] = field(repr=False)
    texts: str
    fixed: bool = False
    #: Which channel of the operator each answer is made of, where it is not `results`.
    reads: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The operator's."""
        return self.plan.name

    @property
    def reports(self) -> tuple[Metric, ...]:  # type: ignore[override]
        """The operator's."""
        return self.plan.reports

    @property
    def together(self) -> tuple[str, ...]:  # type: ignore[override]
        """The operator's."""
        return self.plan.together

    @property
    def slots(self) -> int:  # type: ignore[override]
        """The operator's."""
        return self.plan.slots

    @property
    def keeps_nothing(self) -> bool:
        """As the operator, unless an answer may remember."""
        return self.plan.keeps_nothing and not self.fixed

    @property
    def sides(self) -> tuple[Side, ...]:
        """The operator's."""
        return self.plan.sides

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """One for each query, and the operator's others."""
        read = {self.reads.get(name, RESULTS) for name in self.answers}
        own = {name: schema for name, schema in self.plan.channels.items() if name not in read}
        return {**{name: make().schema for name, make in self.answers.items()}, **own}

    def make(self, slot: int) -> Answering:
        """The kernel of a slot."""
        return Answering(self.plan.make(slot), {n: make() for n, make in self.answers.items()}, self.reads)

    def identity(self) -> Mapping[str, str]:
        """The operator's; and the queries, where state depends on them."""
        return {**self.plan.identity(), **({"queries": self.texts} if self.fixed else {"answers": "for queries"})}

    def explain(self) -> str:
        """The operator's."""
        return self.plan.explain()

    def expect(self, rows: float, arrival_rate: float) -> Mapping[str, Any]:
        """The operator's."""
        return self.plan.expect(rows, arrival_rate)

    def outcome(self, totals: Mapping[str, float]) -> Mapping[str, float]:
        """The operator's."""
        return self.plan.outcome(totals)
