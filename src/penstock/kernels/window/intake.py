"""The rows of a step on their way into a window join: those that can take part, and where the others go."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA, Emission
from penstock.kernels.measure import fixed_width, runs
from penstock.kernels.row_text import row_texts
from penstock.kernels.window.arrivals import cost_of, costs_of
from penstock.kernels.window.shape import LATE, Shape
from penstock.kernels.window.windows import FAR
from penstock.tables.keys import hash_keys, joinable

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
#: What becomes of rows without a key.
Keyless = Callable[[int, pa.RecordBatch], Iterator[Emission]]


class Intake:
    """Reads rows of both sides, in gulps of at most `gulp` bytes of work; counts what it turns away.

    Guarantees
        Every row is given on, or is late, set aside, or counted as without key: `test_every_row_is_accounted_for`.
    State and cost
        None.
    """

    def __init__(self, shape: Shape, times: tuple[str, str] | None, *, timed: bool, gulp: float) -> None:
        self._shape, self._times, self._gulp = shape, times, gulp
        self._late = timed and times is not None
        self._wide = not (fixed_width(shape.left) and fixed_width(shape.right))

    # -- what rows say -----------------------------------------------------------------------------------------

    def hashes(self, side: int, rows: pa.RecordBatch) -> U64:
        """Of the keys; 0 where the join has none."""
        keys = [rows.column(name) for name in self._shape.keys[side]]
        return hash_keys(keys) if keys else np.zeros(rows.num_rows, np.uint64)

    def keys(self, side: int, rows: pa.RecordBatch) -> pa.Array:
        """The keys themselves; a struct where they have several columns."""
        names = self._shape.keys[side]
        if len(names) == 1:
            return rows.column(names[0])
        return pa.StructArray.from_arrays([rows.column(name) for name in names], list(names))

    def event_times(self, side: int, rows: pa.RecordBatch) -> I64:
        """In microseconds; 0 where rows have none."""
        if self._times is None:
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(self._times[side])
        micro = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        return micro.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)

    def latest(self, side: int, rows: pa.RecordBatch) -> int:
        """The largest event time, also of rows that cannot take part; before all times where there is none."""
        found = pc.max(rows.column(self._times[side])) if self._times is not None else None
        return found.cast(pa.timestamp("us", found.type.tz)).value if found is not None and found.is_valid else -FAR

    # -- which can take part -----------------------------------------------------------------------------------

    def able(
        self,
        side: int,
        rows: pa.RecordBatch,
        watermark: int | None,
        counts: dict[str, float],
        keyless: Keyless | None = None,
    ) -> Generator[Emission, None, pa.RecordBatch]:
        """A generator of what is turned away, that returns the rows that can take part."""
        keys = [rows.column(name) for name in self._shape.keys[side]]
        keyed = joinable(keys) if keys else None
        if keyed is not None:
            counts["rows_without_key"] += rows.num_rows - int(keyed.sum())
            if keyless is not None:
                yield from keyless(side, rows.filter(pa.array(~keyed)))
            rows = rows.filter(pa.array(keyed))
        if self._times is not None:
            valid = rows.column(self._times[side]).is_valid().to_numpy(zero_copy_only=False)
            yield from aside(rows, valid, "its event time is NULL", counts)
            rows = rows if valid.all() else rows.filter(pa.array(valid))
        if self._wide:
            fits = costs_of(rows) <= self._gulp
            yield from aside(rows, fits, f"the row is larger than {self._gulp / 2:.0f} bytes", counts)
            rows = rows if fits.all() else rows.filter(pa.array(fits))
        if self._late and watermark is not None:
            late = self.event_times(side, rows) < watermark
            if late.any():
                counts["rows_late"] += int(late.sum())
                yield Emission(LATE[side], rows.filter(pa.array(late)))
                rows = rows.filter(pa.array(~late))
        return rows

    def gulps(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in parts that memory is kept free for."""
        if cost_of(rows) <= self._gulp:
            yield rows
            return
        for begin, end in runs(costs_of(rows), self._gulp):
            # A copy: a slice would keep all of what it was cut from.
            yield rows.take(pa.array(np.arange(begin, end)))


def aside(rows: pa.RecordBatch, good: Mask, reason: str, counts: dict[str, float]) -> Iterator[Emission]:
    """Rows that cannot be used, with the reason."""
    bad = np.flatnonzero(~good)
    for begin in range(0, len(bad), 16):
        raw = row_texts(rows.take(pa.array(bad[begin : begin + 16])))
        columns = [pa.array([reason] * len(raw)), pa.array([""] * len(raw)), pa.array(raw, pa.string())]
        counts["rows_set_aside"] += len(raw)
        yield Emission(SET_ASIDE, pa.RecordBatch.from_arrays(columns, schema=SET_ASIDE_SCHEMA))
