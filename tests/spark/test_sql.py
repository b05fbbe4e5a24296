"""Queries as text, on Spark: what the papers print gives the rows that DuckDB gives, and queries share their flows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

import penstock as ps
from penstock.spark.pipeline import renamed
from penstock.testing import assert_same_rows
from tests.spark.conftest import FINITE, Desk
from tests.sql.papers import PRINTED

pytestmark = pytest.mark.spark

_START = datetime(2026, 1, 1, tzinfo=UTC)


def moments(draw: np.random.Generator, count: int, minutes: int) -> pa.Array:
    """Ascending times, some of them the same."""
    seconds = np.sort(draw.integers(0, minutes * 60, count))
    return pa.array([_START + timedelta(seconds=int(s)) for s in seconds], pa.timestamp("us", "UTC"))


def sensors(seed: int, count: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    values = pa.array(draw.uniform(0, 60, count).round(1), mask=draw.random(count) < 0.05)
    return pa.table({"LocationId": draw.integers(0, 20, count), "Value": values, "TimeStamp": moments(draw, count, 60)})


def measured(seed: int, count: int, column: str) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "timestamp": moments(draw, count, 5),
            "areaID": draw.integers(0, 4, count),
            column: draw.integers(0, 100, count),
            "b": pa.array(draw.integers(0, 50, count), mask=draw.random(count) < 0.05),
        }
    )


def quotes(count: int) -> pa.Table:
    draw = np.random.default_rng(5)
    close = draw.uniform(10, 20, count).round(2)
    return pa.table(
        {
            "SYMBOL": [f"S{n}" for n in draw.integers(0, 30, count)],
            "sector": draw.choice(["TECH", "BANK"], count),
            "RISK": draw.integers(0, 10, count).astype(float),
            "PER": draw.uniform(1, 30, count).round(1),
            "price": (close * draw.uniform(0.8, 1.1, count)).round(2),
            "vol": draw.integers(1, 1000, count),
            "close": close,
            "at": pa.array([_START + timedelta(seconds=n) for n in range(count)], pa.timestamp("us", "UTC")),
        }
    )


def correlated(one: pa.Array, other: pa.Array) -> pa.Array:
    return pc.less(pc.abs(pc.subtract(one, other)), 0.5)


class World:
    """The streams and tables of the papers, for Spark and for DuckDB."""

    def __init__(self, desk: Desk) -> None:
        draw = np.random.default_rng(11)
        self.rows = {
            "Temperature": sensors(1, 400),
            "Humidity": sensors(2, 400),
            "R": measured(3, 300, "a"),
            "S": measured(4, 300, "c"),
            "STOCK": quotes(300),
            "updates": pa.table({"id": draw.integers(0, 500, 1000), "amount": draw.integers(0, 9, 1000)}),
        }
        self.tables = {
            "stored": pa.table({"id": range(400), "name": [f"n{n}" for n in range(400)]}),
            "PartSupp": pa.table({"suppkey": [1, 2, 3, 1], "partkey": [1, 2, 3, 4]}),
            "Supplier": pa.table({"suppkey": [1, 2, 3], "nationkey": [1, 2, 1], "supplycost": [9.5, 1.0, 7.25]}),
            "Nation": pa.table({"nationkey": [1, 2], "regionkey": [4, 5]}),
            "Region": pa.table({"regionkey": [4, 5], "name": ["MIDDLE EAST", "ASIA"]}),
        }
        times = {"Temperature": "TimeStamp", "Humidity": "TimeStamp", "R": "timestamp", "S": "timestamp"}
        self.streams: dict[str, Any] = {
            name: ps.stream(desk.stream(self.rows[name], files=2, name=name), time=at, lateness="10 minutes")
            for name, at in times.items()
        }
        self.streams["STOCK"] = ps.stream(
            desk.stream(self.rows["STOCK"], files=2, name="STOCK"), time="at", key="SYMBOL"
        )
        # A watermark says the same.
        humidity = desk.stream(self.rows["Humidity"], files=2, name="Humidity")
        self.streams["Humidity"] = humidity.withWatermark("TimeStamp", "10 minutes")
        self.streams["updates"] = desk.stream(self.rows["updates"], files=2, name="updates")
        self.places = {}
        for name, rows in self.tables.items():
            self.places[name] = desk.folder / f"{name}.parquet"
            pq.write_table(rows, self.places[name], row_group_size=50)

    def judge(self, sql: str) -> pa.Table:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for name, rows in (self.rows | self.tables).items():
                connection.register(name, rows)
            return connection.sql(sql).to_arrow_table()


@pytest.fixture(scope="module")
def world(spark, tmp_path_factory) -> World:
    return World(Desk(spark, tmp_path_factory.mktemp("world")))


def read(place: Path, schema: pa.Schema) -> pa.Table:
    files = [str(path) for path in place.glob("*.parquet")]
    return ds.dataset(files, format="parquet").to_table().cast(schema) if files else schema.empty_table()


def near(left: str, right: str, minutes: int) -> str:
    return f"abs(epoch_us({left}) - epoch_us({right})) <= {minutes * 60_000_000}"


#: What DuckDB is asked: the same, with the window as a condition.
JUDGED = {
    "thresholds": "SELECT T.LocationId FROM Temperature T, Humidity H WHERE T.Value > 30 AND H.Value > 40 "
    f"AND T.LocationId = H.LocationId AND {near('T.TimeStamp', 'H.TimeStamp', 1)}",
    "correlated": "SELECT T.LocationId AS t_LocationId, H.LocationId AS h_LocationId FROM Temperature T, Humidity H "
    "WHERE abs(T.Value - H.Value) < 0.5 AND T.LocationId <> H.LocationId "
    f"AND {near('T.TimeStamp', 'H.TimeStamp', 30)}",
    "same_moment": "SELECT R.*, S.* FROM R, S WHERE R.timestamp = S.timestamp AND R.areaID = S.areaID",
    "tech": "SELECT price, vol FROM STOCK WHERE sector = 'TECH' AND per > 2.5 AND price <= 0.95::DOUBLE * close",
    "relaxed": "SELECT * FROM STOCK WHERE 2 <= RISK AND RISK <= 7",
    "band": f"SELECT R.a, S.c FROM R, S WHERE S.b - R.b BETWEEN -1 AND 2 AND {near('R.timestamp', 'S.timestamp', 60)}",
    "select_join": "SELECT R.*, S.* FROM R, S WHERE R.b = S.b AND R.a BETWEEN 10 AND 60 AND S.c BETWEEN 20 AND 70 "
    f"AND {near('R.timestamp', 'S.timestamp', 60)}",
    "mesh": "SELECT u.id AS updates_id, u.amount, s.id AS stored_id, s.name FROM updates u, stored s WHERE u.id = s.id",
    "approximate": "SELECT R.a, S.c FROM R, S WHERE R.b = S.b",
}


#: Texts that run at the same time; each part in as few flows as it needs.
PARTS = [
    ("band", "select_join"),
    ("tech", "relaxed", "range_min"),
    *(
        pytest.param(part, marks=pytest.mark.slow)
        for part in (("thresholds", "correlated"), ("same_moment", "approximate"), ("mesh",))
    ),
]


@pytest.mark.parametrize("part", PARTS, ids=" ".join)
def test_what_the_papers_print_runs_and_is_right(world, tmp_path, part):
    standing = ps.sql(
        {name: PRINTED[name].text for name in part},
        streams=world.streams,
        tables=world.places,
        values={name: value for one in part for name, value in PRINTED[one].values.items()},
        functions={"correlated": (correlated, pa.bool_())},
    )
    out = tmp_path / "out"
    standing.start(results=out, checkpoint=tmp_path / "ck", set_aside=tmp_path / "aside", trigger=FINITE).wait()
    for name in part:
        schema = standing.queries[name].schema
        assert standing.channel(name).columns == schema.names
        got = read(out if len(part) == 1 else out / name, schema)
        if name == "range_min":
            assert_minima(world, got)
            continue
        expected = world.judge(JUDGED[name]).rename_columns(schema.names).cast(schema)
        assert expected.num_rows > 10
        assert_same_rows(got, expected, label=name)


def assert_minima(world: World, got: pa.Table) -> None:
    """After every update that changes it, the least PER of the newest quotes with a risk from 2 to 7."""
    newest: dict[str, tuple[float, float]] = {}
    expected, last = [], None
    for row in world.rows["STOCK"].to_pylist():
        newest[row["SYMBOL"]] = (row["RISK"], row["PER"])
        least = min((per for risk, per in newest.values() if 2 <= risk <= 7), default=None)
        if least != last:
            expected.append((row["at"], least))
        last = least
    ordered = got.sort_by("at")
    assert list(zip(ordered["at"].to_pylist(), ordered["MIN(PER)"].to_pylist(), strict=True)) == expected


@pytest.mark.slow
def test_the_view_of_the_dissertation(world, tmp_path):
    text = f"CREATE VIEW least AS {PRINTED['middle_east'].text} ANSWER WITHIN 12 SECONDS"
    with ps.sql(text, tables=world.places, at=tmp_path / "views") as view:
        assert view.read().frame.toArrow().to_pylist() == [{"MIN(S.supplycost)": 7.25}]
        assert "12 s" in view.explain()


def test_queries_share_flows_and_each_has_its_own_rows(world, tmp_path):
    """Three windows of one join, two selections of one table join, an outer join: three flows, six answers."""
    joined = "SELECT T.Value AS t, H.Value AS h FROM {} WHERE T.LocationId = H.LocationId AND {} WINDOW {}"
    less = "H.Value <= T.Value"
    asked = {
        "fast": (joined.format("Temperature T, Humidity H", "T.Value > 20", "30 SECONDS"), 0.5, "T.Value > 20"),
        "slow": (joined.format("Humidity H, Temperature T", less, "20 MINUTES"), 20, less),
        "also_fast": (joined.format("Temperature T, Humidity H", "T.Value IS NULL", "30 s"), 0.5, "T.Value IS NULL"),
    }
    enriched = "SELECT u.amount, s.name FROM updates u JOIN stored s ON u.id = s.id WHERE {}"
    tables = {"small": enriched.format("amount < 3"), "named": enriched.format("s.name LIKE 'n1%'")}
    outer = (
        "SELECT T.TimeStamp AS t, H.TimeStamp AS h, T.LocationId AS a, H.LocationId AS b "
        "FROM Temperature T FULL JOIN Humidity H ON T.LocationId = H.LocationId AND T.Value > 20"
    )
    standing = ps.sql(
        {name: text for name, (text, *_) in asked.items()} | tables | {"outer": f"{outer} WINDOW 30 SECONDS"},
        streams=world.streams,
        tables=world.places,
    )
    assert sorted(flow.explain().split()[0] for flow in standing.flows) == ["join_shared", "join_streams", "join_table"]
    assert "shares   one join with fast, slow; windows of 30 s, 20 min" in standing.explain()
    out = tmp_path / "out"
    standing.start(results=out, checkpoint=tmp_path / "ck", set_aside=tmp_path / "aside", trigger=FINITE).wait()
    for name, (_, minutes, condition) in asked.items():
        window = f"abs(epoch_us(T.TimeStamp) - epoch_us(H.TimeStamp)) <= {int(minutes * 60_000_000)}"
        expected = world.judge(
            "SELECT T.Value AS t, H.Value AS h FROM Temperature T, Humidity H "
            f"WHERE T.LocationId = H.LocationId AND {condition} AND {window}"
        )
        assert expected.num_rows > 0
        assert_same_rows(read(out / name, expected.schema), expected, label=name)
    for name, text in tables.items():
        expected = world.judge(text)
        assert_same_rows(read(out / name, expected.schema), expected, label=name)
    # Who has no partner is told once the window is over for both: before the last ten minutes, and half a minute.
    expected = world.judge(f"{outer} AND abs(epoch_us(T.TimeStamp) - epoch_us(H.TimeStamp)) <= 30000000")
    ends = [pc.max(world.rows[name]["TimeStamp"]).as_py() for name in ("Temperature", "Humidity")]
    over = pa.scalar(min(ends) - timedelta(minutes=10, seconds=30))
    told = [_settled(rows, over) for rows in (read(out / "outer", expected.schema), expected)]
    assert all(told[1][side].null_count > 10 for side in ("a", "b"))
    assert_same_rows(*told, label="outer")


@pytest.mark.slow
def test_queries_that_share_may_come_and_go_between_runs(spark, tmp_path):
    """Refused were those without the only one that read a column, and one in the place of another that was alone."""
    (tmp_path / "in").mkdir()
    orders = spark.readStream.schema("id long, amount long, note string").parquet(str(tmp_path / "in"))
    pq.write_table(pa.table({"id": range(100), "name": [f"n{n}" for n in range(100)]}), tmp_path / "stored.parquet")
    joined = "SELECT o.id, name FROM o JOIN stored s USING (id) WHERE amount > {}"

    def run(number: int, **texts: str) -> None:
        pq.write_table(
            pa.table({"id": [number], "amount": [number], "note": ["x"]}), tmp_path / "in" / f"{number}.parquet"
        )
        standing = ps.sql(texts, streams={"o": orders}, tables={"stored": tmp_path / "stored.parquet"})
        standing.start(
            results=tmp_path / "out", checkpoint=tmp_path / "ck", set_aside=tmp_path / "aside", trigger=FINITE
        ).wait()

    def values(name: str, column: str) -> list:
        files = [str(path) for path in (tmp_path / "out" / name).glob("*.parquet")]
        return sorted(ds.dataset(files, format="parquet").to_table(columns=[column])[column].to_pylist())

    run(1, noted="SELECT id, note FROM o", all="SELECT id FROM o", one=joined.format(0))
    run(2, all="SELECT id FROM o", other=joined.format(1))
    run(3, all="SELECT id FROM o", one=joined.format(2), kept="SELECT note FROM o")
    assert (values("noted", "id"), values("all", "id"), values("kept", "note")) == ([1], [1, 2, 3], ["x"])
    assert (values("one", "name"), values("other", "name")) == (["n1", "n3"], ["n2"])


def _settled(rows: pa.Table, over: pa.Scalar) -> pa.Table:
    """Pairs, and rows without partner from before a moment."""
    paired = pc.and_(pc.is_valid(rows["a"]), pc.is_valid(rows["b"]))
    return rows.filter(pc.or_(paired, pc.less(pc.coalesce(rows["t"], rows["h"]), over)))


def test_the_same_tree_is_the_same_for_spark_and_for_arrow(spark):
    """Random expressions, eighty of them in one job: NULL, NaN, division by zero, texts, dates."""
    from penstock.spark.queries import chosen
    from penstock.sql.answers import answer_of
    from penstock.sql.catalogue import Catalogue
    from penstock.sql.parse import parse
    from tests.sql.expressions import SCHEMA, Writer, rows
    from tests.sql.test_rows import same

    given = rows(40, 3)
    columns = ", ".join(f"{Writer(seed + 500).any(3)} AS c{seed}" for seed in range(80))
    query = parse(f"SELECT {columns} FROM r WHERE p OR q OR i > 1", Catalogue.of({"r": SCHEMA}))
    frame = spark.createDataFrame(given)
    theirs = chosen(frame, query.filter, query.columns, query.schema).toArrow()
    [batch] = given.combine_chunks().to_batches()
    ours = answer_of(query)(batch)
    assert theirs.schema.types == ours.schema.types
    assert theirs.num_rows == ours.num_rows > 10
    for name in ours.schema.names:
        for one, other in zip(ours[name].to_pylist(), theirs[name].to_pylist(), strict=True):
            assert same(one, other), (dict(query.columns)[name], one, other)


def test_old_dates_and_moments_are_those_that_are_written(spark):
    """Spark was given them as Java's, which are of another calendar before 1582, and has none of some years."""
    from penstock.spark.queries import chosen
    from penstock.sql.answers import answer_of
    from penstock.sql.catalogue import Catalogue
    from penstock.sql.parse import parse

    days = [date(1, 1, 1), date(999, 12, 31), date(1500, 3, 1), date(1582, 10, 10), date(9999, 12, 31)]
    moments = [datetime(day.year, day.month, day.day, tzinfo=UTC) for day in days]
    given = pa.record_batch({"d": days, "m": pa.array(moments, pa.timestamp("us", "UTC"))})
    asked = [f"d = DATE '{day.isoformat()}'" for day in days]
    asked += [f"m = TIMESTAMP '{moment.isoformat()}'" for moment in moments]
    asked += [f"d IN (DATE '{days[0].isoformat()}', DATE '{days[3].isoformat()}')"]
    columns = ", ".join(f"{one} AS c{n}" for n, one in enumerate(asked))
    query = parse(f"SELECT {columns} FROM r", Catalogue.of({"r": given.schema}))
    theirs = chosen(spark.createDataFrame(pa.Table.from_batches([given])), None, query.columns, query.schema)
    ours = answer_of(query)(given).to_pylist()
    assert theirs.toArrow().to_pylist() == ours
    assert [sum(row.values()) for row in ours] == [3, 2, 2, 3, 2]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("session.timeZone", "America/New_York"), ("ansi.enabled", "false"), ("ansi.enabled", "true")],
)
def test_a_selection_is_the_same_in_any_session(world, tmp_path, setting, value):
    """Read as a DataFrame it had the days of the session's time zone, and sums that were too large came back small."""
    text = "SELECT SYMBOL, CAST(q.at AS DATE) AS day, EXTRACT(YEAR FROM q.at) AS year FROM STOCK q"
    spark, name = world.streams["STOCK"].frame.sparkSession, f"spark.sql.{setting}"
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        standing = ps.sql(
            {"days": text, "sums": "SELECT vol + 9223372036854775807 AS n FROM STOCK"}, streams=world.streams
        )
        days, sums = (
            standing.channel(one).writeStream.format("memory").queryName(f"{one}_{value.replace('/', '_')}")
            .trigger(availableNow=True).option("checkpointLocation", str(tmp_path / one)).start()
            for one in ("days", "sums")
        )  # fmt: skip
        days.awaitTermination()
        with pytest.raises(StreamingQueryException, match="overflow"):
            sums.awaitTermination()
        got = spark.table(days.name).toArrow()
    finally:
        spark.conf.set(name, before)
    expected = world.judge(text)
    assert_same_rows(got, expected.cast(got.schema), label="days")


