"""Queries that one flow answers, found without the user's help.

::

    same join of two streams, other windows        one shared join
    same key and columns, other ranges             one set of standing queries
    same columns, other bands                      one set of standing queries
    same aggregate, other ranges                   one set of subscriptions
    same stream and table, other filters, columns  one join with the table
    same stream, other filters                     one reading of the stream

Which group a query belongs to follows from its own text alone (`Shape.group_key`), so that a query that comes or goes
never moves another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.kernels.contract import RESULTS
from penstock.kernels.window.windows import TimeWindow, Window
from penstock.plan.units import format_duration
from penstock.plan.views.expressions import Expression, columns_of
from penstock.sql.answers import Answer, answer_of
from penstock.sql.catalogue import Catalogue, Stream
from penstock.sql.parse import Query
from penstock.sql.shapes import BandJoin, RangeAggregate, Selection, SelectJoin, Shape, TableJoin, View, WindowJoin

if TYPE_CHECKING:
    from penstock.plan.base import Plan

#: Bytes of a group whose queries do not say.
MEMORY = 64 << 20


@dataclass(frozen=True)
class Group:
    """Queries of one key, by name, in the order of their names.

    `also` are columns of its stream that are read, whether a query looks at them or not.
    """

    queries: Mapping[str, Query]
    also: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """The shape of the first: in what makes the group all are alike."""
        return next(iter(self.queries.values())).shape

    @property
    def catalogue(self) -> Catalogue:
        """What they name."""
        return next(iter(self.queries.values())).catalogue

    @property
    def operator(self) -> str:
        """What runs it."""
        return "join_shared" if self.shares_windows else self.shape.operator

    @property
    def shares_windows(self) -> bool:
        """Whether its queries differ in their windows."""
        return len(set(self.windows.values())) > 1

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams and tables that it reads, left before right."""
        return self.shape.sources

    @property
    def memory(self) -> int:
        """The most that one of them asks for: what is shared is held once."""
        said = [query.memory for query in self.queries.values() if query.memory is not None]
        return max(said, default=MEMORY)

    @property
    def ids(self) -> dict[str, int]:
        """The number of each query in the column `query` of standing queries."""
        return {name: number for number, name in enumerate(self.queries)}

    @property
    def windows(self) -> dict[str, Window]:
        """The window of each query of a shared join."""
        return {name: query.shape.window for name, query in self.queries.items() if isinstance(query.shape, WindowJoin)}

    def columns(self, side: int) -> tuple[str, ...]:
        """The columns of a source that the group looks at, in the source's order."""
        source = self.catalogue.source(self.sources[side])
        used = {name for query in self.queries.values() for name in _used(query, side)}
        used |= {*self.also} if side == 0 else set()
        if isinstance(source, Stream):
            used |= {name for name in (source.event_time,) if name is not None and self.operator != "join_table"}
            if isinstance(self.shape, RangeAggregate):
                used |= {*source.key, *(name for name in (source.order, source.deleted) if name is not None)}
        names = tuple(name for name in source.schema.names if name in used)
        return names or source.schema.names[:1]

    def channel(self, name: str) -> str:
        """The channel of the group's flow that has a query's results: of a shared join, that of its window."""
        return window_name(self.windows[name]) if self.shares_windows else RESULTS

    def answer(self, name: str) -> Answer:
        """How a query's own rows come from that channel."""
        query = self.queries[name]
        return answer_of(query, self.ids[name] if isinstance(query.shape, BandJoin | SelectJoin) else None)

    def describe(self) -> str:
        """For people, in one line."""
        count = len(self.queries)
        return f"{self.operator} for {count} quer{'y' if count == 1 else 'ies'}: {self.shape.describe_group()}"


def window_name(window: Window) -> str:
    """What a window is called in a shared join: queries with the same window are one there.

    >>> window_name(TimeWindow(60_000_000, 60_000_000))
    'within_60000000_us'
    """
    return f"within_{window.span(0)}_us"


def group(queries: Mapping[str, Query]) -> list[Group]:
    """The groups of queries, in the order of their first names; the same whatever order they are given in."""
    found: dict[Any, dict[str, Query]] = {}
    for name in sorted(queries):
        found.setdefault(queries[name].shape.group_key, {})[name] = queries[name]
    return [Group(members) for members in found.values()]


def explain(
    query: Query,
    others: Mapping[str, Query] | None = None,
    *,
    slots: int = 1,
    plan: Callable[[Group], Plan] | None = None,
) -> str:
    """What a query is, with whom of the others it shares and how, what will run, and what that costs.

    `plan` is how their group is run, where that is not as `ps.sql` would.
    """
    from penstock.sql.plans import plan_of

    mates = {n: other for n, other in (others or {}).items() if other.shape.group_key == query.shape.group_key}
    whole = Group({"this query": query, **mates})
    lines = [
        f"query    {' '.join(query.text.split())}",
        f"shape    {query.shape.kind}: {query.shape.describe()}",
        f"shares   {_shares(query.shape, mates)}",
    ]
    if isinstance(query.shape, WindowJoin) and query.shape.shares_windows and mates:
        lines.append(f"costs    {_costs(query.shape, mates)}")
    made = plan(whole) if plan is not None else plan_of(whole, slots=slots)
    return "\n".join([*lines, *f"plan     {made.explain()}".splitlines()])


def _shares(shape: Shape, mates: Mapping[str, Query]) -> str:
    if not mates:
        return "with no other query yet"
    names = sorted(mates)
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{_WHAT[type(shape)]} with {shown}{_windows(shape, mates)}"


_WHAT: dict[type, str] = {
    Selection: "one reading of the stream",
    TableJoin: "one scan of the table",
    WindowJoin: "one join",
    BandJoin: "one index of bands",
    SelectJoin: "one index of ranges",
    RangeAggregate: "one table and its messages",
    View: "the same view",
}


def _windows(shape: Shape, mates: Mapping[str, Query]) -> str:
    joins = [one for one in (shape, *(mate.shape for mate in mates.values())) if isinstance(one, WindowJoin)]
    lengths = sorted({join.window.left for join in joins if isinstance(join.window, TimeWindow)})
    return f"; windows of {', '.join(map(format_duration, lengths))}" if lengths else ""


def _costs(shape: WindowJoin, mates: Mapping[str, Query]) -> str:
    """What a window adds to those that are there."""
    mine = shape.window.span(0)
    theirs = {mate.shape.window.span(0) for mate in mates.values() if isinstance(mate.shape, WindowJoin)}
    if mine in theirs:
        return "nothing beside its filter: its window is there"
    if mine < max(theirs):
        return "its results alone: rows are kept and scanned for a wider window"
    return f"rows are kept {mine / max(theirs):.3g} times as long, and scanned so much further"


def _used(query: Query, side: int) -> set[str]:
    shape = query.shape
    parts: list[Expression] = [item for _, item in query.columns]
    parts += [part for part in (query.filter, getattr(shape, "where", None)) if part is not None]
    used = {column.name for part in parts for column in columns_of(part) if column.source == side}
    if isinstance(shape, TableJoin | WindowJoin | BandJoin | SelectJoin):
        used |= {pair[side] for pair in shape.on}
    if isinstance(shape, BandJoin):
        used.add(shape.columns[side])
    if isinstance(shape, SelectJoin):
        used |= set(shape.columns[side])
    if isinstance(shape, RangeAggregate):
        used |= {shape.x.column, *(column for column, _ in shape.partition)} | ({shape.y} if shape.y else set())
    return used
