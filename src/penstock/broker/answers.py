"""What is known of each subscription of a cell, and what a message makes of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from penstock.broker.messages import (
    BOTTOM,
    FLAGS,
    HAS_BOTTOM,
    HAS_LEFT,
    HAS_OTHER,
    HAS_RIGHT,
    HAS_TOP,
    HAS_VALUE,
    INNER_BOTTOM,
    INNER_LEFT,
    INNER_RIGHT,
    INNER_TOP,
    LEFT,
    OTHER,
    RIGHT,
    SEQ,
    TOP,
    VALUE,
    WIDTH,
    Kind,
)
from penstock.errors import BadOption
from penstock.kernels.subscriptions.codes import decode, encode, python_values
from penstock.kernels.subscriptions.engine import EXTREMES

I64 = npt.NDArray[np.int64]


@njit(cache=True)
def concerned(rows: I64, order: I64, x1: I64, x2: I64, pairs: I64) -> int:
    """Write (message, subscription) for every subscription in a message's rectangle; how many there are.

    x1 and x2 are sorted by x1; `order` has the numbers of the subscriptions.
    """
    count = 0
    for m in range(len(rows)):
        row = rows[m]
        inner_right, has_right, right = row[INNER_RIGHT], row[FLAGS] & HAS_RIGHT != 0, row[RIGHT]
        first = np.searchsorted(x1, row[LEFT], side="right") if row[FLAGS] & HAS_LEFT else 0
        for i in range(first, np.searchsorted(x1, row[INNER_LEFT], side="right")):
            if inner_right <= x2[i] and not (has_right and x2[i] >= right):
                if count < len(pairs):
                    pairs[count, 0], pairs[count, 1] = m, order[i]
                count += 1
    return count


def pairs_of(rows: I64, order: I64, x1: I64, x2: I64) -> I64:
    """(message, subscription) for every subscription in a message's rectangle, in the order of messages."""
    pairs = np.empty((max(256, 2 * len(x1)), 2), np.int64)
    count = concerned(rows, order, x1, x2, pairs)
    if count > len(pairs):
        pairs = np.empty((count, 2), np.int64)
        concerned(rows, order, x1, x2, pairs)
    return pairs[:count]


def within(rows: I64, pairs: I64, low: I64, high: I64) -> I64:
    """Of pairs that the first column's rectangle allows, those that the second's does, if there is one."""
    if rows.shape[1] == WIDTH:
        return pairs
    told, low, high = rows[pairs[:, 0]], low[pairs[:, 1]], high[pairs[:, 1]]
    below = (told[:, FLAGS] & HAS_BOTTOM != 0) & (low <= told[:, BOTTOM])
    above = (told[:, FLAGS] & HAS_TOP != 0) & (high >= told[:, TOP])
    return pairs[(low <= told[:, INNER_BOTTOM]) & (told[:, INNER_TOP] <= high) & ~below & ~above]


@dataclass
class Total:
    """A count and a sum that come back to what they were when what was added goes again: floats are exact fractions."""

    count: int = 0
    finite: Any = 0
    infinite: Counter[float] = field(default_factory=Counter)

    def add(self, value: Any, times: int) -> None:
        """One value comes, or goes."""
        self.count += times
        if isinstance(value, float) and math.isinf(value):
            self.infinite[value] += times
        else:
            self.finite += times * (Fraction(value) if isinstance(value, float) else value)

    def sum(self) -> Any:
        """None of no values; infinite if one of them is."""
        there = [value for value, times in self.infinite.items() if times]
        if not self.count:
            return None
        # Both infinities have no sum; a text equals itself, as NaN does not.
        return self.finite if not there else there[0] if len(there) == 1 else "NaN"

    def average(self) -> Any:
        """None of no values."""
        total = self.sum()
        return total if not self.count or isinstance(total, (str, float)) else total / self.count


