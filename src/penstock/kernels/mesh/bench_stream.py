"""Streams to measure a mesh join with: rows of a given width, some of which match certain pages, the rest nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.kernels.contract import Portion
from penstock.tables.base import Page, PageReader, Table

#: Rows that travel together, as from Spark.
_PORTION_ROWS = 32_768
_TEXT = 16


class BenchStream:
    """Makes windows of stream rows for a table, always the same for the same seed.

    A row is the table's key and as many int64 columns as it takes to be `row_bytes` wide.
    """

    def __init__(self, table: Table, reader: PageReader, row_bytes: int, seed: int) -> None:
        self._table = table
        self._reader = reader
        self._rng = np.random.default_rng(seed)
        self._key = pa.schema([table.schema.field(name) for name in table.key])
        width = sum(_width(field.type) for field in self._key)
        self._extra = max(-(-(row_bytes - width) // 8), 0)
        self.schema = pa.schema([*self._key, *(pa.field(f"_stream{i}", pa.int64()) for i in range(self._extra))])

    def rows(self, count: int, matching: dict[int, int]) -> list[Portion]:
        """`count` rows in random order; of each page in `matching` (by its place) so many rows find their key."""
        parts = [self._keys_of(self._table.pages[page], wanted) for page, wanted in matching.items() if wanted]
        rest = count - sum(part.num_rows for part in parts)
        keys = pa.concat_batches([*parts, self._strangers(max(rest, 0))]).slice(0, count)
        order = pa.array(self._rng.permutation(keys.num_rows))
        columns = [column.take(order) for column in keys.columns]
        columns += [pa.array(self._rng.integers(0, 1 << 40, keys.num_rows)) for _ in range(self._extra)]
        whole = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return [Portion(0, whole.slice(at, _PORTION_ROWS)) for at in range(0, whole.num_rows, _PORTION_ROWS)]

    def _keys_of(self, page: Page, wanted: int) -> pa.RecordBatch:
        # With repetition, as in a stream.
        chosen = np.sort(self._rng.integers(0, page.rows, wanted))
        found = self._reader.take(page, chosen)
        columns = [found.column(name) for name in self._table.key]
        return pa.RecordBatch.from_arrays(columns, schema=self._key)

    def _strangers(self, count: int) -> pa.RecordBatch:
        """Keys that the table most likely has not; where a type has too few values, keys that it may have."""
        columns = [self._column(field.type, count) for field in self._key]
        return pa.RecordBatch.from_arrays(columns, schema=self._key)

    def _column(self, kind: pa.DataType, count: int) -> pa.Array:
        types, rng = pa.types, self._rng
        if types.is_integer(kind):
            bits = kind.bit_width - 1
            return pa.array(rng.integers(-(1 << bits), (1 << bits) - 1, count)).cast(kind)
        if types.is_floating(kind):
            return pa.array(rng.standard_normal(count) * 1e12).cast(kind)
        if types.is_temporal(kind):
            whole = pa.int32() if kind.bit_width == 32 else pa.int64()
            return pa.array(rng.integers(0, 20_000, count)).cast(whole).cast(kind)
        if types.is_boolean(kind):
            return pa.array(rng.integers(0, 2, count).astype(bool))
        if types.is_decimal(kind):
            digits = min(kind.precision - kind.scale, 15)
            return pa.array(rng.integers(0, 10**digits, count)).cast(pa.decimal128(19, 0)).cast(kind)
        letters = rng.integers(ord("a"), ord("z") + 1, count * _TEXT, np.uint8)
        offsets = (np.arange(count + 1) * _TEXT).astype(np.int32)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)]).cast(
            kind
        )


def _width(kind: pa.DataType) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return _TEXT + 4
