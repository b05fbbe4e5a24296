"""Keys: hashes agree wherever a value lies, and equality and joinability equal their plain Python twins."""

from __future__ import annotations

import itertools
import math
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadOption, KeyTypeMismatch, UnknownColumn, UnsupportedType
from penstock.tables import keys
from penstock.testing.values import values

TYPES = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint32(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("s"),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.decimal128(38, 4),
    pa.decimal128(5, 2),
    pa.float32(),
    pa.float64(),
]


@st.composite
def columns(draw: st.DrawFn, types: list[pa.DataType] = TYPES, max_columns: int = 3) -> list[pa.Array]:
    """Key columns of one length, with NULLs."""
    chosen = draw(st.lists(st.sampled_from(types), min_size=1, max_size=max_columns))
    rows = draw(st.integers(0, 20))
    return [
        pa.array(draw(st.lists(values(t, nulls=True, longest=40), min_size=rows, max_size=rows)), t) for t in chosen
    ]


def python_key(cols: list[pa.Array], row: int) -> tuple[Any, ...] | None:
    """The key of a row as plain Python sees it, or None if it cannot join."""
    key = tuple(column[row].as_py() for column in cols)
    broken = any(part is None or (isinstance(part, float) and math.isnan(part)) for part in key)
    return None if broken else key


# --- hashes


@given(columns())
def test_hashes_do_not_depend_on_slices(cols: list[pa.Array]) -> None:
    whole = keys.hash_keys(cols)
    able = keys.joinable(cols)
    for start in range(len(cols[0]) + 1):
        part = keys.hash_keys([column.slice(start) for column in cols])
        # Rows that cannot join have any hash.
        keep = slice(None) if able is None else able[start:]
        np.testing.assert_array_equal(part[keep], whole[start:][keep])


@given(columns())
def test_equal_hashes_for_equal_keys_and_others_for_others(cols: list[pa.Array]) -> None:
    hashes = keys.hash_keys(cols)
    seen: dict[tuple[Any, ...], int] = {}
    for row in range(len(hashes)):
        key = python_key(cols, row)
        if key is not None:
            assert seen.setdefault(key, int(hashes[row])) == hashes[row]
    assert len(set(seen.values())) == len(seen)


@given(st.lists(st.integers(-128, 127), max_size=20))
def test_integers_hash_by_value_whatever_their_width(numbers: list[int]) -> None:
    expected = keys.hash_keys([pa.array(numbers, pa.int64())])
    for type_ in (pa.int8(), pa.int16(), pa.int32()):
        np.testing.assert_array_equal(keys.hash_keys([pa.array(numbers, type_)]), expected)
    if all(number >= 0 for number in numbers):
        for type_ in (pa.uint8(), pa.uint16(), pa.uint32()):
            np.testing.assert_array_equal(keys.hash_keys([pa.array(numbers, type_)]), expected)


@given(st.lists(st.one_of(st.none(), st.text(max_size=30)), max_size=20))
def test_texts_hash_by_bytes_however_they_are_stored(texts: list[str | None]) -> None:
    plain = pa.array(texts, pa.string())
    expected = keys.hash_keys([plain])
    for other in (
        plain.cast(pa.large_string()),
        plain.cast(pa.string_view()),
        plain.dictionary_encode(),
        plain.cast(pa.binary()),
    ):
        np.testing.assert_array_equal(keys.hash_keys([other]), expected)


def test_strings_of_every_length_up_to_forty_differ_in_every_byte() -> None:
    texts = [b"\0" * n for n in range(40)]
    texts += [b"\0" * at + b"\1" + b"\0" * (n - at - 1) for n in range(40) for at in range(n)]
    assert len(np.unique(keys.hash_keys([pa.array(texts, pa.binary())]))) == len(texts)


def test_other_stored_forms_of_the_same_value_hash_the_same() -> None:
    moments = [0, 1_700_000_000, -1]
    second, micro = pa.array(moments, pa.timestamp("s")), pa.array([m * 10**6 for m in moments], pa.timestamp("us"))
    np.testing.assert_array_equal(keys.hash_keys([second]), keys.hash_keys([micro]))
    days = pa.array([date(1, 1, 1), date(2026, 7, 1)])
    np.testing.assert_array_equal(keys.hash_keys([days]), keys.hash_keys([days.cast(pa.date64())]))
    small, large = pa.array([Decimal("1.50")], pa.decimal128(5, 2)), pa.array([Decimal("1.50")], pa.decimal128(38, 2))
    np.testing.assert_array_equal(keys.hash_keys([small]), keys.hash_keys([large]))
    np.testing.assert_array_equal(keys.hash_keys([pa.array([0.0])]), keys.hash_keys([pa.array([-0.0])]))
    np.testing.assert_array_equal(
        keys.hash_keys([pa.array([1.5], pa.float32())]), keys.hash_keys([pa.array([1.5], pa.float64())])
    )


