"""MIN over two-dimensional ranges: which boxes of subscriptions an update concerns, and their new answers.

A subscription over [l1, u1] × [l2, u2] is a point in four dimensions. The chapter shows the region (MAR², Fig. 5.5,
right) whose contour is drawn by rows that are as low as the update or lower, and leaves structure and algorithms open,
to be "computed similarly to one dimension". Here they are:

* *the contour* of a place: rows at or below a y with none of their kind between them and the place. The kd-tree finds
  the nearest on either side, within ever narrower bounds on the other axis, as FINDR and FINDL do in one dimension;
* *the hull* of a place within its contour: rows that become the least of some range once the place's own row is gone.
  They come out of the tree from the lowest on; a node is left alone if a row that is known lies between it and
  the place (branch and bound, as for skylines);
* *boxes*: the ranges around a core (a place, or a place and a hull row) without an obstacle are disjoint boxes.
  Between two neighbouring obstacles on the left and two on the right, those in between say how far up and down.

A move is one event, as in one dimension: the old point's ranges are divided among the rows as they are after the
update, and the new point's own boxes leave out ranges with the old place where these are told with the hull.
Xie, §5.4 and Fig. 5.5; for the hull Papadias et al., "Progressive skyline computation in database systems".
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.subscriptions.kdtree import (
    COUNT,
    LEAST,
    MIN,
    MOST,
    X1_MAX,
    X1_MIN,
    X2_MAX,
    X2_MIN,
    KdNodes,
    kd_delete,
    kd_has_room,
    kd_insert,
    kd_nearest,
    parts_of,
)
from penstock.kernels.subscriptions.mar import (
    DIFFICULT,
    DONE,
    EASY,
    GROUP,
    HAS,
    HAS_NEW,
    HAS_OLD,
    HULL_FULL,
    IGNORABLE,
    MESSAGES_FULL,
    NEW_X,
    NEW_Y,
    OLD_X,
    OLD_Y,
    TREE_FULL,
)

I64 = npt.NDArray[np.int64]

#: Columns of an event beyond those of one dimension: the places on the second axis.
OLD_X2, NEW_X2 = 6, 7
#: Columns of a message: its event, the value, and its box; the outer sides may be open.
EVENT, VALUE, HAS_VALUE, INNER, OUTER, HAS_OUTER = 0, 1, 2, 3, 7, 11
MESSAGE_WIDTH = 15
#: Sides of a box, in the order of their columns.
_LEFT, _RIGHT, _BOTTOM, _TOP = range(4)
#: What a run notes of itself, to go on where it stopped: the event and its stage, messages written, rows in the
#: scratch, those of the contour, the hull row and the step to go on with, whether its own place was told, whether other
#: rows were; then counts of ignorable, easy and difficult events, and of nodes looked at.
AT, STAGE, WRITTEN, ROWS, CONTOUR, HULL_AT, STEP_AT, OWN, OTHERS, KINDS, SEEN = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
STATE_WIDTH = 13
_BEGIN, _REMOVED, _PLACED, _TOLD, _HULL = range(5)
#: What `_contour` and `_hull` say if there is no room, and if a row lies at the place itself.
_FULL, _HIT = -1, -2


class Scratch(NamedTuple):
    """Room for one event: rows of contour and hull, steps to the left and right, the heap, and rows by quadrant."""

    rows: I64
    left: I64
    right: I64
    heap: I64
    shade: I64


def new_scratch(size: int) -> Scratch:
    """Room for as many rows on contour and hull."""
    steps = np.zeros((2, size + 1, 7), np.int64)
    rows, heap, shade = (np.zeros(shape, np.int64) for shape in ((size, 3), (4 * size, 5), (4, size, 2)))
    return Scratch(rows, steps[0], steps[1], heap, shade)


@njit(cache=True)
def _contour(t: KdNodes, group: int, x1: int, x2: int, limit: int, rows: I64, seen: I64) -> int:
    """The rows at or below `limit` that bound the ranges around a place; how many, or `_FULL` or `_HIT`."""
    count = 0
    low, high, start = LEAST, MOST, x1
    # Of those straight above and below, which bound both directions.
    floor, roof = LEAST, MOST
    for direction in (-1, 1):
        if direction > 0:
            if x1 == MOST:
                break
            low, high, start = floor, roof, x1 + 1
        while True:
            found, at1, at2 = kd_nearest(t, group, direction, start, low, high, limit, seen)
            if not found:
                break
            if at1 == x1 and at2 == x2:
                return _HIT
            if count == len(rows):
                return _FULL
            rows[count, 0], rows[count, 1] = at1, at2
            count += 1
            if at2 == x2:
                break
            if at2 < x2:
                low = at2 + 1
            else:
                high = at2 - 1
            start = at1
            if at1 == x1:
                floor, roof = low, high
    return count


@njit(cache=True)
def _cast(x1: int, x2: int, at1: int, at2: int, shade: I64, cast: I64) -> None:
    """Note in which quadrants around a place a row hides what lies behind it: in two or four if it lies straight by.

    Coordinates that fall with the distance are turned round (~x, which no code is too large for).
    """
    for q in range(4):
        if (at1 <= x1 if q & 1 else at1 >= x1) and (at2 <= x2 if q & 2 else at2 >= x2):
            seat = shade[q, cast[q]]
            seat[0], seat[1] = ~at1 if q & 1 else at1, ~at2 if q & 2 else at2
            cast[q] += 1


@njit(cache=True)
def _hidden(x1: int, x2: int, to1: int, to2: int, shade: I64, cast: I64) -> bool:
    """Whether a known row lies in the box of two places."""
    q = (1 if to1 < x1 else 0) | (2 if to2 < x2 else 0)
    to1, to2 = ~to1 if q & 1 else to1, ~to2 if q & 2 else to2
    for i in range(cast[q]):  # noqa: SIM110 (compiled)
        if shade[q, i, 0] <= to1 and shade[q, i, 1] <= to2:
            return True
    return False


@njit(cache=True)
def _earlier(heap: I64, one: int, other: int) -> bool:
    """By y, nodes before rows, then by place: the order of rows follows from them alone, not from the tree."""
    for i in range(4):
        if heap[one, i] != heap[other, i]:
            return heap[one, i] < heap[other, i]
    return False


@njit(cache=True)
def _swap(heap: I64, one: int, other: int) -> None:
    for i in range(5):
        heap[one, i], heap[other, i] = heap[other, i], heap[one, i]


@njit(cache=True)
def _push(heap: I64, size: int, y: int, kind: int, x1: int, x2: int, node: int) -> None:
    heap[size, 0], heap[size, 1], heap[size, 2], heap[size, 3], heap[size, 4] = y, kind, x1, x2, node
    at = size
    while at > 0 and _earlier(heap, at, (at - 1) >> 1):
        _swap(heap, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@njit(cache=True)
def _pop(heap: I64, size: int) -> None:
    """Move the first of `size` items behind the others."""
    at, size = 0, size - 1
    _swap(heap, 0, size)
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _earlier(heap, child + 1, child):
            child += 1
        if not _earlier(heap, child, at):
            break
        _swap(heap, at, child)
        at = child


@njit(cache=True)
def _hull(t: KdNodes, group: int, x1: int, x2: int, y: int, s: Scratch, count: int, seen: I64) -> int:
    """Add the rows above y that a place's row had hidden from some range, lowest first; the end, or `_FULL`."""
    node, _, roots, _, _, _ = t
    rows, _, _, heap, shade = s
    if group >= len(roots) or roots[group] < 0 or node[roots[group], COUNT] == 0:
        return count
    cast = np.zeros(4, np.int64)
    for i in range(count):
        _cast(x1, x2, rows[i, 0], rows[i, 1], shade, cast)
    size = 1
    heap[0, 0], heap[0, 1], heap[0, 2], heap[0, 3], heap[0, 4] = node[roots[group], MIN], 0, 0, 0, roots[group]
    while size:
        value, kind, at1, at2, at = heap[0, 0], heap[0, 1], heap[0, 2], heap[0, 3], heap[0, 4]
        _pop(heap, size)
        size -= 1
        if kind == 1:
            if not _hidden(x1, x2, at1, at2, shade, cast):
                if count == len(rows):
                    return _FULL
                rows[count, 0], rows[count, 1], rows[count, 2] = at1, at2, value
                _cast(x1, x2, at1, at2, shade, cast)
                count += 1
            continue
        seen[0] += 1
        row = node[at]
        to1, to2 = min(max(x1, row[X1_MIN]), row[X1_MAX]), min(max(x2, row[X2_MIN]), row[X2_MAX])
        if _hidden(x1, x2, to1, to2, shade, cast):
            continue
        low, high, entries = parts_of(t, at)
        if low >= 0:
            if size + 2 > len(heap):
                return _FULL
            _push(heap, size, node[low, MIN], 0, 0, 0, low)
            _push(heap, size + 1, node[high, MIN], 0, 0, 0, high)
            size += 2
            continue
        for i in range(row[COUNT]):
            if entries[i, 2] > y and not _hidden(x1, x2, entries[i, 0], entries[i, 1], shade, cast):
                if size == len(heap):
                    return _FULL
                _push(heap, size, entries[i, 2], 1, entries[i, 0], entries[i, 1], 0)
                size += 1
    return count


