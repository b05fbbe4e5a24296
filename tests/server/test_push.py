"""Very many clients that follow, some of which take nothing: bounded, cut off, resumed, and the others unharmed."""

from __future__ import annotations

import resource
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from penstock.server.committed import Committed
from penstock.server.limits import Limits
from tests.server.conftest import eventually
from tests.server.dry import Served, commit, events, orders, served

LIMITS = Limits(connections=700, stall_seconds=1.0, event_rows=100)


class Client:
    """One that follows over a plain socket, and can stop reading."""

    def __init__(self, server: Served, last: str = "") -> None:
        self.server, self.last = server, last
        self.rows: list[int] = []
        self._rest = ""
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        self._socket = socket.socket()
        # As little room as can be, so that a client that stalls is soon known to.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(10)
        self._socket.connect(("127.0.0.1", self.server.port))
        resume = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
        self._socket.sendall(
            f"GET /queries/everything/events HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\n"
            f"Authorization: Bearer {self.server.token}\r\n{resume}\r\n".encode()
        )
        self._rest = ""

    def read(self) -> bool:
        """Take what is there; False if the server hung up."""
        assert self._socket is not None
        try:
            data = self._socket.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self._socket.close()
            return False
        self._rest += data.decode()
        *whole, self._rest = self._rest.split("\n\n")
        for block in whole:
            lines = [line for line in block.splitlines() if line.startswith(("id: ", "event: ", "data: "))]
            for _, id_, said in events(iter([*lines, ""])):
                self.rows += [row["order_id"] for row in said["rows"]]
                self.last = id_
        return True

    def read_until(self, count: int) -> None:
        """Go on until so many rows came, coming back whenever the server hung up."""
        self._socket or self.connect()
        while len(self.rows) < count:
            if not self.read():
                self.connect()
        assert self._socket is not None
        self._socket.close()


def follow(tmp_path: Path, clients: int, stalled: int, batches: int) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 8192), before[1]))
    total = batches * 1000
    with served(tmp_path, LIMITS) as server:
        server.engine.register("everything", "SELECT * FROM orders")
        eventually(lambda: server.engine.status("everything")["state"] == "running", 20)
        bad = [Client(server) for _ in range(stalled)]
        good = [Client(server) for _ in range(clients - stalled)]
        for client in [*bad, *good]:
            client.connect()
        eventually(lambda: server.hub.following == clients, 30)
        memory = psutil.Process().memory_info().rss
        threads = [threading.Thread(target=client.read_until, args=(total,), daemon=True) for client in good]
        for thread in threads:
            thread.start()
        for n in range(batches):
            commit(server.engine, "everything", orders(1000 * n, 1000, "x" * 100))
        began = time.monotonic()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert all(client.rows == list(range(total)) for client in good), "one that read was harmed"
        eventually(lambda: server.hub.stalled == stalled, 30)
        eventually(lambda: server.hub.following == 0, 30)
        grown = psutil.Process().memory_info().rss - memory
        print(f"{clients} clients, {time.monotonic() - began:.1f} s, {grown / 1e6:.0f} MB more")
        assert grown < 300e6, "what is held for clients that take nothing must be bounded"
        # Those who stalled come back, and lack nothing.
        for client in bad[:20]:
            client.read_until(total)
            assert client.rows == list(range(total))


def test_a_few_stalled_clients_are_cut_off_and_resume(tmp_path: Path) -> None:
    follow(tmp_path, clients=24, stalled=4, batches=8)


def test_those_who_hang_up_in_the_middle_leave_nothing_behind(tmp_path: Path) -> None:
    """Their streams went on for nobody, and when there were as many as connections may be, every call was refused."""
    most = 60
    with served(tmp_path, replace(LIMITS, connections=most)) as server:
        server.engine.register("everything", "SELECT * FROM orders")
        eventually(lambda: server.engine.status("everything")["state"] == "running", 20)
        for n in range(10):
            commit(server.engine, "everything", orders(1000 * n, 1000, "x" * 100))
        for _ in range(most + 20):
            client = Client(server)
            client.connect()
            client.read()
            assert client._socket is not None
            client._socket.close()
        with server.client() as calls:
            eventually(lambda: calls.get("/progress").status_code == 200, 20)
            eventually(lambda: server.hub.following == 0, 20)


def test_who_waits_for_a_rare_row_looks_through_every_batch_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    monkeypatch.setattr(
        Committed, "read", lambda self, batch, _read=Committed.read: read.append(batch) or _read(self, batch)
    )
    with served(tmp_path) as server, server.client() as client:
        client.post("/queries", json={"name": "rare", "sql": "SELECT order_id FROM orders WHERE order_id = 7000"})
        eventually(lambda: server.engine.status("rare")["state"] == "running", 10)
        with client.stream("GET", "/queries/rare/events") as stream:
            for n in range(30):
                commit(server.engine, "rare", orders(n * 10, 10))
                eventually(lambda n=n: n in read, 10)
                time.sleep(0.12)
            commit(server.engine, "rare", orders(7000, 10))
            kind, id_, said = next(events(stream.iter_lines()))
            owner = server.engine.owner("rare")
    assert (kind, id_, said) == ("rows", f"{owner}.31-0", {"rows": [{"order_id": 7000}]})
    assert len(read) <= 2 * 31 + 5, "the keeper counts each batch, the client reads it"


@pytest.mark.slow
def test_500_clients_of_whom_50_stall(tmp_path: Path) -> None:
    follow(tmp_path, clients=500, stalled=50, batches=8)


def test_those_who_follow_are_told_of_the_end_when_the_server_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each was cut off after three seconds, with a page of traces in the log."""
    ended: list[str] = []

    def follow_to_the_end(server: Served, path: str) -> None:
        with server.client() as client, client.stream("GET", path) as stream:
            began.release()
            for _ in stream.iter_lines():
                pass
        ended.append(path)

    began = threading.Semaphore(0)
    with served(tmp_path) as server:
        server.engine.register("everything", "SELECT * FROM orders")
        paths = ["/queries/everything/events", "/progress/events?every=60"] * 3
        threads = [threading.Thread(target=follow_to_the_end, args=(server, path)) for path in paths]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert began.acquire(timeout=10)
    for thread in threads:
        thread.join(10)
    assert sorted(ended) == sorted(paths)
    assert not caplog.records, caplog.text
