"""Sides whose rows go to slots by the range that a value lies in, so that neighbours meet without meeting everybody."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.standing.numbers import to_numbers
from penstock.plan.base import Side


@dataclass(frozen=True)
class RangeSide(Side):
    """Rows go to every slot whose range of values they may meet.

    Slot `n` has the values from `split[n - 1]` up to `split[n]`. A row with value `v` in `column` may meet those from
    `v + reach[0]` to `v + reach[1]`; with reach (0, 0) it goes to one slot, its own. NULL and NaN meet nothing and go
    to the first.

    >>> side = RangeSide(pa.schema([("v", pa.int64())]), column="v", split=(10.0, 20.0), reach=(-5.0, 0.0))
    >>> [places.tolist() for places in side.places(pa.record_batch({"v": [3, 12, 25, None]}))]
    [[0, 1, 3], [1, 2], [2]]
    """

    column: str = ""
    split: tuple[float, ...] = ()
    reach: tuple[float, float] = (0.0, 0.0)

    def places(self, rows: pa.RecordBatch) -> list[npt.NDArray[np.int64]]:
        """For each slot, the rows that go there."""
        first, last = self.reached(rows)
        return [np.flatnonzero((first <= slot) & (slot <= last)) for slot in range(len(self.split) + 1)]

    def reached(self, rows: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The first and the last slot that each row goes to."""
        values, able, _ = to_numbers(rows.column(self.column))
        low, high = values + self.reach[0], values + self.reach[1]
        if self.reach != (0.0, 0.0):
            # Differences are rounded, by as much as their largest part is: a row that might be on the edge goes to
            # both sides of it.
            slack = np.spacing(np.maximum(np.abs(values), max(map(abs, self.reach))))
            low, high = low - slack, high + slack
        first, last = (np.where(able, np.searchsorted(self.split, ends, side="right"), 0) for ends in (low, high))
        return first, last
