"""`join_shared` on Spark: every query's stream is DuckDB's window join, in order; queries come and go while it runs."""

from __future__ import annotations

import os
import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import BadOption, CheckpointMismatch, MemoryTooSmall
from penstock.spark.schema import spark_schema
from penstock.testing import assert_same_rows, zipf_keys
from tests.spark.conftest import FINITE, eventually

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:Rows on channel")]

TIMES = ("lt", "rt")
WINDOWS = {"fast": "1 second", "middle": "8 seconds", "slow": "30 seconds"}
SECONDS = {"fast": 1, "middle": 8, "slow": 30}
RESULT = pa.schema(
    [
        ("k", pa.int64()),
        ("lt", pa.timestamp("us", "UTC")),
        ("v", pa.int64()),
        ("rt", pa.timestamp("us", "UTC")),
        ("w", pa.int64()),
    ]
)


def tables(count, distinct=40, seed=0):
    """Rows of both sides over 100 seconds, in order of time; some without key."""
    rng, made = np.random.default_rng(seed), []
    for side, (time, value) in enumerate(((TIMES[0], "v"), (TIMES[1], "w"))):
        keys = pa.array(zipf_keys(count, distinct, 0.6, seed + side), pa.int64(), mask=rng.random(count) < 0.02)
        at = np.sort(rng.choice(100_000_000, count, replace=False)) // 2 * 2 + side
        moments = pa.array(at + 1_700_000_000_000_000).cast(pa.timestamp("us", "UTC"))
        made.append(pa.table({"k": keys, time: moments, value: np.arange(count)}))
    return made


