"""What a scheduler is: which partial window goes first, and when results may leave.

A row that arrives scans the window of the other side from its newest row back to its oldest, in *levels*: first the
smallest query's window, then what the next larger adds, and so on. A *job* is one row at one level. Rows are
taken in their order at every level, so the rows that wait for a level are always consecutive: a queue is two numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


class Scheduler(ABC):
    """An order of levels. It is static: it changes only when a query comes or goes."""

    name: ClassVar[str]
    #: Whether a result leaves for a query as soon as all earlier ones of that query have left, or only when its row has
    #: scanned the query's whole window.
    early: ClassVar[bool]

    @abstractmethod
    def order(self, windows: I64) -> I64:
        """The levels, the first of them that has a row waiting goes next; windows ascend."""

    def describe(self) -> str:
        """For people."""
        return self.name.upper() if len(self.name) < 4 else self.name.capitalize()


def partial_windows(windows: I64) -> I64:
    """What each window adds to the one before it.

    >>> partial_windows(np.array([1, 5, 15]))
    array([ 1,  4, 10])
    """
    return np.diff(windows, prepend=0)
