"""A table in an LMDB file: every row is found by its hash, and no more of the file is in memory than allowed."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UnreadableTable
from penstock.tables import table
from penstock.tables.arrow_types import as_spark, spark_type
from penstock.tables.keys import hash_keys
from penstock.tables.lmdb_index import LmdbIndex, LmdbReader, build_index, load_index
from penstock.tables.lmdb_rows import RowCodec, rows_in
from penstock.tables.lmdb_tree import levels
from tests.tables.samples import comparable, random_tables


def built(folder: Path, rows: pa.Table, key: str = "k", **options: int) -> LmdbIndex:
    (folder / "t").mkdir()
    pq.write_table(rows, folder / "t" / "rows.parquet", row_group_size=10_000)
    return build_index(table(folder / "t", key=key), folder / "index.lmdb", **options)


def names(keys: np.ndarray) -> list[bytes]:
    text = hash_keys([pa.array(keys)]).astype(">u8").tobytes()
    return [text[at : at + 8] for at in range(0, len(text), 8)]


def found(reader: LmdbReader, keys: np.ndarray) -> list[int]:
    """How many rows each key has."""
    return [sum(rows_in(value) for value in reader.find(name)) for name in names(keys)]


def on_disk(reader: LmdbReader) -> None:
    if reader.pool.resident() > 4:
        pytest.skip("this file system keeps its pages in memory")


@settings(max_examples=50)
@given(st.data())
def test_rows_survive_the_index(data: st.DataObject) -> None:
    drawn = data.draw(random_tables())
    schema = pa.schema([(f.name, spark_type(f.type, f.name)) for f in drawn.schema])
    chunks = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0) for column in drawn.columns]
    columns = [as_spark(chunk, field.type) for chunk, field in zip(chunks, schema, strict=True)]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not rows.num_rows:
        return
    hashes = np.sort(np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))))
    codec = RowCodec(schema, [name for name in schema.names if rows.column(name).null_count])
    run = codec.encode(rows, hashes.astype(np.uint64), 7)
    again, counts = codec.decode(run.values)
    assert comparable(again.to_pylist()) == comparable(rows.to_pylist())
    assert np.repeat(run.hashes, counts).tolist() == hashes.tolist()
    assert run.numbers[0] == 7
    # Also some values in another order.
    back = list(range(len(run.values)))[::-2]
    some, _ = codec.decode([run.values[at] for at in back])
    ends = np.cumsum(counts)
    want = [row for at in back for row in range(ends[at] - counts[at], ends[at])]
    assert comparable(some.to_pylist()) == comparable(rows.take(pa.array(want)).to_pylist())


@pytest.mark.parametrize("memory", [1 << 20, 256 << 20])
def test_every_row_is_found_by_its_hash(tmp_path: Path, memory: int) -> None:
    """Some keys have thousands of rows, in many leaves, and come in several pieces when sorted in little memory."""
    rng = np.random.default_rng(3)
    keys = np.concatenate([rng.integers(0, 30_000, 40_000), np.full(9_000, 7), np.full(3_000, 90_000)])
    rng.shuffle(keys)
    index = built(
        tmp_path, pa.table({"k": keys, "n": np.arange(len(keys)), "t": [f"{k}" * 3 for k in keys]}), memory=memory
    )
    assert index.rows == len(keys)
    reader = index.open(1 << 20)
    asked = np.arange(0, 95_000, 17)
    asked = np.append(asked, [7, 90_000])
    assert found(reader, asked) == np.bincount(keys, minlength=95_000)[asked].tolist()
    values = [value for name in names(np.array([7, 90_000])) for value in reader.find(name)]
    rows, _ = reader.codec.decode(values)
    assert sorted(rows.column("n").to_pylist()) == np.flatnonzero((keys == 7) | (keys == 90_000)).tolist()
    assert set(rows.column("t").to_pylist()) == {"777", "90000" * 3}
    reader.close()


def test_the_system_keeps_no_more_pages(tmp_path: Path) -> None:
    """Asked of the system itself, after keys that are there and not, hot and wide."""
    rng = np.random.default_rng(4)
    keys = np.concatenate([np.arange(0, 120_000, 2), np.full(40_000, 50_001)])
    texts = ["x" * (15_000 if k % 3_000 == 0 else 40) for k in keys.tolist()]
    index = built(tmp_path, pa.table({"k": keys, "t": texts}))
    assert index.depth >= 3
    for pages in (16, 300):
        reader = index.open(pages * 4_300)
        on_disk(reader)
        for _ in range(40):
            found(reader, rng.integers(0, 130_000, 50))
            found(reader, np.array([0, 3_000, 6_000, 2**62]))
            assert len(reader.pool) <= reader.pool.capacity <= pages
            # The root and two meta pages beside those that the pool was told of.
            assert reader.pool.resident() <= len(reader.pool) + 3
        assert found(reader, np.array([50_001])) == [40_000]
        assert reader.pool.resident() <= len(reader.pool) + 3
        reader.close()


def test_bytes_read_grow_with_the_table(tmp_path: Path) -> None:
    """With room for the whole file a second look costs nothing; with less, as many bytes as pages that had to go."""
    index = built(tmp_path, pa.table({"k": np.arange(60_000), "n": np.arange(60_000), "m": np.arange(60_000)}))
    asked = np.random.default_rng(5).integers(0, 60_000, 4_000)
    spent = []
    for room in (2 * index.size, index.size // 4, index.size // 16):
        reader = index.open(room)
        on_disk(reader)
        found(reader, asked)
        before, pages = bytes_read(), reader.pool.reads
        found(reader, asked)
        spent.append(bytes_read() - before)
        assert spent[-1] == pytest.approx((reader.pool.reads - pages) * index.page_bytes, rel=0.05, abs=64 << 10)
        reader.close()
    assert spent[0] < 64 << 10
    assert spent[1] > 0.5 * len(asked) * index.page_bytes
    assert spent[2] > spent[1]


def bytes_read() -> int:
    """Bytes that this process had from disk, as the system counts."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def test_two_readers_share_the_file(tmp_path: Path) -> None:
    index = built(tmp_path, pa.table({"k": np.arange(1_000)}))
    one, other = index.open(1 << 20), pickle.loads(pickle.dumps(index)).open(1 << 20)
    assert found(one, np.array([1, 2_000])) == found(other, np.array([1, 2_000])) == [1, 0]
    one.close()
    assert found(other, np.array([5])) == [1]
    other.close()


@pytest.mark.parametrize("keys", [[], [None, None], [3], [None, 3, 3]])
def test_rows_without_a_key_are_not_there(tmp_path: Path, keys: list[int | None]) -> None:
    index = built(tmp_path, pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(len(keys)), pa.int64())}))
    reader = index.open(1 << 20)
    assert found(reader, np.array([3, 0])) == [keys.count(3), 0]
    assert index.rows == keys.count(3)
    assert load_index(index.path) == index
    reader.close()


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    import lmdb

    with pytest.raises(UnreadableTable, match="cannot be read"):
        load_index(tmp_path / "nowhere")
    lmdb.open(str(tmp_path / "empty"), subdir=False, lock=False).close()
    with pytest.raises(UnreadableTable, match="not an index"):
        load_index(tmp_path / "empty")
    (tmp_path / "other").write_bytes(b"x" * 10_000)
    with pytest.raises(UnreadableTable, match="format 1"):
        levels(str(tmp_path / "other"))
    with pytest.raises(UnreadableTable):
        load_index(tmp_path / "other")
