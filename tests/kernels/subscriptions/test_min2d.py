"""MIN over two-dimensional ranges: each range whose answer changed is told once, with the answer, at sublinear cost."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.contract import RESULTS
from penstock.kernels.subscriptions.engine2d import Engine2D
from penstock.kernels.subscriptions.kdtree import COUNT, kd_delete, kd_insert, kd_nearest, kd_with_room, new_kd
from penstock.kernels.subscriptions.min2d import HAS_OUTER, HAS_VALUE, INNER, OUTER, VALUE
from penstock.kernels.subscriptions.range_kernel import LEAST_MEMORY, Columns, RangeSubscriptions, most_rows
from penstock.testing.weigh import Scale, WeighingHost

Point = tuple[int, int, int]
PLACES = range(5)
POINTS = st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES), st.integers(0, 3))
SPANS = [(a, b) for a in range(-1, 6) for b in range(a, 6)]
NOBODY = np.zeros(1, np.int64)


def event(old: Point | None, new: Point | None) -> np.ndarray:
    """An event of table 0, as rows are resolved into."""
    (a, b, y), (c, d, z) = old or (0, 0, 0), new or (0, 0, 0)
    return np.array([[0, (old is not None) | 2 * (new is not None), a, y, c, z, b, d]])


def told(engine: Engine2D, old: Point | None, new: Point | None) -> list[list[int]]:
    return [row for piece in engine.apply(event(old, new)) for row in piece.tolist()]


def concerns(m: list[int], first: tuple[int, int], second: tuple[int, int]) -> bool:
    lows, highs = (first[0], second[0]), (first[1], second[1])
    for axis in range(2):
        below, above = 2 * axis, 2 * axis + 1
        if lows[axis] > m[INNER + below] or (m[HAS_OUTER + below] and lows[axis] <= m[OUTER + below]):
            return False
        if highs[axis] < m[INNER + above] or (m[HAS_OUTER + above] and highs[axis] >= m[OUTER + above]):
            return False
    return True


def least(rows: list[Point], first: tuple[int, int], second: tuple[int, int]) -> int | None:
    inside = (y for a, b, y in rows if first[0] <= a <= first[1] and second[0] <= b <= second[1])
    return min(inside, default=None)


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | POINTS), max_size=14))
def test_ranges_of_two_dimensions_are_told_exactly(updates):
    engine, rows = Engine2D(), {}
    for key, new in updates:
        old = rows.get(key)
        if old is None and new is None:
            continue
        before = list(rows.values())
        rows.pop(key, None) if new is None else rows.update({key: new})
        messages = told(engine, old, new)
        after = list(rows.values())
        for first, second in itertools.product(SPANS, SPANS):
            was, now = least(before, first, second), least(after, first, second)
            mine = [m[VALUE] if m[HAS_VALUE] else None for m in messages if concerns(m, first, second)]
            assert mine == ([] if was == now else [now]), (old, new, first, second)


@pytest.mark.parametrize("span", [30, 1_000])
def test_a_tree_of_many_rows_tells_random_ranges_exactly(span):
    """Deep enough for buckets to be divided, joined and built anew; 60 ranges are asked again after each update."""
    rng = np.random.default_rng(span)
    engine, rows = Engine2D(), {}
    ranges = [
        (*sorted(rng.integers(0, span, 2).tolist()), *sorted(rng.integers(0, span, 2).tolist())) for _ in range(60)
    ]
    known = dict.fromkeys(range(60))
    for number in range(700):
        key = int(rng.integers(0, 250))
        goes = number > 450 and rng.random() < 0.7
        new = None if goes else (int(rng.integers(0, span)), int(rng.integers(0, span)), int(rng.integers(0, 90)))
        old = rows.get(key)
        if old is None and new is None:
            continue
        rows.pop(key, None) if new is None else rows.update({key: new})
        messages = told(engine, old, new)
        for who, (a, b, c, d) in enumerate(ranges):
            mine = [m[VALUE] if m[HAS_VALUE] else None for m in messages if concerns(m, (a, b), (c, d))]
            assert len(mine) <= 1
            known[who] = mine[0] if mine else known[who]
            if number % 7 == 0:
                assert known[who] == least(list(rows.values()), (a, b), (c, d))


@pytest.mark.parametrize("seed", range(2))
def test_the_kd_tree_finds_what_a_scan_finds_while_it_grows_and_shrinks(seed):
    rng = np.random.default_rng(seed)
    tree, entries, width = new_kd(), [], 40 + 2_000 * seed
    for goal in (2_500, 100, 1_000, 0, 60):
        while len(entries) != goal:
            tree = kd_with_room(tree, 1)
            if len(entries) < goal:
                # Half of them in order, which a tree that is never built anew would make a list of.
                x1 = len(entries) if rng.random() < 0.5 else int(rng.integers(0, width))
                entry = (x1, int(rng.integers(0, width)), int(rng.integers(0, 500)))
                kd_insert(tree, 1, *entry)
                entries.append(entry)
            else:
                at = int(rng.integers(0, len(entries)))
                entries[at], entries[-1] = entries[-1], entries[at]
                assert kd_delete(tree, 1, *entries.pop())
        assert tree.node[tree.roots[1], COUNT] == len(set(entries))
        for _ in range(40):
            start, (low, high), limit = (
                int(rng.integers(0, width)),
                sorted(rng.integers(0, width, 2)),
                rng.integers(0, 90),
            )
            for direction in (-1, 1):
                want = min(
                    (
                        (a * direction, b)
                        for a, b, y in entries
                        if low <= b <= high and y <= limit and (a - start) * direction >= 0
                    ),
                    default=None,
                )
                found, a, b = kd_nearest(tree, 1, direction, start, low, high, limit, NOBODY)
                assert ((a * direction, b) if found else None) == want
    assert not kd_delete(tree, 1, -7, -7, -7)


def test_what_is_said_follows_from_the_rows_not_from_the_shape_of_the_tree():
    rng = np.random.default_rng(5)
    rows = [tuple(row) for row in rng.integers(0, 40, (400, 3)).tolist()]
    grown, other = Engine2D(), Engine2D()
    for row in rows:
        told(grown, None, row)
    for row in sorted(rows):
        told(other, None, row)
    for row in rows[:60]:
        assert told(grown, row, None) == told(other, row, None)


def test_the_cost_of_two_dimensions_is_sublinear():
    """Nodes looked at by an event, from 2,000 rows to 32,000: 16 times the rows, less than 4 times the nodes."""
    looked = {}
    for count in (2_000, 32_000):
        rng = np.random.default_rng(count)
        rows = np.stack([np.zeros(count, np.int64), *rng.integers(0, 10**6, (3, count))], axis=1)
        events = np.zeros((count + 300, 8), np.int64)
        events[:count, 1] = 2
        events[:count, [4, 7, 5]] = rows[:, 1:]
        moved = rows[rng.integers(0, count, 300)]
        events[count:, 1] = 3
        events[count:, [2, 6, 3]] = moved[:, 1:]
        events[count:, [4, 7]] = moved[:, 1:3]
        events[count:, 5] = rng.integers(0, 10**6, 300)
        engine = Engine2D()
        for _ in engine.apply(events[:count]):
            pass
        before = engine.seen
        # Some rows are drawn twice; the second event then finds its old row gone, and costs no less.
        for _ in engine.apply(events[count:]):
            pass
        looked[count] = (engine.seen - before) / 300
    assert looked[32_000] < 4 * looked[2_000]
    assert looked[32_000] < 0.2 * 32_000


def test_memory_stays_within_the_budget_where_every_row_is_on_one_contour():
    """Rows on both diagonals: the one in the middle is bounded by all others, and hides all when it goes."""
    budget = LEAST_MEMORY
    columns = Columns(x="x", x2="z", y="y", key=("key",), order="at", deleted="gone")
    schema = pa.schema([(name, pa.int64()) for name in ("key", "x", "z", "y", "at")] + [("gone", pa.bool_())])
    make = lambda: RangeSubscriptions(schema, columns, "min", memory=budget)  # noqa: E731
    arm = most_rows(budget, columns) // 4 - 1
    away = np.arange(1, arm + 1)
    x = np.concatenate([away, away, -away, -away, [0, 0, 0]])
    z = np.concatenate([away, -away, away, -away, [0, 0, 0]])
    key = np.append(np.arange(len(x) - 2), [len(x) - 3] * 2)
    for heights in ([1] * (4 * arm), np.repeat([3, 4, 5, 6], arm)):
        desk = WeighingHost(make, budget=budget, scale=Scale([make()]), allowance=64 << 10)
        y = np.concatenate([heights, [9, 0, 0]])
        gone = np.arange(len(x)) == len(x) - 1
        rows = pa.table([key, x, z, y, np.arange(len(x)), gone], schema=schema)
        desk.step(rows.slice(0, 4 * arm))
        for at in range(4 * arm, len(x)):
            desk.step(rows.slice(at, 1))
        assert desk.rows[RESULTS] > arm
        assert desk.peak <= budget
