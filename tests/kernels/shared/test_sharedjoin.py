"""The shared join: queries that come and go, what waits, what is told, and when results leave."""

from __future__ import annotations

import datetime as dt
import decimal
import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption, MemoryTooSmall
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.shared.changes import CHANGES
from penstock.kernels.shared.greedy import Greedy
from penstock.kernels.shared.lwo import LWO
from penstock.kernels.shared.numbered import Numbered
from penstock.kernels.shared.router import Router
from penstock.kernels.shared.selection import Selection
from penstock.kernels.shared.sending import ADDED
from penstock.kernels.shared.sharedjoin import SharedJoin
from penstock.kernels.shared.swf import SWF
from penstock.kernels.window.shape import Shape
from penstock.kernels.window.windows import FAR
from penstock.testing import EventTime, Host
from penstock.testing.conformance import CASES, equals_twin, load_cases

_spec = importlib.util.spec_from_file_location("shared_naive", Path(__file__).parent / "naive.py")
naive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive)

LEFT = pa.schema([("k", pa.int64()), ("lt", pa.timestamp("us")), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("rt", pa.timestamp("us")), ("w", pa.int64())])
SHAPE = Shape(LEFT, RIGHT, (("k", "k"),))
TIMES = ("lt", "rt")
SCHEDULERS = {"lwo": LWO(), "swf": SWF(), "greedy": Greedy()}


def rows(side, keys, times, first=0):
    schema = (LEFT, RIGHT)[side]
    keys = pa.array(keys, pa.int64())
    columns = [keys, pa.array(times, pa.int64()).cast(pa.timestamp("us")), pa.array(first + np.arange(len(keys)))]
    return Portion(side, pa.RecordBatch.from_arrays(columns, schema=schema))


def change(version, op, query, window=None, unit="us", select=None):
    row = {"version": version, "op": op, "query": query, "window": window, "unit": unit, "select": select}
    return Portion(2, pa.RecordBatch.from_pylist([row], schema=CHANGES))


def make(scheduler="greedy", windows=None, budget=1 << 20, **options):
    windows = {"small": 10, "large": 100} if windows is None else windows
    shape = options.pop("shape", SHAPE)
    return SharedJoin(shape, windows, SCHEDULERS[scheduler], budget=budget, times=TIMES, **options)


def pairs(table):
    return list(zip(table["v"].to_pylist(), table["w"].to_pylist(), strict=True))


@st.composite
def histories(draw):
    """Micro-batches of rows in order of time, with queries that come and go between them."""
    count = draw(st.integers(0, 40))
    keys = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=count, max_size=count))
    ends = sorted(draw(st.lists(st.integers(0, count), max_size=6)))
    names = st.sampled_from(["small", "large", "new", "other"])
    told = [
        draw(st.lists(st.tuples(st.booleans(), names, st.integers(1, 50)), max_size=2)) for _ in range(len(ends) + 1)
    ]
    return keys, [0, *ends, count], told, draw(st.sampled_from(sorted(SCHEDULERS))), draw(st.sampled_from([1, 4, FAR]))


@given(history=histories(), hashed=st.booleans(), by_rows=st.booleans())
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
def test_queries_come_and_go(history, hashed, by_rows):
    """Each gets what it would alone, from the micro-batch it comes in to the one it goes in, restored at every step."""
    keys, cuts, told, scheduler, units = history
    rest = {"hashed": hashed, "by_rows": by_rows, "units": units}
    host = Host(
        lambda: make(scheduler, {"small": 3, "large": 30}, **rest),
        restart_every_step=True,
    )
    came = [(side, {"k": key, TIMES[side]: number, "vw"[side]: number}) for number, (side, key) in enumerate(keys)]
    standing = {"small": (3, 0), "large": (30, 0)}
    want, version = {}, 0

    def finish(name, end):
        window, begin = standing.pop(name)
        found = naive.alone(came[begin:end], window, by_rows=by_rows, match=lambda left, right: left["k"] == right["k"])
        want.setdefault(name, []).append([(left["v"], right["w"]) for left, right in found])

    for (begin, end), changes in zip(itertools.pairwise(cuts), told, strict=True):
        batch = []
        for add, name, window in changes:
            if add and name not in standing:
                batch.append(change(version, "add", name, window, "rows" if by_rows else "us"))
                standing[name] = (window, begin)
            elif not add and name in standing:
                batch.append(change(version, "remove", name))
                finish(name, begin)
            version += 1
        for number in range(begin, end):
            side, row = came[number]
            batch.append(rows(side, [row["k"]], [number], first=number))
        host.step(batch)
    for name in list(standing):
        finish(name, len(came))
    host.drain()
    out = host.results()
    got = {name: pairs(out[name]) for name in ("small", "large")}
    for name in ("new", "other"):
        got[name] = pairs(
            out[ADDED].filter(pa.array([one == name for one in out[ADDED]["query"].to_pylist()], pa.bool_()))
        )
    for name, lives in want.items():
        if len(lives) == 1:
            assert got[name] == lives[0]
        # A name that came again is another query: its stream may begin before the old one has ended.
        assert sorted(got[name]) == sorted(itertools.chain(*lives))


