"""What happens around a server: folders vanish, sinks lag, names are used again, clients come and go."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from penstock.cli.pipeline import run, tell, tell_news
from penstock.cli.say import complaints, console
from penstock.cli.serve import Asked, serve
from penstock.errors import BadOption
from penstock.plan.pipeline.spec import Sink
from penstock.server.group import Group
from penstock.server.keeper import Keeper
from penstock.server.limits import Limits
from penstock.server.pipelines import checked
from penstock.server.sinks import pumps
from penstock.server.views import Views
from penstock.sql.dialect import LONGEST
from tests.server.conftest import eventually
from tests.server.dry import PIPELINE, DryEngine, DryGroup, commit, dry_engine, orders, served

ALL = "SELECT * FROM orders"


def test_a_source_that_vanishes_is_no_reason_to_say_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.engine.register("q", ALL)
        eventually(lambda: server.engine.status("q")["state"] == "running", 10)
        group = server.engine._groups["g1"]
        group._running = SimpleNamespace(  # type: ignore[assignment]
            progress=dict, files_read=lambda: 0, flow=SimpleNamespace(history=list)
        )
        shutil.rmtree(tmp_path / "orders")
        with server.client() as client:
            assert client.get("/metrics").status_code == 200
            [said] = client.get("/progress").json()["groups"]
        assert said["backlog"]["files"] is None


def test_files_in_partitions_are_a_backlog_and_hidden_ones_are_not(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for place in ("day=1", "day=2", ".old"):
            (tmp_path / "orders" / place).mkdir()
            (tmp_path / "orders" / place / "a.parquet").touch()
        server.engine.register("q", ALL)
        eventually(lambda: server.engine.status("q")["state"] == "running", 10)
        server.engine._groups["g1"]._running = SimpleNamespace(  # type: ignore[assignment]
            progress=dict, files_read=lambda: 1, flow=SimpleNamespace(history=list)
        )
        [said] = server.engine.progress()["groups"]
        assert said["backlog"]["files"] == 1


@pytest.mark.parametrize(("operator", "rows"), [("join_table", 7), ("join_streams", None), ("join_shared", None)])
def test_the_window_of_a_join_of_streams_is_no_backlog(tmp_path: Path, operator: str, rows: int | None) -> None:
    with served(tmp_path) as server:
        server.engine.register("q", ALL)
        eventually(lambda: server.engine.status("q")["state"] == "running", 10)
        group = server.engine._groups["g1"]
        group.plan = SimpleNamespace(name=operator, slots=1)  # type: ignore[assignment]
        group._running = SimpleNamespace(  # type: ignore[assignment]
            progress=lambda: {"last": {"rows_waiting": 7}}, files_read=lambda: 0, flow=SimpleNamespace(history=list)
        )
        [said] = server.engine.progress()["groups"]
        assert (said["rows_waiting"], said["backlog"]["rows"]) == (7, rows)


def test_results_stay_until_their_sink_has_them(tmp_path: Path) -> None:
    """More is kept than may be where a sink is behind: rows that it never got would be missing from it for ever."""
    engine = dry_engine(tmp_path, Limits(kept=20_000))
    try:
        engine.register("q", ALL)
        eventually(lambda: engine.status("q")["state"] == "running", 10)
        [pump] = pumps(engine, [("q", Sink("parquet", tmp_path / "out"))], None)
        whole, pump._target.write = pump._target.write, _full  # type: ignore[method-assign]
        for n in range(12):
            commit(engine, "q", orders(100 * n, 100, "x" * 200))
        pump.step()
        assert isinstance(pump.error, OSError)
        kept = engine._groups["g1"].committed
        eventually(lambda: kept.last == 11, 10)
        time.sleep(0.3)
        assert kept.first == 0
        pump._target.write, pump._again = whole, 0.0  # type: ignore[method-assign]
        pump.step()
        assert sorted(pq.read_table(tmp_path / "out")["order_id"].to_pylist()) == list(range(1200))
        commit(engine, "q", orders(1200, 1))
        eventually(lambda: kept.first > 0, 10)
    finally:
        engine.stop()


def _full(*_: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_view_that_is_registered_anew_is_not_the_one_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    views = Views(SimpleNamespace(folder=tmp_path), None)  # type: ignore[arg-type]
    closed: list[int] = []
    monkeypatch.setattr(
        Views, "_opened", lambda _, number, shape: SimpleNamespace(number=number, close=lambda: closed.append(number))
    )
    made = SimpleNamespace(query=SimpleNamespace(shape=None))
    views.keep({"v": (1, made)}, {1})
    views.keep({"v": (2, made)}, {2})  # removed and registered between two looks of the keeper
    assert closed == [1]
    assert views._open["v"].number == 2  # type: ignore[attr-defined]


def test_a_group_in_trouble_does_not_keep_others_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong for one in the keeper's hands: a full disk, a file of results that cannot be read."""
    keep = Keeper._keep_group

    def trouble(keeper: Keeper, id_: str, members: Any) -> None:
        if id_ == "g1" and not mended:
            _full()
        keep(keeper, id_, members)

    mended: list[bool] = []
    monkeypatch.setattr(Keeper, "_keep_group", trouble)
    monkeypatch.setattr("penstock.server.keeper._AGAIN", 0.2)
    engine = dry_engine(tmp_path, text=PIPELINE + PIPELINE[PIPELINE.index("[streams") :].replace(".orders]", ".more]"))
    try:
        engine.register("first", ALL)
        engine.register("second", "SELECT * FROM more")
        eventually(lambda: engine.status("second")["state"] == "running", 10)
        assert engine.status("first")["state"] == "failed"
        assert "No space left" in engine.status("first")["error"]["what"]
        mended.append(True)
        eventually(lambda: engine.status("first")["state"] == "running", 10)
    finally:
        engine.stop()