def test_the_order_of_key_columns_matters() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    assert not np.array_equal(keys.hash_keys([one, two]), keys.hash_keys([two, one]))


def test_hashes_are_the_same_in_every_process_and_for_ever() -> None:
    """Prepared tables keep hashes: a change here is a change of their format."""
    cols = [pa.array([0, 1, -1]), pa.array(["", "penstock", "a\0b"])]
    found = [keys.hash_keys([cols[0]]).tolist(), keys.hash_keys([cols[1]]).tolist(), keys.hash_keys(cols).tolist()]
    code = (
        "import pickle, sys, pyarrow as pa; from penstock.tables import keys;"
        "c = [pa.array([0, 1, -1]), pa.array(['', 'penstock', 'a\\0b'])];"
        "sys.stdout.buffer.write(pickle.dumps([keys.hash_keys(x).tolist() for x in ([c[0]], [c[1]], c)]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert pickle.loads(out) == found
    assert found[0][:2] == EXPECTED_INTEGERS
    assert found[1][1] == EXPECTED_TEXT


EXPECTED_INTEGERS = [0x4E17CF67001B3979, 0x68CB58C58E88561B]
EXPECTED_TEXT = 0xF9285B01650F4274


def test_rows_that_cannot_join_are_scattered() -> None:
    hashes = keys.hash_keys([pa.array([None] * 64_000, pa.int64())])
    counts = np.bincount((hashes >> np.uint64(58)).astype(int), minlength=64)
    assert counts.min() > 700


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(64_000)),
        pa.array(np.arange(64_000) << 40),
        pa.array([f"customer-{i:09}" for i in range(64_000)]),
        pa.array([str(i) for i in range(64_000)]),
    ],
    ids=["sequence", "high bits", "padded text", "short text"],
)
def test_hashes_spread_evenly_by_their_first_and_last_bits(column: pa.Array) -> None:
    hashes = keys.hash_keys([column])
    for part in (hashes >> np.uint64(58), hashes & np.uint64(63), (hashes >> np.uint64(29)) & np.uint64(63)):
        counts = np.bincount(part.astype(int), minlength=64)
        # 1,000 expected in each; six standard deviations.
        assert counts.min() > 800
        assert counts.max() < 1_200


# --- slots


