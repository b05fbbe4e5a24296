"""Bytes of rows depend on the rows alone."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.measure import fixed_width, measure, widths
from penstock.testing.strategies import cuts, tables

ALL_TYPES = pa.schema(
    [
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("number", pa.int64()),
        ("real", pa.float64()),
        ("text", pa.string()),
        ("long_text", pa.large_string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(38, 10)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int8()), ("names", pa.list_(pa.string()))])),
        ("counts", pa.map_(pa.string(), pa.int32())),
    ]
)


@given(tables(ALL_TYPES, max_rows=12), st.data())
def test_measure_is_additive_over_any_cut(rows, data):
    whole = rows.combine_chunks().to_batches()[0] if rows.num_rows else pa.RecordBatch.from_pylist([], rows.schema)
    assert sum(map(measure, data.draw(cuts(rows)))) == measure(whole)
    # One row at a time, each copied into buffers of its own.
    singles = [pa.RecordBatch.from_pylist([row], rows.schema) for row in _python_rows(rows)]
    assert sum(map(measure, singles)) == measure(whole)


@given(tables(ALL_TYPES, min_rows=1, max_rows=12), st.randoms(use_true_random=False))
def test_measure_is_the_same_in_any_order(rows, random):
    order = list(range(rows.num_rows))
    random.shuffle(order)
    taken = rows.take(order).combine_chunks().to_batches()[0]
    assert measure(taken) == measure(rows.combine_chunks().to_batches()[0])


@given(tables(ALL_TYPES, min_rows=1, max_rows=12), st.data())
def test_widths_are_the_measures_of_single_rows(rows, data):
    whole = rows.combine_chunks().to_batches()[0]
    start = data.draw(st.integers(0, whole.num_rows - 1))
    part = whole.slice(start)
    numbers = data.draw(st.lists(st.integers(0, part.num_rows - 1), max_size=20))
    assert widths(part, np.array(numbers, np.int64)).tolist() == [measure(part.slice(n, 1)) for n in numbers]


def test_fixed_width_tells_texts_and_nested_columns():
    fixed = {field.name for field in ALL_TYPES if fixed_width(pa.schema([field]))}
    assert fixed == {"flag", "tiny", "number", "real", "day", "at", "price"}


@pytest.mark.parametrize(
    ("column", "bytes_"),
    [
        (pa.array([1, None, 3]), 3 * 8 + 3 / 8),
        (pa.array(["ab", None, "c"]), 3 * 4 + 3 + 3 / 8),
        (pa.array([True, False]), 2 / 8 + 2 / 8),
        (pa.array([[1, 2], None], pa.list_(pa.int64())), 2 * 4 + 2 / 8 + 2 * (8 + 1 / 8)),
        (pa.nulls(8), 1),
        (pa.array([], pa.string()), 0),
    ],
)
def test_measure_counts_values_offsets_and_one_bit_for_null(column, bytes_):
    assert measure(pa.record_batch([column], names=["c"])) == bytes_


def test_measure_is_close_to_what_arrow_holds():
    rng = np.random.default_rng(1)
    rows = pa.record_batch(
        {"n": pa.array(rng.integers(0, 9, 1000)), "t": pa.array(["x" * int(i) for i in rng.integers(0, 50, 1000)])}
    )
    assert rows.nbytes <= measure(rows) <= 1.02 * rows.nbytes


def _python_rows(rows):
    """Rows for `from_pylist`, times as integers so that no value is out of Python's range."""
    plain = [pa.field(f.name, {"day": pa.int32(), "at": pa.int64()}.get(f.name, f.type)) for f in rows.schema]
    return rows.cast(pa.schema(plain)).to_pylist()
