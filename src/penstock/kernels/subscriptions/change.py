"""Aggregates whose subscribers are told of values that come and go: COUNT, SUM, AVG, and DISTINCT.

A message of these says which y came into a subscription's range (`added`) and which left it (`removed`), one of them or
both. COUNT, SUM and AVG are relaxed to the range itself: every update inside it changes them. DISTINCT is told of a
value that is there for the first time, or no more: its Mar is the range around the row without another row of the same
value. A row that moves is one event: ranges that saw only its old place, only its new one, or both, are disjoint
rectangles. Xie, §5.4 and Fig. 5.5 (left).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.subscriptions.a2bnodes import Nodes, has_room
from penstock.kernels.subscriptions.a2bsearch import neighbours
from penstock.kernels.subscriptions.a2bupdate import delete, insert
from penstock.kernels.subscriptions.mar import (
    DONE,
    EVENT,
    GROUP,
    HAS,
    HAS_NEW,
    HAS_OLD,
    HAS_OTHER,
    HAS_VALUE,
    INNER_LEFT,
    MESSAGES_FULL,
    NEW_X,
    NEW_Y,
    OLD_X,
    OLD_Y,
    OTHER,
    TREE_FULL,
    VALUE,
)

I64 = npt.NDArray[np.int64]
#: An event says at most this much: one message where both happen, and three around it for each that happens alone.
MOST_MESSAGES = 7


@njit(cache=True)
def _write(out: I64, m: int, number: int, event: I64, which: int, box: I64) -> int:
    out[m, EVENT] = number
    out[m, VALUE], out[m, HAS_VALUE] = event[NEW_Y], which & HAS_NEW != 0
    out[m, OTHER], out[m, HAS_OTHER] = event[OLD_Y], which & HAS_OLD != 0
    # The rectangle is the last six columns of a message.
    for field in range(6):
        out[m, INNER_LEFT + field] = box[field]
    return m + 1


@njit(cache=True)
def _box(x: int, has_left: bool, left: int, has_right: bool, right: int) -> I64:
    """The ranges that contain x and end before both bounds, as the rectangle's columns of a message."""
    box = np.empty(6, np.int64)
    box[0], box[1], box[2], box[3], box[4], box[5] = x, x, left, has_left, right, has_right
    return box


@njit(cache=True)
def _apart(out: I64, m: int, number: int, event: I64, which: int, box: I64, other: I64) -> int:
    """Messages for a box without what it has in common with another one, which is something: at most three.

    Both boxes hold the ranges around one x each.
    """
    x, there = box[0], other[0]
    piece = box.copy()
    # Ranges without the other x.
    if there < x:
        piece[2], piece[3] = there, 1
        m = _write(out, m, number, event, which, piece)
    elif there > x:
        piece[4], piece[5] = there, 1
        m = _write(out, m, number, event, which, piece)
    # Ranges with both: those that reach beyond the other's left bound, then those that reach only its right bound.
    low, high = min(x, there), max(x, there)
    piece = box.copy()
    piece[0], piece[1] = low, high
    if other[3] and (box[3] == 0 or box[2] < other[2]):
        piece[0] = min(low, other[2])
        m = _write(out, m, number, event, which, piece)
        piece[0], piece[2], piece[3] = low, other[2], 1
    if other[5] and (box[5] == 0 or box[4] > other[4]):
        piece[1] = max(high, other[4])
        m = _write(out, m, number, event, which, piece)
    return m


@njit(cache=True)
def _common(box: I64, other: I64) -> tuple[bool, I64]:
    """What two boxes have in common, if anything."""
    both = box.copy()
    both[0], both[1] = min(box[0], other[0]), max(box[1], other[1])
    if other[3] and (box[3] == 0 or other[2] > box[2]):
        both[2], both[3] = other[2], 1
    if other[5] and (box[5] == 0 or other[4] < box[4]):
        both[4], both[5] = other[4], 1
    some = (both[3] == 0 or both[2] < both[0]) and (both[5] == 0 or both[4] > both[1])
    return some, both


@njit(cache=True)
def _tell(out: I64, m: int, number: int, event: I64, comes: bool, new: I64, goes: bool, old: I64) -> int:
    """Messages where the new value comes, where the old one goes, and where both happen."""
    same = event[NEW_Y] == event[OLD_Y]
    if comes and goes:
        some, both = _common(new, old)
        if some:
            if not same:
                m = _write(out, m, number, event, HAS_NEW | HAS_OLD, both)
            m = _apart(out, m, number, event, HAS_NEW, new, old)
            return _apart(out, m, number, event, HAS_OLD, old, new)
    if comes:
        m = _write(out, m, number, event, HAS_NEW, new)
    if goes:
        m = _write(out, m, number, event, HAS_OLD, old)
    return m


@njit(cache=True)
def relax(events: I64, out: I64, state: I64) -> int:
    """Messages of COUNT, where every y is the same, of SUM and AVG. `state` is as in `mar.reformulate`."""
    while state[0] < len(events):
        number, m = state[0], state[3]
        if m + MOST_MESSAGES > len(out):
            return MESSAGES_FULL
        event = events[number]
        new = _box(event[NEW_X], False, 0, False, 0)
        old = _box(event[OLD_X], False, 0, False, 0)
        comes, goes = event[HAS] & HAS_NEW != 0, event[HAS] & HAS_OLD != 0
        if comes and goes and event[NEW_X] == event[OLD_X] and event[NEW_Y] == event[OLD_Y]:
            comes = goes = False
        state[3] = _tell(out, m, number, event, comes, new, goes, old)
        state[4 if state[3] == m else 5] += 1
        state[0] += 1
    return DONE


@njit(cache=True)
def distinguish(t: Nodes, events: I64, out: I64, state: I64) -> int:
    """Messages of DISTINCT. The tree is ordered on (group, y, x), so that rows of one value lie together."""
    while state[0] < len(events):
        number, m = state[0], state[3]
        if not has_room(t):
            return TREE_FULL
        if m + MOST_MESSAGES > len(out):
            return MESSAGES_FULL
        event = events[number]
        p = event[GROUP]
        comes, goes = event[HAS] & HAS_NEW != 0, event[HAS] & HAS_OLD != 0
        if goes:
            delete(t, p, event[OLD_Y], event[OLD_X])
        new = _box(event[NEW_X], False, 0, False, 0)
        old = _box(event[OLD_X], False, 0, False, 0)
        # Both with respect to the other rows alone: what the moved row does is in the two boxes themselves.
        still, old[3], old[2], old[5], old[4] = neighbours(t, p, event[OLD_Y], event[OLD_X])
        already, new[3], new[2], new[5], new[4] = neighbours(t, p, event[NEW_Y], event[NEW_X])
        if comes:
            insert(t, p, event[NEW_Y], event[NEW_X])
        if comes and goes and event[NEW_Y] == event[OLD_Y] and event[NEW_X] == event[OLD_X]:
            comes = goes = False
        state[3] = _tell(out, m, number, event, comes and not already, new, goes and not still, old)
        state[4 if state[3] == m else 5] += 1
        state[0] += 1
    return DONE