def test_a_run_ends_although_a_group_can_no_longer_be(tmp_path: Path) -> None:
    """What a group runs follows from the query that began it, and a column of that one may be gone by now."""
    engine = dry_engine(tmp_path)
    engine.register("first", "SELECT note FROM orders")
    engine.register("second", "SELECT quantity FROM orders")
    engine.remove("first")
    engine.stop()
    engine = dry_engine(tmp_path, text=PIPELINE.replace(', note = "string"', ""))
    try:
        eventually(engine.failures, 10)
        assert "note" in engine.status("second")["error"]["what"]
        assert engine.ended()
    finally:
        engine.stop()


def test_what_somebody_else_saw_first_is_counted_and_told_all_the_same(tmp_path: Path) -> None:
    """A sink and those who read look for new batches as well; the keeper then took them for old ones, so that nobody
    who followed was told, nothing was counted, and nothing old deleted.
    """
    engine = dry_engine(tmp_path)
    try:
        engine.register("all", ALL)
        eventually(lambda: engine.status("all")["state"] == "running", 10)
        with engine._lock:
            time.sleep(0.3)  # the keeper waits for the lock before it looks again
            told = engine.generation
            commit(engine, "all", orders(0, 7))
            assert engine.results("all").rows.num_rows == 7
        eventually(lambda: engine.status("all")["rows_since_start"] == 7, 10)
        assert engine.generation > told
    finally:
        engine.stop()


def test_an_idle_server_is_idle_when_one_follows_after_another(tmp_path: Path) -> None:
    asked: list[int] = []
    with served(tmp_path) as server:
        server.engine.register("q", ALL)
        eventually(lambda: server.engine.status("q")["state"] == "running", 10)
        read = server.hub._read
        server.hub._read = lambda *given: (asked.append(1), read(*given))[1]
        for _ in range(2):
            with server.client() as client, client.stream("GET", "/queries/q/events"):
                time.sleep(0.3)
            eventually(lambda: server.hub.following == 0, 5)
            time.sleep(0.1)
    assert 1 < len(asked) < 10, "it asks again and again for what is not there"


