"""Parquet files as a table: a page is a row group; keys are read first, other columns only for rows asked for."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pt

from penstock.errors import UnreadableTable, UnsupportedType
from penstock.tables import bloom, constants, files, folders, keys, parquet_memory
from penstock.tables.arrow_types import spark_type
from penstock.tables.base import Page, Table
from penstock.tables.numbers import ends

if TYPE_CHECKING:
    from penstock.tables.parquet_reader import ParquetReader


@dataclass(frozen=True)
class PlannedFile:
    """One file as it was when the table was planned.

    `constants` are the columns that it lacks, with the value that all of its rows have there: of a partition, or NULL
    in files that are older than the column. `renamed` are those that it has under another name, and that name.
    """

    name: str
    size: int
    digest: str
    constants: tuple[tuple[str, Any], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()

    def stored(self, column: str) -> str:
        """What a column of the table is called in the file."""
        return dict(self.renamed).get(column, column)


@dataclass(frozen=True)
class Listed:
    """A file that belongs to a table, as a table format's own log has it.

    `names` are the table's columns that the file has, each with its name there; without them names are the same.
    """

    path: Path
    constants: tuple[tuple[str, Any], ...] = ()
    names: tuple[tuple[str, str], ...] | None = None

    def columns(self, found: pa.Schema, table: pa.Schema) -> pa.Schema:
        """The columns that were found in the file, under their names in the table; others are not the table's."""
        names = self.names if self.names is not None else [(name, name) for name in found.names if name in table.names]
        return pa.schema([found.field(stored).with_name(name) for name, stored in names])


@dataclass(frozen=True, repr=False)
class ParquetTable(Table):
    """A Parquet file, or a directory of them, as pages.

    Guarantees
        Planning reads no more of a file than its footer, a few samples and some page headers. Every row group with rows
        is one page, files in the order of their names. The version does not depend on times or inodes:
        `test_a_restored_file_is_the_same_version`.
    State and cost
        A few hundred bytes for each file and row group; no open file.
    """

    files: tuple[PlannedFile, ...]
    fields: pa.Schema
    #: For each page its file (a place in `files`) and its row group.
    places: tuple[tuple[int, int], ...]
    scan: tuple[Page, ...]
    #: The version in the words of a table format that has such: "Delta version 3"; empty for plain files.
    snapshot: str = ""

    @property
    def schema(self) -> pa.Schema:
        """The rows that `take` returns, in types that Spark knows."""
        return self.fields

    @property
    def version(self) -> str:
        """A digest over the files' names, sizes and fingerprints."""
        digest = hashlib.sha256()
        for file in self.files:
            more = "".join(f"\0{each}" for each in (file.constants, file.renamed) if each)
            digest.update(f"{file.name}\0{file.size}\0{file.digest}{more}\n".encode())
        return digest.hexdigest()[:32]

    @property
    def pages(self) -> tuple[Page, ...]:
        """All row groups that have rows."""
        return self.scan

    def open(self) -> ParquetReader:
        """A reader for this very version."""
        from penstock.tables.parquet_reader import ParquetReader

        return ParquetReader(self)

    def locate(self, file: int) -> Path:
        """Where a planned file is."""
        root = Path(self.path)
        return root / self.files[file].name if self.files[file].name else root

    @classmethod
    def plan(
        cls,
        path: str,
        key: tuple[str, ...],
        *,
        listed: Sequence[Listed] | None = None,
        columns: pa.Schema | None = None,
        snapshot: str = "",
    ) -> ParquetTable:
        """Read the footers of a file or directory; or of the files that are listed, which have these columns."""
        root = Path(path)
        planned: list[PlannedFile] = []
        places: list[tuple[int, int]] = []
        scan: list[Page] = []
        fields = None if columns is None else _as_spark(columns)
        if fields is not None:
            _check_key(fields, key, path)
        parted = pa.schema([])
        if listed is None:
            found_files, parted = folders.find(root)
            listed = [Listed(file, values) for file, values in found_files]
        for number, here in enumerate(listed):
            file = here.path
            name = "" if file == root else str(file.relative_to(root)) if file.is_relative_to(root) else str(file)
            try:
                size, digest = files.fingerprint(file)
                metadata = pq.read_metadata(file)
                found = _schema(metadata, file)
                sizes = parquet_memory.measured(file, metadata)
            except (OSError, ValueError) as error:
                raise unreadable(file, error) from error
            # What a folder says goes for all rows of a file that has the column itself, too: as in Spark and DuckDB.
            found = pa.schema([each for each in found if each.name not in parted.names])
            if fields is None:
                fields = pa.schema([*found, *parted])
                _check_key(fields, key, path)
            same = dict(here.constants)
            renamed: tuple[tuple[str, str], ...] = ()
            if columns is not None:
                found = here.columns(found, fields)
                same |= {each: None for each in fields.names if each not in found.names and each not in same}
                renamed = tuple((name, stored) for name, stored in here.names or () if name != stored)
            read = pa.schema([each for each in fields if each.name not in same])
            _check_same(read, found, file, wider=columns is not None)
            planned.append(PlannedFile(name, size, digest, tuple(same.items()), renamed))
            stored = planned[-1].stored
            # In the types in which they are read, by the names that they have in the file.
            leaves = pa.schema([each.with_name(stored(each.name)) for each in read])
            own = tuple(stored(each) for each in key if each not in same)
            alike = {each: constants.span(same[each], fields.field(each).type) for each in key if each in same}
            for group in range(metadata.num_row_groups):
                row_group = metadata.row_group(group)
                page = parquet_memory.page(len(scan), row_group, leaves, own, sizes)
                if page.rows:
                    places.append((number, group))
                    spans = [alike[each] if each in same else _span(row_group, leaves, stored(each)) for each in key]
                    asked = 0 if key[0] in same else _bloom(row_group, leaves, own[0])
                    page = replace(page, spans=tuple(spans) if any(spans) else (), bloom=asked)
                    scan.append(constants.noted(page, same, fields, key))
        if fields is None:
            raise UnreadableTable(
                f"{path} holds no Parquet file.",
                why="Names that begin with '_' or '.' do not count.",
                do="Check the path; an empty table needs at least one file, for its columns.",
            )
        return cls(path, key, tuple(planned), fields, tuple(places), tuple(scan), snapshot)


