"""OPTOFFLINESHED: what could have been kept, had the whole stream been known.

The rows s_0 … s_{n-1} arrive one in each unit of time, and row i is worth `matches[i]` results. The join takes packets
of exactly w rows from a buffer; it asks for the next one c units after the last was handed over, and may be made to
wait. A row that enters the buffer stays until it is handed over; what is in the buffer at the end counts as kept.

The paper solves this by a table over (row, time of the next request, rows in the buffer), in O(n² · w) steps:
`loss_by_table`, as printed in Figure 9 but for three faults. Line 11 forgets the loss of the row that is dropped while
the buffer is full (the recurrence in the text has it). The first case must not run to w rows in the buffer: that is the
other cases' part, and has no w + 1 to go to. And requests that fall beyond the end of the stream need a place in the
table: all of them are one, the end.

`optofflineshed` gives the same number, and the rows, in O(n · g · log w) steps, g = max(c, w). A packet handed over at
time b, after one handed over at a, may as well hold the w best rows of [a, b), since nothing else ties it to the
others; b - a is at least g; and nothing is gained by b - a ≥ 2g, for then another packet fits between. So the best way
from a to the end is one of g ways to choose b, and the best from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Offline(NamedTuple):
    """The best that can be done with a stream: results lost, and the rows that are kept."""

    loss: float
    kept: npt.NDArray[np.bool_]


def optofflineshed(matches: npt.ArrayLike, w: int, c_loop: int, *, first_request: int = 0) -> Offline:
    """The least loss of any way to shed, with w rows a packet and a packet every `c_loop` units of time.

    The join asks for its first packet at time `first_request`: 0 in Figure 9; c_loop makes it start with TOPW, whose
    buffer is handed over for the first time after one loop.

    Guarantees
        Equal to trying every set of rows: `test_equal_to_brute_force`; to the paper's table as corrected:
        `test_equal_to_the_table_of_figure_9`. The kept rows can be kept: `test_the_kept_rows_can_be_kept`.
    State and cost
        A number for each row and two for each place of the buffer; O(n · max(c, w) · log w) steps.
    Source
        000 §4.2, Figure 9, Theorem 4.1.

    >>> optofflineshed([1, 1, 1, 1, 4, 4, 4, 4], w=2, c_loop=4, first_request=4)
    Offline(loss=4.0, kept=array([False, False, False, False,  True,  True,  True,  True]))
    """
    worth = _checked(matches, w, c_loop, first_request)
    n = len(worth)
    kept = np.zeros(n, np.bool_)
    if w == 0 or n == 0:
        return Offline(float(worth.sum()), kept)
    following = np.empty(n + 1, np.int64)
    best = np.zeros(n + 1, np.float64)
    _solve(worth, w, max(c_loop, w), max(first_request, w), best, following)
    start = 0
    while start < n:
        end = int(following[start])
        part = worth[start:end]
        kept[start + np.argsort(-part, kind="stable")[:w]] = True
        start = end
    return Offline(float(worth.sum() - worth[kept].sum()), kept)


def loss_by_table(matches: npt.ArrayLike, w: int, c_loop: int, *, first_request: int = 0) -> float:
    """The least loss, by the paper's own program, corrected: for small streams.

    >>> loss_by_table([1, 1, 1, 1, 4, 4, 4, 4], w=2, c_loop=4, first_request=4)
    4.0
    """
    worth = _checked(matches, w, c_loop, first_request)
    if w == 0:
        return float(worth.sum())
    return float(_table(worth, w, c_loop, first_request))


def _checked(matches: npt.ArrayLike, w: int, c_loop: int, first_request: int) -> F64:
    worth = np.ascontiguousarray(matches, np.float64)
    if w < 0 or c_loop < 1 or first_request < 0 or (worth.size and not worth.min() >= 0):
        raise ValueError(f"No stream is shed with w={w}, c_loop={c_loop}, first_request={first_request}.")
    return worth


@njit(cache=True)
def _solve(worth: F64, w: int, gap: int, first_gap: int, best: F64, following: I64) -> None:
    """`best[a]`: the most that can be kept of the rows from `a` on; `following[a]`: when the packet begun then ends."""
    n = worth.size
    following[n] = n
    heap = np.empty(w, np.float64)
    for a in range(n - 1, -1, -1):
        least = gap if a > 0 else first_gap
        total = 0.0
        held = 0
        # Two gaps, less one, are the longest that can pay; the stream's end may come first.
        last = min(a + least + gap - 1, n)
        best[a] = -1.0
        for b in range(a + 1, last + 1):
            value = worth[b - 1]
            if held < w:
                _push(heap, held, value)
                held += 1
                total += value
            elif value > heap[0]:
                total += value - heap[0]
                _replace(heap, value)
            if (b - a >= least or b == n) and total + best[b] > best[a]:
                best[a] = total + best[b]
                following[a] = b


@njit(cache=True)
def _push(heap: F64, at: int, value: float) -> None:
    while at > 0 and value < heap[(at - 1) // 2]:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = value


@njit(cache=True)
def _replace(heap: F64, value: float) -> None:
    """Put `value` in the place of the least, which is the first."""
    at = 0
    while 2 * at + 1 < heap.size:
        below = 2 * at + 1
        if below + 1 < heap.size and heap[below + 1] < heap[below]:
            below += 1
        if value <= heap[below]:
            break
        heap[at] = heap[below]
        at = below
    heap[at] = value


@njit(cache=True)
def _table(worth: F64, w: int, c_loop: int, first_request: int) -> float:
    n = worth.size
    # now[lt, sb] is T, after[lt, sb] is T': the least loss from row i, and from row i + 1. lt = n stands for "never".
    after = np.zeros((n + 1, w + 1))
    now = np.zeros((n + 1, w + 1))
    for i in range(n - 1, -1, -1):
        for lt in range(n + 1):
            for sb in range(w):
                now[lt, sb] = min(after[lt, sb] + worth[i], after[lt, sb + 1])
            if i < lt:
                now[lt, w] = after[lt, w] + worth[i]
        asked_next = min(i + c_loop, n)
        for lt in range(i + 1):
            now[lt, w] = now[asked_next, 0]
        now, after = after, now
    return after[min(first_request, n), 0]