@njit(cache=True)
def _stairs(rows: I64, order: I64, direction: int, edge: int, c: int, d: int, steps: I64) -> int:
    """How far ranges around [c, d] may reach in x2, by how far they reach in x1 on one side of a core; how many steps.

    A step is (nearest end, first end that is too far and whether there is one, bounds below and above and whether
    there are). A row within [c, d] in x2 bars all further ones.
    """
    near, count = edge, 0
    low, has_low, high, has_high = 0, 0, 0, 0
    for n in range(len(order)):
        at = order[n] if direction > 0 else order[len(order) - 1 - n]
        x1, x2 = rows[at, 0], rows[at, 1]
        if (x1 <= edge) if direction > 0 else (x1 >= edge):
            continue
        if (x2 < c and has_low and x2 <= low) or (x2 > d and has_high and x2 >= high):
            continue
        if x1 != near:
            step = steps[count]
            step[0], step[1], step[2], step[3], step[4], step[5], step[6] = near, x1, 1, low, has_low, high, has_high
            count += 1
            near = x1
        if x2 < c:
            low, has_low = x2, 1
        elif x2 > d:
            high, has_high = x2, 1
        else:
            return count
    step = steps[count]
    step[0], step[1], step[2], step[3], step[4], step[5], step[6] = near, 0, 0, low, has_low, high, has_high
    return count + 1