def test_a_selection_is_sparks_own_and_a_text_can_be_explained(world, tmp_path):
    text = "SELECT SYMBOL, price * vol AS turnover FROM STOCK WHERE sector = 'BANK'"
    standing = ps.sql(text, streams=world.streams)
    writer = standing.results.writeStream.format("memory").queryName("turnover").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()
    got = standing.results.sparkSession.table("turnover").toArrow()
    assert_same_rows(got, world.judge(text).cast(got.schema), label="turnover")
    assert "shape    selection: rows of STOCK" in ps.sql(f"EXPLAIN {text}", streams=world.streams)


def test_a_condition_that_is_null_lets_no_row_through(world, tmp_path):
    """Read as a DataFrame the query failed in Spark, for which NULL is no boolean."""
    standing = ps.sql("SELECT SYMBOL FROM STOCK WHERE wanted", streams=world.streams, values={"wanted": None})
    writer = standing.results.writeStream.format("memory").queryName("nothing").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "ck")).start().awaitTermination()
    assert standing.results.sparkSession.table("nothing").count() == 0


@pytest.mark.slow
def test_a_view_of_a_stream_and_a_table(world, tmp_path):
    select = "SELECT name, SUM(amount) AS total FROM updates u JOIN stored s ON u.id = s.id GROUP BY name"
    with ps.sql(
        f"CREATE VIEW named AS {select}", streams=world.streams, tables=world.places, at=tmp_path / "views"
    ) as view:
        view.take_in()
        got = view.read().frame.toArrow()
    expected = world.judge(select).cast(got.schema)
    assert_same_rows(got, expected, label="named")


def test_streams_of_a_pipeline_may_have_columns_of_any_name(spark):
    rows = spark.createDataFrame([(1, 2)], "`a.b ``c``` int, k int")
    assert renamed(rows, {"a.b `c`": "x"}).collect() == [(1,)]
