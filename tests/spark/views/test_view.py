"""`ps.View` as its users have it: fresh when asked, stale when they say so, told when a promise cannot be kept."""

import errno
import shutil
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import (
    AnswerTimeTooShort,
    BadOption,
    PenstockError,
    PlanError,
    SessionNotReady,
    SourceLost,
    UnknownColumn,
    UnknownTable,
    UnreadableTable,
    UnsupportedType,
    ViewDamaged,
    ViewInUse,
)
from penstock.kernels.views import pace
from tests.spark.views.world import OPERATION, SCHEMAS, World, same

pytestmark = pytest.mark.spark
SQL = "SELECT name, COUNT(*) AS n, SUM(qty) AS s FROM orders JOIN customers USING (c) GROUP BY name"


def two(world):
    return {name: table for name, table in world.tables().items() if name != "nations"}


def wait_until(happened):
    until = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_read_is_fresh_and_says_so(spark, tmp_path, monkeypatch):
    world = World(tmp_path)
    with ps.View(SQL, tables=two(world), at=tmp_path / "view", answer_within="5 minutes", spark=spark) as view:
        assert "promise     answers within 5 min" in view.explain()
        world.change("orders")
        world.change("customers")
        assert view.progress().waiting == {"orders": 12, "customers": 12}
        assert view.tick() == [], "what waits can be cleared in time, so nothing is done"

        stale = view.read(max_staleness="1 hour")
        assert (stale.fresh, stale.version, dict(stale.refreshed)) == (False, 0, {})
        assert stale.missing == {"orders": 12, "customers": 12}
        assert 0 < stale.stale_by < 60
        same(stale.to_arrow(), world.judge(SQL), {"stale": True})

        world.take("orders", "customers")
        answer = view.read()
        assert answer.fresh
        assert (answer.stale_by, dict(answer.refreshed)) == (0, {"orders": 12, "customers": 12})
        same(answer.to_arrow(), world.judge(SQL), {"fresh": True})

        said = view.progress()
        assert (said.reads, said.reads_in_time) == (2, 2)
        # Whether it can be kept at this rate is a matter of how fast the machine is just now.
        assert said.promise_kept == said.promise.startswith("Answers within 5 min: refreshing needs")
        assert said.set_aside == {name: world.refused[name] for name in ("orders", "customers")}
        assert said.changes == {"orders": 12, "customers": 12}
        assert said.refreshes == {"orders": 1, "customers": 1}
        assert all(setup + each > 0 for setup, each in said.costs.values())
        aside = pq.read_table(tmp_path / "view" / "aside" / "orders")
        assert aside.num_rows == world.refused["orders"]
        assert set(aside["reason"].to_pylist()) == {"no such row"}
        assert set(aside[OPERATION].to_pylist()) == {"delete"}, "what it was to do"

        with pytest.raises(ViewInUse, match="is maintained by process"):
            ps.View(SQL, tables=two(world), at=tmp_path / "view", answer_within="1 min", spark=spark)
        with pytest.raises(UnknownTable, match="orders"):
            view.refresh("order")
        # A promise that the rates do not allow is said to be broken, with the rates that could be.
        service = view._opened.service
        service._rates.arrived(service._now(), [10**15, 10**15])
        for changes, seconds in [(1, 0.5), (1000, 2.0)] * 20:
            service._times.refreshes["orders"].measured(changes, seconds)
        told = view.progress()
        assert not told.promise_kept
        assert "too fast" in told.promise
        assert "could be kept at orders:" in told.promise

    # The next run goes on, with what was measured.
    with ps.View(SQL, tables=two(world), at=tmp_path / "view", answer_within="5 minutes", spark=spark) as view:
        same(view.read().to_arrow(), world.judge(SQL), {"again": True})
        assert view.progress().refreshes == {}
        # What arrives while a reader waits for its turn is not owed to it, and not brought in for it.
        service = view._opened.service
        look = service._look
        monkeypatch.setattr(service, "_look", lambda: (world.change("orders"), look())[1])
        answer = view.read()
        assert (answer.fresh, dict(answer.refreshed)) == (True, {})
        same(answer.to_arrow(), world.judge(SQL), {"later": True})
        assert view.progress().waiting == {"orders": 12, "customers": 0}
        monkeypatch.undo()
        # A file that is not whole is told of, and tried again until it is mended.
        cut = tmp_path / "customers-changes" / "cut.parquet"
        cut.touch()
        view.start(every="10 ms")
        wait_until(lambda: service._fault is not None)
        assert "cut.parquet cannot be read" in view.progress().promise
        cut.unlink()
        wait_until(lambda: service._fault is None)
        assert "cut.parquet" not in view.progress().promise
        # Others have the directory when a reader's refresh is done, not before.
        closing = threading.Thread(target=view.close)
        with service._lock:
            closing.start()
            closing.join(0.5)
            with pytest.raises(ViewInUse):
                ps.View(SQL, tables=two(world), at=tmp_path / "view", answer_within="1 min", spark=spark)
        closing.join()
        with pytest.raises(PlanError, match="is closed"):
            view.read()
        with pytest.raises(PlanError, match="is closed"):
            view.refresh()
    with pytest.raises(PlanError, match="holds another view"):
        ps.View(SQL.replace("SUM", "MAX"), tables=two(world), at=tmp_path / "view", answer_within="1 min", spark=spark)
    path = tmp_path / "orders" / "base.parquet"
    shutil.copy(path, more := path.with_name("more.parquet"))
    with pytest.raises(ViewDamaged, match="Other files of orders are there"):
        ps.View(SQL, tables=two(world), at=tmp_path / "view", answer_within="1 min", spark=spark)
    more.unlink()
    pq.write_table(world.arrow("orders", []), path)
    with pytest.raises(ViewDamaged, match=r"base.parquet was changed"):
        ps.View(SQL, tables=two(world), at=tmp_path / "view", answer_within="1 min", spark=spark)


