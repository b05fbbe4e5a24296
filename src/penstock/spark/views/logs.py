"""Change logs: which changes of a table are waiting, and how they are read.

A log is a directory. Files whose names begin with a dot or an underscore are not there yet; all others are whole, and
get their names in the order of their changes. An entry may also be a directory of files, as Spark writes them. An entry
that was taken is known by its name, so one that comes late is taken late, and entries may be removed once they are
taken. A table whose changes come as a stream has a log of its own, to which each micro-batch adds one entry, named by
its number: a batch that is repeated after a crash finds that it is there.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.errors import SourceLost, UnknownColumn, UnsupportedType, ViewDamaged
from penstock.plan.view import CHUNK, Changing
from penstock.plan.views.kinds import common, kind_of
from penstock.spark.crash import crash_point
from penstock.spark.input_files import InputFiles
from penstock.spark.spark_files import remove_half_begun
from penstock.spark.views.parquet import rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class Waiting:
    """An entry of a log that is still to be taken: how many changes, and since when it is there."""

    name: str
    paths: tuple[Path, ...]
    changes: int
    arrived: float


class Log:
    """The changes of one table. One that is `ours` is of a stream, and nobody else removes what was taken."""

    def __init__(self, table: str, place: Path, spec: Changing, schema: pa.Schema, *, ours: bool = False) -> None:
        self.table = table
        self._ours = ours
        self.place = place
        self._spec = spec
        self._schema = schema
        self._known: dict[str, Waiting] = {}
        #: Whether the directory was there at any time: it may be made later, but may not go.
        self._found = False

    def waiting(self, taken: Iterable[str]) -> list[Waiting]:
        """What is still to be taken, in order. Reads the footer of each file once."""
        found = {entry.name: entry for entry in self.peek(taken)}
        self._known = found
        return [found[name] for name in sorted(found)]

    def peek(self, taken: Iterable[str]) -> list[Waiting]:
        """The same, from any thread."""
        done, known = set(taken), self._known
        entries = (known.get(name) or self._look(name) for name in self.names() if name not in done)
        return [entry for entry in entries if entry is not None]

    def names(self) -> list[str]:
        """All entries that are there, in order and without gaps.

        While a directory is listed an entry may get its name behind the place where the system has got to, and the next
        one before it: that listing has the later entry alone, and its changes would overtake the earlier ones. All that
        was there before the last entry of one listing is in the next.
        """
        seen = self._listed()
        return [name for name in self._listed() if name <= seen[-1]] if seen else []

    def _listed(self) -> list[str]:
        if not self.place.is_dir():
            if self._found:
                raise SourceLost(
                    f"{self.place} is gone.",
                    why=f"Whether changes of {self.table} wait there cannot be told.",
                    do="Put it back, or mount it again.",
                )
            return []
        self._found = True
        return sorted(entry.name for entry in self.place.iterdir() if not entry.name.startswith((".", "_")))

    def _look(self, name: str) -> Waiting | None:
        path = self.place / name
        try:
            found = path.stat()
            paths = (path,) if path.is_file() else _whole_directory(path)
            if not paths:
                return None
            return Waiting(name, paths, sum(pq.read_metadata(p).num_rows for p in paths), found.st_mtime)
        except FileNotFoundError:
            return None  # removed between the listing and now
        except (OSError, pa.ArrowException) as fault:
            raise SourceLost(
                f"{path} cannot be read: {str(fault).splitlines()[0]}",
                why="It is a file of changes, and must be whole when it gets its name.",
                do="Write such files under a name that begins with a dot, and rename them when they are done. "
                "Mend or remove this one.",
            ) from fault

    def forget(self, taken: Sequence[str]) -> None:
        """Remove what was taken, if the log is ours; but the last entry, which a micro-batch may be about to repeat."""
        if self._ours and taken:
            last = max(self.names(), default="")
            for name in taken:
                if name < last:
                    shutil.rmtree(self.place / name, ignore_errors=True)

    def read(self, entries: Sequence[Waiting]) -> pa.Table:
        """Changes with the table's columns and the operation, in order. Raises `SourceLost` if one is gone."""
        parts = []
        for entry in entries:
            try:
                rows = [rows_of(path) for path in entry.paths]
            except (OSError, pa.ArrowException) as fault:
                raise SourceLost(
                    f"{self.place / entry.name} is gone or damaged: {str(fault).splitlines()[0]}",
                    why=f"{entry.changes:,} changes of {self.table} in it were not taken yet.",
                    do="Put the file back.",
                ) from fault
            fitted = [self._fitted(one, entry) for one in rows]
            parts += fitted if self._spec.order is None else [self._in_order(fitted, rows, self._spec.order, entry)]
        return pa.concat_tables(parts) if parts else self._empty()

    def _in_order(self, fitted: list[pa.Table], rows: list[pa.Table], order: str, entry: Waiting) -> pa.Table:
        """The changes of an entry by the order that its files, which may have it in several types, give them."""
        names = [{name.lower(): name for name in one.column_names}[order.lower()] for one in rows]
        given = [pa.table({"": one[name]}) for one, name in zip(rows, names, strict=True)]
        try:
            places = pc.sort_indices(pa.concat_tables(given, promote_options="permissive"), [("", "ascending")])
        except pa.ArrowException as fault:
            raise UnsupportedType(
                f"{self.place / entry.name} has no order by {order}: {str(fault).splitlines()[0]}",
                do="Mend the file: all of it must have numbers there, or times, or texts.",
            ) from fault
        return pa.concat_tables(fitted).take(places)

    def _empty(self) -> pa.Table:
        return self._schema.append(pa.field(self._spec.operation, pa.string())).empty_table()

    def check_columns(self, columns: Sequence[str], where: str) -> None:
        """Refuse changes that lack a column of the table, the operation, or what they are ordered by."""
        have = {name.lower() for name in columns}
        order = [self._spec.order] if self._spec.order is not None else []
        for name in (*self._schema.names, self._spec.operation, *order):
            if name.lower() not in have:
                raise UnknownColumn.among(name, columns, where)

    def _fitted(self, rows: pa.Table, entry: Waiting) -> pa.Table:
        self.check_columns(rows.column_names, f"{self.place / entry.name}")
        names = {name.lower(): name for name in rows.column_names}
        wanted = [*self._schema.names, self._spec.operation]
        columns = [rows[names[name.lower()]] for name in wanted]
        for column, field in zip(columns, self._schema, strict=False):
            if not _same_kind(column.type, field.type):
                raise UnsupportedType(
                    f"{self.place / entry.name} does not fit {self.table}: {field.name} is {column.type} in it, and "
                    f"{field.type} in the table.",
                    why="Values of one kind are never read as those of another.",
                    do="Mend the file: its columns must have the table's types.",
                )
        try:
            # A safe cast: a value that does not fit is an error, never a NULL.
            fitted = pa.table(columns, names=wanted).cast(self._empty().schema)
            for column, field in zip(columns, self._schema, strict=False):
                if not _fits(column, field.type):
                    raise pa.ArrowInvalid(f"{field.name} is {column.type} in it, and more than {field.type} can hold")
            return fitted
        except pa.ArrowException as fault:
            raise UnsupportedType(
                f"{self.place / entry.name} does not fit {self.table}: {str(fault).splitlines()[0]}",
                do="Mend the file: its columns must have the table's types.",
            ) from fault


