"""The plan of standing queries: what is refused before anything runs, and rows that meet are sent to one slot."""

from __future__ import annotations

import pickle
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption, BadQuery, MemoryTooSmall, PlanError, TableChanged
from penstock.kernels.contract import Batch, Portion
from penstock.plan.routing import RangeSide
from penstock.plan.standing_queries import StandingQueriesPlan, band_join, select_join

LEFT = pa.schema([("k", pa.int64()), ("a", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
RIGHT = pa.schema([("key", pa.int64()), ("c", pa.int32()), ("since", pa.timestamp("us", "UTC"))])
SELECT = select_join(("k", "key"), left="a", right="c")
ONE = pa.table(dict(zip(["query", *SELECT.bounds], [[1], [0.0], [1.0], [0], [9]], strict=True)))


def checked(**options):
    options = {"shape": SELECT, "queries": ONE, "memory": "64MB", "slots": 2, "keep": 10} | options
    return StandingQueriesPlan.checked(options.pop("left", LEFT), options.pop("right", RIGHT), **options)


def test_a_plan_travels_and_explains_itself():
    plan = pickle.loads(pickle.dumps(checked()))
    assert "1 to begin with" in plan.explain()
    assert plan.make(1).channels == plan.channels
    assert [side.key for side in plan.sides] == [("k",), ("key",)]


@pytest.mark.parametrize("column", [["a"], ["a", "b"], {"a": 1}, None])
def test_a_band_is_of_one_column_of_each_side(column):
    with pytest.raises(BadOption, match=r"left=.* does not name one column"):
        band_join(left=column, right="c")


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (BadOption, "no queries", {"queries": None}),
        (BadOption, "twice", {"within": "1 minute", "time": ("at", "since")}),
        (BadOption, "needs the event time", {"within": "1 minute", "keep": None}),
        (BadOption, "output='rows'", {"output": "rows"}),
        (BadOption, "split", {"split": [1.0]}),
        (
            BadOption,
            "not a number",
            {"shape": band_join(left="a", right="c"), "split": ["x"], "queries": None, "changes": pa.schema([])},
        ),
        (BadOption, "two ranges", {"shape": select_join(("k", "key"), left=["a", "a"], right="c")}),
        (
            BadQuery,
            "'op' is int64, not text",
            {"changes": pa.schema([*ONE.schema, ("op", pa.int64()), ("version", pa.int64())])},
        ),
        (MemoryTooSmall, "cannot hold 1 queries", {"memory": "1MB"}),
        (PlanError, "Both streams have 'a'", {"right": RIGHT.append(pa.field("a", pa.int64()))}),
        (
            BadQuery,
            "where a duration is compared",
            {
                "shape": band_join(left="at", right="since"),
                "queries": pa.table({"query": [1], "band_from": [0], "band_to": [5]}),
            },
        ),
        (BadQuery, "is nothing that a range could have", {"shape": band_join(left="at", right="c")}),
        (PlanError, "2 faults", {"slots": 0, "output": "rows"}),
    ],
)
def test_bad_plans_are_refused(error, match, options):
    with pytest.raises(error, match=match):
        checked(**options)


@pytest.mark.parametrize("groups", [20, 80_000])
def test_the_memory_that_is_asked_for_is_enough(tmp_path, groups):
    """However many groups queries make: each of them takes something, too."""
    begin = np.arange(80_000) % groups * 10
    bounds = dict(zip(SELECT.bounds, [begin - 1.0, begin + 1.0, begin, begin + 1], strict=True))
    pq.write_table(pa.table({"query": np.arange(80_000), **bounds}), tmp_path / "queries.parquet")
    options = {"queries": str(tmp_path / "queries.parquet"), "strategy": "ssi", "slots": 1, "output": "counts"}
    with pytest.raises(MemoryTooSmall, match="cannot hold 80,000 queries") as refused:
        checked(**options, memory="1MB")
    least = re.search('memory="(.*?)"', str(refused.value)).group(1)
    kernel = checked(**options, memory=least).make(0)
    now = pa.array([0], LEFT.field("at").type)
    rows = [pa.record_batch([pa.array([1]), pa.array([10], s.field(1).type), now], schema=s) for s in (LEFT, RIGHT)]
    found = [emission.rows for emission in kernel.step(Batch([Portion(n, r) for n, r in enumerate(rows)]), 0)]
    assert pa.Table.from_batches(found).num_rows == 80_000 // groups


def test_rows_kept_by_one_event_time_are_not_taken_up_by_another():
    left = LEFT.append(pa.field("sent", LEFT.types[2]))
    one, other = (checked(left=left, keep=None, within="1 minute", time=(name, "since")) for name in ("at", "sent"))
    assert one.identity() != other.identity()


def test_a_file_that_changes_before_it_is_read_is_noticed(tmp_path):
    pq.write_table(ONE, tmp_path / "queries.parquet")
    kernel = checked(queries=tmp_path / "queries.parquet").make(0)
    pq.write_table(pa.concat_tables([ONE, ONE]), tmp_path / "queries.parquet")
    with pytest.raises(TableChanged, match=r"queries\.parquet"):
        kernel._load()


def test_bounds_beyond_all_values_are_sides_without_limit():
    most = 2**63 - 1
    stamps = [
        pa.array([value], pa.int64()).cast(LEFT.types[2]) for value in (-62_135_596_800_000_000, 253402300799999999)
    ]
    shape = select_join(("k", "key"), left="at", right="c")
    found = pa.table(dict(zip(["query", *shape.bounds], [[1], *stamps, [-most], [most]], strict=True)))
    bounds = checked(shape=shape, queries=found).queries.load().bounds[0]
    assert (np.abs(bounds) >= 2**53).all()
    with pytest.raises(BadQuery, match="beyond 2"):
        checked(queries=ONE.set_column(3, "right_c_from", pa.array([2**53 + 1])).set_column(4, "right_c_to", [[most]]))


def test_bands_that_end_where_differences_are_rounded_are_refused():
    """2^53 - (-1) is 2^53 as a float: it would lie in a band that ends there."""
    band = band_join(left="k", right="key")
    one = pa.table({"query": [1], "band_from": [0], "band_to": [2**53]})
    with pytest.raises(BadQuery, match="beyond 2"):
        checked(shape=band, queries=one)
    checked(shape=band, queries=one.set_column(2, "band_to", pa.array([2**53 - 1])))
    checked(shape=band, queries=one.set_column(2, "band_to", pa.array([2**63 - 1])))


def test_bounds_finer_than_a_microsecond_let_in_what_lies_between_them():
    stamp = pa.timestamp("ns", "UTC")
    shape = select_join(("k", "key"), left="at", right="c")
    ends = [pa.array([value], stamp) for value in (-1_500, 2_999)]
    found = pa.table(dict(zip(["query", *shape.bounds], [[1], *ends, [0], [1]], strict=True)))
    assert checked(shape=shape, queries=found).queries.load().bounds[0].tolist() == [-1.0, 2.0, 0.0, 1.0]


def test_every_slot_begins_with_the_first_rows():
    """One that began later would have the queries of then."""
    assert all(side.calls_all for side in checked().sides)


def test_many_queries_do_not_travel_in_the_plan():
    many = pa.table({"query": np.arange(200_000), **{name: np.zeros(200_000) for name in SELECT.bounds}})
    with pytest.raises(BadOption, match="Parquet first"):
        checked(queries=many.set_column(3, SELECT.bounds[2], pa.array(np.zeros(200_000))))


def test_bands_beyond_the_reach_are_refused():
    band = band_join(left="a", right="c")
    queries = pa.table({"query": [1], "band_from": [-5], "band_to": [7]})
    plan = checked(shape=band, queries=queries, split=[10.0])
    assert plan.reach == (-5.0, 7.0)
    with pytest.raises(BadQuery, match="beyond reach"):
        checked(shape=band, queries=queries, split=[10.0], reach=(-1.0, 7.0))


numbers = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 2))


