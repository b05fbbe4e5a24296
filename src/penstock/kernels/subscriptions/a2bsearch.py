"""Ways down an A2B-tree: the nearest row on either side whose y is low enough, and the run at one x."""

from __future__ import annotations

from numba import njit

from penstock.kernels.subscriptions.a2bnodes import (
    CHILDREN,
    GROUPS,
    HEIGHT,
    LEAST,
    LEASTS,
    MOST,
    ROOT,
    XS,
    YS,
    Nodes,
    seat,
    seat_of,
)

Found = tuple[bool, int, int]


@njit(cache=True)
def _down(t: Nodes, p: int, x: int, inclusive: bool) -> int:
    """The leaf where entries from (p, x) on begin, or those after it; the way there is in `path`."""
    _, inner, meta, path = t
    node = meta[ROOT]
    for depth in range(meta[HEIGHT]):
        at = max(seat(inner[node], p, x, inclusive) - 1, 0)
        path[depth, 0], path[depth, 1] = node, at
        node = inner[node, CHILDREN + at]
    return node


@njit(cache=True)
def down_to(t: Nodes, p: int, x: int, y: int) -> int:
    """The leaf where (p, x, y) is or would be; the way there is in `path`."""
    _, inner, meta, path = t
    node = meta[ROOT]
    for depth in range(meta[HEIGHT]):
        at = max(seat_of(inner[node], p, x, y) - 1, 0)
        path[depth, 0], path[depth, 1] = node, at
        node = inner[node, CHILDREN + at]
    return node


@njit(cache=True)
def search_right(t: Nodes, p: int, x: int, inclusive: bool, limit: int) -> Found:
    """FINDR: the first entry right of x (or at x, if inclusive) whose y is at most `limit`, and its y.

    It is the least y at its x. At every level at most two nodes are looked at.
    """
    leaf, inner, meta, path = t
    height = meta[HEIGHT]
    node = _down(t, p, x, not inclusive)
    for at in range(seat(leaf[node], p, x, not inclusive), leaf[node, 0]):
        if leaf[node, YS + at] <= limit:
            return leaf[node, GROUPS + at] == p, leaf[node, XS + at], leaf[node, YS + at]
    for depth in range(height - 1, -1, -1):
        node = path[depth, 0]
        for at in range(path[depth, 1] + 1, inner[node, 0]):
            if inner[node, LEASTS + at] <= limit:
                node = inner[node, CHILDREN + at]
                for _ in range(depth + 1, height):
                    at = 0
                    while inner[node, LEASTS + at] > limit:
                        at += 1
                    node = inner[node, CHILDREN + at]
                at = 0
                while leaf[node, YS + at] > limit:
                    at += 1
                return leaf[node, GROUPS + at] == p, leaf[node, XS + at], leaf[node, YS + at]
    return False, 0, 0


@njit(cache=True)
def search_left(t: Nodes, p: int, x: int, limit: int) -> Found:
    """FINDL: the last x left of x where some y is at most `limit`, and the least y there."""
    leaf, inner, meta, path = t
    height = meta[HEIGHT]
    node = _down(t, p, x, False)
    for at in range(seat(leaf[node], p, x, False) - 1, -1, -1):
        if leaf[node, YS + at] <= limit:
            return _least_of_run(t, p, leaf[node, GROUPS + at], leaf[node, XS + at])
    for depth in range(height - 1, -1, -1):
        node = path[depth, 0]
        for at in range(path[depth, 1] - 1, -1, -1):
            if inner[node, LEASTS + at] <= limit:
                node = inner[node, CHILDREN + at]
                for _ in range(depth + 1, height):
                    at = inner[node, 0] - 1
                    while inner[node, LEASTS + at] > limit:
                        at -= 1
                    node = inner[node, CHILDREN + at]
                at = leaf[node, 0] - 1
                while leaf[node, YS + at] > limit:
                    at -= 1
                return _least_of_run(t, p, leaf[node, GROUPS + at], leaf[node, XS + at])
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
    leaf = t.leaf
    node = down_to(t, p, x, y)
    row = leaf[node]
    after = seat_of(row, p, x, y)
    before = after - 1
    there = before >= 0 and row[GROUPS + before] == p and row[XS + before] == x and row[YS + before] == y
    if there:
        before -= 1
    left = node if before >= 0 else _next_leaf(t, -1)
    right = node if after < row[0] else _next_leaf(t, 1)
    if left != node and left >= 0:
        before = leaf[left, 0] - 1
    if right != node:
        after = 0
    has_left = left >= 0 and leaf[left, GROUPS + before] == p and leaf[left, XS + before] == x
    has_right = right >= 0 and leaf[right, GROUPS + after] == p and leaf[right, XS + after] == x
    low = leaf[left, YS + before] if has_left else 0
    high = leaf[right, YS + after] if has_right else 0
    return there, has_left, low, has_right, high


@njit(cache=True)
def _next_leaf(t: Nodes, step: int) -> int:
    """The leaf before or after the one that `path` leads to; -1 if there is none."""
    _, inner, meta, path = t
    height = meta[HEIGHT]
    for depth in range(height - 1, -1, -1):
        at = path[depth, 1] + step
        if 0 <= at < inner[path[depth, 0], 0]:
            node = inner[path[depth, 0], CHILDREN + at]
            for _ in range(depth + 1, height):
                node = inner[node, CHILDREN + (0 if step > 0 else inner[node, 0] - 1)]
            return node
    return -1
