"""The host of kernels over a state store made of dicts: no JVM, every mishap at will.

What it stands for: Spark commits what a task stored, or forgets it; the worker, with its live kernels, and the cache of
chunks on disk go on either way.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import CheckpointMismatch, StateDamaged
from penstock.kernels.contract import SET_ASIDE_SCHEMA, Changes, Kernel, Metric
from penstock.plan.base import Plan, Side
from penstock.plan.join_table import JoinTablePlan
from penstock.spark import host as hosting
from penstock.spark.chunks import ChunkCache
from penstock.spark.host import FAMILIES, METRICS, NUMBERS, reports_of
from penstock.spark.live import LiveKernels
from penstock.spark.outbox import Attempt, Outbox, Parcel, discard, unwrap
from penstock.spark.processor import Processor
from penstock.spark.wire import ASIDE, EVENT_TIME, clock_of
from penstock.testing import assert_same_rows

STREAM = pa.schema([("id", pa.int64()), ("k", pa.int64())])


class Value:
    def __init__(self, shelf):
        self.shelf = shelf

    def get(self):
        return self.shelf.get("head")

    def update(self, value):
        self.shelf["head"] = value


class Map:
    def __init__(self, shelf):
        self.shelf = shelf

    def getValue(self, key):
        return self.shelf["chunks"].get(key)

    def updateValue(self, key, value):
        self.shelf["chunks"][key] = value

    def removeKey(self, key):
        del self.shelf["chunks"][key]


class Handle:
    """One slot's state as a task sees it, and its timers."""

    def __init__(self, shelf):
        self.shelf = shelf

    def getValueState(self, name, schema):
        return Value(self.shelf)

    def getMapState(self, name, key, value):
        return Map(self.shelf)

    def registerTimer(self, at):
        self.shelf["timers"].add(at)

    def deleteTimer(self, at):
        self.shelf["timers"].remove(at)


class Spark:
    """Runs micro-batches of one slot, each committed or lost."""

    def __init__(self, plan, folder, monkeypatch):
        self.plan = plan
        self.committed = {"chunks": {}, "timers": set()}
        self.cache = folder / "cache"
        self.batch = 0
        monkeypatch.setattr(ChunkCache, "here", classmethod(lambda cls, query, state: cls(self.cache / state)))
        outbox = folder / "outbox"
        monkeypatch.setattr(Outbox, "here", classmethod(lambda cls, query, slot: cls(outbox, Attempt(self.batch))))
        monkeypatch.setattr(hosting, "batch_number", lambda: self.batch)
        hosting._live.clear()

    def run(self, rows, *, lose=False, frames=1_000):
        """One micro-batch; `lose` it after that many frames, with what it stored."""
        shelf = copy.deepcopy(self.committed)
        host = Processor(self.plan, ids=(77,))
        host.init(Handle(shelf))
        if rows is None:
            out = host.handleExpiredTimer((77,), None, None)
        else:
            packed = pd.DataFrame({"side": [0], "blob": [rows.serialize().to_pybytes()]})
            out = host.handleInputRows((77,), iter([packed]), None)
        got = list(itertools.islice(out, frames))
        if lose:
            out.close()
            return None, None
        self.committed = shelf
        self.batch += 1
        found = pd.concat(got)
        sent = found[found.channel == "results"][list(Parcel._fields)].itertuples(index=False, name=None)
        blobs = [batch for parcel in sent for batch in unwrap(Parcel(*parcel), self.results)]
        names = [metric.name for metric in reports_of(self.plan)]
        numbers = dict(zip(names, found[found.channel == METRICS].iloc[-1][NUMBERS], strict=True))
        return pa.Table.from_batches(blobs, schema=self.results), numbers

    def copies(self):
        """The chunks that lie in the cache."""
        return list(self.cache.glob("*/*"))

    @property
    def results(self):
        return self.plan.channels["results"]


@pytest.fixture
def spark(tmp_path, monkeypatch):
    rows = pa.table({"k": np.arange(1_000) % 250, "n": np.arange(1_000)})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=100)
    over = ps.table(tmp_path / "t.parquet", key="k")
    plan = JoinTablePlan.checked(STREAM, over, on=("k",), memory="16MB", slots=1, pages_per_step=3)
    return Spark(plan, tmp_path, monkeypatch)


def rows_of(first, count=50):
    ids = np.arange(first, first + count)
    return pa.record_batch({"id": pa.array(ids), "k": pa.array(ids % 300)}, schema=STREAM)


def wanted(*batches):
    ids = np.concatenate([batch.column("id").to_numpy() for batch in batches])
    pairs = [(i, i % 300, n) for i in ids.tolist() for n in range(1_000) if n % 250 == i % 300]
    return pa.table([*map(pa.array, zip(*pairs, strict=True))], names=["id", "k", "n"])


