"""What live results of a join that sheds say of all results."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.kernels.contract import RESULTS
from penstock.kernels.mesh.budget import least_budget
from penstock.kernels.mesh.condition import Equal
from penstock.kernels.mesh.shed.gate import Overload
from penstock.kernels.mesh.shedding import SHED, SheddingJoin, with_counts
from penstock.tables import table
from penstock.testing import Host

KEYS, ROWS = 50, 4_000
STREAM = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def hosted(over, policy, seed, rate, more=0):
    overload = Overload(policy, 0.001, seed=seed, rate=rate)
    budget = with_counts(overload, least_budget(over.pages)) + more
    return Host(
        lambda: SheddingJoin(
            STREAM, over, on=Equal(("k",)), budget=budget, overload=overload, inclusion="p", front=0.0
        ),
        budget=budget,
    )  # fmt: skip


@pytest.mark.parametrize("policy", ["samplew", "cluster"])
def test_live_results_are_a_sample(tmp_path, policy):
    """The sum of a column over all results, estimated from the live ones over many seeds, is right in the mean."""
    rng = np.random.default_rng(6)
    matches = rng.integers(0, 6, KEYS) ** 2
    pq.write_table(pa.table({"k": np.repeat(np.arange(KEYS), matches)}), tmp_path / "a.parquet")
    over = table(tmp_path, key="k")
    stream = pa.table({"k": rng.integers(0, KEYS, ROWS), "v": rng.random(ROWS)})
    true = float((matches[stream["k"].to_numpy()] * stream["v"].to_numpy()).sum())
    estimates = []
    for seed in range(40):
        host = hosted(over, policy, seed, rate=1.0)
        got = host.run([stream])
        live, chance = got[RESULTS]["v"].to_numpy(), got[RESULTS]["p"].to_numpy()
        assert got[SHED].num_rows > ROWS / 4
        assert got[SHED].column_names == ["k", "v", "_reason"]
        assert ((chance > 0) & (chance <= 1)).all()
        estimates.append((live / chance).sum() / true)
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert error < 0.01
    assert abs(np.mean(estimates) - 1) < 3 * error
    # The same sum without the probabilities is far off: the test would notice if they were missing or all alike.
    assert abs(live.sum() / true - 1) > 0.2


def test_where_nothing_is_shed_every_row_is_certain(tmp_path):
    pq.write_table(pa.table({"k": np.arange(KEYS)}), tmp_path / "a.parquet")
    stream = pa.table({"k": np.arange(ROWS) % KEYS, "v": np.ones(ROWS)})
    got = hosted(table(tmp_path, key="k"), "samplew", 0, rate=None).run([stream])[RESULTS]
    assert got.num_rows == ROWS
    assert set(got["p"].to_pylist()) == {1.0}


def test_partners_are_counted_anew_for_another_budget_or_table(tmp_path):
    """After a restart counts may be too large for the budget, or those of a table that is no more."""
    pq.write_table(pa.table({"k": np.repeat(np.arange(40_000), np.arange(40_000) % 2 + 1)}), tmp_path / "a.parquet")
    stream = pa.table({"k": np.arange(ROWS) % 1_000, "v": np.ones(ROWS)})
    host = hosted(table(tmp_path, key="k"), "topw", 0, rate=1.0, more=8 << 20)
    host.step(pa.concat_tables([stream] * 120))
    assert host.rows[SHED]
    assert any(name.startswith("matches") for name in host.store.chunks)
    pq.write_table(pa.table({"k": np.repeat(np.arange(1_000), 2 - np.arange(1_000) % 2)}), tmp_path / "a.parquet")
    again = hosted(table(tmp_path, key="k"), "topw", 0, rate=1.0)
    again.store = host.store
    shed = pa.Table.from_batches([each.rows for each in again.step(stream) if each.channel == SHED])
    # Even keys have two partners now: the odd ones go first, before any of them.
    odd = int((shed["k"].to_numpy() % 2).sum())
    assert odd == ROWS // 2 <= shed.num_rows < ROWS
    assert sum(name.startswith("matches") for name in again.store.chunks) == 1
    again.crash()
    assert again.step(stream)
