"""Mar, Hull and EMar, and what they make of an update: rectangles in the plane of subscriptions.

A range subscription over [x1, x2] is the point (x1, x2). An update of one row changes the answer of exactly the points
in some rectangles, each with one new answer for all of its points::

    outer_left < x1 <= inner_left and inner_right <= x2 < outer_right

*Mar(x, y)* is the widest open range around x without a row at or below y. *Hull(x, y)* is what one sees within it,
looking left and right from the point: ever lower rows, and the peak at x itself. *EMar* of a hull point is the range in
which it is the least row once (x, y) is gone.

One rule covers every kind of update. Take the old point away; note Mar of the new point; put the new point in. Then

* in Mar(old), taken now, the hull says which minima the old point had hidden. Where the new point is as low as the old
  one or lower it bounds this Mar, so that nothing is said twice;
* in Mar(new), taken before, the answer is the new y. If the new point is not lower than the old one, ranges with both
  points belong to the old point's hull, and this rectangle ends at the old x.

An insertion has no old point, a deletion no new one; without a move of x the second rectangle is empty or is all there
is. Xie, §5.2.4 (definitions 7 and 8, theorems 16 and 17) and §5.3.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.subscriptions.a2bnodes import MOST, Nodes, has_room
from penstock.kernels.subscriptions.a2bsearch import least_at, search_left, search_right
from penstock.kernels.subscriptions.a2bupdate import delete, insert

I64 = npt.NDArray[np.int64]

#: Columns of an event: its group, which of old and new there are, and where.
GROUP, HAS, OLD_X, OLD_Y, NEW_X, NEW_Y = range(6)
EVENT_WIDTH = 6
HAS_OLD, HAS_NEW = 1, 2
#: Columns of a message: its event, two values that may be missing, the rectangle; its outer sides may be open.
EVENT, VALUE, HAS_VALUE, OTHER, HAS_OTHER, INNER_LEFT, INNER_RIGHT, LEFT, HAS_LEFT, RIGHT, HAS_RIGHT = range(11)
MESSAGE_WIDTH = 11
#: What became of events so far: no message; one, with the new y; messages that told of other rows.
IGNORABLE, EASY, DIFFICULT = range(3)
#: Why a run stopped: it is done, or the tree, the messages or the skylines need room.
DONE, TREE_FULL, MESSAGES_FULL, HULL_FULL = range(4)


@njit(cache=True)
def mar(t: Nodes, p: int, x: int, y: int) -> tuple[bool, bool, int, bool, int]:
    """Whether Mar(x, y) is not empty, and its two ends: whether there is one, and where."""
    there, low = least_at(t, p, x)
    if there and low <= y:
        return False, False, 0, False, 0
    has_left, left, _ = search_left(t, p, x, y)
    has_right, right, _ = search_right(t, p, x, False, y)
    return True, has_left, left, has_right, right


@njit(cache=True)
def _skyline(t: Nodes, p: int, x: int, top: int, end: int, has_end: bool, rightwards: bool, seen: I64) -> int:
    """Ever lower rows from x on, starting below `top`, before `end`; how many, or -1 if there is no room for them."""
    count = 0
    while True:
        if rightwards:
            found, x, y = search_right(t, p, x, False, top)
        else:
            found, x, y = search_left(t, p, x, top)
        if not found or (has_end and (x >= end if rightwards else x <= end)):
            return count
        if count == len(seen):
            return -1
        seen[count, 0], seen[count, 1] = x, y
        top = y - 1
        count += 1


@njit(cache=True)
def _say(
    out: I64, m: int, event: int, value: int, has: int, inner_left: int, inner_right: int, ends: tuple[int, ...]
) -> int:
    out[m, EVENT], out[m, VALUE], out[m, HAS_VALUE], out[m, OTHER], out[m, HAS_OTHER] = event, value, has, 0, 0
    out[m, INNER_LEFT], out[m, INNER_RIGHT] = inner_left, inner_right
    out[m, LEFT], out[m, HAS_LEFT], out[m, RIGHT], out[m, HAS_RIGHT] = ends
    return m + 1


@njit(cache=True)
def _exposed(t: Nodes, event: I64, number: int, seen: I64, out: I64, begin: int) -> int:
    """Messages for all that the old point had hidden, after those of this event that begin at `begin`.

    The end of the messages; -1 if they lack room, -2 if the skylines do.
    """
    p, x, y = event[GROUP], event[OLD_X], event[OLD_Y]
    some, has_c, c, has_d, d = mar(t, p, x, y)
    m = begin
    if m < len(out) and out[m, EVENT] == number:
        m += 1
    if not some:
        return m
    at_peak, peak = least_at(t, p, x)
    top = peak - 1 if at_peak else MOST
    lefts = _skyline(t, p, x, top, c, has_c, False, seen[0])
    rights = _skyline(t, p, x, top, d, has_d, True, seen[1])
    if lefts < 0 or rights < 0:
        return -2
    if m + lefts + rights + 1 > len(out):
        return -1
    left, right = seen[0], seen[1]
    near = (left[0, 0], 1) if lefts else (c, int(has_c))
    far = (right[0, 0], 1) if rights else (d, int(has_d))
    m = _say(out, m, number, peak if at_peak else 0, int(at_peak), x, x, (near[0], near[1], far[0], far[1]))
    j = 0
    for i in range(lefts):
        # To the first row on the right that is strictly lower: of two equal rows the left one tells.
        while j < rights and right[j, 1] >= left[i, 1]:
            j += 1
        near = (left[i + 1, 0], 1) if i + 1 < lefts else (c, int(has_c))
        far = (right[j, 0], 1) if j < rights else (d, int(has_d))
        m = _say(out, m, number, left[i, 1], 1, left[i, 0], x, (near[0], near[1], far[0], far[1]))
    i = 0
    for j in range(rights):
        while i < lefts and left[i, 1] > right[j, 1]:
            i += 1
        near = (left[i, 0], 1) if i < lefts else (c, int(has_c))
        far = (right[j + 1, 0], 1) if j + 1 < rights else (d, int(has_d))
        m = _say(out, m, number, right[j, 1], 1, x, right[j, 0], (near[0], near[1], far[0], far[1]))
    return m


@njit(cache=True)
def _move(t: Nodes, event: I64, number: int, out: I64, m: int) -> int:
    """Take the old point away, say where the new one is the answer, put it in."""
    p, has = event[GROUP], event[HAS]
    x, y = event[NEW_X], event[NEW_Y]
    if has & HAS_OLD:
        delete(t, p, event[OLD_X], event[OLD_Y])
    if not has & HAS_NEW:
        return m
    some, has_a, a, has_b, b = mar(t, p, x, y)
    insert(t, p, x, y)
    if some and has & HAS_OLD and y >= event[OLD_Y]:
        old = event[OLD_X]
        if old == x:
            some = False
        elif old < x and (not has_a or a < old):
            has_a, a = True, old
        elif old > x and (not has_b or b > old):
            has_b, b = True, old
    if some:
        m = _say(out, m, number, y, 1, x, x, (a, int(has_a), b, int(has_b)))
    return m


@njit(cache=True)
def _join_up(event: I64, out: I64, begin: int, end: int) -> int:
    """The new point's own rectangle, cut at the old x, and its rectangle in the old point's hull may be one."""
    if end - begin < 2 or event[HAS] != HAS_OLD | HAS_NEW:
        return end
    x, old = event[NEW_X], event[OLD_X]
    rightwards = old < x
    own = out[begin]
    if own[HAS_VALUE] == 0 or own[INNER_LEFT] != x or own[INNER_RIGHT] != x or own[VALUE] != event[NEW_Y]:
        return end
    for m in range(begin + 1, end):
        row = out[m]
        if row[VALUE] != own[VALUE] or row[HAS_VALUE] == 0:
            continue
        if rightwards and row[INNER_LEFT] == old and row[INNER_RIGHT] == x and own[HAS_LEFT] and own[LEFT] == old:
            same = row[HAS_RIGHT] == own[HAS_RIGHT] and (row[HAS_RIGHT] == 0 or row[RIGHT] == own[RIGHT])
            if same:
                own[LEFT], own[HAS_LEFT] = row[LEFT], row[HAS_LEFT]
        elif (
            not rightwards and row[INNER_RIGHT] == old and row[INNER_LEFT] == x and own[HAS_RIGHT] and own[RIGHT] == old
        ):
            same = row[HAS_LEFT] == own[HAS_LEFT] and (row[HAS_LEFT] == 0 or row[LEFT] == own[LEFT])
            if same:
                own[RIGHT], own[HAS_RIGHT] = row[RIGHT], row[HAS_RIGHT]
        else:
            same = False
        if same:
            out[m] = out[end - 1]
            return end - 1
    return end


@njit(cache=True)
def reformulate(t: Nodes, events: I64, seen: I64, out: I64, state: I64) -> int:
    """Apply events to the tree and write their messages, until something lacks room; says what.

    `state` is (next event, its first message, whether its row is already in the tree, messages, and counts of
    ignorable, easy and difficult events), so that a run goes on where it stopped.
    """
    while state[0] < len(events):
        number = state[0]
        event = events[number]
        if state[2] == 0:
            if not has_room(t):
                return TREE_FULL
            if state[3] >= len(out):
                return MESSAGES_FULL
            state[1] = state[3]
            out[state[3], EVENT] = -1
            _move(t, event, number, out, state[3])
            state[2] = 1
        begin = state[1]
        # Messages of the step before the hull: one, if it carries this event's number.
        end = begin + 1 if out[begin, EVENT] == number else begin
        told_new = end > begin
        if event[HAS] & HAS_OLD:
            end = _exposed(t, event, number, seen, out, begin)
            if end == -1:
                return MESSAGES_FULL
            if end == -2:
                return HULL_FULL
            if told_new:
                end = _join_up(event, out, begin, end)
        state[_kind(event, out, begin, end)] += 1
        state[0], state[2], state[3] = number + 1, 0, end
    return DONE


@njit(cache=True)
def _kind(event: I64, out: I64, begin: int, end: int) -> int:
    """The place of this kind of event in `state`."""
    if end == begin:
        return 4 + IGNORABLE
    own = event[HAS] & HAS_NEW and out[begin, HAS_VALUE] and out[begin, VALUE] == event[NEW_Y]
    return 4 + EASY if end == begin + 1 and own else 4 + DIFFICULT
