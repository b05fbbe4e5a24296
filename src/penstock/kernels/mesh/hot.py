"""Which key hashes are worth a place in the front cache of a mesh join: those that save more window than they take."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.kernels.measure import Sizes
from penstock.kernels.mesh.index import U64

#: Bytes that a hash takes while it is counted.
SAMPLE_BYTES = 32
#: A hash that was seen once may never be seen again.
_LEAST_SEEN = 2


class Sample(NamedTuple):
    """How often hashes came among some rows, and how often among as many others.

    Those that came most came most by chance, too: the first number says which they are, the second what they are worth.
    """

    hashes: U64
    counts: Sizes
    again: Sizes
    rows: int

    def but(self, known: U64) -> Sample:
        """Without these hashes."""
        fresh = np.isin(self.hashes, known, invert=True)
        return Sample(self.hashes[fresh], self.counts[fresh], self.again[fresh], self.rows)


def sample(hashes: U64) -> Sample:
    """Count a half of the hashes, and then the other; a hash that came once is left out.

    >>> sample(np.array([5, 5, 5, 6, 7, 5, 5, 8], np.uint64))
    Sample(hashes=array([5], dtype=uint64), counts=array([3.]), again=array([2.]), rows=5)
    """
    # Drawn, always alike: keys may come in turns, so that every second row never has some of them.
    half = np.random.default_rng(0).integers(0, 2, len(hashes)).astype(np.bool_)
    first, other = hashes[half], hashes[~half]
    found, counts = np.unique(first, return_counts=True)
    often = counts >= _LEAST_SEEN
    found, counts = found[often], counts[often]
    again = np.zeros(len(found))
    if len(found):
        at = np.minimum(np.searchsorted(found, other), len(found) - 1)
        again += np.bincount(at[found[at] == other], minlength=len(found))
    return Sample(found, counts.astype(np.float64), again, len(other))


class Pick(NamedTuple):
    """The best hashes, best first, and how many passes a step like the last one takes with them."""

    hashes: U64
    passes: float


def best(hashes: U64, rank: Sizes, saves: Sizes, takes: Sizes, total: float, room: float, most: float) -> Pick:
    """Of hashes in the order of `rank`, those with which `total` bytes of rows need the fewest passes.

    With `s` bytes answered from a cache of `c` bytes a step needs `(total - s) / (room - c)` passes, and never less
    than one; the cache may have up to `most`. Of choices that are equally good this is the smallest.

    >>> saves = np.array([90.0, 1.0, 50.0])
    >>> pick = best(np.array([1, 2, 3], np.uint64), saves, saves, np.full(3, 5.0), 400.0, 100.0, 25.0)
    >>> pick.hashes.tolist(), round(pick.passes, 2)
    ([1, 3], 2.89)
    """
    order = np.argsort(-rank, kind="stable")
    saved = np.concatenate([np.zeros(1), np.cumsum(saves[order])])
    taken = np.concatenate([np.zeros(1), np.cumsum(takes[order])])
    fits = taken <= most
    passes = np.maximum((total - saved[fits]) / (room - taken[fits]), 1.0)
    at = int(np.argmin(passes))
    return Pick(hashes[order[:at]], float(passes[at]))
