"""Windows: how long a row of one stream waits for partners in the other.

Every kind is reduced to numbers. A row has a *moment* (what it is compared by) and a *number* (its place among the rows
of its side). A row meets the rows of the other side that came before it: those whose moment is close enough, or, in a
row window, those that few enough rows of their own side have followed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.errors import BadOption

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

LEFT, RIGHT = 0, 1
#: Beyond every moment; doubled it still fits 64 bits.
FAR = 1 << 61


class Reach(NamedTuple):
    """What a probing row reaches: moments of the others from `low` to `high` beside its own, and their last `rows`."""

    low: int
    high: int
    rows: int


class Clock(NamedTuple):
    """How far the streams have come: the watermark, and of each side the latest event time and the number of rows."""

    watermark: int | None
    latest: tuple[int, int]
    rows: tuple[int, int]


class Window(ABC):
    """How long rows of each side wait. Frozen: it travels to the workers."""

    #: Whether rows need an event time.
    timed: bool = True

    @abstractmethod
    def reach(self, side: int) -> Reach:
        """What a row of `side` reaches on the other side."""

    def moments(self, times: I64) -> I64:
        """What rows with these event times are compared by."""
        return times

    @abstractmethod
    def life(self, side: int, moments: I64, numbers: I64, clock: Clock) -> I64:
        """How long rows of `side` still wait: microseconds by the other side's time, or rows of their own side.

        Negative for a row that has left the window although the watermark may not know it yet.
        """

    @abstractmethod
    def closed(self, side: int, moments: I64, numbers: I64, clock: Clock) -> Mask:
        """Which rows of `side` can meet no partner any more."""

    @abstractmethod
    def span(self, side: int) -> int:
        """How long a row of `side` waits in all, in the unit of `life`."""

    @abstractmethod
    def describe(self) -> str:
        """For people."""


@dataclass(frozen=True)
class TimeWindow(Window):
    """A row waits `left` (or `right`) microseconds for rows of the other side: `-right <= r.time - l.time <= left`.

    >>> TimeWindow(10, 5).reach(LEFT)
    Reach(low=-5, high=10, rows=2305843009213693952)
    """

    left: int
    right: int

    def __post_init__(self) -> None:
        for length in (self.left, self.right):
            if not 0 < length < FAR:
                raise BadOption(
                    f"A window of {length} microseconds has no length." if length <= 0 else "The window is too long.",
                    why="A row waits in it for partners.",
                    do='Give a duration above zero: within="10 minutes".',
                )

    def reach(self, side: int) -> Reach:
        """Both ends belong to it."""
        before, after = (self.right, self.left) if side == LEFT else (self.left, self.right)
        return Reach(-before, after, FAR)

    def life(self, side: int, moments: I64, numbers: I64, clock: Clock) -> I64:
        """Until the other side is beyond the window."""
        return np.minimum(moments + (self.span(side) - clock.latest[1 - side]), self.span(side))

    def closed(self, side: int, moments: I64, numbers: I64, clock: Clock) -> Mask:
        """Once the watermark is beyond the window."""
        if clock.watermark is None:
            return np.zeros(len(moments), np.bool_)
        return moments < clock.watermark - self.span(side)

    def span(self, side: int) -> int:
        """Microseconds."""
        return self.left if side == LEFT else self.right

    def describe(self) -> str:
        """In seconds."""
        if self.left == self.right:
            return f"time, {_seconds(self.left)} s"
        return f"time, left rows wait {_seconds(self.left)} s and right rows {_seconds(self.right)} s"


@dataclass(frozen=True)
class RowWindow(Window):
    """A row waits until `left` (or `right`) rows of its own side have come, itself included."""

    left: int
    right: int

    timed = False

    def __post_init__(self) -> None:
        for length in (self.left, self.right):
            if not 0 < length < FAR:
                raise BadOption(f"A window of {length} rows holds nothing.", do="Give at least one row: ps.rows(1000).")

    def moments(self, times: I64) -> I64:
        """Rows are compared by their numbers alone."""
        return np.zeros(len(times), np.int64)

    def reach(self, side: int) -> Reach:
        """The last rows of the other side."""
        return Reach(-FAR, FAR, self.right if side == LEFT else self.left)

    def life(self, side: int, moments: I64, numbers: I64, clock: Clock) -> I64:
        """Rows of its own side that may still come."""
        return numbers + (self.span(side) - clock.rows[side])

    def closed(self, side: int, moments: I64, numbers: I64, clock: Clock) -> Mask:
        """Once more rows have come."""
        return numbers + self.span(side) < clock.rows[side]

    def span(self, side: int) -> int:
        """Rows."""
        return self.left if side == LEFT else self.right

    def describe(self) -> str:
        """By rows."""
        if self.left == self.right:
            return f"the last {self.left:,} rows of each side"
        return f"the last {self.left:,} rows of the left side and {self.right:,} of the right"


@dataclass(frozen=True)
class LandmarkWindow(Window):
    """Rows meet that came since the same landmark; there is one every `every` microseconds, counted from 1970 (UTC).

    The moment of a row is the number of its landmark.
    """

    every: int

    def __post_init__(self) -> None:
        if not 0 < self.every < FAR:
            raise BadOption(
                f"Landmarks {self.every} microseconds apart are none.", do='Give a duration: ps.landmark("1 day").'
            )

    def moments(self, times: I64) -> I64:
        """The landmark before each."""
        return times // self.every

    def reach(self, side: int) -> Reach:
        """The same landmark."""
        return Reach(0, 0, FAR)

    def life(self, side: int, moments: I64, numbers: I64, clock: Clock) -> I64:
        """Until the next landmark."""
        return np.minimum((moments + 1) * self.every - 1 - clock.latest[1 - side], self.every)

    def closed(self, side: int, moments: I64, numbers: I64, clock: Clock) -> Mask:
        """Once the watermark has reached the next landmark."""
        if clock.watermark is None:
            return np.zeros(len(moments), np.bool_)
        return moments < clock.watermark // self.every

    def span(self, side: int) -> int:
        """From one landmark to the next."""
        return self.every

    def describe(self) -> str:
        """In seconds."""
        return f"since the last landmark, one every {_seconds(self.every)} s"


def _seconds(micros: int) -> str:
    """All digits: by this text a checkpoint knows the window that it was made with.

    >>> _seconds(600_000_000), _seconds(2_592_000_500_000)
    ('600', '2592000.5')
    """
    whole, rest = divmod(micros, 1_000_000)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")
