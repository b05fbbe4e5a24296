"""From a path to a table: what is there is recognised, what is not is refused with what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import BadOption, UnknownColumn, UnreadableTable, UnsupportedType
from penstock.tables import prepare, table
from penstock.tables.find import plain_files
from penstock.tables.parquet import ParquetTable
from penstock.tables.prepared import PreparedTable
from tests.tables.samples import numbers, write


def test_both_layouts_are_recognised(tmp_path: Path) -> None:
    write(numbers(10), tmp_path / "s")
    prepare(tmp_path / "s", tmp_path / "t", key="id")
    assert isinstance(table(tmp_path / "s", key="id"), ParquetTable)
    assert isinstance(table(str(tmp_path / "t"), key=["id"]), PreparedTable)
    assert table(f"file://{tmp_path}/s", key="id") == table(tmp_path / "s", key="id")


def test_a_relative_path_is_made_absolute_for_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(numbers(10), tmp_path / "s")
    monkeypatch.chdir(tmp_path)
    assert table("s", key="id").path == str(tmp_path / "s")


def test_a_missing_path_is_refused_with_the_nearest(tmp_path: Path) -> None:
    write(numbers(10), tmp_path / "products")
    with pytest.raises(UnreadableTable) as caught:
        table(tmp_path / "product", key="id")
    assert "'products'" in caught.value.why
    with pytest.raises(UnreadableTable, match="does not exist"):
        table(tmp_path / "no" / "where", key="id")


def test_a_table_shows_itself_in_one_line(tmp_path: Path) -> None:
    write(numbers(1_000), tmp_path / "t")
    opened = table(tmp_path / "t", key="id")
    shown = f"{str(tmp_path / 't')!r}, key=('id',), 1,000 rows in {len(opened.pages)} pages"
    assert repr(opened) == f"ParquetTable({shown})"


def test_a_directory_without_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(UnreadableTable, match="holds no Parquet file"):
        table(tmp_path, key="id")


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PAR1" + bytes(20), bytes(8) + b"\xff\xff\xff\x7fPAR1"])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, content: bytes) -> None:
    write(numbers(10), tmp_path)
    (tmp_path / "zzz.csv").write_bytes(content)
    with pytest.raises(UnreadableTable, match=r"zzz\.csv cannot be read as Parquet[^$]*write_table"):
        table(tmp_path, key="id")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    write(numbers(10), tmp_path / "t")
    os.mkfifo(tmp_path / "t" / "zzz.parquet")
    for place in (tmp_path / "t", tmp_path / "t" / "zzz.parquet"):
        with pytest.raises(UnreadableTable, match=r"zzz\.parquet is not a plain file"):
            table(place, key="id")


def test_a_damaged_footer_is_named(tmp_path: Path) -> None:
    write(numbers(10), tmp_path)
    file = tmp_path / "part-0.parquet"
    data = bytearray(file.read_bytes())
    data[-60:-20] = os.urandom(40)
    file.write_bytes(bytes(data))
    with pytest.raises(UnreadableTable, match=r"part-0\.parquet"):
        table(tmp_path, key="id")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    write(numbers(10), tmp_path)
    (tmp_path / "part-0.parquet").chmod(0)
    with pytest.raises(UnreadableTable, match=r"part-0\.parquet"):
        table(tmp_path, key="id")


def test_directories_inside_are_refused(tmp_path: Path) -> None:
    write(numbers(10), tmp_path / "u" / "more")
    with pytest.raises(UnreadableTable, match="more"):
        table(tmp_path / "u", key="id")


@pytest.mark.parametrize(("marker", "kind"), [("_delta_log/0.json", "Delta"), ("metadata/v1.metadata.json", "Iceberg")])
def test_tables_of_other_formats_are_not_read_as_their_files(tmp_path: Path, marker: str, kind: str) -> None:
    write(numbers(10), tmp_path)
    (tmp_path / marker).parent.mkdir()
    (tmp_path / marker).write_text("{}")
    with pytest.raises(UnreadableTable, match=kind):
        table(tmp_path, key="id")


def test_remote_paths_are_refused() -> None:
    with pytest.raises(BadOption, match="not a local path"):
        table("s3://bucket/products", key="id")


def test_faulty_keys_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"product_id": [1], "tags": [["a"]]}), tmp_path / "a.parquet")
    with pytest.raises(UnknownColumn) as caught:
        table(tmp_path, key="produkt_id")
    assert "'product_id'" in caught.value.do
    with pytest.raises(UnsupportedType, match="tags"):
        table(tmp_path, key="tags")
    for key in ([], ["product_id", "product_id"], 5, None, [5]):
        with pytest.raises(BadOption, match="is not a key"):
            table(tmp_path, key=key)


def test_of_other_tables_no_files_are_taken_one_by_one(tmp_path: Path) -> None:
    """A Delta table keeps the files of its earlier versions beside those that it is made of."""
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    assert plain_files(tmp_path) == [tmp_path / "a.parquet"]
    for name, kind in (("_delta_log/0.json", "Delta"), ("metadata/v1.metadata.json", "Iceberg")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
        with pytest.raises(UnreadableTable, match=f"another kind: {kind}"):
            plain_files(tmp_path)
        shutil.rmtree((tmp_path / name).parent)
