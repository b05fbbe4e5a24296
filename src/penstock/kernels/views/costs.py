"""What it costs to bring k changes of one table into a view.

Laws, each a property in `tests/kernels/views/test_costs.py`: nothing costs nothing; more changes never cost less
(monotone); two batches never cost less than one of both (subadditive). The planners rely on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.models.curve import Curve

Floats = npt.NDArray[np.float64]

#: Totals up to which the least cost of a split is found exactly for costs of any shape.
EXACT_UP_TO = 20_000
#: Changes beyond which no batch is looked for.
_ENDLESS = 1 << 40


class Cost(ABC):
    """A monotone, subadditive function of the number of changes."""

    @abstractmethod
    def __call__(self, changes: int) -> float:
        """What a batch of this many changes costs."""

    @abstractmethod
    def least(self, total: int, largest: int) -> float:
        """A lower bound on the cost of `total` changes in batches of at most `largest`, never above one batch plus the
        bound of the rest.
        """

    def most(self, bound: float) -> int:
        """The largest batch that costs no more than `bound`; `1 << 40` stands for "any"."""
        low, high = 0, 1
        while self(high) <= bound:
            if high >= _ENDLESS:
                return _ENDLESS
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self(middle) <= bound else (low, middle)
        return low


@dataclass(frozen=True)
class Linear(Cost):
    """A fixed `setup` for each batch, and so much `each` change.

    >>> scan = Linear(each=0.001, setup=0.25)
    >>> scan(0), scan(100), scan.most(0.5), scan.least(1000, largest=250)
    (0.0, 0.35, 250, 2.0)
    """

    each: float
    setup: float

    def __post_init__(self) -> None:
        if not (self.each >= 0 and self.setup >= 0):
            raise ValueError(f"{self} falls: neither part of a cost may be negative.")

    def __call__(self, changes: int) -> float:
        """Setup and changes; nothing for nothing."""
        return self.setup + self.each * changes if changes > 0 else 0.0

    def least(self, total: int, largest: int) -> float:
        """Exact: as few batches as will do."""
        return self.each * total + self.setup * -(-total // max(largest, 1))


class Stepwise(Cost):
    """A cost of any shape, known for 0 … K changes, and beyond as for several batches of at most K.

    Whatever the values are, the function is the largest that is monotone, subadditive and nowhere above them made
    monotone. O(K²) once, and O(nK) for the largest n > K that is asked for.

    >>> jumps = Stepwise([0, 3, 1, 9])
    >>> [jumps(k) for k in range(8)]
    [0.0, 3.0, 3.0, 6.0, 6.0, 9.0, 9.0, 12.0]
    """

    def __init__(self, values: Sequence[float]) -> None:
        rough = np.maximum.accumulate(np.asarray(values, np.float64))
        if len(rough) < 2 or rough[0] != 0:
            raise ValueError("A cost needs a value for one change at least, and nothing costs nothing.")
        self._values = _cheapest_split(rough, len(rough) - 1, len(rough) - 1)
        # A list answers single questions, of which a search has many, much sooner than an array.
        self._table: list[float] = self._values.tolist()
        self._splits: dict[int, list[float]] = {}

    @classmethod
    def from_points(cls, points: Sequence[tuple[float, float]], upto: int) -> Stepwise:
        """Through measured (changes, cost), joined by straight lines."""
        curve = Curve.fit(points)
        return cls([0.0, *np.asarray(curve(np.arange(1, upto + 1)), np.float64).tolist()])

    def __call__(self, changes: int) -> float:
        """By the table; the cheapest split beyond it."""
        if changes < len(self._table):
            return self._table[changes]
        return self._upto(changes, len(self._table) - 1)[changes] if self._table[-1] else 0.0

    def least(self, total: int, largest: int) -> float:
        """Exact up to 20,000 changes, by dynamic programming; beyond, the best price of one change in any batch."""
        largest = max(1, min(largest, len(self._values) - 1))
        if total <= EXACT_UP_TO:
            return self._upto(total, largest)[total]
        return total * float((self._values[1 : largest + 1] / np.arange(1, largest + 1)).min())

    def _upto(self, total: int, largest: int) -> list[float]:
        known = self._splits.get(largest)
        if known is None or len(known) <= total:
            # Grown by doubling, so that a search with many totals computes it but a few times.
            known = _cheapest_split(self._values, max(1024, 1 << total.bit_length()), largest).tolist()
            self._splits[largest] = known
        return known


def _cheapest_split(values: Floats, upto: int, largest: int) -> Floats:
    """The least cost of 0 … upto changes in batches of at most `largest`."""
    best = np.zeros(upto + 1)
    for total in range(1, upto + 1):
        size = min(total, largest, len(values) - 1)
        best[total] = (values[1 : size + 1] + best[total - size : total][::-1]).min()
    return best
