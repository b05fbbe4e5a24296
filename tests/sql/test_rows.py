"""Filters and select lists over Arrow rows equal DuckDB's: NULL, NaN, infinities, division by zero, empty texts."""

from __future__ import annotations

import math

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import BadQuery
from penstock.sql import rows as compiled
from penstock.sql.answers import answer_of
from penstock.sql.catalogue import Catalogue
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


def test_no_rows_have_the_types_of_some():
    text = "SELECT i + 1 AS a, i / 2 AS b, s || t AS c, i > 2 AS d, NULL AS e, FLOOR(x) AS f FROM r"
    assert ours(text, SCHEMA.empty_table()).schema == ours(text, rows(9, 1)).schema
