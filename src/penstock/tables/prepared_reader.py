"""Reads pages of a prepared table: hashes by one read, rows by reading what lies around them and a gather.

Why reads and no memory map: a page that was read into one buffer, used again and again, is in the processor's cache
when its rows are gathered, and so copying it was measured to take no longer than mapping it in windows. A map counts as
resident memory and as address space, and turns a file that is cut short into a dead process instead of an error.
"""

from __future__ import annotations

import os
import weakref
import zlib
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.errors import UnreadableTable
from penstock.tables import files, manifest, rowloops, system_cache
from penstock.tables.base import Page, PageReader
from penstock.tables.manifest import HASHES, Spot
from penstock.tables.records import Layout

if TYPE_CHECKING:
    from penstock.tables.base import Hashes, RowIds
    from penstock.tables.prepared import PreparedTable


class PreparedReader(PageReader):
    """Reads hashes and rows of one version.

    Guarantees
        Sizes are checked when a file is opened and around every read, checksums of hashes when a page is first used.
        The rows of a page are checked too, when first used, unless the file has the modification time that `prepare`
        noted; and again whenever a file was touched. Anything else than the planned bytes is `TableChanged`.
    State and cost
        The hashes of one page, the rows of one page, two open files. Rows that lie close are read together, others
        alone.
    """

    def __init__(self, table: PreparedTable) -> None:
        self.table = self._table = table
        self._layout = Layout(table.fields, table.nullable)
        self._starts = [0, *accumulate(8 * spot.rows for spot in table.spots)]
        self._words = np.empty(0, np.uint64)
        self._bytes = np.empty(0, np.uint8)
        self._files: dict[str, _File] = {}
        self._rows = ""

    def hashes(self, page: Page) -> Hashes:
        """The hash of every row's key; the array is overwritten by the next call."""
        if len(self._words) < page.rows:
            self._words = np.empty(page.rows, np.uint64)
        out = self._words[: page.rows]
        data = out.view(np.uint8).data
        spot = self._table.spots[page.index]
        file = self._file(HASHES)
        while True:
            stamp = file.ensure()
            file.read(data, self._starts[page.index])
            if file.is_new(page.index):
                file.check(page.index, data, spot.hash_crc)
            if file.steady(stamp):
                return out

    def take(self, page: Page, rows: RowIds) -> pa.RecordBatch:
        """The given rows, gathered from their records."""
        spot = self._table.spots[page.index]
        rows = np.ascontiguousarray(rows, np.int64)
        if len(self._bytes) < spot.size:
            self._bytes = np.zeros(spot.size, np.uint8)
        room = self._bytes[: spot.size]
        base = rowloops.address(room)
        file = self._rows_file(manifest.rows_file(spot.file))
        while True:
            stamp = file.ensure()
            if not file.trusted and file.is_new(page.index):
                file.read(room.data, spot.offset)
                file.check(page.index, room.data, spot.rows_crc)
            else:
                file.fill(self._layout, spot, base, rows)
            nested = None
            if spot.nested:
                at = spot.size - spot.nested
                file.read(room[at:].data, spot.offset + at)
                nested = pa.py_buffer(room[at:])
            try:
                batch = self._layout.take(base, spot.rows, spot.heap, rows, nested)
            except (ValueError, pa.ArrowException) as error:
                raise file.damaged(page.index) from error
            if file.steady(stamp):
                return batch

    def expect(self, page: Page) -> None:
        """Let the system fetch the rows of the next page while those of this one are joined."""
        spot = self._table.spots[page.index]
        if manifest.rows_file(spot.file) == self._rows:
            self._files[self._rows].fetch(spot.offset, spot.size)

    def close(self) -> None:
        """Let go of files and buffers."""
        for file in self._files.values():
            file.close()
        self._words, self._bytes = np.empty(0, np.uint64), np.empty(0, np.uint8)

    def _rows_file(self, name: str) -> _File:
        """A file with rows; the one used before is closed, so that two are open at most."""
        if name != self._rows and self._rows:
            self._files[self._rows].close()
        self._rows = name
        return self._file(name)

    def _file(self, name: str) -> _File:
        return self._files.get(name) or self._files.setdefault(name, _File(self._table, name))


