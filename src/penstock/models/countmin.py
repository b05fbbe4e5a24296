"""Weights by 64-bit hash in a fixed number of bytes: a count-min sketch with conservative update."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
Cells = npt.NDArray[Any]

#: Rows of cells; an estimate is beyond its bound with a probability of at most e ** -4, below 2%.
DEPTH = 4
_ODD = np.uint64(0x9AA243CD356EF103)
_STEP = np.uint64(0x8E00509F8ED67791)


class CountMin:
    """Weights that are never too small, and rarely much too large.

    Guarantees
        An estimate is at least the true weight, and exceeds it by at most `bound()` (e / width of all that was added)
        with probability 1 - e ** -4 for each hash: `test_count_min_keeps_its_bound`.
        The sum of two sketches keeps both promises for the sum of their streams: `test_merged_sketches_keep_the_bound`.
    State and cost
        Four rows of cells in `nbytes` bytes, never more; four cache misses for each hash. Cells of 4 bytes count whole
        numbers up to 2 ** 32 - 1, those of 8 bytes any weight.
    Source
        Cormode and Muthukrishnan's count-min sketch; conservative update as in Estan and Varghese.
    """

    def __init__(self, nbytes: int, *, fractions: bool = False) -> None:
        size = 8 if fractions else 4
        self.cells: Cells = np.zeros((DEPTH, max(nbytes // (DEPTH * size), 1)), np.float64 if fractions else np.uint32)
        self.total = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.cells.nbytes

    def add(self, hashes: U64, weights: F64 | float = 1.0) -> None:
        """Add to the weights of these hashes; the cells depend on the order in which they come, the promises do not."""
        each = np.atleast_1d(np.asarray(weights, np.float64))
        self.total += float(each.sum()) if each.size > 1 else float(each[0]) * len(hashes)
        _add(self.cells, hashes, each)

    def find(self, hashes: U64) -> F64:
        """The estimate for each hash."""
        found = np.empty(len(hashes), np.float64)
        _find(self.cells, hashes, found)
        return found

    def scale(self, factor: float) -> None:
        """Multiply all weights."""
        self.cells *= factor
        self.total *= factor

    def merge(self, other: CountMin, factor: float = 1.0) -> None:
        """Become the sketch of both streams, the other's weights times `factor`."""
        if other.cells.shape != self.cells.shape or other.cells.dtype != self.cells.dtype:
            raise ValueError(f"A sketch of {other.cells.shape} cells cannot be added to one of {self.cells.shape}.")
        for mine, theirs in zip(self.cells, other.cells, strict=True):
            mine += theirs if factor == 1.0 else theirs * factor
        self.total += other.total * factor

    def bound(self) -> float:
        """What an estimate exceeds the true weight by, at most, with probability 1 - e ** -4."""
        return math.e / self.cells.shape[1] * self.total


@njit(cache=True)
def _cell(hashed: np.uint64, row: int, width: int) -> np.int64:
    word = (hashed + np.uint64(row + 1) * _STEP) * _ODD
    word = (word ^ (word >> np.uint64(29))) * _STEP
    # A number of 32 bits times the width, over 2 ** 32: a cell, without a division.
    return np.int64(((word >> np.uint64(32)) * np.uint64(width)) >> np.uint64(32))


@njit(cache=True)
def _least(cells: Cells, hashed: np.uint64) -> float:
    rows, width = cells.shape
    least = np.inf
    for row in range(rows):
        least = min(least, float(cells[row, _cell(hashed, row, width)]))
    return least


@njit(cache=True)
def _add(cells: Cells, hashes: U64, each: F64) -> None:
    rows, width = cells.shape
    step = 1 if each.size > 1 else 0
    for i in range(hashes.size):
        # Only cells below the new estimate rise: no hash needs more, and those that share a cell gain less.
        raised = _least(cells, hashes[i]) + each[i * step]
        for row in range(rows):
            at = _cell(hashes[i], row, width)
            if cells[row, at] < raised:
                cells[row, at] = raised


@njit(cache=True)
def _find(cells: Cells, hashes: U64, found: F64) -> None:
    for i in range(hashes.size):
        found[i] = _least(cells, hashes[i])
