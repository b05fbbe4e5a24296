"""From a query as it was written to what the engine needs: its group, its flow, its rows."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadOption, PenstockError, PlanError
from penstock.kernels.contract import RESULTS
from penstock.operators.join_streams import archive as archive_places
from penstock.plan.pipeline.csv_tables import table_path
from penstock.plan.pipeline.operators import Known, Planned, plan_of
from penstock.plan.pipeline.spec import Pipeline
from penstock.plan.pipeline.spec import Stream as StreamFile
from penstock.plan.standing_queries import StandingQueriesPlan
from penstock.server.books import Entry
from penstock.server.changes import CHANGES, agree, with_changes
from penstock.server.group import Group
from penstock.server.reading import AnswerReader, Everything, RangeReader, Reader
from penstock.spark.pipeline import open_stream, renamed
from penstock.spark.runtime import run
from penstock.sql.answers import Answer
from penstock.sql.catalogue import Catalogue, Relation, Stream
from penstock.sql.groups import MEMORY, explain
from penstock.sql.groups import Group as QueryGroup
from penstock.sql.parse import Query, parse
from penstock.sql.plans import inputs_of
from penstock.sql.plans import plan_of as text_plan
from penstock.sql.shapes import BandJoin, RangeAggregate, SelectJoin, View, WindowJoin
from penstock.tables import Table, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.base import Plan
    from penstock.spark.flow import Flow


class Made(ABC):
    """A query that can be answered, and at the same time the way to make the flow of a group that it begins."""

    #: What a group that it begins says of itself: its key, and how its flow is made.
    said: dict[str, Any]
    kind: str
    operator: str
    schema: pa.Schema
    is_view = False

    def fits(self, said: Mapping[str, Any]) -> bool:
        """Whether a group can answer it."""
        return bool(said["key"] == self.said["key"])

    def places(self, folder: Path) -> dict[str, str]:
        """Channels that have a place of their own."""
        return {}

    def folders(self, folder: Path) -> list[Path] | None:
        """The folders whose files its group reads, one for each input; None where an input is no files."""
        return None

    @abstractmethod
    def reader(self, entry: Entry, group: Group) -> Reader:
        """How its rows are found in the group's."""

    def tell(self, group: Group, members: Mapping[int, Made]) -> None:  # noqa: B027 — most have nothing to tell
        """Make the group know who is in it now, by number; most need not."""

    @abstractmethod
    def explain(self, others: Mapping[str, Made]) -> str:
        """For people."""


