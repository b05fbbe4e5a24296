"""The table is replaced by new versions in the middle of a run: every row is joined with one of them."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import BadOption
from penstock.plan.join_table import least_memory
from penstock.spark.running import Running
from penstock.tables.keys import hash_keys, slot_of
from tests.spark.conftest import FINITE, Desk

pytestmark = pytest.mark.spark


def version(number: int, keys: int = 500) -> pa.Table:
    """Two rows for each key, each with the number of the version."""
    return pa.table({"k": list(range(keys)) * 2, "version": [number] * (2 * keys), "half": [0] * keys + [1] * keys})


def replace(place, number: int, kind: str, keys: int = 500) -> None:
    if kind == "delta":
        deltalake.write_deltalake(str(place), version(number, keys), mode="overwrite")
        return
    place.mkdir(exist_ok=True)
    pq.write_table(version(number), place / ".next", row_group_size=100)
    (place / ".next").rename(place / "a.parquet")


def await_a_partner(running: Running, stream: Path, table: Path) -> int:
    """A row comes before its partner, then rows of the other slot alone; the key of the first."""
    early = next(key for key in range(500, 600) if slot(key) == 0)
    other = next(key for key in range(500) if slot(key) == 1)
    for number, key in enumerate([early, other, other]):
        pq.write_table(pa.table({"k": [key], "n": [5 + number]}), stream / f"early-{number}.parquet")
        running.query.processAllAvailable()
        if number == 0:
            replace(table, 5, "delta", keys=600)
    return early


def slot(key: int) -> int:
    return int(slot_of(hash_keys([pa.array([key])]), 2)[0])


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_every_row_is_joined_with_one_version(desk: Desk, kind: str):
    """Also rows with hot keys, which a window of some 3,000 rows a slot leaves to the front cache.

    Of a table that keeps its versions, also a row that is parked in a slot that gets no rows any more.
    """
    place = desk.folder / "table"
    replace(place, 1, kind)
    table = ps.table(place, key="k")
    memory, patience = least_memory(table, 2, "rows") + (40 << 10), 0
    if kind == "delta":
        memory, patience = memory * 4 // 3 + 2, 2
    flow = ps.join_table(
        desk.stream(pa.table({"k": [0], "n": [0]}), files=1),
        table,
        on="k",
        memory=memory,
        slots=2,
        follow=True,
        patience=patience,
    )
    assert "newest version" in flow.explain()
    assert "rows with hot keys" in flow.explain()
    keys = [*range(500), *(list(range(20)) * 575)]
    out = str(desk.folder / "out")
    running = flow.start(
        results=out, set_aside=str(desk.folder / "aside"), checkpoint=str(desk.folder / "ck"),
        trigger={"processingTime": "0 seconds"},
    )  # fmt: skip
    try:
        for number in range(1, 5):
            rows = pa.table({"k": keys, "n": [number] * len(keys)})
            pq.write_table(rows, desk.folder / "stream" / f"{number:03d}.parquet")
            running.query.processAllAvailable()
            if number % 2 == 0:
                replace(place, number, kind)
        early = await_a_partner(running, desk.folder / "stream", place) if patience else None
    finally:
        running.stop()
    found = desk.written(flow, "out").to_pandas()
    late, found = found[found["n"] > 4], found[found["n"] <= 4]
    assert len(late) == (6 if patience else 0)
    assert late[late["k"] == early]["version"].tolist() == [5, 5] * (early is not None)
    assert len(found) == 2 * (4 * len(keys) + 1)
    # All of a batch is of one version: that of its time or, of kept ones, the one before.
    assert (found.groupby("n")["version"].nunique() == 1).all()
    assert found.groupby("n")["version"].max().is_monotonic_increasing
    assert found["version"].max() == 2
    totals = flow.progress()["totals"]
    assert totals["rows_in"] == 4 * len(keys) + 1 + (3 if patience else 0)
    assert all(batch["slots_stepped"] == 2 for batch in flow.history() if batch["rows_in"])
    assert len(keys) / 4 < totals["rows_answered"] < 3 * len(keys)


@pytest.mark.slow
def test_a_crash_in_the_first_micro_batch_loses_no_parked_row(desk: Desk, monkeypatch):
    """Its results are in the output, its state is lost, and when it is run again the table has the missing partner."""
    place = desk.folder / "table"
    deltalake.write_deltalake(str(place), pa.table({"k": [1], "version": [1]}))
    stream = desk.stream(pa.table({"k": [1, 9]}), files=1)

    def run() -> None:
        table = ps.table(place, key="k")
        flow = ps.join_table(stream, table, on="k", memory="32MB", slots=2, follow=True, patience=3)
        places = {name: str(desk.folder / name) for name in ("results", "set_aside", "checkpoint")}
        flow.start(**places, trigger=FINITE).wait()

    def die(point: str) -> None:
        if point == "after-sink":
            raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.spark.flow.crash_point", die)
        with pytest.raises(Exception, match="killed"):
            run()
    deltalake.write_deltalake(str(place), pa.table({"k": [1, 9], "version": [2, 2]}), mode="overwrite")
    pq.write_table(pa.table({"k": [1]}), desk.folder / "stream" / "later.parquet")
    run()
    found = pq.read_table(desk.folder / "results")
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == [(1, 1), (1, 2), (9, 2)]


def test_what_cannot_follow_is_said_before_anything_runs(desk: Desk):
    frame = desk.stream(pa.table({"k": [0], "n": [0]}))
    table = desk.table(version(1), key="k")
    for options, match in (
        ({"patience": 1}, "without follow"),
        ({"follow": True, "patience": 1}, "keeps none"),
        ({"follow": True, "shed": "keepw", "max_lag": "1 second"}, "exclude each other"),
        ({"follow": True, "division": "pages"}, 'divided by "pages"'),
        ({"follow": True, "pages_per_step": 1}, "exclude each other"),
    ):
        with pytest.raises(BadOption, match=match):
            ps.join_table(frame, table, on="k", memory="32MB", **options)
