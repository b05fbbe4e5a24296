"""The plan of a pass-through: rows divided by key, handed through the runtime unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.errors import BadOption
from penstock.kernels.contract import RESULTS, Metric
from penstock.kernels.passthrough import PassThrough
from penstock.plan.base import Plan, Side
from penstock.tables.keys import PARTITIONS, column_kind


@dataclass(frozen=True)
class PassThroughPlan(Plan):
    """Every row through one kernel and out again: what the runtime itself costs.

    `keep` is the number of rows that each slot keeps as state.

    >>> plan = PassThroughPlan.checked(pa.schema([("id", pa.int64())]), key=("id",), slots=2)
    >>> print(plan.explain())
    pass_through by id
      work     2 slots, divided by key
      state    none
    """

    stream: pa.Schema
    key: tuple[str, ...]
    slots: int
    keep: int = 0

    name: ClassVar[str] = "pass_through"
    reports: ClassVar[tuple[Metric, ...]] = PassThrough.reports

    @classmethod
    def checked(cls, stream: pa.Schema, *, key: tuple[str, ...], slots: int, keep: int = 0) -> PassThroughPlan:
        """The plan, or an error that says what is wrong with it."""
        if not 1 <= slots <= PARTITIONS:
            raise BadOption(f"slots={slots} is not between 1 and {PARTITIONS}.")
        if not key:
            raise BadOption(
                "A pass-through needs a key.",
                why="Without one every slot gets every row, and each would come out once for each slot.",
                do="Name at least one column.",
            )
        for column in key:
            column_kind(stream, column, "The stream")
        if keep < 0:
            raise BadOption(
                f"keep={keep} is not a number of rows.", do="Give keep=0 for no state, or how many rows to keep."
            )
        return cls(stream, key, slots, keep)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The stream."""
        return (Side(self.stream, key=self.key),)

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """The rows again."""
        return {RESULTS: self.stream}

    def make(self, slot: int) -> PassThrough:
        """The kernel of a slot."""
        return PassThrough(self.stream, self.keep)

    def identity(self) -> Mapping[str, str]:
        """Stream, key and slots; not `keep`, which may change at a restart."""
        return {
            "operator": self.name,
            "stream columns": ", ".join(f"{field.name} {field.type}" for field in self.stream),
            "key": ", ".join(self.key),
            "slots": str(self.slots),
        }

    def explain(self) -> str:
        """The division, and what is kept."""
        kept = f"the newest {self.keep:,} rows of each slot" if self.keep else "none"
        return "\n".join(
            [
                f"{self.name} by {', '.join(self.key)}",
                f"  work     {self.slots} slots, divided by key",
                f"  state    {kept}",
            ]
        )
