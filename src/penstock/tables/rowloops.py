"""Compiled loops between columns and row-major records. What the bytes mean is told in `records`.

Addresses are checked by nobody: callers hold the buffers. Loads and stores of eight bytes may run up to seven bytes
past a text, so heaps end with `SLACK` bytes of room.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tables.native import (
    ADDRESS,
    I64S,
    I64S_OUT,
    SIZE,
    helper,
    load8,
    load16,
    load32,
    load64,
    native,
    read_into,
    store8,
    store16,
    store32,
    store64,
)

#: Kinds of a field: the width in bytes of a fixed one, or one of these.
BITS = 0
TEXT = -1

SLACK = 8
#: Rows further apart than this many bytes are read one by one: what is copied in the time of one more system call.
GAP = 8 << 10
#: Faults, as the loops return them.
BAD_ROW, BAD_HEAP, TOO_LONG, UNORDERED, UNREADABLE = -1, -2, -3, -4, -5

# Rows gone through column by column before the next: their records stay in the first-level cache. A multiple of eight,
# so that a block ends where a byte of a bitmap ends.
_BLOCK = 128


def address(array: np.typing.NDArray[Any]) -> int:
    """Where an array's bytes begin."""
    place: int = array.__array_interface__["data"][0]
    return place


@helper
def _copy(source: Any, target: Any, length: Any) -> None:
    at = np.uint64(0)
    while at < length:
        store64(target + at, load64(source + at))
        at += np.uint64(8)


@helper
def _bitmap(base: Any, stride: Any, rows: Any, first: Any, last: Any, mask: Any, out: Any, flip: Any) -> Any:
    """One bit of each record, as a bitmap; `first` is a multiple of eight. Returns how many are 1."""
    ones: Any = 0
    at = out + np.uint64(first >> 3)
    byte = np.uint64(0)
    for i in range(first, last):
        bit = np.uint64((load8(base + np.uint64(rows[i]) * stride) & mask) != np.uint64(0)) ^ flip
        ones += np.int64(bit)
        byte |= bit << np.uint64(i & 7)
        if i & 7 == 7:
            store8(at, byte)
            at += np.uint64(1)
            byte = np.uint64(0)
    if last & 7:
        store8(at, byte)
    return ones


@native(ADDRESS, SIZE, SIZE, ADDRESS, SIZE, SIZE, SIZE, SIZE, SIZE, I64S, returns=SIZE)
def fill(
    pread: Any,
    descriptor: Any,
    offset: Any,
    base: Any,
    stride: Any,
    count: Any,
    heap_size: Any,
    first_text: Any,
    last_text: Any,
    rows: Any,
) -> Any:
    """Read what a gather of these rows will touch, each byte to its own place in the page; returns 0 or a fault.

    Rows closer than `GAP` bytes are read together. The texts of a record begin where its field at `first_text` (-1: it
    has none) says, and end where that at `last_text` does.
    """
    for i in range(len(rows)):
        if np.uint64(rows[i]) >= np.uint64(count):
            return BAD_ROW
        if i and rows[i] < rows[i - 1]:
            return UNORDERED
    heap = count * stride
    start = 0
    while start < len(rows):
        end = start + 1
        while end < len(rows) and (rows[end] - rows[end - 1]) * stride <= GAP:
            end += 1
        low, high = rows[start] * stride, (rows[end - 1] + 1) * stride
        if not read_into(pread, descriptor, base + np.uint64(low), high - low, offset + low):
            return UNREADABLE
        if first_text >= 0:
            low = np.int64(load32(base + np.uint64(low + first_text)))
            word = load64(base + np.uint64(high - stride + last_text))
            high = np.int64(word & np.uint64(0xFFFFFFFF)) + np.int64(word >> np.uint64(32))
            # What does not fit is for `measure` to find.
            if low <= high <= heap_size:
                low, high = low + heap, high + heap + SLACK
                if not read_into(pread, descriptor, base + np.uint64(low), high - low, offset + low):
                    return UNREADABLE
        start = end
    return 0


@helper
def _aligned(size: Any) -> Any:
    return (size + 63) & ~63


