"""Hypothesis strategies for single values of an Arrow type, extremes included."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pyarrow import types

from penstock.errors import UnsupportedType

#: The first and last day of the years 1 and 9999, in days since 1970, and the hours around a change of clocks.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_CLOCK_CHANGES = [1_711_846_800, 1_729_987_200, 1_729_990_800]  # Europe: 2024-03-31T01Z; 2024-10-27T00Z and 01Z
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TEXTS = ["", "\0", "a\0b", "NULL", "'; --", "ä", "a\u0308", "\u202e", "\U0001f600", "\ufeff", "\r\n"]


def values(kind: pa.DataType, *, nulls: bool = False, longest: int = 300) -> SearchStrategy[Any]:
    """Values of an Arrow type, plain and extreme, and NULL with `nulls`; what `pa.array(…, kind)` takes."""
    drawn = st.one_of(_plain(kind, longest), extreme_values(kind, longest=longest))
    return st.one_of(drawn, st.none()) if nulls else drawn


def extreme_values(kind: pa.DataType, *, longest: int = 300) -> SearchStrategy[Any]:
    """The values of an Arrow type that break things: ends of ranges, NaN, -0.0, NUL characters, long text, empty lists.

    `longest` is the number of characters or bytes of the longest text.
    """
    if _is_nested(kind):
        return _nested(kind, longest, extreme=True)
    return st.sampled_from(_extremes(kind, longest))


def _extremes(kind: pa.DataType, longest: int) -> list[Any]:
    if types.is_null(kind):
        return [None]
    if types.is_boolean(kind):
        return [False, True]
    if types.is_integer(kind):
        low, high = _range(kind)
        return [0, 1, high, low, high - 1, low + 1]
    if types.is_floating(kind):
        width = np.finfo(kind.to_pandas_dtype())
        tiny, huge = float(width.smallest_subnormal), float(width.max)
        return [0.0, -0.0, math.nan, math.inf, -math.inf, tiny, -tiny, huge, -huge]
    if types.is_decimal(kind):
        nines = 10**kind.precision - 1
        return [_decimal(unscaled, kind.scale) for unscaled in (0, 1, -1, nines, -nines)]
    if types.is_date32(kind):
        return [0, -1, _FIRST_DAY, _LAST_DAY]
    if types.is_timestamp(kind):
        return _moments(kind)
    if types.is_string(kind) or types.is_large_string(kind):
        return [*_TEXTS, "x" * longest]
    if types.is_binary(kind) or types.is_large_binary(kind):
        return [b"", b"\0", b"\xff\xfe", b"\0" * longest]
    raise UnsupportedType(f"There is no strategy for values of the type {kind}.", do="Give a strategy of your own.")


def _plain(kind: pa.DataType, longest: int) -> SearchStrategy[Any]:
    if _is_nested(kind):
        return _nested(kind, longest, extreme=False)
    if types.is_integer(kind):
        low, high = _range(kind)
        return st.integers(max(low, -10), min(high, 100))
    if types.is_floating(kind):
        return st.floats(-100, 100, width=kind.bit_width)
    if types.is_decimal(kind):
        limit = min(10**kind.precision - 1, 10_000)
        return st.integers(-limit, limit).map(lambda unscaled: _decimal(unscaled, kind.scale))
    if types.is_date32(kind):
        return st.integers(19_000, 21_000)
    if types.is_timestamp(kind):
        second = _PER_SECOND[kind.unit]
        return st.integers(1_700_000_000 * second, 1_700_003_600 * second)
    if types.is_string(kind) or types.is_large_string(kind):
        return st.text(max_size=8)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return st.binary(max_size=8)
    return st.sampled_from(_extremes(kind, longest))


def _nested(kind: pa.DataType, longest: int, *, extreme: bool) -> SearchStrategy[Any]:
    """Lists, maps and structs; the extremes are the empty ones, those of NULLs, and those of extremes."""

    def inner(part: pa.Field) -> SearchStrategy[Any]:
        drawn = extreme_values(part.type, longest=longest) if extreme else _plain(part.type, longest)
        return st.one_of(drawn, st.none()) if part.nullable else drawn

    if types.is_struct(kind):
        return st.fixed_dictionaries({kind.field(i).name: inner(kind.field(i)) for i in range(kind.num_fields)})
    if types.is_map(kind):
        keys = _plain(kind.key_type, longest)
        return st.lists(st.tuples(keys, inner(kind.item_field)), max_size=3, unique_by=lambda pair: repr(pair[0]))
    return st.lists(inner(kind.value_field), max_size=3)


def _is_nested(kind: pa.DataType) -> bool:
    return bool(types.is_struct(kind) or types.is_map(kind) or types.is_list(kind) or types.is_large_list(kind))


def _decimal(unscaled: int, scale: int) -> Decimal:
    """Exact, where arithmetic would round to the context's 28 digits."""
    return Decimal((int(unscaled < 0), tuple(int(digit) for digit in str(abs(unscaled))), -scale))


def _range(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if types.is_signed_integer(kind) else (0, 2**bits - 1)


def _moments(kind: pa.DataType) -> list[int]:
    """Moments in the type's unit, as far as 64 bits reach."""
    second = _PER_SECOND[kind.unit]
    first, last = _FIRST_DAY * 86_400 * second, (_LAST_DAY + 1) * 86_400 * second - 1
    low, high = _range(pa.int64())
    return [0, -1, *(change * second for change in _CLOCK_CHANGES), max(first, low + 1), min(last, high)]
