"""Every call over HTTP, against the real engine and a test that plays Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.server.limits import Limits
from penstock.server.pipelines import checked
from penstock.server.reading import Offset
from tests.server.conftest import eventually
from tests.server.dry import DryEngine, Served, commit, events, orders, served

BIG = "SELECT order_id FROM orders WHERE quantity >= 5"
ALL = "SELECT * FROM orders"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served"), Limits(event_rows=7)) as server:
        yield server


@pytest.fixture
def server(shared: Served) -> Iterator[Served]:
    yield shared
    for query in shared.engine.queries():
        shared.engine.remove(query["name"])
    eventually(lambda: not shared.engine.progress()["groups"])


def register(server: Served, name: str, text: str) -> dict[str, object]:
    with server.client() as client:
        answer = client.post("/queries", json={"name": name, "sql": text})
    assert answer.status_code == 201, answer.text
    eventually(lambda: server.engine.status(name)["state"] == "running")
    return answer.json()


def test_a_query_lives_from_registration_to_removal(server: Served) -> None:
    said = register(server, "big", BIG)
    assert said["kind"] == "selection"
    assert said["columns"] == [{"name": "order_id", "type": "long"}]
    register(server, "everything", ALL)
    commit(server.engine, "big", orders(0, 20))
    commit(server.engine, "big", [])
    commit(server.engine, "big", orders(20, 20))
    with server.client() as client:
        listed = client.get("/queries").json()["queries"]
        assert {query["name"]: query["group"] for query in listed}.keys() == {"big", "everything"}
        assert len({query["group"] for query in listed}) == 1
        found, after = [], None
        while True:
            page = client.get("/queries/big/results", params={"limit": 3, **({"after": after} if after else {})}).json()
            found += [row["order_id"] for row in page["rows"]]
            after = page["next"]
            if not page["more"]:
                break
        assert found == [n for n in range(40) if n % 10 >= 5]
        assert client.post("/queries", json={"name": "big", "sql": BIG}).status_code == 409
        for text in (BIG, f"EXPLAIN {BIG}"):
            assert client.post("/explain", json={"sql": text}).json()["shares_with"] == ["big", "everything"]
        refused = client.post("/queries", json={"name": "asked", "sql": f"EXPLAIN {BIG}"})
        assert (refused.status_code, "POST /explain" in refused.json()["error"]["do"]) == (400, True)
        assert client.delete("/queries/big").status_code == 204
        assert client.get("/queries/big").status_code == 404
        assert "Did you mean" in client.get("/queries/everythin").json()["error"]["do"]


def test_a_paused_query_shows_nothing_new_and_loses_nothing(server: Served) -> None:
    register(server, "big", BIG)
    register(server, "everything", ALL)
    commit(server.engine, "big", orders(0, 10))
    with server.client() as client:
        json = {"Content-Type": "application/json"}
        assert client.post("/queries/big/pause", headers=json).json()["state"] == "paused"
        commit(server.engine, "big", orders(10, 10))
        assert [row["order_id"] for row in client.get("/queries/big/results").json()["rows"]] == [5, 6, 7, 8, 9]
        assert len(client.get("/queries/everything/results").json()["rows"]) == 20
        assert client.post("/queries/big/resume", headers=json).json()["state"] == "running"
        assert len(client.get("/queries/big/results").json()["rows"]) == 10


def test_a_query_answers_from_the_batch_at_which_it_came(server: Served) -> None:
    register(server, "first", ALL)
    commit(server.engine, "first", orders(0, 5))
    register(server, "second", ALL)
    commit(server.engine, "first", orders(5, 5))
    with server.client() as client:
        assert [row["order_id"] for row in client.get("/queries/second/results").json()["rows"]] == [5, 6, 7, 8, 9]


def test_a_fault_in_a_text_is_told_with_its_place(server: Served) -> None:
    with server.client() as client:
        answer = client.post("/queries", json={"name": "q", "sql": "SELECT order_id\nFROM orders\nWHERE amount > 5"})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["kind"], error["line"]) == ("BadSQL", 3)
    assert "amount" in error["what"]


def test_results_are_followed_and_gone_on_with_by_the_last_id(server: Served) -> None:
    register(server, "everything", ALL)
    commit(server.engine, "everything", orders(0, 30))
    seen: list[int] = []
    last = ""
    while len(seen) < 60:
        with (
            server.client(**({"Last-Event-ID": last} if last else {})) as client,
            client.stream("GET", "/queries/everything/events") as stream,
        ):
            assert stream.headers["content-type"].startswith("text/event-stream")
            for kind, id_, data in events(stream.iter_lines()):
                assert kind == "rows"
                seen += [row["order_id"] for row in data["rows"]]
                last = id_
                if len(seen) == 30:
                    commit(server.engine, "everything", orders(30, 30))
                if len(seen) % 14 == 0 or len(seen) == 60:
                    break  # hang up, and come back
    assert seen == list(range(60))
    assert Offset.of(last, server.engine.owner("everything")) == Offset(2, 0)


def test_an_offset_of_a_query_that_was_removed_is_refused_by_the_next_of_its_name(server: Served) -> None:
    """It was taken for one of the new query, whose rows up to there nobody then got."""
    register(server, "mine", ALL)
    for first in range(0, 50, 10):
        commit(server.engine, "mine", orders(first, 10))
    with server.client() as client:
        eventually(lambda: len(client.get("/queries/mine/results").json()["rows"]) == 50)
        old = client.get("/queries/mine/results").json()["next"]
        client.delete("/queries/mine").raise_for_status()
        eventually(lambda: not server.engine.progress()["groups"])
        register(server, "mine", BIG)
        commit(server.engine, "mine", orders(0, 10))
        for path, said in (("results", {"params": {"after": old}}), ("events", {"headers": {"Last-Event-ID": old}})):
            answer = client.get(f"/queries/mine/{path}", **said)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (410, "ResultsGone")


def test_an_offset_of_another_folder_is_refused(tmp_path: Path) -> None:
    """Queries have the same numbers there, as those of a pipeline's file have when it gets another folder."""

    def read(place: str, batches: int, after: str | None) -> httpx.Response:
        with served(tmp_path / place) as server, server.client() as client:
            register(server, "mine", ALL)
            for first in range(batches):
                commit(server.engine, "mine", orders(10 * first, 10))
            eventually(lambda: len(server.engine.results("mine").rows) == 10 * batches)
            return client.get("/queries/mine/results", params={} if after is None else {"after": after})

    old = read("before", 5, None).json()["next"]
    assert read("now", 1, old).status_code == 410