class Sources:
    """The streams and tables of a pipeline, opened when they are needed."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession | None) -> None:
        self.pipeline = pipeline
        self._spark = spark

    def frame(self, name: str) -> DataFrame:
        """A stream, as Spark reads it."""
        assert self._spark is not None
        return open_stream(self._spark, self.pipeline.streams[name])

    def renamed(self, name: str, columns: Mapping[str, str], every: str | None) -> DataFrame:
        """Some columns of a stream by other names, those that mark bad records, and the key that every row has."""
        return renamed(self.frame(name), columns, every)

    def changes(self, place: Path, schema: pa.Schema) -> DataFrame:
        """The changes of standing queries, as a stream."""
        assert self._spark is not None
        place.mkdir(parents=True, exist_ok=True)
        return open_stream(self._spark, StreamFile("changes", "parquet", schema, place))

    def folders(self, names: Sequence[str]) -> list[Path] | None:
        """Where the files of these streams lie; None if one of them is no files. Tables are passed over."""
        streams = [self.pipeline.streams[name] for name in names if name in self.pipeline.streams]
        found = [stream.path for stream in streams if stream.path is not None]
        return found if len(found) == len(streams) else None

    def table(self, name: str, key: Sequence[str] | None = None) -> Table:
        """A table, opened by a key of its own or another."""
        said = self.pipeline.tables[name]
        columns = tuple(key or said.key)
        if not columns:
            raise PlanError(f"Table {name!r} has no key.", do=f'Name it: [tables.{name}] key = "…".')
        return table(table_path(said, self.pipeline.folder), key=columns)

    def known(self) -> Known:
        """What the options of an operator may name."""
        tables = {name: (lambda name=name: self.table(name)) for name in self.pipeline.tables}
        return Known(self.pipeline.streams, tables, self.pipeline.cores, self.pipeline.path.parent)


class Maker:
    """Makes queries of texts and options."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession | None) -> None:
        self.sources = Sources(pipeline, spark)
        self._catalogue: Catalogue | None = None

    @property
    def catalogue(self) -> Catalogue:
        """What texts may name."""
        if self._catalogue is None:
            self._catalogue = catalogue_of(self.sources)
        return self._catalogue

    def operator(self, name: str, operator: str, options: dict[str, Any]) -> Made:
        """A query as an operator and its options. Raises the first fault; `operator_faults` tells all."""
        planned, faults = plan_of(operator, options, self.sources.known())
        if planned is None:
            raise faults[0][1]
        return OperatorMade(name, operator, options, planned, self.sources)

    def operator_faults(self, operator: str, options: dict[str, Any]) -> list[tuple[str, PenstockError]]:
        """What is wrong with an operator's options."""
        return plan_of(operator, options, self.sources.known())[1]

    def text(self, text: str) -> Made:
        """A query as text."""
        query = parse(text, self.catalogue)
        if query.explain:
            raise BadOption("EXPLAIN asks, and runs nothing.", do="Ask with the call or command that explains.")
        made = TextMade(query, self.sources)
        made.plan()  # all that can be wrong with it, told now
        return made

    def making(self, said: Mapping[str, Any]) -> Any:
        """How the flow of a group is made, from what its folder says of it."""
        if "text" in said:
            return TextMade(parse(said["text"], self.catalogue), self.sources)
        return self.operator(said["name"], said["operator"], said["options"])


def catalogue_of(sources: Sources) -> Catalogue:
    """The streams and tables of a pipeline, as texts name them. Tables in CSV files are written as Parquet here."""
    pipeline = sources.pipeline
    streams = {
        name: Stream.of(
            name,
            stream.columns,
            event_time=stream.time,
            lateness=stream.lateness,
            key=stream.key,
            order=stream.order,
            deleted=stream.deleted,
        )
        for name, stream in pipeline.streams.items()
    }
    relations = {
        name: Relation(
            name, said.columns, said.key, str(table_path(said, pipeline.folder)), changes=said.changes is not None
        )
        for name, said in pipeline.tables.items()
    }
    return Catalogue(streams, relations, archives=str(pipeline.folder / "archives"))


class OperatorMade(Made):
    """An operator with its options, alone in its group."""

    def __init__(self, name: str, operator: str, options: dict[str, Any], planned: Planned, sources: Sources) -> None:
        self.said = {
            "key": f"operator {name} {operator} {json.dumps(options, sort_keys=True)}",
            "name": name,
            "operator": operator,
            "options": options,
        }
        self.kind = "operator"
        self.operator = operator
        self._planned = planned
        self._sources = sources
        self.schema = planned.plan.channels[RESULTS]

    def reader(self, entry: Entry, group: Group) -> Reader:
        """Everything."""
        return Everything(self.schema)

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams."""
        return tuple(stream.name for stream in self._planned.streams)

    def describe(self) -> str:
        """The first line of the plan's own words."""
        return self._planned.plan.explain().splitlines()[0]

    def plan(self) -> Plan:
        """What will run."""
        return self._planned.plan

    def flow(self, folder: Path) -> Flow:
        """The flow, on Spark."""
        return run(self._planned.plan, [self._sources.frame(stream.name) for stream in self._planned.streams])

    def folders(self, folder: Path) -> list[Path] | None:
        """Those of its streams."""
        return self._sources.folders(self.sources)

    def explain(self, others: Mapping[str, Made]) -> str:
        """The plan's own words."""
        return self._planned.plan.explain()


