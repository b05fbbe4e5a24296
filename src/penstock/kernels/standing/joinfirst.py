"""SJ-JoinFirst-E and BJ-DOuter: every partner of a row asks an index which queries want the pair (003, §4.3).

For select-joins the index is over both ranges, for band joins over the one there is.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.kernels.standing.layout import Layout, Tree
from penstock.kernels.standing.search import F64, I32, Flags, Place, Rows, write


def room_needed(layout: Layout) -> int:
    """Runs that must fit into `out`: those of one row."""
    return int(layout.starts[-1] - layout.starts[-2])


def select(layout: Layout, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """SJ-JoinFirst over the scattered region, from `place` until all is done or `out` is full."""
    return Place(*_partners(layout.tree, room_needed(layout), alive, rows, values, out, place.row, False))


def band(layout: Layout, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """BJ-DOuter, the same way; the layout is a tree over the ranges across."""
    return Place(*_partners(layout.tree, room_needed(layout), alive, rows, values, out, place.row, True))


@njit(cache=True)
def _partners(
    tree: Tree, size: int, alive: Flags, rows: Rows, values: F64, out: I32, row: int, across: bool
) -> tuple[int, int, int]:
    ranges, queries, boxes = tree.ranges, tree.queries, tree.boxes
    root, end = tree.roots[-2], tree.roots[-1]
    # Where the run of a query is written, if `out` has it for this row: partners come in order and prolong it.
    where = np.full(alive.size, -1, np.int32)
    runs = 0
    while row < rows.own.size:
        if out.shape[0] - runs < size:
            return 0, row, runs
        own, shift = rows.own[row], rows.shift[row]
        for partner in range(rows.begin[row], rows.end[row]):
            value = values[partner] + shift
            if across:
                own = value
            box = root
            while box < end:
                if not (boxes[box, 0] <= own <= boxes[box, 1] and boxes[box, 2] <= value <= boxes[box, 3]):
                    box = tree.skip[box]
                    continue
                if tree.skip[box] == box + 1:
                    for i in range(tree.first[box], tree.last[box]):
                        query = queries[i]
                        if ranges[i, 0] <= own <= ranges[i, 1] and ranges[i, 2] <= value <= ranges[i, 3]:
                            seen = where[query]
                            if seen >= 0 and seen < runs and out[seen, 1] == query and out[seen, 0] == row:
                                out[seen, 3] = partner + 1
                            elif alive[query]:
                                where[query] = runs
                                runs = write(out, runs, row, query, partner, partner + 1)
                box += 1
        row += 1
    return 1, row, runs
