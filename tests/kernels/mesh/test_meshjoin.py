"""What MESHJOIN promises beside the five questions: slices, waiting, cycles, divisions of the work, reruns."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import RESULTS, SET_ASIDE, Batch, Portion
from penstock.kernels.mesh.budget import LEAST_WINDOW, SLICE_BYTES, least_budget
from penstock.kernels.mesh.meshjoin import STEPS_PER_CYCLE, MeshJoin
from penstock.plan.conditions import as_of, band
from penstock.plan.conditions import range as value_range
from penstock.plan.join_table import JoinTablePlan
from penstock.tables import prepare, table
from penstock.tables.keys import hash_keys, slot_of
from penstock.testing import Host, assert_same_rows, bag, shuffled

STREAM = pa.schema([("id", pa.int64()), ("k", pa.int64())])
#: A slice of results and what stands beside it for a moment.
SLICE = 6 << 20


def stored(folder, rows, page=1_000):
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / "a.parquet", row_group_size=page)
    return table(folder, key="k")


def numbered(keys, first=0):
    keys = np.asarray(keys, np.int64)
    return pa.table({"id": pa.array(np.arange(first, first + len(keys))), "k": pa.array(keys)})


def join(stream, rows):
    """DuckDB's join, as the judge."""
    return duckdb.sql("SELECT s.*, r.* EXCLUDE k FROM stream s JOIN rows r USING (k)").to_arrow_table()


def mesh(over, **options):
    budget = options.pop("budget", least_budget(over.pages) + (1 << 20))
    return Host(lambda: MeshJoin(STREAM, over, on=["k"], budget=budget, **options), budget=budget)


@pytest.mark.parametrize("text", ["", "a longer text that every row carries" * 3])
def test_hot_keys_leave_in_bounded_slices(tmp_path, text):
    rows = pa.table({"k": [7] * 3_000, "n": range(3_000), "t": [text] * 3_000})
    host = mesh(stored(tmp_path / "t", rows))
    sizes = [e.rows.nbytes for e in [*host.step(numbered([7] * 700)), *host.drain()]]
    assert host.rows[RESULTS] == 2_100_000
    assert max(sizes) <= SLICE
    assert host.peak <= host.budget


@pytest.mark.parametrize("side", ["stream", "table"])
def test_one_wide_value_that_meets_many_rows_leaves_in_bounded_slices(tmp_path, side):
    """The widths are far from their mean, so a mean says nothing of what a slice will hold."""
    wide, narrow = ["x" * 300_000], ["y"]
    schema = pa.schema([("k", pa.int64()), ("pad", pa.string())])
    few = pa.table({"k": [1, *range(100, 3_000)], "pad": wide + narrow * 2_900}, schema=schema)
    many = pa.table({"k": [1] * 2_000, "pad": ["z"] * 2_000}, schema=schema)
    stream, rows = (few, many) if side == "stream" else (many, few)
    over = stored(tmp_path / "t", rows.rename_columns(["k", "name"]))
    budget = least_budget(over.pages) + (4 << 20)
    host = Host(lambda: MeshJoin(schema, over, on=["k"], budget=budget), budget=budget)
    sizes = [e.rows.nbytes for e in [*host.step(stream), *host.drain()]]
    assert host.rows[RESULTS] == 2_000
    assert max(sizes) <= SLICE


def test_results_of_many_pages_wait_in_no_more_batches_than_a_slice_has_room_for(tmp_path):
    """A batch of one row takes up some kilobytes, whatever the row has."""
    rows = pa.table({"k": np.arange(120_000), **{f"n{i}": np.arange(120_000) for i in range(7)}})
    over = prepare(stored(tmp_path / "t", rows, page=50_000), tmp_path / "prepared", key="k", page_bytes=4 << 10)
    reader = over.open()
    one_of_each = [int(reader.keys(page, np.array([0])).column(0)[0].as_py()) for page in over.pages]
    assert len(one_of_each) > 1_500
    out = mesh(over).run([numbered(one_of_each)])[RESULTS]
    assert out.num_rows == len(one_of_each)
    assert max(len(chunk) for chunk in out.column("k").chunks) * 2_048 <= SLICE_BYTES / 2


