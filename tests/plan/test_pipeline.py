"""A pipeline's file: what it says, and every fault of it with its line, before Spark is there."""

from __future__ import annotations

import gzip
import tomllib
from dataclasses import replace
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadOption, BadPipeline, UnreadableTable, UnsupportedType
from penstock.plan.pipeline import read_pipeline
from penstock.plan.pipeline.columns import infer, name_of, type_of
from penstock.plan.pipeline.csv_tables import table_path
from penstock.plan.pipeline.lines import lines_of
from penstock.plan.pipeline.operators import OPERATORS, Known, plan_of
from penstock.plan.pipeline.starting import starting
from penstock.sql.catalogue import Relation
from penstock.tables import table

GOOD = """
trigger = "available_now"

[streams.orders]
path = "orders/"
time = "ordered_at"
lateness = "10 minutes"
options = { maxFilesPerTrigger = 1 }

[tables.products]
path = "products.csv"
key = "product_id"

[queries.enriched]
operator = "join_table"
stream = "orders"
table = "products"
on = "product_id"
memory = "64MB"
sink = { path = "out/" }

[queries.text]
sql = \"\"\"
SELECT order_id FROM orders, products
WHERE orders.product_id = products.product_id\"\"\"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "a.csv").write_text(
        "order_id,product_id,ordered_at,note\n1,10,2026-01-01 10:00:00,\n2,11,2026-01-01 10:00:01,\n"
    )
    (tmp_path / "products.csv").write_text("product_id,name,price\n10,apple,1.5\n11,pear,2\n")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    (folder / "pipeline.toml").write_text(text)
    return folder / "pipeline.toml"


def test_a_whole_file_is_read_with_its_columns_found_in_the_files(folder: Path) -> None:
    pipeline, faults = read_pipeline(write(folder, GOOD))
    faults.check()
    orders, products = pipeline.streams["orders"], pipeline.tables["products"]
    assert pipeline.trigger is None
    assert (orders.format, orders.time, orders.options) == ("csv", "ordered_at", {"maxFilesPerTrigger": "1"})
    assert [str(kind) for kind in orders.columns.types] == ["int64", "int64", "timestamp[us, tz=UTC]", "string"]
    assert products.columns == pa.schema([("product_id", "int64"), ("name", "string"), ("price", "double")])
    assert pipeline.queries["enriched"].options["memory"] == "64MB"
    assert pipeline.queries["enriched"].sink.path == folder / "out"
    assert pipeline.queries["text"].sink.format == "console"
    assert pipeline.folder == folder / "pipeline-run"


def test_every_fault_is_told_at_once_with_its_line(folder: Path) -> None:
    text = GOOD.replace('"available_now"', '"sometimes"').replace('time = "ordered_at"', 'time = "orderd_at"')
    text = text.replace("on =", "no =").replace('key = "product_id"', 'key = "productid"\nkie = 1')
    text = text.replace('sink = { path = "out/" }', 'sink = { format = "oracle" }')
    _, faults = read_pipeline(write(folder, text))
    with pytest.raises(BadPipeline) as told:
        faults.check()
    said = str(told.value)
    for line, words in {2: "sometimes", 6: "ordered_at", 12: "product_id", 13: "kie", 21: "oracle"}.items():
        assert f"pipeline.toml:{line}: " in said, said
        assert words in said
    assert "Did you mean 'ordered_at' or" in said


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a = [1,\n  2\nb = 3\n", 3, "not TOML"),
        ("[streams.orders]\npath = orders\n", 2, "not TOML"),
        ("x = 1\nx = 2\n", 2, "not TOML"),
        ("[streams.orders]\nformat = 'parquet'\n", 1, "There is no path"),
        ("[streams.orders]\npath = 'nowhere/'\nformat = 'csv'\n", 2, "does not exist"),
        ("[streams.o]\npath = 'nowhere/'\n", 2, "does not exist"),
        ("[streams.o]\nformat = 'kafka'\n", 1, "kafka.bootstrap.servers"),
        ("[streams.o]\nformat = 'rate'\ncolumns = { a = 'int' }\n", 3, "columns of its own"),
        ("[streams.o]\npath = 'orders/'\n\n[streams.o.columns]\norder_id = 'lang'\n", 5, "is not a type"),
        ("[streams.o]\npath = 'orders/'\noptions = { mode = 'DROPMALFORMED' }\n", 3, "set aside"),
        ("[tables.p]\npath = 'products.csv'\noptions = { comment = '#' }\n", 3, "no option 'comment'"),
        (
            "[tables.p]\npath = 'orders/'\nformat = 'delta'\noptions = { versionAsOf = 3 }\n",
            4,
            "no option 'versionAsOf'",
        ),
        ("[streams.o]\npath = 'orders/'\n[queries.q]\nsink = 'console'\n", 3, "neither sql nor operator"),
        ("[streams.'a b']\npath = 'orders/'\n", 1, "is not a name"),
        ("streams = 3\n", 1, "is not a table"),
        ("[streams.o]\nformat = 'rate'\n[tables.O]\npath = 'products.csv'\nkey = 'product_id'\n", 3, "two called 'O'"),
        (
            "[streams.o]\nformat = 'rate'\n[queries.q]\nsql = 'SELECT value FROM o'\nsink = { path = 'x' }\n"
            "[queries.r]\nsql = 'SELECT value FROM o'\nsink = { path = './x/' }\n",
            8,
            "is the sink of q",
        ),
        ("[streams.o]\npath = 'orders/'\n[queries.q]\nsql = 'S'\nsink = 'orders/out'\n", 5, "in the input of o"),
        ("folder = 'r'\n[streams.o]\npath = 'orders/'\n[queries.q]\nsql = 'S'\nsink = 'r/groups'\n", 6, "own folder"),
        ("folder = 'orders'\n[streams.o]\npath = 'orders/'\n", 1, "is the input of o"),
        ("folder = 'products.csv'\n[streams.o]\npath = 'orders/'\n", 1, "is not a folder"),
        (
            "[streams.o]\nformat = 'rate'\n[queries.q]\nsql = 'S'\nsink = 'x/y'\n[queries.r]\nsql = 'S'\nsink = 'x'\n",
            8,
            "holds the sink of q",
        ),
        ("[tables.p]\npath = 'products.csv'\ncolumns = []\n", 3, "not a list of names"),
        ("[tables.p]\npath = 'products.csv'\norder = 1\n", 3, "not a name of a column"),
        ("cores = true\n[streams.o]\npath = 'orders/'\n", 1, "not a number of cores"),
    ],
)
def test_a_fault_is_told_where_it_is(folder: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(BadPipeline, match=f"pipeline.toml:{line}: ") as told:
        read_pipeline(write(folder, text))[1].check()
    assert words in str(told.value)


@pytest.mark.parametrize("text", [f"a = {'[' * 2000}{']' * 2000}", f"[{'.'.join('a' * 900)}]", "[a" + ".a" * 25 + "]"])
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pipeline.toml").write_text(text)
    with pytest.raises(BadPipeline, match="nested too deeply"):
        read_pipeline(tmp_path / "pipeline.toml")


@pytest.mark.parametrize("key", ["[[]]", "[1]", "1"])
def test_a_key_that_is_no_name_is_a_fault_and_no_crash(tmp_path: Path, key: str) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "p.parquet")
    (tmp_path / "pipeline.toml").write_text(f'[tables.p]\npath = "p.parquet"\nkey = {key}\n')
    _, faults = read_pipeline(tmp_path / "pipeline.toml")
    with pytest.raises(BadPipeline, match="has no column"):
        faults.check()


def test_values_in_several_lines_begin_where_their_names_stand() -> None:
    text = '# a comment\na = """\none\ntwo\n"""\n\n[b.c]\nd = [\n 1,\n]\ne = { f = 1, g = 2 }\n'
    text += "[[h]]\ni = 1\n[[h]]\ni = 2\n"
    lines = lines_of(text)
    assert {path: lines[path] for path in [("a",), ("b", "c"), ("b", "c", "d"), ("b", "c", "e", "g")]} == {
        ("a",): 2,
        ("b", "c"): 7,
        ("b", "c", "d"): 8,
        ("b", "c", "e", "g"): 11,
    }
    assert (lines["h", 0, "i"], lines["h", 1, "i"]) == (13, 15)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 9), min_size=1, max_size=6))
def test_the_line_of_a_value_is_the_one_that_names_it(said: dict[str, int]) -> None:
    text = "".join(f"\n# note\n{name} = {value}\n" for name, value in said.items())
    assert lines_of(text) == {(name,): 3 * n + 3 for n, name in enumerate(said)}


def test_types_have_names_and_names_have_types() -> None:
    for name in ("long", "timestamp", "decimal(10,2)", "string", "boolean", "date", "binary", "double"):
        assert name_of(type_of(name, "c")) == name


def test_a_table_in_csv_becomes_pages_once(folder: Path) -> None:
    pipeline, faults = read_pipeline(write(folder, GOOD))
    faults.check()
    place = table_path(pipeline.tables["products"], folder / "run")
    assert table(place, key="product_id").rows == 2
    assert pq.read_table(place)["price"].to_pylist() == [1.5, 2.0]
    assert table_path(pipeline.tables["products"], folder / "run") == place
    (folder / "products.csv").write_text("product_id,name,price\n10,apple,cheap\n")
    with pytest.raises(UnreadableTable, match=r"products\.csv"):
        table_path(pipeline.tables["products"], folder / "run")
    assert [f.name for f in (folder / "run" / "tables").iterdir()] == [place.name]


def test_a_table_in_csv_that_is_read_in_another_way_is_written_anew(folder: Path) -> None:
    (folder / "products.csv").write_text("product_id,name,price\n10,apple,1.5\n11,NA,2\n")
    pipeline, _ = read_pipeline(write(folder, GOOD))
    said = pipeline.tables["products"]
    for options, name in (({}, "NA"), ({"nullValue": "NA"}, None)):
        place = table_path(replace(said, options=options), folder / "run")
        assert pq.read_table(place)["name"].to_pylist() == ["apple", name]


def test_a_value_in_quotes_may_have_lines_and_quotes(folder: Path) -> None:
    pipeline, _ = read_pipeline(write(folder, GOOD))
    rows = "".join(f'{n},"a ""long""\nname\n",{n}\n' for n in range(100_000))
    (folder / "products.csv").write_text("product_id,name,price\n" + rows)
    names = pq.read_table(table_path(pipeline.tables["products"], folder / "run"))["name"]
    assert (len(names), names.unique().to_pylist()) == (100_000, ['a "long"\nname\n'])


def test_packed_files_and_other_endings_are_files_of_the_format(folder: Path) -> None:
    """Of a table, those that were passed over were missing from every join with it."""
    several = folder / "several"
    several.mkdir()
    (several / "a.csv").write_text("product_id,name,price\n1,apple,1.5\n")
    (several / "b.csv.gz").write_bytes(gzip.compress(b"product_id,name,price\n2,pear,2\n"))
    (several / "C.CSV").write_text("product_id,name,price\n3,plum,2\n")
    pipeline, _ = read_pipeline(write(folder, GOOD.replace("products.csv", "several")))
    rows = pq.read_table(table_path(pipeline.tables["products"], folder / "run"))
    assert sorted(rows["product_id"].to_pylist()) == [1, 2, 3]


def test_what_is_no_single_value_is_left_out_of_a_first_pipeline(folder: Path) -> None:
    events = folder / "events"
    events.mkdir()
    line = b'{"id": 1, "user": {"name": "x"}, "tags": ["a"], "product_id": 10}\n'
    (events / "a.jsonl.gz").write_bytes(gzip.compress(line))
    with pytest.raises(UnsupportedType, match=r"user is struct.*\n.*columns = "):
        infer(events, "json", {})
    text = starting([str(events)], [f"{folder / 'products.csv'}:product_id"], folder)
    assert "a single value: user, tags" in text
    pipeline, _ = read_pipeline(write(folder, text))
    assert pipeline.streams["events"].columns.names == ["id", "product_id"]


def parted(folder: Path, format_: str) -> Path:
    """Files in folders that are named for the values of columns."""
    for day, area in (("2026-01-01", "7"), ("2026-01-02", "__HIVE_DEFAULT_PARTITION__")):
        place = folder / format_ / f"day={day}" / f"area={area}" / "a%20b=x"
        place.mkdir(parents=True)
        if format_ == "parquet":
            pq.write_table(pa.table({"id": [1]}), place / "a.parquet")
        else:
            (place / f"a.{format_}").write_text("id\n1\n" if format_ == "csv" else '{"id": 1}\n')
    return folder / format_


def test_a_folder_with_an_equals_sign_in_its_name_says_no_name(tmp_path, monkeypatch):
    day = tmp_path / "sales" / "day=2026-01-01"
    day.mkdir(parents=True)
    (day / "a.csv").write_text("id,n\n1,2\n")
    for said in (str(day), f"new={day}"):
        assert 'path = "sales/day=2026-01-01"' in starting([said], [], tmp_path)
    assert "[tables.day_2026_01_01]" in starting([f"new={day}"], [f"{day}:id"], tmp_path)
    monkeypatch.chdir(day.parent)
    assert "[streams.day_2026_01_01]" in starting(["day=2026-01-01/"], [], tmp_path)


@pytest.mark.parametrize("format_", ["parquet", "csv", "json"])
def test_columns_that_folders_are_named_for_are_read_or_told(tmp_path: Path, format_: str) -> None:
    text = starting([str(parted(tmp_path, format_))], [], tmp_path)
    pipeline, _ = read_pipeline(write(tmp_path, text))
    found = pipeline.streams[format_].columns
    if format_ == "json":
        assert found.names == ["id"]
        assert "# Not read, because they are in the names of folders alone: day, area, " in text
    else:
        kinds = [("id", pa.int64()), ("day", pa.date32()), ("area", pa.int64()), ("a b", pa.string())]
        assert found == pa.schema(kinds)


def test_a_csv_table_in_folders_that_are_named_for_columns_is_refused(folder: Path) -> None:
    place = parted(folder, "csv")
    with pytest.raises(UnreadableTable, match=r"column 'day'(.|\n)*names of folders"):
        starting([str(folder / "orders")], [f"{place}:id"], folder)
    _, faults = read_pipeline(write(folder, GOOD.replace('"products.csv"', '"csv"\nformat = "csv"')))
    with pytest.raises(BadPipeline, match=r"column 'day'"):
        faults.check()


def test_a_parquet_table_in_folders_that_are_named_for_columns_has_them(folder: Path) -> None:
    place = parted(folder, "parquet")
    text = starting([str(folder / "orders")], [f"{place}:id"], folder)
    pipeline, faults = read_pipeline(write(folder, text))
    faults.check()
    assert pipeline.tables["parquet"].columns.names == ["id", "day", "area", "a b"]
    assert Relation.of("t", place).schema.names == ["id", "day", "area", "a b"]


def test_a_delta_table_has_all_its_columns_in_a_first_pipeline(folder: Path) -> None:
    rows = pa.table({"product_id": [10, 11], "day": ["a", "b"], "price": [1.0, 2.0]})
    deltalake.write_deltalake(str(folder / "stock"), rows, partition_by=["day"])
    text = starting([str(folder / "orders")], [f"{folder / 'stock'}:product_id"], folder)
    assert "SELECT orders.*, stock.price, stock.day\n" in text or "SELECT orders.*, stock.day, stock.price\n" in text


def test_keys_that_are_text_in_a_table_are_text_in_a_first_pipeline(folder: Path) -> None:
    pq.write_table(pa.table({"product_id": ["10", "007"], "name": ["a", "b"]}), folder / "texts.parquet")
    text = starting([str(folder / "orders")], [f"{folder / 'texts.parquet'}:product_id"], folder)
    pipeline, _ = read_pipeline(write(folder, text))
    assert pipeline.streams["orders"].columns.field("product_id").type == pa.string()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("id;Straße\n1;Müller\n".encode("latin-1"), "iconv"),
        (b"id,id,x\n1,2,3\n", "two columns 'id'"),
        (b"", "Empty CSV file"),
        ("id,name\n1,Müller\n".encode("latin-1"), r"(?s)'name' are not UTF-8.*iconv"),
    ],
)
def test_files_that_cannot_be_read_are_told_with_a_remedy(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(UnreadableTable, match=match):
        starting([str(tmp_path / "a.csv")], [], tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("a.json", b'{"a": 1, "a": 2}\n', "a name of its own"),
        ("a.json", b'{"a": 1e400}\n', "Write it as a text"),
        ("a.json", b"", "Wait until something is in it"),
        ("a.json", b"\n \n", "Wait until something is in it"),
        ("a.json", '{"a": 1}\n'.encode("utf-16"), "iconv -f utf-16"),
        ("a.csv", "a,b\n1,2\n".encode("utf-16-le"), "iconv -f utf-16"),
        ("a.csv.gz", b"a,b\n1,2\n", "not packed as its name says"),
        ("a.parquet", b"PAR", "no Parquet file"),
    ],
)
def test_a_remedy_is_about_what_is_wrong(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableTable, match=match):
        starting([f"s={tmp_path / name}"], [], tmp_path)


def test_a_folder_of_empty_files_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    with pytest.raises(BadOption, match="has only empty files"):
        starting([f"s={tmp_path}"], [], tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.csv", "n\n01067\n10115\n", pa.string()),
        ("a.csv", "n\n1.5\n-007\n", pa.string()),
        ("a.csv", "n\n0\n-0.5\n0.25\n", pa.float64()),
        ("a.csv", "n\n\n12345678901234567890\n-5\n", pa.decimal128(38, 0)),
        ("a.csv", f"n\n{'9' * 39}\n", pa.string()),
        ("a.csv", "n\n12345678901234567890\n0.5\n", pa.float64()),
        ("a.csv", "n\nnan\n1\n", pa.float64()),
        ("a.json", '{"n": 12345678901234567890}\n{"n": null}\n{"n": 7}\n', pa.decimal128(38, 0)),
        ("a.json", '{"n": 12345678901234567890}\n{"n": 0.5}\n', pa.float64()),
        ("a.json", '{"n": %s}\n' % ("9" * 39), pa.string()),
    ],
)
def test_no_digit_of_a_number_is_lost(tmp_path: Path, name: str, content: str, kind: pa.DataType) -> None:
    (tmp_path / name).write_text(content)
    assert infer(tmp_path, name[2:], {}).field("n").type == kind


def test_values_of_several_types_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(UnreadableTable, match="of different types"):
        infer(tmp_path, "json", {})


def test_what_is_of_several_kinds_in_csv_files_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,at,n\n1,2024-01-05,1\n")
    (tmp_path / "b.csv").write_text("id,at,n\n2,5 Jan 2024,2.5\n")
    kinds = pa.schema([("id", pa.int64()), ("at", pa.string()), ("n", pa.float64())])
    assert infer(tmp_path, "csv", {}) == kinds


def test_fields_of_several_types_in_json_files_are_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    (tmp_path / "b.json").write_text('{"a": "x"}\n')
    with pytest.raises(UnreadableTable, match="of different types"):
        infer(tmp_path, "json", {})


def test_a_first_pipeline_says_why_a_table_is_not_joined(folder: Path) -> None:
    (folder / "parts.csv").write_text('"Nr, old",name\n1,a\n')
    text = starting([str(folder / "orders")], [f'{folder / "parts.csv"}:"Nr, old"'], folder)
    assert '# Not joined: orders has no column "Nr, old", the key of parts.' in text
    pipeline, _ = read_pipeline(write(folder, text))
    assert pipeline.tables["parts"].key == ("Nr, old",)


def test_columns_that_arrow_has_and_spark_has_not_are_read_or_told(tmp_path: Path) -> None:
    rows = {
        "sort": pa.array(["a"]).dictionary_encode(),
        "whole": pa.array([2**64 - 1], pa.uint64()),
        "o'clock": pa.array([1], pa.time64("us")),
        "old": pa.array([1], pa.timestamp("ns")),
    }
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    text = starting([str(tmp_path / "a.parquet")], [], tmp_path)
    assert """# Not read, because of their types: "o'clock" (time64[us])""" in text
    found = read_pipeline(write(tmp_path, text))[0].streams["a"].columns
    kinds = [("sort", pa.string()), ("whole", pa.decimal128(20, 0)), ("old", pa.timestamp("us", "UTC"))]
    assert found == pa.schema(kinds)


