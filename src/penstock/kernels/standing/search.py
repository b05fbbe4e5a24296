"""What every strategy works with: rows that look for partners, the partners in order, and runs of them as answers.

A row meets a partner under a query if the row's *own* value lies in the query's range for its side, and the *sum* of
the row's shift and the partner's value lies in the range across. A select-join has shift 0: the range across is about
the partner's attribute alone. A band join has no range of its own, and the difference of both sides as that sum (the
left side's values are kept negated, which is exact).

Partners lie in order of (key, value), so those of one row under one query follow one another. An answer is such a
*run*: (row, query, first partner, one past the last), however many partners it has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Columns of a run.
ROW, QUERY, FIRST, LAST = range(4)
#: Bytes of a run.
RUN = 16


class Rows(NamedTuple):
    """Rows that look for partners: where those with their key begin and end, what is added to their values, and the own
    value.
    """

    begin: I64
    end: I64
    shift: F64
    own: F64

    def some(self, numbers: I64) -> Rows:
        """The rows with these numbers."""
        return Rows(self.begin[numbers], self.end[numbers], self.shift[numbers], self.own[numbers])


class Place(NamedTuple):
    """Where a strategy stands: in which group, at which row; how many runs are written."""

    group: int
    row: int
    runs: int


@njit(cache=True, inline="always")
def at_least(values: F64, begin: int, end: int, shift: float, bound: float) -> int:
    """The first place whose value, shifted, is not below the bound."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] + shift < bound:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, inline="always")
def above(values: F64, begin: int, end: int, shift: float, bound: float) -> int:
    """The first place whose value, shifted, is above the bound."""
    while begin < end:
        middle = (begin + end) >> 1
        if values[middle] + shift <= bound:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, inline="always")
def onward(values: F64, begin: int, end: int, shift: float, bound: float) -> int:
    """The same as `at_least`, quick where the place is not far from the beginning."""
    step = 1
    high = begin
    while high < end and values[high] + shift < bound:
        begin = high + 1
        high = min(end, begin + step)
        step *= 2
    return at_least(values, begin, high, shift, bound)


@njit(cache=True, inline="always")
def reach_left(values: F64, begin: int, at: int, shift: float, bound: float) -> int:
    """The first place whose value is not below the bound, from `at` outward: everything from there to `at` is not."""
    step = 1
    low = at
    while low > begin and values[low - 1] + shift >= bound:
        at = low - 1
        low = max(begin, at - step)
        step *= 2
    return at_least(values, low, at, shift, bound)


@njit(cache=True, inline="always")
def reach_right(values: F64, at: int, end: int, shift: float, bound: float) -> int:
    """The first place whose value is above the bound, from `at` outward: everything before `at` is not."""
    step = 1
    high = at
    while high < end and values[high] + shift <= bound:
        at = high + 1
        high = min(end, at + step)
        step *= 2
    return above(values, at, high, shift, bound)


@njit(cache=True, inline="always")
def write(out: I32, runs: int, row: int, query: int, first: int, last: int) -> int:
    """Put down one run; gives how many there are now."""
    out[runs, 0] = row
    out[runs, 1] = query
    out[runs, 2] = first
    out[runs, 3] = last
    return runs + 1
