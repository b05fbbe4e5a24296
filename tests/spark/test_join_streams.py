"""`join_streams` on Spark is DuckDB's window join; under a budget it is a part of it, and catch-up finds the rest."""

from __future__ import annotations

import os
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.errors import MemoryTooSmall, PlanError
from penstock.spark.schema import spark_schema
from penstock.testing import assert_same_rows, bag, zipf_keys
from tests.spark.conftest import FINITE, Desk

pytestmark = pytest.mark.spark

WITHIN = 20_000_000
TIMES = ("lt", "rt")
RESULT = pa.schema(
    [
        ("k", pa.int64()),
        ("lt", pa.timestamp("us", "UTC")),
        ("v", pa.int64()),
        ("rt", pa.timestamp("us", "UTC")),
        ("w", pa.int64()),
    ]
)


def tables(count, distinct=150, seed=0, jumble=0):
    """Rows of both sides over 100 seconds, in order of time but for a jumble of some seconds; some without key."""
    rng, made = np.random.default_rng(seed), []
    for side, (time, value) in enumerate(((TIMES[0], "v"), (TIMES[1], "w"))):
        keys = zipf_keys(count, distinct, 0.6, seed + side)
        at = np.sort(rng.integers(0, 100_000_000, count))
        at = at[np.argsort(at + rng.integers(0, jumble * 1_000_000 + 1, count), kind="stable")]
        keyed = pa.array(keys, pa.int64(), mask=rng.random(count) < 0.02)
        made.append(pa.table({"k": keyed, time: moments(at + 1_700_000_000_000_000), value: np.arange(count)}))
    return made


def moments(micros):
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))