def test_a_router_that_does_not_wait_for_its_turn_is_noticed(monkeypatch):
    """A planted fault: a suite that checks nothing would not see it."""
    load_cases(Path(__file__).parents[1] / "cases")
    patient = Router.ready

    def hasty(self, query, *rest, **options):
        if len(self):
            query.done = int(self.held.outer[-1]) + 1
        return patient(self, query, *rest, **options)

    monkeypatch.setattr(Router, "ready", hasty)
    with pytest.raises(AssertionError, match="against the naive twin"):
        equals_twin(CASES["shared join, in order"])


def test_changes_without_sense_are_set_aside_and_told_once():
    host = Host(make)
    host.step([change(1, "add", "more", 50), change(0, "remove", "nobody"), change(2, "add", "more", 60)])
    host.step([change(1, "add", "more", 70), change(3, "widen", "more", 1), change(4, "add", "x", 5, "rows")])
    reasons = host.results()["set_aside"]["reason"].to_pylist()
    assert reasons == [
        "there is no query of this name to remove",
        "there is a query of this name",
        "a change is add or remove",
        "its window is not of the kind of the others",
    ]
    assert host.kernel.metrics()["queries"] == 3


def test_a_change_that_was_overtaken_is_applied_when_it_comes():
    host = Host(make, restart_every_step=True)
    host.step([change(0, "add", "a", 50)])
    host.step([change(3, "add", "d", 50)])
    host.step([change(2, "add", "c", 50)])
    host.step([change(1, "add", "b", 50), change(2, "add", "e", 50), change(3, "remove", "d")])
    host.step([rows(0, [7], [0]), rows(1, [7], [0])])
    out = host.results()
    assert sorted(out[ADDED]["query"].to_pylist()) == ["a", "b", "c", "d"]
    assert not out["set_aside"].num_rows, "what came before is not told again"


def test_every_row_is_accounted_for():
    host = Host(make, event_time=EventTime(TIMES, 10))
    host.step([rows(0, [1, None], [100, 100]), rows(1, [1], [100])])
    host.step([rows(0, [1, 1], [80, None]), rows(1, [1], [95])])
    counts = host.kernel.metrics()
    out = host.results()
    assert counts["rows_late"] == 1 == out["late_left"].num_rows
    assert counts["rows_set_aside"] == 1 == out["set_aside"].num_rows
    assert pairs(out["small"]) == [(0, 0), (0, 0)]
    assert host.kernel.metrics()["rows_in"] == 3


def test_a_selection_stands_above_the_join():
    host = Host(lambda: make(select={"large": lambda found: pa.compute.greater(found.column("w"), 0)}))
    out = host.run([[rows(0, [1], [0]), rows(1, [1, 1], [0, 5])]])
    assert pairs(out["small"]) == [(0, 0), (0, 1)]
    assert pairs(out["large"]) == [(0, 1)]


def test_scans_go_on_where_they_were_after_the_query_that_was_ahead_is_gone():
    """A small window is scanned first and its query goes: the pairs it found are held, and not found again."""
    found = []
    for restart in (False, True):
        host = Host(lambda: make("swf", {"small": 9, "large": 90}, units=150), restart_every_step=restart)
        host.step([rows(side, [1] * 15, np.arange(15) * 2 + side) for side in (0, 1)])
        host.step([change(0, "remove", "small")])
        host.step([])
        host.drain()
        found.append(pairs(host.results()["large"]))
    assert len(found[0]) == 15 * 15
    assert found[0] == found[1]


@pytest.mark.parametrize("by_rows", [False, True])
def test_rows_do_not_wait_where_no_query_stands(by_rows):
    """Also while one stream is silent, and no watermark says that rows are old."""
    host = Host(lambda: make(windows={"q": 50}, by_rows=by_rows, budget=256 << 10))
    host.step([rows(0, [1], [1]), change(0, "remove", "q")])
    for step in range(10):
        host.step([rows(0, np.arange(400), np.full(400, step + 2))])
        assert host.kernel.metrics()["rows_waiting"] == 0
    host.crash()
    host.step([change(1, "add", "q", 50, "rows" if by_rows else "us"), rows(0, [7], [20], 5), rows(1, [7], [21], 6)])
    assert pairs(host.results()["q"]) == [(5, 6)]


