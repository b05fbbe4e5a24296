"""What a query is, once its text is understood: one frozen description for each shape.

`group_key` says with whom a query may share: two queries with the same key are answered by one flow, whatever else they
select, filter or want. `result_name` says what a column of a source is called in that flow's results.

Of two streams the left one is that with the smaller name, whichever stands first in FROM, so that `FROM a, b` and
`FROM b, a` share; columns in expressions are numbered by side.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

from penstock.kernels.window.windows import Window
from penstock.plan.units import format_duration
from penstock.plan.views.expressions import Column, Expression, Value

LEFT, RIGHT = 0, 1
#: What the columns of each side are called in a flow over both, so that equal names do not meet.
PREFIX = ("left_", "right_")
#: Pairs of columns that are equal, left and right.
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Range:
    """A column between two constants, both included; None is no end."""

    column: str
    low: Value
    high: Value


@dataclass(frozen=True)
class Selection:
    """Some rows and columns of one stream. All selections of a stream share its reading."""

    stream: str

    kind: ClassVar[str] = "selection"
    operator: ClassVar[str] = "filter"

    @property
    def group_key(self) -> Hashable:
        """The stream."""
        return self.kind, self.stream

    @property
    def sources(self) -> tuple[str, ...]:
        """What is read."""
        return (self.stream,)

    def result_name(self, column: Column) -> str:
        """As in the stream."""
        return column.name

    def describe(self) -> str:
        """For people."""
        return f"rows of {self.stream}"

    def describe_group(self) -> str:
        """For people, of all who share it."""
        return self.describe()


@dataclass(frozen=True)
class TableJoin:
    """A stream with a table by key. Queries with other columns and filters share the scan.

    `on` pairs the stream's columns with the table's; `shed` names the policy under load, or is None.
    """

    stream: str
    table: str
    on: Pairs
    how: str = "inner"
    shed: str | None = None
    archive: str | None = None
    #: How many microseconds a micro-batch may take before rows are shed.
    lag: int | None = None
    #: What the stream's columns are called with, so that none is called as one of the table's.
    prefix: str = PREFIX[LEFT]

    kind: ClassVar[str] = "table join"
    operator: ClassVar[str] = "join_table"

    @property
    def group_key(self) -> Hashable:
        """The join and what it sheds."""
        return self.kind, self.stream, self.table, self.on, self.how, self.shed, self.archive, self.lag

    @property
    def sources(self) -> tuple[str, ...]:
        """The stream, then the table."""
        return self.stream, self.table

    def result_name(self, column: Column) -> str:
        """The stream's have a prefix; the table's key is the stream's."""
        if column.source == LEFT:
            return self.prefix + column.name
        key = {theirs: ours for ours, theirs in self.on}
        return self.prefix + key[column.name] if column.name in key else column.name

    def describe(self) -> str:
        """For people."""
        on = " and ".join(f"{self.stream}.{a} = {self.table}.{b}" for a, b in self.on)
        shed = f", shedding by {self.shed.upper()}" if self.shed else ""
        return f"{self.stream} with the table {self.table} on {on} ({self.how}){shed}"

    def describe_group(self) -> str:
        """For people, of all who share it."""
        return self.describe()


@dataclass(frozen=True)
class _TwoStreams:
    left: str
    right: str
    on: Pairs
    window: Window

    @property
    def sources(self) -> tuple[str, ...]:
        """Left, right."""
        return self.left, self.right

    def result_name(self, column: Column) -> str:
        """Each side's have a prefix."""
        return PREFIX[column.source] + column.name

    def _on(self) -> str:
        return " and ".join(f"{self.left}.{a} = {self.right}.{b}" for a, b in self.on)


@dataclass(frozen=True)
class WindowJoin(_TwoStreams):
    """Two streams over a window. Queries that differ in their windows share one join.

    `shed` is the policy when memory is short, or None for an exact join; those that shed share only with the same
    window, because what is kept depends on it, and so do those whose windows are counted in rows. Without a key,
    `where` decides which rows are partners; with one, it has to hold as well. `how` says whose rows without partners
    are results, too; such a join waits for the end of each row's window, and shares only with the same one.
    """

    shed: str | None = None
    archive: str | None = None
    where: Expression | None = None
    how: str = "inner"

    kind: ClassVar[str] = "window join"
    operator: ClassVar[str] = "join_streams"

    @property
    def shares_windows(self) -> bool:
        """Whether other windows can be answered by the same join: exact ones in time."""
        return self.shed is None and self.archive is None and self.window.timed and self.how == "inner"

    @property
    def group_key(self) -> Hashable:
        """The join; and where windows cannot be shared, all that decides its results."""
        join: tuple[Hashable, ...] = (self.kind, self.left, self.right, self.on, self.where)
        join = join if self.how == "inner" else (*join, self.how)
        return join if self.shares_windows else (*join, self.window, self.shed, self.archive)

    def describe(self) -> str:
        """For people."""
        shed = f", shedding by {self.shed.upper()}" if self.shed else ""
        return f"{self._joined()}; window: {self.window.describe()}{shed}"

    def describe_group(self) -> str:
        """For people, of all who share it: each may have a window of its own."""
        return self._joined() if self.shares_windows else self.describe()

    def _joined(self) -> str:
        on = self._on() or "every pair that a condition accepts"
        how = "" if self.how == "inner" else f" ({self.how})"
        return f"{self.left} with {self.right} on {on}{how}"


