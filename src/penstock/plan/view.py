"""The plan of a view: its SQL checked against its tables, and what was promised to its readers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa

from penstock.errors import BadOption, UnknownColumn, UnknownTable, UnsupportedType
from penstock.plan.units import format_duration, parse_duration
from penstock.plan.views.expressions import Call, columns_of, walk
from penstock.plan.views.kinds import kind_of
from penstock.plan.views.query import Query, analyse

PLANNERS = ("online", "simulate", "naive")
#: Columns that a change may not have, since they are ours.
_SIGN = "__sign"
#: Changes that are brought into a view in one go; more are taken in several.
CHUNK = 1_000_000


@dataclass(frozen=True)
class Changing:
    """A table that a view is over, with the log of its changes.

    Parameters
        base: Parquet file, directory, or a DataFrame: the rows before the first change.
        changes: a directory to which files of changes are added (Parquet, each whole or not there yet), or a streaming
            DataFrame; without it the table never changes. A change has the table's columns and its operation.
        key: columns by which a row is known, so that updates and deletes need not bring the whole old row.
        operation: the column of changes that says what they do: insert, delete, update; update_preimage and
            update_postimage; or the letters that change feeds use.
        order: a column of changes by which they are put in order within a file; without it, as they lie in it. Files
            are taken in the order of their names.

    Example::

        ps.Changing("customers/", changes="customers-changes/", key="customer_id")
    """

    base: Any
    changes: Any = None
    key: str | Sequence[str] = ()
    operation: str = "_change_type"
    order: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The key's columns."""
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)


def plain(schema: pa.Schema, where: str) -> pa.Schema:
    """The same columns in the types that Spark has; nullable, without notes. Raises `UnsupportedType`."""
    fields = []
    for field_ in schema:
        type_ = _plain_type(field_.type)
        if type_ is None and kind_of(field_.type) is None:
            raise UnsupportedType(
                f"{where}: {field_.name} is {field_.type}, which a view cannot hold.",
                do="Leave the column out, or cast it, before it arrives.",
            )
        fields.append(pa.field(field_.name, type_ or field_.type))
    names = [name.lower() for name in schema.names]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UnsupportedType(f"{where} has two columns {twice!r}; letter case does not tell columns apart.")
    return pa.schema(fields)


def _plain_type(type_: pa.DataType) -> pa.DataType | None:
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", "UTC" if type_.tz else None)
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
    return wider.get(type_)


@dataclass(frozen=True)
class TableSpec:
    """What the plan has to know of a table."""

    schema: pa.Schema
    key: tuple[str, ...] = ()
    changes: bool = True
    #: The column of changes that says what they do; none of a table that never changes.
    operation: str = ""


@dataclass(frozen=True)
class ViewPlan:
    """A view that can be kept. Durations are in seconds."""

    sql: str
    tables: Mapping[str, TableSpec]
    query: Query = field(repr=False)
    answer_within: float
    planner: str
    reads_every: float

    @classmethod
    def checked(
        cls,
        sql: str,
        tables: Mapping[str, TableSpec],
        *,
        answer_within: str | timedelta,
        planner: str,
        reads_every: str | timedelta | None,
    ) -> ViewPlan:
        """The plan, or the first fault in it."""
        if not tables:
            raise BadOption("tables={} names no table.", do='Give at least one: tables={"orders": "orders/"}.')
        if planner not in PLANNERS:
            near = difflib.get_close_matches(str(planner), PLANNERS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise BadOption(f"planner={planner!r} is not a planner.", do=f"Choose one of: {', '.join(PLANNERS)}.{hint}")
        within = parse_duration(answer_within, option="answer_within") / 1e6
        if within <= 0:
            raise BadOption(
                "answer_within must be more than zero.", do='Give what readers accept: answer_within="12 s".'
            )
        every = parse_duration(reads_every, option="reads_every") / 1e6 if reads_every is not None else 30 * within
        if every <= 0:
            raise BadOption(
                "reads_every must be more than zero.", do='Give how often readers come: reads_every="5 min".'
            )
        for name, spec in tables.items():
            for column in spec.key:
                if column not in spec.schema.names:
                    raise UnknownColumn.among(column, spec.schema.names, f"The table {name}")
            if len({*spec.key}) < len(spec.key):
                raise BadOption(f"The key of {name} has a column twice.", do="Name each once.")
            for column in spec.schema.names:
                # Letter case does not tell columns apart.
                if column.lower() == _SIGN:
                    raise BadOption(f"{name} has a column {column}, which is ours.", do="Rename it.")
                if column.lower() == spec.operation.lower():
                    raise BadOption(
                        f"{name} has a column {column}, which says of changes what they do.",
                        do="Leave it out of the table, or have changes say it in another column: operation=….",
                    )
        query = analyse(sql, {name: spec.schema for name, spec in tables.items()})
        unused = sorted(set(tables) - {source.table for source in query.sources})
        if unused:
            raise UnknownTable(
                f"The view does not use {', '.join(unused)}.",
                why="Its changes would wait for ever.",
                do="Leave it out of tables={…}, or join it.",
            )
        return cls(sql, dict(tables), query, within, planner, every)

    def changing(self) -> tuple[str, ...]:
        """The tables that change, in order."""
        return tuple(name for name, spec in self.tables.items() if spec.changes)

    def identity(self, zone: str = "UTC") -> dict[str, str]:
        """What may not change between two runs on the same directory; `zone` is where days begin and end."""
        shown = {
            name: ", ".join(f"{f.name} {f.type}" for f in spec.schema)
            + (f"; key {', '.join(spec.key)}" * bool(spec.key))
            for name, spec in self.tables.items()
        }
        # As it was understood: spaces and letter case of the text may differ.
        said = {"query": repr(self.query), **{f"table {name}": columns for name, columns in shown.items()}}
        return said | {"time zone": zone} if self._asks_for_days() else said

    def _asks_for_days(self) -> bool:
        """Whether anything is computed from moments, whose day and hour depend on where one is."""
        query = self.query
        written = (*query.filters, *query.keys, *(a.argument for a in query.aggregates if a.argument is not None))
        calls = [part for one in written for part in walk(one) if isinstance(part, Call)]
        types = [
            self.tables[query.sources[column.source].table].schema.field(column.name).type
            for call in calls
            for column in columns_of(call)
        ]
        # A time as it is written and a moment are equal somewhere only.
        for pair in query.equalities:
            both = [self.tables[query.sources[c.source].table].schema.field(c.name).type for c in pair]
            types += both if both[0] != both[1] else []
        return any(pa.types.is_timestamp(type_) and type_.tz is not None for type_ in types)

    def explain(self) -> str:
        """What will be kept, and how, for people."""
        query = self.query
        shape = {
            "groups": f"groups by {len(query.keys)} key(s)",
            "one": "one row",
            "distinct": "distinct rows, with counts",
            "bag": "rows, with counts",
        }[query.shape]
        lines = [f"view        {' '.join(self.sql.split())}", f"kept as     {shape}"]
        for name, spec in self.tables.items():
            how = f"key {', '.join(spec.key)}" if spec.key else "rows without a key"
            lines.append(f"table       {name}: {how if spec.changes else 'never changes'}")
        promise = format_duration(round(self.answer_within * 1e6))
        lines.append(f"promise     answers within {promise}; planner {self.planner}")
        return "\n".join(lines)
