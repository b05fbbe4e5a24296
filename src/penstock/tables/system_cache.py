"""What the system keeps of a file in memory: ask, and have parts of it fetched or forgotten."""

from __future__ import annotations

import os


def cached(descriptor: int, offset: int) -> bool:
    """Whether the byte at a place is in memory; True where the system cannot say."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:
        return True


def fetch(descriptor: int, offset: int, size: int) -> None:
    """Have a part brought into memory while the program goes on."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_WILLNEED)


def forget(path: str | os.PathLike[str]) -> None:
    """Let the system write what it has of a file, and drop it."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