@dataclass(frozen=True)
class BandJoin(_TwoStreams):
    """Two streams where `right.column - left.column` lies in a band; with `on`, of equal keys only.

    Queries with other bands share one index, however many there are.
    """

    columns: tuple[str, str] = ("", "")
    band: tuple[float, float] = (0.0, 0.0)

    kind: ClassVar[str] = "band join"
    operator: ClassVar[str] = "StandingQueries"

    @property
    def group_key(self) -> Hashable:
        """Streams, columns and window."""
        return self.kind, self.left, self.right, self.on, self.columns, self.window

    @property
    def bounds(self) -> tuple[float, ...]:
        """The query, as numbers."""
        return self.band

    def describe(self) -> str:
        """For people."""
        return self._described(f"{self._difference()} between {self.band[0]:g} and {self.band[1]:g}")

    def describe_group(self) -> str:
        """For people, of all who share it."""
        return self._described(f"bands of {self._difference()}")

    def _difference(self) -> str:
        return f"{self.right}.{self.columns[1]} - {self.left}.{self.columns[0]}"

    def _described(self, bands: str) -> str:
        key = f" and {self._on()}" if self.on else ""
        return f"{bands}{key}; window: {self.window.describe()}"


@dataclass(frozen=True)
class SelectJoin(_TwoStreams):
    """Two streams of equal keys, with a range on columns of each side. Queries with other ranges share one index."""

    ranges: tuple[tuple[Range, ...], tuple[Range, ...]] = ((), ())

    kind: ClassVar[str] = "select-join"
    operator: ClassVar[str] = "StandingQueries"

    @property
    def columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of each side that have a range."""
        left, right = (tuple(one.column for one in side) for side in self.ranges)
        return left, right

    @property
    def group_key(self) -> Hashable:
        """Streams, key, columns with ranges, window."""
        return self.kind, self.left, self.right, self.on, self.columns, self.window

    @property
    def bounds(self) -> tuple[float, ...]:
        """The query, as numbers."""
        return tuple(float(end) for side in self.ranges for one in side for end in (one.low, one.high))  # type: ignore[arg-type]

    def describe(self) -> str:
        """For people."""
        names = (self.left, self.right)
        ranges = [
            f"{names[number]}.{one.column} between {one.low} and {one.high}"
            for number, side in enumerate(self.ranges)
            for one in side
        ]
        return f"{self._on()}, {', '.join(ranges)}; window: {self.window.describe()}"

    def describe_group(self) -> str:
        """For people, of all who share it."""
        names = (self.left, self.right)
        columns = [f"{names[side]}.{column}" for side in (LEFT, RIGHT) for column in self.columns[side]]
        return f"{self._on()}, ranges of {' and '.join(columns)}; window: {self.window.describe()}"


@dataclass(frozen=True)
class RangeAggregate:
    """An aggregate over the rows of a table whose `x` lies in a range, told anew whenever it changes.

    `partition` are columns that equal a constant: each of their values has a table of its own.
    """

    stream: str
    function: str
    x: Range
    y: str | None
    partition: tuple[tuple[str, Value], ...] = ()

    kind: ClassVar[str] = "range aggregate"
    operator: ClassVar[str] = "Subscriptions"

    @property
    def group_key(self) -> Hashable:
        """All but the range."""
        columns = tuple(column for column, _ in self.partition)
        return self.kind, self.stream, self.function, self.x.column, self.y, columns

    @property
    def sources(self) -> tuple[str, ...]:
        """The stream of updates."""
        return (self.stream,)

    def result_name(self, column: Column) -> str:
        """The answer is the only column of the query."""
        return "value"

    def describe(self) -> str:
        """For people."""
        ends = f"{'-∞' if self.x.low is None else self.x.low} to {'∞' if self.x.high is None else self.x.high}"
        where = "".join(
            f", {column} = {value if isinstance(value, Decimal) else repr(value)}" for column, value in self.partition
        )
        return f"{self._aggregate()} with {self.x.column} from {ends}{where}"

    def describe_group(self) -> str:
        """For people, of all who share it."""
        parts = "".join(f", for each {column}" for column, _ in self.partition)
        return f"{self._aggregate()} by ranges of {self.x.column}{parts}"

    def _aggregate(self) -> str:
        return f"{self.function.upper()}({self.y or '*'}) of {self.stream}"


@dataclass(frozen=True)
class View:
    """A query over tables that change, kept fresh within a promised time (`penstock.operators.view`).

    `select` is the SELECT as it was understood, without clauses of ours. A view shares with nobody yet.
    """

    name: str
    select: str
    tables: tuple[str, ...]
    answer_within: int

    kind: ClassVar[str] = "view"
    operator: ClassVar[str] = "View"

    @property
    def group_key(self) -> Hashable:
        """The query and its promise: the same view twice is one."""
        return self.kind, self.select, self.answer_within

    @property
    def sources(self) -> tuple[str, ...]:
        """The tables."""
        return self.tables

    def result_name(self, column: Column) -> str:
        """As the view has it."""
        return column.name

    def describe(self) -> str:
        """For people."""
        return f"view of {', '.join(self.tables)}, answers within {format_duration(self.answer_within)}"

    def describe_group(self) -> str:
        """For people, of all who share it."""
        return self.describe()


Shape = Selection | TableJoin | WindowJoin | BandJoin | SelectJoin | RangeAggregate | View
