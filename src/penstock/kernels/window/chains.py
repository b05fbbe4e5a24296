"""Rows by key hash, in chains: two flat arrays, linked and probed by compiled code.

A bucket has the number of its newest entry, and each entry that of the next older one. So a chain is walked from new to
old, and an entry below `first` (dropped since) ends it: whatever is dropped from the front need not be unlinked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.window.windows import Reach

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

END = -1
#: In a pair as one number: bits of the probe, below those of the entry.
PROBE = 32
_PROBES = (1 << PROBE) - 1
#: Probes whose first entries are looked up together.
_TOGETHER = 64


class Entries(NamedTuple):
    """What a probing row sees of the other side; entries from `first` on are there."""

    heads: I32
    nexts: I32
    hashes: U64
    moments: I64
    numbers: I64
    first: int


class Probes(NamedTuple):
    """Rows that look for partners. Each meets entries whose number is below its `before`: those that came earlier."""

    hashes: U64
    moments: I64
    before: I64


class Cursor(NamedTuple):
    """Where probing stopped because the output was full: the probe, and the entry it is at."""

    probe: int = 0
    entry: int = END


def buckets_for(entries: int) -> int:
    """A power of two, at most as many as entries (but for a few) and more than half as many.

    >>> buckets_for(0), buckets_for(32), buckets_for(63)
    (16, 32, 32)
    """
    return 1 << max(entries.bit_length() - 1, 4)


def probe(entries: Entries, probes: Probes, reach: Reach, at: Cursor, out: I64) -> tuple[int, Cursor]:
    """Write pairs from `at` on, the entry above `PROBE` bits of the probe; say how many, and where it stopped.

    Finished past the last probe.
    """
    count, number, entry = _probe(
        entries.heads, entries.nexts, entries.hashes, entries.moments, entries.numbers, entries.first,
        probes.hashes, probes.moments, probes.before, reach.low, reach.high, reach.rows, at.probe, at.entry, out,
    )  # fmt: skip
    return count, Cursor(number, entry)


def count(entries: Entries, probes: Probes, reach: Reach) -> int:
    """How many pairs there are."""
    return int(
        _count(
            entries.heads, entries.nexts, entries.hashes, entries.moments, entries.numbers, entries.first,
            probes.hashes, probes.moments, probes.before, reach.low, reach.high, reach.rows,
        )
    )  # fmt: skip


@njit(cache=True)
def divide(pairs: I64, begins: I64, cuts: I64, probing: I32, met: I32) -> None:
    """Put pairs in the order of the blocks that their entries are in, which begin at `begins`.

    `probing` has the probe of each, `met` the place of its entry in the block, and `cuts` where the pairs of each block
    begin.
    """
    blocks = begins.size - 1
    cuts[:] = 0
    for pair in pairs:
        cuts[_block(begins, blocks, pair >> PROBE) + 1] += 1
    for block in range(blocks):
        cuts[block + 1] += cuts[block]
    for pair in pairs:
        block = _block(begins, blocks, pair >> PROBE)
        to = cuts[block]
        cuts[block] = to + 1
        probing[to] = np.int32(pair & _PROBES)
        met[to] = np.int32((pair >> PROBE) - begins[block])
    for block in range(blocks, 0, -1):
        cuts[block] = cuts[block - 1]
    cuts[0] = 0


@njit(cache=True)
def _block(begins: I64, blocks: int, entry: int) -> int:
    low, high = 0, blocks - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if begins[middle] <= entry:
            low = middle
        else:
            high = middle - 1
    return low


@njit(cache=True)
def link(heads: I32, nexts: I32, hashes: U64, begin: int, end: int) -> None:
    """Put entries at the front of their chains, in order."""
    mask = np.uint64(heads.size - 1)
    for entry in range(begin, end):
        bucket = np.int64(hashes[entry] & mask)
        nexts[entry] = heads[bucket]
        heads[bucket] = np.int32(entry)


@njit(cache=True)
def shift(links: I32, by: int) -> None:
    """Renumber entries, the first `by` of which are gone."""
    for i in range(links.size):
        links[i] = max(links[i] - by, END)


@njit(cache=True)
def move(array: Any, begin: int, end: int) -> None:
    """Put the entries from `begin` on to the front, in their place."""
    for entry in range(begin, end):
        array[entry - begin] = array[entry]


@njit(cache=True)
def squeeze(array: Any, first: int, stay: Any) -> None:
    """Put those of the entries from `first` on that stay to the front, in their place."""
    to = 0
    for place in range(stay.size):
        if stay[place]:
            array[to] = array[first + place]
            to += 1


@njit(cache=True)
def _probe(
    heads: I32, nexts: I32, hashes: U64, moments: I64, numbers: I64, first: int,
    p_hashes: U64, p_moments: I64, p_before: I64, low: int, high: int, rows: int, at: int, entry: int, out: I64,
) -> tuple[int, int, int]:  # fmt: skip
    mask = np.uint64(heads.size - 1)
    room = out.size
    found = 0
    # The first entries of some chains are looked up before the first of them is needed: memory answers many at once.
    newest = np.empty(_TOGETHER, np.int32)
    second = np.empty(_TOGETHER, np.int32)
    theirs = np.empty(_TOGETHER, np.uint64)
    for begin in range(at, p_hashes.size, _TOGETHER):
        end = min(begin + _TOGETHER, p_hashes.size)
        for p in range(begin, end):
            newest[p - begin] = heads[np.int64(p_hashes[p] & mask)]
        for p in range(begin, end):
            one = max(newest[p - begin], 0)
            theirs[p - begin] = hashes[one]
            second[p - begin] = nexts[one]
        for p in range(begin, end):
            h = p_hashes[p]
            if entry == END:
                entry = newest[p - begin]
                if entry >= first and theirs[p - begin] != h:
                    entry = second[p - begin]
            before = p_before[p]
            least, most = p_moments[p] + low, p_moments[p] + high
            while entry >= first:
                if hashes[entry] == h and least <= moments[entry] <= most:
                    number = numbers[entry]
                    if number < before and before - number <= rows:
                        if found == room:
                            return found, p, entry
                        out[found] = (np.int64(entry) << PROBE) | p
                        found += 1
                entry = nexts[entry]
            entry = END
    return found, p_hashes.size, END


@njit(cache=True)
def _count(
    heads: I32, nexts: I32, hashes: U64, moments: I64, numbers: I64, first: int,
    p_hashes: U64, p_moments: I64, p_before: I64, low: int, high: int, rows: int,
) -> int:  # fmt: skip
    mask = np.uint64(heads.size - 1)
    found = 0
    for p in range(p_hashes.size):
        h = p_hashes[p]
        before = p_before[p]
        least, most = p_moments[p] + low, p_moments[p] + high
        entry = heads[np.int64(h & mask)]
        while entry >= first:
            if hashes[entry] == h and least <= moments[entry] <= most:
                number = numbers[entry]
                found += number < before and before - number <= rows
            entry = nexts[entry]
    return found