@settings(max_examples=60)
@given(
    left=st.lists(numbers, min_size=1, max_size=8),
    right=st.lists(numbers, min_size=1, max_size=8),
    split=st.lists(numbers, unique=True, max_size=4).map(sorted),
    band=st.tuples(numbers, numbers).map(sorted),
)
def test_rows_that_meet_are_sent_to_one_slot(left, right, split, band):
    schema = pa.schema([("v", pa.float64())])
    ours = RangeSide(schema, column="v", split=tuple(split))
    theirs = RangeSide(schema, column="v", split=tuple(split), reach=(-band[1], -band[0]))
    mine, other = (side.places(pa.record_batch({"v": values})) for side, values in ((ours, left), (theirs, right)))
    assert sorted(np.concatenate(mine).tolist()) == list(range(len(left))), "a left row has one slot"
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            if band[0] <= b - a <= band[1]:
                assert sum(i in here and j in there for here, there in zip(mine, other, strict=True)) == 1


def test_rows_that_meet_by_a_rounded_difference_are_sent_to_one_slot():
    """0.3 - (-1e-17) is 0.3: the band has it, though the left row is farther away than the band is long."""
    schema = pa.schema([("v", pa.float64())])
    ours = RangeSide(schema, column="v", split=(-5e-18,))
    theirs = RangeSide(schema, column="v", split=(-5e-18,), reach=(-0.3, 0.0))
    mine, other = (side.places(pa.record_batch({"v": [v]})) for side, v in ((ours, -1e-17), (theirs, 0.3)))
    assert any(len(here) and len(there) for here, there in zip(mine, other, strict=True))


