"""Parquet files as Arrow reads them, with moments as Spark writes them unless it is told otherwise.

A timestamp of 96 bits (INT96) is a moment, though Arrow gives it no zone. It is read in microseconds: in nanoseconds,
as Arrow has it by itself, years before 1678 and after 2262 become others without a word.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

_MOMENT = pa.timestamp("us", "UTC")
#: For datasets, whose schema says which times are moments.
FORMAT = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")


def schema_of(path: Path) -> pa.Schema:
    """The columns of a file."""
    with _open(path) as file:
        return _with_moments(file)


def rows_of(path: Path) -> pa.Table:
    """All rows of a file."""
    with _open(path) as file:
        rows: pa.Table = file.read()
        return rows.cast(_with_moments(file))


def _open(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _with_moments(file: pq.ParquetFile) -> pa.Schema:
    leaves = (file.schema.column(number) for number in range(len(file.schema)))
    moments = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    fields = [field.with_type(_MOMENT) if field.name in moments else field for field in file.schema_arrow]
    return pa.schema(fields)
