"""Fit a model to a stream while it flows: least squares over what came lately, and a test whether it explains it.

Three lines are fitted at once: value over row number (a trend), value over the value before (AR(1)), and the mean of
differences (a random walk with drift). The one with the least variance left is taken, if that is far less than the
variance of the values themselves; otherwise the stream is left to its key counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.models.stream_models import AutoRegressive, LinearTrend, Noise, Now, RandomWalk, StreamModel

F64 = npt.NDArray[np.float64]

#: A row weighs half after this many others.
HALF_LIFE = 2_000
#: Rows before anything is said.
LEAST_ROWS = 200
#: The share of the variance that a model must explain.
LEAST_EXPLAINED = 0.4
#: Cells of fitted noise for each standard deviation, at the most.
_FINE = 8
#: Noise with a kurtosis below this is taken for uniform (1.8), not normal (3).
_FLAT = 2.3


class _Line:
    """Least squares of y over x with forgetting: sums, and what they leave unexplained."""

    def __init__(self) -> None:
        # Weight, and the weighted sums of x, y, xx, xy, yy, all around the first pair, so that no digits are lost.
        self.sums = [0.0] * 6
        self.origin: tuple[float, float] | None = None

    def add(self, x: F64, y: F64) -> None:
        if not len(x):
            return
        if self.origin is None:
            self.origin = (float(x[0]), float(y[0]))
        fade = 0.5 ** (1.0 / HALF_LIFE)
        each = fade ** np.arange(len(x) - 1, -1, -1)
        x, y = x - self.origin[0], y - self.origin[1]
        parts = (np.ones(len(x)), x, y, x * x, x * y, y * y)
        whole = fade ** len(x)
        self.sums = [whole * old + float((each * new).sum()) for old, new in zip(self.sums, parts, strict=True)]

    def solve(self) -> tuple[float, float, float]:
        """Slope, intercept, variance left."""
        weight, x, y, xx, xy, yy = self.sums
        if weight <= 0 or self.origin is None:
            return 0.0, 0.0, 0.0
        vx, vxy, vy = xx / weight - (x / weight) ** 2, xy / weight - x * y / weight**2, yy / weight - (y / weight) ** 2
        slope = vxy / vx if vx > 1e-12 else 0.0
        intercept = y / weight - slope * x / weight + self.origin[1] - slope * self.origin[0]
        return slope, intercept, max(vy - slope * vxy, 0.0)

    def spread(self) -> float:
        """The variance of y."""
        weight, _, y, _, _, yy = self.sums
        return max(yy / weight - (y / weight) ** 2, 0.0) if weight > 0 else 0.0


class Fit:
    """One stream as it flows.

    Guarantees
        Finds the model that made a stream of 5,000 rows, and none in keys without order: `test_fit_finds_the_model`.
        Restored, it goes on as the first would have: `test_fit_goes_on_alike`.
    State and cost
        Some twenty numbers; a few vector operations a step.
    """

    def __init__(self) -> None:
        self.now = Now(0, 0.0)
        self._trend, self._before = _Line(), _Line()
        # Weighted sums of the differences and of their squares, and of the fourth and second powers of what is left.
        self._drift = [0.0, 0.0, 0.0]
        self._shape = [0.0, 0.0]

    def add(self, values: F64) -> None:
        """Rows in order."""
        if not len(values):
            return
        first = self.now.step
        self._trend.add(np.arange(first, first + len(values), dtype=np.float64), values)
        chain = np.concatenate([[self.now.last], values]) if first else values
        self._before.add(chain[:-1], chain[1:])
        moves = np.diff(chain)
        fade = 0.5 ** (1.0 / HALF_LIFE)
        if len(moves):
            each, whole = fade ** np.arange(len(moves) - 1, -1, -1), fade ** len(moves)
            parts = (np.ones(len(moves)), moves, moves * moves)
            pairs = zip(self._drift, parts, strict=True)
            self._drift = [whole * old + float((each * new).sum()) for old, new in pairs]
        slope, start, left = self._trend.solve()
        if first >= LEAST_ROWS and left > 0:
            rest = values - slope * np.arange(first, first + len(values)) - start
            self._shape = [
                0.5 * old + 0.5 * float(np.mean(rest**power)) for old, power in zip(self._shape, (2, 4), strict=True)
            ]
        self.now = Now(first + len(values), float(values[-1]))

    def model(self) -> StreamModel | None:
        """The model that explains the stream, if one does."""
        if self.now.step < LEAST_ROWS:
            return None
        spread = self._before.spread()
        slope, start, trend_left = self._trend.solve()
        factor, constant, chain_left = self._before.solve()
        count, moved, squared = self._drift
        drift = moved / count
        walk_left = max(squared / count - drift**2, 0.0)
        # A free factor always fits a little better than the factor 1: near 1 it is a walk.
        lefts = {"trend": trend_left, "walk": walk_left, "chain": chain_left * (1.1 if factor > 0.98 else 1.0)}
        best = min(lefts, key=lambda name: lefts[name])
        if spread <= 0 or lefts[best] > (1 - LEAST_EXPLAINED) * spread:
            return None
        deviation = max(math.sqrt(lefts[best]), 0.3)
        if best == "trend":
            return LinearTrend(round(slope, 6), round(start, 3), self._noise(deviation))
        if best == "walk" or abs(factor) >= 1:
            return RandomWalk(round(drift, 3), round(deviation, 3))
        return AutoRegressive(round(constant, 3), round(factor, 4), round(deviation, 3))

    def _noise(self, deviation: float) -> Noise:
        second, fourth = self._shape
        # Noise of a million numbers is told by as many cells as that of a hundred.
        width = max(math.ceil(deviation / _FINE), 1)
        if second > 0 and fourth / second**2 < _FLAT:
            return Noise.uniform(max(round(math.sqrt(3) * deviation), 1), width)
        return Noise.normal(round(deviation, 2), width=width)

    def head(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {
            "now": [self.now.step, self.now.last],
            "lines": [[line.sums, line.origin] for line in (self._trend, self._before)],
            "drift": self._drift,
            "shape": self._shape,
        }

    def restore(self, said: Mapping[str, Any]) -> None:
        """Know again."""
        self.now = Now(*said["now"])
        for line, (sums, origin) in zip((self._trend, self._before), said["lines"], strict=True):
            line.sums, line.origin = list(sums), None if origin is None else (origin[0], origin[1])
        self._drift, self._shape = list(said["drift"]), list(said["shape"])
