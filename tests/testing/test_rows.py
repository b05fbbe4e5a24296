"""Bags of rows, and what is said where two differ."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given

from penstock.testing import assert_same_rows, bag
from penstock.testing.strategies import cuts, tables

NAN = float("nan")
EVERYTHING = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("big", pa.uint64()),
        ("real", pa.float32()),
        ("text", pa.large_string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("ns", "Europe/Berlin")),
        ("price", pa.decimal128(12, 3)),
        ("list", pa.list_(pa.float64())),
        ("map", pa.map_(pa.string(), pa.float64())),
        ("struct", pa.struct([("x", pa.float64()), ("inner", pa.list_(pa.timestamp("us")))])),
        ("nothing", pa.null()),
    ]
)


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        (pa.float64(), [NAN, 0.0, None], [None, NAN, -0.0]),
        (pa.float32(), [NAN, -0.0], [-NAN, 0.0]),
        (pa.list_(pa.float64()), [[NAN], [], None, [None]], [None, [None], [NAN], []]),
        (pa.list_(pa.float64(), 2), [[NAN, 0.0], None], [None, [NAN, -0.0]]),
        (pa.struct([("x", pa.float64())]), [{"x": NAN}, None], [None, {"x": NAN}]),
        (pa.map_(pa.string(), pa.float64()), [[("a", NAN)], []], [[], [("a", NAN)]]),
        (pa.decimal128(5, 2), [Decimal("1.10")], [Decimal("1.1")]),
        (pa.dictionary(pa.int8(), pa.string()), ["b", None, "a"], ["a", "b", None]),
        (pa.timestamp("ns", "UTC"), [1, -1], [-1, 1]),
    ],
)
def test_same(kind, left, right):
    got, want = (pa.table({"x": pa.array(values, kind)}) for values in (left, right))
    assert bag(got) == bag(want)
    assert_same_rows(got, want)


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        (pa.float64(), [NAN], [None]),
        (pa.float64(), [0.0], [5e-324]),
        (pa.int64(), [0], [None]),
        (pa.string(), [""], [None]),
        (pa.string(), ["a"], ["a\0"]),
        (pa.string(), ["ä"], ["a\u0308"]),
        (pa.timestamp("ns"), [1], [2]),
        (pa.list_(pa.int64()), [[]], [None]),
        (pa.list_(pa.int64()), [[None]], [[]]),
        (pa.struct([("x", pa.int64())]), [{"x": None}], [None]),
        (pa.list_(pa.list_(pa.int64())), [[[1], []]], [[[], [1]]]),
    ],
)
def test_different(kind, left, right):
    got, want = (pa.table({"x": pa.array(values, kind)}) for values in (left, right))
    assert bag(got) != bag(want)
    with pytest.raises(AssertionError, match="missing, 1 of 1 kinds"):
        assert_same_rows(got, want)


def test_repetitions_count():
    with pytest.raises(AssertionError, match="got 3, want 2"):
        assert_same_rows(pa.table({"x": [1, 1, 2]}), pa.table({"x": [1, 2]}))


def test_the_list_of_differences_is_short_and_values_are_cut():
    got = pa.table({"x": [str(i) * 200 for i in range(50)]})
    with pytest.raises(AssertionError) as caught:
        assert_same_rows(got, got.slice(0, 0), label="joined rows")
    text = str(caught.value)
    assert text.startswith("joined rows differ: got 50, want 0.\n  unexpected, 10 of 50 kinds:")
    assert len(text) < 1_500


def test_times_are_shown_as_text_even_where_python_has_none():
    late = pa.table({"at": pa.array([253402300800 * 10**6 + 1], pa.timestamp("us"))})
    with pytest.raises(AssertionError, match=r"at=10000-01-01 00:00:00\.000001"):
        assert_same_rows(late, late.slice(0, 0))


def test_columns_must_be_the_same():
    with pytest.raises(AssertionError, match=r"(?s)got:  x int32.*want: x int64"):
        assert_same_rows(pa.table({"x": pa.array([1], pa.int32())}), pa.table({"x": [1]}))
    nullable, never = (pa.schema([pa.field("x", pa.int64(), nullable=nullable)]) for nullable in (True, False))
    assert_same_rows(pa.table({"x": [1]}, schema=nullable), pa.table({"x": [1]}, schema=never))


def test_order_counts_when_asked_for():
    got, want = pa.table({"x": [1, 3, 2]}), pa.table({"x": [1, 2, 3]})
    assert_same_rows(got, want)
    with pytest.raises(AssertionError, match=r"(?s)first at row 1.*got:  x=3.*want: x=2"):
        assert_same_rows(got, want, ordered=True)


def test_rows_without_columns_and_tables_without_rows():
    assert bag(pa.table({"x": []})) == {}
    assert bag(pa.table({})) == {}


def test_one_moment_in_two_zones_is_one_moment():
    moment = datetime(2024, 10, 27, 0, 30, tzinfo=UTC)
    zones = (pa.table({"x": pa.array([moment], pa.timestamp("us", zone))}) for zone in ("UTC", "Europe/Berlin"))
    assert len({tuple(bag(table)) for table in zones}) == 1


@given(tables(EVERYTHING, max_rows=6).flatmap(cuts))
def test_the_bag_of_the_parts_is_that_of_the_whole(pieces):
    whole = pa.Table.from_batches(pieces)
    assert sum((bag(piece) for piece in pieces), bag(whole.slice(0, 0))) == bag(whole)
    assert bag(whole.take(pa.array(range(whole.num_rows)[::-1], pa.int64()))) == bag(whole)
