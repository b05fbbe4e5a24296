"""Columns as numbers that are ordered as their values are: integers, floats, dates (days), times (microseconds)."""

from __future__ import annotations

from datetime import datetime
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


def number_of(value: Any, type_: pa.DataType) -> int | None:
    """One value of a file's statistics, if it can be told as a whole number.

    >>> import datetime
    >>> number_of(datetime.date(1970, 1, 3), pa.date32()), number_of("x", pa.string())
    (2, None)
    """
    if not exact(type_) or (pt.is_timestamp(type_) and not isinstance(value, datetime)):
        return None
    try:
        return int(numbers(pa.array([value], type_))[0][0])
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return None