@given(st.integers(1, 64), st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_slots_are_contiguous_ranges_that_cover_all_hashes(slots: int, hashes: list[int]) -> None:
    ranges = [keys.hash_range(slot, slots) for slot in range(slots)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2**64
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    for value, slot in zip(hashes, keys.slot_of(np.array(hashes, np.uint64), slots), strict=True):
        assert ranges[slot][0] <= value < ranges[slot][1]


@pytest.mark.parametrize("slots", [0, -1, 65])
def test_an_impossible_number_of_slots_is_refused(slots: int) -> None:
    with pytest.raises(BadOption, match="between 1 and 64"):
        keys.slot_of(np.zeros(1, np.uint64), slots)


# --- joinable, equal


@given(columns())
def test_joinable_equals_its_twin(cols: list[pa.Array]) -> None:
    able = keys.joinable(cols)
    expected = [python_key(cols, row) is not None for row in range(len(cols[0]))]
    assert (able.tolist() if able is not None else [True] * len(expected)) == expected
    assert (able is None) == all(expected)


@given(st.data())
def test_equal_keys_equals_its_twin(data: st.DataObject) -> None:
    left = data.draw(columns())
    rows = len(left[0])
    # The same rows in another order: some meet their like, some do not.
    order = data.draw(st.permutations(range(rows)))
    right = [column.take(pa.array(order, pa.int64())) for column in left]
    expected = [
        python_key(left, row) is not None and python_key(left, row) == python_key(right, row) for row in range(rows)
    ]
    assert keys.equal_keys(left, right).tolist() == expected


def test_equal_keys_compares_by_value_across_widths() -> None:
    def equal(left: pa.Array, right: pa.Array) -> list[bool]:
        return keys.equal_keys([left], [right]).tolist()

    assert equal(pa.array([1, -1, None], pa.int8()), pa.array([1, 255, None])) == [True, False, False]
    assert equal(pa.array([0.0, math.nan]), pa.array([-0.0, math.nan], pa.float32())) == [True, False]
    assert equal(pa.array(["a", None]), pa.array(["a", ""], pa.large_string())) == [True, False]
    assert equal(pa.array([Decimal("1.5")], pa.decimal128(3, 1)), pa.array([Decimal("1.5")], pa.decimal128(38, 1))) == [
        True
    ]
    moment = datetime(2024, 3, 31, 1, tzinfo=UTC)
    berlin = pa.array([moment], pa.timestamp("us", "Europe/Berlin"))
    assert equal(pa.array([moment], pa.timestamp("s", "UTC")), berlin) == [True]


@given(columns([pa.int16(), pa.int64(), pa.date32(), pa.bool_(), pa.timestamp("us")], max_columns=1))
def test_where_hashes_are_injective_equal_hashes_are_equal_keys(cols: list[pa.Array]) -> None:
    assert keys.injective([column.type for column in cols])
    hashes, able = keys.hash_keys(cols), keys.joinable(cols)
    rows = [row for row in range(len(hashes)) if able is None or able[row]]
    assert len({int(hashes[row]) for row in rows}) == len({python_key(cols, row) for row in rows})


# --- kinds


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.int8(), pa.int64()),
        (pa.string(), pa.large_string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string())),
        (pa.binary(), pa.binary(4)),
        (pa.decimal128(5, 2), pa.decimal128(38, 2)),
        (pa.float32(), pa.float64()),
        (pa.timestamp("s"), pa.timestamp("ns")),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo")),
        (pa.date32(), pa.date64()),
    ],
)
def test_types_of_one_kind_match(left: pa.DataType, right: pa.DataType) -> None:
    keys.check_key_types(pa.schema([("a", left)]), ["a"], pa.schema([("b", right)]), ["b"])


@pytest.mark.parametrize(
    ("left", "right", "cast"),
    [
        (pa.string(), pa.int32(), "BIGINT"),
        (pa.int64(), pa.string(), "STRING"),
        (pa.timestamp("us", "UTC"), pa.date32(), "DATE"),
        (pa.date32(), pa.timestamp("us", "UTC"), "TIMESTAMP"),
        (pa.timestamp("us", "UTC"), pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.decimal128(10, 3), pa.decimal128(10, 2), "DECIMAL(10,2)"),
        (pa.int64(), pa.float64(), "DOUBLE"),
        (pa.string(), pa.binary(), "BINARY"),
    ],
)
def test_types_of_other_kinds_are_refused_with_the_cast_to_write(
    left: pa.DataType, right: pa.DataType, cast: str
) -> None:
    with pytest.raises(KeyTypeMismatch) as caught:
        keys.check_key_types(pa.schema([("a", left)]), ["a"], pa.schema([("b", right)]), ["b"])
    assert f"cast('{cast}')" in caught.value.do
    assert "'a'" in caught.value.what
    assert "'b'" in caught.value.what


def test_other_faulty_keys_are_refused() -> None:
    schema = pa.schema([("product_id", pa.int64()), ("tags", pa.list_(pa.string())), ("big", pa.uint64())])
    with pytest.raises(UnknownColumn, match="product_id"):
        keys.check_key_types(schema, ["product_idd"], schema, ["product_id"])
    with pytest.raises(UnknownColumn, match="The table"):
        keys.check_key_types(schema, ["product_id"], schema, ["id"])
    with pytest.raises(UnsupportedType, match="tags"):
        keys.check_key_types(schema, ["tags"], schema, ["tags"])
    with pytest.raises(UnsupportedType, match="big"):
        keys.check_key_types(schema, ["big"], schema, ["big"])
    with pytest.raises(KeyTypeMismatch, match="2 key column"):
        keys.check_key_types(schema, ["product_id", "big"], schema, ["product_id"])
    twice = pa.schema([("k", pa.int64()), ("k", pa.int64())])
    with pytest.raises(UnknownColumn, match="more than one"):
        keys.check_key_types(twice, ["k"], schema, ["product_id"])
