"""What was missed: a sample of the rows that went too soon, without what they say.

By key probabilities it could not be told: a policy lets go of what it thinks unlikely, so where it is wrong, so is the
sum of what it thought. Some of the rows that go are followed instead until they leave the window, and the results that
they would have had are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.window.chains import Cursor, Probes, probe
from penstock.kernels.window.side import ENTRY, SideRows
from penstock.kernels.window.windows import Clock, Window

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

_NOTE = pa.schema([("hash", pa.uint64()), ("moment", pa.int64())])
#: Bytes that a ghost costs.
GHOST = ENTRY + 2 * 65 / 8
#: One row in 2 ** 3 is followed at first, half as many whenever there is no room.
_FIRST, _LAST = 3, 30


class Ghosts:
    """Counts the results that rows would have had which were evicted.

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

    def _followed(self, numbers: I64) -> npt.NDArray[np.bool_]:
        spread = numbers.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return ((spread >> np.uint64(40)) & np.uint64((1 << self._bits) - 1)) == 0

    def follow(self, side: int, hashes: U64, moments: I64, numbers: I64, log: ChunkLog) -> None:
        """Rows of a side that are gone, in order of their numbers."""
        here = self._followed(numbers)
        while sum(each.cost for each in self._sides) + GHOST * int(here.sum()) > self._budget and self._bits < _LAST:
            self._bits += 1
            here = self._followed(numbers)
            for rows in self._sides:
                if len(rows):
                    rows.keep(self._followed(rows.column("numbers")), log)
        if self._bits == _LAST:
            return
        rows = pa.RecordBatch.from_arrays([pa.array(hashes[here]), pa.array(moments[here])], schema=_NOTE)
        self._sides[side].admit(rows, hashes[here], moments[here], numbers[here])

    def missed(self, side: int, probes: Probes) -> float:
        """How many partners new rows of a side would have met that are gone."""
        gone = self._sides[1 - side]
        if not len(gone):
            return 0.0
        ours, theirs = np.empty(1024, np.int64), np.empty(1024, np.int64)
        total, at = 0, Cursor()
        while at.probe < len(probes.hashes):
            count, at = probe(gone.entries(), probes, self._window.reach(side), at, ours, theirs)
            total += count
        return float(total << self._bits)

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
