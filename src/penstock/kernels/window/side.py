"""The rows of one side that wait: Arrow blocks for what they say, flat arrays for what they are found by.

An *entry* is a waiting row; entries are numbered in order of arrival. A *piece* is consecutive entries that are stored
as one chunk, a *block* consecutive entries whose rows lie together in memory: that of one piece, or of several.
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
    """`count` rows that are stored as one chunk, and their bytes.

    `stored` is 0 until it is written, and then how many were; `kept` marks those still waiting.
    """

    name: str
    count: int
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
        self.blocks: list[pa.RecordBatch] = []
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
        begins = self.begins()
        cuts = np.searchsorted(entries, begins)
        taken = []
        for number in np.flatnonzero(np.diff(cuts)):
            rows = self.blocks[number]
            rows = rows if columns is None else rows.select(list(columns))
            taken.append(rows.take(pa.array(entries[cuts[number] : cuts[number + 1]] - begins[number])))
        if not taken:
            schema = self._schema if columns is None else pa.schema([self._schema.field(name) for name in columns])
            return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
        return taken[0] if len(taken) == 1 else pa.concat_batches(taken)

    def _rows(self, begin: int, end: int) -> pa.RecordBatch:
        """The rows of consecutive entries, without a copy if they are of one block."""
        begins = self.begins()
        parts = []
        for number in range(int(np.searchsorted(begins, begin, side="right")) - 1, len(self.blocks)):
            here = max(begin - int(begins[number]), 0)
            if begins[number] < end:
                parts.append(self.blocks[number].slice(here, end - int(begins[number]) - here))
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def begins(self) -> I64:
        """The first entry of each block, and one past the last."""
        return np.cumsum([self.first, *(block.num_rows for block in self.blocks)])

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
        return self._append(Piece(name, rows.num_rows, measure(rows)), rows, hashes, moments, numbers)

    def _append(self, piece: Piece, rows: pa.RecordBatch, hashes: U64, moments: I64, numbers: I64) -> tuple[int, int]:
        begin, end = self.end, self.end + piece.count
        self._make_room(end)
        for name, values in (("hashes", hashes), ("moments", moments), ("numbers", numbers), ("met", 0)):
            self._arrays[name][begin:end] = values
        if self.width is None:
            self._arrays[_SIZES][begin:end] = 8 * widths(rows, np.arange(piece.count))
        self.pieces.append(piece)
        self.blocks.append(rows)
        self.cost += piece.size + self.entry * piece.count
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
            end = gone + piece.count
            if not closed(self._arrays["moments"][gone:end], self._arrays["numbers"][gone:end]).all():
                break
            gone, count = end, count + 1
        for piece in self.pieces[:count]:
            self._forget(piece, log)
        dropped = gone - self.first
        if count:
            self._met_rows = self._lost_rows = True
            del self.pieces[:count]
            self._drop_rows(dropped)
            self.first = gone
            if self.first * _SPARE >= self.end:
                self._free_front()
        return dropped

    def _drop_rows(self, count: int) -> None:
        """The first rows go; what is left of a block is copied, for a slice would keep all of it."""
        blocks = 0
        while count and count >= self.blocks[blocks].num_rows:
            count -= self.blocks[blocks].num_rows
            blocks += 1
        del self.blocks[:blocks]
        if count:
            self.blocks[0] = self.blocks[0].take(pa.array(np.arange(count, self.blocks[0].num_rows)))

    def _forget(self, piece: Piece, log: ChunkLog) -> None:
        self.cost -= piece.size + self.entry * piece.count
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
        sizes, begin, pieces = self.column(_SIZES), 0, []
        for piece in self.pieces:
            end = begin + piece.count
            here = stay[begin:end]
            gone = float(sizes[begin:end][~here].sum()) / 8
            begin = end
            if not gone and here.all():
                pieces.append(piece)
                continue
            left = int(here.sum())
            self.cost -= gone + self.entry * (piece.count - left)
            piece.count, piece.size = left, piece.size - gone
            if piece.stored:
                self._lost_rows = True
                if left:
                    piece.kept = _without(piece, here)
                else:
                    log.drop(piece.name)
            if left:
                pieces.append(piece)
        self.pieces = pieces
        self._keep_rows(stay)
        for name in self._arrays:
            squeeze(self._arrays[name], self.first, stay)
        self._shrink(int(stay.sum()))
        self._met_rows = True
        self._relink()

    def _keep_rows(self, stay: Mask) -> None:
        begin = 0
        for place, rows in enumerate(self.blocks):
            here = stay[begin : begin + rows.num_rows]
            begin += rows.num_rows
            if not here.all():
                self.blocks[place] = rows.filter(pa.array(here))
        self.blocks = [rows for rows in self.blocks if rows.num_rows]

    def lay_together(self, most: float) -> float:
        """Make one block of neighbouring ones, up to `most` bytes each; the bytes of the largest that is new."""
        runs: list[tuple[list[pa.RecordBatch], float]] = []
        for rows in self.blocks:
            size = measure(rows)
            if runs and runs[-1][1] + size <= most:
                runs[-1] = ([*runs[-1][0], rows], runs[-1][1] + size)
            else:
                runs.append(([rows], size))
        largest = max((size for run, size in runs if len(run) > 1), default=0.0)
        self.blocks = []
        for run, _ in runs:
            self.blocks.append(pa.concat_batches(run) if len(run) > 1 else run[0])
            run.clear()
        return largest

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
        self.lay_together(most)

    def _together(self, run: list[Piece], log: ChunkLog) -> Piece:
        for piece in run:
            if piece.stored:
                log.drop(piece.name)
        name = f"{self._tag}{self._serial:09d}"
        self._serial += 1
        self._lost_rows = True
        return Piece(name, sum(piece.count for piece in run), sum(piece.size for piece in run))

    # -- state -------------------------------------------------------------------------------------------------

    def store(self, step: int, log: ChunkLog, *, flags: bool) -> None:
        """Write what is new since the last time; `flags` says whether it matters who has met a partner."""
        begin = self.first
        for piece in self.pieces:
            end = begin + piece.count
            if piece.stored and piece.count * 2 < piece.stored:
                log.drop(piece.name)
                piece.name, piece.stored, piece.kept = f"{self._tag}{self._serial:09d}", 0, None
                self._serial += 1
                self._lost_rows = True
            if not piece.stored:
                piece.stored = piece.count
                log.add(piece.name, _write(self._rows(begin, end), self._arrays["numbers"][begin:end]))
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
            piece = Piece(name, stored, 0.0, stored)
            if holed:
                piece.kept, holes = holes[: -(-stored // 8)].copy(), holes[-(-stored // 8) :]
                kept = _unpacked(piece.kept, stored)
                rows, numbers = rows.filter(pa.array(kept)), numbers[kept]
            else:
                # A copy: the chunk has more in it than the rows.
                rows = rows.take(pa.array(np.arange(stored)))
            piece.count, piece.size = rows.num_rows, measure(rows)
            self._append(piece, rows, *describe(rows), numbers)
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
