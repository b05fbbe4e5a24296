"""The table behind the subscriptions, by key: where each row stands now, so that an update knows what it replaces.

A key is known by a fingerprint of 128 bits, not by its text. A deleted row keeps its place until its deletion is in the
oldest chunk of the stored state, and counts as unknown meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from penstock.kernels.subscriptions.mar import EVENT_WIDTH, GROUP, HAS, HAS_NEW, HAS_OLD, NEW_X, NEW_Y, OLD_X, OLD_Y
from penstock.tables.hashing import mix
from penstock.tables.keys import canonical, hash_keys, injective

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]

#: Columns of a row: fingerprint, group, place, value, the order of its last update, and whether it is there. A wider
#: row has one more of its updates (a second place, say), and then what its table notes of it; updates leave that alone.
F1, F2, P, X, Y, ORDER, STATE, EXTRA, NOTE = range(9)
ROW_WIDTH = 7
LIVE, DEAD = 1, 2
#: What became of an update.
TAKEN, STALE, UNKNOWN, FULL = range(4)
_OTHER_SEED = np.uint64(0x9AE16A3B2F90404F)
_PRIME = np.uint64(0x100000001B3)


def fingerprints(columns: Sequence[pa.Array]) -> tuple[I64, I64]:
    """Two independent hashes of each key. One number, date or the like is told by the first alone."""
    first = hash_keys(columns).view(np.int64)
    if injective([column.type for column in columns]):
        return first, np.zeros_like(first)
    second = np.full(len(first), _OTHER_SEED)
    for column in columns:
        values = canonical(column)
        if isinstance(values, np.ndarray):
            _fold_words(np.ascontiguousarray(values), second)
        else:
            _fold_bytes(*_bytes_of(values), second)
    return first, second.view(np.int64)


def _bytes_of(column: pa.Array) -> tuple[U8, I64]:
    """All bytes, and where each value begins and the last one ends."""
    if pa.types.is_decimal(column.type):
        data = np.frombuffer(column.buffers()[1], np.uint8)
        return data, np.arange(column.offset, column.offset + len(column) + 1, dtype=np.int64) * 16
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    offsets: Any = np.frombuffer(column.buffers()[1], np.int64 if wide else np.int32)
    ends = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = column.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8), ends


@njit(cache=True)
def _fold_words(values: I64, state: npt.NDArray[np.uint64]) -> None:
    for i in range(len(state)):
        state[i] = mix((state[i] ^ np.uint64(values[i])) * _PRIME)


@njit(cache=True)
def _fold_bytes(data: U8, ends: I64, state: npt.NDArray[np.uint64]) -> None:
    for i in range(len(state)):
        word = state[i] ^ np.uint64(ends[i + 1] - ends[i])
        for j in range(ends[i], ends[i + 1]):
            word = (word ^ np.uint64(data[j])) * _PRIME
        state[i] = mix(word)


@njit(cache=True)
def place_of(places: I32, rows: I64, f1: int, f2: int) -> int:
    """Where a key is in the hash table, or would be."""
    mask = len(places) - 1
    at = (f1 ^ (f1 >> 29)) & mask
    while places[at] >= 0:
        row = rows[places[at]]
        if row[F1] == f1 and row[F2] == f2:
            break
        at = (at + 1) & mask
    return at


@njit(cache=True)
def index_rows(rows: I64, places: I32) -> None:
    """Put rows into an empty hash table."""
    for i in range(len(rows)):
        places[place_of(places, rows, rows[i, F1], rows[i, F2])] = i


@njit(cache=True)
def _resolve(
    updates: I64, rows: I64, places: I32, counts: I64, most: int, verdicts: U8, touched: I32, events: I64
) -> int:
    """Take updates in; rows and the hash table have room for all of them. How many were taken.

    `counts` is (used, live). An update is laid out as a row; its state says whether it is a deletion. Events of wider
    rows have the old and the new extra column at their end.
    """
    used, live = counts[0], counts[1]
    taken = min(rows.shape[1], NOTE)
    made = 0
    for i in range(len(updates)):
        update = updates[i]
        at = place_of(places, rows[:used], update[F1], update[F2])
        number = places[at]
        known = number >= 0 and rows[number, STATE] == LIVE
        goes = update[STATE] == DEAD
        if known and update[ORDER] <= rows[number, ORDER]:
            verdicts[i] = STALE
            continue
        if goes and not known:
            verdicts[i] = UNKNOWN
            continue
        if not known and live >= most:
            verdicts[i] = FULL
            continue
        event = events[made]
        event[GROUP], event[HAS] = update[P], 0
        if known:
            row = rows[number]
            event[HAS], event[OLD_X], event[OLD_Y] = HAS_OLD, row[X], row[Y]
            if taken > EXTRA:
                event[EVENT_WIDTH] = row[EXTRA]
        elif number < 0:
            number = used
            places[at] = number
            used += 1
        if goes:
            rows[number, STATE] = DEAD
            rows[number, ORDER] = update[ORDER]
            live -= 1
        else:
            live += not known
            rows[number, :taken] = update[:taken]
            event[HAS] |= HAS_NEW
            event[NEW_X], event[NEW_Y] = update[X], update[Y]
            if taken > EXTRA:
                event[EVENT_WIDTH + 1] = update[EXTRA]
        verdicts[i] = TAKEN
        touched[made] = number
        made += 1
    counts[0], counts[1] = used, live
    return made


class Rows:
    """The rows by key.

    Guarantees
        An update of a key is compared with what the last taken update of the same key left:
        `test_subscribers_always_know_the_answer`.
    State and cost
        8 bytes a column of a row and 8 to 16 of hash table, with room to double; O(1) an update.
    """

    def __init__(self, width: int = ROW_WIDTH) -> None:
        self.rows = np.zeros((64, width), np.int64)
        self.places = np.full(256, -1, np.int32)
        self.counts = np.zeros(2, np.int64)

    @property
    def used(self) -> I64:
        """All rows, live and dead."""
        return self.rows[: self.counts[0]]

    @property
    def width(self) -> int:
        """Columns of a row."""
        return self.rows.shape[1]

    @property
    def live(self) -> int:
        """How many rows there are."""
        return int(self.counts[1])

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.rows.nbytes + self.places.nbytes)

    def reserve(self, more: int) -> int:
        """Make room for as many new rows; the bytes held meanwhile."""
        before, needed = self.nbytes, int(self.counts[0]) + more
        if needed > len(self.rows):
            grown = np.zeros((max(needed, len(self.rows) * 3 // 2), self.width), np.int64)
            grown[: self.counts[0]] = self.used
            self.rows = grown
        if needed * 2 > len(self.places):
            self.places = np.full(1 << (needed * 2).bit_length(), -1, np.int32)
            index_rows(self.used, self.places)
        return before + self.nbytes

    def resolve(self, updates: I64, most: int) -> tuple[U8, I32, I64]:
        """Take updates in, in order: a verdict on each, the rows touched, and the events of those taken."""
        verdicts = np.zeros(len(updates), np.uint8)
        touched = np.empty(len(updates), np.int32)
        events = np.zeros((len(updates), EVENT_WIDTH + 2 * (self.width > EXTRA)), np.int64)
        made = _resolve(updates, self.rows, self.places, self.counts, most, verdicts, touched, events)
        return verdicts, touched[:made], events[:made]

    def load(self, stored: I64) -> I32:
        """Take rows over as they are, newer over older; their numbers."""
        self.reserve(len(stored))
        numbers = np.empty(len(stored), np.int32)
        _load(stored, self.rows, self.places, self.counts, numbers)
        self.counts[1] = int(np.count_nonzero(self.used[:, STATE] == LIVE))
        return numbers

    def forget_dead(self) -> None:
        """Let go of deleted rows; all numbers change."""
        kept = self.used[self.used[:, STATE] == LIVE]
        self.rows[: len(kept)] = kept
        self.counts[0] = len(kept)
        self.places.fill(-1)
        index_rows(self.used, self.places)


@njit(cache=True)
def _load(stored: I64, rows: I64, places: I32, counts: I64, numbers: I32) -> None:
    for i in range(len(stored)):
        at = place_of(places, rows[: counts[0]], stored[i, F1], stored[i, F2])
        if places[at] < 0:
            places[at] = counts[0]
            counts[0] += 1
        rows[places[at]] = stored[i]
        numbers[i] = places[at]
