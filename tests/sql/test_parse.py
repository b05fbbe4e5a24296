"""What a text means, where a fault in it stands, and what no text can reach."""

from __future__ import annotations

import math
import pickle
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import BadOption, BadQuery, BadSQL, PlanError, UnknownTable
from penstock.kernels.window.windows import RowWindow, TimeWindow
from penstock.plan.views.expressions import Call, Column, Literal
from penstock.plan.views.query import analyse
from penstock.sql.catalogue import Catalogue, Function, Relation, Stream
from penstock.sql.parse import Query, parse
from penstock.sql.shapes import BandJoin, Range, RangeAggregate, Selection, SelectJoin, TableJoin, View, WindowJoin
from tests.sql.papers import PRINTED

_AT = pa.timestamp("us", "UTC")
_SENSOR = pa.schema([("LocationId", pa.int64()), ("Value", pa.float64()), ("TimeStamp", _AT)])
_STOCK = pa.schema(
    [("SYMBOL", pa.string()), ("sector", pa.string()), ("RISK", pa.float64()), ("PER", pa.float64()),
     ("price", pa.float64()), ("vol", pa.int64()), ("close", pa.float64()), ("at", _AT), ("day", pa.date32())]
)  # fmt: skip
KNOWN = Catalogue.of(
    {
        "Temperature": Stream.of("Temperature", _SENSOR, event_time="TimeStamp"),
        "Humidity": Stream.of("Humidity", _SENSOR, event_time="TimeStamp"),
        "STOCK": Stream.of("STOCK", _STOCK, event_time="at", key="SYMBOL"),
        "R": Stream.of(
            "R", pa.schema([("timestamp", _AT), ("areaID", pa.int64()), ("a", pa.int64()), ("b", pa.int64())]),
            event_time="timestamp",
        ),
        "S": Stream.of(
            "S", pa.schema([("timestamp", _AT), ("areaID", pa.int64()), ("c", pa.int64()), ("b", pa.int64())]),
            event_time="timestamp",
        ),
        "updates": pa.schema([("id", pa.int64()), ("amount", pa.int64())]),
    },
    {
        "stored": Relation("stored", pa.schema([("id", pa.int64()), ("name", pa.string())]), ("id",), "stored/"),
        "PartSupp": Relation("PartSupp", pa.schema([("suppkey", pa.int64())]), path="ps/"),
        "Supplier": Relation(
            "Supplier", pa.schema([("suppkey", pa.int64()), ("nationkey", pa.int64()), ("supplycost", pa.float64())])
        ),
        "Nation": Relation("Nation", pa.schema([("nationkey", pa.int64()), ("regionkey", pa.int64())])),
        "Region": Relation("Region", pa.schema([("regionkey", pa.int64()), ("name", pa.string())])),
    },
    {"correlated": Function("correlated", lambda one, other: one, pa.bool_())},
    archives="/archives",
)  # fmt: skip


def read(text: str, **values: object) -> Query:
    return parse(text, KNOWN, values)


@pytest.mark.parametrize("name", PRINTED)
def test_what_the_papers_print_has_the_shape_that_they_mean(name):
    one = PRINTED[name]
    assert read(one.text, **one.values).shape.kind == one.kind


def test_thresholds_are_a_filter_above_a_join_that_others_can_share():
    query = read(PRINTED["thresholds"].text, Thresholdt=30, Thresholdh=40.0)
    assert query.shape == WindowJoin(
        "Humidity", "Temperature", (("LocationId", "LocationId"),), TimeWindow(60_000_000, 60_000_000)
    )
    assert query.columns == (("LocationId", Column(1, "LocationId")),)
    assert isinstance(query.filter, Call)
    assert query.filter.arguments == (
        Call("greater", (Column(1, "Value"), Literal(30, "number"))),
        Call("greater", (Column(0, "Value"), Literal(40.0, "floating number"))),
    )


def test_rows_of_the_same_moment_need_no_window():
    shape = read(PRINTED["same_moment"].text).shape
    assert isinstance(shape, WindowJoin)
    assert shape.window == TimeWindow(1, 1)
    assert shape.on == (("areaID", "areaID"), ("timestamp", "timestamp"))


