"""Partners of rows in a join that changes: rows of either table with the same join value, linked to one another.

A join value is known by a fingerprint of 128 bits, as keys are. The links follow from the rows, and are never stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from penstock.kernels.subscriptions.mar import EVENT_WIDTH, HAS, HAS_NEW, HAS_OLD, NEW_X, NEW_Y, OLD_X, OLD_Y
from penstock.kernels.subscriptions.rows import EXTRA, I32, LIVE, STATE, X, Y, index_rows, place_of

I64 = npt.NDArray[np.int64]

#: Columns of a row's link: the next and the row before of the same join value, its x, and the number of the value.
_NEXT, _BEFORE, _X, _ON = range(4)
#: Columns of a join value: its fingerprint, the first row, and how many there are.
_FIRST, _COUNT = 2, 3
#: Columns of a pair: its event, the partner's number and x, and whether it was there before, is there now, or both.
EVENT, PARTNER, PARTNER_X, WHEN = range(4)
BEFORE, NOW = 1, 2


class Links(NamedTuple):
    """The rows of one table by join value; `counts` is how many values are in use."""

    link: I64
    ons: I64
    places: I32
    counts: I64


def new_links(rows: I64, more: int) -> Links:
    """Links of these rows, with room for as many more rows and join values."""
    size = len(rows) + more
    links = Links(
        np.zeros((size, 4), np.int64),
        np.zeros((size, 4), np.int64),
        np.full(1 << (2 * size).bit_length(), -1, np.int32),
        np.zeros(1, np.int64),
    )
    _link_all(links, rows)
    return links


def with_room(links: Links, rows: int, more: int) -> Links:
    """The same links, with room for rows up to this number and as many new join values."""
    link, ons, places, counts = links
    if rows > len(link):
        link = np.concatenate([link, np.zeros((max(rows - len(link), len(link) // 2), 4), np.int64)])
    needed = int(counts[0]) + more
    if needed > len(ons):
        ons = np.concatenate([ons, np.zeros((max(needed - len(ons), len(ons) // 2), 4), np.int64)])
        places = np.full(1 << (2 * len(ons)).bit_length(), -1, np.int32)
        index_rows(ons[: counts[0]], places)
    return Links(link, ons, places, counts)


def size_of(links: Links) -> int:
    """Bytes held."""
    return sum(part.nbytes for part in links)


@njit(cache=True)
def _link_all(t: Links, rows: I64) -> None:
    for number in range(len(rows)):
        if rows[number, STATE] == LIVE:
            _add(t, number, rows[number, X], rows[number, Y], rows[number, EXTRA])


@njit(cache=True)
def _value(t: Links, on1: int, on2: int) -> int:
    """The number of a join value, or -1."""
    return t.places[place_of(t.places, t.ons[: t.counts[0]], on1, on2)]


@njit(cache=True)
def _add(t: Links, number: int, x: int, on1: int, on2: int) -> None:
    link, ons, places, counts = t
    at = place_of(places, ons[: counts[0]], on1, on2)
    if places[at] < 0:
        places[at] = counts[0]
        ons[counts[0], 0], ons[counts[0], 1], ons[counts[0], _FIRST], ons[counts[0], _COUNT] = on1, on2, -1, 0
        counts[0] += 1
    value = ons[places[at]]
    link[number, _NEXT], link[number, _BEFORE], link[number, _X], link[number, _ON] = value[_FIRST], -1, x, places[at]
    if value[_FIRST] >= 0:
        link[value[_FIRST], _BEFORE] = number
    value[_FIRST] = number
    value[_COUNT] += 1


@njit(cache=True)
def _remove(t: Links, number: int) -> None:
    link, ons, _, _ = t
    row = link[number]
    if row[_BEFORE] >= 0:
        link[row[_BEFORE], _NEXT] = row[_NEXT]
    else:
        ons[row[_ON], _FIRST] = row[_NEXT]
    if row[_NEXT] >= 0:
        link[row[_NEXT], _BEFORE] = row[_BEFORE]
    ons[row[_ON], _COUNT] -= 1


@njit(cache=True)
def _tell(t: Links, value: int, event: int, when: int, out: I64, m: int) -> int:
    if value >= 0:
        partner = t.ons[value, _FIRST]
        while partner >= 0:
            out[m, EVENT], out[m, PARTNER], out[m, PARTNER_X], out[m, WHEN] = event, partner, t.link[partner, _X], when
            m += 1
            partner = t.link[partner, _NEXT]
    return m


@njit(cache=True)
def pair_up(tables: tuple[Links, Links], events: I64, sides: I64, numbers: I64, out: I64, state: I64) -> bool:
    """Apply events of both tables, in order, and write the pairs that each makes, breaks or moves.

    `numbers` says which row an event is of. `state` is (next event, pairs written); false if the next event's pairs
    lack room, which are written together or not at all.
    """
    while state[0] < len(events):
        number = state[0]
        event, side, row = events[number], sides[number], numbers[number]
        mine, theirs = tables[side], tables[1 - side]
        was, now = event[HAS] & HAS_OLD != 0, event[HAS] & HAS_NEW != 0
        on1, on2, new1, new2 = event[OLD_Y], event[EVENT_WIDTH], event[NEW_Y], event[EVENT_WIDTH + 1]
        stays = was and now and on1 == new1 and on2 == new2
        before = _value(theirs, on1, on2) if was else -1
        after = _value(theirs, new1, new2) if now and not stays else -1
        if stays and event[OLD_X] == event[NEW_X]:
            before = -1
        needed = (theirs.ons[before, _COUNT] if before >= 0 else 0) + (theirs.ons[after, _COUNT] if after >= 0 else 0)
        if state[1] + needed > len(out):
            return False
        m = _tell(theirs, before, number, BEFORE | NOW if stays else BEFORE, out, state[1])
        state[1] = _tell(theirs, after, number, NOW, out, m)
        if stays:
            mine.link[row, _X] = event[NEW_X]
        else:
            if was:
                _remove(mine, row)
            if now:
                _add(mine, row, event[NEW_X], new1, new2)
        state[0] += 1
    return True
