"""The front of a mesh join: rows with hot keys are answered from a small cache, and need neither window nor pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.kernels.measure import Sizes, runs, widths
from penstock.kernels.mesh.budget import SLICE_BYTES
from penstock.kernels.mesh.front_cache import FrontCache, beside
from penstock.kernels.mesh.hot import SAMPLE_BYTES, Sample, best, sample
from penstock.kernels.mesh.index import I64
from penstock.tables.base import Page, PageReader
from penstock.tables.keys import hash_keys

if TYPE_CHECKING:
    from penstock.kernels.mesh.condition import Condition

#: Of the room for waiting rows, what the cache may take at the most.
SHARE = 4
#: Passes that a new choice of hashes must save in a step like the last one: filling the cache costs one.
GAIN = 0.5
#: So many rows tell whether the cache is of use.
_TELLING = 1_000
#: Candidates are looked for so many at a time, at the most.
_SLICE_ROWS = 65_536


class Found(NamedTuple):
    """Rows of the stream with cached keys: their numbers, those of their hashes in the cache, and their bytes."""

    rows: I64
    hashes: I64
    sizes: Sizes


class Front:
    """Keeps the cache, and the books by which it is sized.

    In a step that takes several passes, the first window full is counted by key hash. At the end of the step the hashes
    that came most, and those cached with their hits, are ranked by the bytes of window they save for each byte they
    take; the cache becomes the beginning of this list with which a step like the last one needs the fewest passes, if
    that saves enough of them. A cache that saves less of the window than it takes is let go.

    With a `gain` of None, or where partners need not have the same key, nothing is ever cached.

    Guarantees
        What is cached changes at the end of a step alone and is stored with it: a step that is run again has the same
        cache, and emits the same bag (`test_conformance`).
        Uniform keys leave nothing cached: `test_uniform_keys_are_not_cached`.
    State and cost
        At most a quarter of the room for waiting rows; one chunk, written when the cache changes. Where a step fits
        the window nothing is counted and nothing filled: it takes one pass with a cache or without.
    Source
        The idea of semi-stream joins with a cache: Naeem, Dobbie and Weber's CACHEJOIN. The choice is our own.
    """

    def __init__(self, condition: Condition, columns: Sequence[str], gain: float | None) -> None:
        equality = condition.equality
        #: The stream's key columns; none where nothing is ever cached.
        self.on = equality.on if equality is not None and gain is not None else ()
        self._gain = gain or 0.0
        self.cache = FrontCache(columns, equality.hashes if equality is not None else (0, 1))
        self._named = 0
        self._forget()

    @property
    def nbytes(self) -> float:
        """Bytes held."""
        return self.cache.nbytes

    def begin(self, version: str, room: float) -> None:
        """A step begins, with this version of the table and so much room for waiting rows."""
        self._forget()
        if self.cache and self.cache.version != version:
            self.clear()
        self._fit(room)

    def _fit(self, room: float) -> None:
        """Cache nothing if there is less room than before."""
        if self.cache.nbytes > room / SHARE:
            self.clear()

    def _forget(self) -> None:
        self._rows, self._bytes = 0, 0.0
        self._sample: Sample | None = None
        self.cache.hits[:] = 0

    def find(self, rows: pa.RecordBatch, most: float) -> Found:
        """Those of the rows whose keys are cached; without rows of more than `most` bytes, which are set aside."""
        numbers = self.cache.find(hash_keys([rows.column(name) for name in self.on]))
        known = np.flatnonzero(numbers >= 0)
        sizes = widths(rows, known)
        fits = sizes <= most
        known = known[fits]
        self.cache.hits += np.bincount(numbers[known], minlength=len(self.cache.hashes))
        return Found(known, numbers[known], sizes[fits])

    def pairs(self, rows: pa.RecordBatch, found: Found) -> Iterator[tuple[I64, pa.RecordBatch, pa.RecordBatch]]:
        """Rows that were found beside their candidates, some at a time: places among `found`, rows, candidates."""
        partners = self.cache.rows
        assert partners is not None, "a row was found"
        for first, last in runs(self.cache.counts(found.hashes).astype(np.float64), _SLICE_ROWS):
            ours, theirs = self.cache.pairs(found.hashes[first:last])
            ours += first
            for begin, end in runs(widths(partners, theirs) + found.sizes[ours], SLICE_BYTES):
                place = ours[begin:end]
                yield place, rows.take(pa.array(found.rows[place])), partners.take(pa.array(theirs[begin:end]))

    def admitted(self, rows: int, nbytes: float) -> None:
        """So many rows got a place in the window."""
        self._rows += rows
        self._bytes += nbytes

    def watch(self, pieces: Iterable[pa.RecordBatch], limit: int) -> None:
        """The window is full for the first time in this step: count what is in it, in so many bytes."""
        if self._sample is not None or not self.on:
            return
        left, parts = limit // SAMPLE_BYTES, []
        for piece in pieces:
            parts.append(hash_keys([piece.slice(0, left).column(name) for name in self.on]))
            left -= len(parts[-1])
        self._sample = sample(np.concatenate(parts))

    def clear(self) -> None:
        """Cache nothing."""
        self.cache.clear()
        self._named += 1

    def settle(self, room: float, reader: PageReader, pages: Sequence[Page], slice_rows: int) -> float:
        """The step ends with an empty window, or without having filled it: cache what would have served it best.

        Returns the bytes that were held at the most for it.
        """
        cache = self.cache
        answered = int(cache.hits.sum())
        if not self._rows or not pages or not self.on:
            return 0.0
        width = self._bytes / self._rows
        total = self._bytes + answered * width
        if self._sample is not None:
            now = max(self._bytes / (room - cache.nbytes), 1.0)
            # Rows that have waited since before their key was cached are in the window, too.
            fresh = self._sample.but(cache.hashes)
            scale = width * self._rows / max(fresh.rows, 1)
            row = max(page.row_width for page in pages) + beside(1 << 10)
            takes = np.concatenate([cache.sizes(), np.full(len(fresh.hashes), row)])
            seen, again = (np.concatenate([cache.hits * width, counts * scale]) for counts in fresh[1:3])
            hashes = np.concatenate([cache.hashes, fresh.hashes])
            pick = best(hashes, seen / takes, again, takes, total, room, room / SHARE)
            if len(pick.hashes) and now - pick.passes >= self._gain * max(1.0, now / 5):
                cache.fill(reader, pages, pick.hashes, room / SHARE, slice_rows)
                self._named += 1
                return 3 * room / SHARE
        telling = self._sample is not None or self._rows + answered >= _TELLING
        if cache and telling and answered * width * room <= cache.nbytes * total:
            self.clear()
        return 0.0

    # -- state -------------------------------------------------------------------------------------------------

    def chunks(self) -> dict[str, Callable[[], pa.Buffer]]:
        """What is cached, as it is to be stored, by its name."""
        return {self._chunk: self.cache.to_chunk} if self.cache else {}

    @property
    def _chunk(self) -> str:
        return f"hot{self._named:08d}" if self.cache else ""

    def head(self) -> dict[str, Any]:
        """What is cached, and of which version."""
        return {"named": self._named, "chunk": self._chunk, "version": self.cache.version}

    def restore(self, said: Mapping[str, Any] | None, chunks: Mapping[str, pa.Buffer], room: float) -> set[str]:
        """Have the same rows again, if there is still room for them; gives the names of what is stored."""
        self.cache.clear()
        if said is None:
            return set()
        self._named = said["named"]
        if said["chunk"] and self.on:
            self.cache.from_chunk(chunks[said["chunk"]], said["version"])
            self._fit(room)
        return {said["chunk"]} - {""}
