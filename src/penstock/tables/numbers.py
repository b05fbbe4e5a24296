"""Columns as numbers that are ordered as their values are: integers, floats, dates (days), times (microseconds)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from penstock.tables.keys import joinable, key_kind

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.tables.keys import Mask

    Numbers = npt.NDArray[Any]

#: Kinds of columns (`keys.key_kind`) that can be compared by order.
ORDERED = ("integer", "float", "date", "timestamp", "timestamp_ntz")
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_FURTHEST = (1 << 63) - 1


def numbers(column: pa.Array) -> tuple[Numbers, Mask]:
    """Each value as a number, and which of them are values at all: NULL and NaN are none.

    >>> numbers(pa.array([3, None], pa.int32()))
    (array([3, 0]), array([ True, False]))
    >>> [int(numbers(pa.array([1], pa.timestamp(unit)))[0][0]) for unit in ("s", "ms", "us")]
    [1000000, 1000, 1]
    """
    able = joinable([column])
    if pt.is_floating(column.type):
        plain = column.cast(pa.float64())
    elif pt.is_date(column.type):
        plain = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    elif pt.is_timestamp(column.type):
        plain = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    else:
        plain = column.cast(pa.int64())
    if plain.null_count:
        plain = plain.fill_null(0)
    mask = np.ones(len(column), np.bool_) if able is None else able
    return plain.to_numpy(zero_copy_only=False), mask


def exact(type_: pa.DataType) -> bool:
    """Whether a column of this type is whole numbers, which no file can know wrongly or in part."""
    return key_kind(type_) in ORDERED and not pt.is_floating(type_)


def ends(said: Any, type_: pa.DataType) -> tuple[int, int] | None:
    """The smallest and the largest value of a column as a file's statistics have them, told as `numbers` tells values.

    From what is stored: Python's own dates and times do not reach as far, and round what was before 1970 otherwise.
    """
    if said is None or not exact(type_) or not said.has_min_max:
        return None
    low, high = (said.min, said.max) if pt.is_integer(type_) else (said.min_raw, said.max_raw)
    if pt.is_timestamp(type_):
        unit = _UNITS.get(json.loads(said.logical_type.to_json()).get("timeUnit"))
        if unit is None or (unit == "ms" and max(-low, high) * 1000 > _FURTHEST):
            return None
        told = pa.array([low, high], pa.timestamp(unit)).cast(pa.timestamp("us"), safe=False)
        low, high = told.cast(pa.int64()).to_pylist()
    return int(low), int(high)
