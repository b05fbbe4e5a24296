"""A clustered B+-tree on disk: a table's rows in an LMDB file, by the hash of their key.

::

    key of the first value of a hash:   hash (8 bytes, big-endian)
    key of a later one:                 hash │ its number (4 bytes, big-endian)

Values are those of `lmdb_rows`: a lookup is one descent, and a key with many rows goes on through the leaves. Rows that
cannot join (NULL, NaN) are not there. The file is written once, in key order, and never changed.
"""

from __future__ import annotations

import json
import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from penstock.errors import BadOption, UnreadableTable
from penstock.tables import keys
from penstock.tables.base import Table
from penstock.tables.lmdb_rows import RowCodec, more_follow
from penstock.tables.lmdb_tree import Level, levels
from penstock.tables.page_pool import BOOKS, PagePool, find_mapping
from penstock.tables.places import place_of
from penstock.tables.spill import sort_by_hash

if TYPE_CHECKING:
    import lmdb

#: What describes the table: shorter than any hash, so no lookup finds it.
_ABOUT = b"\0"
_RUN_ROWS = 1 << 14
#: Address space for a file that is being written; the file is as large as its rows.
_MOST = 1 << 40


@dataclass(frozen=True)
class LmdbIndex:
    """A table in an LMDB file. Frozen and picklable; holds no open file.

    `widest` is the largest value in bytes, `size` those of the file, `page_bytes` and `depth` its tree's.
    """

    path: str
    key: tuple[str, ...]
    schema: pa.Schema
    nullable: tuple[str, ...]
    version: str
    rows: int
    widest: int
    size: int
    page_bytes: int
    depth: int
    branch_pages: int

    @property
    def beside_pool(self) -> int:
        """Bytes that a reader holds beside its pool: pages of one descent and of a wide value, and the fences."""
        return (self.depth + 4) * self.page_bytes + 2 * self.widest + 128 * self.branch_pages

    def open(self, pool_bytes: int) -> LmdbReader:
        """A reader whose pages in memory, with their books, take up at most `pool_bytes`."""
        return LmdbReader(self, pool_bytes)


def build_index(table: Table, path: str | os.PathLike[str], *, memory: int = 256 << 20) -> LmdbIndex:
    """Write a table's rows into an LMDB file.

    State and cost
        About `memory` bytes. On disk, beside the result, the rows once more while it runs. The file comes to its name
        when it is whole.
    """
    place = place_of(path, "index")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as scratch:
        target = Path(scratch) / "index"
        env = _library().open(
            str(target), subdir=False, map_size=_MOST, sync=False, metasync=False, lock=False, max_dbs=0
        )
        try:
            _fill(env, table, Path(scratch), memory)
            env.sync(True)
        finally:
            env.close()
        os.replace(target, place)
    return load_index(place)


def load_index(path: str | os.PathLike[str]) -> LmdbIndex:
    """An index that `build_index` wrote."""
    place = str(place_of(path, "index"))
    mapped = _mapped(place)
    with mapped.env.begin() as transaction:
        stored = transaction.get(_ABOUT)
        tree = transaction.stat()
    if stored is None:
        raise UnreadableTable(f"{place} is not an index of a table.", do="Write one with build_index.")
    schema = pa.ipc.read_schema(pa.py_buffer(stored))
    about = json.loads(schema.metadata[b"penstock"])
    return LmdbIndex(
        place,
        tuple(about["key"]),
        schema.remove_metadata(),
        tuple(about["nullable"]),
        about["version"],
        about["rows"],
        about["widest"],
        os.stat(place).st_size,
        tree["psize"],
        tree["depth"],
        tree["branch_pages"],
    )


def _fill(env: lmdb.Environment, table: Table, scratch: Path, memory: int) -> None:
    nulls = np.zeros(len(table.schema), np.int64)
    ordered = sort_by_hash(_hashed(table, nulls), rows=table.rows, memory=memory, directory=scratch)
    # With the first batch in hand, all has been read and it is known which columns have NULLs.
    batch = next(ordered, None)
    nullable = [name for name, count in zip(table.schema.names, nulls, strict=True) if count]
    codec = RowCodec(table.schema, nullable)
    last, following, rows, widest = -1, 0, 0, 0
    while batch is not None:
        for at in range(0, batch.num_rows, _RUN_ROWS):
            some = batch.slice(at, _RUN_ROWS)
            hashes = some.column(some.num_columns - 1).to_numpy()
            here = some.select(range(some.num_columns - 1)).rename_columns(table.schema.names)
            run = codec.encode(here, hashes, following if int(hashes[0]) == last else 0)
            last, following = int(run.hashes[-1]), int(run.numbers[-1]) + 1
            rows += some.num_rows
            widest = max(widest, *map(len, run.values))
            with env.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(zip(_names(run.hashes, run.numbers), run.values, strict=True), append=True)
        batch = next(ordered, None)
    about = {"key": table.key, "nullable": nullable, "version": table.version, "rows": rows, "widest": widest}
    described = table.schema.with_metadata({b"penstock": json.dumps(about).encode()})
    with env.begin(write=True) as transaction:
        transaction.put(_ABOUT, described.serialize().to_pybytes())


