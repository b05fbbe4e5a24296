"""Texts that are alike: the table's key and the stream's text share most of their three-letter pieces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from penstock.errors import BadOption, PenstockError, PlanError, UnknownColumn
from penstock.kernels.mesh.condition import FAILED, Condition, Organised, Waiting
from penstock.kernels.mesh.index import I64
from penstock.tables.base import Page, PageReader, Table

I32 = npt.NDArray[np.int32]
F64 = npt.NDArray[np.float64]

#: More rows of a page than this are never compared with one row.
MOST = 100_000
#: Texts beyond this many bytes are not compared.
LONGEST = 1 << 14
#: Rows of the window whose pieces are made at once, by their bytes and by number.
_BYTES_AT_ONCE, _ROWS_AT_ONCE = 1 << 16, 4_096
#: Bytes that a byte of text takes up while its pieces are found and sorted.
_UNFOLDED = 48


@dataclass(frozen=True)
class Similar(Condition):
    """The stream's text and the table's key are alike: of all their three-byte pieces, at least a part is in both.

    The measure is that of Jaccard, over the sets of pieces of the texts in lower case, with two spaces before and one
    behind, so that beginnings count more. A row of the stream that shares a piece with more than `candidates` rows of a
    page is set aside, and so is a text beyond 16 KB; results that the row gave before remain.

    State and cost
        Nothing for waiting rows; for a page, its pieces. Each page makes the pieces of all waiting rows anew, so this
        is for tables of few pages.
    """

    column: str
    at_least: float
    candidates: int | None

    row_bytes = 8
    flags = True

    @property
    def on(self) -> tuple[str, ...]:  # type: ignore[override]
        """The text."""
        return (self.column,)

    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """A column that is missing or no text, a part that is none, and no limit."""
        found: list[PenstockError] = []
        if self.column not in stream.names:
            found.append(UnknownColumn.among(self.column, stream.names, "The stream"))
        elif not pa.types.is_string(stream.field(self.column).type):
            found.append(PlanError(f"Column {self.column!r} of the stream is not a text.", do="Cast it to a string."))
        if len(table.key) != 1 or not pa.types.is_string(table.schema.field(table.key[0]).type):
            found.append(
                PlanError(
                    f"The key of {table.path} is not one text.",
                    why="A similarity join compares the stream's text with the table's key.",
                    do="Open the table with the text column as its key.",
                )
            )
        if not 0 < self.at_least <= 1:
            found.append(BadOption(f"at_least={self.at_least} is not a share.", do="Give more than 0 and at most 1."))
        if self.candidates is None or not 1 <= self.candidates <= MOST:
            said = "has no limit on candidates" if self.candidates is None else f"has candidates={self.candidates}"
            found.append(
                BadOption(
                    f"This similarity join {said}.",
                    why="A text of common letters would be compared with every row of the table.",
                    do=f"Give candidates=1000, or another number up to {MOST:,}: rows with more of them are set aside.",
                )
            )
        return found

    def organise(self, waiting: Waiting) -> Organised:
        """As they came."""
        assert self.candidates is not None, "checked when the plan was made"
        return _Alike(waiting, self.column, self.at_least, self.candidates)

    def page_bytes(self, page: Page) -> int:
        """The key column, its pieces, counts for each row, and the pieces of some rows of the window."""
        text = page.rows * max(page.row_width, 8)
        return page.row_bytes + _UNFOLDED * (text + _BYTES_AT_ONCE + LONGEST) + 16 * page.rows

    def describe(self, key: tuple[str, ...]) -> str:
        """For people."""
        return f"{self.column} alike {key[0]}, at least {self.at_least:g}"


class _Alike(Organised):
    def __init__(self, waiting: Waiting, column: str, at_least: float, candidates: int) -> None:
        self._waiting = waiting
        self._column = column
        self._at_least = at_least
        self._candidates = candidates
        self._failed: dict[int, str] = {}

    def pairs(self, reader: PageReader, page: Page, first_live: int, size: int) -> Iterator[tuple[I64, I64]]:
        pieces, rows = grams(reader.keys(page).column(0))
        counts = np.bincount(rows, minlength=page.rows).astype(np.int32)
        order = np.argsort(pieces, kind="stable")
        pieces, rows = pieces[order], rows[order]
        met = np.zeros(page.rows, np.int32)
        room = max(size, min(self._candidates, page.rows))
        out = np.empty(room, np.int64), np.empty(room, np.int64)
        for start, texts in self._texts(first_live):
            asked, owners = grams(texts)
            begins = np.searchsorted(pieces, asked, side="left")
            ends = np.searchsorted(pieces, asked, side="right")
            firsts = np.searchsorted(owners, np.arange(len(texts) + 1))
            row = 0
            while row < len(texts):
                found, row, failed = _compare(
                    begins, ends, firsts, rows, counts, met, self._at_least, self._candidates, row, *out
                )
                if found:
                    ascending = np.argsort(out[0][:found], kind="stable")
                    for begin in range(0, found, size):
                        some = ascending[begin : begin + size]
                        yield out[0][some], out[1][some] + start
                if failed >= 0:
                    self._fail(start + failed, f"it shares letters with more than {self._candidates:,} rows of a page")

    def _texts(self, first_live: int) -> Iterator[tuple[int, pa.Array]]:
        """Live rows in runs: their first number and their texts; NULL for those that are not to be compared."""
        for start, piece in self._waiting.parts():
            column = piece.column(self._column)
            lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
            flags = self._waiting.flags[start : start + len(column)]
            for row in np.flatnonzero((lengths > LONGEST) & (flags & FAILED == 0)):
                self._fail(start + int(row), f"its text of {lengths[row]:,} bytes is too long to be compared")
            able = (lengths <= LONGEST) & (flags & FAILED == 0) & (np.arange(len(column)) + start >= first_live)
            texts = pc.if_else(pa.array(able), column, pa.scalar(None, pa.string()))
            ends = np.cumsum(np.where(able, lengths, 0) + 1)
            begin = 0
            while begin < len(column):
                before = ends[begin - 1] if begin else 0
                end = int(np.searchsorted(ends, before + _BYTES_AT_ONCE, side="right"))
                end = min(max(end, begin + 1), begin + _ROWS_AT_ONCE)
                yield start + begin, texts.slice(begin, end - begin)
                begin = end

    def _fail(self, row: int, why: str) -> None:
        self._failed.setdefault(row, why)

    def failed(self) -> list[tuple[int, str]]:
        found = list(self._failed.items())
        self._failed.clear()
        return found


def grams(texts: pa.Array) -> tuple[I32, I32]:
    """The different three-byte pieces of each text, and whose they are; texts in order, none of NULL.

    >>> pieces, rows = grams(pa.array(["ab", None, "AB", "a"]))
    >>> rows.tolist(), pieces[:3].tolist() == pieces[3:6].tolist()
    ([0, 0, 0, 2, 2, 2, 3, 3], True)
    """
    padded = pc.binary_join_element_wise("  ", pc.utf8_lower(texts), " ", "")
    offsets = np.frombuffer(padded.buffers()[1], np.int32, len(padded) + 1, 4 * padded.offset).astype(np.int64)
    data = np.frombuffer(padded.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]].astype(np.int64)
    offsets = offsets - offsets[0]
    each = np.maximum(np.diff(offsets) - 2, 0)
    rows = np.repeat(np.arange(len(padded)), each)
    at = offsets[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
    both = np.unique(rows << 24 | data[at] << 16 | data[at + 1] << 8 | data[at + 2])
    return (both & 0xFFFFFF).astype(np.int32), (both >> 24).astype(np.int32)


@njit(cache=True)
def _compare(
    begins: I64, ends: I64, firsts: I64, rows: I32, counts: I32, met: I32, at_least: float, candidates: int, row: int,
    page_rows: I64, window_rows: I64,
) -> tuple[int, int, int]:  # fmt: skip
    """Compare texts from `row` on until the room for pairs may end; pairs found, the next row, and one that failed."""
    touched = np.empty(candidates + 1, np.int32)
    found = 0
    for r in range(row, firsts.size - 1):
        seen = 0
        for piece in range(firsts[r], firsts[r + 1]):
            for at in range(begins[piece], ends[piece]):
                p = rows[at]
                if met[p] == 0:
                    if seen <= candidates:
                        touched[seen] = p
                    seen += 1
                    if seen > candidates:
                        break
                met[p] += 1
            if seen > candidates:
                break
        failed = seen > candidates
        mine = firsts[r + 1] - firsts[r]
        if not failed and found + seen > page_rows.size:
            for i in range(seen):
                met[touched[i]] = 0
            return found, r, -1
        for i in range(min(seen, candidates)):
            p = touched[i]
            shared = met[p]
            met[p] = 0
            if not failed and shared >= at_least * (mine + counts[p] - shared):
                page_rows[found] = p
                window_rows[found] = r
                found += 1
        if failed:
            return found, r + 1, r
    return found, firsts.size - 1, -1
