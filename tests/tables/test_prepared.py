"""Prepared tables: the same rows as their source, each in one slot; anything damaged or changed stops the scan."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption, TableChanged, UnreadableTable
from penstock.tables import keys, prepare, system_cache, table
from penstock.tables.prepared import PreparedTable
from tests.tables.samples import all_rows, comparable, key_of, numbers, random_tables, write


@settings(max_examples=30)
@given(data=st.data())
def test_a_prepared_table_has_the_rows_of_its_source(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = data.draw(random_tables())
    base = tmp_path_factory.mktemp("t")
    source = table(write(rows, base / "s"), key=key_of(rows))
    made = pickle.loads(pickle.dumps(prepare(source, base / "t", key=key_of(rows), page_bytes=4096)))
    assert made.schema == source.schema
    expected = all_rows(source)
    found = all_rows(made)
    # Row by row: each says which one it is.
    assert found == [expected[row["row"]] for row in found]
    assert sorted(row["row"] for row in found) == list(range(len(expected)))

    reader = made.open()
    whole: list[int] = []
    for page in made.pages:
        hashes = reader.hashes(page).copy()
        whole += hashes.tolist()
        batch = reader.take(page, np.arange(page.rows))
        columns = [batch.column(name) for name in made.key]
        able = keys.joinable(columns)
        keep = slice(None) if able is None else able
        np.testing.assert_array_equal(hashes[keep], keys.hash_keys(columns)[keep])
        chosen = data.draw(st.lists(st.integers(0, page.rows - 1), max_size=8))
        some = comparable(reader.take(page, np.array(chosen, np.int64)).to_pylist())
        assert some == [comparable(batch.slice(row, 1).to_pylist())[0] for row in chosen]
        assert [r for b in reader.batches(page) for r in comparable(b.to_pylist())] == comparable(batch.to_pylist())
    assert whole == sorted(whole)
    reader.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PreparedTable:
    """5,000 rows with repeated and NULL keys."""
    base = tmp_path_factory.mktemp("prepared")
    random = np.random.default_rng(0)
    ids = pa.array(random.integers(0, 3000, 5000), mask=random.random(5000) < 0.05)
    rows = numbers(5000).set_column(0, "id", ids).append_column("list", pa.array([[n] * (n % 3) for n in range(5000)]))
    return prepare(write(rows, base / "s", row_group_size=999), base / "t", key="id", page_bytes=8192)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 6, 7, 64])
def test_by_key_gives_each_row_to_one_slot(made: PreparedTable, slots: int) -> None:
    reader = made.open()
    pages: Counter[int] = Counter()
    for slot in range(slots):
        for page in made.by_key(slot, slots):
            pages[page.index] += 1
            assert set(keys.slot_of(reader.hashes(page), slots).tolist()) == {slot}
    assert pages == Counter(range(len(made.pages)))
    reader.close()


def test_sparse_and_dense_rows_come_from_their_own_places(made: PreparedTable, tmp_path: Path) -> None:
    """Rows far apart are read one by one into a buffer whose other bytes are from other pages."""
    big = prepare(
        write(numbers(30_000), tmp_path / "s", row_group_size=9999), tmp_path / "t", key="id", page_bytes=1 << 20
    )
    random = np.random.default_rng(0)
    reader = big.open()
    pages = [page for page in big.pages if page.rows > 100]
    wholes = {page.index: reader.take(page, np.arange(page.rows)) for page in pages}
    for _ in range(300):
        page = pages[random.integers(len(pages))]
        rows = random.integers(0, page.rows, random.choice([0, 1, 2, 3, 50]))
        if random.random() < 0.5:
            rows = np.sort(rows)
        assert reader.take(page, rows).equals(wholes[page.index].take(pa.array(rows)))


def test_rows_that_are_not_there_are_refused(made: PreparedTable) -> None:
    reader = made.open()
    page = made.pages[0]
    for row in (-1, page.rows):
        with pytest.raises(IndexError):
            reader.take(page, np.array([0, row]))


def test_a_reader_that_is_dropped_leaves_no_file_open(made: PreparedTable) -> None:
    """Workers drop a kernel with its reader whenever its slot has moved, and make another."""

    def read() -> int:
        reader = made.open()
        reader.hashes(made.pages[0])
        reader.take(made.pages[0], np.arange(1))
        return len(os.listdir("/proc/self/fd"))

    assert read() == read()


def test_results_stay_when_the_reader_goes_on(made: PreparedTable) -> None:
    reader = made.open()
    first = reader.take(made.pages[0], np.arange(5))
    before = first.to_pylist()
    for page in made.pages:
        reader.take(page, np.arange(page.rows))
    reader.close()
    assert first.to_pylist() == before


@pytest.mark.parametrize("there", [True, False])
def test_the_next_page_is_fetched_if_it_is_not_there(
    made: PreparedTable, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    fetched: list[tuple[int, int]] = []
    monkeypatch.setattr(system_cache, "cached", lambda descriptor, offset: there)
    monkeypatch.setattr(system_cache, "fetch", lambda descriptor, offset, size: fetched.append((offset, size)))
    reader = made.open()
    reader.expect(made.pages[1])  # nothing is open yet
    reader.take(made.pages[0], np.arange(2))
    reader.expect(made.pages[1])
    spot = made.spots[1]
    assert fetched == ([] if there else [(spot.offset, spot.size)])
    reader.close()


def test_the_system_is_asked_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(1 << 16))
    with file.open("rb") as opened:
        assert system_cache.cached(opened.fileno(), 1_000)
        system_cache.forget(file)
        system_cache.fetch(opened.fileno(), 0, 1 << 16)
        assert isinstance(system_cache.cached(opened.fileno(), 1_000), bool)


def test_resident_memory_and_descriptors_stay_small(tmp_path: Path) -> None:
    import psutil

    random = np.random.default_rng(0)
    rows = 400_000
    source = pa.table({"id": random.permutation(rows), **{f"c{i}": random.random(rows) for i in range(14)}})
    made = prepare(write(source, tmp_path / "s", row_group_size=100_000), tmp_path / "t", key="id")
    del source
    me = psutil.Process()
    reader = made.open()
    for page in made.pages[:5]:
        reader.hashes(page)
        reader.take(page, np.arange(0, page.rows, 10))
    before, open_before = me.memory_info().rss, me.num_fds()
    for page in made.pages:
        reader.hashes(page)
        reader.take(page, np.arange(0, page.rows, 10))
    assert me.memory_info().rss - before < 8 << 20
    assert me.num_fds() == open_before
    reader.close()


# --- damage and change


@pytest.fixture
def copied(made: PreparedTable, tmp_path: Path) -> PreparedTable:
    """A table of one's own, with the times that `prepare` noted."""
    shutil.copytree(made.path, tmp_path / "t")
    return PreparedTable.plan(str(tmp_path / "t"))


