"""Rows of a table by key hash, for the hashes that a stream asks for most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.measure import Sizes, measure, widths
from penstock.kernels.mesh.index import I64, U64, Cursor, Index, build, holds_any, probe, sift
from penstock.tables.base import Page, PageReader

#: Bytes of a cached hash beside its rows and its part of the index: the hash, where its rows begin, its hits.
HASH_BYTES = 24
_NONE = np.zeros(0, np.uint64)


class FrontCache:
    """All rows of the table for some key hashes, of one version of the table.

    A cached hash has *every* row of the pages with that hash, or it is not cached; it may have none. So a row of the
    stream whose hash is cached finds all its partners here, and needs neither a place in the window nor a pass.

    Guarantees
        Equal to the join without it, duplicates and absent keys included: `test_conformance`, where half of the joins
        have one.
        Rows of another version are never used: `test_a_cache_is_of_one_version`.
    State and cost
        `nbytes`, which is at most the `limit` that it was last filled with. Filling is one pass over the key hashes.
        A look-up costs a bit of a bitmap for a row that is not here.
    """

    def __init__(self, columns: Sequence[str], span: tuple[int, int]) -> None:
        self._columns = list(columns)
        self._span = span
        self.version = ""
        self.rows: pa.RecordBatch | None = None
        self.clear()

    def clear(self) -> None:
        """Let go of everything."""
        self._set(_NONE, np.zeros(1, np.int64), None)

    def _set(self, hashes: U64, starts: I64, rows: pa.RecordBatch | None) -> None:
        self.hashes, self.starts, self.rows = hashes, starts, rows
        self.hits = np.zeros(len(hashes), np.int64)
        self._index = _index(hashes, self._span) if len(hashes) else None
        self.nbytes = 0.0
        if self._index is not None and rows is not None:
            self.nbytes = measure(rows) + HASH_BYTES * len(hashes) + self._index.nbytes

    def __bool__(self) -> bool:
        return self._index is not None

    # -- look-ups ----------------------------------------------------------------------------------------------

    def find(self, asked: U64) -> I64:
        """For each of these hashes its number among the cached ones, or -1."""
        found = np.full(len(asked), -1, np.int64)
        if self._index is not None:
            for rows, numbers in _matches(self._index, self.hashes, asked, max(len(asked), 1)):
                found[rows] = numbers
        return found

    def counts(self, numbers: I64) -> I64:
        """How many rows each of these cached hashes has."""
        return self.starts[numbers + 1] - self.starts[numbers]

    def pairs(self, numbers: I64) -> tuple[I64, I64]:
        """Places in `numbers` and rows of the cache, for each row of each of these cached hashes."""
        counts = self.counts(numbers)
        places = np.repeat(np.arange(len(numbers)), counts)
        before = np.repeat(np.cumsum(counts) - counts, counts)
        return places, np.repeat(self.starts[numbers], counts) + np.arange(len(places)) - before

    def sizes(self) -> Sizes:
        """Bytes of each cached hash with its rows."""
        if self.rows is None:
            return np.zeros(0)
        owner = np.repeat(np.arange(len(self.hashes)), np.diff(self.starts))
        each = widths(self.rows, np.arange(self.rows.num_rows))
        own: Sizes = np.bincount(owner, each, len(self.hashes)).astype(np.float64)
        return own + beside(len(self.hashes))

    # -- filling -----------------------------------------------------------------------------------------------

    def fill(self, reader: PageReader, pages: Sequence[Page], ranked: U64, limit: float, slice_rows: int) -> None:
        """Hold the rows of these hashes instead, the first before the others, as far as `limit` bytes reach.

        While it fills, up to three times `limit` is held.
        """
        self.clear()
        order = np.argsort(ranked)
        catch = _Catch(ranked[order], order, limit)
        index = _index(catch.hashes, self._span)
        for page in pages:
            if page.hashes is not None and not holds_any(index, *page.hashes):
                continue
            for rows, numbers in _matches(index, catch.hashes, reader.hashes(page), slice_rows):
                kept = catch.alive[numbers]
                if kept.any():
                    catch.add(reader.take(page, rows[kept]).select(self._columns), numbers[kept])
        schema = pa.schema([reader.table.schema.field(name) for name in self._columns])
        if catch.alive.any():
            self._set(*catch.sorted(schema))
        self.version = reader.table.version

    # -- state -------------------------------------------------------------------------------------------------

    def to_chunk(self) -> pa.Buffer:
        """As stored: how many hashes, these, where their rows begin, the rows."""
        assert self.rows is not None
        sink = pa.BufferOutputStream()
        for numbers in (np.array([len(self.hashes)]), self.hashes, self.starts):
            sink.write(numbers.tobytes())
        with pa.ipc.new_stream(sink, self.rows.schema) as writer:
            writer.write_batch(self.rows)
        return sink.getvalue()

    def from_chunk(self, blob: pa.Buffer, version: str) -> None:
        """What `to_chunk` wrote."""
        count = int(np.frombuffer(blob, np.int64, 1)[0])
        # Copies: compiled code takes arrays that cannot be written for another kind, and would be compiled again.
        hashes = np.frombuffer(blob, np.uint64, count, 8).copy()
        starts = np.frombuffer(blob, np.int64, count + 1, 8 + 8 * count).copy()
        (rows,) = pa.ipc.open_stream(blob.slice(16 * (count + 1)))
        self._set(hashes, starts, rows)
        self.version = version


class _Catch:
    """Rows that are being gathered for the cache; when there are too many, hashes of the last ranks go whole."""

    def __init__(self, hashes: U64, rank: I64, limit: float) -> None:
        self.hashes = hashes
        self._rank = rank
        self._limit = limit
        self._pieces: list[pa.RecordBatch] = []
        self._owners: list[I64] = []
        self._sizes = np.full(len(hashes), beside(len(hashes)))
        self.alive = np.ones(len(hashes), np.bool_)
        self._trim()

    def add(self, rows: pa.RecordBatch, owners: I64) -> None:
        """Take in rows of the given hashes."""
        self._pieces.append(rows)
        self._owners.append(owners.copy())
        self._sizes += np.bincount(owners, widths(rows, np.arange(rows.num_rows)), len(self.hashes))
        self._trim()

    def _trim(self) -> None:
        by_rank = np.argsort(self._rank)
        over = np.cumsum(np.where(self.alive, self._sizes, 0.0)[by_rank]) > self._limit
        if not over.any():
            return
        # From the first that does not fit on, all go.
        self.alive[by_rank[over]] = False
        kept = [self.alive[owners] for owners in self._owners]
        self._pieces = [piece.filter(pa.array(keep)) for piece, keep in zip(self._pieces, kept, strict=True)]
        self._owners = [owners[keep] for owners, keep in zip(self._owners, kept, strict=True)]

    def sorted(self, schema: pa.Schema) -> tuple[U64, I64, pa.RecordBatch]:
        """Hashes, where the rows of each begin, and the rows in their order."""
        owners = np.concatenate([np.zeros(0, np.int64), *self._owners])
        rows = pa.concat_batches(self._pieces) if self._pieces else _empty(schema)
        rows = rows.take(pa.array(np.argsort(owners, kind="stable")))
        counts = np.bincount(owners, minlength=len(self.hashes))[self.alive]
        return self.hashes[self.alive], np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), rows


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def beside(count: int) -> float:
    """Bytes of one of so many hashes beside its rows, at the most."""
    return HASH_BYTES + 8 + 512 / max(count, 1)


def _index(hashes: U64, span: tuple[int, int]) -> Index:
    return build([(0, hashes)], [(0, hashes)], len(hashes), *span)


def _matches(index: Index, hashes: U64, asked: U64, most: int) -> Iterator[tuple[I64, I64]]:
    """Places in `asked`, ascending, and in `hashes` where the two are equal, at most so many at once."""
    survivors = np.empty(len(asked), np.int32)
    survivors = survivors[: sift(index, asked, survivors)]
    rows, numbers = np.empty(most, np.int64), np.empty(most, np.int64)
    at = Cursor()
    while at.survivor < survivors.size:
        count, at = probe(index, asked, survivors, at, 0, rows, numbers)
        # The index has seen some bits of the hash.
        same = asked[rows[:count]] == hashes[numbers[:count]]
        yield rows[:count][same], numbers[:count][same]
