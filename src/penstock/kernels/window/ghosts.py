"""Rows that went too soon: a sample of them, without what they say, followed until they leave the window.

Which rows are in a sample follows from their *draw*, a number that every row has by its own: the rows with draws below
a limit are a sample, and those below half of it are a sample of half the size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.window.chains import Probes, count
from penstock.kernels.window.side import ENTRY, SideRows
from penstock.kernels.window.windows import Clock, Window

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_NOTE = pa.schema([("hash", pa.uint64()), ("moment", pa.int64())])
#: Bytes that a ghost costs.
GHOST = ENTRY + 2 * 65 / 8
#: One row in 2 ** 3 is followed at first, half as many whenever there is no room.
_FIRST, _LAST = 3, 30
_ALL = (1 << 64) - 1


class Gone(NamedTuple):
    """Rows that are gone: hashes of their keys, moments, and numbers that their draws are made of."""

    hashes: U64
    moments: I64
    numbers: I64

    def where(self, which: npt.NDArray[Any]) -> Gone:
        """Some of them: a mask, or places."""
        return Gone(self.hashes[which], self.moments[which], self.numbers[which])


def draws(numbers: I64) -> U64:
    """Evenly spread over all 64-bit numbers."""
    return numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)


class Ghosts:
    """Counts the partners that rows would have had which are gone.

    Guarantees
        With all rows followed, the count is exact: `test_ghosts_count_what_was_missed`. With a sample of them it is
        right on average.
    State and cost
        At most `budget` bytes, `GHOST` for each row that is followed; beyond it, half of them are let go.
    """

    def __init__(self, window: Window, budget: float) -> None:
        self._window = window
        self._budget = budget
        self._bits = _FIRST
        self._sides = tuple(SideRows(f"g{side}", _NOTE) for side in (0, 1))

    @property
    def nbytes(self) -> float:
        """Bytes held."""
        return sum(side.nbytes for side in self._sides)

    @property
    def _limit(self) -> int:
        return _ALL >> self._bits

    def _followed(self, numbers: I64) -> npt.NDArray[np.bool_]:
        return draws(numbers) <= np.uint64(self._limit)

    def follow(self, side: int, gone: Gone, log: ChunkLog, known: int = _ALL) -> None:
        """Rows of a side that are gone: all of them with draws up to `known`."""
        here = self._followed(gone.numbers)
        while self._bits < _LAST and (self._limit > known or self._cost(int(here.sum())) > self._budget):
            self._bits += 1
            here = self._followed(gone.numbers)
            for rows in self._sides:
                if len(rows):
                    rows.keep(self._followed(rows.column("numbers")), log)
        if self._bits == _LAST:
            return
        new = gone.where(here)
        rows = pa.RecordBatch.from_arrays([pa.array(new.hashes), pa.array(new.moments)], schema=_NOTE)
        self._sides[side].admit(rows, *new)

    def _cost(self, more: int) -> float:
        return sum(each.cost for each in self._sides) + GHOST * more

    def missed(self, side: int, probes: Probes) -> float:
        """How many partners rows of a side would have met that are gone."""
        gone = self._sides[1 - side]
        if not len(gone):
            return 0.0
        return float(count(gone.entries(), probes, self._window.reach(side)) << self._bits)

    def close(self, clock: Clock, log: ChunkLog) -> None:
        """Forget rows that have left the window."""
        for side, rows in enumerate(self._sides):
            if len(rows):
                closed = self._window.closed(side, rows.column("moments"), rows.column("numbers"), clock)
                if closed.sum() * 4 > len(closed):
                    rows.keep(~closed, log)

    def store(self, number: int, log: ChunkLog) -> None:
        """Write what is new."""
        for rows in self._sides:
            rows.merge(self._budget / 8, log)
            rows.store(number, log, flags=False)

    def head(self) -> dict[str, Any]:
        """What the chunks do not say."""
        return {"bits": self._bits, "sides": [rows.head() for rows in self._sides]}

    def restore(self, said: Mapping[str, Any], chunks: Mapping[str, pa.Buffer]) -> None:
        """Follow the same rows again."""
        self._bits = said["bits"]
        for rows, one in zip(self._sides, said["sides"], strict=True):
            rows.restore(one, chunks, _described)


def _described(rows: pa.RecordBatch) -> tuple[U64, I64]:
    return rows.column("hash").to_numpy(), rows.column("moment").to_numpy()