@pytest.mark.parametrize("columns", ["", 'columns = { id = "long", at = "timestamp" }'])
def test_times_in_nanoseconds_are_told_before_spark_fails_to_read_them(tmp_path: Path, columns: str) -> None:
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "a.parquet")
    text = starting([str(tmp_path / "a.parquet")], [], tmp_path)
    assert "# Not read, because Spark reads no times in nanoseconds: at\n" in text
    assert read_pipeline(write(tmp_path, text))[0].streams["a"].columns.names == ["id"]
    said = f'[streams.a]\npath = "a.parquet"\n{columns}\n[queries.q]\nsql = "SELECT id FROM a"\n'
    _, faults = read_pipeline(write(tmp_path, said))
    with pytest.raises(BadPipeline, match=r"(?s)'at'.*nanoseconds.*coerce_timestamps"):
        faults.check()


def test_a_file_without_names_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2024-01-01\n2,2024-01-02\n")
    assert 'header = "false"' in starting([str(tmp_path / "a.csv")], [], tmp_path)


def test_columns_of_json_and_parquet_are_found(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "a.json").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": null}\n')
    assert infer(tmp_path / "j", "json", {}) == pa.schema([("a", pa.int64()), ("b", pa.string())])
    pq.write_table(
        pa.table({"t": pa.array([0], pa.timestamp("ns")), "d": pa.array([1], pa.uint8())}), tmp_path / "p.parquet"
    )
    assert infer(tmp_path / "p.parquet", "parquet", {}).types == [pa.timestamp("us", "UTC"), pa.int16()]


