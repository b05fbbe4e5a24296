"""The parts of the server by themselves: changes of standing queries, pages of results, what a crash leaves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cli.pipeline import show
from penstock.errors import BadOption, ResultsGone
from penstock.server.books import Entry
from penstock.server.changes import agree
from penstock.server.committed import Committed, last_committed
from penstock.server.group import Group
from penstock.server.pipelines import checked
from penstock.server.reading import Everything, Offset, RangeReader, as_json, read_page
from penstock.server.sinks import ParquetTarget
from penstock.server.texts import SharedMade
from penstock.spark.query_changes import SharedChanges
from penstock.spark.sink import Ledger, StagedFile
from penstock.sql.catalogue import Catalogue, Stream
from penstock.sql.groups import Group as QueryGroup
from penstock.sql.parse import parse
from penstock.sql.plans import plan_of
from tests.server.conftest import eventually
from tests.server.dry import DryEngine, commit, dry_engine, orders

CHANGES = pa.schema(
    [("query", pa.int64()), ("op", pa.string()), ("version", pa.int64()), ("from", pa.float64()), ("to", pa.float64())]
)


def standing(place: Path) -> dict[int, tuple[float, float]]:
    """Which queries stand, by the rule of the kernel: a change counts if its version is higher."""
    known: dict[int, tuple[int, str, tuple[float, float]]] = {}
    for path in sorted(place.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            if row["version"] > known.get(row["query"], (0, "", (0, 0)))[0]:
                known[row["query"]] = row["version"], row["op"], (row["from"], row["to"])
    return {number: bounds for number, (_, op, bounds) in known.items() if op == "set"}


@settings(max_examples=20)
@given(steps=st.lists(st.sets(st.integers(1, 6)), max_size=6))
def test_the_changes_always_say_who_is_registered(
    tmp_path_factory: pytest.TempPathFactory, steps: list[set[int]]
) -> None:
    place = tmp_path_factory.mktemp("changes")
    for wanted in steps:
        bounds = {number: (float(number), number + 0.5) for number in wanted}
        agree(place, CHANGES, bounds)
        assert standing(place) == bounds
        assert not agree(place, CHANGES, bounds), "what is said already is not said again"
    assert not list(place.glob(".*"))


SCHEMA = pa.schema([("n", pa.int64())])


def test_a_sink_that_was_never_written_goes_over_to_the_query_that_is_written_differently(tmp_path: Path) -> None:
    ParquetTarget(tmp_path, "server-1", SCHEMA)
    with pytest.raises(BadOption, match="another query"):
        ParquetTarget(tmp_path, "serverling-2", SCHEMA)
    target = ParquetTarget(tmp_path, "server-2", SCHEMA)
    target.write(7, SCHEMA.empty_table())
    assert (target.position(), pq.read_table(tmp_path).schema) == (7, SCHEMA)
    with pytest.raises(BadOption, match="another query"):
        ParquetTarget(tmp_path, "server-3", SCHEMA)


def write(place: Path, batches: list[int]) -> None:
    """Further batches of so many rows, each in two files."""
    ledger = Ledger(place, "x")
    ledger.claim()
    n = 0
    for batch, count in enumerate(batches, last_committed(place) + 1):
        files = []
        for part in (count // 2, count - count // 2):
            if part:
                staged = StagedFile(place, batch, SCHEMA)
                staged.add(pa.record_batch([pa.array(range(n, n + part))], schema=SCHEMA))
                said = staged.close("results").to_pylist()[0]
                files.append({"name": said["file"], "rows": said["rows"], "bytes": said["bytes"]})
                n += part
        ledger.commit(batch, files)


@settings(max_examples=20)
@given(batches=st.lists(st.integers(0, 5), max_size=5), limit=st.integers(1, 4), since=st.integers(0, 3))
def test_pages_of_any_size_are_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], limit: int, since: int
) -> None:
    place = tmp_path_factory.mktemp("results") / "results"
    write(place, batches)
    committed, reader = Committed(place, SCHEMA), Everything(SCHEMA)
    assert committed.last == last_committed(place) == len(batches) - 1
    whole = read_page(committed, reader, None, 1000, since, None)
    found, after = [], None
    while True:
        page = read_page(committed, reader, after, limit, since, None)
        found += page.rows["n"].to_pylist()
        assert page.rows.num_rows <= limit
        after = page.next
        if not page.more:
            break
    assert found == whole.rows["n"].to_pylist()
    assert len(found) == sum(batches[since:])
    assert read_page(committed, reader, after, limit, since, None).rows.num_rows == 0
    # Found again in another order of looking, as after a restart.
    assert read_page(Committed(place, SCHEMA), reader, None, 1000, since, None).rows == whole.rows


@pytest.mark.parametrize("open_already", [False, True])
def test_rows_that_are_deleted_while_they_are_read_are_gone_and_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_already: bool
) -> None:
    def read(batch: int) -> pa.Table:
        """The first two batches are deleted when the second is to be read."""
        if batch == 1:
            committed.trim(0, 2)
            if open_already:
                raise FileNotFoundError("part-00000001")
        return whole(batch)

    for after in (Offset(0, 1), None):
        write(tmp_path / str(after), [2, 2, 2, 2])
        committed, reader = Committed(tmp_path / str(after), SCHEMA), Everything(SCHEMA)
        whole = committed.read
        monkeypatch.setattr(committed, "read", read)
        if after is None:
            left = read_page(committed, reader, None, 10, 0, None).rows["n"].to_pylist()
            assert sorted(left) == [4, 5, 6, 7]
        else:
            with pytest.raises(ResultsGone, match="before batch 2 are no longer kept"):
                read_page(committed, reader, after, 10, 0, None)


def test_a_batch_is_there_when_all_of_its_files_are(tmp_path: Path) -> None:
    place = tmp_path / "results"
    write(place, [3, 4])
    last = sorted(place.glob("part-00000001-*"))[0]
    last.rename(tmp_path / last.name)
    committed = Committed(place, SCHEMA)
    assert committed.last == 0
    (tmp_path / last.name).rename(last)
    assert committed.look() == 1


def test_a_group_that_was_not_looked_at_for_many_batches_is_seen_again(tmp_path: Path) -> None:
    """The ledger keeps its last entries; who waits for one that is gone would wait for ever."""
    place = tmp_path / "results"
    committed, reader = Committed(place, SCHEMA), Everything(SCHEMA)
    for more in ([0, 2] + [0] * 110, [1] + [0] * 105 + [2, 1]):
        write(place, more)
        assert committed.look() == last_committed(place)
    rows = read_page(committed, reader, None, 1000, 0, None).rows
    assert rows.num_rows == 6
    assert rows == read_page(Committed(place, SCHEMA), reader, None, 1000, 0, None).rows


AT = pa.timestamp("us", "UTC")
QUOTES = Catalogue.of(
    {"q": Stream.of("q", pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", AT)]), event_time="at", key="k")}
)


class Messages:
    """Batches of messages of one table, each of which adds its number to every range; reading is counted."""

    def __init__(self, schema: pa.Schema, count: int) -> None:
        nothing = dict.fromkeys(schema.names)
        self.tables = [
            pa.Table.from_pylist([nothing | {"at": n, "added": n, "value": n}], schema=schema) for n in range(count)
        ]
        self.reads = 0

    def following(self, batch: int) -> int | None:
        return batch if batch < len(self.tables) else None

    def read(self, batch: int) -> pa.Table:
        self.reads += 1
        return self.tables[batch]


@pytest.mark.parametrize("function", ["SUM", "MIN"])
@pytest.mark.parametrize("since", [0, 7])
def test_readers_of_an_aggregate_go_on_where_they_were(function: str, since: int) -> None:
    """One counts, one writes to a sink, one is far behind: nobody begins anew because of another."""
    query = parse(f"SELECT {function}(n) AS said FROM q WHERE n BETWEEN 0 AND 9", QUOTES)
    plan = plan_of(QueryGroup({"query": query}), slots=1)
    messages = Messages(plan.channels["results"], 40)
    entry = Entry(1, "query", "g1", since, "", begins_with_answer=since > 0)
    reader = RangeReader(query, entry, messages)  # type: ignore[arg-type]
    said: dict[int, list[Any]] = {}
    for batch in range(since, 40):
        for place in (batch, batch, max(since, batch - 20)):
            found = reader.rows(place, messages.tables[place])["said"].to_pylist()
            assert said.setdefault(place, found) == found
    assert said == {n: [n if function == "MIN" else n * (n + 1) // 2] for n in range(since, 40)}
    assert messages.reads <= since


@pytest.mark.parametrize("text", ["", "1", "1-", "-1-2", "1-2-3", "a-b", "9" * 20 + "-1", "1-2\n", ".1-2", "1.2"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(BadOption, match="not an offset"):
        Offset.of(text, "f3b1-1")


def test_values_that_json_does_not_have_are_text() -> None:
    rows = pa.table(
        {
            "f": [float("nan"), float("-inf"), 1.5],
            "b": pa.array([b"\x00\xff", None, b""]),
            "t": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
            "d": pa.array([1, None, 250], pa.decimal128(5, 0)),
        }
    )
    assert as_json(rows) == [
        {"f": "NaN", "b": "AP8=", "t": "1970-01-01T00:00:00+00:00", "d": "1"},
        {"f": "-Infinity", "b": None, "t": None, "d": None},
        {"f": 1.5, "b": "", "t": "1970-01-01T00:00:00.000001+00:00", "d": "250"},
    ]


def test_times_that_python_has_not_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """One such row, as the year 9999 of another zone has it, and nobody could read on."""
    moments = pa.timestamp("us", "UTC")
    far = 253402300800000000
    rows = pa.table(
        {
            "at": pa.array([far, 0], moments),
            "day": pa.array([1 << 25, None], pa.date32()),
            "list": pa.array([[{"at": far}], []], pa.list_(pa.struct([("at", moments)]))),
        }
    )
    first = {"at": "10000-01-01T00:00:00.000000+00:00", "day": "93838-12-01"}
    assert as_json(rows) == [
        {**first, "list": [{"at": "10000-01-01T00:00:00.000000+00:00"}]},
        {"at": "1970-01-01T00:00:00+00:00", "day": None, "list": []},
    ]
    show("q", 0, rows)
    assert "93838-12-01" in capsys.readouterr().out


def test_a_group_that_nobody_was_registered_for_goes_at_the_next_start(tmp_path: Path) -> None:
    engine = dry_engine(tmp_path)
    engine.register("q", "SELECT * FROM orders")
    eventually(lambda: engine.status("q")["state"] == "running", 20)
    engine.stop()
    # As if the server was killed after the group's file, before the query's, and while a group was deleted.
    said = {"key": "x", "text": "SELECT note FROM orders", "span": None, "memory": None, "columns": {}, "cores": 1}
    engine._books.write_group("g7", said)
    (engine.folder / "groups" / "g8" / "results").mkdir(parents=True)
    engine = dry_engine(tmp_path)
    try:
        eventually(lambda: [place.name for place in (engine.folder / "groups").iterdir()] == ["g1"], 20)
        assert engine.status("q")["state"] in ("starting", "running")
    finally:
        engine.stop()


def test_a_group_that_was_not_yet_started_is_not_called_stopped(tmp_path: Path) -> None:
    engine = dry_engine(tmp_path)
    engine.register("q", "SELECT * FROM orders")
    eventually(lambda: "g1" in engine._groups, 20)
    engine.stop()
    group = Group("g1", tmp_path / "g1", engine._groups["g1"].making)
    assert group.state == "waiting"
    assert group.wants_start


def test_a_query_that_pauses_right_after_a_start_shows_what_it_had(tmp_path: Path) -> None:
    engine = dry_engine(tmp_path)
    engine.register("q", "SELECT * FROM orders")
    eventually(lambda: engine.status("q")["state"] == "running", 10)
    commit(engine, "q", orders(0, 10))
    engine.stop()
    again = DryEngine(checked(tmp_path / "pipeline.toml")[0], None)  # type: ignore[arg-type]
    again.pause("q")  # before its group is there
    again.start()
    try:
        eventually(lambda: again.results("q").rows.num_rows == 10, 10)
    finally:
        again.stop()


def test_a_query_that_is_no_longer_understood_fails_alone(tmp_path: Path) -> None:
    engine = dry_engine(tmp_path)
    engine.register("fine", "SELECT order_id FROM orders")
    engine.register("other", "SELECT note FROM orders")
    engine.stop()
    path = engine.folder / "queries" / "00000002.json"
    from penstock.spark.files import read_whole, write_whole

    said = read_whole(path)
    assert said is not None
    write_whole(path, said | {"text": "SELECT gone FROM orders"})
    engine = dry_engine(tmp_path)
    try:
        eventually(lambda: engine.status("fine")["state"] == "running", 20)
        assert engine.status("other")["state"] == "failed"
        assert "gone" in engine.status("other")["error"]["what"]
        engine.remove("other")
        assert [query["name"] for query in engine.queries()] == ["fine"]
    finally:
        engine.stop()


STREAMS = """
trigger = "1 second"
cores = 1

