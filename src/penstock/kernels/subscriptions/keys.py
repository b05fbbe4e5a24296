"""The values of keys, kept as they came, for messages that must name rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.measure import measure

I64 = npt.NDArray[np.int64]


@dataclass
class KeyValues:
    """Keys by their places, which are given in the order of arrival.

    State and cost
        The values of every key that came and has not been let go by `keep`; a chunk for each step with new keys, and a
        chunk that is less than twice as large as the next is put together with it.
    """

    schema: pa.Schema
    #: How the names of its chunks begin.
    prefix: str
    _parts: list[tuple[int, pa.RecordBatch]] = field(default_factory=list)
    #: Where the next key goes.
    next: int = 0

    @property
    def rows(self) -> int:
        """Keys held."""
        return sum(rows.num_rows for _, rows in self._parts)

    @property
    def nbytes(self) -> float:
        """Bytes of the values, whatever parts they are in."""
        return sum(measure(rows) for _, rows in self._parts)

    def add(self, keys: pa.RecordBatch, log: ChunkLog) -> None:
        """Take in new keys."""
        if not keys.num_rows:
            return
        begin = self.next
        self.next += keys.num_rows
        while self._parts and self._parts[-1][1].num_rows < 2 * keys.num_rows:
            older, rows = self._parts.pop()
            log.drop(self._name(older, rows))
            keys, begin = pa.concat_batches([rows, keys]), older
        self._put(begin, keys, log)

    def _put(self, begin: int, keys: pa.RecordBatch, log: ChunkLog) -> None:
        self._parts.append((begin, keys))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            writer.write_batch(keys)
        log.add(self._name(begin, keys), sink.getvalue())

    def _name(self, begin: int, keys: pa.RecordBatch) -> str:
        return f"{self.prefix}{begin:012d}-{keys.num_rows:012d}"

    def values(self, places: I64) -> list[pa.Array]:
        """The key columns of rows with these places."""
        if not self._parts:
            return [pa.nulls(len(places), kind.type) for kind in self.schema]
        starts = np.array([begin for begin, _ in self._parts])
        lengths = np.array([rows.num_rows for _, rows in self._parts])
        ends = np.cumsum(lengths)
        part = np.searchsorted(starts, places, side="right") - 1
        rows = pa.Table.from_batches([rows for _, rows in self._parts], self.schema)
        found = rows.take(pa.array(places - starts[part] + (ends - lengths)[part])).combine_chunks()
        return [column.chunk(0) if column.num_chunks else column.combine_chunks() for column in found.columns]

    def keep(self, places: I64, log: ChunkLog) -> None:
        """Let go of all keys but these, whose places are from now on those after `next`, in this order."""
        kept = pa.RecordBatch.from_arrays(self.values(places), schema=self.schema)
        for begin, rows in self._parts:
            log.drop(self._name(begin, rows))
        self._parts.clear()
        begin = self.next
        self.next += kept.num_rows
        if kept.num_rows:
            self._put(begin, kept, log)

    def read(self, chunks: Mapping[str, pa.Buffer], following: int) -> None:
        """Build them again; `following` is what `next` was."""
        self.next = following
        for name in sorted(name for name in chunks if name.startswith(self.prefix)):
            table = pa.ipc.open_stream(chunks[name]).read_all().combine_chunks()
            self._parts.append((int(name.removeprefix(self.prefix).split("-")[0]), table.to_batches()[0]))