@pytest.mark.parametrize(
    "text", ['{\n  "a": 1\n}\n', '{"a": 1}{"a": 2}\n', '[{"a": 1},\n {"a": 2}]\n', '{"a": 1}\n{\n"a": 2}\n']
)
def test_json_that_has_other_than_one_record_a_line_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UnreadableTable, match="as one line"):
        infer(tmp_path, "json", {})


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ("", [None, None, "NA", " "]),
        ("options = { nullValue = 'NA' }", [None, None, None, " "]),
        ("options = { nullValue = 'NA', emptyValue = '' }", [None, "", None, " "]),
    ],
)
def test_what_is_empty_in_a_table_of_csv_is_null_in_quotes_or_not(
    folder: Path, options: str, names: list[str | None]
) -> None:
    """As in a stream: `test_what_is_empty_in_csv_is_null_in_quotes_or_not`."""
    text = GOOD.replace('path = "products.csv"', f'path = "products.csv"\n{options}')
    price = "" if "emptyValue" in options else '""'  # which no number then could be
    (folder / "products.csv").write_text(f'product_id,name,price\n1,,\n2,"",{price}\n3,NA,1\n"4"," ","2"\n')
    pipeline, _ = read_pipeline(write(folder, text))
    rows = pq.read_table(table_path(pipeline.tables["products"], folder / "run"))
    assert rows["name"].to_pylist() == names
    assert rows["product_id"].to_pylist() == [1, 2, 3, 4]
    assert rows["price"].to_pylist() == [None, None, 1, 2]


