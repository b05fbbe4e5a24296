"""What a window join reads of rows: keys, hashes, event times, moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.window.shape import Shape
from penstock.kernels.window.windows import Window
from penstock.tables.keys import hash_keys

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Reader:
    """Rows of both sides, as numbers."""

    shape: Shape
    window: Window
    times: tuple[str, str] | None

    def hashes(self, side: int, rows: pa.RecordBatch) -> U64:
        """Of their keys."""
        return hash_keys([rows.column(name) for name in self.shape.keys[side]])

    def keys(self, side: int, rows: pa.RecordBatch) -> pa.Array:
        """The keys themselves; a struct where they have several columns."""
        names = self.shape.keys[side]
        if len(names) == 1:
            return rows.column(names[0])
        return pa.StructArray.from_arrays([rows.column(name) for name in names], list(names))

    def event_times(self, side: int, rows: pa.RecordBatch) -> I64:
        """In microseconds; 0 where rows have none."""
        if self.times is None:
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(self.times[side])
        micro = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        return micro.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)

    def moments(self, times: I64) -> I64:
        """What rows with these times are compared by; a row window goes by numbers alone."""
        return self.window.moments(times) if self.window.timed else np.zeros(len(times), np.int64)

    def described(self, side: int, rows: pa.RecordBatch) -> tuple[U64, I64]:
        """Hashes and moments."""
        return self.hashes(side, rows), self.moments(self.event_times(side, rows))