def test_news_reach_those_who_wait(server: Served) -> None:
    register(server, "everything", ALL)
    got: list[list[int]] = [[] for _ in range(8)]

    def follow(mine: list[int], until: int) -> None:
        with server.client() as client, client.stream("GET", "/queries/everything/events") as stream:
            for _, _, data in events(stream.iter_lines()):
                mine.extend(row["order_id"] for row in data["rows"])
                if len(mine) >= until:
                    return

    # Half of them hang up early, which is nothing to the others.
    wanted = [3 if n % 2 else 30 for n in range(8)]
    threads = [threading.Thread(target=follow, args=each, daemon=True) for each in zip(got, wanted, strict=True)]
    for thread in threads:
        thread.start()
    eventually(lambda: server.hub.following == 8, 10)
    for n in range(10):
        commit(server.engine, "everything", orders(3 * n, 3))
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert all(mine[:until] == list(range(until)) for mine, until in zip(got, wanted, strict=True))
    eventually(lambda: server.hub.following == 0, 10)


def test_who_follows_a_query_that_is_removed_is_told(server: Served) -> None:
    register(server, "everything", ALL)
    with server.client() as client, client.stream("GET", "/queries/everything/events") as stream:
        server.engine.remove("everything")
        kind, _, data = next(events(stream.iter_lines()))
    assert (kind, data["error"]["kind"]) == ("failed", "UnknownQuery")


