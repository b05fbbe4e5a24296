"""Which rows go: those with the lowest scores, until the rest fits.

Rows compete in three rounds: by their score, of equal scores by their age, and of equal ages by their place. A round is
decided by counting the digits of what is compared, so nothing is sorted and nothing copied: a row that competes takes
`COMPETING` bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.window.judgement import Judgement
from penstock.kernels.window.policy import Candidates
from penstock.kernels.window.side import SideRows
from penstock.kernels.window.windows import Clock

F64 = npt.NDArray[np.float64]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

#: With more rows than this, a tenth of them goes at the least, so that all rows are scored once for many evictions.
_MANY = 4_096
_SPARE = 10
#: Bytes for each row that competes; and for each of those that are scored at once, at the most.
COMPETING = 9
SCORING = 128
_STAYS, _GOES, _COMPETES = np.uint8(0), np.uint8(1), np.uint8(2)
_SIGN = np.uint64(1 << 63)


def with_spare(excess: float, limit: float, rows: int) -> float:
    """How much to free where `excess` must be."""
    return max(excess, limit / _SPARE) if rows > _MANY else excess


class Contest:
    """The waiting rows of one side, scored `at_once` at a time."""

    def __init__(
        self, side: int, rows: SideRows, judgement: Judgement, clock: Clock, step: int, at_once: int = 4_096
    ) -> None:
        self.side = side
        self.sizes, self.entry = rows.column("sizes"), rows.entry
        self.ranks = np.empty(len(rows), np.uint64)
        self.state = np.full(len(rows), _COMPETES)
        self._rows, self._judgement, self._clock = rows, judgement, clock
        self._parts = [(begin, min(begin + at_once, len(rows))) for begin in range(0, len(rows), at_once)]
        for begin, end in self._parts:
            candidates = self._candidates(begin, end)
            scores = judgement.scores(candidates, step)
            # What has left the window goes first.
            self.ranks[begin:end] = ascending(np.where(candidates.life < 0, -np.inf, scores))

    def _candidates(self, begin: int, end: int) -> Candidates:
        return self._judgement.waiting(self.side, self._rows, self._clock, begin, end)

    def rank_by_age(self) -> None:
        """Let those that still compete do so by age, the oldest first."""
        for begin, end in self._parts:
            equal = self.state[begin:end] == _COMPETES
            if equal.any():
                oldest = ~self._candidates(begin, end).age.astype(np.uint64)
                self.ranks[begin:end][equal] = oldest[equal] ^ _SIGN

    @property
    def gone(self) -> Mask:
        """Which rows go."""
        return self.state == _GOES


def ascending(scores: F64) -> U64:
    """Numbers in the order of the scores.

    >>> ascending(np.array([-np.inf, -2.0, -0.0, 0.0, 1.0, np.inf])).argsort(kind="stable").tolist()
    [0, 1, 2, 3, 4, 5]
    """
    bits = (scores + 0.0).view(np.int64)
    return (bits ^ ((bits >> 63) | np.int64(-(1 << 63)))).view(np.uint64)


def decide(sides: Sequence[Contest], free: float) -> None:
    """Say for each row of the sides whether it goes: at least `free` bytes are freed, and no more than must be."""
    free = _round(sides, free)
    if free > 0:
        for one in sides:
            one.rank_by_age()
        free = _round(sides, free)
    for one in sides:
        free = _take_first(one.sizes, one.state, one.entry, free)


def _round(sides: Sequence[Contest], free: float) -> float:
    """Those that are surely among the lowest go, those that surely are not stay; what is then still to be freed."""
    prefix = np.uint64(0)
    for shift in range(56, -1, -8):
        counted = np.zeros(256)
        for one in sides:
            _count(one.ranks, one.sizes, one.state, one.entry, np.uint64(shift), prefix, counted)
        sums = np.cumsum(counted)
        digit = int(np.searchsorted(sums, free))
        if digit == len(sums):
            # All of them are not enough: all go.
            prefix = np.uint64(2**64 - 1)
            break
        free -= sums[digit - 1] if digit else 0.0
        prefix |= np.uint64(digit << shift)
    for one in sides:
        _mark(one.ranks, one.state, prefix)
    return float(free)


@njit(cache=True)
def _count(ranks: U64, sizes: Any, state: Any, entry: int, shift: Any, prefix: Any, counted: F64) -> None:
    """Add the bytes of competing rows whose rank begins like `prefix`, by the next digit of it."""
    above = np.uint64(0) if shift == 56 else np.uint64(~np.uint64(0)) << (shift + np.uint64(8))
    for place in range(len(ranks)):
        if state[place] == 2 and ranks[place] & above == prefix:
            counted[(ranks[place] >> shift) & np.uint64(255)] += sizes[place] / 8 + entry


@njit(cache=True)
def _mark(ranks: U64, state: Any, limit: Any) -> None:
    """Of competing rows those below the limit go, those above it stay."""
    for place in range(len(ranks)):
        if state[place] == 2 and ranks[place] != limit:
            state[place] = 1 if ranks[place] < limit else 0


@njit(cache=True)
def _take_first(sizes: Any, state: Any, entry: int, free: float) -> float:
    """Of those that still compete the first go, until it is enough."""
    for place in range(len(sizes)):
        if state[place] == 2:
            state[place] = 1 if free > 0 else 0
            if free > 0:
                free -= sizes[place] / 8 + entry
    return free