def test_a_query_that_comes_by_the_name_of_another_does_not_select_as_that_one_did():
    host = Host(lambda: make(select={"large": lambda found: pa.compute.greater(found.column("w"), 7)}))
    host.step([rows(0, [1], [1]), rows(1, [1, 1], [1, 2])])
    host.step([change(0, "remove", "large"), change(1, "add", "large", 50)])
    host.crash()
    host.step([rows(0, [1], [3]), rows(1, [1, 1], [3, 4])])
    assert pairs(host.results()["large"]) == [(0, 0), (0, 1)]


def test_a_query_that_comes_later_may_select_and_keeps_that_over_a_restore():
    some = Selection.of([("w", ">", 0), ("v", "in", [0, 1])], SHAPE.results).written()
    host = Host(make, restart_every_step=True)
    host.step([change(0, "add", "more", 50, select=some), change(1, "add", "none", 50, select='[["nil", "=", 1]]')])
    host.step([rows(0, [1, 1, 1], [0, 1, 2]), rows(1, [1, 1], [0, 5])])
    host.drain()
    out = host.results()
    assert set(out[ADDED]["query"].to_pylist()) == {"more"}
    assert pairs(out[ADDED]) == [(1, 1), (0, 1)]
    assert out["set_aside"]["reason"].to_pylist() == ["A result has no column 'nil'."]
    assert host.kernel.metrics()["queries"] == 3


def test_a_long_selection_is_written_once_and_goes_with_its_queries():
    """A list of thousands has no place in the head, which is written at every step; and it counts as memory."""
    long = Selection.of([("w", "in", [1, *range(100_000, 115_000)])], SHAPE.results).written()
    host = Host(lambda: make(budget=4 << 20), restart_every_step=True, budget=4 << 20)
    host.step([change(0, "add", "one", 50, select=long), change(1, "add", "two", 60, select=long)])
    assert len(host.store.head) < 2_000
    (kept,) = host.store.chunks
    assert host.kernel.memory() > 2 * len(long)
    host.step([rows(0, [1], [0]), rows(1, [1, 1], [0, 5]), change(2, "remove", "one")])
    assert kept in host.store.chunks, "another query has the same"
    host.step([change(3, "remove", "two")])
    host.drain()
    out = host.results()[ADDED]
    assert [*zip(out["query"].to_pylist(), pairs(out), strict=True)] == [("two", (0, 1))]
    assert kept not in host.store.chunks


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ([("v", ">", "text")], "cannot be compared"),
        ([("v", "like", 1)], "compares nothing"),
        ([("v", "=", None)], "cannot be compared"),
        ([("x", "=", 1)], "no column 'x'"),
        ([("lt", "<", object())], "cannot be compared"),
        ([("v", "<", 1 << 64)], "cannot be compared"),
        ([("v", "in", [1, None])], "cannot be compared"),
        ([("v", "in", "12")], "cannot be compared"),
    ],
)
def test_a_selection_that_cannot_be_asked_is_refused(select, why):
    with pytest.raises(BadOption, match=why):
        Selection.of(select, SHAPE.results)


@pytest.mark.parametrize("how", ["=", "<"])
def test_a_day_is_not_compared_with_its_noon(how):
    """It was compared with its beginning, so that it equalled noon, and was not before it."""
    with pytest.raises(BadOption, match="cannot be compared"):
        Selection.of([("day", how, dt.datetime(1970, 1, 2, 12))], pa.schema([("day", pa.date32())]))  # noqa: DTZ001