def _check_key(fields: pa.Schema, key: tuple[str, ...], path: str) -> None:
    for column in key:
        keys.column_kind(fields, column, f"The table {path}")


def _as_spark(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, spark_type(field.type, field.name)) for field in columns])


def _span(group: pq.RowGroupMetaData, fields: pa.Schema, name: str) -> tuple[int, int] | None:
    """What the file says of the values of a key column."""
    chunk = column_chunk(group, name)
    return None if chunk is None else ends(chunk.statistics, fields.field(name).type)


def _bloom(group: pq.RowGroupMetaData, fields: pa.Schema, name: str) -> int:
    """Bytes of a column's filter."""
    chunk = column_chunk(group, name)
    return 0 if chunk is None else bloom.filter_bytes(chunk, fields.field(name).type)


def column_chunk(group: pq.RowGroupMetaData, name: str) -> pq.ColumnChunkMetaData | None:
    """The part of a row group that has a plain column."""
    chunks = (group.column(leaf) for leaf in range(group.num_columns))
    named = [chunk for chunk in chunks if chunk.path_in_schema == name]
    # A column "a.b" and one within a column "a" have the same path: then nothing is known of either.
    return named[0] if len(named) == 1 else None


def unreadable(file: Path, error: Exception) -> UnreadableTable:
    """The error for a file that cannot be planned."""
    do = "Check that it is a complete Parquet file and may be read; names that begin with '_' or '.' are left out."
    if re.search(r"\.(csv|tsv|txt|jsonl?|ndjson)(\.\w+)?$", file.name.lower()):
        do = "A table is Parquet, Delta or Iceberg: write the rows as Parquet first, with pyarrow.parquet.write_table."
    return UnreadableTable(
        f"{file} cannot be read as Parquet: {str(error).splitlines()[0] if str(error) else type(error).__name__}.",
        do=do,
    )


def _schema(metadata: pq.FileMetaData, file: Path) -> pa.Schema:
    stored = metadata.schema.to_arrow_schema()
    physical = iter([metadata.schema.column(i).physical_type for i in range(metadata.num_columns)])
    if len(set(stored.names)) != len(stored.names):
        twice = next(name for name in stored.names if stored.names.count(name) > 1)
        raise UnreadableTable(
            f"{file} has more than one column {twice!r}.", do="Write it with one column of each name."
        )
    try:
        return pa.schema([pa.field(f.name, spark_type(f.type, f.name, physical)) for f in stored])
    except UnsupportedType as error:
        raise UnsupportedType(f"{file}: {error.what}", why=error.why, do=error.do) from None


def _check_same(first: pa.Schema, other: pa.Schema, file: Path, *, wider: bool) -> None:
    """Refuse a file with other columns; where a table's log has its types, they may be `wider` than those of a file."""
    if wider:
        as_read = {f.name: f.type for f in first}
        other = pa.schema([f.with_type(as_read[f.name]) if _fits(f.type, as_read[f.name]) else f for f in other])
    ours, theirs = ({f.name: str(f.type) for f in schema} for schema in (first, other))
    if ours == theirs:
        return
    faults = [f"no column {name!r}" for name in ours if name not in theirs]
    faults += [f"an additional column {name!r}" for name in theirs if name not in ours]
    for name, type_ in ours.items():
        if theirs.get(name, type_) != type_:
            faults.append(f"column {name!r} as {theirs[name]} instead of {type_}")
    raise UnreadableTable(
        f"{file} has another schema than the files before it.",
        why=f"It has {'; '.join(faults)}.",
        do="Write all files of the table with the same columns and types.",
    )


def _fits(stored: pa.DataType, wider: pa.DataType) -> bool:
    """Whether every value of one type is one of the other, of the same kind.

    >>> _fits(pa.int32(), pa.int64()), _fits(pa.int64(), pa.int32()), _fits(pa.int32(), pa.float64())
    (True, False, False)
    """
    if pt.is_decimal128(stored) and pt.is_decimal128(wider):
        return bool(stored.scale == wider.scale and stored.precision <= wider.precision)
    whole = pt.is_signed_integer(stored) and pt.is_signed_integer(wider)
    return (whole or (pt.is_floating(stored) and pt.is_floating(wider))) and stored.bit_width <= wider.bit_width
