"""Coefficients that are measured: plausible, complete, for every kind of table, and no longer than asked for."""

import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.kernels.mesh.budget import reserve, rows_in
from penstock.kernels.mesh.calibrate import calibrate
from penstock.kernels.mesh.page_sizes import page_variants
from penstock.kernels.mesh.stopwatch import Stopwatch
from penstock.models.mesh_cost import Coefficients
from penstock.models.mesh_tuner import fastest, with_buffer
from penstock.tables import prepare, table
from penstock.tables.parquet_reader import ParquetReader
from tests.kernels.mesh_cost.tables import WINDOWS, plain, prepared

MAKERS = {
    "plain": plain,
    "prepared": prepared,
    "text keys": lambda where: plain(where, text=True),
    "one page": lambda where: plain(where, group=1 << 20),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_coefficients_are_plausible(kind, tmp_path):
    table = MAKERS[kind](tmp_path / "t")
    c = calibrate(table, 24, seconds=0.5, windows=WINDOWS)
    assert c.n_R == 60_000
    assert len(table.pages) * 0.9 <= c.N_R
    # A page takes microseconds to milliseconds, a row nano- to microseconds.
    assert 1e-6 < float(c.c_IO(1)) < 1
    assert 1e-10 < float(c.c_H(1_000)) < 1e-6
    assert 0 <= float(c.c_O(16_384)) < 1e-4
    assert 0 < c.c_S < 1e-5
    assert Coefficients.loads(c.dumps()) == c


def test_memory_is_what_the_kernel_counts(tmp_path):
    table = prepared(tmp_path)
    c = calibrate(table, 24, seconds=0.1, windows=WINDOWS)
    budget = 16 << 20
    assert c.fixed + float(c.buffer(1)) == pytest.approx(reserve(table.pages))
    window = with_buffer(c, budget, 1)
    fits = rows_in(budget, table.pages, round(c.v_S))
    assert int(c.most_rows(budget, 1)) * window.k == pytest.approx(fits, rel=0.02)


def test_it_ends_in_time(tmp_path):
    table = prepared(tmp_path)
    calibrate(table, 24, seconds=0.1, windows=WINDOWS)
    began = time.process_time()
    calibrate(table, 24, seconds=1.0, windows=WINDOWS)
    assert time.process_time() - began < 4


def test_a_small_table_is_tried_with_larger_pages(tmp_path):
    rows = pa.table({"k": np.arange(2_000), "v": np.arange(2_000)})
    (tmp_path / "t").mkdir()
    pq.write_table(rows, tmp_path / "t" / "rows.parquet")
    table = prepare(tmp_path / "t", tmp_path / "prepared", key="k", page_bytes=4096)
    variants = page_variants(table, tmp_path / "variants", sample=64 << 10)
    assert all(variant.rows == 2_000 for variant in variants)
    assert len(variants) > 1


@pytest.mark.parametrize("make", [plain, prepared])
def test_page_sizes_let_the_buffer_be_tuned(make, tmp_path):
    table = make(tmp_path / "t")
    variants = page_variants(table, tmp_path / "variants", sample=2 << 20, sizes=[16 << 10, 128 << 10])
    assert [type(variant) for variant in variants] == [type(table)] * 2
    assert variants[0].pages[0].rows < variants[1].pages[0].rows
    c = calibrate(table, 24, seconds=0.5, windows=WINDOWS, page_sizes=variants)
    # Reading eight times as much costs more, but less than eight times as much.
    large = variants[1].pages[0].rows / variants[0].pages[0].rows
    assert c.c_IO(1) <= c.c_IO(large) < large * c.c_IO(1)
    assert c.buffer(1) < c.buffer(large)
    assert fastest(c, 8 << 20).rate >= fastest(c, 8 << 20, among=1).rate


def test_keys_wider_than_a_window_are_read_a_few_times(tmp_path, monkeypatch):
    keys = pa.array([letter * (1 << 20) for letter in "abcdefgh"])
    pq.write_table(pa.table({"k": keys, "n": np.arange(8)}), tmp_path / "a.parquet", row_group_size=2)
    found = table(tmp_path, key="k")
    read, whole = [], ParquetReader.hashes
    monkeypatch.setattr(ParquetReader, "hashes", lambda reader, page: read.append(page) or whole(reader, page))
    # With no, few and many matches: a first page, then two rounds over all four; and one of probes.
    Stopwatch(found, 24, 1.0, 0, 1 << 18).round([1 << 12], keep=True)
    assert len(read) == 3 * (1 + 2 * 4) + 4
    # Of eight rows in fours, twos and ones, whatever the sizes in bytes.
    assert len(page_variants(found, tmp_path / "others")) <= 4