def test_origins_that_are_none_are_refused(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for origin in ("http://[", "http://[::1", "http://a]b", "://", "http://\xff"):
            head = f"Host: 127.0.0.1:{server.port}\r\nOrigin: {origin}\r\nConnection: close\r\n\r\n"
            said = server.raw(f"GET /queries HTTP/1.1\r\n{head}".encode("latin-1"))
            assert said.split(b" ")[1] in (b"403", b"400"), (origin, said[:80])


def test_a_query_of_the_file_is_removed_in_the_file(tmp_path: Path) -> None:
    """Else it would come back at the next start as another one, which its sink refuses."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "pipeline.toml").write_text(f'{PIPELINE}\n[queries.mine]\nsql = "{ALL}"\nsink = {{ path = "out/" }}\n')
    engine = DryEngine(checked(tmp_path)[0], None)  # type: ignore[arg-type]
    try:
        engine.agree(engine.pipeline.queries)
        with pytest.raises(BadOption, match="pipeline's file"):
            engine.remove("mine")
        assert engine.status("mine")["name"] == "mine"
        engine.agree({})
        assert not engine.queries()
    finally:
        engine.stop()


def test_what_fails_while_others_run_is_told_at_once_and_once() -> None:
    faults: dict[str, BaseException] = {}
    engine = SimpleNamespace(queries=list, progress=lambda: {"groups": []})
    running: Any = SimpleNamespace(faults=lambda: faults, engine=engine)
    told: set[tuple[str, str]] = set()
    with console.capture() as said, complaints.capture() as why:
        tell_news(running, told)
        faults["one"] = BadOption("Its table is gone.")
        for _ in range(3):
            tell_news(running, told)
        # Queries of a group fail together; it is started again, and fails in the same way.
        for run in range(3):
            faults |= dict.fromkeys(["two", "three"], RuntimeError(f"Query [id = {uuid4()}] failed: task {run}"))
            tell_news(running, told)
            del faults["two"], faults["three"]
            tell_news(running, told)
        faults["two"] = AssertionError()
        assert tell(running, told) == 1
    assert said.get().splitlines() == ["one failed", "two, three failed", "one failed, as told above", "two failed"]
    assert why.get().count("Its table is gone.") == why.get().count("Query [id") == 1


def test_an_error_of_sparks_is_told_by_what_it_is_about() -> None:
    fault = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback:\n  pages")
    fault.add_note("In short: a.csv has other names.")
    running: Any = SimpleNamespace(faults=lambda: {"one": fault})
    with console.capture(), complaints.capture() as said:
        tell_news(running, set())
    assert said.get().startswith("PenstockError: In short: a.csv has other names.")


def test_no_token_is_made_where_none_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port in use is told before Spark starts, and before a token is made that nobody would ever see."""
    (tmp_path / "orders").mkdir()
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    monkeypatch.setattr("penstock.cli.serve.open_session", lambda *_: pytest.fail("Spark was started"))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(BadOption, match="Address already in use"):
        serve(Asked(tmp_path, "127.0.0.1", taken.getsockname()[1], [], False))
    assert not (tmp_path / "pipeline-run" / "token.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_asks_to_stop_while_spark_starts_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "pipeline.toml").write_text(PIPELINE + '[queries.q]\nsql = "SELECT order_id FROM orders"\n')
    before, ended = signal.getsignal(number), []
    for command in ("serve", "pipeline"):
        module = f"penstock.cli.{command}"
        monkeypatch.setattr(f"{module}.open_session", lambda *_: signal.raise_signal(number))
        monkeypatch.setattr(f"{module}.Run", lambda *_, **__: pytest.fail("it began"))
        monkeypatch.setattr(f"{module}.shut_down", lambda: ended.append(True))
    serve(Asked(tmp_path, "127.0.0.1", 0, [], False))
    assert run(tmp_path) == 0
    assert len(ended) == 2
    assert signal.getsignal(number) == before


def test_the_longest_text_is_the_one_that_can_be_read() -> None:
    assert Limits().text == LONGEST


def test_a_group_that_fails_is_in_the_log_with_what_is_known_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = dry_engine(tmp_path)
    try:
        engine.register("all", "SELECT order_id FROM orders")
        eventually(lambda: engine.status("all")["state"] == "running")
        fault = RuntimeError("[STREAM_FAILED] pages\nof it")
        fault.add_note("In short: the disk is full")
        [group] = engine._groups.values()
        group._fail(fault)
        assert "In short: the disk is full" in caplog.text
        said = engine.status("all")
        assert (said["state"], said["error"]["why"]) == ("failed", "In short: the disk is full")
        assert said["error"]["what"] == "[STREAM_FAILED] pages"
    finally:
        engine.stop()


def test_groups_begin_one_after_another(tmp_path: Path) -> None:
    """All at once, on few cores, Spark gives up waiting for the Python processes of every one of them."""
    names = ["orders", "returns", "visits"]
    text = "cores = 2\n" + "".join(
        f'[streams.{name}]\npath = "orders/"\nformat = "parquet"\ncolumns = {{ order_id = "long" }}\n' for name in names
    )

    class Beginning(DryGroup):
        def start(self, trigger: Mapping[str, Any]) -> None:
            super().start(trigger)
            self._started = (time.monotonic(), self.committed.last)

    class Engines(DryEngine):
        _kind_of_group = Beginning

    (tmp_path / "orders").mkdir()
    (tmp_path / "pipeline.toml").write_text(text)
    engine = Engines(checked(tmp_path)[0], None).start()  # type: ignore[arg-type]
    try:
        for name in names:
            engine.register(name, f"SELECT order_id FROM {name}")
        for count, name in enumerate(names, 1):
            eventually(lambda name=name: engine.status(name)["state"] == "running", 10)
            time.sleep(0.3)
            assert sum(group.state == "running" for group in engine._groups.values()) == count
            commit(engine, name, [{"order_id": 1}])
    finally:
        engine.stop()


def test_a_group_that_fails_again_and_again_is_started_less_and_less_often(tmp_path: Path) -> None:
    """Also if it could once: it was tried every 5 seconds for ever."""
    engine = dry_engine(tmp_path)
    try:
        engine.register("q", ALL)
        eventually(lambda: engine.status("q")["state"] == "running", 10)
        commit(engine, "q", orders(0, 1))
        group = Group("g1", tmp_path / "pipeline-run" / "groups" / "g1", engine._groups["g1"].making)
        pauses = []
        for _ in range(3):
            group.state, group._started = "running", (time.monotonic(), group.committed.last)
            group._running = SimpleNamespace(active=True)  # type: ignore[assignment]
            group.poll()
            group._fail(OSError("again"))
            pauses.append(round(group._again - time.monotonic()))
    finally:
        engine.stop()
    assert pauses == [5, 10, 20]
