"""The batch job behind `catch_up_streams`: the pairs that a window join missed, from what its archive says.

A pair was produced live if and only if both rows were in memory in the same step, so the residence of rows decides
alone which are missing; the live results are not looked at. A missing pair belongs to the micro-batch of its later row:
a run takes those of the micro-batches that are new, and its ledger entry says up to which. An outer row belongs to the
first run that knows that its window is closed: by the event times in the archive, and the notes on those of rows that
are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as fn

from penstock.errors import BadOption, PlanError
from penstock.kernels.contract import RESULTS
from penstock.kernels.window.notes import AHEAD
from penstock.kernels.window.shape import ARCHIVE, NOTES, RESIDENCE, RESIDENCE_SCHEMA, Shape, truths
from penstock.kernels.window.windows import LEFT, RIGHT, LandmarkWindow, RowWindow, TimeWindow
from penstock.spark.archive import Archive
from penstock.spark.catch_up import check_apart, read_archived
from penstock.spark.crash import crash_point
from penstock.spark.failures import cause
from penstock.spark.jobs import watched
from penstock.spark.schema import spark_schema
from penstock.spark.sink import WRITTEN, Ledger, StagedFile, batch_of, rows_writer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.plan.join_streams import JoinStreamsPlan

_EVER = (1 << 62) - 1
_NOTED = [field.name for field in NOTES if field.name != "_reason"]


@dataclass(frozen=True)
class CaughtUpStreams:
    """What a run did: rows that were new in the archive, how many of all had left memory too soon, results written."""

    rows: int = 0
    left_early: int = 0
    results: int = 0


@dataclass(frozen=True)
class _Clock:
    """How far both streams had come at the end of a micro-batch, as far as the archive knows."""

    through: int = -1
    watermark: int | None = None
    rows: tuple[int, int] = (0, 0)

    def closed(self, plan: JoinStreamsPlan, side: int) -> Column:
        """Which rows of a side can meet no partner any more."""
        window = plan.window
        if isinstance(window, RowWindow):
            return fn.col("_number") + window.span(side) < self.rows[side]
        if self.watermark is None:
            return fn.lit(False)
        if isinstance(window, LandmarkWindow):
            return _since("_time", window) < self.watermark // window.every * window.every
        return fn.col("_time") < self.watermark - window.span(side)


def _since(time: str, window: LandmarkWindow) -> Column:
    """The landmark before each row, exactly: a division would round."""
    return fn.col(time) - fn.pmod(fn.col(time), fn.lit(window.every))


def open_archive(place: Path) -> dict[str, Archive]:
    """The channels of an archive below one directory."""
    return {channel: Archive.open(place / channel) for channel in (*ARCHIVE, RESIDENCE)}


def archived_schemas(archives: dict[str, Archive]) -> tuple[pa.Schema, pa.Schema] | None:
    """The columns of both streams, as their files have them; None while one of them has none."""
    found = []
    for channel in ARCHIVE:
        stream = archives[channel].portion(after=-1).stream
        if stream is None:
            return None
        if stream.names[-len(_NOTED) :] != _NOTED:
            raise BadOption(f"{archives[channel].place} is not the archive of a window join.")
        found.append(pa.schema(list(stream)[: -len(_NOTED)]))
    return found[LEFT], found[RIGHT]


def run_catch_up_streams(
    spark: SparkSession,
    archives: dict[str, Archive],
    plan: JoinStreamsPlan,
    into: Path,
    progress: Callable[[int, int], None] | None = None,
) -> CaughtUpStreams:
    """Find what is missing in the micro-batches that are new, and commit it."""
    keeper = archives[ARCHIVE[LEFT]]
    for one in archives.values():
        check_apart(one.place, one.place, into)
    with keeper.held():
        _check_like(plan, keeper.flow())
        ledger = keeper.target(into)
        last = max(ledger.batches(), default=-1)
        before: dict[str, Any] = {}
        if last >= 0:
            ledger.finish(last)
            before = ledger.entry(last)
            keeper.check_same(before["through"], before["names"])
            _check_goes_on(plan, before["join"])
        portions = {channel: one.portion(after=-1) for channel, one in archives.items()}
        through = min(portion.through for portion in portions.values())
        done = _Clock(before["through"], before["watermark"], tuple(before["rows"])) if before else _Clock()
        if through <= done.through:
            return CaughtUpStreams()
        files = {
            channel: [file for file in portion.files if (batch_of(file.name) or 0) <= through]
            for channel, portion in portions.items()
        }
        crash_point("before-sink")
        try:
            with watched(spark, progress):
                job = _Job(spark, plan, files, done, through)
                written = job.write(ledger, last + 1)
        except Exception as failure:
            raise cause(failure) from None
        names = sorted(f.name for f in files[ARCHIVE[LEFT]] if batch_of(f.name) == through)
        now = job.now
        ledger.commit(
            last + 1, written, through=through, names=names, watermark=now.watermark, rows=now.rows,
            join=dict(plan.identity()),
        )  # fmt: skip
        keeper.note(ledger)
        crash_point("after-sink")
        return CaughtUpStreams(job.new_rows, job.left_early, sum(file["rows"] for file in written))


def _check_like(plan: JoinStreamsPlan, flow: dict[str, str]) -> None:
    """Refuse to find what another join than the flow's would have missed."""
    if not flow:
        return
    now = dict(plan.identity())
    names = ["on", "how", "window", "where"]
    # How late rows may be says when an outer row is certain to have no partner; pairs are as the flow had them.
    names += ["lateness"] if plan.window.timed and plan.shape.how != "inner" else []
    differing = [name for name in names if _essence(name, now.get(name)) != _essence(name, flow.get(name))]
    if differing:
        raise PlanError(
            "The flow that wrote this archive made another join.",
            why="; ".join(f"{name}: there {flow.get(name)!r}, here {now.get(name)!r}" for name in differing) + ".",
            do="Give on, within, lateness, how and where as in the flow: its results and those found now are one join.",
        )


