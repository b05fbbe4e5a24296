"""Queries as text: which group each belongs to, what that runs, and how a query's rows are found in its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadQuery
from penstock.kernels.shared.changes import CHANGES as JOIN_CHANGES
from penstock.kernels.shared.sending import ADDED
from penstock.operators.join_streams import archive as archive_places
from penstock.plan.join_shared import JoinSharedPlan
from penstock.plan.units import format_size
from penstock.server.books import Entry
from penstock.server.changes import CHANGES, agree, with_changes
from penstock.server.group import Group
from penstock.server.made import Made, Sources
from penstock.server.reading import AnswerReader, RangeReader, Reader
from penstock.spark.query_changes import SharedChanges
from penstock.spark.runtime import run
from penstock.spark.shared_flow import SharedFlow
from penstock.sql.answers import Answer
from penstock.sql.groups import MEMORY, explain, window_name
from penstock.sql.groups import Group as QueryGroup
from penstock.sql.parse import Query
from penstock.sql.plans import inputs_of, plan_of, shared_plan
from penstock.sql.shapes import BandJoin, RangeAggregate, SelectJoin, View, WindowJoin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.flow import Flow

#: How full a shared join may become by a wider window, by what it holds now.
_FULL = 0.5


class TextMade(Made):
    """A query as text. Its group is that of its shape; what the group runs follows from the query that began it."""

    def __init__(self, query: Query, sources: Sources) -> None:
        self.query = query
        self._sources = sources
        shape = query.shape
        self.kind = shape.kind
        self.is_view = isinstance(shape, View)
        self.said = {"key": repr(shape.group_key), "text": query.text, "memory": query.memory}
        self.said |= sources.begin(shape.sources)
        self.operator = shape.operator
        self.schema = pa.schema([]) if self.is_view else query.schema

    def fits(self, said: Mapping[str, Any]) -> bool:
        """Whether a group of the same key can answer it: its memory is as large, and it reads all columns of it."""
        if not super().fits(said) or not self._reads(said["columns"]):
            return False
        return (self.query.memory or 0) <= (MEMORY if said["memory"] is None else said["memory"])

    def _reads(self, columns: Mapping[str, Any]) -> bool:
        """Whether it looks at none but these columns of its streams."""
        sides = [side for side, name in enumerate(self.sources) if name in columns]
        known = {side: {column for column, _ in columns[self.sources[side]]} for side in sides}
        return all(set(self._group().columns(side)) <= known[side] for side in sides)

    @property
    def sources(self) -> tuple[str, ...]:
        """Streams and tables."""
        return self.query.shape.sources

    def describe(self) -> str:
        """What all of its group have in common."""
        return self.query.shape.describe_group()

    def _group(self) -> QueryGroup:
        return QueryGroup({"query": self.query})

    def check(self) -> None:
        """Tell all that can be wrong with it."""
        for name in self.sources if self.is_view else ():
            if name in self._sources.pipeline.streams:
                raise BadQuery(
                    f"A view of a pipeline is over tables, and {name!r} is a stream.",
                    do="Name tables; one that changes has a folder of changes.",
                )
        plan_of(self._group(), slots=self._sources.pipeline.cores, every_column=True)

    def plan(self, folder: Path) -> Any:
        """What will run."""
        return plan_of(self._group(), slots=self._sources.pipeline.cores, every_column=True)

    def flow(self, folder: Path) -> Flow:
        """The flow, on Spark."""
        return run(self.plan(folder), self._frames())

    def _frames(self) -> list[DataFrame]:
        inputs = inputs_of(self._group(), every_column=True)
        return [self._sources.renamed(given.stream, dict(given.columns), given.every) for given in inputs]

    def places(self, folder: Path) -> dict[str, str]:
        """Channels that have a place of their own: an archive that the text names."""
        archive = getattr(self.query.shape, "archive", None)
        if archive is None:
            return {}
        return archive_places(archive) if isinstance(self.query.shape, WindowJoin) else {"shed": archive}

    def folders(self, folder: Path) -> list[Path] | None:
        """Those of its streams."""
        return self._sources.folders(self.query.shape.sources)

    def reader(self, entry: Entry, group: Group) -> Reader:
        """Its filter and select list."""
        if isinstance(self.query.shape, RangeAggregate):
            return RangeReader(self.query, entry, group.committed)
        return AnswerReader(Answer(self.query))

    def explain(self, others: Mapping[str, Made], group: Group | None) -> str:
        """What runs, with whom it shares, what that costs."""
        return explain(self.query, _queries(others), slots=self._sources.pipeline.cores)


def _queries(made: Mapping[str, Made]) -> dict[str, Query]:
    return {name: one.query for name, one in made.items() if isinstance(one, TextMade)}


class ToldMade(TextMade):
    """A query whose group is told of those who come and go, by a stream of changes."""

    def folders(self, folder: Path) -> list[Path] | None:
        """Those of its streams, and of the changes."""
        found = super().folders(folder)
        return None if found is None else [*found, folder / CHANGES]


class StandingMade(ToldMade):
    """A range or a band: one of many in an index."""

    def plan(self, folder: Path) -> Any:
        """The index, empty at first."""
        return with_changes(super().plan(folder))

    def flow(self, folder: Path) -> Flow:
        """Both streams and the changes."""
        plan = self.plan(folder)
        return run(plan, [*self._frames(), self._sources.changes(folder / CHANGES, plan.changes)])

    def tell(self, group: Group, members: Mapping[int, Made]) -> None:
        """The bounds of each, by number."""
        shapes = {number: made.query.shape for number, made in members.items() if isinstance(made, TextMade)}
        bounds = {n: shape.bounds for n, shape in shapes.items() if isinstance(shape, BandJoin | SelectJoin)}
        agree(group.folder / CHANGES, group.plan.changes, bounds)  # type: ignore[attr-defined]

    def reader(self, entry: Entry, group: Group) -> Reader:
        """What has its number."""
        return AnswerReader(Answer(self.query, entry.number))


class SharedMade(ToldMade):
    """A window in time over a join that all windows share: queries with the same one are one there."""

    channel = ADDED

    def __init__(self, query: Query, sources: Sources) -> None:
        super().__init__(query, sources)
        assert isinstance(query.shape, WindowJoin)
        self.said["key"] = f"shared {self.said['key']}"
        self.operator = JoinSharedPlan.name
        self.span = query.shape.window.span(0)
        self._name = window_name(query.shape.window)

    def check(self) -> None:
        """As if it were alone in its group."""
        self._plan(self._group())

    def _plan(self, group: QueryGroup) -> JoinSharedPlan:
        return shared_plan(group, slots=self._sources.pipeline.cores, every_column=True)

    def plan(self, folder: Path) -> JoinSharedPlan:
        """The join, without a query at first."""
        return replace(self._plan(self._group()), windows=(), changes=str(folder / CHANGES))

    def flow(self, folder: Path) -> Flow:
        """Both streams and the changes."""
        return run(
            self.plan(folder), [*self._frames(), self._sources.changes(folder / CHANGES, JOIN_CHANGES)], SharedFlow
        )

    def tell(self, group: Group, members: Mapping[int, Made]) -> None:
        """The windows that somebody wants."""
        wanted = {made._name: made.span for made in members.values() if isinstance(made, SharedMade)}
        SharedChanges(group.folder / CHANGES, by_rows=False).agree(wanted)

    def has_room(self, group: Group | None, mates: Iterable[Made]) -> bool:
        """A window that is wider than all others must be likely to fit: rows are kept for so much longer."""
        widest = max((made.span for made in mates if isinstance(made, SharedMade)), default=0)
        last = group.progress().get("last", {}) if group is not None and self.span > widest > 0 else {}
        return bool(last.get("memory", 0) * self.span <= last.get("budget", 0) * widest * _FULL) if last else True

    def response(self, group: Group) -> dict[str, float] | None:
        """Of its window."""
        return group.response_of(self._name)

    def reader(self, entry: Entry, group: Group) -> Reader:
        """What has its window's name."""
        return AnswerReader(Answer(self.query, self._name))

    def explain(self, others: Mapping[str, Made], group: Group | None) -> str:
        """What runs, with whom it shares, what that costs; and what it cost so far."""
        said = explain(self.query, _queries(others), plan=self._plan)
        last = group.progress().get("last") if group is not None else None
        if last:
            held, budget = format_size(int(last["memory"])), format_size(int(last["budget"]))
            said += f"\nnow      {held} of {budget} held, {last['work']:,.0f} units of work in the last micro-batch"
        return said


def made_of(query: Query, sources: Sources) -> TextMade:
    """A query as text, of the kind of its shape."""
    shape = query.shape
    if isinstance(shape, BandJoin | SelectJoin):
        return StandingMade(query, sources)
    return (SharedMade if isinstance(shape, WindowJoin) and shape.shares_windows else TextMade)(query, sources)
