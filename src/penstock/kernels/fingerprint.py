"""A 64-bit number for a whole row, that depends on its values alone.

After a crash the same rows come again in another order and in other pieces. A kernel that has to choose between rows
chooses by this, and so chooses the same ones again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit
from pyarrow import types as pt

from penstock.tables.hashing import combine, mix
from penstock.tables.keys import hash_keys

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_NULL = np.uint64(0x6E756C6C6E756C6D)
_EMPTY = np.uint64(0x656D707479656D71)
_NEXT = np.uint64(0xB5297A4D3F84D5A5)


def fingerprints(rows: pa.RecordBatch) -> U64:
    """The fingerprint of each row.

    Guarantees
        Equal rows have equal ones, wherever they stand: `test_equal_rows_have_equal_fingerprints`. Rows that differ, be
        it by the sign of a zero or by NULL for an empty text, have different ones but for 1 in 2 ** 64:
        `test_rows_that_differ_have_different_fingerprints`.
    State and cost
        None; 1 to 10 ns a value. Types that Spark does not have are written out as text, at about 1 µs a value.

    >>> rows = pa.record_batch({"k": [1, 1, 2], "v": ["a", "a", None]})
    >>> first, second, third = fingerprints(rows)
    >>> first == second, second == third
    (np.True_, np.False_)
    """
    state = np.zeros(rows.num_rows, np.uint64)
    for column in rows.columns:
        combine(_hashes(column).view(np.int64), state)
    return state


def _hashes(column: pa.Array) -> U64:
    hashes = _of_values(column)
    if column.null_count:
        hashes[~column.is_valid().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _of_values(column: pa.Array) -> U64:
    """The hash of each value; anything where it is NULL."""
    kind = column.type
    if pt.is_dictionary(kind):
        return _of_values(column.dictionary_decode())
    if pt.is_null(kind):
        return np.full(len(column), _NULL)
    if pt.is_struct(kind):
        state = np.full(len(column), _EMPTY)
        for child in column.flatten():
            combine(_hashes(child).view(np.int64), state)
        return state
    if pt.is_map(kind):
        entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "item"])
        return _of_lists(entries, column.offsets)
    if pt.is_list(kind) or pt.is_large_list(kind):
        return _of_lists(column.values, column.offsets)
    if pt.is_floating(kind):
        # By their bits: NaN is a value here, and -0.0 is not 0.0.
        return hash_keys([column.cast(pa.float64()).view(pa.int64())])
    if pt.is_uint64(kind) or pt.is_time64(kind) or pt.is_duration(kind) or pt.is_timestamp(kind):
        return hash_keys([column.view(pa.int64())])
    if pt.is_decimal128(kind) or pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_date32(kind):
        return hash_keys([column])
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind) or pt.is_large_binary(kind):
        return hash_keys([column])
    return hash_keys([pa.array([repr(value.as_py()) for value in column], pa.string())])


def _of_lists(values: pa.Array, offsets: pa.Array) -> U64:
    out = np.empty(len(offsets) - 1, np.uint64)
    # A slice of lists has offsets into all values: only those between the first and the last are looked at.
    bounds = offsets.cast(pa.int64()).to_numpy()
    inner = values.slice(bounds[0], bounds[-1] - bounds[0])
    _fold(_hashes(inner), bounds - bounds[0], out)
    return out


@njit(cache=True)
def _fold(hashes: U64, offsets: I64, out: U64) -> None:
    for i in range(out.size):
        state = _EMPTY
        for j in range(offsets[i], offsets[i + 1]):
            state = mix(state * _NEXT + hashes[j])
        out[i] = state
