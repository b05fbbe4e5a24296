"""Pairs of numbers and the rows they stand for: how far apart, whether they are partners, what a result says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.measure import runs
from penstock.kernels.shared.budget import Budget
from penstock.kernels.shared.numbered import Numbered
from penstock.kernels.shared.router import Pairs
from penstock.kernels.shared.waiting import Waiting
from penstock.kernels.window.shape import Shape, truths
from penstock.kernels.window.windows import LEFT
from penstock.tables.keys import equal_keys, injective

I64 = npt.NDArray[np.int64]
Where = Callable[[pa.RecordBatch, pa.RecordBatch], Any]


class Pairing:
    """Looks up the rows of pairs, in runs that memory is kept free for; `note` is told of the bytes of each.

    Guarantees
        No more than a quarter of the slice is taken up by the rows of a run: `test_conformance` (memory).
    State and cost
        None of its own. A row that is in several pairs of a run is looked up once.
    """

    def __init__(
        self,
        shape: Shape,
        sides: Sequence[Numbered],
        waiting: Waiting,
        budget: Budget,
        note: Callable[[float], None],
        *,
        by_rows: bool,
        where: Where | None,
    ) -> None:
        self._shape, self._sides, self._waiting, self._where = shape, sides, waiting, where
        self._budget, self._note, self._by_rows = budget, note, by_rows
        types = [shape.left.field(name).type for name in shape.keys[LEFT]]
        self._verify = bool(types) and not injective(types)

    def measured(self, outer: I64, inner: I64) -> Pairs:
        """Pairs with their distance."""
        if self._by_rows:
            return Pairs(outer, inner, self._waiting.before[outer - self._waiting.base] - inner)
        both = zip(self._sides, self._numbers(outer, inner), strict=True)
        left, right = (side.moments(numbers) for side, numbers in both)
        return Pairs(outer, inner, np.abs(left - right))

    def holding(self, found: Pairs) -> Pairs:
        """Without candidates that have another key of the same hash, and those for which the condition is not true."""
        if not self._verify and self._where is None:
            return found
        holds = np.ones(len(found.outer), np.bool_)
        for begin, end, left, right in self._side_by_side(found):
            if self._verify:
                ours, theirs = self._shape.keys
                holds[begin:end] = equal_keys([left.column(n) for n in ours], [right.column(n) for n in theirs])
            if self._where is not None:
                holds[begin:end] &= truths(self._where, left, right)
        return found.where(holds)

    def results(self, pairs: Pairs) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The results of pairs, from one place among them up to another."""
        for begin, end, left, right in self._side_by_side(pairs):
            yield begin, end, self._shape.pairs(left, right)

    def _numbers(self, outer: I64, inner: I64) -> tuple[I64, I64]:
        """The numbers of left and right rows of pairs."""
        at = outer - self._waiting.base
        own, left = self._waiting.numbers[at], self._waiting.sides[at] == LEFT
        return np.where(left, own, inner), np.where(left, inner, own)

    def _side_by_side(self, pairs: Pairs) -> Iterator[tuple[int, int, pa.RecordBatch, pa.RecordBatch]]:
        most = self._budget.most_pairs
        for first in range(0, len(pairs.outer), most):
            numbers = self._numbers(pairs.outer[first : first + most], pairs.inner[first : first + most])
            places = [side.places(which) for side, which in zip(self._sides, numbers, strict=True)]
            sizes = [side.rows.column("sizes")[which] for side, which in zip(self._sides, places, strict=True)]
            each = (sizes[0].astype(np.float64) + sizes[1]) / 8 + 16
            for begin, end in runs(each, self._budget.slice / 4):
                self._note(3 * float(each[begin:end].sum()))
                left, right = (side.take(which[begin:end]) for side, which in zip(self._sides, places, strict=True))
                yield first + begin, first + end, left, right
