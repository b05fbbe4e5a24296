"""Partitions of the table as numbers, and the numbers as values again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import ChunkLog
from penstock.kernels.measure import measure

_PREFIX = "groups-"
#: Bytes that Python takes for a partition beside its values.
_EACH = 400


@dataclass
class Groups:
    """Each distinct combination of partition values has a number, in the order of first sight.

    State and cost
        One entry for each combination ever seen: partitions are few and stay. New ones are a chunk of their own.
    """

    schema: pa.Schema
    numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _written: int = 0
    _bytes: float = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(2 * self._bytes) + _EACH * len(self.numbers)

    def of(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """The number of each row's partition."""
        if not columns:
            return np.zeros(0, np.int64)
        codes, combos = distinct(columns)
        found = np.array([self._number(combo) for combo in combos], np.int64)
        return found[codes]

    def _number(self, combo: tuple[Any, ...]) -> int:
        number = self.numbers.get(combo)
        if number is None:
            number = self.numbers[combo] = len(self.numbers)
            self._bytes += measure(self._batch([combo]))
        return number

    def values(self, numbers: npt.NDArray[np.int64]) -> list[pa.Array]:
        """The partition columns of rows."""
        if not len(self.schema):
            return []
        used, codes = np.unique(numbers, return_inverse=True)
        combos = list(self.numbers)
        batch = self._batch([combos[number] for number in used])
        return [column.take(pa.array(codes)) for column in batch.columns]

    def _batch(self, combos: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
        columns = [pa.array(list(c), f.type) for c, f in zip(zip(*combos, strict=True), self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def write(self, log: ChunkLog) -> None:
        """Store those that are new."""
        new = list(self.numbers)[self._written :]
        if new:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, self.schema) as writer:
                writer.write_batch(self._batch(new))
            log.add(f"{_PREFIX}{self._written:012d}", sink.getvalue())
            self._written = len(self.numbers)

    def read(self, chunks: Mapping[str, pa.Buffer]) -> None:
        """Build them again."""
        for name in sorted(name for name in chunks if name.startswith(_PREFIX)):
            table = pa.ipc.open_stream(chunks[name]).read_all()
            for combo in zip(*(column.to_pylist() for column in table.columns), strict=True):
                self._number(combo)
        self._written = len(self.numbers)


def distinct(columns: Sequence[pa.Array]) -> tuple[npt.NDArray[np.int64], list[tuple[Any, ...]]]:
    """A code for each row, and the combination of each code."""
    codes = np.zeros(len(columns[0]), np.int64)
    parts = []
    for column in columns:
        encoded = column.dictionary_encode()
        parts.append((encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)))
        codes = codes * max(len(parts[-1][0]), 1) + parts[-1][1]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, [tuple(values[indices[at]] for values, indices in parts) for at in first]
