"""Queries in the order in which strategies walk them: group by group, and in each as a packed tree or as two sequences.

A *layout* is built once and never changed; queries that go are marked elsewhere, queries that come wait in a small
layout of their own. Its last region is that of the scattered queries, which belong to no group.

Within a group all ranges across share a point, so one question settles what each of them is asked: does it begin at
or before the nearest partner on the left of that point, or end at or after the nearest on the right? With ranges on
both sides (a select-join) the group is a chain of *packed trees* over (own range, range across), those that reach
farthest first: a node has the smallest beginnings and the largest ends below it. Without own ranges (a band join) it
is two sequences, by beginning and by end, of which a prefix is the answer (003, §4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from penstock.kernels.standing.search import F64, I32, I64

#: Queries in a leaf, and children of a node.
LEAF, FAN = 16, 8
#: Queries of a group that reach farthest, and are looked at before all others.
_FARTHEST = 8
#: What a group of queries takes in a layout of trees: its own box at the least, extent, root, beginning and point.
BYTES_PER_GROUP = 80
#: More classes than a group has, each with FAN times as many queries as the one before.
_MOST_CLASSES = 12


class Tree(NamedTuple):
    """Ranges (own from, own to, across from, across to) in order, and boxes around them, each before its children.

    From box `b` a walk goes on with `b + 1`, or with `skip[b]` to leave out all below it; a leaf has its ranges from
    `first[b]` up to `last[b]`, a node between has none. Those of region `r` are from `roots[r]` up to `roots[r + 1]`,
    and all own ranges in it lie within `extents[r]`.
    """

    ranges: F64
    queries: I32
    boxes: F64
    skip: I32
    first: I32
    last: I32
    roots: I32
    extents: F64


class Sequences(NamedTuple):
    """Ranges across by where they begin, and again by where they end, last first, region by region."""

    by_low: F64
    low_high: F64
    low_query: I32
    by_high: F64
    high_low: F64
    high_query: I32


class Layout(NamedTuple):
    """`starts` is where each region begins; the last is the scattered one. `stabs` has one point for each other."""

    starts: I64
    stabs: F64
    tree: Tree
    sequences: Sequences

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        arrays = (self.starts, self.stabs, *self.tree, *self.sequences)
        return sum(array.nbytes for array in arrays)

    @property
    def groups(self) -> int:
        """Groups that have a stabbing point."""
        return len(self.stabs)


def bytes_per_query(own: bool) -> float:
    """About how many bytes a layout takes for each query."""
    return 36 + 2.3 * 44 / LEAF if own else 40


def build(queries: I32, ranges: F64, group: I32, stabs: F64, own: bool) -> Layout:
    """Lay out queries with these ranges (one row each: own from, own to, across from, across to).

    `group` is the number of the stabbing point, or -1. With `own` the layout is a tree, without it two sequences.
    """
    groups = len(stabs)
    region = np.where(group < 0, groups, group).astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(np.bincount(region, minlength=groups + 1)))).astype(np.int64)
    if own:
        order, stretches = _ordered(region, starts, ranges, stabs)
        ordered = ranges[order]
        boxes, skip, first, last, roots = _boxes(ordered, stretches, starts, _boxes_needed(stretches))
        tree = Tree(ordered, queries[order], boxes, skip, first, last, roots, _extents(ordered, starts))
        return Layout(starts, stabs, tree, _NO_SEQUENCES)
    ups = np.lexsort((ranges[:, 2], region))
    downs = np.lexsort((-ranges[:, 3], region))
    columns = [ranges[ups, 2], ranges[ups, 3], queries[ups], ranges[downs, 3], ranges[downs, 2], queries[downs]]
    return Layout(starts, stabs, _NO_TREE, Sequences(*columns))


def _ordered(region: I64, starts: I64, ranges: F64, stabs: F64) -> tuple[I64, I64]:
    """The order of queries, and where each stretch begins that has boxes of its own.

    In a group the few that reach farthest from the stabbing point come first, then eight times as many that reach less
    far, and so on; within each such class they are in order of where own ranges begin. So however large a group is,
    where the nearest partner is far only its first class is looked into, and one box refused for all others. The
    scattered region is in strips by where own ranges begin, about as many as leaves in a strip, and in each in order of
    where they end.
    """
    grouped = region < len(stabs)
    stab = np.append(stabs, 0.0)[region]
    with np.errstate(over="ignore"):
        reach = np.where(grouped, np.maximum(stab - ranges[:, 2], ranges[:, 3] - stab), -ranges[:, 0])
    by_reach = _by(region, -reach)
    rank = np.empty(len(region), np.int64)
    rank[by_reach] = np.arange(len(region)) - starts[region[by_reach]]
    farther = np.maximum(np.ceil(np.log2((rank + 1) / _FARTHEST) / np.log2(FAN)), 0).astype(np.int64)
    strip = int(np.ceil(np.sqrt((starts[-1] - starts[-2]) / LEAF))) * LEAF
    tier = np.where(grouped, farther, rank // max(strip, 1))
    order = _by(_MOST_CLASSES * region + tier, np.where(grouped, ranges[:, 0], ranges[:, 1]))
    tier, place = np.where(grouped, tier, 0)[order], region[order]
    new = np.flatnonzero(np.append(True, (tier[1:] != tier[:-1]) | (place[1:] != place[:-1]))[: len(order)])
    return order, np.append(new, len(order)).astype(np.int64)


def _by(numbers: I64, values: F64) -> I64:
    """The order by numbers, and by values where these are equal: twice as fast as one sort by both."""
    first = np.argsort(values)
    numbers = numbers[first]
    few = numbers.astype(np.uint16) if numbers.max(initial=0) < 1 << 16 else numbers
    return first[np.argsort(few, kind="stable")]


def _boxes_needed(starts: I64) -> int:
    # A node has at least two children and a leaf more than LEAF / 2 of the ranges below a node; and one for the rest.
    return int(2 * np.ceil(np.diff(starts) / LEAF).sum() + 3 * len(starts))


@njit(cache=True)
def _extents(ranges: F64, starts: I64) -> F64:
    extents = np.empty((starts.size - 1, 2))
    for region in range(starts.size - 1):
        extents[region] = np.inf, -np.inf
        for i in range(starts[region], starts[region + 1]):
            extents[region, 0] = min(extents[region, 0], ranges[i, 0])
            extents[region, 1] = max(extents[region, 1], ranges[i, 1])
    return extents


@njit(cache=True)
def _boxes(ranges: F64, stretches: I64, starts: I64, most: int) -> tuple[F64, I32, I32, I32, I32]:
    """The boxes of all regions. From its second stretch on, each has a box of its own around it and the region's rest:
    whoever does not reach that is done with the region.
    """
    boxes = np.empty((most, 4))
    skip, first, last = np.zeros(most, np.int32), np.zeros(most, np.int32), np.zeros(most, np.int32)
    roots = np.zeros(starts.size, np.int32)
    # Parents that are not finished: their box, and where their ranges end.
    parents, ends = np.empty(64, np.int64), np.empty(64, np.int64)
    rests = np.empty(64, np.int64)
    used, stretch = 0, 0
    for region in range(starts.size - 1):
        roots[region] = used
        at, open_rests = starts[region], 0
        while at < starts[region + 1]:
            if at > starts[region]:
                rests[open_rests], used, open_rests = used, used + 1, open_rests + 1
            used = _tree(ranges, at, stretches[stretch + 1], used, parents, ends, boxes, skip, first, last)
            stretch += 1
            at = stretches[stretch]
        for rest in rests[:open_rests][::-1]:
            _finish(rest, used, boxes, skip)
    roots[starts.size - 1] = used
    return boxes[:used].copy(), skip[:used].copy(), first[:used].copy(), last[:used].copy(), roots


@njit(cache=True)
def _tree(
    ranges: F64, at: int, stop: int, used: int, parents: I64, ends: I64, boxes: F64, skip: I32, first: I32, last: I32
) -> int:
    """Put boxes around a stretch of ranges; how many boxes are used then."""
    depth = 0
    while at < stop or depth > 0:
        if depth > 0 and at == ends[depth - 1]:
            depth -= 1
            _finish(parents[depth], used, boxes, skip)
            continue
        # The next box under the current parent: its share of the parent's ranges, in whole leaves.
        size = stop - at
        if depth > 0:
            size = min(first[parents[depth - 1]], ends[depth - 1] - at)
        box, used = used, used + 1
        if size <= LEAF:
            first[box], last[box], skip[box] = at, at + size, used
            _around(ranges[at : at + size], boxes[box])
            at += size
        else:
            leaves = (size + LEAF - 1) // LEAF
            first[box] = (leaves + FAN - 1) // FAN * LEAF
            parents[depth], ends[depth] = box, at + size
            depth += 1
    return used


@njit(cache=True)
def _around(ranges: F64, box: F64) -> None:
    box[0], box[1], box[2], box[3] = np.inf, -np.inf, np.inf, -np.inf
    for i in range(ranges.shape[0]):
        _widen(box, ranges[i])


@njit(cache=True)
def _widen(box: F64, other: F64) -> None:
    box[0], box[1] = min(box[0], other[0]), max(box[1], other[1])
    box[2], box[3] = min(box[2], other[2]), max(box[3], other[3])


@njit(cache=True)
def _finish(parent: int, used: int, boxes: F64, skip: I32) -> None:
    box = boxes[parent]
    box[0], box[1], box[2], box[3] = np.inf, -np.inf, np.inf, -np.inf
    child = parent + 1
    while child < used:
        _widen(box, boxes[child])
        child = skip[child]
    skip[parent] = used


_NONE32 = np.empty(0, np.int32)
_NO_TREE = Tree(np.empty((0, 4)), _NONE32, np.empty((0, 4)), _NONE32, _NONE32, _NONE32, _NONE32, np.empty((0, 2)))
_NO_SEQUENCES = Sequences(np.empty(0), np.empty(0), _NONE32, np.empty(0), np.empty(0), _NONE32)
