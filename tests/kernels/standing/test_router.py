"""DYNAMIC: what it estimates stays true as queries change, and calibration gives a model that can be used."""

from __future__ import annotations

import itertools

import numpy as np

from penstock.kernels.standing.calibrate import calibrate
from penstock.kernels.standing.query_set import Change, QuerySet
from penstock.kernels.standing.query_table import Queries
from penstock.kernels.standing.router import Router, walked
from penstock.kernels.standing.search import Rows
from penstock.kernels.standing.shape import BandJoin, SelectJoin
from penstock.models.interval_histogram import stabbed
from penstock.models.standing_cost import Coefficients

SHAPE = SelectJoin((("k",), ("k",)), (("a",), ("c",)))


def made(rng, count):
    middle = rng.uniform(0, 1_000, (count, 2))
    bounds = np.stack([middle[:, 0] - 20, middle[:, 0] + 20, middle[:, 1] - 5, middle[:, 1] + 5], axis=1)
    return Queries(np.arange(count), bounds)


def test_estimates_follow_the_queries():
    rng = np.random.default_rng(2)
    queries = QuerySet(SHAPE, walked("dynamic", own=True))
    queries.load(made(rng, 2_000))
    router = Router(queries, Coefficients())
    router.load()
    none = np.empty(0, np.int64)
    for step in range(5):
        new = made(rng, 100)
        fresh = np.arange(100) + 1_000 * (step % 3)
        change = Change(fresh, np.full(100, step + 1), new.bounds, none)
        router.before(change)
        queries.apply(change)
        gone = np.flatnonzero(queries.alive)[step::50]
        change = Change(none, none, np.empty((0, 4)), queries.ids[gone])
        router.before(change)
        queries.apply(change)
    asked = rng.uniform(50, 950, 500)
    standing = queries.all()[0].bounds
    true = stabbed(standing[:, 0], standing[:, 1], asked)
    guess = router._histograms[0, 0](asked)
    assert np.abs(guess - true).mean() < 0.1 * true.mean()


def test_rows_are_divided_and_all_answered():
    rng = np.random.default_rng(3)
    queries = QuerySet(SHAPE, walked("dynamic", own=True), alpha=0.01)
    found = made(rng, 3_000)
    # Half of the queries in a few places across, so that there are hotspots; own ranges of all lengths.
    found.bounds[:1_500, 2:] = np.repeat(rng.integers(0, 5, 1_500) * 200.0, 2).reshape(-1, 2) + np.array([-5, 5])
    found.bounds[:, 1] += rng.exponential(100, 3_000)
    queries.load(found)
    router = Router(queries, Coefficients())
    router.load()
    values = np.sort(rng.uniform(0, 1_000, 2_000))
    begin = rng.integers(0, 1_000, 300)
    # Many with one partner, so that dividing them from the others saves something.
    partners = rng.choice([0, 1, 900], 300, p=[0.04, 0.95, 0.01])
    rows = Rows(begin, begin + partners, np.zeros(300), rng.uniform(-50, 1_050, 300))
    got = sorted(tuple(map(int, run)) for piece in router.answers(0, rows, values) for run in piece.copy())
    want = sorted(
        tuple(map(int, run)) for piece in queries.answers("join_first_scan", 0, rows, values) for run in piece.copy()
    )
    assert got == want
    assert len(want) > 100
    assert sum(used > 0 for used in router.routed.values()) > 1, "not all rows to one strategy"


def test_rows_that_one_strategy_is_good_for_are_not_divided():
    """Each row for itself would go to one of two strategies; both cost nearly the same."""
    rng = np.random.default_rng(3)
    queries = QuerySet(SHAPE, walked("dynamic", own=True))
    queries.load(made(rng, 500))
    router = Router(queries, Coefficients(join_first_scan=(0.0, 0.17, 0.1), select_first=(10.0, 0.0, 0.0)))
    router.load()
    rows = Rows(np.zeros(600, np.int64), np.full(600, 40), np.zeros(600), rng.uniform(-200, 1_200, 600))
    assert len(np.unique(router.choose(0, rows))) > 1
    values = np.sort(rng.uniform(0, 1_000, 40))
    got = sorted(tuple(run) for piece in router.answers(0, rows, values) for run in piece.tolist())
    want = sorted(tuple(run) for piece in queries.answers("join_first_scan", 0, rows, values) for run in piece.tolist())
    assert got == want
    assert sum(used > 0 for used in router.routed.values()) == 1


def handed_on(queries, monkeypatch):
    """The rows that each walk is given from now on."""
    given, answers = [], queries.answers
    monkeypatch.setattr(
        queries, "answers", lambda name, side, rows, *a: given.append(rows) or answers(name, side, rows, *a)
    )
    return given