@njit(cache=True)
def _beside(rows: I64, count: int, core: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The nearest rows straight below and above a core: where, and whether there is one."""
    a, b, c, d = core
    low, has_low, high, has_high = 0, 0, 0, 0
    for i in range(count):
        if a <= rows[i, 0] <= b:
            x2 = rows[i, 1]
            if x2 < c and (not has_low or x2 > low):
                low, has_low = x2, 1
            elif x2 > d and (not has_high or x2 < high):
                high, has_high = x2, 1
    return low, has_low, high, has_high


@njit(cache=True)
def _tell(s: Scratch, core: tuple[int, int, int, int], count: int, has: int, value: int, out: I64, state: I64) -> bool:
    """Write a message for each box of the ranges around a core without the first `count` rows; false if room lacks.

    Goes on with step `state[STEP_AT]` on the left, and notes which is next. Steps on the right that say no more than
    the one before are told with it.
    """
    rows, left, right, _, _ = s
    a, b, c, d = core
    order = np.argsort(rows[:count, 0])
    lefts = _stairs(rows, order, -1, a, c, d, left)
    rights = _stairs(rows, order, 1, b, c, d, right)
    floor, has_floor, roof, has_roof = _beside(rows, count, core)
    for i in range(state[STEP_AT], lefts):
        if state[WRITTEN] + rights > len(out):
            state[STEP_AT] = i
            return False
        step, first = left[i], True
        for j in range(rights):
            other = right[j]
            low, has_low, high, has_high = floor, has_floor, roof, has_roof
            for bound in (step, other):
                if bound[4] and (not has_low or bound[3] > low):
                    low, has_low = bound[3], 1
                if bound[6] and (not has_high or bound[5] < high):
                    high, has_high = bound[5], 1
            if not first:
                last = out[state[WRITTEN] - 1]
                same = last[HAS_OUTER + _BOTTOM] == has_low and last[HAS_OUTER + _TOP] == has_high
                if same and last[OUTER + _BOTTOM] == low and last[OUTER + _TOP] == high:
                    last[OUTER + _RIGHT], last[HAS_OUTER + _RIGHT] = other[1], other[2]
                    continue
            first = False
            m = out[state[WRITTEN]]
            m[EVENT], m[VALUE], m[HAS_VALUE] = state[AT], value, has
            m[INNER], m[INNER + _RIGHT], m[INNER + _BOTTOM], m[INNER + _TOP] = step[0], other[0], c, d
            m[OUTER], m[OUTER + _RIGHT], m[OUTER + _BOTTOM], m[OUTER + _TOP] = step[1], other[1], low, high
            m[HAS_OUTER], m[HAS_OUTER + _RIGHT] = step[2], other[2]
            m[HAS_OUTER + _BOTTOM], m[HAS_OUTER + _TOP] = has_low, has_high
            state[WRITTEN] += 1
    state[STEP_AT] = 0
    return True


@njit(cache=True)
def _own(t: KdNodes, event: I64, rows: I64, state: I64) -> bool:
    """Find the contour of the new place, and put the new row in; false if room lacks."""
    x1, x2, y = event[NEW_X], event[NEW_X2], event[NEW_Y]
    count = _contour(t, event[GROUP], x1, x2, y, rows[: len(rows) - 1], state[SEEN:])
    if count == _FULL:
        return False
    if count >= 0 and event[HAS] & HAS_OLD and y >= event[OLD_Y]:
        # Ranges with the old place are told with its hull.
        if event[OLD_X] == x1 and event[OLD_X2] == x2:
            count = _HIT
        else:
            rows[count, 0], rows[count, 1] = event[OLD_X], event[OLD_X2]
            count += 1
    kd_insert(t, event[GROUP], x1, x2, y)
    state[OWN], state[ROWS] = count != _HIT, max(count, 0)
    return True


@njit(cache=True)
def _exposed(t: KdNodes, s: Scratch, event: I64, state: I64) -> bool:
    """Find contour and hull of the old place; false if room lacks."""
    p, x1, x2, y = event[GROUP], event[OLD_X], event[OLD_X2], event[OLD_Y]
    count = _contour(t, p, x1, x2, y, s.rows, state[SEEN:])
    if count == _FULL:
        return False
    state[OTHERS], state[CONTOUR], state[ROWS], state[HULL_AT] = count != _HIT, max(count, 0), max(count, 0), 0
    if count != _HIT:
        end = _hull(t, p, x1, x2, y, s, count, state[SEEN:])
        if end == _FULL:
            return False
        state[ROWS] = end
    return True


@njit(cache=True)
def _tell_exposed(s: Scratch, event: I64, out: I64, state: I64) -> bool:
    """Write the messages of hull rows, and of ranges that are empty now; false if room lacks."""
    x1, x2 = event[OLD_X], event[OLD_X2]
    while state[CONTOUR] + state[HULL_AT] < state[ROWS]:
        before = state[CONTOUR] + state[HULL_AT]
        row = s.rows[before]
        core = (min(x1, row[0]), max(x1, row[0]), min(x2, row[1]), max(x2, row[1]))
        if not _tell(s, core, before, 1, row[2], out, state):
            return False
        state[HULL_AT] += 1
    for i in range(state[ROWS]):
        if s.rows[i, 0] == x1 and s.rows[i, 1] == x2:
            return True
    return _tell(s, (x1, x1, x2, x2), state[ROWS], 0, 0, out, state)


@njit(cache=True)
def reformulate2d(t: KdNodes, events: I64, s: Scratch, out: I64, state: I64) -> int:
    """Apply events to the tree and write their messages, until something lacks room; says what."""
    while state[AT] < len(events):
        event = events[state[AT]]
        if state[STAGE] == _BEGIN:
            if not kd_has_room(t, event[GROUP]):
                return TREE_FULL
            if event[HAS] & HAS_OLD:
                kd_delete(t, event[GROUP], event[OLD_X], event[OLD_X2], event[OLD_Y])
            state[OWN] = state[OTHERS] = 0
            state[STAGE] = _REMOVED
        if state[STAGE] == _REMOVED:
            if event[HAS] & HAS_NEW and not _own(t, event, s.rows, state):
                return HULL_FULL
            state[STAGE] = _PLACED
        if state[STAGE] == _PLACED:
            x1, x2 = event[NEW_X], event[NEW_X2]
            if state[OWN] and not _tell(s, (x1, x1, x2, x2), state[ROWS], 1, event[NEW_Y], out, state):
                return MESSAGES_FULL
            state[STAGE] = _TOLD
        if state[STAGE] == _TOLD:
            if event[HAS] & HAS_OLD and not _exposed(t, s, event, state):
                return HULL_FULL
            state[STAGE] = _HULL
        if state[OTHERS] and not _tell_exposed(s, event, out, state):
            return MESSAGES_FULL
        state[KINDS + (DIFFICULT if state[OTHERS] else EASY if state[OWN] else IGNORABLE)] += 1
        state[AT] += 1
        state[STAGE] = _BEGIN
    return DONE
