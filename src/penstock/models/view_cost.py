"""What refreshes cost on the system that runs them: measured, kept lawful, corrected as it drifts.

For each table a line, setup and so much for each change, fitted to what refreshes took; newer ones count more. A line
with neither part negative is monotone and subadditive, whatever was measured. How many times longer refreshes took
than the line had said before each is kept beside it, so that a promise can leave room for slow ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: Measurements that are kept of a table.
_KEPT = 40
#: How much less each older measurement counts.
_FADING = 0.93
#: What a measurement made in advance counts: something where nothing else is known, little beside real ones.
_ADVANCE = 0.05
#: Ratios of measured to expected that are kept of a table, and the share of them that a promise has room for.
_RATIOS = 100
_ROOM_FOR = 0.95
#: Measurements before which a line is too vague for a ratio to it to say anything.
_LEARNT = 5


@dataclass(frozen=True)
class Line:
    """Seconds for a refresh: `setup`, and `each` for every change."""

    each: float
    setup: float

    def __call__(self, changes: int) -> float:
        """Nothing for nothing."""
        return self.setup + self.each * changes if changes > 0 else 0.0


@dataclass
class MeasuredCost:
    """The cost of one table's refreshes.

    >>> cost = MeasuredCost()
    >>> for changes in (1, 1000, 100, 500):
    ...     cost.measured(changes, 0.5 + 0.001 * changes)
    >>> round(cost.line.setup, 3), round(cost.line.each, 6), cost.excess
    (0.5, 0.001, 1.0)
    """

    #: (changes, seconds), made before the view was in use.
    advance: list[tuple[int, float]] = field(default_factory=list)
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_KEPT))
    #: Measured time of each refresh, as a multiple of what the line had said before it.
    ratios: deque[float] = field(default_factory=lambda: deque(maxlen=_RATIOS))

    def __post_init__(self) -> None:
        self._line: Line | None = None

    def tried(self, points: Iterable[tuple[int, float]]) -> None:
        """Trials, made before the view was in use, took so long for so many changes."""
        self.advance, self._line = list(points), None

    def measured(self, changes: int, seconds: float) -> None:
        """A refresh of so many changes took so long."""
        expected = self.line(changes)
        if expected > 0 and len(self.recent) >= _LEARNT:
            self.ratios.append(seconds / expected)
        self.recent.append((changes, seconds))
        self._line = None

    @property
    def line(self) -> Line:
        """The nearest line that does not fall."""
        if self._line is None:
            points = [(k, s, _ADVANCE) for k, s in self.advance]
            points += [(k, s, _FADING**age) for age, (k, s) in enumerate(reversed(self.recent))]
            self._line = nearest_line(points)
        return self._line

    @property
    def excess(self) -> float:
        """How many times longer than expected all but the slowest twentieth of refreshes took at most; at least 1."""
        found = sorted(self.ratios)
        return max(1.0, round(found[math.ceil(_ROOM_FOR * len(found)) - 1], 9)) if found else 1.0

    def as_json(self) -> dict[str, Any]:
        """To be kept for the next run."""
        return {"advance": self.advance, "recent": list(self.recent), "ratios": list(self.ratios)}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> MeasuredCost:
        """As it was kept."""
        advance, recent = ([(changes, seconds) for changes, seconds in said[name]] for name in ("advance", "recent"))
        return cls(advance, deque(recent, maxlen=_KEPT), deque(said.get("ratios", ()), maxlen=_RATIOS))


def nearest_line(points: Iterable[tuple[float, float, float]]) -> Line:
    """The line through (changes, seconds, weight) with the least weighted squares, neither part of it negative.

    >>> nearest_line([(1, 3.0, 1.0), (3, 1.0, 1.0)])
    Line(each=0.0, setup=2.0)
    """
    found = [(x, y, w) for x, y, w in points if w > 0]
    if not found:
        return Line(0.0, 0.0)
    weight = sum(w for _, _, w in found)
    mean_x = sum(w * x for x, _, w in found) / weight
    mean_y = sum(w * y for _, y, w in found) / weight
    spread = sum(w * (x - mean_x) ** 2 for x, _, w in found)
    slope = sum(w * (x - mean_x) * (y - mean_y) for x, y, w in found) / spread if spread > 0 else 0.0
    if slope <= 0:
        return Line(0.0, max(mean_y, 0.0))
    setup = mean_y - slope * mean_x
    if setup >= 0:
        return Line(slope, setup)
    return Line(max(sum(w * x * y for x, y, w in found) / sum(w * x * x for x, _, w in found), 0.0), 0.0)
