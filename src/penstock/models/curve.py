"""A measured function that never falls: points, made monotone, joined by straight lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A function that grows or stays, known at some places.

    Guarantees
        Never falls, whatever was measured; exact at the points of a function that does not fall; exact everywhere for
        a straight line: `test_curve_never_falls`, `test_curve_goes_through_its_points`.
    State and cost
        The points; a look-up is a binary search. Beyond the outermost points it goes on as between the last two, and
        never below zero.

    >>> read = Curve.fit([(1, 2.0), (4, 5.0), (2, 3.0)])
    >>> float(read(3)), float(read(8)), float(read(0.5))
    (4.0, 9.0, 1.5)
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.x or len(self.x) != len(self.y):
            raise ValueError(f"{len(self.x)} places and {len(self.y)} values are no curve.")
        if any(b <= a for a, b in zip(self.x, self.x[1:], strict=False)):
            raise ValueError("The places of a curve must grow.")
        if any(b < a for a, b in zip(self.y, self.y[1:], strict=False)):
            raise ValueError("The values of a curve may not fall: use Curve.fit.")

    @classmethod
    def fit(cls, points: Iterable[tuple[float, ...]]) -> Curve:
        """The nearest curve (least squares) that does not fall, through (place, value) or (place, value, weight)."""
        found: dict[float, tuple[float, float]] = {}
        for place, value, *weight in points:
            heavy = weight[0] if weight else 1.0
            total, before = found.get(place, (0.0, 0.0))
            found[place] = total + heavy * value, before + heavy
        places = sorted(found)
        return cls(tuple(map(float, places)), _pool([(found[p][0] / found[p][1], found[p][1]) for p in places]))

    @classmethod
    def constant(cls, value: float) -> Curve:
        """The same value everywhere."""
        return cls((1.0,), (float(value),))

    @classmethod
    def line(cls, slope: float, at_zero: float = 0.0) -> Curve:
        """A straight line."""
        return cls((0.0, 1.0), (float(at_zero), float(at_zero + slope)))

    def __call__(self, place: npt.ArrayLike) -> Any:
        """The value at a place, or an array of values."""
        at = np.asarray(place, np.float64)
        x, y = np.asarray(self.x), np.asarray(self.y)
        value = np.interp(at, x, y)
        if len(x) > 1:
            value = np.where(at > x[-1], y[-1] + (at - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2]), value)
            value = np.where(at < x[0], np.maximum(y[0] + (at - x[0]) * (y[1] - y[0]) / (x[1] - x[0]), 0.0), value)
        return value[()]

    def scaled(self, factor: float) -> Curve:
        """The same shape at another height."""
        return Curve(self.x, tuple(factor * value for value in self.y))


def _pool(values: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Pool adjacent violators: neighbours that fall are replaced by their mean, until none does."""
    pools: list[tuple[float, float, int]] = []
    for mean, weight in values:
        count = 1
        while pools and pools[-1][0] > mean:
            before, heavy, places = pools.pop()
            mean = (before * heavy + mean * weight) / (heavy + weight)
            weight, count = weight + heavy, count + places
        pools.append((mean, weight, count))
    flat = [mean for mean, _, count in pools for _ in range(count)]
    # The mean of a pool may round to a hair below the pool before it.
    return tuple(float(value) for value in np.maximum.accumulate(flat))
