"""Models of a stream of whole numbers, and what they say of the steps to come.

A step is one row of the stream. A model gives, for values v and d = 1, 2, …, the probability that the row d steps from
now is v. Where this depends on the difference between v and one moving number alone, so do sums over d (003,
Corollary 5 and Theorem 11); an AR(1) process needs a surface.

Rows may live for millions of steps, so no sum is taken step by step to its end: it costs the same for every α, but for
its logarithm.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from penstock.errors import BadOption

F64 = npt.NDArray[np.float64]

#: How far sums are taken: beyond it a row is as good as forgotten.
_NEGLIGIBLE = 1e-9
#: Steps that are looked at one by one; and by what part of their distance those after them are put together.
_ONE_BY_ONE, _TOGETHER = 128, 1 / 16
#: Numbers that are worked on at once.
_AT_ONCE = 1 << 14
#: Surfaces that are kept: models that are fitted change with every micro-batch.
_KEPT = 8


@dataclass(frozen=True)
class Now:
    """Where a stream stands: how many rows it has had, and the value of the last."""

    step: int
    last: float


class StreamModel(ABC):
    """What is known of a stream. Frozen: it travels to the workers."""

    #: By which `progress()` names the model in force.
    number: ClassVar[int]

    @abstractmethod
    def chances(self, values: F64, now: Now, ahead: int) -> F64:
        """Probabilities of the values, one row each, in the next `ahead` steps, one column each."""

    def benefit(self, values: F64, now: Now, alpha: float) -> F64:
        """`Σ_d Pr{X_{now+d} = v} · e^{-d/α}` of each value: by the definition, where there is no quicker way."""
        ahead = horizon(alpha)
        return _summed(self.chances(values, now, ahead), weights(alpha, ahead))

    def benefit_within(self, values: F64, now: Now, alpha: float, life: F64) -> F64:
        """The same over the next `life` steps alone, as far as the model can tell it."""
        return self.benefit(values, now, alpha)


def weights(alpha: float, ahead: int) -> F64:
    """`e^{-d/α}` for d = 1, …, ahead: how likely a row is still there then.

    >>> weights(1.0, 2).round(3).tolist()
    [0.368, 0.135]
    """
    return np.exp(-np.arange(1, ahead + 1) / alpha)


def horizon(alpha: float) -> int:
    """Steps after which weights are negligible.

    >>> horizon(1.0)
    21
    """
    return max(math.ceil(-alpha * math.log(_NEGLIGIBLE)), 1)


def alpha_for(mean_life: float) -> float:
    """The α with which rows live `mean_life` steps on average: `1 / (1 - e^{-1/α})` is that.

    >>> round(1 / (1 - math.exp(-1 / alpha_for(20.0))), 6)
    20.0
    """
    return -1.0 / math.log(1.0 - 1.0 / max(mean_life, 1.0 + 1e-6))


def _blocks(alpha: float) -> tuple[F64, F64, F64]:
    """All steps up to the horizon, in blocks: the middle of each, how many steps it has, and the sum of their weights.

    >>> middle, count, weight = _blocks(2.0)
    >>> middle[:2].tolist(), int(count.sum()) == horizon(2.0), bool(np.isclose(weight.sum(), weights(2.0, 42).sum()))
    ([1.0, 2.0], True, True)
    """
    ends, last = list(range(min(horizon(alpha), _ONE_BY_ONE) + 1)), horizon(alpha)
    while ends[-1] < last:
        ends.append(min(ends[-1] + math.ceil(ends[-1] * _TOGETHER), last))
    edges = np.asarray(ends, np.float64)
    return (edges[:-1] + edges[1:] + 1) / 2, np.diff(edges), _up_to(edges[1:], alpha) - _up_to(edges[:-1], alpha)


def _up_to(steps: F64, alpha: float) -> F64:
    """The weights of so many steps together."""
    return np.asarray(-np.expm1(-steps / alpha) / math.expm1(1.0 / alpha))


def _summed(chances: F64, weight: F64) -> F64:
    """The weighted sum of each row. Not as a product of matrices: what that gives for a row depends on the others."""
    return np.asarray((chances * weight).sum(axis=1))


@dataclass(frozen=True)
class Noise:
    """Whole-numbered noise around 0: `pmf` has the probability of each number from -bound to bound.

    With a `width` each of its cells stands for so many numbers, and has the probability of all of them.
    """

    pmf: tuple[float, ...]
    width: int = 1

    @classmethod
    def normal(cls, deviation: float, bound: int | None = None, width: int = 1) -> Noise:
        """A normal distribution, cut to whole numbers and, if asked for, to a bound.

        >>> round(sum(Noise.normal(2.0, 10).pmf), 9), len(Noise.normal(2.0, 10).pmf)
        (1.0, 21)
        """
        if not deviation > 0:
            raise BadOption(f"A standard deviation of {deviation} is none.", do="Give one above 0.")
        reach = math.ceil((math.ceil(8 * deviation) if bound is None else bound) / width)
        edges = np.arange(-reach - 0.5, reach + 1) * width
        below = np.array([0.5 * math.erfc(-edge / deviation / math.sqrt(2)) for edge in edges])
        pmf = np.diff(below)
        return cls(tuple((pmf / pmf.sum()).tolist()), width)

    @classmethod
    def uniform(cls, bound: int, width: int = 1) -> Noise:
        """Every number up to a bound is as likely.

        >>> Noise.uniform(1).pmf
        (0.3333333333333333, 0.3333333333333333, 0.3333333333333333)
        """
        cells = 2 * (bound // width) + 1
        return cls((1.0 / cells,) * cells, width)

    @property
    def bound(self) -> int:
        """The largest number, to a cell."""
        return len(self.pmf) // 2 * self.width

    def at(self, numbers: F64) -> F64:
        """The probability of each, rounded to a whole number, half of one upwards."""
        places = np.floor(numbers / self.width + 0.5) + len(self.pmf) // 2
        inside = (places >= 0) & (places < len(self.pmf))
        each = np.asarray(self.pmf) / self.width
        return np.where(inside, each[np.clip(places, 0, len(self.pmf) - 1).astype(np.int64)], 0.0)

    def levels(self) -> tuple[F64, F64]:
        """The probability of a number, where it changes and to what: edges, and what is between each two.

        >>> edges, each = Noise.uniform(1).levels()
        >>> edges.tolist(), each.round(3).tolist()
        ([-1.5, 1.5], [0.333])
        """
        each = np.asarray(self.pmf) / self.width
        new = np.flatnonzero(np.diff(each, prepend=np.nan, append=np.nan) != 0)
        edges: F64 = (new.astype(np.float64) - len(self.pmf) / 2) * self.width
        return edges, each[new[:-1]]


@dataclass(frozen=True)
class Known(StreamModel):
    """The whole stream is known: an offline yardstick."""

    values: tuple[int, ...]

    number = 1

    def chances(self, values: F64, now: Now, ahead: int) -> F64:
        """1 where the row will be that value."""
        coming = np.asarray(self.values[now.step : now.step + ahead], np.float64)
        found = np.zeros((len(values), ahead))
        found[:, : len(coming)] = values[:, None] == coming[None, :]
        return found


@dataclass(frozen=True)
class Stationary(StreamModel):
    """Every row is drawn alike: `pmf[i]` is the probability of `first + i`."""

    pmf: tuple[float, ...]
    first: int = 0

    number = 2

    def _chance(self, values: F64) -> F64:
        places = np.rint(values).astype(np.int64) - self.first
        inside = (places >= 0) & (places < len(self.pmf))
        return np.where(inside, np.asarray(self.pmf)[np.clip(places, 0, len(self.pmf) - 1)], 0.0)

    def chances(self, values: F64, now: Now, ahead: int) -> F64:
        """The same at every step."""
        return np.repeat(self._chance(values)[:, None], ahead, axis=1)

    def benefit_within(self, values: F64, now: Now, alpha: float, life: F64) -> F64:
        """A geometric sum."""
        ratio = math.exp(-1.0 / alpha)
        return self._chance(values) * ratio * (1.0 - ratio ** np.maximum(life, 0.0)) / (1.0 - ratio)

    def benefit(self, values: F64, now: Now, alpha: float) -> F64:
        """The same without an end."""
        return self.benefit_within(values, now, alpha, np.full(len(values), np.inf))


@dataclass(frozen=True)
class LinearTrend(StreamModel):
    """`X_t = slope · t + start + noise`, t counting rows from 0."""

    slope: float
    start: float
    noise: Noise

    number = 3

    def _offset(self, values: F64, now: Now) -> F64:
        # The row that comes next has number `step`; one step from now is therefore t = step.
        return values - (self.slope * (now.step - 1) + self.start)

    def chances(self, values: F64, now: Now, ahead: int) -> F64:
        """By the distance to the trend."""
        return self.noise.at(self._offset(values, now)[:, None] - self.slope * np.arange(1, ahead + 1)[None, :])

    def benefit(self, values: F64, now: Now, alpha: float) -> F64:
        """It depends on the distance to the trend alone (Corollary 5)."""
        return self.benefit_within(values, now, alpha, np.full(len(values), np.inf))

    def benefit_within(self, values: F64, now: Now, alpha: float, life: F64) -> F64:
        """Of each level of the noise a geometric sum: over the steps at which the trend is so far from the value."""
        offset, steps = self._offset(values, now), np.floor(np.maximum(life, 0.0))
        if self.slope == 0:
            return self.noise.at(offset) * _up_to(steps, alpha)
        edges, each = self.noise.levels()
        found = np.empty(len(offset))
        size = max(_AT_ONCE // len(edges), 1)
        for begin in range(0, len(offset), size):
            part = slice(begin, begin + size)
            # Steps after which the trend has come so near, or gone so far, that the difference passes an edge.
            passed = (offset[part, None] - edges) / self.slope
            passed = np.floor(passed) if self.slope > 0 else np.ceil(passed) - 1
            sums = _up_to(np.clip(passed, 0.0, steps[part, None]), alpha)
            found[part] = _summed(np.abs(np.diff(sums, axis=1)), each)
        return found


@dataclass(frozen=True)
class RandomWalk(StreamModel):
    """`X_t = X_{t-1} + drift + noise`, the noise normal."""

    drift: float
    deviation: float

    number = 4

    def chances(self, values: F64, now: Now, ahead: int) -> F64:
        """The further ahead, the wider."""
        steps = np.arange(1, ahead + 1)
        return _normal_cells(values[:, None] - now.last - self.drift * steps, self.deviation * np.sqrt(steps))

    def benefit(self, values: F64, now: Now, alpha: float) -> F64:
        """It depends on the distance to the last value alone (Theorem 11): the curve h1."""
        middle, count, weight = _blocks(alpha)
        # Within a block the walk drifts on: as if it were so much wider.
        spread = np.sqrt(self.deviation**2 * middle + self.drift**2 * (count**2 - 1) / 12)
        offsets, which = np.unique(values - now.last, return_inverse=True)
        found = np.empty(len(offsets))
        size = max(_AT_ONCE // len(middle), 1)
        for begin in range(0, len(offsets), size):
            some = offsets[begin : begin + size, None] - self.drift * middle
            found[begin : begin + size] = _summed(_normal_cells(some, spread), weight)
        return found[which]


@dataclass(frozen=True)
class AutoRegressive(StreamModel):
    """AR(1): `X_t = constant + factor · X_{t-1} + noise`, the noise normal and 0 < |factor| < 1."""

    constant: float
    factor: float
    deviation: float

    number = 5

    def __post_init__(self) -> None:
        if not 0 < abs(self.factor) < 1:
            raise BadOption(
                f"An AR(1) process with the factor {self.factor} has no mean to return to.",
                do="Give one between 0 and 1; with 1 it is a random walk.",
            )

    def _ahead(self, last: F64 | float, steps: F64) -> tuple[F64, F64]:
        decay = self.factor**steps
        mean = decay * last + self.constant * (1 - decay) / (1 - self.factor)
        spread = self.deviation * np.sqrt((1 - decay**2) / (1 - self.factor**2))
        return mean, spread

    def chances(self, values: F64, now: Now, ahead: int) -> F64:
        """From the last value back to the mean."""
        return self._chances(values, now.last, np.arange(1.0, ahead + 1))

    def _chances(self, values: F64, last: float, steps: F64) -> F64:
        mean, spread = self._ahead(last, steps)
        return _normal_cells(values[:, None] - mean, spread)

    def surface(self, alpha: float, points: int = 5) -> Surface:
        """The surface h2(v, x) of Theorem 11, from `points` by `points` values over the likely range."""
        key = (self, round(alpha, 3), points)
        if key not in _surfaces:
            mean = self.constant / (1 - self.factor)
            spread = 4 * self.deviation / math.sqrt(1 - self.factor**2)
            grid = np.linspace(mean - spread, mean + spread, points)
            later: F64 | float = 0.0
            if self.factor > 0:
                steps, _, each = _blocks(alpha)
            else:
                # It goes to and fro, so step by step, until the last value is forgotten and all steps are alike.
                ahead = min(horizon(alpha), math.ceil(math.log(_NEGLIGIBLE) / math.log(-self.factor)))
                steps, each = np.arange(1.0, ahead + 1), weights(alpha, ahead)
                rest = 1.0 / math.expm1(1.0 / alpha) - float(each.sum())
                later = rest * _normal_cells(grid - mean, spread / 4)
            heights = [self._chances(grid, float(x), steps) @ each + later for x in grid]
            if len(_surfaces) >= _KEPT:
                _surfaces.clear()
            _surfaces[key] = Surface(grid, np.stack(heights, axis=1))
        return _surfaces[key]

    def benefit(self, values: F64, now: Now, alpha: float) -> F64:
        """By bicubic interpolation of a surface of 25 by 25 points; the paper has 5 by 5."""
        return self.surface(alpha, 25)(values, now.last)


class Surface:
    """Heights over a square grid, bicubic in between (Catmull-Rom), flat beyond its ends."""

    def __init__(self, grid: F64, heights: F64) -> None:
        self._first, self._step, self._heights = float(grid[0]), float(grid[1] - grid[0]), heights

    def __call__(self, values: F64, last: float) -> F64:
        """The height at each (value, last)."""
        columns, along = self._around(np.array([last]))
        # First along the last value, which is one for all, then along the values.
        curve = np.tensordot(self._heights[:, columns[0]], along[0], axes=1)
        places, shares = self._around(values)
        return np.maximum((curve[places] * shares).sum(axis=1), 0.0)

    def _around(self, at: F64) -> tuple[npt.NDArray[np.int64], F64]:
        count = len(self._heights)
        position = np.clip((at - self._first) / self._step, 0, count - 1 - 1e-9)
        cell = position.astype(np.int64)
        t = position - cell
        places = np.clip(cell[:, None] + np.arange(-1, 3), 0, count - 1)
        shares = np.stack(
            [
                (-t + 2 * t**2 - t**3) / 2,
                (2 - 5 * t**2 + 3 * t**3) / 2,
                (t + 4 * t**2 - 3 * t**3) / 2,
                (-(t**2) + t**3) / 2,
            ],
            axis=1,
        )
        return places, shares


_surfaces: dict[tuple[StreamModel, float, int], Surface] = {}
#: The normal distribution by interpolation of a fine table: 1e-7 exact, and quicker than one call for each number.
_EDGES = np.linspace(-9.0, 9.0, 36_001)
_BELOW = np.array([0.5 * math.erfc(-edge / math.sqrt(2)) for edge in _EDGES])


def _normal_cells(distance: F64, deviation: F64 | float) -> F64:
    """The probability that a normal number, rounded, is a whole number at these distances from its mean."""
    above = np.interp((distance + 0.5) / deviation, _EDGES, _BELOW)
    return np.asarray(above - np.interp((distance - 0.5) / deviation, _EDGES, _BELOW))


def names(numbers: Sequence[int]) -> list[str]:
    """The models that numbers in `progress()` stand for.

    >>> names([0, 3])
    ['counted keys', 'LinearTrend']
    """
    known = {model.number: model.__name__ for model in StreamModel.__subclasses__()}
    return [known.get(number, "counted keys") for number in numbers]
