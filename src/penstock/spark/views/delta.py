"""Delta queries: what changes of one table do to the groups of a view, as DataFrames.

Tables are *signed* bags: rows that entered have sign 1, rows that left −1, and a joined row has the product of its
signs. Joins are linear in each table, so for changes D of table T alone

    view(T + D) − view(T)  =  D ⋈ others

where the others are as far as the view is, never newer: then no change is counted twice and none is missed ("state
bug"). If T occurs several times, D takes the place of each occurrence in turn; those before it are T + D, those after
it T.

COUNT and SUM of groups add up. MIN and MAX take the better of the old one and that of rows that entered; a group that
lost a row as good as that is *lost*, and recomputed from its rows, alone. So is a group that lost a row from a sum of
floating numbers, where subtracting is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_, mul
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ByteType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LongType,
    StructField,
    StructType,
)

from penstock.plan.views.expressions import Aggregate, Column, Key, Total, sources_of
from penstock.plan.views.query import Query
from penstock.spark.schema import spark_schema
from penstock.spark.views.expressions import build
from penstock.spark.views.store import File, TableVersion

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

#: The sign of a row in files of ours.
SIGN = "__sign"
ROWS = "rows"
LOST = "lost"
#: Changes up to which they are sent to every task instead of being shuffled with the table.
BROADCAST = 200_000


@dataclass(frozen=True)
class _Kept:
    """How an aggregate is kept in a group."""

    aggregate: Aggregate
    number: int

    @property
    def count(self) -> str:
        """Rows whose argument is not NULL."""
        return f"a{self.number}_n"

    @property
    def total(self) -> str:
        """Their sum, least or greatest."""
        return f"a{self.number}_v"

    @property
    def left(self) -> str:
        """What left: the least or greatest value, or whether anything did."""
        return f"a{self.number}_d"

    @property
    def function(self) -> str:
        return self.aggregate.function

    @property
    def is_extreme(self) -> bool:
        return self.function in ("min", "max")

    @property
    def is_sum(self) -> bool:
        return self.function in ("sum", "avg")

    def best(self, column: SparkColumn) -> SparkColumn:
        """The aggregate of Spark that takes the best of an extreme."""
        return fn.min(column) if self.function == "min" else fn.max(column)


class Deltas:
    """Builds the queries of one view. Runs nothing.

    Columns are built once, and the frame of a table is built again only when its files are others: each call into the
    JVM is short, but a query of tables needs a thousand of them.
    """

    def __init__(self, spark: SparkSession, query: Query, schemas: Mapping[str, pa.Schema]) -> None:
        self._spark = spark
        self._query = query
        self._schemas = {name: spark_schema(schema) for name, schema in schemas.items()}
        self._keys = [f"k{number}" for number in range(len(query.keys))]
        self._kept = [
            _Kept(aggregate, number)
            for number, aggregate in enumerate(query.aggregates)
            if aggregate.argument is not None
        ]
        self._types = {kept.number: self._argument_type(kept) for kept in self._kept}
        #: Aggregates that cannot be undone: a group may be lost.
        self._fragile = [kept for kept in self._kept if kept.is_extreme or (kept.is_sum and self._floating(kept))]
        self._frames: dict[tuple[str, int], tuple[tuple[File, ...], DataFrame]] = {}
        self._state_types = {field.name: field.dataType for field in self._partials(self._nothing()).schema.fields}

    def on(self, spark: SparkSession) -> Deltas:
        """The same queries in another session."""
        other = copy(self)
        other._spark, other._frames = spark, {}
        return other

    # -- queries -----------------------------------------------------------------------------------------------

    def whole(self, tables: Mapping[str, TableVersion]) -> DataFrame:
        """The groups of the view over whole tables."""
        sources = range(len(self._query.sources))
        return self._finished(self._partials(self._joined(0, {s: self._version(s, tables) for s in sources})))

    def refreshed(self, state: Sequence[File], tables: Mapping[str, TableVersion], table: str, part: File) -> DataFrame:
        """The groups after changes of one table, with those that are lost marked."""
        occurrences = [n for n, source in enumerate(self._query.sources) if source.table == table]
        terms = []
        for place in occurrences:
            frames = {}
            for source in range(len(self._query.sources)):
                frames[source] = self._version(
                    source, tables, plus=part if source in occurrences and source < place else None
                )
            frames[place] = self._changes(place, part)
            terms.append(self._joined(place, frames))
        return self._merged(self._read_state(state), reduce(lambda a, b: a.unionByName(b), terms))

    def mended(self, marked: Sequence[File], tables: Mapping[str, TableVersion]) -> DataFrame:
        """The same groups, with the lost ones computed anew from their rows."""
        state = self._read_state(marked, lost=True)
        if not self._keys:
            return self.whole(tables)
        lost = state.where(fn.col(LOST)).select(*self._keys)
        sources = range(len(self._query.sources))
        frames = {source: self._only(lost, source, self._version(source, tables)) for source in sources}
        rows = self._joined(0, frames).alias("r")
        same = reduce(and_, (fn.col(f"r.{key}").eqNullSafe(fn.col(f"l.{key}")) for key in self._keys))
        anew = self._finished(self._partials(rows.join(fn.broadcast(lost).alias("l"), same, "left_semi")))
        return state.where(~fn.col(LOST)).drop(LOST).unionByName(anew)

    def answer(self, state: Sequence[File]) -> DataFrame:
        """The rows that readers see."""
        query = self._query
        frame = self._read_state(state)
        if query.having is not None:
            frame = frame.where(build(query.having, self._shown))
        outputs = [build(item, self._shown).alias(name) for name, item in query.outputs]
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
        names = [_quoted(name) for name in schema.names]
        counted = rows.groupBy(*names).agg(fn.sum(SIGN).alias(SIGN)).where(fn.col(SIGN) > 0)
        return counted.select(*names, fn.explode(fn.sequence(fn.lit(1).cast("bigint"), fn.col(SIGN)))).select(*names)

    # -- sources -----------------------------------------------------------------------------------------------

    def _files(self, files: Sequence[File], schema: StructType) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*(file.path for file in files))

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

    def _changes(self, source: int, part: File) -> DataFrame:
        frame = self._parts(source, [part])
        return fn.broadcast(frame) if part.rows <= BROADCAST else frame

    def _parts(self, source: int, parts: Sequence[File]) -> DataFrame:
        schema = StructType([*self._schemas[self._query.sources[source].table].fields, StructField(SIGN, ByteType())])
        return self._named(source, self._files(parts, schema), sign=SIGN)

    def _named(self, source: int, frame: DataFrame, sign: str | None) -> DataFrame:
        """The used columns under names of ours, the sign, and only rows that pass the conditions on this table."""
        used, conditions = self._own[source]
        signed = frame.select(*used, (fn.col(sign) if sign else fn.lit(1).cast("tinyint")).alias(f"w{source}"))
        for condition in conditions:
            signed = signed.where(condition)
        return signed

    @cached_property
    def _own(self) -> list[tuple[list[SparkColumn], list[SparkColumn]]]:
        """Of each source: the used columns, and the conditions on it alone."""
        return [
            (
                [_quoted(name).alias(_name(Column(source, name))) for name in self._query.used(source)],
                [build(one, _column) for one in self._query.filters if sources_of(one) <= {source}],
            )
            for source in range(len(self._query.sources))
        ]

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
            condition = reduce(and_, (self._equal[pair] for pair in pairs))
            frame = frame.join(frames[source], condition, "inner")
            joined.add(source)
            for condition_ in self._query.filters:
                if len(sources_of(condition_)) > 1 and source in sources_of(condition_) <= joined:
                    frame = frame.where(build(condition_, _column))
        return frame.select(*self._outputs)

    @cached_property
    def _outputs(self) -> list[SparkColumn]:
        """Of joined rows: keys, arguments, and the product of all signs."""
        keys = [build(key, _column).alias(name) for key, name in zip(self._query.keys, self._keys, strict=True)]
        values = [self._argument(kept).alias(f"x{kept.number}") for kept in self._kept]
        sign = reduce(mul, (fn.col(f"w{source}") for source in range(len(self._query.sources))))
        return [*keys, *values, sign.cast("bigint").alias(SIGN)]

    @cached_property
    def _equal(self) -> dict[tuple[Column, Column], SparkColumn]:
        return {pair: _column(pair[0]) == _column(pair[1]) for pair in self._equalities}

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
            for name, key in zip(self._keys, self._query.keys, strict=True)
            if isinstance(key, Column) and key.source == source
        }
        if not mine:
            return frame
        wanted = fn.broadcast(lost.select(*mine).distinct())
        same = reduce(and_, (_column(key).eqNullSafe(fn.col(name)) for name, key in mine.items()))
        return frame.join(wanted, same, "left_semi")

    # -- groups ------------------------------------------------------------------------------------------------

    def _partials(self, rows: DataFrame) -> DataFrame:
        """The groups of joined rows."""
        return self._rowwise(rows).groupBy(*self._keys).agg(*self._totals)

    def _rowwise(self, rows: DataFrame) -> DataFrame:
        """What each joined row adds to its group, in the columns of a group."""
        if not self._fragile:
            return rows.select(*self._keys, fn.col(SIGN).alias(ROWS), *self._linear)
        # Equal values that enter and leave cancel each other first, so that of a value that is left more entered than
        # left, or the other way round.
        values = [f"x{kept.number}" for kept in self._fragile]
        return rows.groupBy(*self._keys, *values).agg(*self._netted).select(*self._keys, *self._of_netted)

    @cached_property
    def _linear(self) -> list[SparkColumn]:
        """What a joined row adds to aggregates that can be undone."""
        sign, found = fn.col(SIGN), []
        for kept in self._kept:
            if kept not in self._fragile:
                value = fn.col(f"x{kept.number}")
                found.append(self._counted(kept).alias(kept.count))
                if kept.is_sum:
                    found.append(fn.when(sign > 0, value).otherwise(-value).alias(kept.total))
        return found

    @cached_property
    def _linear_names(self) -> list[str]:
        linear = [kept for kept in self._kept if kept not in self._fragile]
        return [name for kept in linear for name in (kept.count, *([kept.total] if kept.is_sum else []))]

    @cached_property
    def _netted(self) -> list[SparkColumn]:
        sums = zip(self._linear, self._linear_names, strict=True)
        return [fn.sum(SIGN).alias(SIGN), *(fn.sum(added).alias(name) for added, name in sums)]

    @cached_property
    def _of_netted(self) -> list[SparkColumn]:
        """What values that are left add to a group."""
        sign = fn.col(SIGN)
        found = [sign.alias(ROWS), *(fn.col(name) for name in self._linear_names)]
        for kept in self._fragile:
            value = fn.col(f"x{kept.number}")
            found.append(self._counted(kept).alias(kept.count))
            if kept.is_extreme:
                found.append(fn.when(sign > 0, value).alias(kept.total))
                found.append(fn.when(sign < 0, value).alias(kept.left))
            else:
                # Where nothing is left of a value, not even infinity may remain of it.
                found.append(fn.when(sign != 0, value * sign).alias(kept.total))
                found.append(((sign < 0) & value.isNotNull()).alias(kept.left))
        return found

    @staticmethod
    def _counted(kept: _Kept) -> SparkColumn:
        return fn.when(fn.col(f"x{kept.number}").isNotNull(), fn.col(SIGN)).otherwise(0)

    @cached_property
    def _totals(self) -> list[SparkColumn]:
        """Of rows that add to a group, and of the group itself."""
        totals = [fn.coalesce(fn.sum(ROWS), fn.lit(0)).alias(ROWS)]
        for kept in self._kept:
            totals.append(fn.coalesce(fn.sum(kept.count), fn.lit(0)).alias(kept.count))
            if kept.is_sum:
                totals.append(fn.sum(kept.total).cast(self._sum_type(kept)).alias(kept.total))
            if kept.is_extreme:
                totals.append(kept.best(fn.col(kept.total)).alias(kept.total))
                totals.append(kept.best(fn.col(kept.left)).alias(kept.left))
            elif kept in self._fragile:
                totals.append(fn.max(kept.left).alias(kept.left))
        return totals

    def _sum_type(self, kept: _Kept) -> Any:
        type_ = self._types[kept.number]
        if isinstance(type_, DecimalType):
            return DecimalType(min(38, type_.precision + 10), type_.scale)
        return DoubleType() if isinstance(type_, (FloatType, DoubleType)) else LongType()

    def _merged(self, state: DataFrame, rows: DataFrame) -> DataFrame:
        """Groups as they were and what joined rows add to them, in one grouping."""
        old = state.select("*", *self._nothing_left)
        new = self._rowwise(rows).select(*self._as_stored)
        merged = old.unionByName(new).groupBy(*self._keys).agg(*self._totals)
        return self._finished(merged.withColumn(LOST, self._any_lost) if self._fragile else merged)

    @cached_property
    def _nothing_left(self) -> list[SparkColumn]:
        return [fn.lit(None).cast(self._state_types[kept.left]).alias(kept.left) for kept in self._fragile]

    @cached_property
    def _as_stored(self) -> list[SparkColumn]:
        return [fn.col(name).cast(type_).alias(name) for name, type_ in self._state_types.items()]

    @cached_property
    def _any_lost(self) -> SparkColumn:
        return reduce(lambda a, b: a | b, (fn.coalesce(self._is_lost(kept), fn.lit(False)) for kept in self._fragile))

    def _is_lost(self, kept: _Kept) -> SparkColumn:
        some = fn.col(kept.count) > 0
        if not kept.is_extreme:
            return some & fn.col(kept.left)
        left, best = fn.col(kept.left), fn.col(kept.total)
        return some & (best.isNull() | (left <= best if kept.function == "min" else left >= best)) & left.isNotNull()

    def _finished(self, groups: DataFrame) -> DataFrame:
        """Groups as they are stored: without those that are no more, and without notes on what left."""
        kept = groups.where(fn.col(ROWS) != 0) if self._keys else groups
        return kept.drop(*(kept_.left for kept_ in self._fragile))

    def _read_state(self, files: Sequence[File], lost: bool = False) -> DataFrame:
        names = [name for name in self._state_types if name not in {kept.left for kept in self._fragile}]
        schema = StructType([StructField(name, self._state_types[name]) for name in names])
        if lost:
            schema = schema.add(LOST, "boolean")
        return self._files(files, schema)

    def can_lose(self) -> bool:
        """Whether groups may have to be computed anew."""
        return bool(self._fragile)

    def _shown(self, part: Column | Key | Total) -> SparkColumn:
        if isinstance(part, Key):
            return fn.col(self._keys[part.number])
        assert isinstance(part, Total)
        aggregate = self._query.aggregates[part.number]
        if aggregate.argument is None:
            return fn.col(ROWS)
        kept = _Kept(aggregate, part.number)
        if kept.function == "count":
            return fn.col(kept.count)
        some = fn.col(kept.count) > 0
        if kept.function != "avg":
            return fn.when(some, fn.col(kept.total))
        type_ = self._types[part.number]
        if isinstance(type_, DecimalType):
            shown = DecimalType(min(38, type_.precision + 4), min(type_.scale + 4, 37))
            return fn.when(some, fn.try_divide(fn.col(kept.total), fn.col(kept.count)).cast(shown))
        return fn.when(some, fn.try_divide(fn.col(kept.total).cast("double"), fn.col(kept.count)))

    # -- types -------------------------------------------------------------------------------------------------

    def _argument(self, kept: _Kept) -> SparkColumn:
        assert kept.aggregate.argument is not None
        value = build(kept.aggregate.argument, _column)
        type_ = getattr(self, "_types", {}).get(kept.number)
        if kept.is_sum and isinstance(type_, IntegralType):
            return value.cast("bigint")
        if kept.is_sum and isinstance(type_, FloatType):
            return value.cast("double")
        if kept.function == "count":
            return fn.when(value.isNotNull(), True)  # only that it is there
        return value

    def _argument_type(self, kept: _Kept) -> Any:
        assert kept.aggregate.argument is not None
        frame = self._empty_row()
        return frame.select(build(kept.aggregate.argument, _column).alias("x")).schema["x"].dataType

    def _floating(self, kept: _Kept) -> bool:
        return isinstance(self._types[kept.number], (FloatType, DoubleType))

    def _empty_row(self) -> DataFrame:
        """All used columns of all sources, without a row."""
        fields = []
        for source, said in enumerate(self._query.sources):
            schema = self._schemas[said.table]
            fields += [
                StructField(_name(Column(source, name)), schema[name].dataType) for name in self._query.used(source)
            ]
        return self._spark.createDataFrame([], StructType(fields))

    def _nothing(self) -> DataFrame:
        """Joined rows, of which there are none."""
        empty = {name: TableVersion(()) for name in self._schemas}
        return self._joined(0, {source: self._version(source, empty) for source in range(len(self._query.sources))})


def _name(column: Column) -> str:
    return f"s{column.source}_{column.name}"


def _column(column: Column | Key | Total) -> SparkColumn:
    assert isinstance(column, Column)
    return _quoted(_name(column))


def _quoted(name: str) -> SparkColumn:
    # Names of users may have dots and backticks in them.
    return fn.col("`" + name.replace("`", "``") + "`")
