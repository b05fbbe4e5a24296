"""The plan of a group: the operators' own plans, over inputs whose columns are named by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from penstock.errors import PlanError
from penstock.kernels.subscriptions.range_kernel import Columns
from penstock.plan.base import Plan
from penstock.plan.join_shared import JoinSharedPlan
from penstock.plan.join_streams import JoinStreamsPlan
from penstock.plan.passthrough import PassThroughPlan
from penstock.plan.standing_queries import StandingQueriesPlan, band_join, select_join
from penstock.plan.subscriptions import SubscriptionsPlan
from penstock.plan.table_joins import plan_join_table
from penstock.plan.view import TableSpec, ViewPlan, plain
from penstock.plan.views.expressions import Column, Expression
from penstock.sql.catalogue import Function, Relation
from penstock.sql.groups import Group, window_name
from penstock.sql.rows import evaluate, functions_of
from penstock.sql.shapes import (
    PREFIX,
    BandJoin,
    RangeAggregate,
    Selection,
    SelectJoin,
    TableJoin,
    View,
    WindowJoin,
)
from penstock.tables.keys import key_kind

#: The key of a join that has none: every row has the same.
EVERY = "every"


@dataclass(frozen=True)
class Input:
    """What a flow reads of a stream: columns, and what they are called there. `every` adds the key of all rows."""

    stream: str
    columns: tuple[tuple[str, str], ...]
    schema: pa.Schema
    every: str | None = None


def inputs_of(group: Group, *, every_column: bool = False) -> tuple[Input, ...]:
    """The inputs of a group's flow. With `every_column` queries that come later find their columns, too."""
    shape = group.shape
    names = shape.sources[:1] if isinstance(shape, TableJoin) else shape.sources
    prefixed = isinstance(shape, WindowJoin | BandJoin | SelectJoin)
    found = []
    for side, name in enumerate(names):
        schema = group.catalogue.stream(name).schema
        used = tuple(schema.names) if every_column else group.columns(side)
        prefix = shape.prefix if isinstance(shape, TableJoin) else PREFIX[side] if prefixed else ""
        columns = tuple((column, prefix + column) for column in used)
        fields = [pa.field(new, schema.field(old).type) for old, new in columns]
        every = _every(schema, side) if isinstance(shape, WindowJoin) and not shape.on else None
        fields += [pa.field(every, pa.int32())] if every else []
        found.append(Input(name, columns, pa.schema(fields), every))
    return tuple(found)


def reads_again(group: Group, said: str) -> Group:
    """The group over the columns that its flow began with, in the words of a plan's identity.

    Queries of it may have gone since then, and with them the only ones that looked at some of these. Of a stream that
    lacks them now, the group as it is.
    """
    stream = group.catalogue.stream(group.sources[0])
    prefix = group.shape.prefix if isinstance(group.shape, TableJoin) else ""
    names, rest = [], f"{said}, "
    for column in stream.schema:
        own, _, others = rest.partition(f"{prefix}{column.name} {column.type}, ")
        if not own and len(others) < len(rest):
            names.append(column.name)
            rest = others
    return group if rest else replace(group, also=tuple(names))


def _every(schema: pa.Schema, side: int) -> str:
    """What the key of a join that has none is called: as no column of the stream is."""
    name, taken = EVERY, {column.lower() for column in schema.names}
    while name in taken:
        name += "_"
    return PREFIX[side] + name


def plan_of(group: Group, *, slots: int, every_column: bool = False) -> Plan | ViewPlan:
    """What will run. Raises what the operators raise: a budget too small, a table that cannot be read."""
    if isinstance(group.shape, View):
        return view_plan(group)
    schemas = [one.schema for one in inputs_of(group, every_column=every_column)]
    return _PLANS[type(group.shape)](group, schemas, slots)


def view_plan(group: Group) -> ViewPlan:
    """The plan of a view."""
    shape = group.shape
    assert isinstance(shape, View)
    specs = {}
    for name in shape.tables:
        source = group.catalogue.source(name)
        changes = source.changes if isinstance(source, Relation) else True
        specs[name] = TableSpec(plain(source.schema, name), source.key if isinstance(source, Relation) else (), changes)
    within = timedelta(microseconds=shape.answer_within)
    return ViewPlan.checked(shape.select, specs, answer_within=within, planner="online", reads_every=None)


def _selection(group: Group, schemas: list[pa.Schema], slots: int) -> Plan:
    for field_ in schemas[0]:
        try:
            key_kind(field_.type)
        except PlanError:
            continue
        return PassThroughPlan.checked(schemas[0], key=(field_.name,), slots=slots)
    raise PlanError(f"No column of {group.sources[0]!r} can divide its rows.", do="Add a column of a plain type.")


def _table_join(group: Group, schemas: list[pa.Schema], slots: int) -> Plan:
    shape = group.shape
    assert isinstance(shape, TableJoin)
    table = group.catalogue.relation(shape.table).opened(tuple(theirs for _, theirs in shape.on))
    return plan_join_table(
        schemas[0],
        table,
        on=tuple(shape.prefix + ours for ours, _ in shape.on),
        how=shape.how,  # type: ignore[arg-type]
        memory=group.memory,
        slots=slots,
        shed=shape.shed,
        max_lag=None if shape.lag is None else f"{shape.lag} us",
    )