def test_a_full_window_is_not_there_twice_while_it_is_put_together(tmp_path, monkeypatch):
    over = stored(tmp_path / "t", pa.table({"k": range(10), "n": range(10)}))
    schema, budget = pa.schema([("k", pa.int64()), ("pad", pa.string())]), least_budget(over.pages) + (16 << 20)
    kernel = MeshJoin(schema, over, on=["k"], budget=budget)
    plain, before, held = pa.concat_batches, pa.total_allocated_bytes(), []

    def watched(batches):
        whole = plain(batches)
        held.append(pa.total_allocated_bytes() - before)
        return whole

    monkeypatch.setattr(pa, "concat_batches", watched)
    columns = [range(100, 4_100), ["x" * 100] * 4_000]
    portions = (
        Portion(0, pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema))
        for _ in range(60)
    )
    assert list(kernel.step(Batch(portions), 0)) == []
    assert kernel.metrics()["cycles"] > 1
    assert budget / 2 < max(held) <= budget


def test_a_step_larger_than_the_window_goes_round_several_times(tmp_path):
    rng = np.random.default_rng(5)
    rows = pa.table({"k": rng.integers(0, 5_000, 4_000), "n": np.arange(4_000)})
    over = stored(tmp_path / "t", rows, page=500)
    host = mesh(over, budget=least_budget(over.pages))
    stream = numbered(rng.integers(0, 6_000, 20_000))
    host.step(stream)
    assert host.kernel.metrics()["cycles"] >= 20_000 * 25 / LEAST_WINDOW - 1
    assert not host.kernel.pending(), "after an overflow nothing may be left waiting"
    assert_same_rows(host.results()[RESULTS], join(stream, rows))
    assert host.peak <= host.budget


