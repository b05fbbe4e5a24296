"""The batch job behind `catch_up`: a portion of an archive, joined by Spark, and committed by the sink's ledger.

One run is one batch of the ledger in the results' directory, and its entry says up to which batch of the archive rows
were taken. So results and the note that their rows are done become true in the same instant, and a run that is killed
leaves either both or nothing. The table's pages are read by its own reader, as in the live join: by key hash first, and
further columns only of rows whose key may be in the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import BadOption, TableChanged
from penstock.kernels.mesh.shedding import REASON
from penstock.plan.catch_up import CatchUpPlan
from penstock.spark.archive import Archive, Portion, marked, survey
from penstock.spark.crash import crash_point
from penstock.spark.failures import cause
from penstock.spark.jobs import watched
from penstock.spark.schema import spark_schema
from penstock.spark.sink import WRITTEN, Ledger, rows_writer
from penstock.spark.sources import literal
from penstock.tables import keys

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from penstock.kernels.mesh.results import How
    from penstock.tables.base import Page, PageReader, Table

_SPARK_HOW = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}
#: Rows of a page are fetched at once up to this size; more are read in the order of the page.
_FETCH = 16 << 20


@dataclass(frozen=True)
class CaughtUp:
    """What a run did: rows taken from the archive, by reason; results written; what the archive has got since."""

    rows: int = 0
    results: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    files: int = 0
    left_rows: int = 0


def run_catch_up(
    spark: SparkSession,
    archive: Archive,
    table: Table,
    *,
    on: tuple[str, ...],
    into: Path,
    how: How,
    progress: Callable[[int, int], None] | None = None,
) -> CaughtUp:
    """Join what is new in the archive, and commit it."""
    check_apart(archive.place, Path(table.path), into)
    with archive.held():
        ledger = archive.target(into)
        last = max(ledger.batches(), default=-1)
        before: dict[str, Any] = {}
        if last >= 0:
            ledger.finish(last)
            before = ledger.entry(last)
            archive.check_same(before["through"], before["names"])
        portion = archive.portion(after=before["through"] if before else -1)
        if portion.stream is None:
            return CaughtUp(left_rows=portion.waiting)
        plan = CatchUpPlan.checked(portion.stream, table, on=on, how=how)
        plan.check_like(archive.flow())
        if before:
            plan.check_goes_on(before["join"])
        seen = survey(portion, on)
        crash_point("before-sink")
        with watched(spark, progress):
            files = _join(spark, plan, portion, ledger, last + 1, seen.marks)
        ledger.commit(
            last + 1,
            files,
            through=portion.through,
            names=portion.names,
            rows=portion.rows,
            join=plan.identity(),
            table={"path": table.path, "version": table.version},
        )
        archive.note(ledger)
        crash_point("after-sink")
        left = archive.portion(after=portion.through)
        results = sum(file["rows"] for file in files)
        return CaughtUp(portion.rows, results, seen.reasons, len(portion.files), left.rows + left.waiting)


def check_apart(archive: Path, table: Path, into: Path) -> None:
    """Refuse results in the directory of something else."""
    for name, place in (("the archive", archive), ("the table", table.absolute())):
        if place == into or place in into.parents or into in place.parents:
            raise BadOption(
                f"The results ({into}) and {name} ({place}) are one inside the other.",
                why="Readers of the one would meet files of the other.",
                do="Give the results a directory of their own.",
            )


def _join(
    spark: SparkSession, plan: CatchUpPlan, portion: Portion, ledger: Ledger, number: int, marks: bytes
) -> list[dict[str, Any]]:
    shared = spark.sparkContext.broadcast(marks)
    try:
        rows = _table_rows(spark, plan, shared)
        stream = _archived_rows(spark, plan, portion)
        places = [plan.stream.names.index(name) for name in plan.on]
        equal = reduce(and_, (stream[f"s{ours}"] == rows[f"k{theirs}"] for theirs, ours in enumerate(places)))
        # Spark takes the table for tiny (it knows page numbers only) and would broadcast it.
        joined = stream.join(rows.hint("merge"), equal, _SPARK_HOW[plan.how])
        wanted = [*stream.columns, *(f"t{i}" for i in range(len(plan.carried)))]
        written = (
            joined.select(*wanted)
            .mapInArrow(rows_writer(ledger.place, number, plan.results), spark_schema(WRITTEN))
            .collect()
        )
    except Exception as failure:
        raise _plainly(failure) from None
    finally:
        shared.destroy()
    return [{"name": row["file"], "rows": row["rows"], "bytes": row["bytes"]} for row in written]


def _plainly(failure: Exception) -> BaseException:
    ours = cause(failure)
    if isinstance(ours, TableChanged):
        return TableChanged(
            ours.what,
            why="A join may not mix two versions of its table; nothing of this run was committed.",
            do="Put it back, or open the table as it is now, and run the catch-up again.",
        )
    return ours


def _archived_rows(spark: SparkSession, plan: CatchUpPlan, portion: Portion) -> DataFrame:
    frame = read_archived(spark, plan.stream.append(pa.field(REASON, pa.string())), portion.files)
    return frame.drop(REASON).toDF(*(f"s{i}" for i in range(len(plan.stream))))


def read_archived(spark: SparkSession, schema: pa.Schema, files: Iterable[Path]) -> DataFrame:
    """The rows of an archive's files, whatever the session is set to."""
    # A session may be told to pass over what it cannot read, or to take old dates for those of another calendar,
    # and a path like day=1 is no column here.
    options = {
        "ignoreMissingFiles": "false",
        "ignoreCorruptFiles": "false",
        "recursiveFileLookup": "true",
        "datetimeRebaseMode": "CORRECTED",
    }
    return spark.read.schema(spark_schema(schema)).options(**options).parquet(*map(literal, files))


def _table_rows(spark: SparkSession, plan: CatchUpPlan, marks: Broadcast[bytes]) -> DataFrame:
    table = plan.table
    names = [*(f"k{i}" for i in range(len(table.key))), *(f"t{i}" for i in range(len(plan.carried)))]
    fields = [table.schema.field(name) for name in (*table.key, *plan.carried)]
    schema = pa.schema([pa.field(name, field.type) for name, field in zip(names, fields, strict=True)])
    parts = max(1, min(len(table.pages), 4 * spark.sparkContext.defaultParallelism))
    numbers = spark.range(0, len(table.pages), 1, parts)
    return numbers.mapInArrow(_page_reader(table, plan.carried, schema, marks), spark_schema(schema))


def _page_reader(
    table: Table, carried: tuple[str, ...], schema: pa.Schema, marks: Broadcast[bytes]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that turns page numbers into the rows that may have partners."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = table.open()
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    for rows in _likely(reader, table.pages[number], marks.value):
                        key = [rows.column(name) for name in table.key]
                        able = keys.joinable(key)
                        columns = [*key, *(rows.column(name) for name in carried)]
                        found = pa.RecordBatch.from_arrays(columns, schema=schema)
                        # Spark has NaN equal itself.
                        yield found if able is None else found.filter(pa.array(able))
        finally:
            reader.close()

    return read


def _likely(reader: PageReader, page: Page, marks: bytes) -> Iterator[pa.RecordBatch]:
    likely = marked(reader.hashes(page), marks)
    rows = np.flatnonzero(likely)
    if len(rows) * max(page.row_width, 1) <= _FETCH:
        if len(rows):
            yield reader.take(page, rows)
        return
    at = 0
    for batch in reader.batches(page):
        yield batch.filter(pa.array(likely[at : at + batch.num_rows]))
        at += batch.num_rows
