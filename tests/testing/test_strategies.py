"""Strategies draw what they promise, and draw the interesting things often enough."""

import math

import pyarrow as pa
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from penstock.errors import BadOption, UnsupportedType
from penstock.kernels.contract import Portion
from penstock.testing.key_kinds import key_pool
from penstock.testing.strategies import (
    KEY_KINDS,
    batches,
    cuts,
    extreme_values,
    key_names,
    streams,
    table_schema,
    tables,
    values,
)


def draws(strategy, wanted, examples=40):
    """Whether an example like that is drawn; without a search for the smallest."""
    found = []

    @given(strategy)
    @settings(max_examples=examples, derandomize=True, phases=[Phase.generate])
    def draw(value):
        found.append(wanted(value))

    draw()
    return any(found)


TYPES = [
    pa.bool_(),
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_binary(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ns", "UTC"),
    pa.decimal128(38, 10),
    pa.null(),
    pa.list_(pa.float64()),
    pa.map_(pa.string(), pa.int64()),
    pa.struct([pa.field("x", pa.int8(), nullable=False), ("y", pa.list_(pa.string()))]),
]


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_a_table_of_each_kind_of_key(kind):
    @given(tables(kind, max_rows=8))
    @settings(max_examples=25)
    def check(table):
        assert table.schema == table_schema(kind)
        table.validate(full=True)
        nulls = sum(table.column(name).null_count for name in key_names(kind))
        assert nulls == 0 or "nullable" in kind

    check()


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_two_tables_have_keys_in_common_and_keys_repeat(kind):
    keys = st.tuples(tables(kind, max_rows=10), tables(kind, max_rows=10)).map(
        lambda pair: [list(zip(*(t.column(n).to_pylist() for n in key_names(kind)), strict=True)) for t in pair]
    )
    assert draws(keys, lambda pair: len(set(pair[0]) & set(pair[1])) >= 2)
    assert draws(keys, lambda pair: len(set(pair[0])) < len(pair[0]))


def test_nullable_keys_are_sometimes_null():
    assert draws(tables("nullable"), lambda table: table.column("k").null_count > 0)
    assert draws(tables("nullable composite"), lambda t: t.column("k").null_count != t.column("k2").null_count)


def test_pools_are_without_repetition():
    assert all(len(set(key_pool(kind))) == len(key_pool(kind)) for kind in KEY_KINDS)


def test_a_kind_that_is_none():
    with pytest.raises(BadOption, match="Choose one of: integer, string"):
        table_schema("float")


def test_the_simplest_table_is_empty():
    assert find(tables("string", max_rows=5), lambda table: True).num_rows == 0


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_values_fit_their_type(kind):
    @given(st.lists(values(kind, nulls=True), max_size=5), st.lists(extreme_values(kind), max_size=5))
    @settings(max_examples=15)
    def check(some, extreme):
        pa.array(some + extreme, kind).validate(full=True)

    check()


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (pa.int64(), lambda v: v == 2**63 - 1),
        (pa.float64(), math.isnan),
        (pa.float64(), lambda v: v == 0 and math.copysign(1, v) < 0),
        (pa.string(), lambda v: "\0" in v),
        (pa.string(), lambda v: len(v) == 300),
        (pa.timestamp("us"), lambda v: v == 253402300799999999),
        (pa.list_(pa.int64()), lambda v: v == []),
        (pa.list_(pa.int64()), lambda v: None in v),
    ],
)
def test_values_have_the_extremes(kind, wanted):
    assert draws(values(kind), wanted)


def test_a_type_without_a_strategy():
    with pytest.raises(UnsupportedType, match="month_day_nano"):
        extreme_values(pa.month_day_nano_interval())


@given(st.data())
def test_cuts_lose_nothing(data):
    table = data.draw(tables("nullable"))
    pieces = data.draw(cuts(table))
    assert 1 <= len(pieces) <= 4
    assert pa.Table.from_batches(pieces) == table


def test_cuts_have_empty_pieces():
    table = pa.table({"x": [1, 2, 3]})
    assert draws(cuts(table), lambda pieces: 0 in {piece.num_rows for piece in pieces})


@given(st.data())
def test_batches_keep_rows_sides_and_order(data):
    portions = data.draw(streams("integer", "integer", max_rows=10))
    cut = [portion for batch in data.draw(batches(portions)) for portion in batch]
    assert _arrivals(cut) == _arrivals(portions)


def _arrivals(portions: list[Portion]) -> list[tuple[int, object]]:
    return [(side, row) for side, rows in portions for row in rows.to_pylist()]


def test_most_streams_have_several_batches_with_rows():
    several = []

    @given(streams("integer").flatmap(batches))
    @settings(max_examples=100, derandomize=True)
    def draw(cut):
        several.append(sum(any(p.rows.num_rows for p in batch) for batch in cut) > 1)

    draw()
    assert sum(several) > len(several) * 0.4


def test_batches_of_nothing():
    assert not draws(batches([]), lambda cut: any(batch != [] for batch in cut))
    assert draws(batches([]), lambda cut: len(cut) > 2)
