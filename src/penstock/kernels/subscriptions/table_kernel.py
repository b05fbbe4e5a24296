"""What the kernels of subscriptions have in common: tables whose rows are updated, and numbered messages about that."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import RESULTS, SET_ASIDE, SET_ASIDE_SCHEMA, Changes, ChunkLog, Emission, Kernel, Metric
from penstock.kernels.subscriptions.intake import Reasons, aside

I64 = npt.NDArray[np.int64]

#: Bytes that are there before any row is, and a slice of messages.
LEAST_MEMORY = 4 << 20
#: Of the memory, this part is for tables and the rest for the micro-batch under way.
TABLE_PART = 0.75
#: The slot and the number of a message in it; together they name it for ever.
SLOT, SEQ = "slot", "seq"
#: What all of them report.
TAKEN_IN = (
    Metric("rows_in", help="updates taken in by the last step"),
    Metric("rows_out", help="messages emitted by the last step"),
    Metric("rows_set_aside", help="updates that could not be used"),
)


class TableKernel(Kernel):
    """Keeps books: of memory, of numbers, of the messages' names, of what is set aside."""

    def __init__(self, messages: pa.Schema, *, memory: int, slot: int) -> None:
        if memory < LEAST_MEMORY:
            raise MemoryTooSmall(
                f"{memory:,} bytes are too few for tables of subscriptions.", do=f"Give at least {LEAST_MEMORY:,}."
            )
        self.channels: Mapping[str, pa.Schema] = {RESULTS: messages, SET_ASIDE: SET_ASIDE_SCHEMA}
        self._memory, self._slot = memory, slot
        self._chunks = ChunkLog()
        self._seq = 0
        self._peak = 0
        self._begin()

    @abstractmethod
    def _holds(self) -> int:
        """Bytes held now."""

    def _begin(self) -> None:
        self._numbers = {metric.name: 0.0 for metric in self.reports}

    def _check_batch(self, held: list[pa.RecordBatch], updates: list[I64]) -> None:
        # Sorting needs a copy, verdicts and events another.
        under_way = sum(rows.get_total_buffer_size() for rows in held) + 4 * sum(part.nbytes for part in updates)
        self._note(under_way)
        if under_way > self._memory * (1 - TABLE_PART):
            raise MemoryTooSmall(
                f"A micro-batch of {sum(map(len, updates)):,} updates needs {under_way:,} bytes and more.",
                why="Updates are sorted by their order column, so a micro-batch is held as a whole; a quarter of the "
                f"memory, {self._memory:,} bytes, is for it.",
                do="Let fewer rows into a micro-batch (maxFilesPerTrigger, maxOffsetsPerTrigger), or give more memory.",
            )

    def _aside(self, rows: pa.RecordBatch, reasons: Reasons) -> Emission:
        emission = aside(rows, reasons)
        self._numbers["rows_set_aside"] += emission.rows.num_rows
        return emission

    def _names(self, count: int) -> list[pa.Array]:
        """The slot and the numbers of as many messages that now leave."""
        numbers = pa.array(np.arange(self._seq, self._seq + count))
        self._seq += count
        self._numbers["rows_out"] += count
        return [pa.array(np.full(count, self._slot, np.int32)), numbers]

    def _note(self, more: int = 0) -> None:
        self._peak = max(self._peak, self._holds() + more)

    def memory(self) -> int:
        """Bytes of tables, their indexes and the micro-batch, at their most since the last `changes()`."""
        self._note()
        return self._peak

    def changes(self) -> Changes:
        """What the step touched, merged with what is older where that is due."""
        self._peak = 0
        self._note()
        return self._chunks.take()

    def metrics(self) -> Mapping[str, float]:
        """What the last step did."""
        return self._numbers


def damaged(error: Exception) -> StateDamaged:
    """The head or a chunk is not what was written."""
    return StateDamaged(
        "The stored state of subscriptions cannot be read.",
        why=str(error),
        do="Restore the checkpoint from a copy, or start with a new one.",
    )