def test_changes_that_come_as_a_stream(spark, tmp_path, monkeypatch):
    """A stream of changes, a table given as a DataFrame, and a planner that acts by itself when it must."""
    from penstock.spark.schema import spark_schema

    world = World(tmp_path, rows=30)
    schema = spark_schema(SCHEMAS["customers"].append(pa.field(OPERATION, pa.string())))
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "customers-changes"))
    tables = {
        "customers": replace(world.tables()["customers"], changes=stream),
        "nations": spark.read.parquet(str(tmp_path / "nations")),
    }
    sql = "SELECT label, MAX(c) AS last, COUNT(*) AS n FROM customers JOIN nations USING (n) GROUP BY label"
    world.change("customers")
    with ps.View(sql, tables=tables, at=tmp_path / "view", answer_within="2 minutes", planner="naive") as view:
        view.take_in()
        world.take("customers")
        same(view.read().to_arrow(), world.judge(sql), {"finite": True})
        # A stream whose checkpoint is lost would bring everything once more.
        checkpoint = tmp_path / "view" / "log" / ".customers-checkpoint"
        checkpoint.rename(tmp_path / "kept")
        with pytest.raises(ViewDamaged, match="-checkpoint is lost, or an old copy"):
            view.take_in()
        assert not checkpoint.exists()
        (tmp_path / "kept").rename(checkpoint)
        # Nor does a stream that failed go unseen until someone reads: of what it would bring nothing waits.
        (tmp_path / "customers-changes" / "poison.parquet").write_bytes(b"no Parquet file")
        with pytest.raises(Exception, match=r"poison\.parquet"):
            view.take_in()
        told = view.progress()
        assert not told.promise_kept
        assert told.promise.startswith("The stream of changes of customers failed: ")
        assert "poison.parquet" in told.promise
        assert len(told.promise) < 1_000
        pq.write_table(
            world.arrow("customers", []).append_column(OPERATION, pa.array([], pa.string())), tmp_path / "ok"
        )
        (tmp_path / "ok").rename(tmp_path / "customers-changes" / "poison.parquet")
        view.take_in()
        # Whether these changes come too fast is a matter of the machine.
        assert not view.progress().promise.startswith("The stream of changes")
        # Nothing is left for refreshing, so all is done at once.
        view._opened.service._times.reading.append(120.0)
        monkeypatch.setattr(pace, "LEEWAY", 0.0)
        view.start(every="100 ms")
        world.change("customers")
        until = time.monotonic() + 300
        while view.progress().changes["customers"] < 24 and time.monotonic() < until:
            time.sleep(0.05)
        world.take("customers")
        same(view.read(max_staleness="0 s").to_arrow(), world.judge(sql), {"live": True})
        assert view.progress().changes == {"customers": 24}


