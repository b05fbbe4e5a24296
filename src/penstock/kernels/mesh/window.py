"""The stream's side of a mesh join: packets in order of arrival, each holding its rows until it has met every page."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.kernels.measure import Sizes, measure, widths
from penstock.kernels.mesh.index import BYTES_PER_ROW, I64, U64, Index, build
from penstock.tables.keys import hash_keys

#: Rows that arrived in small pieces are put together up to this many, so that a gather visits few pieces.
PIECE_ROWS = 65_536


@dataclass(frozen=True)
class Packet:
    """Rows admitted together. They leave together when the scan's clock reaches `until`."""

    name: str
    first: int
    pieces: tuple[pa.RecordBatch, ...]
    until: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return sum(piece.num_rows for piece in self.pieces)

    @property
    def cost(self) -> float:
        """Bytes held for it."""
        return sum(cost(piece) for piece in self.pieces)


def cost(rows: pa.RecordBatch) -> float:
    """Bytes that rows take up in a window: themselves and their share of the index, however they were cut."""
    return measure(rows) + rows.num_rows * BYTES_PER_ROW


def gather_pieces(portions: Sequence[pa.RecordBatch], at_most: int = PIECE_ROWS) -> tuple[pa.RecordBatch, ...]:
    """The same rows in the same order in few pieces: runs of portions put together, each of `at_most` rows or alone."""
    pieces: list[pa.RecordBatch] = []
    run: list[pa.RecordBatch] = []
    for portion in (*portions, None):
        if run and (portion is None or sum(p.num_rows for p in run) + portion.num_rows > at_most):
            pieces.append(run[0] if len(run) == 1 else pa.concat_batches(run))
            run = []
        if portion is not None:
            run.append(portion)
    return tuple(pieces)


class Window:
    """Packets that have not yet met every page, and the index over their rows.

    State and cost
        Every row once, `BYTES_PER_ROW` of index beside it. The index is built when it is first needed after an
        admission; expiry leaves it as it is and raises `first_live` instead, because packets leave in the order they
        came.
    """

    def __init__(self, on: Sequence[str], lo: int, hi: int) -> None:
        self._on = list(on)
        self._lo, self._hi = lo, hi
        self.packets: deque[Packet] = deque()
        self._index: Index | None = None
        self._pieces: list[pa.RecordBatch] = []
        self._starts: I64 = np.zeros(0, np.int64)
        self._first = 0
        self.nbytes = 0.0

    def __bool__(self) -> bool:
        return bool(self.packets)

    @property
    def rows(self) -> int:
        """Rows that still wait for pages."""
        return sum(packet.rows for packet in self.packets)

    def admit(self, packet: Packet) -> None:
        """Take in a packet."""
        self.packets.append(packet)
        self.nbytes += packet.cost
        self._index = None

    def expire(self, clock: int) -> list[Packet]:
        """Let go of the packets whose time has come."""
        gone = []
        while self.packets and self.packets[0].until <= clock:
            packet = self.packets.popleft()
            gone.append(packet)
            self.nbytes -= packet.cost
        if not self.packets:
            self._index, self._pieces, self.nbytes = None, [], 0.0
        return gone

    @property
    def first_live(self) -> int:
        """The index's number of the first row that has not expired."""
        return self.packets[0].first - self._first

    @property
    def index(self) -> Index:
        """H over all rows, built if an admission made it stale."""
        if self._index is None:
            self._index = self._build()
        return self._index

    def _build(self) -> Index:
        self._first = self.packets[0].first
        self._pieces = [piece for packet in self.packets for piece in packet.pieces]
        ends = np.cumsum([piece.num_rows for piece in self._pieces], dtype=np.int64)
        self._starts = np.concatenate([np.zeros(1, np.int64), ends])
        return build(self._hashes(), self._hashes(), int(ends[-1]), self._lo, self._hi)

    def _hashes(self) -> Iterator[tuple[int, U64]]:
        for start, piece in zip(self._starts, self._pieces, strict=False):
            yield int(start), hash_keys([piece.column(name) for name in self._on])

    def take(self, rows: I64) -> pa.RecordBatch:
        """The given rows of the index, in the given order."""
        if len(self._pieces) == 1:
            return self._pieces[0].take(pa.array(rows))
        piece = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(piece, kind="stable")
        ordered, ends = rows[order], np.cumsum(np.bincount(piece, minlength=len(self._pieces)))
        taken, begin = [], 0
        for number, end in enumerate(ends):
            if end > begin:
                taken.append(self._pieces[number].take(pa.array(ordered[begin:end] - self._starts[number])))
            begin = end
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_batches(taken).take(pa.array(back))

    def widths(self, rows: I64) -> Sizes:
        """Bytes of each of the given rows of the index."""
        piece = np.searchsorted(self._starts, rows, side="right") - 1
        found = np.empty(len(rows))
        for number in np.unique(piece):
            here = np.flatnonzero(piece == number)
            found[here] = widths(self._pieces[number], rows[here] - self._starts[number])
        return found