def test_the_lateness_of_a_join_is_the_larger_one_to_the_second(folder: Path) -> None:
    pipeline, _ = read_pipeline(write(folder, GOOD))
    late = replace(pipeline.streams["orders"], lateness="3661 s")
    columns = pa.schema([("order_id", pa.int64()), ("sent_at", pa.timestamp("us", "UTC"))])
    sent = replace(late, name="sent", time="sent_at", lateness="1 s", columns=columns)
    known = Known({"orders": late, "sent": sent}, {}, 2, folder)
    options = {"left": "orders", "right": "sent", "on": "order_id", "within": "1 hour", "memory": "16MB"}
    planned, faults = plan_of("join_streams", options, known)
    assert planned is not None, faults
    assert [side.lateness for side in planned.plan.sides] == [3_661_000_000] * 2


def test_options_of_an_operator_become_its_plan(folder: Path) -> None:
    pipeline, _ = read_pipeline(write(folder, GOOD))
    place = table_path(pipeline.tables["products"], folder / "run")
    known = Known(pipeline.streams, {"products": lambda: table(place, key="product_id")}, 2, folder)
    options = pipeline.queries["enriched"].options
    planned, faults = plan_of("join_table", options, known)
    assert not faults
    assert planned is not None
    assert planned.plan.channels["results"].names == ["order_id", "product_id", "ordered_at", "note", "name", "price"]
    assert [stream.name for stream in planned.streams] == ["orders"]
    for change, words in [
        ({"table": "product"}, "Did you mean 'products'?"),
        ({"memory": "64"}, "The unit is missing"),
        ({"memori": "64MB"}, "Did you mean 'memory'?"),
        ({"follow": "yes"}, "is no bool"),
        ({"on": {"band": {"column": "order_id"}}}, "does not say what it must"),
    ]:
        planned, faults = plan_of("join_table", {**options, **change}, known)
        assert planned is None
        assert words in str(faults[0][1]), faults


