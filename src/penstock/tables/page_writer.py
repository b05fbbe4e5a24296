"""Writes rows that come in order of their hash as the pages of a prepared table."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from penstock.tables.keys import PARTITIONS
from penstock.tables.manifest import HASHES, Spot, rows_file
from penstock.tables.records import Layout

_ALIGN = 64
#: Where a new rows file begins.
_FILE_BYTES = 1 << 30
_SHIFT = np.uint64(64 - PARTITIONS.bit_length() + 1)


class PageWriter:
    """Cuts pages of about `page_bytes` and writes them; none crosses a boundary of `keys.PARTITIONS`.

    State and cost
        Less than one page of rows between calls.
    """

    def __init__(self, directory: Path, layout: Layout, page_bytes: int) -> None:
        self._directory = directory
        self._layout = layout
        self._page_bytes = page_bytes
        self._hashes: BinaryIO = open(directory / HASHES, "wb")  # noqa: SIM115 — closed by `finish`
        self._rows: BinaryIO = open(directory / rows_file(0), "wb")  # noqa: SIM115
        self._file = self._offset = 0
        self._left: pa.RecordBatch | None = None
        self.spots: list[Spot] = []
        self.sizes: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows whose last column is their hash, none below those before."""
        whole = rows if self._left is None else pa.concat_batches([self._left, rows])
        left = self._cut(whole, final=False)
        # A copy: what is left must not keep the whole batch alive.
        self._left = whole.take(pa.array(np.arange(left, whole.num_rows))) if left < whole.num_rows else None

    def finish(self) -> None:
        """Write what is left and make it durable."""
        if self._left is not None:
            self._cut(self._left, final=True)
            self._left = None
        self._close(self._hashes)
        self._close(self._rows)

    def abandon(self) -> None:
        """Close the files as they are."""
        self._hashes.close()
        self._rows.close()

    def _cut(self, whole: pa.RecordBatch, *, final: bool) -> int:
        """Write all pages that are full; returns the first row that is left."""
        hashes = whole.column(whole.num_columns - 1).to_numpy()
        rows = whole.select(range(whole.num_columns - 1))
        ends = np.cumsum(self._layout.sizes(rows))
        bounds = np.flatnonzero(np.diff(hashes >> _SHIFT)) + 1
        start = 0
        while start < whole.num_rows:
            before = int(ends[start - 1]) if start else 0
            full = int(np.searchsorted(ends, before + self._page_bytes, side="right"))
            after = int(np.searchsorted(bounds, start, side="right"))
            bound = int(bounds[after]) if after < len(bounds) else whole.num_rows
            end = min(max(full, start + 1), bound)
            if end == whole.num_rows and not final:
                break
            self._write(hashes[start:end], rows.slice(start, end - start))
            start = end
        return start

    def _write(self, hashes: np.typing.NDArray[np.uint64], rows: pa.RecordBatch) -> None:
        section = self._layout.encode(rows)
        if self._offset >= _FILE_BYTES:
            self._close(self._rows)
            self._file += 1
            self._offset = 0
            self._rows = open(self._directory / rows_file(self._file), "wb")  # noqa: SIM115
        size = len(section.data)
        padding = -size % _ALIGN
        self._rows.write(section.data.data)
        self._rows.write(bytes(padding))
        words = np.ascontiguousarray(hashes)
        self._hashes.write(words.data)
        self.spots.append(
            Spot(
                rows=rows.num_rows,
                lo=int(hashes[0]),
                hi=int(hashes[-1]),
                file=self._file,
                offset=self._offset,
                size=size,
                heap=section.heap_size,
                nested=section.nested_size,
                hash_crc=zlib.crc32(words.data),
                rows_crc=zlib.crc32(section.data.data),
            )
        )
        self._offset += size + padding

    def _close(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())
        self.sizes[Path(file.name).name] = file.tell()
        file.close()
