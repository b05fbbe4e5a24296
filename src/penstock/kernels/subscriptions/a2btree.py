"""The A2B-tree: a B-tree on x, below each x one on y, in which every inner entry knows the least y beneath it.

Both tiers are one B+-tree over (group, x, y): the run of entries with the same x is the lower tier, its first entry the
least y there. `group` keeps several tables apart in one tree; a search that leaves its group has found nothing. An
entry counts the rows that have these three values, so entries are distinct.

The tree is three arrays of 64-bit integers, one row a node, for compiled code to walk. A leaf is (count, groups, xs,
ys, rows); an inner node (count, groups, xs, ys, least ys, children), where the first three are a lower bound of what
lies beneath each child, and above all that lies beneath the child before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]
Found = tuple[bool, int, int]

#: Entries in a node.
FANOUT = 32
_P, _X, _Y, _N = 1, 1 + FANOUT, 1 + 2 * FANOUT, 1 + 3 * FANOUT
_LEAST, _CHILD = _N, 1 + 4 * FANOUT
_LEAF_WIDTH, _INNER_WIDTH = 1 + 4 * FANOUT, 1 + 5 * FANOUT
#: A node with fewer entries looks for a sibling to merge with; together they leave room to grow.
_FEW, _MERGED = FANOUT // 4, 3 * FANOUT // 4
_TALLEST = 24
_HEIGHT, _ROOT, _LEAVES, _FREE_LEAF, _INNERS, _FREE_INNER, _ENTRIES = range(7)
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
    if meta[_FREE_LEAF] < 0 and meta[_LEAVES] + 2 > len(leaf):
        leaf = np.concatenate([leaf, np.zeros_like(leaf)])
    if meta[_INNERS] + _TALLEST > len(inner):
        inner = np.concatenate([inner, np.zeros((len(inner) + _TALLEST, _INNER_WIDTH), np.int64)])
    return Nodes(leaf, inner, meta, path)


@njit(cache=True)
def has_room(t: Nodes) -> bool:
    """Whether one more insertion surely fits."""
    leaf, inner, meta, _ = t
    return (meta[_FREE_LEAF] >= 0 or meta[_LEAVES] + 2 <= len(leaf)) and meta[_INNERS] + _TALLEST <= len(inner)


@njit(cache=True)
def _seat(row: I64, p: int, x: int, inclusive: bool) -> int:
    """How many entries of a node lie before (p, x), or up to it."""
    low, high = 0, row[0]
    while low < high:
        mid = (low + high) >> 1
        q, z = row[_P + mid], row[_X + mid]
        before = q < p or (q == p and (z < x or (inclusive and z == x)))
        if before:
            low = mid + 1
        else:
            high = mid
    return low


@njit(cache=True)
def _seat_of(row: I64, p: int, x: int, y: int) -> int:
    """How many entries of a node are (p, x, y) or less."""
    low, high = 0, row[0]
    while low < high:
        mid = (low + high) >> 1
        q, z = row[_P + mid], row[_X + mid]
        if q < p or (q == p and (z < x or (z == x and row[_Y + mid] <= y))):
            low = mid + 1
        else:
            high = mid
    return low


@njit(cache=True)
def _down(t: Nodes, p: int, x: int, inclusive: bool) -> int:
    """The leaf where entries from (p, x) on begin, or those after it; the way there is in `path`."""
    _, inner, meta, path = t
    node = meta[_ROOT]
    for depth in range(meta[_HEIGHT]):
        at = max(_seat(inner[node], p, x, inclusive) - 1, 0)
        path[depth, 0], path[depth, 1] = node, at
        node = inner[node, _CHILD + at]
    return node


@njit(cache=True)
def search_right(t: Nodes, p: int, x: int, inclusive: bool, limit: int) -> Found:
    """FINDR: the first entry right of x (or at x, if inclusive) whose y is at most `limit`, and its y.

    It is the least y at its x. At every level at most two nodes are looked at.
    """
    leaf, inner, meta, path = t
    height = meta[_HEIGHT]
    node = _down(t, p, x, not inclusive)
    for at in range(_seat(leaf[node], p, x, not inclusive), leaf[node, 0]):
        if leaf[node, _Y + at] <= limit:
            return leaf[node, _P + at] == p, leaf[node, _X + at], leaf[node, _Y + at]
    for depth in range(height - 1, -1, -1):
        node = path[depth, 0]
        for at in range(path[depth, 1] + 1, inner[node, 0]):
            if inner[node, _LEAST + at] <= limit:
                node = inner[node, _CHILD + at]
                for _ in range(depth + 1, height):
                    at = 0
                    while inner[node, _LEAST + at] > limit:
                        at += 1
                    node = inner[node, _CHILD + at]
                at = 0
                while leaf[node, _Y + at] > limit:
                    at += 1
                return leaf[node, _P + at] == p, leaf[node, _X + at], leaf[node, _Y + at]
    return False, 0, 0


@njit(cache=True)
def search_left(t: Nodes, p: int, x: int, limit: int) -> Found:
    """FINDL: the last x left of x where some y is at most `limit`, and the least y there."""
    leaf, inner, meta, path = t
    height = meta[_HEIGHT]
    node = _down(t, p, x, False)
    for at in range(_seat(leaf[node], p, x, False) - 1, -1, -1):
        if leaf[node, _Y + at] <= limit:
            return _least_of_run(t, p, leaf[node, _P + at], leaf[node, _X + at])
    for depth in range(height - 1, -1, -1):
        node = path[depth, 0]
        for at in range(path[depth, 1] - 1, -1, -1):
            if inner[node, _LEAST + at] <= limit:
                node = inner[node, _CHILD + at]
                for _ in range(depth + 1, height):
                    at = inner[node, 0] - 1
                    while inner[node, _LEAST + at] > limit:
                        at -= 1
                    node = inner[node, _CHILD + at]
                at = leaf[node, 0] - 1
                while leaf[node, _Y + at] > limit:
                    at -= 1
                return _least_of_run(t, p, leaf[node, _P + at], leaf[node, _X + at])
    return False, 0, 0


@njit(cache=True)
def _least_of_run(t: Nodes, p: int, q: int, x: int) -> Found:
    if q != p:
        return False, 0, 0
    return search_right(t, p, x, True, MOST)


@njit(cache=True)
def least_at(t: Nodes, p: int, x: int) -> tuple[bool, int]:
    """The least y at x, if there is a row."""
    found, z, y = search_right(t, p, x, True, MOST)
    return found and z == x, y


@njit(cache=True)
def least_between(t: Nodes, p: int, first: int, last: int) -> tuple[bool, int]:
    """The least y in a closed range of x: from each skyline point to the next lower one."""
    found, x, y = search_right(t, p, first, True, MOST)
    if not found or x > last:
        return False, 0
    while y > LEAST:
        found, x, lower = search_right(t, p, x, False, y - 1)
        if not found or x > last:
            break
        y = lower
    return True, y


@njit(cache=True)
def neighbours(t: Nodes, p: int, x: int, y: int) -> tuple[bool, bool, int, bool, int]:
    """Within the run at x: whether y is there, and the y before and after it: whether there is one, and which."""
    leaf, inner, meta, path = t
    node, height = meta[_ROOT], meta[_HEIGHT]
    for depth in range(height):
        at = max(_seat_of(inner[node], p, x, y) - 1, 0)
        path[depth, 0], path[depth, 1] = node, at
        node = inner[node, _CHILD + at]
    row = leaf[node]
    after = _seat_of(row, p, x, y)
    before = after - 1
    there = before >= 0 and row[_P + before] == p and row[_X + before] == x and row[_Y + before] == y
    if there:
        before -= 1
    left = node if before >= 0 else _next_leaf(t, -1)
    right = node if after < row[0] else _next_leaf(t, 1)
    if left != node and left >= 0:
        before = leaf[left, 0] - 1
    if right != node:
        after = 0
    has_left = left >= 0 and leaf[left, _P + before] == p and leaf[left, _X + before] == x
    has_right = right >= 0 and leaf[right, _P + after] == p and leaf[right, _X + after] == x
    low = leaf[left, _Y + before] if has_left else 0
    high = leaf[right, _Y + after] if has_right else 0
    return there, has_left, low, has_right, high


@njit(cache=True)
def _next_leaf(t: Nodes, step: int) -> int:
    """The leaf before or after the one that `path` leads to; -1 if there is none."""
    _, inner, meta, path = t
    height = meta[_HEIGHT]
    for depth in range(height - 1, -1, -1):
        at = path[depth, 1] + step
        if 0 <= at < inner[path[depth, 0], 0]:
            node = inner[path[depth, 0], _CHILD + at]
            for _ in range(depth + 1, height):
                node = inner[node, _CHILD + (0 if step > 0 else inner[node, 0] - 1)]
            return node
    return -1


@njit(cache=True)
def _open(row: I64, at: int, fields: int) -> None:
    """Move the entries from `at` on by one."""
    count = row[0]
    for field in range(fields):
        base = 1 + field * FANOUT
        for i in range(base + count, base + at, -1):
            row[i] = row[i - 1]
    row[0] = count + 1


@njit(cache=True)
def _close(row: I64, at: int, fields: int) -> None:
    """Move the entries after `at` back by one."""
    count = row[0] - 1
    for field in range(fields):
        base = 1 + field * FANOUT
        for i in range(base + at, base + count):
            row[i] = row[i + 1]
    row[0] = count


@njit(cache=True)
def _take(nodes: I64, meta: I64, used: int, free: int) -> int:
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
def _release(nodes: I64, meta: I64, free: int, node: int) -> None:
    nodes[node, 0] = meta[free]
    meta[free] = node


@njit(cache=True)
def _least(row: I64, base: int) -> int:
    least = MOST
    for i in range(base, base + row[0]):
        if row[i] < least:
            least = row[i]
    return least


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
    node = inner[parent, _CHILD + at]
    if leaves:
        other = _take(leaf, meta, _LEAVES, _FREE_LEAF)
        _halve(leaf, node, other, 4)
    else:
        other = _take(inner, meta, _INNERS, _FREE_INNER)
        _halve(inner, node, other, 5)
    base = _Y if leaves else _LEAST
    row = inner[parent]
    _open(row, at + 1, 5)
    row[_P + at + 1], row[_X + at + 1], row[_Y + at + 1] = nodes[other, _P], nodes[other, _X], nodes[other, _Y]
    row[_CHILD + at + 1] = other
    row[_LEAST + at], row[_LEAST + at + 1] = _least(nodes[node], base), _least(nodes[other], base)


@njit(cache=True)
def insert(t: Nodes, p: int, x: int, y: int) -> None:
    """Add a row. Full nodes are split on the way down, so there is no way back up."""
    leaf, inner, meta, _ = t
    height, root = meta[_HEIGHT], meta[_ROOT]
    full = inner[root, 0] if height else leaf[root, 0]
    if full == FANOUT:
        grown = _take(inner, meta, _INNERS, _FREE_INNER)
        row = inner[grown]
        row[0] = 1
        row[_P], row[_X], row[_Y], row[_LEAST] = LEAST, LEAST, LEAST, LEAST
        row[_CHILD] = root
        meta[_ROOT], meta[_HEIGHT] = grown, height + 1
        _split(t, grown, 0, height == 0)
    node, height = meta[_ROOT], meta[_HEIGHT]
    for depth in range(height):
        row = inner[node]
        at = max(_seat_of(row, p, x, y) - 1, 0)
        child, leaves = row[_CHILD + at], depth == height - 1
        if (leaf[child, 0] if leaves else inner[child, 0]) == FANOUT:
            _split(t, node, at, leaves)
            at = max(_seat_of(row, p, x, y) - 1, 0)
            child = row[_CHILD + at]
        if at == 0 and _seat_of(row, p, x, y) == 0:
            row[_P], row[_X], row[_Y] = p, x, y
        row[_LEAST + at] = min(row[_LEAST + at], y)
        node = child
    row = leaf[node]
    at = _seat_of(row, p, x, y)
    if at > 0 and row[_P + at - 1] == p and row[_X + at - 1] == x and row[_Y + at - 1] == y:
        row[_N + at - 1] += 1
        return
    _open(row, at, 4)
    row[_P + at], row[_X + at], row[_Y + at], row[_N + at] = p, x, y, 1
    meta[_ENTRIES] += 1


@njit(cache=True)
def delete(t: Nodes, p: int, x: int, y: int) -> bool:
    """Take away one row; false if there is none."""
    leaf, inner, meta, path = t
    node, height = meta[_ROOT], meta[_HEIGHT]
    for depth in range(height):
        at = max(_seat_of(inner[node], p, x, y) - 1, 0)
        path[depth, 0], path[depth, 1] = node, at
        node = inner[node, _CHILD + at]
    row = leaf[node]
    at = _seat_of(row, p, x, y) - 1
    if at < 0 or row[_P + at] != p or row[_X + at] != x or row[_Y + at] != y:
        return False
    row[_N + at] -= 1
    if row[_N + at] > 0:
        return True
    _close(row, at, 4)
    meta[_ENTRIES] -= 1
    for depth in range(height - 1, -1, -1):
        _mend(t, path[depth, 0], path[depth, 1], depth == height - 1)
    while meta[_HEIGHT] > 0 and inner[meta[_ROOT], 0] <= 1:
        old = meta[_ROOT]
        if inner[old, 0] == 1:
            meta[_ROOT] = inner[old, _CHILD]
            meta[_HEIGHT] -= 1
        else:
            meta[_ROOT], meta[_HEIGHT] = _take(leaf, meta, _LEAVES, _FREE_LEAF), 0
        _release(inner, meta, _FREE_INNER, old)
    return True


@njit(cache=True)
def _mend(t: Nodes, parent: int, at: int, leaves: bool) -> None:
    """After a deletion below: the child's least y; an empty child goes, one with few entries joins a sibling."""
    leaf, inner, _, _ = t
    row = inner[parent]
    child = row[_CHILD + at]
    nodes = leaf if leaves else inner
    if nodes[child, 0] == 0:
        _drop(t, parent, at, leaves)
        return
    row[_LEAST + at] = _least(nodes[child], _Y if leaves else _LEAST)
    if nodes[child, 0] >= _FEW:
        return
    for left in (at - 1, at):
        if left < 0 or left + 1 >= row[0]:
            continue
        one, other = row[_CHILD + left], row[_CHILD + left + 1]
        count, more = nodes[one, 0], nodes[other, 0]
        if count + more <= _MERGED:
            for field in range(4 if leaves else 5):
                base = 1 + field * FANOUT
                for i in range(more):
                    nodes[one, base + count + i] = nodes[other, base + i]
            nodes[one, 0] = count + more
            row[_LEAST + left] = min(row[_LEAST + left], row[_LEAST + left + 1])
            _drop(t, parent, left + 1, leaves)
            return


