"""Index nested loops: every stream row is looked up, as it comes, in a clustered B+-tree on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import MemoryTooSmall
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Batch, Changes, Emission, Kernel, Metric
from penstock.kernels.measure import widths
from penstock.kernels.mesh.pairing import set_aside
from penstock.tables.keys import check_key_types, equal_keys, hash_keys, joinable
from penstock.tables.lmdb_index import LmdbIndex
from penstock.tables.page_pool import BOOKS

#: Results leave in batches of about this many bytes.
SLICE_BYTES = 256 << 10
#: Stream rows that are hashed at a time.
_RUN_ROWS = 4_096
#: Values found, put together, as columns, and beside the stream's: copies of a slice that may exist at once.
_COPIES = 4
#: What one value takes up as a Python object, beside its bytes.
_OBJECT = 128
#: Beside the widest value; with fewer pages than a descent has, each would be read again before it is left.
_LEAST_PAGES = 16


class IndexNestedLoops(Kernel):
    """Inner equi-join of a stream with a table by index lookups, exact, under a hard budget: the baseline.

    Rows are looked up one by one in the order they come, as in the paper. The index is an LMDB file, whose cache is
    the system's; an LRU pool of the size that the budget leaves takes its pages out of there (`tables.lmdb_index`), so
    that a page which was not used for long is read from disk again. What lies below the file system (the disk's own
    cache, the host of a virtual machine) is not bounded.

    Guarantees
        Equal to the join of all rows so far with the table after every step, however rows were cut into batches; NULL
        and NaN keys join nothing: `test_conformance`, with a naive twin.
        `memory()` at most `budget`: `test_conformance`; and the system has no more of the file in memory:
        `test_the_system_keeps_no_more_pages`. Bytes come from disk: `test_bytes_read_grow_with_the_table`.
    State and cost
        No state between steps. Held: the pool's pages, a slice of results. A lookup costs as many random reads as pages
        of its descent are not in the pool: with a table much larger than the budget one or two.
    Source
        000 §1 and §5.1 ("Index-Nested-Loops"), with LMDB in the place of Berkeley DB.
    """

    reports = (
        Metric("rows_in", help="rows that arrived"),
        Metric("rows_without_key", help="rows whose key is NULL or NaN; they join nothing"),
        Metric("rows_set_aside", help="rows too large for a slice of results"),
        Metric("rows_out", help="results"),
        Metric("pages_used", help="pages of the index that lookups went through"),
        Metric("pages_read", help="pages of the index that were not in the pool"),
        Metric("memory", help="bytes held at the most, over all slots"),
        Metric("budget", help="bytes allowed, over all slots"),
    )

    def __init__(self, schema: pa.Schema, index: LmdbIndex, *, on: Sequence[str], budget: int) -> None:
        check_key_types(schema, on, index.schema, index.key)
        self._on = tuple(on)
        self._key = index.key
        self._carried = [name for name in index.schema.names if name not in index.key]
        fields = [*schema, *(index.schema.field(name) for name in self._carried)]
        self.channels = {RESULTS: pa.schema(fields), SET_ASIDE: SET_ASIDE_SCHEMA}
        self.budget = budget
        self._reserve = reserve(index)
        if budget < least_budget(index):
            raise MemoryTooSmall(
                f"{budget} bytes cannot hold one lookup of this join.",
                why=f"A slice of its results and a few pages of {index.path} need {least_budget(index)} bytes.",
                do=f"Give each slot at least {least_budget(index)} bytes.",
            )
        self._page = index.page_bytes + BOOKS
        self._reader = index.open(budget - self._reserve)
        self._counts: dict[str, float] = {}
        self._begin()

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Look every row up."""
        self._begin()
        for _, rows in batch:
            self._counts["rows_in"] += rows.num_rows
            kept = self._with_key(rows)
            for at in range(0, kept.num_rows, _RUN_ROWS):
                yield from self._look_up(kept.slice(at, _RUN_ROWS))

    def memory(self) -> int:
        """Bytes held at the most since the last step began: the pool never shrinks, the rest is reserved in full."""
        return len(self._reader.pool) * self._page + self._reserve

    def changes(self) -> Changes:
        """None, ever: every row is answered in its step."""
        return Changes({}, ())

    def head(self) -> bytes:
        """Nothing to remember."""
        return b"{}"

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Nothing to take up."""

    def metrics(self) -> Mapping[str, float]:
        """Numbers of the last step."""
        pool = self._reader.pool
        return self._counts | {
            "pages_used": pool.uses - self._uses,
            "pages_read": pool.reads - self._reads,
            "memory": self.memory(),
            "budget": self.budget,
        }

    def close(self) -> None:
        """Let go of the index, and of its pages in memory."""
        self._reader.close()

    # -- lookups -----------------------------------------------------------------------------------------------

    def _look_up(self, rows: pa.RecordBatch) -> Iterator[Emission]:
        hashes = hash_keys([rows.column(name) for name in self._on]).astype(">u8").tobytes()
        sizes = widths(rows, np.arange(rows.num_rows))
        too_large = sizes > SLICE_BYTES
        numbers: list[int] = []
        values: list[bytes] = []
        held = 0
        for number in range(rows.num_rows):
            if too_large[number]:
                yield self._too_large(rows.slice(number, 1), float(sizes[number]))
                continue
            for value in self._reader.find(hashes[8 * number : 8 * number + 8]):
                numbers.append(number)
                values.append(value)
                held += len(value) + _OBJECT
                if held >= SLICE_BYTES:
                    yield from self._join(rows, sizes, numbers, values)
                    numbers, values, held = [], [], 0
        if values:
            yield from self._join(rows, sizes, numbers, values)

    def _join(
        self, rows: pa.RecordBatch, sizes: np.ndarray, numbers: list[int], values: list[bytes]
    ) -> Iterator[Emission]:
        partners, counts = self._reader.codec.decode(values)
        met = np.repeat(np.array(numbers), counts)
        # A wide stream row may have met many rows of the table: results leave by their own width.
        ends = np.cumsum(sizes[met] + widths(partners, np.arange(partners.num_rows)))
        begin, done = 0, 0.0
        while begin < len(met):
            end = max(int(np.searchsorted(ends, done + SLICE_BYTES, side="right")), begin + 1)
            yield from self._emit(rows.take(pa.array(met[begin:end])), partners.slice(begin, end - begin))
            begin, done = end, float(ends[end - 1])

    def _emit(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> Iterator[Emission]:
        same = equal_keys([rows.column(name) for name in self._on], [partners.column(name) for name in self._key])
        columns = [*rows.columns, *(partners.column(name) for name in self._carried)]
        joined = pa.RecordBatch.from_arrays(columns, schema=self.channels[RESULTS])
        if not same.all():
            joined = joined.filter(pa.array(same))
        self._counts["rows_out"] += joined.num_rows
        if joined.num_rows:
            yield Emission(RESULTS, joined)

    def _with_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        able = joinable([rows.column(name) for name in self._on])
        if able is None:
            return rows
        kept = rows.filter(pa.array(able))
        self._counts["rows_without_key"] += rows.num_rows - kept.num_rows
        return kept

    def _too_large(self, row: pa.RecordBatch, size: float) -> Emission:
        self._counts["rows_set_aside"] += 1
        reason = f"one row of {size:.0f} bytes is larger than the {SLICE_BYTES} bytes of a slice of results"
        return set_aside(row, reason)

    def _begin(self) -> None:
        self._counts = dict.fromkeys((metric.name for metric in self.reports), 0.0)
        self._uses, self._reads = self._reader.pool.uses, self._reader.pool.reads


def reserve(index: LmdbIndex) -> int:
    """Bytes beside the pool: slices of results, a run's hashes, one descent."""
    return _COPIES * (2 * SLICE_BYTES + index.widest) + 32 * _RUN_ROWS + index.beside_pool


def least_budget(index: LmdbIndex) -> int:
    """The smallest budget with which this index can be joined."""
    pages = _LEAST_PAGES + index.widest // index.page_bytes
    return reserve(index) + pages * (index.page_bytes + BOOKS)
