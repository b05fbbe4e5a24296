"""Rows kept together: how a prepared page stores its rows, and how some of them become columns again.

::

    rows of a page:   record 0 │ record 1 │ … │ heap │ slack │ nested columns (Arrow IPC)
    record:           values, widest first │ null bits │ padding to 8 bytes
    text value:       place in the heap (u32) │ length (u32)

A match costs the cache lines of its record instead of the decoding of every column. Columns of lists, structs and maps
stay columnar, in one IPC message a page. A null bit is 1 for NULL; columns without a NULL in the whole table have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from penstock.tables import rowloops
from penstock.tables.arrow_types import fixed_width
from penstock.tables.header import Header
from penstock.tables.native import PREAD
from penstock.tables.rowloops import BITS, SLACK, TEXT

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.tables.base import RowIds

    Integers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]


class Field(NamedTuple):
    """One column in a record: its place in the schema, its kind, its first byte, its null bit (-1: it has none)."""

    column: int
    kind: int
    offset: int
    bit: int


class Section(NamedTuple):
    """The rows of one page as bytes: records, heap and slack, padded to eight bytes, then `nested_size` bytes."""

    data: Bytes
    heap_size: int
    nested_size: int


class Layout:
    """Where each column of a schema lies in a record.

    Guarantees
        `take` after `encode` gives the same rows: `test_rows_survive_the_record_layout`.
    State and cost
        A few bytes a column. A page of `n` rows needs `n * stride` bytes and its texts; picking rows touches only
        their records, and each text once.
    """

    def __init__(self, schema: pa.Schema, nullable: Sequence[str]) -> None:
        self.schema = schema
        self.nullable = tuple(nullable)
        kinds = {column: _kind(field.type) for column, field in enumerate(schema)}
        self.nested = [column for column, kind in kinds.items() if kind is None]
        flat = {column: kind for column, kind in kinds.items() if kind is not None}
        # Widest first: every value is aligned as far as records are.
        ends = accumulate((_width(flat[column]) for column in sorted(flat, key=lambda c: -_width(flat[c]))), initial=0)
        offsets = dict(zip(sorted(flat, key=lambda c: -_width(flat[c])), ends, strict=False))
        bit = 8 * sum(_width(kind) for kind in flat.values())
        fields = []
        for column, kind in flat.items():
            has_bit = schema.field(column).name in self.nullable
            fields.append(Field(column, kind, offsets[column], bit if has_bit else -1))
            bit += has_bit
        self.fields = tuple(fields)
        self.stride = -(-bit // 64) * 8
        self._texts = [field for field in fields if field.kind == TEXT]
        self._codes = np.array([code for f in fields for code in (f.kind, f.offset, f.bit)], np.int64)
        self._spans = np.zeros(6 * len(fields), np.int64)
        self._nulls = np.zeros(len(fields), np.int64)
        self._header = Header(pa.schema([schema.field(column) for column in flat])) if flat else None
        self._nested_schema = pa.schema([schema.field(column) for column in self.nested])

    def sizes(self, rows: pa.RecordBatch) -> Integers:
        """Bytes each row needs in a page; where there are nested columns, about."""
        sizes = np.full(rows.num_rows, self.stride, np.int64)
        for field in self._texts:
            sizes += _lengths(rows.column(field.column))
        if self.nested and rows.num_rows:
            sizes += sum(rows.column(column).nbytes for column in self.nested) // rows.num_rows
        return sizes

    def encode(self, rows: pa.RecordBatch) -> Section:
        """The bytes of a page with these rows."""
        count = rows.num_rows
        lengths = {field.column: _lengths(rows.column(field.column)) for field in self._texts}
        row_heap = sum(lengths.values(), np.zeros(count, np.int64))
        heap_size = int(row_heap.sum())
        nested = self._encode_nested(rows)
        heap = count * self.stride
        data = np.zeros(-(-(heap + heap_size + SLACK) // 8) * 8 + len(nested), np.uint8)
        data[len(data) - len(nested) :] = np.frombuffer(nested, np.uint8)
        base = rowloops.address(data)
        # The texts of one row lie together: a match finds them in neighbouring cache lines.
        places = np.cumsum(row_heap) - row_heap
        for field in self.fields:
            column = rows.column(field.column)
            valid = _valid_bytes(column)
            if valid is not None:
                if field.bit < 0:
                    raise ValueError(f"column {self.schema.field(field.column).name!r} was said to have no NULL")
                rowloops.mark(rowloops.address(valid), count, base, self.stride, field.bit)
            if field.kind == TEXT:
                _put_text(column, lengths[field.column], places, base, self.stride, field.offset, base + heap)
                places = places + lengths[field.column]
            elif count:
                values = column.cast(pa.uint8()) if field.kind == BITS else column
                source = values.buffers()[1].address + values.offset * _width(field.kind)
                mask = 0 if valid is None else rowloops.address(valid)
                rowloops.put(source, _width(field.kind), count, base, self.stride, field.offset, mask)
        return Section(data, heap_size, len(nested))

    def _encode_nested(self, rows: pa.RecordBatch) -> Any:
        if not self.nested:
            return b""
        columns = [rows.column(column) for column in self.nested]
        return pa.RecordBatch.from_arrays(columns, schema=self._nested_schema).serialize()

    def fill(self, base: int, count: int, heap_size: int, rows: RowIds, descriptor: int, offset: int) -> None:
        """Read from a file, where the section begins at `offset`, what `take` of these rows needs at address `base`.

        Raises `IndexError` for rows that are not there, `OSError` for what cannot be read.
        """
        first, last = (self._texts[0].offset, self._texts[-1].offset) if self._texts else (-1, -1)
        where = (PREAD, descriptor, offset, base, self.stride, count, heap_size, first, last)
        fault = rowloops.fill(*where, rows)
        if fault == rowloops.UNORDERED:
            fault = rowloops.fill(*where, np.sort(rows))
        if fault:
            raise _fault(fault)

    def take(self, base: int, count: int, heap_size: int, rows: RowIds, nested: pa.Buffer | None) -> pa.RecordBatch:
        """Some of the `count` rows of the section at address `base`, as columns of their own.

        Raises `ValueError` for bytes that cannot be a section, `IndexError` for rows that are not there.
        """
        rows = np.ascontiguousarray(rows, np.int64)
        flat = self._take_flat(base, count, heap_size, rows)
        if nested is None:
            return flat
        kept = pa.ipc.read_record_batch(nested, self._nested_schema).take(pa.array(rows))
        columns: list[Any] = [None] * len(self.schema)
        for column, values in zip(self.nested, kept.columns, strict=True):
            columns[column] = values
        for place, field in enumerate(self.fields):
            columns[field.column] = flat.column(place)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _take_flat(self, base: int, count: int, heap_size: int, rows: RowIds) -> Any:
        spans, nulls = self._spans, self._nulls
        body = rowloops.measure(base, self.stride, count, heap_size, rows, self._codes, spans)
        if body < 0:
            raise _fault(body)
        if self._header is None:
            return None
        message = pa.allocate_buffer(self._header.size + body)
        heap, out = base + count * self.stride, message.address + self._header.size
        rowloops.gather(base, self.stride, heap, rows, self._codes, spans, out, nulls)
        self._header.write(np.frombuffer(message, np.uint8), body, len(rows), nulls, spans)
        return self._header.read(message)


def _kind(type_: pa.DataType) -> int | None:
    if pt.is_boolean(type_):
        return BITS
    if pt.is_string(type_) or pt.is_binary(type_):
        return TEXT
    return fixed_width(type_)


def _width(kind: int) -> int:
    """Bytes in a record."""
    return {BITS: 1, TEXT: 8}.get(kind, kind)


def _valid_bytes(column: pa.Array) -> Bytes | None:
    if not column.null_count:
        return None
    return np.ascontiguousarray(column.is_valid().to_numpy(zero_copy_only=False)).view(np.uint8)


def _lengths(column: pa.Array) -> Integers:
    """Bytes of each text, 0 for NULL."""
    if not len(column):
        return np.zeros(0, np.int64)
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    lengths = offsets[1:].astype(np.int64) - offsets[:-1]
    valid = _valid_bytes(column)
    return lengths if valid is None else lengths * valid


def _put_text(
    column: pa.Array, lengths: Integers, places: Integers, base: int, stride: int, offset: int, heap: int
) -> None:
    if not len(column):
        return
    _, offsets, data = column.buffers()
    source = 0 if data is None else data.address
    rowloops.put_text(offsets.address + 4 * column.offset, source, lengths, places, base, stride, offset, heap)


def _fault(code: int) -> Exception:
    if code == rowloops.BAD_ROW:
        return IndexError("a row beyond the end of the page")
    if code == rowloops.TOO_LONG:
        return OverflowError("more than 2 GB of text at once; take fewer rows")
    if code == rowloops.UNREADABLE:
        return OSError("the file ends early or cannot be read")
    return ValueError("a text that lies outside the page")
