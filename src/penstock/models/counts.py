"""A weight for each 64-bit hash, exact: one flat table with open addressing, that grows up to a limit of bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.errors import KernelFault

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

#: Bytes of a place: a hash and a weight.
PLACE = 16
_LEAST = 64
#: Weights that decay are dropped from the table once they are below this.
NEGLIGIBLE = 2.0**-10
# Hashes of one slot share their leading bits; the product spreads what differs over the leading bits again.
_MIX = np.uint64(0xEB1A988B871F19D1)


class CountTable:
    """Weights by hash, as long as they fit.

    Guarantees
        Every weight is exact: `test_exact_counts_equal_a_dictionary`.
        Never above `limit` bytes, but for the moment of growing: `test_never_above_the_budget`.
    State and cost
        16 bytes a place, at most seven eighths of the places taken. While it grows, old and new places are held at
        once: less than twice `limit`. About one cache miss for each hash.

    A place is free where its weight is 0, so weights are positive.

    >>> table = CountTable(1 << 20)
    >>> table.add(np.array([7, 9, 7], np.uint64))
    3
    >>> table.find(np.array([7, 8], np.uint64)).tolist()
    [2.0, 0.0]
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._hashes = np.zeros(_LEAST, np.uint64)
        self._weights = np.zeros(_LEAST, np.float64)
        self.peak = self.nbytes

    @property
    def nbytes(self) -> int:
        """Bytes held now; `peak` has the most so far."""
        return self._hashes.nbytes + self._weights.nbytes

    def add(self, hashes: U64, weights: F64 | float = 1.0) -> int:
        """Add to the weights of these hashes, repeats included; say how many were taken before there was no room."""
        each = np.atleast_1d(np.asarray(weights, np.float64))
        taken = 0
        while True:
            taken, self.used = _add(self._hashes, self._weights, hashes, each, taken, self.used)
            if taken == len(hashes) or not self._grow():
                return taken

    def number(self, hashes: U64) -> I64:
        """Which occurrence of its hash each one is, from 0 on, counting all that came before; all are added.

        >>> table = CountTable(1 << 20)
        >>> table.number(np.array([7, 9, 7], np.uint64)).tolist(), table.number(np.array([7], np.uint64)).tolist()
        ([0, 0, 1], [2])
        """
        numbers = np.empty(len(hashes), np.int64)
        taken = 0
        while True:
            taken, self.used = _number(self._hashes, self._weights, hashes, numbers, taken, self.used)
            if taken == len(hashes):
                return numbers
            if not self._grow():
                raise KernelFault(f"{self.used} hashes are more than can be numbered in {self.limit} bytes.")

    def find(self, hashes: U64) -> F64:
        """The weight of each hash; 0 for one that never came."""
        found = np.empty(len(hashes), np.float64)
        _find(self._hashes, self._weights, hashes, found)
        return found

    def items(self) -> tuple[U64, F64]:
        """Hashes and their weights, by hash: the same for the same counts, in whatever order they came."""
        held = np.flatnonzero(self._weights)
        held = held[np.argsort(self._hashes[held])]
        return self._hashes[held], self._weights[held]

    def drain(self, slice_rows: int = 65_536) -> Iterator[tuple[U64, F64]]:
        """As `items`, in slices, with 8 bytes a hash beside the table; the table is of no use afterwards."""
        used = _compact(self._hashes, self._weights)
        order = np.argsort(self._hashes[:used])
        for start in range(0, used, slice_rows):
            part = order[start : start + slice_rows]
            yield self._hashes[part], self._weights[part]

    def scale(self, factor: float) -> None:
        """Multiply all weights, and forget those that become negligible."""
        self._weights *= factor
        self._rebuild(len(self._hashes), NEGLIGIBLE)

    def _grow(self) -> bool:
        places = min(2 * len(self._hashes), self.limit // PLACE)
        # Every hash is moved: not worth it for a few more places.
        if places < 1.125 * len(self._hashes):
            return False
        self._rebuild(places, 0.0)
        return True

    def _rebuild(self, places: int, least: float) -> None:
        self.peak = max(self.peak, self.nbytes + PLACE * places)
        hashes, weights = np.zeros(places, np.uint64), np.zeros(places, np.float64)
        self.used = _move(self._hashes, self._weights, hashes, weights, least)
        self._hashes, self._weights = hashes, weights


@njit(cache=True)
def _place(held: U64, weights: F64, wanted: np.uint64) -> np.int64:
    size = np.uint64(held.size)
    # The high half of the product times the size, over 2 ** 32: a place, without a division.
    at = np.int64((((wanted * _MIX) >> np.uint64(32)) * size) >> np.uint64(32))
    while weights[at] != 0.0 and held[at] != wanted:
        at += 1
        if at == held.size:
            at = np.int64(0)
    return at


@njit(cache=True)
def _add(held: U64, weights: F64, hashes: U64, each: F64, start: int, used: int) -> tuple[int, int]:
    most = held.size * 7 // 8
    step = 1 if each.size > 1 else 0
    for i in range(start, hashes.size):
        at = _place(held, weights, hashes[i])
        if weights[at] == 0.0:
            if used == most:
                return i, used
            held[at] = hashes[i]
            used += 1
        weights[at] += each[i * step]
    return hashes.size, used


@njit(cache=True)
def _number(held: U64, weights: F64, hashes: U64, numbers: I64, start: int, used: int) -> tuple[int, int]:
    most = held.size * 7 // 8
    for i in range(start, hashes.size):
        at = _place(held, weights, hashes[i])
        if weights[at] == 0.0:
            if used == most:
                return i, used
            held[at] = hashes[i]
            used += 1
        numbers[i] = np.int64(weights[at])
        weights[at] += 1.0
    return hashes.size, used


@njit(cache=True)
def _find(held: U64, weights: F64, hashes: U64, found: F64) -> None:
    for i in range(hashes.size):
        found[i] = weights[_place(held, weights, hashes[i])]


@njit(cache=True)
def _move(held: U64, weights: F64, to_held: U64, to_weights: F64, least: float) -> int:
    moved = 0
    for i in range(held.size):
        if weights[i] > 0.0 and weights[i] >= least:
            at = _place(to_held, to_weights, held[i])
            to_held[at] = held[i]
            to_weights[at] = weights[i]
            moved += 1
    return moved


@njit(cache=True)
def _compact(held: U64, weights: F64) -> int:
    used = 0
    for i in range(held.size):
        if weights[i] > 0.0:
            held[used] = held[i]
            weights[used] = weights[i]
            used += 1
    return used