def read_all(found: PreparedTable) -> None:
    reader = found.open()
    try:
        for page in found.pages:
            reader.hashes(page)
            reader.take(page, np.arange(page.rows))
    finally:
        reader.close()


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x40]))


@pytest.mark.parametrize("name", ["hashes.bin", "rows-00000.bin"])
@pytest.mark.parametrize("where", [0.0, 0.3, 0.9])
def test_a_flipped_bit_is_found_and_the_file_named(copied: PreparedTable, name: str, where: float) -> None:
    path = Path(copied.path) / name
    flip(path, int(path.stat().st_size * where))
    with pytest.raises(TableChanged) as caught:
        read_all(copied)
    assert str(path) in caught.value.what


@pytest.mark.parametrize("name", ["hashes.bin", "rows-00000.bin"])
@pytest.mark.parametrize("change", ["vanish", "truncate", "rewrite", "replace"])
def test_a_file_that_changes_during_a_scan_stops_it(copied: PreparedTable, name: str, change: str) -> None:
    path = Path(copied.path) / name
    backup = path.read_bytes()
    reader = copied.open()
    page = copied.pages[0]

    def read() -> object:
        return reader.hashes(page).copy() if name == "hashes.bin" else reader.take(page, np.arange(page.rows))

    read()
    if change == "vanish":
        path.unlink()
    elif change == "truncate":
        os.truncate(path, len(backup) // 2)
    elif change == "rewrite":
        path.write_bytes(bytes(len(backup)))
    else:
        (path.parent / "new").write_bytes(bytes(len(backup)))
        os.replace(path.parent / "new", path)
    for _ in range(2):
        with pytest.raises(TableChanged) as caught:
            read()
        assert name in caught.value.what
    path.write_bytes(backup)
    read()
    read_all(copied)
    reader.close()


def test_a_table_prepared_anew_is_another_version(copied: PreparedTable, tmp_path: Path) -> None:
    reader = copied.open()
    reader.hashes(copied.pages[0])
    prepare(write(numbers(5000, seed=5), tmp_path / "s"), copied.path, key="id", page_bytes=8192)
    with pytest.raises(TableChanged, match="prepared anew"):
        reader.hashes(copied.pages[0])
    with pytest.raises(TableChanged, match="prepared anew"):
        reader.take(copied.pages[0], np.arange(1))


def test_a_copy_without_its_times_is_checked_and_read(copied: PreparedTable) -> None:
    for entry in Path(copied.path).iterdir():
        os.utime(entry)
    read_all(copied)
    assert table(copied.path, key="id").version == copied.version


def test_a_damaged_manifest_is_refused(copied: PreparedTable) -> None:
    path = Path(copied.path) / "manifest.json"
    text = path.read_text()
    for broken in (text[: len(text) // 2], "", text.replace('"key":["id"]', '"key":["name"]'), "[]"):
        path.write_text(broken)
        with pytest.raises(UnreadableTable, match=r"manifest\.json is damaged"):
            table(copied.path, key="id")
    other = json.loads(text)
    other["penstock_table"] = 99
    path.write_text(json.dumps(other))
    with pytest.raises(UnreadableTable, match="format 99"):
        table(copied.path, key="id")


def test_another_key_than_the_prepared_one_is_refused(made: PreparedTable) -> None:
    with pytest.raises(BadOption, match="prepared for the key id, not for name"):
        table(made.path, key="name")
