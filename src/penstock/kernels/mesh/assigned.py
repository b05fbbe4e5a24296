"""Keys that were given a number: found again by hash, compared by value, kept in few sorted runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import Changes, ChunkLog
from penstock.kernels.measure import measure
from penstock.kernels.mesh.window import pack_rows, unpack_rows
from penstock.tables.keys import equal_keys, hash_keys

if TYPE_CHECKING:
    from penstock.tables.keys import Hashes

I64 = npt.NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True)
class _Run:
    name: str
    #: Key columns, then the number; in the order of the hashes.
    rows: pa.RecordBatch
    hashes: Hashes

    @property
    def nbytes(self) -> float:
        return measure(self.rows) + 8 * self.rows.num_rows


class AssignedKeys:
    """Numbers by key. Runs of similar size are merged, so that there are about log2(keys) of them.

    State and cost
        The keys, 8 bytes for the number and 8 for the hash of each; one chunk for each run. A look-up is a binary
        search in each run.
    """

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._log = ChunkLog()
        self._named = 0

    @property
    def nbytes(self) -> float:
        """Bytes held."""
        return sum(run.nbytes for run in self._runs)

    @property
    def largest(self) -> float:
        """Bytes of the largest run: what a merge holds twice."""
        return max((run.nbytes for run in self._runs), default=0.0)

    @property
    def count(self) -> int:
        """How many keys have a number."""
        return sum(run.rows.num_rows for run in self._runs)

    def find(self, keys: Sequence[pa.Array]) -> I64:
        """The number of each key, `UNKNOWN` where it has none."""
        hashes = hash_keys(keys)
        found = np.full(len(hashes), UNKNOWN, np.int64)
        for run in self._runs:
            at = np.searchsorted(run.hashes, hashes, side="left")
            open_ = np.flatnonzero(found == UNKNOWN)
            # Different keys may share a hash: look at the next one until the hash is another.
            while len(open_):
                here = at[open_]
                open_ = open_[
                    (here < len(run.hashes)) & (run.hashes[np.minimum(here, len(run.hashes) - 1)] == hashes[open_])
                ]
                rows = pa.array(at[open_])
                ours = [column.take(pa.array(open_)) for column in keys]
                theirs = [run.rows.column(i).take(rows) for i in range(len(keys))]
                same = equal_keys(ours, theirs) if len(open_) else np.zeros(0, np.bool_)
                numbers = run.rows.column(len(keys)).take(rows).to_numpy()
                found[open_[same]] = numbers[same]
                open_ = open_[~same]
                at[open_] += 1
        return found

    def add(self, rows: pa.RecordBatch) -> None:
        """Keys that have no number yet, each once, with their numbers."""
        if not rows.num_rows:
            return
        self._push(rows)
        while len(self._runs) > 1 and self._runs[-2].rows.num_rows <= 2 * self._runs[-1].rows.num_rows:
            later, earlier = self._runs.pop(), self._runs.pop()
            self._log.drop(later.name)
            self._log.drop(earlier.name)
            self._push(pa.concat_batches([earlier.rows, later.rows]))

    def _push(self, rows: pa.RecordBatch) -> None:
        hashes = hash_keys(rows.columns[:-1])
        order = np.argsort(hashes, kind="stable")
        run = _Run(f"keys{self._named:08d}", rows.take(pa.array(order)), hashes[order])
        self._named += 1
        self._runs.append(run)
        self._log.add(run.name, pack_rows([run.rows]))

    def changes(self) -> Changes:
        """Runs that are new and gone."""
        return self._log.take()

    def head(self) -> dict[str, Any]:
        """What `restore` needs beside the runs."""
        return {"named": self._named, "runs": [run.name for run in self._runs]}

    def restore(self, said: Mapping[str, Any], chunks: Mapping[str, pa.Buffer]) -> None:
        """Become what gave this head."""
        self._named, self._runs = said["named"], []
        for name in said["runs"]:
            rows = pa.concat_batches(unpack_rows(chunks[name]))
            self._runs.append(_Run(name, rows, hash_keys(rows.columns[:-1])))


def distinct(keys: pa.RecordBatch) -> pa.RecordBatch:
    """Each key once, in the order of their hashes: whatever order they came in.

    >>> distinct(pa.record_batch({"k": ["a", "b", "a"]})).num_rows
    2
    """
    hashes = hash_keys(keys.columns)
    order = np.argsort(hashes, kind="stable")
    ordered = keys.take(pa.array(order))
    if keys.num_rows < 2:
        return ordered
    again = hashes[order][1:] == hashes[order][:-1]
    same = equal_keys([c.slice(1) for c in ordered.columns], [c.slice(0, len(c) - 1) for c in ordered.columns])
    if np.any(again & ~same):
        # Different keys with one hash, once in 2 ** 64 pairs: by their values, which have an order of their own.
        ranked = sorted(zip(hashes[order].tolist(), map(repr, ordered.to_pylist()), range(len(order)), strict=True))
        firsts = {(hash_, text): at for hash_, text, at in reversed(ranked)}
        return ordered.take(pa.array([firsts[one] for one in sorted(firsts)]))
    return ordered.filter(pa.array(np.concatenate([[True], ~(again & same)])))
