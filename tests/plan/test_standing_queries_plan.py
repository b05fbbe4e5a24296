"""The plan of standing queries: what is refused before anything runs, and rows that meet are sent to one slot."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption, BadQuery, MemoryTooSmall, PlanError, TableChanged
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


@pytest.mark.parametrize(
    ("error", "match", "options"),
    [
        (BadOption, "no queries", {"queries": None}),
        (BadOption, "twice", {"within": "1 minute"}),
        (BadOption, "output='rows'", {"output": "rows"}),
        (BadOption, "split", {"split": [1.0]}),
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


def test_a_file_that_changes_before_it_is_read_is_noticed(tmp_path):
    pq.write_table(ONE, tmp_path / "queries.parquet")
    kernel = checked(queries=tmp_path / "queries.parquet").make(0)
    pq.write_table(pa.concat_tables([ONE, ONE]), tmp_path / "queries.parquet")
    with pytest.raises(TableChanged, match=r"queries\.parquet"):
        kernel._load()


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
