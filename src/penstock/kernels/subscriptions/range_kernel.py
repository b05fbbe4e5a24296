"""The kernel of range subscriptions: updates of a table in, rectangles of subscriptions with their news out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import MemoryTooSmall, StateDamaged
from penstock.kernels.contract import (
    RESULTS,
    SET_ASIDE,
    SET_ASIDE_SCHEMA,
    Batch,
    Changes,
    ChunkLog,
    Emission,
    Kernel,
    Metric,
)
from penstock.kernels.subscriptions import mar, min2d
from penstock.kernels.subscriptions.codes import decode
from penstock.kernels.subscriptions.engine import EXTREMES, Aggregate, Engine
from penstock.kernels.subscriptions.engine2d import Engine2D
from penstock.kernels.subscriptions.groups import Groups
from penstock.kernels.subscriptions.intake import Columns, Reasons, aside, encode_updates, in_order, verdict_text
from penstock.kernels.subscriptions.log import RowLog
from penstock.kernels.subscriptions.rows import ROW_WIDTH, TAKEN, Rows, Y

I64 = npt.NDArray[np.int64]
__all__ = [
    "BYTES_PER_ROW",
    "LEAST_MEMORY",
    "RECTANGLE",
    "SEQ",
    "SIDES",
    "SLOT",
    "TABLE_PART",
    "Columns",
    "RangeSubscriptions",
    "message_schema",
    "most_rows",
]

#: Bytes that a row of the table may take: its record while the array grows, hash table, tree, log
#: entries, and its message where one event exposes all rows.
BYTES_PER_ROW = 640
#: The same with ranges of two dimensions: a wider record and tree, contour and hull, and its message in one step of a
#: contour that all rows are on.
BYTES_PER_ROW_2D = 2_048
#: Bytes that are there before any row is, and a slice of messages.
LEAST_MEMORY = 4 << 20
#: Of the memory, this part is for the table and the rest for the micro-batch under way.
TABLE_PART = 0.75
RECTANGLE = ("inner_left", "inner_right", "outer_left", "outer_right")
#: The sides of a box of two-dimensional ranges, in the order of a message's columns.
SIDES = ("left", "right", "bottom", "top")
#: The slot and the number of a message in it; together they name it for ever.
SLOT, SEQ = "slot", "seq"
_UNIT = pa.int8()


def message_schema(stream: pa.Schema, columns: Columns, agg: Aggregate) -> pa.Schema:
    """What a message has: whose it is, its name, the news, and the rectangle of those whom it concerns."""
    y = stream.field(columns.y).type if columns.y else _UNIT
    news = ["value"] if agg in EXTREMES else ["added", "removed"]
    if columns.x2 is None:
        bounds = [(name, stream.field(columns.x).type) for name in RECTANGLE]
    else:
        types = [stream.field(name).type for name in (columns.x, columns.x, columns.x2, columns.x2)]
        bounds = [(f"{which}_{side}", t) for which in ("inner", "outer") for side, t in zip(SIDES, types, strict=True)]
    return pa.schema(
        [
            *(stream.field(name).with_nullable(True).remove_metadata() for name in columns.partition_by),
            (columns.order, stream.field(columns.order).type),
            (SLOT, pa.int32()),
            (SEQ, pa.int64()),
            *((name, y) for name in news),
            *bounds,
        ]
    )


def most_rows(memory: int, columns: Columns) -> int:
    """How many rows a kernel has room for."""
    return int((memory - LEAST_MEMORY / 2) * TABLE_PART) // (BYTES_PER_ROW if columns.x2 is None else BYTES_PER_ROW_2D)


class RangeSubscriptions(Kernel):
    """Say of every update of a table which range subscriptions it concerns, and what their answer is now.

    The table is what the updates so far left: the newest row of each key. An update that moves a row is one event.

    Guarantees
        After every update, each subscription whose answer changed lies in the rectangle of exactly one of its messages,
        and no other subscription does: `test_subscribers_always_know_the_answer`. (For COUNT, SUM and AVG: those in
        whose range something happened.)
        Updates of a micro-batch are taken in the order of column `order`. One that is not newer than what is known of
        its key, a deletion of an unknown key, NULL or NaN where a value must be, and a row that the memory has no room
        for are set aside with the reason, and change nothing: `test_bad_updates_are_set_aside_and_change_nothing`.
        Messages are numbered from 0, without gaps, the same after any restart: `test_messages_are_numbered_for_ever`.
    State and cost
        The whole table: at most `memory` bytes hold it and the micro-batch under way. O(k log N) an update with k
        messages. A step writes the rows it touched; the log of them is merged now and then (see `RowLog`).

    Xie, chapter 5.

    >>> from penstock.testing import Host
    >>> stocks = pa.table({"id": ["a", "b"], "risk": [30, 70], "per": [8, 6], "at": [1, 2]})
    >>> columns = Columns(x="risk", y="per", key=("id",), order="at")
    >>> host = Host(lambda: RangeSubscriptions(stocks.schema, columns, "min", memory=8 << 20))
    >>> for message in host.run([stocks])["results"].select(["value", "outer_left", "outer_right"]).to_pylist():
    ...     print(message)
    {'value': 8, 'outer_left': None, 'outer_right': None}
    {'value': 6, 'outer_left': None, 'outer_right': None}
    """

    reports = (
        Metric("rows_in", help="updates taken in by the last step"),
        Metric("rows_out", help="messages emitted by the last step"),
        Metric("rows_set_aside", help="updates that could not be used"),
        Metric("ignorable", help="updates that concern no subscription there could be"),
        Metric("easy", help="updates whose new value is the answer of all whom they concern"),
        Metric("difficult", help="updates that exposed other rows"),
        Metric("table_rows", help="rows of the table"),
    )

    def __init__(self, stream: pa.Schema, columns: Columns, agg: Aggregate, *, memory: int, slot: int = 0) -> None:
        if memory < LEAST_MEMORY:
            raise MemoryTooSmall(
                f"{memory:,} bytes are too few for a table of subscriptions.", do=f"Give at least {LEAST_MEMORY:,}."
            )
        self.channels: Mapping[str, pa.Schema] = {
            RESULTS: message_schema(stream, columns, agg),
            SET_ASIDE: SET_ASIDE_SCHEMA,
        }
        self._stream, self._columns, self._agg, self._slot = stream, columns, agg, slot
        self._memory = memory
        self._most = most_rows(memory, columns)
        self._x_type = stream.field(columns.x).type
        self._y_type = stream.field(columns.y).type if columns.y else _UNIT
        self._rows = Rows(ROW_WIDTH + (columns.x2 is not None))
        self._engine: Engine | Engine2D = Engine(agg) if columns.x2 is None else Engine2D()
        self._groups = Groups(pa.schema([stream.field(name).remove_metadata() for name in columns.partition_by]))
        self._log, self._chunks = RowLog(), ChunkLog()
        self._seq = 0
        self._peak = 0
        self._numbers = {metric.name: 0.0 for metric in self.reports}

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in one micro-batch of updates."""
        self._numbers = {metric.name: 0.0 for metric in self.reports}
        held: list[pa.RecordBatch] = []
        updates: list[I64] = []
        for _, rows in batch:
            self._numbers["rows_in"] += rows.num_rows
            rows = rows.select(self._columns.all)
            good, reasons = encode_updates(rows, self._columns, self._rows.width, self._groups)
            if self._agg == "max":
                good[:, Y] = ~good[:, Y]
            if reasons is not None:
                yield self._aside(rows, reasons)
                rows = rows.filter(pa.array([reason is None for reason in reasons]))
            held.append(rows)
            updates.append(good)
            self._check_batch(held, updates)
        if updates:
            yield from self._take(pa.Table.from_batches(held), np.concatenate(updates))
        self._numbers["table_rows"] = self._rows.live

    def _check_batch(self, held: list[pa.RecordBatch], updates: list[I64]) -> None:
        # Sorting needs a copy, verdicts and events another.
        under_way = sum(rows.get_total_buffer_size() for rows in held) + 4 * sum(part.nbytes for part in updates)
        self._note(under_way)
        if under_way > self._memory * (1 - TABLE_PART):
            raise MemoryTooSmall(
                f"A micro-batch of {sum(map(len, updates)):,} updates needs {under_way:,} bytes and more.",
                why="Updates are sorted by their order column, so a micro-batch is held as a whole; a quarter of the "
                f"memory, {self._memory:,} bytes, is for it.",
                do="Let fewer rows into a micro-batch (maxFilesPerTrigger, maxOffsetsPerTrigger), or give more memory.",
            )

    def _take(self, rows: pa.Table, updates: I64) -> Iterator[Emission]:
        order = in_order(updates)
        updates = updates[order]
        self._note(self._rows.reserve(len(updates)) - self._rows.nbytes)
        verdicts, touched, events = self._rows.resolve(updates, self._most)
        if not (verdicts == TAKEN).all():
            yield from self._refuse(rows, order, verdicts)
        times = updates[verdicts == TAKEN, 5]
        for messages in self._engine.apply(events):
            self._note(self._engine.take_peak() - self._engine.nbytes + 3 * messages.nbytes)
            told = messages[:, mar.EVENT]
            yield self._emit(messages, events[told, mar.GROUP], times[told])
        for name, count in zip(("ignorable", "easy", "difficult"), self._engine.kinds, strict=True):
            self._numbers[name] = float(count)
        self._engine.kinds[:] = 0
        self._note(2 * self._log.write(touched, self._rows, self._chunks))
        self._groups.write(self._chunks)

    def _refuse(self, rows: pa.Table, order: I64, verdicts: npt.NDArray[np.uint8]) -> Iterator[Emission]:
        places = np.flatnonzero(verdicts != TAKEN)
        chosen = rows.take(pa.array(order[places])).combine_chunks()
        for part in chosen.to_batches():
            yield self._aside(part, [verdict_text(int(verdict), self._most) for verdict in verdicts[places]])

    def _aside(self, rows: pa.RecordBatch, reasons: Reasons) -> Emission:
        emission = aside(rows, reasons)
        self._numbers["rows_set_aside"] += emission.rows.num_rows
        return emission

    def _emit(self, messages: I64, groups: I64, times: I64) -> Emission:
        schema, count = self.channels[RESULTS], len(messages)
        y = messages[:, mar.VALUE]
        news = [decode(~y if self._agg == "max" else y, self._y_type, messages[:, mar.HAS_VALUE] != 0)]
        if self._agg not in EXTREMES:
            news.append(decode(messages[:, mar.OTHER], self._y_type, messages[:, mar.HAS_OTHER] != 0))
        columns = [
            *self._groups.values(groups),
            decode(times, schema.field(self._columns.order).type),
            pa.array(np.full(count, self._slot, np.int32)),
            pa.array(np.arange(self._seq, self._seq + count)),
            *news,
            *self._bounds(messages),
        ]
        self._seq += count
        self._numbers["rows_out"] += count
        return Emission(RESULTS, pa.RecordBatch.from_arrays(columns, schema=schema))

    def _bounds(self, messages: I64) -> list[pa.Array]:
        """The rectangle, or the box."""
        if self._columns.x2 is None:
            return [
                decode(messages[:, mar.INNER_LEFT], self._x_type),
                decode(messages[:, mar.INNER_RIGHT], self._x_type),
                decode(messages[:, mar.LEFT], self._x_type, messages[:, mar.HAS_LEFT] != 0),
                decode(messages[:, mar.RIGHT], self._x_type, messages[:, mar.HAS_RIGHT] != 0),
            ]
        types = [self.channels[RESULTS].field(f"inner_{side}").type for side in SIDES]
        inner = [decode(messages[:, min2d.INNER + n], kind) for n, kind in enumerate(types)]
        there = messages[:, min2d.HAS_OUTER :] != 0
        return inner + [decode(messages[:, min2d.OUTER + n], kind, there[:, n]) for n, kind in enumerate(types)]

    def _note(self, more: int = 0) -> None:
        held = self._rows.nbytes + self._engine.nbytes + self._groups.nbytes + self._log.nbytes
        self._peak = max(self._peak, held + more)

    def memory(self) -> int:
        """Bytes of the table, its indexes and the micro-batch, at their most since the last `changes()`."""
        self._note()
        return self._peak

    def changes(self) -> Changes:
        """The rows that the step touched, merged with older ones where that is due."""
        self._peak = 0
        self._note()
        return self._chunks.take()

    def head(self) -> bytes:
        """Numbers of the next message and chunk."""
        return json.dumps({"seq": self._seq, "next": self._log.next}).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Build the table and its indexes again."""
        try:
            said = json.loads(head)
            self._seq, self._log.next = int(said["seq"]), int(said["next"])
            self._groups.read(chunks)
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise StateDamaged(
                "The stored state of a table of subscriptions cannot be read.",
                why=str(error),
                do="Restore the checkpoint from a copy, or start with a new one.",
            ) from error
        self._log.read(chunks, self._rows)
        self._engine.load(self._rows.used)
        self._note()

    def metrics(self) -> Mapping[str, float]:
        """What the last step did."""
        return self._numbers
