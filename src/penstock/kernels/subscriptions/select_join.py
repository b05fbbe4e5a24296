"""Select-join subscriptions: every pair that a join gains or loses is a message, two selections are a question to it.

A subscription asks for σ(a in [a1, a2]) R ⋈ σ(c in [c1, c2]) S. Which pairs there are depends on the tables and on no
subscription; whether a pair concerns a subscription can be seen from its a and c alone. So the server says the pairs,
and the subscription is the stateless question whether (a, c) lies in its rectangle. Xie, §5.4.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.contract import RESULTS, Batch, Emission, Metric
from penstock.kernels.measure import measure
from penstock.kernels.subscriptions import pairs
from penstock.kernels.subscriptions.codes import decode
from penstock.kernels.subscriptions.groups import Groups
from penstock.kernels.subscriptions.intake import Columns, encode_updates, in_order, verdict_text
from penstock.kernels.subscriptions.keys import KeyValues
from penstock.kernels.subscriptions.log import RowLog
from penstock.kernels.subscriptions.mar import GROUP, HAS, HAS_OLD, NEW_X, OLD_X
from penstock.kernels.subscriptions.rows import F1, F2, NOTE, ORDER, TAKEN, Rows
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

#: Bytes that a row of either table may take beside its key: record, hash tables, links, log entries, and its pair where
#: one event changes all of them.
BYTES_PER_ROW = 1_024
#: How often the bytes of keys may be held: in the table, while parts are put together, and as a chunk.
KEY_COPIES = 4
#: The two tables, as messages name them.
LEFT_RIGHT = ("left", "right")
#: Pairs that are handed out at once, unless a single event has more; and messages in an emission.
_PIECE, _SLICE = 16_384, 2_048

Schemas = tuple[pa.Schema, pa.Schema]
Both = tuple[Columns, Columns]
#: Events, the numbers of the rows they are of, and their orders.
Events = tuple[I64, I64, I64]


def pair_schema(streams: Schemas, columns: Both) -> pa.Schema:
    """What a message has: whose it is, its name, the keys of both rows, and the x of both before and after."""
    (left, right), (first, second) = streams, columns
    keys = [
        (f"{side}_{name}", stream.field(name).type)
        for side, stream, names in ((LEFT_RIGHT[0], left, first), (LEFT_RIGHT[1], right, second))
        for name in names.key
    ]
    xs = [
        (f"{side}_{when}", stream.field(names.x).type)
        for when in ("before", "after")
        for side, stream, names in ((LEFT_RIGHT[0], left, first), (LEFT_RIGHT[1], right, second))
    ]
    return pa.schema(
        [
            *(left.field(name).with_nullable(True).remove_metadata() for name in first.partition_by),
            (first.order, left.field(first.order).type),
            (SLOT, pa.int32()),
            (SEQ, pa.int64()),
            *keys,
            *xs,
        ]
    )


class SelectJoinSubscriptions(TableKernel):
    """Say of every update of two tables which pairs of their join it makes, breaks or moves.

    A subscription over [a1, a2] and [c1, c2] gains a pair that is inside after and was not before, loses one that was
    and is not, and sees one changed that was and is.

    Guarantees
        Every pair that a subscription gained, lost or saw changed by an update is in exactly one of its messages, as
        exactly that: `test_kernel_is` (select-join subscriptions).
        Updates of both tables are taken in the order of their columns `order`, the left one first of equals. What
        cannot be used is set aside with the reason, as by `RangeSubscriptions`.
        Messages are numbered from 0, without gaps, the same after any restart: pairs of one update go by the
        fingerprints of their partners' keys.
    State and cost
        Both tables (places, join values, keys; no other column): at most `memory` bytes hold them and the micro-batch
        under way. An update costs its partners, compiled.

    Xie, §5.4.

    >>> from penstock.testing import Host
    >>> from penstock.kernels.contract import Portion
    >>> orders = pa.table({"id": [1], "who": ["ann"], "amount": [10], "at": [1]})
    >>> people = pa.table({"name": ["ann"], "age": [40], "at": [2]})
    >>> columns = (Columns("amount", ("id",), "at", on=("who",)), Columns("age", ("name",), "at", on=("name",)))
    >>> host = Host(lambda: SelectJoinSubscriptions((orders.schema, people.schema), columns, memory=8 << 20))
    >>> for update in (Portion(0, orders.to_batches()[0]), Portion(1, people.to_batches()[0])):
    ...     emitted = host.step(update)
    >>> host.results()["results"].select(["left_id", "right_name", "left_after", "right_after"]).to_pylist()
    [{'left_id': 1, 'right_name': 'ann', 'left_after': 10, 'right_after': 40}]
    """

    reports = (*TAKEN_IN, Metric("table_rows", help="rows of both tables"))

    def __init__(self, streams: Schemas, columns: Both, *, memory: int, slot: int = 0) -> None:
        super().__init__(pair_schema(streams, columns), memory=memory, slot=slot)
        self._streams, self._columns = streams, columns
        self._tables = (Rows(NOTE + 1), Rows(NOTE + 1))
        self._links = [pairs.new_links(table.used, 16) for table in self._tables]
        parts = [streams[0].field(name).remove_metadata() for name in columns[0].partition_by]
        self._groups = Groups(pa.schema(parts))
        self._logs = (RowLog(prefix="left-rows-"), RowLog(prefix="right-rows-"))
        self._keys = (self._key_values(0), self._key_values(1))
        self._out = np.zeros((256, 4), np.int64)

    def _key_values(self, side: int) -> KeyValues:
        fields = [
            self._streams[side].field(name).with_nullable(True).remove_metadata() for name in self._columns[side].key
        ]
        return KeyValues(pa.schema(fields), f"{LEFT_RIGHT[side]}-keys-")

    def step(self, batch: Batch, now: int) -> Iterator[Emission]:
        """Take in one micro-batch of updates of both tables."""
        self._begin()
        held: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
        updates: tuple[list[I64], list[I64]] = ([], [])
        for side, rows in batch:
            self._numbers["rows_in"] += rows.num_rows
            rows = rows.select(self._columns[side].all)
            good, reasons = encode_updates(rows, self._columns[side], NOTE + 1, self._groups)
            if reasons is not None:
                yield self._aside(rows, reasons)
                rows = rows.filter(pa.array([reason is None for reason in reasons]))
            held[side].append(rows)
            updates[side].append(good)
            self._check_batch([*held[0], *held[1]], [*updates[0], *updates[1]])
        events: list[Events] = []
        for side in (0, 1):
            if updates[side]:
                events.append((yield from self._take(side, held[side], np.concatenate(updates[side]))))
            else:
                events.append((np.zeros((0, 8), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)))
        if updates[0] or updates[1]:
            yield from self._pair(events)
            for side in (0, 1):
                self._store(side, events[side][1])
            self._groups.write(self._chunks)
        self._numbers["table_rows"] = self._live

    @property
    def _live(self) -> int:
        return self._tables[0].live + self._tables[1].live

    def _most(self, side: int, new_keys: float) -> int:
        """How many rows a table may have when keys of so many bytes may come to it."""
        keys = self._keys[0].nbytes + self._keys[1].nbytes + new_keys
        room = (self._memory - LEAST_MEMORY / 2) * TABLE_PART - KEY_COPIES * keys
        return max(0, int(room) // BYTES_PER_ROW - self._tables[1 - side].live)

    def _take(self, side: int, held: list[pa.RecordBatch], updates: I64) -> Generator[Emission, None, Events]:
        """Take updates of one table in: the events, the rows they are of, and their orders."""
        table = self._tables[side]
        rows = pa.Table.from_batches(held)
        order = in_order(updates)
        updates = updates[order]
        self._note(table.reserve(len(updates)) - table.nbytes)
        most = self._most(side, sum(measure(part.select(self._columns[side].key)) for part in held))
        verdicts, touched, events = table.resolve(updates, most)
        refused = np.flatnonzero(verdicts != TAKEN)
        if len(refused):
            for part in rows.take(pa.array(order[refused])).combine_chunks().to_batches():
                yield self._aside(part, [verdict_text(int(verdict), most) for verdict in verdicts[refused]])
        taken = verdicts == TAKEN
        fresh = events[:, HAS] & HAS_OLD == 0
        values = rows.select(self._columns[side].key).take(pa.array(order[taken][fresh])).combine_chunks()
        table.rows[touched[fresh], NOTE] = self._keys[side].next + np.arange(int(fresh.sum()))
        for part in values.to_batches():
            keys = pa.RecordBatch.from_arrays(part.columns, schema=self._keys[side].schema)
            self._keys[side].add(keys, self._chunks)
        before = pairs.size_of(self._links[side])
        self._links[side] = pairs.with_room(self._links[side], int(table.counts[0]), len(updates))
        self._note(before)
        return events, touched.astype(np.int64), updates[taken, ORDER]

    def _pair(self, events: list[Events]) -> Iterator[Emission]:
        """The messages of events of both tables, in their order."""
        sides = np.repeat(np.array([0, 1]), [len(part) for part, _, _ in events])
        every, numbers, times = (np.concatenate([one[n] for one in events]) for n in range(3))
        order = np.lexsort((np.arange(len(times)), sides, times))
        every, sides, numbers, times = every[order], sides[order], numbers[order], times[order]
        state = np.zeros(2, np.int64)
        done = False
        while not done:
            done = bool(pairs.pair_up((self._links[0], self._links[1]), every, sides, numbers, self._out, state))
            count = int(state[1])
            if count and (done or len(self._out) >= _PIECE):
                yield from self._emit(self._out[:count], every, sides, numbers, times)
                state[1] = 0
            elif not done:
                self._note(self._out.nbytes * 2)
                self._out = np.concatenate([self._out, np.zeros_like(self._out)])

    def _emit(self, found: I64, events: I64, sides: I64, numbers: I64, times: I64) -> Iterator[Emission]:
        """Pairs as messages, those of one event by their partners' fingerprints."""
        side = sides[found[:, pairs.EVENT]]
        prints = np.empty((len(found), 2), np.int64)
        for one, other in ((0, 1), (1, 0)):
            prints[side == one] = self._tables[other].rows[found[side == one, pairs.PARTNER]][:, [F1, F2]]
        order = np.lexsort((prints[:, 1], prints[:, 0], found[:, pairs.EVENT]))
        self._note(found.nbytes + 2 * prints.nbytes + order.nbytes)
        for start in range(0, len(order), _SLICE):
            part = found[order[start : start + _SLICE]]
            number = part[:, pairs.EVENT]
            rows = self._messages(part, events[number], sides[number], numbers[number], times[number])
            self._note(found.nbytes + 2 * prints.nbytes + order.nbytes + 3 * rows.get_total_buffer_size())
            yield Emission(RESULTS, rows)

    def _messages(self, found: I64, event: I64, side: I64, number: I64, time: I64) -> pa.RecordBatch:
        schema = self.channels[RESULTS]
        mine = side == 0
        was, now = found[:, pairs.WHEN] & pairs.BEFORE != 0, found[:, pairs.WHEN] & pairs.NOW != 0
        keys: list[pa.Array] = []
        for which, ours in ((0, mine), (1, ~mine)):
            row = np.where(ours, number, found[:, pairs.PARTNER])
            keys += self._keys[which].values(self._tables[which].rows[row, NOTE])
        xs = []
        for there, column in ((was, OLD_X), (now, NEW_X)):
            for name, ours in zip(LEFT_RIGHT, (mine, ~mine), strict=True):
                codes = np.where(ours, event[:, column], found[:, pairs.PARTNER_X])
                xs.append(decode(codes, schema.field(f"{name}_before").type, there))
        columns = [
            *self._groups.values(event[:, GROUP]),
            decode(time, schema.field(self._columns[0].order).type),
            *self._names(len(found)),
            *keys,
            *xs,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _store(self, side: int, touched: I64) -> None:
        """Write what the step touched; let go of keys that nobody has, and of join values that no row has."""
        table, keys, used = self._tables[side], self._keys[side], int(self._tables[side].counts[0])
        if keys.rows > 2 * table.live + 64:
            table.forget_dead()
            keys.keep(table.used[:, NOTE], self._chunks)
            table.used[:, NOTE] = keys.next - table.live + np.arange(table.live)
            written = self._logs[side].rewrite(table, self._chunks)
        else:
            written = self._logs[side].write(touched.astype(np.int32), table, self._chunks)
        self._note(2 * written + KEY_COPIES * int(keys.nbytes))
        if int(table.counts[0]) != used or int(self._links[side].counts[0]) > 2 * table.live + 64:
            self._links[side] = pairs.new_links(table.used, 16)

    def _holds(self) -> int:
        tables = sum(table.nbytes for table in self._tables) + sum(log.nbytes for log in self._logs)
        links = sum(pairs.size_of(links) for links in self._links) + self._out.nbytes
        keys = int(2 * sum(keys.nbytes for keys in self._keys))
        return tables + links + keys + self._groups.nbytes

    def head(self) -> bytes:
        """Numbers of the next message, chunks and keys."""
        said = {
            "seq": self._seq,
            "next": [log.next for log in self._logs],
            "keys": [keys.next for keys in self._keys],
        }
        return json.dumps(said).encode()

    def restore(self, head: bytes, chunks: Mapping[str, pa.Buffer]) -> None:
        """Build the tables and their links again."""
        try:
            said = json.loads(head)
            self._seq = int(said["seq"])
            self._groups.read(chunks)
            for side in (0, 1):
                self._logs[side].next = int(said["next"][side])
                self._keys[side].read(chunks, int(said["keys"][side]))
        except (ValueError, KeyError, TypeError, IndexError, pa.ArrowException) as error:
            raise damaged(error) from error
        for side, table in enumerate(self._tables):
            self._logs[side].read(chunks, table)
            self._links[side] = pairs.new_links(table.used, 16)
        self._note()