@pytest.mark.parametrize(
    ("operator", "options"),
    [
        ("join_streams", {"left": "orders", "right": "sent", "on": "order_id", "within": "1 hour", "memory": "16MB"}),
        (
            "standing_queries",
            {
                "left": "orders", "right": "sent", "queries": "alerts.parquet", "memory": "64MB", "keep": 100,
                "select": {"on": "order_id", "left": "product_id", "right": "weight"},
            },
        ),
        ("subscriptions", {"stream": "sent", "x": "weight", "y": "weight", "key": "order_id", "order": "sent_at"}),
    ],
)  # fmt: skip
def test_every_operator_has_a_plan(folder: Path, operator: str, options: dict[str, object]) -> None:
    sent = '[streams.sent]\nformat = "json"\npath = "sent/"\ntime = "sent_at"\n'
    sent += 'columns = { order_id = "long", weight = "long", sent_at = "timestamp" }\n'
    (folder / "sent").mkdir()
    pipeline, faults = read_pipeline(write(folder, GOOD + sent))
    faults.check()
    bounds = {
        f"{side}_{end}": [n] for side in ("left_product_id", "right_weight") for n, end in enumerate(("from", "to"))
    }
    alerts = pa.table({"query": [1], **bounds})
    pq.write_table(alerts, folder / "alerts.parquet")
    planned, told = plan_of(operator, options, Known(pipeline.streams, {}, 2, folder))
    assert planned is not None, told
    assert operator in OPERATORS


