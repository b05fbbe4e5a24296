"""What a pipeline's file says, as frozen values; paths are absolute, columns and types known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

#: Formats of streams that are files in a folder.
FILES = ("parquet", "csv", "json")
#: Formats that bring records as text or bytes in one column.
RECORDS = ("kafka", "socket")
#: Formats that make rows up.
RATES = ("rate", "rate-micro-batch")
FORMATS = (*FILES, *RECORDS, *RATES)
SINKS = ("parquet", "delta", "console")

#: The columns of formats that have none of their own choosing.
FIXED_COLUMNS = {
    "kafka": pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("timestampType", pa.int32()),
        ]
    ),
    "socket": pa.schema([("value", pa.string())]),
    "rate": pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())]),
    "rate-micro-batch": pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())]),
}


@dataclass(frozen=True)
class Stream:
    """Where rows come from. With `time`, the column that says when; rows may be `lateness` late.

    For aggregates over ranges its rows are updates of a table: `key` tells the table's rows apart, `order` (the time,
    if not given) grows with every update of one, `deleted` is true where one goes.
    """

    name: str
    format: str
    columns: pa.Schema
    path: Path | None = None
    time: str | None = None
    lateness: str = "0 seconds"
    key: tuple[str, ...] = ()
    order: str | None = None
    deleted: str | None = None
    #: Whether `columns` are the fields of JSON records, where the format brings text.
    decoded: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableFile:
    """A table to join with, or to keep a view over. `changes` is a folder to which files of changes are added."""

    name: str
    path: Path
    format: str
    key: tuple[str, ...]
    columns: pa.Schema
    changes: Path | None = None
    order: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sink:
    """Where results go: a folder of Parquet files, a Delta table, or the console, which has no path."""

    format: str
    path: Path | None = None


@dataclass(frozen=True)
class Query:
    """A standing query: text, or an operator with its options."""

    name: str
    sink: Sink
    sql: str | None = None
    operator: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pipeline:
    """A whole file. `trigger` is None where the pipeline ends by itself, when all input is read."""

    path: Path
    folder: Path
    trigger: str | None
    cores: int
    streams: Mapping[str, Stream]
    tables: Mapping[str, TableFile]
    queries: Mapping[str, Query]
    #: As it was read, so that faults found later are told with their lines.
    text: str = field(default="", repr=False)
