"""Partitioned directories: columns in the names of folders, as DuckDB reads them; as keys, as results, prepared."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import TableChanged, UnreadableTable
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.tables import Table, prepare, table
from penstock.tables.versions import Versions, check_same_columns
from penstock.testing import Host, assert_same_rows

TEXTS = ["eu", "a b/c=d", "ü%", "", "x'\"\\", "100%", "1e5", "-", "nan", "2026-02-30"]
WHOLE = ["1", "01", "-7", "+3", "9223372036854775807"]
DAYS = ["2026-02-01", "0001-01-01", "9999-12-31"]


def put(folder: Path, name: str = "a.parquet", **columns: list[Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name, row_group_size=3)


def rows_of(planned: Table) -> pa.Table:
    reader = planned.open()
    taken = [reader.take(page, np.arange(page.rows)[::-1]) for page in planned.pages]
    scanned = [batch for page in planned.pages for batch in reader.batches(page)]
    found = pa.Table.from_batches(scanned, schema=planned.schema)
    assert_same_rows(pa.Table.from_batches(taken, schema=planned.schema), found)
    reader.close()
    return found


def hosted(stream: pa.Table, planned: Table, on: list[str]) -> Host:
    return Host(lambda: MeshJoin(stream.schema, planned, on=on, budget=64 << 20, pages_per_step=18))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "02", "-7"], pa.int64()),
        (["+5", str((1 << 63) - 1), None], pa.int64()),
        (["1", str(1 << 63)], pa.string()),
        (["1", "1.5"], pa.string()),
        (["٣"], pa.string()),
        (["2026-02-01", "2024-02-29", None], pa.date32()),
        (["2026-02-01", "2026-02-30"], pa.string()),
        (["2026-02-01", "20260201"], pa.string()),
        (["eu", "", None], pa.string()),
        ([None], pa.string()),
    ],
)
def test_types_are_found_in_all_values(tmp_path: Path, values: list[str | None], kind: pa.DataType) -> None:
    for number, value in enumerate(values):
        put(tmp_path / f"part={value if value is not None else '__HIVE_DEFAULT_PARTITION__'}", k=[number])
    found = table(tmp_path, key="k")
    assert found.schema == pa.schema([("k", pa.int64()), ("part", kind)])
    by_number = {row["k"]: row["part"] for row in rows_of(found).to_pylist()}
    want: Any = {pa.int64(): int, pa.date32(): dt.date.fromisoformat, pa.string(): str}[kind]
    assert by_number == {number: None if v is None else want(v) for number, v in enumerate(values)}


@settings(max_examples=15)
@given(data=st.data())
def test_a_partitioned_table_is_read_and_joined_as_duckdb_does(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("t")
    kinds = st.sampled_from([TEXTS, [text for text in WHOLE if text != "01"], DAYS])
    domains = [data.draw(kinds), data.draw(kinds)]
    rows = data.draw(st.integers(1, 30))
    parts = [data.draw(st.lists(st.sampled_from([*d, None]), min_size=rows, max_size=rows)) for d in domains]
    ids = data.draw(st.lists(st.integers(0, 5), min_size=rows, max_size=rows))
    whole = pa.table({"id": ids, "row": list(range(rows)), "p": pa.array(parts[0]), "q": pa.array(parts[1])})
    # An empty text has no folder of its own in what Hive writes: it is read as NULL.
    partitioning = ds.partitioning(pa.schema([("p", pa.string()), ("q", pa.string())]), flavor="hive")
    ds.write_dataset(whole, base / "t", format="parquet", partitioning=partitioning, max_rows_per_group=4,
                     min_rows_per_group=1)  # fmt: skip
    key = data.draw(st.sampled_from([["p"], ["q", "p"], ["id", "q"], ["p", "id"], ["id"]]))
    found = table(base / "t", key=key)
    duck = duckdb.connect()
    glob = f"{base}/t/**/*.parquet"
    types = {f.name: {"int64": "BIGINT", "date32[day]": "DATE"}.get(str(f.type), "VARCHAR") for f in found.schema}
    hive = ", ".join(f"{name}: {types[name]}" for name in ("p", "q"))
    names = ", ".join(found.schema.names)
    theirs = f"(SELECT {names} FROM read_parquet('{glob}', hive_partitioning=true, hive_types={{{hive}}}))"
    expected = duck.sql(f"SELECT * FROM {theirs}").to_arrow_table().cast(found.schema)
    assert_same_rows(rows_of(found), expected)
    stream = expected.select(key).rename_columns([f"s{i}" for i in range(len(key))]).slice(0, 5)
    duck.register("stream", stream)
    equal = " AND ".join(f"s{i} = {name}" for i, name in enumerate(key))
    want = duck.sql(f"SELECT s.*, t.* EXCLUDE ({', '.join(key)}) FROM stream s JOIN {theirs} t ON {equal}")
    prepared = prepare(base / "t", base / "prepared", key=key)
    for each in (found, prepared):
        results = hosted(stream, each, stream.column_names).run([stream])["results"]
        assert_same_rows(results, want.to_arrow_table().cast(results.schema))


def test_a_folder_decides_over_a_column_of_the_file(tmp_path: Path) -> None:
    """Spark and DuckDB do the same; the type is that of the folders, too."""
    put(tmp_path / "region=eu", k=[1], region=["us"], x=[5])
    put(tmp_path / "region=us", k=[2], x=[6])
    found = table(tmp_path, key=["region", "k"])
    assert rows_of(found).to_pylist() == [{"k": 1, "x": 5, "region": "eu"}, {"k": 2, "x": 6, "region": "us"}]


def test_only_pages_of_partitions_with_waiting_rows_are_read(tmp_path: Path) -> None:
    for day in range(1, 10):
        for region in ("eu", "us"):
            put(tmp_path / f"day=2026-02-0{day}" / f"region={region}", k=[1, 2, 3])
    day = dt.date(2026, 2, 4)
    for key, stream, met, results in (
        (["region", "day"], {"r": ["eu"], "d": [day]}, 1, 3),
        (["k", "day"], {"k": [1], "d": [day]}, 2, 2),
        (["day"], {"d": [day]}, 2, 6),
        (["region"], {"r": ["asia"]}, 0, 0),
    ):
        rows = pa.table(stream)
        host = hosted(rows, table(tmp_path, key=key), list(stream))
        host.step(rows)
        assert host.kernel.metrics()["pages_skipped"] == 18 - met
        assert host.run([])["results"].num_rows == results


def test_planning_says_how_wide_partition_values_are(tmp_path: Path) -> None:
    text = "x" * 200
    put(tmp_path / f"p={text}", k=list(range(3)))
    page = table(tmp_path, key=["p", "k"]).pages[0]
    plain = table(tmp_path / f"p={text}", key="k").pages[0]
    assert page.row_width >= plain.row_width + 200
    assert page.hash_bytes >= plain.hash_bytes + 3 * 200


def test_the_partition_is_part_of_the_version(tmp_path: Path) -> None:
    put(tmp_path / "p=1", k=[1])
    versions = Versions(str(tmp_path), ("k",))
    before, first = table(tmp_path, key="k"), versions.newest()
    (tmp_path / "p=1").rename(tmp_path / "p=2")
    assert versions.newest() != first
    assert table(tmp_path, key="k").version != before.version
    with pytest.raises(TableChanged, match=r"p=1/a\.parquet is gone"):
        before.open().hashes(before.pages[0])
    put(tmp_path / "p=3" / "_temporary" / "0", k=[9])
    put(tmp_path / "p=3", ".hidden", k=[9])
    put(tmp_path / "_p=3", k=[9])
    with pytest.raises(UnreadableTable, match="same partitions"):
        table(tmp_path, key="k")  # a name that begins with _ hides no rows where it is that of a column


def test_a_new_file_in_a_partition_is_a_new_version(tmp_path: Path) -> None:
    put(tmp_path / "p=1", k=[1])
    versions = Versions(str(tmp_path), ("k",))
    first = versions.newest()
    put(tmp_path / "p=1", "b.parquet", k=[2])
    assert versions.newest() != first
    assert versions.load(versions.newest()).rows == 2


def test_a_version_with_other_columns_says_what_differs(tmp_path: Path) -> None:
    put(tmp_path / "p=1", k=[1], x=[1], y=[1])
    was = table(tmp_path, key="k")
    put(tmp_path / "p=1", k=[1], y=[1], x=[1])
    with pytest.raises(UnreadableTable, match="they are in another order"):
        check_same_columns(was, table(tmp_path, key="k"))
    put(tmp_path / "p=1", k=[1], x=[1], z=[1])
    (tmp_path / "p=1").rename(tmp_path / "p=unknown")
    with pytest.raises(UnreadableTable, match="'y' is gone; 'z' is new; 'p' is string instead of int64"):
        check_same_columns(was, table(tmp_path, key="k"))


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (["p=1", "q=1"], "same partitions"),
        (["p=1", "."], "same partitions"),
        (["p=1/q=1", "p=2"], "same partitions"),
        (["p=1/q=1", "q=1/p=1"], "same partitions"),
        (["p=1/p=2"], "same partitions"),
        (["p=1/more"], "subdirectory 'more'"),
        (["p=%FF"], "not UTF-8"),
    ],
)
def test_folders_that_do_not_say_one_thing_are_refused(tmp_path: Path, folders: list[str], said: str) -> None:
    for folder in folders:
        put(tmp_path / folder, k=[1])
    with pytest.raises(UnreadableTable, match=said):
        table(tmp_path, key="k")