def test_a_last_line_without_an_end_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,price\n1,2.5")
    (tmp_path / "a.jsonl").write_text('{"id": 1, "price": 2.5}')
    kinds = pa.schema([("id", pa.int64()), ("price", pa.float64())])
    assert infer(tmp_path / "a.csv", "csv", {}) == infer(tmp_path / "a.jsonl", "json", {}) == kinds


def test_numbers_with_decimal_commas_are_texts_and_a_first_pipeline_says_so(tmp_path: Path) -> None:
    (tmp_path / "sales.csv").write_text('id;"price, net";text\n1;"1.234,50";a,1\n2;;b\n3;-0,5;c')
    text = starting([str(tmp_path / "sales.csv")], [], tmp_path)
    assert 'sep = ";"' in text
    assert "# Texts, because a comma stands before the decimals of their numbers: " in text
    assert 'numbers: "price, net"\n' in text
    pipeline, _ = read_pipeline(write(tmp_path, text))
    kinds = [("id", pa.int64()), ("price, net", pa.string()), ("text", pa.string())]
    assert pipeline.streams["sales"].columns == pa.schema(kinds)


def test_what_csv_has_and_spark_has_not_is_a_text(tmp_path: Path) -> None:
    # A column cannot be left out: the files have it, and Spark compares their names.
    (tmp_path / "a.csv").write_text("id,at\n1,10:30\n2,23:59:59\n")
    text = starting([str(tmp_path / "a.csv")], [], tmp_path)
    assert 'columns = { id = "long", at = "string" }' in text


