"""SJ-SelectFirst: the queries whose own range has the row's value first, then each one's partners (003, §4.3.2)."""

from __future__ import annotations

from numba import njit

from penstock.kernels.standing.layout import Layout, Tree
from penstock.kernels.standing.search import F64, I32, Flags, Place, Rows, above, at_least, write


def room_needed(layout: Layout) -> int:
    """Runs that must fit into `out`: those of one row."""
    return int(layout.starts[-1] - layout.starts[-2])


def select(layout: Layout, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """SJ-SelectFirst over the scattered region, from `place` until all is done or `out` is full."""
    return Place(*_select(layout.tree, room_needed(layout), alive, rows, values, out, place.row))


@njit(cache=True)
def _select(tree: Tree, size: int, alive: Flags, rows: Rows, values: F64, out: I32, row: int) -> tuple[int, int, int]:
    ranges, queries, boxes = tree.ranges, tree.queries, tree.boxes
    root, end = tree.roots[-2], tree.roots[-1]
    runs = 0
    while row < rows.own.size:
        if out.shape[0] - runs < size:
            return 0, row, runs
        own, begin, stop, shift = rows.own[row], rows.begin[row], rows.end[row], rows.shift[row]
        box = root if begin < stop else end
        while box < end:
            if not boxes[box, 0] <= own <= boxes[box, 1]:
                box = tree.skip[box]
                continue
            if tree.skip[box] == box + 1:
                for i in range(tree.first[box], tree.last[box]):
                    if ranges[i, 0] <= own <= ranges[i, 1] and alive[queries[i]]:
                        first = at_least(values, begin, stop, shift, ranges[i, 2])
                        last = above(values, first, stop, shift, ranges[i, 3])
                        if first < last:
                            runs = write(out, runs, row, queries[i], first, last)
            box += 1
        row += 1
    return 1, row, runs
