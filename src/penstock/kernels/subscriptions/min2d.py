"""MIN over two-dimensional ranges: which boxes of subscriptions an update concerns, and their new answers.

A subscription over [l1, u1] × [l2, u2] is a point in four dimensions. The chapter shows the region (MAR², Fig. 5.5,
right) whose contour an update's equals and betters draw, and leaves the computation open. Here it is:

* the ranges that contain a *core* (a box of places) and none of some *obstacles* are a union of disjoint boxes
  in four dimensions. Sort the obstacles beside the core by x1; between two neighbours on the left and two on the right,
  the lowest and highest reach in x2 is fixed by the obstacles in between;
* an insertion is told to the ranges around it without a row at or below it: core the row, obstacles those rows;
* a deletion, or a rise, is told for each row that becomes the least of some range: core that row and the old place
  together, obstacles all lower rows (and of equal ones those that come earlier, so that each range is told once).

A move is one event, as in one dimension: the old point's ranges are divided among the rows as they are after the
update, and the new point's own message leaves out ranges with the old point where these were told already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]
LEAST, MOST = -(2**63), 2**63 - 1


class Point(NamedTuple):
    """A row: its place, and its y."""

    x1: int
    x2: int
    y: int


class Message2D(NamedTuple):
    """The new minimum (None for none) of all ranges with low < l1 <= inner … on both axes, as closed intervals.

    `l1`, `u1`, `l2` and `u2` are each a pair: the least and the greatest value that the end of a range may have.
    """

    value: int | None
    l1: tuple[int, int]
    u1: tuple[int, int]
    l2: tuple[int, int]
    u2: tuple[int, int]


class RangeMin2D:
    """A table of places and values, and what its updates mean to subscribers of two-dimensional minima.

    Guarantees
        After every update, each range whose least y changed lies in exactly one message, and no other range does:
        `test_ranges_of_two_dimensions_are_told_exactly`.
    State and cost
        24 bytes a row, with room to double. An update looks at every row, compiled, for each row that it exposes; it
        says O(a·b) messages for a and b obstacles on the contour to the left and right. There is no tree: the cost is
        linear in the rows, as the chapter leaves a better structure to future work.

    Xie, §5.4 and Fig. 5.5.

    >>> table = RangeMin2D()
    >>> [message.value for message in table.update(None, Point(5, 5, 3))]
    [3]
    >>> len(table.update(None, Point(6, 6, 1)))
    1
    """

    def __init__(self) -> None:
        self._rows = np.zeros((16, 3), np.int64)
        self._count = 0

    @property
    def rows(self) -> I64:
        """All rows as (x1, x2, y)."""
        return self._rows[: self._count]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._rows.nbytes)

    def update(self, old: Point | None, new: Point | None) -> list[Message2D]:
        """Replace a row by another; the messages. None for a row that is not there."""
        if old is not None:
            self._remove(old)
        out: list[Message2D] = []
        if new is not None:
            barred = None if old is None or new.y < old.y else old
            rows = self.rows
            obstacles = rows[rows[:, 2] <= new.y][:, :2]
            if barred is not None:
                # Ranges with the old point are told below, where the rows that it hid are.
                obstacles = np.concatenate([obstacles, np.array([[barred.x1, barred.x2]], np.int64)])
            out += [Message2D(new.y, *box) for box in _around(_core(new, new), obstacles)]
            self._add(new)
        if old is not None:
            out += self._exposed(old)
        return out

    def _exposed(self, old: Point) -> Iterator[Message2D]:
        """For every range with the old place and no row at or below its y: the row that is the least now."""
        rows = self.rows
        lower = rows[rows[:, 2] <= old.y][:, :2]
        if _hit(lower, _core(old, old)).any():
            return
        above = rows[rows[:, 2] > old.y]
        above = above[np.lexsort((above[:, 1], above[:, 0], above[:, 2]))]
        # A row behind one that is as near or nearer on both axes and no higher is never the least.
        for number in _exposable(above, old.x1, old.x2).tolist():
            row = above[number]
            core = _core(old, Point(int(row[0]), int(row[1]), 0))
            obstacles = np.concatenate([lower, above[:number, :2]])
            for box in _around(core, obstacles):
                yield Message2D(int(row[2]), *box)
        for box in _around(_core(old, old), rows[:, :2]):
            yield Message2D(None, *box)

    def _add(self, point: Point) -> None:
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._count] = point
        self._count += 1

    def _remove(self, point: Point) -> None:
        at = np.flatnonzero((self.rows == np.array(point, np.int64)).all(axis=1))
        if not len(at):
            raise KeyError(point)
        self._rows[at[0]] = self._rows[self._count - 1]
        self._count -= 1


def _core(one: Point, other: Point) -> tuple[int, int, int, int]:
    """The box of two places: low and high on the first axis, low and high on the second."""
    return min(one.x1, other.x1), max(one.x1, other.x1), min(one.x2, other.x2), max(one.x2, other.x2)


def _hit(places: I64, core: tuple[int, int, int, int]) -> npt.NDArray[np.bool_]:
    a, b, c, d = core
    return (places[:, 0] >= a) & (places[:, 0] <= b) & (places[:, 1] >= c) & (places[:, 1] <= d)


@njit(cache=True)
def _exposable(above: I64, x1: int, x2: int) -> I64:
    """Of rows in the order of y, those whose box with a place holds none before: a skyline in each quadrant."""
    kept = np.empty(len(above), np.int64)
    count = 0
    for number in range(len(above)):
        a, b = min(x1, above[number, 0]), max(x1, above[number, 0])
        c, d = min(x2, above[number, 1]), max(x2, above[number, 1])
        hidden = False
        for i in range(count):
            other = above[kept[i]]
            if a <= other[0] <= b and c <= other[1] <= d:
                hidden = True
                break
        if not hidden:
            kept[count] = number
            count += 1
    return kept[:count]


Box = tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]


def _around(core: tuple[int, int, int, int], obstacles: I64) -> Iterator[Box]:
    """Disjoint boxes of all ranges that contain a core and no obstacle; none if an obstacle lies in it."""
    a, b, c, d = core
    if _hit(obstacles, core).any():
        return
    left = _steps(obstacles[obstacles[:, 0] < a], -1, c, d)
    right = _steps(obstacles[obstacles[:, 0] > b], 1, c, d)
    beside = obstacles[(obstacles[:, 0] >= a) & (obstacles[:, 0] <= b)]
    floor, roof = _reach(beside, c, d)
    for near, far, low, high in left:
        for nearer, farther, bottom, top in right:
            lowest, highest = max(floor, low, bottom), min(roof, high, top)
            yield (
                (LEAST if far is None else far + 1, a if near is None else near),
                (b if nearer is None else nearer, MOST if farther is None else farther - 1),
                (LEAST if lowest == LEAST else lowest + 1, c),
                (d, MOST if highest == MOST else highest - 1),
            )


def _reach(places: I64, c: int, d: int) -> tuple[int, int]:
    """The highest place below c, and the lowest above d: ranges end between them."""
    below, beyond = places[places[:, 1] < c, 1], places[places[:, 1] > d, 1]
    return int(below.max()) if len(below) else LEAST, int(beyond.min()) if len(beyond) else MOST


@njit(cache=True)
def _climb(places: I64, c: int, d: int, steps: I64) -> int:
    """Fill in (nearest end, first end that is too far, highest below, lowest above) for places by their distance; how
    many, negative if the last one has no end that is too far. The nearest end of the first means nothing.
    """
    count, near = 0, 0
    low, high = LEAST, MOST
    for i in range(len(places)):
        x1, x2 = places[i, 0], places[i, 1]
        fresh = i == 0 or near != x1 or count == 0
        if c <= x2 <= d:
            if fresh:
                steps[count] = near, x1, low, high
                count += 1
            return count
        if (x2 < c and x2 <= low and low != LEAST) or (x2 > d and x2 >= high and high != MOST):
            continue
        if fresh:
            steps[count] = near, x1, low, high
            count += 1
            near = x1
        if x2 < c:
            low = max(low, x2)
        else:
            high = min(high, x2)
    steps[count] = near, 0, low, high
    return -(count + 1)


def _steps(places: I64, direction: int, c: int, d: int) -> list[tuple[int | None, int | None, int, int]]:
    """How far ranges may reach in x2, by how far they reach in x1 on one side.

    Each step is (nearest end of the range, first end that is too far, highest below, lowest above). A place within
    [c, d] in x2 bars all further ones.
    """
    order = np.argsort(places[:, 0], kind="stable")[::direction]
    steps = np.empty((len(places) + 1, 4), np.int64)
    count = _climb(places[order], c, d, steps)
    out: list[tuple[int | None, int | None, int, int]] = []
    for number, (near, far, low, high) in enumerate(steps[: abs(count)].tolist()):
        last = count < 0 and number == -count - 1
        out.append((None if number == 0 else near, None if last else far, low, high))
    return out
