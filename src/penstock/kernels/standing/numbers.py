"""Columns that have ranges, as 64-bit floats that stand for their values exactly.

Integers, dates, timestamps and durations are whole numbers (of days, of microseconds): up to 2⁵³ a float has each of
them. A row with a larger one cannot be compared exactly and is set aside, not rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from penstock.errors import UnsupportedType
from penstock.kernels.standing.search import F64, Flags

#: Whole numbers up to this are floats.
EXACT = 2**53


class Numbers(NamedTuple):
    """Values, which of them can be compared (neither NULL nor NaN), and which cannot be told exactly."""

    values: F64
    able: Flags
    inexact: Flags


def range_kind(kind: pa.DataType) -> str:
    """What a column with a range is, however it is stored.

    >>> range_kind(pa.int16()), range_kind(pa.float32()), range_kind(pa.timestamp("us", "UTC"))
    ('number', 'number', 'timestamp')
    """
    if pt.is_integer(kind) or pt.is_floating(kind):
        return "number"
    if pt.is_date(kind):
        return "date"
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pt.is_duration(kind):
        return "duration"
    raise UnsupportedType(
        f"A column of type {kind} cannot have a range.",
        why="Ranges are on integers, floats, dates and timestamps.",
        do="Cast it first, for example with cast('double').",
    )


def difference_kind(kind: str) -> str:
    """What the difference of two such columns is."""
    return "number" if kind in ("number", "date") else "duration"


def to_numbers(column: pa.Array, *, up: bool = False) -> Numbers:
    """The column's values as floats. Times finer than a microsecond go to the one before, or the next with `up`."""
    kind = column.type
    if pt.is_floating(kind):
        values = column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        real = ~np.isnan(values)
        return Numbers(np.where(real, values, 0.0), real, np.zeros(len(values), np.bool_))
    if pt.is_date(kind):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif pt.is_timestamp(kind) or pt.is_duration(kind):
        micro = pa.duration("us") if pt.is_duration(kind) else pa.timestamp("us", kind.tz)
        column = _micro(column, up) if kind.unit == "ns" else column.cast(micro).view(pa.int64())
    able: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    whole = column.fill_null(0).to_numpy(zero_copy_only=False)
    inexact = (whole > EXACT) | (whole < -EXACT) if whole.dtype.itemsize == 8 else np.zeros(len(whole), np.bool_)
    return Numbers(whole.astype(np.float64), able, able & inexact)


def _micro(column: pa.Array, up: bool) -> pa.Array:
    whole = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    micro = -(-whole // 1_000) if up else whole // 1_000
    return pa.array(micro, mask=~column.is_valid().to_numpy(zero_copy_only=False))
