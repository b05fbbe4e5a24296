"""Two hundred queries over HTTP, a mixture of shapes; the server killed at several moments; answers as DuckDB's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import Shop, bag, eventually
from tests.server.dry import events

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAIRS = "FROM orders, shipments WHERE orders.product_id = shipments.product_id"
LAST = "heavy"
APART = "abs(epoch(ordered_at) - epoch(shipped_at))"


def two_hundred() -> dict[str, tuple[str, str]]:
    """Text for the server, and for the judge."""
    found: dict[str, tuple[str, str]] = {}
    for n in range(80):
        where = f"quantity BETWEEN {n} AND {n + 20} AND weight BETWEEN {99 - n - 15} AND {99 - n}"
        text = f"SELECT order_id, shipment_id {PAIRS} AND {where}"
        found[f"alert{n}"] = (f"{text} WINDOW 1 MINUTE", f"{text} AND {APART} <= 60")
    for n in range(50):
        text = "SELECT order_id, name, price * quantity AS total FROM orders, products "
        text += f"WHERE orders.product_id = products.product_id AND price > {2 * n}"
        found[f"dear{n}"] = (text, text)
    for n in range(39):
        text = f"SELECT order_id, quantity + {n} AS more FROM orders WHERE quantity >= {2 * n}"
        found[f"some{n}"] = (text, text)
    for n in range(30, 0, -1):
        text = f"SELECT order_id, shipment_id {PAIRS} AND quantity < 50"
        found[f"near{n}"] = (f"{text} WINDOW {n} SECONDS", f"{text} AND {APART} <= {n}")
    found[LAST] = ("SELECT shipment_id FROM shipments WHERE weight > 50",) * 2
    assert len(found) == 200
    return found


class Server:
    """A server in a process of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.token = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, crash: str = "") -> httpx.Client:
        """Start it, to die at a crash point."""
        log = (self.base / "server.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", str(self.base / "pipeline.toml"), "--port", "0"],
            env={
                **os.environ,
                "COLUMNS": "200",
                "PENSTOCK_CRASH": crash,
                "PENSTOCK_CRASH_LOG": str(self.base / f"crash-{crash or 'none'}".replace(":", "-")),
                "TMPDIR": str(self.base / "tmp"),
            },
            start_new_session=True,
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        port = eventually(lambda: re.search(r"serving at http://127\.0\.0\.1:(\d+)/", self.said()) or self.gone(), 120)
        found = re.search(r"#token=(\S+)", eventually(lambda: "Ctrl-C stops" in self.said() and self.said()))
        self.token = found[1] if found else self.token
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{port[1]}", headers=headers, timeout=60)

    def said(self) -> str:
        return (self.base / "server.log").read_text()

    def gone(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self.said()

    def kill(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def died(self) -> None:
        assert self.process is not None
        assert self.process.wait(30) == -signal.SIGKILL

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


def rows(client: httpx.Client, name: str) -> list[dict[str, Any]]:
    found, after = [], None
    while True:
        page = client.get(
            f"/queries/{name}/results", params={"limit": 5000, **({"after": after} if after else {})}
        ).json()
        found += page["rows"]
        after = page["next"]
        if not page["more"]:
            return bag(found)


def running(client: httpx.Client) -> bool:
    """Whether every query runs: its group knows of it, and joins for it whatever comes from now on."""
    return {query["state"] for query in client.get("/queries").json()["queries"]} == {"running"}


def has_begun(base: Path, group: str) -> bool:
    """Whether the first micro-batch of a group has begun."""
    return (base / "pipeline-run" / "groups" / group / "checkpoint" / "offsets" / "0").exists()


def followed(client: httpx.Client, name: str, after: str | None = None) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """The rows of each of a query's events, and its id."""
    headers = {"Last-Event-ID": after} if after else {}
    with client.stream("GET", f"/queries/{name}/events", headers=headers) as stream:
        for kind, id_, data in events(stream.iter_lines()):
            if kind == "rows":
                yield data["rows"], id_


def test_200_queries_survive_kills_at_every_moment_and_are_answered_as_the_judge_would(tmp_path: Path) -> None:
    """Killed in the first micro-batch of a flow; after the books are written and before a flow starts, which is in the
    middle of a stream of events; while a query is removed and all others of a group are paused.
    """
    shop = Shop(tmp_path)
    (tmp_path / "tmp").mkdir()
    server = Server(tmp_path)
    queries = two_hundred()
    gone, paused = "near7", [name for name in queries if name.startswith("some")]

    def add() -> None:
        shop.add("orders", 60)
        shop.add("shipments", 60)

    def register(client: httpx.Client, name: str) -> None:
        answer = client.post("/queries", json={"name": name, "sql": queries[name][0]})
        assert answer.status_code == 201, answer.text

    try:
        with server.start() as client:
            for name in queries:
                if name != LAST:
                    register(client, name)
            listed = {q["name"]: q["group"] for q in client.get("/queries").json()["queries"]}
            by_group: dict[str, set[str]] = {}
            for name, group in listed.items():
                by_group.setdefault(group, set()).add(name.rstrip("0123456789"))
            assert sorted(map(sorted, by_group.values())) == [["alert"], ["dear"], ["near"], ["some"]]
            # Groups begin in turn: this one after the others, in seconds, of which it is given no more.
            eventually(lambda: has_begun(tmp_path, listed["near30"]))
        server.kill()
        add()
        add()
        seen: list[dict[str, Any]] = []
        last = None
        with server.start("after-books:1:driver") as client, contextlib.suppress(httpx.TransportError):
            assert {q["name"]: q["group"] for q in client.get("/queries").json()["queries"]} == listed
            for more, id_ in followed(client, "near30"):
                seen, last = seen + more, id_
                with pytest.raises(httpx.TransportError):
                    register(client, LAST)
        server.died()
        assert seen
        add()
        with server.start("while-removing:1:driver") as client:
            for name in paused:
                assert client.post(f"/queries/{name}/pause", json={}).json()["state"] == "paused"
            with pytest.raises(httpx.TransportError):
                client.delete(f"/queries/{gone}")
        server.died()
        add()
        with server.start() as client:
            assert client.get(f"/queries/{gone}").status_code == 404
            assert client.get(f"/queries/{LAST}").status_code == 200
            assert {client.get(f"/queries/{name}").json()["state"] for name in paused} == {"paused"}
            for name in paused:
                client.post(f"/queries/{name}/resume", json={})
            wrong = {name: sql for name, (_, sql) in queries.items() if name != gone}

            def settled() -> bool:
                for name in list(wrong):
                    if rows(client, name) != shop.judge(wrong[name]):
                        return False
                    del wrong[name]
                return True

            try:
                eventually(settled, 300)
            except AssertionError:
                listed_now = client.get("/queries").json()["queries"]
                states = {query["name"]: query["state"] for query in listed_now if query["name"] in wrong}
                raise AssertionError(f"{states}\n{server.said()}") from None
            assert all(len(shop.judge(sql)) for _, sql in list(queries.values())[::50])
            assert running(client)
            expected = shop.judge(queries["near30"][1])
            for more, _ in followed(client, "near30", last):
                seen += more
                if len(seen) >= len(expected):
                    break
            assert bag(seen) == expected
            # Each of the windows that share a join says how long its own results took.
            near = client.get("/queries/near2").json()
            assert near["operator"] == "join_shared"
            assert near["response"]["results"] > 0
            assert near["response"]["work_mean"] > 0
            assert near["response"]["seconds_max"] > 0
        assert server.stop() == 0, server.said()
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
