"""What index nested loops promise beside the five questions: real reads, bounded memory and slices, honest counts."""

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import KeyTypeMismatch, MemoryTooSmall
from penstock.kernels.contract import RESULTS, SET_ASIDE
from penstock.kernels.mesh.inl import SLICE_BYTES, IndexNestedLoops, least_budget, reserve
from penstock.tables import prepare, table
from penstock.tables.lmdb_index import build_index
from penstock.testing import Host, assert_same_rows

STREAM = pa.schema([("id", pa.int64()), ("k", pa.int64())])


def stored(folder, rows):
    (folder / "t").mkdir(exist_ok=True)
    pq.write_table(rows, folder / "t" / "a.parquet", row_group_size=5_000)
    return build_index(table(folder / "t", key="k"), folder / "index.lmdb")


def numbered(keys):
    return pa.table({"id": np.arange(len(keys)), "k": np.asarray(keys, np.int64)})


def lookups(index, budget=None, schema=STREAM):
    budget = budget or least_budget(index)
    return Host(lambda: IndexNestedLoops(schema, index, on=["k"], budget=budget), budget=budget)


def join(stream, rows):
    """DuckDB's join, as the judge."""
    return duckdb.sql("SELECT s.*, r.* EXCLUDE k FROM stream s JOIN rows r USING (k)").to_arrow_table()


def test_a_large_table_in_a_small_pool_is_joined_exactly(tmp_path):
    """Hot keys, absent keys, and a pool of a hundredth of the index."""
    rng = np.random.default_rng(1)
    keys = np.concatenate([rng.integers(0, 40_000, 60_000), np.full(500, 11)])
    rows = pa.table({"k": keys, "n": np.arange(len(keys)), "t": [f"text {k}" for k in keys]})
    index = stored(tmp_path, rows)
    host = lookups(index)
    stream = numbered(np.append(rng.integers(0, 50_000, 5_000), [11, 11]))
    host.run([stream.slice(0, 2_000), stream.slice(2_000)])
    assert_same_rows(host.results()[RESULTS], join(stream, rows))
    assert host.peak <= host.budget
    assert not host.kernel.pending()
    assert not host.store.chunks


def test_a_prepared_table_gives_the_same_index(tmp_path):
    rows = pa.table({"k": np.arange(3_000) % 700, "n": np.arange(3_000)})
    plain = stored(tmp_path, rows)
    prepared = prepare(tmp_path / "t", tmp_path / "p", key="k")
    other = build_index(prepared, tmp_path / "other.lmdb")
    stream = numbered(range(0, 900, 3))
    assert_same_rows(lookups(plain).run([stream])[RESULTS], lookups(other).run([stream])[RESULTS])


def test_reading_is_bounded_by_the_budget_and_real(tmp_path):
    """The smaller the pool, the more bytes come from disk, and what the kernel counts is what the system counts."""
    index = stored(tmp_path, pa.table({"k": np.arange(50_000), **{f"v{i}": np.arange(50_000) for i in range(6)}}))
    stream = numbered(np.random.default_rng(2).integers(0, 50_000, 3_000))
    spent = []
    for room in (2 * index.size, index.size // 5, index.size // 40):
        host = lookups(index, reserve(index) + room)
        pool = host.kernel._reader.pool
        if pool.resident() > 4:
            pytest.skip("this file system keeps its pages in memory")
        host.step(stream)
        before = bytes_read()
        host.step(stream)
        spent.append(bytes_read() - before)
        metrics = host.kernel.metrics()
        assert spent[-1] == pytest.approx(metrics["pages_read"] * index.page_bytes, rel=0.05, abs=64 << 10)
        assert metrics["pages_used"] >= 2 * stream.num_rows
        assert pool.resident() * index.page_bytes <= room + 3 * index.page_bytes
        assert host.kernel.memory() <= host.budget
        host.kernel.close()
    assert spent[0] < 64 << 10
    assert spent[0] < spent[1] < spent[2]
    assert spent[1] > 0.5 * stream.num_rows * index.page_bytes


def bytes_read():
    with open("/proc/self/io") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


@pytest.mark.parametrize("side", ["stream", "table"])
def test_results_leave_in_bounded_slices(tmp_path, side):
    wide, narrow = "x" * 100_000, "y"
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("pad", pa.string())])
    here, there = (wide, narrow) if side == "stream" else (narrow, wide)
    index = stored(tmp_path, pa.table({"k": [7] * 100, "name": [there] * 100}))
    host = lookups(index, schema=schema)
    sizes = [e.rows.nbytes for e in host.step(pa.table({"id": [1, 2], "k": [7, 7], "pad": [here] * 2}, schema=schema))]
    assert host.rows[RESULTS] == 200
    assert max(sizes) <= SLICE_BYTES + 110_000
    assert host.peak <= host.budget


def test_the_counts_add_up(tmp_path):
    schema = pa.schema([("k", pa.int64()), ("pad", pa.binary())])
    index = stored(tmp_path, pa.table({"k": np.arange(50), "n": np.arange(50)}))
    host = lookups(index, schema=schema)
    keys = [*range(40, 60), None, 3, 3]
    pads = [b""] * 21 + [b"!" * SLICE_BYTES, b""]
    host.step(pa.table({"k": keys, "pad": pads}, schema=schema))
    counts = host.kernel.metrics()
    assert {name: counts[name] for name in ("rows_in", "rows_without_key", "rows_set_aside", "rows_out")} == {
        "rows_in": 23,
        "rows_without_key": 1,
        "rows_set_aside": 1,
        "rows_out": 11,
    }
    assert host.rows[SET_ASIDE] == 1
    assert set(counts) == {metric.name for metric in host.kernel.reports}


def test_what_cannot_work_is_refused(tmp_path):
    index = stored(tmp_path, pa.table({"k": [1], "n": [1]}))
    least = least_budget(index)
    with pytest.raises(MemoryTooSmall, match=str(least)):
        IndexNestedLoops(STREAM, index, on=["k"], budget=least - 1)
    with pytest.raises(KeyTypeMismatch):
        IndexNestedLoops(pa.schema([("k", pa.string())]), index, on=["k"], budget=least)
