"""SJ-SSI and BJ-SSI: a group of queries that share a point is asked once (003, §4.3.1 and §4.3.2, Theorems 14 and 15).

For each group the two partners nearest its stabbing point decide: a query that reaches neither has no partner at all,
and one that reaches either has a run of partners around it. So a row costs τ(log m + g(n)) and what it answers: g is
a walk down a tree for select-joins, and nothing for band joins.

For select-joins groups are the outer loop and rows the inner one: a batch finds a group's boxes in the processor's
cache. For band joins it is the other way round: the partners near one stabbing point are not far from those near the
last.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from penstock.kernels.standing.layout import Layout, Sequences, Tree
from penstock.kernels.standing.search import (
    F64,
    I32,
    I64,
    Flags,
    Place,
    Rows,
    onward,
    reach_left,
    reach_right,
    write,
)


def room_needed(layout: Layout) -> int:
    """Runs that must fit into `out`: those of one row in the largest group."""
    return int(np.diff(layout.starts[:-1]).max(initial=0))


def select(layout: Layout, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """SJ-SSI over all groups, from `place` until all is done or `out` is full."""
    return Place(*_select(layout.tree, layout.starts, layout.stabs, alive, rows, values, out, *place[:2]))


def band(layout: Layout, alive: Flags, rows: Rows, values: F64, out: I32, place: Place) -> Place:
    """BJ-SSI over all groups, from `place` until all is done or `out` is full."""
    return Place(*_band(layout.sequences, layout.starts, layout.stabs, alive, rows, values, out, *place[:2]))


@njit(cache=True)
def _select(
    tree: Tree, starts: I64, stabs: F64, alive: Flags, rows: Rows, values: F64, out: I32, group: int, row: int
) -> tuple[int, int, int]:
    ranges, queries, boxes = tree.ranges, tree.queries, tree.boxes
    # Stabbing points mostly ascend: the next one's neighbours are not far from the last one's.
    nears, before = rows.begin.astype(np.int32), -np.inf
    runs = 0
    while group < stabs.size:
        if stabs[group] < before:
            nears[:] = rows.begin
        before = stabs[group]
        size = starts[group + 1] - starts[group]
        root, end = tree.roots[group], tree.roots[group + 1]
        while row < rows.own.size and size > 0:
            if out.shape[0] - runs < size:
                return group, row, runs
            own, begin, stop, shift = rows.own[row], rows.begin[row], rows.end[row], rows.shift[row]
            if begin == stop or not tree.extents[group, 0] <= own <= tree.extents[group, 1]:
                row += 1
                continue
            # The nearest partners on both sides; without one, a number that nothing reaches.
            near = onward(values, nears[row], stop, shift, stabs[group])
            nears[row] = near
            left = values[near - 1] + shift if near > begin else np.nan
            right = values[near] + shift if near < stop else np.nan
            box = root
            while box < end:
                if not (boxes[box, 0] <= own <= boxes[box, 1] and (boxes[box, 2] <= left or boxes[box, 3] >= right)):
                    box = tree.skip[box]
                    continue
                if tree.skip[box] == box + 1:
                    for i in range(tree.first[box], tree.last[box]):
                        wanted = (ranges[i, 0] <= own) & (own <= ranges[i, 1])
                        if wanted & ((ranges[i, 2] <= left) | (ranges[i, 3] >= right)) and alive[queries[i]]:
                            first = reach_left(values, begin, near, shift, ranges[i, 2])
                            last = reach_right(values, near, stop, shift, ranges[i, 3])
                            runs = write(out, runs, row, queries[i], first, last)
                box += 1
            row += 1
        group, row = group + 1, 0
    return group, row, runs


@njit(cache=True)
def _band(
    lists: Sequences, starts: I64, stabs: F64, alive: Flags, rows: Rows, values: F64, out: I32, group: int, row: int
) -> tuple[int, int, int]:
    runs = 0
    while row < rows.shift.size:
        begin, stop, shift = rows.begin[row], rows.end[row], rows.shift[row]
        near, before = begin, -np.inf
        while group < stabs.size and begin < stop:
            top, bottom = starts[group], starts[group + 1]
            if out.shape[0] - runs < bottom - top:
                return group, row, runs
            # Stabbing points mostly ascend: the next one's neighbours are not far from the last one's.
            near = onward(values, near if stabs[group] >= before else begin, stop, shift, stabs[group])
            before = stabs[group]
            left = values[near - 1] + shift if near > begin else np.nan
            right = values[near] + shift if near < stop else np.nan
            # Those that begin at or before the left neighbour: a prefix by beginnings.
            i = top
            while i < bottom and lists.by_low[i] <= left:
                if alive[lists.low_query[i]]:
                    first = reach_left(values, begin, near, shift, lists.by_low[i])
                    last = reach_right(values, near, stop, shift, lists.low_high[i])
                    runs = write(out, runs, row, lists.low_query[i], first, last)
                i += 1
            # Those that end at or after the right one, but for the ones just seen: a prefix by ends.
            i = top
            while i < bottom and lists.by_high[i] >= right:
                if not lists.high_low[i] <= left and alive[lists.high_query[i]]:
                    last = reach_right(values, near, stop, shift, lists.by_high[i])
                    runs = write(out, runs, row, lists.high_query[i], near, last)
                i += 1
            group += 1
        group, row = 0, row + 1
    return stabs.size, 0, runs
