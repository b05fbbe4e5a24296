"""A Delta table as pages: its own log says which files belong to a version (extra `delta`)."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from penstock.errors import UnreadableTable
from penstock.tables.parquet import Listed, ParquetTable

#: Features of a table by which its files alone do not say what its rows are.
_BEYOND_FILES = {"deletionVectors": "deletion vectors", "columnMapping": "column mapping"}


def is_delta(where: Path) -> bool:
    """Whether a Delta log is there."""
    return (where / "_delta_log").is_dir()


def newest(where: Path) -> int:
    """The number of the newest version."""
    return int(_open(where).version())


def plan(where: Path, key: tuple[str, ...], version: int | None = None) -> ParquetTable:
    """The table as of a version, or the newest."""
    opened = _open(where, version)
    features = set(opened.protocol().reader_features or ())
    mapped = opened.metadata().configuration.get("delta.columnMapping.mode", "none") != "none"
    if ("deletionVectors" in features and _deletes(opened)) or mapped:
        feature = _BEYOND_FILES["columnMapping" if mapped else "deletionVectors"]
        raise UnreadableTable(
            f"The Delta table {where} uses {feature}.",
            why="Its Parquet files then hold rows or names that are not the table's: read alone they give wrong rows.",
            do="Write its files anew without it (OPTIMIZE or REORG TABLE … APPLY (PURGE)), or read a copy.",
        )
    columns = pa.schema(opened.schema().to_arrow())
    parted = list(opened.metadata().partition_columns)
    listed = []
    for action in pa.table(opened.get_add_actions(flatten=True)).sort_by("path").to_pylist():
        constants = tuple((name, _typed(action[f"partition.{name}"], columns.field(name).type)) for name in parted)
        listed.append(Listed(where / unquote(action["path"]), constants))
    return ParquetTable.plan(
        str(where), key, listed=listed, columns=columns, snapshot=f"Delta version {opened.version()}"
    )


def _open(where: Path, version: int | None = None) -> Any:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError as missing:
        raise UnreadableTable(
            f"{where} is a Delta table.", why="Reading it needs deltalake.", do='pip install "penstock[delta]"'
        ) from missing
    try:
        return DeltaTable(str(where), version=version)
    except DeltaError as fault:
        which = "" if version is None else f" in version {version}"
        raise UnreadableTable(f"The Delta table {where} cannot be read{which}: {fault}.") from fault


def _deletes(opened: Any) -> bool:
    return bool(pa.table(opened.deletion_vectors()).num_rows)


def _typed(value: Any, kind: pa.DataType) -> Any:
    """A partition's value; the log has it as text where a client wrote it so."""
    if value is None or not isinstance(value, str) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return value
    if pa.types.is_decimal(kind):
        return decimal.Decimal(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    return pa.scalar(value).cast(kind).as_py()
