"""The runtime itself: slots, time, progress without input, state that moves between workers, channels, numbers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import BadOption, PlanError, SessionNotReady
from penstock.kernels.contract import Changes, Emission, Kernel, Metric
from penstock.plan.base import Plan, Side
from penstock.spark.chunks import all_copies
from penstock.spark.session import NEEDED
from penstock.testing import assert_same_rows
from tests.spark.conftest import FINITE, Desk, assert_is_join, eventually, python_workers

pytestmark = pytest.mark.spark

ROWS = pa.table({"k": np.arange(2_000), "n": np.arange(2_000) * 3})


def orders(first: int, count: int = 200) -> pa.Table:
    ids = np.arange(first, first + count)
    return pa.table({"id": ids, "k": ids * 37 % 3_000})


# -- slots -----------------------------------------------------------------------------------------------------------


def test_slots_lie_on_partitions_as_spark_hashes_them(spark):
    from pyspark.sql import functions as fn

    from penstock.spark.slots import partition_of, spread

    ids = [
        *spread(64),
        0,
        1,
        -1,
        2**31 - 1,
        -(2**31),
        *np.random.default_rng(1).integers(-(2**31), 2**31, 200).tolist(),
    ]
    frame = spark.createDataFrame([(int(i),) for i in ids], "id int")
    for partitions in (2, 3, 7, 200):
        said = frame.select("id", fn.expr(f"pmod(hash(id), {partitions})")).collect()
        assert [(i, partition_of(i, partitions)) for i in ids] == [tuple(row) for row in said]
        assert [partition_of(i, partitions) for i in spread(64)] == [slot % partitions for slot in range(64)]


# -- time ------------------------------------------------------------------------------------------------------------

SIDE = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
STEPS = pa.schema(
    [("slot", pa.int32()), ("step", pa.int32()), ("watermark", pa.int64()), ("left", pa.int64()), ("right", pa.int64())]
)
ECHO = pa.schema([("side", pa.int32()), ("k", pa.int64())])


class Recorder(Kernel):
    """Writes down what each step was given."""

    channels = {"results": STEPS, "echo": ECHO}  # noqa: RUF012
    reports = (Metric("rows_in"), Metric("steps", combine="max"))

    def __init__(self, slot):
        self.slot, self.steps, self.rows = slot, 0, 0

    def step(self, batch, now):
        counts = [0, 0]
        for side, rows in batch:
            counts[side] += rows.num_rows
            columns = [pa.array([side] * rows.num_rows, pa.int32()), rows.column("k")]
            yield Emission("echo", pa.RecordBatch.from_arrays(columns, schema=ECHO))
        said = [self.slot, self.steps, batch.watermark, *counts]
        columns = [pa.array([value], field.type) for value, field in zip(said, STEPS, strict=True)]
        yield Emission("results", pa.RecordBatch.from_arrays(columns, schema=STEPS))
        self.steps += 1
        self.rows = sum(counts)

    def memory(self):
        return 0

    def changes(self):
        return Changes({}, ())

    def head(self):
        return json.dumps(self.steps).encode()

    def restore(self, head, chunks):
        self.steps = json.loads(head)

    def metrics(self):
        return {"rows_in": self.rows, "steps": self.steps}


@dataclass(frozen=True)
class RecorderPlan(Plan):
    slots: int = 3
    late: int = 10_000_000

    name = "recorder"
    reports = Recorder.reports

    @property
    def sides(self):
        return (Side(SIDE, ("k",), "at", self.late), Side(SIDE, ("k",), "at"))

    @property
    def channels(self):
        return Recorder.channels

    def make(self, slot):
        return Recorder(slot)

    def identity(self):
        return {"operator": self.name}

    def explain(self):
        return self.name


def test_every_slot_is_told_the_watermark_of_both_sides(desk):
    from pyspark import cloudpickle

    from penstock.spark.runtime import run

    # The workers do not know this module by name.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    # Event times in seconds; the second file of the left side is older than its first; key 5 is all there is.
    seconds = {"left": [[3, 100], [50], [200, 150]], "right": [[80], [90, 70], [300]]}
    streams = []
    for side, files in seconds.items():
        tables = [
            pa.table({"k": [5] * len(file), "at": [start + timedelta(seconds=s) for s in file]}, schema=SIDE)
            for file in files
        ]
        frame = None
        for number, table in enumerate(tables):
            frame = desk.stream(table, 1, name=f"{side}") if number == 0 else frame
            pq.write_table(table, desk.folder / side / f"{number:03d}.parquet")
            os.utime(desk.folder / side / f"{number:03d}.parquet", (1_000_000_000 + number,) * 2)
        streams.append(frame)
    flow = run(RecorderPlan(), streams)
    out = {name: str(desk.folder / name) for name in ("results", "echo", "set_aside")}
    flow.start(**out, checkpoint=str(desk.folder / "ck"), trigger=FINITE).wait()
    zero = int(start.timestamp() * 1_000_000)
    steps = desk.written(flow, "results").to_pylist()
    steps = [row | {"watermark": row["watermark"] and (row["watermark"] - zero) // 1_000_000} for row in steps]
    for slot in range(3):
        mine = sorted((row["step"], row["watermark"]) for row in steps if row["slot"] == slot)
        # The smaller of: the greatest on the left so far less ten seconds, the greatest on the right so far.
        assert mine[:3] == [(0, None), (1, min(100 - 10, 80)), (2, min(100 - 10, 90))], slot
    with_rows = {row["slot"] for row in steps if row["left"] or row["right"]}
    assert len(with_rows) == 1, "one key, one slot"
    assert sum(row["left"] for row in steps) == 5
    assert sum(row["right"] for row in steps) == 4
    want = pa.table({"side": pa.array([0] * 5 + [1] * 4, pa.int32()), "k": pa.array([5] * 9)}, schema=ECHO)
    assert_same_rows(desk.written(flow, "echo", "echo"), want)
    assert flow.progress()["totals"]["rows_in"] == 9


@pytest.mark.parametrize("times", ["now", "missing"])
def test_a_stream_with_a_watermark_of_its_own_changes_nothing(desk, times):
    """Spark allows one in a query, and says so in its second micro-batch only."""
    moment = datetime(2026, 1, 1, tzinfo=UTC) if times == "now" else None
    stream = orders(0).append_column("at", pa.array([moment] * 200, pa.timestamp("us", "UTC")))
    few = desk.spark.range(300).groupBy("id").count()
    # Spark keeps no state for a join with a table, nor for what is done to the table before.
    frame = desk.stream(stream).withWatermark("at", "1 minute").join(few, "id").select("id", "k", "at")
    flow = ps.join_table(frame, desk.table(ROWS, "k"), on="k", memory="16MB", pages_per_step=1)
    assert_is_join(desk.run(flow), stream, ROWS, ["k"], ["k"])


def test_flows_of_one_query_in_a_session_with_settings_of_its_own(desk):
    theirs = Desk(desk.spark.newSession(), desk.folder)
    for name, value in {
        "streaming.stateStore.providerClass": NEEDED["spark.sql.streaming.stateStore.providerClass"],
        "timestampType": "TIMESTAMP_NTZ",
        "session.timeZone": "America/New_York",
        "caseSensitive": "true",
        "execution.arrow.maxRecordsPerBatch": "7",
        "execution.arrow.useLargeVarTypes": "true",
        "shuffle.partitions": "3",
        # By Spark's own policy what is pending in one flow waits for rows of the other.
        "streaming.multipleWatermarkPolicy": "max",
    }.items():
        theirs.spark.conf.set(f"spark.sql.{name}", value)
    moment = datetime(2026, 3, 8, 7, tzinfo=UTC)
    stream = orders(0).append_column("at", pa.array([moment] * 200, pa.timestamp("us", "UTC")))
    table = theirs.table(ROWS, "k")
    one, other = (
        ps.join_table(theirs.stream(half, files, name), table, on="k", memory="16MB", pages_per_step=3)
        for name, half, files in (("a", stream.slice(0, 90), 1), ("b", stream.slice(90), 2))
    )
    parts = []
    writer = one.results.unionByName(other.results).writeStream.option("checkpointLocation", str(desk.folder / "ck"))
    writer = writer.foreachBatch(lambda batch, _: parts.append(batch.toArrow()))
    writer.trigger(availableNow=True).start().awaitTermination()
    got = pa.concat_tables(part.cast(theirs.schema(one)) for part in parts)
    assert_is_join(got, stream, ROWS, ["k"], ["k"])


def test_a_stream_with_state_by_a_watermark_is_refused_before_anything_runs(desk):
    stream = orders(0).append_column("at", pa.array([None] * 200, pa.timestamp("us", "UTC")))
    frame = desk.stream(stream).withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["id"])
    with pytest.raises(PlanError, match=r"a stateful operator \(DeduplicateWithinWatermark\)") as caught:
        ps.join_table(frame, desk.table(ROWS, "k"), on="k", memory="16MB")
    assert "in a query of its own" in str(caught.value)


# -- progress without input, state on the move -----------------------------------------------------------------------


def test_what_waits_drains_by_itself_while_no_row_arrives(desk):
    frame = desk.stream(orders(0), 1)
    flow = ps.join_table(frame, desk.table(ROWS, "k"), on="k", memory="16MB", pages_per_step=1)
    aside = str(desk.folder / "aside")
    running = flow.start(results=str(desk.folder / "out"), set_aside=aside, checkpoint=str(desk.folder / "ck"))
    try:
        want = len(set(orders(0).column("k").to_pylist()) & set(range(2_000)))
        assert eventually(lambda: desk.written(flow).num_rows == want)
        history = eventually(lambda: [b for b in flow.history() if b["rows_waiting"] == 0])
        assert any(b["rows_waiting"] for b in flow.history()), "one page a step: rows must have waited"
        assert history[-1]["batch"] > 0
        assert running.active
    finally:
        running.stop()
    assert_is_join(desk.written(flow), orders(0), ROWS, ["k"], ["k"])


def test_workers_may_vanish_and_cached_chunks_rot_between_batches(desk):
    """Live kernels are gone, copies of chunks are damaged: the state store alone decides."""
    frame = desk.stream(orders(0), 1)
    flow = ps.join_table(frame, desk.table(ROWS, "k"), on="k", memory="16MB", pages_per_step=1, slots=2)
    results = []
    query = (
        flow.results.writeStream.foreachBatch(lambda batch, _: results.append(batch.toArrow()))
        .option("checkpointLocation", str(desk.folder / "ck"))
        # Long enough that the slots still have rows waiting when the next file is there.
        .trigger(processingTime="0 seconds")
        .start()
    )
    everything = [orders(0)]
    try:
        for number in range(1, 4):
            assert eventually(lambda number=number: len(flow.history()) >= number)
            spoil_cache()
            kill_workers()
            everything.append(orders(number * 200))
            scratch = desk.folder / f"{number}.tmp"
            pq.write_table(everything[-1], scratch)
            scratch.rename(desk.folder / "stream" / f"{number:03d}.parquet")
        query.processAllAvailable()
        assert eventually(lambda: sum(b["rows_in"] for b in flow.history()) >= 800)
        assert eventually(lambda: flow.history()[-1]["rows_waiting"] == 0)
    finally:
        query.stop()
    assert sum(b["slots_restored"] for b in flow.history()) > 0
    assert eventually(lambda: not (all_copies() / query.id).exists()), "an application that goes on would fill its disk"
    schema = desk.schema(flow)
    got = pa.concat_tables([part.cast(schema) for part in results])
    assert_is_join(got, pa.concat_tables(everything), ROWS, ["k"], ["k"])


def spoil_cache() -> None:
    for path in all_copies().rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                path.write_bytes(b"\0" * path.stat().st_size)


def kill_workers() -> None:
    for process in python_workers():
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_numbers_reach_progress_and_a_listener_and_add_up(desk):
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Mine(StreamingQueryListener):
        def __init__(self):
            self.seen = []

        def onQueryStarted(self, event):
            pass

        def onQueryProgress(self, event):
            self.seen += [row.asDict() for name, row in event.progress.observedMetrics.items() if name == flow.id]

        def onQueryIdle(self, event):
            pass

        def onQueryTerminated(self, event):
            pass

    keys = pa.array([None if n % 10 == 0 else n * 7 % 3_000 for n in range(1_000)], pa.int64())
    pads = pa.array(["x" * (40 << 20) if n == 501 else "" for n in range(1_000)])
    stream = pa.table({"id": pa.array(range(1_000)), "k": keys, "pad": pads})
    flow = ps.join_table(desk.stream(stream), desk.table(ROWS, "k"), on="k", memory="32MB", slots=2, pages_per_step=2)
    assert set(flow.progress()["totals"].values()) == {0.0}
    assert "2 slots, divided by pages" in flow.explain()
    listener = Mine()
    desk.spark.streams.addListener(listener)
    try:
        got = desk.run(flow)
        # Events come a little after the rows they tell of; the last is that of the step that drained.
        eventually(
            lambda: flow.history() and flow.history()[-1]["rows_waiting"] == 0 and flow.history()[-1]["batch"] >= 3
        )
        totals = flow.progress()["totals"]
        eventually(lambda: len(listener.seen) >= len(flow.history()))
    finally:
        desk.spark.streams.removeListener(listener)
    matched = {n for n in range(1_000) if n % 10 and n != 501 and n * 7 % 3_000 < 2_000}
    unmatched = {n for n in range(1_000) if n % 10 and n != 501} - matched
    assert set(got.column("id").to_pylist()) == matched
    assert totals["rows_in"] == len(matched) + len(unmatched) + totals["rows_without_key"] + totals["rows_set_aside"]
    assert totals["rows_out"] == got.num_rows
    assert totals["rows_without_key"] == 100
    assert totals["rows_set_aside"] == 1
    aside = desk.written(flow, "out-aside", "set_aside").to_pylist()
    assert [("larger than" in row["reason"], '"id": 501' in row["raw"]) for row in aside] == [(True, True)]
    history = flow.history()
    assert history[-1]["rows_waiting"] == 0
    assert all(b["memory"] <= b["budget"] == 32 << 20 for b in history if b["slots_stepped"] == 2)
    for name in ("rows_in", "rows_out", "rows_without_key", "rows_set_aside", "pages_read"):
        assert sum(row[name] or 0 for row in listener.seen) == totals[name], name


# -- results as a stream, channels, sessions -------------------------------------------------------------------------


def test_results_are_a_stream_like_any_other(desk):
    from pyspark.sql import functions as fn

    stream = orders(0, 600)
    flow = ps.join_table(desk.stream(stream), desk.table(ROWS, "k"), on="k", memory="16MB")
    assert flow.results.isStreaming
    assert flow.results.columns == ["id", "k", "n"]
    sums: dict[int, int] = {}

    def add(batch, number):
        for row in batch.groupBy("part").agg(fn.sum("twice").alias("total")).collect():
            sums[row["part"]] = sums.get(row["part"], 0) + row["total"]

    wide = flow.results.withColumn("twice", fn.col("n") * 2).filter("id % 2 = 0").withColumn("part", fn.expr("id % 3"))
    writer = wide.writeStream.foreachBatch(add).option("checkpointLocation", str(desk.folder / "ck"))
    writer.trigger(availableNow=True).start().awaitTermination()
    want: dict[int, int] = {}
    for number in range(0, 600, 2):
        if number * 37 % 3_000 < 2_000:
            want[number % 3] = want.get(number % 3, 0) + number * 37 % 3_000 * 6
    assert sums == want


def test_unknown_channels_and_places_are_refused_before_anything_runs(desk):
    flow = ps.join_table(desk.stream(orders(0)), desk.table(ROWS, "k"), on="k", memory="16MB")
    assert flow.channels == ("results", "set_aside")
    with pytest.raises(BadOption, match="no channel 'late'") as caught:
        flow.channel("late")
    assert "results, set_aside" in str(caught.value)
    with pytest.raises(BadOption, match="no channel 'late'"):
        flow.start(late="somewhere", checkpoint=str(desk.folder / "ck"))
    with pytest.raises(BadOption, match="a single micro-batch"):
        flow.start(results="somewhere", checkpoint=str(desk.folder / "ck"), trigger={"once": True})
    with pytest.raises(BadOption, match="not a trigger that a flow can have"):
        flow.start(results="somewhere", checkpoint=str(desk.folder / "ck"), trigger="1 second")
    with pytest.raises(BadOption, match="No channel has a place"):
        flow.start(checkpoint=str(desk.folder / "ck"))
    with pytest.raises(BadOption, match="results: s3a://bucket/out is not a local path"):
        flow.start(results="s3a://bucket/out", checkpoint=str(desk.folder / "ck"))
    (desk.folder / "link").symlink_to("out")
    for same in ("out", "link", "ck/../out", "link/below"):
        places = {"results": str(desk.folder / "out"), "set_aside": f"{desk.folder}/{same}"}
        with pytest.raises(BadOption, match=r"set_aside .* in the directory of results|results .* of set_aside"):
            flow.start(**places, checkpoint=str(desk.folder / "ck"))
    (desk.folder / "full").mkdir()
    (desk.folder / "full" / "thesis.txt").write_text("mine")
    places = {"results": str(desk.folder / "full"), "set_aside": str(desk.folder / "aside")}
    with pytest.raises(BadOption, match="is not empty"):
        flow.start(**places, checkpoint=str(desk.folder / "ck"))
    assert not (desk.folder / "ck" / "offsets").exists()


def test_a_channel_that_nobody_reads_is_told(desk):
    empty = orders(0).slice(0, 0)
    flow = ps.join_table(desk.stream(empty), desk.table(ROWS, "k"), on="k", memory="16MB")
    with pytest.warns(UserWarning, match="channel set_aside are counted but not kept"):
        flow.start(results=str(desk.folder / "out"), checkpoint=str(desk.folder / "ck"), trigger=FINITE).wait()


def test_a_session_without_the_settings_is_told_the_lines_to_add(desk):
    foreign = desk.spark.newSession()
    hdfs = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    foreign.conf.set("spark.sql.streaming.stateStore.providerClass", hdfs)
    foreign.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    desk.stream(orders(0))
    frame = foreign.readStream.schema("id long, k long").parquet(str(desk.folder / "stream"))
    table = desk.table(ROWS, "k")
    with pytest.raises(SessionNotReady, match="lacks 2 needed settings") as caught:
        ps.join_table(frame, table, on="k", memory="16MB")
    lines = [line.strip() for line in str(caught.value).splitlines() if "spark.conf.set(" in line]
    assert len(lines) == 2
    # What it says is what helps.
    for line in lines:
        exec(line, {"spark": foreign})
    ps.join_table(frame, table, on="k", memory="16MB")
    # Spark's own default is what is needed: a session in which nobody has set it will do.
    foreign.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    ps.join_table(frame, table, on="k", memory="16MB")
    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    foreign.conf.set("spark.sql.streaming.checkpointFileManagerClass", manager)
    with pytest.raises(SessionNotReady, match="does not replace the state") as caught:
        ps.join_table(frame, table, on="k", memory="16MB")
    exec(re.search(r"spark\.conf\.unset\(.*?\)", str(caught.value))[0], {"spark": foreign})
    ps.join_table(frame, table, on="k", memory="16MB")


def test_a_frame_that_is_no_stream_is_refused(desk):
    desk.stream(orders(0))
    frame = desk.spark.read.schema("id long, k long").parquet(str(desk.folder / "stream"))
    with pytest.raises(PlanError, match="is not a stream") as caught:
        ps.join_table(frame, desk.table(ROWS, "k"), on="k", memory="16MB")
    assert "spark.readStream" in str(caught.value)
    with pytest.raises(BadOption, match="DataFrame is not a table") as caught:
        ps.join_table(desk.stream(orders(0)), frame, on="k", memory="16MB")
    assert "penstock.table(" in str(caught.value)
