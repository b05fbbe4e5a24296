"""Join conditions, and how waiting rows are organised so that a page of the table finds its partners among them.

Of a page only the table's key columns are read to find partners; the other columns are read where there is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import BadOption, KernelFault, PenstockError, PlanError
from penstock.kernels.mesh.index import BYTES_PER_ROW, I64, Cursor, Index, build, holds_any, probe, sift
from penstock.tables.base import Page, PageReader, Table
from penstock.tables.bloom import FEW
from penstock.tables.keys import check_key_types, equal_keys, hash_keys, joinable
from penstock.tables.numbers import exact, numbers

if TYPE_CHECKING:
    from penstock.tables.keys import Hashes, Mask


#: Flags of a waiting row: it has met a partner; the condition could not be decided for it.
MET, FAILED = 1, 2


class Waiting(NamedTuple):
    """What a condition may see of the window: its rows in pieces, numbered in order of arrival."""

    size: int
    #: The pieces from the first on, each with the number of its first row.
    parts: Callable[[], Iterator[tuple[int, pa.RecordBatch]]]
    #: Columns of rows by number.
    take: Callable[[I64, Sequence[str]], pa.RecordBatch]
    #: The flags of each row; none, unless the condition asks for them.
    flags: npt.NDArray[np.uint8]


class Organised(ABC):
    """Waiting rows, ready to be met by pages."""

    @abstractmethod
    def pairs(self, reader: PageReader, page: Page, first_live: int, size: int) -> Iterator[tuple[I64, I64]]:
        """Row numbers of the page, ascending, and of the window, at most `size` pairs at once.

        Rows of the window below `first_live` have expired. The arrays are valid until the next pairs.
        """

    def may_meet(self, page: Page, reader: PageReader) -> bool:
        """Whether the page may have partners, from what is known of it without reading its rows."""
        return True

    def failed(self) -> list[tuple[int, str]]:
        """Rows of the window for which the condition could not be decided since the last call, and why."""
        return []


class Condition(ABC):
    """When a row of the stream and one of the table belong together. Frozen: it travels to the workers."""

    #: The stream's columns that it looks at.
    on: tuple[str, ...]
    #: Bytes of organisation for each waiting row at the most, also while it is being built.
    row_bytes: int
    #: Whether it needs to know the flags of rows.
    flags: bool = False
    #: How to write it so that it takes less memory, where smaller pages are not what helps.
    thrift: str = ""

    @property
    def routes(self) -> tuple[str, ...]:
        """The stream's columns that decide which slot a row goes to, where slots share rows."""
        return self.on

    def slot(self, hashes: tuple[int, int]) -> Condition:
        """The same for a slot that has the rows of these hashes only."""
        return self

    @property
    def equality(self) -> Equal | None:
        """That partners have the same key, if they must have, whatever else is asked of them."""
        return None

    @property
    def by_key(self) -> bool:
        """Whether partners have the same key, so that a prepared table can be divided by it."""
        return self.equality is not None

    @abstractmethod
    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """Why this stream and table cannot be joined by it."""

    def able(self, rows: pa.RecordBatch) -> Mask | None:
        """False where a row can join nothing; None if every row may."""
        return joinable([rows.column(name) for name in self.on])

    @abstractmethod
    def organise(self, waiting: Waiting) -> Organised:
        """The rows of the window, organised for it."""

    def asks(self, table: Table) -> tuple[str, ...]:
        """The table's columns by which `holds` confirms pairs; none where what is found are partners already."""
        return ()

    def holds(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> Mask:
        """Which of the pairs belong together, from columns `on` of one side and columns `asks` of the other."""
        return np.ones(rows.num_rows, np.bool_)

    def page_bytes(self, page: Page) -> int:
        """Bytes held at the most while a page is met, beside the window and results."""
        return page.hash_bytes

    def identity(self) -> Mapping[str, str]:
        """What `describe` does not tell and must still be the same when a query is taken up again."""
        return {}

    @abstractmethod
    def describe(self, key: tuple[str, ...]) -> str:
        """For people."""


@dataclass(frozen=True)
class Equal(Condition):
    """Columns of the stream equal the table's key. A slot may hold the rows of a range of hashes only."""

    on: tuple[str, ...]
    hashes: tuple[int, int] = (0, 1 << 64)

    row_bytes = BYTES_PER_ROW

    def faults(self, stream: pa.Schema, table: Table) -> list[PenstockError]:
        """Columns that are missing or of another kind than the key's."""
        if len(self.on) != len(table.key):
            return [
                BadOption(
                    f"`on` names {len(self.on)} columns, and the key of {table.path} has {len(table.key)}.",
                    do=f"Give one stream column for each of: {', '.join(table.key)}.",
                )
            ]
        return [
            fault
            for ours, theirs in zip(self.on, table.key, strict=True)
            if (fault := type_fault(stream, ours, table, theirs)) is not None
        ]

    def slot(self, hashes: tuple[int, int]) -> Equal:
        """Its index is over these hashes."""
        return replace(self, hashes=hashes)

    @property
    def equality(self) -> Equal:
        """This."""
        return self

    def organise(self, waiting: Waiting) -> Organised:
        """By hash."""

        def hashed() -> Iterator[tuple[int, Hashes]]:
            for start, piece in waiting.parts():
                yield start, hash_keys([piece.column(name) for name in self.on])

        def span(place: int) -> tuple[int, int] | None:
            """Of a column's values."""
            ends: list[int] = []
            for _, piece in waiting.parts():
                column = piece.column(self.on[place])
                if not exact(column.type):
                    return None
                values, _ = numbers(column)
                ends += [int(values.min()), int(values.max())] if len(values) else []
            return (min(ends), max(ends)) if ends else None

        def few() -> pa.Array | None:
            """The first column's values, if they are few enough to be worth asking for."""
            if waiting.size > FEW:
                return None
            return pa.concat_arrays([piece.column(self.on[0]) for _, piece in waiting.parts()])

        return _Hashed(build(hashed(), hashed(), waiting.size, *self.hashes), span, few)

    def asks(self, table: Table) -> tuple[str, ...]:
        """The key: candidates have the same bits of a hash."""
        return table.key

    def holds(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> Mask:
        """Compare the keys themselves."""
        return equal_keys(rows.columns, partners.columns)

    def describe(self, key: tuple[str, ...]) -> str:
        """As SQL has it."""
        return f"{', '.join(self.on)} = {', '.join(key)}"


class _Hashed(Organised):
    def __init__(
        self, index: Index, span: Callable[[int], tuple[int, int] | None], few: Callable[[], pa.Array | None]
    ) -> None:
        self._index = index
        self._span, self._few = cache(span), cache(few)

    def may_meet(self, page: Page, reader: PageReader) -> bool:
        if page.hashes is not None and not holds_any(self._index, *page.hashes):
            return False
        for place, theirs in enumerate(page.spans):
            ours = self._span(place) if theirs is not None else None
            if theirs is not None and ours is not None and not (theirs[0] <= ours[1] and ours[0] <= theirs[1]):
                return False
        keys = self._few() if page.bloom else None
        return keys is None or reader.may_have(page, keys)

    def pairs(self, reader: PageReader, page: Page, first_live: int, size: int) -> Iterator[tuple[I64, I64]]:
        hashes = reader.hashes(page)
        if len(hashes) != page.rows:
            raise KernelFault(f"Page {page.index} has {len(hashes)} hashes for {page.rows} rows.")
        survivors = np.empty(page.rows, np.int32)
        survivors = survivors[: sift(self._index, hashes, survivors)]
        page_rows, window_rows = np.empty(size, np.int64), np.empty(size, np.int64)
        at = Cursor()
        while at.survivor < survivors.size:
            count, at = probe(self._index, hashes, survivors, at, first_live, page_rows, window_rows)
            if count:
                yield page_rows[:count], window_rows[:count]


def type_fault(stream: pa.Schema, ours: str, table: Table, theirs: str) -> PenstockError | None:
    """Why these two columns cannot be compared, if they cannot."""
    try:
        check_key_types(stream, (ours,), table.schema, (theirs,))
    except PlanError as fault:
        return fault
    return None
