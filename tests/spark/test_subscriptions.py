"""`Subscriptions` on Spark: every subscriber knows the query's answer after every update, across restarts and slots."""

from __future__ import annotations

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from tests.kernels.subscriptions import judge2d
from tests.kernels.subscriptions.judge import changes, concerns, heard, ranges
from tests.spark.conftest import FINITE, Desk, eventually

pytestmark = pytest.mark.spark


def updates(count: int, seed: int, keys: int = 30) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "part": pa.array(rng.choice(["p", "q", "r"], count)),
            "key": pa.array(rng.integers(0, keys, count).astype(str)),
            "x": pa.array(rng.integers(0, 10, count).astype(float)),
            "y": pa.array(rng.integers(0, 8, count)),
            "at": pa.array(np.arange(count)),
            "gone": pa.array(rng.random(count) < 0.15),
            "note": pa.array(["not looked at"] * count),
        }
    )


POINTS = [float(x) for x in range(-1, 11)]


@pytest.mark.parametrize(("agg", "slots"), [("min", 2), ("distinct", 1)])
def test_subscribers_know_the_answer_after_every_update(desk: Desk, agg: str, slots: int):
    table = updates(300, seed=slots)
    flow = ps.Subscriptions(
        desk.stream(table, files=2),
        x="x",
        y="y",
        key="key",
        order="at",
        agg=agg,
        partition_by="part",
        deleted="gone",
        slots=slots,
    )
    got = desk.run(flow)
    facts, aside = changes(agg, table.to_pylist(), POINTS, ["p", "q", "r"])
    assert Counter(heard(agg, got, POINTS, ["p", "q", "r"])) == Counter(facts)
    assert desk.written(flow, "out-aside", "set_aside").num_rows == aside > 0
    for slot in set(got.column("slot").to_pylist()):
        numbers = got.filter(pa.compute.field("slot") == slot).column("seq").to_pylist()
        assert sorted(numbers) == list(range(len(numbers)))
    assert eventually(lambda: flow.progress()["totals"]["rows_in"] == 300)


def test_a_query_that_is_stopped_and_started_again_goes_on_where_it_was(desk: Desk):
    """The last answers are DuckDB's; message numbers go on without a gap."""
    table = updates(300, seed=5, keys=300)
    stream = desk.stream(table.slice(0, 200), files=2)
    places = {"results": str(desk.folder / "out"), "set_aside": str(desk.folder / "aside")}

    def run() -> ps.Flow:
        flow = ps.Subscriptions(stream, x="x", y="y", key="key", order="at", agg="max", deleted="gone")
        flow.start(**places, checkpoint=str(desk.folder / "ck"), trigger=FINITE).wait()
        return flow

    run()
    desk.stream(table.slice(200), files=1, name="late")
    (desk.folder / "late" / "000.parquet").rename(desk.folder / "stream" / "009.parquet")
    got = desk.written(run())
    assert sorted(got.column("seq").to_pylist()) == list(range(got.num_rows))
    assert last_answers(got) == asked_again(table)


def last_answers(messages: pa.Table) -> dict[tuple[float, float], int | None]:
    known: dict[tuple[float, float], int | None] = dict.fromkeys(ranges(POINTS))
    for message in messages.sort_by("seq").to_pylist():
        known |= {r: message["value"] for r in known if concerns(message, *r)}
    return known


def asked_again(updates: pa.Table) -> dict[tuple[float, float], int | None]:
    newest = duckdb.sql(
        'SELECT * FROM (SELECT DISTINCT ON (key) * FROM updates ORDER BY key, "at" DESC) WHERE NOT gone'
    )
    rows = newest.to_arrow_table()
    asked = pa.table({"x1": [a for a, _ in ranges(POINTS)], "x2": [b for _, b in ranges(POINTS)]})
    found = duckdb.sql(
        "SELECT x1, x2, max(y) FROM asked LEFT JOIN rows ON x BETWEEN x1 AND x2 GROUP BY x1, x2"
    ).fetchall()
    assert rows.num_rows < asked.num_rows * 10
    return {(x1, x2): y for x1, x2, y in found}


