"""The header of an Arrow IPC record batch, made once for a schema and filled in with numbers for each batch.

Building a batch of fifteen columns object by object costs 40 µs and more, as much as gathering a thousand rows; reading
an IPC message that is already in memory costs 4 µs and copies nothing. So gathered columns are laid out as the body of
a message behind this header. Format: Arrow columnar format, "Serialization and Interprocess Communication".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

if TYPE_CHECKING:
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

_ALIGN = 64


class Header:
    """A record batch message for `schema` (flat columns only) whose lengths and places are yet to be said.

    State and cost
        One kilobyte for about twenty columns; `write` copies it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        # Rows and NULLs in the sample, so that every number is there to be replaced; Arrow leaves out what is 0.
        sample = pa.RecordBatch.from_arrays([pa.nulls(8, field.type) for field in schema], schema=schema).serialize()
        sample = sample.to_pybytes()
        (length,) = struct.unpack_from("<i", sample, 4)
        # A body at a multiple of 64 bytes keeps every buffer aligned as Arrow recommends.
        self.size = -(-(8 + length) // _ALIGN) * _ALIGN
        self._bytes = np.zeros(self.size, np.uint8)
        self._bytes[: 8 + length] = np.frombuffer(sample, np.uint8, 8 + length)
        self._bytes[4:8].view(np.int32)[0] = self.size - 8
        message = _Table(sample, 8 + _at(sample, 8))
        batch = _Table(sample, message.follow(2))
        nodes, buffers = batch.follow(1) + 4, batch.follow(2) + 4
        #: Which of the three buffers a field may have (bitmap, values, text) are there, by their place among all.
        kept = [3 * i + part for i, field in enumerate(schema) for part in range(3 if _is_text(field.type) else 2)]
        self._pairs = np.array([2 * each + half for each in kept for half in (0, 1)], np.intp)
        # Flatbuffers align 64-bit numbers, so all of them are whole words from the start.
        self._body_length, self._rows = message.field(3) // 8, batch.field(0) // 8
        self._nodes = slice(nodes // 8, nodes // 8 + 2 * len(schema), 2)
        self._nulls = slice(nodes // 8 + 1, nodes // 8 + 2 * len(schema), 2)
        self._buffers = slice(buffers // 8, buffers // 8 + 2 * len(kept))

    def write(self, into: npt.NDArray[np.uint8], body: int, rows: int, nulls: Integers, spans: Integers) -> None:
        """Put the header of a batch in front of a body of `body` bytes, its buffers where `spans` says."""
        into[: self.size] = self._bytes
        words = into[: self.size].view(np.int64)
        words[self._body_length], words[self._rows] = body, rows
        words[self._nodes] = rows
        words[self._nulls] = nulls
        words[self._buffers] = spans[self._pairs]

    def read(self, message: pa.Buffer) -> pa.RecordBatch:
        """The batch in a buffer with header and body; it shares the buffer's memory."""
        return pa.ipc.read_record_batch(message, self.schema)


def _is_text(type_: Any) -> bool:
    return pt.is_string(type_) or pt.is_binary(type_)


def _at(data: bytes, place: int) -> int:
    """The unsigned offset at a place of a flatbuffer."""
    found: int = struct.unpack_from("<I", data, place)[0]
    return found


class _Table:
    """A table of a flatbuffer: where its fields are."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data, self._place = data, place
        self._fields = place - struct.unpack_from("<i", data, place)[0] + 4

    def field(self, number: int) -> int:
        offset: int = struct.unpack_from("<H", self._data, self._fields + 2 * number)[0]
        return self._place + offset

    def follow(self, number: int) -> int:
        place = self.field(number)
        return place + _at(self._data, place)
