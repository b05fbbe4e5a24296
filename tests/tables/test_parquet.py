"""Parquet tables: pages are row groups, `hashes` and `take` equal what a plain reader gives, memory stays bounded."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UnreadableTable, UnsupportedType
from penstock.tables import keys, table
from penstock.tables.numbers import numbers as as_numbers
from penstock.tables.parquet import ParquetTable
from tests.tables.samples import all_rows, comparable, key_of, numbers, plain, random_tables, write


@settings(max_examples=40)
@given(data=st.data())
def test_pages_give_what_a_plain_reader_gives(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    rows = data.draw(random_tables())
    path = write(rows, tmp_path_factory.mktemp("t"), files=data.draw(st.integers(1, 3)), row_group_size=7)
    found = pickle.loads(pickle.dumps(table(path, key=key_of(rows))))
    assert found.rows == rows.num_rows
    expected = plain(rows, found.schema)
    reader = found.open()
    at = 0
    for page in found.pages:
        part = rows.slice(at, page.rows).combine_chunks()
        columns = [part.column(name).chunk(0).cast(found.schema.field(name).type) for name in found.key]
        np.testing.assert_array_equal(reader.hashes(page), keys.hash_keys(columns))
        chosen = data.draw(st.lists(st.integers(0, page.rows - 1), max_size=10))
        taken = reader.take(page, np.array(chosen, np.int64))
        taken.validate(full=True)
        assert taken.schema == found.schema
        assert comparable(taken.to_pylist()) == [expected[at + row] for row in chosen]
        scanned = [row for batch in reader.batches(page) for row in comparable(batch.to_pylist())]
        assert scanned == expected[at : at + page.rows]
        at += page.rows
    assert at == rows.num_rows
    reader.close()


def test_a_page_is_a_row_group_with_rows(tmp_path: Path) -> None:
    write(numbers(25), tmp_path, row_group_size=10)
    pq.write_table(numbers(5).slice(0, 0), tmp_path / "empty.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").write_bytes(b"x")
    found = table(tmp_path, key="id")
    assert [page.rows for page in found.pages] == [10, 10, 5]
    assert [page.index for page in found.pages] == [0, 1, 2]
    assert found.by_key(0, 2) is None


def test_an_empty_table_has_no_pages(tmp_path: Path) -> None:
    write(numbers(5).slice(0, 0), tmp_path)
    found = table(tmp_path, key="id")
    assert found.pages == ()
    assert found.rows == 0
    assert found.schema.names == ["id", "name", "a", "b"]


def test_one_file_is_a_table(tmp_path: Path) -> None:
    write(numbers(25), tmp_path)
    found = table(tmp_path / "part-0.parquet", key="id")
    assert len(all_rows(found)) == 25


def test_more_files_than_are_kept_open(tmp_path: Path) -> None:
    import psutil

    rows = numbers(300)
    found = table(write(rows, tmp_path, files=30), key="id")
    reader = found.open()
    before = psutil.Process().num_fds()
    for _ in range(2):
        for page in found.pages:
            reader.hashes(page)
        assert psutil.Process().num_fds() <= before + 8
    reader.close()
    assert psutil.Process().num_fds() <= before


def test_stored_types_become_types_that_spark_knows(tmp_path: Path) -> None:
    stored = pa.table(
        {
            "k": pa.array([1, 2], pa.uint32()),
            "small": pa.array([255, None], pa.uint8()),
            "word": pa.array(["x", None]).dictionary_encode(),
            "long": pa.array(["x", "y"], pa.large_string()),
            "code": pa.array([b"abcd", None], pa.binary(4)),
            "nano": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns")),
            "zone": pa.array([1, 2], pa.timestamp("ms", "Europe/Berlin")),
            "list": pa.array([["x"], []], pa.large_list(pa.large_string())),
            "deep": pa.array([{"a": 7}, None], pa.struct([("a", pa.uint16())])),
        }
    )
    write(stored, tmp_path)
    found = table(tmp_path, key="k")
    assert {f.name: str(f.type) for f in found.schema} == {
        "k": "int64",
        "small": "int16",
        "word": "string",
        "long": "string",
        "code": "binary",
        "nano": "timestamp[us]",
        "zone": "timestamp[us, tz=UTC]",
        "list": "list<item: string>",
        "deep": "struct<a: int32>",
    }
    first = all_rows(found)[0]
    assert first["small"] == 255
    assert first["nano"].microsecond == 123_456
    assert first["deep"] == {"a": 7}


def test_views_within_lists_and_structs_are_read(tmp_path: Path) -> None:
    kinds = {"list": pa.list_(pa.string_view()), "struct": pa.struct([("a", pa.binary_view())])}
    values = {"list": [["x" * 50, None], None], "struct": [{"a": b"y"}, None]}
    columns = {name: pa.array(values[name], kind) for name, kind in kinds.items()}
    pq.write_table(pa.table({"k": [1, 2], **columns}), tmp_path / "a.parquet")
    rows = all_rows(table(tmp_path, key="k"))
    assert [{name: row[name] for name in kinds} for row in rows] == [
        {name: values[name][row] for name in kinds} for row in range(2)
    ]


def test_old_spark_timestamps_are_instants(tmp_path: Path) -> None:
    """INT96 has no zone in Arrow, and for Spark it is a moment; the year 9999 must not overflow nanoseconds."""
    moments = pa.array([0, 253_370_764_800_000_000], pa.timestamp("us"))
    pq.write_table(
        pa.table({"k": moments, "l": pa.array([[1], [2]], pa.list_(pa.timestamp("us")))}),
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    found = table(tmp_path, key="k")
    assert str(found.schema.field("k").type) == "timestamp[us, tz=UTC]"
    assert "tz=UTC" in str(found.schema.field("l").type)
    assert [row["k"].year for row in all_rows(found)] == [1970, 9999]


@pytest.mark.parametrize(
    ("type_", "remedy"),
    [
        (pa.uint64(), "decimal(20, 0)"),
        (pa.time64("us"), "int64"),
        (pa.duration("us"), "int64"),
        (pa.float16(), "float32"),
        (pa.decimal256(60, 2), "38 digits"),
        (pa.null(), "only NULLs"),
        (pa.list_(pa.time32("ms")), "int64"),
    ],
)
def test_types_without_a_counterpart_are_refused(tmp_path: Path, type_: pa.DataType, remedy: str) -> None:
    write(pa.table({"k": [1], "odd": pa.nulls(1, type_)}), tmp_path)
    with pytest.raises(UnsupportedType) as caught:
        table(tmp_path, key="k")
    assert "odd" in caught.value.what
    assert "part-0.parquet" in caught.value.what
    assert remedy in caught.value.do


def test_files_with_other_columns_are_refused_and_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1], "a": [1], "b": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"k": [1], "a": ["x"], "c": [1]}), tmp_path / "2.parquet")
    with pytest.raises(UnreadableTable) as caught:
        table(tmp_path, key="k")
    assert "2.parquet" in caught.value.what
    for fault in ("no column 'b'", "additional column 'c'", "'a' as string instead of int64"):
        assert fault in caught.value.why


def test_columns_in_another_order_are_the_same_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1], "a": [2]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [3], "k": [4]}), tmp_path / "2.parquet")
    assert all_rows(table(tmp_path, key="k")) == [{"k": 1, "a": 2}, {"k": 4, "a": 3}]


@pytest.mark.parametrize(
    ("stored", "values"),
    [
        (pa.timestamp("ns"), [-1_500, -2_500, 1_500]),
        (pa.timestamp("ns", "UTC"), [-(1 << 63), (1 << 63) - 1]),
        (pa.timestamp("us", "UTC"), [-(1 << 60), 1 << 60]),
        (pa.timestamp("ms"), [-(10**15), -1, 10**15]),
        (pa.date32(), [-10_000_000, -1, 10_000_000]),
        (pa.uint32(), [5, (1 << 32) - 1]),
    ],
    ids=str,
)
def test_no_page_is_known_by_other_values_than_it_gives(tmp_path: Path, stored: pa.DataType, values: list[int]) -> None:
    """Before 1970 and beyond the year 9999, too."""
    word = pa.int32() if pa.types.is_date(stored) else pa.int64()
    pq.write_table(pa.table({"k": pa.array(values, word).cast(stored)}), tmp_path / "a.parquet", row_group_size=1)
    found = table(tmp_path, key="k")
    reader = found.open()
    for page in found.pages:
        (told,), _ = as_numbers(reader.keys(page).column(0))
        assert page.spans == ((told, told),)
    reader.close()


@pytest.mark.parametrize("stored", [pa.timestamp("ms"), pa.list_(pa.timestamp("ms", "UTC"))])
def test_times_beyond_microseconds_are_refused(tmp_path: Path, stored: pa.DataType) -> None:
    far: Any = [1 << 60] if pa.types.is_list(stored) else 1 << 60
    path = write(pa.table({"k": [1], "at": pa.array([far], stored)}), tmp_path)
    found = table(path, key="k")
    with pytest.raises(UnreadableTable, match="'at' has a time that is too far away: 1152921504606846976 ms"):
        found.open().take(found.pages[0], np.array([0]))
    if not pa.types.is_list(stored):
        found = table(path, key="at")
        with pytest.raises(UnreadableTable, match="too far away"):
            found.open().hashes(found.pages[0])


def test_a_page_is_not_known_by_a_column_within_another(tmp_path: Path) -> None:
    """Which has the same path as the key: pages with partners were passed over."""
    pq.write_table(pa.table({"a": [{"b": 1}], "a.b": [2]}), tmp_path / "a.parquet")
    found = table(tmp_path, key="a.b")
    assert found.pages[0].spans == ()
    assert found.open().keys(found.pages[0]).to_pylist() == [{"a.b": 2}]


def test_planning_reads_footers_and_little_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    write(numbers(200_000), tmp_path, row_group_size=10_000)
    read = 0
    pread = os.pread

    def counting(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read
        read += length
        return pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", counting)
    monkeypatch.setattr(pq, "ParquetFile", None)
    table(tmp_path, key="id")
    assert read < 200_000 < (tmp_path / "part-0.parquet").stat().st_size / 10


@pytest.mark.parametrize(
    "options",
    [{}, {"use_dictionary": False}, {"use_dictionary": False, "data_page_size": 1 << 30, "compression": "zstd"}],
    ids=["dictionary", "plain", "one page"],
)
def test_memory_of_a_page_stays_within_what_it_says(tmp_path: Path, options: dict[str, Any]) -> None:
    """A text that repeats is small on disk and large in memory: it must never be unfolded whole."""
    rows = 300_000
    random = np.random.default_rng(0)
    texts = pa.array([f"{i:0100}" for i in range(50)]).take(pa.array(random.integers(0, 50, rows)))
    source = pa.table({"k": random.integers(0, 1 << 40, rows), "text": texts, "v": random.random(rows)})
    found = table(write(source, tmp_path, row_group_size=rows, **options), key="k")
    del source, texts
    page = found.pages[0]
    reader = found.open()
    chosen = np.arange(0, rows, 1000)
    pool = pa.default_memory_pool()
    for call, bound in (
        (lambda: reader.hashes(page), page.hash_bytes - 8 * rows),
        (lambda: reader.take(page, chosen), page.row_bytes),
    ):
        call()
        base = pool.bytes_allocated()
        assert _peak(call, pool) - base <= bound + 200_000
    if "data_page_size" not in options:
        # Whole, the column has 31 MB.
        assert page.row_bytes < 8 << 20


@pytest.mark.parametrize("checksums", [False, True])
def test_long_texts_that_rows_share_are_decoded_few_at_a_time(tmp_path: Path, checksums: bool) -> None:
    """Under a dictionary they take no room on disk: 20,000 rows were taken for short ones, and decoded all at once."""
    rows, length = 20_000, 20_000
    texts = pa.array([letter * length for letter in "abc"])
    shared = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows, dtype=np.int32) % 3), texts)
    source = pa.table({"k": np.arange(rows), "t": shared})
    found = table(write(source, tmp_path, row_group_size=rows, write_page_checksum=checksums), key="k")
    page, pool = found.pages[0], pa.default_memory_pool()
    assert page.row_width > length
    reader = found.open()
    base = pool.bytes_allocated()
    highest = _peak(lambda: reader.take(page, np.array([0, rows - 1])), pool)
    assert highest - base <= page.row_bytes + 200_000 < 100 << 20


def _peak(call: object, pool: pa.MemoryPool) -> int:
    """The most bytes Arrow held during a call, sampled from another thread (the reading lets others run)."""
    import threading

    highest, done = pool.bytes_allocated(), threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.is_set():
            highest = max(highest, pool.bytes_allocated())

    watcher = threading.Thread(target=watch)
    watcher.start()
    call()  # type: ignore[operator]
    done.set()
    watcher.join()
    return highest


def test_the_version_is_that_of_names_and_bytes(tmp_path: Path) -> None:
    one = table(write(numbers(50), tmp_path / "one", files=2), key="id")
    two = table(write(numbers(50), tmp_path / "two", files=2), key="id")
    other = table(write(numbers(50, seed=1), tmp_path / "other", files=2), key="id")
    assert one.version == two.version
    assert one.version != other.version
    (tmp_path / "two" / "part-1.parquet").rename(tmp_path / "two" / "part-2.parquet")
    assert one.version != table(tmp_path / "two", key="id").version
    assert isinstance(one, ParquetTable)
