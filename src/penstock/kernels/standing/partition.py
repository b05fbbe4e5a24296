"""Stabbing partitions: intervals in groups that share a common point (003, §4.2.1 and §4.2.3).

*Canonical*: greedy by left end, the smallest there is; its size is τ. *Dynamic*: kept under insertions and deletions,
never larger than (1 + ε)τ, by one of three rules that say when to make it anew:

========== ===================================== ===========================================================
rule       a new interval                        made anew
========== ===================================== ===========================================================
`lazy`     is a group of its own                 after ε·τ₀/(ε + 2) updates (Lemma 12)
`refined`  joins a group whose common part       when the groups are more than (1 + ε)(τ₀ − deletions from the
           it meets, else a group of its own     set of then)
`witness`  the same                              when they are more than (1 + ε) times the *witnesses* left
========== ===================================== ===========================================================

The witnesses are τ₀ intervals of the canonical partition no two of which meet (of each group, the one that ends
first). As many groups as witnesses are left are needed for these alone, so the bound holds; and a deletion counts
only if it hits one of τ₀ among n. With a million queries in thirty groups `refined` starts anew after some twenty
deletions, `witness` after half a million.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.errors import BadOption

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

Rule = Literal["lazy", "refined", "witness"]
RULES: tuple[Rule, ...] = ("lazy", "refined", "witness")


class Canonical(NamedTuple):
    """The smallest stabbing partition: the group of each interval, and each group's common part and witness."""

    group: I32
    low: F64
    high: F64
    witness: I64

    @property
    def size(self) -> int:
        """τ, the number of groups."""
        return len(self.low)


def canonical(lo: F64, hi: F64) -> Canonical:
    """The canonical stabbing partition of closed intervals, in O(n log n) (Lemma 10).

    >>> found = canonical(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    >>> found.group.tolist(), found.low.tolist(), found.high.tolist()
    ([0, 0, 1], [1.0, 5.0], [2.0, 6.0])
    """
    return Canonical(*_greedy(lo, hi, np.argsort(lo, kind="stable")))


def points(low: F64, high: F64) -> F64:
    """A finite point in each common part: its middle, where it has two finite ends."""
    with np.errstate(invalid="ignore"):
        middle = low / 2 + high / 2
    some = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    return np.clip(np.where(np.isfinite(middle), middle, some), low, high)


