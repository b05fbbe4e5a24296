"""`StandingQueries` on Spark equals DuckDB's joins as a bag: shapes, divisions, windows, changes, bad input."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.testing import assert_same_rows
from tests.spark.conftest import FINITE, Desk, eventually

pytestmark = pytest.mark.spark

DAY = datetime(2026, 1, 1, tzinfo=UTC)
SELECT = ps.select_join("product", left="offered", right="wanted")
SEVERAL = ps.select_join(("product", "product"), left=["offered", "price"], right="wanted")
BAND = ps.band_join(left="offered", right="wanted")


def supply(rng, count=600):
    at = [DAY + timedelta(seconds=float(s)) for s in np.sort(rng.uniform(0, 600, count)).round(3)]
    return pa.table(
        {
            "product": pa.array(rng.integers(0, 30, count), mask=rng.random(count) < 0.05),
            "offered": pa.array(rng.integers(0, 1_000, count), mask=rng.random(count) < 0.05),
            "price": pa.array(rng.uniform(0, 10, count)),
            "at": pa.array(at, pa.timestamp("us", "UTC")),
        }
    )


def demand(rng, count=500, key="product"):
    since = [DAY + timedelta(seconds=float(s)) for s in np.sort(rng.uniform(0, 600, count)).round(3)]
    return pa.table(
        {
            key: pa.array(rng.integers(0, 30, count)),
            "wanted": pa.array(rng.integers(0, 1_000, count)),
            "who": pa.array([f"customer {n}" for n in range(count)]),
            "since": pa.array(since, pa.timestamp("us", "UTC")),
        }
    )


def queries(rng, shape, count=80, width=60):
    found = {"query": np.arange(count) + 1_000}
    for name in shape.bounds[::2]:
        if "price" in name:
            begin = rng.uniform(0, 8, count)
            found[name], found[name.replace("from", "to")] = begin, begin + 3
        else:
            begin = rng.integers(0, 900, count)
            found[name], found[name.replace("from", "to")] = begin, begin + rng.integers(0, width, count)
    return pa.table(found)


def judged(left: pa.Table, right: pa.Table, asked: pa.Table, where: str, schema: pa.Schema) -> pa.Table:
    columns = ", ".join(
        "q.query" if name == "query" else f"l.{name}" if name in left.column_names else f"r.{name}"
        for name in schema.names
    )
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in (("l", left), ("r", right), ("q", asked)):
            connection.register(name, rows)
        return connection.sql(f"SELECT {columns} FROM l, r, q WHERE {where}").to_arrow_table().cast(schema)


WHERE = {
    "select": "l.product = r.product AND l.offered BETWEEN left_offered_from AND left_offered_to "
    "AND r.wanted BETWEEN right_wanted_from AND right_wanted_to",
    "several": "l.product = r.product AND l.offered BETWEEN left_offered_from AND left_offered_to "
    "AND l.price BETWEEN left_price_from AND left_price_to AND r.wanted BETWEEN right_wanted_from AND right_wanted_to",
    "band": "r.wanted - l.offered BETWEEN band_from AND band_to",
    "window": "l.product = r.product AND l.offered BETWEEN left_offered_from AND left_offered_to "
    "AND r.wanted BETWEEN right_wanted_from AND right_wanted_to "
    "AND abs(epoch_us(l.at) - epoch_us(r.since)) <= 60000000",
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("select", "band")]


@pytest.mark.parametrize("name", ["several", "window", "band by ranges", *SLOW])
def test_results_are_those_of_the_joins(desk: Desk, name: str):
    rng = np.random.default_rng([*WHERE, "band by ranges"].index(name))
    shape = {"several": SEVERAL, "band": BAND, "band by ranges": BAND}.get(name, SELECT)
    left, right = supply(rng), demand(rng, key="item" if shape is BAND else "product")
    asked = queries(rng, shape, count=12 if shape is BAND else 80, width=5 if shape is BAND else 200)
    pq.write_table(asked, desk.folder / "queries.parquet")
    extent = (
        {"within": "60 seconds", "time": ("at", "since"), "lateness": "1 hour"}
        if name == "window"
        else {"keep": 10_000}
    )
    by_ranges = {"split": [300.0, 640.0], "slots": 3} if name == "band by ranges" else {}
    flow = ps.StandingQueries(
        desk.stream(left, name="left", files=2),
        desk.stream(right, name="right", files=2),
        shape=shape,
        queries=str(desk.folder / "queries.parquet"),
        memory="64MB",
        **extent,
        **by_ranges,
    )
    got = desk.run(flow)
    want = judged(left, right, asked, WHERE[name.split(" by")[0]], got.schema)
    assert want.num_rows > 200
    assert_same_rows(got, want)
    numbers = eventually(flow.progress)
    assert "queries take about" in flow.explain()
    assert 0 < numbers["last"]["memory"] <= numbers["last"]["budget"] <= 64 << 20
    if name != "band":
        assert numbers["totals"]["rows_out"] == want.num_rows


def test_queries_come_and_go_while_rows_arrive(desk: Desk):
    """Rows come in three micro-batches; changes come with the second and the third."""
    rng = np.random.default_rng(9)
    left, right, asked = supply(rng), demand(rng), queries(rng, SELECT, width=200)
    first, second = asked.slice(0, 40), asked.slice(40)
    versions = {"op": pa.array(["set"] * second.num_rows), "version": pa.array(np.ones(second.num_rows, np.int64))}
    added = pa.table({**{n: second[n] for n in second.column_names}, **versions})
    nothing = pa.array([None] * 20, pa.int64())
    gone = pa.table(
        {
            "query": first["query"].slice(0, 20),
            **dict.fromkeys(SELECT.bounds, nothing),
            "op": pa.array(["remove"] * 20),
            "version": pa.array(np.ones(20, np.int64)),
        }
    ).select(added.column_names)
    # Files of unequal sizes: an empty one first, so that the first micro-batch has rows alone.
    stream = desk.stream(pa.concat_tables([added, gone]), files=1, name="changes")
    for old in (desk.folder / "changes").glob("*"):
        old.unlink()
    for number, part in enumerate([added.slice(0, 0), added, gone]):
        pq.write_table(part, desk.folder / "changes" / f"{number}.parquet")
    flow = ps.StandingQueries(
        desk.stream(left, name="left"),
        desk.stream(right, name="right"),
        shape=SELECT,
        queries=first,
        changes=stream,
        keep=10_000,
        memory="64MB",
    )
    for place in ("left", "right", "changes"):
        # Files are read in the order of their times; those written at once would come in any.
        for number, path in enumerate(sorted((desk.folder / place).glob("*.parquet"))):
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    got = desk.run(flow)
    third = [left.num_rows * n // 3 for n in range(4)], [right.num_rows * n // 3 for n in range(4)]
    parts = []
    for now, standing in enumerate([first, asked, asked.slice(20)]):
        new_left = left.slice(third[0][now], third[0][now + 1] - third[0][now])
        new_right = right.slice(third[1][now], third[1][now + 1] - third[1][now])
        parts.append(judged(new_left, right.slice(0, third[1][now + 1]), standing, WHERE["select"], got.schema))
        parts.append(judged(left.slice(0, third[0][now]), new_right, standing, WHERE["select"], got.schema))
    want = pa.concat_tables(parts)
    assert want.num_rows > 300
    assert_same_rows(got, want)
    assert [batch["queries"] for batch in eventually(flow.history) if batch["rows_in"]][-1] == 60


def test_counts_go_on_after_a_restart(desk: Desk):
    rng = np.random.default_rng(11)
    left, right, asked = supply(rng), demand(rng), queries(rng, SELECT, width=200)

    def started(files):
        flow = ps.StandingQueries(
            desk.stream(left.slice(0, 600 * files // 3), files=files, name="left"),
            desk.stream(right, files=1, name="right"),
            shape=SELECT,
            queries=asked,
            keep=10_000,
            memory="64MB",
            output="counts",
        )
        desk.folder.joinpath("aside").mkdir(exist_ok=True)
        places = {"results": str(desk.folder / "out"), "set_aside": str(desk.folder / "aside")}
        flow.start(**places, checkpoint=str(desk.folder / "ck"), trigger=FINITE).wait()
        return desk.written(flow)

    started(1)
    got = started(3)
    want = judged(left, right, asked, WHERE["select"], pa.schema([("query", pa.int64())]))
    counted = got.group_by("query").aggregate([("results", "sum")]).rename_columns(["query", "results"])
    expected = want.group_by("query").aggregate([("query", "count")]).rename_columns(["query", "results"])
    assert_same_rows(counted, expected.cast(counted.schema))


def test_a_stream_more_than_before_is_refused(desk: Desk):
    """A checkpoint knows how far each was read, in their order."""
    rng = np.random.default_rng(13)
    left, right, asked = supply(rng, 20), demand(rng, 20), queries(rng, SELECT)
    more = asked.append_column("op", pa.array(["set"] * 80)).append_column("version", pa.array([1] * 80))

    def run(changes):
        streams = desk.stream(left, name="left"), desk.stream(right, name="right")
        flow = ps.StandingQueries(*streams, shape=SELECT, queries=asked, changes=changes, keep=100, memory="64MB")
        places = {name: str(desk.folder / name) for name in ("results", "set_aside", "checkpoint")}
        flow.start(**places, trigger={"availableNow": True}).wait()

    run(None)
    with pytest.raises(ps.errors.CheckpointMismatch, match=r"reads from 3 streams, and the one .* from 2"):
        run(desk.stream(more, name="changes"))


def test_bad_queries_are_found_before_anything_runs(desk: Desk):
    rng = np.random.default_rng(12)
    left, right = desk.stream(supply(rng), name="left"), desk.stream(demand(rng), name="right")

    def refused(error, match, **options):
        options = {"shape": SELECT, "queries": queries(rng, SELECT), "keep": 100, "memory": "64MB"} | options
        with pytest.raises(error, match=match):
            ps.StandingQueries(left, right, **options)

    fine = queries(rng, SELECT).to_pandas()
    inverted = fine.assign(left_offered_to=-5)
    refused(ps.errors.BadQuery, r"(?s)80 with an empty range.*query 1000", queries=pa.Table.from_pandas(inverted))
    refused(ps.errors.BadQuery, "an id that another one has", queries=pa.Table.from_pandas(fine.assign(query=1)))
    nan = fine.assign(left_offered_to=float("nan"))
    refused(ps.errors.BadQuery, "NULL or NaN", queries=pa.Table.from_pandas(nan))
    text = fine.assign(left_offered_to="9")
    refused(ps.errors.BadQuery, "where a number is compared", queries=pa.Table.from_pandas(text))
    refused(
        ps.errors.UnknownColumn, "left_offered_to", queries=pa.Table.from_pandas(fine.drop(columns="left_offered_to"))
    )
    refused(ps.errors.MemoryTooSmall, r"cannot hold 80 queries(?s:.*)Give at least", memory="100KB")
    refused(ps.errors.BadOption, "nowhere", keep=None)
    refused(ps.errors.BadOption, "event time", keep=None, within="1 minute")
    refused(ps.errors.UnknownColumn, "ofered", shape=ps.select_join("product", left="ofered", right="wanted"))
    refused(ps.errors.BadOption, "not a shape", shape="select")
    refused(ps.errors.BadOption, "strategy", strategy="merge")
    refused(ps.errors.UnreadableTable, "does not exist", queries=str(desk.folder / "nowhere"))
