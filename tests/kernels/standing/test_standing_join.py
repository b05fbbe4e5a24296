"""The kernel beyond the conformance suite: forms of output, limits, lateness, bad changes, budgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import OverBudget, StateDamaged
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.standing.query_table import Queries
from penstock.kernels.standing.shape import BandJoin, SelectJoin
from penstock.kernels.standing.standing_join import StandingJoin
from penstock.kernels.standing.strategies import BAND_JOIN, SELECT_JOIN
from penstock.tables.keys import hash_keys
from penstock.testing import Host, assert_same_rows

SUPPLY = pa.schema([("product", pa.int64()), ("offered", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
DEMAND = pa.schema([("product", pa.int64()), ("wanted", pa.float64()), ("since", pa.timestamp("us", "UTC"))])
SELECT = SelectJoin((("product",), ("product",)), (("offered",), ("wanted",)))
DEMAND_RENAMED = pa.schema([("item", pa.int64()), *[*DEMAND][1:]])
BAND = BandJoin((("offered",), ("wanted",)))
DAY = datetime(2026, 1, 1, tzinfo=UTC)
CHANGES = pa.schema(
    [("query", pa.int64()), ("op", pa.string()), ("version", pa.int64()), *((n, pa.float64()) for n in SELECT.bounds)]
)


def rows(schema, rng, count, second=0):
    columns = [rng.integers(0, 20, count), rng.uniform(0, 100, count), [DAY + timedelta(seconds=second)] * count]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def queries(rng, count, shape=SELECT):
    width = len(shape.bounds) // 2
    begin = rng.uniform(-10, 100, (count, width))
    bounds = np.stack([begin, begin + rng.exponential(8, (count, width))], axis=2).reshape(count, -1)
    return Queries(np.arange(count) * 10, bounds)


def host(found, shape=SELECT, right=DEMAND, **options):
    options = {"budget": 64 << 20, "keep": 10_000} | options
    return Host(lambda: StandingJoin((SUPPLY, right), shape, lambda: found, **options), budget=options["budget"])


def batches(rng, right=DEMAND, count=4, size=60):
    return [[Portion(0, rows(SUPPLY, rng, size, n)), Portion(1, rows(right, rng, size, n))] for n in range(count)]


@pytest.mark.parametrize(("shape", "strategies"), [(SELECT, SELECT_JOIN), (BAND, BAND_JOIN)])
def test_every_strategy_gives_the_same_results(shape, strategies):
    rng = np.random.default_rng(1)
    right = DEMAND if shape.own else DEMAND_RENAMED
    found, given = queries(rng, 300 if shape.own else 12, shape), batches(rng, right)
    every = ("dynamic", *strategies)
    results = [host(found, shape, right, strategy=one).run(given)["results"] for one in every]
    assert results[0].num_rows > 500
    for other in results[1:]:
        assert_same_rows(other, results[0])


@pytest.mark.parametrize("shape", [SELECT, BAND], ids=["select", "band"])
def test_factored_results_and_counts_are_those_of_the_pairs(shape):
    rng = np.random.default_rng(2)
    right = DEMAND if shape.own else DEMAND_RENAMED
    found, given = queries(rng, 200, shape), batches(rng, right)
    pairs, factored, counts = (
        host(found, shape, right, output=output).run(given)["results"].to_pandas()
        for output in ("pairs", "factored", "counts")
    )
    per_query = pairs.groupby("query").size()
    assert factored.groupby("query")["partners"].sum().equals(per_query)
    assert counts.groupby("query")["results"].sum().equals(per_query)
    assert len(factored) < len(pairs)
    left = factored[factored["arrived"] == "left"]
    assert left["wanted"].isna().all()
    assert left["offered"].notna().all()
    assert (left["first"] <= left["last"]).all()
    one = left.iloc[0]
    met = pairs[(pairs["query"] == one["query"]) & (pairs["offered"] == one["offered"])]
    assert one["first"] == met["wanted"].min() or len(met) > one["partners"]
    if shape.own:
        assert factored["product"].notna().all(), "the key that both sides have is always there"
    right_ones = factored[factored["arrived"] == "right"]
    assert (right_ones["first"] <= right_ones["last"]).all()
    assert right_ones["first"].between(0, 100).all(), "values as they came, not negated"


def test_partners_with_others_between_them_are_a_factored_row_for_each_run():
    right = pa.schema([("product", pa.int64()), ("wanted", pa.float64()), ("price", pa.float64())])
    shape = SelectJoin((("product",), ("product",)), (("offered",), ("wanted", "price")))
    found = Queries(np.array([7]), np.array([[0.0, 9.0, 0.0, 9.0, 0.0, 1.0]]))
    subject = host(found, shape, right, output="factored")
    prices = pa.record_batch([[1] * 4, [1.0, 2.0, 3.0, 4.0], [0.0, 5.0, 0.0, 1.0]], schema=right)
    supply = pa.record_batch([[1], [5.0], [DAY]], schema=SUPPLY)
    rows = subject.run([[Portion(1, prices)], [Portion(0, supply)]])["results"].select(["partners", "first", "last"])
    assert rows.to_pydict() == {"partners": [1, 2], "first": [1.0, 3.0], "last": [1.0, 4.0]}


def test_rows_are_kept_until_enough_newer_ones_have_come():
    rng = np.random.default_rng(3)
    everything = Queries(np.array([1]), np.array([[-1e9, 1e9, -1e9, 1e9]]))
    subject = host(everything, keep=100)
    for second in range(5):
        subject.step([Portion(0, rows(SUPPLY, rng, 60, second))])
    kernel = subject.kernel
    assert kernel.held[0].count == 120, "two micro-batches of 60 have at least 100 rows"
    subject.crash()
    assert subject.kernel.held[0].count == 120
    assert len(subject.store.chunks) == 3, "two of rows, one of queries"


def test_late_rows_leave_on_their_channel_and_old_ones_are_let_go():
    rng = np.random.default_rng(4)
    everything = Queries(np.array([1]), np.array([[-1e9, 1e9, -1e9, 1e9]]))
    subject = host(everything, keep=None, within=10_000_000, event_time=("at", "since"))
    subject.step([Portion(0, rows(SUPPLY, rng, 5, 0)), Portion(1, rows(DEMAND, rng, 5, 0))])
    at_30 = int((DAY + timedelta(seconds=30)).timestamp() * 1e6)
    subject.step(Batch([Portion(0, rows(SUPPLY, rng, 7, 29)), Portion(1, rows(DEMAND, rng, 3, 30))], at_30))
    assert subject.results()["late_left"].num_rows == 7
    assert subject.results()["late_right"].num_rows == 0
    assert [held.count for held in subject.kernel.held] == [0, 3]
    assert subject.kernel.metrics()["rows_late"] == 7


def changes(*given):
    columns = [pa.array(c, f.type) for c, f in zip(zip(*given, strict=True), CHANGES, strict=True)]
    return Portion(2, pa.record_batch(columns, schema=CHANGES))


def test_bad_changes_are_set_aside_with_a_reason():
    rng = np.random.default_rng(5)
    subject = host(Queries(np.array([1, 2]), np.array([[0.0, 1.0, 0.0, 1.0]] * 2)))
    fine = (0.0, 100.0, 0.0, 100.0)
    subject.step(
        [
            changes(
                (3, "set", 1, *fine),
                (3, "set", 2, *fine),
                (4, "set", 1, 5.0, 3.0, 0.0, 1.0),
                (5, "set", 1, None, 3.0, 0.0, 1.0),
                (6, "set", 1, float("nan"), 3.0, 0.0, 1.0),
                (None, "set", 1, *fine),
                (7, "drop", 1, *fine),
                (8, "remove", 1, *fine),
                (2, "set", 0, *fine),
                (1, "remove", 1, None, None, None, None),
                (9, "remove", 2, *fine),
                (9, "set", 1, *fine),
            ),
            Portion(0, rows(SUPPLY, rng, 4)),
        ]
    )
    aside = subject.results()["set_aside"].to_pylist()
    assert sorted(row["reason"] for row in aside) == sorted(
        [
            "an empty range: it ends before it begins",
            "a bound that is NULL or NaN",
            "a bound that is NULL or NaN",
            "a change without id or version",
            "an op that is neither 'set' nor 'remove'",
            "no such query stands",
            "older than what stands",
        ]
    )
    assert all(row["source"] == "changes" and '"query"' in row["raw"] for row in aside)
    kernel = subject.kernel
    assert kernel.queries.count == 2
    assert kernel.metrics()["changes_applied"] == 2
    assert kernel.metrics()["changes_superseded"] == 3, "one that was replaced; one that was undone, and what undid it"


@pytest.mark.parametrize("turned", [False, True])
def test_of_several_changes_the_highest_version_wins_whatever_it_is(turned):
    wide, narrow = (0.0, 9.0, 0.0, 9.0), (0.0, 1.0, 0.0, 1.0)
    subject = host(Queries(np.array([1, 2, 3]), np.array([narrow] * 3)))
    given = [
        (1, "remove", 2, *wide),
        (1, "set", 3, *narrow),
        (2, "set", 2, *wide),
        (2, "remove", 3, *narrow),
        (3, "set", 4, *narrow),
        (3, "set", 5, *wide),
    ]
    subject.step([changes(*(given[::-1] if turned else given))])
    standing, versions = subject.kernel.queries.all()
    found = dict(
        zip(standing.ids.tolist(), zip(versions.tolist(), map(tuple, standing.bounds), strict=True), strict=True)
    )
    assert found == {1: (3, narrow), 3: (5, wide)}


def test_many_changes_are_put_together_in_the_state():
    rng = np.random.default_rng(6)
    subject = host(queries(rng, 50))
    for version in range(1, 41):
        given = [(int(q), "set", version, *map(float, sorted(rng.uniform(0, 100, 2))), 0.0, 50.0) for q in range(40)]
        subject.step([changes(*given)])
    assert len(subject.store.chunks) < 30
    assert subject.kernel.queries.count == 50 + 36, "ids 0, 10, 20 and 30 were there"
    subject.crash()
    assert subject.kernel.queries.count == 86


def test_values_that_cannot_be_compared_exactly_are_set_aside():
    schema = pa.schema([("product", pa.int64()), ("offered", pa.int64())])
    right = pa.schema([("product", pa.int64()), ("wanted", pa.int64())])
    kernel = lambda: StandingJoin(  # noqa: E731
        (schema, right), SELECT, lambda: Queries(np.array([1]), np.array([[0.0, 2.0**60] * 2])), budget=1 << 22, keep=9
    )
    subject = Host(kernel)
    subject.step(
        [
            Portion(0, pa.record_batch([pa.array([1, 1, 1]), pa.array([2**53, 2**53 + 1, None])], schema=schema)),
            Portion(1, pa.record_batch([pa.array([1]), pa.array([5])], schema=right)),
        ]
    )
    assert subject.results()["results"].num_rows == 1
    assert subject.results()["set_aside"].num_rows == 1
    assert subject.kernel.metrics()["rows_unmatched"] == 1


def test_infinite_values_have_no_difference():
    schema, right = (pa.schema([(name, pa.float64())]) for name in ("offered", "wanted"))
    subject = Host(
        lambda: StandingJoin(
            (schema, right), BAND, lambda: Queries(np.array([1]), np.array([[-np.inf, np.inf]])), budget=1 << 22, keep=9
        )
    )
    subject.step(
        [
            Portion(0, pa.record_batch([pa.array([np.inf, 1.0])], schema=schema)),
            Portion(1, pa.record_batch([pa.array([-np.inf, 2.0])], schema=right)),
        ]
    )
    assert subject.results()["results"].num_rows == 1
    assert subject.results()["set_aside"].num_rows == 2


@pytest.mark.parametrize("shape", [SELECT, BAND], ids=["select", "band"])
@pytest.mark.filterwarnings("error")
def test_ranges_between_the_largest_numbers_are_routed_like_any_other(shape):
    rng, most = np.random.default_rng(9), np.finfo(float).max
    wide = [[-most, most] * (len(shape.bounds) // 2), [-most, 5.0] * (len(shape.bounds) // 2)]
    right = DEMAND if shape.own else DEMAND_RENAMED
    given = batches(rng, right, 2, 20)
    got, want = (
        host(Queries(np.arange(2), np.array(wide)), shape, right, strategy=one).run(given)["results"]
        for one in ("dynamic", "naive")
    )
    assert_same_rows(got, want)


def test_what_does_not_fit_stops_with_the_size_it_needs():
    rng = np.random.default_rng(7)
    subject = host(queries(rng, 100), budget=2 << 20, keep=1_000_000)
    with pytest.raises(OverBudget, match="more memory"):
        subject.run([Portion(0, rows(SUPPLY, rng, 2_000, second))] for second in range(50))


def test_memory_is_told_beside_the_budget():
    """At the most of the step, though the books are closed before numbers are asked for."""
    rng = np.random.default_rng(7)
    subject = host(queries(rng, 100), budget=16 << 20, keep=50)
    subject.step([Portion(0, rows(SUPPLY, rng, 2_000))])
    few = subject.kernel.metrics()
    subject.step([Portion(0, rows(SUPPLY, rng, 20_000))])
    told = subject.kernel.metrics()
    assert subject.kernel.memory() < told["memory"] <= told["budget"] == 16 << 20
    assert told["memory"] > few["memory"] > subject.kernel.queries.nbytes


def test_damaged_state_is_named():
    rng = np.random.default_rng(8)
    subject = host(queries(rng, 5))
    subject.step([Portion(0, rows(SUPPLY, rng, 3))])
    subject.store.chunks = {name: blob[: len(blob) // 2] for name, blob in subject.store.chunks.items()}
    subject.crash()
    with pytest.raises(StateDamaged, match="standing queries"):
        _ = subject.kernel


TEXTS = pa.schema([("product", pa.string()), ("offered", pa.float64()), ("__key", pa.int64())])
MORE_TEXTS = pa.schema([("product", pa.string()), ("wanted", pa.float64()), ("__0", pa.int64())])


@pytest.mark.parametrize("output", ["pairs", "factored", "counts"])
@pytest.mark.parametrize("restart", [False, True])
def test_keys_with_one_hash_are_told_apart(monkeypatch, output, restart):
    """Eight keys with two hashes, next to one another, that come and go; as if every key had a hash of its own."""
    rng = np.random.default_rng(10)

    def drawn(schema):
        columns = [rng.choice(list("abcdefgh"), 5), rng.uniform(0, 100, 5), rng.integers(0, 9, 5)]
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)

    found = Queries(np.arange(3), np.array([[0.0, 100.0, 0.0, 100.0], [0.0, 50.0, 0.0, 100.0], [0.0, 9.0, 9.0, 30.0]]))
    given = [[Portion(0, drawn(TEXTS)), Portion(1, drawn(MORE_TEXTS))] for _ in range(40)]

    def results():
        subject = Host(
            lambda: StandingJoin((TEXTS, MORE_TEXTS), SELECT, lambda: found, budget=16 << 20, keep=12, output=output),
            restart_every_step=restart,
        )
        return subject.run(given)["results"]

    want = results()
    assert want.num_rows > 50
    for module in ("reading", "keys"):
        monkeypatch.setattr(
            f"penstock.kernels.standing.{module}.hash_keys",
            lambda columns: hash_keys(columns) % np.uint64(2) + np.uint64(2**64 - 2),
        )
    assert_same_rows(results(), want)


def flood(found, op, version):
    columns = [found.ids, [op] * len(found.ids), [version] * len(found.ids), *found.bounds.T]
    return Portion(2, pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)], CHANGES))


def test_very_many_changes_at_once_are_as_if_loaded():
    rng = np.random.default_rng(8)
    found, given = queries(rng, 3_000), batches(rng, count=1)[0]
    none, half = Queries(found.ids[:0], found.bounds[:0]), Queries(found.ids[::2], found.bounds[::2])
    subject = host(none)
    subject.step([flood(Queries(found.ids, found.bounds[::-1].copy()), "set", 1)])
    subject.step([flood(found, "set", 2)])
    subject.step([flood(half, "remove", 3)])
    rest = Queries(found.ids[1::2], found.bounds[1::2])
    assert_same_rows(subject.run([given])["results"], host(rest).run([given])["results"])


def test_changes_count_for_the_budget():
    found = queries(np.random.default_rng(8), 20_000)
    none = Queries(found.ids[:0], found.bounds[:0])
    with pytest.raises(OverBudget, match=r"changes to queries 9,"):
        host(none, budget=8 << 20).step([flood(found, "remove", 1)])


def test_a_band_may_end_where_the_reach_does():
    schema = pa.schema([*[*CHANGES][:3], *((name, pa.float64()) for name in BAND.bounds)])
    given = [(1, "set", 1, -5.0, 7.0), (2, "set", 1, -5.5, 0.0), (3, "set", 1, 0.0, 7.5)]
    columns = [pa.array(c, f.type) for c, f in zip(zip(*given, strict=True), schema, strict=True)]
    subject = host(Queries(np.empty(0, np.int64), np.empty((0, 2))), BAND, DEMAND_RENAMED, reach=(-5.0, 7.0))
    subject.step([Portion(2, pa.record_batch(columns, schema=schema))])
    assert subject.kernel.queries.all()[0].ids.tolist() == [1]
    assert subject.results()["set_aside"].column("reason").to_pylist() == ["a band beyond the reach"] * 2


def test_as_many_rows_are_kept_as_said_where_micro_batches_divide_them():
    rng = np.random.default_rng(3)
    subject = host(queries(rng, 3), keep=100)
    for second in range(4):
        subject.step([Portion(0, rows(SUPPLY, rng, 50, second))])
    assert subject.kernel.held[0].count == 100


def test_a_window_ends_with_its_last_microsecond_and_needs_event_times():
    rng = np.random.default_rng(4)
    everything = Queries(np.array([1]), np.array([[-1e9, 1e9, -1e9, 1e9]]))
    subject = host(everything, keep=None, within=10_000_000, event_time=("at", "since"))
    supply, demand = rows(SUPPLY, rng, 1, 0), rows(DEMAND, rng, 1, 10)
    demand = demand.set_column(0, DEMAND.field(0), supply.column(0))
    untimed = supply.set_column(2, SUPPLY.field(2), pa.nulls(1, SUPPLY.types[2]))
    watermark = demand.column(2).cast(pa.int64())[0].as_py()
    subject.step([Portion(0, supply), Portion(0, untimed)])
    subject.step(Batch([Portion(1, demand)], watermark=watermark))
    found = subject.results()
    assert found["results"].num_rows == 1, "the watermark stands at the last moment at which a partner may come"
    assert found["set_aside"].column("reason").to_pylist() == ["no event time"]
