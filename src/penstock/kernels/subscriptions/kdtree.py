"""The A2B-tree in two dimensions: a kd-tree of buckets in which every node knows the least y beneath it, and its box.

Inner nodes divide by the two axes in turn. Ties on one axis are broken by the other and then by y, so that distinct
entries can always be divided; an entry counts the rows that have its three values. A subtree that has grown lopsided is
built anew, so that the tree is never much deeper than a perfect one. Several tables share the nodes, one root each.

The tree is arrays of 64-bit integers for compiled code to walk: nodes, buckets of entries (x1, x2, y, rows), and roots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]
LEAST, MOST = -(2**63), 2**63 - 1

#: Entries in a bucket; a subtree with no more than half as many becomes one bucket.
BUCKET = 16
#: Columns of a node: its axis (-1 for a bucket), where it divides (an entry), the two parts or the bucket, entries
#: beneath, the least y, and the box.
_AXIS, _K, _LOW, _HIGH, COUNT, MIN, X1_MIN, X1_MAX, X2_MIN, X2_MAX = 0, 1, 4, 5, 6, 7, 8, 9, 10, 11
NODE_WIDTH = 12
#: A way down never has more nodes: a part has at most seven tenths of its parent, and a few.
_DEEPEST = 128
_NODES, _FREE_NODE, _BUCKETS, _FREE_BUCKET, _ROOTS, _SPARE_NODES, _SPARE_BUCKETS = range(7)


class KdNodes(NamedTuple):
    """The arrays of a tree. `roots` is by table; `path` and `stack` are scratch for ways down."""

    node: I64
    bucket: I64
    roots: I64
    meta: I64
    path: I64
    stack: I64


def new_kd() -> KdNodes:
    """No tables yet."""
    nodes = KdNodes(
        np.zeros((16, NODE_WIDTH), np.int64),
        np.zeros((8, BUCKET, 4), np.int64),
        np.full(4, -1, np.int64),
        np.zeros(7, np.int64),
        np.zeros(_DEEPEST, np.int64),
        np.zeros((2 * _DEEPEST, 3), np.int64),
    )
    nodes.meta[:] = 0, -1, 0, -1, 0, 0, 0
    return nodes


@njit(cache=True)
def kd_has_room(t: KdNodes, group: int) -> bool:
    """Whether a table surely has room for one deletion and one insertion, with everything in it built anew by both."""
    node, bucket, roots, meta, _, _ = t
    if group >= len(roots):
        return False
    count = node[roots[group], COUNT] if roots[group] >= 0 else 0
    needed = 4 + 2 * (count // (BUCKET // 2))
    buckets = len(bucket) - meta[_BUCKETS] + meta[_SPARE_BUCKETS]
    nodes = len(node) - meta[_NODES] + meta[_SPARE_NODES]
    return buckets >= needed and nodes >= 2 * needed


def kd_with_room(t: KdNodes, group: int) -> KdNodes:
    """The same tree with room for one more event of a table."""
    roots, node, bucket = t.roots, t.node, t.bucket
    if group >= len(roots):
        roots = np.concatenate([roots, np.full(max(len(roots), group + 1 - len(roots)), -1, np.int64)])
    grown = t._replace(roots=roots)
    while not kd_has_room(grown, group):
        node = np.concatenate([node, np.zeros((len(node) // 2, NODE_WIDTH), np.int64)])
        bucket = np.concatenate([bucket, np.zeros((len(bucket) // 2, BUCKET, 4), np.int64)])
        grown = grown._replace(node=node, bucket=bucket)
    return grown


@njit(cache=True)
def _before(axis: int, a1: int, a2: int, ay: int, b1: int, b2: int, by: int) -> bool:
    """Whether an entry lies before another by an axis, ties by the other axis and y."""
    if axis == 1:
        a1, a2, b1, b2 = a2, a1, b2, b1
    if a1 != b1:
        return a1 < b1
    return a2 < b2 if a2 != b2 else ay < by


@njit(cache=True)
def _take_node(t: KdNodes) -> int:
    node, _, _, meta, _, _ = t
    found = meta[_FREE_NODE]
    if found >= 0:
        meta[_FREE_NODE] = node[found, _LOW]
        meta[_SPARE_NODES] -= 1
        return found
    meta[_NODES] += 1
    return meta[_NODES] - 1


@njit(cache=True)
def _take_bucket(t: KdNodes) -> int:
    _, bucket, _, meta, _, _ = t
    found = meta[_FREE_BUCKET]
    if found >= 0:
        meta[_FREE_BUCKET] = bucket[found, 0, 0]
        meta[_SPARE_BUCKETS] -= 1
        return found
    meta[_BUCKETS] += 1
    return meta[_BUCKETS] - 1


@njit(cache=True)
def _release(t: KdNodes, at: int) -> None:
    """Let go of a node, and of its bucket if it has one."""
    node, bucket, _, meta, _, _ = t
    if node[at, _AXIS] < 0:
        bucket[node[at, _LOW], 0, 0] = meta[_FREE_BUCKET]
        meta[_FREE_BUCKET] = node[at, _LOW]
        meta[_SPARE_BUCKETS] += 1
    node[at, _LOW] = meta[_FREE_NODE]
    meta[_FREE_NODE] = at
    meta[_SPARE_NODES] += 1


@njit(cache=True)
def _refresh(t: KdNodes, at: int) -> None:
    """What a node knows of all beneath it, from its parts or its bucket (whose count it has)."""
    node, bucket, _, _, _, _ = t
    row = node[at]
    row[MIN], row[X1_MIN], row[X1_MAX], row[X2_MIN], row[X2_MAX] = MOST, MOST, LEAST, MOST, LEAST
    if row[_AXIS] < 0:
        entries = bucket[row[_LOW]]
        for i in range(row[COUNT]):
            row[MIN] = min(row[MIN], entries[i, 2])
            row[X1_MIN], row[X1_MAX] = min(row[X1_MIN], entries[i, 0]), max(row[X1_MAX], entries[i, 0])
            row[X2_MIN], row[X2_MAX] = min(row[X2_MIN], entries[i, 1]), max(row[X2_MAX], entries[i, 1])
        return
    row[COUNT] = 0
    for part in (row[_LOW], row[_HIGH]):
        beneath = node[part]
        row[COUNT] += beneath[COUNT]
        row[MIN] = min(row[MIN], beneath[MIN])
        row[X1_MIN], row[X1_MAX] = min(row[X1_MIN], beneath[X1_MIN]), max(row[X1_MAX], beneath[X1_MAX])
        row[X2_MIN], row[X2_MAX] = min(row[X2_MIN], beneath[X2_MIN]), max(row[X2_MAX], beneath[X2_MAX])


@njit(cache=True)
def _select(entries: I64, low: int, high: int, middle: int, axis: int) -> None:
    """Have the entry that belongs at `middle` of [low, high) by an axis there, and no later one before it."""
    high -= 1
    while low < high:
        pivot = entries[(low + high) >> 1].copy()
        i, j = low, high
        while i <= j:
            while _before(axis, entries[i, 0], entries[i, 1], entries[i, 2], pivot[0], pivot[1], pivot[2]):
                i += 1
            while _before(axis, pivot[0], pivot[1], pivot[2], entries[j, 0], entries[j, 1], entries[j, 2]):
                j -= 1
            if i <= j:
                for k in range(4):
                    entries[i, k], entries[j, k] = entries[j, k], entries[i, k]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@njit(cache=True)
def _collect(t: KdNodes, at: int) -> I64:
    """All entries beneath an inner node; everything beneath it is let go, the node itself is not."""
    node, bucket, _, _, _, stack = t
    entries = np.empty((node[at, COUNT], 4), np.int64)
    count, top = 0, 1
    stack[0, 0] = at
    while top:
        top -= 1
        row = node[stack[top, 0]]
        here = stack[top, 0]
        if row[_AXIS] >= 0:
            stack[top, 0], stack[top + 1, 0] = row[_LOW], row[_HIGH]
            top += 2
        else:
            entries[count : count + row[COUNT]] = bucket[row[_LOW], : row[COUNT]]
            count += row[COUNT]
        if here != at:
            _release(t, here)
    return entries


@njit(cache=True)
def _build(t: KdNodes, at: int, depth: int) -> None:
    """Build a subtree anew, as flat as it can be."""
    node, bucket, _, _, _, stack = t
    entries = _collect(t, at)
    made = np.empty(4 * len(entries) // BUCKET + 4, np.int64)
    count, top = 0, 1
    # Begin, end, and node with the depth in its low byte.
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, len(entries), at << 8 | depth
    while top:
        top -= 1
        begin, end, here, deep = stack[top, 0], stack[top, 1], stack[top, 2] >> 8, stack[top, 2] & 255
        row = node[here]
        if end - begin <= BUCKET:
            row[_AXIS], row[_LOW], row[COUNT] = -1, _take_bucket(t), end - begin
            bucket[row[_LOW], : end - begin] = entries[begin:end]
            _refresh(t, here)
            continue
        middle, axis = (begin + end) >> 1, deep & 1
        _select(entries, begin, end, middle, axis)
        row[_AXIS] = axis
        row[_K : _K + 3] = entries[middle, :3]
        row[_LOW], row[_HIGH] = _take_node(t), _take_node(t)
        made[count] = here
        count += 1
        stack[top, 0], stack[top, 1], stack[top, 2] = begin, middle, row[_LOW] << 8 | deep + 1
        stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = middle, end, row[_HIGH] << 8 | deep + 1
        top += 2
    for i in range(count - 1, -1, -1):
        _refresh(t, made[i])


@njit(cache=True)
def _way(t: KdNodes, root: int, x1: int, x2: int, y: int) -> int:
    """The way down to the bucket of an entry, in `path`; its length."""
    node, _, _, _, path, _ = t
    depth, at = 0, root
    while True:
        path[depth] = at
        depth += 1
        row = node[at]
        if row[_AXIS] < 0:
            return depth
        before = _before(row[_AXIS], x1, x2, y, row[_K], row[_K + 1], row[_K + 2])
        at = row[_LOW] if before else row[_HIGH]


@njit(cache=True)
def _mend(t: KdNodes, depth: int) -> None:
    """Have every node of the way know what is beneath it; build the highest one anew that is lopsided or too small."""
    node, _, _, _, path, _ = t
    for i in range(depth - 1, -1, -1):
        _refresh(t, path[i])
    for i in range(depth - 1):
        row = node[path[i]]
        heavier = max(node[row[_LOW], COUNT], node[row[_HIGH], COUNT])
        if row[COUNT] <= BUCKET // 2 or 10 * heavier > 7 * row[COUNT] + 10 * BUCKET:
            _build(t, path[i], i)
            return


@njit(cache=True)
def kd_insert(t: KdNodes, group: int, x1: int, x2: int, y: int) -> None:
    """Add a row; there is room."""
    node, bucket, roots, _, path, _ = t
    if roots[group] < 0:
        root = _take_node(t)
        roots[group] = root
        node[root, _AXIS], node[root, _LOW], node[root, COUNT] = -1, _take_bucket(t), 0
    depth = _way(t, roots[group], x1, x2, y)
    row = node[path[depth - 1]]
    entries = bucket[row[_LOW]]
    for i in range(row[COUNT]):
        if entries[i, 0] == x1 and entries[i, 1] == x2 and entries[i, 2] == y:
            entries[i, 3] += 1
            return
    if row[COUNT] == BUCKET:
        # Divided as if it were built anew; the entry then has its place in one of the halves.
        axis = (depth - 1) & 1
        _select(entries, 0, BUCKET, BUCKET // 2, axis)
        low, high, other = _take_node(t), _take_node(t), _take_bucket(t)
        bucket[other, : BUCKET // 2] = entries[BUCKET // 2 :]
        node[low, _AXIS], node[low, _LOW], node[low, COUNT] = -1, row[_LOW], BUCKET // 2
        node[high, _AXIS], node[high, _LOW], node[high, COUNT] = -1, other, BUCKET - BUCKET // 2
        row[_AXIS], row[_LOW], row[_HIGH] = axis, low, high
        row[_K : _K + 3] = bucket[other, 0, :3]
        _refresh(t, low)
        _refresh(t, high)
        path[depth] = low if _before(axis, x1, x2, y, row[_K], row[_K + 1], row[_K + 2]) else high
        depth += 1
        row = node[path[depth - 1]]
        entries = bucket[row[_LOW]]
    at = row[COUNT]
    entries[at, 0], entries[at, 1], entries[at, 2], entries[at, 3] = x1, x2, y, 1
    row[COUNT] += 1
    _mend(t, depth)


@njit(cache=True)
def kd_delete(t: KdNodes, group: int, x1: int, x2: int, y: int) -> bool:
    """Take away one row; false if there is none."""
    node, bucket, roots, _, path, _ = t
    if group >= len(roots) or roots[group] < 0:
        return False
    depth = _way(t, roots[group], x1, x2, y)
    row = node[path[depth - 1]]
    entries = bucket[row[_LOW]]
    for i in range(row[COUNT]):
        if entries[i, 0] == x1 and entries[i, 1] == x2 and entries[i, 2] == y:
            entries[i, 3] -= 1
            if entries[i, 3] == 0:
                row[COUNT] -= 1
                entries[i] = entries[row[COUNT]]
                _mend(t, depth)
            return True
    return False


@njit(cache=True)
def kd_nearest(
    t: KdNodes, group: int, direction: int, start: int, low: int, high: int, limit: int, seen: I64
) -> tuple[bool, int, int]:
    """Of entries with y at most `limit` and x2 in [low, high], the first from x1 = start on towards smaller (-1) or
    greater (1) x1; of several the one with the least x2. `seen` counts the nodes that were looked at.

    Nodes wholly inside hold an answer if their least y says so; those that the region's border crosses are O(sqrt N).
    """
    node, bucket, roots, _, _, stack = t
    found, best1, best2 = False, 0, 0
    if low > high or group >= len(roots) or roots[group] < 0:
        return found, best1, best2
    stack[0, 0] = roots[group]
    top = 1
    while top:
        top -= 1
        row = node[stack[top, 0]]
        seen[0] += 1
        if row[COUNT] == 0 or row[MIN] > limit or row[X2_MIN] > high or row[X2_MAX] < low:
            continue
        if direction > 0:
            if row[X1_MAX] < start or (found and max(row[X1_MIN], start) > best1):
                continue
        elif row[X1_MIN] > start or (found and min(row[X1_MAX], start) < best1):
            continue
        if row[_AXIS] >= 0:
            near, far = row[_LOW], row[_HIGH]
            if row[_AXIS] == 0 and direction < 0:
                near, far = far, near
            stack[top, 0], stack[top + 1, 0] = far, near
            top += 2
            continue
        entries = bucket[row[_LOW]]
        for i in range(row[COUNT]):
            x1, x2 = entries[i, 0], entries[i, 1]
            if entries[i, 2] > limit or x2 < low or x2 > high:
                continue
            if (direction > 0 and x1 < start) or (direction < 0 and x1 > start):
                continue
            nearer = x1 < best1 if direction > 0 else x1 > best1
            if not found or nearer or (x1 == best1 and x2 < best2):
                found, best1, best2 = True, x1, x2
    return found, best1, best2


@njit(cache=True)
def parts_of(t: KdNodes, at: int) -> tuple[int, int, I64]:
    """The two nodes beneath a node, or -1 twice and its bucket."""
    node, bucket, _, _, _, _ = t
    if node[at, _AXIS] >= 0:
        return node[at, _LOW], node[at, _HIGH], bucket[0]
    return -1, -1, bucket[node[at, _LOW]]


@njit(cache=True)
def kd_extend(t: KdNodes, rows: I64, start: int) -> int:
    """Add rows of (table, x1, x2, y) from `start` on while there surely is room; where it stopped."""
    for i in range(start, len(rows)):
        if not kd_has_room(t, rows[i, 0]):
            return i
        kd_insert(t, rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3])
    return len(rows)
