"""BJ-MJ: all ranges by where they begin, merged with all partners in order (003, §4.3.1)."""

from __future__ import annotations

from numba import njit

from penstock.kernels.standing.layout import Layout, Sequences
from penstock.kernels.standing.search import F64, I32, I64, Flags, Place, Rows, reach_right, write


def room_needed(layout: Layout) -> int:
    """Runs that must fit into `out`: those of one row."""
    return int(layout.starts[-1] - layout.starts[-2])


def merge(layout: Layout, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """BJ-MJ over the scattered region, from `place` until all is done or `out` is full."""
    return Place(*_merge(layout.sequences, layout.starts[-2:], alive, rows, values, out, place.row))


@njit(cache=True)
def _merge(
    lists: Sequences, region: I64, alive: Flags, rows: Rows, values: F64, out: I32, row: int
) -> tuple[int, int, int]:
    runs = 0
    while row < rows.shift.size:
        if out.shape[0] - runs < region[1] - region[0]:
            return 0, row, runs
        stop, shift, at = rows.end[row], rows.shift[row], rows.begin[row]
        for i in range(region[0], region[1]):
            # Ranges come by where they begin, so no partner is left behind twice.
            while at < stop and values[at] + shift < lists.by_low[i]:
                at += 1
            if at == stop:
                break
            if values[at] + shift <= lists.low_high[i] and alive[lists.low_query[i]]:
                last = reach_right(values, at, stop, shift, lists.low_high[i])
                runs = write(out, runs, row, lists.low_query[i], at, last)
        row += 1
    return 1, row, runs