class StabbingPartition:
    """A stabbing partition that follows its intervals as they come and go.

    Intervals are told apart by small numbers, their *slots*, which the caller gives out.

    Guarantees
        Every group has a common point, and there are never more than (1 + ε)τ of them, by every rule:
        `test_a_dynamic_partition_stays_small`.
    State and cost
        21 bytes a slot, 16 a group. An update looks at each group's common part; making it anew sorts all intervals.

    >>> partition = StabbingPartition(epsilon=1.0)
    >>> [partition.insert(slot, lo, hi) for slot, (lo, hi) in enumerate([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])]
    [0, 0, 1]
    >>> partition.delete(2)
    >>> partition.size
    1
    """

    def __init__(self, epsilon: float = 1.0, rule: Rule = "witness") -> None:
        if not epsilon > 0:
            raise BadOption(f"epsilon={epsilon} is not above 0.", do="Give 1.0 for at most twice the groups.")
        if rule not in RULES:
            raise BadOption(f"There is no rule {rule!r}.", do=f"Give one of: {', '.join(RULES)}.")
        self.epsilon = epsilon
        self.rule = rule
        #: How often the partition was made anew.
        self.rebuilds = 0
        self._lo, self._hi = np.empty(0), np.empty(0)
        self._group = np.empty(0, np.int32)
        #: Whether a slot counts for the bound: of the set of the last rebuild, or a witness of it.
        self._counts = np.empty(0, np.bool_)
        self._low, self._high = np.empty(0), np.empty(0)
        self._members = np.empty(0, np.int64)
        self._used = 0
        self._free: list[int] = []
        self._bound = 0
        self._updates = 0
        self._changed: list[I64] = []

    def build(self, slots: I64, lo: F64, hi: F64) -> None:
        """Take in many intervals at once, in place of all that were there."""
        self._group[:] = -1
        self._reach(int(slots.max()) if len(slots) else -1)
        self._lo[slots], self._hi[slots] = lo, hi
        self._group[slots] = 0
        self._rebuild()

    def insert(self, slot: int, lo: float, hi: float) -> int:
        """Take in one interval; gives its group."""
        self._reach(slot)
        self._lo[slot], self._hi[slot] = lo, hi
        self._counts[slot] = False
        group = -1
        if self.rule != "lazy":
            group = _meets(self._low, self._high, self._members, self._used, lo, hi)
        if group < 0:
            group = self._new_group()
            self._low[group], self._high[group] = lo, hi
        else:
            self._low[group], self._high[group] = max(lo, self._low[group]), min(hi, self._high[group])
        self._members[group] += 1
        self._group[slot] = group
        self._after_update()
        return int(self._group[slot])

    def delete(self, slot: int) -> None:
        """Let go of one interval."""
        self._take_out(slot)
        self._after_update()

    def remove_group(self, group: int) -> I64:
        """Let go of a whole group; gives its slots. Nothing is made anew."""
        slots = np.flatnonzero(self._group == group)
        self._group[slots] = -1
        self._members[group] = 0
        self._free.append(group)
        if self.rule != "lazy":
            self._bound -= int(self._counts[slots].sum())
        self._counts[slots] = False
        return slots

    def groups(self, slots: I64) -> I32:
        """The group of each of these."""
        return self._group[slots]

    @property
    def size(self) -> int:
        """How many groups there are."""
        return self._used - len(self._free)

    def sizes(self) -> I64:
        """Members of each group by its number; 0 where a number is not in use."""
        return self._members[: self._used]

    def common(self) -> tuple[F64, F64]:
        """A common part of each group by its number: never empty where it has members."""
        return self._low[: self._used], self._high[: self._used]

    def regrouped(self) -> I64:
        """Slots that changed their group in rebuilds since this was last asked."""
        found = np.unique(np.concatenate(self._changed)) if self._changed else np.empty(0, np.int64)
        self._changed.clear()
        return found

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = (self._lo, self._hi, self._group, self._counts, self._low, self._high, self._members)
        return sum(array.nbytes for array in arrays)

    def _take_out(self, slot: int) -> None:
        group = int(self._group[slot])
        self._group[slot] = -1
        self._members[group] -= 1
        if not self._members[group]:
            self._free.append(group)
        if self._counts[slot] and self.rule != "lazy":
            self._bound -= 1
        self._counts[slot] = False

    def _after_update(self) -> None:
        self._updates += 1
        if self.rule == "lazy":
            due = self._updates >= self.epsilon * self._bound / (self.epsilon + 2)
        else:
            due = self.size > (1 + self.epsilon) * self._bound
        if due:
            self._rebuild()

    def _rebuild(self) -> None:
        slots = np.flatnonzero(self._group >= 0)
        found = canonical(self._lo[slots], self._hi[slots])
        changed = self._group[slots] != found.group
        if changed.any():
            self._changed.append(slots[changed])
        self._group[slots] = found.group
        self._low, self._high = found.low.copy(), found.high.copy()
        self._members = np.bincount(found.group, minlength=found.size).astype(np.int64)
        self._used, self._free = found.size, []
        self._counts[:] = False
        self._counts[slots if self.rule == "refined" else slots[found.witness]] = True
        self._bound, self._updates = found.size, 0
        self.rebuilds += 1

    def _new_group(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used == len(self._low):
            more = max(16, self._used)
            self._low, self._high = (np.append(a, np.zeros(more)) for a in (self._low, self._high))
            self._members = np.append(self._members, np.zeros(more, np.int64))
        self._used += 1
        return self._used - 1

    def _reach(self, slot: int) -> None:
        missing = slot + 1 - len(self._lo)
        if missing > 0:
            more = max(missing, len(self._lo) // 4, 16)
            self._lo, self._hi = (np.append(a, np.zeros(more)) for a in (self._lo, self._hi))
            self._group = np.append(self._group, np.full(more, -1, np.int32))
            self._counts = np.append(self._counts, np.zeros(more, np.bool_))


@njit(cache=True)
def _greedy(lo: F64, hi: F64, order: I64) -> tuple[I32, F64, F64, I64]:
    group = np.empty(lo.size, np.int32)
    low, high = np.empty(lo.size), np.empty(lo.size)
    witness = np.empty(lo.size, np.int64)
    size = 0
    for at in order:
        if size == 0 or lo[at] > high[size - 1]:
            low[size], high[size], witness[size] = lo[at], hi[at], at
            size += 1
        else:
            # In order of left ends, the last one begins the common part.
            low[size - 1] = lo[at]
            if hi[at] < high[size - 1]:
                high[size - 1], witness[size - 1] = hi[at], at
        group[at] = size - 1
    return group, low[:size].copy(), high[:size].copy(), witness[:size].copy()


@njit(cache=True)
def _meets(low: F64, high: F64, members: I64, used: int, lo: float, hi: float) -> int:
    """The largest group whose common part meets the interval, or -1."""
    best = -1
    for group in range(used):
        fits = members[group] > 0 and low[group] <= hi and lo <= high[group]
        if fits and (best < 0 or members[group] > members[best]):
            best = group
    return best
