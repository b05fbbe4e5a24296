"""Select-join subscriptions: what each is told of an update is what its query's result gained, lost and saw changed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.subscriptions.select_join import Row, SelectJoin

ROWS = st.builds(Row, st.integers(0, 2), st.integers(0, 4))
UPDATES = st.tuples(st.sampled_from([0, 1]), st.integers(0, 5), st.none() | ROWS)
SPANS = [(0, 4), (1, 2), (2, 2), (3, 4)]


def result(tables, first, second) -> dict[tuple[int, int], tuple[int, int]]:
    """The query's answer: the places of pairs, by the keys of their rows."""
    return {
        (mine, theirs): (left.x, right.x)
        for (mine, left), (theirs, right) in itertools.product(tables[0].items(), tables[1].items())
        if left.on == right.on and first[0] <= left.x <= first[1] and second[0] <= right.x <= second[1]
    }


@given(st.lists(UPDATES, max_size=25))
def test_pairs_are_told_to_those_whose_selections_they_meet(updates):
    join, tables = SelectJoin(), ({}, {})
    for side, key, new in updates:
        asked = list(itertools.product(SPANS, SPANS))
        before = [result(tables, *spans) for spans in asked]
        tables[side].pop(key, None) if new is None else tables[side].update({key: new})
        messages = join.update(side, key, new)
        for (first, second), was in zip(asked, before, strict=True):
            now, told = result(tables, first, second), []
            for pairs in messages:
                kinds = pairs.concerning(*first, *second)
                for kind, numbers in zip(("gained", "lost", "changed"), kinds, strict=True):
                    told += [(kind, int(pairs.left[n]), int(pairs.right[n])) for n in numbers]
            want = [("gained", *pair) for pair in now.keys() - was.keys()]
            want += [("lost", *pair) for pair in was.keys() - now.keys()]
            want += [("changed", *pair) for pair in now.keys() & was.keys() if now[pair] != was[pair]]
            assert sorted(told) == sorted(want)
