"""The stored state of a table that changes row by row: a log of chunks, each twice as large as the next or larger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.kernels.contract import ChunkLog
from penstock.kernels.subscriptions.rows import I32, Rows


@dataclass
class RowLog:
    """Which rows stand in which chunk.

    Guarantees
        The newest chunk that has a row says what the row is: `test_kernel_is` (after restore).
    State and cost
        A step writes the rows it touched; when the chunk before is less than twice as large, both become one. So a row
        is written again O(log N) times, and there are O(log N) chunks. 4 bytes for each row of each chunk are held.
    """

    chunks: list[tuple[str, I32]] = field(default_factory=list)
    next: int = 0
    #: How the names of its chunks begin.
    prefix: str = "rows-"

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(numbers.nbytes for _, numbers in self.chunks)

    def write(self, touched: I32, rows: Rows, log: ChunkLog) -> int:
        """Add the rows that a step touched, as they are now; the bytes written."""
        if not len(touched):
            return 0
        numbers = np.unique(touched)
        while self.chunks and len(self.chunks[-1][1]) < 2 * len(numbers):
            name, older = self.chunks.pop()
            log.drop(name)
            numbers = np.union1d(numbers, older)
        if not self.chunks:
            # Nothing older is left that a deletion would have to hide.
            rows.forget_dead()
            numbers = np.arange(rows.counts[0], dtype=np.int32)
        name = f"{self.prefix}{self.next:012d}"
        self.next += 1
        self.chunks.append((name, numbers))
        blob = pa.py_buffer(rows.used[numbers].tobytes())
        log.add(name, blob)
        return int(blob.size)

    def rewrite(self, rows: Rows, log: ChunkLog) -> int:
        """Write all rows anew, as they are now, in the place of everything older; the bytes written."""
        for name, _ in self.chunks:
            log.drop(name)
        self.chunks.clear()
        return self.write(np.arange(rows.counts[0], dtype=np.int32), rows, log)

    def read(self, chunks: Mapping[str, pa.Buffer], rows: Rows) -> None:
        """Build the rows again."""
        for name in sorted(name for name in chunks if name.startswith(self.prefix)):
            words = np.frombuffer(chunks[name], np.int64) if chunks[name].size % 8 == 0 else np.zeros(1, np.int64)
            if len(words) % rows.width:
                raise StateDamaged(
                    f"The chunk {name} of a table of subscriptions is cut.",
                    do="Restore the checkpoint from a copy, or start with a new one.",
                )
            self.chunks.append((name, rows.load(words.reshape(-1, rows.width))))
