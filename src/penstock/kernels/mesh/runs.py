"""Rows sorted by one column in a bounded amount of memory: sorted runs in temporary files, merged."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from penstock.kernels.measure import measure

#: Runs that are merged at once; with more of them, these become one.
_FAN_IN = 16


class Runs:
    """Takes rows in any order, gives them back by a column: NaN after all values, NULL at the end.

    Guarantees
        Equal to sorting all rows: `test_runs_equal_sorting_all_rows`.
    State and cost
        About `room` bytes: rows until they fill a third of it, which are then sorted and written; while merging, a
        piece of each of up to 16 runs. Every row is written once, and once more for each sixteenfold of runs.
    """

    def __init__(self, schema: pa.Schema, by: str, room: int) -> None:
        self._schema = schema
        self._by = by
        self._room = room
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0.0
        #: Sorted files by level; a run of level n has been merged n times.
        self._levels: list[list[IO[bytes]]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows in."""
        self._held.append(rows)
        self._bytes += measure(rows)
        if self._bytes > self._room / 3:
            self._write(self._sorted(self._take()), 0)

    def close(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order; of no use afterwards."""
        last = self._sorted(self._take())
        files = [file for level in self._levels for file in level]
        try:
            while len(files) > _FAN_IN:
                merged = self._spill(self._merge([_read(file) for file in files[:_FAN_IN]]))
                for file in files[:_FAN_IN]:
                    file.close()
                files = [*files[_FAN_IN:], merged]
            yield from self._merge([*(_read(file) for file in files), iter(last)]) if files else last
        finally:
            for file in files:
                file.close()

    def _take(self) -> list[pa.RecordBatch]:
        held, self._held, self._bytes = self._held, [], 0.0
        return held

    def _sorted(self, batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        if not batches:
            return []
        table = pa.Table.from_batches(batches)
        order = pc.sort_indices(table, sort_keys=[(self._by, "ascending")])
        rows = max(int(table.num_rows * self._room / (4 * _FAN_IN) / max(sum(map(measure, batches)), 1)), 1)
        return table.take(order).combine_chunks().to_batches(max_chunksize=rows)

    def _write(self, rows: Sequence[pa.RecordBatch], level: int) -> None:
        self._put(self._spill(iter(rows)), level)

    def _put(self, file: IO[bytes], level: int) -> None:
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(file)
        if len(self._levels[level]) == _FAN_IN:
            files, self._levels[level] = self._levels[level], []
            merged = self._spill(self._merge([_read(one) for one in files]))
            for one in files:
                one.close()
            self._put(merged, level + 1)

    def _spill(self, batches: Iterator[pa.RecordBatch]) -> IO[bytes]:
        file: IO[bytes] = tempfile.TemporaryFile(prefix="penstock-sort-")  # noqa: SIM115 — closed when it is merged
        with pa.ipc.new_stream(file, self._schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return file

    def _merge(self, runs: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Of all runs at once: whatever is no greater than the smallest last row can go."""
        heads: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
        for run in runs:
            first = next(run, None)
            if first is not None:
                heads.append((first, run))
        while heads:
            bound = min(_place(batch[self._by], batch.num_rows - 1) for batch, _ in heads)
            ready, left = [], []
            for batch, run in heads:
                count = _no_greater(batch[self._by], bound)
                ready.append(batch.slice(0, count))
                rest: pa.RecordBatch | None = batch.slice(count) if count < batch.num_rows else next(run, None)
                if rest is not None:
                    left.append((rest, run))
            heads = left
            yield from self._sorted([batch for batch in ready if batch.num_rows])


def sortable(kind: pa.DataType) -> bool:
    """Whether there is an order of such values.

    >>> sortable(pa.string()), sortable(pa.list_(pa.int32()))
    (True, False)
    """
    try:
        pc.sort_indices(pa.nulls(0, kind))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _read(file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    file.seek(0)
    return iter(pa.ipc.open_stream(file))


def _place(column: pa.Array, row: int) -> tuple[int, Any]:
    """Where a row belongs: values, then NaN, then NULL."""
    found = column[row]
    # Spark's times reach further than Python's.
    value = found.value if pt.is_temporal(column.type) else found.as_py()
    if value is None:
        return 2, 0
    return (1, 0) if value != value else (0, value)


def _no_greater(column: pa.Array, bound: tuple[int, Any]) -> int:
    """How many of a sorted column come no later than a value."""
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        if _place(column, middle) <= bound:
            low = middle + 1
        else:
            high = middle
    return low
