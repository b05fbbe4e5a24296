"""One side of a shared join: its waiting rows, numbered in the order of their arrival."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.shared.scan import Store
from penstock.kernels.window.arrivals import Ready
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import FAR

I64 = npt.NDArray[np.int64]


class Numbered:
    """Rows of a side, from the oldest that waits to number `count`.

    `slack` is by how much a row was ever older than one before it.
    """

    def __init__(self, tag: str, schema: pa.Schema) -> None:
        self.rows = SideRows(tag, schema)
        self.count = 0
        self.latest = -FAR
        self.slack = 0

    def __len__(self) -> int:
        return len(self.rows)

    def admit(self, ready: Ready, *, by_rows: bool) -> None:
        """Rows that come, in their order; a window of rows goes by numbers alone."""
        if not ready.rows.num_rows:
            return
        moments = np.zeros_like(ready.times) if by_rows else ready.times
        first, self.count = self.count, self.count + ready.rows.num_rows
        self.rows.admit(ready.rows, ready.hashes, moments, np.arange(first, self.count))
        if not by_rows:
            self.slack = max(self.slack, self.latest - int(moments.min()))
            self.latest = max(self.latest, int(moments.max()))

    def store(self) -> Store:
        """For the scan; valid until rows come or go."""
        heads, nexts, hashes, moments, _, first = self.rows.entries()
        return Store(heads, nexts, hashes, moments, first, self.count - self.rows.end)

    def moments(self, numbers: I64) -> I64:
        """The moments of some rows."""
        store = self.store()
        return store.moments[numbers - store.offset]

    def places(self, numbers: I64) -> I64:
        """Where rows stand among those that wait."""
        return numbers - (self.count - len(self.rows))

    def take(self, places: I64) -> pa.RecordBatch:
        """Rows in any order."""
        distinct, which = np.unique(places, return_inverse=True)
        return self.rows.take(distinct + self.rows.first).take(pa.array(which))
