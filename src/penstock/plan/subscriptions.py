"""The plan of range subscriptions: checked columns, aggregate, memory, and how partitions share the work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyarrow import types as pt

from penstock.errors import BadOption, UnknownColumn, UnsupportedType
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Metric
from penstock.kernels.subscriptions.codes import check_ordered
from penstock.kernels.subscriptions.engine import AGGREGATES, EXTREMES, Aggregate
from penstock.kernels.subscriptions.range_kernel import (
    LEAST_MEMORY,
    Columns,
    RangeSubscriptions,
    message_schema,
    most_rows,
)
from penstock.plan.base import Plan, Side
from penstock.plan.units import parse_size
from penstock.tables.keys import PARTITIONS, column_kind


@dataclass(frozen=True)
class SubscriptionsPlan(Plan):
    """Every update of a table through the kernel of its partition.

    >>> schema = pa.schema([("id", pa.int64()), ("risk", pa.float64()), ("per", pa.float64()), ("at", pa.int64())])
    >>> columns = Columns(x="risk", y="per", key=("id",), order="at")
    >>> print(SubscriptionsPlan.checked(schema, columns, agg="min", memory="64MB", slots=None).explain())
    Subscriptions: min(per) for ranges of risk
      table    the newest row of each id, by at
      work     1 slot: without partition_by every range may need every row
      memory   64 MB: up to 76,185 rows, and a quarter for the micro-batch under way
    """

    stream: pa.Schema
    columns: Columns
    agg: Aggregate
    memory: int
    slots: int

    name: ClassVar[str] = "subscriptions"
    reports: ClassVar[tuple[Metric, ...]] = RangeSubscriptions.reports

    @classmethod
    def checked(
        cls, stream: pa.Schema, columns: Columns, *, agg: str, memory: str | int, slots: int | None
    ) -> SubscriptionsPlan:
        """The plan, or an error that says what is wrong with it."""
        kind = next((known for known in AGGREGATES if known == agg), None)
        if kind is None:
            raise BadOption(f"agg={agg!r} is not an aggregate.", do=f"Give one of: {', '.join(AGGREGATES)}.")
        _check_columns(stream, columns, kind)
        return cls(stream, columns, kind, *check_work(columns, memory, slots))

    @property
    def sides(self) -> tuple[Side, ...]:
        """The updates."""
        return (Side(self.stream, key=self.columns.partition_by),)

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Messages, and updates that could not be used."""
        return {RESULTS: message_schema(self.stream, self.columns, self.agg), SET_ASIDE: SET_ASIDE_SCHEMA}

    def make(self, slot: int) -> RangeSubscriptions:
        """The kernel of a slot."""
        return RangeSubscriptions(self.stream, self.columns, self.agg, memory=self.memory // self.slots, slot=slot)

    def identity(self) -> Mapping[str, str]:
        """All but the memory, which may change at a restart."""
        columns = self.columns
        return {
            "operator": self.name,
            "stream columns": ", ".join(f"{field.name} {field.type}" for field in self.stream),
            "aggregate": self._query,
            "key": ", ".join(columns.key),
            "order": columns.order,
            "deleted": columns.deleted or "",
            "partition_by": ", ".join(columns.partition_by),
            "slots": str(self.slots),
        }

    @property
    def _query(self) -> str:
        places = self.columns.x if self.columns.x2 is None else f"{self.columns.x} and {self.columns.x2}"
        return f"{self.agg}({self.columns.y or '*'}) for ranges of {places}"

    def explain(self) -> str:
        """The query, the table, the division."""
        columns = self.columns
        rows = most_rows(self.memory // self.slots, columns) * self.slots
        work = (
            f"{self.slots} slot{'s' * (self.slots > 1)}, divided by {', '.join(columns.partition_by)}"
            if columns.partition_by
            else "1 slot: without partition_by every range may need every row"
        )
        return "\n".join(
            [
                f"Subscriptions: {self._query}",
                f"  table    the newest row of each {', '.join(columns.key)}, by {columns.order}",
                f"  work     {work}",
                f"  memory   {self.memory >> 20} MB: up to {rows:,} rows, and a quarter for the micro-batch under way",
            ]
        )


def check_work(columns: Columns, memory: str | int, slots: int | None) -> tuple[int, int]:
    """The memory in bytes and the number of slots, or an error."""
    count = 1 if slots is None else slots
    if not 1 <= count <= PARTITIONS:
        raise BadOption(f"slots={count} is not between 1 and {PARTITIONS}.")
    if count > 1 and not columns.partition_by:
        raise BadOption(
            f"slots={count} needs partition_by.",
            why="A subscription may need every row of its table, so one table is never divided.",
            do="Name the columns whose values have tables of their own, or leave slots out.",
        )
    size = parse_size(memory)
    if size < LEAST_MEMORY * count:
        raise BadOption(
            f"memory={memory!r} is too little for {count} slot{'s' * (count > 1)}.",
            do=f"Give at least {LEAST_MEMORY * count >> 20} MB.",
        )
    return size, count


def check_table(stream: pa.Schema, columns: Columns, where: str = "The stream") -> None:
    """Refuse columns of a table of subscriptions that are not there or cannot be what they are given as."""
    if not columns.key:
        raise BadOption(
            "Subscriptions need a key.",
            why="An update replaces the row with the same key; without one nothing could ever be replaced.",
            do='Name the column that tells rows apart: key="id".',
        )
    if not columns.order:
        raise BadOption(
            "Subscriptions need an order.",
            why="Spark keeps no order within a micro-batch: of two updates of one row nobody could say which is newer.",
            do='Name a column that grows with every update of a row, a number or a time: order="updated_at".',
        )
    for name in (*columns.partition_by, *columns.key):
        column_kind(stream, name, where)
    ordered: list[tuple[str, str | None]] = [
        ("x", columns.x),
        ("x", columns.x2),
        ("order", columns.order),
        ("y", columns.y),
    ]
    for what, name in ((what, name) for what, name in ordered if name is not None):
        if stream.get_field_index(name) < 0:
            raise UnknownColumn.among(name, stream.names, where)
        check_ordered(stream.field(name).type, f"{what}={name!r}")
    if columns.deleted is not None:
        if stream.get_field_index(columns.deleted) < 0:
            raise UnknownColumn.among(columns.deleted, stream.names, where)
        if not pt.is_boolean(stream.field(columns.deleted).type):
            raise UnsupportedType(
                f"deleted={columns.deleted!r} is of type {stream.field(columns.deleted).type}.",
                why="It says of each update whether it is a deletion.",
                do="Give a boolean column: stream.withColumn('gone', col('op') == 'D').",
            )


def _check_columns(stream: pa.Schema, columns: Columns, agg: Aggregate) -> None:
    if columns.y is None and agg != "count":
        raise BadOption(f"agg={agg!r} needs a y.", do='Name the column to aggregate: y="price".')
    if columns.x2 is not None and agg not in EXTREMES:
        raise BadOption(
            f"agg={agg!r} has no ranges of two columns.",
            why="Which of them an update concerns is worked out for extremes alone.",
            do='Give agg="min" or agg="max", or one column as x.',
        )
    check_table(stream, columns)
    if agg in ("sum", "avg") and pt.is_temporal(stream.field(columns.y).type):
        raise UnsupportedType(
            f"y={columns.y!r} is of type {stream.field(columns.y).type}, which has no {agg}.",
            do="Cast it to a number first, or give another aggregate.",
        )
    names = [*columns.partition_by, columns.order]
    whole = message_schema(stream, columns, agg).names
    check_names(names, whole[len(names) :])


def check_names(names: list[str], ours: list[str]) -> None:
    """Refuse columns of a stream that a message would have twice."""
    taken = [name for name in names if name in ours] or [name for name in names if names.count(name) > 1]
    if taken:
        raise BadOption(
            f"A message would have two columns {taken[0]!r}.",
            do="Rename the column of the stream that is given as partition_by or order.",
        )
