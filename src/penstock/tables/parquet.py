"""Parquet files as a table: a page is a row group; keys are read first, other columns only for rows asked for."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import UnreadableTable, UnsupportedType
from penstock.tables import files, keys
from penstock.tables.arrow_types import as_spark, fixed_width, spark_type
from penstock.tables.base import Page, PageReader, Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.tables.base import Hashes, RowIds

T = TypeVar("T")

#: Rows decoded at once: what bounds memory where a column unfolds to more than it has on disk.
BATCH = 1 << 16
_OPEN_FILES = 6
_BUFFER = 1 << 18


@dataclass(frozen=True)
class PlannedFile:
    """One file as it was when the table was planned."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class ParquetTable(Table):
    """A Parquet file, or a directory of them, as pages.

    Guarantees
        Planning reads no more of a file than its footer and a few samples. Every row group with rows is one page, files
        in the order of their names. The version does not depend on times or inodes:
        `test_restored_file_is_the_same_version`.
    State and cost
        A few hundred bytes for each file and row group; no open file.
    """

    files: tuple[PlannedFile, ...]
    fields: pa.Schema
    #: For each page its file (a place in `files`) and its row group.
    places: tuple[tuple[int, int], ...]
    scan: tuple[Page, ...]

    @property
    def schema(self) -> pa.Schema:
        """The rows that `take` returns, in types that Spark knows."""
        return self.fields

    @property
    def version(self) -> str:
        """A digest over the files' names, sizes and fingerprints."""
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(f"{file.name}\0{file.size}\0{file.digest}\n".encode())
        return digest.hexdigest()[:32]

    @property
    def pages(self) -> tuple[Page, ...]:
        """All row groups that have rows."""
        return self.scan

    def open(self) -> ParquetReader:
        """A reader for this very version."""
        return ParquetReader(self)

    def locate(self, file: int) -> Path:
        """Where a planned file is."""
        root = Path(self.path)
        return root / self.files[file].name if self.files[file].name else root

    @classmethod
    def plan(cls, path: str, key: tuple[str, ...]) -> ParquetTable:
        """Read the footers of a file or directory."""
        root = Path(path)
        planned: list[PlannedFile] = []
        places: list[tuple[int, int]] = []
        scan: list[Page] = []
        fields: pa.Schema | None = None
        for number, file in enumerate(_parquet_files(root)):
            name = "" if file == root else str(file.relative_to(root))
            try:
                size, digest = files.fingerprint(file)
                metadata = pq.read_metadata(file)
                found = _schema(metadata, file)
            except (OSError, ValueError) as error:
                raise unreadable(file, error) from error
            if fields is None:
                fields = found
                for column in key:
                    keys.column_kind(fields, column, f"The table {path}")
            else:
                _check_same(fields, found, file)
            planned.append(PlannedFile(name, size, digest))
            for group in range(metadata.num_row_groups):
                page = _page(len(scan), metadata.row_group(group), found, key)
                if page.rows:
                    places.append((number, group))
                    scan.append(page)
        if fields is None:
            raise UnreadableTable(
                f"{path} holds no Parquet file.",
                why="Names that begin with '_' or '.' do not count.",
                do="Check the path; an empty table needs at least one file, for its columns.",
            )
        return cls(path, key, tuple(planned), fields, tuple(places), tuple(scan))


def unreadable(file: Path, error: Exception) -> UnreadableTable:
    """The error for a file that cannot be planned."""
    return UnreadableTable(
        f"{file} cannot be read as Parquet: {str(error).splitlines()[0] if str(error) else type(error).__name__}.",
        do="Check that it is a complete Parquet file and may be read; names that begin with '_' or '.' are left out.",
    )


def _parquet_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    if (root / "_delta_log").is_dir() or any((root / "metadata").glob("*.metadata.json")):
        kind = "a Delta" if (root / "_delta_log").is_dir() else "an Iceberg"
        raise UnreadableTable(
            f"{root} is {kind} table.",
            why="Not all files in it belong to its newest version: read as plain Parquet, they would give wrong rows.",
            do=f'Write a snapshot: spark.read.format("{kind.split()[1].lower()}").load("{root}").write.parquet(…)',
        )
    found = []
    for entry in sorted(root.iterdir()):
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir():
            raise UnreadableTable(
                f"{root} has the subdirectory {entry.name!r}.",
                why="A directory of partitions (column=value) or of further directories is not read as a table."
                if "=" in entry.name
                else "Only files directly in the directory are read, and leaving some out would lose rows.",
                do="Write the table into one directory without partitions, or name the directory that has the files.",
            )
        found.append(entry)
    return found


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


def _check_same(first: pa.Schema, other: pa.Schema, file: Path) -> None:
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


def _page(index: int, group: pq.RowGroupMetaData, fields: pa.Schema, key: tuple[str, ...]) -> Page:
    """Bounds from the metadata: a chunk as stored, unpacked (it may be one Parquet page), and a batch of it decoded."""
    rows: int = group.num_rows
    cost = dict.fromkeys(fields.names, 0)
    for leaf in range(group.num_columns):
        chunk = group.column(leaf)
        path = chunk.path_in_schema
        column = path.partition(".")[0]
        if column not in cost:  # a name with a dot in it
            column = next(name for name in fields.names if path == name or path.startswith(name + "."))
        unpacked = chunk.total_uncompressed_size
        stored = 0 if chunk.compression == "UNCOMPRESSED" else chunk.total_compressed_size
        width = fixed_width(fields.field(column).type) or 8 + 2 * unpacked // max(chunk.num_values, 1)
        cost[column] += stored + unpacked + min(BATCH, max(chunk.num_values, rows)) * width
    return Page(index, rows, 8 * rows + sum(cost[name] for name in key), max(cost.values(), default=0))


