"""Copies of chunks on the local disk, shared by all workers of a host.

Reading state back through Spark is slow (about 35 MB/s), and a slot often comes to another worker than last time. A
chunk never changes, so a copy whose name, size and checksum agree with the stored directory is as good as the stored
chunk, and mapping it costs nothing. The copies lie below Spark's own temporary directory of the application: on one
machine they go with their query, on a cluster with the executor.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa


class Entry(NamedTuple):
    """What the stored directory says of a chunk."""

    crc: int
    size: int


def entry_of(blob: pa.Buffer) -> Entry:
    """The directory entry of a chunk."""
    return Entry(zlib.crc32(blob), blob.size)


def all_copies() -> Path:
    """Where the copies of all queries of the application lie on this host."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory()) / "penstock-chunks"


def forget(copies: Path, query: str) -> None:
    """Remove what a query that has ended left. Its next run may be at work already: without copies it is slower."""
    shutil.rmtree(copies / query, ignore_errors=True)


class ChunkCache:
    """The copies of one slot."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def here(cls, query: str, state: str) -> ChunkCache:
        """The cache of a slot on this host, by its query and the name of its state."""
        return cls(all_copies() / query / state)

    def _path(self, name: str, entry: Entry) -> Path:
        return self._root / f"{name}-{entry.crc:08x}-{entry.size}"

    def put(self, name: str, entry: Entry, blob: pa.Buffer) -> None:
        """Keep a copy. A full or missing disk is no fault: the stored chunk is there."""
        with contextlib.suppress(OSError):
            self._root.mkdir(parents=True, exist_ok=True)
            path = self._path(name, entry)
            scratch = path.with_suffix(f".{os.getpid()}")
            scratch.write_bytes(blob)
            scratch.rename(path)

    def get(self, name: str, entry: Entry) -> pa.Buffer | None:
        """The copy, mapped; None if there is none or it is not what was stored."""
        with contextlib.suppress(OSError):
            path = self._path(name, entry)
            if path.stat().st_size != entry.size:
                return None
            with pa.memory_map(str(path)) as mapped:
                blob = mapped.read_buffer()
            return blob if entry_of(blob) == entry else None
        return None

    def keep_only(self, live: dict[str, Entry]) -> None:
        """Remove copies of chunks that are gone, also those that abandoned attempts left, whole or not."""
        wanted = {self._path(name, entry).name for name, entry in live.items()}
        with contextlib.suppress(OSError):
            for path in self._root.iterdir():
                if path.name not in wanted:
                    path.unlink(missing_ok=True)