def test_a_batch_for_one_strategy_is_handed_on_as_it_is(monkeypatch):
    """A few rows without partners do not matter; only where they are many does a walk over groups gain without them."""
    rng = np.random.default_rng(7)
    queries = QuerySet(SHAPE, walked("dynamic", own=True))
    found = made(rng, 100)
    found.bounds[:, :2], found.bounds[:, 2:] = (0, 1_000), (495, 505)
    queries.load(found)
    router = Router(queries, Coefficients())
    router.load()
    given = handed_on(queries, monkeypatch)
    values = np.linspace(0, 1_000, 41)
    for without, asked in ((0, 400), (4, 400), (200, 200)):
        partners = np.where(np.arange(400) < without, 0, 41)
        rows = Rows(np.zeros(400, np.int64), partners, np.zeros(400), rng.uniform(0, 1_000, 400))
        got = sorted(tuple(run) for piece in router.answers(0, rows, values) for run in piece.tolist())
        (one,) = given
        assert len(one.own) == asked
        assert (one is rows) == (asked == 400)
        assert {run[0] for run in got} <= set(range(without, 400))
        want = queries.answers("join_first_scan", 0, rows, values)
        assert got == sorted(tuple(run) for piece in want for run in piece.tolist())
        assert got
        given.clear()


def test_bands_of_one_batch_are_handed_on_as_they_are(monkeypatch):
    rng = np.random.default_rng(8)
    queries = QuerySet(BandJoin((("a",), ("c",))), walked("dynamic", own=False))
    queries.load(Queries(np.arange(500), np.sort(rng.uniform(-20, 20, (500, 2)), axis=1)))
    router = Router(queries, Coefficients())
    router.load()
    given = handed_on(queries, monkeypatch)
    rows = Rows(np.zeros(600, np.int64), np.full(600, 100), -rng.uniform(0, 1_000, 600), np.zeros(600))
    values = np.sort(rng.uniform(0, 1_000, 100))
    got = sorted(tuple(run) for piece in router.answers(0, rows, values) for run in piece.tolist())
    assert given[0] is rows
    want = queries.answers("merge", 0, rows, values)
    assert got == sorted(tuple(run) for piece in want for run in piece.tolist())
    assert got


def test_rows_without_partners_say_nothing_about_the_others():
    """Where none that is looked at has a partner, the few that have are still sent where it costs them least."""
    rng = np.random.default_rng(9)
    queries = QuerySet(SHAPE, walked("dynamic", own=True))
    queries.load(made(rng, 2_000))
    router = Router(queries, Coefficients())
    router.load()
    partners = np.zeros(5_000, np.int64)
    partners[1] = 1
    rows = Rows(np.zeros(5_000, np.int64), partners, np.zeros(5_000), rng.uniform(0, 1_000, 5_000))
    list(router.answers(0, rows, np.array([500.0])))
    assert sum(router.routed.values()) == 1
    assert router.routed["join_first"] == 1


def test_estimates_are_made_anew_where_all_queries_came_by_changes():
    rng = np.random.default_rng(5)
    queries = QuerySet(SHAPE, walked("dynamic", own=True))
    found = made(rng, 2_000)
    queries.load(Queries(found.ids[:0], found.bounds[:0]))
    router = Router(queries, Coefficients())
    router.load()
    for at in range(0, 2_000, 200):
        part = slice(at, at + 200)
        change = Change(found.ids[part], np.ones(200, np.int64), found.bounds[part], np.empty(0, np.int64))
        router.before(change)
        queries.apply(change)
        router.after()
    asked = rng.uniform(50, 950, 500)
    true = stabbed(found.bounds[:, 0], found.bounds[:, 1], asked)
    assert np.abs(router.selected(0, asked[:, None])[:, 0] - true).mean() < 0.1 * true.mean()


def test_calibration_gives_coefficients_that_are_not_negative():
    ticks = itertools.count()
    found = calibrate(sizes=(200,), clock=lambda: next(ticks) / 1_000)
    assert all(value >= 0 for name in ("hotspot", "select_first", "join_first") for value in getattr(found, name))
    assert any(found.hotspot)


def test_rows_are_looked_up_by_what_selects_the_fewest():
    """Two own ranges: half of the rows fall where the first selects little, the others where the second does."""
    rng = np.random.default_rng(4)
    shape = SelectJoin((("k",), ("k",)), (("a", "b"), ("c",)))
    queries = QuerySet(shape, walked("dynamic", own=True))
    n = 4_000
    own = rng.uniform(500, 1_000, (n, 2))
    across = np.sort(rng.uniform(0, 1_000, (n, 2)), axis=1)
    bounds = np.hstack([np.stack([own - 50, own + 50], axis=2).reshape(n, 4), across])
    queries.load(Queries(np.arange(n), bounds))
    router = Router(queries, Coefficients())
    router.load()
    rare, usual = rng.uniform(0, 440, (200, 2)), rng.uniform(600, 900, (200, 2))
    owns = np.where(np.arange(200)[:, None] % 2 == [0, 1], rare, usual)
    rows = Rows(np.zeros(200, np.int64), np.full(200, 50), np.zeros(200), np.ascontiguousarray(owns[:, 0]))
    values = np.sort(rng.uniform(0, 1_000, 50))
    assert (router.selected(0, owns).min(axis=1) < 50).all()
    found = [run for piece in router.answers(0, rows, values, owns) for run in piece.tolist()]
    assert router.routed["select_first"] == 200
    assert not found, "no query has both values, and neither index finds one that has the other"