@pytest.mark.parametrize(
    ("condition", "band"),
    [
        ("S.b - R.b BETWEEN -1 AND 2", (-1, 2)),
        ("R.b - S.b BETWEEN -1 AND 2", (-2, 1)),
        ("S.b >= R.b - 1 AND R.b + 2 >= S.b", (-1, 2)),
        ("ABS(R.b - S.b) <= 3", (-3, 3)),
        ("S.b <= R.b + 4", (float("-inf"), 4)),
        ("-(R.b - S.b) <= 4 AND S.b - 1 >= R.b", (1, 4)),
    ],
)
def test_many_ways_to_write_a_band(condition, band):
    shape = read(f"SELECT a, c FROM R, S WHERE {condition} WINDOW 1 HOUR").shape
    assert isinstance(shape, BandJoin)
    assert (shape.columns, shape.band) == (("b", "b"), band)


@pytest.mark.parametrize(
    ("condition", "shape"),
    [
        # 8 + 0.2 is 8.2, and 8.2 - 0.2 is below 8.
        ("S.b - R.b + 0.2 <= 8.2 AND S.b >= R.b", BandJoin),
        ("R.b = S.b AND R.a + 0.2 <= 8.2 AND R.a >= 0 AND S.c BETWEEN 1 AND 2", WindowJoin),
        # What is taken away again may be NULL.
        ("R.b = S.b AND R.a - R.a + R.areaID BETWEEN 1 AND 2 AND S.c BETWEEN 1 AND 2", WindowJoin),
        ("S.b - R.b + R.a - R.a BETWEEN 1 AND 2", WindowJoin),
    ],
)
def test_what_a_range_does_not_say_exactly_stays_a_condition(condition, shape):
    query = read(f"SELECT R.a, S.c FROM R, S WHERE {condition} WINDOW 1 HOUR")
    assert isinstance(query.shape, shape)
    left = query.filter or query.shape.where
    assert isinstance(left, Call)
    parts = left.arguments if left.function == "and" else (left,)
    assert len(parts) >= 2
    assert not isinstance(query.shape, BandJoin) or query.shape.band[1] > 8


def test_a_key_and_one_comparison_is_a_filter_and_a_key_and_a_band_are_both():
    text = "SELECT a FROM R, S WHERE R.areaID = S.areaID AND {} WINDOW 1 HOUR"
    assert isinstance(read(text.format("R.b <= S.b")).shape, WindowJoin)
    both = read(text.format("R.b BETWEEN S.b - 2 AND S.b")).shape
    assert isinstance(both, BandJoin)
    assert (both.on, both.band) == ((("areaID", "areaID"),), (0, 2))


def test_a_comparison_of_floating_numbers_is_no_band_without_its_other_end():
    """NaN is above all numbers, and infinite values below and above them: an index of differences has none of them."""
    text = "SELECT t.Value FROM Temperature t, Humidity h WHERE {} WINDOW 1 HOUR"
    assert isinstance(read(text.format("t.Value <= h.Value")).shape, WindowJoin)
    assert isinstance(read(text.format("ABS(t.Value - h.Value) <= 2")).shape, BandJoin)


def test_a_range_on_each_side_makes_a_select_join_and_one_with_one_end_does_not():
    text = "SELECT a, c FROM S, R WHERE R.b = S.b AND R.a BETWEEN 1 AND 9 AND {} WINDOW 1 HOUR"
    shape = read(text.format("S.c >= 3 AND S.c < 7 AND S.c IN (3, 4)")).shape
    assert isinstance(shape, SelectJoin)
    assert shape.ranges == ((Range("a", 1.0, 9.0),), (Range("c", 3.0, 7.0),))
    assert isinstance(read(text.format("S.c >= 3")).shape, WindowJoin)
    assert isinstance(read(text.format("S.c BETWEEN 3 AND 7").replace("1 HOUR", "500 ROWS")).shape, WindowJoin)


def test_ends_that_are_not_included_stay_in_the_filter():
    query = read("SELECT a FROM R, S WHERE R.b = S.b AND 1 < a AND a < 9 AND c BETWEEN 1 AND 2 WINDOW 1 HOUR")
    assert isinstance(query.filter, Call)
    assert [part.function for part in query.filter.arguments] == ["less", "less"]