@pytest.mark.parametrize("pages_per_step", [None, 1, 3])
def test_a_row_waits_for_one_cycle_at_the_most(tmp_path, pages_per_step):
    rows = pa.table({"k": np.arange(2_000), "n": np.arange(2_000)})
    over = stored(tmp_path / "t", rows, page=100)
    host = mesh(over, pages_per_step=pages_per_step)
    host.step(numbered([3]))
    waited = 1
    while host.kernel.pending():
        host.step(numbered([]))
        waited += 1
    assert waited == (STEPS_PER_CYCLE if pages_per_step is None else -(-20 // pages_per_step)) - (
        # 20 pages in steps of three: the eighth step of the default finds nothing left to do.
        1 if pages_per_step is None else 0
    )
    assert host.rows[RESULTS] == 1


@pytest.mark.parametrize("waiting", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_a_step_run_again_in_another_order_emits_the_same_bag(tmp_path, seed, waiting):
    """Also where some of its rows are too large for the window, wherever in the step they come."""
    schema = pa.schema([("k", pa.int64()), ("pad", pa.binary())])
    rows = pa.table({"k": np.arange(40) % 8, "n": np.arange(40)})
    over = stored(tmp_path / "t", rows, page=10)
    budget = least_budget(over.pages)
    rng = np.random.default_rng(seed)
    pads = [b"!" * LEAST_WINDOW if wide else b"" for wide in rng.random(6) < 0.3]
    step = pa.table({"k": rng.integers(0, 8, 6), "pad": pa.array(pads, pa.binary())}, schema=schema)
    emitted = []
    for order in range(5):
        host = Host(lambda: MeshJoin(schema, over, on=["k"], budget=budget, pages_per_step=1), budget=budget)
        host.step(pa.table({"k": [1] * waiting, "pad": [b"waits"] * waiting}, schema=schema))
        out = host.step(shuffled(order)([Portion(0, batch) for batch in step.to_batches()]))
        emitted.append({c: bag(_all(out, c, host)) for c in (RESULTS, SET_ASIDE)})
    assert all(one == emitted[0] for one in emitted)


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
@pytest.mark.parametrize("division", ["pages", "key"])
def test_slots_share_the_work_and_none_of_the_results(tmp_path, division, slots):
    rng = np.random.default_rng(slots)
    rows = pa.table({"k": rng.integers(0, 300, 900), "n": np.arange(900)})
    over = stored(tmp_path / "t", rows, page=250)
    if division == "key":
        over = prepare(over, tmp_path / "prepared", key="k", page_bytes=4 << 10)
    plan = JoinTablePlan.checked(STREAM, over, on=("k",), memory=64 << 20, slots=slots, division=division)
    stream = numbered(rng.integers(0, 400, 1_000))
    owner = slot_of(hash_keys([stream.column("k").combine_chunks()]), slots)
    parts, counted = [], 0.0
    for slot in range(slots):
        host = Host(lambda slot=slot: plan.make(slot))
        host.step(stream if division == "pages" else stream.filter(pa.array(owner == slot)))
        counted += host.kernel.metrics()["rows_in"]
        host.drain()
        parts.append(host.results()[RESULTS])
    assert_same_rows(pa.concat_tables(parts), join(stream, rows))
    assert counted == 1_000, "rows are counted once, whoever holds them"


def test_an_empty_table_joins_nothing_and_keeps_nothing(tmp_path):
    over = stored(tmp_path / "t", pa.table({"k": pa.array([], pa.int64()), "n": pa.array([], pa.int64())}))
    host = mesh(over)
    assert host.step(numbered(range(1_000))) == []
    assert not host.kernel.pending()
    assert not host.store.chunks


def test_rows_that_wait_refuse_another_version_of_the_table(tmp_path):
    old = stored(tmp_path / "t", pa.table({"k": np.arange(100), "n": np.arange(100)}), page=10)
    host = mesh(old, pages_per_step=1)
    host.step(numbered([5]))
    new = stored(tmp_path / "t", pa.table({"k": np.arange(100), "n": np.arange(100) + 1}), page=10)
    later = mesh(new, pages_per_step=1)
    later.store = host.store
    with pytest.raises(StateDamaged, match="another version"):
        later.step(numbered([6]))


def test_rows_that_wait_refuse_a_budget_without_room_for_them(tmp_path):
    over = stored(tmp_path / "t", pa.table({"k": np.arange(100), "n": np.arange(100)}), page=10)
    host = mesh(over, pages_per_step=1)
    host.step(numbered(np.arange(10_000) % 200))
    less = mesh(over, pages_per_step=1, budget=least_budget(over.pages))
    less.store = host.store
    with pytest.raises(MemoryTooSmall, match="10,000 rows that wait from before"):
        less.step(numbered([6]))
    again = mesh(over, pages_per_step=1)
    again.store = host.store
    again.drain()
    assert host.rows[RESULTS] + again.rows[RESULTS] == 5_000
    less.store = again.store
    assert less.run([numbered([6])])[RESULTS].num_rows == 1


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("by_time", [False, True])
def test_one_column_of_the_stream_may_equal_two_of_the_key(tmp_path, how, by_time):
    rows = pa.table({"a": [1, 2, 3], "b": [1, 9, 3], "since": [0, 0, 4], "until": [9, 9, 9]})
    pq.write_table(rows, tmp_path / "a.parquet")
    over = table(tmp_path, key=["a", "b"])
    stream = numbered([1, 2, 3, 4])
    on = as_of(["k", "k"], time="k", since="since", until="until") if by_time else ("k", "k")
    plan = JoinTablePlan.checked(stream.schema, over, on=on, memory="64MB", slots=1, how=how)
    found = Host(lambda: plan.make(0)).run([stream])[RESULTS].column("k").to_pylist()
    met = [1] if by_time else [1, 3]
    want = {"inner": met, "left": [1, 2, 3, 4], "semi": met, "anti": [n for n in (1, 2, 3, 4) if n not in met]}
    assert sorted(found) == want[how]


def test_nothing_waiting_takes_up_the_new_version(tmp_path):
    old = stored(tmp_path / "t", pa.table({"k": np.arange(100), "n": np.arange(100)}), page=10)
    host = mesh(old)
    host.step(numbered([5]))
    host.drain()
    new = stored(tmp_path / "t", pa.table({"k": np.arange(50), "n": np.arange(50) + 1}), page=10)
    later = mesh(new)
    later.store = host.store
    assert later.run([numbered([5])])[RESULTS].column("n").to_pylist() == [6]


def test_the_counts_add_up(tmp_path):
    """Every row that came is joined, unmatched, without a key, set aside, or waiting."""
    schema = pa.schema([("k", pa.int64()), ("pad", pa.binary())])
    rows = pa.table({"k": np.arange(50), "n": np.arange(50)})
    over = stored(tmp_path / "t", rows, page=10)
    budget = least_budget(over.pages)
    host = Host(lambda: MeshJoin(schema, over, on=["k"], budget=budget, pages_per_step=1), budget=budget)
    keys = [*range(40, 60), None, None, 3, 3]
    pads = [b""] * 22 + [b"!" * LEAST_WINDOW, b""]
    totals = dict.fromkeys(("rows_in", "rows_without_key", "rows_set_aside", "rows_out"), 0.0)
    arrived = pa.table({"k": keys, "pad": pads}, schema=schema)
    for step in (arrived.slice(0, 5), None, arrived.slice(5), None):
        if step is None and not host.kernel.pending():
            continue
        emitted = host.tick() if step is None else host.step(step)
        metrics = host.kernel.metrics()
        assert metrics["rows_out"] == sum(e.rows.num_rows for e in emitted if e.channel == RESULTS)
        totals = {name: value + metrics[name] for name, value in totals.items()}
    assert totals == {"rows_in": 24, "rows_without_key": 2, "rows_set_aside": 1, "rows_out": 11}
    assert metrics["rows_waiting"] == 0
    assert host.rows[RESULTS] == 11
    assert host.rows[SET_ASIDE] == 1


def test_a_budget_below_the_least_is_refused(tmp_path):
    over = stored(tmp_path / "t", pa.table({"k": [1], "n": [1]}))
    least = least_budget(over.pages)
    MeshJoin(STREAM, over, on=["k"], budget=least)
    with pytest.raises(MemoryTooSmall, match=str(least)):
        MeshJoin(STREAM, over, on=["k"], budget=least - 1)


def _all(emissions, channel, host):
    return pa.Table.from_batches(
        [e.rows for e in emissions if e.channel == channel], schema=host.kernel.channels[channel]
    )


def test_example_3_1_of_the_paper(tmp_path):
    """Three pages; one row a loop; one page a loop, then two: what was joined with what, and who leaves."""
    rows = pa.table({"k": [7, 7, 7], "page": [0, 1, 2]})
    over = stored(tmp_path / "t", rows, page=1)
    kernel = MeshJoin(STREAM, over, on=["k"], budget=least_budget(over.pages) + (1 << 20), pages_per_step=1)
    joined = {}

    def loop(row, pages):
        kernel._pages_per_step = pages
        for emission in kernel.step(Batch(iter([Portion(0, numbered([7], row).to_batches()[0])])), 0):
            for found in emission.rows.to_pylist():
                joined.setdefault(found["id"], []).append(found["page"])
        return [packet.first for packet in kernel._window.packets]

    assert loop(0, 1) == [0]
    assert joined == {0: [0]}
    assert loop(1, 1) == [0, 1]
    assert joined == {0: [0, 1], 1: [1]}
    assert loop(2, 2) == [2], "s0 leaves after page 2, s1 after page 0"
    assert joined == {0: [0, 1, 2], 1: [1, 2, 0], 2: [2, 0]}


@pytest.mark.parametrize("how", ["left", "semi", "anti"])
@pytest.mark.parametrize("pages_per_step", [1, None])
def test_what_a_row_lacks_is_remembered_over_steps_and_crashes(tmp_path, how, pages_per_step):
    rng = np.random.default_rng(11)
    rows = pa.table({"k": rng.integers(0, 300, 900), "n": np.arange(900)})
    over = stored(tmp_path / "t", rows, page=100)
    host = mesh(over, how=how, pages_per_step=pages_per_step)
    stream = numbered(rng.integers(0, 600, 2_000))
    for start in range(0, 2_000, 250):
        host.step(stream.slice(start, 250))
        host.crash()
    host.drain()
    text = {
        "left": "SELECT s.*, r.* EXCLUDE k FROM stream s LEFT JOIN rows r USING (k)",
        "semi": "SELECT * FROM stream s SEMI JOIN rows r USING (k)",
        "anti": "SELECT * FROM stream s ANTI JOIN rows r USING (k)",
    }
    assert_same_rows(host.results()[RESULTS], duckdb.sql(text[how]).to_arrow_table())


@pytest.mark.parametrize("prepared", [False, True])
def test_pages_that_can_have_no_partner_are_not_read(tmp_path, prepared):
    """Ordered by key, statistics tell; ordered by hash, the hashes of the page do."""
    rows = pa.table({"k": np.arange(20_000), "n": np.arange(20_000)})
    over = stored(tmp_path / "t", rows, page=500)
    if prepared:
        over = prepare(over, tmp_path / "prepared", key="k", page_bytes=8 << 10)
    host = mesh(over, pages_per_step=len(over.pages))
    stream = numbered([7_000, 7_001, 7_300, 7_001])
    host.step(stream)
    assert_same_rows(host.results()[RESULTS], join(stream, rows))
    met = len(over.pages) - host.kernel.metrics()["pages_skipped"]
    assert met == (3 if prepared else 1)


def test_pages_of_a_band_and_a_range_are_skipped_too(tmp_path):
    rows = pa.table({"low": np.arange(0, 100_000, 10), "high": np.arange(0, 100_000, 10) + 4, "n": np.arange(10_000)})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t" / "a.parquet", row_group_size=500)
    stream = numbered([52_003, 52_017, 52_018])
    for condition, key, want in (
        (band("k", below=5, above=0), "low", "r.low BETWEEN s.k - 5 AND s.k"),
        (value_range("k"), ["low", "high"], "s.k BETWEEN r.low AND r.high"),
    ):
        over = table(tmp_path / "t", key=key)
        budget = least_budget(over.pages, condition) + (1 << 20)
        host = Host(lambda o=over, c=condition, b=budget: MeshJoin(STREAM, o, on=c, budget=b, pages_per_step=20))
        host.step(stream)
        assert host.kernel.metrics()["pages_skipped"] == 19
        judge = duckdb.sql(f"SELECT s.*, r.* FROM stream s JOIN rows r ON {want}").to_arrow_table()
        assert_same_rows(host.results()[RESULTS], judge)


def test_a_band_of_floats_ends_where_the_sum_does(tmp_path):
    """`k - 0.1 <= low` and `k <= low + 0.1` are not the same for floats; the condition is the first."""
    tenths = np.round(np.arange(-300, 300) * 0.1, 1)
    rows = pa.table({"low": tenths, "n": np.arange(600)})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t" / "a.parquet", row_group_size=100)
    over = table(tmp_path / "t", key="low")
    stream = pa.table({"id": np.arange(600), "k": tenths})
    condition = band("k", below=0.1, above=0.3)
    budget = least_budget(over.pages, condition) + (1 << 20)
    host = Host(lambda: MeshJoin(stream.schema, over, on=condition, budget=budget))
    host.step(stream)
    host.drain()
    low, k = tenths[None, :], tenths[:, None]
    assert np.any((k - 0.1 <= low) != (k <= low + 0.1)), "a case where it matters"
    assert host.rows[RESULTS] == np.count_nonzero((k - 0.1 <= low) & (low <= k + 0.3))
    judge = "SELECT s.*, r.* FROM stream s JOIN rows r ON low BETWEEN k - 0.1::DOUBLE AND k + 0.3::DOUBLE"
    assert_same_rows(host.results()[RESULTS], duckdb.sql(judge).to_arrow_table())


@pytest.mark.parametrize(("below", "above"), [(10, 10), (-1, 5), (5, -1), ((1 << 63) - 1, (1 << 63) - 1)])
def test_a_band_ends_where_the_numbers_do(tmp_path, below, above):
    most = (1 << 63) - 1
    values = [-most - 1, -most, -5, 0, 5, most - 1, most]
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"low": values}), tmp_path / "t" / "a.parquet", row_group_size=2)
    over = table(tmp_path / "t", key="low")
    condition = band("k", below=below, above=above)
    host = Host(lambda: MeshJoin(STREAM, over, on=condition, budget=least_budget(over.pages, condition) + (1 << 20)))
    found = host.run([numbered(values)])[RESULTS]
    want = [(ours, theirs) for ours in values for theirs in values if ours - below <= theirs <= ours + above]
    assert sorted(zip(found["k"].to_pylist(), found["low"].to_pylist(), strict=True)) == want


