"""What a view may say, and what is refused: with the clause, and why."""

from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import NotMaintainable, PlanError, UnknownColumn, UnknownTable
from penstock.plan.view import TableSpec, ViewPlan
from penstock.plan.views.expressions import Aggregate, Call, Column, Key, Literal, Total
from penstock.plan.views.query import Source, analyse

TABLES = {
    "partsupp": pa.schema(
        [("ps_partkey", pa.int64()), ("ps_suppkey", pa.int64()), ("ps_supplycost", pa.decimal128(15, 2))]
    ),
    "supplier": pa.schema(
        [("s_suppkey", pa.int64()), ("s_nationkey", pa.int32()), ("s_name", pa.string()), ("s_since", pa.date32())]
    ),
    "Nation": pa.schema([("n_nationkey", pa.int32()), ("n_name", pa.string()), ("n_map", pa.list_(pa.string()))]),
}
SUPPLIERS = "FROM supplier s JOIN nation n ON s_nationkey = n_nationkey"


def test_the_view_of_the_chapter():
    query = analyse(
        "SELECT MIN(PS.ps_supplycost) FROM partsupp AS PS, supplier AS S, NATION n "
        "WHERE s.s_suppkey = ps.ps_suppkey AND S.s_nationkey = n.n_nationkey AND n.n_name = 'FRANCE'",
        TABLES,
    )
    assert query.sources == (Source("partsupp", "ps"), Source("supplier", "s"), Source("Nation", "n"))
    assert query.equalities == (
        (Column(1, "s_suppkey"), Column(0, "ps_suppkey")),
        (Column(1, "s_nationkey"), Column(2, "n_nationkey")),
    )
    assert query.filters == (Call("equal", (Column(2, "n_name"), Literal("FRANCE", "text"))),)
    assert query.aggregates == (Aggregate("min", Column(0, "ps_supplycost")),)
    assert (query.keys, query.shape) == ((), "one")
    assert query.outputs == (("MIN(PS.ps_supplycost)", Total(0)),)
    assert query.used(1) == ("s_nationkey", "s_suppkey")


def test_groups_with_expressions_and_having():
    query = analyse(
        f"SELECT n_name AS nation, 2 * COUNT(*) AS twice, MAX(s_since) {SUPPLIERS} "
        "GROUP BY nation HAVING COUNT(*) > 1 AND n_name <> 'X'",
        TABLES,
    )
    assert query.shape == "groups"
    assert query.keys == (Column(1, "n_name"),)
    assert query.outputs[:2] == (
        ("nation", Key(0)),
        ("twice", Call("multiply", (Literal(2, "number"), Total(0)))),
    )
    assert query.having == Call(
        "and",
        (
            Call("greater", (Total(0), Literal(1, "number"))),
            Call("not_equal", (Key(0), Literal("X", "text"))),
        ),
    )


@pytest.mark.parametrize("by", ["1", "n_name", "n.N_NAME", "nation"])
def test_a_key_may_be_named_in_every_way(by):
    assert analyse(f"SELECT n_name AS nation, COUNT(*) {SUPPLIERS} GROUP BY {by}", TABLES).keys == (
        Column(1, "n_name"),
    )


def test_bags_and_distinct_rows():
    bag = analyse("SELECT s_name, s_suppkey % 2 AS odd FROM supplier", TABLES)
    assert (bag.shape, len(bag.keys)) == ("bag", 2)
    assert analyse("SELECT DISTINCT s_name FROM supplier", TABLES).shape == "distinct"


def test_a_star_shows_a_column_of_using_once():
    tables = {"a": pa.schema([("k", pa.int64()), ("x", pa.int64())]), "b": pa.schema([("k", pa.int64())])}
    query = analyse("SELECT * FROM a JOIN b USING (k)", tables)
    assert [name for name, _ in query.outputs] == ["k", "x"]
    assert query.equalities == ((Column(0, "k"), Column(1, "k")),)


def test_a_table_may_occur_twice():
    query = analyse("SELECT a.s_name, b.s_name AS other FROM supplier a, supplier b WHERE a.s_name = b.s_name", TABLES)
    assert [source.table for source in query.sources] == ["supplier", "supplier"]


