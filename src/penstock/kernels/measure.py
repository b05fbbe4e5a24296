"""How many bytes rows take up, counted so that it depends on the rows alone and not on how they were cut.

`RecordBatch.nbytes` counts validity bitmaps only where something is null, and rounds for every piece. A kernel that
decided by it would decide differently when the same rows come again in other pieces after a crash, and then emit a
result twice or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

Numbers = npt.NDArray[np.int64]
Sizes = npt.NDArray[np.float64]


def measure(rows: pa.RecordBatch) -> float:
    """Bytes of the rows, in exact eighths: additive over any cut, equal for any order."""
    begin, end = np.zeros(1, np.int64), np.full(1, rows.num_rows, np.int64)
    return float(sum(float(_extents(column, begin, end)[0]) for column in rows.columns))


def widths(rows: pa.RecordBatch, numbers: Numbers) -> Sizes:
    """Bytes of each of the rows with these numbers: `measure` of it alone. Looks at no other row."""
    total = np.zeros(len(numbers))
    for column in rows.columns:
        total += _extents(column, numbers, numbers + 1)
    return total


def runs(sizes: Sizes, most: float) -> Iterator[tuple[int, int]]:
    """Rows of these sizes in runs of at most `most` bytes, whatever their mean says; a larger row is a run alone.

    >>> list(runs(np.array([4.0, 4.0, 9.0, 1.0]), 8))
    [(0, 2), (2, 3), (3, 4)]
    """
    ends = np.cumsum(sizes)
    begin, done = 0, 0.0
    while begin < len(ends):
        end = max(int(np.searchsorted(ends, done + most, side="right")), begin + 1)
        yield begin, end
        begin, done = end, float(ends[end - 1])


def fixed_width(schema: pa.Schema) -> bool:
    """Whether every row has the same width."""
    return not any(_is_text(field.type) or pt.is_nested(field.type) for field in schema)


def countable(kind: pa.DataType) -> bool:
    """Whether the bytes of values can be told one by one: not where values share them, as in views and dictionaries.

    >>> countable(pa.list_(pa.string())), countable(pa.struct([("a", pa.string_view())]))
    (True, False)
    """
    if pt.is_struct(kind) or pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
        return all(countable(kind.field(i).type) for i in range(kind.num_fields))
    plain = _is_text(kind) or pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind)
    return bool(plain or pt.is_null(kind))


def _extents(column: pa.Array, begin: Numbers, end: Numbers) -> Sizes:
    """Bytes of the values from each `begin` up to its `end`."""
    kind = column.type
    count = (end - begin).astype(np.float64)
    if not len(column) or pt.is_null(kind):
        return count / 8
    if pt.is_struct(kind):
        return count / 8 + sum(_extents(column.field(i), begin, end) for i in range(kind.num_fields))
    if _is_text(kind):
        # String offsets are no property of the array in Arrow's Python face; its second buffer holds them.
        wide = pt.is_large_string(kind) or pt.is_large_binary(kind)
        offsets: Any = np.frombuffer(column.buffers()[1], np.int64 if wide else np.int32)[column.offset :]
        return count * 4.125 + offsets[end] - offsets[begin]
    if pt.is_map(kind) or pt.is_list(kind) or pt.is_large_list(kind):
        offsets = column.offsets.to_numpy().astype(np.int64, copy=False)
        parts: tuple[Any, ...] = (column.keys, column.items) if pt.is_map(kind) else (column.values,)
        return count * 4.125 + sum(_extents(part, offsets[begin], offsets[end]) for part in parts)
    return count * ((1 + kind.bit_width) / 8)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_binary(kind) or pt.is_large_string(kind) or pt.is_large_binary(kind))