@pytest.mark.parametrize(
    ("where", "low", "high"),
    [
        ("2 <= RISK AND RISK <= 7", 2.0, 7.0),
        ("RISK > 2", 2.0000000000000004, None),
        ("day >= DATE '2026-01-02' AND day < DATE '2026-02-01'", date(2026, 1, 2), date(2026, 1, 31)),
        ("at <= TIMESTAMP '2026-01-01T00:00:00'", None, datetime(2026, 1, 1, tzinfo=UTC)),
        ("vol > 2.5 AND vol < 10", 3, 9),
    ],
)
def test_ranges_of_aggregates(where, low, high):
    shape = read(f"SELECT MAX(PER) FROM STOCK WHERE {where} AND sector = 'TECH'").shape
    assert isinstance(shape, RangeAggregate)
    assert (shape.function, shape.x.low, shape.x.high) == ("max", low, high)
    assert shape.partition == (("sector", "TECH"),)


def test_a_range_of_decimals_ends_where_it_is_written():
    schema = pa.schema([("id", pa.int64()), ("m", pa.decimal128(18, 2)), ("at", pa.int64())])
    catalogue = Catalogue.of({"t": Stream.of("t", schema, key="id", order="at")})
    shape = parse("SELECT COUNT(*) FROM t WHERE m > 0.1 AND m <= 1234567890123456.78", catalogue).shape
    assert isinstance(shape, RangeAggregate)
    assert (shape.x.low, shape.x.high) == (Decimal("0.11"), Decimal("1234567890123456.78"))


@pytest.mark.parametrize("column", ["RISK", "vol"])
def test_a_range_does_not_end_at_nan(column):
    """Nothing was ever told of it, though NaN is above all numbers."""
    with pytest.raises(BadSQL, match="has no end nan"):
        read(f"SELECT MIN(PER) FROM STOCK WHERE {column} <= most", most=float("nan"))


@pytest.mark.parametrize("end", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("condition", "band"),
    [("S.b - R.b BETWEEN -1 AND 2 AND S.b - R.b >= most", (-1, 2)), ("S.b - R.b BETWEEN 0 AND most", (0, math.inf))],
)
def test_where_a_band_ends_beyond_all_numbers_rows_decide(condition, band, end):
    """NaN was lost from the first, and the second refused with words about a table of queries."""
    query = read(f"SELECT a, c FROM S, R WHERE {condition} WINDOW 1 HOUR", most=end)
    assert isinstance(query.shape, BandJoin)
    assert query.shape.band == band
    assert isinstance(query.filter, Call)
    assert query.filter.arguments[1].value is end
    alone = read("SELECT a, c FROM S, R WHERE S.b - R.b >= most WINDOW 1 HOUR", most=end)
    assert isinstance(alone.shape, WindowJoin)


@pytest.mark.parametrize("alias", ["at", '"At"'])
def test_an_aggregate_is_not_called_as_the_order_that_comes_with_it(alias):
    """That ended in an assertion."""
    with pytest.raises(BadSQL, match="Two columns would be called"):
        read(f"SELECT MAX(PER) AS {alias} FROM STOCK WHERE RISK < 3")


@pytest.mark.parametrize(
    "where",
    [
        "day < DATE '0001-01-01'",
        "at > TIMESTAMP '9999-12-31T23:59:59.999999'",
        "vol < 1e300",
        "vol > 9223372036854775807",
    ],
)
def test_a_range_has_no_end_beyond_its_type(where):
    with pytest.raises(BadSQL, match="has no end"):
        read(f"SELECT MAX(PER) FROM STOCK WHERE {where}")


def test_clauses_at_the_end():
    query = read("SELECT a FROM R, S WHERE R.b = S.b WINDOW 500 ROWS MEMORY 64 MB SHED PROB ARCHIVE 'x/y'")
    assert isinstance(query.shape, WindowJoin)
    assert query.memory == 64 << 20
    assert query.shape.window == RowWindow(500, 500)
    assert (query.shape.shed, query.shape.archive) == ("prob", "/archives/x/y")
    shape = read("SELECT * FROM updates JOIN stored USING (id) SHED TOPW AFTER 5 SECONDS ARCHIVE 'z'").shape
    assert shape == TableJoin("updates", "stored", (("id", "id"),), "inner", "topw", "/archives/z", 5_000_000)