def test_files_of_a_stream_of_changes_are_read_all_and_once(spark, tmp_path):
    from penstock.spark.schema import spark_schema

    world = World(tmp_path, rows=30)
    schema = spark_schema(SCHEMAS["orders"].append(pa.field(OPERATION, pa.string())))
    folder = tmp_path / "orders-changes"

    def bring(name):
        rows = world.arrow("orders", [world._order()]).append_column(OPERATION, pa.array(["insert"]))
        pq.write_table(rows, tmp_path / name)
        (tmp_path / name).rename(folder / name)

    def view(**options):
        stream = spark.readStream.schema(schema).options(**options).parquet(str(folder))
        orders = replace(world.tables()["orders"], changes=stream)
        sql = "SELECT COUNT(*) AS n FROM orders"
        return ps.View(sql, tables={"orders": orders}, at=tmp_path / "view", answer_within="2 minutes", spark=spark)

    with view() as opened:
        bring("1.parquet")
        (folder / "2.parquet").write_bytes(b"no Parquet file")
        with pytest.raises(Exception, match=r"2\.parquet"):
            opened.take_in()
        # Both are in a micro-batch that is planned. One that has gone since would be passed over.
        bring("2.parquet")
        (folder / "1.parquet").rename(tmp_path / "safe")
        with pytest.raises(SourceLost, match=r"deleted before they were surely read: .*1\.parquet"):
            opened.take_in()
        (tmp_path / "safe").rename(folder / "1.parquet")
        opened.take_in()
        assert opened.read().to_arrow().to_pylist() == [{"n": 32}]
        bring("a[3].parquet")
        bring("a[4].parquet")
        with pytest.raises(PlanError, match="several times"):
            opened.take_in()
    with view(recursiveFileLookup="true") as opened:
        opened.take_in()
        assert opened.read().to_arrow().to_pylist() == [{"n": 34}]


def test_what_a_stream_brought_is_not_left_out_because_the_stream_is(spark, tmp_path):
    from penstock.spark.schema import spark_schema

    world = World(tmp_path, rows=30)
    schema = spark_schema(SCHEMAS["customers"].append(pa.field(OPERATION, pa.string())))
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "customers-changes"))
    sql = "SELECT name, COUNT(*) AS n FROM customers GROUP BY name"

    def view(changes):
        customers = replace(world.tables()["customers"], changes=changes)
        at = tmp_path / "view"
        return ps.View(sql, tables={"customers": customers}, at=at, answer_within="2 minutes", spark=spark)

    world.change("customers")
    with view(stream) as streamed:
        streamed.take_in()
    for changes in (tmp_path / "later", None):
        with pytest.raises(PlanError, match="1 micro-batches of the stream of changes of customers"):
            view(changes)
    with view(stream) as streamed:
        streamed.read()
    (tmp_path / "later").mkdir()
    for number in range(2):
        with view(tmp_path / "later") as later:
            world.change("customers")
            name = f"{world.files:06d}.parquet"
            (tmp_path / "customers-changes" / name).rename(tmp_path / "later" / name)
            world.take("customers")
            same(later.read().to_arrow(), world.judge(sql), {"from files": number})


