"""Fingerprints against the rows themselves: equal where they are, different where they differ."""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.fingerprint import fingerprints
from penstock.testing.rows import bag
from penstock.testing.strategies import tables

TYPES = {
    "integer": pa.int32(),
    "unsigned": pa.uint64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal": pa.decimal128(20, 3),
    "list": pa.list_(pa.string()),
    "map": pa.map_(pa.string(), pa.int64()),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))]),
    "nested": pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.int8()))])),
}


def whole(table):
    return table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_equal_rows_have_equal_fingerprints(name, data):
    rows = whole(data.draw(tables(pa.schema([("x", TYPES[name]), ("y", pa.int8())]))))
    found = fingerprints(rows)
    order = data.draw(st.permutations(range(rows.num_rows)))
    assert fingerprints(rows.take(pa.array(order, pa.int64()))).tolist() == found[order].tolist()
    start = data.draw(st.integers(0, rows.num_rows))
    assert fingerprints(rows.slice(start)).tolist() == found[start:].tolist()


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_rows_that_differ_have_different_fingerprints(name, data):
    rows = whole(data.draw(tables(pa.schema([("x", TYPES[name]), ("y", pa.int8())]))))
    # As many different fingerprints as different rows: none is shared, none is divided.
    assert len(set(fingerprints(rows).tolist())) >= len(bag(rows))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [0.0, -0.0, float("nan"), None, 1.5]),
        (pa.string(), ["", None, "a", "aa", "null"]),
        (pa.list_(pa.int64()), [[], None, [None], [0], [0, 0], [1, 2], [2, 1]]),
        (pa.struct([("a", pa.int64())]), [None, {"a": None}, {"a": 0}, {"a": 1}]),
        (pa.map_(pa.string(), pa.int64()), [None, [], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)]]),
        (pa.decimal256(50, 2), [None, decimal.Decimal("1.00"), decimal.Decimal("1.01")]),
        (pa.time64("us"), [None, 0, 1]),
        (pa.list_(pa.int64(), 2), [None, [1, 2], [2, 1]]),
    ],
)
def test_values_that_are_easily_confused(kind, values):
    rows = pa.record_batch({"x": pa.array(values * 2, kind)})
    found = fingerprints(rows)
    assert (found[: len(values)] == found[len(values) :]).all()
    assert len(np.unique(found)) == len(values)


def test_dictionaries_are_as_their_values():
    plain = pa.array(["a", "b", None, "a"])
    for column in (plain, plain.dictionary_encode()):
        assert (
            fingerprints(pa.record_batch({"x": column})).tolist()
            == fingerprints(pa.record_batch({"x": plain})).tolist()
        )


def test_the_order_of_columns_matters():
    one = pa.record_batch({"x": [1], "y": [2]})
    two = pa.record_batch({"x": [2], "y": [1]})
    assert fingerprints(one)[0] != fingerprints(two)[0]
    assert fingerprints(one.slice(0, 0)).tolist() == []
    assert len(fingerprints(pa.record_batch({"x": pa.nulls(3)}))) == 3