def _times(group: Group) -> dict[str, Any]:
    """Event times and lateness of both streams, where both have them."""
    left, right = (group.catalogue.stream(name) for name in group.sources)
    if left.event_time is None or right.event_time is None:
        return {}
    late = max(left.lateness, right.lateness)
    return {
        "time": (PREFIX[0] + left.event_time, PREFIX[1] + right.event_time),
        "lateness": f"{late} us",
    }


@dataclass(frozen=True)
class Pairs:
    """Which pairs of rows a condition accepts: for joins without a key."""

    condition: Expression
    functions: dict[str, Function] = field(repr=False)

    def __call__(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
        """One truth value for each pair."""
        sides = (left, right)

        def column(named: Column) -> pa.Array:
            return sides[named.source].column(PREFIX[named.source] + named.name)

        return evaluate(self.condition, column, left.num_rows, self.functions).cast(pa.bool_()).fill_null(False)


def shared_plan(group: Group, *, slots: int, every_column: bool = False) -> JoinSharedPlan:
    """One join for the windows of a group of window joins, also where they do not differ."""
    return _shared_join(group, [one.schema for one in inputs_of(group, every_column=every_column)], slots)


def _shared_join(group: Group, schemas: list[pa.Schema], slots: int) -> JoinSharedPlan:
    shape = group.shape
    assert isinstance(shape, WindowJoin)
    return JoinSharedPlan.checked(
        schemas[0],
        schemas[1],
        on=_on(group, shape) if shape.on else None,
        windows={window_name(window): window for window in group.windows.values()},
        memory=group.memory,
        cores=slots,
        where=_pairs(group, shape),
        **_times(group),
    )


def _on(group: Group, shape: WindowJoin) -> dict[str, str]:
    if not shape.on:
        left, right = (_every(group.catalogue.stream(name).schema, side) for side, name in enumerate(shape.sources))
        return {left: right}
    return {PREFIX[0] + ours: PREFIX[1] + theirs for ours, theirs in shape.on}


def _pairs(group: Group, shape: WindowJoin) -> Pairs | None:
    return Pairs(shape.where, functions_of(group.catalogue)) if shape.where is not None else None


def _window_join(group: Group, schemas: list[pa.Schema], slots: int) -> Plan:
    shape = group.shape
    assert isinstance(shape, WindowJoin)
    if group.shares_windows:
        return _shared_join(group, schemas, slots)
    return JoinStreamsPlan.checked(
        schemas[0],
        schemas[1],
        on=_on(group, shape),
        within=shape.window,
        memory=group.memory,
        cores=slots if shape.on else 1,
        policy=shape.shed or "exact",
        how=shape.how,  # type: ignore[arg-type]
        archive=shape.archive is not None,
        where=_pairs(group, shape),
        **_times(group),
    )


def _standing(group: Group, schemas: list[pa.Schema], slots: int) -> Plan:
    shape = group.shape
    assert isinstance(shape, BandJoin | SelectJoin)
    on = tuple(tuple(PREFIX[side] + pair[side] for pair in shape.on) for side in (0, 1))
    if isinstance(shape, BandJoin):
        left, right = (PREFIX[side] + shape.columns[side] for side in (0, 1))
        kernel_shape: Any = band_join(left=left, right=right, on=on)  # type: ignore[arg-type]
    else:
        ranges = [[PREFIX[side] + column for column in shape.columns[side]] for side in (0, 1)]
        kernel_shape = select_join(on, left=ranges[0], right=ranges[1])  # type: ignore[arg-type]
    rows = [query.shape.bounds for query in group.queries.values()]  # type: ignore[union-attr]
    table = pa.table(
        {
            "query": pa.array(group.ids.values(), pa.int64()),
            **{name: pa.array([row[place] for row in rows]) for place, name in enumerate(kernel_shape.bounds)},
        }
    )
    times = _times(group)
    return StandingQueriesPlan.checked(
        schemas[0],
        schemas[1],
        shape=kernel_shape,
        queries=table,
        memory=group.memory,
        slots=slots,
        within=f"{shape.window.span(0)} us",
        time=times["time"],
        lateness=times["lateness"],
    )


def _subscriptions(group: Group, schemas: list[pa.Schema], slots: int) -> Plan:
    shape = group.shape
    assert isinstance(shape, RangeAggregate)
    stream = group.catalogue.stream(shape.stream)
    partition = tuple(column for column, _ in shape.partition)
    columns = Columns(
        x=shape.x.column,
        y=shape.y,
        key=stream.key,
        order=stream.order or "",
        deleted=stream.deleted,
        partition_by=partition,
    )
    shared = slots if partition else 1
    return SubscriptionsPlan.checked(schemas[0], columns, agg=shape.function, memory=group.memory, slots=shared)


_PLANS: dict[type, Callable[[Group, list[pa.Schema], int], Plan]] = {
    Selection: _selection,
    TableJoin: _table_join,
    WindowJoin: _window_join,
    BandJoin: _standing,
    SelectJoin: _standing,
    RangeAggregate: _subscriptions,
}
