"""What the demonstration measures while it runs: micro-batches as the flow tells them, and the workers' memory."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One look at the Python workers."""

    at: float
    workers: int
    resident: int


@dataclass(frozen=True)
class MicroBatch:
    """One committed micro-batch."""

    number: int
    began: float
    seconds: float
    rows_in: int
    rows_out: int
    waiting: int
    pages: int
    memory: int
    step_seconds: float

    @property
    def ended(self) -> float:
        """When it was committed."""
        return self.began + self.seconds

    @property
    def rate(self) -> float:
        """Rows it took in, by its whole time."""
        return self.rows_in / self.seconds if self.seconds else 0.0


@dataclass
class Meter:
    """Collects numbers of a flow; times are seconds since the epoch."""

    flow: Any
    samples: list[Sample] = field(default_factory=list)

    def batches(self) -> list[MicroBatch]:
        """All micro-batches so far."""
        return [
            MicroBatch(
                said["batch"],
                datetime.fromisoformat(said["time"]).timestamp(),
                said["seconds"],
                int(said["rows_in"]),
                int(said["rows_out"]),
                int(said["rows_waiting"]),
                int(said["pages_read"]),
                int(said["memory"]),
                said["step_seconds"],
            )
            for said in self.flow.history()
        ]

    def look(self) -> Sample:
        """Measure the workers now."""
        sizes = worker_memory()
        sample = Sample(time.time(), len(sizes), sum(sizes))
        self.samples.append(sample)
        return sample

    @property
    def growth(self) -> int:
        """How much more the workers held at their most than after the first micro-batch."""
        batches = self.batches()
        start = batches[0].ended if batches else 0.0
        later = [sample.resident for sample in self.samples if sample.at >= start]
        return max(later) - later[0] if later else 0


def worker_memory() -> list[int]:
    """The resident bytes of each Python worker below this process."""
    import psutil

    sizes = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "penstock.spark.daemon" in process.cmdline():
                sizes.append(process.memory_info().rss)
    return sizes
