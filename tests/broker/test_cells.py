"""Cells: every subscription lies in one, and every message reaches the cells of all whom it concerns."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.answers import pairs_of
from penstock.broker.cells import CellMap, adapt, halve
from penstock.broker.delivery import Unicast
from penstock.broker.messages import (
    HAS_LEFT,
    HAS_RIGHT,
    LEAST,
    MOST,
    WIDTH,
    Frame,
    Kind,
)
from penstock.broker.subjects import check_name, token
from penstock.errors import BadFrame, BadOption

ENDS = st.one_of(st.integers(0, 20), st.sampled_from([LEAST, MOST]))


@st.composite
def rectangles(draw: st.DrawFn) -> list[int]:
    left, inner_left = sorted(draw(st.lists(ENDS, min_size=2, max_size=2, unique=True)))
    inner_right, right = sorted(draw(st.lists(ENDS, min_size=2, max_size=2, unique=True)))
    flags = draw(st.sampled_from([0, HAS_LEFT, HAS_RIGHT, HAS_LEFT | HAS_RIGHT]))
    return [0, flags, 0, 0, inner_left, inner_right, left, right]


@given(
    st.lists(st.tuples(ENDS, ENDS), min_size=1, max_size=30),
    st.lists(rectangles(), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_a_message_reaches_the_cells_of_all_whom_it_concerns(points, boxes, crowd):
    x1, x2 = np.array(points, np.int64).T.copy()
    rows = np.array(boxes, np.int64)
    cells = CellMap()
    adapt(cells, x1, x2, crowd, np.arange(len(points)) % 3)
    homes = cells.cells_of(x1, x2)
    routed = {tuple(pair) for pair in cells.route(rows).tolist()}
    expected = {
        (m, s)
        for m, (_, flags, _, _, il, ir, left, right) in enumerate(boxes)
        for s, (a, b) in enumerate(points)
        if a <= il and ir <= b and not (flags & HAS_LEFT and a <= left) and not (flags & HAS_RIGHT and b >= right)
    }
    order = np.argsort(x1)
    assert {(m, s) for m, s in pairs_of(rows, order, x1[order], x2[order]).tolist()} == expected
    assert all((m, int(homes[s])) in routed for m, s in expected)
    server = Unicast(["one", "two"], np.arange(len(points)) % 2, x1, x2)
    assert {(m, s) for m, s, _ in server.find(rows).tolist()} == expected
    assert all(gateway == s % 2 for _, s, gateway in server.find(rows).tolist())


def test_crowded_cells_are_split_in_halves_and_a_crowd_at_one_point_is_left_alone():
    rng = np.random.default_rng(1)
    x1 = rng.integers(0, 1_000, 20_000)
    x2 = x1 + rng.integers(0, 50, 20_000)
    cells = CellMap()
    assert adapt(cells, x1, x2, 500)
    counts = np.bincount(cells.cells_of(x1, x2), minlength=len(cells.cells))
    assert counts.max() <= 500
    assert len(cells.unsplit) < 100, "halves, not slivers"
    assert not adapt(cells, x1, x2, 500)
    one = np.full(5_000, 7)
    assert halve(one, one) is None
    assert not adapt(CellMap(), one, one, 10)


def test_a_crowd_is_left_together_where_every_gateway_would_hear_all_of_it():
    x1, x2 = np.arange(1_000), np.arange(1_000) + 5
    mixed, apart = np.arange(1_000) % 4, np.arange(1_000) // 250
    cells = CellMap()
    assert not adapt(cells, x1, x2, 250, mixed), "four gateways, each with as many as it may have"
    assert adapt(cells, x1, x2, 125, mixed), "each has too many: halves"
    assert len(cells.unsplit) == 2
    cells = CellMap()
    assert adapt(cells, x1, x2, 250, apart), "none has to hear what is another's"
    assert np.array_equal(cells.cells_of(x1, x2)[::250], np.unique(cells.cells_of(x1, x2)))


def test_a_map_is_told_and_read_back_with_its_lineage():
    cells = CellMap()
    cells.split(0, axis=0, at=5)
    cells.split(2, axis=1, at=9)
    again = CellMap.from_json(cells.to_json())
    assert (again.cells == cells.cells).all()
    assert again.paths == ["r", "r0", "r1", "r10", "r11"]
    assert again.lineage(4) == [0, 2, 4]


def test_what_is_no_frame_is_refused():
    good = Frame(3, np.zeros((2, WIDTH), np.int64)).to_bytes()
    assert Frame.from_bytes(good).after == 3
    for bad in (b"", b"hello", good[:-1], b"XXXX" + good[4:]):
        with pytest.raises(BadFrame):
            Frame.from_bytes(bad)


def test_partitions_have_tokens_of_their_own():
    names = [(), ("_",), ("a", "b"), ("a|b",), ("a.b",), ("a b",), (">",), ("*",), ("%",), (7,), ("ä",)]
    tokens = [token(values) for values in names]
    assert len(set(tokens)) == len(names)
    assert not any(set(text) & set(" .*>") for text in tokens)
    with pytest.raises(BadOption):
        check_name("no good.name")


def test_a_partition_is_named_by_any_value_that_equals_the_columns_and_by_no_other():
    """A value of another type would name a partition that nothing is ever published to."""
    noon, berlin = datetime(2026, 1, 1, 12, tzinfo=UTC), timezone(timedelta(hours=1))
    zoned, plain, bare = pa.timestamp("us", "UTC"), pa.timestamp("us"), noon.replace(tzinfo=None)
    same = [
        (pa.int32(), 7, [7, 7.0, np.int64(7), Decimal(7)], ["7", 7.5, True, None, 2**40]),
        (pa.string(), "7", ["7"], [7, b"7", None]),
        (pa.binary(), b"7", [b"7"], ["7", 7]),
        (pa.bool_(), True, [True], [1, "true"]),
        (pa.float64(), 0.5, [0.5, np.float32(0.5)], ["0.5", math.nan]),
        (pa.float64(), 0.0, [0, -0.0], ["0"]),
        (pa.float32(), np.float32(0.1).item(), [0.1], ["0.1"]),
        (pa.decimal128(9, 2), Decimal("7.50"), [Decimal("7.5")], [Decimal("7.501"), "7.50"]),
        (pa.date32(), date(2026, 1, 1), [date(2026, 1, 1)], [bare, "2026-01-01"]),
        (zoned, noon, [noon, noon.astimezone(berlin)], [bare, "2026-01-01"]),
        (plain, bare, [bare], [noon, date(2026, 1, 1)]),
    ]
    for column, published, alike, others in same:
        kind = Kind("min", pa.int64(), pa.int64(), partition_by=pa.schema([("part", column)]))
        there = token(pa.array([published], column).to_pylist())
        assert [kind.partition(value) for value in alike] == [there] * len(alike)
        for value in others:
            with pytest.raises(BadOption, match=re.escape(str(column))):
                kind.partition(value)
    with pytest.raises(BadOption, match="not divided"):
        Kind("min", pa.int64(), pa.int64()).partition("7")


def test_a_kind_is_told_and_read_back():
    parts = pa.schema([("city", pa.string()), ("day", pa.date32())])
    for x in (pa.decimal128(12, 3), pa.timestamp("us", "UTC"), pa.float32()):
        plain = Kind("min", x, pa.int8())
        for kind in (plain, replace(plain, x2=pa.float64()), replace(plain, partition_by=parts)):
            assert Kind.from_json(kind.to_json()) == kind