BAND = band_join(left="k", right="key")
BANDS = pa.table({"query": [1], "band_from": [-9], "band_to": [9]})
DIVIDED = pytest.mark.parametrize("divided", [{}, {"split": [5.0], "reach": (-9.0, 9.0)}])


def sent(plan, side, rows, slot):
    """What of the rows goes to a slot."""
    side = plan.sides[side]
    return rows.take(pa.array(side.places(rows)[slot])) if isinstance(side, RangeSide) else rows


@DIVIDED
def test_right_rows_that_go_to_several_slots_are_told_of_once(divided):
    plan = checked(shape=BAND, queries=BANDS, keep=None, within="1 minute", time=("at", "since"), **divided)
    # One that is late, one beyond what is compared exactly, one that meets nothing.
    times = pa.array([10**6, 10**12, 10**12], pa.int64()).cast(RIGHT.types[2])
    rows = pa.record_batch([pa.array([3, 2**60, None]), pa.array([1, 1, 1], pa.int32()), times], schema=RIGHT)
    emitted, counted = Counter(), Counter()
    for slot in range(2):
        kernel = plan.make(slot)
        for emission in kernel.step(Batch([Portion(1, sent(plan, 1, rows, slot))], watermark=10**9), 0):
            emitted[emission.channel] += emission.rows.num_rows
        counted.update(kernel.metrics())
    assert emitted == {"late_right": 1, "set_aside": 1}
    assert [counted[name] for name in ("rows_in", "rows_late", "rows_aside", "rows_unmatched")] == [3, 1, 1, 1]


@DIVIDED
def test_right_rows_that_go_to_several_slots_wait_as_long_as_any(divided):
    plan = checked(shape=BAND, queries=BANDS, keep=10, **divided)
    for slot in range(2):
        kernel = plan.make(slot)
        for _ in range(3):
            rows = pa.record_batch(
                [pa.array([5] * 4), pa.array([1] * 4, pa.int32()), pa.nulls(4, RIGHT.types[2])], schema=RIGHT
            )
            list(kernel.step(Batch([Portion(1, sent(plan, 1, rows, slot))]), 0))
        assert kernel.metrics()["held_rows"] == 12, "ten, in whole micro-batches"


def test_files_of_queries_may_have_numbers_of_several_widths(tmp_path):
    for name, ids, kind in (("a", [1, 2], pa.int32()), ("b", [3], pa.int64())):
        bounds = {column: pa.array([0] * len(ids), kind) for column in SELECT.bounds}
        pq.write_table(pa.table({"query": pa.array(ids, kind), **bounds}), tmp_path / f"{name}.parquet")
    assert checked(queries=tmp_path).queries.load().ids.tolist() == [1, 2, 3]


def test_all_files_of_queries_are_read_and_those_under_way_are_not(tmp_path):
    """Whatever they are called, and in folders of columns as well; hidden ones are not there yet."""
    bounds = {name: [0.0] for name in SELECT.bounds}
    for number, name in enumerate(("000000_0", "team=a/b.parquet", ".c.parquet", "_d.parquet")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"query": [number], **bounds}), tmp_path / name)
    assert sorted(checked(queries=tmp_path).queries.load().ids.tolist()) == [0, 1]


def test_options_that_would_do_nothing_are_refused():
    for option, value in (("time", ("at", "at")), ("lateness", "5 s"), ("reach", (0.0, 1.0))):
        with pytest.raises(BadOption, match=f"{option}= is for"):
            checked(keep=5, **{option: value})


@pytest.mark.parametrize("name", ["QUERY", "Arrived"])
def test_columns_that_only_letter_case_tells_from_ours_are_refused(name):
    with pytest.raises(PlanError, match=f"has a column '{name}', which results need"):
        checked(left=LEFT.append(pa.field(name, pa.int64())))
