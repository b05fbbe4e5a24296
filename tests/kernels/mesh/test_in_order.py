"""Results in the order of the stream, and the sort behind them."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.contract import RESULTS
from penstock.kernels.mesh.in_order import OrderedMeshJoin
from penstock.kernels.mesh.runs import Runs
from penstock.tables import table
from penstock.testing import Host, assert_same_rows

VALUES = {
    pa.int64(): st.none() | st.integers(-9, 9),
    pa.string(): st.none() | st.text("abc", max_size=2),
    # Further than Python's own times reach.
    pa.timestamp("us", "UTC"): st.none() | st.integers(-9, 9).map(lambda n: n << 59),
    pa.date32(): st.none() | st.integers(-9, 9).map(lambda n: n << 27),
    pa.float64(): st.none() | st.sampled_from([-math.inf, -0.0, 1.5, math.nan, math.inf]),
}


@given(st.data())
def test_runs_equal_sorting_all_rows(data):
    kind = data.draw(st.sampled_from(list(VALUES)))
    values = data.draw(st.lists(VALUES[kind], max_size=80))
    # Rows of 8 to 20 bytes: with so little room there are dozens of runs, and runs of runs.
    room = data.draw(st.sampled_from([30, 200, 100_000]))
    rows = pa.record_batch({"by": pa.array(values, kind), "n": pa.array(range(len(values)), pa.int64())})
    runs = Runs(rows.schema, "by", room)
    for begin in range(0, len(values), 3):
        runs.add(rows.slice(begin, 3))
    got = pa.Table.from_batches(list(runs.close()), rows.schema)
    order = pc.sort_indices(rows, sort_keys=[("by", "ascending")])
    want = pa.Table.from_batches([rows.take(order)])
    assert list(map(str, plain(got["by"]))) == list(map(str, plain(want["by"])))
    assert_same_rows(got.set_column(0, "by", plain(got["by"])), want.set_column(0, "by", plain(want["by"])))


def plain(column):
    """Times as numbers."""
    kind = {8: pa.int64(), 4: pa.int32()}[column.type.byte_width] if pa.types.is_temporal(column.type) else column.type
    return column.cast(kind)


@pytest.mark.parametrize("budget", [4 << 20, 64 << 20])
def test_results_of_a_step_are_in_order(tmp_path, budget):
    rng = np.random.default_rng(2)
    rows = pa.table({"k": rng.integers(0, 500, 3_000), "x": np.arange(3_000)})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=300)
    stream = pa.table({"k": rng.integers(0, 600, 40_000), "at": rng.permutation(40_000)})
    found = table(tmp_path, key="k")
    host = Host(lambda: OrderedMeshJoin(stream.schema, found, on=["k"], order_by="at", budget=budget), budget=budget)
    for begin in (0, 20_000):
        emitted = host.step(stream.slice(begin, 20_000).to_batches(1_000))
        at = np.concatenate([e.rows["at"].to_numpy() for e in emitted if e.channel == RESULTS])
        assert len(at) > 80_000
        assert (np.diff(at) >= 0).all()