@pytest.mark.parametrize(
    ("sql", "clause", "why"),
    [
        ("SELECT s_name FROM supplier ORDER BY 1", "ORDER BY", "without an order"),
        ("SELECT s_name FROM supplier LIMIT 3", "LIMIT", "the first"),
        ("SELECT s_name FROM supplier LEFT JOIN nation ON n_nationkey = s_nationkey", "LEFT JOIN", "Inner joins"),
        ("SELECT s_name FROM supplier NATURAL JOIN nation", "NATURAL JOIN", "Inner joins"),
        ("SELECT s_name FROM supplier FULL JOIN nation ON n_nationkey = s_nationkey", "FULL JOIN", "Inner joins"),
        ("SELECT COUNT(DISTINCT s_name) FROM supplier", "COUNT(DISTINCT s_name)", "every value"),
        ("SELECT s_name, COUNT(*) FROM supplier", "s_name", "neither a key"),
        ("SELECT s_name FROM supplier, nation", "nation", "No equality connects"),
        ("SELECT s_name FROM supplier JOIN nation ON s_nationkey < n_nationkey", "nation", "No equality connects"),
        ("SELECT RANK() OVER (ORDER BY s_name) FROM supplier", "RANK()", "window function"),
        ("SELECT SUM(s_suppkey) OVER () FROM supplier", "OVER", "window function"),
        ("SELECT s_name FROM supplier WHERE s_suppkey = '3'", "s_suppkey = '3'", "a number and a text"),
        ("SELECT s_name FROM supplier WHERE s_suppkey", "s_suppkey", "a condition is true or false"),
        ("SELECT s_name FROM supplier WHERE s_suppkey IN (SELECT 1)", "IN", "subquery"),
        ("SELECT s_name FROM supplier WHERE EXISTS (SELECT 1)", "EXISTS", "subquery"),
        ("SELECT (SELECT 1) FROM supplier", "SELECT 1", "subquery"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "WITH", "one SELECT"),
        ("SELECT s_name FROM supplier UNION SELECT n_name FROM nation", "UNION", "one SELECT"),
        ("SELECT s_name FROM (SELECT * FROM supplier) x", "SELECT * FROM supplier", "FROM is for tables"),
        ("SELECT SUM(s_name) FROM supplier", "SUM(s_name)", "only numbers"),
        ("SELECT MEDIAN(s_suppkey) FROM supplier", "MEDIAN", "COUNT, SUM, AVG, MIN and MAX"),
        ("SELECT SUM(MIN(s_suppkey)) FROM supplier", "MIN(s_suppkey)", "inside another"),
        ("SELECT COUNT(*) FILTER (WHERE s_suppkey > 1) FROM supplier", "FILTER", "not among"),
        ("SELECT s_name FROM supplier WHERE COUNT(*) > 1", "COUNT(*)", "before they are added up"),
        ("SELECT s_name FROM supplier HAVING s_name = 'x'", "HAVING", "no groups"),
        ("SELECT DISTINCT COUNT(*) FROM supplier", "DISTINCT", "aggregates"),
        ("SELECT COUNT(*) FROM supplier GROUP BY GROUPING SETS ((s_name))", "GROUPING", "one value"),
        ("SELECT COUNT(*) FROM supplier GROUP BY COUNT(*)", "GROUP BY", "after grouping"),
        ("SELECT s_name, s_name FROM supplier", "s_name", "Two columns"),
        ("SELECT s_name FROM supplier, supplier", "supplier", "there twice"),
        ("SELECT s_suppkey FROM supplier a JOIN supplier b ON a.s_name = b.s_name", "s_suppkey", "both have it"),
        ("SELECT n_map FROM nation", "n_map", "cannot hold"),
        ("SELECT CAST(s_name AS INT) FROM supplier", "CAST", "does not fit would stop"),
        ("SELECT DATE 'yesterday' FROM supplier", "CAST", "not a date"),
        ("SELECT 1 FROM supplier", "1", "same for every row"),
        ("SELECT s_name FROM supplier TABLESAMPLE (10 PERCENT)", "TABLESAMPLE", "may have an alias"),
        ("SELECT 1; SELECT 2", "This text", "2 statements"),
        ("DROP TABLE supplier", "DROP", "a SELECT"),
        ("INSERT INTO supplier SELECT 1", "INSERT", "a SELECT"),
        ("SELECT 99999999999999999999 + s_suppkey FROM supplier", "99999", "64 bits"),
        ("SELECT - -9223372036854775808 + s_suppkey FROM supplier", "922337", "64 bits"),
        ("SELECT s_suppkey + 1_000 FROM supplier", "1_000", "not a number"),
        ("SELECT s_suppkey + 10k FROM supplier", "10k", "not a number"),
        ("SELECT s_suppkey FROM supplier WHERE s_suppkey > 1e400", "1e400", "more than a floating number"),
        (f"SELECT s_suppkey FROM supplier WHERE s_suppkey > 0.{'1' * 39}", "0.111", "at most 38 digits"),
        (f"SELECT s_suppkey FROM supplier WHERE s_suppkey > .{'0' * 38}1", ".000", "at most 38 digits"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000, "This text", "nested"),
        ("SELECT 1 " + " " * 100_000, "This text", "characters"),
        ("SELECT FROM WHERE GROUP", "The SQL of the view", ""),
    ],
)
def test_what_cannot_be_maintained_is_refused(sql, clause, why):
    with pytest.raises(NotMaintainable) as refused:
        analyse(sql, TABLES)
    assert clause in refused.value.what
    assert why in refused.value.why


