"""The hash table H over the rows of the window: three flat arrays, built once a step, probed by table pages.

Rows are numbered in order of arrival. A row falls into the bucket of its hash's leading bits, so a page whose rows are
ordered by hash (a prepared table) walks the arrays from left to right. 16 further bits of the hash stand beside each
row as a tag, so that almost every candidate is a match; the caller verifies the keys themselves. In front of it all
stands a bitmap, small enough for the processor's cache, that turns away most rows of a page at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.errors import KernelFault

U64 = npt.NDArray[np.uint64]
I32 = npt.NDArray[np.int32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

#: Index bytes a row at the most: row number, tag, half a bucket, two bytes of bitmap.
BYTES_PER_ROW = 10
_TAG = np.uint64(0xFFFF)
#: The bitmap has 32 bits for each bucket, eight to sixteen times as many as there are rows.
_BITMAP_BYTES = 4
_BITMAP_SHIFT = np.uint64(5)


class Index(NamedTuple):
    """Row numbers by bucket: those of bucket `b` are `rows[starts[b]:starts[b + 1]]`, with their tags."""

    starts: I32
    rows: I32
    tags: U16
    bits: U8
    base: int
    shift: int

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.starts.nbytes + self.rows.nbytes + self.tags.nbytes + self.bits.nbytes


def build(parts: Iterable[tuple[int, U64]], again: Iterable[tuple[int, U64]], count: int, lo: int, hi: int) -> Index:
    """Index `count` rows whose hashes lie in [lo, hi).

    `parts` and `again` give the same (first row number, hashes) pairs: counting and placing are two passes, so that the
    hashes of all rows need never be held at once.
    """
    buckets = 1 << max(count.bit_length() - 2, 4)
    shift = min(max((hi - lo) // buckets - 1, 0).bit_length(), 63)
    base = lo >> shift
    starts = np.zeros(((hi - 1) >> shift) - base + 3, np.int32)
    for _, hashes in parts:
        # Compiled code writes where a hash tells it to: one outside would land in another's memory.
        if hashes.size and not lo <= int(hashes.min()) <= int(hashes.max()) < hi:
            raise KernelFault("A row came to a slot that its key does not belong to.")
        _count(hashes, np.uint64(base), np.uint64(shift), starts)
    np.cumsum(starts, out=starts)
    rows = np.empty(count, np.int32)
    tags = np.empty(count, np.uint16)
    bits = np.zeros((starts.size - 2) * _BITMAP_BYTES, np.uint8)
    for first, hashes in again:
        _place(hashes, np.int64(first), np.uint64(base), np.uint64(shift), starts, rows, tags, bits)
    return Index(starts[:-1], rows, tags, bits, base, shift)


def holds_any(index: Index, first: int, last: int) -> bool:
    """Whether a row may have a hash from `first` to `last`; false only if none has."""
    shift, base = index.shift - int(_BITMAP_SHIFT), index.base << int(_BITMAP_SHIFT)
    begin, end = (max((bound >> shift) - base, 0) >> 3 for bound in (first, last))
    return bool(index.bits[begin : end + 1].any())


def sift(index: Index, hashes: U64, survivors: I32) -> int:
    """Write the rows of a page that the bitmap does not turn away, in order; say how many."""
    return int(_sift(hashes, index.bits, np.uint64(index.base), np.uint64(index.shift), survivors))


class Cursor(NamedTuple):
    """Where probing a page stopped because the output was full: the survivor, and the place in its bucket."""

    survivor: int = 0
    place: int = 0


def probe(
    index: Index, hashes: U64, survivors: I32, at: Cursor, first_live: int, page_rows: I64, window_rows: I64
) -> tuple[int, Cursor]:
    """Write candidate pairs (row of the page, row of the window) from `at` on; say how many, and where it stopped.

    Rows of the window below `first_live` have expired and give no pair. Finished when the cursor is past the survivors.
    """
    count, survivor, place = _probe(
        hashes, survivors, at.survivor, at.place, index.starts, index.rows, index.tags, np.uint64(index.base),
        np.uint64(index.shift), first_live, page_rows, window_rows,
    )  # fmt: skip
    return count, Cursor(survivor, place)


@njit(cache=True)
def _count(hashes: U64, base: np.uint64, shift: np.uint64, starts: I32) -> None:
    # Shifted by two places: after the running sum `starts[b + 1]` is where bucket b begins, and
    # `_place` advances it to where b ends, which is where b + 1 begins.
    for h in hashes:
        starts[np.int64((h >> shift) - base) + 2] += np.int32(1)


@njit(cache=True)
def _place(
    hashes: U64, first: np.int64, base: np.uint64, shift: np.uint64, starts: I32, rows: I32, tags: U16, bits: U8
) -> None:
    for i in range(hashes.size):
        h = hashes[i]
        b = np.int64((h >> shift) - base) + 1
        at = starts[b]
        starts[b] = at + np.int32(1)
        rows[at] = np.int32(first + i)
        tags[at] = np.uint16(h & _TAG)
        bit = (h >> (shift - _BITMAP_SHIFT)) - (base << _BITMAP_SHIFT)
        bits[np.int64(bit >> np.uint64(3))] |= np.uint8(1) << np.uint8(bit & np.uint64(7))


@njit(cache=True)
def _sift(hashes: U64, bits: U8, base: np.uint64, shift: np.uint64, survivors: I32) -> np.int64:
    # No branch that depends on the data: the processor can have many look-ups under way at once.
    kept = np.int64(0)
    first = base << _BITMAP_SHIFT
    size = np.uint64(bits.size * 8)
    for r in range(hashes.size):
        bit = (hashes[r] >> (shift - _BITMAP_SHIFT)) - first
        inside = bit < size
        bit = bit if inside else np.uint64(0)
        survivors[kept] = r
        kept += np.int64((bits[np.int64(bit >> np.uint64(3))] >> np.uint8(bit & np.uint64(7))) & np.uint8(inside))
    return kept


@njit(cache=True)
def _probe(
    hashes: U64, survivors: I32, survivor: int, place: int, starts: I32, rows: I32, tags: U16, base: np.uint64,
    shift: np.uint64, first_live: int, page_rows: I64, window_rows: I64,
) -> tuple[int, int, int]:  # fmt: skip
    found = 0
    room = page_rows.size
    for s in range(survivor, survivors.size):
        r = survivors[s]
        h = hashes[r]
        b = np.int64((h >> shift) - base)
        tag = np.uint16(h & _TAG)
        for at in range(max(starts[b], place), starts[b + 1]):
            if tags[at] == tag and rows[at] >= first_live:
                if found == room:
                    return found, s, at
                page_rows[found] = r
                window_rows[found] = rows[at]
                found += 1
        place = 0
    return found, survivors.size, 0