def test_a_live_kernel_is_used_while_its_state_is_the_stored_one(spark):
    one, numbers = spark.run(rows_of(0))
    assert numbers["slots_restored"] == 0
    two, numbers = spark.run(rows_of(50))
    assert numbers["slots_restored"] == 0
    three, numbers = spark.run(None)
    assert numbers["slots_restored"] == 0
    assert_same_rows(pa.concat_tables([one, two, three]), wanted(rows_of(0), rows_of(50)))


@pytest.mark.parametrize("frames", [0, 1, 1_000])
def test_a_kernel_that_ran_ahead_is_never_taken_for_the_committed_one(spark, frames):
    """The lost batch had other rows, so that whatever is left of it would show."""
    one, _ = spark.run(rows_of(0))
    spark.run(rows_of(10_000), lose=True, frames=frames)
    two, numbers = spark.run(rows_of(50))
    assert numbers["slots_restored"] == 1 or frames == 0
    three, _ = spark.run(None)
    assert_same_rows(pa.concat_tables([one, two, three]), wanted(rows_of(0), rows_of(50)))


def test_a_kernel_of_another_worker_ran_meanwhile(spark, monkeypatch):
    one, _ = spark.run(rows_of(0))
    here = hosting._live
    monkeypatch.setattr(hosting, "_live", LiveKernels())
    two, numbers = spark.run(rows_of(50))
    assert numbers["slots_restored"] == 1
    # The slot comes back to the first worker, whose kernel is one batch behind.
    monkeypatch.setattr(hosting, "_live", here)
    three, numbers = spark.run(None)
    assert numbers["slots_restored"] == 1
    assert_same_rows(pa.concat_tables([one, two, three]), wanted(rows_of(0), rows_of(50)))


def test_a_live_kernel_of_other_terms_is_not_used(spark):
    """A query that starts again in the same session finds its old workers; were their kernels used, the attempts of a
    micro-batch would differ by who runs them, and results be there twice or nowhere.
    """
    one, _ = spark.run(rows_of(0))
    spark.plan = dataclasses.replace(spark.plan, memory=2 * spark.plan.memory)
    two, numbers = spark.run(rows_of(50))
    assert numbers["slots_restored"] == 1
    assert numbers["budget"] == spark.plan.memory
    three, numbers = spark.run(None)
    assert numbers["slots_restored"] == 0
    assert_same_rows(pa.concat_tables([one, two, three]), wanted(rows_of(0), rows_of(50)))


def test_flows_of_one_query_leave_each_other_their_kernels_and_chunks(spark, tmp_path, monkeypatch):
    """Each has a slot 0, and their tasks may come to the same worker."""
    other = Spark(spark.plan, tmp_path, monkeypatch)
    got = [[], []]
    for first in (0, 50):
        for flow, mine in zip((spark, other), got, strict=True):
            results, numbers = flow.run(rows_of(first))
            assert numbers["slots_restored"] == 0
            mine.append(results)
    hosting._live.clear()
    monkeypatch.setattr(Map, "getValue", lambda self, key: pytest.fail(f"{key} was not in the cache"))
    for flow, mine in zip((spark, other), got, strict=True):
        mine.append(flow.run(None)[0])
        assert_same_rows(pa.concat_tables(mine), wanted(rows_of(0), rows_of(50)))


