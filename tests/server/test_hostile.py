"""Hostile calls: 4xx, no trace, no file read, and nobody waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli.serve import address, hosts
from penstock.errors import BadOption, ServerDamaged, ServerInUse
from penstock.server.auth import Token, open_token
from penstock.server.books import Books
from penstock.server.guard import POLICY, Guard
from penstock.server.limits import Limits
from penstock.spark.files import read_whole, write_whole
from tests.server.conftest import eventually
from tests.server.dry import Served, served

LIMITS = Limits(
    body=20_000, text=5_000, queries=3, connections=60, header_seconds=0.5, body_seconds=0.5, stall_seconds=1
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), LIMITS) as running:
        yield running


def quiet(answer: httpx.Response) -> None:
    """An answer that tells nothing of the inside."""
    for word in ("Traceback", ".py", "site-packages", "/root", "/home", "/tmp"):
        assert word not in answer.text, answer.text


def test_no_call_without_the_token(server: Served) -> None:
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    calls = [(method, path.replace("{name}", "x")) for path, methods in paths.items() for method in methods]
    calls += [("get", "/openapi.json"), ("get", "/nowhere"), ("post", "/"), ("get", "/docs"), ("trace", "/queries")]
    assert len(calls) > 15
    bad = [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Basic {server.token}"},
        {"Authorization": "Bearer"},
    ]
    bad += [{"Authorization": f"Bearer {server.token[:-1]}"}, {"Cookie": f"token={server.token}"}]
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as client:
        for number, (method, path) in enumerate(calls):
            for headers in bad if number == 0 else bad[:2]:
                answer = client.request(method, path, headers=headers)
                assert answer.status_code == 401, (method, path, headers)
                quiet(answer)
        assert client.get(f"/queries?token={server.token}").status_code == 401


def test_the_page_is_open_and_says_nothing(server: Served) -> None:
    answer = httpx.get(f"http://127.0.0.1:{server.port}/")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY


def test_the_token_is_kept_as_a_hash_for_its_owner_alone(tmp_path: Path) -> None:
    token, text = open_token(tmp_path)
    path = tmp_path / "token.json"
    assert text is not None
    assert len(text) >= 43
    assert text not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token.fits(text)
    assert not token.fits(text + "x")
    again, shown = open_token(tmp_path)
    assert shown is None
    assert again.fits(text)
    path.chmod(0o666)
    open_token(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "of a folder that was copied"
    other, new = open_token(tmp_path, anew=True)
    assert new not in (None, text)
    assert not other.fits(text)
    path.write_text(path.read_text()[:20])
    with pytest.raises(ServerDamaged, match=r"token\.json"):
        open_token(tmp_path)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_calls_for_other_hosts_and_from_other_origins_are_refused(server: Served, headers: dict[str, str]) -> None:
    with server.client(**headers) as client:
        for method, path in (("GET", "/queries"), ("GET", "/"), ("POST", "/queries"), ("OPTIONS", "/queries")):
            answer = client.request(method, path)
            assert answer.status_code in (403, 421), path
            assert "access-control-allow-origin" not in answer.headers
            quiet(answer)


def test_a_page_of_this_server_may_call(server: Served) -> None:
    with server.client(Origin=f"http://127.0.0.1:{server.port}", **{"Sec-Fetch-Site": "same-origin"}) as client:
        answer = client.get("/queries")
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b'{"name": "q"}', "application/json", 400),
        (b'{"name": 5, "sql": "SELECT 1"}', "application/json", 400),
        (b'{"name": "q", "sql": "SELECT 1", "more": 1}', "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 9_000 + b"]" * 9_000, "application/json", 400),
        (b"name=q", "application/x-www-form-urlencoded", 415),
        (b'{"name": "q", "sql": "x"}', "text/plain", 415),
        (b'{"name": "q", "sql": "' + b"x" * 6_000 + b'"}', "application/json", 429),
        (b"x" * 20_001, "application/json", 413),
    ],
)
def test_malformed_and_oversized_bodies_are_refused(server: Served, content: bytes, kind: str, status: int) -> None:
    with server.client(**{"Content-Type": kind}) as client:
        answer = client.post("/queries", content=content)
    assert answer.status_code == status, answer.text
    quiet(answer)
    assert len(answer.content) < 2_000


@pytest.mark.parametrize("size", [20_001, 100_000, 300_000])
def test_who_sends_too_much_is_told(server: Served, size: int) -> None:
    """And does not find the connection cut while it is still sending."""
    with server.client(**{"Content-Type": "application/json"}) as client:
        for _ in range(3):
            assert client.post("/queries", content=b"x" * size).status_code == 413


def test_who_has_sent_too_much_and_waits_is_told_at_once() -> None:
    """Nothing more comes of a body that came in one piece; the server waited for it as long as a body may take."""
    headers = [(b"host", b"here"), (b"authorization", b"Bearer t"), (b"content-type", b"application/json")]
    pieces = [{"type": "http.request", "body": b"x" * 20_001, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        return pieces.pop() if pieces else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def call() -> None:
        token = Token(hashlib.sha256(b"t").hexdigest())
        guard = Guard(send, token, frozenset({"here"}), replace(LIMITS, body_seconds=60), lambda: None)  # type: ignore[arg-type]
        scope = {"type": "http", "path": "/queries", "method": "POST"}
        async with asyncio.timeout(5):
            await guard({**scope, "headers": [*headers, (b"transfer-encoding", b"chunked")]}, receive, send)

    asyncio.run(call())
    assert sent[0]["status"] == 413


@pytest.mark.parametrize("header", ["Origin: http://127.0.0.1:{}", "Sec-Fetch-Site: same-origin"])
def test_a_header_that_comes_twice_hides_nothing(server: Served, header: str) -> None:
    name, good = header.format(server.port).split(": ", 1)
    bad = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}[name]
    for values in ((bad, good), (good, bad)):
        lines = "".join(f"{name}: {value}\r\n" for value in values)
        said = server.raw(
            f"GET /queries HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
            f"{lines}Connection: close\r\n\r\n".encode()
        )
        assert said.split(b" ", 2)[1] == b"403", said[:200]


def test_a_body_without_a_length_is_counted(server: Served) -> None:
    with server.client(**{"Content-Type": "application/json"}) as client:
        answer = client.post("/queries", content=(b"x" * 1_000 for _ in range(30)))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "name",
    [
        "..", "../../etc/passwd", "q; DROP TABLE orders", "q' OR '1'='1", "a b", "", "x" * 64, "é", "q\n", "q\x00",
        "../queries/00000001", "1q", "q.json", "${x}", "%2e%2e",
    ],
)  # fmt: skip
def test_names_are_names(server: Served, name: str) -> None:
    with server.client() as client:
        answer = client.post("/queries", json={"name": name, "sql": "SELECT * FROM orders"})
        assert answer.status_code == 400, answer.text
        quiet(answer)
    assert not server.engine.queries()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM parquet.`/etc/passwd`",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT reflect('java.lang.Runtime', 'getRuntime') FROM orders",
        "SELECT java_method('java.lang.System', 'exit', 1) FROM orders",
        "SELECT TRANSFORM(order_id) USING 'cat /etc/passwd' FROM orders",
        "ADD JAR '/tmp/evil.jar'",
        "SELECT order_id FROM orders; DROP TABLE orders",
        "INSERT INTO orders SELECT 1, 2, 'x'",
        "SELECT * FROM IDENTIFIER('orders')",
        "CREATE VIEW v AS SELECT * FROM csv.`/etc/passwd`",
        "CREATE VIEW v AS SELECT COUNT(*) AS n FROM orders",
        "SELECT * FROM orders WINDOW 1 MINUTE ARCHIVE '../../../etc'",
        "SELECT order_id FROM orders WHERE note = (SELECT 'x')",
        "(" * 500 + "SELECT 1" + ")" * 500,
        "SELECT " + "-" * 3000 + "1 FROM orders",
        "\x00",
    ],
)
def test_texts_that_would_reach_beyond_the_catalogue_are_refused(server: Served, text: str) -> None:
    with server.client() as client:
        for answer in (
            client.post("/queries", json={"name": "q", "sql": text}),
            client.post("/explain", json={"sql": text}),
        ):
            assert answer.status_code == 400, answer.text
            assert "root:" not in answer.text
            assert "Traceback" not in answer.text
    assert not server.engine.queries()


@pytest.mark.parametrize(
    "path",
    [
        "/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/page//etc/passwd", "/page/%00", "/page/.", "/../../etc/passwd", "/page/..\\app.py", "/page/" + "a/" * 500,
        "/page/" + "a" * 300 + ".js",
    ],
)  # fmt: skip
def test_no_file_beside_the_page_is_served(server: Served, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n"
    said = server.raw(request.encode())
    assert said.split(b" ", 2)[1] in (b"401", b"404", b"400"), said[:200]
    for word in (b"root:", b"import ", b"Traceback"):
        assert word not in said


def test_there_are_as_many_queries_as_may_be(server: Served) -> None:
    with server.client() as client:
        codes = [
            client.post("/queries", json={"name": f"q{n}", "sql": "SELECT * FROM orders"}).status_code for n in range(4)
        ]
        assert codes == [201, 201, 201, 429]
        for n in range(3):
            assert client.delete(f"/queries/q{n}").status_code == 204


def test_slow_headers_are_cut_off_and_slow_bodies_refused(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 5) as slow:
        began = time.monotonic()
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x")
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(100) == b""
        assert time.monotonic() - began < 3
    head = (
        f"POST /queries HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    said = server.raw(head.encode(), seconds=4)
    assert said.startswith(b"HTTP/1.1 408"), said[:200]


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /queries HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    ],
)
def test_what_is_no_request_is_refused(server: Served, request_: bytes) -> None:
    said = server.raw(request_, seconds=1)
    assert said == b"" or said.split(b" ", 2)[1][:1] == b"4", said[:100]
    assert b"Traceback" not in said
    assert httpx.get(f"http://127.0.0.1:{server.port}/").status_code == 200


def test_connections_are_limited_and_the_limit_passes(server: Served) -> None:
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(70)]
    try:
        answer = httpx.get(f"http://127.0.0.1:{server.port}/")
        assert answer.status_code == 503
    finally:
        for one in held:
            one.close()
    eventually(lambda: httpx.get(f"http://127.0.0.1:{server.port}/").status_code == 200, 10)


def test_an_error_of_ours_tells_no_trace(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("the secret of its/own/file.py")

    monkeypatch.setattr(server.engine, "queries", fails)
    with server.client() as client:
        answer = client.get("/queries")
        assert client.get("/catalogue").status_code == 200, "on the same connection"
    assert answer.status_code == 500
    quiet(answer)
    assert "secret" not in answer.text


def test_offsets_and_numbers_in_addresses_are_checked(server: Served) -> None:
    with server.client() as client:
        client.post("/queries", json={"name": "q", "sql": "SELECT * FROM orders"})
        for query in ("after=x", "after=-1-0", "limit=0", "limit=99999999", "after=" + "9" * 300, "limit=1e9"):
            answer = client.get(f"/queries/q/results?{query}")
            assert answer.status_code == 400, query
            quiet(answer)
        assert client.get("/queries/q/events", headers={"Last-Event-ID": "'; --"}).status_code == 400
        client.delete("/queries/q")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("groups/g1/group.json", lambda said: {name: said[name] for name in said if name not in ("columns", "cores")}),
        ("queries/00000001.json", lambda said: {name: said[name] for name in said if name != "since"}),
        ("queries/00000001.json", lambda said: said | {"colour": "red"}),
    ],
)
def test_books_of_another_version_are_refused_with_a_remedy(
    tmp_path: Path, file: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    with served(tmp_path) as server:
        server.engine.register("q", "SELECT * FROM orders")
        path = server.engine.folder / file
    write_whole(path, change(read_whole(path) or {}))
    with pytest.raises(ServerDamaged, match=r"(?s)another version.*folder = "), served(tmp_path):
        pass


def test_books_that_were_cut_are_refused_by_name_and_a_second_server_too(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server.engine.register("q", "SELECT * FROM orders")
        with pytest.raises(ServerInUse):
            Books(server.engine.folder)
        path = server.engine.folder / "queries" / "00000001.json"
    whole = path.read_bytes()
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        books = Books(path.parent.parent)
        with pytest.raises(ServerDamaged, match=r"00000001\.json"):
            list(books.entries())
        books.close()
    path.write_bytes(whole)
    with served(tmp_path) as server:
        assert [query["name"] for query in server.engine.queries()] == ["q"]
        assert json.dumps(server.engine.queries())


def test_a_server_answers_for_its_own_names_alone() -> None:
    assert hosts("127.0.0.1", 8642, []) == {"127.0.0.1:8642", "localhost:8642", "[::1]:8642"}
    assert "streams.example:80" in hosts("10.0.0.5", 80, ["streams.example"])
    assert "localhost:80" not in hosts("10.0.0.5", 80, [])
    assert {"streams.example", "streams.example:8642"} <= hosts("10.0.0.5", 8642, ["Streams.example"])
    assert address("localhost") == "127.0.0.1"
    with pytest.raises(BadOption, match="not an address"):
        address("streams.example")