@njit(cache=True)
def _drop(t: Nodes, parent: int, at: int, leaves: bool) -> None:
    leaf, inner, meta, _ = t
    child = inner[parent, _CHILD + at]
    if leaves:
        _release(leaf, meta, _FREE_LEAF, child)
    else:
        _release(inner, meta, _FREE_INNER, child)
    _close(inner[parent], at, 5)


@njit(cache=True)
def _insert_from(t: Nodes, rows: I64, start: int) -> int:
    for i in range(start, len(rows)):
        if not has_room(t):
            return i
        insert(t, rows[i, 0], rows[i, 1], rows[i, 2])
    return len(rows)


class A2BTree:
    """Rows as (group, x, y), ordered, with the least y beneath every inner entry.

    Guarantees
        Insertion, deletion and both searches take O(log N): `test_the_cost_of_mar_grows_with_the_logarithm`.
        Searches find what a scan finds, whatever was inserted and deleted before: `test_tree_equals_a_sorted_list`.
    State and cost
        Nodes of 32 entries, 32 bytes an entry; any two neighbours below one parent are three eighths full on average or
        fuller, after random insertions about 70%.

    Xie, §5.3.1 ("Computing Mar with A2B-Tree").

    >>> tree = A2BTree()
    >>> tree.extend(np.array([[0, 100, 8], [0, 101, 4], [0, 103, 7], [0, 112, 1]]))
    >>> tree.right_of(0, 102, 3)
    (112, 1)
    >>> tree.left_of(0, 102, 3) is None
    True
    """

    def __init__(self) -> None:
        self.nodes = new_nodes()

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self.nodes)

    def __len__(self) -> int:
        return int(self.nodes.meta[_ENTRIES])

    @property
    def levels(self) -> int:
        """Nodes on a way down."""
        return int(self.nodes.meta[_HEIGHT]) + 1

    def grow(self) -> int:
        """Make room for an insertion; the bytes held while growing."""
        before = self.nbytes
        self.nodes = with_room(self.nodes)
        return before + self.nbytes

    def extend(self, rows: I64) -> None:
        """Add rows of (group, x, y)."""
        done = 0
        while done < len(rows):
            self.grow()
            done = _insert_from(self.nodes, rows, done)

    def remove(self, group: int, x: int, y: int) -> bool:
        """Take away one row; false if there is none."""
        return bool(delete(self.nodes, group, x, y))

    def right_of(self, group: int, x: int, limit: int) -> tuple[int, int] | None:
        """The nearest (x, y) to the right with y at most `limit`."""
        found, at, y = search_right(self.nodes, group, x, False, limit)
        return (at, y) if found else None

    def left_of(self, group: int, x: int, limit: int) -> tuple[int, int] | None:
        """The nearest (x, least y there) to the left with a y at most `limit`."""
        found, at, y = search_left(self.nodes, group, x, limit)
        return (at, y) if found else None

    def least(self, group: int, first: int, last: int) -> int | None:
        """The least y in a closed range of x."""
        found, y = least_between(self.nodes, group, first, last)
        return int(y) if found else None