class ParquetReader(PageReader):
    """Reads row groups, one column at a time.

    Guarantees
        Every answer is from the planned bytes: stamps are compared before and after each read, and fingerprints where
        a stamp moved; anything else is `TableChanged` with the file's name.
    State and cost
        A few open files; while reading, what `Page` promises; between calls, the hashes of one page.
    """

    def __init__(self, table: ParquetTable) -> None:
        self._table = table
        self._open: OrderedDict[int, tuple[files.Stamp, pq.ParquetFile]] = OrderedDict()
        #: The stamp under which a file's fingerprint was last found to be the planned one.
        self._verified: dict[int, files.Stamp] = {}

    def hashes(self, page: Page) -> Hashes:
        """The hash of every row's key, from the key columns alone."""
        return self._steadily(page, lambda file, group: self._hash(file, group, page.rows))

    def take(self, page: Page, rows: RowIds) -> pa.RecordBatch:
        """The given rows; each column is decoded, picked from and let go before the next."""
        return self._steadily(page, lambda file, group: self._pick(file, group, page.rows, rows))

    def batches(self, page: Page) -> Iterator[pa.RecordBatch]:
        """All rows in order, all columns, `BATCH` rows at a time."""
        for start in range(0, page.rows, BATCH):
            yield self.take(page, np.arange(start, min(start + BATCH, page.rows)))

    def close(self) -> None:
        """Let go of files."""
        while self._open:
            self._forget(next(iter(self._open)))

    def _hash(self, file: pq.ParquetFile, group: int, rows: int) -> Hashes:
        out = np.empty(rows, np.uint64)
        at = 0
        key = list(self._table.key)
        for batch in file.iter_batches(BATCH, row_groups=[group], columns=key, use_threads=False):
            columns = [as_spark(batch.column(name), self._table.fields.field(name).type) for name in key]
            out[at : at + batch.num_rows] = keys.hash_keys(columns)
            at += batch.num_rows
        return out

    def _pick(self, file: pq.ParquetFile, group: int, total: int, rows: RowIds) -> pa.RecordBatch:
        fields = self._table.fields
        ascending = bool(np.all(rows[1:] >= rows[:-1]))
        order = None if ascending else np.argsort(rows, kind="stable")
        wanted = rows if order is None else rows[order]
        back = None if order is None else pa.array(np.argsort(order, kind="stable"))
        cuts = np.searchsorted(wanted, np.arange(0, total + BATCH, BATCH))
        picked = []
        for field in fields:
            parts = []
            batches = file.iter_batches(BATCH, row_groups=[group], columns=[field.name], use_threads=False)
            for number, batch in enumerate(batches):
                first, last = cuts[number], cuts[number + 1]
                if first == last:
                    continue
                part = batch.column(field.name).take(pa.array(wanted[first:last] - number * BATCH))
                parts.append(as_spark(part, field.type))
            column = pa.concat_arrays(parts) if parts else pa.nulls(0, field.type)
            picked.append(column if back is None else column.take(back))
        return pa.RecordBatch.from_arrays(picked, schema=fields)

    def _steadily(self, page: Page, read: Callable[[Any, int], T]) -> T:
        """Read from a file that is the planned one before and after."""
        number, group = self._table.places[page.index]
        path = self._table.locate(number)
        for _ in range(3):
            before, file = self._acquire(number)
            try:
                answer = read(file, group)
            except (OSError, pa.ArrowException) as error:
                self._forget(number)
                raise files.changed(path, f"cannot be read any more: {str(error).splitlines()[0]}") from error
            if self._stamp(path) == before:
                return answer
            # It moved while it was read. If it is the same bytes again, once more from the start.
            self._forget(number)
            self._verified.pop(number, None)
        raise files.changed(path, "changes again and again")

    def _acquire(self, number: int) -> tuple[files.Stamp, pq.ParquetFile]:
        path = self._table.locate(number)
        now = self._stamp(path)
        held = self._open.get(number)
        if held is not None and held[0] == now:
            self._open.move_to_end(number)
            return held
        self._forget(number)
        if self._verified.get(number) != now:
            self._verify(number, path)
            self._verified[number] = now
        while len(self._open) >= _OPEN_FILES:
            self._forget(next(iter(self._open)))
        try:
            file = pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us")
        except (OSError, pa.ArrowException) as error:
            raise files.changed(path, f"cannot be opened any more: {str(error).splitlines()[0]}") from error
        self._open[number] = now, file
        return self._open[number]

    def _verify(self, number: int, path: Path) -> None:
        planned = self._table.files[number]
        try:
            size, digest = files.fingerprint(path)
        except FileNotFoundError as error:
            raise files.changed(path, "is gone") from error
        except (OSError, ValueError) as error:
            raise files.changed(path, f"is not what was planned: {error}") from error
        if size != planned.size:
            raise files.changed(path, f"has {size:,} bytes now and had {planned.size:,}")
        if digest != planned.digest:
            raise files.changed(path, "was rewritten")

    def _stamp(self, path: Path) -> files.Stamp:
        try:
            return files.stamp(path)
        except FileNotFoundError as error:
            raise files.changed(path, "is gone") from error
        except OSError as error:
            raise files.changed(path, f"cannot be reached: {error.strerror}") from error

    def _forget(self, number: int) -> None:
        held = self._open.pop(number, None)
        if held is not None:
            held[1].close(force=True)