def exact(left, right, seconds, extra=""):
    """DuckDB's join, in the order of a query's stream."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, rows in (("l", left), ("r", right)):
            connection.register(name, rows)
        gap = f"abs(epoch_us(r.rt) - epoch_us(l.lt)) <= {seconds * 1_000_000}"
        order = "ORDER BY greatest(l.lt, r.rt), least(l.lt, r.rt) DESC"
        query = f"SELECT l.k, l.lt, l.v, r.rt, r.w FROM l JOIN r ON l.k = r.k AND {gap} {extra} {order}"
        return connection.sql(query).to_arrow_table().cast(RESULT)


def put(desk, left, right, files=4):
    """Files that are read in this order, one a micro-batch; both sides are cut at the same times."""
    clocks = [rows[time].cast(pa.int64()).to_numpy() for rows, time in zip((left, right), TIMES, strict=True)]
    cuts = np.quantile(np.concatenate(clocks), np.arange(1, files) / files)
    for side, rows, clock in (("left", left, clocks[0]), ("right", right, clocks[1])):
        place = desk.folder / side
        place.mkdir(exist_ok=True)
        first = len(list(place.iterdir()))
        ends = [0, *np.searchsorted(clock, cuts), rows.num_rows]
        for number in range(files):
            path = place / f"{first + number:03d}.parquet"
            pq.write_table(rows.slice(ends[number], ends[number + 1] - ends[number]), path)
            os.utime(path, (1_000_000_000 + first + number,) * 2)


def flow_of(desk, left, right, **options):
    usual = {"on": "k", "windows": WINDOWS, "time": TIMES, "memory": "8MB", "lateness": "20 s"}
    frames = [
        desk.spark.readStream.schema(spark_schema(rows.schema))
        .option("maxFilesPerTrigger", 1)
        .parquet(str(desk.folder / side))
        for side, rows in (("left", left), ("right", right))
    ]
    return ps.join_shared(*frames, **(usual | options))


def start(desk, flow, trigger=FINITE):
    places = {channel: str(desk.folder / channel) for channel in flow.channels}
    return flow.start(checkpoint=str(desk.folder / "ck"), trigger=trigger, **places)


def stream_of(desk, name):
    """What was written for a query, in the order of files and of the rows in them."""
    files = sorted((desk.folder / name).glob("*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]) if files else RESULT.empty_table()


@pytest.mark.parametrize(
    ("scheduler", "units"),
    [("greedy", 3_000), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("swf", None), ("lwo", 3_000)))],
)
def test_every_stream_is_the_exact_join_in_its_order(desk, scheduler, units):
    left, right = tables(1_200)
    put(desk, left, right)
    flow = flow_of(desk, left, right, scheduler=scheduler, slice=units, slots=1)
    start(desk, flow).wait()
    for name, seconds in SECONDS.items():
        assert_same_rows(stream_of(desk, name).cast(RESULT), exact(left, right, seconds), ordered=True, label=name)
    said = flow.progress()
    assert said["totals"]["rows_in"] == 2_400
    assert said["totals"]["rows_without_key"] == left["k"].null_count + right["k"].null_count
    assert said["queries"]["slow"]["results"] == exact(left, right, 30).num_rows
    if scheduler == "greedy":
        # Work for several steps: the small window does not wait for it.
        assert max(batch["unfinished"] for batch in flow.history()) > 0
        assert said["queries"]["fast"]["work_p95"] < said["queries"]["slow"]["work_p95"]
        assert 0 < said["queries"]["fast"]["seconds_mean"] <= said["queries"]["slow"]["seconds_max"]


def test_queries_come_and_go_while_it_runs_and_when_it_starts_again(desk):
    left, right = tables(1_600)
    halves = [(rows.slice(0, 800), rows.slice(800)) for rows in (left, right)]
    changes = desk.folder / "queries [1]"  # a pattern, to Spark
    select = ps.query("30 seconds", select=lambda found: found.column("w").to_numpy() % 2 == 0)
    options = {"windows": WINDOWS | {"slow": select}, "changes": changes, "slots": 2, "slice": 500}
    put(desk, halves[0][0], halves[1][0])
    flow = flow_of(desk, left, right, **options)
    running = start(desk, flow, {"processingTime": "0 seconds"})
    eventually(lambda: flow.progress().get("totals", {}).get("rows_in") == 1_600)
    # Spark asks its sources for news in this order. Changes come last: whoever was told of a new query and then sees
    # rows come, sees rows that are joined for it.
    sources = running.query._jsq.streamingQuery().uniqueSources().keysIterator()
    asked = [str(sources.next()) for _ in range(3)]
    assert [re.findall(r"\w+", place.rpartition("/")[2])[0] for place in asked] == ["left", "right", "queries"]
    assert not sources.hasNext()
    flow.add("wide", "1 minute")
    flow.add("even", "5 seconds", select=[("w", "in", list(range(0, 1_600, 2))), ("v", ">", 900)])
    flow.remove("fast")
    assert list(flow.queries) == ["middle", "slow", "wide", "even"]
    eventually(lambda: flow.history()[-1]["queries"] == 4 and not flow.history()[-1]["unfinished"])
    running.stop()
    put(desk, halves[0][1], halves[1][1])
    again = flow_of(desk, left, right, **options)
    assert list(again.queries) == ["middle", "slow", "wide", "even"]
    assert again.channel("wide").columns == again.channel("middle").columns == RESULT.names
    with pytest.raises(BadOption, match="There is no channel 'fest'"):
        again.channel("fest")
    start(desk, again).wait()
    assert_same_rows(stream_of(desk, "fast").cast(RESULT), exact(halves[0][0], halves[1][0], 1))
    assert_same_rows(stream_of(desk, "middle").cast(RESULT), exact(left, right, 8))
    assert_same_rows(stream_of(desk, "slow").cast(RESULT), exact(left, right, 30, "AND r.w % 2 = 0"))
    added = stream_of(desk, "added")
    for name, seconds, extra in (("wide", 60, ""), ("even", 5, "AND r.w % 2 = 0 AND l.v > 900")):
        mine = added.filter(pa.compute.equal(added["query"], name)).drop(["query"]).cast(RESULT)
        assert_same_rows(mine, exact(halves[0][1], halves[1][1], seconds, extra), label=name)
        assert again.progress()["queries"][name]["results"] == mine.num_rows > 0
        assert again.progress()["queries"][name]["work_mean"] > 0
    with pytest.raises(CheckpointMismatch, match="windows was"):
        start(desk, flow_of(desk, left, right, **(options | {"windows": {"fast": "2 seconds"}})))


def test_what_makes_no_sense_is_refused_with_what_to_do(desk):
    left, right = tables(10)
    put(desk, left, right, 1)

    def refused(match, error=BadOption, **options):
        with pytest.raises(error, match=match):
            flow_of(desk, left, right, **options)

    refused("There are no windows", windows={})
    refused("Two queries are called 'fast'", windows=[("fast", "1 s"), ("fast", "2 s")])
    refused("cannot be the name", windows={"checkpoint": "1 s"})
    refused("joins on v = w, and the others on k = k", windows={"fast": ps.query("1 s", on={"v": "w"})})
    refused("is a time and that of 'last' a number of rows", windows={"fast": "1 s", "last": ps.rows(5)})
    refused("windows contain|window contains", windows={"fast": ("1 s", "2 s")})
    refused("scheduler='fifo'", scheduler="fifo")
    refused("Nothing says which rows", on=None)
    refused("MB more than there is", MemoryTooSmall, windows={"last": ps.rows(50_000)}, memory="4MB")
    refused("counted, not timed", slice="1 second")
    refused("cannot be compared", windows={"fast": ps.query("1 s", select=[("v", ">", "text")])})
    refused("cannot be divided", windows={"last": ps.rows(5)}, slots=2)
    flow = flow_of(desk, left, right)
    with pytest.raises(BadOption, match="changes="):
        flow.add("wide", "1 minute")
    flow = flow_of(desk, left, right, changes=desk.folder / "queries")
    with pytest.raises(BadOption, match=r"no query 'nobody'.*\n.*fast, middle, slow"):
        flow.remove("nobody")
    with pytest.raises(BadOption, match="already, with a window of 1 s"):
        flow.add("fast", "1 minute")
    with pytest.raises(BadOption, match="not of the kind"):
        flow.add("rows", ps.rows(5))
    with pytest.raises(BadOption, match=r"no column 'x'.*\n.*k, lt, v, rt, w"):
        flow.add("some", "1 minute", select=[("x", "=", 1)])
    assert "Greedy" in flow.explain()


def test_nested_loops_and_row_windows(desk):
    """Rows that differ, among the last few of the other side."""
    left, right = tables(60)
    right = right.rename_columns(["j", "rt", "w"])
    put(desk, left, right, 2)
    differ = lambda left, right: pa.compute.not_equal(left.column("v"), right.column("w"))  # noqa: E731
    flow = flow_of(desk, left, right, on=None, where=differ, windows={"few": ps.rows(2), "more": ps.rows(5)})
    start(desk, flow).wait()
    came = [
        (at, side, n) for side, rows in enumerate((left, right)) for n, at in enumerate(rows[TIMES[side]].to_pylist())
    ]
    for name, window in (("few", 2), ("more", 5)):
        seen, want = ([], []), []
        for _, side, number in sorted(came):
            others = seen[1 - side][-window:][::-1]
            want += [(number, n) if side == 0 else (n, number) for n in others if n != number]
            seen[side].append(number)
        got = stream_of(desk, name)
        assert list(zip(got["v"].to_pylist(), got["w"].to_pylist(), strict=True)) == want
