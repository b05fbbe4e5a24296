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
#: Stands for the distance of a row that no scan has come to yet.
UNKNOWN = np.iinfo(np.int64).min
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
    """Rows with jobs left, from `base` on: side, number, rows of the other side before them, where their scan goes on
    and how far away that is, pairs found so far, and the clock at their arrival.
    """

    base: int
    sides: npt.NDArray[np.uint8]
    numbers: I64
    before: I64
    cursors: I64
    aparts: I64
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
    """The class of a response time.

    >>> [class_of(time) for time in (15, 16, 17, 18, 1 << 20)]
    [15, 16, 16, 17, 144]
    """
    if time < 16:
        return time
    doubling, left = 0, time
    for step in (32, 16, 8, 4, 2, 1):
        if left >> step:
            left >>= step
            doubling += step
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


# Arrays are taken out of their tuples once, before the loop: each time they are, and each time a name may stand for one
# of two, they are counted, atomically, which costs more than a look at a row.


@njit(inline="always")
def _next_level(order: I64, done: I64, arrived: int) -> int:
    for level in order:
        waiting = arrived if level == 0 else done[level - 1]
        if done[level] < waiting:
            return level
    return -1


@njit(inline="always")
def _wanted(since: I64, until: I64, seq: int, level: int) -> bool:
    """Whether a query of this level or a wider one wants the row."""
    for i in range(level, since.size):  # noqa: SIM110
        if since[i] <= seq < until[i]:
            return True
    return False


@njit(inline="always")
def _following(nexts: I32, hashes: U64, first: int, entry: int) -> int:
    """The next older entry with the same hash; below `first` if there is none."""
    hashed = hashes[entry]
    entry = nexts[entry]
    while entry >= first and hashes[entry] != hashed:
        entry = nexts[entry]
    return entry


@njit(cache=True)
def advance(
    left: Store, right: Store, outers: Outers, levels: Levels, rule: Rule, tally: Tally, budget: int,
    out_outer: I64, out_inner: I64,
) -> tuple[int, int]:  # fmt: skip
    """Do jobs until nothing waits, `budget` is spent or the output is full; pairs written and units of work spent."""
    base, sides, numbers, befores, cursors, aparts, founds, arrived = outers
    windows, since, until, done, order = levels
    now, most, t_pairs, t_total, t_worst, t_classes = tally
    _, l_nexts, l_hashes, l_moments, l_first, l_offset = left
    _, r_nexts, r_hashes, r_moments, r_first, r_offset = right
    last, end = windows.size - 1, base + sides.size
    widest, early, hashed = windows[last], rule.early, rule.hashed
    clock, came = now[0], now[1]
    found = spent = 0
    full = False
    while True:
        while came < end and arrived[came - base] <= clock:
            came += 1
            most[1] = max(most[1], came - done[last])
        level = _next_level(order, done, came)
        if level < 0:
            if came == end:
                break
            clock = arrived[came - base]
            continue
        seq = done[level]
        i = seq - base
        if _wanted(since, until, seq, level):
            is_left = sides[i] == 0
            slack = rule.slack_right if is_left else rule.slack_left
            number, apart = cursors[i], aparts[i]
            # Most rows have nothing at most levels: their next partner is further away, or there is none.
            if number != NOWHERE and (apart == UNKNOWN or apart - slack <= windows[level]):
                # The row is next in line for the levels from this one up to `top`.
                top = level
                while top < last and done[top + 1] == seq:
                    top += 1
                before = befores[i]
                first, offset = (r_first, r_offset) if is_left else (l_first, l_offset)
                moment = l_moments[numbers[i] - l_offset] if is_left else r_moments[numbers[i] - r_offset]
                while number >= first + offset:
                    entry = number - offset
                    if rule.by_rows:
                        apart = before - number
                    else:
                        apart = moment - (r_moments[entry] if is_left else l_moments[entry])
                    # Beyond this no row can belong to the level, however much out of order it came.
                    if apart - slack > windows[level]:
                        break
                    full = spent >= budget or found == out_outer.size
                    if full:
                        break
                    spent += 1
                    clock += 1
                    # Without a hash store all rows are looked at; those of a join without key have the same hash.
                    same = hashed
                    if not hashed:
                        mine = numbers[i]
                        same = (
                            r_hashes[entry] == l_hashes[mine - l_offset]
                            if is_left
                            else l_hashes[entry] == r_hashes[mine - r_offset]
                        )
                    if same and abs(apart) <= widest:
                        spent += rule.pair
                        clock += rule.pair
                        out_outer[found], out_inner[found] = seq, number
                        found += 1
                        founds[i] += 1
                        if early:
                            narrowest = level
                            while windows[narrowest] < abs(apart):
                                narrowest += 1
                            time = clock - arrived[i]
                            class_ = class_of(time)
                            for j in range(narrowest, top + 1):
                                if since[j] <= seq < until[j]:
                                    t_pairs[j] += 1
                                    t_total[j] += float(time)
                                    t_worst[j] = max(t_worst[j], time)
                                    t_classes[j, class_] += 1
                        if not (early and top == last):
                            now[2] += 1
                            most[0] = max(most[0], now[2])
                    if hashed:
                        if is_left:
                            entry = _following(r_nexts, r_hashes, first, entry)
                        else:
                            entry = _following(l_nexts, l_hashes, first, entry)
                        number = entry + offset if entry >= first else NOWHERE
                    else:
                        number -= 1
                cursors[i], aparts[i] = number, apart
                if full:
                    break
            if level == 0:
                spent += rule.begin
                clock += rule.begin
        # The row has scanned the level: what it has found may leave; with `early` what the next one has so far.
        done[level] += 1
        at = done[level] - base - (0 if early else 1)
        if at < founds.size and founds[at]:
            time, pairs = clock - arrived[at], founds[at]
            if since[level] <= base + at < until[level]:
                t_pairs[level] += pairs
                t_total[level] += float(time) * pairs
                t_worst[level] = max(t_worst[level], time)
                t_classes[level, class_of(time)] += pairs
            if level == last:
                now[2] -= pairs
    now[0], now[1] = clock, came
    return found, spent