def test_bad_input_is_found_before_anything_runs(spark, tmp_path):
    world = World(tmp_path)

    def view(**options):
        given = {"tables": two(world), "at": tmp_path / "view", "answer_within": "1 min", "spark": spark} | options
        return ps.View(given.pop("sql", SQL), **given)

    with pytest.raises(BadOption, match="online, simulate, naive"):
        view(planner="offline")
    with pytest.raises(BadOption, match="answer_within"):
        view(answer_within=12)
    with pytest.raises(BadOption, match="more than zero"):
        view(answer_within="0 s")
    with pytest.raises(UnknownTable, match="does not use nations"):
        view(tables=world.tables())
    with pytest.raises(UnreadableTable, match="no Parquet files"):
        view(tables={"orders": tmp_path / "nowhere"})
    with pytest.raises(BadOption, match="not a table"):
        view(tables={"orders": 3})
    with pytest.raises(UnknownColumn, match="The table customers has no column"):
        view(tables={**two(world), "customers": ps.Changing(tmp_path / "customers", key="id")})
    with pytest.raises(BadOption, match="key of customers has a column twice"):
        view(tables={**two(world), "customers": ps.Changing(tmp_path / "customers", key=["c", "c"])})
    # They would be found when the first change is read, again and again.
    for column in ("_CHANGE_TYPE", "__Sign"):
        pq.write_table(pa.table({"a": [1], column: ["x"]}), tmp_path / "own.parquet")
        own = ps.Changing(tmp_path / "own.parquet", changes=tmp_path / "orders-changes")
        with pytest.raises(BadOption, match=f"a has a column {column}, which"):
            view(sql="SELECT COUNT(*) AS n FROM a", tables={"a": own})
    stream = spark.readStream.schema("c long").parquet(str(tmp_path / "customers-changes"))
    with pytest.raises(UnknownColumn, match="stream of changes"):
        view(tables={**two(world), "customers": ps.Changing(tmp_path / "customers", changes=stream)})
    with pytest.raises(BadOption, match="is a stream"):
        view(tables={**two(world), "customers": stream})
    pq.write_table(pa.table({"t": pa.array([0], pa.timestamp("ns"))}), tmp_path / "ns.parquet")
    with pytest.raises(UnreadableTable, match="t counts nanoseconds"):
        view(sql="SELECT COUNT(*) AS n FROM a", tables={"a": tmp_path / "ns.parquet"})
    # What lies in a table's directory is all of it read, or the table is refused.
    for odd, said in (("more.pq", "cannot be read"), ("day=2/x.parquet", "divided into folders such as 'day=2'")):
        (tmp_path / "odd" / odd).parent.mkdir(parents=True)
        (tmp_path / "odd" / odd).touch()
        pq.write_table(pa.table({"a": [1]}), tmp_path / "odd" / "a.parquet")
        with pytest.raises(UnreadableTable, match=said):
            view(sql="SELECT COUNT(*) AS n FROM a", tables={"a": tmp_path / "odd"})
        shutil.rmtree(tmp_path / "odd")
    # Files that a table's log says are gone are not rows of it.
    (tmp_path / "delta" / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "delta" / "gone.parquet")
    with pytest.raises(UnreadableTable, match="another kind: Delta"):
        view(sql="SELECT COUNT(*) AS n FROM a", tables={"a": tmp_path / "delta"})
    wraps = spark.newSession()
    wraps.conf.set("spark.sql.ansi.enabled", "false")
    with pytest.raises(SessionNotReady, match="overflows"):
        view(spark=wraps)
    for setting in ("datetimeRebaseModeInRead", "datetimeRebaseModeInWrite", "int96RebaseModeInWrite"):
        old = spark.newSession()
        old.conf.set(f"spark.sql.parquet.{setting}", "LEGACY")
        with pytest.raises(SessionNotReady, match=f"{setting} = LEGACY"):
            view(spark=old)
    assert not (tmp_path / "view").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(BadOption, match="not empty"):
        view(at=tmp_path / "full")
    with pytest.raises(AnswerTimeTooShort, match="Give at least answer_within="):
        view(sql="SELECT COUNT(*) AS n FROM orders", tables={"orders": two(world)["orders"]}, answer_within="1 ms")


