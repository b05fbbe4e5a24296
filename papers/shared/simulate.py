"""A discrete-event simulation of shared window joins: the kernel's own scan, with a clock that arrivals share.

The scan (`penstock.kernels.shared.scan`) counts time in units of work. Here a second has so many units as make the
processor busy for a given share of the time, rows arrive at their own moments, and a row that arrives during a job
waits for its end. Before the first counted arrival both windows are full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.kernels.shared.greedy import Greedy
from penstock.kernels.shared.lwo import LWO
from penstock.kernels.shared.scan import (
    UNKNOWN,
    Levels,
    Outers,
    Rule,
    Store,
    Tally,
    advance,
    first_partner,
    new_tally,
)
from penstock.kernels.shared.scheduler import Scheduler
from penstock.kernels.shared.swf import SWF
from penstock.kernels.window.chains import END, buckets_for, link
from penstock.kernels.window.windows import FAR

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

SCHEDULERS: dict[str, Scheduler] = {"LWO": LWO(), "SWF": SWF(), "Greedy": Greedy()}
_OUT = 1 << 18


class Rows(NamedTuple):
    """Rows of one side in order: moments in units of work, and keys."""

    moments: I64
    keys: I64


class Outcome(NamedTuple):
    """For each window, in the order of sizes: mean and longest response in seconds, and pairs; for the whole the most
    rows with jobs left and pairs held at once.
    """

    mean: F64
    worst: F64
    pairs: I64
    queue: int
    held: int

    @property
    def overall(self) -> float:
        """The mean over the windows of the mean of each."""
        return float(self.mean.mean())

    @property
    def by_result(self) -> float:
        """The mean over all results of all queries: wide windows have most of them."""
        return float((self.mean * self.pairs).sum() / self.pairs.sum())


@dataclass(frozen=True)
class Load:
    """Two streams of `rate` rows a second each, `arrivals` of them counted; windows in seconds.

    `busy` is the share of time that the processor works. Bursts have a Pareto-distributed number of rows that arrive at
    once, `burst` on average; 1 is none.
    """

    windows: tuple[float, ...]
    rate: float = 100.0
    selectivity: float = 0.002
    arrivals: int = 100_000
    busy: float = 0.9
    burst: float = 1.0
    hashed: bool = True

    @property
    def units(self) -> float:
        """Units of work in a second."""
        reached = self.rate * max(self.windows)
        matches = self.selectivity * reached
        looked = matches if self.hashed else reached
        return 2 * self.rate * (looked + matches + 1) / self.busy

    def streams(self, seed: int) -> tuple[Rows, Rows, int]:
        """Both sides, and from which moment on arrivals count."""
        rng = np.random.default_rng(seed)
        fill = max(self.windows)
        length = fill + self.arrivals / (2 * self.rate)
        made = []
        for _ in (0, 1):
            seconds = self._times(rng, length)
            keys = rng.integers(0, round(1 / self.selectivity), len(seconds))
            made.append(Rows((seconds * self.units).astype(np.int64), keys))
        return made[0], made[1], int(fill * self.units)

    def _times(self, rng: np.random.Generator, length: float) -> F64:
        bursts = int(self.rate / self.burst * length)
        begins = np.cumsum(rng.exponential(1.0, bursts))
        begins *= length / begins[-1]
        if self.burst == 1.0:
            return begins
        shape = self.burst / (self.burst - 1)
        # Pareto from 1 on; rounded up or down at random, so that the mean stays.
        sizes = np.floor(1 + rng.pareto(shape, bursts) + rng.random(bursts)).astype(np.int64)
        sizes = np.maximum(np.floor(sizes * self.rate * length / sizes.sum() + rng.random(bursts)), 0).astype(np.int64)
        return np.repeat(begins, sizes)


def simulate(load: Load, scheduler: Scheduler, seed: int = 0) -> Outcome:
    """Run one scheduler."""
    left, right, begin = load.streams(seed)
    windows = np.sort(np.round(np.array(load.windows) * load.units).astype(np.int64))
    # By the windows themselves: rounded, equal steps between them would not be equal.
    order = scheduler.order(np.sort(np.round(np.array(load.windows) * 1e6).astype(np.int64)))
    tally = run(left, right, windows, order, scheduler.early, begin=begin, hashed=load.hashed)
    pairs = np.maximum(tally.pairs, 1)
    return Outcome(
        tally.total / pairs / load.units,
        tally.worst / load.units,
        tally.pairs,
        int(tally.most[1]),
        int(tally.most[0]),
    )


def run(
    left: Rows, right: Rows, windows: I64, order: I64, early: bool, *, begin: int, hashed: bool = True,
    lookup: int = 1, pair: int = 1, at_once: bool = False,
) -> Tally:  # fmt: skip
    """The scan over all rows; those from moment `begin` on look for partners, the others only wait for them.

    With `at_once` they are all there from the beginning, as the rows of a micro-batch are.
    """
    stores = [_store(side) for side in (left, right)]
    moments = np.concatenate([left.moments, right.moments])
    sides = np.repeat(np.array([0, 1], np.uint8), [len(left.moments), len(right.moments)])
    turns = np.lexsort((sides, moments))
    moments, sides = moments[turns], sides[turns]
    lefts, rights = np.cumsum(sides == 0), np.cumsum(sides == 1)
    numbers, before = np.where(sides == 0, lefts, rights) - 1, np.where(sides == 0, rights, lefts)
    base = int(np.searchsorted(moments, begin))
    moments, sides, numbers, before = (column[base:].copy() for column in (moments, sides, numbers, before))
    cursors = before - 1
    if hashed:
        for side in (0, 1):
            mine = np.flatnonzero(sides == side)
            found = np.empty(len(mine), np.int64)
            first_partner(stores[1 - side], stores[side].hashes[numbers[mine]], before[mine], found)
            cursors[mine] = found
    arrived = np.full_like(moments, begin) if at_once else moments
    unknown = np.full(len(sides), UNKNOWN)
    outers = Outers(base, sides, numbers, before, cursors, unknown, np.zeros(len(sides), np.int32), arrived)
    count = len(windows)
    levels = Levels(windows, np.zeros(count, np.int64), np.full(count, FAR), np.full(count, base), order)
    rule = Rule(hashed, False, early, 0, 0, lookup, pair)
    tally = new_tally(count, begin, base)
    out = np.empty(_OUT, np.int64), np.empty(_OUT, np.int64)
    while advance(stores[0], stores[1], outers, levels, rule, tally, FAR, *out)[0] == _OUT:
        pass
    return tally


def _store(rows: Rows) -> Store:
    count = len(rows.keys)
    hashes = rows.keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    heads, nexts = np.full(buckets_for(count), END, np.int32), np.empty(count, np.int32)
    link(heads, nexts, hashes, 0, count)
    return Store(heads, nexts, hashes, rows.moments, 0, 0)
