"""Hotspot tracking: the large groups apart from the scattered rest, as queries come and go (003, §4.2.2, Theorem
12).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.errors import BadOption
from penstock.kernels.standing.partition import F64, I32, I64, Rule, StabbingPartition, canonical

#: The group of an interval that lies in no hotspot.
SCATTERED = -1


class HotspotTracker:
    """Keeps the α-hotspots of a set of intervals.

    A group is promoted when it has at least α of all intervals, and demoted when it has less than α/2.

    Guarantees
        (I1) Every group with α·n intervals is hot, and every hot one has α·n/2: so there are at most 2/α.
        (I2) All groups together are at most (1 + ε)τ + 2/α.
        (I3) At most five intervals an update, amortised, move between hot and scattered.
        All three after every one of thousands of random updates: `test_invariants_hold_after_every_update`.
    State and cost
        The scattered intervals' partition, and 20 bytes an interval. An update costs O(groups), a promotion or
        demotion one pass over all slots.

    >>> tracker = HotspotTracker(alpha=0.5)
    >>> for slot, (lo, hi) in enumerate([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)]):
    ...     tracker.insert(slot, lo, hi)
    >>> tracker.groups(np.arange(3)).tolist()
    [0, 0, -1]
    """

    def __init__(self, alpha: float, epsilon: float = 1.0, rule: Rule = "witness") -> None:
        if not 0 < alpha <= 1:
            raise BadOption(f"alpha={alpha} is not a share of all queries.", do="Give a number above 0 and at most 1.")
        self.alpha = alpha
        self.scattered = StabbingPartition(epsilon, rule)
        #: Intervals now, and how many have moved between hot and scattered so far.
        self.count = 0
        self.moves = 0
        self._lo, self._hi = np.empty(0), np.empty(0)
        self._hot = np.empty(0, np.int32)
        self._low: dict[int, float] = {}
        self._high: dict[int, float] = {}
        self._size: dict[int, int] = {}
        self._moved: list[I64] = []

    def build(self, slots: I64, lo: F64, hi: F64) -> None:
        """Take in many intervals at once, in place of all that were there."""
        self._hot[:] = SCATTERED
        self._low, self._high, self._size = {}, {}, {}
        self._reach(int(slots.max()) if len(slots) else -1)
        self._lo[slots], self._hi[slots] = lo, hi
        self.count = len(slots)
        found = canonical(lo, hi)
        sizes = np.bincount(found.group, minlength=found.size)
        hot = np.flatnonzero(sizes >= self.alpha * self.count) if self.count else np.empty(0, np.int64)
        number = np.full(found.size, SCATTERED, np.int32)
        number[hot] = np.arange(len(hot), dtype=np.int32)
        self._hot[slots] = number[found.group]
        for group in hot:
            name = int(number[group])
            self._low[name], self._high[name] = float(found.low[group]), float(found.high[group])
            self._size[name] = int(sizes[group])
        rest = number[found.group] == SCATTERED
        self.scattered.build(slots[rest], lo[rest], hi[rest])
        self._moved.clear()
        self._settle()

    def insert(self, slot: int, lo: float, hi: float) -> None:
        """Take in one interval."""
        self._reach(slot)
        self._lo[slot], self._hi[slot] = lo, hi
        self.count += 1
        group = next((g for g in self._low if self._low[g] <= hi and lo <= self._high[g]), SCATTERED)
        self._hot[slot] = group
        if group == SCATTERED:
            self.scattered.insert(slot, lo, hi)
        else:
            self._low[group], self._high[group] = max(lo, self._low[group]), min(hi, self._high[group])
            self._size[group] += 1
        self._settle()

    def delete(self, slot: int) -> None:
        """Let go of one interval."""
        self.count -= 1
        group = int(self._hot[slot])
        if group == SCATTERED:
            self.scattered.delete(slot)
        else:
            self._hot[slot] = SCATTERED
            self._size[group] -= 1
        self._settle()

    def groups(self, slots: I64) -> I32:
        """The hot group of each of these, or `SCATTERED`."""
        return self._hot[slots]

    def hot(self) -> dict[int, tuple[float, float]]:
        """The common part of each hot group."""
        return {group: (self._low[group], self._high[group]) for group in self._low}

    def hot_sizes(self) -> dict[int, int]:
        """Members of each hot group."""
        return dict(self._size)

    @property
    def size(self) -> int:
        """Groups in all, hot and scattered."""
        return len(self._size) + self.scattered.size

    def regrouped(self) -> I64:
        """Slots that moved between hot and scattered since this was last asked."""
        found = np.unique(np.concatenate(self._moved)) if self._moved else np.empty(0, np.int64)
        self._moved.clear()
        return found

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._lo.nbytes + self._hi.nbytes + self._hot.nbytes + self.scattered.nbytes

    def _settle(self) -> None:
        """Promote and demote until there is nothing left to."""
        while self._promote() or self._demote():
            pass

    def _promote(self) -> bool:
        sizes = self.scattered.sizes()
        due = np.flatnonzero((sizes >= self.alpha * self.count) & (sizes > 0))
        for group in due:
            low, high = (float(ends[group]) for ends in self.scattered.common())
            slots = self.scattered.remove_group(int(group))
            name = next(n for n in range(len(self._size) + 1) if n not in self._size)
            self._low[name], self._high[name], self._size[name] = low, high, len(slots)
            self._hot[slots] = name
            self._note(slots)
        return len(due) > 0

    def _demote(self) -> bool:
        due = [group for group, size in self._size.items() if size < self.alpha / 2 * self.count or size == 0]
        for group in due:
            slots = np.flatnonzero(self._hot == group)
            del self._low[group], self._high[group], self._size[group]
            self._hot[slots] = SCATTERED
            for slot in slots:
                self.scattered.insert(int(slot), float(self._lo[slot]), float(self._hi[slot]))
            self._note(slots)
        return len(due) > 0

    def _note(self, slots: I64) -> None:
        self.moves += len(slots)
        self._moved.append(slots)

    def _reach(self, slot: int) -> None:
        missing = slot + 1 - len(self._lo)
        if missing > 0:
            more = max(missing, len(self._lo) // 4, 16)
            grown: list[npt.NDArray[np.float64]] = [np.append(a, np.zeros(more)) for a in (self._lo, self._hi)]
            self._lo, self._hi = grown
            self._hot = np.append(self._hot, np.full(more, SCATTERED, np.int32))
