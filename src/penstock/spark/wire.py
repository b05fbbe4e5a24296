"""How rows travel: as Arrow blobs, one for each slot and portion, so that Spark handles few large rows and no Python
handles any.

A packed row is `(slot, at, side, blob)`. `at` is a logical clock, the number of the micro-batch, as Spark's event time:
it advances with every batch that has rows whatever the wall clock does, so Spark runs one more micro-batch without
input after the last rows, and timers set in one batch fire in the next. No row is ever late by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.kernels.contract import SET_ASIDE_SCHEMA, Emission
from penstock.plan.base import Side
from penstock.plan.routing import RangeSide
from penstock.spark.crash import crash_point
from penstock.spark.outbox import Attempt, Parcel, discard, unwrap
from penstock.spark.signals import ignore_interrupts
from penstock.tables.keys import hash_keys, slot_of

#: `timestamp` alone would be what `spark.sql.timestampType` says.
PACKED = "slot int, at timestamp_ltz, side int, blob binary"
_PACKED_ARROW = pa.schema(
    [
        ("slot", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("side", pa.int32()),
        ("blob", pa.binary()),
    ]
)
#: The side of rows that a source could not read; they go round the kernel to the channel `set_aside`.
ASIDE = -1
#: The side of a notice that says how far the event time of side 0 has come; of side n, n less.
EVENT_TIME = -2
#: A source's column with the text of a record that does not fit the schema, and the one with its file.
CORRUPT, SOURCE = "_corrupt_record", "_source_file"

#: Rows handed to Spark at once, where they come in smaller batches.
_UNPACKED_ROWS = 8_192

Batches = Iterable[pa.RecordBatch]
#: What becomes of rows that leave kernels, in the task where they do.
Reader = Callable[[Iterator[Emission]], Iterator[pa.RecordBatch]]


def marks_in(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns that mark what a source could not read. Without the text of a record, a file's name marks nothing.

    >>> marks_in(["id", "_source_file", "_corrupt_record"]), marks_in(["id", "_source_file"])
    (('_corrupt_record', '_source_file'), ())
    """
    found = set(columns)
    return tuple(name for name in (CORRUPT, SOURCE) if name in found) if CORRUPT in found else ()


def batch_number() -> int:
    """The micro-batch this task belongs to."""
    return Attempt.here().batch


def clock_of(batch: int) -> int:
    """The logical time of a micro-batch, in milliseconds; later than Spark's first watermark, which is 0."""
    return (batch + 1) * 1000


def packer(side: Side, number: int, ids: tuple[int, ...]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that packs the rows of one side."""

    def pack(batches: Batches) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        at = clock_of(batch_number())
        latest: int | None = None
        for batch in batches:
            rows, bad = split_corrupt(batch, side.schema)
            if bad is not None:
                yield _packed(ids[0], at, ASIDE, _to_blob(bad))
            if side.event_time is not None:
                latest = _later(latest, pc.max(rows.column(side.event_time)))
            for slot, part in _route(rows, side, len(ids)):
                if part.num_rows or side.calls_all:
                    yield _packed(ids[slot], at, number, _to_blob(part))
        if latest is not None:
            # Every slot must know how far event time has come, also one that got no row.
            for slot_id in ids:
                yield _packed(slot_id, at, EVENT_TIME - number, pa.py_buffer(latest.to_bytes(8, "big", signed=True)))
        crash_point("after-read")

    return pack


def opener(read: Reader, wanted: Mapping[str, pa.Schema]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that opens the parcels of some channels for a reader, and lets go of the others."""

    def opened(batches: Batches) -> Iterator[Emission]:
        for parcel in parcels(batches):
            if parcel.channel in wanted:
                for rows in unwrap(parcel, wanted[parcel.channel]):
                    yield Emission(parcel.channel, rows)
            else:
                discard(parcel)

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        ignore_interrupts()
        return read(opened(batches))

    return run


def parcels(batches: Batches) -> Iterator[Parcel]:
    """The parcels in messages of a host; its rows of numbers are none."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in Parcel._fields)
        yield from (Parcel(*fields) for fields in zip(*columns, strict=True) if fields[1:] != (None, None))


def rows_alone(emissions: Iterator[Emission]) -> Iterator[pa.RecordBatch]:
    """A reader that gives the rows, whatever their channel."""
    return in_larger(emission.rows for emission in emissions)


def in_larger(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, small batches put together."""
    run: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        if run and count + batch.num_rows > _UNPACKED_ROWS:
            yield pa.concat_batches(run) if len(run) > 1 else run[0]
            run, count = [], 0
        run.append(batch)
        count += batch.num_rows
    if run:
        yield pa.concat_batches(run) if len(run) > 1 else run[0]


def split_corrupt(batch: pa.RecordBatch, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The rows of a stream with this schema, and those that its source could not read, for the channel `set_aside`."""
    bad = None
    if CORRUPT in batch.schema.names:
        corrupt = batch.column(CORRUPT)
        if corrupt.null_count < len(corrupt):
            bad, batch = _set_aside(batch.filter(corrupt.is_valid())), batch.filter(corrupt.is_null())
    return pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema), bad


def _set_aside(batch: pa.RecordBatch) -> pa.RecordBatch:
    count = batch.num_rows
    reason = pa.array(["the record does not fit the schema"] * count, pa.string())
    source = batch.column(SOURCE) if SOURCE in batch.schema.names else pa.nulls(count, pa.string())
    return pa.RecordBatch.from_arrays([reason, source, batch.column(CORRUPT)], schema=SET_ASIDE_SCHEMA)


def from_blob(blob: pa.Buffer | bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a blob, without a copy."""
    return pa.ipc.read_record_batch(blob if isinstance(blob, pa.Buffer) else pa.py_buffer(blob), schema)


def _to_blob(rows: pa.RecordBatch) -> pa.Buffer:
    return rows.serialize()


def _packed(slot_id: int, at: int, side: int, blob: pa.Buffer) -> pa.RecordBatch:
    offsets = pa.py_buffer(np.array([0, blob.size], np.int32))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([slot_id], pa.int32()),
            pa.array([at * 1000], pa.timestamp("us", tz="UTC")),
            pa.array([side], pa.int32()),
            pa.Array.from_buffers(pa.binary(), 1, [None, offsets, blob]),
        ],
        schema=_PACKED_ARROW,
    )


def _route(rows: pa.RecordBatch, side: Side, slots: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    if isinstance(side, RangeSide):
        for slot, places in enumerate(side.places(rows)):
            yield slot, rows.take(pa.array(places))
        return
    if not side.key or slots == 1:
        for slot in range(slots):
            yield slot, rows
        return
    owner = slot_of(hash_keys([rows.column(name) for name in side.key]), slots)
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=slots))
    ordered = rows.take(pa.array(order))
    begin = 0
    for number, end in enumerate(ends):
        yield number, ordered.slice(begin, end - begin)
        begin = end


def _later(latest: int | None, found: pa.Scalar) -> int | None:
    value = found.cast(pa.timestamp("us")).value if found.is_valid else None
    return latest if value is None else value if latest is None else max(latest, value)