def test_parquet_files_have_the_columns_of_all_in_the_widest_types(tmp_path: Path) -> None:
    first = {"id": pa.array([1], pa.int32()), "at": pa.array([0], pa.timestamp("us")), "kind": pa.array(["a"])}
    pq.write_table(pa.table(first), tmp_path / "a.parquet")
    later = {"id": [2**40], "at": pa.array([0], pa.timestamp("ms", "UTC")), "new": ["x"]}
    kind = pa.array(["b"]).dictionary_encode()
    pq.write_table(pa.table(later | {"kind": kind}), tmp_path / "b.parquet")
    kinds = {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "kind": pa.string(), "new": pa.string()}
    assert infer(tmp_path, "parquet", {}) == pa.schema(kinds)


def test_a_parquet_column_without_values_is_told_before_spark_fails_to_read_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "note": pa.nulls(1)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": [2], "note": ["x"]}), tmp_path / "b.parquet")
    text = starting([f"s={tmp_path}"], [], tmp_path)
    assert "# Not read, because of their types: note (null)\n" in text
    with pytest.raises(UnsupportedType, match="note is null"):
        infer(tmp_path, "parquet", {})


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,x\n1," + "y" * (5 << 20) + "\n2,z\n"),
        ("a.json", '{"id": 1, "x": "' + "y" * (5 << 20) + '"}\n{"id": 2, "x": "z"}\n'),
    ],
)
def test_a_record_may_be_longer_than_what_is_looked_at(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    found = infer(tmp_path, name.removeprefix("a."), {})
    assert found == pa.schema([("id", pa.int64()), ("x", pa.string())])


def test_a_record_of_a_csv_table_may_be_a_long_one(folder: Path) -> None:
    name = "y" * (3 << 20)
    (folder / "products.csv").write_text(f"product_id,name,price\n10,{name},1.5\n11,pear,2\n")
    pipeline, _ = read_pipeline(write(folder, GOOD))
    pages = pq.read_table(table_path(pipeline.tables["products"], folder))
    assert pages["name"].to_pylist() == [name, "pear"]


def test_empty_files_beside_others_are_passed_over(folder: Path) -> None:
    for place in ("orders/0.csv", "products/0.csv"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).touch()
    (folder / "products.csv").rename(folder / "products" / "1.csv")
    text = starting([str(folder / "orders")], [f"{folder / 'products'}:product_id"], folder)
    pipeline, _ = read_pipeline(write(folder, text))
    assert pq.read_table(table_path(pipeline.tables["products"], folder)).num_rows == 2


def test_files_in_folders_that_spark_passes_over_are_told_or_read(tmp_path: Path) -> None:
    for year in ("2025", "2026"):
        (tmp_path / "orders" / year).mkdir(parents=True)
        (tmp_path / "orders" / year / "a.csv").write_text("order_id,product_id\n1,10\n")
    (tmp_path / "pipeline.toml").write_text('[streams.orders]\npath = "orders"\n[queries.all]\nsql = "SELECT 1"\n')
    with pytest.raises(BadPipeline, match=r"pipeline.toml:2: .*files in the folder '202[56]'[^$]*recursiveFileLookup"):
        read_pipeline(tmp_path)[1].check()
    text = starting([str(tmp_path / "orders")], [], tmp_path)
    assert 'options = { recursiveFileLookup = "true" }' in text
    (tmp_path / "pipeline.toml").write_text(text)
    read_pipeline(tmp_path)[1].check()


def test_what_lies_in_hidden_folders_belongs_to_no_table(folder: Path) -> None:
    (folder / "products").mkdir()
    (folder / "products.csv").rename(folder / "products" / "a.csv")
    for hidden in (".ipynb_checkpoints", "_old"):
        (folder / "products" / hidden).mkdir()
        (folder / "products" / hidden / "b.csv").write_bytes((folder / "products" / "a.csv").read_bytes())
    (folder / "pipeline.toml").write_text(GOOD.replace("products.csv", "products"))
    pipeline, faults = read_pipeline(folder)
    faults.check()
    assert table(table_path(pipeline.tables["products"], folder / "run"), key="product_id").rows == 2


def test_a_csv_table_in_folders_is_read_as_a_first_pipeline_says(folder: Path) -> None:
    for place in ("eu", "us"):
        (folder / "products" / place).mkdir(parents=True)
        (folder / "products" / place / "a.csv").write_bytes((folder / "products.csv").read_bytes())
    (folder / "pipeline.toml").write_text(
        starting([str(folder / "orders")], [f"{folder / 'products'}:product_id"], folder)
    )
    pipeline, faults = read_pipeline(folder)
    faults.check()
    assert pipeline.tables["products"].format == "csv"


@pytest.mark.parametrize(
    ("header", "separator"), [("id;net, price;at", ";"), ("id,kind;size", None), ("id|a;b|c", "|"), ("id", None)]
)
def test_the_separator_is_what_stands_between_most_names(tmp_path: Path, header: str, separator: str | None) -> None:
    (tmp_path / "orders.csv").write_text(f"{header}\n")
    text = starting([str(tmp_path / "orders.csv")], [], tmp_path)
    told = [line for line in text.splitlines() if "sep =" in line]
    assert told == ([f'options = {{ sep = "{separator}" }}'] if separator else [])


@pytest.mark.parametrize("said", ["sep = '||'", "delimiter = '\\t'", "quote = '<q>'"])
def test_what_cannot_separate_is_told_as_such(folder: Path, said: str) -> None:
    text = GOOD.replace('path = "products.csv"', f'path = "products.csv"\noptions = {{ {said} }}')
    (folder / "pipeline.toml").write_text(text)
    with pytest.raises(BadPipeline, match="more than one letter"):
        read_pipeline(folder)[1].check()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2026-02-01T10:00:00.123Z", "2026-02-01T10:00:00Z"], "timestamp"),  # of JavaScript
        (["2026-02-01T10:00:00.000", "2026-02-01T10:00:00"], "timestamp"),  # of pandas and Python
        (["2026-02-01T10:00:00Z", "2026-02-01T10:00:00"], "timestamp"),
        (["2026-02-01T10:00:00.123456789Z"], "string"),
        (["2026-02-01T10:00Z", "2026-02-01T10:00:30Z"], "string"),  # of Java, which Spark does not read
        (["2026-02-01T10:00:00.123Z", "yesterday"], "string"),
    ],
)
def test_times_with_fractions_of_seconds_are_times_in_json(tmp_path: Path, values: list[str], kind: str) -> None:
    (tmp_path / "a.json").write_text("".join(f'{{"at": "{value}"}}\n' for value in [*values]) + '{"at": null}\n')
    assert name_of(infer(tmp_path / "a.json", "json", {}).field("at").type) == kind