class TextMade(Made):
    """A query as text. Its group is that of its shape; what the group runs follows from the query that began it."""

    def __init__(self, query: Query, sources: Sources) -> None:
        self.query = query
        self._sources = sources
        shape = query.shape
        self.kind = shape.kind
        self.is_view = isinstance(shape, View)
        shared = isinstance(shape, WindowJoin) and shape.shares_windows
        self.said = {
            "key": repr(shape.group_key),
            "text": query.text,
            "span": shape.window.span(0) if isinstance(shape, WindowJoin) and shared else None,
            "memory": query.memory,
        }
        self.operator = shape.operator
        self.schema = pa.schema([]) if self.is_view else query.schema

    def fits(self, said: Mapping[str, Any]) -> bool:
        """Whether a group of the same key can answer it: its window is as wide, its memory as large."""
        return super().fits(said) and (
            (self.said["span"] or 0) <= (said["span"] or 0)
            and (self.query.memory or 0) <= (MEMORY if said["memory"] is None else said["memory"])
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """Streams and tables."""
        return self.query.shape.sources

    def describe(self) -> str:
        """The shape."""
        return self.query.shape.describe()

    def _group(self) -> QueryGroup:
        return QueryGroup({"query": self.query})

    @property
    def _standing(self) -> bool:
        return isinstance(self.query.shape, BandJoin | SelectJoin)

    def plan(self) -> Any:
        """What will run."""
        made = text_plan(self._group(), slots=self._sources.pipeline.cores, every_column=True)
        return with_changes(made) if isinstance(made, StandingQueriesPlan) else made

    def flow(self, folder: Path) -> Flow:
        """The flow, on Spark."""
        inputs = inputs_of(self._group(), every_column=True)
        frames = [self._sources.renamed(given.stream, dict(given.columns), given.every) for given in inputs]
        plan = self.plan()
        if self._standing:
            frames.append(self._sources.changes(folder / CHANGES, plan.changes))
        return run(plan, frames)

    def places(self, folder: Path) -> dict[str, str]:
        """Channels that have a place of their own: an archive that the text names."""
        archive = getattr(self.query.shape, "archive", None)
        if archive is None:
            return {}
        return archive_places(archive) if isinstance(self.query.shape, WindowJoin) else {"shed": archive}

    def folders(self, folder: Path) -> list[Path] | None:
        """Those of its streams, and of the changes that it is told."""
        found = self._sources.folders(self.query.shape.sources)
        return [*found, folder / CHANGES] if found is not None and self._standing else found

    def tell(self, group: Group, members: Mapping[int, Made]) -> None:
        """Standing queries come to a running group by a stream of changes."""
        if self._standing:
            shapes = {number: made.query.shape for number, made in members.items() if isinstance(made, TextMade)}
            bounds = {n: shape.bounds for n, shape in shapes.items() if isinstance(shape, BandJoin | SelectJoin)}
            assert isinstance(group.plan, StandingQueriesPlan)
            assert group.plan.changes is not None
            agree(group.folder / CHANGES, group.plan.changes, bounds)

    def reader(self, entry: Entry, group: Group) -> Reader:
        """Its filter and select list."""
        if isinstance(self.query.shape, RangeAggregate):
            return RangeReader(self.query, entry, group.committed)
        window = self.query.shape
        within = self.said["span"] if isinstance(window, WindowJoin) else None
        return AnswerReader(Answer(self.query, entry.number if self._standing else None, within))

    def explain(self, others: Mapping[str, Made]) -> str:
        """What runs, with whom it shares, what that costs."""
        queries = {name: made.query for name, made in others.items() if isinstance(made, TextMade)}
        return explain(self.query, queries, slots=self._sources.pipeline.cores)