def test_a_selection_is_the_same_after_it_was_written():
    """Also of times without a zone beside columns that have one, as all of Spark's do, and the other way round."""
    found = pa.record_batch(
        {
            "v": [1, 2, None, (1 << 53) + 1],
            "x": [0.5, float("nan"), 2.0, 9.0],
            "y": pa.array([0.1, 0.2, None, 0.3], pa.float32()),
            "at": pa.array([1, 2, 3, 4], pa.timestamp("us")),
            "utc": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
            "day": pa.array([0, 1, None, 3], pa.date32()),
            "zero": [0.0, -0.0, float("nan"), None],
            "cost": pa.array([decimal.Decimal("1.10"), None, decimal.Decimal("2.20"), decimal.Decimal(9)]),
        }
    )
    moment = dt.datetime(1970, 1, 1, 0, 0, 0, 3)  # noqa: DTZ001
    aware = moment.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))) + dt.timedelta(hours=2)
    cases = [
        ([("v", "!=", 2)], [True, False, False, True]),
        ([("v", "not in", [2, 4])], [True, False, False, True]),
        ([("v", "=", float(1 << 53))], [False, False, False, False]),
        ([("x", "<", 3)], [True, False, True, False]),
        ([("y", "=", 0.1)], [True, False, False, False]),
        ([("y", "in", [0.1, 0.3])], [True, False, False, True]),
        ([("v", ">=", 1.5)], [False, True, False, True]),
        ([("v", ">=", 1.5), ("at", "<", moment)], [False, True, False, False]),
        ([("v", "<", float("inf"))], [True, True, False, True]),
        ([("at", "<", aware)], [True, True, False, False]),
        ([("utc", "<", moment)], [True, True, False, False]),
        ([("utc", ">", aware)], [False, False, False, True]),
        ([("utc", "in", [moment, aware])], [False, False, True, False]),
        ([("day", "<", dt.datetime(1970, 1, 2))], [True, False, False, False]),  # noqa: DTZ001
        ([("day", "in", [dt.date(1970, 1, 4), "1970-01-02"])], [False, True, False, True]),
        ([("cost", ">", decimal.Decimal("1.5"))], [False, False, True, True]),
        ([("cost", "<", 1.5)], [True, False, False, False]),
        ([("cost", "=", 1.1)], [True, False, False, False]),
        ([("cost", ">=", 2.2)], [False, False, True, True]),
        ([("cost", "<", 1.1001)], [True, False, False, False]),
        ([("cost", "<", float("inf"))], [True, False, True, True]),
        ([("cost", "in", [9, 2.2, "7", decimal.Decimal("1.1")])], [True, False, True, True]),
        ([("cost", "not in", [])], [True, False, True, True]),
        ([("zero", "in", [0])], [True, True, False, False]),
        ([("zero", "not in", [-0.0, float("nan")])], [False, False, True, False]),
    ]
    for conditions, expected in cases:
        one = Selection.of(conditions, found.schema)
        assert one(found).to_pylist() == expected, conditions
        assert Selection.read(one.written(), found.schema)(found).to_pylist() == expected, conditions


def test_a_pair_is_looked_up_once(monkeypatch):
    """However many queries are sent it together."""
    looked = []
    taken = Numbered.take
    monkeypatch.setattr(Numbered, "take", lambda self, places: looked.append(len(places)) or taken(self, places))
    kernel = make("lwo", {f"q{n}": 100 + n for n in range(7)})
    count = dict.fromkeys(kernel.channels, 0)
    for channel, rows_out in burst(kernel, 50):
        count[channel] += rows_out
    assert all(count[f"q{n}"] == 2_500 for n in range(7))
    assert sum(looked) == 2 * 2_500


def test_a_condition_without_a_key_is_a_nested_loop():
    shape = Shape(LEFT.remove(0), RIGHT.remove(0), ())
    differ = lambda left, right: pa.compute.not_equal(left.column("v"), right.column("w"))  # noqa: E731
    host = Host(lambda: make(shape=shape, where=differ))
    parts = [
        Portion(p.side, p.rows.drop_columns(["k"])) for p in (rows(0, [0] * 3, [0, 1, 2]), rows(1, [0] * 2, [3, 30]))
    ]
    out = host.run([parts])
    assert pairs(out["small"]) == [(2, 0), (1, 0)]
    assert pairs(out["large"]) == [(2, 0), (1, 0), (2, 1), (0, 1)]


def burst(kernel, count, now=0):
    """Rows of one key on both sides, all of which meet."""
    times = np.arange(count)
    batch = Batch([rows(0, [1] * count, times), rows(1, [1] * count, times)], None)
    return [(e.channel, e.rows.num_rows) for e in kernel.step(batch, now)]


def test_small_windows_answer_within_their_slice():
    """With work for many steps, all of the small query's results leave in the first under Greedy, few under LWO."""
    shares = {}
    for name in SCHEDULERS:
        kernel = make(name, {"small": 2, "large": 10_000}, units=6_000)
        first = sum(count for channel, count in burst(kernel, 300) if channel == "small")
        rest = [e for e in kernel.tick(5) if e.channel == "small"]
        shares[name] = first / (first + sum(e.rows.num_rows for e in rest))
        assert not kernel.pending()
    assert shares["greedy"] == shares["swf"] == 1.0
    assert shares["lwo"] < 0.3


