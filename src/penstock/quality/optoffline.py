"""OPT-offline: the most results that any policy can keep, with the future known: a flow of least cost.

A unit of flow is a place in memory. It waits on a line of instants, or is taken by a row when it comes and given back
at one of the instants at which the row meets a partner; each such meeting on the way is worth one result. It is the
graph of 002 §3.2.1, without the nodes at which nothing is gained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


class Offline(NamedTuple):
    """The best that can be had: how many results, and the pairs (instant on the left, instant on the right)."""

    results: int
    pairs: set[tuple[int, int]]


def opt_offline(
    left: I64, right: I64, *, window: int, memory: int, variable: bool = False, warm_up: int = 0, longest: bool = False
) -> Offline:
    """The largest part of a window join that `memory` rows can give, one row a side at each instant.

    Rows meet that came less than `window` instants apart. Each side has half of the memory, or both share it. Results
    before `warm_up` do not count. Rows that come at the same instant always meet (the fast CPU of 002 §2.1). Of several
    optima any is found, or with `longest` one in which places are taken for the longest.

    >>> opt_offline(np.array([1, 1, 1, 3, 2]), np.array([2, 3, 1, 1, 3]), window=3, memory=2).results
    5
    """
    from ortools.graph.python import min_cost_flow

    count = len(left)
    keys = (np.asarray(left), np.asarray(right))
    meetings = [_meetings(keys[side], keys[1 - side], window, warm_up) for side in (0, 1)]
    pools = 1 if variable else 2
    lines = pools * (count + 1)
    tails: list[I64] = []
    heads: list[I64] = []
    caps: list[I64] = []
    costs: list[I64] = []

    def arcs(tail: I64, head: I64, cap: int, cost: I64 | int) -> None:
        tails.append(tail)
        heads.append(head)
        caps.append(np.full(len(tail), cap))
        costs.append(np.broadcast_to(np.asarray(cost), len(tail)))

    instants = np.arange(count)
    for pool in range(pools):
        arcs(pool * (count + 1) + instants, pool * (count + 1) + instants + 1, memory, 0)
    node, spans = lines, []
    for side, (rows, times) in enumerate(meetings):
        line = (0 if variable else side) * (count + 1)
        nodes = np.arange(node, node + len(rows))
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        before = nodes - 1
        before[first] = line + rows[first]
        begin = sum(len(part) for part in tails)
        worth = count * memory + 1 if longest else 1
        since = np.concatenate([rows[:1], times[:-1]])
        since[first] = rows[first]
        arcs(before, nodes, 1, -worth - (times - since if longest else 0))
        spans.append((begin, rows, times, side))
        arcs(nodes, line + times, 1, 0)
        node += len(rows)
    solver = min_cost_flow.SimpleMinCostFlow()
    solver.add_arcs_with_capacity_and_unit_cost(*map(np.concatenate, (tails, heads, caps, costs)))
    supply = np.zeros(node, np.int64)
    for pool in range(pools):
        supply[pool * (count + 1)] = memory // pools
        supply[pool * (count + 1) + count] = -(memory // pools)
    solver.set_nodes_supplies(np.arange(node), supply)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise RuntimeError(f"The flow solver ended with {status}.")
    pairs = {(int(t), int(t)) for t in np.flatnonzero(keys[0] == keys[1]) if t >= warm_up}
    for begin, rows, times, side in spans:
        flows = solver.flows(np.arange(begin, begin + len(rows)))
        for at in np.flatnonzero(flows):
            mine, other = int(rows[at]), int(times[at])
            pairs.add((mine, other) if side == 0 else (other, mine))
    return Offline(len(pairs), pairs)


def _meetings(ours: I64, theirs: I64, window: int, warm_up: int) -> tuple[I64, I64]:
    """For each of our rows, in order, the later instants at which a partner comes."""
    rows, times = [], []
    for key in np.intersect1d(ours, theirs):
        mine, other = np.flatnonzero(ours == key), np.flatnonzero(theirs == key)
        begin = np.searchsorted(other, np.maximum(mine + 1, warm_up))
        end = np.maximum(np.searchsorted(other, mine + window), begin)
        counts = end - begin
        rows.append(np.repeat(mine, counts))
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begin, counts)
        times.append(other[places])
    if not rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    row, time = np.concatenate(rows), np.concatenate(times)
    order = np.lexsort((time, row))
    return row[order], time[order]
