"""The stream's side of a mesh join: packets in order of arrival, each holding its rows until it has met every page."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.kernels.measure import Sizes, measure, widths
from penstock.kernels.mesh.condition import Condition, Organised, Waiting
from penstock.kernels.mesh.index import I64, U8

#: Rows that arrived in small pieces are put together up to this many, so that a gather visits few pieces.
PIECE_ROWS = 65_536


@dataclass
class Packet:
    """Rows admitted together. They leave together when the scan's clock reaches `until`.

    `flags` has a byte for each row where a join must know which rows have met a partner; otherwise it is empty.
    """

    name: str
    first: int
    pieces: tuple[pa.RecordBatch, ...]
    until: int
    flags: U8 = field(default_factory=lambda: np.zeros(0, np.uint8))

    @property
    def rows(self) -> int:
        """How many rows."""
        return sum(piece.num_rows for piece in self.pieces)


def gather_pieces(portions: list[pa.RecordBatch], at_most: int, nbytes: float) -> tuple[pa.RecordBatch, ...]:
    """The same rows in the same order in few pieces: runs of portions put together, each of `at_most` rows or alone.

    Portions are let go as they are put together, so that no more than `nbytes` bytes, or one run, are there twice.
    """
    pieces: list[pa.RecordBatch] = []
    while portions:
        rows, size, count = 0, 0.0, 0
        for portion in portions:
            rows, size = rows + portion.num_rows, size + measure(portion)
            if count and (rows > at_most or size > nbytes):
                break
            count += 1
        pieces.append(portions[0] if count == 1 else pa.concat_batches(portions[:count]))
        del portions[:count]
    return tuple(pieces)


class Window:
    """Packets that have not yet met every page, organised for a join condition.

    State and cost
        Every row once, `row_bytes` of organisation and flags beside it. The organisation is built when it is first
        needed after an admission; expiry leaves it as it is and raises `first_live` instead, because packets leave in
        the order they came.
    """

    def __init__(self, condition: Condition, flags: bool) -> None:
        self._condition = condition
        self._flagged = flags
        #: Bytes for each waiting row beside the row itself.
        self.row_bytes = condition.row_bytes + flags
        self.packets: deque[Packet] = deque()
        self._organised: Organised | None = None
        self._pieces: list[pa.RecordBatch] = []
        self._starts: I64 = np.zeros(0, np.int64)
        self._flags: U8 = np.zeros(0, np.uint8)
        self._first = 0
        self.nbytes = 0.0

    def __bool__(self) -> bool:
        return bool(self.packets)

    @property
    def rows(self) -> int:
        """Rows that still wait for pages."""
        return sum(packet.rows for packet in self.packets)

    def cost(self, rows: pa.RecordBatch) -> float:
        """Bytes that rows take up here, however they were cut."""
        return measure(rows) + rows.num_rows * self.row_bytes

    def split(self, rows: pa.RecordBatch, room: float) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """The first rows, as many as `room` bytes hold, and the rest."""
        count = rows.num_rows
        while count and self.cost(rows.slice(0, count)) > room:
            count //= 2
        fitting, rest = rows.slice(0, count), rows.slice(count)
        if rest.num_rows or any(column.offset for column in rows.columns):
            # A copy: a slice would keep all of what it was cut from.
            fitting = fitting.take(pa.array(np.arange(count)))
        return fitting, rest

    def admit(self, packet: Packet) -> None:
        """Take in a packet."""
        if self._flagged and not len(packet.flags):
            packet.flags = np.zeros(packet.rows, np.uint8)
        self.packets.append(packet)
        self.nbytes += self._weight(packet)
        self._organised = None

    def due(self, clock: int) -> list[Packet]:
        """The packets whose time has come."""
        return [packet for packet in self.packets if packet.until <= clock]

    def expire(self, clock: int) -> None:
        """Let go of the packets whose time has come."""
        while self.packets and self.packets[0].until <= clock:
            self.nbytes -= self._weight(self.packets.popleft())
        if not self.packets:
            self._organised, self._pieces, self.nbytes = None, [], 0.0
            self._flags = np.zeros(0, np.uint8)

    def let_go(self) -> None:
        """Hold no rows any more that have expired, for which the organisation may still have a place."""
        if self.packets and self.packets[0].first > self._first:
            self._organised, self._pieces = None, []

    def _weight(self, packet: Packet) -> float:
        return sum(self.cost(piece) for piece in packet.pieces)

    @property
    def first_live(self) -> int:
        """The number of the first row that has not expired."""
        return self.packets[0].first - self._first

    @property
    def organised(self) -> Organised:
        """All rows, organised anew if an admission made it stale."""
        if self._organised is None:
            self._organised = self._build()
        return self._organised

    def _build(self) -> Organised:
        self._first = self.packets[0].first
        self._pieces = [piece for packet in self.packets for piece in packet.pieces]
        ends = np.cumsum([piece.num_rows for piece in self._pieces], dtype=np.int64)
        self._starts = np.concatenate([np.zeros(1, np.int64), ends])
        if self._flagged:
            # One array over all rows, of which each packet has its part.
            self._flags = np.concatenate([packet.flags for packet in self.packets])
            for packet in self.packets:
                begin = packet.first - self._first
                packet.flags = self._flags[begin : begin + packet.rows]
        return self._condition.organise(Waiting(int(ends[-1]), self._parts, self.take, self._flags))

    def _parts(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        yield from ((int(start), piece) for start, piece in zip(self._starts, self._pieces, strict=False))

    def flag(self, rows: I64, flag: int) -> I64:
        """Set a flag of some rows; those that did not have it before, each once."""
        fresh = np.unique(rows)
        fresh = fresh[self._flags[fresh] & flag == 0]
        self._flags[fresh] |= flag
        return fresh

    def take(self, rows: I64, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The given rows by number, in the given order; all columns or some."""
        pieces = self._pieces if columns is None else [piece.select(list(columns)) for piece in self._pieces]
        if len(pieces) == 1:
            return pieces[0].take(pa.array(rows))
        piece = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(piece, kind="stable")
        ordered, ends = rows[order], np.cumsum(np.bincount(piece, minlength=len(pieces)))
        taken, begin = [], 0
        for number, end in enumerate(ends):
            if end > begin:
                taken.append(pieces[number].take(pa.array(ordered[begin:end] - self._starts[number])))
            begin = end
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(taken).take(pa.array(back))

    def widths(self, rows: I64) -> Sizes:
        """Bytes of each of the given rows."""
        piece = np.searchsorted(self._starts, rows, side="right") - 1
        found = np.empty(len(rows))
        for number in np.unique(piece):
            here = np.flatnonzero(piece == number)
            found[here] = widths(self._pieces[number], rows[here] - self._starts[number])
        return found

    # -- state -------------------------------------------------------------------------------------------------

    def chunks(self, clock: int) -> dict[str, Callable[[], pa.Buffer]]:
        """What is to be stored, by name: rows, which never change, and flags, which change with the clock alone."""
        rows = {packet.name: partial(pack_rows, packet.pieces) for packet in self.packets}
        flags = {_flags(packet.name, clock): partial(_packed, packet.flags) for packet in self.packets}
        return {**rows, **flags} if self._flagged else {**rows}

    def head(self) -> list[tuple[str, int, int]]:
        """Which packets wait, of how many rows, until when."""
        return [(packet.name, packet.rows, packet.until) for packet in self.packets]

    def restore(self, said: Iterable[tuple[str, int, int]], chunks: Mapping[str, pa.Buffer], clock: int) -> int:
        """Have the packets that were waiting; says how many rows they have."""
        self.packets.clear()
        self.expire(clock)
        count = 0
        for name, rows, until in said:
            packet = Packet(name, count, unpack_rows(chunks[name]), until)
            flags = chunks.get(_flags(name, clock))
            if flags is not None:
                packet.flags = np.frombuffer(flags, np.uint8).copy()
            if packet.rows != rows or len(packet.flags) not in (0, rows):
                raise StateDamaged(
                    f"Packet {name} has {packet.rows} rows where its head says {rows}.",
                    why="Going on would lose or repeat results.",
                    do="Restore the checkpoint from a copy, or start with a new one.",
                )
            self.admit(packet)
            count += rows
        return count


def _flags(packet: str, clock: int) -> str:
    return f"{packet}-{clock}"


def _packed(flags: U8) -> pa.Buffer:
    return pa.py_buffer(flags.tobytes())


def pack_rows(pieces: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Rows as a chunk."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pieces[0].schema) as writer:
        for piece in pieces:
            writer.write_batch(piece)
    return sink.getvalue()


def unpack_rows(blob: pa.Buffer) -> tuple[pa.RecordBatch, ...]:
    """The rows of a chunk."""
    return tuple(pa.ipc.open_stream(blob))