def _whole_directory(path: Path) -> tuple[Path, ...]:
    """The files of a directory; none if it is still being written, which Spark does in a directory within it."""
    found = sorted(path.iterdir())
    if any(one.name == "_temporary" for one in found):
        return ()
    shown = tuple(one for one in found if not one.name.startswith((".", "_")))
    inner = next((one for one in shown if one.is_dir()), None)
    if inner is not None:
        raise IsADirectoryError(f"it has the directory {inner.name!r}, and an entry is a file or a directory of files")
    return shown


def _same_kind(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a cast keeps what a value means: a text is no number, and a time without a zone is no moment.

    >>> _same_kind(pa.int32(), pa.int64()), _same_kind(pa.int64(), pa.timestamp("us"))
    (True, False)
    """
    if pa.types.is_null(have):
        return True
    have = have.value_type if pa.types.is_dictionary(have) else have
    # Forms that a table of Spark's cannot have, and a file of changes may.
    others = {pa.uint64(): pa.int64(), pa.float16(): pa.float32(), pa.date64(): pa.date32()}
    kind = kind_of(others.get(have, have))
    moments = [pa.types.is_timestamp(type_) and type_.tz is not None for type_ in (have, want)]
    return kind is not None and common([kind, kind_of(want) or kind]) is not None and moments[0] == moments[1]


def _fits(column: pa.ChunkedArray, type_: pa.DataType) -> bool:
    """Whether floating numbers stay what they are, where Arrow would round or lose them without a word.

    >>> some = pa.chunked_array([[19.99, None, 0.125]])
    >>> _fits(some, pa.decimal128(9, 2)), _fits(some, pa.decimal128(9, 3)), _fits(some, pa.float32())
    (False, True, True)
    """
    if not pa.types.is_float64(column.type):
        return True
    cast = column.cast(type_)
    if pa.types.is_decimal(type_):
        # The same number to as many digits as a floating one is good for.
        lost = pc.abs(pc.subtract(cast.cast(pa.float64()), column))
        return not pc.any(pc.greater(lost, pc.multiply(pc.abs(column), 1e-14))).as_py()
    # Fewer digits are what the table has of its own rows too; infinity is not.
    infinite = pc.and_(pc.is_finite(column), pc.is_inf(cast)) if pa.types.is_float32(type_) else None
    return infinite is None or not pc.any(infinite).as_py()


def in_chunks(entries: Sequence[Waiting], most: int = CHUNK) -> list[list[Waiting]]:
    """Entries in order, so many together as are not more than `most` changes; at least one each.

    >>> some = [Waiting(str(n), (), n, 0.0) for n in (3, 3, 9, 1)]
    >>> [[entry.changes for entry in chunk] for chunk in in_chunks(some, most=6)]
    [[3, 3], [9], [1]]
    """
    chunks: list[list[Waiting]] = []
    for entry in entries:
        if chunks and sum(one.changes for one in chunks[-1]) + entry.changes <= most:
            chunks[-1].append(entry)
        else:
            chunks.append([entry])
    return chunks


def follow(stream: DataFrame, place: Path, checkpoint: Path, trigger: dict[str, Any]) -> StreamingQuery:
    """Write a stream of changes to its log, each micro-batch as one entry."""
    remove_half_begun(checkpoint)
    check_goes_on(place, checkpoint)  # before anything is made that is in the way of what is put back
    place.mkdir(parents=True, exist_ok=True)
    started: list[StreamingQuery] = []
    inputs = InputFiles(checkpoint)

    def check(number: int) -> None:
        inputs.check(number, lambda: started[0] if started else None)

    writer = stream.writeStream.foreachBatch(_writer(place, check)).option("checkpointLocation", str(checkpoint))
    started.append(writer.trigger(**trigger).start())
    return started[0]


def check_goes_on(place: Path, checkpoint: Path) -> None:
    """Refuse a stream that would begin again, or at an earlier micro-batch than the last in its log: of those before it
    nothing is remembered once they were taken. Nor may it be ahead of its log, where every one has left an entry.
    """
    last, planned, done = (
        max((int(entry.name) for entry in folder.glob("*") if entry.name.isdecimal()), default=-1)
        for folder in (place, checkpoint / "offsets", checkpoint / "commits")
    )
    if planned < last:
        raise ViewDamaged(
            f"{checkpoint} is lost, or an old copy: it knows of {planned + 1:,} micro-batches, and the view has "
            f"{last + 1:,}.",
            why="Changes would be counted twice, or passed over.",
            do="Put the checkpoint back as it was, or make the view again in a new directory.",
        )
    if planned > last + 1 or done > last:
        raise ViewDamaged(
            f"{place} is lost, or an old copy: it has {last + 1:,} micro-batches, and {checkpoint} knows of "
            f"{planned + 1:,}.",
            why="Changes that the view has not taken yet may be gone.",
            do="Put it back as it was, or make the view again in a new directory.",
        )


def _writer(place: Path, check: Callable[[int], None]) -> Callable[[DataFrame, int], None]:
    def write(batch: DataFrame, number: int) -> None:
        name = f"{number:020d}"
        if (place / name).exists():
            return
        scratch = place / f".{name}"
        shutil.rmtree(scratch, ignore_errors=True)
        batch.write.parquet(str(scratch))
        check(number)
        crash_point("view-before-log")
        with contextlib.suppress(FileNotFoundError):
            (scratch / "_SUCCESS").unlink()
        scratch.rename(place / name)

    return write