def test_words_of_clauses_may_be_names_elsewhere():
    schema = pa.schema([("memory", pa.int64()), ("shed", pa.string()), ("archive", pa.int64())])
    query = parse("SELECT memory, shed FROM t archive WHERE archive.memory = 64 AND shed = 'WINDOW 5'",
                  Catalogue.of({"t": schema}))  # fmt: skip
    assert query.schema.names == ["memory", "shed"]
    for text in ("SELECT 'a' || shed FROM t", "SELECT 'a' || shed AS x FROM t WHERE 'b' > shed AND memory > 1"):
        assert isinstance(parse(text, Catalogue.of({"t": schema})).shape, Selection)


def test_a_view_and_what_it_promises():
    text = f"EXPLAIN CREATE VIEW least AS {PRINTED['middle_east'].text} ANSWER WITHIN 12 SECONDS"
    query = read(text)
    assert query.explain
    assert isinstance(query.shape, View)
    assert (query.shape.name, query.shape.answer_within) == ("least", 12_000_000)
    assert query.shape.tables == ("PartSupp", "Supplier", "Nation", "Region")
    least = read("SELECT MIN(supplycost) FROM Supplier WHERE nationkey = nation", nation=7).shape
    assert isinstance(least, View)
    assert least.select == "SELECT MIN(supplycost) FROM Supplier WHERE nationkey = 7"


@pytest.mark.parametrize(
    ("value", "column", "literal"),
    [
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "at", Literal(datetime(2026, 1, 2, 3, tzinfo=UTC), "timestamp")),
        (datetime(926, 1, 2, 3, 4, 5, 6, UTC), "at", Literal(datetime(926, 1, 2, 3, 4, 5, 6, UTC), "timestamp")),
        (date(926, 1, 2), "day", Literal(date(926, 1, 2), "date")),
        (Decimal("-1e30"), "x", Literal(Decimal(-(10**30)), "decimal")),
        (Decimal("-0." + "7" * 38), "x", Literal(Decimal("-0." + "7" * 38), "decimal")),
        (-1e-300, "x", Literal(-1e-300, "floating number")),
        (-5, "x", Literal(-5, "number")),
        ("O'Neil -- */", "s", Literal("O'Neil -- */", "text")),
        (False, "b", Literal(False, "boolean")),
    ],
)
def test_a_view_has_the_constants_that_are_given(value, column, literal):
    schema = pa.schema(
        [
            ("k", pa.int64()),
            ("at", _AT),
            ("day", pa.date32()),
            ("x", pa.float64()),
            ("s", pa.string()),
            ("b", pa.bool_()),
        ]
    )
    catalogue = Catalogue({}, {"t": Relation("t", schema)})
    shape = parse(f"SELECT k FROM t WHERE {column} = told", catalogue, {"told": value}).shape
    assert isinstance(shape, View)
    assert analyse(shape.select, {"t": schema}).filters == (Call("equal", (Column(0, column), literal)),)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Decimal("-Infinity")])
def test_a_constant_that_a_view_cannot_have_is_refused(value):
    """NaN was NULL there, and inf a column."""
    with pytest.raises(BadSQL, match="a view has no such constant"):
        read("SELECT MIN(supplycost) FROM Supplier WHERE supplycost < most", most=value)


def test_columns_of_a_view_are_called_as_they_are_written():
    shape = read("SELECT nationkey, SUM(supplycost * rate) FROM Supplier GROUP BY nationkey", rate=2).shape
    assert isinstance(shape, View)
    assert shape.select.startswith('SELECT nationkey, SUM(supplycost * 2) AS "SUM(supplycost * rate)" FROM')


