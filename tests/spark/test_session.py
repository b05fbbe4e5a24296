"""What a session is given and asked for, and what is made of its failures, without starting one."""

from __future__ import annotations

import gc
import socket
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import SessionNotReady, TableChanged
from penstock.spark import listener
from penstock.spark.failures import cause
from penstock.spark.session import NEEDED, _sockets, check_session, warn_of_idle_tasks


@pytest.mark.parametrize("length", [20, 60, 64, 65, 120])
def test_sockets_are_used_only_where_their_paths_fit(tmp_path: Path, length: int) -> None:
    place = Path("/" + "d" * (length - 1))
    settings = {"spark.driver.extraJavaOptions": f"-Xss4m -Djava.io.tmpdir={place} -ea"}
    (used,) = _sockets(settings).values()
    with closing(socket.socket(socket.AF_UNIX)) as one:
        try:
            one.bind(f"{place}/.{'f' * 36}.sock")
        except FileNotFoundError:
            fits = True  # The directory does not exist, but its name was not too long.
        except OSError:
            fits = False
    assert used == str(fits).lower()


class Session:
    """As much of one as is looked at."""

    def __init__(self, **settings: str) -> None:
        said = NEEDED | {f"spark.sql.streaming.{name.replace('_', '.')}": value for name, value in settings.items()}
        self.conf = SimpleNamespace(get=lambda name, default=None: said.get(name, default))
        self.added: list[Any] = []
        self.streams = SimpleNamespace(_jsqm=SimpleNamespace(addListener=self.added.append))
        streaming = SimpleNamespace(PythonStreamingQueryListenerWrapper=lambda one: one)
        spark = SimpleNamespace(sql=SimpleNamespace(streaming=streaming))
        jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=spark)))
        self.sparkContext = SimpleNamespace(
            _gateway=SimpleNamespace(jvm=jvm),
            accumulator=lambda zero, how: None,
            master="local[2]",
            pythonExec=sys.executable,
        )


class Flow:
    """As much of one as is looked at."""

    id = "flow"


def test_what_spark_takes_for_true_is_true() -> None:
    check_session(Session(noDataMicroBatches_enabled="TRUE"))  # type: ignore[arg-type]


def test_a_session_that_cannot_do_is_told_why() -> None:
    with pytest.raises(SessionNotReady, match="this layout of its logs cannot be read"):
        check_session(Session(offsetLog_formatVersion="2"))  # type: ignore[arg-type]
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(SessionNotReady, match="a session of Spark Connect"):
        check_session(remote)


def test_workers_of_another_python_are_told_before_anything_runs(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    for python in (str(other), "no-such-python"):
        session = Session()
        session.sparkContext.pythonExec = python
        with pytest.raises(SessionNotReady, match="which has no Penstock"):
            check_session(session)  # type: ignore[arg-type]
        session.sparkContext.master = "yarn"
        check_session(session)  # type: ignore[arg-type]


def test_tasks_without_work_are_told_of(recwarn: pytest.WarningsRecorder) -> None:
    session: Any = SimpleNamespace(conf={"spark.sql.shuffle.partitions": "200"})
    warn_of_idle_tasks(session, 25)
    assert not recwarn
    with pytest.warns(UserWarning, match=r'200 tasks.*2 have work.*"spark.sql.shuffle.partitions", "2"'):
        warn_of_idle_tasks(session, 2)


def test_a_session_is_heard_though_one_before_it_had_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "ensure_callback_server_started", lambda gateway: None)
    monkeypatch.setattr(listener, "all_copies", lambda: Path("nowhere"))
    for _ in range(10):
        session = Session()
        flow = Flow()
        assert listener.listen(session, flow).flow == flow.id  # type: ignore[arg-type]
        assert len(session.added) == 1
        del session
        gc.collect()


@pytest.mark.parametrize("codes", ["", " SQLSTATE: 39000", " SQLSTATE: 39000 SQLSTATE: XXKST"])
def test_an_error_comes_back_as_it_was_raised(codes: str) -> None:
    raised = TableChanged("a.parquet is gone.", why="It was read.", do="Put it back.")
    wrapped = f"[X] Traceback\n  File x\npenstock.errors.TableChanged: {raised}\n {codes}\n\tat org.apache.x(y)"
    found = cause(RuntimeError(wrapped))
    assert isinstance(found, TableChanged)
    assert (found.what, found.why, found.do) == (raised.what, raised.why, raised.do)
