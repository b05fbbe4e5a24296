"""Rows as text, for people who look at what was set aside."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa


def row_texts(rows: pa.RecordBatch) -> list[str]:
    """Each row as JSON, whatever is in it: Spark's times reach further than Python's.

    >>> row_texts(pa.record_batch({"n": [1], "at": pa.array([1 << 60], pa.timestamp("us"))}))
    ['{"n": 1, "at": "38504-08-17T21:30:06.846976"}']
    """
    return [json.dumps(row, default=str, ensure_ascii=False) for row in plain_rows(rows)]


def plain_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as `to_pylist` has them, with texts for times that Python has not."""
    try:
        found: list[dict[str, Any]] = rows.to_pylist()
    except (OverflowError, ValueError):
        columns = [plain_values(column) for column in rows.columns]
        found = [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return found


def plain_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The same of a column."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = [_plain(value) for value in column]
    return found


def _plain(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        if isinstance(value, pa.ListScalar):
            return [_plain(each) for each in value.values]
        if isinstance(value, pa.StructScalar):
            return {name: _plain(each) for name, each in value.items()}
        zone = "+00:00" if getattr(value.type, "tz", None) is not None else ""
        return f"{np.datetime64(value.value, 'D' if pa.types.is_date(value.type) else value.type.unit)}{zone}"
