"""What is told of a shared join: its numbers, and how long results took from the arrival of their row until they left,
in units of work and by the clock.
"""

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

#: What is told of the join as a whole, and of each query that shares it, by its name.
REPORTS = (
    Metric("rows_in", help="rows that arrived on both sides"),
    Metric("rows_late", help="rows older than the watermark; on channels late_left and late_right"),
    Metric("rows_without_key", help="rows whose key is NULL or NaN; they join nothing"),
    Metric("rows_set_aside", help="rows too large for the window, or without an event time; changes without sense"),
    Metric("rows_out", help="results of all queries"),
    Metric("rows_expired", help="rows that left the widest window"),
    Metric("rows_waiting", help="rows in memory after the step"),
    Metric("unfinished", help="rows that have scanned only a part of their windows, or nothing yet"),
    Metric("held", help="pairs that wait for their turn in a query's order"),
    Metric("work", help="units of work done: rows looked at, pairs found, rows begun"),
    Metric("slice", help="units of work that a step may do, over all slots"),
    Metric("queries", help="queries that share the join", combine="max"),
    Metric("memory", help="bytes held at the most, over all slots"),
    Metric("budget", help="bytes allowed, over all slots"),
    *(Metric(kind, combine, text) for kind, combine, text in _KINDS),
)


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
