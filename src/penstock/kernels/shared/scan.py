"""The compiled heart of the shared join: jobs are picked, windows scanned, and it is counted when results may leave.

Rows are numbered in the order of their arrival: by `seq` over both sides, by `number` within their own. The rows
of a side are consecutive entries of its store, so an entry is a number less an offset. A row keeps the number of the
row of the other side at which its scan goes on; in a hash store that is always one with the same hash, so that
chains may be linked anew in between.

Time is counted in units of work: one for every row looked at, one for every pair found, one for beginning. With a
hash store only rows with the same hash are looked at; the others in a bucket depend on its history and cost nothing
here, so that the same state does the same work again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]

#: Where a scan goes on that has come to the end.
NOWHERE = -1
#: Classes of response times: exact below 16, then eight for each doubling.
CLASSES = 320


class Store(NamedTuple):
    """The waiting rows of one side; those from entry `first` on are there, and an entry is a number less `offset`."""

    heads: I32
    nexts: I32
    hashes: U64
    moments: I64
    first: int
    offset: int


class Outers(NamedTuple):
    """Rows with jobs left, from `base` on: side, number, rows of the other side before them, where their scan goes on,
    pairs found so far, and the clock at their arrival.
    """

    base: int
    sides: npt.NDArray[np.uint8]
    numbers: I64
    before: I64
    cursors: I64
    founds: I32
    arrived: I64


class Levels(NamedTuple):
    """Windows in ascending order; rows that each query wants (`since` up to `until`) and has finished (`done`)."""

    windows: I64
    since: I64
    until: I64
    done: I64
    order: I64


class Rule(NamedTuple):
    """How a window is scanned. `slack` is by how much rows of each side were out of order, at the most."""

    hashed: bool
    by_rows: bool
    early: bool
    slack_left: int
    slack_right: int
    #: Units of work for beginning a row and for a pair, beside one for looking at it.
    begin: int
    pair: int


class Tally(NamedTuple):
    """What became of it: `now` is the clock, the number of rows that have arrived, and of pairs held; `most` the
    largest number of pairs held and of rows with jobs left. For each level: pairs released, their response times
    in all, the longest, and how many fell into each class.
    """

    now: I64
    most: I64
    pairs: I64
    total: F64
    worst: I64
    classes: I64


def new_tally(levels: int, clock: int = 0, arrived: int = 0, held: int = 0) -> Tally:
    """Nothing released yet."""
    return Tally(
        np.array([clock, arrived, held]),
        np.zeros(2, np.int64),
        np.zeros(levels, np.int64),
        np.zeros(levels),
        np.zeros(levels, np.int64),
        np.zeros((levels, CLASSES), np.int64),
    )


def quantile(classes: I64, share: float) -> float:
    """The response time that this share of pairs does not exceed, to an eighth.

    >>> quantile(np.bincount([3, 3, 3, 9], minlength=CLASSES), 0.75)
    3.0
    """
    total = int(classes.sum())
    if not total:
        return 0.0
    at = int(np.searchsorted(np.cumsum(classes), share * total))
    if at < 16:
        return float(at)
    doubling, eighth = divmod(at - 16, 8)
    return float((8 + eighth + 1) << (doubling + 1))


@njit(cache=True)
def class_of(time: int) -> int:
    """The class of a response time."""
    if time < 16:
        return time
    doubling = 4
    while time >> (doubling + 1):
        doubling += 1
    return min(16 + (doubling - 4) * 8 + ((time >> (doubling - 3)) & 7), CLASSES - 1)


@njit(cache=True)
def first_partner(store: Store, hashes: U64, before: I64, cursors: I64) -> None:
    """For each row the number of the newest one of the other side that came before it and has its hash."""
    mask = np.uint64(store.heads.size - 1)
    for i in range(hashes.size):
        entry = store.heads[np.int64(hashes[i] & mask)]
        while entry >= store.first and (store.hashes[entry] != hashes[i] or entry + store.offset >= before[i]):
            entry = store.nexts[entry]
        cursors[i] = entry + store.offset if entry >= store.first else NOWHERE


@njit(inline="always")
def _next_level(levels: Levels, arrived: int) -> int:
    for level in levels.order:
        waiting = arrived if level == 0 else levels.done[level - 1]
        if levels.done[level] < waiting:
            return level
    return -1


@njit(inline="always")
def _wanted(levels: Levels, seq: int, level: int) -> bool:
    """Whether a query of this level or a wider one wants the row."""
    for i in range(level, levels.windows.size):  # noqa: SIM110
        if levels.since[i] <= seq < levels.until[i]:
            return True
    return False


@njit(inline="always")
def _release(tally: Tally, level: int, time: int, pairs: int) -> None:
    tally.pairs[level] += pairs
    tally.total[level] += float(time) * pairs
    tally.worst[level] = max(tally.worst[level], time)
    tally.classes[level, class_of(time)] += pairs


@njit(inline="always")
def _finish(outers: Outers, levels: Levels, rule: Rule, tally: Tally, level: int) -> None:
    """The next row in line has scanned a level: what it, or its successor, has found may leave."""
    levels.done[level] += 1
    # Without `early` it is the row itself that may leave, with it the next one, as far as it has got.
    at = levels.done[level] - outers.base - (0 if rule.early else 1)
    if at < outers.founds.size and outers.founds[at]:
        _release(tally, level, tally.now[0] - outers.arrived[at], outers.founds[at])
        if level == levels.windows.size - 1:
            tally.now[2] -= outers.founds[at]


@njit(cache=True)
def advance(
    left: Store, right: Store, outers: Outers, levels: Levels, rule: Rule, tally: Tally, budget: int,
    out_outer: I64, out_inner: I64,
) -> tuple[int, int]:  # fmt: skip
    """Do jobs until nothing waits, `budget` is spent or the output is full; pairs written and units of work spent."""
    last = levels.windows.size - 1
    end = outers.base + outers.sides.size
    now = tally.now
    found = spent = 0
    while True:
        while now[1] < end and outers.arrived[now[1] - outers.base] <= now[0]:
            now[1] += 1
            tally.most[1] = max(tally.most[1], now[1] - levels.done[last])
        level = _next_level(levels, now[1])
        if level < 0:
            if now[1] == end:
                return found, spent
            now[0] = outers.arrived[now[1] - outers.base]
            continue
        seq = levels.done[level]
        i = seq - outers.base
        if not _wanted(levels, seq, level):
            _finish(outers, levels, rule, tally, level)
            continue
        if outers.sides[i] == 0:
            ours, theirs, slack = left, right, rule.slack_right
        else:
            ours, theirs, slack = right, left, rule.slack_left
        # The row is next in line for the levels from this one up to `top`.
        top = level
        while top < last and levels.done[top + 1] == seq:
            top += 1
        mine, before = outers.numbers[i] - ours.offset, outers.before[i]
        hashed, moment = ours.hashes[mine], ours.moments[mine]
        number = outers.cursors[i]
        while number >= theirs.first + theirs.offset:
            entry = number - theirs.offset
            apart = before - number if rule.by_rows else moment - theirs.moments[entry]
            # Beyond this no row can belong to the level, however much out of order it came.
            if apart - slack > levels.windows[level]:
                break
            if spent >= budget or found == out_outer.size:
                outers.cursors[i] = number
                return found, spent
            spent += 1
            now[0] += 1
            if abs(apart) <= levels.windows[last] and (rule.hashed or theirs.hashes[entry] == hashed):
                spent += rule.pair
                now[0] += rule.pair
                out_outer[found], out_inner[found] = seq, number
                found += 1
                outers.founds[i] += 1
                if rule.early:
                    narrowest = level
                    while levels.windows[narrowest] < abs(apart):
                        narrowest += 1
                    for j in range(narrowest, top + 1):
                        _release(tally, j, now[0] - outers.arrived[i], 1)
                if not (rule.early and top == last):
                    now[2] += 1
                    tally.most[0] = max(tally.most[0], now[2])
            if rule.hashed:
                entry = theirs.nexts[entry]
                while entry >= theirs.first and theirs.hashes[entry] != hashed:
                    entry = theirs.nexts[entry]
                number = entry + theirs.offset if entry >= theirs.first else NOWHERE
            else:
                number -= 1
        outers.cursors[i] = number
        if level == 0:
            spent += rule.begin
            now[0] += rule.begin
        _finish(outers, levels, rule, tally, level)
