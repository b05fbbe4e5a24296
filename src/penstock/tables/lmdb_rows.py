"""Rows as values of a key-value store: some rows of one key each, and many values at once as columns again.

::

    value:   rows (15 bits), more follow (1 bit) │ record 0 │ record 1 │ … │ their texts

Records are those of `records.Layout`; a text's place counts from the first text of its value. Columns of lists, structs
and maps have no record: all those of a row are one Arrow IPC message, kept as one more text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from penstock.tables import rowloops
from penstock.tables.records import Layout
from penstock.tables.rowloops import SLACK, TEXT

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.tables.base import Hashes

    Integers = npt.NDArray[np.int64]

MORE = 1 << 15
#: Rows of one key share a value up to about so many bytes: some of them fit a page of 4 KB.
_VALUE_BYTES = 1_000
_NESTED = ""


class Run(NamedTuple):
    """Values of some rows in order: the key hash and number (of all values with that hash) of each, and its bytes."""

    hashes: Hashes
    numbers: Integers
    values: list[bytes]


class RowCodec:
    """Turns rows into values and back.

    Guarantees
        `decode` after `encode` gives the same rows: `test_rows_survive_the_index`.
    State and cost
        A few bytes a column. Rows with nested columns are decoded one by one.
    """

    def __init__(self, schema: pa.Schema, nullable: Sequence[str]) -> None:
        self.schema = schema
        self._nested = pa.schema([field for field in schema if pt.is_nested(field.type)])
        flat = [field for field in schema if not pt.is_nested(field.type)]
        if len(self._nested):
            flat.append(pa.field(_NESTED, pa.binary()))
        self._flat = pa.schema(flat)
        self._layout = Layout(self._flat, nullable)
        self._texts = [field.offset for field in self._layout.fields if field.kind == TEXT]

    def encode(self, rows: pa.RecordBatch, hashes: Hashes, first: int) -> Run:
        """The values of rows that come in the order of their hashes; the first hash has had `first` values before."""
        rows = self._flatten(rows)
        count, stride = rows.num_rows, self._layout.stride
        data = self._layout.encode(rows).data
        sizes = self._layout.sizes(rows)
        begins = np.cumsum(sizes) - sizes
        # Rows of one hash share values; a value begins where the hash does, or where it would get too large.
        group = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
        of_group = np.repeat(np.arange(len(group)), np.diff(group, append=count))
        part = (begins - begins[group][of_group]) // _VALUE_BYTES
        start = np.flatnonzero((np.diff(of_group, prepend=-1) != 0) | (np.diff(part, prepend=-1) != 0))
        stop = np.append(start[1:], count)
        value_group = of_group[start]
        numbers = np.arange(len(start)) - np.searchsorted(value_group, value_group)
        numbers[value_group == 0] += first
        # Whether a group goes on beyond these rows is not known: its last value says that more may follow.
        more = np.append(value_group[1:] == value_group[:-1], True)
        texts = np.append(begins, sizes.sum()) - np.arange(count + 1) * stride
        self._shift_texts(data[: count * stride].reshape(count, stride), -np.repeat(texts[start], stop - start))
        heap = data[count * stride :]
        values = [
            ((b - a) | (MORE if follows else 0)).to_bytes(2, "little")
            + data[a * stride : b * stride].tobytes()
            + (heap[texts[a] : texts[b]].tobytes() if self._texts else b"")
            for a, b, follows in zip(start.tolist(), stop.tolist(), more.tolist(), strict=True)
        ]
        return Run(hashes[start], numbers, values)

    def decode(self, values: Sequence[bytes]) -> tuple[pa.RecordBatch, Integers]:
        """The rows of all values, and how many each has."""
        stride = self._layout.stride
        counts = np.array([rows_in(value) for value in values], np.int64)
        records = [value[2 : 2 + stride * count] for value, count in zip(values, counts.tolist(), strict=True)]
        texts = [value[2 + len(record) :] for value, record in zip(values, records, strict=True)]
        data = np.frombuffer(bytearray(b"".join([*records, *texts, bytes(SLACK)])), np.uint8)
        total = int(counts.sum())
        lengths = np.array([len(text) for text in texts], np.int64)
        self._shift_texts(data[: total * stride].reshape(total, stride), np.repeat(lengths.cumsum() - lengths, counts))
        heap_size = int(lengths.sum())
        flat = self._layout.take(rowloops.address(data), total, heap_size, np.arange(total), None)
        return self._unflatten(flat), counts

    def _shift_texts(self, records: npt.NDArray[np.uint8], by: Integers) -> None:
        for offset in self._texts:
            place = np.ascontiguousarray(records[:, offset : offset + 4]).view("<u4")[:, 0]
            moved = (place.astype(np.int64) + by).astype("<u4")
            records[:, offset : offset + 4] = moved[:, None].view(np.uint8)

    def _flatten(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not len(self._nested):
            return rows
        nested = rows.select(self._nested.names)
        messages = [nested.slice(i, 1).serialize().to_pybytes() for i in range(rows.num_rows)]
        columns = [rows.column(name) for name in self._flat.names[:-1]]
        return pa.RecordBatch.from_arrays([*columns, pa.array(messages, pa.binary())], schema=self._flat)

    def _unflatten(self, flat: pa.RecordBatch) -> pa.RecordBatch:
        if not len(self._nested):
            return flat
        pieces = [pa.ipc.read_record_batch(message, self._nested) for message in flat.column(_NESTED).to_pylist()]
        nested = pa.Table.from_batches(pieces, schema=self._nested).combine_chunks()
        columns: dict[str, Any] = {name: flat.column(name) for name in self._flat.names[:-1]}
        for name in self._nested.names:
            chunks = nested.column(name).chunks
            columns[name] = chunks[0] if chunks else pa.array([], self._nested.field(name).type)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def rows_in(value: bytes) -> int:
    """How many rows a value has."""
    return int.from_bytes(value[:2], "little") & ~MORE


def more_follow(value: bytes) -> bool:
    """Whether the next value may have rows of the same hash."""
    return bool(value[1] & (MORE >> 8))
