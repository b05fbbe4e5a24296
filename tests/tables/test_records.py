"""Rows in records: what goes in comes out, for any rows in any order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.tables import rowloops
from penstock.tables.arrow_types import as_spark, spark_type
from penstock.tables.records import Layout, Section
from tests.tables.samples import comparable, random_tables


def normal(table: pa.Table) -> pa.RecordBatch:
    """A random table as one batch, in the types that a table gives."""
    schema = pa.schema([(f.name, spark_type(f.type, f.name)) for f in table.schema])
    chunks = [pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0) for column in table.columns]
    columns = [as_spark(chunk, field.type) for chunk, field in zip(chunks, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def take(layout: Layout, section: Section, count: int, rows: list[int]) -> pa.RecordBatch:
    nested = pa.py_buffer(section.data[len(section.data) - section.nested_size :]) if section.nested_size else None
    address = rowloops.address(section.data)
    return layout.take(address, count, section.heap_size, np.array(rows, np.int64), nested)


@settings(max_examples=50)
@given(st.data())
def test_rows_survive_the_record_layout(data: st.DataObject) -> None:
    whole = normal(data.draw(random_tables()))
    start = data.draw(st.integers(0, whole.num_rows))
    rows = whole.slice(start)
    nullable = [name for name in rows.schema.names if rows.column(name).null_count or data.draw(st.booleans())]
    layout = Layout(rows.schema, nullable)
    section = layout.encode(rows)
    assert len(section.data) % 8 == 0 or section.nested_size
    assert layout.sizes(rows).sum() >= rows.num_rows * layout.stride
    chosen = data.draw(st.lists(st.integers(0, rows.num_rows - 1), max_size=20)) if rows.num_rows else []
    got = take(layout, section, rows.num_rows, chosen)
    got.validate(full=True)
    assert got.schema == rows.schema
    expected = comparable(rows.to_pylist())
    assert comparable(got.to_pylist()) == [expected[row] for row in chosen]
    # More rows than are gathered in one go.
    many = list(range(rows.num_rows)) * 10
    assert comparable(take(layout, section, rows.num_rows, many).to_pylist()) == expected * 10


def test_columns_without_a_null_have_no_bitmap() -> None:
    rows = pa.record_batch({"a": pa.array([1, None, 3]), "b": pa.array([1, 2, 3]), "s": ["x", "y", "z"]})
    layout = Layout(rows.schema, ["a", "b", "s"])
    section = layout.encode(rows)
    got = take(layout, section, 3, [0, 2])
    assert [column.buffers()[0] for column in got.columns] == [None, None, None]
    assert take(layout, section, 3, [1]).column("a").null_count == 1


def test_a_record_is_as_narrow_as_its_columns() -> None:
    plain = pa.schema([(f"c{i}", pa.int64()) for i in range(15)])
    assert Layout(plain, []).stride == 120
    assert Layout(plain, plain.names).stride == 128
    mixed = pa.schema([("flag", pa.bool_()), ("day", pa.date32()), ("name", pa.string()), ("tiny", pa.int8())])
    assert Layout(mixed, []).stride == 16


def test_rows_outside_the_page_are_refused() -> None:
    rows = pa.record_batch({"a": [1, 2, 3]})
    layout = Layout(rows.schema, [])
    section = layout.encode(rows)
    for row in (3, -1, 2**62):
        with pytest.raises(IndexError):
            take(layout, section, 3, [0, row])


def test_a_text_that_points_outside_the_page_is_refused() -> None:
    rows = pa.record_batch({"s": ["abc", "def"]})
    layout = Layout(rows.schema, [])
    section = layout.encode(rows)
    section.data[:8].view(np.uint32)[:] = (4, 100)
    with pytest.raises(ValueError, match="outside the page"):
        take(layout, section, 2, [0])


def test_a_null_where_none_was_promised_is_refused() -> None:
    rows = pa.record_batch({"a": pa.array([1, None])})
    with pytest.raises(ValueError, match="no NULL"):
        Layout(rows.schema, []).encode(rows)


def test_long_texts_and_many_rows() -> None:
    texts = [("ab" * n)[: n % 5000] for n in range(3000)]
    rows = pa.record_batch({"s": texts, "n": range(3000), "t": texts[::-1]})
    layout = Layout(rows.schema, [])
    order = np.random.default_rng(0).integers(0, 3000, 5000).tolist()
    got = take(layout, layout.encode(rows), 3000, order)
    assert got.equals(rows.take(pa.array(order)))
