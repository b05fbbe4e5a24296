"""Reads the row groups of Parquet files: key columns first, then one column at a time for the rows asked for."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.tables import bloom, files, keys
from penstock.tables.arrow_types import as_spark, fixed_width, has_views
from penstock.tables.base import Page, PageReader
from penstock.tables.constants import repeated
from penstock.tables.parquet import column_chunk
from penstock.tables.parquet_memory import BUFFER, PageSizes, batch_rows, measured, owner, width

if TYPE_CHECKING:
    from penstock.tables.base import Hashes, RowIds
    from penstock.tables.parquet import ParquetTable, PlannedFile

T = TypeVar("T")

_OPEN_FILES = 6


class ParquetReader(PageReader):
    """Reads row groups, one column at a time.

    Guarantees
        Every answer is from the planned bytes: stamps are compared before and after each read, and fingerprints where
        a stamp moved; anything else is `TableChanged` with the file's name.
    State and cost
        A few open files; while reading, what `Page` promises; between calls, the hashes of one page.
    """

    def __init__(self, table: ParquetTable) -> None:
        self.table = self._table = table
        self._open: OrderedDict[int, tuple[files.Stamp, pq.ParquetFile]] = OrderedDict()
        #: The stamp under which a file's fingerprint was last found to be the planned one.
        self._verified: dict[int, files.Stamp] = {}
        #: Of each open file the pages that its columns begin with; and of one page the rows decoded at once, by column.
        self._firsts: dict[int, list[PageSizes | None]] = {}
        self._at_once: tuple[int, dict[str, int]] = -1, {}

    def hashes(self, page: Page) -> Hashes:
        """The hash of every row's key, from the key columns alone."""
        return self._steadily(page, lambda file, group: self._hash(file, group, page))

    def may_have(self, page: Page, values: pa.Array) -> bool:
        """What the page's Bloom filter says; True where it has none, or a larger one than the page's promise allows."""
        if not 0 < page.bloom <= page.hash_bytes:
            return True
        kind = self._table.fields.field(self._table.key[0]).type
        try:
            asked = values.cast(kind)
        except pa.ArrowInvalid:  # a number that the column's type does not have
            return True
        return self._steadily(page, lambda file, group: bloom.may_have(self._filter(file, group, page), asked))

    def _filter(self, file: pq.ParquetFile, group: int, page: Page) -> bytes:
        chunk = column_chunk(file.metadata.row_group(group), self._planned(page).stored(self._table.key[0]))
        assert chunk is not None, "planned with a filter"
        path = self._table.locate(self._table.places[page.index][0])
        with open(path, "rb", buffering=0) as opened:
            return os.pread(opened.fileno(), page.bloom, chunk.bloom_filter_offset)

    def take(self, page: Page, rows: RowIds) -> pa.RecordBatch:
        """The given rows; each column is decoded, picked from and let go before the next."""
        return self._steadily(page, lambda file, group: self._pick(file, group, page, rows))

    def keys(self, page: Page, rows: RowIds | None = None) -> pa.RecordBatch:
        """The key columns, and no other, of the given rows or of all."""
        wanted = np.arange(page.rows, dtype=np.int64) if rows is None else rows
        return self._steadily(page, lambda file, group: self._pick(file, group, page, wanted, self.table.key))

    def batches(self, page: Page, only: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, some at a time; a file that changes meanwhile is noticed at the end."""
        number, group = self._table.places[page.index]
        path = self._table.locate(number)
        before, file = self._acquire(number)
        fields = self._fields(only)
        size = batch_rows(page.row_width) if only is None else self._least_batch(file, page, fields.names)
        try:
            yield from self._read(file, group, page, fields, size)
        except (OSError, pa.ArrowException) as error:
            raise files.changed(path, f"cannot be read any more: {str(error).splitlines()[0]}") from error
        if self._stamp(path) != before:
            raise files.changed(path, "changed while it was read")

    def close(self) -> None:
        """Let go of files."""
        while self._open:
            self._forget(next(iter(self._open)))

    def _hash(self, file: pq.ParquetFile, group: int, page: Page) -> Hashes:
        out = np.empty(page.rows, np.uint64)
        if page.hashes is not None:  # the key is that of a partition
            out.fill(page.hashes[0])
            return out
        at = 0
        fields = self._fields(self._table.key)
        for batch in self._read(file, group, page, fields, self._least_batch(file, page, fields.names)):
            out[at : at + batch.num_rows] = keys.hash_keys(batch.columns)
            at += batch.num_rows
        return out

    def _read(
        self, file: pq.ParquetFile, group: int, page: Page, fields: pa.Schema, size: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a page in order, `size` at a time."""
        planned = self._planned(page)
        same = dict(planned.constants)
        stored = [planned.stored(name) for name in fields.names if name not in same]
        for batch in file.iter_batches(size, row_groups=[group], columns=stored, use_threads=False):
            columns = [
                repeated(same[field.name], field.type, batch.num_rows)
                if field.name in same
                else as_spark(batch.column(planned.stored(field.name)), field.type, field.name)
                for field in fields
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=fields)

    def _pick(
        self, file: pq.ParquetFile, group: int, page: Page, rows: RowIds, only: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        fields = self._fields(only)
        ascending = bool(np.all(rows[1:] >= rows[:-1]))
        order = None if ascending else np.argsort(rows, kind="stable")
        wanted = rows if order is None else rows[order]
        back = None if order is None else pa.array(np.argsort(order, kind="stable"))
        planned = self._planned(page)
        constants = dict(planned.constants)
        picked = []
        for field in fields:
            if field.name in constants:
                picked.append(repeated(constants[field.name], field.type, len(rows)))
                continue
            size = self._batch(file, page, field.name)
            column = _pick_column(file, group, field, planned.stored(field.name), wanted, size, page.rows)
            picked.append(column if back is None else column.take(back))
        return pa.RecordBatch.from_arrays(picked, schema=fields)

    def _planned(self, page: Page) -> PlannedFile:
        return self._table.files[self._table.places[page.index][0]]

    def _fields(self, only: Sequence[str] | None) -> pa.Schema:
        fields = self._table.fields
        return fields if only is None else pa.schema([fields.field(name) for name in only])

    def _least_batch(self, file: pq.ParquetFile, page: Page, names: Sequence[str]) -> int:
        """Rows that are decoded at once of several columns together."""
        same = dict(self._planned(page).constants)
        own = [self._batch(file, page, name) for name in names if name not in same]
        return min(own, default=batch_rows(page.row_width))

    def _batch(self, file: pq.ParquetFile, page: Page, name: str) -> int:
        """Rows of a column that are decoded at once."""
        if self._at_once[0] != page.index:
            self._at_once = page.index, {}
        known = self._at_once[1]
        if name not in known:
            known[name] = self._decoded(file, page, name)
        return known[name]

    def _decoded(self, file: pq.ParquetFile, page: Page, name: str) -> int:
        kind = self._table.fields.field(name).type
        fixed = fixed_width(kind)
        if fixed is not None:
            return batch_rows(fixed)
        number, group = self._table.places[page.index]
        planned = self._table.files[number]
        stored = planned.stored(name)
        fields = pa.schema([f.with_name(planned.stored(f.name)) for f in self._table.fields])
        metadata, firsts = file.metadata.row_group(group), self._firsts[number]
        own = [
            (chunk, firsts[leaf] if leaf < len(firsts) else None)
            for leaf in range(metadata.num_columns)
            if owner((chunk := metadata.column(leaf)).path_in_schema, fields) == stored
        ]
        return min(batch_rows(width(chunk, kind, metadata.num_rows, first)) for chunk, first in own)

    def _steadily(self, page: Page, read: Callable[[Any, int], T]) -> T:
        """Read from a file that is the planned one before and after."""
        number, group = self._table.places[page.index]
        path = self._table.locate(number)
        for _ in range(3):
            before, file = self._acquire(number)
            try:
                answer = read(file, group)
            except (OSError, pa.ArrowException) as error:
                self._forget(number)
                raise files.changed(path, f"cannot be read any more: {str(error).splitlines()[0]}") from error
            if self._stamp(path) == before:
                return answer
            # It moved while it was read. If it is the same bytes again, once more from the start.
            self._forget(number)
            self._verified.pop(number, None)
        raise files.changed(path, "changes again and again")

    def _acquire(self, number: int) -> tuple[files.Stamp, pq.ParquetFile]:
        path = self._table.locate(number)
        now = self._stamp(path)
        held = self._open.get(number)
        if held is not None and held[0] == now:
            self._open.move_to_end(number)
            return held
        self._forget(number)
        if self._verified.get(number) != now:
            self._verify(number, path)
            self._verified[number] = now
        while len(self._open) >= _OPEN_FILES:
            self._forget(next(iter(self._open)))
        try:
            file = pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us")
            self._firsts[number] = measured(path, file.metadata)
        except (OSError, pa.ArrowException) as error:
            raise files.changed(path, f"cannot be opened any more: {str(error).splitlines()[0]}") from error
        self._open[number] = now, file
        return self._open[number]

    def _verify(self, number: int, path: Path) -> None:
        planned = self._table.files[number]
        try:
            size, digest = files.fingerprint(path)
        except FileNotFoundError as error:
            raise files.changed(path, "is gone") from error
        except (OSError, ValueError) as error:
            raise files.changed(path, f"is not what was planned: {error}") from error
        if size != planned.size:
            raise files.changed(path, f"has {size:,} bytes now and had {planned.size:,}")
        if digest != planned.digest:
            raise files.changed(path, "was rewritten")

    def _stamp(self, path: Path) -> files.Stamp:
        try:
            return files.stamp(path)
        except FileNotFoundError as error:
            raise files.changed(path, "is gone") from error
        except OSError as error:
            raise files.changed(path, f"cannot be reached: {error.strerror}") from error

    def _forget(self, number: int) -> None:
        held = self._open.pop(number, None)
        if held is not None:
            held[1].close(force=True)
            self._firsts.pop(number)


def _pick_column(
    file: pq.ParquetFile, group: int, field: pa.Field, stored: str, wanted: RowIds, size: int, total: int
) -> pa.Array:
    """Ascending rows of one column, which is decoded `size` rows at a time and no further than needed."""
    cuts = np.searchsorted(wanted, np.arange(0, total + size, size))
    parts = []
    batches = file.iter_batches(size, row_groups=[group], columns=[stored], use_threads=False)
    for number, batch in enumerate(batches):
        first, last = cuts[number], cuts[number + 1]
        if first < last:
            values = batch.column(stored)
            if has_views(values.type):
                values = as_spark(values, field.type)  # Arrow cannot pick from views
            picked = values.take(pa.array(wanted[first:last] - number * size))
            parts.append(as_spark(picked, field.type, field.name))
        if last == len(wanted):
            break
    return pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
