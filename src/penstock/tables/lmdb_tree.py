"""The branch pages of an LMDB file: LMDB does not say which pages a lookup goes through, its file does.

Format 1 (LMDB 0.9)::

    page:        number (u64) │ pad (u16) │ flags (u16) │ lower (u16) │ upper (u16) │ places of nodes (u16 each)
    node:        child's page (48 bits) │ key size (u16) │ key
    meta page:   page header │ magic (u32) │ version (u32) │ … │ trees: free pages, main │ last page │ transaction (u64)
    tree:        pad (u32) │ flags (u16) │ depth (u16) │ branch, leaf, overflow pages, entries, root (u64 each)
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from penstock.errors import UnreadableTable

_HEADER = 16
_BRANCH = 1
_MAGIC = 0xBEEFC0DE
_TREE = struct.Struct("<IHHQQQQQ")
_AT_MAIN, _AT_TRANSACTION = 88, 144


class Level(NamedTuple):
    """The branch pages of one level: page i is on the way to the keys from `fences[i]` up to the next."""

    fences: list[bytes]
    pages: list[int]


def levels(path: str) -> list[Level]:
    """The branch pages below the root, from the top down. Reads only the parents of branch pages, a few in all."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        size, depth, branches, root = _main_tree(descriptor, path)
        found: list[Level] = []
        level = Level([b""], [root])
        for _ in range(depth - 2):
            level = _children(level, [os.pread(descriptor, size, page * size) for page in level.pages], path)
            found.append(level)
    finally:
        os.close(descriptor)
    if depth > 1 and 1 + sum(len(level.pages) for level in found) != branches:
        raise _unknown(path)
    return found


def _main_tree(descriptor: int, path: str) -> tuple[int, int, int, int]:
    """Page size, depth, branch pages and root of the newer of the two meta pages."""
    first = os.pread(descriptor, 4096, 0)
    if len(first) < 4096 or struct.unpack_from("<II", first, _HEADER) != (_MAGIC, 1):
        raise _unknown(path)
    # LMDB keeps the page size where the first tree has its pad.
    size = struct.unpack_from("<I", first, 40)[0]
    newest = max(first, os.pread(descriptor, 4096, size), key=lambda page: _u64(page, _AT_TRANSACTION))
    _, _, depth, branches, _, _, _, root = _TREE.unpack_from(newest, _AT_MAIN)
    return size, depth, branches, root


def _children(parents: Level, pages: list[bytes], path: str) -> Level:
    children = Level([], [])
    for fence, page in zip(parents.fences, pages, strict=True):
        flags, lower = struct.unpack_from("<HH", page, 10)
        if not flags & _BRANCH:
            raise _unknown(path)
        places = struct.unpack_from(f"<{(lower - _HEADER) // 2}H", page, _HEADER)
        for number, place in enumerate(places):
            low, high, top, length = struct.unpack_from("<HHHH", page, place)
            # The first node of a page has no key of its own: it begins where its page does.
            children.fences.append(page[place + 8 : place + 8 + length] if number else fence)
            children.pages.append(low | high << 16 | top << 32)
    return children


def _u64(page: bytes, at: int) -> int:
    return int.from_bytes(page[at : at + 8], "little")


def _unknown(path: str) -> UnreadableTable:
    return UnreadableTable(
        f"{path} is not an LMDB file of format 1.",
        why="Which of its pages are in memory could not be told.",
        do="Build the index again with LMDB 0.9.",
    )
