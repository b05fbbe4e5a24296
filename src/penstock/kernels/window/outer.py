"""Rows of an outer join that leave the window without having met a partner."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import FAR, Clock, Window

I64 = npt.NDArray[np.int64]


class Lonely:
    """Tells which rows are certain to have no partner.

    Guarantees
        A row that went too soon may have been the partner of every row in its reach: none of these is certain, and only
        the archive can tell.
    State and cost
        Two numbers: of each side, how far rows reach that went before their time; beyond it nothing was missed.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self.hidden = [-FAR, -FAR]

    def hide(self, side: int, moments: I64) -> None:
        """Rows of a side go before their time."""
        reach = self._window.reach(1 - side)
        furthest = FAR if not self._window.timed else int(moments.max(initial=-FAR)) - reach.low
        self.hidden[side] = max(self.hidden[side], min(furthest, FAR))

    def leaving(self, side: int, rows: SideRows, clock: Clock) -> tuple[I64, I64]:
        """Entries that leave the window and met none: those that are certain, and the others; each is told once."""
        moments = rows.column("moments")
        closed = self._window.closed(side, moments, rows.column("numbers"), clock)
        alone = np.flatnonzero(closed & (rows.column("met") == 0))
        missed = moments[alone] <= self.hidden[1 - side]
        entries = alone + rows.first
        if len(entries):
            rows.mark_met(entries)
        return entries[~missed], entries[missed]
