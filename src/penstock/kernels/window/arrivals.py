"""The rows of one step on their way to the join: held back, put in order, and shed where they are too many.

A step may get the same rows in another order when it is run again, so their order here is made: by time, and by what
they say. The rows that wait here are the queue in front of the join of 002 §2.1; where it overflows (the *slow CPU*)
rows are shed by the policy that evicts rows from the window, and never reach the join.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.fingerprint import fingerprints
from penstock.kernels.measure import measure, widths

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

#: Bytes a row beside its own, twice: hash and time, twice, and the order they are put in; before that, fingerprint and
#: what sorting takes.
WORK = 48


class Ready(NamedTuple):
    """Rows of one side in order, with their key hashes, times, and what they are ordered by."""

    rows: pa.RecordBatch
    hashes: U64
    times: I64
    order: I64

    def where(self, which: npt.NDArray[np.bool_]) -> Ready:
        """Some of them."""
        return Ready(self.rows.filter(pa.array(which)), self.hashes[which], self.times[which], self.order[which])


@dataclass
class Queue:
    """The rows of a step of both sides."""

    schemas: tuple[pa.Schema, pa.Schema]
    #: Whether rows are ordered by time first.
    timed: bool
    #: Bytes a row beside its own while it is taken in, and bytes that no other work needs then. Where rows are
    #: narrow, that is more than putting them in order takes.
    taken_in: int = 0
    spare: float = 0.0
    _size: float = 0.0
    _count: int = 0
    _parts: tuple[list[Ready], list[Ready]] = field(default_factory=lambda: ([], []))
    #: How many rows of each side were kept when others were shed, and the best of those: score and fingerprint.
    _settled: tuple[int, int] = (0, 0)
    _floor: tuple[float, int] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def cost(self) -> float:
        """Bytes that its rows take up at the most until they wait; however they were cut, the same."""
        return float(self.cost_with(self._size, self._count))

    def cost_with(self, size: Any, rows: Any) -> Any:
        """The same for so many rows of so many bytes in all."""
        return np.maximum(2 * size + WORK * rows, size + self.taken_in * rows - self.spare)

    def add(self, side: int, rows: pa.RecordBatch, hashes: U64, times: I64) -> None:
        """Rows that came."""
        if rows.num_rows:
            self._parts[side].append(Ready(rows, hashes, times, times))
            self._size += measure(rows)
            self._count += rows.num_rows

    def take(self, side: int, *, ordered: bool) -> Ready:
        """All rows of a side, in order if that matters; the queue has none of it then."""
        parts = self._parts[side]
        whole = _together(parts, self.schemas[side])
        parts.clear()
        self._size -= measure(whole.rows)
        self._count -= whole.rows.num_rows
        if not ordered:
            return whole
        prints = fingerprints(whole.rows)
        # Without a time, what rows say is their order.
        first = whole.times if self.timed else (prints >> np.uint64(1)).astype(np.int64)
        at = np.lexsort((prints, first))
        del prints
        order = first[at]
        return Ready(whole.rows.take(pa.array(at)), whole.hashes[at], order if self.timed else whole.times[at], order)

    def shed(self, most: float, score: Callable[[int, Ready], F64]) -> list[tuple[int, Ready, U64]]:
        """Keep the rows with the highest scores, as many as `most` holds; the others, by side, with their fingerprints.

        What is kept is the best of all rows so far down to the first that does not fit, so that it does not matter in
        which order they came, or when this was called.
        """
        both = [_together(parts, schema) for parts, schema in zip(self._parts, self.schemas, strict=True)]
        for parts in self._parts:
            parts.clear()
        scores = np.concatenate([score(side, ready) for side, ready in enumerate(both)])
        prints = np.concatenate([fingerprints(ready.rows) for ready in both])
        sizes = np.concatenate([widths(ready.rows, np.arange(ready.rows.num_rows)) for ready in both])
        order = np.lexsort((prints, -scores))
        order = order[self._admissible(both, scores, prints)[order]]
        costs = self.cost_with(np.cumsum(sizes[order]), np.arange(1, len(order) + 1))
        fits = int(np.searchsorted(costs, most, side="right"))
        kept = np.zeros(len(scores), np.bool_)
        kept[order[:fits]] = True
        if fits < len(order):
            self._floor = (float(scores[order[fits]]), int(prints[order[fits]]))
        gone, begin = [], 0
        for side, ready in enumerate(both):
            here = kept[begin : begin + ready.rows.num_rows]
            marks = prints[begin : begin + ready.rows.num_rows]
            begin += ready.rows.num_rows
            if here.any():
                self._parts[side].append(ready.where(here))
            gone.append((side, ready.where(~here), marks[~here]))
        self._settled = (int(kept[: both[0].rows.num_rows].sum()), int(kept[both[0].rows.num_rows :].sum()))
        self._size, self._count = float(sizes[kept].sum()), int(kept.sum())
        return gone

    @property
    def overflowed(self) -> bool:
        """Whether rows were shed."""
        return self._floor is not None

    def _admissible(self, both: list[Ready], scores: F64, prints: U64) -> npt.NDArray[np.bool_]:
        """Rows that were kept before, and new ones better than the best that was shed: others came too late."""
        able = np.ones(len(scores), np.bool_)
        if self._floor is None:
            return able
        score, least = self._floor
        better = (scores > score) | ((scores == score) & (prints < np.uint64(least)))
        begin = 0
        for ready, settled in zip(both, self._settled, strict=True):
            able[begin + settled : begin + ready.rows.num_rows] = better[begin + settled : begin + ready.rows.num_rows]
            begin += ready.rows.num_rows
        return able


def cost_of(rows: pa.RecordBatch) -> float:
    """Bytes that rows take up in the queue: twice their own, while they are put in order."""
    return 2 * measure(rows) + WORK * rows.num_rows


def costs_of(rows: pa.RecordBatch) -> F64:
    """The same for each row."""
    return 2 * widths(rows, np.arange(rows.num_rows)) + WORK


def _together(parts: list[Ready], schema: pa.Schema) -> Ready:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        empty = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
        return Ready(empty, np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))
    rows = pa.concat_batches([part.rows for part in parts])
    return Ready(rows, *(np.concatenate([part[i] for part in parts]) for i in (1, 2, 3)))