@pytest.mark.parametrize(
    "name", ["near", "levenshtein", "contains", "sqrt", "log", "left", "trim", "position", "Round"]
)
def test_a_registered_function_may_be_called_as_one_of_another_sql(name):
    """Of those that sqlglot knows none could be called."""
    function = Function(name, lambda *given: given[0], pa.float64())
    catalogue = Catalogue.of({"t": pa.schema([("x", pa.float64())])}, functions={name: function})
    called = Call("registered", (Column(0, "x"), Literal("a", "text")), name)
    assert parse(f"SELECT {name.upper()}(x, 'a') AS y, CAST(x AS INT) FROM t", catalogue).columns[0] == ("y", called)


def test_columns_of_one_name_are_called_after_their_tables():
    query = read("SELECT * FROM R, S WHERE R.b = S.b WINDOW 1 HOUR")
    assert query.schema.names == [
        "r_timestamp", "r_areaID", "a", "r_b", "s_timestamp", "s_areaID", "c", "s_b",
    ]  # fmt: skip


def test_what_has_no_name_is_called_as_it_is_written():
    """A count was called `*`, and what begins with a constant as that."""
    asked = "SELECT 5 + vol, 5 * vol, 'a' || sector, vol, STOCK.vol AS v FROM STOCK"
    assert read(asked).schema.names == ["5 + vol", "5 * vol", "'a' || sector", "vol", "v"]
    assert read("SELECT COUNT(*) FROM STOCK WHERE RISK < 3").schema.names == ["at", "COUNT(*)"]


def test_a_column_wins_over_a_constant_of_its_name():
    assert read("SELECT vol FROM STOCK WHERE vol > price", price=1).filter == Call(
        "greater", (Column(0, "vol"), Column(0, "price"))
    )


