"""Delta queries: what changes of one table do to the groups of a view, as DataFrames.

Tables are *signed* bags: rows that entered have sign 1, rows that left −1, and a joined row has the product of its
signs. Joins are linear in each table, so for changes D of table T alone

    view(T + D) − view(T)  =  D ⋈ others

where the others are as far as the view is, never newer: then no change is counted twice and none is missed ("state
bug"). If T occurs several times, D takes the place of each occurrence in turn; those before it are T + D, those after
it T.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.types import ByteType, DoubleType, FloatType, StructField, StructType

from penstock.plan.views.expressions import Column, sources_of
from penstock.plan.views.query import Query
from penstock.spark.schema import quoted, spark_schema
from penstock.spark.views.expressions import build, condition
from penstock.spark.views.groups import LOST, ROWS, SIGN, Groups, column, named
from penstock.spark.views.store import File, TableVersion

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: Changes up to which they are sent to every task instead of being shuffled with the table.
BROADCAST = 200_000
#: Bytes of a table that Spark sends to every task by itself.
SMALL_TABLE = 8 << 20
#: Exactly the files that are named: a session may allow that some are passed over, gone or damaged; and a path with a
#: star or brackets in it is one path, not all that look like it.
_THESE_FILES = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false", "__globPaths__": "false"}


class Deltas:
    """Builds the queries of one view. Runs nothing.

    Columns are built once, and the frame of a table is built again only when its files are others: each call into the
    JVM is short, but a query of tables needs a thousand of them.
    """

    def __init__(self, spark: SparkSession, query: Query, schemas: Mapping[str, pa.Schema]) -> None:
        self._spark = spark
        self._query = query
        self._schemas = {name: spark_schema(schema) for name, schema in schemas.items()}
        self._groups = Groups(query, self._empty_row())
        self._frames: dict[tuple[str, int], tuple[tuple[File, ...], DataFrame]] = {}

    def on(self, spark: SparkSession) -> Deltas:
        """The same queries in another session."""
        other = copy(self)
        other._spark, other._frames = spark, {}
        return other

    # -- queries -----------------------------------------------------------------------------------------------

    def whole(self, tables: Mapping[str, TableVersion]) -> DataFrame:
        """The groups of the view over whole tables."""
        sources = range(len(self._query.sources))
        return self._groups.whole(self._joined(0, {s: self._version(s, tables) for s in sources}))

    def refreshed(self, state: Sequence[File], tables: Mapping[str, TableVersion], table: str, part: File) -> DataFrame:
        """The groups after changes of one table, with those that are lost marked."""
        occurrences = [n for n, source in enumerate(self._query.sources) if source.table == table]
        sizes = [tables[source.table].size for n, source in enumerate(self._query.sources) if n not in occurrences]
        terms = []
        for place in occurrences:
            frames = {}
            for source in range(len(self._query.sources)):
                frames[source] = self._version(
                    source, tables, plus=part if source in occurrences and source < place else None
                )
            frames[place] = self._changes(place, part, sizes)
            terms.append(self._joined(place, frames))
        return self._groups.merged(self._read_state(state), reduce(lambda a, b: a.unionByName(b), terms))

    def mended(self, marked: Sequence[File], tables: Mapping[str, TableVersion]) -> DataFrame:
        """The same groups, with the lost ones computed anew from their rows."""
        state = self._read_state(marked, lost=True)
        if not self._groups.keys:
            return self.whole(tables)
        lost = state.where(fn.col(LOST)).select(*self._groups.keys)
        sources = range(len(self._query.sources))
        frames = {source: self._only(lost, source, self._version(source, tables)) for source in sources}
        rows = self._joined(0, frames).alias("r")
        same = reduce(and_, (fn.col(f"r.{key}").eqNullSafe(fn.col(f"l.{key}")) for key in self._groups.keys))
        anew = self._groups.whole(rows.join(fn.broadcast(lost).alias("l"), same, "left_semi"))
        return state.where(~fn.col(LOST)).drop(LOST).unionByName(anew)

    def answer(self, state: Sequence[File]) -> DataFrame:
        """The rows that readers see."""
        query = self._query
        frame = self._read_state(state)
        if query.having is not None:
            frame = frame.where(condition(query.having, self._groups.shown))
        outputs = [build(item, self._groups.shown).alias(name) for name, item in query.outputs]
        if query.shape == "bag":
            copies = fn.explode(fn.sequence(fn.lit(1).cast("bigint"), fn.col(ROWS)))
            return frame.select(*outputs, copies.alias("")).drop("")
        return frame.select(*outputs)

    def consolidated(self, table: str, version: TableVersion) -> DataFrame:
        """The rows that a table really has, as far as the view is."""
        schema = self._schemas[table]
        signed = StructType([*schema.fields, StructField(SIGN, ByteType())])
        base = self._files(version.base, schema).withColumn(SIGN, fn.lit(1).cast("tinyint"))
        rows = base.unionByName(self._files(version.parts, signed))
        names = [quoted(name) for name in schema.names]
        counted = rows.groupBy(*names).agg(fn.sum(SIGN).alias(SIGN)).where(fn.col(SIGN) > 0)
        return counted.select(*names, fn.explode(fn.sequence(fn.lit(1).cast("bigint"), fn.col(SIGN)))).select(*names)

    # -- sources -----------------------------------------------------------------------------------------------

    def _files(self, files: Sequence[File], schema: StructType) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).options(**_THESE_FILES).parquet(*(file.path for file in files))

    def _version(self, source: int, tables: Mapping[str, TableVersion], plus: File | None = None) -> DataFrame:
        """A table as far as the view is, and the changes `plus`."""
        name = self._query.sources[source].table
        version = tables[name]
        parts = (*version.parts, *([plus] if plus is not None else []))

        def make() -> DataFrame:
            base = self._known("base", source, version.base, lambda: self._base(source, version.base))
            return base.unionByName(self._parts(source, parts)) if parts else base

        return make() if plus is not None else self._known("version", source, (*version.base, *parts), make)

    def _known(self, kind: str, source: int, files: tuple[File, ...], make: Callable[[], DataFrame]) -> DataFrame:
        """A frame over files: that of the last time, if they are the same."""
        found = self._frames.get((kind, source))
        if found is None or found[0] != files:
            found = self._frames[kind, source] = files, make()
        return found[1]

    def _base(self, source: int, files: Sequence[File]) -> DataFrame:
        return self._named(source, self._files(files, self._schemas[self._query.sources[source].table]), sign=None)

    def _changes(self, source: int, part: File, others: Sequence[int]) -> DataFrame:
        """Changes: sent to every task where a table is large, and as Spark will have it where all are small."""
        frame, small = self._parts(source, [part]), bool(others) and max(others) <= SMALL_TABLE
        return fn.broadcast(frame) if part.rows <= BROADCAST and not small else frame

    def _parts(self, source: int, parts: Sequence[File]) -> DataFrame:
        schema = StructType([*self._schemas[self._query.sources[source].table].fields, StructField(SIGN, ByteType())])
        return self._named(source, self._files(parts, schema), sign=SIGN)

    def _named(self, source: int, frame: DataFrame, sign: str | None) -> DataFrame:
        """The used columns under names of ours, the sign, and only rows that pass the conditions on this table."""
        used, conditions = self._own[source]
        signed = frame.select(*used, (fn.col(sign) if sign else fn.lit(1).cast("tinyint")).alias(f"w{source}"))
        for one in conditions:
            signed = signed.where(one)
        return signed

    @cached_property
    def _own(self) -> list[tuple[list[SparkColumn], list[SparkColumn]]]:
        """Of each source: the used columns, and the conditions on it alone."""
        return [
            (
                [self._read(source, name).alias(named(Column(source, name))) for name in self._query.used(source)],
                [condition(one, column) for one in self._query.filters if sources_of(one) <= {source}],
            )
            for source in range(len(self._query.sources))
        ]

    def _read(self, source: int, name: str) -> SparkColumn:
        """A column of a file. By statistics, which pass over NaN, Spark would leave out files with rows that pass."""
        type_ = self._schemas[self._query.sources[source].table][name].dataType
        if not isinstance(type_, (FloatType, DoubleType)):
            return quoted(name)
        return fn.nanvl(quoted(name), fn.lit(float("nan")).cast(type_))

    def _joined(self, start: int, frames: Mapping[int, DataFrame]) -> DataFrame:
        """All sources joined, beginning with one; rows of keys, arguments and signs."""
        frame, joined = frames[start], {start}
        while len(joined) < len(frames):
            source = next(
                s
                for s in frames
                if s not in joined and any(self._connects(pair, joined, s) for pair in self._equalities)
            )
            pairs = [pair for pair in self._equalities if self._connects(pair, joined, source)]
            frame = frame.join(frames[source], reduce(and_, (self._equal[pair] for pair in pairs)), "inner")
            joined.add(source)
            for one in self._query.filters:
                if len(sources_of(one)) > 1 and source in sources_of(one) <= joined:
                    frame = frame.where(condition(one, column))
        return frame.select(*self._groups.outputs)

    @cached_property
    def _equal(self) -> dict[tuple[Column, Column], SparkColumn]:
        return {pair: column(pair[0]) == column(pair[1]) for pair in self._equalities}

    @property
    def _equalities(self) -> tuple[tuple[Column, Column], ...]:
        return self._query.equalities

    @staticmethod
    def _connects(pair: tuple[Column, Column], joined: set[int], source: int) -> bool:
        ends = {pair[0].source, pair[1].source}
        return source in ends and bool(ends & joined)

    def _only(self, lost: DataFrame, source: int, frame: DataFrame) -> DataFrame:
        """Rows of a table that can belong to a lost group: where its keys are columns of the table."""
        mine = {
            name: key
            for name, key in zip(self._groups.keys, self._query.keys, strict=True)
            if isinstance(key, Column) and key.source == source
        }
        if not mine:
            return frame
        wanted = fn.broadcast(lost.select(*mine).distinct())
        same = reduce(and_, (column(key).eqNullSafe(fn.col(name)) for name, key in mine.items()))
        return frame.join(wanted, same, "left_semi")

    def _read_state(self, files: Sequence[File], lost: bool = False) -> DataFrame:
        schema = StructType([StructField(name, type_) for name, type_ in self._groups.stored.items()])
        if lost:
            schema = schema.add(LOST, "boolean")
        return self._files(files, schema)

    def can_lose(self) -> bool:
        """Whether groups may have to be computed anew."""
        return self._groups.can_lose()

    def _empty_row(self) -> DataFrame:
        """All used columns of all sources, and their signs, without a row."""
        fields = []
        for source, said in enumerate(self._query.sources):
            schema = self._schemas[said.table]
            fields += [
                StructField(named(Column(source, name)), schema[name].dataType) for name in self._query.used(source)
            ]
            fields.append(StructField(f"w{source}", ByteType()))
        return self._spark.createDataFrame([], StructType(fields))