def _essence(name: str, said: str | None) -> object:
    """What matters of a part of an identity: keys in any order; of a function what it does, not what it is called."""
    if said is None:
        return None
    return sorted(said.split(", ")) if name == "on" else said.rsplit(", code ", 1)[-1] if name == "where" else said


def _check_goes_on(plan: JoinStreamsPlan, was: dict[str, str]) -> None:
    now = dict(plan.identity())
    differing = [name for name in was | now if name != "slots" and was.get(name) != now.get(name)]
    if differing:
        raise PlanError(
            "Earlier runs of this catch-up made another join.",
            why="; ".join(f"{name}: was {was.get(name)!r}, is {now.get(name)!r}" for name in differing) + ".",
            do="Give the same options as before, which are those of the flow.",
        )


class _Job:
    """One run: the archive as DataFrames, and what is missing."""

    def __init__(
        self, spark: SparkSession, plan: JoinStreamsPlan, files: dict[str, list[Path]], done: _Clock, through: int
    ) -> None:
        self._spark, self._plan, self._shape, self._done = spark, plan, plan.shape, done
        self._files = files
        self._sides = [self._side(side) for side in (LEFT, RIGHT)]
        known = [self._known(side) for side in (LEFT, RIGHT)]
        latest = [row["latest"] for row in known]
        mark = None if None in latest else min(latest) - plan.lateness
        self.now = _Clock(through, mark, (known[LEFT]["rows"], known[RIGHT]["rows"]))
        self.new_rows = sum(row["fresh"] for row in known)
        self.left_early = sum(row["early"] for row in known)

    def _known(self, side: int) -> dict[str, Any]:
        found = self._sides[side].agg(
            fn.max("_time").alias("latest"),
            fn.coalesce(fn.max("_number") + 1, fn.lit(0)).alias("rows"),
            fn.count_if(fn.col("_batch") > self._done.through).alias("fresh"),
            fn.count_if(fn.col("_until") < _EVER).alias("early"),
        )
        ahead = self._noted(side).where(fn.col("_reason") == AHEAD).agg(fn.max("_left").alias("ahead"))
        row = found.crossJoin(ahead).collect()[0].asDict()
        return row | {"latest": max((row[n] for n in ("latest", "ahead") if row[n] is not None), default=None)}

    def write(self, ledger: Ledger, number: int) -> list[dict[str, Any]]:
        """All that is missing, as staged files."""
        place, schema, where = ledger.place, self._shape.results, self._plan.where
        parts = [
            self._selected(self._missing()).mapInArrow(
                _writer(place, number, self._shape, where), spark_schema(WRITTEN)
            )
        ]
        outer = [side for side in (LEFT, RIGHT) if self._shape.outer(side)]
        parts += [
            self._alone(side).mapInArrow(rows_writer(place, number, schema), spark_schema(WRITTEN)) for side in outer
        ]
        rows = [row for part in parts for row in part.collect()]
        return [{"name": row["file"], "rows": row["rows"], "bytes": row["bytes"]} for row in rows]

    def _read(self, channel: str, schema: pa.Schema) -> DataFrame:
        files = self._files[channel]
        if not files:
            empty = self._spark.createDataFrame([], spark_schema(schema))
            return (
                empty.withColumn("_batch", fn.lit(0).cast("long"))
                .withColumn("_file", fn.lit(""))
                .withColumn("_row", fn.lit(0).cast("long"))
            )
        frame = read_archived(self._spark, schema, files)
        batch = fn.regexp_extract(fn.col("_metadata.file_name"), r"part-(\d+)-", 1).cast("long")
        return frame.select(
            "*", batch.alias("_batch"), fn.col("_metadata.file_name").alias("_file"),
            fn.col("_metadata.row_index").alias("_row"),
        )  # fmt: skip

    def _side(self, side: int) -> DataFrame:
        """The rows of a side: own columns renamed, when each was in memory, and in which micro-batch that was noted."""
        rows = self._read(ARCHIVE[side], self._shape.archived(side))
        # Columns go by their places: a name may have dots or backticks in it.
        own = [f"c{i}" for i in range(len(self._shape.sides[side]))]
        rows = rows.toDF(*own, *rows.columns[len(own) :])
        notes = (
            self._noted(side)
            .where(fn.col("_reason") != AHEAD)
            .groupBy("_slot", "_number")
            .agg(
                fn.min(fn.when(fn.col("_reason") == "evicted", fn.col("_left"))).alias("_gone"),
                fn.min("_batch").alias("_noted"),
            )
        )
        joined = rows.drop("_reason").join(notes, ["_slot", "_number"], "left")
        return joined.select(
            *own,
            *("_time", "_slot", "_number", "_before", "_entered", "_batch", "_file", "_row"),
            fn.coalesce("_left", "_gone", fn.lit(_EVER)).alias("_until"),
            fn.when(fn.col("_left").isNotNull(), fn.col("_batch")).otherwise(fn.col("_noted")).alias("_noted"),
        )

    def _noted(self, side: int) -> DataFrame:
        """The notes on rows of a side that left too soon, and on its event time."""
        return self._read(RESIDENCE, RESIDENCE_SCHEMA).where(fn.col("_side") == side)

    def _named(self, side: int) -> DataFrame:
        frame = self._sides[side]
        return frame.toDF(*(f"{'lr'[side]}{name}" for name in frame.columns))

    def _belong(self) -> Column:
        """When a left and a right row are partners in the exact join, but for `where`."""
        shape, window = self._shape, self._plan.window
        places = [(shape.left.names.index(ours), shape.right.names.index(theirs)) for ours, theirs in shape.on]
        equal = [fn.col(f"lc{ours}") == fn.col(f"rc{theirs}") for ours, theirs in places]
        if isinstance(window, TimeWindow):
            apart = fn.col("r_time") - fn.col("l_time")
            near = apart.between(-window.right, window.left)
        elif isinstance(window, LandmarkWindow):
            near = _since("l_time", window) == _since("r_time", window)
        else:
            first = fn.col("l_number") < fn.col("r_before")
            near = (first & (fn.col("r_before") - fn.col("l_number") <= window.span(LEFT))) | (
                ~first & (fn.col("l_before") - fn.col("r_number") <= window.span(RIGHT))
            )
        return reduce(and_, [*equal, near])

    def _missing(self) -> DataFrame:
        pairs = self._named(LEFT).join(self._named(RIGHT), self._belong())
        together = (fn.col("l_entered") <= fn.col("r_until")) & (fn.col("r_entered") <= fn.col("l_until"))
        return pairs.where(~together & (fn.greatest("l_batch", "r_batch") > self._done.through))

    def _selected(self, pairs: DataFrame) -> DataFrame:
        ours = [f"lc{i}" for i in range(len(self._shape.left))]
        theirs = [f"rc{i}" for i in range(len(self._shape.right))]
        return pairs.select(*ours, *theirs)

    def _alone(self, side: int) -> DataFrame:
        """Rows without partner that the live join could not be sure of, and whose window has closed since."""
        ours, theirs = self._named(side), self._named(1 - side)
        mark = "lr"[side]
        if self._plan.where is None:
            alone = ours.join(theirs, self._belong(), "left_anti")
        else:
            names = [f"{mark}_file", f"{mark}_row"]
            found = self._named(LEFT).join(self._named(RIGHT), self._belong())
            columns = [*self._selected(found).columns, *names]
            keep = _keeper(self._shape, self._plan.where, names)
            met = found.select(*columns).mapInArrow(keep, f"{names[0]} string, {names[1]} long").distinct()
            alone = ours.join(met, names, "left_anti")
        alone = alone.select(*(fn.col(f"{mark}{name}").alias(name) for name in self._sides[side].columns))
        noted, done = fn.col("_noted").isNotNull(), self._done
        before = noted & (fn.col("_noted") <= done.through) & done.closed(self._plan, side)
        due = alone.where(noted & self.now.closed(self._plan, side) & ~before)
        return due.select(*self._outer_columns(side))

    def _outer_columns(self, side: int) -> list[Column]:
        shape = self._shape
        own = {name: fn.col(f"c{i}") for i, name in enumerate(shape.sides[side].names)}
        shared = {ours for ours, theirs in shape.on if ours == theirs}
        here = set(shape.left.names) if side == LEFT else {*shape.carried, *shared}
        kinds = dict(zip(shape.results.names, spark_schema(shape.results).fields, strict=True))
        return [
            (own[name] if name in here else fn.lit(None).cast(kinds[name].dataType)).alias(f"o{i}")
            for i, name in enumerate(shape.results.names)
        ]


def _split(batch: pa.RecordBatch, shape: Shape) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Pairs as two record batches with their own columns."""
    columns = batch.columns
    found, begin = [], 0
    for schema in shape.sides:
        part = columns[begin : begin + len(schema)]
        begin += len(schema)
        cast = [column.cast(field.type) for column, field in zip(part, schema, strict=True)]
        found.append(pa.RecordBatch.from_arrays(cast, schema=schema))
    return found[LEFT], found[RIGHT]


def _writer(
    place: Path, number: int, shape: Shape, where: Callable[..., Any] | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that writes those pairs that hold as one staged Parquet file."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged: StagedFile | None = None
        for batch in batches:
            left, right = _split(batch, shape)
            joined = shape.pairs(left, right)
            if where is not None and batch.num_rows:
                joined = joined.filter(pa.array(truths(where, left, right)))
            if joined.num_rows:
                staged = staged or StagedFile(place, number, shape.results)
                staged.add(joined)
        if staged is not None:
            yield staged.close(RESULTS)

    return write


def _keeper(
    shape: Shape, where: Callable[..., Any], names: list[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that names the rows of pairs that hold."""

    def keep(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                holds = truths(where, *_split(batch, shape))
                yield batch.select(names).filter(pa.array(holds))

    return keep
