"""How likely each key is to come next on a side: counted while rows flow, in bounded memory, or given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.models.frequency import LEAST_BUDGET, Frequencies

U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
#: The probability of each key, from whoever knows it.
Given = Callable[[pa.Array], Any]

#: Bytes for each different key of a step, until they are written.
FRESH = 12
#: Counts are written whole again once the additions since then are this many times as large.
_REWRITE = 2
#: Hashes that no key has, but by chance.
_STRANGERS = np.random.default_rng(20).integers(0, 1 << 63, 256, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


class KeyEstimates:
    """Key counts of one side, with decay.

    Guarantees
        Exact while they fit, then from a sketch, less what it says of keys that never came.
        Restored, they go on as the first would have: `test_conformance`. With another budget or half-life they are
        counted anew: `test_key_counts_keep_to_a_smaller_budget`.
    State and cost
        At most `budget` bytes. One chunk for each step, 12 bytes for each different key in it, put together from time
        to time.
    """

    def __init__(self, tag: str, budget: int, half_life: float | None) -> None:
        self._tag = tag
        self._counts = Frequencies(max(budget, LEAST_BUDGET), half_life=half_life)
        self._now = 0.0
        self._whole: str | None = None
        #: Additions that are stored one by one: name, bytes, and the time of each.
        self._parts: list[tuple[str, int, float]] = []
        self._fresh: list[tuple[U64, npt.NDArray[np.uint32], float]] = []

    @property
    def exact(self) -> bool:
        """Whether counts are exact so far."""
        return self._counts.exact

    def memory(self) -> int:
        """Bytes held at the most."""
        return self._counts.memory() + sum(hashes.nbytes + counts.nbytes for hashes, counts, _ in self._fresh)

    def add(self, hashes: U64, now: float) -> None:
        """Count rows by their key hashes, as of `now`, which never goes back."""
        if not len(hashes):
            return
        self._now = max(self._now, now)
        different, counts = np.unique(hashes, return_counts=True)
        self._fresh.append((different, counts.astype(np.uint32), self._now))
        self._put(*self._fresh[-1])

    def _put(self, hashes: U64, counts: npt.NDArray[np.uint32], now: float) -> None:
        # In one order, whatever the order of the rows: a sketch depends on it.
        self._counts.add(np.repeat(hashes, counts), now)

    def probability(self, hashes: U64) -> F64:
        """The share of each key in what came lately."""
        total = self._counts.total(self._now)
        if total <= 0:
            return np.zeros(len(hashes))
        found = self._counts.estimate(hashes, self._now)
        if not self._counts.exact:
            # What a sketch says of keys that never came, it says too much of all.
            found = np.maximum(found - self._counts.estimate(_STRANGERS, self._now).mean(), 0.0)
        return found / total

    def store(self, step: int, log: ChunkLog) -> None:
        """Write the additions of this step, or everything."""
        for place, (hashes, counts, now) in enumerate(self._fresh):
            blob = pa.py_buffer(hashes.tobytes() + counts.tobytes())
            name = f"{self._tag}add{step}-{place}"
            log.add(name, blob)
            self._parts.append((name, blob.size, now))
        self._fresh = []
        if sum(size for _, size, _ in self._parts) > _REWRITE * self._counts.budget or len(self._parts) > 200:
            for name in [*(name for name, _, _ in self._parts), *([self._whole] if self._whole else [])]:
                log.drop(name)
            self._parts = []
            self._whole = f"{self._tag}all{step}"
            log.add(self._whole, pa.py_buffer(self._counts.to_bytes()))

    def head(self) -> dict[str, Any]:
        """The chunks in order."""
        return {"whole": self._whole, "parts": self._parts, "now": self._now}

    def restore(self, said: Mapping[str, Any], chunks: Mapping[str, pa.Buffer]) -> None:
        """Count on."""
        self._whole, self._now = said["whole"], said["now"]
        if self._whole is not None:
            counts = Frequencies.from_bytes(chunks[self._whole].to_pybytes())
            if (counts.budget, counts.half_life) == (self._counts.budget, self._counts.half_life):
                self._counts = counts
        self._parts = [(name, size, now) for name, size, now in said["parts"]]
        for name, _, now in self._parts:
            blob = chunks[name].to_pybytes()
            rows = len(blob) // FRESH
            hashes = np.frombuffer(blob, np.uint64, rows)
            self._put(hashes, np.frombuffer(blob, np.uint32, rows, 8 * rows), now)