def test_subscribers_of_two_dimensional_ranges_know_the_answer_after_every_update(desk: Desk):
    """All ranges of 6 places on either axis, over two slots; at the end they know what DuckDB says."""
    table = updates(120, seed=9, keys=12)
    table = table.set_column(2, "x", pa.array(np.random.default_rng(2).integers(0, 5, 120)))
    table = table.append_column("z", pa.array(np.random.default_rng(3).integers(0, 5, 120).astype(float)))
    places = {"first": [*range(5)], "second": [float(z) for z in range(5)], "parts": ["p", "q", "r"]}
    flow = ps.Subscriptions(
        desk.stream(table, files=2),
        x=("x", "z"),
        y="y",
        key="key",
        order="at",
        partition_by="part",
        deleted="gone",
        slots=2,
    )
    got = desk.run(flow)
    facts, aside = judge2d.changes("min", table.to_pylist(), *places.values())
    told = judge2d.heard(got, *places.values())
    assert Counter(told) == Counter(facts)
    assert desk.written(flow, "out-aside", "set_aside").num_rows == aside > 0
    known: dict[tuple, int | None] = dict.fromkeys(judge2d.subscribers(*places.values()))
    for fact in sorted(told, key=lambda fact: fact[0]):
        known[fact[1:-1]] = fact[-1]
    asked = pa.table(list(zip(*known, strict=True)), names=["p", "l1", "u1", "l2", "u2"])
    assert asked.num_rows == 3 * 15 * 15
    newest = (
        """SELECT * FROM (SELECT DISTINCT ON (part, key) * FROM "table" ORDER BY part, key, "at" DESC) WHERE NOT gone"""
    )
    found = duckdb.sql(
        f"SELECT p, l1, u1, l2, u2, min(y) FROM asked LEFT JOIN ({newest}) ON part = p AND x BETWEEN l1 AND u1 "
        "AND z BETWEEN l2 AND u2 GROUP BY ALL"
    ).fetchall()
    assert known == {tuple(row[:-1]): row[-1] for row in found}


def test_subscribers_of_a_join_are_told_of_every_pair_that_comes_goes_or_moves(desk: Desk):
    """Two streams and two slots; the pairs that are left at the end are those of DuckDB's join."""
    rng = np.random.default_rng(4)
    left = updates(150, seed=6, keys=12).drop_columns(["y"]).append_column("who", pa.array(rng.integers(0, 4, 150)))
    right = (
        updates(150, seed=7, keys=9)
        .drop_columns(["y", "key"])
        .append_column("buyer", pa.array(rng.integers(0, 4, 150)))
    )
    right = right.append_column("id", pa.array(rng.integers(0, 9, 150))).rename_columns({"x": "z"})
    other = ps.Joined(
        stream=desk.stream(right, files=2, name="other"), x="z", key="id", order="at", on="buyer", deleted="gone"
    )
    flow = ps.Subscriptions(
        desk.stream(left, files=2),
        x="x",
        key="key",
        order="at",
        join=other,
        on="who",
        partition_by="part",
        deleted="gone",
        slots=2,
    )
    got = desk.run(flow)
    assert desk.written(flow, "out-aside", "set_aside").num_rows > 0
    newest = (
        """(SELECT * FROM (SELECT DISTINCT ON (part, {0}) * FROM "{1}" ORDER BY part, {0}, "at" DESC) WHERE NOT gone)"""
    )
    there = duckdb.sql(
        f"SELECT l.part, l.key, r.id, l.x, r.z FROM {newest.format('key', 'left')} l "
        f"JOIN {newest.format('id', 'right')} r ON l.part = r.part AND l.who = r.buyer"
    ).fetchall()
    pairs: dict[tuple, tuple] = {}
    for m in got.sort_by([("slot", "ascending"), ("seq", "ascending")]).to_pylist():
        pair, was, now = (
            (m["part"], m["left_key"], m["right_id"]),
            (m["left_before"], m["right_before"]),
            (m["left_after"], m["right_after"]),
        )
        assert was == pairs.pop(pair, (None, None))
        assert was != now
        if now != (None, None):
            pairs[pair] = now
    assert {(*pair, *places) for pair, places in pairs.items()} == set(there)
    assert len(there) > 10
    for slot in (0, 1):
        numbers = got.filter(pa.compute.field("slot") == slot).column("seq").to_pylist()
        assert sorted(numbers) == list(range(len(numbers)))


def test_a_stream_without_rows_says_nothing_and_ends(desk: Desk):
    flow = ps.Subscriptions(desk.stream(updates(0, seed=0)), x="x", y="y", key="key", order="at")
    assert desk.run(flow).num_rows == 0
