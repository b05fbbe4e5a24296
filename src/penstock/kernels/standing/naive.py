"""NAIVE, SJ-JoinFirst-S and BJ-QOuter: every query in turn, for every row (003, §4.3.1, §4.5.1 and §4.6.2).

The three differ in little: NAIVE looks every query's partners up before it looks at the row's own value, JoinFirst-S
after; BJ-QOuter has no own value to look at.
"""

from __future__ import annotations

from numba import njit

from penstock.kernels.standing.search import F64, I32, Flags, Place, Rows, above, at_least, write


def every_query(ranges: F64, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """NAIVE, from `place` until all is done or `out` is full; query `q` has `ranges[q]`."""
    return Place(*_every_query(ranges, alive, rows, values, out, place.row, False))


def join_first(ranges: F64, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """SJ-JoinFirst-S and BJ-QOuter, the same way."""
    return Place(*_every_query(ranges, alive, rows, values, out, place.row, True))


@njit(cache=True)
def _every_query(
    ranges: F64, alive: Flags, rows: Rows, values: F64, out: I32, row: int, own_first: bool
) -> tuple[int, int, int]:
    runs = 0
    while row < rows.own.size:
        if out.shape[0] - runs < alive.size:
            return 0, row, runs
        own, begin, stop, shift = rows.own[row], rows.begin[row], rows.end[row], rows.shift[row]
        for query in range(alive.size if begin < stop else 0):
            if not alive[query] or (own_first and not ranges[query, 0] <= own <= ranges[query, 1]):
                continue
            first = at_least(values, begin, stop, shift, ranges[query, 2])
            last = above(values, first, stop, shift, ranges[query, 3])
            if first < last and ranges[query, 0] <= own <= ranges[query, 1]:
                runs = write(out, runs, row, query, first, last)
        row += 1
    return 1, row, runs
