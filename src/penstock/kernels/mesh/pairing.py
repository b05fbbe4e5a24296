"""What comes of rows of the stream and of the table that were brought together: the results of each kind of join."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.kernels.contract import SET_ASIDE, SET_ASIDE_SCHEMA, Emission
from penstock.kernels.measure import fixed_width, measure, runs, widths
from penstock.kernels.mesh.budget import SLICE_BYTES
from penstock.kernels.mesh.condition import MET, Condition
from penstock.kernels.mesh.index import I64
from penstock.kernels.mesh.results import How, carried, results_schema
from penstock.kernels.mesh.window import Window
from penstock.kernels.row_text import row_texts
from penstock.tables.base import Page, PageReader, Table

if TYPE_CHECKING:
    from penstock.tables.keys import Mask

#: Fewer than one in so many rows are a few.
_FEW = 1_024
#: Bytes that a batch takes up beside its rows, and each of its columns: with few rows that is most of it.
_BATCH_BYTES, _COLUMN_BYTES = 1_536, 320


class Pairing:
    """Turns candidates, which have the same hash or may otherwise belong together, into results.

    With `tells_lonely` it notes which rows of a window have met a partner, for those without one to be told apart.

    Guarantees
        Results leave in batches of at most about `SLICE_BYTES`, however wide or many they are.
    State and cost
        Where a page has few partners, they wait for those of the next pages, at most half of `SLICE_BYTES` with the
        batches that they are in: what is done for each batch of results would cost more than the results. `rest` is
        to be called before rows leave the window.
    """

    def __init__(self, stream: pa.Schema, table: Table, condition: Condition, how: How, tells_lonely: bool) -> None:
        self.schema = results_schema(stream, table, condition, how)
        self.tells_lonely = tells_lonely or how in ("left", "anti")
        #: Whether results are rows of the stream as they came, for which having a partner is all that counts.
        self.rows_alone = how in ("semi", "anti")
        self._how = how
        self._condition = condition
        self._on = list(condition.on)
        self._asks = list(condition.asks(table))
        self._asks_key = self._asks == list(table.key)
        self._carried = [] if self.rows_alone else carried(table, condition)
        self._width = _width(self.schema) if fixed_width(self.schema) else None
        self._waiting: list[tuple[I64, pa.RecordBatch]] = []
        self._waiting_bytes = 0.0

    @property
    def needs(self) -> list[str]:
        """The table's columns without which no result can be made."""
        return list(dict.fromkeys([*self._asks, *self._carried]))

    def of_page(
        self, reader: PageReader, page: Page, page_rows: I64, window: Window, window_rows: I64
    ) -> Iterator[pa.RecordBatch]:
        """Results of a page's rows and rows that wait, which are candidates pair by pair, by ascending `page_rows`."""
        if self.rows_alone:
            yield from self._found(reader, page, page_rows, window, window_rows)
            return
        if self._width is not None:
            some = reader.take(page, page_rows)
            yield from self._join(window, window_rows, some, len(window_rows) * self._width)
            return
        # A row of the table that meets many is read once: as often as it is met, one wide value could take any amount
        # of memory.
        first = np.flatnonzero(np.diff(page_rows, prepend=-1))
        partners = reader.take(page, page_rows[first])
        met = np.repeat(np.arange(len(first)), np.diff(first, append=len(page_rows)))
        sizes = widths(partners, met) + window.widths(window_rows)
        for begin, end in runs(sizes, SLICE_BYTES):
            some = _pick(partners, met[begin:end])
            yield from self._join(window, window_rows[begin:end], some, float(sizes[begin:end].sum()))

    def rest(self, window: Window) -> Iterator[pa.RecordBatch]:
        """Results of what has waited for the next page's."""
        if self._waiting:
            numbers = np.concatenate([rows for rows, _ in self._waiting])
            partners = pa.concat_batches([partners for _, partners in self._waiting])
            self._waiting, self._waiting_bytes = [], 0.0
            yield from self._joined(window, numbers, partners)

    def _join(
        self, window: Window, window_rows: I64, partners: pa.RecordBatch, nbytes: float
    ) -> Iterator[pa.RecordBatch]:
        nbytes += _BATCH_BYTES + _COLUMN_BYTES * partners.num_columns
        if self._waiting_bytes + nbytes > SLICE_BYTES / 2:
            yield from self.rest(window)
        if nbytes > SLICE_BYTES / 2:
            yield from self._joined(window, window_rows, partners)
        else:
            # A copy: the array is used again for the next pairs.
            self._waiting.append((window_rows.copy(), partners))
            self._waiting_bytes += nbytes

    def _joined(self, window: Window, window_rows: I64, partners: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        joined, same = self.of_rows(window.take(window_rows), partners)
        if self.tells_lonely:
            window.flag(window_rows[same], MET)
        yield from kept(joined, same)

    def _found(
        self, reader: PageReader, page: Page, page_rows: I64, window: Window, window_rows: I64
    ) -> Iterator[pa.RecordBatch]:
        """Note which rows have a partner, whatever it holds; of a semi-join, they are results at once."""
        if self._asks:
            asked = reader.keys if self._asks_key else reader.take
            rows = window.take(window_rows, list(dict.fromkeys(self._on)))
            window_rows = window_rows[self.belong(rows, asked(page, page_rows))]
        fresh = window.flag(window_rows, MET)
        if self._how == "semi":
            for begin, end in runs(window.widths(fresh), SLICE_BYTES):
                yield window.take(fresh[begin:end])

    def of_rows(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask]:
        """Rows beside their candidates, and which of them belong together: those are results."""
        # By name: partners from the front cache have other places than the table's.
        columns = [*rows.columns, *(partners.column(name) for name in self._carried)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), self.belong(rows, partners)

    def belong(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> Mask:
        """Which rows and candidates belong together."""
        if not self._asks:
            return np.ones(rows.num_rows, np.bool_)
        return self._condition.holds(rows.select(self._on), partners.select(self._asks))

    def without_partner(self, rows: pa.RecordBatch, which: Mask) -> Iterator[pa.RecordBatch]:
        """Rows that have no partner, with NULLs for what it would have, where such are results."""
        if self._how not in ("left", "anti"):
            return
        numbers = np.flatnonzero(which)
        for begin, end in runs(widths(rows, numbers), SLICE_BYTES):
            some = rows.take(pa.array(numbers[begin:end]))
            nulls = [pa.nulls(some.num_rows, field.type) for field in list(self.schema)[some.num_columns :]]
            yield pa.RecordBatch.from_arrays([*some.columns, *nulls], schema=self.schema)

    def with_partner(self, rows: pa.RecordBatch, which: Mask) -> Iterator[pa.RecordBatch]:
        """Rows that have one, of a semi-join."""
        if self._how == "semi":
            some = rows.filter(pa.array(which))
            for begin, end in runs(widths(some, np.arange(some.num_rows)), SLICE_BYTES):
                yield some.slice(begin, end - begin)


def kept(rows: pa.RecordBatch, which: Mask) -> Iterator[pa.RecordBatch]:
    """Some of the rows; where nearly all of them, as slices between the others: no copy is made for a few."""
    others = np.flatnonzero(~which)
    if len(others) * _FEW > len(which):
        rows = rows.filter(pa.array(which))
        others = others[:0]
    for before, after in zip((-1, *others.tolist()), (*others.tolist(), rows.num_rows), strict=True):
        if after - before > 1:
            yield rows.slice(before + 1, after - before - 1)


def set_aside(row: pa.RecordBatch, reason: str) -> Emission:
    """One row that cannot be joined, and why."""
    columns = [pa.array([text], pa.string()) for text in (reason, "", *row_texts(row))]
    return Emission(SET_ASIDE, pa.RecordBatch.from_arrays(columns, schema=SET_ASIDE_SCHEMA))


def _width(schema: pa.Schema) -> float:
    """Bytes of any row."""
    return measure(pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema))


def _pick(rows: pa.RecordBatch, numbers: np.ndarray) -> pa.RecordBatch:
    """The rows with these numbers, which ascend; without a copy where they are all, each once.

    Of some a copy: they may wait, and a slice would keep all of what it was cut from.
    """
    whole = len(numbers) == rows.num_rows and bool(np.all(np.diff(numbers) == 1))
    return rows if whole else rows.take(pa.array(numbers))
