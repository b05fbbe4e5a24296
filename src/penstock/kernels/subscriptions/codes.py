"""Values of any ordered type as 64-bit integers in the same order, so that one compiled tree serves them all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from penstock.errors import UnsupportedType

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_MAGNITUDE = np.int64(0x7FFF_FFFF_FFFF_FFFF)


def check_ordered(kind: pa.DataType, what: str) -> None:
    """Refuse a type whose values have no code.

    >>> check_ordered(pa.date32(), "x")
    >>> check_ordered(pa.string(), "x")
    Traceback (most recent call last):
    penstock.errors.UnsupportedType: x is of type string, which has no order that ranges are made of here.
      Integers, floats, dates, timestamps and decimals of up to 18 digits have one.
      Cast it to one of these first.
    """
    if not _ordered(kind):
        raise UnsupportedType(
            f"{what} is of type {kind}, which has no order that ranges are made of here.",
            why="Integers, floats, dates, timestamps and decimals of up to 18 digits have one.",
            do="Cast it to one of these first.",
        )


def _ordered(kind: pa.DataType) -> bool:
    if pt.is_decimal128(kind):
        return bool(kind.precision <= 18)
    signed = pt.is_integer(kind) and not pt.is_uint64(kind)
    return bool(signed or pt.is_float32(kind) or pt.is_float64(kind) or pt.is_date32(kind) or pt.is_timestamp(kind))


def encode(column: pa.Array) -> tuple[I64, Mask]:
    """The code of each value, and which of them are values at all: neither NULL nor NaN.

    Guarantees
        `a < b` exactly where `code(a) < code(b)`; -0.0 and 0.0 have one code: `test_codes_keep_the_order`.

    >>> encode(pa.array([-1.5, None, 2.0, float("nan")]))[1]
    array([ True, False,  True, False])
    """
    able: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    kind = column.type
    if pt.is_floating(kind):
        numbers = _plain(column.cast(pa.float64()), np.float64) + 0.0
        bits = numbers.view(np.int64)
        return np.where(bits < 0, bits ^ _MAGNITUDE, bits), able & ~np.isnan(numbers)
    if pt.is_decimal128(kind):
        # The low word of a number of up to 18 digits is the number.
        return _plain(column, np.int64, words=2)[::2].copy(), able
    if pt.is_date32(kind):
        return _plain(column, np.int32).astype(np.int64), able
    if pt.is_timestamp(kind):
        return _plain(column, np.int64).copy(), able
    return _plain(column, np.dtype(kind.to_pandas_dtype())).astype(np.int64), able


def decode(codes: I64, kind: pa.DataType, able: Mask | None = None) -> pa.Array:
    """The values of codes, NULL where `able` is false.

    >>> decode(encode(pa.array([-1.5, 2.0]))[0], pa.float64()).to_pylist()
    [-1.5, 2.0]
    """
    missing = None if able is None or able.all() else ~able
    if pt.is_floating(kind):
        floats = np.where(codes < 0, codes ^ _MAGNITUDE, codes).view(np.float64)
        return pa.array(floats, pa.float64(), mask=missing).cast(kind)
    if pt.is_decimal128(kind):
        words = np.empty((len(codes), 2), np.int64)
        words[:, 0], words[:, 1] = codes, codes >> 63
        bits = None if missing is None else pa.array(~missing).buffers()[1]
        return pa.Array.from_buffers(kind, len(codes), [bits, pa.py_buffer(words)])
    if pt.is_date32(kind):
        return pa.array(codes.astype(np.int32), pa.int32(), mask=missing).view(kind)
    if pt.is_timestamp(kind):
        return pa.array(codes, pa.int64(), mask=missing).view(kind)
    return pa.array(codes.astype(kind.to_pandas_dtype()), kind, mask=missing)


def python_values(values: pa.Array) -> list[Any]:
    """Values as people have them. A time that Python has none of is NumPy's.

    >>> python_values(decode(np.array([0, 2**62]), pa.timestamp("us")))
    [datetime.datetime(1970, 1, 1, 0, 0), np.datetime64('148108-07-06T14:00:27.387904')]
    """
    try:
        return list(values.to_pylist())
    except (ValueError, OverflowError):
        return [one for n in range(len(values)) for one in _python_value(values.slice(n, 1))]


def _python_value(value: pa.Array) -> list[Any]:
    try:
        return list(value.to_pylist())
    except (ValueError, OverflowError):
        return list(value.to_numpy(zero_copy_only=False))


def _plain(column: pa.Array, width: Any, words: int = 1) -> npt.NDArray[Any]:
    """The values buffer as a NumPy view, NULL or not."""
    buffer = column.buffers()[1]
    count = len(column) * words
    if buffer is None:
        return np.zeros(count, width)
    return np.frombuffer(buffer, width, count=count, offset=column.offset * words * np.dtype(width).itemsize)
