"""The window join: late rows, what policies choose, what is counted, and what is told."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import BadOption, MemoryTooSmall, PredicateFailed
from penstock.kernels.contract import Batch, ChunkLog, Portion
from penstock.kernels.window.custom import Custom
from penstock.kernels.window.estimates import KeyEstimates
from penstock.kernels.window.evict import Contest, decide
from penstock.kernels.window.exact import Exact
from penstock.kernels.window.heeb import Heeb
from penstock.kernels.window.life import Life
from penstock.kernels.window.notes import AHEAD
from penstock.kernels.window.prob import Prob
from penstock.kernels.window.rand import Rand
from penstock.kernels.window.recall import Recall
from penstock.kernels.window.shape import Shape, truths
from penstock.kernels.window.side import ENTRY
from penstock.kernels.window.windowjoin import LEAST_BUDGET, WindowJoin
from penstock.kernels.window.windows import LandmarkWindow, RowWindow, TimeWindow
from penstock.testing import EventTime, Host, zipf_keys

_spec = importlib.util.spec_from_file_location("window_naive", Path(__file__).parent / "naive.py")
naive = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(naive)

LEFT = pa.schema([("k", pa.int64()), ("lt", pa.timestamp("us")), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("rt", pa.timestamp("us")), ("w", pa.int64())])
SHAPE = Shape(LEFT, RIGHT, (("k", "k"),))
TIMES = ("lt", "rt")


def rows(side, keys, times):
    schema = (LEFT, RIGHT)[side]
    keys = pa.array(keys, pa.int64())
    columns = [keys, pa.array(times, pa.int64()).cast(pa.timestamp("us")), pa.array(np.arange(len(keys)))]
    return Portion(side, pa.RecordBatch.from_arrays(columns, schema=schema))


def make(policy=None, window=None, budget=LEAST_BUDGET, **options):
    window = window or TimeWindow(100, 100)
    return WindowJoin(options.pop("shape", SHAPE), window, policy or Exact(), budget=budget, times=TIMES, **options)


def test_late_rows_go_to_their_channel_and_join_nothing():
    host = Host(make, event_time=EventTime(TIMES, 10))
    host.step([rows(0, [1], [100]), rows(1, [2], [100])])
    # The watermark is 90 now: 90 is in time, 89 is late.
    host.step([rows(0, [2, 2], [89, 90]), rows(1, [1, 1], [90, 5])])
    out = host.results()
    assert sorted(zip(out["results"]["v"].to_pylist(), out["results"]["w"].to_pylist(), strict=True)) == [
        (0, 0),
        (1, 0),
    ]
    assert out["late_left"]["lt"].cast(pa.int64()).to_pylist() == [89]
    assert out["late_right"]["rt"].cast(pa.int64()).to_pylist() == [5]
    counts = host.kernel.metrics()
    assert (counts["rows_in"], counts["rows_late"]) == (4, 2)


def test_rows_without_key_or_time_are_counted_and_join_nothing():
    shape = Shape(LEFT, RIGHT, (("k", "k"),), "full")
    host = Host(lambda: make(shape=shape), event_time=EventTime(TIMES))
    left = pa.RecordBatch.from_pylist([{"k": None, "lt": 1, "v": 7}, {"k": 1, "lt": None, "v": 8}], schema=LEFT)
    host.step([Portion(0, left), rows(1, [None, 1], [1, 1])])
    out = host.results()
    assert host.kernel.metrics()["rows_without_key"] == 2
    assert host.kernel.metrics()["rows_set_aside"] == 1
    assert out["set_aside"]["reason"].to_pylist() == ["its event time is NULL"]
    assert sorted((r["v"] or 0, r["w"] or 0) for r in out["results"].to_pylist()) == [(0, 0), (7, 0)]


def test_an_outer_row_is_owed_also_where_only_rows_of_other_slots_moved_the_watermark():
    kernel = make(shape=Shape(LEFT, RIGHT, (("k", "k"),), "left"))
    assert not list(kernel.step(Batch([rows(0, [1], [100])], None), 0))
    assert not list(kernel.tick(0, 150))
    assert not list(kernel.step(Batch([], 150), 0))
    assert kernel.pending()
    (emission,) = kernel.tick(0, 201)
    assert emission.rows["v"].to_pylist() == [0]
    assert not kernel.pending()


def test_out_of_order_rows_within_the_lateness_give_the_same_results():
    rng = np.random.default_rng(3)
    sides = [rows(side, rng.integers(0, 20, 400), np.sort(rng.integers(0, 2_000, 400))) for side in (0, 1)]
    found = []
    for order in (np.arange(400), np.argsort(np.arange(400) + rng.integers(0, 60, 400))):
        host = Host(lambda: make(budget=1 << 20), event_time=EventTime(TIMES, 2_000))
        for begin in range(0, 400, 40):
            part = pa.array(order[begin : begin + 40])
            host.step([Portion(side, batch.take(part)) for side, batch in sides])
        out = host.results()["results"]
        found.append(Counter(zip(out["v"].to_pylist(), out["w"].to_pylist(), strict=True)))
    assert found[0] == found[1]
    assert sum(found[0].values()) > 500


# -- policies ----------------------------------------------------------------------------------------------------------


def play(kernel, steps):
    """The pairs that come of some steps."""
    pairs = []
    for step in steps:
        for emission in kernel.step(Batch(step, None), 0):
            if emission.channel == "results":
                pairs += zip(emission.rows["v"].to_pylist(), emission.rows["w"].to_pylist(), strict=True)
        kernel.changes()
    return pairs


def count(kernel, steps):
    """How many results come of some steps."""
    found = 0
    for step in steps:
        found += sum(e.rows.num_rows for e in kernel.step(Batch(step, None), 0) if e.channel == "results")
        kernel.changes()
    return found


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("policy", [Prob(), Life()], ids=["prob", "life"])
def test_policies_equal_their_naive_twins(policy, fixed):
    """With given probabilities, each step lets go of the lowest score, of equal ones of the oldest."""
    rng = np.random.default_rng(8)
    chances = rng.permutation(np.arange(1, 31) / 465.0)
    keys = rng.integers(0, 30, (2, 300))
    given = (lambda k: chances[k.to_numpy()],) * 2
    kernel = make(policy, TimeWindow(120, 120), probabilities=given, fixed=fixed)
    each = 24 + 3 / 8 + ENTRY
    limit = int((kernel._room - kernel._room / 8) / each)
    # A memory for 60 rows instead of some thousand: the rest of the room is taken away.
    kernel._room = 60 * each / (7 / 8) + 1e-6
    assert limit > 60
    got, memory, want = [], [], []
    steps = [[rows(side, keys[side, t : t + 1], [t]) for side in (0, 1)] for t in range(300)]
    for t, step in enumerate(steps):
        step = [Portion(s, b.set_column(2, ("v", "w")[s], pa.array([t]))) for s, b in step]
        got += play(kernel, [step])
        new = [(side, int(keys[side, t]), t) for side in (0, 1)]
        for side, key, _ in new:
            want += [
                (t, u) if side == 0 else (u, t) for s, k, u in memory if (s, k) == (1 - side, key) and t - u <= 120
            ]
        want += [(t, t)] if keys[0, t] == keys[1, t] else []
        memory += new

        def score(row, t=t):
            life = row[2] + 120 - t
            worth = chances[row[1]] * (life if policy.name == "life" else 1)
            return (-1.0 if life < 0 else worth, row[2], row[0])

        for pool in ((0,), (1,)) if fixed else ((0, 1),):
            rest = sorted((row for row in memory if row[0] in pool), key=score)
            for row in rest[: max(len(rest) - 60 // (2 if fixed else 1), 0)]:
                memory.remove(row)
    assert Counter(got) == Counter(want)
    assert len(want) > 200


def test_rand_is_fair():
    """Rows that came first are as likely to go as rows that came last."""
    gone = np.zeros(10)
    for seed in range(100):
        kernel = make(Rand(), seed=seed, budget=1 << 20)
        list(kernel.step(Batch([rows(0, np.arange(1_000), np.zeros(1_000))], None), 0))
        contest = Contest(0, kernel._sides[0], kernel._judgement, kernel._clock, kernel._step, at_once=300)
        decide([contest], kernel._sides[0].cost / 10)
        gone += contest.gone.reshape(10, 100).sum(axis=1)
    assert gone.sum() == 100 * 100
    assert abs(gone / 1_000 - 1).max() < 0.12


def test_a_tight_budget_keeps_frequent_keys_and_tells_how_much_is_missed():
    exact, found = {}, {}
    keys = [zipf_keys(10_000, 2_000, 1.0, seed) for seed in (5, 6)]
    for policy, budget in ((Exact(), 8 << 20), (Prob(), 400 << 10), (Rand(), 400 << 10)):
        kernel, total, evicted = make(policy, TimeWindow(4_000, 4_000), budget=budget), 0, 0
        for begin in range(0, 10_000, 400):
            part = slice(begin, begin + 400)
            step = [rows(side, keys[side][part], np.arange(begin, begin + 400)) for side in (0, 1)]
            total += count(kernel, [step])
            evicted += kernel.metrics()["rows_evicted"]
            assert kernel.memory() <= budget
        found[policy.name] = total
        if policy.lossy:
            exact[policy.name] = kernel.metrics()["recall_estimate"]
            assert evicted > 5_000
    assert found["rand"] < found["prob"] < found["exact"]
    for name, estimate in exact.items():
        assert abs(estimate - found[name] / found["exact"]) < 0.12, (name, estimate, found)


@pytest.mark.parametrize("step", [10, 150], ids=["evicted", "evicted and shed"])
def test_ghosts_count_what_was_missed(step):
    """With room to follow every row, produced and missed are the exact join."""
    window = TimeWindow(400, 250)
    keys = np.random.default_rng(4).integers(0, 40, (2, 1_500))
    kernel = make(Rand(), window, budget=4 << 20)
    kernel._room = 100 * 330.0
    kernel._recall = Recall(window, 1 << 30)
    kernel._recall._ghosts._bits = 0
    exact = make(Exact(), window, budget=4 << 20)
    missed = produced = want = shed = 0
    for begin in range(0, 1_500, step):
        both = [rows(side, keys[side, begin : begin + step], np.arange(begin, begin + step)) for side in (0, 1)]
        produced += count(kernel, [both])
        want += count(exact, [both])
        missed += kernel.metrics()["missed_estimate"]
        shed += kernel.metrics()["rows_shed"]
    assert (shed > 200) == (step > 10)
    assert 0 < produced < want == produced + missed


def burst(policy, seed, order=None, budget=1 << 20, width=9_000):
    """Some steps are far larger than their share: the true recall, and the metrics of each step."""
    sizes = [1_000, 1_000, 1_000, 9_000, 1_000, 1_000, 9_000, 6_000]
    keys = [zipf_keys(sum(sizes), 5_000, 0.6, 2 * seed + side) for side in (0, 1)]
    codes = [np.sort(side * (1 << 32) + np.arange(len(side))) for side in keys]
    want = np.searchsorted(codes[1], codes[0] + width, "right") - np.searchsorted(codes[1], codes[0] - width)
    kernel, produced, told = make(policy, TimeWindow(width, width), budget=budget), 0, []
    for begin, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
        step = [rows(side, keys[side][begin : begin + size], np.arange(begin, begin + size)) for side in (0, 1)]
        if order is not None:
            step = [
                Portion(portion.side, portion.rows.take(pa.array(places)))
                for portion in step
                for places in np.array_split(order.permutation(size), 3)
            ]
        produced += count(kernel, [step])
        assert kernel.memory() <= budget
        told.append(kernel.metrics())
    return produced / want.sum(), told


@pytest.mark.parametrize("policy", [Prob(), Rand()], ids=["prob", "rand"])
def test_recall_is_estimated_where_rows_are_shed(policy, monkeypatch):
    """Right on average, and never far off; without looking back it is too high by more than that."""
    errors = []
    for seed in range(5):
        true, told = burst(policy, seed)
        assert sum(numbers["rows_shed"] for numbers in told) > 10_000
        errors.append(told[-1]["recall_estimate"] - true)
    assert abs(np.mean(errors)) < 0.04, errors
    assert np.abs(errors).max() < 0.1, errors
    both_ways = Recall.look_back

    def forwards_only(self, waiting, log):
        missed = both_ways(self, waiting, log)
        self.missed -= missed
        return 0.0

    monkeypatch.setattr(Recall, "look_back", forwards_only)
    true, told = burst(policy, 0)
    assert told[-1]["recall_estimate"] > true + 0.08


def test_the_estimate_does_not_depend_on_cuts():
    first, second = (
        [(numbers["rows_shed"], numbers["missed_estimate"]) for numbers in burst(Prob(), 3, order)[1]]
        for order in (None, np.random.default_rng(5))
    )
    assert first == second


def test_a_step_larger_than_its_share_is_shed_by_the_same_policy_whatever_its_order():
    keys = zipf_keys(20_000, 500, 1.0, 2)
    warm = [rows(side, keys[:200], np.zeros(200)) for side in (0, 1)]
    burst = rows(0, keys, np.full(20_000, 5)).rows
    archives = []
    for order in (np.arange(20_000), np.random.default_rng(1).permutation(20_000)):
        kernel = make(Prob(), archive=True)
        play(kernel, [warm])
        parts = [Portion(0, burst.take(pa.array(order[i : i + 3_000]))) for i in range(0, 20_000, 3_000)]
        shed, kept = Counter(), Counter()
        for emission in kernel.step(Batch(parts, None), 0):
            if emission.channel == "archive_left":
                for row in emission.rows.to_pylist():
                    (kept if row["_left"] is None else shed)[row["v"]] += 1
        assert kernel.metrics()["rows_shed"] == sum(shed.values()) > 5_000
        assert sum(shed.values()) + sum(kept.values()) == 20_000
        assert kernel.memory() <= LEAST_BUDGET
        archives.append((shed, kept))
    assert archives[0] == archives[1]
    frequency = Counter(keys.tolist())
    mean = [np.mean([frequency[int(keys[v])] for v in some]) for some in archives[0]]
    assert mean[0] < mean[1], "what is shed is what partners are least likely for"


WIDE = Shape(LEFT.append(pa.field("pad", pa.string())), RIGHT, (("k", "k"),), "full")
OWN = Custom(lambda keys, ages, partner: -ages)


@pytest.mark.parametrize("policy", [Rand(), Prob(), Life(), Heeb(), OWN], ids=lambda policy: policy.name)
def test_live_and_missing_pairs_are_the_join(policy):
    """Steps of all sizes, some larger than their share: what comes and what the archive says is missing is the join."""
    rng, window = np.random.default_rng(11), TimeWindow(120, 60)
    host = Host(
        lambda: make(policy, window, shape=WIDE, archive=True),
        event_time=EventTime(TIMES, 30),
        budget=LEAST_BUDGET,
        restart_every_step=True,
    )
    at, sent = 0, ([], [])
    for size in (5, 30, 3, 60, 8, 40, 10, 70, 5, 5, 30, 2):
        step = []
        for side in (0, 1):
            portion = rows(side, rng.integers(0, 12, size), at + rng.integers(0, 60, size)).rows
            if side == 0:
                pads = pa.array(["x" * int(n) for n in rng.choice([10, 500, 900], size)])
                portion = portion.append_column("pad", pads)
            step.append(Portion(side, portion))
            sent[side].extend(portion.to_pylist())
        at += 30
        host.step(step)
    host.drain()
    out = host.results()
    latest = [max(naive.micros(r[TIMES[side]]) for r in sent[side]) for side in (0, 1)]
    clock = {"watermark": min(latest) - 30, "rows": None}
    assert out["late_left"].num_rows + out["late_right"].num_rows == 0
    archived = [out[channel].to_pylist() for channel in ("archive_left", "archive_right")]
    gone = out["residence"].to_pylist()
    missing = naive.missing(WIDE, window, archived, gone, TIMES, clock)
    live, found, want = (
        Counter(tuple(row.values()) for row in some)
        for some in (out["results"].to_pylist(), missing, naive.join(WIDE, window, sent, TIMES, clock))
    )
    assert live + found == want
    assert "evicted" in {row["_reason"] for row in gone}
    assert any(row["_reason"] == "shed" for row in archived[0])
    assert len(missing) > 20
    assert len(live) > 100


def test_rows_pushed_out_of_a_row_window_are_results_before_any_row_must_go():
    """The rows of a step that fills memory close windows: whoever waited there alone is a result, and not evicted."""
    shape = Shape(LEFT, RIGHT, (("k", "k"),), "full")
    host = Host(lambda: make(Prob(), RowWindow(100, 100), shape=shape, archive=True), budget=LEAST_BUDGET)
    for step in range(6):
        numbers = np.arange(130) + step * 130
        host.step([rows(side, numbers + side * 10_000, 2 * numbers + side) for side in (0, 1)])
    out = host.results()
    closed = {(side, number) for side in (0, 1) for number in range(6 * 130 - 100)}
    noted = {(row["_side"], row["_number"]) for row in out["residence"].to_pylist()} & closed
    assert out["results"].num_rows + len(noted) == len(closed)


@pytest.mark.parametrize(("how", "told"), [("full", [(1, 900), (0, 950), (1, 40)]), ("inner", [])])
def test_the_archive_of_an_outer_join_knows_event_times_of_rows_that_it_does_not_have(how, told):
    """Rows without key close windows, too; only catch-up could not know it."""
    shape = Shape(LEFT, RIGHT, (("k", "k"),), how)
    host = Host(lambda: make(Prob(), TimeWindow(100, 100), shape=shape, archive=True), event_time=EventTime(TIMES))
    host.step([rows(0, [1, None], [20, 10]), rows(1, [1, None], [20, 900])])
    host.step([rows(0, [2, None], [30, 950]), rows(1, [None], [40])])
    notes = host.results()["residence"].to_pylist()
    assert [(row["_side"], row["_left"]) for row in notes if row["_reason"] == AHEAD] == told


@pytest.mark.parametrize("budget", [LEAST_BUDGET, 1 << 20], ids=["64KB", "1MB"])
@pytest.mark.parametrize("policy", [Exact(), Prob()], ids=["exact", "prob"])
def test_a_first_burst_of_narrow_rows_with_many_keys_keeps_to_the_budget(policy, budget):
    """What is known of a row is more than the row: it counts while rows are taken in."""
    schemas, window, times = (LEFT.remove(2), RIGHT.remove(2)), TimeWindow(1 << 40, 1 << 40), TIMES
    if not policy.lossy:
        schemas, window, times = (pa.schema([LEFT.field("k")]),) * 2, RowWindow(1 << 20, 1 << 20), None
    shape, peak = Shape(*schemas, (("k", "k"),)), 0
    for count in range(budget // 200, budget // 64, budget // 2_000):
        host = Host(lambda: WindowJoin(shape, window, policy, budget=budget, times=times), budget=budget)
        both = [rows(side, np.arange(count) * (2 * side - 1), np.arange(count)).rows for side in (0, 1)]
        try:
            host.step([Portion(side, came.select(schemas[side].names)) for side, came in enumerate(both)])
        except MemoryTooSmall:
            break
        peak = max(peak, host.peak)
    assert peak > 0.7 * budget


def test_rows_that_a_smaller_budget_has_no_room_for_go_before_rows_come():
    """They are not held beyond it while rows of a step meet, and the archive knows that they met none of these."""
    given, window = [(Exact(), 1 << 20)], TimeWindow(10_000, 10_000)
    host = Host(
        lambda: make(given[-1][0], window, given[-1][1], archive=True), event_time=EventTime(TIMES), head_limit=1 << 20
    )
    rng, sent = np.random.default_rng(5), ([], [])
    for step in range(6):
        if step == 4:
            given.append((Prob(), 128 << 10))
            host.budget = 128 << 10
            host.crash()
        portions = [rows(side, rng.integers(0, 180, 300), np.arange(300) + step * 300) for side in (0, 1)]
        for portion in portions:
            sent[portion.side].extend(portion.rows.to_pylist())
        host.step(portions)
    out = host.results()
    archived = [out[channel].to_pylist() for channel in ("archive_left", "archive_right")]
    clock = {"watermark": 1_799, "rows": None}
    missing = naive.missing(SHAPE, window, archived, out["residence"].to_pylist(), TIMES, clock)
    live, found, want = (
        Counter(tuple(row.values()) for row in some)
        for some in (out["results"].to_pylist(), missing, naive.join(SHAPE, window, sent, TIMES, clock))
    )
    assert live + found == want
    assert {row["_left"] for row in out["residence"].to_pylist()} >= {3, 4}


@pytest.mark.parametrize("window", [TimeWindow(10_000, 10_000), RowWindow(1_000, 1_000)])
def test_rows_that_just_fit_after_a_restart_leave_room_for_those_that_come(window):
    """What one budget, or the exact join, keeps free for a step is more than is left of another."""
    count = 380 if window.timed else 190
    given = [(Exact(), 512 << 10)]
    host = Host(lambda: make(given[-1][0], window, given[-1][1]), event_time=EventTime(TIMES), head_limit=1 << 20)
    for step in range(4):
        if step == 2:
            given.append((Prob(), 128 << 10))
            host.budget = 128 << 10
            host.crash()
        host.step([rows(side, np.arange(count), np.arange(count) + step * count) for side in (0, 1)])
    assert host.kernel.memory() > 64 << 10


def test_rows_that_have_left_the_window_do_not_count_against_a_smaller_budget():
    """A restart takes over all that waited; what the first step lets go of at once was never of the new budget."""
    given = [512 << 10]
    host = Host(
        lambda: make(Prob(), TimeWindow(10_000, 10_000), given[-1]), event_time=EventTime(TIMES), head_limit=1 << 20
    )
    host.step([rows(side, np.arange(1_400), np.arange(1_400)) for side in (0, 1)])
    host.step([rows(side, [1], [50_000]) for side in (0, 1)])
    assert host.kernel.memory() > 128 << 10
    given.append(128 << 10)
    host.budget = 128 << 10
    host.crash()
    host.step([rows(side, [2], [50_001]) for side in (0, 1)])
    assert host.kernel.memory() < 128 << 10


def test_key_counts_keep_to_a_smaller_budget():
    """Memory may change at a restart; what was counted in more of it is let go."""
    first, again, chunks = KeyEstimates("k", 1 << 17, 1e6), KeyEstimates("k", 1 << 12, 1e6), {}
    for step in range(202):  # so many that counts are written as a whole
        first.add(np.arange(20, dtype=np.uint64) + np.uint64(20 * step), float(step))
        log = ChunkLog()
        first.store(step, log)
        changes = log.take()
        chunks = {name: blob for name, blob in chunks.items() if name not in changes.gone} | dict(changes.new)
    again.restore(first.head(), chunks)
    assert first.head()["whole"] is not None
    assert again.memory() <= 1 << 12 < first.memory()


# -- what is told ------------------------------------------------------------------------------------------------------


def test_exact_stops_where_memory_does_not_suffice_and_says_what_to_do():
    kernel = make()
    with pytest.raises(MemoryTooSmall, match="window does not fit") as caught:
        play(kernel, [[rows(0, np.arange(500), np.full(500, t))] for t in range(100)])
    assert 'policy="prob"' in str(caught.value)
    with pytest.raises(MemoryTooSmall, match="cannot hold a window"):
        make(budget=1_000)
    with pytest.raises(MemoryTooSmall, match="the estimator fewer"):
        make(Prob(), estimator=LEAST_BUDGET)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (lambda left, right: left["nothing"], "raised KeyError"),
        (lambda left: left, "raised TypeError"),
        (lambda left, right: True, "gave 1 value for 3 rows"),
        (lambda left, right: pa.array([True]), "gave 1 value for 3 rows"),
        (lambda left, right: None, "gave 1 value for 3 rows"),
        (lambda left, right: [True] * 4, "gave 4 values for 3 rows"),
    ],
)
def test_a_condition_that_does_not_answer_for_each_row_is_told(condition, said):
    rows = pa.record_batch({"n": [1, 2, 3]})
    with pytest.raises(PredicateFailed, match=said):
        truths(condition, rows, rows)


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (lambda keys, ages, partner: partner * np.nan, "returned NaN"),
        (lambda keys, ages, partner: partner[:3], "scores for"),
        (lambda keys, ages, partner: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_a_policy_that_returns_nan_is_told(score, said):
    kernel = make(Custom(score))
    with pytest.raises(PredicateFailed, match=said):
        play(kernel, [[rows(0, np.arange(500), np.full(500, t))] for t in range(100)])


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (lambda: TimeWindow(0, 5), "no length"),
        (lambda: TimeWindow(5, -1), "no length"),
        (lambda: RowWindow(0, 1), "holds nothing"),
        (lambda: LandmarkWindow(-3), "are none"),
    ],
)
def test_windows_without_length_are_refused(window, said):
    with pytest.raises(BadOption, match=said):
        window()
