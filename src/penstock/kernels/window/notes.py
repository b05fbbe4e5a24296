"""What a window join writes down for its archive: every row that comes, and which leave memory too soon."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import Emission
from penstock.kernels.window.arrivals import Ready
from penstock.kernels.window.shape import ARCHIVE, NOTES, RESIDENCE, RESIDENCE_SCHEMA, Shape

I64 = npt.NDArray[np.int64]

#: The reason of a note that is of no row: how far event time has come by rows that are not in the archive.
AHEAD = "ahead"


def arrived(shape: Shape, side: int, ready: Ready, slot: int, step: int, places: tuple[I64, I64] | None) -> Emission:
    """Rows that came, with their numbers and how many of the other side were before them; without these, shed."""
    count, nothing = ready.rows.num_rows, pa.nulls(ready.rows.num_rows, pa.int64())
    notes = {
        "_time": pa.array(ready.times),
        "_slot": pa.array(np.full(count, slot, np.int32)),
        "_number": nothing if places is None else pa.array(places[0]),
        "_before": nothing if places is None else pa.array(places[1]),
        "_entered": pa.array(np.full(count, step)),
        "_left": pa.array(np.full(count, -1)) if places is None else nothing,
        "_reason": pa.array(["shed" if places is None else None] * count, pa.string()),
    }
    columns = [*ready.rows.columns, *(notes[name] for name in NOTES.names)]
    return Emission(ARCHIVE[side], pa.RecordBatch.from_arrays(columns, schema=shape.archived(side)))


def left(side: int, numbers: I64, slot: int, step: int, reason: str) -> Emission:
    """Rows that were in memory up to and with this step, and are gone before their time."""
    count = len(numbers)
    columns = [
        pa.array(np.full(count, side, np.int32)),
        pa.array(np.full(count, slot, np.int32)),
        pa.array(numbers),
        pa.array(np.full(count, step)),
        pa.array([reason] * count, pa.string()),
    ]
    return Emission(RESIDENCE, pa.RecordBatch.from_arrays(columns, schema=RESIDENCE_SCHEMA))


def ahead(side: int, slot: int, time: int) -> Emission:
    """A side has come so far in event time, by rows that join nothing: they close windows, and are not archived."""
    row = {"_side": side, "_slot": slot, "_number": None, "_left": time, "_reason": AHEAD}
    return Emission(RESIDENCE, pa.RecordBatch.from_pylist([row], schema=RESIDENCE_SCHEMA))