#: Texts, the place that the error shows (the text under the caret), and what it says.
FAULTS = [
    ("SELECT T.Valu FROM Temperature T", "T.Valu", "Did you mean 'Value'"),
    ("SELECT Value\nFROM Temperatur", "Temperatur", "Did you mean 'Temperature'"),
    ("SELECT Value + sector FROM STOCK, R", "Value", "no column 'Value'"),
    ("SELECT PER + sector FROM STOCK", "PER + sector", "only numbers can be calculated with"),
    ("SELECT PER FROM STOCK\nWHERE vol > 3\n  AND sleep(9)", "sleep(9", "no function 'sleep'"),
    ("SELECT PER FROM STOCK LIMIT 3", "3", "never ends"),
    ("SELECT PER FROM STOCK ORDER BY PER", "PER", "Sort what you read"),
    ("SELECT DISTINCT PER FROM STOCK", "SELECT", "DISTINCT cannot be used"),
    ("SELECT a FROM R, S WHERE R.b = S.b", "", "WINDOW 1 MINUTE"),
    ("SELECT a FROM R, S WINDOW 1 MINUTE", "SELECT", "which rows are partners"),
    ("SELECT a FROM R, S WHERE R.b = S.b WINDOW 5 parsecs", "5 parsecs", "unit of time"),
    ("SELECT a FROM R, S WHERE R.b = S.b WINDOW 0 ROWS", "0 ROWS", "holds nothing"),
    ("SELECT a FROM R, S WHERE R.b = S.b WINDOW", "WINDOW", "is followed by"),
    ("SELECT a FROM R, S WHERE R.b = S.b WINDOW 1 min WINDOW 2 min", "WINDOW", "there twice"),
    ("SELECT a FROM R, S WHERE R.b = S.b WINDOW 1 min SHED prop", "SHED prop", "prob"),
    ("SELECT id FROM updates JOIN stored USING (id) SHED TOPW AFTER 0 s ARCHIVE 'z'", "TOPW", "AFTER no time"),
    ("SELECT a FROM R, S WHERE R.b = S.b WINDOW 1 min ARCHIVE 'x'", "ARCHIVE 'x'", "without SHED"),
    (
        "SELECT a FROM R, S WHERE R.b = S.b WINDOW 1 min SHED PROB ARCHIVE '../x'",
        "ARCHIVE '../x'",
        "does not lie below",
    ),
    ("SELECT amount FROM updates, R WHERE id = b WINDOW 1 min", "WINDOW 1 min", "has no event time"),
    ("SELECT name FROM updates, stored WHERE amount = name", "amount = name", "never compared by guessing"),
    ("SELECT name FROM updates, stored WHERE amount > 3", "SELECT", "whole key (id)"),
    ("SELECT name FROM updates, stored WHERE updates.id = stored.id WINDOW 1 min", "WINDOW 1 min", "meets all of it"),
    ("SELECT COUNT(*) FROM R, S WHERE R.b = S.b WINDOW 1 min", "SELECT", "CREATE VIEW"),
    ("SELECT MIN(PER) FROM STOCK", "SELECT", "over a range of one column"),
    ("SELECT MIN(PER) FROM STOCK WHERE RISK > 7 AND RISK < 3", "RISK < 3", "No RISK is at least"),
    ("SELECT MIN(amount) FROM updates WHERE id > 3", "SELECT", "which rows replace which"),
    ("SELECT MIN(amount) FROM updates WHERE id > 4", "SELECT", "of [streams.updates] in a pipeline"),
    ("SELECT PER FROM STOCK WHERE", "WHERE", "something is missing"),
    ("SELECT PER FROM STOCK WHERE sector = 'TECH", "'TECH", "has no end"),
    ("SELECT PER FROM STOCK; SELECT 1", ";", "more than one statement"),
    ("DROP TABLE STOCK", "DROP", "A query is a SELECT"),
    ("CREATE TABLE x AS SELECT 1", "TABLE", "CREATE is for views"),
    ("SELECT PER FROM STOCK UNION SELECT PER FROM STOCK", "UNION", "UNION"),
    ("SELECT name FROM Nation, Region WHERE nationkey > 1", "name", "connects"),
    ("SELECT PER FROM STOCK WINDOW 1 min", "WINDOW 1 min", "reads one stream"),
    ("/* SELECT ßß */\nSELECT a FROM R, S WINDOW 1 MINUTE", "SELECT", "which rows are partners"),
    ("SELECT PER FROM STOCK WHERE sector = '日本 é ß' OR PER - INTERVAL 1 DAY > 5", "PER", "INTERVAL is not among"),
    ('SELECT PER AS "日本", Valu FROM STOCK', "Valu", "no column 'Valu'"),
    ("SELECT FROM STOCK", "STOCK", "names no column"),
    ("SELECT PER, 1_000 FROM STOCK", "1_000", "1_000 is not a number"),
    ("SELECT PER, 10k FROM STOCK", "10k", "10k is not a number"),
    ("SELECT 0x1F FROM STOCK", "0x1F", "0x1F is not a number"),
    ("SELECT MIN(PER) FROM STOCK WHERE vol + 0.2 <= 8.2", "vol + 0.2 <= 8.2", "not exactly known"),
    ("SELECT MIN(PER) FROM STOCK WHERE RISK - 0.1 <= 0.2", "RISK - 0.1 <= 0.2", "not exactly known"),
    ("SELECT MIN(PER) FROM STOCK WHERE vol - vol + RISK > 1", "vol - vol + RISK > 1", "neither a range"),
    ("SELECT amount FROM updates u LEFT JOIN stored s ON amount > 5 WHERE u.id = s.id", "SELECT", "ON of a LEFT JOIN"),
    ("SELECT PER FROM STOCK WHERE sector = '\ud800'", "\ud800", "half a character"),
]


@pytest.mark.parametrize(("text", "place", "says"), FAULTS, ids=[text[:60] for text, *_ in FAULTS])
def test_errors_show_the_place_and_say_what_to_do(text, place, says):
    with pytest.raises(BadSQL) as told:
        read(text)
    fault = told.value
    assert says in str(fault)
    assert text[fault.start : fault.end].startswith(place[:1])
    assert fault.start == (text.rindex(place) if place else len(text))
    assert fault.line == text.count("\n", 0, fault.start) + 1
    lines = str(fault).splitlines()
    shown, carets = (line for line in lines if line.startswith("  | "))
    under = carets.index("^") - sum(unicodedata.east_asian_width(mark) == "W" for mark in text[: fault.start])
    assert shown[under:].startswith(text[fault.start :].partition("\n")[0][:10].encode("utf-8", "replace").decode())