def test_files_of_changes_that_cannot_be_read(spark, tmp_path, monkeypatch):
    """In a place whose name is no pattern, and in a session that passes over what it cannot read: a view does not."""
    tmp_path = tmp_path / "[a]{*}"
    world = World(tmp_path)
    lenient = spark.newSession()
    lenient.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    view = world.maintainer(lenient, "SELECT COUNT(*) AS n FROM orders", ["orders"])
    path = tmp_path / "orders-changes" / "a.parquet"
    path.write_bytes(b"not whole")
    with pytest.raises(SourceLost, match=r"a.parquet cannot be read"):
        view.waiting("orders")
    path.unlink()
    rows = pa.table({"o": ["one"], OPERATION: ["insert"]})
    pq.write_table(rows, path)
    with pytest.raises(UnknownColumn, match="has no column 'c'"):
        view.advance("orders")
    texts = world.arrow("orders", world.newest["orders"]).set_column(0, "o", pa.array(["1"] * 60))
    pq.write_table(texts.append_column(OPERATION, pa.array(["insert"] * 60)), path)
    with pytest.raises(UnsupportedType, match="o is string in it, and int64 in the table"):
        view.advance("orders")
    path.unlink()
    world.change("orders")
    entries = view.waiting("orders")
    (tmp_path / "orders-changes" / entries[0].name).unlink()
    with pytest.raises(SourceLost, match="12 changes of orders in it were not taken yet"):
        view.advance("orders", entries)
    assert view.manifest.version == 0
    world.change("orders")

    def full(manifest):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(view._store, "commit", full)
    with pytest.raises(PenstockError, match="No space left on device"):
        view.advance("orders")
    monkeypatch.undo()
    # What is not durable was not taken.
    assert view.manifest.version == 0
    # What the failed step set aside is there once, though another version came before it was done again.
    view.tidy("orders", nullcontext())
    assert [one.changes for one in view.advance("orders")] == [12]
    aside = view.manifest.tables["orders"].aside
    assert aside
    assert pq.read_table(tmp_path / "view" / "aside" / "orders").num_rows == aside
    # What cannot be removed is told of as what it is: the version is there.
    world.change("orders")
    monkeypatch.setattr(view._store, "sweep", full)
    with pytest.raises(PenstockError, match=r"could not be removed: .*No space left") as told:
        view.advance("orders")
    monkeypatch.undo()
    assert "Version 3 is there" in str(told.value)
    assert view.manifest == view._store.last()
    assert view.waiting("orders") == []
    damaged = Path(view.manifest.tables["orders"].base[0].path)
    damaged.write_bytes(b"not whole")
    with pytest.raises(Exception, match=damaged.name):
        view._deltas.whole(view.manifest.tables).collect()
    view._store.close()


def test_settings_that_change_while_a_view_is_open(spark, tmp_path):
    """Days are those of the time zone that there was when it was opened, whichever way a group is made anew."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    rows = pa.table({"at": pa.array([0, 23 * 3_600_000_000], pa.timestamp("us", "UTC")), "x": [1, 2]})
    pq.write_table(rows, tmp_path / "t.parquet")
    (tmp_path / "log").mkdir()
    table = ps.Changing(tmp_path / "t.parquet", tmp_path / "log")
    sql = "SELECT EXTRACT(DAY FROM at) AS day, MIN(x) AS least FROM t GROUP BY day"
    with ps.View(sql, tables={"t": table}, at=tmp_path / "view", answer_within="5 minutes", spark=own) as view:
        own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        gone = rows.slice(0, 1).append_column(OPERATION, pa.array(["delete"]))
        pq.write_table(gone, tmp_path / "log" / "1")
        assert view.read().to_arrow().to_pylist() == [{"day": 1, "least": 2}]
        own.conf.set("spark.sql.ansi.enabled", "false")
        with pytest.raises(SessionNotReady, match="overflows"):
            view.read()
