"""Every strategy gives the answers of two loops, for random queries and rows, with queries coming and going."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.standing.index import Index
from penstock.kernels.standing.search import Rows
from penstock.kernels.standing.strategies import BAND_JOIN, SELECT_JOIN, answers, grouping_of, tree_for

INF = float("inf")


def twin(ranges, alive, rows: Rows, values) -> list[tuple[int, int, int, int]]:
    """Row by row, query by query, partner by partner."""
    found = []
    for row in range(len(rows.own)):
        for query in np.flatnonzero(alive):
            own_from, own_to, across_from, across_to = ranges[query]
            met = [
                partner
                for partner in range(rows.begin[row], rows.end[row])
                if own_from <= rows.own[row] <= own_to and across_from <= values[partner] + rows.shift[row] <= across_to
            ]
            if met:
                assert met == list(range(met[0], met[-1] + 1)), "partners of a query follow one another"
                found.append((row, int(query), met[0], met[-1] + 1))
    return found


def got(strategy, index, ranges, alive, own, rows, values):
    pieces = [piece.copy() for piece in answers(strategy, index, ranges, alive, own, rows, values)]
    return sorted(tuple(map(int, run)) for piece in pieces for run in piece)


numbers = st.one_of(st.integers(-6, 6).map(float), st.sampled_from([0.1, 0.3, -0.7, 1e300, 2.5]))


@st.composite
def spans(draw):
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return -INF, draw(numbers)
    if kind == 1:
        return draw(numbers), INF
    a, b = draw(numbers), draw(numbers)
    return min(a, b), max(a, b)


@st.composite
def scenes(draw, own: bool):
    """Queries, changes to them, and rows that look for partners among the values of three keys."""
    count = draw(st.integers(0, 12))
    everything = (-INF, INF)
    ranges = np.array([(*(draw(spans()) if own else everything), *draw(spans())) for _ in range(count)]).reshape(-1, 4)
    begins = draw(st.integers(0, count))
    steps = []
    there = set(range(begins))
    for slot in range(begins, count):
        gone = draw(st.lists(st.sampled_from(sorted(there)), unique=True, max_size=3)) if there else []
        there = (there - set(gone)) | {slot}
        steps.append((gone, [slot]))
    keys = [sorted(draw(st.lists(numbers, max_size=6))) for _ in range(3)]
    ends = np.cumsum([0, *map(len, keys)])
    size = draw(st.integers(0, 6))
    which = [draw(st.integers(0, 2)) for _ in range(size)]
    rows = Rows(
        np.array([ends[k] for k in which], np.int64),
        np.array([ends[k + 1] for k in which], np.int64),
        np.array([0.0 if own else draw(numbers) for _ in range(size)]),
        np.array([draw(numbers) if own else 0.0 for _ in range(size)]),
    )
    return ranges, begins, steps, rows, np.array([value for key in keys for value in key], np.float64)


def check(strategy, own, scene) -> None:
    ranges, begins, steps, rows, values = scene
    grouping = grouping_of(strategy)
    index = None if grouping is None else Index(grouping, tree_for(strategy, own), alpha=0.3)
    walked = ranges.copy()
    if strategy == "join_first" and not own:
        walked[:, :2] = walked[:, 2:]
    alive = np.zeros(len(ranges), bool)
    alive[:begins] = True
    if index:
        index.load(np.arange(begins), walked[:begins])
    for now, (gone, come) in enumerate([([], []), *steps]):
        alive[gone] = False
        alive[come] = True
        upto = begins + now
        if index and come:
            index.change(np.array(gone, np.int64), np.array(come, np.int64), walked[:upto])
        found = got(strategy, index, ranges[:upto], alive[:upto], own, rows, values)
        assert found == twin(ranges[:upto], alive[:upto], rows, values)


@pytest.mark.parametrize("strategy", SELECT_JOIN)
@settings(max_examples=20)
@given(scene=scenes(own=True))
def test_every_strategy_gives_the_twins_answers(strategy, scene):
    check(strategy, True, scene)


@pytest.mark.parametrize("strategy", BAND_JOIN)
@settings(max_examples=20)
@given(scene=scenes(own=False))
def test_every_band_strategy_gives_the_twins_answers(strategy, scene):
    check(strategy, False, scene)


@pytest.mark.parametrize(("strategy", "own"), [(s, True) for s in SELECT_JOIN] + [(s, False) for s in BAND_JOIN])
def test_strategies_agree_on_many_queries(strategy, own):
    """Deep trees, several pieces, queries that come and go by the hundred."""
    rng = np.random.default_rng(3)
    n, m = 3_000, 400
    middle, length = rng.normal(50, 20, (2, n)), rng.exponential(4, (2, n))
    lo, hi = middle - length, middle + length
    ranges = np.stack([lo[0], hi[0], lo[1], hi[1]], axis=1)
    if not own:
        ranges[:, 0], ranges[:, 1] = -INF, INF
    values = np.sort(rng.uniform(0, 100, m)) if own else np.sort(rng.uniform(0, 1_000, m))
    begin = rng.integers(0, m // 2, 40)
    end = begin + rng.integers(0, 100, 40)
    rows = Rows(begin, end, -rng.uniform(0, 900, 40) * (not own), rng.uniform(0, 100, 40) * own)
    grouping = grouping_of(strategy)
    index = None if grouping is None else Index(grouping, tree_for(strategy, own), alpha=0.05)
    walked = ranges.copy()
    if strategy == "join_first" and not own:
        walked[:, :2] = walked[:, 2:]
    alive = np.zeros(n, bool)
    alive[:2_000] = True
    if index:
        index.load(np.arange(2_000), walked[:2_000])
        list(index.parts())
    for upto in (2_300, 3_000):
        gone = np.flatnonzero(alive)[::7]
        come = np.arange(upto - (300 if upto == 2_300 else 700), upto)
        alive[gone], alive[come] = False, True
        if index:
            index.change(gone, come, walked[:upto])
        found = got(strategy, index, ranges[:upto], alive[:upto], own, rows, values)
        want = got("naive", None, ranges[:upto], alive[:upto], own, rows, values)
        assert found == want
        assert len(want) > 100
    if index:
        assert index.nbytes > n * 30
