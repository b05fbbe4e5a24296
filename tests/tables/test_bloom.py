"""Bloom filters of Parquet files: no key that is there is denied, most that are not are, and pages are skipped."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.kernels.contract import Batch, Portion
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.meshjoin import MeshJoin
from penstock.tables.bloom import may_have, xxh64

RNG = np.random.default_rng(11)
NUMBERS = RNG.choice(1 << 30, 6_000, replace=False)
KINDS = {
    "int64": pa.array(NUMBERS * 5 - 9, pa.int64()),
    "int32": pa.array(NUMBERS.astype(np.int32)),
    "int16": pa.array(np.arange(-3_000, 3_000, dtype=np.int16)),
    "uint32": pa.array(NUMBERS.astype(np.uint32) + np.uint32(1 << 31)),
    "date": pa.array([dt.date(1970, 1, 1) + dt.timedelta(days=int(n)) for n in range(6_000)]),
    "text": pa.array([f"{n}" * (1 + n % 9) for n in NUMBERS]),
    "bytes": pa.array([f"{n}".encode() for n in NUMBERS]),
}


def written(place, column, rows=1_000):
    table = pa.table({"k": column, "n": np.arange(len(column))})
    pq.write_table(table, place, row_group_size=rows, bloom_filter_options={"k": {"ndv": rows, "fpp": 0.01}})
    return ps.table(place, key="k")


def test_known_hashes():
    # From the reference implementation's own checks of XXH64 with seed 0.
    known = {"": 0xEF46DB3751D8E999, "a": 0xD24EC4F1A98C6E5B, "abc": 0x44BC2CF5AD770999}
    assert xxh64(pa.array(list(known))).tolist() == list(known.values())


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_is_denied(tmp_path, kind):
    column = KINDS[kind]
    table = written(tmp_path / "t.parquet", column)
    with_filter = [page for page in table.pages if page.bloom]
    # An unsigned number is another one in the file than in Spark: such a filter is not asked.
    assert len(with_filter) == (0 if kind == "uint32" else 6)
    reader = table.open()
    values = column.cast(table.schema.field("k").type)
    for page in table.pages:
        own = values.slice(1_000 * page.index, 1_000)
        assert all(reader.may_have(page, own.slice(i, 1)) for i in range(0, 1_000, 9))
        others = [reader.may_have(page, values.slice(i, 1)) for i in range(0, 6_000, 29) if i // 1_000 != page.index]
        assert np.mean(others) < (0.05 if page.bloom else 1.1)
    reader.close()


def test_keys_of_another_width_and_nulls(tmp_path):
    table = written(tmp_path / "t.parquet", pa.array(np.arange(100, dtype=np.int32)), rows=100)
    [page] = table.pages
    reader = table.open()
    assert reader.may_have(page, pa.array([99], pa.int64()))
    assert reader.may_have(page, pa.array([1 << 40], pa.int64()))
    assert not reader.may_have(page, pa.array([None], pa.int64()))
    assert may_have(b"no filter at all", pa.array([1]))
    reader.close()


def test_pages_without_a_key_that_waits_are_not_read(tmp_path):
    table = written(tmp_path / "t.parquet", KINDS["int64"])
    stream = pa.schema([("k", pa.int64())])
    wanted = [KINDS["int64"][i].as_py() for i in (5, 1_005, 5_005)]
    kernel = MeshJoin(stream, table, on=Equal(("k",)), how="inner", budget=32 << 20)
    rows = pa.record_batch([pa.array([*wanted, *(1 - NUMBERS[:5])])], schema=stream)
    out = [e.rows for e in kernel.step(Batch([Portion(0, rows)]), 0)]
    skipped = kernel.metrics()["pages_skipped"]
    while kernel.pending():
        out += [e.rows for e in kernel.tick(0)]
        skipped += kernel.metrics()["pages_skipped"]
    assert sorted(pa.Table.from_batches(out)["n"].to_pylist()) == [5, 1_005, 5_005]
    assert skipped >= 2
