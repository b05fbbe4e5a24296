"""Channels written as Parquet by the workers themselves, and committed by the driver once for each micro-batch.

Wide results pay more for the way into the JVM than for the join, so the task that has them as Arrow writes them, into a
staging directory, and only the list of files goes back to the driver. There a micro-batch becomes visible in two
steps::

    1. the ledger entry of the batch is written, whole or not at all: this is the commit
    2. its files move from staging to their place

A batch that comes again after a crash finds its entry: step 2 is finished for the files of the entry, and the new files
are thrown away. So every row is there once, whatever was killed when.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import BadOption, SinkDamaged
from penstock.kernels.contract import RESULTS, Emission
from penstock.spark.crash import crash_point
from penstock.spark.files import read_whole, sync_directory, write_first, write_whole
from penstock.spark.wire import Reader, batch_number

if TYPE_CHECKING:
    from pyspark.sql import Row

#: What a writing task tells the driver of each file.
WRITTEN = pa.schema([("channel", pa.string()), ("file", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())])
#: Rows in a row group at the most; results arrive in smaller batches and are gathered.
_GROUP_ROWS = 131_072
_GROUP_BYTES = 8 << 20
#: Ledger entries that are kept. Spark only ever repeats its last batch.
_KEPT = 100


def file_writer(places: Mapping[str, tuple[str, pa.Schema]]) -> Reader:
    """A reader that writes the rows of each channel as a staged Parquet file."""

    def write(emissions: Iterator[Emission]) -> Iterator[pa.RecordBatch]:
        open_files: dict[str, StagedFile] = {}
        number = batch_number()
        for channel, rows in emissions:
            if channel not in open_files:
                place, schema = places[channel]
                open_files[channel] = StagedFile(Path(place), number, schema)
            open_files[channel].add(rows)
        for channel, staged in open_files.items():
            written = staged.close(channel)
            crash_point("in-sink")
            yield written

    return write


def rows_writer(
    place: Path, number: int, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that writes rows as one staged Parquet file."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        staged: StagedFile | None = None
        for batch in batches:
            if batch.num_rows:
                staged = staged or StagedFile(place, number, schema)
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
                staged.add(pa.RecordBatch.from_arrays(columns, schema=schema))
        if staged is not None:
            written = staged.close(RESULTS)
            crash_point("in-sink")
            yield written

    return write


class StagedFile:
    """A Parquet file that waits for its commit, written by one attempt of one task."""

    def __init__(self, place: Path, batch: int, schema: pa.Schema) -> None:
        # The name holds a fresh id: a task that is tried again must not write over what another attempt reported.
        self._path = staging(place) / f"part-{batch:08d}-{uuid.uuid4().hex[:12]}.parquet"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._path, schema)
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows, a row group at a time."""
        self._held.append(rows)
        self._rows += rows.num_rows
        self._held_rows += rows.num_rows
        self._held_bytes += rows.nbytes
        if self._held_rows >= _GROUP_ROWS or self._held_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
            self._held, self._held_rows, self._held_bytes = [], 0, 0

    def close(self, channel: str) -> pa.RecordBatch:
        """Make it durable, and say what the driver has to know of it."""
        self._flush()
        self._writer.close()
        with self._path.open("rb") as written:
            os.fsync(written.fileno())
        said = [channel, self._path.name, self._rows, self._path.stat().st_size]
        columns = [pa.array([value], field.type) for value, field in zip(said, WRITTEN, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=WRITTEN)


def told(written: pa.RecordBatch) -> dict[str, Any]:
    """A file as its ledger entry has it."""
    [said] = written.select(["file", "rows", "bytes"]).to_pylist()
    return {"name": said["file"], "rows": said["rows"], "bytes": said["bytes"]}


def batch_of(name: str) -> int | None:
    """The micro-batch that a file of a sink belongs to; None for a file that no sink wrote.

    >>> batch_of("part-00000012-0123456789ab.parquet"), batch_of("notes.parquet")
    (12, None)
    """
    found = re.fullmatch(r"part-(\d{8,})-[0-9a-f]{12}\.parquet", name)
    return int(found[1]) if found else None


def staging(place: Path) -> Path:
    """Where files wait for their commit. Readers of Parquet directories pass over names that begin with an
    underscore.
    """
    return place / "_penstock" / "staging"


@dataclass(frozen=True)
class Ledger:
    """The committed micro-batches of one channel's directory, which belongs to one checkpoint (`owner`).

    With a `schema` the first of them has a file even if it has no rows: who reads the directory finds the columns. With
    `checkpoint`, the place of that, a directory that got no batch is another's to have once nobody runs on it.
    """

    place: Path
    owner: str
    schema: pa.Schema | None = None
    checkpoint: Path | None = None

    @property
    def _entries(self) -> Path:
        return self.place / "_penstock" / "ledger"

    @property
    def _owner(self) -> Path:
        return self.place / "_penstock" / "owner.json"

    def claimed(self) -> bool:
        """Whether the directory belongs to anyone."""
        return self._owner.exists()

    def claim(self) -> bool:
        """Make the directory ours, or refuse it if it is another's; whether it was not ours before."""
        try:
            return self._claim()
        except OSError as fault:
            raise BadOption(
                f"{self.place} cannot be written: {fault.strerror}.", do="Choose a directory that can be."
            ) from fault

    def release(self) -> None:
        """Give the directory back, if nothing was committed to it: whoever claims it next may have it."""
        if not self.batches():
            self._owner.unlink(missing_ok=True)

    def holder(self) -> str | None:
        """Whose the directory is; None if it is nobody's."""
        if not self.claimed():
            return None
        said = read_whole(self._owner)
        if said is None:
            raise SinkDamaged(f"{self._owner} is cut or changed.", do="Write to a new directory.")
        return str(said["owner"])

    def _claim(self) -> bool:
        holder = self.holder()
        if holder is None and self.place.exists() and any(one.name != "_penstock" for one in self.place.iterdir()):
            raise BadOption(
                f"{self.place} is not empty, and not the output of a Penstock query.",
                do="Give this query a directory of its own.",
            )
        if holder not in (None, self.owner) and self._is_left():
            self._owner.unlink(missing_ok=True)
            holder = None
        self._entries.mkdir(parents=True, exist_ok=True)
        staging(self.place).mkdir(exist_ok=True)
        said = {"owner": self.owner} | ({"checkpoint": str(self.checkpoint)} if self.checkpoint else {})
        if holder is None and write_first(self._owner, said):
            return True
        if self.holder() != self.owner:
            raise BadOption(
                f"{self.place} holds the output of another query.",
                why="Batches are numbered from 0 in every query, so new rows would be taken for repeated ones.",
                do="Give this query a directory of its own, or start it with the checkpoint it was made with.",
            )
        return False

    def _is_left(self) -> bool:
        """Whether its query committed nothing here, and does not run: perhaps it failed in its first micro-batch."""
        from penstock.spark.checkpoint import is_left

        said = read_whole(self._owner) or {}
        return "checkpoint" in said and not self.batches() and is_left(Path(said["checkpoint"]), said["owner"])

    def batches(self) -> list[int]:
        """The committed micro-batches whose entries are kept, oldest first."""
        return sorted(int(entry.stem) for entry in self._entries.glob("*.json"))

    def has(self, batch: int) -> bool:
        """Whether a batch is committed and its entry still kept."""
        return self._entry(batch).exists()

    def entry(self, batch: int) -> dict[str, Any]:
        """What was committed as a batch. Raises `FileNotFoundError` if its entry is not kept any more."""
        path = self._entry(batch)
        said = read_whole(path)
        if said is None:
            raise SinkDamaged(
                f"{path} is cut or changed.",
                why="It says which files of the batch are committed.",
                do="Restore the directory and the checkpoint from the same copy.",
            )
        return said

    def commit(self, batch: int, files: list[dict[str, Any]], **notes: Any) -> None:
        """Make a batch's files visible, once; `notes` become part of its entry."""
        if not self.has(batch):
            if not files and self.schema is not None and not self.batches():
                files = [told(StagedFile(self.place, batch, self.schema).close(RESULTS))]
            sync_directory(staging(self.place))
            crash_point("before-commit")
            write_whole(self._entry(batch), {"batch": batch, "files": files} | notes)
        self.finish(batch)

    def finish(self, batch: int) -> None:
        """Make all files of a committed batch visible, and throw away what was staged beside them."""
        self._show(batch)
        self._sweep()

    def _entry(self, batch: int) -> Path:
        return self._entries / f"{batch:020d}.json"

    def _show(self, batch: int) -> None:
        said = self.entry(batch)
        for file in said["files"]:
            staged, final = staging(self.place) / file["name"], self.place / file["name"]
            crash_point("in-commit")
            if staged.exists():
                staged.rename(final)
            elif not final.exists():
                raise SinkDamaged(
                    f"{final} is missing.",
                    why=f"Batch {batch} was committed with it.",
                    do="Put it back, or restore the directory and the checkpoint from the same copy.",
                )
        sync_directory(self.place)

    def _sweep(self) -> None:
        """Throw away what abandoned attempts staged, and old entries."""
        shutil.rmtree(staging(self.place), ignore_errors=True)
        staging(self.place).mkdir(exist_ok=True)
        for old in sorted(self._entries.glob("*.json"))[:-_KEPT]:
            old.unlink()


@contextlib.contextmanager
def claiming(ledgers: Iterable[Ledger]) -> Iterator[None]:
    """Make directories ours for a start; if it fails, those that were nobody's are nobody's again."""
    taken: list[Ledger] = []
    try:
        taken.extend(ledger for ledger in ledgers if ledger.claim())
        yield
    except BaseException:
        for ledger in taken:
            ledger.release()
        raise


def commit(ledgers: Mapping[str, Ledger], batch: int, written: list[Row]) -> None:
    """Commit one micro-batch on all channels. Each is idempotent, so a crash between two is made good by the
    repetition.
    """
    for channel, ledger in ledgers.items():
        files = [
            {"name": row["file"], "rows": row["rows"], "bytes": row["bytes"]}
            for row in written
            if row["channel"] == channel
        ]
        ledger.commit(batch, files)
