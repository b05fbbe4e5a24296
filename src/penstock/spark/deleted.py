"""Rows of a table that a snapshot lacks: keys first, then the few rows themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain, groupby
from operator import and_, itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.schema import spark_schema
from penstock.tables import keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.tables.base import RowIds, Table


def rows_that_lack(snapshot: DataFrame, table: Table, on: tuple[str, ...]) -> DataFrame:
    """The table's rows whose key is not in the snapshot."""
    spark = snapshot.sparkSession
    names = [f"k{i}" for i in range(len(table.key))]
    schema = pa.schema(
        [("page", pa.int32()), ("row", pa.int64())]
        + [(name, table.schema.field(key).type) for name, key in zip(names, table.key, strict=True)]
    )
    parts = max(1, min(len(table.pages), 4 * spark.sparkContext.defaultParallelism))
    found = spark.range(0, len(table.pages), 1, parts).mapInArrow(_keys(table, schema), spark_schema(schema))
    # By place: a dot in a name would lead Spark into the column.
    numbered = snapshot.toDF(*(f"c{i}" for i in range(len(snapshot.columns))))
    places = [f"c{snapshot.columns.index(name)}" for name in on]
    theirs = numbered.select(*(numbered[place].alias(f"s{i}") for i, place in enumerate(places))).distinct()
    equal = reduce(and_, (found[name] == theirs[f"s{i}"] for i, name in enumerate(names)))
    # Spark takes the table for tiny (it knows page numbers only) and would broadcast it.
    gone = found.hint("merge").join(theirs, equal, "left_anti").select("page", "row")
    ordered = gone.repartition(parts, "page").sortWithinPartitions("page", "row")
    return ordered.mapInArrow(_rows(table), spark_schema(table.schema))


def _keys(table: Table, schema: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Page numbers in, keys out, each with its place; a key that equals nothing is NULL."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = table.open()
        try:
            for number in (number for batch in batches for number in batch.column(0).to_pylist()):
                start = 0
                for rows in reader.batches(table.pages[number], table.key):
                    columns = rows.columns
                    able = keys.joinable(columns)
                    if able is not None:
                        columns = [pc.if_else(pa.array(able), c, pa.scalar(None, c.type)) for c in columns]
                    page = pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)
                    place = pa.array(np.arange(start, start + rows.num_rows, dtype=np.int64))
                    yield pa.RecordBatch.from_arrays([page, place, *columns], schema=schema)
                    start += rows.num_rows
        finally:
            reader.close()

    return read


def _rows(table: Table) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Places in, by page and row; rows out."""

    def places(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, RowIds]]:
        for batch in batches:
            pages, rows = batch.column(0).to_numpy(), batch.column(1).to_numpy()
            for number in np.unique(pages):
                yield int(number), rows[pages == number]

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = table.open()
        try:
            for number, runs in groupby(places(batches), key=itemgetter(0)):
                page, wanted = table.pages[number], (rows for _, rows in runs)
                first, second = next(wanted), next(wanted, None)
                if second is None:
                    yield reader.take(page, first)
                else:
                    yield from _picked(reader.batches(page), chain([first, second], wanted))
        finally:
            reader.close()

    return read


def _picked(batches: Iterable[pa.RecordBatch], wanted: Iterator[RowIds]) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a page, ascending, in one pass; taking run after run would read it anew each time."""
    begin, rows = 0, next(wanted)
    for batch in batches:
        end = begin + batch.num_rows
        while (here := int(np.searchsorted(rows, end))) > 0:
            yield batch.take(pa.array(rows[:here] - begin))
            rows = rows[here:] if here < len(rows) else next(wanted, rows[:0])
        begin = end
