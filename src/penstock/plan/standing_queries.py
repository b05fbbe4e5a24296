"""The plan of `StandingQueries`: very many join queries over two streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import BadOption, BadQuery, MemoryTooSmall, PenstockError, PlanError, UnknownColumn
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Metric
from penstock.kernels.standing.numbers import range_kind
from penstock.kernels.standing.query_set import bytes_needed
from penstock.kernels.standing.query_table import ID, OP, VERSION, Queries, bound_kinds, check_columns, describe_kinds
from penstock.kernels.standing.refine import PIECE
from penstock.kernels.standing.results import OUTPUTS, Output, Results
from penstock.kernels.standing.router import DYNAMIC, Dynamic, walked
from penstock.kernels.standing.search import RUN, Flags
from penstock.kernels.standing.shape import LEFT, RIGHT, SIDES, BandJoin, SelectJoin, Shape
from penstock.kernels.standing.standing_join import LATE, StandingJoin
from penstock.kernels.standing.strategies import BAND_JOIN, BLOCK, SELECT_JOIN, Strategy
from penstock.kernels.window.windows import TimeWindow
from penstock.plan.base import Plan, Side
from penstock.plan.faults import Faults
from penstock.plan.given import Names, column_names, renaming, shown
from penstock.plan.query_source import QuerySource
from penstock.plan.routing import RangeSide
from penstock.plan.two_streams import read_times
from penstock.plan.units import format_duration, format_size, parse_count, parse_duration, parse_size
from penstock.tables.keys import PARTITIONS, check_key_types

#: What each slot has for rows at the least.
_FOR_ROWS = 1 << 20


def select_join(on: Names | tuple[Names, Names], *, left: Names, right: Names) -> SelectJoin:
    """Queries that want pairs of equal keys with a value in a range on each side.

    `on` are the key columns, the same on both sides, or a pair (left columns, right columns); `left` and `right` the
    columns that each query has a range for. With several on a side, name the one that most queries are most
    particular about first.

    >>> select_join("product", left="offered", right="wanted").describe()
    'left.product = right.product, ranges on left.offered, right.wanted'
    """
    keys = (on[0], on[1]) if isinstance(on, tuple) and len(on) == 2 else (on, on)
    ranges = column_names(left, option="left"), column_names(right, option="right")
    return SelectJoin((column_names(keys[0]), column_names(keys[1])), ranges)


def band_join(*, left: str, right: str, on: Names | tuple[Names, Names] = ()) -> BandJoin:
    """Queries that want pairs whose difference, `right - left`, lies in a range; with `on`, of equal keys only.

    >>> band_join(left="position", right="position").describe()
    'right.position - left.position in a range'
    """
    for option, given in (("left", left), ("right", right)):
        if not isinstance(given, str):
            raise BadOption(
                f"{option}={shown(given)} does not name one column.",
                why="A band is of the difference of one column of each side.",
                do=f'Give its name: {option}="position".',
            )
    keys = (on[0], on[1]) if isinstance(on, tuple) and len(on) == 2 else (on, on)
    return BandJoin(((left,), (right,)), (column_names(keys[0]), column_names(keys[1])))


@dataclass(frozen=True)
class StandingQueriesPlan(Plan):
    """Standing queries over two streams.

    Slots share the rows: by key where the shape has one, and every slot has all queries. A band join without key is
    divided by ranges of the left value if `split` says where they end; each right row then goes to the slots that its
    widest band reaches. Without `split` left rows are spread and right rows go to every slot. `memory` is for all
    slots together.
    """

    left: pa.Schema
    right: pa.Schema
    shape: Shape
    queries: QuerySource
    changes: pa.Schema | None
    memory: int
    slots: int
    output: Output
    strategy: Strategy | Dynamic
    keep: int | None
    within: int | None
    event_time: tuple[str, str] | None
    lateness: int
    split: tuple[float, ...]
    reach: tuple[float, float] | None

    name: ClassVar[str] = "StandingQueries"
    reports: ClassVar[tuple[Metric, ...]] = StandingJoin.reports

    @classmethod
    def checked(
        cls,
        left: pa.Schema,
        right: pa.Schema,
        *,
        shape: Shape,
        queries: str | os.PathLike[str] | pa.Table | None = None,
        changes: pa.Schema | None = None,
        memory: str | int,
        slots: int,
        output: Output = "pairs",
        strategy: Strategy | Dynamic = "dynamic",
        keep: int | None = None,
        within: str | timedelta | None = None,
        time: str | tuple[str, str] | None = None,
        lateness: str | timedelta = "0 seconds",
        split: Sequence[float] = (),
        reach: tuple[float, float] | None = None,
    ) -> StandingQueriesPlan:
        """The plan, or one error that names every fault in it."""
        faults = Faults()
        schemas = (left, right)
        size = faults.tried(parse_size, memory) or 0
        window = faults.tried(parse_duration, within, option="within") if within is not None else None
        late = faults.tried(parse_duration, lateness, option="lateness") or 0
        faults += _shape_faults(schemas, shape, output)
        faults += _option_faults(shape, slots, output, strategy, split)
        faults += _extent_faults(keep, within)
        if within is None and (time is not None or late):
            said = "time" if time is not None else "lateness"
            faults.append(BadOption(f"{said}= is for rows that wait by event time.", do="Give within= with it."))
        if reach is not None and not len(split):
            faults.append(BadOption("reach= is for a band join that is divided.", do="Give split=, or leave it out."))
        times = None if window is None else faults.tried(read_times, left, right, time, TimeWindow(window, window))
        faults.complain("these standing queries")
        kinds = bound_kinds(shape, schemas)
        source = QuerySource.of(queries, kinds)
        found = source.load()
        if changes is not None:
            check_columns(changes, kinds, where="The stream of changes", changes=True)
        elif queries is None:
            raise BadOption(
                "There are no queries, and no stream that could bring any.",
                do=f"Give queries= (a Parquet path with: {describe_kinds(shape, kinds)}), or changes=, or both.",
            )
        widest = reach
        if split:
            widest = _reach(reach, found.bounds, changes is not None)
        plan = cls(
            left,
            right,
            shape,
            source,
            None if changes is None else pa.schema([changes.field(name) for name in (ID, OP, VERSION, *kinds)]),
            size,
            slots,
            output,
            strategy,
            keep,
            window,
            times,
            late,
            tuple(float(end) for end in split),
            widest,
        )
        least = plan.least_memory(found)
        if size < least:
            raise MemoryTooSmall(
                f"{format_size(size)} cannot hold {len(found.ids):,} queries.",
                why=f"Each of {slots} slots has all of them, with indexes, and needs {format_size(least // slots)}.",
                do=f'Give at least memory="{format_size(least, round_up=True)}", and room for the rows that are kept.',
            )
        return plan

    def least_memory(self, queries: Queries) -> int:
        """Bytes that these queries need, over all slots, with a little room for rows."""
        count = len(queries.ids)
        indexed = bytes_needed(count, self.shape, walked(self.strategy, self.shape.own), queries.bounds)
        buffers = (count + BLOCK) * RUN + 2 * PIECE * RUN + 8 * count
        return self.slots * (indexed + buffers + _FOR_ROWS)

    @property
    def sides(self) -> tuple[Side, ...]:
        """Left, right, and the changes, which every slot gets."""
        changes = () if self.changes is None else (Side(self.changes),)
        return (self._side(LEFT), self._side(RIGHT), *changes)

    def _side(self, side: int) -> Side:
        schema = (self.left, self.right)[side]
        # Every slot begins with the first rows there are, so that all of them have the same first queries.
        timed: dict[str, Any] = {"calls_all": True}
        if self.event_time:
            timed |= {"event_time": self.event_time[side], "lateness": self.lateness}
        column = self.shape.ranges[side][0]
        if self.shape.on[side]:
            return Side(schema, key=self.shape.on[side], **timed)
        if self.split and self.reach is not None:
            # A right row meets left ones from its value less the longest band up to its value less the shortest.
            ends = (0.0, 0.0) if side == LEFT else (-self.reach[1], -self.reach[0])
            return RangeSide(schema, column=column, split=self.split, reach=ends, **timed)
        return Side(schema, key=(column,) if side == LEFT else (), **timed)

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """Results, what cannot be used, and with a window the rows that came too late for it."""
        results = Results(self.output, self.shape, (self.left, self.right)).schema
        late = dict(zip(LATE, (self.left, self.right), strict=True)) if self.within is not None else {}
        return {RESULTS: results, SET_ASIDE: SET_ASIDE_SCHEMA, **late}

    def make(self, slot: int) -> StandingJoin:
        """The kernel of a slot."""
        keep = None
        if self.keep is not None:
            share = -(-self.keep // self.slots)
            # A slot may get every right row of a band join without key, not a share of them.
            keep = (share, share if self.shape.on[RIGHT] else self.keep)
        return StandingJoin(
            (self.left, self.right),
            self.shape,
            self.queries.load,
            budget=self.memory // self.slots,
            output=self.output,
            strategy=self.strategy,
            keep=keep,
            within=self.within,
            event_time=self.event_time,
            reach=self.reach,
            tells_of=self._tells_of(slot),
            says_changes=slot == 0,
        )

    def _tells_of(self, slot: int) -> Callable[[pa.RecordBatch], Flags] | None:
        """Of right rows that go to several slots, those that this one counts, sets aside or calls late."""
        side = self.sides[RIGHT]
        if isinstance(side, RangeSide):
            return lambda rows: side.reached(rows)[0] == slot
        return None if side.key else lambda rows: np.full(rows.num_rows, slot == 0)

    def identity(self) -> Mapping[str, str]:
        """What state depends on; not the budget, nor the strategy: all of them give the same results."""
        said = {
            "operator": self.name,
            "left columns": _columns(self.left),
            "right columns": _columns(self.right),
            "shape": self.shape.describe(),
            "output": self.output,
            "keep": str(self.keep),
            "within": str(self.within),
            "slots": str(self.slots),
        }
        if self.event_time:
            said |= {"event time": ", ".join(self.event_time)}
        return said | {"split": ", ".join(map(str, self.split)), "reach": str(self.reach)} if self.split else said

    def explain(self) -> str:
        """The shape, its queries, and how memory is spent."""
        count = self.queries.count
        taken = bytes_needed(count, self.shape, walked(self.strategy, self.shape.own))
        extent = f"until {self.keep:,} newer ones came" if self.keep is not None else ""
        extent = f"for {format_duration(self.within)}" if self.within is not None else extent
        how = (
            "by key"
            if self.shape.on[LEFT]
            else "by ranges"
            if self.split
            else "left rows spread, right rows everywhere"
        )
        return "\n".join(
            [
                f"StandingQueries: {self.shape.describe()} ({self.strategy})",
                f"  queries  {count:,} to begin with{', and a stream of changes' if self.changes is not None else ''}",
                f"  rows     kept {extent}",
                f"  work     {self.slots} slots, {how}; each has all queries",
                f"  memory   {format_size(self.memory)} in all, {format_size(self.memory // self.slots)} a slot, "
                f"of which queries take about {format_size(taken)}",
                f"  output   {self.output}",
            ]
        )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _shape_faults(schemas: tuple[pa.Schema, pa.Schema], shape: Any, output: str) -> list[PenstockError]:
    if not isinstance(shape, SelectJoin | BandJoin):
        return [
            BadOption(
                f"{type(shape).__name__} is not a shape of queries.",
                do='Give ps.select_join("product", left="offered", right="wanted") or ps.band_join(left=…, right=…).',
            )
        ]
    faults = Faults()
    for side, schema in enumerate(schemas):
        for column in shape.ranges[side]:
            if column not in schema.names:
                faults.append(UnknownColumn.among(column, schema.names, f"The {SIDES[side]} stream"))
            else:
                faults.tried(range_kind, schema.field(column).type)
        if len({*shape.ranges[side]}) < len(shape.ranges[side]):
            faults.append(BadOption(f"The {SIDES[side]} side has a column with two ranges.", do="Name each once."))
        if not shape.ranges[side]:
            faults.append(BadOption(f"The {SIDES[side]} side has no column with a range.", do="Name at least one."))
    if not shape.on[LEFT] and shape.own:
        faults.append(BadOption("A select-join needs a key.", do='Name it: ps.select_join("product", …).'))
    if shape.on != ((), ()):
        faults.tried(check_key_types, schemas[LEFT], shape.on[LEFT], schemas[RIGHT], shape.on[RIGHT])
    if faults:
        return faults
    if isinstance(shape, BandJoin):
        ours, theirs = (range_kind(schemas[side].field(shape.ranges[side][0]).type) for side in (LEFT, RIGHT))
        if ours != theirs:
            faults.append(
                BadQuery(
                    f"A {theirs} less a {ours} is nothing that a range could have.",
                    why=f"{shape.ranges[RIGHT][0]!r} and {shape.ranges[LEFT][0]!r} are of different kinds.",
                    do="Cast one of them.",
                )
            )
    return faults + (_clashes(schemas, shape) if output != "counts" else [])


def _clashes(schemas: tuple[pa.Schema, pa.Schema], shape: Shape) -> list[PenstockError]:
    shared = {a for a, b in zip(*shape.on, strict=True) if a == b}
    ours = {name.lower(): name for name in schemas[LEFT].names}
    both = [n for n in schemas[RIGHT].names if n.lower() in ours and n not in shared]
    ours_alone = (ID, "arrived", "partners", "first", "last")
    taken = [n for s in schemas for n in s.names if n.lower() in ours_alone]  # Spark does not tell letter cases apart
    if both:
        return [
            PlanError(
                f"Both streams have {', '.join(map(repr, both))}.",
                why="The result would have two columns of one name.",
                do=renaming(both[0], f"right_{both[0]}"),
            )
        ]
    different = [n for n in shared if schemas[LEFT].field(n).type != schemas[RIGHT].field(n).type]
    if different:
        return [
            PlanError(
                f"The key {different[0]!r} is {schemas[LEFT].field(different[0]).type} on the left and "
                f"{schemas[RIGHT].field(different[0]).type} on the right.",
                why="The result has it once.",
                do="Cast one of them to the other's type.",
            )
        ]
    if taken:
        return [PlanError(f"A stream has a column {taken[0]!r}, which results need.", do="Rename it first.")]
    return []


def _option_faults(shape: Shape, slots: int, output: str, strategy: str, split: Sequence[float]) -> list[PenstockError]:
    faults = Faults()
    faults.tried(parse_count, slots, option="slots", most=PARTITIONS)
    if output not in OUTPUTS:
        faults.append(
            BadOption(f"output={output!r} is not a form of results.", do=f"Give one of: {', '.join(OUTPUTS)}.")
        )
    known = (DYNAMIC, *(SELECT_JOIN if getattr(shape, "own", True) else BAND_JOIN))
    if strategy not in known:
        faults.append(
            BadOption(f"There is no strategy {strategy!r} for this shape.", do=f"Give one of: {', '.join(known)}.")
        )
    if len(split) and (getattr(shape, "own", True) or shape.on[LEFT]):
        faults.append(BadOption("Only a band join without key is split by ranges.", do="Leave split out."))
    try:
        ends = np.array(split, float)
    except (TypeError, ValueError):
        return [
            *faults,
            BadOption(
                f"split={list(split)} has something that is not a number.",
                do="Give numbers; of dates the days, of timestamps the microseconds since 1970.",
            ),
        ]
    if len(split) and (len(split) != slots - 1 or not (np.diff(ends) > 0).all() or np.isnan(ends).any()):
        faults.append(
            BadOption(
                f"split has {len(split)} ends for {slots} slots, or they do not ascend.",
                do=f"Give {slots - 1} ascending values: each is where one slot's range of the left column ends.",
            )
        )
    return faults


def _extent_faults(keep: int | None, within: object) -> list[PenstockError]:
    if (keep is None) == (within is None):
        return [
            BadOption(
                "How long rows wait for partners is said " + ("twice." if keep is not None else "nowhere."),
                why="Rows that are kept for ever outgrow any memory.",
                do='Give keep=1_000_000 (rows of each side) or within="10 minutes" with time=("at", "at").',
            )
        ]
    faults = Faults()
    if keep is not None:
        faults.tried(parse_count, keep, option="keep")
    return faults


def _reach(given: tuple[float, float] | None, bounds: np.ndarray, changing: bool) -> tuple[float, float]:
    if given is not None and not given[0] <= given[1]:
        raise BadOption(f"reach={given} does not ascend.", do="Give reach=(from, to) that every band lies in.")
    have = (float(bounds[:, 0].min()), float(bounds[:, 1].max())) if len(bounds) else (0.0, 0.0)
    if given is None:
        if changing or not np.isfinite(have).all():
            raise BadOption(
                "How far the widest band reaches is not known.",
                why="Rows go to the slots that it reaches, also for queries that are still to come.",
                do="Give reach=(from, to) that every band lies in, or leave split out.",
            )
        return have
    if len(bounds) and (have[0] < given[0] or have[1] > given[1]):
        raise BadQuery(
            f"A band from {have[0]} to {have[1]} lies beyond reach={given}.",
            why="Its partners would be in other slots.",
            do="Give a wider reach.",
        )
    return given