@pytest.mark.parametrize("harm", ["flip", "cut", "grow", "remove", "stale"])
def test_a_cached_chunk_is_used_only_if_it_is_the_stored_one(spark, harm):
    one, _ = spark.run(rows_of(0))
    copies = spark.copies()
    assert copies, "the packet waits, so there is a chunk"
    for path in copies:
        body = bytearray(path.read_bytes())
        if harm == "flip":
            body[len(body) // 2] ^= 1
        elif harm == "cut":
            body = body[:-8]
        elif harm == "grow":
            body += b"more"
        elif harm == "stale":
            body = bytearray(rows_of(999).serialize().to_pybytes())
        path.write_bytes(body)
        if harm == "remove":
            path.unlink()
    hosting._live.clear()
    two, numbers = spark.run(rows_of(50))
    assert numbers["slots_restored"] == 1
    three, _ = spark.run(None)
    assert_same_rows(pa.concat_tables([one, two, three]), wanted(rows_of(0), rows_of(50)))


def test_the_cache_keeps_nothing_that_is_gone(spark):
    spark.run(rows_of(0))
    spark.run(rows_of(10_000), lose=True)
    spark.run(rows_of(50))
    assert len(spark.copies()) == len(spark.committed["chunks"]) == 2
    spark.run(None)
    assert not spark.copies()
    assert not spark.committed["chunks"]


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_a_damaged_stored_chunk_is_refused(spark, harm):
    spark.run(rows_of(0))
    for path in spark.copies():
        path.unlink()
    for name, (blob,) in list(spark.committed["chunks"].items()):
        if harm == "missing":
            del spark.committed["chunks"][name]
        else:
            spark.committed["chunks"][name] = (blob[:-1] + b"!",)
    hosting._live.clear()
    with pytest.raises(StateDamaged, match=r"Chunk p0+ of slot 0") as caught:
        spark.run(rows_of(50))
    assert "start with a new one" in str(caught.value)


def test_a_damaged_head_is_refused(spark):
    spark.run(rows_of(0))
    (head,) = spark.committed["head"]
    spark.committed["head"] = (head[:-2] + b"!}",)
    with pytest.raises(StateDamaged, match="not what was written"):
        spark.run(rows_of(50))


def test_state_of_another_plan_or_version_is_refused(spark, monkeypatch):
    spark.run(rows_of(0))
    ours = spark.plan
    spark.plan = JoinTablePlan.checked(STREAM, ours.table, on=("id",), memory="16MB", slots=1)
    with pytest.raises(CheckpointMismatch, match="on was 'k = k' and is now 'id = k'"):
        spark.run(rows_of(50))
    spark.plan = ours
    monkeypatch.setattr(hosting, "STATE_FORMAT", 2)
    with pytest.raises(CheckpointMismatch, match="state format 1; this version of Penstock reads 2"):
        spark.run(rows_of(50))


def test_there_is_a_timer_exactly_while_something_is_pending(spark):
    spark.run(rows_of(0))
    assert len(spark.committed["timers"]) == 1
    spark.run(rows_of(50))
    assert len(spark.committed["timers"]) == 1, "the earlier one was taken back"
    # Spark takes a timer away when it has fired.
    spark.committed["timers"].clear()
    spark.run(None)
    assert not spark.committed["timers"]


def test_flows_of_one_query_leave_each_other_what_is_on_its_way(tmp_path):
    def sent(attempt):
        (parcel,) = [*(outbox := Outbox(tmp_path, attempt)).add("results", rows_of(0)), *outbox.close()]
        return parcel

    one = sent(Attempt(batch=3, stage=7, partition=0, number=20))
    other = sent(Attempt(batch=3, stage=7, partition=2, number=21))
    later = sent(Attempt(batch=3, stage=8, partition=0, number=22))
    assert sum(rows.num_rows for parcel in (one, other) for rows in unwrap(parcel, STREAM)) == 100
    again = sent(Attempt(batch=3, stage=8, partition=0, number=23))
    assert [path.name for path in tmp_path.iterdir()] == [again.file.rpartition("/")[2]] != [later.file]
    sent(Attempt(batch=4, stage=9, partition=1, number=24))
    assert len(list(tmp_path.iterdir())) == 1


def test_records_that_no_source_could_read_wait_on_disk_until_they_can_be_sent(spark, monkeypatch):
    """Nothing travels while a kernel reads its portions: in memory, a file of bad records could outgrow any budget."""
    monkeypatch.setattr("penstock.spark.outbox._AHEAD", 0)
    bad = pa.record_batch({"reason": ["no"] * 9, "source": [None] * 9, "raw": ["?"] * 9}, schema=SET_ASIDE_SCHEMA)
    sent = [(0, rows_of(0)), (ASIDE, bad), (ASIDE, bad), (0, rows_of(50))]
    host = Processor(spark.plan, ids=(77,))
    host.init(Handle(copy.deepcopy(spark.committed)))
    packed = pd.DataFrame({"side": [side for side, _ in sent], "blob": [rows.serialize() for _, rows in sent]})
    found = pd.concat(list(host.handleInputRows((77,), iter([packed]), None)))
    (parcel,) = found[found.channel == "set_aside"][list(Parcel._fields)].itertuples(index=False, name=None)
    assert Parcel(*parcel).blob is None
    assert sum(rows.num_rows for rows in unwrap(Parcel(*parcel), SET_ASIDE_SCHEMA)) == 18
    names = [metric.name for metric in reports_of(spark.plan)]
    assert found[found.channel == METRICS].iloc[-1][NUMBERS][names.index("rows_malformed")] == 18


def test_rows_travel_in_files_while_few_of_them_wait_and_in_messages_then(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.spark.outbox._AHEAD", 2)
    monkeypatch.setattr("penstock.spark.outbox._FILE_BYTES", 1_500)
    outbox = Outbox(tmp_path, Attempt())
    sent = [parcel for first in range(0, 400, 50) for parcel in outbox.add("results", rows_of(first))]
    sent += outbox.close()
    # Two batches of 800 bytes fill a file.
    assert [parcel.file is None for parcel in sent] == [False] * 2 + [True] * 4
    discard(sent[0])
    discard(sent[-1])
    assert len(list(tmp_path.iterdir())) == 1
    ids = [rows["id"].to_pylist() for parcel in sent[1:] for rows in unwrap(parcel, STREAM)]
    assert list(itertools.chain(*ids)) == list(range(100, 400))
    assert not list(tmp_path.iterdir())


class Witness(Kernel):
    """Tells the watermark of its steps."""

    channels: ClassVar = {"results": STREAM}
    heard: ClassVar[list[int | None]] = []

    def step(self, batch, now):
        list(batch)
        self.heard.append(batch.watermark)
        return iter(())

    def memory(self):
        return 0

    def changes(self):
        return Changes({}, ())

    def head(self):
        return b""

    def restore(self, head, chunks):
        pass

    def metrics(self):
        return {"heard_late": 2, "heard": 3}


class WitnessPlan(Plan):
    name = "witness"
    reports = (Metric("heard_"), Metric("heard"))
    slots = 1
    sides = (Side(STREAM, event_time="id", lateness=10), Side(STREAM, event_time="id"))
    channels = Witness.channels

    def make(self, slot):
        return Witness()

    def identity(self):
        return {}

    def explain(self):
        return ""


def test_the_watermark_is_of_the_side_that_is_behind_in_earlier_batches(spark):
    Witness.heard.clear()
    committed = copy.deepcopy(spark.committed)
    for told in [(0, 100), (0, 90)], [(1, 200)], [(1, 95)], []:
        sent = [(EVENT_TIME - side, latest.to_bytes(8, "big", signed=True)) for side, latest in told]
        host = Processor(WitnessPlan(), ids=(77,))
        host.init(Handle(committed))
        packed = pd.DataFrame({"side": [side for side, _ in sent], "blob": [blob for _, blob in sent]})
        (frame,) = host.handleInputRows((77,), iter([packed]), None)
    assert Witness.heard == [None, None, 90, 90]
    assert frame[NUMBERS][0][0] == 3.0
    assert frame[FAMILIES][0] == '{"heard_late": 2.0}'


def test_a_timer_fires_in_the_next_micro_batch_and_not_in_this_one(spark):
    for _ in range(2):
        spark.run(rows_of(0))
        (timer,) = spark.committed["timers"]
        # The watermark of a micro-batch is the logical time of the one before.
        assert clock_of(spark.batch - 2) < timer < clock_of(spark.batch - 1)


def test_a_kernel_is_restored_from_copies_on_disk_where_there_are_any(spark, monkeypatch):
    one, _ = spark.run(rows_of(0))
    hosting._live.clear()
    monkeypatch.setattr(Map, "getValue", lambda self, key: pytest.fail("read from the state store, which is slow"))
    two, numbers = spark.run(None)
    assert numbers["slots_restored"] == 1
    assert_same_rows(pa.concat_tables([one, two]), wanted(rows_of(0)))


def of(memory):
    """A kernel that holds so many bytes."""
    return SimpleNamespace(memory=lambda: memory)


def kept(live, *states):
    """Which of these a worker has; asked of nothing that it has not, which would tell it that slots have moved."""
    return [state for state in states if any(key == ("query", state) for key in live._kept)]


def test_a_worker_keeps_the_kernels_that_stepped_last_within_what_one_may_hold():
    live = LiveKernels()
    for state, memory in [("a", 6 << 20), ("b", 3 << 20), ("c", 2 << 20), ("d", 5 << 20), ("e", 3 << 20)]:
        live.keep("query", state, "token", 0, of(memory))
    assert kept(live, *"abcde") == ["e"], "its 3 MB allow no other of 5"
    for state in ("f", "g", "h"):
        live.keep("query", state, "token", 0, of(1 << 19))
    assert kept(live, *"efgh") == ["f", "g", "h"], "a megabyte in any case"


def test_a_worker_that_gets_a_slot_it_has_not_lets_go_of_what_others_have_now():
    live = LiveKernels()
    for state in ("a", "b", "c"):
        live.keep("query", state, "old", 0, of(1))
    live.keep("another", "a", "old", 0, of(1))
    a = live.take("query", "a", "old", 1)
    assert a is not None
    live.keep("query", "a", "new", 1, a)
    assert kept(live, *"abc") == ["a", "b", "c"], "it has had no other slot yet"
    assert live.take("query", "d", "old", 1) is None
    assert kept(live, *"abcd") == ["a"], "the one that it stepped in this micro-batch"
    assert len(live) == 2, "and those of other queries"
