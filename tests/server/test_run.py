"""Pipelines from a file, run to their end, again, and stopped by a signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.cli.pipeline import tell
from penstock.cli.say import console
from penstock.errors import BadOption
from penstock.plan.pipeline.starting import starting
from penstock.server.pipelines import Run, checked
from tests.server.conftest import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = """
trigger = "available_now"
cores = 2

[streams.orders]
path = "orders/"
format = "csv"
columns = { order_id = "long", product_id = "long", ordered_at = "timestamp", note = "string" }
options = { nullValue = "NA" }

[tables.products]
path = "products.csv"
key = "product_id"

[queries.dear]
sql = \"\"\"
SELECT order_id, name, price FROM orders, products
WHERE orders.product_id = products.product_id AND price > 5\"\"\"
sink = { path = "dear/" }

[queries.enriched]
operator = "join_table"
stream = "orders"
table = "products"
on = "product_id"
how = "left"
memory = "16MB"
sink = { format = "delta", path = "enriched/" }

[queries.seen]
sql = "SELECT order_id, ordered_at FROM orders WHERE product_id < 3"
"""


def write(base: Path, first: int, count: int, bad: bool = False) -> None:
    notes = ['"said ""yes"",\nand went"', '""', "", "NA"]
    lines = [
        f"{n},{n % 12},2026-01-01 00:{n // 60:02d}:{n % 60:02d},{notes[n % 4]}" for n in range(first, first + count)
    ]
    # A text in a column of numbers, and a name in another encoding.
    lines += ["oops,7,2026-01-01 00:00:00,x", "9,7,2026-01-01 00:00:00,M\udcfcller"] if bad else []
    (base / "orders").mkdir(exist_ok=True)
    text = "order_id,product_id,ordered_at,note\n" + "\n".join(lines) + "\n"
    (base / "orders" / f"{first:05d}.csv").write_bytes(text.encode(errors="surrogateescape"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, 0, 50, bad=True)
    products = "".join(f"{n},product {n},{n}.5\n" for n in range(10))
    (tmp_path / "products.csv").write_text("product_id,name,price\n" + products)
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    return tmp_path


@pytest.mark.spark
def test_a_pipeline_runs_to_its_end_and_goes_on_when_run_again(folder: Path, spark: SparkSession) -> None:
    import deltalake

    shown: list[int] = []
    for first, total in ((0, 50), (50, 80)):
        if first:
            write(folder, first, total - first)
        pipeline, _ = checked(folder / "pipeline.toml")
        running = Run(pipeline, spark, lambda name, batch, rows: shown.extend(rows["order_id"].to_pylist())).start()
        try:
            assert running.wait(240)
        finally:
            running.stop()
        with console.capture() as said:
            assert tell(running, set()) == 0
        assert said.get().count("2 rows, each with the reason, in") == (0 if first else 3)
        orders = pa.table({"order_id": list(range(total)), "product_id": [n % 12 for n in range(total)]})
        dear = duckdb.sql("SELECT order_id FROM orders WHERE product_id % 12 BETWEEN 5 AND 9").fetchall()
        assert sorted(pq.read_table(folder / "dear")["order_id"].to_pylist()) == sorted(n for (n,) in dear)
        assert orders.num_rows == total
        enriched = deltalake.DeltaTable(str(folder / "enriched")).to_pyarrow_table()
        assert sorted(enriched["order_id"].to_pylist()) == list(range(total))
        # What is empty is NULL, in quotes or not, and so is what `nullValue` says.
        notes = {row["order_id"]: row["note"] for row in enriched.to_pylist()}
        assert notes == {n: None if n % 4 else 'said "yes",\nand went' for n in range(total)}
        assert enriched["price"].null_count == sum(n % 12 >= 10 for n in range(total))
    assert sorted(shown) == [n for n in range(80) if n % 12 < 3]
    # The record that is no order is kept, with its file, and not turned into NULL.
    aside = [pq.read_table(path) for path in (folder / "pipeline-run" / "groups").glob("*/set_aside")]
    texts = [str(row) for table in aside for row in table.to_pylist()]
    assert len(texts) == 6
    assert all("oops,7" in text or ("9,7" in text and "M\ufffdller" in text) for text in texts)
    assert all("00000.csv" in text for text in texts)
    # A query that is written differently is another one: it does not write into the folder of the first.
    changed = PIPELINE.replace("price > 5", "price > 6")
    (folder / "pipeline.toml").write_text(changed)
    with pytest.raises(BadOption, match="holds the output of another query"):
        Run(checked(folder / "pipeline.toml")[0], spark, lambda *_: None)


@pytest.mark.spark
def test_a_first_pipeline_runs_over_files_as_other_programs_write_them(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("sheet", "wide"):
        (tmp_path / name).mkdir()
    (tmp_path / "sheet" / "a.csv").write_text("\ufefforder id,Cust.`Name`,at,select\r\n1,O'Neil,10:30,x\r\n")
    (tmp_path / "sheet" / "b.csv").touch()
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "no.": pa.nulls(1)}), tmp_path / "wide" / "a.parquet")
    pq.write_table(pa.table({"id": [2**40], "new": ["x"]}), tmp_path / "wide" / "b.parquet")
    (tmp_path / "sent" / "2026").mkdir(parents=True)
    (tmp_path / "sent" / "2026" / "a.jsonl").write_text(
        '{"at": "2026-02-01T10:00:00.5Z"}\n{"at": "2026-02-01T10:00:00Z"}\n'
    )
    names = ("sheet", "wide", "sent")
    text = starting([f"{tmp_path}/{name}" for name in names], [], tmp_path).partition("[queries")[0]
    for name in names:
        text += f'[queries.of_{name}]\nsql = "SELECT * FROM {name}"\nsink = {{ path = "out/{name}/" }}\n'
    (tmp_path / "pipeline.toml").write_text(text)
    running = Run(checked(tmp_path / "pipeline.toml")[0], spark, lambda *_: None).start()
    try:
        assert running.wait(240)
    finally:
        running.stop()
    sheet = [{"order id": 1, "Cust.`Name`": "O'Neil", "at": "10:30", "select": "x"}]
    assert pq.read_table(tmp_path / "out" / "sheet").to_pylist() == sheet
    wide = pq.read_table(tmp_path / "out" / "wide").sort_by("id").to_pylist()
    assert wide == [{"id": 1, "new": None}, {"id": 2**40, "new": "x"}]
    sent = pq.read_table(tmp_path / "out" / "sent").column("at").to_pylist()
    assert sorted(at.isoformat() for at in sent) == ["2026-02-01T10:00:00+00:00", "2026-02-01T10:00:00.500000+00:00"]


@pytest.mark.spark
def test_a_path_is_read_as_it_is_written_whatever_is_beside_it(tmp_path: Path, spark: SparkSession) -> None:
    """A file beside partitions of something else failed in Spark; of a folder with brackets nothing was read, or each
    row as often as there were files.
    """
    sent = tmp_path / "sent [1] {x}"
    for place in (tmp_path / "other" / "day=1", tmp_path / "other" / "day=2", sent / "day=7"):
        place.mkdir(parents=True)
        (place / "a.csv").write_text("id\n7\n")
    names = {"sheet": "sheet ü.csv", "odd": "odd [1]*.csv", "seen": "seen.json", "sent": sent.name}
    for name in ("sheet", "odd"):
        (tmp_path / names[name]).write_text("id\n1\n")
    names["flat"] = "flat [1]"
    (tmp_path / names["flat"]).mkdir()
    for number in range(3):
        (tmp_path / names["flat"] / f"{number}.csv").write_text(f"id\n{number}\n")
    (tmp_path / "seen.json").write_text('{"id": 1}\n')
    text = starting([f"{name}={tmp_path / file}" for name, file in names.items()], [], tmp_path)
    text = text.partition("[queries")[0] + "".join(
        f'[queries.of_{name}]\nsql = "SELECT * FROM {name}"\nsink = {{ path = "out/{name}/" }}\n' for name in names
    )
    (tmp_path / "pipeline.toml").write_text(text)
    running = Run(checked(tmp_path / "pipeline.toml")[0], spark, lambda *_: None).start()
    try:
        assert running.wait(240)
    finally:
        running.stop()
    assert running.faults() == {}
    found = {name: pq.read_table(tmp_path / "out" / name).to_pylist() for name in names}
    one = [{"id": 1}]
    assert sorted(row["id"] for row in found.pop("flat")) == [0, 1, 2]
    assert found == {"sheet": one, "odd": one, "seen": one, "sent": [{"id": 7, "day": 7}]}


@pytest.mark.spark
def test_a_first_pipeline_loses_no_digit_and_no_record(tmp_path: Path, spark: SparkSession) -> None:
    id_ = 12345678901234567890
    (tmp_path / "sent.csv").write_text(f"zip,id,x\n01067,{id_},nan\n10115,5,-inf\n20095,-7,inf\n99999,0,1.5\n")
    (tmp_path / "towns.csv").write_text("zip,town\n10115,Berlin\n20095,Hamburg\n")
    (tmp_path / "seen.json").write_text(f'{{"id": {id_}, "at": "a"}}\n{{"id": 5, "at": "b"}}\n')
    (tmp_path / "names.csv").write_text("id,name\n5,five\n7,seven\n")
    for number, (stream, table) in enumerate((("sent.csv", "towns.csv:zip"), ("seen.json", "names.csv:id"))):
        place = tmp_path / f"run-{number}"
        place.mkdir()
        (place / "pipeline.toml").write_text(starting([str(tmp_path / stream)], [str(tmp_path / table)], place))
        text = (place / "pipeline.toml").read_text()
        text += f'[queries.whole]\nsql = "SELECT * FROM {stream[:4]}"\nsink = {{ path = "whole/" }}\n'
        (place / "pipeline.toml").write_text(text)
        running = Run(checked(place)[0], spark, lambda *_: None).start()
        try:
            assert running.wait(240)
        finally:
            running.stop()
        assert running.faults() == {}
    sent = {row["zip"]: (row["id"], str(row["x"])) for row in pq.read_table(tmp_path / "run-0" / "whole").to_pylist()}
    assert sent == {"01067": (id_, "nan"), "10115": (5, "-inf"), "20095": (-7, "inf"), "99999": (0, "1.5")}
    joined = pq.read_table(tmp_path / "run-0" / "enriched").to_pylist()
    assert {row["zip"]: row["town"] for row in joined} == {"10115": "Berlin", "20095": "Hamburg"}
    seen = pq.read_table(tmp_path / "run-1" / "whole")["id"].to_pylist()
    assert sorted(seen) == [5, id_]
    assert [(row["id"], row["name"]) for row in pq.read_table(tmp_path / "run-1" / "enriched").to_pylist()] == [
        (5, "five")
    ]


@pytest.mark.spark
def test_a_socket_is_read_and_not_gone_on_with(tmp_path: Path, spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as said:
        (tmp_path / "pipeline.toml").write_text(f"""