[streams.asked]
path = "asked/"
format = "parquet"
columns = { id = "long", asked_at = "timestamp" }
time = "asked_at"

[streams.answered]
path = "answered/"
format = "parquet"
columns = { id = "long", answered_at = "timestamp" }
time = "answered_at"
"""


def within(window: str, where: str = "") -> str:
    return f"SELECT asked.id FROM asked, answered WHERE asked.id = answered.id {where} WINDOW {window}"


def test_windows_over_one_join_are_one_group_that_is_told_of_them(tmp_path: Path) -> None:
    for name in ("asked", "answered"):
        (tmp_path / name).mkdir()
    engine = dry_engine(tmp_path, text=STREAMS)

    def told(*seconds: int) -> bool:
        place = engine.folder / "groups" / "g1" / "changes"
        wanted = {f"within_{one}000000_us": one * 1_000_000 for one in seconds}
        return SharedChanges(place, by_rows=False).standing() == wanted

    try:
        # Whichever window comes first, and with whatever filter.
        engine.register("middle", within("30 SECONDS"))
        engine.register("short", within("10 SECONDS"))
        engine.register("long", within("1 MINUTE"))
        engine.register("some", within("10 SECONDS", "AND asked.id > 5"))
        eventually(lambda: {query["state"] for query in engine.queries()} == {"running"}, 20)
        assert {query["group"] for query in engine.queries()} == {"g1"}
        assert told(30, 10, 60) or told(30, 60, 10)
        engine.remove("short")
        engine.remove("middle")
        eventually(lambda: told(10, 60), 20)
        engine.remove("some")
        eventually(lambda: told(60), 20)
        said = engine.explain(within("2 MINUTES"))
        assert (said["group"], said["shares_with"]) == ("g1", ["long"])
        assert "one join with long; windows of 1 min, 2 min" in said["explanation"]
        assert "rows are kept 2 times as long" in said["explanation"]
        assert "order    Greedy" in said["explanation"]
        assert "its results alone" in engine.explain(within("5 SECONDS"))["explanation"]
        # A wider window that would hardly fit beside what is held begins a group of its own.
        group = engine._groups["g1"]
        group.progress = lambda: {"last": {"memory": 30 << 20, "budget": 64 << 20, "work": 7}}  # type: ignore[method-assign]
        assert "30 MB of 64 MB held" in engine.explain(within("5 SECONDS"))["explanation"]
        assert engine.explain(within("2 MINUTES"))["group"] is None
        assert engine.explain(within("61 SECONDS"))["group"] == "g1"
        # What sheds or counts rows cannot share a window.
        assert engine.explain(within("500 ROWS"))["operator"] == "join_streams"
    finally:
        engine.stop()


def test_a_query_runs_when_its_group_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before that, rows that come might not be joined for it."""
    for name in ("asked", "answered"):
        (tmp_path / name).mkdir()
    engine = dry_engine(tmp_path, text=STREAMS)
    try:
        engine.register("first", within("30 SECONDS"))
        eventually(lambda: engine.status("first")["state"] == "running", 20)
        gate, tell = threading.Event(), SharedMade.tell
        monkeypatch.setattr(SharedMade, "tell", lambda *given: gate.wait(20) and tell(*given))
        engine.register("second", within("10 SECONDS"))
        assert engine.status("second")["state"] == "starting"
        gate.set()
        eventually(lambda: engine.status("second")["state"] == "running", 20)
    finally:
        engine.stop()
