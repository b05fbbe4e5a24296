"""Rows with jobs left, in the order of their arrival: the scheduling queues of all windows in one.

Because rows are taken in order at every level, the queue of a window is a range of them, and only where each range
begins is to be remembered (`Query.done`). What a row has beside that is where its scan goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.shared.scan import UNKNOWN, Outers

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

#: Bytes that a row with jobs left takes up here, also while arrays grow.
WAITING = 96
#: Steps of which it is remembered when their rows came; of older ones it is as if they had come with the oldest.
_STAMPS = 200
#: Finds where scans begin, for rows of both sides with these numbers and so many rows of the other side before them.
Begin = Callable[[U8, I64, I64], I64]
_COLUMNS = {
    "sides": np.uint8,
    "numbers": np.int64,
    "before": np.int64,
    "cursors": np.int64,
    "aparts": np.int64,
    "founds": np.int32,
    "arrived": np.int64,
}


class Arrival(NamedTuple):
    """One step's rows: the first of them, how many of each side were before, and the clock in units of work."""

    first: int
    left: int
    right: int
    clock: int


class Waiting:
    """Rows with jobs left.

    Guarantees
        Restored, every row goes on where it stopped: `test_conformance`.
    State and cost
        `WAITING` bytes a row. A byte a row is written when it comes, eight at every step for each row that has
        scanned a part of its windows.
    """

    def __init__(self) -> None:
        self.base = 0
        #: No scan has come further than to this row; queries that scanned it may be gone.
        self._reached = 0
        self._arrays = {name: np.zeros(0, dtype) for name, dtype in _COLUMNS.items()}
        self._arrivals: list[tuple[str, Arrival, int]] = []
        self._cursors: str | None = None
        self._fresh: dict[str, pa.Buffer] = {}
        #: The first row of a step, and the milliseconds at which it came. Not in chunks: a step that is run again has
        #: another time, and a chunk must be the same.
        self._stamps: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._arrays["sides"])

    @property
    def end(self) -> int:
        """Behind the last row."""
        return self.base + len(self)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(array.nbytes for array in self._arrays.values())

    @property
    def sides(self) -> U8:
        """Of each row its side."""
        return self._arrays["sides"]

    @property
    def numbers(self) -> I64:
        """Of each row its number among those of its side."""
        return self._arrays["numbers"]

    @property
    def before(self) -> I64:
        """Of each row how many rows of the other side came before it."""
        return self._arrays["before"]

    def came(self, step: int, arrival: Arrival, sides: U8, begin: Begin, now: int) -> None:
        """Rows came, in this order of sides, at this time in milliseconds."""
        if not len(sides):
            return
        self._stamps = [*self._stamps, (arrival.first, now)][-_STAMPS:]
        name = f"o{step}"
        note = np.array(arrival, np.int64).tobytes() + sides.tobytes()
        self._fresh[name] = pa.py_buffer(note)
        self._append(name, arrival, sides, begin)

    def _append(self, name: str, arrival: Arrival, sides: U8, begin: Begin, finished: int = 0) -> None:
        skip = max(finished - arrival.first, 0)
        lefts = arrival.left + np.cumsum(sides == 0)
        rights = arrival.right + np.cumsum(sides == 1)
        new = {
            "sides": sides[skip:],
            "numbers": (np.where(sides == 0, lefts, rights) - 1)[skip:],
            "before": np.where(sides == 0, rights, lefts)[skip:],
            "founds": np.zeros(len(sides) - skip, np.int32),
        }
        new["cursors"] = begin(new["sides"], new["numbers"], new["before"])
        new["aparts"] = np.full(len(sides) - skip, UNKNOWN)
        new["arrived"] = np.full(len(sides) - skip, arrival.clock)
        if not len(self):
            self.base = arrival.first + skip
        self._arrays = {key: np.concatenate([old, new[key]]) for key, old in self._arrays.items()}
        self._arrivals.append((name, arrival, arrival.first + len(sides)))

    def outers(self) -> Outers:
        """For the scan, which writes where rows stopped."""
        return Outers(base=self.base, **self._arrays)

    def came_at(self, rows: I64) -> I64:
        """When rows came, in milliseconds."""
        return _latest(self._stamps, rows)

    def finish(self, upto: int, log: ChunkLog) -> None:
        """All jobs of the rows before `upto` are done."""
        gone = min(max(upto - self.base, 0), len(self))
        if not gone:
            return
        self._arrays = {name: array[gone:].copy() for name, array in self._arrays.items()}
        self.base += gone
        for name, _, end in self._arrivals:
            if end <= self.base and self._fresh.pop(name, None) is None:
                log.drop(name)
        self._arrivals = [one for one in self._arrivals if one[2] > self.base]
        self._stamps = [
            one
            for one, later in zip(self._stamps, [*self._stamps[1:], None], strict=True)
            if later is None or later[0] > self.base
        ]

    def scanned(self, upto: int) -> None:
        """Scans have come to this row, the first that is not finished."""
        self._reached = max(self._reached, upto)

    def store(self, step: int, log: ChunkLog) -> None:
        """Write what came, and where rows stopped as far as scans have come."""
        for name, blob in self._fresh.items():
            log.add(name, blob)
        self._fresh = {}
        if self._cursors is not None:
            log.drop(self._cursors)
            self._cursors = None
        stopped = self._arrays["cursors"][: max(self._reached + 1 - self.base, 0)]
        if len(stopped):
            self._cursors = f"c{step}"
            log.add(self._cursors, pa.py_buffer(stopped.tobytes()))

    def head(self) -> list[tuple[int, int]]:
        """What the chunks do not say."""
        return self._stamps

    def restore(self, said: list[list[int]], finished: int, chunks: Mapping[str, pa.Buffer], begin: Begin) -> None:
        """The rows of these chunks that are not finished."""
        self._stamps = [(first, now) for first, now in said]
        found = []
        for name, blob in chunks.items():
            if name.startswith("o"):
                size = 8 * len(Arrival._fields)
                arrival = Arrival(*np.frombuffer(blob[:size], np.int64).tolist())
                found.append((arrival, name, np.frombuffer(blob[size:], np.uint8)))
            elif name.startswith("c"):
                self._cursors = name
        for arrival, name, sides in sorted(found, key=lambda one: one[0].first):
            self._append(name, arrival, sides, begin, finished)
        if self._cursors is not None:
            stopped = np.frombuffer(chunks[self._cursors], np.int64)
            self._arrays["cursors"][: len(stopped)] = stopped
            self._reached = self.base + len(stopped) - 1

    def count_found(self, rows: I64) -> None:
        """Pairs that are held, by their row."""
        self._arrays["founds"] = np.bincount(rows - self.base, minlength=len(self)).astype(np.int32)


def _latest(known: list[tuple[int, int]], rows: I64) -> I64:
    """For each row what is said of the last step that begins with it or before."""
    if not len(rows) or not known:
        return np.zeros(len(rows), np.int64)
    firsts, said = np.array(known, np.int64).T
    return said[np.maximum(np.searchsorted(firsts, rows, side="right") - 1, 0)]
