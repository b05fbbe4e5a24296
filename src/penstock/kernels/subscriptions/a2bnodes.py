"""The nodes of an A2B-tree: three arrays of 64-bit integers, one row a node, for compiled code to walk.

A leaf is (count, groups, xs, ys, rows); an inner node (count, groups, xs, ys, least ys, children), where groups, xs and
ys are a lower bound of what lies beneath each child, and above all that lies beneath the child before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]

#: Entries in a node.
FANOUT = 32
GROUPS, XS, YS, COUNTS = 1, 1 + FANOUT, 1 + 2 * FANOUT, 1 + 3 * FANOUT
LEASTS, CHILDREN = COUNTS, 1 + 4 * FANOUT
_LEAF_WIDTH, _INNER_WIDTH = 1 + 4 * FANOUT, 1 + 5 * FANOUT
_TALLEST = 24
HEIGHT, ROOT, LEAVES, FREE_LEAF, INNERS, FREE_INNER, ENTRIES = range(7)
LEAST, MOST = -(2**63), 2**63 - 1


class Nodes(NamedTuple):
    """The arrays of a tree; `path` is scratch for the way down, node and place at each level."""

    leaf: I64
    inner: I64
    meta: I64
    path: I64


def new_nodes() -> Nodes:
    """An empty tree: one empty leaf."""
    nodes = Nodes(
        np.zeros((8, _LEAF_WIDTH), np.int64),
        np.zeros((4, _INNER_WIDTH), np.int64),
        np.zeros(7, np.int64),
        np.zeros((_TALLEST, 2), np.int64),
    )
    nodes.meta[:] = 0, 0, 1, -1, 0, -1, 0
    return nodes


def with_room(nodes: Nodes) -> Nodes:
    """The same tree, with room for one insertion at least."""
    leaf, inner, meta, path = nodes
    if meta[FREE_LEAF] < 0 and meta[LEAVES] + 2 > len(leaf):
        leaf = np.concatenate([leaf, np.zeros_like(leaf)])
    if meta[INNERS] + _TALLEST > len(inner):
        inner = np.concatenate([inner, np.zeros((len(inner) + _TALLEST, _INNER_WIDTH), np.int64)])
    return Nodes(leaf, inner, meta, path)


@njit(cache=True)
def has_room(t: Nodes) -> bool:
    """Whether one more insertion surely fits."""
    leaf, inner, meta, _ = t
    return (meta[FREE_LEAF] >= 0 or meta[LEAVES] + 2 <= len(leaf)) and meta[INNERS] + _TALLEST <= len(inner)


@njit(cache=True)
def seat(row: I64, p: int, x: int, inclusive: bool) -> int:
    """How many entries of a node lie before (p, x), or up to it."""
    low, high = 0, row[0]
    while low < high:
        mid = (low + high) >> 1
        q, z = row[GROUPS + mid], row[XS + mid]
        before = q < p or (q == p and (z < x or (inclusive and z == x)))
        if before:
            low = mid + 1
        else:
            high = mid
    return low


@njit(cache=True)
def seat_of(row: I64, p: int, x: int, y: int) -> int:
    """How many entries of a node are (p, x, y) or less."""
    low, high = 0, row[0]
    while low < high:
        mid = (low + high) >> 1
        q, z = row[GROUPS + mid], row[XS + mid]
        if q < p or (q == p and (z < x or (z == x and row[YS + mid] <= y))):
            low = mid + 1
        else:
            high = mid
    return low


@njit(cache=True)
def open_place(row: I64, at: int, fields: int) -> None:
    """Move the entries from `at` on by one."""
    count = row[0]
    for field in range(fields):
        base = 1 + field * FANOUT
        for i in range(base + count, base + at, -1):
            row[i] = row[i - 1]
    row[0] = count + 1


@njit(cache=True)
def close_place(row: I64, at: int, fields: int) -> None:
    """Move the entries after `at` back by one."""
    count = row[0] - 1
    for field in range(fields):
        base = 1 + field * FANOUT
        for i in range(base + at, base + count):
            row[i] = row[i + 1]
    row[0] = count


@njit(cache=True)
def take_node(nodes: I64, meta: I64, used: int, free: int) -> int:
    """A node that nobody uses; free ones are chained by their first word."""
    node = meta[free]
    if node >= 0:
        meta[free] = nodes[node, 0]
    else:
        node = meta[used]
        meta[used] += 1
    nodes[node, 0] = 0
    return node


@njit(cache=True)
def release_node(nodes: I64, meta: I64, free: int, node: int) -> None:
    """Chain a node to the free ones."""
    nodes[node, 0] = meta[free]
    meta[free] = node


@njit(cache=True)
def least_of(row: I64, base: int) -> int:
    """The least of a node's entries in the field that begins at `base`."""
    least = MOST
    for i in range(base, base + row[0]):
        if row[i] < least:
            least = row[i]
    return least