class _File:
    """One file of a prepared table: open, and verified against the manifest."""

    def __init__(self, table: PreparedTable, name: str) -> None:
        self.name = name
        self.path = str(Path(table.path) / name)
        self._table = table
        self._size, self._noted = next((size, noted) for file, size, noted in table.sizes if file == name)
        self._descriptor = -1
        #: Closes it, also if nobody says so: kernels are dropped with their readers, at every restore.
        self._closing: weakref.finalize[[int], _File] | None = None
        self._stamp: files.Stamp | None = None
        self._seen: set[int] = set()
        #: Whether the file is just as `prepare` left it.
        self.trusted = False

    def ensure(self) -> files.Stamp:
        """Open the file that has the name now, if it is not open already, and see that it can be the planned one."""
        now = self._look()
        if now == self._stamp and self._descriptor >= 0:
            return now
        self.close()
        if now != self._stamp:
            self._seen.clear()
            self._check_manifest()
        if now.size != self._size:
            raise files.changed(self.path, f"has {now.size:,} bytes now and had {self._size:,}")
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise files.changed(self.path, f"cannot be opened any more: {error.strerror}") from error
        self._closing = weakref.finalize(self, os.close, self._descriptor)
        self._stamp = now
        self.trusted = now.modified == self._noted
        return now

    def steady(self, stamp: files.Stamp) -> bool:
        """Whether the file is still the one it was; if not, it is to be opened anew."""
        if self._look() == stamp:
            return True
        self.close()
        self._stamp = None
        return False

    def read(self, into: memoryview, offset: int) -> None:
        """Fill an array from a place in the file."""
        try:
            got = os.preadv(self._descriptor, [into], offset)
            while got < len(into):
                more = os.preadv(self._descriptor, [into[got:]], offset + got)
                if more == 0:
                    raise files.changed(self.path, "was cut short")
                got += more
        except OSError as error:
            raise files.changed(self.path, f"cannot be read any more: {error.strerror}") from error

    def fetch(self, offset: int, size: int) -> None:
        """Have a part of the file brought into the system's cache, unless it seems to be there."""
        if self._descriptor >= 0 and not all(
            system_cache.cached(self._descriptor, offset + size * part // 8) for part in (1, 3, 5, 7)
        ):
            system_cache.fetch(self._descriptor, offset, size)

    def fill(self, layout: Layout, spot: Spot, base: int, rows: RowIds) -> None:
        """Read the records of some rows, and their texts, to where they lie in the page at an address."""
        try:
            layout.fill(base, spot.rows, spot.heap, rows, self._descriptor, spot.offset)
        except OSError as error:
            raise files.changed(self.path, f"cannot be read any more: {error}") from error

    def is_new(self, page: int) -> bool:
        """Whether a page was not yet checked since the file was opened."""
        return page not in self._seen

    def check(self, page: int, data: memoryview, checksum: int) -> None:
        """Compare a page's bytes with the manifest, once."""
        if zlib.crc32(data) != checksum:
            raise self.damaged(page)
        self._seen.add(page)

    def damaged(self, page: int) -> Exception:
        """The error for bytes that are not those of the manifest."""
        return files.changed(self.path, f"is damaged: page {page} is not what was written")

    def close(self) -> None:
        """Let go of the file. Opened again under the same stamp, it need not be checked again."""
        if self._closing is not None:
            self._closing()
        self._descriptor = -1

    def _look(self) -> files.Stamp:
        try:
            return files.stamp(self.path)
        except FileNotFoundError as error:
            raise files.changed(self.path, "is gone") from error
        except OSError as error:
            raise files.changed(self.path, f"cannot be reached: {error.strerror}") from error

    def _check_manifest(self) -> None:
        path = Path(self._table.path)
        try:
            _, digest, _ = manifest.load(path)
        except UnreadableTable as error:
            raise files.changed(path / manifest.NAME, "cannot be read any more") from error
        if digest != self._table.digest:
            raise files.changed(path, "was prepared anew and is another version now")
