"""Greedy: the smallest partial window first."""

from __future__ import annotations

import numpy as np

from penstock.kernels.shared.scheduler import I64, Scheduler, partial_windows


class Greedy(Scheduler):
    """What releases results for the least work goes first: the smallest step from one window to the next larger.

    Guarantees
        Results leave as soon as their order allows, also before their row has scanned the whole window:
        `test_a_result_leaves_early_where_its_order_allows`.
    State and cost
        As SWF; fewer results are held.
    Source
        004 §3.3.

    >>> Greedy().order(np.array([10, 12, 60]))
    array([1, 0, 2])
    """

    name = "greedy"
    early = True

    def order(self, windows: I64) -> I64:
        """By what each window adds; of equal ones the smaller window."""
        return np.argsort(partial_windows(windows), kind="stable")
