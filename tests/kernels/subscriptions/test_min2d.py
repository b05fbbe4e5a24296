"""MIN over two-dimensional ranges: every range whose answer changed is told once, with the answer."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.subscriptions.min2d import Point, RangeMin2D

PLACES = range(5)
POINTS = st.builds(Point, st.sampled_from(PLACES), st.sampled_from(PLACES), st.integers(0, 3))
SPANS = [(a, b) for a in range(-1, 6) for b in range(a, 6)]


def least(rows: list[Point], first: tuple[int, int], second: tuple[int, int]) -> int | None:
    inside = (r.y for r in rows if first[0] <= r.x1 <= first[1] and second[0] <= r.x2 <= second[1])
    return min(inside, default=None)


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | POINTS), max_size=14))
def test_ranges_of_two_dimensions_are_told_exactly(updates):
    table, rows = RangeMin2D(), {}
    for key, new in updates:
        old = rows.get(key)
        if old is None and new is None:
            continue
        before = list(rows.values())
        if new is None:
            del rows[key]
        else:
            rows[key] = new
        messages = table.update(old, new)
        after = list(rows.values())
        for first, second in itertools.product(SPANS, SPANS):
            was, now = least(before, first, second), least(after, first, second)
            mine = [
                m.value
                for m in messages
                if m.l1[0] <= first[0] <= m.l1[1]
                and m.u1[0] <= first[1] <= m.u1[1]
                and m.l2[0] <= second[0] <= m.l2[1]
                and m.u2[0] <= second[1] <= m.u2[1]
            ]
            assert mine == ([] if was == now else [now]), (old, new, first, second)
