"""The plane of subscriptions, divided into cells that a broker knows as subjects.

A subscription over [x1, x2] is the point (x1, x2) and lies in one cell; a message is a rectangle and goes to every cell
that it touches. A cell that holds a crowd is split in two where half of the crowd is on either side, if that lets some
gateway listen to less or have fewer to look at. Cells are only ever split: what a subject once meant stays true, and
whoever comes late follows the splits from the root.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.broker.messages import (
    FLAGS,
    HAS_LEFT,
    HAS_RIGHT,
    INNER_LEFT,
    INNER_RIGHT,
    LEAST,
    LEFT,
    MOST,
    RIGHT,
)

I64 = npt.NDArray[np.int64]
#: Columns of a cell: the axis it is split on (-1 for none), where, and the two parts.
AXIS, AT, LOW, HIGH = range(4)
#: No cell is split more often than this: a crowd at one point cannot be divided.
DEEPEST = 40


@njit(cache=True)
def route(cells: I64, rows: I64, pairs: I64) -> int:
    """Write (message, cell) for every unsplit cell that a message's rectangle touches; how many there are.

    Only as many as fit are written: call again with more room if there are more.
    """
    stack = np.empty(2 * DEEPEST + 2, np.int64)
    count = 0
    for m in range(len(rows)):
        row = rows[m]
        # The rectangle as closed intervals of codes.
        low1 = row[LEFT] + 1 if row[FLAGS] & HAS_LEFT else LEAST
        high2 = row[RIGHT] - 1 if row[FLAGS] & HAS_RIGHT else MOST
        stack[0] = 0
        top = 1
        while top:
            top -= 1
            cell = stack[top]
            axis, at = cells[cell, AXIS], cells[cell, AT]
            if axis < 0:
                if count < len(pairs):
                    pairs[count, 0], pairs[count, 1] = m, cell
                count += 1
                continue
            low, high = (low1, row[INNER_LEFT]) if axis == 0 else (row[INNER_RIGHT], high2)
            if high >= at:
                stack[top] = cells[cell, HIGH]
                top += 1
            if low < at:
                stack[top] = cells[cell, LOW]
                top += 1
    return count


@njit(cache=True)
def locate(cells: I64, x1: I64, x2: I64, out: I64) -> None:
    """The unsplit cell of each point."""
    for i in range(len(x1)):
        cell = 0
        while cells[cell, AXIS] >= 0:
            value = x1[i] if cells[cell, AXIS] == 0 else x2[i]
            cell = cells[cell, HIGH] if value >= cells[cell, AT] else cells[cell, LOW]
        out[i] = cell


class CellMap:
    """The division of the plane.

    Guarantees
        Every point lies in exactly one unsplit cell, and a rectangle is routed to the cells of all of its points and to
        no cell that it does not touch: `test_a_message_reaches_the_cells_of_all_whom_it_concerns`.
    State and cost
        32 bytes a cell; O(depth) to find a point's, O(depth + cells touched) to route a message.

    >>> cells = CellMap()
    >>> cells.split(0, axis=0, at=100)
    >>> cells.paths, cells.cell_of(7, 200), cells.cell_of(100, 200)
    (['r', 'r0', 'r1'], 1, 2)
    """

    def __init__(self, cells: I64 | None = None, paths: list[str] | None = None) -> None:
        self._store = np.array([[-1, 0, 0, 0]], np.int64) if cells is None else cells
        self._count = len(self._store)
        #: How each cell is named: `r`, and for every split 0 or 1.
        self.paths = ["r"] if paths is None else paths

    @property
    def cells(self) -> I64:
        """All cells, split or not, as rows of axis, place and the two parts."""
        return self._store[: self._count]

    @property
    def unsplit(self) -> list[int]:
        """The cells that messages go to."""
        return [int(cell) for cell in np.flatnonzero(self.cells[:, AXIS] < 0)]

    def split(self, cell: int, axis: int, at: int) -> None:
        """Divide a cell: points below `at` on an axis (0 for x1, 1 for x2), and the others."""
        count = self._count
        if count + 2 > len(self._store):
            self._store = np.concatenate([self._store, np.zeros((count + 2, 4), np.int64)])
        self._store[cell] = axis, at, count, count + 1
        self._store[count : count + 2] = -1, 0, 0, 0
        self._count += 2
        self.paths += [f"{self.paths[cell]}0", f"{self.paths[cell]}1"]

    def extends(self, other: CellMap) -> bool:
        """Whether it is another division, or that one with cells split."""
        ours = self.cells[: len(other.cells)]
        same = ours == other.cells
        return len(ours) == len(other.cells) and bool((same.all(axis=1) | (other.cells[:, AXIS] < 0)).all())

    def depth(self, cell: int) -> int:
        """How often it was split off."""
        return len(self.paths[cell]) - 1

    def lineage(self, cell: int) -> list[int]:
        """The cells it came from, oldest first, and itself: where its messages are from the beginning."""
        path = self.paths[cell]
        numbers = {known: number for number, known in enumerate(self.paths)}
        return [numbers[path[:end]] for end in range(1, len(path) + 1)]

    def cell_of(self, x1: int, x2: int) -> int:
        """The cell of a subscription."""
        return int(self.cells_of(np.array([x1]), np.array([x2]))[0])

    def cells_of(self, x1: I64, x2: I64) -> I64:
        """The cells of subscriptions."""
        out = np.empty(len(x1), np.int64)
        locate(self.cells, x1, x2, out)
        return out

    def route(self, rows: I64) -> I64:
        """(message, cell) for every cell that a message touches."""
        pairs = np.empty((max(64, 4 * len(rows)), 2), np.int64)
        count = route(self.cells, rows, pairs)
        if count > len(pairs):
            pairs = np.empty((count, 2), np.int64)
            route(self.cells, rows, pairs)
        return pairs[:count]

    def to_json(self) -> str:
        """As it is told to gateways."""
        return json.dumps({"cells": self.cells.tolist(), "paths": self.paths})

    @classmethod
    def from_json(cls, text: str | bytes) -> CellMap:
        """What `to_json` wrote."""
        said = json.loads(text)
        return cls(np.array(said["cells"], np.int64), list(said["paths"]))


def halve(x1: I64, x2: I64) -> tuple[int, int] | None:
    """Where to split a crowd of points: the axis and place that leave about half on either side; None for one point."""
    best: tuple[int, int, int] | None = None
    for axis, values in enumerate((x1, x2)):
        at = int(np.partition(values, len(values) // 2)[len(values) // 2])
        if at == values.min():
            above = values[values > at]
            if not len(above):
                continue
            at = int(above.min())
        worse = abs(2 * int(np.count_nonzero(values < at)) - len(values))
        if best is None or worse < best[0]:
            best = worse, axis, at
    return None if best is None else best[1:]


class Split(NamedTuple):
    """A division that is thought of: the axis, the place, and what becomes of the two parts."""

    axis: int
    at: int
    low: Split | None
    high: Split | None


def adapt(cells: CellMap, x1: I64, x2: I64, crowd: int, gateway: I64 | None = None) -> bool:
    """Split cells until none that can be split holds more than `crowd` of these points; whether anything changed.

    `gateway` says whose each point is. A cell then stays whole if no gateway has more than `crowd` points in it and all
    would listen to both parts: they would only hear the same news in more pieces.
    """
    homes, whose = cells.cells_of(x1, x2), np.zeros(len(x1), np.int64) if gateway is None else gateway
    changed = False
    for cell in cells.unsplit:
        members = np.flatnonzero(homes == cell)
        split = _split(x1[members], x2[members], whose[members], crowd, DEEPEST - cells.depth(cell))
        if split is not None:
            _carry_out(cells, cell, split)
            changed = True
    return changed


def _split(x1: I64, x2: I64, whose: I64, crowd: int, deepest: int) -> Split | None:
    if len(x1) <= crowd or deepest <= 0 or (place := halve(x1, x2)) is None:
        return None
    below = (x1 if place[0] == 0 else x2) < place[1]
    low, high = (_split(x1[part], x2[part], whose[part], crowd, deepest - 1) for part in (below, ~below))
    needed = low is not None or high is not None or np.bincount(whose).max() > crowd
    if not needed and np.array_equal(np.unique(whose[below]), np.unique(whose[~below])):
        return None
    return Split(*place, low, high)


def _carry_out(cells: CellMap, cell: int, split: Split) -> None:
    cells.split(cell, split.axis, split.at)
    parts = len(cells.cells) - 2, len(cells.cells) - 1
    for part, further in zip(parts, (split.low, split.high), strict=True):
        if further is not None:
            _carry_out(cells, part, further)
