"""Filters and select lists over Arrow rows equal DuckDB's: NULL, NaN, infinities, division by zero, empty texts."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import BadQuery
from penstock.sql import rows as compiled
from penstock.sql.answers import answer_of
from penstock.sql.catalogue import Catalogue, Function
from penstock.sql.parse import parse
from tests.sql.expressions import SCHEMA, Writer, rows

CATALOGUE = Catalogue.of({"r": SCHEMA})


def ours(text: str, given: pa.Table) -> pa.Table:
    answer = answer_of(parse(text, CATALOGUE))
    return pa.Table.from_batches([answer(batch) for batch in given.to_batches()], answer.schema)


def duck(text: str, given: pa.Table) -> list[tuple]:
    with duckdb.connect() as connection:
        connection.execute(
            "SET TimeZone = 'UTC'; SET error_on_division_by_zero = false; SET ieee_floating_point_ops = false"
        )
        connection.register("r", given)
        return connection.sql(text).fetchall()


def same(one: object, other: object) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        if one is None or other is None:
            return one is other
        return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-6)
    return one == other


@pytest.mark.parametrize("part", range(5))
def test_random_filters_and_columns_equal_duckdb(part):
    for seed in range(part * 20, part * 20 + 20):
        write = Writer(seed)
        columns = ", ".join(f"{write.any(3)} AS c{n}" for n in range(4))
        text = f"SELECT {columns} FROM r WHERE {write.truth(3)}"
        given = rows(60, seed)
        got = [tuple(row.values()) for row in ours(text, given).to_pylist()]
        expected = duck(text, given)
        assert len(got) == len(expected), text
        for mine, theirs in zip(got, expected, strict=True):
            assert all(map(same, mine, theirs)), (text, mine, theirs)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT CASE i WHEN 1 THEN 'one' WHEN NULL THEN 'none' ELSE s END AS c FROM r",
        "SELECT NULLIF(i, 1) AS a, NULLIF(s, 'a') AS b, NULLIF(x, j) AS c FROM r",
        "SELECT i FROM r WHERE (i > 1) IS TRUE OR (j < 0) IS NOT FALSE",
        "SELECT i FROM r WHERE (i > 1) IS NOT TRUE AND (i > 1) IS FALSE",
        "SELECT CAST(i AS DECIMAL(14, 2)) AS d, -9223372036854775808 AS least FROM r",
    ],
)
def test_further_forms_equal_duckdb(text):
    given = rows(200, 5)
    got = [tuple(row.values()) for row in ours(text, given).to_pylist()]
    expected = duck(text, given)
    assert len(got) == len(expected)
    assert all(
        same(*pair) for mine, theirs in zip(got, expected, strict=True) for pair in zip(mine, theirs, strict=True)
    )


def test_a_planted_fault_is_found(monkeypatch):
    """OR that forgets that TRUE OR NULL is true."""
    monkeypatch.setitem(compiled._FUNCTIONS, "or", compiled._logic(pc.or_))
    with pytest.raises(AssertionError):
        list(map(test_random_filters_and_columns_equal_duckdb, range(5)))


@pytest.mark.parametrize("seed", range(20))
def test_a_condition_its_opposite_and_neither_make_up_all_rows(seed):
    condition = Writer(seed + 1000).truth(3)
    given = rows(60, seed)
    parts = [f"SELECT i, s FROM r WHERE {part}" for part in (condition, f"NOT ({condition})", f"({condition}) IS NULL")]
    assert sum(ours(part, given).num_rows for part in parts) == given.num_rows


def test_an_overflow_is_an_error_that_names_the_query():
    whole = pa.table({name: pa.nulls(1, SCHEMA.field(name).type) for name in SCHEMA.names}, SCHEMA)
    given = whole.set_column(1, SCHEMA.field("j"), pa.array([1 << 62]))
    with pytest.raises(BadQuery, match=r"overflow[\s\S]*SELECT j \* 4"):
        ours("SELECT j * 4 AS big FROM r", given)


def test_decimals_are_compared_exactly_and_calculated_with_as_floats():
    schema = pa.schema([("price", pa.decimal128(10, 2)), ("other", pa.decimal128(12, 4))])
    given = pa.table({"price": ["0.95", "1.00", None], "other": ["0.95", "0.9999", "1"]}).cast(schema)
    catalogue = Catalogue.of({"r": schema})
    answer = answer_of(
        parse("SELECT price, price * 2 AS twice FROM r WHERE price >= other AND price <= 1.0", catalogue)
    )
    got = pa.Table.from_batches([answer(batch) for batch in given.to_batches()])
    assert got["twice"].to_pylist() == [1.9, 2.0]
    assert got.schema.field("price").type == pa.decimal128(10, 2)
    assert got.schema.field("twice").type == pa.float64()


@pytest.mark.parametrize("condition", ["m = 12345678901234567.89", "m IN (7, 12345678901234567.89)", "m = told"])
def test_constants_beside_decimals_have_all_their_digits(condition):
    """As floating numbers both rows would equal it."""
    schema = pa.schema([("m", pa.decimal128(22, 2))])
    both = [Decimal("12345678901234567.88"), Decimal("12345678901234567.89")]
    query = parse(f"SELECT m FROM r WHERE {condition}", Catalogue.of({"r": schema}), {"told": both[1]})
    assert answer_of(query)(pa.record_batch([both], schema)).to_pydict() == {"m": both[1:]}


@pytest.mark.parametrize("constant", ["0.1", "told", "1e-1"])
def test_constants_beside_floating_numbers_are_floating_numbers(constant):
    schema = pa.schema([("x", pa.float64()), ("m", pa.decimal128(4, 2))])
    where = f"x = {constant} AND m = {constant} AND x IN ({constant})"
    text = f"SELECT {constant} AS c, x + {constant} AS d FROM r WHERE {where}"
    query = parse(text, Catalogue.of({"r": schema}), {"told": Decimal("0.1")})
    given = pa.RecordBatch.from_pylist([{"x": 0.1, "m": Decimal("0.10")}, {"x": 0.2, "m": Decimal("0.20")}], schema)
    assert answer_of(query)(given).to_pylist() == [{"c": 0.1, "d": 0.2}]


@pytest.mark.parametrize(
    "text", ["SELECT odd(j) AS c FROM r", "SELECT j AS k, odd(j) AS c FROM r", "SELECT j AS c FROM r WHERE odd(j) > 0"]
)
def test_a_function_that_leaves_out_rows_is_refused(text):
    """Alone in SELECT it gave that many rows, each with the value of another."""
    function = Function("odd", lambda given: given.filter(pc.equal(pc.bit_wise_and(given, 1), 1)), pa.int64())
    catalogue = Catalogue.of({"r": pa.schema([("j", pa.int64())])}, functions={"odd": function})
    answer = answer_of(parse(text, catalogue))
    given = pa.record_batch([[1, 2, 3]], ["j"])
    with pytest.raises(BadQuery, match="'odd' gave 2 values for 3 rows"):
        answer(given)
    assert answer(given.slice(0, 1)).column("c").to_pylist() == [1]


def test_what_a_function_gives_is_calculated_with_as_a_column_of_its_type_is():
    """Numbers without a sign could not fall below zero, and decimals were not compared exactly."""
    schema = pa.schema([("u", pa.uint32()), ("m", pa.decimal128(22, 2))])
    functions = {field.name: Function(f"f{field.name}", lambda given: given, field.type) for field in schema}
    known = Catalogue.of({"r": schema}, functions={one.name: one for one in functions.values()})
    given = pa.RecordBatch.from_pylist([{"u": 1, "m": Decimal("12345678901234567.88")}], schema)

    def calculated(u: str, m: str) -> pa.RecordBatch:
        return answer_of(
            parse(f"SELECT {u} AS a, {u} - 2 AS b, {m} + 1 AS c, {m} = 12345678901234567.89 AS d FROM r", known)
        )(given)

    found = calculated("fu(CAST(u AS INT))", "fm(m)")
    assert found == calculated("u", "m")
    assert found.to_pylist() == [{"a": 1, "b": -1, "c": 12345678901234569.0, "d": False}]


def test_decimals_that_are_parts_of_one_are_cast_to_whole_numbers():
    schema = pa.schema([("rate", pa.decimal128(4, 4)), ("part", pa.decimal128(38, 38))])
    given = pa.table({"rate": ["0.9876", "-0.5", None], "part": ["-0.99", "0", "0.1"]}).cast(schema)
    answer = answer_of(
        parse("SELECT CAST(rate AS INT) AS a, CAST(part AS BIGINT) AS b FROM r", Catalogue.of({"r": schema}))
    )
    [batch] = given.to_batches()
    assert answer(batch).to_pydict() == {"a": [0, 0, None], "b": [0, 0, 0]}


@pytest.mark.parametrize("seed", range(10))
def test_decimals_of_any_digits_are_compared_as_python_compares_them(seed):
    draw = random.Random(seed)
    kinds = {"few": (9, 2), "whole": (38, 0), "parts": (38, 30), "half": (38, 18)}
    schema = pa.schema([(name, pa.decimal128(*kind)) for name, kind in kinds.items()]).append(pa.field("j", pa.int64()))

    def number(digits: int, scale: int) -> Decimal:
        whole = draw.choice([0, 1, 15, 10 ** draw.randrange(digits), 10**digits - 1])
        return Decimal((draw.randrange(2), tuple(map(int, str(whole))), -scale))

    rows = [[draw.choice([None, number(*kind)]) for kind in kinds.values()] for _ in range(40)]
    rows = [[*row, draw.choice([None, 0, 15, 10**15, -(2**63), 2**63 - 1])] for row in rows]
    given = pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)
    one, other = draw.sample(schema.names, 2)
    answer = answer_of(parse(f"SELECT {one} < {other} AS l, {one} = {other} AS e FROM r", Catalogue.of({"r": schema})))
    got = pa.Table.from_batches([answer(batch) for batch in given.to_batches()]).to_pylist()
    pairs = zip(given[one].to_pylist(), given[other].to_pylist(), strict=True)
    known = [(None, None) if a is None or b is None else (a < b, a == b) for a, b in pairs]
    assert [tuple(row.values()) for row in got] == known


def test_small_whole_numbers_beside_floating_ones_of_32_bits_are_calculated_with_as_spark_does():
    """In 64 bits: in 32 a third of them was another number."""
    schema = pa.schema([("few", pa.int16()), ("part", pa.float32())])
    given = pa.record_batch([[3], [1 / 3]], schema)
    answer = answer_of(parse("SELECT few * part AS c, COALESCE(part, few) AS d FROM r", Catalogue.of({"r": schema})))
    assert answer(given).to_pylist() == [{"c": 3 * given["part"][0].as_py(), "d": given["part"][0].as_py()}]
    assert answer.schema.types == [pa.float64(), pa.float64()]


def test_no_rows_have_the_types_of_some():
    text = "SELECT i + 1 AS a, i / 2 AS b, s || t AS c, i > 2 AS d, NULL AS e, FLOOR(i / 2) AS f FROM r"
    assert ours(text, SCHEMA.empty_table()).schema == ours(text, rows(9, 1)).schema


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # Whole numbers beyond 2⁵³ beside floating ones: the nearest floating number.
        ("j > 0.5", [True, True, False]),
        ("j / 2", [2.0**62, 2.5, -(2.0**62)]),
        ("CAST(j AS DOUBLE)", [2.0**63, 5.0, -(2.0**63)]),
        # What a condition keeps away is not calculated.
        ("CASE WHEN j < 9 AND j > 0 THEN j * 4 END", [None, 20, None]),
        ("CASE WHEN j > 9 THEN 0 WHEN j * 4 > 9 THEN 1 ELSE 2 END", [0, 1, "overflow"]),
        ("CASE WHEN j > 9 OR j < 0 THEN NULL ELSE CAST(j AS INT) END", [None, 5, None]),
        ("COALESCE(j, j * 4)", [2**63 - 1, 5, -(2**63)]),
        ("j < 9 AND j > 0 AND j * 4 = 20", [False, True, False]),
        ("j > 9 OR j < 0 OR j * 4 = 20", [True, True, True]),
        # Decimals that are cast are rounded, or do not fit.
        ("CAST(w AS DECIMAL(5, 1))", [9.9, -0.5, 0.1]),
        ("CAST(w AS DECIMAL(1, 0))", ["does not fit", 0, 0]),
        ("CAST(w * 1e18 AS DECIMAL(38, 2))", [9.94e18, -4.5e17, 5e16]),
        ("CAST(CAST(w * 1e18 AS DECIMAL(38, 2)) AS BIGINT)", ["out of bounds", -450000000000000000, 50000000000000000]),
        ("ROUND(x, 1)", [1e308, 2.3, math.inf]),
        ("ROUND(x, 38)", [1e308, 2.25, math.inf]),
        ("FLOOR(x)", ["out of bounds|truncated", 2, "out of bounds|truncated"]),
        ("CEIL(-x)", ["out of bounds|truncated", -2, "out of bounds|truncated"]),
        ("CASE WHEN x < 9 THEN CEIL(x) END", [None, 3, None]),
    ],
)
def test_numbers_at_the_edge(expression, expected):
    schema = pa.schema([("j", pa.int64()), ("x", pa.float64()), ("w", pa.decimal128(3, 2))])
    given = pa.table({"j": [2**63 - 1, 5, -(2**63)], "x": [1e308, 2.25, math.inf]})
    given = given.append_column("w", pa.array(["9.94", "-0.45", "0.05"]).cast(schema.field("w").type))
    answer = answer_of(parse(f"SELECT {expression} AS c FROM r", Catalogue.of({"r": schema})))
    for row, value in enumerate(expected):
        [batch] = given.slice(row, 1).to_batches()
        if isinstance(value, str):
            with pytest.raises(BadQuery, match=value):
                answer(batch)
        else:
            assert numbers(answer(batch)) == [value]
    if not any(isinstance(value, str) for value in expected):
        [batch] = given.to_batches()
        assert numbers(answer(batch)) == expected
    assert answer(batch.slice(0, 0)).num_rows == 0


def numbers(rows: pa.RecordBatch) -> list:
    return [float(value) if isinstance(value, Decimal) else value for value in rows.to_pydict()["c"]]