def _hashed(table: Table, nulls: Any) -> Iterator[pa.RecordBatch]:
    """The rows that can join, with their hashes as one more column; counts NULLs in each column."""
    fields = pa.schema([*table.schema, pa.field("", pa.uint64())])
    reader = table.open()
    try:
        for page in table.pages:
            for batch in reader.batches(page):
                able = keys.joinable([batch.column(name) for name in table.key])
                kept = batch if able is None else batch.filter(pa.array(able))
                nulls += [column.null_count for column in kept.columns]
                hashes = keys.hash_keys([kept.column(name) for name in table.key])
                yield pa.RecordBatch.from_arrays([*kept.columns, pa.array(hashes)], schema=fields)
    finally:
        reader.close()


def _names(hashes: Any, numbers: Any) -> Iterator[bytes]:
    text = hashes.astype(">u8").tobytes()
    for place, number in enumerate(numbers.tolist()):
        name = text[8 * place : 8 * place + 8]
        yield name + number.to_bytes(4, "big") if number else name


class LmdbReader:
    """Looks keys up, one at a time, and keeps no more of the file in memory than its pool allows.

    LMDB maps the file and lets the system cache it. Here it is opened without read-ahead, so that a miss reads one
    page; every page of a descent is told to the pool, which takes the least recently used ones out of the page cache.
    Leaves are known by where LMDB's answer lies in the map, branches by the fences that `lmdb_tree` reads.

    Guarantees
        Pages of the file in the page cache: at most the pool's, the root and the two meta pages, after every lookup:
        `test_the_system_keeps_no_more_pages`.
    State and cost
        The pool; about 128 bytes for each branch page. A lookup reads from disk what of its `depth` pages is not there.
    """

    def __init__(self, index: LmdbIndex, pool_bytes: int) -> None:
        self.codec = RowCodec(index.schema, index.nullable)
        self._mapped = _mapped(index.path)
        transaction = self._mapped.env.begin(buffers=True)
        self._cursor: Any = transaction.cursor()
        self._levels: list[Level] = levels(index.path)
        inside = pa.py_buffer(transaction.get(_ABOUT)).address
        capacity = pool_bytes // (index.page_bytes + BOOKS)
        self.pool = PagePool(index.path, find_mapping(inside, self._mapped), index.page_bytes, capacity)
        # Whoever wrote or read the file before has left pages of it.
        self.pool.clear()

    def find(self, key: bytes) -> Iterator[bytes]:
        """The values of all rows whose key has this hash (8 bytes, big-endian)."""
        cursor = self._cursor
        if not cursor.set_range(key):
            if cursor.last():
                self._use()
            return
        name, value = self._use()
        if name != key:
            # The search may have come by the leaf before, too.
            if cursor.prev():
                self._use()
            return
        while True:
            yield value
            if not more_follow(value) or not cursor.next():
                return
            name, value = self._use()
            if name[:8] != key:
                return

    def close(self) -> None:
        """Let go of the file, and of its pages in memory."""
        self._cursor = None
        self.pool.close()

    def _use(self) -> tuple[bytes, bytes]:
        """Key and value where the cursor stands; the pool is told of the pages on the way there."""
        key, value = self._cursor.item()
        # Copied before anything goes: a page that is looked at after it went would come back unseen.
        name, found, pool = bytes(key), bytes(value), self.pool
        for level in self._levels:
            pool.use(level.pages[bisect_right(level.fences, name) - 1])
        pool.use(pool.page_at(pa.py_buffer(key).address))
        if len(value) * 2 > pool.page_bytes - 64:
            # Too large for a leaf: it may have pages of its own, which LMDB's Python face loads with the key.
            address = pa.py_buffer(value).address
            for page in range(pool.page_at(address), pool.page_at(address + len(value) - 1) + 1):
                pool.use(page)
        return name, found


class _Mapped:
    """An open file; LMDB allows one in a process."""

    def __init__(self, path: str) -> None:
        size = os.stat(path).st_size
        options = {"subdir": False, "readonly": True, "lock": False, "readahead": False}
        library = _library()
        try:
            self.env = library.open(path, map_size=size, max_dbs=0, **options)
        except library.Error as error:
            raise UnreadableTable(f"{path} cannot be read: {error}.", do="Write it with build_index.") from error

    def __del__(self) -> None:
        if hasattr(self, "env"):
            self.env.close()


_open_files: WeakValueDictionary[tuple[int, int, int], _Mapped] = WeakValueDictionary()


def _mapped(path: str) -> _Mapped:
    try:
        found = os.stat(path)
    except OSError as error:
        raise UnreadableTable(f"{path} cannot be read: {error.strerror}.", do="Write it with build_index.") from error
    which = os.getpid(), found.st_dev, found.st_ino
    mapped = _open_files.get(which)
    if mapped is None:
        mapped = _open_files[which] = _Mapped(path)
    return mapped


def _library() -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise BadOption(
            "The package lmdb is not installed.", why="Index lookups read an LMDB file.", do="pip install lmdb"
        ) from error
    return lmdb
