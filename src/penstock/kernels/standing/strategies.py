"""The strategies by name: which index each needs, and how it answers a batch of rows.

=================== =========================== ============================
name                select-joins                band joins
=================== =========================== ============================
`naive`             NAIVE                       BJ-QOuter
`join_first`        SJ-JoinFirst-E              BJ-DOuter
`join_first_scan`   SJ-JoinFirst-S              (as `naive`)
`select_first`      SJ-SelectFirst              (none: nothing to select by)
`merge`             (none)                      BJ-MJ
`ssi`               SJ-SSI                      BJ-SSI
`hotspot`           SJ-SSI on hot groups, then  BJ-SSI on hot groups, then
                    SJ-SelectFirst              BJ-MJ
=================== =========================== ============================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np

from penstock.kernels.standing import joinfirst, mergejoin, naive, selectfirst, ssi
from penstock.kernels.standing.index import Grouping, Index
from penstock.kernels.standing.layout import Layout
from penstock.kernels.standing.search import F64, I32, Flags, Place, Rows

Strategy = Literal["naive", "join_first", "join_first_scan", "select_first", "merge", "ssi", "hotspot"]
SELECT_JOIN: tuple[Strategy, ...] = ("naive", "join_first", "join_first_scan", "select_first", "ssi", "hotspot")
BAND_JOIN: tuple[Strategy, ...] = ("naive", "join_first", "merge", "ssi", "hotspot")

Walk = Callable[[Layout, Flags, Rows, F64, I32, Place], Place]
#: Runs written at once beside the most that one row can have.
BLOCK = 65_536
_START = Place(0, 0, 0)


def grouping_of(strategy: Strategy) -> Grouping | None:
    """Which index a strategy walks; None if it looks at every query in turn."""
    if strategy in ("naive", "join_first_scan"):
        return None
    return "all" if strategy == "ssi" else "hot" if strategy == "hotspot" else "none"


def tree_for(strategy: Strategy, own: bool) -> bool:
    """Whether the strategy's layouts are trees."""
    return own or strategy == "join_first"


def answers(
    strategy: Strategy, index: Index | None, ranges: F64, alive: Flags, own: bool, rows: Rows, values: F64
) -> Iterator[I32]:
    """All runs of a batch, in pieces; each is overwritten by the next.

    `index` is one of `grouping_of(strategy)`; `ranges` and `alive` have a row for each slot; `own` tells select-joins
    from band joins.
    """
    if index is None:
        walk = naive.every_query if strategy == "naive" and own else naive.join_first
        yield from _pieces(partial(walk, ranges, alive, rows, values), len(alive), 1)
        return
    for layout, shown in index.parts():
        for walk_one, room, last in _walks(strategy, own, layout):
            yield from _pieces(partial(walk_one, layout, shown, rows, values), room, last)


def _walks(strategy: Strategy, own: bool, layout: Layout) -> Iterator[tuple[Walk, int, int]]:
    """What to walk on a layout: the function, the room it needs, and the group at which it is done."""
    if layout.groups:
        yield ssi.select if own else ssi.band, ssi.room_needed(layout), layout.groups
    scattered = int(layout.starts[-1] - layout.starts[-2])
    if scattered and strategy == "join_first":
        yield joinfirst.select if own else joinfirst.band, scattered, 1
    elif scattered:
        yield selectfirst.select if own else mergejoin.merge, scattered, 1


def _pieces(walk: Callable[[I32, Place], Place], room: int, last: int) -> Iterator[I32]:
    out = np.empty((room + BLOCK, 4), np.int32)
    place = _START
    while place.group < last:
        place = walk(out, place)
        if place.runs:
            yield out[: place.runs]
