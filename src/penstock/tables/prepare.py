"""Write a table in the prepared layout: ordered by key hash, hashes apart from rows, rows kept together."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.errors import BadOption
from penstock.tables import keys, manifest
from penstock.tables.base import Table
from penstock.tables.find import key_columns
from penstock.tables.find import table as find_table
from penstock.tables.page_writer import PageWriter
from penstock.tables.places import place_of
from penstock.tables.prepared import PreparedTable
from penstock.tables.records import Layout
from penstock.tables.spill import sort_by_hash

#: Called with what is being done ("read" or "write"), how many rows are done, and of how many.
Progress = Callable[[str, int, int], None]

_LEAST_MEMORY = 16 << 20
_LEAST_PAGE = 4 << 10
_MOST_PAGE = 1 << 30
#: Unless told otherwise, a page is this part of the table, within these bounds: a small table goes with a small budget,
#: and beyond the upper bound a page costs no less for each of its rows.
_USUAL_PART = 256
_USUAL_PAGES = (256 << 10, 4 << 20)
_AT_CWD, _EXCHANGE = -100, 2


def prepare(
    source: str | os.PathLike[str] | Table,
    target: str | os.PathLike[str],
    *,
    key: str | Sequence[str],
    page_bytes: int | None = None,
    memory: int = 256 << 20,
    progress: Progress | None = None,
) -> PreparedTable:
    """Write `source` (a path or a table) into the directory `target`, to be joined by `key`; gives the new table.

    `page_bytes` is the size of a page, by default one 256th of the table and at most 4 MB. A join holds one page in
    each slot, so smaller ones need less memory; larger ones are read with less effort for each row. `memory` is what
    preparing may take, in bytes as well. `progress` is told what is done, how much of it, and of how much.

    Guarantees
        `target` is the whole new table, or what it was before: everything is written and synced beside it, then put in
        its place by a rename: `test_a_killed_prepare_leaves_the_old_table_or_none`. The same source gives the same
        version.
    State and cost
        About `memory` bytes, whatever the size of the table. On disk, beside the result (about the size of the rows
        uncompressed), as much again while it runs. Every row is read once and written twice.

    Example::

        ps.prepare("products/", "prepared/", key="product_id")
        stock = ps.table("prepared/", key="product_id")
    """
    _check_sizes(page_bytes, memory)
    wanted = key_columns(key)
    if not isinstance(source, Table):
        origin = find_table(source, key=key)
    else:
        origin = source
        for column in wanted:
            keys.column_kind(origin.schema, column, f"The table {origin.path}")
    place = place_of(target, "target")
    _check_target(place, origin)
    with _beside(place) as directory:
        _write(origin, wanted, directory, page_bytes, memory, progress or (lambda *_: None))
        _put_in_place(directory, place)
    return PreparedTable.plan(str(place), wanted)


def _check_sizes(page_bytes: object, memory: object) -> None:
    if page_bytes is not None and not (isinstance(page_bytes, int) and _LEAST_PAGE <= page_bytes <= _MOST_PAGE):
        raise BadOption(
            f"page_bytes={page_bytes!r} is not possible.",
            do="Give a whole number of bytes from 4 KB (4 << 10) to 1 GB (1 << 30), or none.",
        )
    if not isinstance(memory, int) or memory < _LEAST_MEMORY:
        raise BadOption(f"memory={memory!r} is too little to prepare a table.", do="Give at least 16 MB (16 << 20).")


def _check_target(place: Path, origin: Table) -> None:
    if place.exists() and not manifest.is_prepared(place) and not (place.is_dir() and not any(place.iterdir())):
        raise BadOption(
            f"{place} exists and is not a prepared table.",
            why="It would be replaced.",
            do="Name a directory that does not exist yet, or remove this one first.",
        )
    read = Path(origin.path).resolve()
    if place.resolve() == read or read in place.resolve().parents or place.resolve() in read.parents:
        raise BadOption(
            f"{place} and {origin.path} lie one in the other.",
            why="The table would be replaced while it is read.",
            do="Name a target outside the source.",
        )


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """An empty directory beside the target, held by one process; what a killed one left there is removed."""
    directory = place.parent / f".{place.name}.preparing"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadOption(
            f"{place} cannot be written: {error.strerror or error}.",
            why="The table is written into a directory beside it first.",
            do="Name a target in a directory that is there, or can be made, and may be written to.",
        ) from error
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadOption(f"{place} is being prepared by another process.", do="Wait until it has ended.") from error
        for entry in directory.iterdir():
            _remove(entry)
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry)
    else:
        entry.unlink()


def _write(
    origin: Table, key: tuple[str, ...], directory: Path, page_bytes: int | None, memory: int, progress: Progress
) -> None:
    total = origin.rows
    nulls = np.zeros(len(origin.schema), np.int64)
    size = 0

    def hashed() -> Iterator[pa.RecordBatch]:
        nonlocal size
        done = 0
        reader = origin.open()
        try:
            for page in origin.pages:
                for batch in reader.batches(page):
                    columns = batch.columns
                    size += batch.nbytes
                    nulls[:] += [column.null_count for column in columns]
                    hashes = pa.array(keys.hash_keys([batch.column(name) for name in key]))
                    fields = [*origin.schema, pa.field("", pa.uint64())]
                    yield pa.RecordBatch.from_arrays([*columns, hashes], schema=pa.schema(fields))
                    done += batch.num_rows
                    progress("read", done, total)
        finally:
            reader.close()

    ordered = sort_by_hash(hashed(), rows=total, memory=memory, directory=directory)
    # Only now, with the first batch in hand, has all been read and is it known which columns have NULLs, and how
    # large the table is.
    first = next(ordered, None)
    nullable = [name for name, count in zip(origin.schema.names, nulls, strict=True) if count]
    usual = min(max(size // _USUAL_PART, _USUAL_PAGES[0]), _USUAL_PAGES[1])
    writer = PageWriter(directory, Layout(origin.schema, nullable), page_bytes or usual)
    done = 0
    try:
        while first is not None:
            writer.add(first)
            done += first.num_rows
            progress("write", done, total)
            first = next(ordered, None)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    found = manifest.Manifest(
        origin.schema, key, tuple(nullable), origin.version, dict(sorted(writer.sizes.items())), tuple(writer.spots)
    )
    stamps = {name: (directory / name).stat().st_mtime_ns for name in writer.sizes}
    with open(directory / manifest.NAME, "w") as file:
        file.write(found.dump(stamps))
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(directory: Path, place: Path) -> None:
    """Give the finished directory the target's name; whatever had it goes. Readers see the old table or the new one."""
    _sync(directory)
    if not place.exists() or not any(place.iterdir()):
        os.rename(directory, place)
    elif not _exchange(directory, place):
        # No atomic exchange here: for a moment there is no table. It is never half a table.
        old = place.parent / f".{place.name}.replaced"
        if old.exists():
            shutil.rmtree(old)
        os.rename(place, old)
        os.rename(directory, place)
        shutil.rmtree(old, ignore_errors=True)
    _sync(place.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, where the system can (Linux)."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(swap(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE) == 0)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