def test_an_error_with_its_place_can_be_sent_and_is_an_error_of_plans():
    with pytest.raises(BadQuery) as told:
        read("SELECT\n  nothing FROM STOCK")
    again = pickle.loads(pickle.dumps(told.value))
    assert isinstance(again, PlanError)
    assert (again.line, again.column, str(again)) == (2, 3, str(told.value))


#: What Spark's parser would have run, read or called.
ATTACKS = [
    "SELECT reflect('java.lang.Runtime', 'getRuntime') AS x FROM STOCK",
    "SELECT java_method('java.lang.System', 'exit', 1) AS x FROM STOCK",
    "SELECT TRANSFORM (vol) USING 'sh' AS x FROM STOCK",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
    "SELECT vol FROM STOCK WHERE vol IN (SELECT vol FROM STOCK)",
    "SELECT (SELECT MAX(vol) FROM STOCK) AS x FROM STOCK",
    "WITH t AS (SELECT * FROM STOCK) SELECT * FROM t",
    "SELECT vol FROM STOCK LATERAL VIEW explode(array(1)) t",
    "SELECT current_user() AS x FROM STOCK",
    "SELECT vol FROM STOCK, LATERAL (SELECT 1)",
    "SELECT vol FROM STOCK TABLESAMPLE (1 ROWS)",
    "ADD JAR '/tmp/x.jar'",
    "SET spark.sql.warehouse.dir = '/tmp'",
    "EXPLAIN EXPLAIN SELECT vol FROM STOCK",
    'SELECT "vol`; DROP TABLE x; --" FROM STOCK',
    "SELECT vol AS x FROM spark_catalog.default.STOCK",
    "SELECT vol::STRUCT<a INT> AS x FROM STOCK",
    "SELECT vol FROM STOCK WHERE sector LIKE '%' ESCAPE '\\'",
    "SELECT vol FROM STOCK WHERE sector RLIKE '(a+)+$'",
    "SELECT :x FROM STOCK",
    "SELECT ${x} FROM STOCK",
    "SELECT @@version FROM STOCK",
    'CREATE VIEW "../../x" AS SELECT COUNT(*) AS n FROM STOCK',
    "SELECT TIMESTAMP '0001-01-01T00:00:00+14:00' AS x FROM STOCK",
    "SELECT CAST(vol AS DECIMAL(0, 0)) AS x FROM STOCK",
    "SELECT SUBSTRING(sector, 1, 99999999999999999999) AS x FROM STOCK",
    "SELECT ROUND(PER, 99999999999999999999) AS x FROM STOCK",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_what_is_not_allowed_is_refused(text):
    with pytest.raises(BadSQL):
        read(text)


def test_no_text_of_a_user_is_given_to_spark():
    """Nothing in these folders calls what parses SQL; names of columns go through `col`, quoted."""
    root = Path(__file__).parents[2] / "src" / "penstock"
    files = [*(root / "sql").glob("*.py"), root / "spark" / "queries.py", root / "spark" / "views" / "expressions.py"]
    for file in files:
        code = file.read_text()
        for call in ("selectExpr", ".expr(", "spark.sql(", ".sql(f", "createOrReplaceTempView", 'where("', "where(f"):
            assert call not in code, (file, call)


def test_the_catalogue_lists_what_there_is():
    with pytest.raises(UnknownTable, match=r"(?s)Temperature, Humidity.*Did you mean 'Humidity'"):
        KNOWN.stream("Humidty")
    with pytest.raises(UnknownTable, match="is a table, not a stream"):
        KNOWN.stream("Nation")
    with pytest.raises(UnknownTable, match="is a stream, not a table"):
        KNOWN.relation("R")
    with pytest.raises(BadOption, match="there twice"):
        Catalogue.of({"a": _SENSOR, "A": _SENSOR})
    with pytest.raises(BadOption, match="two columns"):
        Catalogue.of({"a": pa.schema([("x", pa.int64()), ("X", pa.int64())])})
    with pytest.raises(BadOption, match="not a timestamp"):
        Stream.of("a", _SENSOR, event_time="Value")


def test_selection():
    assert read("SELECT * FROM stock").shape == Selection("STOCK")
