"""Catch-up: live results and those of the archive together are DuckDB's join, each row once, whatever happened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import (
    ArchiveInUse,
    BadOption,
    KeyTypeMismatch,
    PlanError,
    SinkDamaged,
    TableChanged,
    UnknownColumn,
)
from penstock.kernels.mesh.shedding import REASON
from penstock.plan.passthrough import PassThroughPlan
from penstock.spark import catch_up, sink
from penstock.spark.archive import Archive, survey
from penstock.spark.files import write_whole
from penstock.spark.runtime import run
from penstock.spark.schema import arrow_schema
from penstock.spark.sink import Ledger, StagedFile, staging
from penstock.testing import assert_same_rows
from tests.spark.conftest import Desk, assert_is_join, eventually, sampled
from tests.spark.test_join_table import KINDS, NESTED, keyed, nested

pytestmark = pytest.mark.spark

REASONS = ("memory", "rate")


class Shed:
    """An archive that is written as a flow's sink does, batch by batch."""

    def __init__(self, place: Path, owner: str = "a-checkpoint", checkpoint: Path | None = None) -> None:
        self.place = place
        self.ledger = Ledger(place, owner, checkpoint=checkpoint)
        self.ledger.claim()
        self.rows: list[pa.Table] = []

    def add(self, *tasks: pa.Table) -> None:
        """One micro-batch; each task writes one file."""
        self.ledger.commit(self.next(), self.stage(*tasks))

    def next(self) -> int:
        return max(self.ledger.batches(), default=-1) + 1

    def stage(self, *tasks: pa.Table) -> list[dict[str, Any]]:
        files = []
        for rows in tasks:
            self.rows.append(rows)
            why = pa.array([REASONS[n % 3 == 0] for n in range(rows.num_rows)])
            whole = rows.append_column(REASON, why)
            staged = StagedFile(self.place, self.next(), whole.schema)
            for batch in whole.to_batches():
                staged.add(batch)
            said = staged.close("shed").to_pylist()[0]
            files.append({"name": said["file"], "rows": said["rows"], "bytes": said["bytes"]})
        return files

    @property
    def all(self) -> pa.Table:
        return pa.concat_tables(self.rows)


