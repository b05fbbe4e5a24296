"""An index over queries that come and go: a large layout, a small one for those that are new, and marks on those that
went.

Guarantees
    Every query that was added and not removed is shown by exactly one layout:
    `test_every_strategy_gives_the_twins_answers`.
State and cost
    A change costs a pass over the small layout, which is at most 1/64 of all queries (or 1,024); when it is larger,
    or the partition was made anew, everything is laid out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from penstock.kernels.standing.hotspots import HotspotTracker
from penstock.kernels.standing.layout import BYTES_PER_GROUP, Layout, build, bytes_per_query
from penstock.kernels.standing.partition import StabbingPartition, points
from penstock.kernels.standing.search import F64, I32, I64, Flags

#: Which queries are grouped by stabbing points: all, those in hotspots, or none.
Grouping = Literal["all", "hot", "none"]

_FRESH_LEAST, _FRESH_SHARE = 1_024, 64


class Part(NamedTuple):
    """A layout, and which queries it shows."""

    layout: Layout
    shown: Flags


class Index:
    """Queries by number (their *slots*), with a range of their own and one across, or the latter alone.

    `own` says whether layouts are trees; see `layout`. `ranges` is the caller's array with a row for each slot, of
    which `columns` are (own from, own to, across from, across to).
    """

    def __init__(
        self,
        grouping: Grouping,
        own: bool,
        *,
        columns: tuple[int, int, int, int] = (0, 1, 2, 3),
        alpha: float = 0.001,
        epsilon: float = 1.0,
    ) -> None:
        self.grouping = grouping
        self.own = own
        self.columns = columns
        self.alpha = alpha
        self.partition: StabbingPartition | HotspotTracker | None = None
        if grouping == "all":
            self.partition = StabbingPartition(epsilon)
        elif grouping == "hot":
            self.partition = HotspotTracker(alpha, epsilon)
        #: How often everything was laid out.
        self.builds = 0
        self._ranges: F64 = np.empty((0, 4))
        self._there: Flags = np.zeros(0, np.bool_)
        self._base: Part | None = None
        self._fresh: Part | None = None
        self._waiting: Flags = np.zeros(0, np.bool_)
        self._stale = True

    def load(self, slots: I64, ranges: F64) -> None:
        """Many queries at once, in place of all that were there."""
        self._ranges = ranges
        self._there = np.zeros(len(ranges), np.bool_)
        self._there[slots] = True
        self._waiting = np.zeros(len(ranges), np.bool_)
        if self.partition is not None:
            self.partition.build(slots, *(ranges[slots, column] for column in self.columns[2:]))
            self.partition.regrouped()
        self._stale = True

    def change(self, gone: I64, come: I64, ranges: F64) -> None:
        """Some queries went and others came; `ranges` may be a longer array than the last."""
        self._ranges = ranges
        missing = len(ranges) - len(self._there)
        self._there, self._waiting = (np.append(a, np.zeros(missing, np.bool_)) for a in (self._there, self._waiting))
        if self._base is not None:
            shown = np.append(self._base.shown, np.zeros(len(ranges) - len(self._base.shown), np.bool_))
            self._base = Part(self._base.layout, shown)
        self._there[gone] = False
        self._there[come] = True
        self._waiting[gone] = False
        self._waiting[come] = True
        moved = come
        if self.partition is not None:
            for slot in gone:
                self.partition.delete(int(slot))
            begin, end = self.columns[2:]
            for slot in come:
                self.partition.insert(int(slot), float(ranges[slot, begin]), float(ranges[slot, end]))
            regrouped = self.partition.regrouped()
            if self.grouping == "all" and len(regrouped):
                self._stale = True
            moved = np.union1d(come, regrouped[self._there[regrouped]])
            self._waiting[moved] = True
        if self._base is not None:
            self._base.shown[gone] = False
            self._base.shown[moved] = False
        self._fresh = None

    def parts(self) -> Iterator[Part]:
        """Layouts that show every query once."""
        if not self._stale and self._fresh is None and self._waiting.any():
            waiting = np.flatnonzero(self._waiting)
            if len(waiting) > max(_FRESH_LEAST, len(self._there) // _FRESH_SHARE):
                self._stale = True
            else:
                self._fresh = self._lay_out(waiting)
        if self._stale:
            self._base = self._lay_out(np.flatnonzero(self._there))
            self._fresh = None
            self._waiting = np.zeros(len(self._there), np.bool_)
            self._stale = False
            self.builds += 1
        for part in (self._base, self._fresh):
            if part is not None:
                yield part

    @property
    def groups(self) -> int:
        """Groups with a stabbing point."""
        if isinstance(self.partition, HotspotTracker):
            return len(self.partition.hot())
        return self.partition.size if self.partition is not None else 0

    @property
    def nbytes(self) -> int:
        """Bytes held, and those that will be once everything is laid out again, if that is due."""
        parts = [part for part in (self._base, self._fresh) if part is not None]
        held = sum(part.layout.nbytes + part.shown.nbytes for part in parts)
        partition = self.partition.nbytes if self.partition is not None else 0
        a_group = BYTES_PER_GROUP if self.own else 0
        laid_out = 1.3 * bytes_per_query(self.own) * len(self._there) + a_group * self.groups
        due = int(laid_out) + 4096 if self._stale else 0
        return held + due + self._there.nbytes + self._waiting.nbytes + partition

    def _lay_out(self, slots: I64) -> Part:
        group, stabs = self._groups(slots)
        shown = np.zeros(len(self._there), np.bool_)
        shown[slots] = True
        return Part(build(slots.astype(np.int32), self._ranges[slots][:, self.columns], group, stabs, self.own), shown)

    def _groups(self, slots: I64) -> tuple[I32, F64]:
        if self.partition is None:
            return np.full(len(slots), -1, np.int32), np.empty(0)
        group = self.partition.groups(slots)
        if isinstance(self.partition, HotspotTracker):
            hot = self.partition.hot()
            used = np.array(sorted(hot), np.int32)
            low, high = (np.array([hot[int(g)][side] for g in used]) for side in (0, 1))
            number = np.where(group < 0, -1, np.searchsorted(used, group)).astype(np.int32)
            return number, points(low, high)
        used = np.unique(group)
        low, high = self.partition.common()
        return np.searchsorted(used, group).astype(np.int32), points(low[used], high[used])