def test_a_band_may_be_wider_than_all_numbers(tmp_path):
    ends = [-(1 << 63), -1, 0, (1 << 63) - 1]
    over = stored(tmp_path / "t", pa.table({"k": ends}))
    stream = pa.table({"s": pa.array(ends)})
    budget = least_budget(over.pages) + (1 << 20)
    for reach in (1 << 63, (1 << 64) - 1, 1 << 70):
        condition = band("s", below=reach, above=reach)
        host = Host(lambda on=condition: MeshJoin(stream.schema, over, on=on, budget=budget))
        expected = [(s, k) for s in ends for k in ends if s - reach <= k <= s + reach]
        assert_same_rows(
            host.run([stream])[RESULTS], pa.table({"s": [p[0] for p in expected], "k": [p[1] for p in expected]})
        )


def test_validity_may_be_of_a_wider_type_than_the_time_of_the_stream(tmp_path):
    over = stored(tmp_path / "t", pa.table({"k": [1, 1], "since": [0, 7], "until": [7, (1 << 63) - 1]}))
    stream = pa.table({"s": pa.array([1, 1]), "at": pa.array([5, 9], pa.int32())})
    condition = as_of("s", time="at", since="since", until="until")
    host = Host(lambda: MeshJoin(stream.schema, over, on=condition, budget=least_budget(over.pages) + (1 << 20)))
    assert sorted(row["since"] for row in host.run([stream])[RESULTS].to_pylist()) == [0, 7]
