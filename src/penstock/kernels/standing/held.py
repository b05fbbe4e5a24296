"""Rows of one side that wait for partners: their keys and values in order, and what of them goes into results.

Rows come and go by the *chunk*: those of one micro-batch, kept and dropped whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from penstock.kernels.standing.search import F64, I64

U64 = npt.NDArray[np.uint64]


class Arrivals(NamedTuple):
    """Rows of one side: numbers of their keys (see `keys`), values that ranges are about (the first indexes them),
    event times, and the columns that results need.
    """

    keys: U64
    values: F64
    times: I64
    payload: pa.RecordBatch

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.keys.nbytes + self.values.nbytes + self.times.nbytes + self.payload.nbytes


@dataclass(frozen=True)
class Chunk:
    """One micro-batch's rows: the number of the first, how many, the latest event time, and what results need."""

    first: int
    count: int
    latest: int
    payload: pa.RecordBatch
    nbytes: int


class Held:
    """The rows of one side, in order of (key, first value).

    State and cost
        24 bytes a row, 8 for each further value and for event time, and the payload as it came. Taking rows in or
        letting them go is one pass over all of them.
    """

    def __init__(self, width: int, timed: bool) -> None:
        self.keys: U64 = np.empty(0, np.uint64)
        self.values: F64 = np.empty((0, width))
        self.times: I64 = np.empty(0, np.int64)
        self.numbers: I64 = np.empty(0, np.int64)
        self.chunks: dict[str, Chunk] = {}
        self._timed = timed
        self._next = 0
        self._starts: I64 = np.zeros(1, np.int64)
        self._distinct: U64 = np.empty(0, np.uint64)
        self.first: F64 = np.empty(0)

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.keys)

    def add(self, *chunks: tuple[str, Arrivals, int]) -> None:
        """Take in the rows of micro-batches: each with its name, and the bytes that its payload holds on to."""
        before = self._next
        for name, rows, nbytes in chunks:
            latest = int(rows.times.max(initial=-(1 << 62))) if self._timed else 0
            self.chunks[name] = Chunk(self._next, rows.size, latest, rows.payload, nbytes)
            self._next += rows.size
        keys, values, times = (np.concatenate([rows[field] for _, rows, _ in chunks]) for field in range(3))
        order = np.lexsort((values[:, 0], keys))
        place = _merge(self.keys, self.first, keys[order], values[order, 0])
        self.keys = np.concatenate([self.keys, keys[order]])[place]
        self.values = np.concatenate([self.values, values[order]])[place]
        self.numbers = np.concatenate([self.numbers, before + order])[place]
        if self._timed:
            self.times = np.concatenate([self.times, times[order]])[place]
        self._find_starts()

    def drop(self, names: list[str]) -> None:
        """Let go of whole chunks."""
        keep = np.ones(self.count, np.bool_)
        for name in names:
            chunk = self.chunks.pop(name)
            keep &= (self.numbers < chunk.first) | (self.numbers >= chunk.first + chunk.count)
        self.keys, self.values, self.numbers = self.keys[keep], self.values[keep], self.numbers[keep]
        if self._timed:
            self.times = self.times[keep]
        self._find_starts()

    def partners(self, keys: U64) -> tuple[I64, I64]:
        """Where the rows with each key begin and end."""
        at = np.searchsorted(self._distinct, keys)
        found = at < len(self._distinct)
        found[found] = self._distinct[at[found]] == keys[found]
        place = np.where(found, at, 0)
        none = np.zeros(len(keys), np.int64)
        if not len(self._distinct):
            return none, none
        return np.where(found, self._starts[place], 0), np.where(found, self._starts[place + 1], 0)

    def take(self, places: I64, columns: tuple[str, ...] | None = None) -> tuple[pa.RecordBatch, I64]:
        """The payload of rows by their places in order, or some columns of it; and the order in which they come."""
        numbers = self.numbers[places]
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order]
        parts = []
        for chunk in self.chunks.values():
            begin, end = np.searchsorted(numbers, (chunk.first, chunk.first + chunk.count))
            if begin < end:
                payload = chunk.payload if columns is None else chunk.payload.select(list(columns))
                parts.append(payload.take(pa.array(numbers[begin:end] - chunk.first)))
        return pa.concat_batches(parts), order

    def numbered(self) -> Iterator[tuple[pa.RecordBatch, U64]]:
        """The payload of each chunk, with the number of each row's key."""
        keys = self.keys[np.argsort(self.numbers)]
        begin = 0
        for chunk in self.chunks.values():
            yield chunk.payload, keys[begin : begin + chunk.count]
            begin += chunk.count

    @property
    def index_bytes(self) -> int:
        """Bytes of everything but payloads."""
        arrays = (self.keys, self.values, self.times, self.numbers, self._starts, self._distinct, self.first)
        return sum(array.nbytes for array in arrays)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.index_bytes + sum(chunk.nbytes + 200 for chunk in self.chunks.values())

    def _find_starts(self) -> None:
        self.first = np.ascontiguousarray(self.values[:, 0])
        begins = np.flatnonzero(np.append(True, self.keys[1:] != self.keys[:-1])[: self.count])
        self._distinct = self.keys[begins]
        self._starts = np.append(begins, self.count)


@njit(cache=True)
def _merge(keys: U64, values: F64, new_keys: U64, new_values: F64) -> I64:
    """In which order to take two ordered runs that stand one after the other."""
    place = np.empty(keys.size + new_keys.size, np.int64)
    old, new = 0, 0
    for at in range(place.size):
        if new == new_keys.size or (
            old < keys.size
            and (keys[old] < new_keys[new] or (keys[old] == new_keys[new] and values[old] <= new_values[new]))
        ):
            place[at] = old
            old += 1
        else:
            place[at] = keys.size + new
            new += 1
    return place
