"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path
from typing import Any


def write_whole(path: Path, body: dict[str, Any]) -> None:
    """Write JSON with its checksum so that after a crash at any moment the old file is there, or the new one."""
    text = json.dumps(body, sort_keys=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    for abandoned in path.parent.glob(f".{path.name}.*"):
        abandoned.unlink(missing_ok=True)
    with scratch.open("w") as out:
        out.write(f"{zlib.crc32(text.encode()):08x}\n{text}\n")
        out.flush()
        os.fsync(out.fileno())
    scratch.rename(path)
    sync_directory(path.parent)


def read_whole(path: Path) -> dict[str, Any] | None:
    """What `write_whole` wrote; None if the file is cut or changed."""
    with contextlib.suppress(ValueError):
        checksum, text, end = path.read_text().split("\n", 2)
        if not end and int(checksum, 16) == zlib.crc32(text.encode()):
            body: dict[str, Any] = json.loads(text)
            return body
    return None


def sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