def test_progress_metrics_catalogue_and_openapi(server: Served) -> None:
    register(server, "everything", ALL)
    with server.client() as client:
        progress = client.get("/progress").json()
        assert progress["queries"] == {"all": 1, "running": 1}
        [group] = progress["groups"]
        assert (group["queries"], group["slots"], group["state"]) == (["everything"], 1, "running")
        metrics = client.get("/metrics").text
        assert 'penstock_group_state{group="' in metrics
        assert 'penstock_queries{state="running"} 1.0' in metrics
        [stream] = client.get("/catalogue").json()["streams"]
        assert [column["name"] for column in stream["columns"]] == ["order_id", "quantity", "note"]
        paths = client.get("/openapi.json").json()["paths"]
        assert {
            "/queries",
            "/queries/{name}/events",
            "/explain",
            "/views/{name}",
            "/progress",
            "/metrics",
        } <= paths.keys()
        with client.stream("GET", "/progress/events", params={"every": 0.2}) as stream:
            kind, _, data = next(events(stream.iter_lines()))
        assert (kind, data["queries"]["all"]) == ("progress", 1)


def test_a_query_that_cannot_be_answered_touches_no_other(server: Served) -> None:
    register(server, "fine", ALL)
    text = "SELECT order_id, CAST(9223372036854775807 AS BIGINT) + order_id AS far FROM orders"
    register(server, "overflows", text)
    commit(server.engine, "fine", orders(1, 3))
    with server.client() as client:
        broken = client.get("/queries/overflows/results")
        assert broken.status_code == 400
        assert "cannot be calculated" in broken.json()["error"]["what"]
        said = client.get("/queries/overflows").json()
        assert (said["state"], said["error"]) == ("failed", broken.json()["error"])
        assert client.get("/queries/fine").json()["state"] == "running"
        assert len(client.get("/queries/fine/results").json()["rows"]) == 3


