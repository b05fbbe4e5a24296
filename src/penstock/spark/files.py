"""Files that are there whole or not at all, and files that one process holds."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import zlib
from pathlib import Path
from typing import IO, Any

#: What a file system says that knows no links.
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)


def write_whole(path: Path, body: dict[str, Any]) -> None:
    """Write JSON with its checksum so that after a crash at any moment the old file is there, or the new one."""
    for abandoned in path.parent.glob(f".{path.name}.*"):
        abandoned.unlink(missing_ok=True)
    _scratch(path, body).rename(path)
    sync_directory(path.parent)


def write_first(path: Path, body: dict[str, Any]) -> bool:
    """As `write_whole`, unless there is a file already, perhaps another process's of this moment; whether it was not
    there.
    """
    scratch = _scratch(path, body)
    try:
        # Unlike a rename, a link fails if another was quicker.
        os.link(scratch, path)
    except FileExistsError:
        return False
    except OSError as fault:
        if fault.errno not in _NO_LINKS or path.exists():
            raise
        scratch.rename(path)
    finally:
        scratch.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True


def _scratch(path: Path, body: dict[str, Any]) -> Path:
    text = json.dumps(body, sort_keys=True)
    # Not by the process: another thread, or a process of another machine, may be at it as well.
    scratch = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with scratch.open("w") as out:
        out.write(f"{zlib.crc32(text.encode()):08x}\n{text}\n")
        out.flush()
        os.fsync(out.fileno())
    return scratch


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


class Held(Exception):
    """A lock is another process's; its text says whose."""


def take_lock(path: Path) -> IO[str]:
    """Hold a file until it is closed, or the process ends however it may. Raises `Held` if another does."""
    lock = path.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "another process"
        lock.close()
        raise Held(holder) from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()}")
    lock.flush()
    return lock
