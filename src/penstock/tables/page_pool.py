"""Bounds how much of a file that another library maps stays in memory: a buffer pool over the system's page cache.

A mapped file has no cache of its own: what was read stays in the page cache for as long as the system likes, which on
an idle machine is for ever. The pool is told every page that was used, and takes the least recently used ones away:
first out of the process (`madvise`, else the system keeps a page that is mapped), then out of the page cache
(`posix_fadvise`). The next use of such a page is a read from the disk.
"""

from __future__ import annotations

import ctypes
import os
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from penstock.errors import BadOption

#: Bytes that the pool's own books take up for a page.
BOOKS = 192
_MADV_DONTNEED = 4


class Mapping(NamedTuple):
    """Where a file is mapped in this process. `owner` keeps it there for as long as anyone refers to it."""

    address: int
    size: int
    owner: object


def find_mapping(address: int, owner: object) -> Mapping:
    """The mapping, made by some library, that an address lies in."""
    try:
        with open("/proc/self/maps") as lines:
            found = [line.split(maxsplit=1)[0] for line in lines]
    except OSError as error:
        raise BadOption(
            "The cache of a mapped file can be bounded on Linux alone.", why="It is found in /proc/self/maps."
        ) from error
    for place in found:
        begin, end = (int(part, 16) for part in place.split("-"))
        if begin <= address < end:
            return Mapping(begin, end - begin, owner)
    raise ValueError(f"nothing is mapped at {address:#x}")


class PagePool:
    """The pages of one mapped file that may stay in memory, least recently used first.

    Guarantees
        Of the pages it was told of, at most `capacity` are in the page cache: `test_the_system_keeps_no_more_pages`
        asks the system. A page that it took away is read from the disk again: `test_bytes_read_grow_with_the_table`.
    State and cost
        About `BOOKS` bytes a page; two system calls for each page that goes. Not bounded: what the disk itself or the
        host of a virtual machine caches; and a page goes only while no other process maps it.
    """

    def __init__(self, path: str, mapping: Mapping, page_bytes: int, capacity: int) -> None:
        self.page_bytes = page_bytes
        self.capacity = max(capacity, 1)
        self.uses = 0
        self.reads = 0
        self._mapping = mapping
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._pages: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def page_at(self, address: int) -> int:
        """The page that an address of the mapping lies in."""
        return (address - self._mapping.address) // self.page_bytes

    def use(self, page: int) -> None:
        """A page was used; the one that was not for the longest goes."""
        self.uses += 1
        if page in self._pages:
            self._pages.move_to_end(page)
            return
        self.reads += 1
        self._pages[page] = None
        if len(self._pages) > self.capacity:
            oldest, _ = self._pages.popitem(last=False)
            self._drop(oldest * self.page_bytes, self.page_bytes)

    def clear(self) -> None:
        """All pages of the file go."""
        self._pages.clear()
        self._drop(0, self._mapping.size)

    def resident(self) -> int:
        """Pages of the file that are in the page cache, as the system says (`mincore`)."""
        unit = os.sysconf("SC_PAGE_SIZE")
        there = np.zeros(-(-self._mapping.size // unit), np.uint8)
        if self._libc.mincore(self._mapping.address, self._mapping.size, there.ctypes.data):
            raise OSError(ctypes.get_errno(), "mincore")
        return int((there & 1).sum()) * unit // self.page_bytes

    def close(self) -> None:
        """Take all its pages away."""
        if self._file >= 0:
            self.clear()
            os.close(self._file)
        self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            os.close(self._file)

    def _drop(self, offset: int, size: int) -> None:
        if self._libc.madvise(self._mapping.address + offset, size, _MADV_DONTNEED):
            raise OSError(ctypes.get_errno(), "madvise")
        os.posix_fadvise(self._file, offset, size, os.POSIX_FADV_DONTNEED)
