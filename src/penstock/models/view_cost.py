"""What refreshes cost on the system that runs them: measured, kept lawful, corrected as it drifts.

For each table a line, setup and so much for each change, fitted to what refreshes took; newer ones count more. A line
with neither part negative is monotone and subadditive, whatever was measured. How far single refreshes were above it
is kept beside it, so that a promise can leave room for slow ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

#: Measurements that are kept of a table.
_KEPT = 40
#: How much less each older measurement counts.
_FADING = 0.93
#: What a measurement made in advance counts: something where nothing else is known, little beside real ones.
_ADVANCE = 0.05


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

    def measured(self, changes: int, seconds: float) -> None:
        """A refresh of so many changes took so long."""
        self.recent.append((changes, seconds))

    @property
    def line(self) -> Line:
        """The nearest line that does not fall."""
        points = [(k, s, _ADVANCE) for k, s in self.advance]
        points += [(k, s, _FADING**age) for age, (k, s) in enumerate(reversed(self.recent))]
        return nearest_line(points)

    @property
    def excess(self) -> float:
        """How many times longer than the line says nine in ten of recent refreshes took at most; at least 1."""
        line = self.line
        ratios = sorted(seconds / line(changes) for changes, seconds in self.recent if changes and line(changes) > 0)
        return max(1.0, round(ratios[9 * (len(ratios) - 1) // 10], 9)) if ratios else 1.0

    def as_json(self) -> dict[str, list[tuple[int, float]]]:
        """To be kept for the next run."""
        return {"advance": self.advance, "recent": list(self.recent)}

    @classmethod
    def from_json(cls, said: dict[str, list[tuple[int, float]]]) -> MeasuredCost:
        """As it was kept."""
        return cls([tuple(p) for p in said["advance"]], deque((tuple(p) for p in said["recent"]), maxlen=_KEPT))  # type: ignore[misc]


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
