"""The plan of `surrogate_keys`: a stream against a table of surrogate keys, with new ones for keys it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PlanError, UnknownColumn
from penstock.kernels.contract import Metric
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.surrogate import ASSIGNED, KEYS_SHARE, SurrogateKeys, assigned_schema
from penstock.plan.join_table import JoinTablePlan
from penstock.plan.units import parse_count
from penstock.tables.base import Table
from penstock.tables.keys import hash_range


@dataclass(frozen=True)
class SurrogateKeysPlan(JoinTablePlan):
    """Surrogate keys for a stream: column `surrogate` of the table, or new numbers from `first` on, above all of it."""

    surrogate: str = field(kw_only=True)
    first: int = field(kw_only=True)

    name: ClassVar[str] = "surrogate_keys"
    reports: ClassVar[tuple[Metric, ...]] = SurrogateKeys.reports
    #: Another query would give its own numbers.
    together: ClassVar[tuple[str, ...]] = (ASSIGNED,)
    #: Numbers go on from what is stored, or above all that the table has by now,
    loose: ClassVar[tuple[str, ...]] = ("first",)
    #: but not in a micro-batch that was begun: those that it gave may be in the output.
    begun_with: ClassVar[tuple[str, ...]] = ("first",)

    @classmethod
    def of(cls, plan: JoinTablePlan, *, surrogate: str, first: int | None = None) -> SurrogateKeysPlan:
        """From a left join by equality, or why it cannot be."""
        table = plan.table
        if surrogate not in table.schema.names:
            raise UnknownColumn.among(surrogate, table.schema.names, f"The table {table.path}")
        kind = table.schema.field(surrogate).type
        if not pa.types.is_integer(kind) or surrogate in table.key:
            what = "its key" if surrogate in table.key else f"of type {kind}"
            raise PlanError(
                f"Column {surrogate!r} of {table.path} is {what}.",
                why="New surrogate keys are whole numbers above all that the table has.",
                do="Name a column of whole numbers beside the key.",
            )
        wanted = 0 if first is None else parse_count(first, option="first", least=0)
        # A number below the table's own would sooner or later be one of them.
        return cls.extended(plan, surrogate=surrogate, first=max(wanted, largest(table, surrogate) + 1))

    @property
    def least_memory(self) -> int:
        """As the join, and as much again for new keys."""
        return super().least_memory * KEYS_SHARE // (KEYS_SHARE - 1) + self.slots

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Those of the join, and the new keys."""
        number = self.table.schema.field(self.surrogate)
        keys = assigned_schema(self.stream, self.condition.on, self.table.key, number)
        return {**super().channels, ASSIGNED: keys}

    def make(self, slot: int) -> SurrogateKeys:
        """The kernel of a slot."""
        condition = self.condition.slot(hash_range(slot, self.slots))
        assert isinstance(condition, Equal), "made from names of columns"
        return SurrogateKeys(
            self.stream,
            self.table,
            on=condition,
            surrogate=self.surrogate,
            budget=self.memory // self.slots,
            first=self.first,
            slot=slot,
            slots=self.slots,
            pages=self.pages(slot),
        )

    def identity(self) -> Mapping[str, str]:
        """As the join, and which column."""
        return {**super().identity(), "surrogate": self.surrogate}

    def explain(self) -> str:
        """As the join, and what new keys get."""
        return f"{super().explain()}\n  keys     new ones get {self.surrogate!r} from {self.first:,} on"


def largest(table: Table, column: str) -> int:
    """The largest number in a column; 0 if there is none above it. One pass over it."""
    reader = table.open()
    try:
        found = [pc.max(batch[column]).as_py() for page in table.pages for batch in reader.batches(page, [column])]
    finally:
        reader.close()
    return max((number for number in found if number is not None and number > 0), default=0)
