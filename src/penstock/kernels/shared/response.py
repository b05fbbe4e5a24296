"""How long results took from the arrival of their row until they left: in units of work, and by the clock."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.contract import Metric
from penstock.kernels.shared.scan import CLASSES, Tally, quantile

_KINDS = (
    ("results_", "sum", "results of the query"),
    ("work_mean_", "max", "units of work from arrival to release, on average; of the slowest slot"),
    ("work_p95_", "max", "95 in 100 of its results took no more units of work than this, to an eighth"),
    ("work_max_", "max", "the most units of work that a result took"),
    ("wait_mean_", "max", "milliseconds from the step in which the later row came to the one that released the result"),
    ("wait_max_", "max", "the most of these"),
)


def metrics_of(name: str) -> tuple[Metric, ...]:
    """What is reported of a query."""
    return tuple(Metric(kind + name, combine, text) for kind, combine, text in _KINDS)


class Response:
    """The results of one query in one step."""

    def __init__(self) -> None:
        self.results = 0
        self._pairs = 0
        self._total = 0.0
        self._worst = 0
        self._classes = np.zeros(CLASSES, np.int64)
        self._waits = 0
        self._waited = 0.0
        self._longest = 0

    def work(self, tally: Tally, level: int) -> None:
        """Count what the scan released for a level."""
        self._pairs += int(tally.pairs[level])
        self._total += float(tally.total[level])
        self._worst = max(self._worst, int(tally.worst[level]))
        self._classes += tally.classes[level]

    def waits(self, milliseconds: npt.NDArray[np.int64]) -> None:
        """Count how long pairs waited by the clock."""
        self._waits += len(milliseconds)
        self._waited += float(milliseconds.sum())
        self._longest = max(self._longest, int(milliseconds.max(initial=0)))

    def numbers(self, name: str) -> dict[str, float]:
        """By the names of the metrics."""
        found = (
            self.results,
            self._total / max(self._pairs, 1),
            quantile(self._classes, 0.95),
            self._worst,
            self._waited / max(self._waits, 1),
            self._longest,
        )
        return {kind + name: float(value) for (kind, _, _), value in zip(_KINDS, found, strict=True)}