@pytest.mark.parametrize(
    "text",
    [
        "reflect('java.lang.Runtime', 'getRuntime')",
        "java_method('java.lang.System', 'exit', 1)",
        "input_file_name()",
        "read_files('/etc/passwd')",
        "TRANSFORM(s_name) USING 'sh'",
        "from_json(s_name, 'x INT')",
        "rand()",
        "current_timestamp()",
        "{fn now()}",
        ":parameter",
        "?",
        "$1",
        "s_name.x.y.z",
    ],
)
def test_functions_outside_the_list_never_get_anywhere(text):
    with pytest.raises(PlanError):
        analyse(f"SELECT {text} AS x, s_name FROM supplier", TABLES)


@pytest.mark.parametrize("table", ["parquet.`/etc/passwd`", '"/etc/passwd"', "db.supplier", "range(10)", "VALUES (1)"])
def test_only_tables_that_were_given_are_read(table):
    with pytest.raises(PlanError):
        analyse(f"SELECT * FROM {table}", TABLES)


def test_unknown_names_come_with_the_nearest():
    with pytest.raises(UnknownTable, match="Did you mean 'supplier'"):
        analyse("SELECT * FROM suplier", TABLES)
    with pytest.raises(UnknownTable, match="FROM names no table"):
        analyse("SELECT x.s_name FROM supplier", TABLES)
    with pytest.raises(UnknownColumn, match="Did you mean 's_name'"):
        analyse("SELECT s_nam FROM supplier", TABLES)
    spaced = {"orders": pa.schema([("Order ID", pa.int64()), ("Kind", pa.string())])}
    for named in ("Order ID", "orders.Order ID"):
        with pytest.raises(UnknownColumn, match='double quotes: "Order ID"'):
            analyse(f"SELECT {named} FROM orders", spaced)
    with pytest.raises(UnknownColumn, match="single quotes: 'large'"):
        analyse('SELECT Kind FROM orders WHERE Kind = "large"', spaced)
    with pytest.raises(UnknownColumn, match="s has no column 'n_name'"):
        analyse(f"SELECT s.n_name {SUPPLIERS}", TABLES)


def test_not_like_is_not_like():
    query = analyse("SELECT n_name FROM nation WHERE n_name NOT LIKE 'A%'", TABLES)
    assert query.filters == (Call("not", (Call("like", (Column(0, "n_name"),), "A%"),)),)


@pytest.mark.parametrize(
    "item", ["n_nationkey BETWEEN SYMMETRIC 5 AND 1", "ROUND(n_nationkey, 1, 1) > 0", "FLOOR(n_nationkey, 2) > 0"]
)
def test_no_part_of_an_expression_is_passed_over(item):
    with pytest.raises(NotMaintainable, match="is not read here"):
        analyse(f"SELECT n_name FROM nation WHERE {item}", TABLES)


def test_where_days_begin_is_part_of_a_view_that_asks_for_days():
    """Groups by day that were made in one time zone do not go on in another."""
    spec = TableSpec(pa.schema([("moment", pa.timestamp("us", "UTC")), ("clock", pa.timestamp("us"))]))

    def zones(sql):
        plan = ViewPlan.checked(sql, {"t": spec}, answer_within="1 s", planner="naive", reads_every=None)
        return [plan.identity(zone).get("time zone") for zone in ("UTC", "Asia/Tokyo")]

    assert zones("SELECT CAST(moment AS DATE) AS day, COUNT(*) AS n FROM t GROUP BY 1") == ["UTC", "Asia/Tokyo"]
    assert zones("SELECT COUNT(*) AS n FROM t WHERE moment < TIMESTAMP '2024-01-01'") == ["UTC", "Asia/Tokyo"]
    assert zones("SELECT DAY(clock) AS day, MAX(moment) AS last FROM t GROUP BY 1") == [None, None]
    assert zones("SELECT COUNT(*) AS n FROM t a JOIN t b ON a.moment = b.clock") == ["UTC", "Asia/Tokyo"]
    assert zones("SELECT COUNT(*) AS n FROM t a JOIN t b ON a.moment = b.moment") == [None, None]


def test_a_negative_constant_has_all_its_digits():
    """Python's minus rounds to 28."""
    schema = pa.schema([("k", pa.int64()), ("x", pa.decimal128(38, 18))])
    query = analyse("SELECT k FROM t WHERE x > -12345678901234567890.123456789012345678", {"t": schema})
    least = Literal(Decimal("-12345678901234567890.123456789012345678"), "decimal")
    assert query.filters == (Call("greater", (Column(0, "x"), least)),)


@pytest.mark.parametrize("digits", [".1234567", ",0000000001"])
def test_a_time_that_is_finer_than_a_microsecond_is_refused(digits):
    """It was taken for another, before it."""
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    text = "SELECT k FROM t WHERE at = TIMESTAMP '2026-01-01 10:00:00{}'"
    with pytest.raises(NotMaintainable, match="finer than a microsecond"):
        analyse(text.format(digits), {"t": schema})
    assert analyse(text.format(".123456000"), {"t": schema}).filters
