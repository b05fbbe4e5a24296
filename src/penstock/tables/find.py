"""From a path to a table: Parquet, Delta, Iceberg or prepared, or an error that says what the path is instead."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import BadOption, UnreadableTable
from penstock.tables import delta, folders, iceberg, manifest
from penstock.tables.base import Table
from penstock.tables.parquet import ParquetTable
from penstock.tables.places import place_of
from penstock.tables.prepared import PreparedTable


def table(path: str | os.PathLike[str], *, key: str | Sequence[str]) -> Table:
    """The table at `path`, to be joined by `key` (one column or several).

    A Parquet file, a directory of them (partitioned or not), a Delta or Iceberg table as of its newest version, or what
    `prepare` wrote. Only logs, footers or the manifest are read. Raises `UnreadableTable`, `UnknownColumn`,
    `UnsupportedType` or `BadOption`, each saying what to do.

    Example::

        stock = ps.table("products/", key="product_id")
        prices = ps.table("prices/", key=["market", "product_id"])
    """
    columns = key_columns(key)
    where = local(path)
    try:
        if manifest.is_prepared(where):
            return PreparedTable.plan(str(where), columns)
        if delta.is_delta(where):
            return delta.plan(where, columns)
        if iceberg.is_iceberg(where):
            return iceberg.plan(where, columns)
        return ParquetTable.plan(str(where), columns)
    except PermissionError as error:
        what = f"{error.filename or where} may not be read."
        raise UnreadableTable(what, do="Give the user of this process the right to read it.") from error


def plain_files(where: Path) -> list[Path]:
    """The files of plain Parquet at a path. Of other tables not all that lies there belongs to what they are now."""
    kinds = {"Delta": delta.is_delta, "Iceberg": iceberg.is_iceberg, "prepared": manifest.is_prepared}
    kind = next((name for name, is_one in kinds.items() if is_one(where)), None)
    if kind is not None:
        raise UnreadableTable(
            f"{where} is a table of another kind: {kind}.",
            why="Its own log says which of its files count; others have rows that are no longer its.",
            do="Give plain Parquet files, or its rows as a DataFrame.",
        )
    return folders.files_of(where)


def key_columns(key: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of a key, however they were named."""
    columns = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, list | tuple) else ()
    if not columns or not all(isinstance(name, str) for name in columns) or len(set(columns)) != len(columns):
        raise BadOption(f"key={key!r} is not a key.", do="Name one column, or a list of different columns.")
    return columns


def local(path: str | os.PathLike[str]) -> Path:
    """The absolute local path, which must exist."""
    where = place_of(path, "table")
    if not where.exists():
        beside = [entry.name for entry in where.parent.iterdir()] if where.parent.is_dir() else []
        near = difflib.get_close_matches(where.name, beside, n=3, cutoff=0.5)
        raise UnreadableTable(
            f"{where} does not exist.",
            why=f"{where.parent} has {' and '.join(repr(name) for name in near)}." if near else "",
            do="Check the path; the workers must see it too.",
        )
    return where