trigger = "100 ms"
cores = 1

[streams.lines]
format = "socket"
options = {{ host = "127.0.0.1", port = {said.getsockname()[1]} }}
columns = {{ id = "long", word = "string" }}

[queries.some]
sql = "SELECT id, word FROM lines WHERE id >= 2"
sink = {{ path = "out/" }}
""")
        running = Run(checked(tmp_path)[0], spark, None).start()
        try:
            connection, _ = said.accept()
            with connection:
                lines = [json.dumps({"id": n, "word": f"w{n}"}) for n in range(9)]
                connection.sendall("\n".join([*lines[:4], '{"id": "no number"}', "nothing", *lines[4:], ""]).encode())
                eventually(lambda: sum(pq.read_metadata(f).num_rows for f in (tmp_path / "out").glob("*.parquet")), 120)
        finally:
            running.stop()
        assert sorted(pq.read_table(tmp_path / "out")["id"].to_pylist()) == list(range(2, 9))
        [aside] = (tmp_path / "pipeline-run" / "groups").glob("*/set_aside")
        assert sorted("nothing" in str(row) for row in pq.read_table(aside).to_pylist()) == [False, True]
        # Spark would pass over as many new lines as it had read before.
        again = Run(checked(tmp_path)[0], spark, None).start()
        try:
            assert "says nothing twice" in str(eventually(again.faults, 20)["some"])
        finally:
            again.stop()


def test_check_says_what_is_there_and_every_fault_with_its_line(folder: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(folder / "pipeline.toml")])
    assert said.exit_code == 0, said.output
    for words in ("orders", "table join", "join_table", "order_id long"):
        assert words in said.output
    text = PIPELINE.replace("price > 5", "prise > 5").replace('how = "left"', 'how = "lift"')
    (folder / "pipeline.toml").write_text(text)
    said = CliRunner().invoke(app, ["check", str(folder / "pipeline.toml")])
    assert said.exit_code == 1
    flat = " ".join(said.output.split())
    for words in ("2 faults", "pipeline.toml:18:", "prise", "pipeline.toml:22:", "lift"):
        assert words in flat, said.output


def test_a_view_has_no_sink_and_is_nothing_to_run(folder: Path) -> None:
    text = PIPELINE.partition("[queries")[0]
    text += '[queries.dear]\nsql = "CREATE VIEW dear AS SELECT COUNT(*) AS n FROM products"\n'
    for command, more, words in (
        ("check", 'sink = { path = "dear/" }\n', "is a view, and has no results that a sink could take"),
        ("run", "", "has views alone, which somebody has to read"),
    ):
        (folder / "pipeline.toml").write_text(text + more)
        said = CliRunner().invoke(app, [command, str(folder / "pipeline.toml")])
        assert said.exit_code == 1
        assert words in " ".join(said.output.split())
    assert CliRunner().invoke(app, ["check", str(folder / "pipeline.toml")]).exit_code == 0


def test_a_file_that_is_not_there_is_no_table(folder: Path) -> None:
    said = CliRunner().invoke(app, ["check", str(folder / "pipelines.toml")])
    assert said.exit_code == 1
    assert all(words in said.output for words in ("BadPipeline:", "has 'pipeline.toml'", "penstock init"))


def test_check_starts_no_spark(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a session was made")

    monkeypatch.setattr("pyspark.SparkContext._ensure_initialized", refuse)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder.getOrCreate", refuse)
    assert checked(folder)[1].keys() == {"dear", "enriched", "seen"}


def test_init_writes_a_pipeline_that_is_right(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "pipeline.toml").unlink()
    (folder / "orders" / "00000.csv").write_text("order_id,product_id,ordered_at\n1,2,2026-01-01 10:00:00\n")
    said = CliRunner().invoke(app, ["init", "--stream", "orders/", "--table", "products.csv:product_id"])
    assert said.exit_code == 0, said.output
    pipeline, made = checked(folder / "pipeline.toml")
    assert pipeline.streams["orders"].time == "ordered_at"
    assert made["enriched"].schema.names == ["order_id", "product_id", "ordered_at", "name", "price"]
    again = CliRunner().invoke(app, ["init", "--stream", "orders/"])
    assert again.exit_code == 1
    # Names that SQL would read as something else, paths with quotes, other separators, lines of JSON.
    odd = folder / 'a "b" dir'
    odd.mkdir()
    (odd / "a.csv").write_text('order;group;a""b;Größe\n1;2;x;3\n')
    (folder / "select.csv").write_text("group\tmemory\n2\t5\n")
    (folder / "lines").mkdir()
    (folder / "lines" / "a.jsonl").write_text('{"id": 1}\n')
    asked = ["init", "--stream", f"order={odd}", "--stream", "lines", "--table", "select.csv:group", "--to", "odd.toml"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    pipeline, made = checked(folder / "odd.toml")
    assert made["enriched"].schema.names == ["order", "group", 'a""b', "Größe", "memory"]
    assert pipeline.streams["lines"].format == "json"
    twice = CliRunner().invoke(app, ["init", "--stream", "orders/", "--stream", "orders/", "--to", "x.toml"])
    assert "Two are called 'orders'" in twice.output
    lacking = CliRunner().invoke(app, ["init", "--stream", "orders/", "--table", "products.csv:id", "--to", "x.toml"])
    assert "product_id" in lacking.output


@pytest.mark.spark
@pytest.mark.slow
def test_a_pipeline_ends_cleanly_on_ctrl_c(folder: Path) -> None:
    text = PIPELINE.replace('"available_now"', '"100 ms"').replace("cores = 2", "cores = 1")
    (folder / "pipeline.toml").write_text(text)
    scratch = folder / "tmp"
    scratch.mkdir()
    settings = f"-XX:TieredStopAtLevel=1 -Djava.io.tmpdir={scratch}"
    program = subprocess.Popen(
        [sys.executable, "-m", "penstock", "run", str(folder)],
        env={**os.environ, "TMPDIR": str(scratch), "JDK_JAVA_OPTIONS": settings},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        first = "pipeline-run/groups/*/checkpoint/commits/0"  # groups begin in turn
        eventually(lambda: len(list(folder.glob(first))) == 3 or program.poll() is not None, 120)
        write(folder, 50, 30)
        program.send_signal(signal.SIGINT)  # that of SIGTERM is asked of the server
        said, _ = program.communicate(timeout=120)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()
    assert program.returncode == 0, said
    assert not list(scratch.iterdir()), "temporary files were left"
    for group in (folder / "pipeline-run" / "groups").iterdir():
        done = {int(entry.name) for entry in (group / "checkpoint" / "commits").glob("[0-9]*")}
        written = {int(entry.stem) for entry in (group / "results" / "_penstock" / "ledger").iterdir()}
        assert written == done, "a batch was left unfinished"
        assert not list((group / "results" / "_penstock" / "staging").iterdir())
