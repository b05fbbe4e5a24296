"""Which rows a table holds, against counting them one by one."""

import math
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.views.net import DELETE, INSERT, net_bag
from penstock.spark.views.groups import SIGN
from penstock.spark.views.lookup import first_rows, held_counts, held_rows, netted_parts
from penstock.spark.views.store import File, TableVersion
from penstock.testing import bag

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.string())])
rows = st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.one_of(st.none(), st.sampled_from("ab")))


def arrow(found):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], SCHEMA)


def write(path, found, signs=None):
    table = arrow(found)
    if signs is not None:
        table = table.append_column(SIGN, pa.array(signs, pa.int8()))
    pq.write_table(table, path)
    return File.of(path)


@settings(max_examples=30)
@given(st.lists(rows, max_size=8), st.lists(rows, max_size=5), st.data(), st.lists(rows, max_size=4, unique=True))
def test_a_table_holds_what_entered_and_did_not_leave(base, entered, data, asked):
    have = Counter(base) + Counter(entered)
    left = data.draw(st.lists(st.sampled_from(sorted(have.elements(), key=str)), max_size=4)) if have else []
    have.subtract(left)
    # What leaves was there: counts below nothing never come about.
    left = [row for row in left if have[row] >= 0]
    have = Counter(base) + Counter(entered) - Counter(left)
    with tempfile.TemporaryDirectory() as folder:
        signs = [1] * len(entered) + [-1] * len(left)
        version = TableVersion(
            (write(Path(folder) / "base.parquet", base),),
            (write(Path(folder) / "part.parquet", [*entered, *left], signs),),
        )
        if asked:
            assert held_counts(version, arrow(asked)).tolist() == [have[row] for row in asked]
        keys = sorted({row[0] for row in asked if row[0] is not None})
        if keys:
            found = held_rows(version, pa.table({"k": pa.array(keys, pa.int64())}), SCHEMA)
            assert bag(found) == bag(arrow(row for row in have.elements() if row[0] in keys))
        one = netted_parts([*version.parts, *version.parts[:0]], SCHEMA) if entered or left else None
        if one is not None:
            sums = Counter(entered)
            sums.subtract(left)
            got = Counter()
            for row in one.to_pylist():
                got[row["k"], row["x"]] += row[SIGN]
            assert {row: n for row, n in got.items() if n} == {row: n for row, n in sums.items() if n}
        assert set(bag(first_rows(version, SCHEMA, 3))) <= set(bag(arrow(base)))


def test_there_is_one_zero_and_one_nan(tmp_path):
    odd = np.frombuffer(np.array([0x7FF8000000000001, 0x8000000000000000], np.uint64).tobytes(), np.float64)
    pq.write_table(pa.table({"f": pa.array([*odd, 1.0])}), tmp_path / "base.parquet")
    version = TableVersion((File.of(tmp_path / "base.parquet"),))
    assert held_counts(version, pa.table({"f": [0.0, 1.0, math.nan, 2.0]})).tolist() == [1, 1, 1, 0]


def test_nan_is_found_beside_a_number(tmp_path):
    """Statistics say nothing of NaN: those of this file, that it has no other value than 2."""
    pq.write_table(pa.table({"f": [2.0, math.nan]}), tmp_path / "base.parquet")
    version = TableVersion((File.of(tmp_path / "base.parquet"),))
    assert held_counts(version, pa.table({"f": [math.nan, 1.0]})).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["", "place", "0", "_min", "__sign_sum", "a.b", "`"])
def test_columns_may_have_any_names(tmp_path, name):
    """Also those by which rows are numbered and counted."""
    one = pa.table({"k": [1, 2, 2], name: [7, 8, 8]})
    pq.write_table(one, tmp_path / "base.parquet")
    pq.write_table(one.slice(1, 1).append_column(SIGN, pa.array([-1], pa.int8())), tmp_path / "part.parquet")
    version = TableVersion((File.of(tmp_path / "base.parquet"),), (File.of(tmp_path / "part.parquet"),))
    assert held_counts(version, one.slice(0, 2)).tolist() == [1, 1]
    assert held_rows(version, one.slice(1, 1).select([name]), one.schema).to_pydict() == {"k": [2], name: [8]}
    assert netted_parts(version.parts, one.schema)[SIGN].to_pylist() == [-1]
    net = net_bag(one, np.array([INSERT, DELETE, DELETE]), lambda rows: held_counts(version, rows))
    assert (net.added.num_rows, net.removed.num_rows, net.aside.num_rows) == (1, 1, 1)
