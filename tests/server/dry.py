"""A server without Spark: the engine, its books, its HTTP are the real ones; results are committed by the test."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from penstock.kernels.contract import RESULTS
from penstock.server.app import make_app
from penstock.server.auth import open_token
from penstock.server.engine import Engine
from penstock.server.group import Group
from penstock.server.limits import Limits
from penstock.server.pipelines import checked
from penstock.server.serving import Serving
from penstock.spark.sink import Ledger, StagedFile

PIPELINE = """
trigger = "1 second"
cores = 1

[streams.orders]
path = "orders/"
format = "parquet"
columns = { order_id = "long", quantity = "long", note = "string" }
"""


class DryGroup(Group):
    """A group whose Spark query is the test itself."""

    def start(self, trigger: Mapping[str, Any]) -> None:
        self.state = "running"

    def poll(self) -> None:
        self.committed.look()

    def stop(self) -> None:
        self.state = "stopped"


class DryEngine(Engine):
    _kind_of_group = DryGroup


def commit(engine: Engine, name: str, rows: list[dict[str, Any]]) -> int:
    """Commit rows as the next batch of a query's group, as its Spark query would; the number of the batch."""
    group = engine._groups[engine.status(name)["group"]]
    ledger = Ledger(group.folder / RESULTS, "test")
    ledger.claim()
    batch = max(ledger.batches(), default=-1) + 1
    files = []
    if rows:
        schema = group.channels[RESULTS]
        staged = StagedFile(ledger.place, batch, schema)
        for part in pa.Table.from_pylist(rows, schema=schema).to_batches():
            staged.add(part)
        said = staged.close(RESULTS).to_pylist()[0]
        files = [{"name": said["file"], "rows": said["rows"], "bytes": said["bytes"]}]
    ledger.commit(batch, files)
    return batch


def orders(first: int, count: int, note: str = "") -> list[dict[str, Any]]:
    return [{"order_id": n, "quantity": n % 10, "note": note} for n in range(first, first + count)]


def dry_engine(base: Path, limits: Limits | None = None, text: str = PIPELINE) -> Engine:
    """An engine over a folder, made if it is not there."""
    (base / "orders").mkdir(exist_ok=True, parents=True)
    (base / "pipeline.toml").write_text(text)
    pipeline, _ = checked(base / "pipeline.toml")
    return DryEngine(pipeline, None, limits=limits).start()  # type: ignore[arg-type]


@dataclass
class Served:
    """A server that runs, and its token."""

    engine: Engine
    port: int
    token: str
    hub: Any

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def client(self, **headers: str) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers={**self.headers, **headers}, timeout=20)

    def raw(self, text: bytes, *, read: bool = True, seconds: float = 5) -> bytes:
        """What the server says to these very bytes, until it closes or says no more."""
        with socket.create_connection(("127.0.0.1", self.port), seconds) as connection:
            connection.sendall(text)
            said = b""
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while read and (more := connection.recv(65536)):
                    said += more
            return said


@contextlib.contextmanager
def served(base: Path, limits: Limits | None = None) -> Iterator[Served]:
    """A dry server at a free port."""
    limits = limits or Limits()
    engine = dry_engine(base, limits)
    serving = Serving("127.0.0.1", 0, limits)
    token, text = open_token(engine.folder, anew=True)
    hosts = frozenset({f"127.0.0.1:{serving.port}", f"localhost:{serving.port}"})
    app = make_app(engine, token, hosts, limits)
    serving.start(app)
    try:
        yield Served(engine, serving.port, text or "", app._app.state.hub)  # type: ignore[attr-defined]
    finally:
        serving.stop()
        engine.stop()


def events(lines: Iterator[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, id, data) of every event of a stream."""
    said: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if not line:
            if said:
                yield said.get("event", ""), said.get("id", ""), json.loads(said["data"])
            said = {}
            continue
        name, _, value = line.partition(": ")
        said[name] = value


__all__ = ["Served", "commit", "dry_engine", "events", "orders", "served"]
