"""What becomes of runs: further conditions cut them, results need them partner by partner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from penstock.kernels.standing.search import F64, I32, I64, write

#: Runs, and pairs, put down at once.
PIECE = 16_384


class Further(NamedTuple):
    """Conditions beyond the two ranges that indexes are made of.

    Column `i` of `own` and `across` has its range in columns `own_at + 2i` and `across_at + 2i` (from, to) of
    `bounds`. With `within` below 0 times do not matter.
    """

    bounds: F64
    own: F64
    own_at: int
    across: F64
    across_at: int
    row_times: I64
    partner_times: I64
    within: int

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self.own.shape[1] + self.across.shape[1] > 0 or self.within >= 0


def cut(runs: I32, further: Further) -> Iterator[I32]:
    """The parts of runs that meet every further condition, in pieces; each is overwritten by the next."""
    out = np.empty((PIECE, 4), np.int32)
    run, partner = 0, -1
    while run < len(runs):
        run, partner, found = _cut(runs, run, partner, further, out)
        if found:
            yield out[:found]


def pairs(runs: I32) -> Iterator[I32]:
    """(row, query, partner), one by one, in pieces; each is overwritten by the next."""
    out = np.empty((PIECE, 3), np.int32)
    run, partner = 0, -1
    while run < len(runs):
        run, partner, found = _pairs(runs, run, partner, out)
        if found:
            yield out[:found]


@njit(cache=True)
def _meets(values: F64, bounds: F64, at: int) -> bool:
    for column in range(values.size):
        if not bounds[at + 2 * column] <= values[column] <= bounds[at + 2 * column + 1]:
            return False
    return True


@njit(cache=True)
def _cut(runs: I32, run: int, partner: int, further: Further, out: I32) -> tuple[int, int, int]:
    found = 0
    while run < runs.shape[0]:
        row, query, first, last = runs[run]
        bounds = further.bounds[query]
        if partner < 0:
            partner = first if _meets(further.own[row], bounds, further.own_at) else last
        begin = -1
        while partner < last:
            met = _meets(further.across[partner], bounds, further.across_at)
            if further.within >= 0:
                met = met and abs(further.row_times[row] - further.partner_times[partner]) <= further.within
            if met and begin < 0:
                if found == out.shape[0]:
                    return run, partner, found
                begin = partner
            if not met and begin >= 0:
                found = write(out, found, row, query, begin, partner)
                begin = -1
            partner += 1
        if begin >= 0:
            found = write(out, found, row, query, begin, last)
        run, partner = run + 1, -1
    return run, partner, found


@njit(cache=True)
def _pairs(runs: I32, run: int, partner: int, out: I32) -> tuple[int, int, int]:
    found = 0
    while run < runs.shape[0]:
        if partner < 0:
            partner = runs[run, 2]
        while partner < runs[run, 3]:
            if found == out.shape[0]:
                return run, partner, found
            out[found, 0], out[found, 1], out[found, 2] = runs[run, 0], runs[run, 1], partner
            found += 1
            partner += 1
        run, partner = run + 1, -1
    return run, partner, found


@njit(cache=True)
def count(runs: I32, counts: I64) -> None:
    """Add to each query's count the pairs of its runs."""
    for run in range(runs.shape[0]):
        counts[runs[run, 1]] += runs[run, 3] - runs[run, 2]
