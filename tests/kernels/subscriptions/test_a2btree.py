"""The A2B-tree finds what a scan of a sorted list finds, and walks a logarithmic number of nodes to it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.subscriptions.a2bsearch import neighbours
from penstock.kernels.subscriptions.a2btree import A2BTree

ENTRIES = st.tuples(st.integers(0, 2), st.integers(-3, 12), st.integers(-2, 6))


def check(tree: A2BTree, entries: list[tuple[int, int, int]], group: int, x: int, y: int) -> None:
    ours = [(at, value) for p, at, value in entries if p == group]
    right = min(((at, value) for at, value in ours if at > x and value <= y), default=None)
    assert tree.right_of(group, x, y) == right
    left = max((at for at, value in ours if at < x and value <= y), default=None)
    assert tree.left_of(group, x, y) == (
        None if left is None else (left, min(value for at, value in ours if at == left))
    )
    for last in (x, x + 2, x + 9):
        assert tree.least(group, x, last) == min((v for at, v in ours if x <= at <= last), default=None)
    run = sorted({value for at, value in ours if at == x})
    there, has_low, low, has_high, high = neighbours(tree.nodes, group, x, y)
    assert there == (y in run)
    assert (low if has_low else None) == max((v for v in run if v < y), default=None)
    assert (high if has_high else None) == min((v for v in run if v > y), default=None)


@given(st.lists(st.tuples(st.booleans(), ENTRIES), max_size=60), st.lists(ENTRIES, min_size=1, max_size=10))
def test_tree_equals_a_sorted_list(changes, questions):
    tree, entries = A2BTree(), []
    for comes, entry in changes:
        if comes:
            tree.extend(np.array([entry]))
            entries.append(entry)
        else:
            assert tree.remove(*entry) == (entry in entries)
            if entry in entries:
                entries.remove(entry)
    assert len(tree) == len(set(entries))
    for question in questions:
        check(tree, entries, *question)


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_of_several_levels_equals_a_sorted_list_while_it_grows_and_shrinks(seed):
    rng = np.random.default_rng(seed)
    tree, entries = A2BTree(), []
    for goal in (6_000, 300, 3_000, 0, 40):
        while len(entries) != goal:
            if len(entries) < goal:
                new = np.stack([rng.integers(0, 3, 60), rng.integers(0, 2_000, 60), rng.integers(0, 1_000, 60)], axis=1)
                new = new[: goal - len(entries)]
                tree.extend(new)
                entries += [tuple(row) for row in new.tolist()]
            else:
                at = int(rng.integers(0, len(entries)))
                entries[at], entries[-1] = entries[-1], entries[at]
                assert tree.remove(*entries.pop())
        assert len(tree) == len(set(entries))
        for group, x, y in zip(
            rng.integers(0, 3, 12), rng.integers(-1, 2_001, 12), rng.integers(-1, 1_000, 12), strict=True
        ):
            check(tree, entries, int(group), int(x), int(y))


def test_nodes_that_were_emptied_are_used_again():
    tree = A2BTree()
    rows = np.stack([np.zeros(5_000, np.int64), np.arange(5_000), np.zeros(5_000, np.int64)], axis=1)
    tree.extend(rows)
    size = tree.nbytes
    for _ in range(3):
        assert all(tree.remove(*row) for row in rows.tolist())
        tree.extend(rows)
    assert tree.nbytes == size


def test_the_cost_of_mar_grows_with_the_logarithm():
    """Nodes on a way down, at most two of which a search looks at for each level: 3 levels for 10³ rows, 5 for 10⁵."""
    heights = {}
    for rows in (1_000, 10_000, 100_000):
        tree = A2BTree()
        rng = np.random.default_rng(rows)
        tree.extend(np.stack([np.zeros(rows, np.int64), rng.permutation(rows), rng.permutation(rows)], axis=1))
        heights[rows] = tree.levels
    assert heights[1_000] <= 3
    assert heights[100_000] <= heights[1_000] + 2
