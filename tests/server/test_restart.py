"""Two hundred queries over HTTP, a mixture of shapes; the server killed and started again; answers as DuckDB's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.conftest import Shop, bag, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PAIRS = "FROM orders, shipments WHERE orders.product_id = shipments.product_id"
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
    for n in range(40):
        text = f"SELECT order_id, quantity + {n} AS more FROM orders WHERE quantity >= {2 * n}"
        found[f"some{n}"] = (text, text)
    for n in range(30, 0, -1):
        text = f"SELECT order_id, shipment_id {PAIRS} AND quantity < 50"
        found[f"near{n}"] = (f"{text} WINDOW {n} SECONDS", f"{text} AND {APART} <= {n}")
    assert len(found) == 200
    return found


class Server:
    """A server in a process of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.token = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> httpx.Client:
        log = (self.base / "server.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", str(self.base / "pipeline.toml"), "--port", "0"],
            env={
                **os.environ,
                "COLUMNS": "200",
                "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
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


def test_200_queries_survive_a_kill_and_are_answered_as_the_judge_would(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    (tmp_path / "tmp").mkdir()
    server = Server(tmp_path)
    queries = two_hundred()
    try:
        with server.start() as client:
            for name, (text, _) in queries.items():
                answer = client.post("/queries", json={"name": name, "text": text})
                assert answer.status_code == 201, answer.text
            listed = {q["name"]: q["group"] for q in client.get("/queries").json()["queries"]}
            by_group: dict[str, set[str]] = {}
            for name, group in listed.items():
                by_group.setdefault(group, set()).add(name.rstrip("0123456789"))
            assert sorted(map(sorted, by_group.values())) == [["alert"], ["dear"], ["near"], ["some"]]
            for _ in range(3):
                shop.add("orders", 60)
                shop.add("shipments", 60)
            # Killed while it works.
            eventually(lambda: any(rows(client, f"some{n}") for n in range(3)), 120)
        server.kill()
        shop.add("orders", 60)
        shop.add("shipments", 60)
        with server.start() as client:
            again = {q["name"]: q["group"] for q in client.get("/queries").json()["queries"]}
            assert again == listed
            wrong = dict(queries)

            def settled() -> bool:
                for name in list(wrong):
                    if rows(client, name) != shop.judge(wrong[name][1]):
                        return False
                    del wrong[name]
                return True

            eventually(settled, 180)
            assert all(len(shop.judge(sql)) for _, sql in list(queries.values())[::50])
            states = {q["state"] for q in client.get("/queries").json()["queries"]}
            assert states == {"running"}
        assert server.stop() == 0, server.said()
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
