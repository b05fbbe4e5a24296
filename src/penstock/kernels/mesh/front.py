"""The front of a mesh join: rows with hot keys are answered from a small cache, and need neither window nor pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

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


class Front:
    """Keeps the cache, and the books by which it is sized.

    In a step that takes several passes, the first window full is counted by key hash. At the end of the step the hashes
    that came most, and those cached with their hits, are ranked by the bytes of window they save for each byte they
    take; the cache becomes the beginning of this list with which a step like the last one needs the fewest passes, if
    that saves enough of them. A cache that saves less of the window than it takes is let go.

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

    def __init__(self, condition: Condition, columns: Sequence[str], gain: float) -> None:
        equality = condition.equality
        assert equality is not None, "partners have the same key"
        self._on = equality.on
        self._gain = gain
        self.cache = FrontCache(columns, equality.hashes)
        self._named = 0
        self._forget()

    @classmethod
    def of(cls, condition: Condition, columns: Sequence[str], gain: float | None) -> Self | None:
        """The front of a join, if it is to have one and can."""
        return None if gain is None or condition.equality is None else cls(condition, columns, gain)

    @property
    def nbytes(self) -> float:
        """Bytes held."""
        return self.cache.nbytes

    def begin(self, version: str, room: float) -> None:
        """A step begins, with this version of the table and so much room for waiting rows."""
        self._forget()
        if self.cache and (self.cache.version != version or self.cache.nbytes > room / SHARE):
            self.clear()

    def _forget(self) -> None:
        self._rows, self._bytes = 0, 0.0
        self._sample: Sample | None = None
        self.cache.hits[:] = 0

    def find(self, rows: pa.RecordBatch) -> I64:
        """For each row the number of its key's hash in the cache, or -1."""
        return self.cache.find(hash_keys([rows.column(name) for name in self._on]))

    def answered(self, numbers: I64) -> None:
        """Rows with these hashes need no place in the window."""
        self.cache.hits += np.bincount(numbers, minlength=len(self.cache.hashes))

    def admitted(self, rows: int, nbytes: float) -> None:
        """So many rows got a place in the window."""
        self._rows += rows
        self._bytes += nbytes

    def watch(self, pieces: Iterable[pa.RecordBatch], limit: int) -> None:
        """The window is full for the first time in this step: count what is in it, in so many bytes."""
        if self._sample is not None:
            return
        left, parts = limit // SAMPLE_BYTES, []
        for piece in pieces:
            parts.append(hash_keys([piece.slice(0, left).column(name) for name in self._on]))
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
        if not self._rows or not pages:
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

    @property
    def chunk(self) -> str:
        """The name of what is cached; none if that is nothing."""
        return f"hot{self._named:08d}" if self.cache else ""

    def head(self) -> dict[str, Any]:
        """What is cached, and of which version."""
        return {"named": self._named, "chunk": self.chunk, "version": self.cache.version}

    def restore(self, said: Mapping[str, Any] | None, chunks: Mapping[str, pa.Buffer]) -> None:
        """Have the same rows again."""
        self.cache.clear()
        if said is not None:
            self._named = said["named"]
            if said["chunk"]:
                self.cache.from_chunk(chunks[said["chunk"]], said["version"])
