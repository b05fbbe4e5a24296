"""What the engine needs of a query, however it was written, and of the streams and tables that queries name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import BadOption, PlanError
from penstock.kernels.contract import RESULTS
from penstock.plan.pipeline.columns import name_of, type_of
from penstock.plan.pipeline.csv_tables import table_path
from penstock.plan.pipeline.operators import Known
from penstock.plan.pipeline.spec import Pipeline
from penstock.plan.pipeline.spec import Stream as StreamFile
from penstock.server.books import Entry
from penstock.server.group import BEGIN_ANEW, Group
from penstock.server.reading import Reader
from penstock.spark.pipeline import open_stream, renamed
from penstock.tables import Table, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Made(ABC):
    """A query that can be answered, and at the same time the way to make the flow of a group that it begins."""

    #: What a group that it begins says of itself: its key, how its flow is made, and over which columns and cores.
    said: dict[str, Any]
    kind: str
    operator: str
    schema: pa.Schema
    is_view = False
    #: The channel of its group that has its results.
    channel = RESULTS
    _sources: Sources

    @property
    @abstractmethod
    def sources(self) -> tuple[str, ...]:
        """The streams and tables that it reads."""

    @property
    def once(self) -> tuple[str, ...]:
        """The streams among them that cannot be read again."""
        return self._sources.once(self.sources)

    def fits(self, said: Mapping[str, Any]) -> bool:
        """Whether a group can answer it: it is of its kind, and reads the columns that it looks at."""
        return bool(said["key"] == self.said["key"]) and not self._sources.lost(said)

    def has_room(self, group: Group | None, mates: Iterable[Made]) -> bool:
        """Whether a group that could answer it can take it in without harm to those who are there."""
        return True

    def response(self, group: Group) -> dict[str, float] | None:
        """How long its own results took, where its group tells its queries apart."""
        return None

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
    def explain(self, others: Mapping[str, Made], group: Group | None) -> str:
        """For people."""


class Sources:
    """The streams and tables of a pipeline, opened when they are needed."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession | None) -> None:
        self.pipeline = pipeline
        self._files = pipeline.streams
        self._spark = spark

    def begin(self, names: Sequence[str]) -> dict[str, Any]:
        """What a group keeps as it was when it began: the columns of its streams, in their order, and the cores."""
        streams = {name: self.pipeline.streams[name] for name in names if name in self.pipeline.streams}
        return {
            "columns": {
                name: [(field.name, name_of(field.type)) for field in stream.columns]
                for name, stream in streams.items()
            },
            "cores": self.pipeline.cores,
        }

    def lost(self, said: Mapping[str, Any]) -> tuple[str, str] | None:
        """A stream and a column of it that a group began with and that is not there any more, or of another type."""
        for name, columns in said["columns"].items():
            stream = self.pipeline.streams.get(name)
            there = {} if stream is None else {field.name: field.type for field in stream.columns}
            for column, kind in columns:
                if there.get(column) != type_of(kind, column):
                    return name, f"{column} ({kind})"
        return None

    def as_begun(self, said: Mapping[str, Any]) -> Sources:
        """These as a group began with them: columns that were added later are not seen."""
        if (gone := self.lost(said)) is not None:
            raise BadOption(
                f"Stream {gone[0]!r} has no column {gone[1]} any more.",
                why="The query began when it had, and what is stored for it has that column.",
                do=f"Give the stream the column again; {BEGIN_ANEW}",
            )
        then = {}
        for name, columns in said["columns"].items():
            stream = self._files[name]
            then[name] = replace(stream, columns=pa.schema([stream.columns.field(column) for column, _ in columns]))
        found = Sources(replace(self.pipeline, streams={**self._files, **then}, cores=said["cores"]), self._spark)
        found._files = self._files
        return found

    def frame(self, name: str) -> DataFrame:
        """A stream, as Spark reads it; its columns may be more than a group began with."""
        assert self._spark is not None
        return open_stream(self._spark, self._files[name])

    def renamed(self, name: str, columns: Mapping[str, str], every: str | None) -> DataFrame:
        """Some columns of a stream by other names, those that mark bad records, and the key that every row has."""
        return renamed(self.frame(name), columns, every)

    def changes(self, place: Path, schema: pa.Schema) -> DataFrame:
        """The changes of standing queries, as a stream."""
        assert self._spark is not None
        place.mkdir(parents=True, exist_ok=True)
        return open_stream(self._spark, StreamFile("changes", "parquet", schema, place))

    def once(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of these that cannot be read again."""
        streams = self.pipeline.streams
        return tuple(name for name in names if name in streams and streams[name].format == "socket")

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