@dataclass
class Answers:
    """The state of subscriptions from which an aggregate's answer follows."""

    kind: Kind
    _known: list[Any] = field(default_factory=list)

    def add(self, count: int) -> None:
        """As many new subscriptions, over an empty table."""
        self._known += [self._nothing() for _ in range(count)]

    def take(self, numbers: list[int]) -> Answers:
        """Those with these numbers, to live elsewhere."""
        return Answers(self.kind, [self._known[number] for number in numbers])

    def extend(self, other: Answers) -> None:
        """Take in those of another."""
        self._known += other._known

    def _nothing(self) -> Any:
        # Of pairs nothing is known: whether one concerns a subscription is seen from its places alone.
        if self.kind.says_all or self.kind.keys is not None:
            return None
        return Total() if self.kind.agg in ("count", "sum", "avg") else Counter()

    def set(self, number: int, value: Any) -> None:
        """What is known of a subscription, as it was read elsewhere: the answer; for SUM and AVG (count, sum)."""
        if self.kind.keys is not None:
            raise BadOption("A join has no answer to know.", do="Leave value out: what comes after `after` is told.")
        if self.kind.agg in EXTREMES:
            # None is the answer of an empty range, and has no code.
            self._known[number] = None if value is None else int(encode(pa.array([value], self.kind.y))[0][0])
        elif self.kind.agg == "distinct":
            self._known[number] = Counter(encode(pa.array(sorted(value), self.kind.y))[0].tolist())
        else:
            count, total = (value or 0, 0) if self.kind.agg == "count" else value or (0, 0)
            if isinstance(total, float) and not math.isfinite(total):
                raise BadOption(
                    f"A sum of {total} does not say which values it is of.",
                    why="When an infinite value goes, the sum of the others is told.",
                    do="Leave value and after out, to be told from the messages that the broker has.",
                )
            self._known[number] = Total(count, Fraction(total) if isinstance(total, float) else total or 0)

    def changes(self, rows: I64, pairs: I64) -> Iterator[tuple[int, int, Any]]:
        """Apply messages to those they concern, given as (message, subscription); the changes among them as (number of
        the message, subscription, answer as people have it).
        """
        numbers = rows[:, SEQ].tolist()
        if not self.kind.says_all:
            for m, s in pairs.tolist():
                changed, now = self.apply(s, rows[m])
                if changed:
                    yield numbers[m], s, self.value_of(now)
            return
        # What a message says is the same for all whom it concerns: made out once.
        there = rows[:, FLAGS] & HAS_VALUE != 0
        codes = [code if here else None for code, here in zip(rows[:, VALUE].tolist(), there.tolist(), strict=True)]
        shown = python_values(decode(np.ascontiguousarray(rows[:, VALUE]), self.kind.y, there))
        known = self._known
        for m, s in zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True):
            if known[s] != codes[m]:
                known[s] = codes[m]
                yield numbers[m], s, shown[m]

    def apply(self, number: int, row: I64) -> tuple[bool, Any]:
        """Whether a message changes the answer of a subscription that it concerns, and the answer."""
        flags = int(row[FLAGS])
        if self.kind.says_all:
            now = int(row[VALUE]) if flags & HAS_VALUE else None
            changed = now != self._known[number]
            self._known[number] = now
            return changed, now
        before = self.answer(number)
        known = self._known[number]
        if isinstance(known, Total):
            # Values that are counted may be of a type that has no sum.
            counted = self.kind.agg == "count"
            if flags & HAS_VALUE:
                known.add(0 if counted else self.kind.value(int(row[VALUE])), 1)
            if flags & HAS_OTHER:
                known.add(0 if counted else self.kind.value(int(row[OTHER])), -1)
        else:
            if flags & HAS_VALUE:
                known[int(row[VALUE])] += 1
            if flags & HAS_OTHER:
                known[int(row[OTHER])] -= 1
                if not known[int(row[OTHER])]:
                    del known[int(row[OTHER])]
        now = self.answer(number)
        return now != before, now

    def answer(self, number: int) -> Any:
        """The answer of a subscription as its state has it: a code for extremes, a value otherwise."""
        known = self._known[number]
        if self.kind.says_all:
            return known
        agg = self.kind.agg
        if agg == "count":
            return known.count
        if agg in ("sum", "avg"):
            return _double(known.sum() if agg == "sum" else known.average())
        if agg == "distinct":
            return frozenset(known)
        return (min if agg == "min" else max)(known) if known else None

    def value_of(self, answer: Any) -> Any:
        """An answer as people have it."""
        if self.kind.agg in EXTREMES:
            return None if answer is None else self.kind.value(answer)
        if isinstance(answer, frozenset):
            return frozenset(self.kind.value(code) for code in answer)
        return float(answer) if isinstance(answer, str) else answer


def _double(answer: Any) -> Any:
    """An exact answer as the query has it: what is beyond all floats is infinite."""
    if not isinstance(answer, Fraction):
        return answer
    try:
        return float(answer)
    except OverflowError:
        return math.inf if answer > 0 else -math.inf
