"""How many intervals of a set contain a point: exactly, and by histograms with few buckets (003, §4.4).

Three ways to make one. *Equal width*: cheap to keep up to date. *Optimal*: dynamic programming over all places where
the number changes; too slow for many intervals. *SSI*: group by group of the canonical stabbing partition; left of a
group's stabbing point the number of its intervals only rises and right of it only falls, so the best buckets of a
flank are a weighted one-dimensional k-means of its heights (Lemma 14), and the histogram is the sum of all flanks.

The error to be made small is the mean squared relative one: a point weighs φ(x)/f(x)², where φ is how likely it is
asked and f the true number (4.1). Here φ is uniform over the places asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.errors import BadOption

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

#: A flank is described by at most so many steps before buckets are chosen: finer ones change nothing that can be seen.
_STEPS = 256
#: No flank gets more buckets.
_MOST = 16
#: How many buckets are given to one flank at a time, at the most.
_AHEAD = 2
#: Where the error of the whole is looked at.
_PLACES = 2_000


@dataclass(frozen=True)
class Steps:
    """A step function: `heights[i]` from `edges[i]` up to `edges[i + 1]`; 0 before the first and after the last."""

    edges: F64
    heights: F64

    def __call__(self, points: F64) -> F64:
        """The height at each point."""
        at = np.searchsorted(self.edges, points, side="right") - 1
        inside = (at >= 0) & (at < len(self.heights))
        if not len(self.heights):
            return np.zeros(len(points))
        return np.where(inside, self.heights[np.clip(at, 0, len(self.heights) - 1)], 0.0)

    @property
    def buckets(self) -> int:
        """How many heights there are that are not 0."""
        return int((self.heights != 0).sum())


def stabbed(lo: F64, hi: F64, points: F64) -> F64:
    """How many closed intervals contain each point, exactly.

    >>> stabbed(np.array([0.0, 1.0]), np.array([2.0, 3.0]), np.array([1.5, 2.5, 9.0])).tolist()
    [2.0, 1.0, 0.0]
    """
    begun = np.searchsorted(np.sort(lo), points, side="right")
    over = np.searchsorted(np.sort(hi), points, side="left")
    return (begun - over).astype(np.float64)


class EqualWidth:
    """Buckets of one width over a range; an interval adds to each the share of it that it covers.

    State and cost
        8 bytes a bucket; adding or removing intervals costs a little for each, whatever their length.

    >>> histogram = EqualWidth(0.0, 10.0, 10)
    >>> histogram.add(np.array([2.0]), np.array([4.5]))
    >>> histogram(np.array([1.0, 3.0, 4.2])).tolist()
    [0.0, 1.0, 0.5]
    """

    def __init__(self, low: float, high: float, buckets: int) -> None:
        if buckets < 1:
            raise BadOption(f"A histogram with {buckets} buckets is none.", do="Give at least 1.")
        # Ends that lie further apart than the largest number are halved first.
        self._scale = 1.0 if math.isfinite(high - low) else 0.5
        self.low = low * self._scale
        self.width = (high * self._scale - self.low) / buckets or 1.0
        self.buckets = buckets
        # What begins in a bucket raises all later ones by the same: two small arrays instead of every bucket touched.
        self._partial = np.zeros(buckets + 1)
        self._whole = np.zeros(buckets + 2)
        self._heights: F64 | None = None

    def add(self, lo: F64, hi: F64, sign: float = 1.0) -> None:
        """Intervals that came; or, with sign -1, that went."""
        self._heights = None
        first, last = self._places(lo), self._places(hi)
        begin, end = (np.minimum(at.astype(np.int64), self.buckets - 1) for at in (first, last))
        # From the beginning on everything is covered; then what lies before it in its bucket, and after the end, is
        # not.
        np.add.at(self._whole, begin, sign)
        np.add.at(self._whole, end + 1, -sign)
        np.add.at(self._partial, begin, -sign * (first - begin))
        np.add.at(self._partial, end, -sign * (end + 1 - last))

    def __call__(self, points: F64) -> F64:
        """About how many intervals contain each point."""
        if self._heights is None:
            self._heights = np.maximum(np.cumsum(self._whole)[: self.buckets] + self._partial[: self.buckets], 0.0)
        return _heights_at(points, self._heights, self._scale, self.low, self.width)

    def _places(self, ends: F64) -> F64:
        """Where they lie, in buckets from the lowest end."""
        with np.errstate(over="ignore"):
            return np.clip((ends * self._scale - self.low) / self.width, 0, self.buckets)


@njit(cache=True)
def _heights_at(points: F64, heights: F64, scale: float, low: float, width: float) -> F64:
    found = np.empty(points.size)
    for i in range(points.size):
        found[i] = heights[int(min(max((points[i] * scale - low) / width, 0.0), heights.size - 1.0))]
    return found


def optimal(lo: F64, hi: F64, buckets: int, low: float, high: float, places: int = 1_000) -> Steps:
    """The histogram with the least mean squared relative error, over that many places asked: O(places² · buckets)."""
    edges, heights, weights = _profile(lo, hi, low, high, places)
    ends = _best_cuts(heights, weights, buckets)
    return _joined(edges, heights, weights, ends)


def ssi(lo: F64, hi: F64, group: I64, stabs: F64, buckets: int, low: float, high: float) -> list[Steps]:
    """The SSI histogram: flanks whose sum is the estimate.

    `group` and `stabs` are a stabbing partition. Every bucket goes to the flank where it lessens the error of the
    whole the most, and in the end the heights of all are fitted together: flanks overlap, and one can make good what
    another lacks.
    """
    edges, true, weights = _profile(lo, hi, low, high, _PLACES)
    middle = (edges[1:] + edges[:-1]) / 2
    flanks = [_flank(lo, hi, group == g, stab, side) for g, stab in enumerate(stabs) for side in (-1, 1)]
    flanks = [flank for flank in flanks if len(flank.heights)]
    weighed = [np.interp((f.edges[1:] + f.edges[:-1]) / 2, middle, weights) * np.diff(f.edges) for f in flanks]
    tables = [_dynamic(f.heights, w, min(_MOST, len(f.heights)))[1] for f, w in zip(flanks, weighed, strict=True)]

    def with_buckets(at: int, count: int) -> Steps:
        steps, cuts = flanks[at], _ends(tables[at], len(flanks[at].heights), count)
        return _joined(steps.edges, steps.heights, weighed[at], cuts)

    given, parts = [0] * len(flanks), np.zeros((len(flanks), len(middle)))
    while (spare := buckets - sum(given)) > 0:
        lacking = true - parts.sum(axis=0)
        now = float((weights * lacking**2).sum())
        best: tuple[float, int, int, F64] = (0.0, -1, 0, lacking)
        for at, flank in enumerate(flanks):
            # A first bucket alone hardly helps: it has to choose between the height of a flank and its foot.
            for more in range(1, min(_AHEAD, spare, _MOST - given[at], len(flank.heights) - given[at]) + 1):
                guess = with_buckets(at, given[at] + more)(middle)
                left = float((weights * (lacking + parts[at] - guess) ** 2).sum())
                best = max(best, ((now - left) / more, at, more, guess), key=lambda found: found[0])
        _, at, more, guess = best
        if at < 0:
            break
        given[at] += more
        parts[at] = guess
    chosen = [with_buckets(at, count) for at, count in enumerate(given) if count]
    return _fitted(chosen, middle, true, weights)


def _fitted(flanks: list[Steps], points: F64, true: F64, weights: F64) -> list[Steps]:
    """The same buckets with the heights that lessen the error of their sum the most."""
    columns = []
    for flank in flanks:
        for bucket in range(len(flank.heights)):
            alone = np.zeros(len(flank.heights))
            alone[bucket] = 1.0
            columns.append(Steps(flank.edges, alone)(points))
    if not columns:
        return flanks
    root = np.sqrt(weights)
    heights = np.linalg.lstsq(np.stack(columns, axis=1) * root[:, None], true * root, rcond=None)[0]
    ends = np.cumsum([len(flank.heights) for flank in flanks])[:-1]
    return [Steps(f.edges, found) for f, found in zip(flanks, np.split(heights, ends), strict=True)]


def estimate(flanks: list[Steps], points: F64) -> F64:
    """The sum of all flanks at each point."""
    return sum((flank(points) for flank in flanks), np.zeros(len(points)))


def _flank(lo: F64, hi: F64, mine: npt.NDArray[np.bool_], stab: float, side: int) -> Steps:
    """One flank of a group: where its intervals begin, up to the stabbing point, or end, from there on."""
    ends = np.sort(lo[mine]) if side < 0 else np.sort(hi[mine])
    count = len(ends)
    if count == 0:
        return Steps(np.empty(0), np.empty(0))
    # Close together where the flank is low: there one interval more or less is a large part of all.
    chosen = np.unique(np.geomspace(1, count, min(count, _STEPS)).round().astype(np.int64)) - 1
    if side < 0:
        return Steps(np.append(ends[chosen], stab), (chosen + 1).astype(np.float64))
    chosen = (count - 1 - chosen)[::-1]
    # After the i-th end has passed, i + 1 fewer are left.
    heights = np.append(count, count - chosen[:-1] - 1).astype(np.float64)
    return Steps(np.append(stab, ends[chosen]), heights)


def _profile(lo: F64, hi: F64, low: float, high: float, places: int) -> tuple[F64, F64, F64]:
    edges = np.linspace(low, high, places + 1)
    heights = stabbed(lo, hi, (edges[1:] + edges[:-1]) / 2)
    return edges, heights, np.diff(edges) / np.maximum(heights, 1.0) ** 2


def _joined(edges: F64, heights: F64, weights: F64, ends: I64) -> Steps:
    """Steps put together: those up to each of `ends` have their weighted mean."""
    starts = np.append(0, ends[:-1])
    total, sums = np.add.reduceat(weights, starts), np.add.reduceat(weights * heights, starts)
    plain = np.add.reduceat(heights, starts) / np.diff(np.append(starts, len(heights)))
    means = np.where(total > 0, sums / np.where(total > 0, total, 1.0), plain)
    return Steps(np.append(edges[starts], edges[-1]), means)


def _best_cuts(heights: F64, weights: F64, buckets: int) -> I64:
    """Where each of the best buckets ends."""
    count = min(buckets, len(heights))
    return _ends(_dynamic(heights, weights, count)[1], len(heights), count)


def _ends(came: I64, size: int, count: int) -> I64:
    """Where each bucket ends, by the table of where the last one begins."""
    ends, at = np.empty(count, np.int64), size
    for bucket in range(count - 1, -1, -1):
        ends[bucket] = at
        at = came[bucket, at - 1]
    return ends


@njit(cache=True)
def _dynamic(heights: F64, weights: F64, buckets: int) -> tuple[F64, I64]:
    """For each number of buckets and each prefix the least error, and where the last bucket begins."""
    size = heights.size
    w, wy, wyy = np.zeros(size + 1), np.zeros(size + 1), np.zeros(size + 1)
    for i in range(size):
        w[i + 1] = w[i] + weights[i]
        wy[i + 1] = wy[i] + weights[i] * heights[i]
        wyy[i + 1] = wyy[i] + weights[i] * heights[i] * heights[i]
    best = np.full((buckets, size), np.inf)
    came = np.zeros((buckets, size), np.int64)
    for bucket in range(buckets):
        for end in range(size):
            first = 0 if bucket == 0 else bucket
            last = 0 if bucket == 0 else end
            for begin in range(first, last + 1):
                total = w[end + 1] - w[begin]
                part = wyy[end + 1] - wyy[begin]
                if total > 0:
                    part -= (wy[end + 1] - wy[begin]) ** 2 / total
                cost = max(part, 0.0) + (best[bucket - 1, begin - 1] if bucket > 0 else 0.0)
                if cost < best[bucket, end]:
                    best[bucket, end] = cost
                    came[bucket, end] = begin
    return best, came
