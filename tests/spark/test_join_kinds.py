"""`join_table` on Spark with every kind of join and condition, judged by DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.testing import assert_same_rows
from tests.spark.conftest import Desk, assert_is_join, sampled

pytestmark = pytest.mark.spark

SECOND = timedelta(seconds=1)


def alike(ours: pa.RecordBatch, theirs: pa.RecordBatch) -> pa.Array:
    """Texts of one length that begin alike."""
    if pc.any(pc.equal(ours["name"], "broken")).as_py():
        raise ValueError("a broken name")
    first = [pc.utf8_slice_codeunits(column, 0, 1) for column in (ours["name"], theirs["other"])]
    same = pc.equal(pc.utf8_length(ours["name"]), pc.utf8_length(theirs["other"]))
    return pc.and_(same, pc.equal(*first))


@dataclass(frozen=True)
class Kind:
    """One way to join, and what it is in SQL."""

    how: str
    on: Any
    key: Any
    sql: str
    options: dict[str, Any] = field(default_factory=dict)
    prepared: bool = False


EQUAL = "s.k = r.key"
BAND = "r.at BETWEEN s.moment - INTERVAL 5 SECOND AND s.moment + INTERVAL 2 SECOND"
RANGE = "s.k BETWEEN r.low AND r.high"
WHERE = "s.name <> 'broken' AND length(s.name) = length(r.other) AND s.name[1] = r.other[1]"
BY_BAND = ps.band("moment", below=5 * SECOND, above=2 * SECOND)
BY_WHERE = ps.where(alike, on="name", on_error="set_aside")
AS_OF = "s.k = r.key AND coalesce(r.since <= s.moment, true) AND coalesce(r.until > s.moment, true)"
BY_TIME = ps.as_of("k", time="moment", since="since", until="until")
KINDS = [
    Kind("left", "k", "key", EQUAL, {"slots": 3, "pages_per_step": 1}),
    Kind("semi", "k", "key", EQUAL, {"division": "rows"}),
    Kind("anti", "k", "key", EQUAL, {"slots": 3, "pages_per_step": 2}, prepared=True),
    Kind("left", "k", "key", EQUAL, {"division": "key"}, prepared=True),
    Kind("inner", BY_BAND, "at", BAND, {"division": "pages", "slots": 3}),
    Kind("left", BY_BAND, "at", BAND, {"pages_per_step": 1}),
    Kind("inner", ps.range("k"), ["low", "high"], RANGE, {"division": "rows"}),
    Kind("anti", ps.range("k"), ["low", "high"], RANGE, {"slots": 1}, prepared=True),
    Kind("inner", BY_WHERE, "other", WHERE, {"pages_per_step": 1}),
    Kind("semi", BY_WHERE, "other", WHERE),
    Kind("inner", BY_TIME, "key", AS_OF, {"division": "pages"}),
    Kind("left", BY_TIME, "key", AS_OF, {"slots": 3}, prepared=True),
    Kind("inner", BY_WHERE, "other", WHERE, {"division": "input", "slots": 3}),
    Kind("semi", BY_BAND, "at", BAND, {"division": "input"}),
    Kind("anti", "k", "key", EQUAL, {"division": "input"}, prepared=True),
]


@pytest.mark.parametrize("kind", sampled(KINDS), ids=lambda k: f"{k.how}-{k.sql.split()[1]}-{k.options}")
def test_every_kind_of_join_is_as_duckdb_has_it(desk: Desk, kind: Kind):
    seed = KINDS.index(kind)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    stream, rows = made(rng)
    flow = ps.join_table(
        desk.stream(stream, 3),
        desk.table(rows, kind.key, page=40, prepared=kind.prepared),
        on=kind.on,
        how=kind.how,
        memory="64MB",
        **kind.options,
    )
    assert kind.how in flow.explain()
    got = desk.run(flow)
    assert_same_rows(got, judged(kind, stream, rows).cast(got.schema), label="results")
    broken = pc.sum(pc.equal(stream["name"], "broken")).as_py() if kind.on is BY_WHERE else 0
    aside = desk.written(flow, "out-aside", "set_aside")
    assert aside.num_rows == broken
    assert all("a broken name" in reason for reason in aside["reason"].to_pylist())


def made(rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """A stream with NULLs and some rows that a predicate fails for, and a table."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    names = ["", "a", "b", "bb", "bc", "ccc", "broken", None]

    def moments(count: int, nulls: float = 0) -> pa.Array:
        drawn = [start + int(n) * SECOND for n in rng.integers(0, 3_000, count)]
        return pa.array(drawn, pa.timestamp("us", "UTC"), mask=rng.random(count) < nulls)

    def texts(count: int, pool: list[str | None]) -> pa.Array:
        return pa.array([pool[n] for n in rng.integers(0, len(pool), count)], pa.string())

    keys = pa.array(rng.integers(0, 400, 400), mask=rng.random(400) < 0.1)
    stream = pa.table({"id": np.arange(400), "k": keys, "moment": moments(400), "name": texts(400, names)})
    low = rng.integers(0, 400, 150)
    rows = pa.table(
        {
            "key": pa.array(rng.integers(0, 400, 150), mask=rng.random(150) < 0.1),
            "at": moments(150),
            "since": moments(150, 0.1),
            "until": moments(150, 0.3),
            "low": low,
            "high": pa.array(low + rng.integers(-2, 5, 150), mask=rng.random(150) < 0.1),
            "other": texts(150, [name for name in names if name != "broken"]),
        }
    )
    return stream, rows


def judged(kind: Kind, stream: pa.Table, rows: pa.Table) -> pa.Table:
    """The same by DuckDB. A predicate that fails for a row sets it aside, whatever the join."""
    drop = "EXCLUDE key" if kind.sql in (EQUAL, AS_OF) else ""
    columns = "s.*" if kind.how in ("semi", "anti") else f"s.*, r.* {drop}"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        text = f"SELECT {columns} FROM stream s {kind.how.upper()} JOIN rows r ON {kind.sql}"
        return connection.sql(text).to_arrow_table()


def test_a_predicate_that_raises_stops_the_query_and_says_for_which_rows(desk: Desk):
    stream, rows = made(np.random.default_rng(5))
    shops = desk.table(rows, "other")
    flow = ps.join_table(desk.stream(stream), shops, on=ps.where(alike, on="name"), memory="64MB")
    with pytest.raises(ps.errors.PredicateFailed, match="ValueError: a broken name"):
        desk.run(flow)


def test_results_come_in_the_order_of_a_column(desk: Desk):
    rng = np.random.default_rng(4)
    stream = pa.table({"k": rng.integers(0, 50, 3_000), "at": rng.permutation(3_000)})
    rows = pa.table({"k": np.arange(60) % 50, "x": np.arange(60)})
    flow = ps.join_table(desk.stream(stream), desk.table(rows, key="k"), on="k", memory="32MB", order_by="at")
    assert_is_join(desk.run(flow), stream, rows, ["k"], ["k"])
    files = sorted((desk.folder / "out").glob("*.parquet"))
    assert len(files) == 6  # of two slots and three micro-batches
    for file in files:
        at = pq.read_table(file)["at"].to_numpy()
        assert (np.diff(at) >= 0).all()
    with pytest.raises(ps.errors.BadOption, match="exclude each other"):
        ps.join_table(
            desk.stream(stream), desk.table(rows, key="k"), on="k", memory="32MB", order_by="at", division="pages"
        )
