"""The plan of `join_shared`: one window join of two streams for many queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import BadOption, MemoryTooSmall, PenstockError, PlanError
from penstock.kernels.contract import RESULTS, SET_ASIDE, Metric
from penstock.kernels.function_text import function_text
from penstock.kernels.shared.budget import least_budget, room_of
from penstock.kernels.shared.changes import CHANGES
from penstock.kernels.shared.greedy import Greedy
from penstock.kernels.shared.lwo import LWO
from penstock.kernels.shared.pairing import Where
from penstock.kernels.shared.response import REPORTS
from penstock.kernels.shared.scheduler import Scheduler
from penstock.kernels.shared.selection import Condition, Selection
from penstock.kernels.shared.sending import ADDED, WHOSE, Select
from penstock.kernels.shared.sharedjoin import SharedJoin
from penstock.kernels.shared.swf import SWF
from penstock.kernels.window.shape import LATE, Shape
from penstock.kernels.window.side import ENTRY
from penstock.kernels.window.windows import FAR, RowWindow, TimeWindow
from penstock.plan.base import Plan, Side
from penstock.plan.faults import Faults
from penstock.plan.given import renaming, shown
from penstock.plan.two_streams import (
    On,
    Within,
    check_columns,
    check_condition,
    key_pairs,
    name_faults,
    read_shape,
    read_times,
    read_window,
    width_of,
)
from penstock.plan.units import exact_duration, format_duration, format_size, parse_count, parse_duration, parse_size
from penstock.tables.keys import PARTITIONS

SCHEDULERS: dict[str, Scheduler] = {one.name: one for one in (LWO(), SWF(), Greedy())}
#: Units of work in a step: about a second of one core.
SLICE = 1_000_000
#: Names that a query cannot have: other channels, and what `flow.start` takes beside places.
RESERVED = (RESULTS, ADDED, SET_ASIDE, *LATE, "checkpoint", "trigger", "name", "self")
Windows = Mapping[str, "Within | SharedQuery"] | Iterable[tuple[str, "Within | SharedQuery"]]


@dataclass(frozen=True)
class SharedQuery:
    """One of the queries that share a join: its window, and what it selects of the results."""

    window: Within
    select: Select | Sequence[Condition] | None = None
    on: On | None = None


def query(window: Within, *, select: Select | Sequence[Condition] | None = None, on: On | None = None) -> SharedQuery:
    """A query for `join_shared` that wants some of the pairs in its window.

    `select` are conditions on columns of the results, all of which a result must meet, such as
    `[("amount", ">", 100)]`; or a function of a record batch of results that gives truth values. It stands above the
    join, which so stays one for all queries. `on` may say again what the query joins on; where it is not what the
    others do, it is refused.

    >>> query("10 minutes", select=lambda found: found.column("amount").to_numpy() > 100).window
    '10 minutes'
    """
    return SharedQuery(window, select, on)


@dataclass(frozen=True)
class JoinSharedPlan(Plan):
    """One join for many queries. `memory` is for all slots together; rows go to the slot of their key.

    >>> left = pa.schema([("id", pa.int64()), ("asked", pa.timestamp("us"))])
    >>> right = pa.schema([("id", pa.int64()), ("answered", pa.timestamp("us"))])
    >>> plan = JoinSharedPlan.checked(
    ...     left,
    ...     right,
    ...     on="id",
    ...     windows={"slow": "10 minutes", "fast": "1 second"},
    ...     time=("asked", "answered"),
    ...     memory="64MB",
    ...     slots=2,
    ... )
    >>> print(plan.explain())
    join_shared on id = id
      queries  fast 1 s, slow 10 min; rows may be 0 us late
      order    Greedy, 1,000,000 units of work in a step, the rest in the next
      work     2 slots, divided by key; each query's stream is in order within a slot
      memory   64 MB in all, 32 MB a slot, for the rows of the widest window, once
      changes  none: the queries stay these
    """

    shape: Shape
    windows: tuple[tuple[str, int], ...]
    by_rows: bool
    times: tuple[str, str] | None
    lateness: int
    scheduler: str
    memory: int
    slots: int
    slice: int | None = None
    where: Where | None = None
    select: Mapping[str, Select] = field(default_factory=dict)
    changes: str | None = None
    #: Conditions and selections as they were when the join was planned: workers run them, and they may change.
    told: Mapping[str, str] = field(init=False)

    name: ClassVar[str] = "join_shared"
    reports: ClassVar[tuple[Metric, ...]] = REPORTS
    loose: ClassVar[tuple[str, ...]] = ("changes",)

    def __post_init__(self) -> None:
        asked = {"where": self.where} | {f"select of {name}": one for name, one in self.select.items()}
        told = {name: function_text(one) for name, one in asked.items() if one is not None}
        object.__setattr__(self, "told", told)

    @classmethod
    def checked(
        cls,
        left: pa.Schema,
        right: pa.Schema,
        *,
        on: On | None,
        windows: Windows,
        memory: str | int,
        scheduler: str = "greedy",
        slots: int | None = None,
        cores: int = 1,
        time: str | tuple[str, str] | None = None,
        lateness: str | timedelta = "0 seconds",
        where: Where | None = None,
        slice: int | None = SLICE,  # noqa: A002
        changes: str | None = None,
    ) -> JoinSharedPlan:
        """The plan, or one error that names every fault in it. Without `slots`, as many as `cores`, if it can be."""
        faults = Faults()
        tried = faults.tried
        shape = tried(_read_join, left, right, on, where)
        queries = tried(_read_queries, windows) or {}
        kinds = {name: tried(shared_window, name, one.window) for name, one in queries.items()}
        found = [kind for kind in kinds.values() if kind is not None]
        by_rows = bool(found) and found[0][1]
        tried(_check_kinds, {name: kind for name, kind in kinds.items() if kind is not None})
        tried(_check_predicates, queries, on)
        tried(check_condition, where)
        times = tried(read_times, left, right, time, None if by_rows or not found else TimeWindow(1, 1))
        size = tried(parse_size, memory)
        late = tried(parse_duration, lateness, option="lateness")
        tried(_check_slice, slice)
        tried(_check_scheduler, scheduler)
        single = by_rows or (shape is not None and not shape.on)
        slots = (1 if single else cores) if slots is None else slots
        tried(_check_slots, slots, single, by_rows)
        if not faults:
            faults += name_faults(shape, False)
            faults += _name_of_added(shape, changes)
            ordered = sorted(((name, kinds[name][0]) for name in queries), key=lambda one: one[1])
            selects = {name: tried(_read_select, one.select, shape) for name, one in queries.items() if one.select}
            plan = cls(
                shape, tuple(ordered), by_rows, times, late, scheduler, size, slots, slice, where, selects,
                changes,
            )  # fmt: skip
            faults += plan._memory_faults()
        faults.complain("this join")
        return plan

    def _memory_faults(self) -> list[PenstockError]:
        each, least = self.memory // self.slots, least_budget(len(self.windows))
        if each < least:
            return [
                MemoryTooSmall(
                    f"{format_size(self.memory)} cannot hold the window of {len(self.windows)} queries.",
                    why=f"Each of {self.slots} slots needs {format_size(least)} for results on their way alone.",
                    do=f'Give at least memory="{format_size(least * self.slots, round_up=True)}".',
                )
            ]
        name, widest = self.windows[-1]
        need = 2 * widest * (self._row_width() + ENTRY) if self.by_rows else 0.0
        room = room_of(each, len(self.windows)) * 7 / 8
        if need <= room:
            return []
        return [
            MemoryTooSmall(
                f"The window of {name!r} does not fit: {2 * widest:,} rows need about {format_size(int(need))}, "
                f"{format_size(int(need - room), round_up=True)} more than there is for them.",
                why="No row goes before it leaves the widest window, so that every query gets all of its results.",
                do=f'Give at least memory="{format_size(int(each + (need - room) * 5 / 4), round_up=True)}", or a '
                "smaller window.",
            )
        ]

    def _row_width(self) -> float:
        return sum(sum(width_of(one.type) for one in schema) for schema in self.shape.sides) / 2

    @property
    def sides(self) -> tuple[Side, ...]:
        """Both streams, by key; and the changes, which every slot gets."""
        timed = None if self.by_rows else self.times
        both = [
            Side(self.shape.sides[side], self.shape.keys[side], timed[side] if timed else None, self.lateness)
            for side in (0, 1)
        ]
        return (*both, *([] if self.changes is None else [Side(CHANGES)]))

    @property
    def channels(self) -> Mapping[str, pa.Schema]:
        """One for each query, one for those that come later, late rows, and what cannot be used."""
        return dict(self.make(0).channels)

    def make(self, slot: int) -> SharedJoin:
        """The kernel of a slot."""
        return SharedJoin(
            self.shape,
            dict(self.windows),
            SCHEDULERS[self.scheduler],
            budget=self.memory // self.slots,
            times=self.times,
            by_rows=self.by_rows,
            where=self.where,
            select=self.select,
            units=FAR if self.slice is None else self.slice,
            says_changes=slot == 0,
        )

    def identity(self) -> Mapping[str, str]:
        """What decides which results there are; not memory, scheduler and slice, which may change at a restart."""
        columns = [", ".join(f"{one.name} {one.type}" for one in schema) for schema in self.shape.sides]
        return {
            "operator": self.name,
            "left columns": columns[0],
            "right columns": columns[1],
            "on": self._keys(),
            **self.told,
            "windows": ", ".join(
                f"{name} {describe_window(window, True) if self.by_rows else exact_duration(window)}"
                for name, window in self.windows
            ),
            "time": ", ".join(self.times or ()),
            "lateness": str(self.lateness),
            "slots": str(self.slots),
        }

    def _keys(self) -> str:
        return ", ".join(f"{ours} = {theirs}" for ours, theirs in self.shape.on)

    def _queries(self) -> str:
        return ", ".join(f"{name} {describe_window(window, self.by_rows)}" for name, window in self.windows)

    def explain(self) -> str:
        """The queries, in which order their work is done, and what memory is for."""
        late = "" if self.by_rows else f"; rows may be {format_duration(self.lateness)} late"
        share = "all work in its step"
        if self.slice is not None:
            share = f"{self.slice:,} units of work in a step, the rest in the next"
        joined = f"on {self._keys()}" if self.shape.on else "by a condition, in nested loops"
        divided = "divided by key; each query's stream is in order within a slot"
        return "\n".join(
            [
                f"join_shared {joined}",
                f"  queries  {self._queries()}{late}",
                f"  order    {SCHEDULERS[self.scheduler].describe()}, {share}",
                f"  work     {f'{self.slots} slots, {divided}' if self.slots > 1 else '1 slot'}",
                f"  memory   {format_size(self.memory)} in all, {format_size(self.memory // self.slots)} a slot, "
                "for the rows of the widest window, once",
                f"  changes  {'none: the queries stay these' if self.changes is None else f'read from {self.changes}'}",
            ]
        )


def describe_window(window: int, by_rows: bool) -> str:
    """For people."""
    return f"{window:,} rows" if by_rows else format_duration(window)


def check_name(name: Any) -> None:
    """Refuse a name that a query cannot have."""
    if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
        raise BadOption(
            f"{name!r} cannot be the name of a query.",
            why=f"Results come on a channel of this name; {', '.join(RESERVED)} mean something else.",
            do='Give a word of letters, digits and underscores: windows={"fast": "1 second"}.',
        )


def shared_window(name: str, within: Within) -> tuple[int, bool]:
    """A window in microseconds or rows, and which of the two.

    >>> shared_window("fast", "1 second"), shared_window("last", RowWindow(5, 5))
    ((1000000, False), (5, True))
    """
    window = read_window(within)
    if isinstance(window, TimeWindow | RowWindow) and window.left == window.right:
        return window.left, isinstance(window, RowWindow)
    raise BadOption(
        f"The window of {name!r} is {window.describe()}.",
        why="In a shared join every window contains the smaller ones: they slide, and are the same for both sides.",
        do=f"Give {name!r} a duration or ps.rows(1000), or a ps.join_streams(…, within=…) of its own.",
    )


def _read_join(left: pa.Schema, right: pa.Schema, on: On | None, where: Where | None) -> Shape:
    if on is not None and on != () and on != []:
        return read_shape(left, right, on, "inner")
    if where is None:
        raise BadOption(
            "Nothing says which rows belong together.",
            do='Give on="id" for equal columns, or where= with a function of two record batches, or both.',
        )
    check_columns(left, right)
    return Shape(left, right, ())


def _name_of_added(shape: Shape, changes: str | None) -> list[PenstockError]:
    """Results of queries that are added say whose they are, in a column that no stream may have then."""
    taken = next((name for name in shape.results.names if name.lower() == WHOSE), None)
    if taken is None or changes is None:
        return []
    return [
        PlanError(
            f"A stream has a column {taken!r}.",
            why=f"Results of queries that are added have one of this name: whose they are. Channel {ADDED!r} has all.",
            do=renaming(taken, f"the_{taken}", "the stream"),
        )
    ]


def _read_queries(windows: Windows) -> dict[str, SharedQuery]:
    given = list(windows.items()) if isinstance(windows, Mapping) else windows
    if not isinstance(given, list | tuple) or not all(isinstance(one, list | tuple) and len(one) == 2 for one in given):
        raise BadOption(
            f"windows={shown(windows)} does not give each query a name and a window.",
            do='Give names and windows: windows={"fast": "1 second", "slow": "10 minutes"}.',
        )
    pairs = [(name, window) for name, window in given]
    if not pairs:
        raise BadOption(
            "There are no windows, so no query.",
            do='Give at least one: windows={"fast": "1 second", "slow": "10 minutes"}; others can come later.',
        )
    names = [name for name, _ in pairs]
    for name in names:
        check_name(name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadOption(
            f"Two queries are called {twice[0]!r}.",
            why="Each query's results are found by its name.",
            do="Give every query a name of its own.",
        )
    return {name: one if isinstance(one, SharedQuery) else SharedQuery(one) for name, one in pairs}


def _check_kinds(kinds: Mapping[str, tuple[int, bool]]) -> None:
    timed = [name for name, (_, by_rows) in kinds.items() if not by_rows]
    counted = [name for name, (_, by_rows) in kinds.items() if by_rows]
    if timed and counted:
        raise BadOption(
            f"The window of {timed[0]!r} is a time and that of {counted[0]!r} a number of rows.",
            why="One join serves queries whose windows contain one another; of these neither always does.",
            do="Share one join among the queries of each kind.",
        )


def _check_predicates(queries: Mapping[str, SharedQuery], on: On | None) -> None:
    for name, one in queries.items():
        if one.on is not None and key_pairs(one.on) != key_pairs(() if on is None else on):
            raise BadOption(
                f"Query {name!r} joins on {_said(one.on)}, and the others on {_said(() if on is None else on)}.",
                why="One join serves queries with the same predicate; what they select may differ: select=.",
                do="Share one join among the queries of each predicate.",
            )


def _said(on: On) -> str:
    return ", ".join(f"{ours} = {theirs}" for ours, theirs in key_pairs(on)) or "a condition alone"


def _read_select(given: Select | Sequence[Condition], shape: Shape) -> Select:
    return given if callable(given) else Selection.of(given, shape.results)


def _check_scheduler(scheduler: str) -> None:
    if scheduler not in SCHEDULERS:
        raise BadOption(f"scheduler={scheduler!r} is not a scheduler.", do=f"Choose one of: {', '.join(SCHEDULERS)}.")


def _check_slots(slots: int, single: bool, by_rows: bool) -> None:
    parse_count(slots, option="slots", most=PARTITIONS)
    if single and slots > 1:
        raise BadOption(
            f"{'A window of rows' if by_rows else 'A join without key'} cannot be divided among {slots} slots.",
            why="Each slot has the rows of some keys, and this join needs them all in one place.",
            do="Leave slots out, or give slots=1.",
        )


def _check_slice(given: Any) -> None:
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        raise BadOption(
            f"slice={given!r} is not a number of units of work.",
            why="A step that is run again must stop where it stopped before, so its work is counted, not timed.",
            do=f"Give a number, such as {SLICE:,} for about a second of one core, or None for no limit.",
        )
