"""`join_table` on Spark equals DuckDB's join as a bag: key kinds, types, cuts, slots, budgets, divisions, sinks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as fn

import penstock as ps
from penstock.errors import PlanError
from tests.spark.conftest import FINITE, Desk, assert_is_join, eventually, sampled

pytestmark = pytest.mark.spark

_DAY = date(2026, 1, 1)
_MOMENT = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
#: Key columns as (type in the stream, type in the table, distinct values).
KINDS: dict[str, list[tuple[pa.DataType, pa.DataType, list]]] = {
    "integer": [(pa.int32(), pa.int64(), [*range(-200, 200), 2**31 - 1, -(2**31)])],
    "long": [(pa.int64(), pa.int16(), list(range(-300, 300)))],
    "string": [(pa.string(), pa.string(), ["", "a", "a\0", "ä", "a\u0308", "long " * 60, *map(str, range(300))])],
    "binary": [(pa.binary(), pa.binary(), [b"", b"\0", b"\xff\xfe", *(bytes([i, 0]) for i in range(200))])],
    "date": [
        (pa.date32(), pa.date32(), [date(1, 1, 1), date(9999, 12, 31), *(_DAY + timedelta(n) for n in range(300))])
    ],
    "timestamp": [
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), [_MOMENT + timedelta(minutes=7 * n) for n in range(300)])
    ],
    "decimal": [(pa.decimal128(12, 2), pa.decimal128(18, 2), [Decimal(n) / 100 for n in range(-200, 200)])],
    "boolean and date": [
        (pa.bool_(), pa.bool_(), [True, False]),
        (pa.date32(), pa.date32(), [_DAY + timedelta(n) for n in range(100)]),
    ],
    "three columns": [
        (pa.int8(), pa.int32(), list(range(-5, 5))),
        (pa.string(), pa.string(), ["", "1", "11", "a"]),
        (pa.timestamp("us"), pa.timestamp("us"), [datetime(2026, 1, 1 + n) for n in range(9)]),  # noqa: DTZ001
    ],
    "double": [(pa.float64(), pa.float64(), [0.0, -0.0, float("inf"), 1e-300, *(n / 7 for n in range(300))])],
}


@dataclass(frozen=True)
class Join:
    """One run."""

    kind: str
    sink: str = "start"
    slots: int | None = None
    memory: str = "64MB"
    files: int = 3
    prepared: bool = False
    division: str | None = None
    pages_per_step: int | None = None
    nulls: float = 0.1

    def __str__(self) -> str:
        how = "prepared" if self.prepared else "parquet"
        return f"{self.kind}-{how}-{self.division or 'any'}-{self.slots or 'default'}slots-{self.sink}"


JOINS = [
    Join("integer"),
    Join("integer", prepared=True, slots=4, pages_per_step=1, files=5),
    Join("long", slots=3, sink="parquet", pages_per_step=2, files=4),
    Join("string", prepared=True, slots=1, sink="memory"),
    Join("string", slots=4, memory="16MB"),
    Join("binary", prepared=True, slots=2, nulls=0.5, sink="parquet"),
    Join("date", prepared=True, division="pages", slots=3, sink="foreachBatch"),
    Join("timestamp", slots=1, files=6, pages_per_step=1),
    Join("decimal", prepared=True, division="key", slots=3),
    Join("boolean and date", slots=2, sink="memory", files=1),
    Join("three columns", prepared=True, slots=2, nulls=0.2, files=2),
    Join("double", slots=2, division="pages", files=2),
    Join("string", prepared=True, division="input", slots=3, sink="foreachBatch"),
    Join("three columns", division="input", slots=1, nulls=0.2, files=2),
    Join("integer", prepared=True, sink="parquet", files=5),
]


@pytest.mark.parametrize("how", sampled(JOINS), ids=str)
def test_results_are_those_of_the_join(desk: Desk, how: Join):
    seed = JOINS.index(how)
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    columns = KINDS[how.kind]
    on, key = [f"k{n}" for n in range(len(columns))], [f"key{n}" for n in range(len(columns))]
    rows = keyed(rng, 1_500, key, [(theirs, pool) for _, theirs, pool in columns], how.nulls)
    rows = rows.append_column("note", pa.array([None if n % 5 == 0 else f"note {n}" for n in range(1_500)]))
    stream = keyed(rng, 1_000, on, [(ours, pool) for ours, _, pool in columns], how.nulls)
    stream = stream.add_column(0, "id", pa.array(np.arange(1_000)))
    flow = ps.join_table(
        desk.stream(stream, how.files),
        desk.table(rows, key, prepared=how.prepared),
        on=on,
        memory=how.memory,
        slots=how.slots,
        division=how.division,
        pages_per_step=how.pages_per_step,
    )
    got = desk.run(flow, how.sink)
    assert got.num_rows > 1_000, "keys repeat on both sides, so there are more results than rows"
    assert_is_join(got, stream, rows, on, key)


def keyed(
    rng: np.random.Generator, count: int, names: list[str], columns: list[tuple[pa.DataType, list]], nulls: float
) -> pa.Table:
    """Rows with keys drawn from pools, some NULL in one of their columns, numbered."""
    drawn = [rng.integers(0, len(pool), count) for _, pool in columns]
    arrays = []
    for (type_, pool), places in zip(columns, drawn, strict=True):
        missing = rng.random(count) < nulls / len(columns)
        arrays.append(pa.array([None if gone else pool[at] for gone, at in zip(missing, places, strict=True)], type_))
    return pa.table(arrays, names=names)


NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("price", pa.decimal128(38, 10)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int8()), ("names", pa.list_(pa.string()))])),
        ("flag", pa.bool_()),
        ("real", pa.float32()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
    ]
)


@pytest.mark.parametrize("prepared", [False, True])
def test_columns_of_every_type_arrive_as_they_were(desk: Desk, prepared: bool):
    rng = np.random.default_rng(77)
    stream, table = nested(rng, 300), nested(rng, 400)
    # Names that Spark takes for something else, and one that marks bad records only beside their text.
    odd = {"id": "a.b `c`", "k": "k.e y", "tags": "_source_file", "raw": "blob", "flag": "slot"}
    stream = stream.rename_columns([odd.get(name, name) for name in stream.column_names])
    rows = table.rename_columns(["number", "k", *(f"their_{name}" for name in NESTED.names[2:])])
    flow = ps.join_table(
        desk.stream(stream), desk.table(rows, "k", prepared=prepared), on="k.e y", memory="32MB", pages_per_step=1
    )
    got = desk.run(flow)
    assert got.num_rows > 500
    assert_is_join(got, stream, rows, ["k.e y"], ["k"])


def nested(rng: np.random.Generator, count: int) -> pa.Table:
    def some(value):
        return lambda n: None if rng.random() < 0.2 else value(n)

    def place(n):
        return {"x": n % 100, "names": [None, "ä" * (n % 7)]}

    makers = {
        "id": lambda n: n,
        "k": some(lambda n: int(rng.integers(0, 100))),
        "price": some(lambda n: Decimal(n).scaleb(-10) - Decimal(10**27)),
        "tags": some(lambda n: [f"tag {i}" for i in range(n % 4)]),
        "place": some(place),
        "flag": some(lambda n: n % 3 == 0),
        "real": some(lambda n: float(np.float32(n / 3))),
        "raw": some(lambda n: bytes(n % 9)),
        "at": some(lambda n: _MOMENT + timedelta(microseconds=n)),
        "local": some(lambda n: datetime(1, 1, 1) + timedelta(microseconds=n)),  # noqa: DTZ001
    }
    return pa.table({name: [make(n) for n in range(count)] for name, make in makers.items()}, schema=NESTED)


def test_a_join_divided_by_input_keeps_no_state_and_other_flows_may_follow_it(desk: Desk):
    """Its results may be aggregated by event time, or joined once more: it has no watermark of its own."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = pa.array([start + timedelta(seconds=n) for n in range(600)], pa.timestamp("us", "UTC"))
    stream = pa.table({"id": range(600), "k": [n % 130 for n in range(600)], "at": at})
    rows = pa.table({"k": range(100), "n": [n % 7 for n in range(100)]})
    seven = pa.table({"n": range(7), "name": [f"name {n}" for n in range(7)]})
    (desk.folder / "other").mkdir()
    over = Desk(desk.spark, desk.folder / "other").table(seven, "n", prepared=True)
    one = ps.join_table(desk.stream(stream), desk.table(rows, "k", prepared=True), on="k", memory="64MB")
    two = ps.join_table(one.results, over, on="n", memory="64MB")
    minutes = two.results.withWatermark("at", "1 second").groupBy(fn.window("at", "1 minute"), "name").count()
    counts = minutes.select(fn.col("window.start").alias("start"), "name", "count")
    desk.spark.conf.set("spark.sql.session.timeZone", "UTC")
    writer = counts.writeStream.format("memory").queryName("minutes").outputMode("complete").trigger(**FINITE)
    writer.option("checkpointLocation", str(desk.folder / "minutes-ck")).start().awaitTermination()
    want = Counter((start + timedelta(minutes=n // 60), f"name {n % 130 % 7}") for n in range(600) if n % 130 < 100)
    got = {(row.start.replace(tzinfo=UTC), row.name): row["count"] for row in desk.spark.table("minutes").collect()}
    assert got == want
    assert eventually(lambda: one.progress()["totals"]["rows_out"] == two.progress()["totals"]["rows_in"] == 480)
    assert desk.run(two).num_rows == 480
    assert not (desk.folder / "out-checkpoint" / "state").exists()


def test_a_join_divided_by_input_may_follow_what_works_by_a_watermark(desk: Desk):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = pa.array([start + timedelta(seconds=n // 2) for n in range(600)], pa.timestamp("us", "UTC"))
    twice = pa.table({"id": [n // 2 for n in range(600)], "k": [n // 2 % 130 for n in range(600)], "at": at})
    rows = pa.table({"k": range(100), "n": range(100)})
    once = desk.stream(twice).withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["id"])
    over = desk.table(rows, "k", prepared=True)
    flow = ps.join_table(once, over, on="k", memory="64MB")
    assert_is_join(desk.run(flow), twice.filter([n % 2 == 0 for n in range(600)]), rows, ["k"], ["k"])
    with pytest.raises(PlanError, match="a stateful operator"):
        ps.join_table(once, over, on="k", memory="64MB", division="key")


def test_a_join_divided_by_input_starts_again_with_other_slots_and_terms(desk: Desk):
    stream = pa.table({"id": range(900), "k": [n % 150 for n in range(900)]})
    rows = pa.table({"k": range(100), "n": range(100)})
    over = desk.table(rows, "k", prepared=True)
    got = []
    for name, part, options in (("first", stream.slice(0, 400), {}), ("second", stream.slice(400), {"slots": 1})):
        frame = desk.stream(part, files=2, name="stream")
        for number, path in enumerate(sorted((desk.folder / "stream").glob("00?.parquet"))):
            path.rename(path.with_name(f"{name}-{number}.parquet"))
        flow = ps.join_table(frame, over, on="k", memory="64MB" if options else "96MB", **options)
        assert "divided by input" in flow.explain()
        got.append(desk.run(flow).num_rows)
        assert eventually(lambda flow=flow, part=part: flow.progress()["totals"]["rows_in"] == part.num_rows)
    assert_is_join(desk.written(flow), stream, rows, ["k"], ["k"])
    assert got[0] < got[1], "the second run added to what was there"


def test_an_empty_stream_gives_nothing_and_ends(desk: Desk):
    stream = pa.table({"id": pa.array([], pa.int64()), "k": pa.array([], pa.int64())})
    rows = pa.table({"k": range(100), "n": range(100)})
    flow = ps.join_table(desk.stream(stream), desk.table(rows, "k"), on="k", memory="16MB")
    assert desk.run(flow).num_rows == 0


@pytest.mark.parametrize("prepared", [False, True])
def test_an_empty_table_gives_nothing_and_ends(desk: Desk, prepared: bool):
    stream = pa.table({"id": range(500), "k": range(500)})
    rows = pa.table({"k": pa.array([], pa.int64()), "n": pa.array([], pa.int64())})
    flow = ps.join_table(desk.stream(stream), desk.table(rows, "k", prepared=prepared), on="k", memory="16MB")
    assert desk.run(flow).num_rows == 0
    assert eventually(lambda: sum(b["rows_in"] for b in flow.history()) == 500)
