"""The kernel of range subscriptions: updates of a table in, rectangles of subscriptions with their news out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import RESULTS, Batch, Emission, Metric
from penstock.kernels.subscriptions import mar, min2d
from penstock.kernels.subscriptions.codes import decode
from penstock.kernels.subscriptions.engine import EXTREMES, Aggregate, Engine
from penstock.kernels.subscriptions.engine2d import Engine2D
from penstock.kernels.subscriptions.groups import Groups
from penstock.kernels.subscriptions.intake import Columns, encode_updates, in_order, verdict_text
from penstock.kernels.subscriptions.log import RowLog
from penstock.kernels.subscriptions.rows import ROW_WIDTH, TAKEN, Rows, Y
from penstock.kernels.subscriptions.table_kernel import (
    LEAST_MEMORY,
    SEQ,
    SLOT,
    TABLE_PART,
    TAKEN_IN,
    TableKernel,
    damaged,
)

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
RECTANGLE = ("inner_left", "inner_right", "outer_left", "outer_right")
#: The sides of a box of two-dimensional ranges, in the order of a message's columns.
SIDES = ("left", "right", "bottom", "top")
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


class RangeSubscriptions(TableKernel):
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
        *TAKEN_IN,
        Metric("ignorable", help="updates that concern no subscription there could be"),
        Metric("easy", help="updates whose new value is the answer of all whom they concern"),
        Metric("difficult", help="updates that exposed other rows"),
        Metric("table_rows", help="rows of the table"),
    )

    def __init__(self, stream: pa.Schema, columns: Columns, agg: Aggregate, *, memory: int, slot: int = 0) -> None:
        super().__init__(message_schema(stream, columns, agg), memory=memory, slot=slot)
        self._columns, self._agg = columns, agg
        self._most = most_rows(memory, columns)
        self._x_type = stream.field(columns.x).type
        self._y_type = stream.field(columns.y).type if columns.y else _UNIT
        self._rows = Rows(ROW_WIDTH + (columns.x2 is not None))
        self._engine: Engine | Engine2D = Engine(agg) if columns.x2 is None else Engine2D()
        self._groups = Groups(pa.schema([stream.field(name).remove_metadata() for name in columns.partition_by]))
        self._log = RowLog()

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in one micro-batch of updates."""
        self._begin()
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

    def _emit(self, messages: I64, groups: I64, times: I64) -> Emission:
        schema = self.channels[RESULTS]
        y = messages[:, mar.VALUE]
        news = [decode(~y if self._agg == "max" else y, self._y_type, messages[:, mar.HAS_VALUE] != 0)]
        if self._agg not in EXTREMES:
            news.append(decode(messages[:, mar.OTHER], self._y_type, messages[:, mar.HAS_OTHER] != 0))
        columns = [
            *self._groups.values(groups),
            decode(times, schema.field(self._columns.order).type),
            *self._names(len(messages)),
            *news,
            *self._bounds(messages),
        ]
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

    def _holds(self) -> int:
        return self._rows.nbytes + self._engine.nbytes + self._groups.nbytes + self._log.nbytes

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
            raise damaged(error) from error
        self._log.read(chunks, self._rows)
        self._engine.load(self._rows.used)
        self._note()
