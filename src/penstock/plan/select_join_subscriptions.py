"""The plan of select-join subscriptions: two tables that change, joined, and how partitions share the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.errors import BadOption, UnsupportedType
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Metric
from penstock.kernels.subscriptions.select_join import Both, Schemas, SelectJoinSubscriptions, pair_schema
from penstock.plan.base import Plan, Side
from penstock.plan.subscriptions import check_names, check_table, check_work
from penstock.tables.keys import check_key_types


@dataclass(frozen=True)
class SelectJoinPlan(Plan):
    """Every update of two tables through the kernel of its partition.

    >>> from penstock.kernels.subscriptions.intake import Columns
    >>> orders = pa.schema([("id", pa.int64()), ("who", pa.string()), ("amount", pa.float64()), ("at", pa.int64())])
    >>> people = pa.schema([("name", pa.string()), ("age", pa.int64()), ("at", pa.int64())])
    >>> columns = (Columns("amount", ("id",), "at", on=("who",)), Columns("age", ("name",), "at", on=("name",)))
    >>> print(SelectJoinPlan.checked((orders, people), columns, memory="64MB", slots=None).explain())
    Subscriptions: pairs of a join on who = name, selected by amount and age
      tables   the newest row of each id, by at; the newest row of each name, by at
      work     1 slot: without partition_by every row may meet every other
      memory   64 MB for both tables, and a quarter of it for the micro-batch under way
    """

    streams: Schemas
    columns: Both
    memory: int
    slots: int

    name: ClassVar[str] = "subscriptions"
    reports: ClassVar[tuple[Metric, ...]] = SelectJoinSubscriptions.reports

    @classmethod
    def checked(cls, streams: Schemas, columns: Both, *, memory: str | int, slots: int | None) -> SelectJoinPlan:
        """The plan, or an error that says what is wrong with it."""
        (left, right), (first, second) = streams, columns
        if not first.on or not second.on:
            raise BadOption("A select-join needs columns to join on.", do='Name them: on="customer_id".')
        check_key_types(left, first.on, right, second.on)
        for stream, names, where in ((left, first, "The stream"), (right, second, "The joined stream")):
            check_table(stream, names, where)
        if left.field(first.order).type != right.field(second.order).type:
            one, other = left.field(first.order).type, right.field(second.order).type
            raise UnsupportedType(
                f"order is of type {one} in one stream and {other} in the other.",
                why="Updates of both tables are taken in one order.",
                do="Cast one of the columns to the type of the other.",
            )
        if first.partition_by:
            check_key_types(left, first.partition_by, right, second.partition_by)
        theirs = [*first.partition_by, first.order]
        ours = pair_schema(streams, columns).names[len(theirs) :]
        check_names(theirs, ours)
        if twice := [name for name in ours if ours.count(name) > 1]:
            raise BadOption(
                f"A message would have two columns {twice[0]!r}.",
                why="Keys are told as left_… and right_…, and places as …_before and …_after.",
                do=f"Rename the key column {twice[0].partition('_')[2]!r} of the stream.",
            )
        return cls(streams, columns, *check_work(first, memory, slots))

    @property
    def sides(self) -> tuple[Side, ...]:
        """The updates of either table."""
        left, right = (Side(stream, key=c.partition_by) for stream, c in zip(self.streams, self.columns, strict=True))
        return left, right

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Messages, and updates that could not be used."""
        return {RESULTS: pair_schema(self.streams, self.columns), SET_ASIDE: SET_ASIDE_SCHEMA}

    def make(self, slot: int) -> SelectJoinSubscriptions:
        """The kernel of a slot."""
        return SelectJoinSubscriptions(self.streams, self.columns, memory=self.memory // self.slots, slot=slot)

    def identity(self) -> Mapping[str, str]:
        """All but the memory, which may change at a restart."""
        said = {"operator": self.name, "aggregate": self._query, "slots": str(self.slots)}
        for side, stream, columns in zip(("left", "right"), self.streams, self.columns, strict=True):
            said |= {
                f"{side} columns": ", ".join(f"{field.name} {field.type}" for field in stream),
                f"{side} key": ", ".join(columns.key),
                f"{side} order": columns.order,
                f"{side} deleted": columns.deleted or "",
                f"{side} partition_by": ", ".join(columns.partition_by),
            }
        return said

    @property
    def _query(self) -> str:
        first, second = self.columns
        on = " and ".join(f"{one} = {other}" for one, other in zip(first.on, second.on, strict=True))
        return f"pairs of a join on {on}, selected by {first.x} and {second.x}"

    def explain(self) -> str:
        """The query, the tables, the division."""
        parts = self.columns[0].partition_by
        work = (
            f"{self.slots} slot{'s' * (self.slots > 1)}, divided by {', '.join(parts)}"
            if parts
            else "1 slot: without partition_by every row may meet every other"
        )
        tables = "; ".join(f"the newest row of each {', '.join(c.key)}, by {c.order}" for c in self.columns)
        return "\n".join(
            [
                f"Subscriptions: {self._query}",
                f"  tables   {tables}",
                f"  work     {work}",
                f"  memory   {self.memory >> 20} MB for both tables, and a quarter of it for the micro-batch under way",
            ]
        )
