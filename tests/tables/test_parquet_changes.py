"""A table file that changes during a scan stops it with an error that names the file; put back, the scan goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import TableChanged
from penstock.tables import PageReader, Table, table
from tests.tables.samples import all_rows, numbers, write

NAME = "part-1.parquet"


def later(path: Path) -> None:
    """A modification time that differs even where the clock of the file system is coarse."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))


def vanish(path: Path) -> None:
    path.unlink()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def rewrite_in_place(path: Path) -> None:
    data = numbers(40, seed=9)
    pq.write_table(data, path)
    later(path)


def rewrite_in_place_with_the_same_size(path: Path) -> None:
    """Same rows, same size, same statistics, another order: the footer alone would not tell."""
    before = path.read_bytes()
    rows = pq.read_table(path)
    pq.write_table(rows.take(pa.array(_swapped(rows.num_rows))), path, row_group_size=7, **PLAIN)
    later(path)
    assert path.stat().st_size == len(before)
    assert path.read_bytes() != before


def replace_by_rename(path: Path) -> None:
    beside = path.with_name(".new")
    pq.write_table(numbers(40, seed=9), beside)
    os.replace(beside, path)


def not_parquet_any_more(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))
    later(path)


PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": True}
CHANGES = [
    vanish,
    truncate,
    empty,
    rewrite_in_place,
    rewrite_in_place_with_the_same_size,
    replace_by_rename,
    not_parquet_any_more,
]


def _swapped(rows: int) -> np.ndarray:
    order = np.arange(rows)
    order[[1, 2]] = order[[2, 1]]
    return order


@pytest.fixture
def path(tmp_path: Path) -> Path:
    # Numbers only: swapped rows keep every size.
    rows = pa.table({"id": np.arange(120), "a": np.arange(120) % 7, "b": np.arange(120) * 0.5})
    return write(rows, tmp_path / "table", files=3, **PLAIN)


def pages_of(found: Table, name: str) -> list[int]:
    return [index for index, (file, _) in enumerate(found.places) if found.files[file].name == name]  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("opened", ["fresh reader", "reader with the file open"])
@pytest.mark.parametrize("call", ["hashes", "take"])
def test_a_changed_file_stops_the_scan_and_is_named(
    path: Path, change: Callable[[Path], None], opened: str, call: str
) -> None:
    found = table(path, key="id")
    whole = all_rows(found)
    page = found.pages[pages_of(found, NAME)[0]]

    def read(reader: PageReader) -> object:
        return reader.hashes(page) if call == "hashes" else reader.take(page, np.arange(page.rows))

    reader = found.open()
    if opened != "fresh reader":
        read(reader)
    backup = path.parent / "backup"
    shutil.copyfile(path / NAME, backup)
    change(path / NAME)
    for _ in range(2):
        with pytest.raises(TableChanged) as caught:
            read(reader)
        assert str(path / NAME) in caught.value.what
        assert "Put the file back" in caught.value.do
    # Other files are as they were.
    reader.hashes(found.pages[0])
    # The same bytes with another time and inode: the same version, for the same reader and for a new plan.
    shutil.copyfile(backup, path.parent / "again")
    os.replace(path.parent / "again", path / NAME)
    read(reader)
    assert all_rows(found) == whole
    assert table(path, key="id").version == found.version
    reader.close()


def test_a_restored_file_is_the_same_version(path: Path) -> None:
    found = table(path, key="id")
    whole = all_rows(found)
    copy = path.parent / "copy"
    shutil.copytree(path, copy, copy_function=shutil.copyfile)
    shutil.rmtree(path)
    copy.rename(path)
    assert table(path, key="id").version == found.version
    assert all_rows(found) == whole


def test_a_touched_file_is_looked_at_again_and_accepted(path: Path) -> None:
    found = table(path, key="id")
    reader = found.open()
    before = reader.hashes(found.pages[0]).copy()
    later(path / "part-0.parquet")
    np.testing.assert_array_equal(reader.hashes(found.pages[0]), before)


def test_a_file_that_changes_in_the_middle_of_a_read_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.tables import keys

    found = table(path, key="id")
    reader = found.open()
    reader.hashes(found.pages[0])
    hash_keys = keys.hash_keys

    def meanwhile(columns: list[pa.Array]) -> np.ndarray:
        replace_by_rename(path / "part-0.parquet")
        return hash_keys(columns)

    monkeypatch.setattr(keys, "hash_keys", meanwhile)
    with pytest.raises(TableChanged, match=r"part-0\.parquet"):
        reader.hashes(found.pages[0])


def test_a_directory_that_vanishes_is_noticed(path: Path) -> None:
    found = table(path, key="id")
    reader = found.open()
    reader.hashes(found.pages[0])
    shutil.rmtree(path)
    with pytest.raises(TableChanged, match="is gone"):
        reader.hashes(found.pages[0])
