"""Chooses w and b for a mesh join: 000 §3.3 (both objectives), 001 §4–5 (one buffer for all budgets).

The letters are those of `penstock.models.mesh_cost`. Everything is numeric, over whole pages and whole rows, because
`c_IO` is measured and has no formula (001 §3), and because the last read of a cycle is short, so that the rate over b
has small teeth that calculus would fall between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import BadOption, MemoryTooSmall
from penstock.models.mesh_cost import Coefficients, Memory, Seconds

Integers = npt.NDArray[np.int64]

#: The budget for which 001 §5 picks the one buffer that then serves all.
SMALLEST_BUDGET = 20 << 20
#: 001 calls the buffer good from the knee on; the knee is the smallest one that loses no more than this.
KNEE = 0.002
#: Up to this many pages every buffer is tried; beyond, those that differ in how often a cycle reads.
_EVERY_BUFFER = 2_048
#: Windows that are tried for a buffer before the best is refined.
_WINDOWS = 48
#: Buffers whose window is refined.
_REFINED = 16
#: Windows that are tried for a rate before the least is refined.
_RATES = 160


@dataclass(frozen=True)
class Choice:
    """w and b, what they take up and what they give."""

    w: int
    b: int
    k: int
    memory: Memory
    loop: Seconds
    #: Rows a second.
    rate: float

    @property
    def window(self) -> int:
        """Rows that wait when the window is full, and share one pass over the table."""
        return self.w * self.k


def choice(c: Coefficients, w: int, b: int) -> Choice:
    """What this w and b would give."""
    seconds = Seconds(*(float(term) for term in c.loop(w, b)))
    return Choice(w, b, int(c.iterations(b)), c.memory(w, b), seconds, w / seconds.total)


def buffers(c: Coefficients) -> Integers:
    """The buffers worth trying, in pages.

    Of all that read a cycle in the same number of goes the smallest needs the least memory, so for large tables only
    those are tried: about twice the root of the number of pages.
    """
    pages = c.N_R
    if pages <= _EVERY_BUFFER:
        return np.arange(1, pages + 1)
    root = int(pages**0.5)
    goes = np.arange(1, root + 2)
    return np.unique(np.concatenate([goes, -(-pages // goes)]))


def _tried(c: Coefficients, among: npt.ArrayLike | None) -> Integers:
    return buffers(c) if among is None else np.atleast_1d(np.asarray(among, np.int64))


def fastest(c: Coefficients, memory: float, among: npt.ArrayLike | None = None) -> Choice:
    """The highest rate that `memory` allows, over all buffers (or those in `among`).

    Guarantees
        As good as trying every b and every w: `test_fastest_equals_brute_force`. More memory is never slower:
        `test_more_memory_is_never_slower`.

    Raises `MemoryTooSmall` where no buffer leaves room for a row.
    """
    tried = _tried(c, among)
    most = c.most_rows(memory, tried)
    tried, most = tried[most > 0], most[most > 0]
    if not tried.size:
        raise too_small(c, memory)
    # As costs of a row may grow with the window, the largest is not always the best.
    w = np.exp(np.log(most)[:, None] * np.linspace(0, 1, _WINDOWS)).round().astype(np.int64)
    w[:, -1] = most
    rates = c.rate(w, tried[:, None])
    best = np.argmax(rates, axis=1)
    # Refine the windows of the few buffers that can still win.
    top = rates[np.arange(len(tried)), best]
    able = np.flatnonzero(top >= 0.98 * top.max())
    able = able[np.argsort(-top[able])][:_REFINED]
    found = [_refined(c, int(tried[i]), w[i], int(best[i])) for i in able]
    _, b_best, w_best = max((rate, -b, w) for rate, w, b in found)
    return choice(c, w_best, -b_best)


def _refined(c: Coefficients, b: int, w: Integers, best: int) -> tuple[float, int, int]:
    low, high = int(w[max(best - 1, 0)]), int(w[min(best + 1, len(w) - 1)])
    while high - low > 2:
        third = (high - low) // 3
        left, right = low + third, high - third
        if float(c.rate(left, b)) < float(c.rate(right, b)):
            low = left
        else:
            high = right
    near = np.unique(np.append(np.arange(low, high + 1), w[best]))
    rates = c.rate(near, b)
    at = int(np.argmax(rates))
    return float(rates[at]), int(near[at]), b


def smallest(c: Coefficients, rate: float, among: npt.ArrayLike | None = None) -> Choice:
    """The least memory that serves `rate` rows a second, over all buffers (or those in `among`).

    Guarantees
        As good as trying every b and every w: `test_smallest_equals_brute_force`.

    Raises `BadOption` where no window, however large, would do.
    """
    if not rate > 0:
        raise BadOption(f"rate={rate:g} is not a rate.", do="Give rows a second, more than 0.")
    tried = _tried(c, among)
    k = c.iterations(tried)
    # No table needs a window of more than all its rows a thousand times over.
    windows = np.geomspace(1, max(1_000 * c.n_R, 1 << 20), _RATES)
    w = np.maximum((windows[None, :] / k[:, None]).astype(np.int64), 1)
    rates = c.rate(w, tried[:, None])
    enough = rates >= rate
    able = enough.any(axis=1)
    if not able.any():
        # The peak of a rate that falls again may lie between two windows that were tried.
        at, near = np.unravel_index(int(np.argmax(rates)), rates.shape)
        reached, rows, b = _refined(c, int(tried[at]), w[at], int(near))
        if reached >= rate:
            return choice(c, rows, b)
        raise BadOption(
            f"{rate:,.12g} rows a second is more than this join can serve with any memory.",
            why=f"What each row costs by itself limits it to {reached:,.0f} rows a second for each slot.",
            do="Use more slots (cores), a prepared table, or fewer columns of the table.",
        )
    tried, w, first = tried[able], w[able], enough[able].argmax(axis=1)
    every = np.arange(len(tried))
    low, high = np.where(first > 0, w[every, np.maximum(first - 1, 0)], 0), w[every, first]
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, 1)
        served = c.rate(middle, tried) >= rate
        low, high = np.where(served, low, middle), np.where(served, middle, high)
        low = np.minimum(low, high - 1)
    best = int(np.argmin(c.buffer(tried) + high * c.row_bytes(tried)))
    return choice(c, int(high[best]), int(tried[best]))


def knee(c: Coefficients, memory: float, loss: float = KNEE) -> int:
    """The smallest buffer that is at most `loss` slower than the best one for this budget."""
    tried = buffers(c)
    most = c.most_rows(memory, tried)
    tried, most = tried[most > 0], most[most > 0]
    if not tried.size:
        raise too_small(c, memory)
    rates = c.rate(most, tried)
    return int(tried[np.flatnonzero(rates >= (1 - loss) * rates.max())[0]])


def default_buffer(c: Coefficients, smallest_budget: float = SMALLEST_BUDGET) -> int:
    """One buffer for every budget: the knee of the smallest (001 §5).

    Guarantees
        At most 3% slower than the best buffer for budgets up to 16 times as large, on the table of the paper:
        `test_default_buffer_is_good_enough`.
    """
    return knee(c, max(smallest_budget, 1.25 * least_memory(c)))


def with_buffer(c: Coefficients, memory: float, b: int) -> Choice:
    """The best that a given buffer does under a budget; a smaller one where it leaves no room."""
    fitting = buffers(c)
    fitting = fitting[(c.most_rows(memory, fitting) > 0) & (fitting <= b)]
    if c.most_rows(memory, b) > 0:
        return fastest(c, memory, among=b)
    if not fitting.size:
        raise too_small(c, memory)
    # The knee of so small a budget: a buffer that leaves room for one row only would be slow.
    return fastest(c, memory, among=min(knee(c, memory), int(fitting.max())))


def curve(c: Coefficients, memory: float, points: int = 24) -> list[Choice]:
    """The rate over the buffer at a fixed budget (000, Figure 5b; 001, Figure 5), on a logarithmic grid."""
    wanted = np.unique(np.geomspace(1, c.N_R, points).round().astype(np.int64))
    return [fastest(c, memory, among=int(b)) for b in wanted if c.most_rows(memory, b) > 0]


def least_memory(c: Coefficients) -> float:
    """The smallest budget that holds one page and one row for each read of a cycle."""
    tried = buffers(c)
    return float(np.min(c.buffer(tried) + c.fixed + c.row_bytes(tried)))


def too_small(c: Coefficients, memory: float) -> MemoryTooSmall:
    """The error for a budget in which nothing fits."""
    least = least_memory(c)
    return MemoryTooSmall(
        f"{memory / 2**20:.2f} MB cannot hold one page and one row for each read of a cycle.",
        why=f"{c.fixed / 2**20:.2f} MB are taken whatever the window, and a page has {c.v_P:,.0f} bytes.",
        do=f"Give at least {least / 2**20:.2f} MB for each slot.",
    )


def breakdown(seconds: Seconds) -> dict[str, Any]:
    """The share of each term in the time of an iteration."""
    return {name: value / seconds.total for name, value in seconds._asdict().items()}
