"""Is this still the file that was planned? Fingerprints that survive a restore, and the error when it is not.

A `Stamp` (size, modification time, inode) is cheap and is looked at around every page; only when it changes is the
fingerprint taken again. The fingerprint leaves times and inodes out, so the same bytes put back are the same file.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple

from penstock.errors import TableChanged

_SAMPLES = 16
_SAMPLE = 4096


class Stamp(NamedTuple):
    """What the file system says of a file at one moment."""

    size: int
    modified: int
    inode: int
    device: int


def stamp(path: str | Path) -> Stamp:
    """The stamp of the file that has this name now."""
    found = os.stat(path)
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev)


def fingerprint(path: str | Path) -> tuple[int, str]:
    """Size and digest of a Parquet file: its whole footer, and bytes at regular places before it.

    The footer has the place, size and statistics of every column chunk. Two files can share it and still differ (the
    same values in another order, uncompressed); the samples tell most of those apart without reading the file.

    Raises `OSError` if it cannot be read, `ValueError` if it is not a Parquet file.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        tail = os.pread(file.fileno(), 8, max(size - 8, 0))
        if size < 12 or tail[4:] != b"PAR1":
            raise ValueError("it does not end as a Parquet file does")
        length = int.from_bytes(tail[:4], "little")
        if length + 12 > size:
            raise ValueError("its footer is cut off")
        body = size - 8 - length
        digest = hashlib.sha256(_read(file.fileno(), length, body))
        for place in range(_SAMPLES):
            digest.update(os.pread(file.fileno(), _SAMPLE, max(0, (body - _SAMPLE) * place // (_SAMPLES - 1))))
    return size, digest.hexdigest()


def _read(descriptor: int, length: int, offset: int) -> bytes:
    found = os.pread(descriptor, length, offset)
    if len(found) != length:
        raise ValueError("it was cut while it was read")
    return found


def changed(path: str | Path, how: str) -> TableChanged:
    """The error for a file that is not the planned one any more."""
    return TableChanged(
        f"{path} {how}.",
        why="A join may not mix two versions of its table, so it stops here; nothing that was emitted is wrong.",
        do="Put the file back as it was and restart the query. If the table was meant to change, "
        "start with a new checkpoint.",
    )
