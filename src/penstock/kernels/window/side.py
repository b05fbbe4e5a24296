"""The rows of one side that wait: Arrow pieces for what they say, flat arrays for what they are found by.

An *entry* is a waiting row; entries are numbered in order of arrival, and the rows of a piece are consecutive entries.
What leaves the window goes from the front, a piece at a time and without looking at its rows; what is evicted from the
middle is squeezed out. Windows of other joins can use it as it is: it knows nothing of policies or of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import StateDamaged
from penstock.kernels.contract import ChunkLog
from penstock.kernels.measure import fixed_width, measure, widths
from penstock.kernels.window.chains import END, Entries, buckets_for, link, move, shift, squeeze

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Bytes that an entry takes up beside its row, at the most: 29 in flat arrays with a sixteenth to spare and another not
#: yet freed, 4 in buckets, and a bit or two that say whether a stored row still waits.
ENTRY = 38
#: As many more where rows differ in size.
SIZED = 5
#: Small pieces are put together beyond this many.
_MOST_PIECES = 96
#: Arrays have room for this share more, and dropped entries are freed once they are this share of all.
_SPARE = 16
#: But for so many: more would count where a side is small.
_LEAST = 16
_COLUMNS: dict[str, Any] = {
    "hashes": np.uint64,
    "moments": np.int64,
    "numbers": np.int64,
    "met": np.uint8,
    "nexts": np.int32,
}
_SIZES = "sizes"
#: In a chunk: the number of its first row, where the others follow without a gap.
_FIRST = "first"
#: Describes rows: the hash of each one's key, and its moment.
Describe = Callable[[pa.RecordBatch], tuple[U64, I64]]


@dataclass
class Piece:
    """Rows that are stored as one chunk. `stored` is 0 until it is written; then `kept` marks those still waiting."""

    name: str
    rows: pa.RecordBatch
    size: float
    stored: int = 0
    kept: npt.NDArray[np.uint8] | None = None


class SideRows:
    """Rows of one side, found by key hash.

    Guarantees
        `nbytes` is at most `cost`, which depends on the rows alone: `test_a_side_costs_what_it_says`.
        Restored, it has the same entries in the same order: `test_a_side_comes_back_as_it_was`.
    State and cost
        The rows and `entry` bytes for each. One chunk for each piece, written once (twice, if most of its rows
        are evicted), and a bit for each row of a piece that has lost some. Admission and front drops cost the rows that
        come and go; squeezing costs all rows.
    """

    def __init__(self, tag: str, schema: pa.Schema) -> None:
        self._tag = tag
        self._schema = schema
        self.pieces: list[Piece] = []
        self.cost = 0.0
        self.first = 0
        self.end = 0
        self._serial = 0
        #: The size of every row in eighths of a byte, if they have one; else each has its own.
        self.width = _width(schema)
        self.entry = ENTRY if self.width is not None else ENTRY + SIZED
        columns = _COLUMNS if self.width is not None else _COLUMNS | {_SIZES: np.int32}
        self._arrays = {name: np.empty(_LEAST, dtype) for name, dtype in columns.items()}
        self._heads = np.full(buckets_for(0), END, np.int32)
        self._live: str | None = None
        self._met: str | None = None
        self._lost_rows = self._met_rows = False

    # -- what waits --------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def nbytes(self) -> float:
        """Bytes held, as they are laid out now."""
        flat = sum(array.nbytes for array in self._arrays.values()) + self._heads.nbytes
        return flat + sum(piece.size + (0 if piece.kept is None else piece.kept.nbytes) for piece in self.pieces)

    def column(self, name: str) -> npt.NDArray[Any]:
        """An array over all entries: hashes, moments, numbers, sizes (in eighths of a byte) or met."""
        if name == _SIZES and self.width is not None:
            return np.broadcast_to(np.int32(self.width), len(self))
        return self._arrays[name][self.first : self.end]

    def entries(self) -> Entries:
        """For probing; valid until rows come or go."""
        a = self._arrays
        return Entries(self._heads, a["nexts"], a["hashes"], a["moments"], a["numbers"], self.first)

    def take(self, entries: I64, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The rows of some entries, which ascend."""
        ends = np.cumsum([0, *(piece.rows.num_rows for piece in self.pieces)]) + self.first
        cuts = np.searchsorted(entries, ends)
        taken = []
        for number in np.flatnonzero(np.diff(cuts)):
            rows = self.pieces[number].rows
            rows = rows if columns is None else rows.select(list(columns))
            taken.append(rows.take(pa.array(entries[cuts[number] : cuts[number + 1]] - ends[number])))
        if not taken:
            schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        return taken[0] if len(taken) == 1 else pa.concat_batches(taken)

    def mark_met(self, entries: I64) -> None:
        """These entries have met a partner."""
        self._arrays["met"][entries] = 1
        self._met_rows = True

    # -- coming ------------------------------------------------------------------------------------------------

    def admit(self, rows: pa.RecordBatch, hashes: U64, moments: I64, numbers: I64) -> tuple[int, int]:
        """Take in rows as a piece; their entries, from the first up to the last."""
        if not rows.num_rows:
            return self.end, self.end
        name = f"{self._tag}{self._serial:09d}"
        self._serial += 1
        return self._append(Piece(name, rows, 0.0), hashes, moments, numbers)

    def _append(self, piece: Piece, hashes: U64, moments: I64, numbers: I64) -> tuple[int, int]:
        begin, end = self.end, self.end + piece.rows.num_rows
        self._make_room(end)
        for name, values in (("hashes", hashes), ("moments", moments), ("numbers", numbers), ("met", 0)):
            self._arrays[name][begin:end] = values
        if self.width is None:
            self._arrays[_SIZES][begin:end] = 8 * widths(piece.rows, np.arange(piece.rows.num_rows))
        piece.size = measure(piece.rows)
        self.pieces.append(piece)
        self.cost += piece.size + self.entry * piece.rows.num_rows
        self.end = end
        if buckets_for(end) > len(self._heads):
            self._relink()
        else:
            link(self._heads, self._arrays["nexts"], self._arrays["hashes"], begin, end)
        return begin, end

    def _make_room(self, end: int) -> None:
        if end <= len(self._arrays["nexts"]):
            return
        for name in self._arrays:
            self._resize(name, _roomy(end))

    def _resize(self, name: str, places: int) -> None:
        """In its place if that can be: a copy would for a moment be held beside the array."""
        try:
            self._arrays[name].resize(places)
        except ValueError:  # someone still looks at it
            old = self._arrays[name]
            self._arrays[name] = np.empty(places, old.dtype)
            self._arrays[name][: min(len(old), places)] = old[:places]

    def _relink(self) -> None:
        size = buckets_for(self.end)
        if size == len(self._heads):
            self._heads.fill(END)
        else:
            self._heads = np.full(size, END, np.int32)
        link(self._heads, self._arrays["nexts"], self._arrays["hashes"], self.first, self.end)

    # -- going -------------------------------------------------------------------------------------------------

    def drop_front(self, closed: Callable[[I64, I64], Mask], log: ChunkLog) -> int:
        """Let go of leading pieces all of whose rows are closed; say how many rows went."""
        gone, count = self.first, 0
        for piece in self.pieces:
            end = gone + piece.rows.num_rows
            if not closed(self._arrays["moments"][gone:end], self._arrays["numbers"][gone:end]).all():
                break
            gone, count = end, count + 1
        for piece in self.pieces[:count]:
            self._forget(piece, log)
        dropped = gone - self.first
        if count:
            self._met_rows = self._lost_rows = True
            del self.pieces[:count]
            self.first = gone
            if self.first * _SPARE >= self.end:
                self._free_front()
        return dropped

    def _forget(self, piece: Piece, log: ChunkLog) -> None:
        self.cost -= piece.size + self.entry * piece.rows.num_rows
        if piece.stored:
            log.drop(piece.name)

    def _free_front(self) -> None:
        by, left = self.first, len(self)
        for name in self._arrays:
            move(self._arrays[name], by, self.end)
        self._shrink(left)
        if buckets_for(left) < len(self._heads):
            self._relink()
        else:
            shift(self._heads, by)
            shift(self._arrays["nexts"][:left], by)

    def _shrink(self, left: int) -> None:
        """Only the first entries are left."""
        self.first, self.end = 0, left
        if len(self._arrays["nexts"]) > _roomy(_roomy(left)):
            for name in self._arrays:
                self._resize(name, _roomy(left))

    def keep(self, stay: Mask, log: ChunkLog) -> None:
        """Squeeze out the entries that do not stay."""
        begin, pieces = 0, []
        for piece in self.pieces:
            end = begin + piece.rows.num_rows
            here = stay[begin:end]
            begin = end
            if here.all():
                pieces.append(piece)
                continue
            self._forget_rows(piece, here)
            if not here.any():
                if piece.stored:
                    log.drop(piece.name)
                    self._lost_rows = True
                continue
            if piece.stored:
                piece.kept = _without(piece, here)
                self._lost_rows = True
            piece.rows = piece.rows.filter(pa.array(here))
            pieces.append(piece)
        self.pieces = pieces
        for name in self._arrays:
            squeeze(self._arrays[name], self.first, stay)
        self._shrink(int(stay.sum()))
        self._met_rows = True
        self._relink()

    def _forget_rows(self, piece: Piece, stay: Mask) -> None:
        gone = float(widths(piece.rows, np.flatnonzero(~stay)).sum())
        piece.size -= gone
        self.cost -= gone + self.entry * int((~stay).sum())

    def merge(self, most: float, log: ChunkLog) -> None:
        """Put neighbouring pieces together where there are many, up to `most` bytes each."""
        if len(self.pieces) <= _MOST_PIECES:
            return
        merged: list[list[Piece]] = [[self.pieces[0]]]
        for piece in self.pieces[1:]:
            if sum(one.size for one in merged[-1]) + piece.size <= most:
                merged[-1].append(piece)
            else:
                merged.append([piece])
        self.pieces = [self._together(run, log) if len(run) > 1 else run[0] for run in merged]

    def _together(self, run: list[Piece], log: ChunkLog) -> Piece:
        for piece in run:
            if piece.stored:
                log.drop(piece.name)
        name = f"{self._tag}{self._serial:09d}"
        self._serial += 1
        self._lost_rows = True
        return Piece(name, pa.concat_batches([piece.rows for piece in run]), sum(piece.size for piece in run))

    # -- state -------------------------------------------------------------------------------------------------

    def store(self, step: int, log: ChunkLog, *, flags: bool) -> None:
        """Write what is new since the last time; `flags` says whether it matters who has met a partner."""
        begin = self.first
        for piece in self.pieces:
            end = begin + piece.rows.num_rows
            if piece.stored and piece.rows.num_rows * 2 < piece.stored:
                log.drop(piece.name)
                piece.name, piece.stored, piece.kept = f"{self._tag}{self._serial:09d}", 0, None
                self._serial += 1
                self._lost_rows = True
            if not piece.stored:
                piece.stored = piece.rows.num_rows
                log.add(piece.name, _write(piece.rows, self._arrays["numbers"][begin:end]))
            begin = end
        if self._lost_rows:
            holes = [piece.kept for piece in self.pieces if piece.kept is not None]
            blob = pa.py_buffer(np.concatenate(holes).tobytes()) if holes else None
            self._live = self._replace(self._live, f"{self._tag}live{step}", blob, log)
        if flags and self._met_rows:
            blob = pa.py_buffer(np.packbits(self.column("met")).tobytes()) if len(self) else None
            self._met = self._replace(self._met, f"{self._tag}met{step}", blob, log)
        self._lost_rows = self._met_rows = False

    def _replace(self, old: str | None, name: str, blob: pa.Buffer | None, log: ChunkLog) -> str | None:
        if old is not None:
            log.drop(old)
        if blob is None:
            return None
        log.add(name, blob)
        return name

    def head(self) -> dict[str, Any]:
        """What the chunks do not say."""
        pieces = [[piece.name, piece.stored, int(piece.kept is not None)] for piece in self.pieces]
        return {"pieces": pieces, "serial": self._serial, "live": self._live, "met": self._met}

    def restore(self, said: dict[str, Any], chunks: Mapping[str, pa.Buffer], describe: Describe) -> None:
        """Have the rows again that `head` and the chunks speak of."""
        holes = np.frombuffer(chunks[said["live"]], np.uint8) if said["live"] else np.zeros(0, np.uint8)
        self._make_room(sum(stored for _, stored, holed in said["pieces"] if not holed))
        for name, stored, holed in said["pieces"]:
            rows, numbers = _read(chunks[name], self._schema)
            if rows.num_rows != stored:
                raise StateDamaged(
                    f"Chunk {name} has {rows.num_rows} rows where its head says {stored}.",
                    why="Going on would lose or repeat results.",
                    do="Restore the checkpoint from a copy, or start with a new one.",
                )
            piece = Piece(name, rows, 0.0, stored)
            if holed:
                piece.kept, holes = holes[: -(-stored // 8)].copy(), holes[-(-stored // 8) :]
                kept = _unpacked(piece.kept, stored)
                rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
            else:
                # A copy: the chunk has more in it than the rows.
                rows = rows.take(pa.array(np.arange(stored)))
            piece.rows = rows
            self._append(piece, *describe(rows), numbers)
        self._serial, self._live, self._met = said["serial"], said["live"], said["met"]
        if self._met is not None:
            self.column("met")[:] = _unpacked(np.frombuffer(chunks[self._met], np.uint8), len(self))


def _width(schema: pa.Schema) -> int | None:
    if not fixed_width(schema):
        return None
    row = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    return round(8 * measure(row))


def _roomy(entries: int) -> int:
    """Places in an array for so many entries."""
    return entries + max(entries // _SPARE, _LEAST)


def _unpacked(bits: npt.NDArray[np.uint8], count: int) -> Mask:
    return np.unpackbits(bits, count=count).view(np.bool_)


def _without(piece: Piece, stay: Mask) -> npt.NDArray[np.uint8]:
    if piece.kept is None:
        return np.packbits(stay)
    kept = _unpacked(piece.kept, piece.stored).copy()
    kept[np.flatnonzero(kept)[~stay]] = False
    return np.packbits(kept)


def _write(rows: pa.RecordBatch, numbers: I64) -> pa.Buffer:
    columns, notes = list(rows.columns), {_FIRST: str(numbers[0])}
    if not np.array_equal(numbers, np.arange(numbers[0], numbers[0] + len(numbers))):
        columns, notes = [*columns, pa.array(numbers)], {}
    batch = pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))], metadata=notes)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _read(blob: pa.Buffer, schema: pa.Schema) -> tuple[pa.RecordBatch, I64]:
    batch = pa.ipc.open_stream(blob).read_next_batch()
    first = (batch.schema.metadata or {}).get(_FIRST.encode())
    if first is not None:
        numbers = np.arange(int(first), int(first) + batch.num_rows)
    else:
        numbers = batch.columns[-1].to_numpy().copy()
    return pa.RecordBatch.from_arrays(batch.columns[: len(schema)], schema=schema), numbers