def orders(count: int = 400, seed: int = 1, first: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = pa.array(rng.integers(0, 600, count), mask=rng.random(count) < 0.1)
    return pa.table({"order_id": np.arange(first, first + count), "product_id": keys})


def products(seed: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = pa.array(rng.integers(0, 500, 900), mask=rng.random(900) < 0.05)
    return pa.table({"product_id": ids, "price": rng.random(900), "name": [f"product {n}" for n in range(900)]})


@pytest.fixture
def shed(tmp_path: Path) -> Shed:
    return Shed(tmp_path / "archive")


def read(place: Path) -> pa.Table:
    """What any reader of a Parquet directory sees."""
    return ds.dataset([str(file) for file in sorted(place.glob("*.parquet"))], format="parquet").to_table()


def is_join(desk: Desk, shed: Shed, rows: pa.Table, name: str = "out") -> None:
    assert_is_join(read(desk.folder / name), shed.all, rows, ["product_id"], ["product_id"])


def catch(desk: Desk, table: ps.tables.Table, **options: Any) -> catch_up.CaughtUp:
    given = {"on": "product_id", "into": desk.folder / "out"} | options
    return ps.catch_up(desk.spark, desk.folder / "archive", table, **given)


# -- exact -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prepared", [False, True], ids=["parquet", "prepared"])
@pytest.mark.parametrize("kind", sampled(KINDS))
def test_every_kind_of_key(desk: Desk, shed: Shed, kind: str, prepared: bool):
    rng = np.random.default_rng(7)
    columns = KINDS[kind]
    on, key = [f"k{n}" for n in range(len(columns))], [f"key{n}" for n in range(len(columns))]
    rows = keyed(rng, 800, key, [(theirs, pool) for _, theirs, pool in columns], 0.1)
    rows = rows.append_column("note", pa.array([None if n % 5 == 0 else f"note {n}" for n in range(800)]))
    stream = keyed(rng, 500, on, [(ours, pool) for ours, _, pool in columns], 0.1)
    stream = stream.add_column(0, "id", pa.array(np.arange(500)))
    shed.add(stream.slice(0, 200), stream.slice(200, 100))
    shed.add(stream.slice(300))
    done = catch(desk, desk.table(rows, key, prepared=prepared), on=on)
    got = read(desk.folder / "out")
    assert (done.rows, done.results, done.left_rows) == (500, got.num_rows, 0)
    assert got.num_rows > 500
    assert_is_join(got, stream, rows, on, key)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_every_join(desk: Desk, shed: Shed, how: Any):
    stream, rows = orders(), products()
    shed.add(stream)
    done = catch(desk, desk.table(rows, "product_id"), how=how)
    carried = "" if how in ("semi", "anti") else ", price, name"
    with duckdb.connect() as judge:
        query = f"SELECT s.*{carried} FROM stream s {how} JOIN rows r ON s.product_id = r.product_id"
        want = judge.sql(query).to_arrow_table()
    got = read(desk.folder / "out")
    assert_same_rows(got, want.cast(got.schema), label=how)
    assert done.results == want.num_rows > 0
    assert sum(done.reasons.values()) == done.rows == 400
    assert set(done.reasons) == set(REASONS)


def test_nan_joins_nothing_though_spark_has_it_equal_itself(desk: Desk, shed: Shed):
    stream = pa.table({"id": [1, 2, 3, 4], "k": [float("nan"), 0.0, 1.5, None]})
    rows = pa.table({"key": [float("nan"), -0.0, 1.5, None], "what": ["nan", "zero", "more", "null"]})
    shed.add(stream)
    catch(desk, desk.table(rows, "key"), on="k")
    assert sorted(read(desk.folder / "out")["what"].to_pylist()) == ["more", "zero"]
    assert sorted(read(desk.folder / "out")["id"].to_pylist()) == [2, 3]


@pytest.mark.slow
def test_columns_are_those_of_the_live_results(desk: Desk, shed: Shed):
    """Names, order, types: one reader for both directories."""
    rng = np.random.default_rng(5)
    stream, table = nested(rng, 200), nested(rng, 300)
    rows = table.rename_columns(["number", "k", *(f"their_{name}" for name in NESTED.names[2:])])
    opened = desk.table(rows, "k")
    flow = ps.join_table(desk.stream(stream.slice(0, 100)), opened, on="k", memory="32MB")
    desk.run(flow, name="live")
    shed.add(stream.slice(100).cast(arrow_schema(desk.stream(stream, name="again"))))
    catch(desk, opened, on="k")
    live, late = (pq.read_schema(next((desk.folder / name).glob("*.parquet"))) for name in ("live", "out"))
    assert late.equals(live)
    both = pa.concat_tables([read(desk.folder / "live"), read(desk.folder / "out")])
    assert both.num_rows == duckdb.sql("SELECT count(*) FROM stream JOIN rows USING (k)").fetchall()[0][0]


def test_old_dates_are_what_they_were_in_a_session_that_takes_them_for_julian(desk: Desk, shed: Shed):
    days, times = (
        pa.array([-719_162, -200_000], pa.date32()),
        pa.array([-(6 << 53), -(1 << 54)], pa.timestamp("us", "UTC")),
    )
    stream = pa.table({"product_id": [1, 2], "day": days, "at": times})
    shed.add(stream)
    rows = pa.table({"product_id": [1, 2], "price": [1.5, 2.5]})
    desk.spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    try:
        catch(desk, desk.table(rows, "product_id"))
    finally:
        desk.spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")
    is_join(desk, shed, rows)


def test_paths_with_characters_that_stand_for_others(desk: Desk):
    odd = Desk(desk.spark, desk.folder / "day=1" / "a[b]{c}")
    odd.folder.mkdir(parents=True)
    shed = Shed(odd.folder / "archive")
    rows = products()
    shed.add(orders())
    catch(odd, odd.table(rows, "product_id"))
    is_join(odd, shed, rows)


def test_table_without_rows(desk: Desk, shed: Shed):
    shed.add(orders())
    empty = desk.table(products().slice(0, 0), "product_id")
    assert catch(desk, empty).results == 0
    assert catch(desk, empty).rows == 0, "the rows count as done"


def test_pages_of_which_much_is_wanted_are_read_in_order(desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch):
    table = desk.table(products(), "product_id")
    shed.add(orders())
    marks = survey(Archive.open(shed.place).portion(after=-1), ("product_id",)).marks
    ways = []
    for fetch in (0, 1 << 30):
        monkeypatch.setattr(catch_up, "_FETCH", fetch)
        reader = table.open()
        ways.append(pa.Table.from_batches([b for page in table.pages for b in catch_up._likely(reader, page, marks)]))
        reader.close()
    assert ways[0].equals(ways[1])
    assert 0 < ways[0].num_rows < 900


def test_another_kind_of_join_than_the_flow_made_is_refused(tmp_path: Path):
    """A left join whose archive is joined by default, that is inner, would lack the rows without partner."""
    fault = r"is a left join, and this catch-up an inner one(.|\n)*how=\"left\""
    _refused(tmp_path, {"how": "left"}, "product_id", fault)


def test_a_join_on_other_columns_than_the_flow_made_is_refused(tmp_path: Path):
    """It would be committed as the rest of the exact join, and could not be taken back."""
    flow = {"how": "inner", "on": "product_id = product_id"}
    _refused(tmp_path, flow, "order_id", "joins on product_id = product_id, and this catch-up on order_id = product_id")


def _refused(folder: Path, flow: dict[str, str], on: str, match: str) -> None:
    checkpoint = folder / "ck"
    checkpoint.mkdir()
    write_whole(checkpoint / "penstock.json", {"format": 1, "identity": flow, "id": "a-checkpoint"})
    shed = Shed(folder / "archive", checkpoint=checkpoint)
    shed.add(orders())
    (folder / "table").mkdir()
    pq.write_table(products(), folder / "table" / "a.parquet")
    table = ps.table(folder / "table", key="product_id")
    with pytest.raises(PlanError, match=match):
        ps.catch_up(None, folder / "archive", table, on=on, into=folder / "out")  # type: ignore[arg-type]


# -- once --------------------------------------------------------------------------------------------------------------


def test_second_run_adds_nothing_and_growth_is_taken(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    assert catch(desk, table).rows == 0, "an archive without a batch"
    shed.add()
    assert catch(desk, table).rows == 0, "a batch without a file"
    shed.add(orders(100), orders(50, first=100))
    assert catch(desk, table).rows == 150
    is_join(desk, shed, rows)
    assert catch(desk, table) == catch_up.CaughtUp()
    is_join(desk, shed, rows)
    for number in range(3):
        shed.add(orders(100, seed=number, first=1000 * (number + 1)))
    done = catch(desk, table)
    assert (done.rows, done.files) == (300, 3)
    is_join(desk, shed, rows)


def test_far_more_batches_than_the_ledger_keeps(desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sink, "_KEPT", 3)
    rows = products()
    table = desk.table(rows, "product_id")
    for number in range(9):
        shed.add(orders(20, seed=number, first=100 * number))
        if number == 1:
            catch(desk, table)
    assert catch(desk, table).rows == 140
    assert catch(desk, table).rows == 0
    is_join(desk, shed, rows)


def test_batch_whose_files_are_still_on_their_way_is_left(desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch):
    """The live flow is between its ledger entry and its renames; or was killed there."""
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders(100))
    files = shed.stage(orders(50, first=500), orders(60, first=600))
    with monkeypatch.context() as patch:
        patch.setattr(sink, "crash_point", dying("in-commit", 2))
        with pytest.raises(Killed):
            shed.ledger.commit(1, files)
    done = catch(desk, table)
    assert (done.rows, done.left_rows) == (100, 110)
    shed.ledger.commit(1, [])
    assert catch(desk, table).rows == 110
    is_join(desk, shed, rows)


@pytest.mark.slow
def test_while_a_flow_adds_to_the_archive(desk: Desk):
    rows, all_orders = products(), orders(1_000)
    stream = desk.stream(all_orders.append_column(REASON, pa.array(["memory"] * 1_000)), files=10)
    flow = run(PassThroughPlan.checked(arrow_schema(stream), key=("order_id",), slots=2), [stream])
    table = desk.table(rows, "product_id")
    archive, checkpoint = str(desk.folder / "archive"), str(desk.folder / "ck")
    with pytest.warns(UserWarning, match="set_aside"):
        live = flow.start(results=archive, checkpoint=checkpoint, trigger={"availableNow": True})
    eventually(lambda: list((desk.folder / "archive").glob("*.parquet")))
    taken = [catch(desk, table).rows]
    live.wait()
    while rows_now := catch(desk, table).rows:
        taken.append(rows_now)
    assert sum(taken) == 1_000
    assert_is_join(read(desk.folder / "out"), all_orders, rows, ["product_id"], ["product_id"])


class Killed(BaseException):
    """Stands for a SIGKILL: nothing that handles errors sees it."""


def dying(point: str, hit: int) -> Callable[[str], None]:
    hits = []

    def crash_point(name: str) -> None:
        hits.extend([name] * (name == point))
        if hits.count(point) == hit and name == point:
            raise Killed(point)

    return crash_point


@pytest.mark.parametrize(
    ("point", "hit"), [("before-sink", 1), ("before-commit", 1), ("in-commit", 1), ("in-commit", 2), ("after-sink", 1)]
)
def test_interrupted_and_run_again(desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch, point: str, hit: int):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders(300), orders(300, seed=3, first=300))
    for number in range(2):
        with monkeypatch.context() as patch, several_files(desk):
            for module in (sink, catch_up):
                patch.setattr(module, "crash_point", dying(point, hit))
            with pytest.raises(Killed):
                catch(desk, table)
        got = read(desk.folder / "out") if list((desk.folder / "out").glob("*.parquet")) else None
        assert got is None or got.num_rows == len(set(map(str, got.to_pylist()))), "what readers see is there once"
        shed.add(orders(100, seed=4 + number, first=1000 * (number + 1)))
    catch(desk, table)
    assert catch(desk, table).rows == 0
    is_join(desk, shed, rows)
    assert not list(staging(desk.folder / "out").iterdir())


@contextmanager
def several_files(desk: Desk) -> Iterator[None]:
    """So few results would be written as one."""
    desk.spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    yield
    desk.spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")


def test_planted_fault_is_noticed(desk: Desk, shed: Shed, monkeypatch: pytest.MonkeyPatch):
    """A catch-up that forgets how far it got."""
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    catch(desk, table)
    portion = Archive.portion
    monkeypatch.setattr(Archive, "portion", lambda archive, after: portion(archive, -1))
    catch(desk, table)
    with pytest.raises(AssertionError):
        is_join(desk, shed, rows)


def command(desk: Desk, crash: str = "") -> subprocess.CompletedProcess[str]:
    """`penstock catchup` in a session of processes of its own, killed at a point if one is given."""
    environment = os.environ | {"PENSTOCK_CRASH": crash, "PENSTOCK_CRASH_LOG": str(desk.folder / f"crash-{crash}")}
    environment |= {"COLUMNS": "200"}
    arguments = [desk.folder / "archive", "--table", desk.folder / "table", "--key", "product_id"]
    return subprocess.run(
        [sys.executable, "-m", "penstock", "catchup", *map(str, arguments), "--into", str(desk.folder / "out")],
        check=False,
        env=environment,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
def test_command_tells_what_it_did(desk: Desk, shed: Shed):
    rows = products()
    desk.table(rows, "product_id")
    shed.add(orders(300))
    done = command(desk)
    assert done.returncode == 0, done.stderr
    results = read(desk.folder / "out").num_rows
    assert f"{results:,} results of 300 archived rows in 1 files" in done.stdout
    assert {("memory", "200"), ("rate", "100")} <= {tuple(line.split()) for line in done.stdout.splitlines()}
    assert "Nothing is left" in done.stdout
    is_join(desk, shed, rows)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_every_point_and_run_again(desk: Desk, shed: Shed):
    rows = products()
    desk.table(rows, "product_id")
    shed.add(orders(300), orders(300, seed=3, first=300))
    for number, point in enumerate(["before-sink:1", "in-sink:1", "before-commit:1", "in-commit:1", "after-sink:1"]):
        done = command(desk, crash=f"{point}:driver")
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        shed.add(orders(100, seed=number, first=1000 * (number + 1)))
    done = command(desk, crash="in-sink:1:worker")
    assert done.returncode == 0, done.stderr
    assert (desk.folder / "crash-in-sink:1:worker").exists(), "the worker was not killed"
    is_join(desk, shed, rows)
    assert "nothing new" in command(desk).stdout
    is_join(desk, shed, rows)


# -- nothing lost, and clear errors ------------------------------------------------------------------------------------


def nothing_committed(desk: Desk) -> None:
    assert not list((desk.folder / "out").glob("*.parquet"))
    assert not list((desk.folder / "out" / "_penstock" / "ledger").glob("*.json"))


def test_table_file_that_is_gone(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    gone = desk.folder / "table" / "b.parquet"
    gone.rename(desk.folder / "kept")
    with pytest.raises(TableChanged, match=r"b\.parquet is gone.*\n.*nothing of this run was committed"):
        catch(desk, table)
    nothing_committed(desk)
    (desk.folder / "kept").rename(gone)
    catch(desk, table)
    is_join(desk, shed, rows)


def test_archive_file_that_is_gone_cut_or_foreign(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    shed.add(orders(first=1000))
    file = min(shed.place.glob("*.parquet"))
    whole = file.read_bytes()
    file.unlink()
    with pytest.raises(SinkDamaged, match="is missing"):
        catch(desk, table)
    file.write_bytes(whole[:-100])
    with pytest.raises(SinkDamaged, match="cut or changed"):
        catch(desk, table)
    file.write_bytes(whole)
    for name in ("copy.parquet", file.name.replace(file.name[14:26], "0" * 12)):
        (shed.place / name).write_bytes(whole)
        with pytest.raises(SinkDamaged, match=r"not written by|not in the ledger"):
            catch(desk, table)
        (shed.place / name).unlink()
    nothing_committed(desk)
    catch(desk, table)
    is_join(desk, shed, rows)


def test_own_files_that_are_cut_are_named(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    catch(desk, table)
    shed.add(orders(first=1000))
    kept = [path for name in ("archive", "out") for path in sorted((desk.folder / name / "_penstock").rglob("*.json"))]
    assert len(kept) == 6
    for path in kept:
        whole = path.read_text()
        path.write_text(whole[: len(whole) // 2])
        with pytest.raises(SinkDamaged, match=path.name):
            catch(desk, table)
        path.write_text(whole)
    assert catch(desk, table).rows == 400
    is_join(desk, shed, rows)


def test_not_an_archive(desk: Desk, shed: Shed):
    table = desk.table(products(), "product_id")
    for path in (desk.folder / "nowhere", desk.folder / "table"):
        with pytest.raises(BadOption, match=r"does not exist|not an archive"):
            ps.catch_up(desk.spark, path, table, on="product_id", into=desk.folder / "out")
    plain = orders()
    staged = StagedFile(shed.place, 0, plain.schema)
    staged.add(plain.to_batches()[0])
    said = staged.close("shed").to_pylist()[0]
    shed.ledger.commit(0, [{"name": said["file"], "rows": said["rows"], "bytes": said["bytes"]}])
    with pytest.raises(BadOption, match="does not hold shed rows"):
        catch(desk, table)


def test_wrong_options(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    with pytest.raises(UnknownColumn, match="product_id"):
        catch(desk, table, on="produkt_id")
    with pytest.raises(KeyTypeMismatch):
        catch(desk, ps.table(desk.folder / "table", key="name"))
    with pytest.raises(KeyTypeMismatch, match="2 key column"):
        catch(desk, table, on=["product_id", "order_id"])
    with pytest.raises(BadOption, match="not a join"):
        catch(desk, table, how="outer")
    with pytest.raises(BadOption, match="is not a table"):
        catch(desk, "products/")  # type: ignore[arg-type]
    (desk.folder / "other").mkdir()
    pq.write_table(rows.append_column("id", pa.array(range(900))), desk.folder / "other" / "a.parquet")
    with pytest.raises(PlanError, match="both have 'product_id'"):
        catch(desk, ps.table(desk.folder / "other", key="id"), on="order_id")
    nothing_committed(desk)


def test_results_belong_to_one_archive_and_one_join(desk: Desk, shed: Shed, tmp_path: Path):
    table = desk.table(products(), "product_id")
    shed.add(orders())
    for into in (shed.place, shed.place / "out", desk.folder / "table", desk.folder):
        with pytest.raises(BadOption, match="one inside the other"):
            catch(desk, table, into=into)
    foreign = desk.folder / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").touch()
    with pytest.raises(BadOption, match="not empty"):
        catch(desk, table, into=foreign)
    Ledger(desk.folder / "live", "a-checkpoint").claim()
    with pytest.raises(BadOption, match="another query"):
        catch(desk, table, into=desk.folder / "live")
    catch(desk, table)
    other = Shed(desk.folder / "other", "another-checkpoint")
    other.add(orders())
    with pytest.raises(BadOption, match="another query"):
        ps.catch_up(desk.spark, other.place, table, on="product_id", into=desk.folder / "out")
    with pytest.raises(BadOption, match=r"are in .*out, and .*second has none"):
        catch(desk, table, into=desk.folder / "second")
    shed.add(orders(first=1000))
    with pytest.raises(PlanError, match="made another join"):
        catch(desk, table, how="left")


def test_results_that_were_moved_and_those_that_are_gone(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    catch(desk, table)
    (desk.folder / "out").rename(desk.folder / "moved")
    shed.add(orders(first=1000))
    with pytest.raises(BadOption, match="is it mounted"):
        catch(desk, table)
    assert catch(desk, table, into=desk.folder / "moved").rows == 400
    is_join(desk, shed, rows, "moved")


def test_results_that_were_put_back_are_brought_up_to_date(desk: Desk, shed: Shed):
    rows = products()
    table = desk.table(rows, "product_id")
    shed.add(orders())
    catch(desk, table)
    shutil.copytree(desk.folder / "out", desk.folder / "copy")
    shed.add(orders(first=1000))
    catch(desk, table)
    shutil.rmtree(desk.folder / "out")
    (desk.folder / "copy").rename(desk.folder / "out")
    assert catch(desk, table).rows == 400
    is_join(desk, shed, rows)


def test_archive_that_was_put_back(desk: Desk, shed: Shed):
    table = desk.table(products(), "product_id")
    shed.add(orders())
    shutil.copytree(shed.place, desk.folder / "copy")
    shed.add(orders(first=1000))
    catch(desk, table)
    shutil.rmtree(shed.place)
    (desk.folder / "copy").rename(shed.place)
    for _ in range(3):  # behind, then at the same number with other rows, then further
        with pytest.raises(SinkDamaged, match="put back to an earlier state"):
            catch(desk, table)
        shed.add(orders(first=2000))


def test_one_catch_up_at_a_time(desk: Desk, shed: Shed):
    table = desk.table(products(), "product_id")
    shed.add(orders())
    with Archive.open(shed.place).held(), pytest.raises(ArchiveInUse, match=f"process {os.getpid()}"):
        catch(desk, table)
    nothing_committed(desk)
    assert catch(desk, table).rows == 400