@pytest.mark.parametrize("ending", ["Z", "+02:00", "-0530"])
def test_times_that_spark_does_not_read_are_texts(tmp_path: Path, ending: str) -> None:
    (tmp_path / "a.csv").write_text(f"id,at,on\n1,2026-02-01T10:00{ending},2026-02-01 10:00\n")
    columns = infer(tmp_path / "a.csv", "csv", {})
    assert [name_of(kind) for kind in columns.types] == ["long", "string", "timestamp"]


def test_a_path_of_a_first_pipeline_behind_a_link_leads_to_the_files(folder: Path) -> None:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "link").symlink_to("deep/er")
    target = folder / "link" / "pipeline.toml"
    target.write_text(starting([str(folder / "orders")], [], target.parent))
    read_pipeline(target)[1].check()


@pytest.mark.parametrize("path", ["~nobody-of-this-name/x", "x" * 300])
def test_a_path_that_cannot_be_is_told_with_its_line(folder: Path, path: str) -> None:
    for text in (GOOD.replace("orders/", path), GOOD.replace("products.csv", path), GOOD.replace("out/", "x" * 300)):
        (folder / "pipeline.toml").write_text(text)
        with pytest.raises(BadPipeline, match=r"pipeline\.toml:\d+"):
            read_pipeline(folder)[1].check()


def test_keys_that_are_no_names_are_told(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(GOOD)
    pipeline, _ = read_pipeline(folder)
    said = {"stream": "orders", "x": "product_id", "key": [1], "order": "ordered_at", "agg": "min"}
    planned, [(_, fault)] = plan_of("subscriptions", said, Known(pipeline.streams, {}, 1, folder))
    assert planned is None
    assert "no name of a column" in str(fault)


@pytest.mark.parametrize("said", [{"at_least": "much"}, {"at_least": True}, {"at_least": 0.5, "candidates": "many"}])
def test_how_alike_texts_are_is_a_number(folder: Path, said: dict[str, object]) -> None:
    (folder / "pipeline.toml").write_text(GOOD)
    pipeline, _ = read_pipeline(folder)
    pq.write_table(pa.table({"name": ["apple"]}), folder / "names.parquet")
    known = Known(pipeline.streams, {"products": lambda: table(folder / "names.parquet", key="name")}, 1, folder)
    options = {"stream": "orders", "table": "products", "on": {"similar": {"column": "note", **said}}, "memory": "1MB"}
    planned, [(_, fault)] = plan_of("join_table", options, known)
    assert planned is None
    assert "is not a" in str(fault)


def test_the_lines_of_a_long_file_are_found_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value of the file from its beginning, for each of its lines, took minutes for a thousand queries."""
    text = "".join(f'[queries.q{n}]\nsql = """\nSELECT {n}\n[not a heading]"""\n\n' for n in range(500))
    read = 0

    def loads(part: str) -> dict[str, object]:
        nonlocal read
        read += len(part)
        return whole(part)

    whole = tomllib.loads
    monkeypatch.setattr("penstock.plan.pipeline.lines.tomllib.loads", loads)
    assert lines_of(text)[("queries", "q499", "sql")] == 499 * 5 + 2
    assert read < 10 * len(text)
