"""The short way from a kernel to the operator that follows it in the same task: through a file, not through the JVM.

Rows that leave a kernel are read next by another Python worker of the same task, on the same host. Between the two lies
the JVM, and every byte sent through it is copied about ten times. So rows are written to a file below Spark's
temporary directory of the application, and only the file's name travels; the reader maps it and removes its name at
once.

A reader that lags must not let files pile up: with `_AHEAD` of them unread, rows travel in the message itself, which
blocks until the reader has taken what came before. Files of attempts that failed are removed by the slot's next step.
A query may hold several flows, each with a slot of that number: their tasks of one micro-batch leave each other's files
alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

#: Rows of a channel are gathered into files of about this many bytes.
_FILE_BYTES = 4 << 20
#: Files that may wait for the reader.
_AHEAD = 8


#: A parcel as columns of Spark's.
PARCEL = "channel string, blob binary, file string"


class Parcel(NamedTuple):
    """Rows of a channel: a file of record batches, or one record batch in the message itself."""

    channel: str
    blob: bytes | None
    file: str | None


class Attempt(NamedTuple):
    """One attempt of one task."""

    batch: int = 0
    stage: int = 0
    partition: int = 0
    number: int = 0

    @classmethod
    def here(cls) -> Attempt:
        """The one that this worker is at."""
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            return cls()
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        return cls(batch, context.stageId(), context.partitionId(), context.taskAttemptId())

    def name(self, file: int) -> str:
        """The name of its n-th file."""
        return "-".join(map(str, (*self, file)))

    def outdates(self, name: str) -> bool:
        """Whether a file is of an earlier micro-batch, or of an attempt that this one repeats."""
        batch, *task, number, _ = map(int, name.split("-"))
        return batch != self.batch or (task == [self.stage, self.partition] and number != self.number)


class _Open(NamedTuple):
    path: Path
    sink: pa.OSFile
    writer: pa.ipc.RecordBatchStreamWriter


class Outbox:
    """What one slot sends in one attempt of a task."""

    def __init__(self, root: Path, attempt: Attempt) -> None:
        self._root = root
        self._attempt = attempt
        self._made = 0
        self._open: dict[str, _Open] = {}
        self._root.mkdir(parents=True, exist_ok=True)
        for left in self._root.iterdir():
            if attempt.outdates(left.name):
                left.unlink(missing_ok=True)

    @classmethod
    def here(cls, query: str, slot: int) -> Outbox:
        """The outbox of a query's slot in this task."""
        from pyspark import SparkFiles

        return cls(Path(SparkFiles.getRootDirectory()) / "penstock-outbox" / query / str(slot), Attempt.here())

    def add(self, channel: str, rows: pa.RecordBatch) -> Iterator[Parcel]:
        """Take in rows; give out what is ready to travel."""
        if channel not in self._open and sum(1 for _ in self._root.iterdir()) >= _AHEAD:
            yield Parcel(channel, rows.serialize().to_pybytes(), None)
            return
        self.keep(channel, rows)
        if self._open[channel].sink.tell() >= _FILE_BYTES:
            yield self._close(channel)

    def keep(self, channel: str, rows: pa.RecordBatch) -> None:
        """Take in rows that nothing can be sent for yet: in a file, however many wait for the reader."""
        if channel not in self._open:
            path = self._root / self._attempt.name(self._made)
            self._made += 1
            sink = pa.OSFile(str(path), "wb")
            self._open[channel] = _Open(path, sink, pa.ipc.new_stream(sink, rows.schema))
        self._open[channel].writer.write_batch(rows)

    def close(self) -> Iterator[Parcel]:
        """Give out the rest."""
        for channel in list(self._open):
            yield self._close(channel)

    def _close(self, channel: str) -> Parcel:
        opened = self._open.pop(channel)
        opened.writer.close()
        opened.sink.close()
        return Parcel(channel, None, str(opened.path))


def unwrap(parcel: Parcel, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a parcel, without a copy. A file's name is gone afterwards; its bytes go with the last of the
    rows.
    """
    if parcel.file is None:
        yield pa.ipc.read_record_batch(pa.py_buffer(parcel.blob), schema)
        return
    with pa.memory_map(parcel.file) as mapped:
        Path(parcel.file).unlink()
        yield from pa.ipc.open_stream(mapped)


def discard(parcel: Parcel) -> None:
    """Let go of rows that nobody reads."""
    if parcel.file is not None:
        with contextlib.suppress(FileNotFoundError):
            Path(parcel.file).unlink()
