"""The time that a view costs, and its readers: what was measured, and whether the promise can be kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.kernels.views.costs import Linear
from penstock.models.view_cost import MeasuredCost
from penstock.spark.files import read_whole, write_whole

#: Room that is always left for what was not measured.
LEAST_MARGIN = 1.1
MOST_MARGIN = 3.0
#: Busier than this, waiting changes pile up sooner or later.
FULL = 0.9


@dataclass
class Times:
    """Measured times of one view: refreshes of each table, reading, and what readers waited."""

    refreshes: dict[str, MeasuredCost]
    reading: deque[float] = field(default_factory=lambda: deque(maxlen=20))
    reads: int = 0
    late: int = 0
    slowest: float = 0.0
    work: dict[str, float] = field(default_factory=dict)
    actions: dict[str, int] = field(default_factory=dict)

    def refreshed(self, table: str, changes: int, seconds: float) -> None:
        """A refresh was done."""
        self.refreshes[table].measured(changes, seconds)
        self.work[table] = self.work.get(table, 0.0) + seconds
        self.actions[table] = self.actions.get(table, 0) + 1

    def tidied(self, table: str, seconds: float) -> None:
        """A table was made quick to read again, beside everything else: work, but nothing that a reader waits for."""
        self.work[table] = self.work.get(table, 0.0) + seconds

    def answered(self, seconds: float, promised: float) -> None:
        """A reader had an answer that could be read."""
        self.reads += 1
        self.late += seconds > promised
        self.slowest = max(self.slowest, seconds)

    def read_out(self, waited: float, promised: float, seconds: float) -> None:
        """The same reader has the rows: it waited for the answer, and reading it took so much longer."""
        self.reading.append(seconds)
        self.late += waited <= promised < waited + seconds
        self.slowest = max(self.slowest, waited + seconds)

    @property
    def reads_in(self) -> float:
        """What reading an answer takes, at its slowest lately."""
        return max(self.reading, default=0.0)

    def costs(self, tables: Sequence[str]) -> tuple[Linear, ...]:
        """The cost functions for a planner."""
        lines = [self.refreshes[table].line for table in tables]
        return tuple(Linear(line.each, line.setup) for line in lines)

    @property
    def margin(self) -> float:
        """How much longer than expected a refresh may take."""
        worst = max((cost.excess for cost in self.refreshes.values()), default=1.0)
        return min(max(worst, LEAST_MARGIN), MOST_MARGIN)

    def bound(self, promised: float) -> float:
        """What refreshing all that waits may cost, as the lines have it, so that a reader is answered in time."""
        return max(promised - self.reads_in, 0.0) / self.margin

    def least(self) -> float:
        """The time in which an answer is possible at all, if every table has changed."""
        return sum(cost.line(1) for cost in self.refreshes.values()) * LEAST_MARGIN + self.reads_in

    # -- the promise -------------------------------------------------------------------------------------------

    def load(self, rates: Mapping[str, float], promised: float) -> float:
        """The share of time that refreshing needs at these rates, with batches as large as the promise allows."""
        bound = self.bound(promised) / max(1, len(rates))
        busy = 0.0
        for table, rate in rates.items():
            cost = self.costs([table])[0]
            batch = max(1, cost.most(bound))
            busy += rate * cost(batch) / batch
        return busy

    # -- between runs ------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """Keep the measurements; losing them costs a calibration."""
        write_whole(path, {"refreshes": {name: cost.as_json() for name, cost in self.refreshes.items()}})

    @classmethod
    def load_from(cls, path: Path, tables: Sequence[str]) -> Times:
        """Kept measurements, as far as there are any."""
        said: dict[str, Any] = (read_whole(path) if path.exists() else None) or {"refreshes": {}}
        kept = {name: MeasuredCost.from_json(cost) for name, cost in said["refreshes"].items() if name in tables}
        return cls({name: kept.get(name, MeasuredCost()) for name in tables})
