"""The watermark as the Spark runtime hands it to kernels, computed without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.contract import Portion


@dataclass(frozen=True)
class EventTime:
    """Where each side keeps its event time, and how much later than the latest a row may come.

    `columns` has one timestamp column for each side that has one; further sides, such as changes, come after these.
    `lateness` is in microseconds.
    """

    columns: tuple[str, ...]
    lateness: int = 0


@dataclass
class Watermark:
    """The smallest over the sides of the largest event time seen, less the lateness; None until every side had one.

    It belongs to the host, not to the kernel: a lost kernel does not set it back.
    """

    event_time: EventTime | None
    _latest: dict[int, int] = field(default_factory=dict)

    def value(self) -> int | None:
        """Microseconds, from all batches that were taken in so far."""
        if self.event_time is None or len(self._latest) < len(self.event_time.columns):
            return None
        return min(self._latest.values()) - self.event_time.lateness

    def take_in(self, portions: Sequence[Portion]) -> None:
        """Count the rows of a finished batch."""
        if self.event_time is None:
            return
        columns = self.event_time.columns
        for side, rows in portions:
            if side >= len(columns):
                continue
            times = rows.column(columns[side])
            latest = pc.max(_micros(times)).as_py()
            if latest is not None:
                self._latest[side] = max(latest, self._latest.get(side, latest))


def repeated(
    sides: Mapping[int, pa.RecordBatch], event_time: EventTime | None, times: int
) -> dict[int, pa.RecordBatch]:
    """The rows of each side so many times over, each time so much later that they come in time."""
    columns, lateness = ((), 0) if event_time is None else (event_time.columns, event_time.lateness)
    named = {side: columns[side] for side in sides if side < len(columns)}
    known = [pc.min_max(_micros(sides[side].column(name))).as_py() for side, name in named.items()]
    ends = [end for both in known for end in both.values() if end is not None]
    step = max(max(ends) + 1 - min(ends) - lateness, 1) if ends else 0

    def later(side: int, by: int) -> pa.RecordBatch:
        rows = sides[side]
        if side not in named:
            return rows
        place = rows.schema.get_field_index(named[side])
        moved = pc.add(_micros(rows.column(place)), by).cast(pa.timestamp("us")).cast(rows.schema.field(place).type)
        return rows.set_column(place, rows.schema.field(place), moved)

    return {side: pa.concat_batches([later(side, step * number) for number in range(times)]) for side in sides}


def _micros(times: pa.Array) -> pa.Array:
    return times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