def test_response_is_told_in_work_and_by_the_clock():
    kernel = make("greedy", {"small": 2, "large": 10_000}, units=6_000)
    burst(kernel, 300, now=1_000)
    first = kernel.metrics()
    assert 0 < first["work_mean_small"] < first["work_p95_small"] <= 1.2 * first["work_max_small"]
    assert first["wait_max_small"] == 0
    assert first["unfinished"] > 0
    assert first["work"] == pytest.approx(6_000, abs=2)
    list(kernel.tick(now=3_500))
    last = kernel.metrics()
    assert last["wait_mean_large"] == 2_500
    assert last["work_max_large"] > first["work_max_small"]
    assert last["unfinished"] == last["held"] == 0


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_a_query_that_comes_is_told_nothing_of_rows_that_came_before(scheduler):
    """Neither their results nor how long these took: it would seem slow from the beginning."""
    kernel = make(scheduler, {"small": 2, "large": 10_000}, units=6_000)
    burst(kernel, 300)
    list(kernel.step(Batch([change(0, "add", "new", 20_000)], None), 0))
    while kernel.pending():
        told = kernel.metrics()
        assert told["results_new"] == told["work_mean_new"] == told["work_max_new"] == 0
        list(kernel.step(Batch([], None), 0))


def test_a_result_leaves_early_where_its_order_allows():
    """The first row's partners in the small window go to the large query at once under Greedy, not under SWF."""
    for name, early in (("greedy", True), ("swf", False)):
        kernel = make(name, {"small": 5, "large": 100}, units=9)
        left = rows(0, [1] * 50, np.arange(50))
        list(kernel.step(Batch([left], None), 0))
        list(kernel.tick(0))
        found = list(kernel.step(Batch([rows(1, [1], [50])], None), 0))
        got = {e.channel: e.rows.num_rows for e in found}
        assert got.get("large", 0) == (5 if early else 0)
        assert sum(e.rows.num_rows for e in kernel.tick(0) if e.channel == "large") == (45 if early else 50)


def test_work_left_over_is_done_where_memory_is_short():
    """A slice of one unit would let rows pile up for ever."""
    kernel = make("swf", {"small": 2, "large": 40}, budget=96 << 10, units=1)
    most = got = 0
    for number in range(40):
        times = number * 20 + np.arange(20)
        batch = Batch([rows(0, [1] * 20, times), rows(1, [1] * 20, times)], number * 20 - 1)
        got += sum(e.rows.num_rows for e in kernel.step(batch, 0) if e.channel == "large")
        assert kernel.memory() <= 96 << 10
        most = max(most, kernel.metrics()["unfinished"])
        kernel.changes()
    got += sum(e.rows.num_rows for e in kernel.tick(0) if e.channel == "large")
    assert got == sum(1 for a in range(800) for b in range(max(a - 40, 0), min(a + 41, 800)))
    assert 40 < most < 1_600


def test_a_window_that_does_not_fit_is_refused_by_how_much():
    kernel = make(windows={"small": 10, "huge": 10**9}, budget=96 << 10)

    def fill():
        for number in range(100):
            list(kernel.step(Batch([rows(0, np.arange(20), number * 20 + np.arange(20))], None), 0))

    with pytest.raises(MemoryTooSmall, match=r"'huge' does not fit: .* bytes, \d+ more than"):
        fill()
    with pytest.raises(MemoryTooSmall, match=r"need \d+ bytes more"):
        list(make(budget=96 << 10).step(Batch([rows(0, np.arange(5_000), np.arange(5_000))], None), 0))
    with pytest.raises(MemoryTooSmall, match="at least"):
        make(budget=1 << 10)


@pytest.mark.parametrize("scheduler", ["greedy", "swf"])
def test_a_restored_join_tells_the_same_numbers(scheduler):
    """Also of pairs for which the condition does not hold: scans found them, and nobody gets them."""

    def odd(left, right):
        return (left["v"].to_numpy() + right["w"].to_numpy()) % 2 == 1

    class Restarted(Host):
        def crash(self):
            self.told = dict(self.kernel.metrics())
            super().crash()

    calm = Host(lambda: make(scheduler, units=40, where=odd))
    restarted = Restarted(calm.make, restart_every_step=True)
    for number in range(6):
        keys, times = [0, 1, 0, 1], [20 * number + place for place in range(4)]
        batch = [rows(side, keys, times, first=4 * number) for side in (0, 1)]
        for host in (calm, restarted):
            host.step(batch)
        told = dict(calm.kernel.metrics())
        assert restarted.told | {"memory": told["memory"]} == told
