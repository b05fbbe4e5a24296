"""LWO: the largest window only."""

from __future__ import annotations

import numpy as np

from penstock.kernels.shared.scheduler import I64, Scheduler


class LWO(Scheduler):
    """Every row scans the largest window at once; results are routed by the time between their rows.

    Guarantees
        The widest query is answered as soon as if it were alone; every other waits for it:
        `test_response_times_are_those_of_the_formulas`.
    State and cost
        No row waits with a part of its window scanned, no result is held.
    Source
        004 §3.1.

    >>> LWO().order(np.array([1, 5, 15]))
    array([2, 1, 0])
    """

    name = "lwo"
    early = True

    def order(self, windows: I64) -> I64:
        """A row that has begun goes on to the end before the next begins."""
        return np.arange(len(windows))[::-1].copy()