@native(ADDRESS, SIZE, SIZE, SIZE, I64S, I64S, I64S_OUT, returns=SIZE)
def measure(base: Any, stride: Any, limit: Any, heap_size: Any, rows: Any, fields: Any, spans: Any) -> Any:
    """How many bytes the columns of these rows need, and in `spans` where each buffer will be; or a fault.

    `fields` has kind, offset and null bit (-1: none) of each field, one after the other; `spans` gets place and length
    of three buffers for each: bitmap, values (for text: offsets), text.
    """
    count = len(rows)
    high = np.uint64(0)
    for i in range(count):
        high = max(high, np.uint64(rows[i]))
    if count and high >= np.uint64(limit):
        return BAD_ROW
    at = 0
    for c in range(len(fields) // 3):
        kind = fields[3 * c]
        text: Any = 0
        if kind == TEXT:
            first = base + np.uint64(fields[3 * c + 1])
            for i in range(count):
                word = load64(first + np.uint64(rows[i]) * np.uint64(stride))
                length = np.int64(word >> np.uint64(32))
                if np.int64(word & np.uint64(0xFFFFFFFF)) + length > heap_size:
                    return BAD_HEAP
                text += length
            if text > 0x7FFFFFFF:
                return TOO_LONG
        bitmap = (count + 7) // 8
        values = bitmap if kind == BITS else (4 * count + 4 if kind == TEXT else kind * count)
        if fields[3 * c + 2] < 0:
            bitmap = 0
        spans[6 * c], spans[6 * c + 1] = at, bitmap
        at += _aligned(bitmap)
        spans[6 * c + 2], spans[6 * c + 3] = at, values
        at += _aligned(values)
        spans[6 * c + 4], spans[6 * c + 5] = at, text
        # Room for the copy of the last text, which goes by eight bytes.
        at += _aligned(text + SLACK) if kind == TEXT else 0
    return at


@native(ADDRESS, SIZE, ADDRESS, I64S, I64S, I64S, ADDRESS, I64S_OUT)
def gather(base: Any, stride: Any, heap: Any, rows: Any, fields: Any, spans: Any, out: Any, nulls: Any) -> None:
    """Copy the fields of some records into the buffers that `measure` laid out from `out` on; count NULLs."""
    count = len(rows)
    step = np.uint64(stride)
    for c in range(len(nulls)):
        nulls[c] = 0
        if fields[3 * c] == TEXT:
            store32(out + np.uint64(spans[6 * c + 2]), np.uint64(0))
    for first in range(0, count, _BLOCK):
        last = min(first + _BLOCK, count)
        for c in range(len(nulls)):
            kind, bit = fields[3 * c], fields[3 * c + 2]
            at = base + np.uint64(fields[3 * c + 1])
            to = out + np.uint64(spans[6 * c + 2])
            if kind == 8:
                for i in range(first, last):
                    store64(to + np.uint64(8 * i), load64(at + np.uint64(rows[i]) * step))
            elif kind == 4:
                for i in range(first, last):
                    store32(to + np.uint64(4 * i), load32(at + np.uint64(rows[i]) * step))
            elif kind == TEXT:
                text = out + np.uint64(spans[6 * c + 4])
                end = load32(to + np.uint64(4 * first))
                for i in range(first, last):
                    word = load64(at + np.uint64(rows[i]) * step)
                    _copy(heap + (word & np.uint64(0xFFFFFFFF)), text + end, word >> np.uint64(32))
                    end += word >> np.uint64(32)
                    store32(to + np.uint64(4 * i + 4), end)
            elif kind == 16:
                for i in range(first, last):
                    record = at + np.uint64(rows[i]) * step
                    store64(to + np.uint64(16 * i), load64(record))
                    store64(to + np.uint64(16 * i + 8), load64(record + np.uint64(8)))
            elif kind == 2:
                for i in range(first, last):
                    store16(to + np.uint64(2 * i), load16(at + np.uint64(rows[i]) * step))
            elif kind == 1:
                for i in range(first, last):
                    store8(to + np.uint64(i), load8(at + np.uint64(rows[i]) * step))
            else:
                _bitmap(at, step, rows, first, last, np.uint64(1), to, np.uint64(0))
            if bit >= 0:
                mask = np.uint64(1) << np.uint64(bit & 7)
                bitmap = out + np.uint64(spans[6 * c])
                valid = _bitmap(base + np.uint64(bit >> 3), step, rows, first, last, mask, bitmap, np.uint64(1))
                nulls[c] += last - first - valid


@native(ADDRESS, SIZE, SIZE, ADDRESS, SIZE, SIZE, ADDRESS)
def put(values: Any, width: Any, count: Any, base: Any, stride: Any, offset: Any, valid: Any) -> None:
    """Write a column of fixed width into records; rows whose byte at `valid` (unless that is 0) is 0 are left alone."""
    for i in range(count):
        at = base + np.uint64(i * stride + offset)
        if valid and load8(valid + np.uint64(i)) == np.uint64(0):
            continue
        if width == 8:
            store64(at, load64(values + np.uint64(8 * i)))
        elif width == 4:
            store32(at, load32(values + np.uint64(4 * i)))
        elif width == 2:
            store16(at, load16(values + np.uint64(2 * i)))
        elif width == 16:
            store64(at, load64(values + np.uint64(16 * i)))
            store64(at + np.uint64(8), load64(values + np.uint64(16 * i + 8)))
        else:
            store8(at, load8(values + np.uint64(i)))


@native(ADDRESS, SIZE, ADDRESS, SIZE, SIZE)
def mark(valid: Any, count: Any, base: Any, stride: Any, bit: Any) -> None:
    """Set the null bit of the records whose byte at `valid` is 0."""
    mask = np.uint64(1) << np.uint64(bit & 7)
    for i in range(count):
        if load8(valid + np.uint64(i)) == np.uint64(0):
            at = base + np.uint64(i * stride + (bit >> 3))
            store8(at, load8(at) | mask)


@native(ADDRESS, ADDRESS, I64S, I64S, ADDRESS, SIZE, SIZE, ADDRESS)
def put_text(
    offsets: Any, data: Any, lengths: Any, places: Any, base: Any, stride: Any, offset: Any, heap: Any
) -> None:
    """Write a column of texts into records (place, length) and the heap; NULLs come with length 0.

    Ascending places, and no byte beyond a text's own end is written: another column's may be there already.
    """
    for i in range(len(lengths)):
        at = base + np.uint64(i * stride + offset)
        store32(at, np.uint64(places[i]))
        store32(at + np.uint64(4), np.uint64(lengths[i]))
        source = data + load32(offsets + np.uint64(4 * i))
        target = heap + np.uint64(places[i])
        for byte in range(lengths[i]):
            store8(target + np.uint64(byte), load8(source + np.uint64(byte)))
