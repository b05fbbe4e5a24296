"""The Bloom filters that Parquet files may have: whether a row group has any of some keys, without reading it.

A filter is a run of 256-bit blocks. The upper half of a value's XXH64 chooses its block, the lower half one bit in
each of the block's eight words; a value is there only if all eight are set. Few files have filters, and a filter helps
only against few keys: with one false answer in a hundred, a hundred keys meet almost every row group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pt

from penstock.tables.native import ADDRESS, SIZE, U64S_OUT, helper, load8, load32, load64, native

U64 = npt.NDArray[np.uint64]

#: More keys than this are not asked for.
FEW = 256
# As the format of Parquet has them.
_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)
_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


def filter_bytes(chunk: pq.ColumnChunkMetaData, type_: pa.DataType) -> int:
    """How many bytes the filter of a column chunk has; 0 if there is none, or none that can be asked."""
    length = chunk.bloom_filter_length if _stored_as(type_) == chunk.physical_type else None
    return int(length) if length and chunk.bloom_filter_offset else 0


def _stored_as(type_: pa.DataType) -> str | None:
    """How values must lie in the file to be hashed as we hash them."""
    if pt.is_int64(type_):
        return "INT64"
    if pt.is_signed_integer(type_) or pt.is_date32(type_):
        return "INT32"
    return "BYTE_ARRAY" if pt.is_string(type_) or pt.is_binary(type_) else None


def may_have(stored: bytes, values: pa.Array) -> bool:
    """Whether a filter, as it lies in the file, may have any of the values, which are of its column's type.

    No value that is there is ever denied: `test_no_key_is_denied`.
    """
    bits = _bits(stored)
    if bits is None:
        return True
    hashes = xxh64(values.drop_null())
    block = ((hashes >> np.uint64(32)) * np.uint64(len(bits)) >> np.uint64(32)).astype(np.int64)
    low = hashes.astype(np.uint32)
    masks = np.uint32(1) << ((low[:, None] * _SALT) >> np.uint32(27))
    return bool(((bits[block] & masks) == masks).all(axis=1).any())


def _bits(stored: bytes) -> npt.NDArray[np.uint32] | None:
    """The blocks, which end the filter; its Thrift header begins with their bytes as a zigzag number."""
    if not stored or stored[0] != 0x15:
        return None
    size = shift = 0
    for byte in stored[1:6]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    size >>= 1
    if size <= 0 or size % 32 or size >= len(stored):
        return None
    return np.frombuffer(stored, np.uint32, offset=len(stored) - size).reshape(-1, 8)


def xxh64(values: pa.Array) -> U64:
    """XXH64 of each value, as Parquet stores it."""
    out = np.empty(len(values), np.uint64)
    if not len(values):
        return out
    if pt.is_string(values.type) or pt.is_binary(values.type):
        _, offsets, data = values.buffers()
        _texts(offsets.address + 4 * values.offset, data.address if data is not None else 0, out)
        return out
    wide = pt.is_int64(values.type)
    numbers = pc.cast(values, pa.int64() if wide else pa.int32()).to_numpy()
    _fixed(numbers.ctypes.data, 8 if wide else 4, out)
    return out


@helper
def _turned(word: Any, by: Any) -> Any:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@helper
def _round(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _P2, 31) * _P1


@helper
def _xxh64(at: Any, length: Any) -> Any:
    end = at + length
    if length >= np.uint64(32):
        a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
        while at + np.uint64(32) <= end:
            a, b = _round(a, load64(at)), _round(b, load64(at + np.uint64(8)))
            c, d = _round(c, load64(at + np.uint64(16))), _round(d, load64(at + np.uint64(24)))
            at += np.uint64(32)
        state = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        for lane in (a, b, c, d):
            state = (state ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        state = _P5
    state += length
    while at + np.uint64(8) <= end:
        state = _turned(state ^ _round(np.uint64(0), load64(at)), 27) * _P1 + _P4
        at += np.uint64(8)
    if at + np.uint64(4) <= end:
        state = _turned(state ^ (load32(at) * _P1), 23) * _P2 + _P3
        at += np.uint64(4)
    while at < end:
        state = _turned(state ^ (load8(at) * _P5), 11) * _P1
        at += np.uint64(1)
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


@native(ADDRESS, SIZE, U64S_OUT)
def _fixed(data: Any, width: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] = _xxh64(data + np.uint64(i * width), np.uint64(width))


@native(ADDRESS, ADDRESS, U64S_OUT)
def _texts(offsets: Any, data: Any, out: Any) -> None:
    for i in range(len(out)):
        begin, end = load32(offsets + np.uint64(4 * i)), load32(offsets + np.uint64(4 * i + 4))
        out[i] = _xxh64(data + begin, end - begin)
