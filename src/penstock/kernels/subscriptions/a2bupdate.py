"""Rows that come to an A2B-tree and go: nodes are split on the way down, and merged on the way back up."""

from __future__ import annotations

from numba import njit

from penstock.kernels.subscriptions.a2bnodes import (
    CHILDREN,
    COUNTS,
    ENTRIES,
    FANOUT,
    FREE_INNER,
    FREE_LEAF,
    GROUPS,
    HEIGHT,
    I64,
    INNERS,
    LEAST,
    LEASTS,
    LEAVES,
    ROOT,
    XS,
    YS,
    Nodes,
    close_place,
    has_room,
    least_of,
    open_place,
    release_node,
    seat_of,
    take_node,
)
from penstock.kernels.subscriptions.a2bsearch import down_to

#: A node with fewer entries looks for a sibling to merge with; together they leave room to grow.
_FEW, _MERGED = FANOUT // 4, 3 * FANOUT // 4


@njit(cache=True)
def _halve(nodes: I64, node: int, other: int, fields: int) -> None:
    """Move the upper half of a full node to another, empty one."""
    half = FANOUT // 2
    for field in range(fields):
        base = 1 + field * FANOUT
        for i in range(FANOUT - half):
            nodes[other, base + i] = nodes[node, base + half + i]
    nodes[node, 0], nodes[other, 0] = half, FANOUT - half


@njit(cache=True)
def _split(t: Nodes, parent: int, at: int, leaves: bool) -> None:
    """Give the full child at a place of a node a new sibling to its right."""
    leaf, inner, meta, _ = t
    nodes = leaf if leaves else inner
    node = inner[parent, CHILDREN + at]
    if leaves:
        other = take_node(leaf, meta, LEAVES, FREE_LEAF)
        _halve(leaf, node, other, 4)
    else:
        other = take_node(inner, meta, INNERS, FREE_INNER)
        _halve(inner, node, other, 5)
    base = YS if leaves else LEASTS
    row = inner[parent]
    open_place(row, at + 1, 5)
    row[GROUPS + at + 1], row[XS + at + 1], row[YS + at + 1] = nodes[other, GROUPS], nodes[other, XS], nodes[other, YS]
    row[CHILDREN + at + 1] = other
    row[LEASTS + at], row[LEASTS + at + 1] = least_of(nodes[node], base), least_of(nodes[other], base)


@njit(cache=True)
def insert(t: Nodes, p: int, x: int, y: int) -> None:
    """Add a row. Full nodes are split on the way down, so there is no way back up."""
    leaf, inner, meta, _ = t
    height, root = meta[HEIGHT], meta[ROOT]
    full = inner[root, 0] if height else leaf[root, 0]
    if full == FANOUT:
        grown = take_node(inner, meta, INNERS, FREE_INNER)
        row = inner[grown]
        row[0] = 1
        row[GROUPS], row[XS], row[YS], row[LEASTS] = LEAST, LEAST, LEAST, LEAST
        row[CHILDREN] = root
        meta[ROOT], meta[HEIGHT] = grown, height + 1
        _split(t, grown, 0, height == 0)
    node, height = meta[ROOT], meta[HEIGHT]
    for depth in range(height):
        row = inner[node]
        at = max(seat_of(row, p, x, y) - 1, 0)
        child, leaves = row[CHILDREN + at], depth == height - 1
        if (leaf[child, 0] if leaves else inner[child, 0]) == FANOUT:
            _split(t, node, at, leaves)
            at = max(seat_of(row, p, x, y) - 1, 0)
            child = row[CHILDREN + at]
        if at == 0 and seat_of(row, p, x, y) == 0:
            row[GROUPS], row[XS], row[YS] = p, x, y
        row[LEASTS + at] = min(row[LEASTS + at], y)
        node = child
    row = leaf[node]
    at = seat_of(row, p, x, y)
    if at > 0 and row[GROUPS + at - 1] == p and row[XS + at - 1] == x and row[YS + at - 1] == y:
        row[COUNTS + at - 1] += 1
        return
    open_place(row, at, 4)
    row[GROUPS + at], row[XS + at], row[YS + at], row[COUNTS + at] = p, x, y, 1
    meta[ENTRIES] += 1


@njit(cache=True)
def delete(t: Nodes, p: int, x: int, y: int) -> bool:
    """Take away one row; false if there is none."""
    leaf, inner, meta, path = t
    height = meta[HEIGHT]
    row = leaf[down_to(t, p, x, y)]
    at = seat_of(row, p, x, y) - 1
    if at < 0 or row[GROUPS + at] != p or row[XS + at] != x or row[YS + at] != y:
        return False
    row[COUNTS + at] -= 1
    if row[COUNTS + at] > 0:
        return True
    close_place(row, at, 4)
    meta[ENTRIES] -= 1
    for depth in range(height - 1, -1, -1):
        _mend(t, path[depth, 0], path[depth, 1], depth == height - 1)
    while meta[HEIGHT] > 0 and inner[meta[ROOT], 0] <= 1:
        old = meta[ROOT]
        if inner[old, 0] == 1:
            meta[ROOT] = inner[old, CHILDREN]
            meta[HEIGHT] -= 1
        else:
            meta[ROOT], meta[HEIGHT] = take_node(leaf, meta, LEAVES, FREE_LEAF), 0
        release_node(inner, meta, FREE_INNER, old)
    return True


@njit(cache=True)
def _mend(t: Nodes, parent: int, at: int, leaves: bool) -> None:
    """After a deletion below: the child's least y; an empty child goes, one with few entries joins a sibling."""
    leaf, inner, _, _ = t
    row = inner[parent]
    child = row[CHILDREN + at]
    nodes = leaf if leaves else inner
    if nodes[child, 0] == 0:
        _drop(t, parent, at, leaves)
        return
    row[LEASTS + at] = least_of(nodes[child], YS if leaves else LEASTS)
    if nodes[child, 0] >= _FEW:
        return
    for left in (at - 1, at):
        if left < 0 or left + 1 >= row[0]:
            continue
        one, other = row[CHILDREN + left], row[CHILDREN + left + 1]
        count, more = nodes[one, 0], nodes[other, 0]
        if count + more <= _MERGED:
            for field in range(4 if leaves else 5):
                base = 1 + field * FANOUT
                for i in range(more):
                    nodes[one, base + count + i] = nodes[other, base + i]
            nodes[one, 0] = count + more
            row[LEASTS + left] = min(row[LEASTS + left], row[LEASTS + left + 1])
            _drop(t, parent, left + 1, leaves)
            return


@njit(cache=True)
def _drop(t: Nodes, parent: int, at: int, leaves: bool) -> None:
    leaf, inner, meta, _ = t
    child = inner[parent, CHILDREN + at]
    if leaves:
        release_node(leaf, meta, FREE_LEAF, child)
    else:
        release_node(inner, meta, FREE_INNER, child)
    close_place(inner[parent], at, 5)


@njit(cache=True)
def insert_from(t: Nodes, rows: I64, start: int) -> int:
    """Add rows from one on, as long as there is room; the first that found none."""
    for i in range(start, len(rows)):
        if not has_room(t):
            return i
        insert(t, rows[i, 0], rows[i, 1], rows[i, 2])
    return len(rows)
