"""Rows that come faster than they can be joined: what is emitted and what catch-up makes of the archive add up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import penstock as ps
from penstock.errors import BadOption, PenstockError
from penstock.kernels.mesh.tune_cache import coefficients
from penstock.plan.join_table import least_memory
from tests.spark.conftest import FINITE, Desk, assert_is_join

pytestmark = pytest.mark.spark


def made(rows: int, keys: int = 4_000) -> tuple[pa.Table, pa.Table]:
    """A stream in which few keys are frequent, and a table with 0 to 4 rows a key."""
    rng = np.random.default_rng(11)
    drawn = (keys * rng.random(rows) ** 2).astype(np.int64)
    stream = pa.table({"k": drawn, "n": np.arange(rows)})
    theirs = np.repeat(np.arange(keys), rng.integers(0, 5, keys))
    return stream, pa.table({"k": theirs, "name": [f"p{i}" for i in range(len(theirs))]})


@pytest.mark.parametrize(
    ("policy", "prepared", "how"),
    [("topw", True, "inner"), pytest.param("samplew", False, "left", marks=pytest.mark.slow)],
)
def test_live_and_catch_up_add_up(desk: Desk, policy: str, prepared: bool, how: str):
    stream, rows = made(60_000)
    table = desk.table(rows, key="k", page=2_000, prepared=prepared)
    # A window of some thousand rows a slot, and steps that may take no longer than one pass.
    least = least_memory(table, 2, "key" if prepared else "rows")
    memory = (least * 8 // 7 if policy == "topw" else least) + (100 << 10)
    options = {"memory": memory, "shed": policy, "max_lag": "1 us", "how": how}
    options |= {"inclusion": "chance"} if policy == "samplew" else {}
    flow = ps.join_table(desk.stream(stream, files=3), table, on="k", **options)
    out, archive, checkpoint = (str(desk.folder / name) for name in ("out", "archive", "ck"))
    with pytest.warns(UserWarning, match="set_aside"):
        flow.start(results=out, shed=archive, checkpoint=checkpoint, trigger=FINITE).wait()
    totals, recall = flow.progress()["totals"], flow.progress()["estimated_recall"]
    assert totals["rows_in"] == stream.num_rows
    # The first micro-batch teaches how long a full window takes; of the second and third, most is shed.
    assert 5_000 < totals["rows_shed"] < 40_000
    live = desk.written(flow, "out")
    if policy == "samplew":
        chances = dict(zip(live["n"].to_pylist(), live["chance"].to_pylist(), strict=True))
        assert min(chances.values()) < 0.9
        assert sum(1 / chance for chance in chances.values()) == pytest.approx(stream.num_rows, rel=0.05)
        live = live.drop_columns(["chance"])
    done = ps.catch_up(desk.spark, archive, table, on="k", how=how, into=str(desk.folder / "later"))
    assert done.rows == totals["rows_shed"]
    assert all("overload" in reason for reason in done.reasons)
    both = pa.concat_tables([live, ds.dataset(str(desk.folder / "later")).to_table().select(live.column_names)])
    if how == "inner":
        assert_is_join(both, stream, rows, ["k"], ["k"])
        # What is worth most is kept: the estimate is by exact counts here.
        assert recall == pytest.approx(live.num_rows / both.num_rows)
        assert recall > 1.15 * (1 - totals["rows_shed"] / stream.num_rows)
    else:
        matched = both.filter(both["name"].is_valid())
        assert_is_join(matched, stream, rows, ["k"], ["k"])
        assert set(both["n"].to_pylist()) == set(range(stream.num_rows))


def test_what_cannot_be_shed_is_said_before_anything_runs(desk: Desk):
    stream, rows = made(1_000)
    frame, table = desk.stream(stream), desk.table(rows, key="k")

    def fails(match: str, **options: object) -> None:
        with pytest.raises(PenstockError, match=match):
            ps.join_table(frame, table, **{"on": "k", "memory": "32MB", **options})

    fails("without shed", max_lag="1 second")
    fails("without shed", inclusion="chance")
    fails("keeps no sample", shed="topw", max_lag="1 second", inclusion="chance")
    fails("already", shed="samplew", max_lag="1 second", inclusion="Name")
    fails("needs to know when", shed="topw")
    fails('Did you mean shed="topw"', shed="topv", max_lag="1 second")
    fails("max_lag", shed="topw", max_lag="fast")
    fails("more than zero", shed="topw", max_lag="0 seconds")
    fails("cannot shed rows", shed="topw", max_lag="1 second", how="semi", on=ps.band("n", below=1, above=1))
    fails('divided by "pages"', shed="topw", max_lag="1 second", division="pages")
    flow = ps.join_table(frame, table, on="k", memory="32MB", shed="keepw", max_lag="1 second")
    with pytest.raises(BadOption, match="one by one"):
        _ = flow.results
    with pytest.raises(BadOption, match="'shed' has no place"):
        flow.start(results=str(desk.folder / "out"), checkpoint=str(desk.folder / "ck"))


def test_a_measured_table_is_explained_and_predicted(desk: Desk):
    stream, rows = made(20_000)
    table = desk.table(rows, key="k", page=2_000)
    flow = ps.join_table(desk.stream(stream), table, on="k", memory="32MB")
    assert "unknown; to know: penstock tune" in flow.explain()
    coefficients(table, 16, seconds=0.5, windows=(1_000, 10_000))
    flow = ps.join_table(desk.stream(stream), table, on="k", memory="32MB")
    assert "rows/s in kernels" in flow.explain()
    assert_is_join(desk.run(flow), stream, rows, ["k"], ["k"])
    expected = flow.progress()["expected"]
    assert expected.keys() >= {"rows_per_second", "arrival_rate", "memory_for_arrivals", "excess"}
    # The same order of magnitude as the measured step, which also waits for rows to be fetched and sent.
    assert 0 < expected["step_seconds"] < 20 * expected["measured_step_seconds"]
    with pytest.raises(BadOption, match="cannot be kept: one pass"):
        ps.join_table(desk.stream(stream), table, on="k", memory="32MB", shed="topw", max_lag="1 us")