def test_what_is_registered_survives(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        register(server, "a", ALL)
        register(server, "b", BIG)
        commit(server.engine, "a", orders(0, 10))
        register(server, "c", ALL)
        server.engine.pause("b")
        server.engine.remove("a")
        numbers = {path.name for path in (server.engine.folder / "queries").iterdir()}
    with served(tmp_path) as server:
        assert {q["name"]: q["state"] for q in server.engine.queries()}.keys() == {"b", "c"}
        eventually(lambda: server.engine.status("c")["state"] == "running")
        commit(server.engine, "c", orders(10, 10))
        assert server.engine.status("b")["state"] == "paused"
        assert server.engine.results("b").rows.num_rows == 5
        assert server.engine.results("c").rows.num_rows == 10
        register(server, "d", ALL)
        new = {path.name for path in (server.engine.folder / "queries").iterdir()} - numbers
        assert new == {"00000004.json"}, "a number was given twice"
        server.engine.resume("b")
        assert server.engine.results("b").rows.num_rows == 10


def test_old_results_go_when_there_are_too_many_and_that_is_said(tmp_path: Path) -> None:
    with served(tmp_path, Limits(kept=20_000)) as server:
        register(server, "everything", ALL)
        commit(server.engine, "everything", [])
        for n in range(12):
            commit(server.engine, "everything", orders(100 * n, 100, "x" * 200))
        kept = server.engine._groups["g1"].committed
        eventually(lambda: kept.last == 12 and kept.first > 1 and sum(kept._sizes.values()) <= 20_000, 20)
        with server.client() as client:
            gone = client.get("/queries/everything/results", params={"after": "1-0"})
            assert gone.status_code == 410
            assert "Go on from" in gone.json()["error"]["do"]
            left = client.get("/queries/everything/results", params={"limit": 10_000}).json()["rows"]
        assert 0 < len(left) < 1200
        assert left[-1]["order_id"] == 1199
    with served(tmp_path, Limits(kept=20_000)) as server:
        eventually(lambda: server.engine.status("everything")["state"] == "running", 20)
        assert server.engine.results("everything").rows.num_rows == len(left)
        with server.client() as client:
            assert client.get("/queries/everything/results", params={"after": "1-0"}).status_code == 410


def test_who_comes_without_an_offset_begins_with_what_is_kept(tmp_path: Path) -> None:
    """Whoever did had the page that the first one had, and was then told that what follows is gone."""

    def followed(server: Served) -> list[int]:
        seen: list[int] = []
        with server.client() as client, client.stream("GET", "/queries/everything/events") as stream:
            for kind, _, data in events(stream.iter_lines()):
                assert kind == "rows", data
                seen += [row["order_id"] for row in data["rows"]]
                if seen[-1] == last:
                    break
        return seen

    with served(tmp_path, Limits(kept=20_000, event_rows=50)) as server:
        register(server, "everything", ALL)
        last = 99
        commit(server.engine, "everything", orders(0, 100, "x" * 200))
        assert followed(server) == list(range(100))
        for n in range(1, 12):
            commit(server.engine, "everything", orders(100 * n, 100, "x" * 200))
        last = 1199
        kept = server.engine._groups["g1"].committed
        eventually(lambda: kept.last == 11 and kept.first > 1 and sum(kept._sizes.values()) <= 20_000, 20)
        left = followed(server)
        assert left == list(range(100 * kept.first, 1200))
    again = DryEngine(checked(tmp_path / "pipeline.toml")[0], None)  # type: ignore[arg-type]
    early = again.results("everything")  # before its group is there
    again.start()
    try:
        eventually(lambda: again.status("everything")["state"] == "running", 20)
        assert again.results("everything", after=early.next).rows.column("order_id").to_pylist() == left
    finally:
        again.stop()


def test_the_description_says_how_calls_fail(server: Served) -> None:
    register(server, "q", ALL)
    wrong = {"Authorization": "Bearer wrong"}
    offset = {"after": "nonsense"}
    tried = [
        ("post", "/queries", {"json": {"name": "q", "sql": ALL}}, 409),
        ("post", "/queries", {"json": {"name": "r", "sql": "SELECT"}}, 400),
        ("post", "/queries", {"json": {"name": "r", "sql": "x" * 20_001}}, 429),
        ("post", "/queries", {"json": {"name": "r"}}, 400),
        ("post", "/queries", {"content": b"{}"}, 415),
        ("post", "/queries", {"json": {"name": "x" * (256 << 10)}}, 413),
        ("post", "/explain", {"json": {"sql": "SELECT"}}, 400),
        ("post", "/explain", {"json": {"sql": ALL}}, 200),
        ("get", "/queries", {"headers": wrong}, 401),
        ("get", "/queries", {"headers": {"Origin": "http://elsewhere"}}, 403),
        ("get", "/queries", {"headers": {"Host": "elsewhere"}}, 421),
        ("get", "/queries/{name}", {}, 404),
        ("delete", "/queries/{name}", {}, 404),
        ("post", "/queries", {}, 400),
        ("post", "/queries/{name}/pause", {"json": {}}, 404),
        ("post", "/queries/{name}/pause", {}, 404),
        ("post", "/queries/{name}/resume", {"json": {}}, 404),
        ("get", "/queries/{name}/results", {"params": {"limit": 0}}, 400),
        ("get", "/queries/{name}/results", {"params": offset}, 404),
        ("get", "/queries/{name}/events", {"params": offset}, 404),
        ("get", "/views/{name}", {}, 404),
        ("get", "/progress/events", {"params": {"every": 0}}, 400),
    ]
    with server.client() as client:
        said = client.get("/openapi.json").json()
        assert said["security"] == [{"token": []}]
        for method, path, given, status in tried:
            answer = client.request(method, path.replace("{name}", "nobody"), **given)
            assert answer.status_code == status, (method, path, answer.text)
            assert str(status) in said["paths"][path][method]["responses"], (method, path, status)
            if status >= 400:
                assert answer.json()["error"].keys() >= {"kind", "what", "why", "do"}
        responses = [call["responses"] for calls in said["paths"].values() for call in calls.values()]
        assert not [each for each in responses if "422" in each]
        events_ = said["paths"]["/queries/{name}/events"]["get"]["responses"]["200"]["content"]
        assert events_.keys() == {"text/event-stream"}
        assert client.put("/queries", json={}).headers["allow"] == "GET"
        # What has no body needs no word of its kind.
        assert client.post("/queries/q/pause").json()["state"] == "paused"
