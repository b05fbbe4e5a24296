"""Which rows go: those with the lowest scores, until the rest fits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.window.judgement import Judgement
from penstock.kernels.window.side import ENTRY, SideRows
from penstock.kernels.window.windows import Clock

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: With more rows than this, a tenth of them goes at the least, so that all rows are scored once for many evictions.
_MANY = 4_096
_SPARE = 10


def with_spare(excess: float, limit: float, rows: int) -> float:
    """How much to free where `excess` must be."""
    return max(excess, limit / _SPARE) if rows > _MANY else excess


class Judged(NamedTuple):
    """The waiting rows of a side: what each is worth, its age, its bytes, and whether it can meet no partner more."""

    side: int
    scores: F64
    ages: I64
    costs: F64
    closed: Mask


def judge(side: int, rows: SideRows, judgement: Judgement, clock: Clock, step: int) -> Judged:
    """All waiting rows of a side."""
    candidates = judgement.waiting(side, rows, clock)
    scores = judgement.scores(candidates, step).copy()
    # What has left the window goes first, and costs nothing.
    scores[candidates.life < 0] = -np.inf
    closed = judgement.window.closed(side, rows.column("moments"), rows.column("numbers"), clock)
    return Judged(side, scores, candidates.age, rows.column("sizes") / 8 + ENTRY, closed)


def lowest_of(sides: list[Judged], free: float) -> list[Mask]:
    """Which rows of each side go so that at least `free` is freed."""
    scores, ages, costs = (np.concatenate([one[place] for one in sides]) for place in (1, 2, 3))
    gone = lowest(scores, ages, costs, free)
    return np.split(gone, np.cumsum([len(one.scores) for one in sides])[:-1])


def lowest(scores: F64, ages: I64, costs: F64, free: float) -> Mask:
    """Which rows go so that at least `free` is freed: the lowest scores, of equal ones the oldest, then the first.

    >>> lowest(np.array([3.0, 1.0, 1.0]), np.array([0, 5, 9]), np.ones(3), 1.0).tolist()
    [False, False, True]
    """
    gone = np.zeros(len(scores), np.bool_)
    if free <= 0 or not len(scores):
        return gone
    chosen = _likely(scores, costs, free)
    order = chosen[np.lexsort((chosen, -ages[chosen], scores[chosen]))]
    enough = int(np.searchsorted(np.cumsum(costs[order]), free)) + 1
    gone[order[:enough]] = True
    return gone


def _likely(scores: F64, costs: F64, free: float) -> I64:
    """Rows among which those that go surely are: sorting all of them would cost more than the rest of the step."""
    count = min(int(free / max(float(costs.mean()), 1.0) * 1.1) + 16, len(scores) - 1)
    while count < len(scores) - 1:
        threshold = np.partition(scores, count)[count]
        chosen = np.flatnonzero(scores <= threshold)
        if costs[chosen].sum() >= free:
            return chosen
        count = min(2 * count, len(scores) - 1)
    return np.arange(len(scores))