def exact(left, right, how="inner", extra="", closed=None):
    """DuckDB's join; outer rows only as far as their windows are closed by a watermark."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        gap = f"epoch_us(r.rt) - epoch_us(l.lt) BETWEEN {-WITHIN} AND {WITHIN}"
        kind = "" if how == "inner" else how.upper()
        columns = "coalesce(l.k, r.k) k, l.lt, l.v, r.rt, r.w"
        query = f"SELECT {columns} FROM l {kind} JOIN r ON l.k = r.k AND {gap} {extra}"
        for name, rows in (("l", left), ("r", right)):
            connection.register(name, rows)
        if closed is not None:
            query = f"""SELECT * FROM ({query}) WHERE (v IS NOT NULL AND w IS NOT NULL) OR k IS NULL
                OR epoch_us(coalesce(lt, rt)) + {WITHIN} < {closed}"""
        return connection.sql(query).to_arrow_table().cast(RESULT)


def watermark(left, right, lateness):
    return min(rows[name].cast(pa.int64()).to_numpy().max() for rows, name in ((left, "lt"), (right, "rt"))) - lateness


def ahead(rows):
    """A row without key, ten seconds after all others: it moves the watermark, and no archive has it."""
    last = rows.slice(rows.num_rows - 1)
    columns = [pa.nulls(1, pa.int64()), moments([rows[1].cast(pa.int64()).to_numpy().max() + 10_000_000]), last[2]]
    return pa.table(columns, schema=rows.schema)


def put(desk, side, rows, files, first=0):
    """Files that are read in this order, one a micro-batch."""
    place = desk.folder / side
    place.mkdir(exist_ok=True)
    ends = [rows.num_rows * n // files for n in range(files + 1)]
    for number in range(files):
        path = place / f"{first + number:03d}.parquet"
        pq.write_table(rows.slice(ends[number], ends[number + 1] - ends[number]), path)
        os.utime(path, (1_000_000_000 + first + number,) * 2)


def start(desk, left, right, **options):
    usual = {"on": "k", "within": "20 s", "time": TIMES, "memory": "16MB"}
    readers = [
        desk.spark.readStream.schema(spark_schema(rows.schema)).option("maxFilesPerTrigger", 1)
        for rows in (left, right)
    ]
    frames = [reader.parquet(str(desk.folder / side)) for reader, side in zip(readers, ("left", "right"), strict=True)]
    flow = ps.join_streams(*frames, **(usual | options))
    places = {channel: str(desk.folder / channel) for channel in flow.channels}
    flow.start(checkpoint=str(desk.folder / "ck"), trigger=FINITE, **places).wait()
    return flow


def condition(left, right):
    return left["v"].to_numpy() % 5 != right["w"].to_numpy() % 5


def test_exact_equals_duckdb_with_late_and_out_of_order_rows(desk):
    left, right = tables(1_000, jumble=10)
    # A minute late: these are told, and join nothing.
    at = left["lt"].cast(pa.int64()).to_numpy().copy()
    at[-50:] -= 60_000_000
    left = left.set_column(1, "lt", moments(at))
    for side, rows in (("left", left), ("right", right)):
        put(desk, side, rows, 4)
    flow = start(desk, left, right, lateness="15 s", how="full", where=condition)
    keyless = left.slice(950)["k"].null_count
    late = desk.written(flow, "late_left", "late_left")
    assert late.num_rows == 50 - keyless == flow.progress()["totals"]["rows_late"]
    timely = pa.concat_tables([left.slice(0, 950), left.slice(950).filter(left.slice(950)["k"].is_null())])
    mark = watermark(timely, right, 15_000_000)
    want = exact(timely, right, "full", "AND l.v % 5 != r.w % 5", closed=mark)
    assert_same_rows(desk.written(flow, "results"), want)
    totals = flow.progress()["totals"]
    assert totals["rows_in"] == 2_000
    assert totals["rows_out"] == want.num_rows
    assert totals["rows_without_key"] == left["k"].null_count + right["k"].null_count
    assert flow.progress()["last"]["recall_estimate"] == 1.0
    assert "EXACT" in flow.explain()


def youngest(key, age, partner):
    return -age.astype(float)


def anything(left, right):
    return [True] * left.num_rows


#: Names that Spark's parser would take apart.
PADS = ("pad`0", "pad.1")
POLICIES = [("rand", "full"), ("prob", "inner"), ("life", "left"), ("heeb", "right"), (youngest, "inner")]


@pytest.mark.parametrize(
    ("policy", "how"), [POLICIES[0], *(pytest.param(*p, marks=pytest.mark.slow) for p in POLICIES[1:])]
)
def test_live_and_caught_up_are_the_exact_join(desk, policy, how):
    """With less memory than the window needs; in two runs, the second with what came since."""
    left, right = (
        pa.concat_tables([rows, ahead(rows)]).append_column(name, pa.array(["x" * 300] * 1_600))
        for name, rows in zip(PADS, tables(1_599, jumble=3), strict=True)
    )
    options = {"lateness": "4 s", "policy": policy, "archive": True, "memory": "512KB", "slots": 2, "how": how}
    if policy == "heeb":  # its model is of the whole stream
        options |= {"memory": "256KB", "slots": 1}
    again = {"on": "k", "within": "20 s", "time": TIMES, "lateness": "4 s", "how": how, "into": desk.folder / "found"}
    archive = desk.folder
    done = []
    for begin in (0, 800):
        for side, rows in (("left", left), ("right", right)):
            put(desk, side, rows.slice(begin, 800), 3, first=begin)
        flow = start(desk, left, right, **options)
        for other in ({"within": "21 s"}, {"where": anything}, {"how": "left" if how == "inner" else "inner"}):
            with pytest.raises(PlanError, match="another join"):
                ps.catch_up_streams(desk.spark, archive, **(again | other))
        done.append(ps.catch_up_streams(desk.spark, archive, **again))
    assert ps.catch_up_streams(desk.spark, archive, **again).rows == 0
    live = bag(desk.written(flow, "results").select(RESULT.names))
    found = bag(desk.written(flow, "found").select(RESULT.names))
    mark = watermark(left, right, 4_000_000)
    want = bag(exact(left.drop([PADS[0]]), right.drop([PADS[1]]), how, closed=mark))
    assert live + found == want, (live + found - want, want - live - found)
    assert all(one.results > 0 and one.left_early > 0 for one in done)
    totals = flow.progress()["totals"]
    assert totals["rows_evicted"] > 0
    assert sum(live.values()) < sum(want.values())
    with pytest.raises(PlanError, match="another join"):
        ps.catch_up_streams(desk.spark, archive, **(again | {"within": "21 s"}))


def test_row_windows_count_both_streams_and_exact_says_when_it_cannot(desk):
    left, right = tables(300)
    for side, rows in (("left", left), ("right", right)):
        put(desk, side, rows, 1)
    flow = start(desk, left, right, within=(ps.rows(20), ps.rows(5)))
    columns = [zip(*(column.to_pylist() for column in rows.columns), strict=True) for rows in (left, right)]
    came = [(at, side, key, number) for side, rows in enumerate(columns) for key, at, number in rows if key is not None]
    kept, want = ([], []), Counter()
    for _, side, key, number in sorted(came, key=lambda row: row[:2]):
        met = [n for k, n in kept[1 - side][-(20, 5)[1 - side] :] if k == key]
        want.update((number, n) if side == 0 else (n, number) for n in met)
        kept[side].append((key, number))
    out = desk.written(flow, "results")
    assert Counter(zip(out["v"].to_pylist(), out["w"].to_pylist(), strict=True)) == want
    (desk.folder / "again").mkdir()
    other = Desk(desk.spark, desk.folder / "again")
    wide = left.append_column("pad", pa.array(["x" * 3_000] * 300))
    for side, rows in (("left", wide), ("right", right)):
        put(other, side, rows, 1)
    with pytest.raises(MemoryTooSmall, match="window does not fit"):
        start(other, wide, right, memory="512KB", slots=2)


def test_a_stream_is_joined_with_itself_and_goes_on(desk):
    """What both sides read is one source for Spark: no such query could be started again."""
    left, _ = tables(300)
    for files in (1, 3):
        stream = desk.stream(left.slice(0, files * 100), files)
        other = stream.selectExpr("k", "lt AS rt", "v AS w")
        desk.run(ps.join_streams(stream, other, on="k", within="20 seconds", time=TIMES, memory="8MB"))
    flow = ps.join_streams(stream, other, on="k", within="20 seconds", time=TIMES, memory="8MB")
    right = left.rename_columns(["k", "rt", "w"])
    assert_same_rows(desk.written(flow), exact(left, right), label="itself")
