"""SWF: the smallest window first."""

from __future__ import annotations

import numpy as np

from penstock.kernels.shared.scheduler import I64, Scheduler


class SWF(Scheduler):
    """A row that waits for a smaller window always goes before one that waits for a larger.

    Guarantees
        A query waits for no query with a larger window: `test_response_times_are_those_of_the_formulas`.
    State and cost
        Rows wait with the place where their scan stopped; results are held until their row has scanned the window.
    Source
        004 §3.2.

    >>> SWF().order(np.array([1, 5, 15]))
    array([0, 1, 2])
    """

    name = "swf"
    early = False

    def order(self, windows: I64) -> I64:
        """From the smallest to the largest."""
        return np.arange(len(windows))
