"""The plan of a `join_table` with a table that changes while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from penstock.errors import BadOption
from penstock.kernels.contract import Metric
from penstock.kernels.mesh.following import FollowingJoin
from penstock.kernels.mesh.front import GAIN
from penstock.plan.base import Side
from penstock.plan.join_table import JoinTablePlan, share
from penstock.plan.units import parse_count
from penstock.tables.keys import hash_range
from penstock.tables.versions import Versions


@dataclass(frozen=True)
class FollowingJoinPlan(JoinTablePlan):
    """Join of a stream with the newest version of a table, whichever that is when a micro-batch begins."""

    patience: int = 0
    #: The version that the first micro-batch uses, where rows are parked.
    first: str = ""

    reports: ClassVar[tuple[Metric, ...]] = FollowingJoin.reports
    #: A row that is joined again meets another version perhaps, but no row waits for pages of an old one.
    loose: ClassVar[tuple[str, ...]] = ("table", "first")
    #: Whether a row of a slot's first micro-batch was parked or joined must not change when that is run again.
    begun_with: ClassVar[tuple[str, ...]] = ("first",)

    @classmethod
    def of(cls, plan: JoinTablePlan, *, patience: int = 0) -> FollowingJoinPlan:
        """The same join with a table that changes, or why it cannot be."""
        if plan.division == "pages":
            raise BadOption(
                'A join that follows its table cannot be divided by "pages".',
                why="Every slot has every row then, and each may see the new version at another moment.",
                do='Leave division out, or give "rows" or, with a prepared table, "key".',
            )
        if plan.pages_per_step is not None:
            raise BadOption(
                "pages_per_step and follow exclude each other.",
                why="A row that waits for later steps could meet pages of two versions.",
                do="Leave pages_per_step out.",
            )
        patience = parse_count(patience, option="patience", least=0)
        versions = Versions(plan.table.path, plan.table.key)
        if patience and not versions.kept:
            raise BadOption(
                f"patience needs versions that can be read again, and {plan.table.path} keeps none.",
                why="A micro-batch that is run again after a crash must meet the version that it met before.",
                do="Keep the table as a Delta or Iceberg table.",
            )
        return cls.extended(plan, patience=patience, first=versions.newest() if patience else "")

    @property
    def sides(self) -> tuple[Side, ...]:
        """The stream; all slots take up new versions together, and rows parked in any have another chance."""
        (stream,) = super().sides
        return (replace(stream, calls_all=True),)

    @property
    def versions(self) -> Versions:
        """Where versions come from."""
        return Versions(self.table.path, self.table.key)

    @property
    def least_memory(self) -> int:
        """As the exact join, and a quarter for rows that wait for a version with their partner."""
        exact = super().least_memory
        return exact * 4 // 3 + self.slots if self.patience else exact

    def make(self, slot: int) -> FollowingJoin:
        """The kernel of a slot."""
        return FollowingJoin(
            self.stream,
            self.table,
            on=self.condition.slot(hash_range(slot, self.slots)),
            how=self.how,
            budget=self.memory // self.slots,
            source=self.versions,
            choose=partial(share, slot=slot, slots=self.slots, division=self.division),
            patience=self.patience,
            first=self.first,
            front=GAIN,
        )

    def identity(self) -> Mapping[str, str]:
        """As the exact join, and that it follows its table."""
        return {**super().identity(), "follows": "yes"}

    def explain(self) -> str:
        """As the exact join, and what it does about versions."""
        waits = f"; a row without partner waits for {self.patience} more micro-batches" if self.patience else ""
        return f"{super().explain()}\n  follows  the newest version of the table, as each micro-batch begins{waits}"
