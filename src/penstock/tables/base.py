"""A relation on disk, seen as pages that can be probed by key hash before anything else is read.

A `Table` is a frozen description (it travels to the workers); `open()` gives a `PageReader` in the process that
reads. A page is the unit of a cyclic scan: a row group of a Parquet file, or a run of rows of a prepared table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Hashes = npt.NDArray[np.uint64]
    RowIds = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Page:
    """One page of a table.

    `hash_bytes` and `row_bytes` bound what a reader holds at once for `hashes` and for `take` (beside its result);
    `row_width` is what a row of the result takes up, on average.
    """

    index: int
    rows: int
    hash_bytes: int
    row_bytes: int
    row_width: int = 0
    #: The first and the last hash, where rows are ordered by it.
    hashes: tuple[int, int] | None = None
    #: Of each key column the smallest and the largest value, as numbers, where that is known.
    spans: tuple[tuple[int, int] | None, ...] = ()
    #: Bytes of the Bloom filter of the first key column; 0 where there is none.
    bloom: int = 0


@dataclass(frozen=True, repr=False)
class Table(ABC):
    """A relation as pages. Frozen and picklable; holds no open file."""

    path: str
    key: tuple[str, ...]

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The rows that `PageReader.take` returns, in types that Spark knows."""

    @property
    @abstractmethod
    def version(self) -> str:
        """A fingerprint: two tables with the same one have the same rows in the same pages."""

    @property
    @abstractmethod
    def pages(self) -> tuple[Page, ...]:
        """All pages in scan order."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(page.rows for page in self.pages)

    def by_key(self, slot: int, slots: int) -> tuple[Page, ...] | None:
        """The pages of all rows whose key hash belongs to `slot` (`keys.slot_of`), or None where pages hold any key."""
        return None

    @abstractmethod
    def open(self) -> PageReader:
        """A reader for this very version."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}, key={self.key}, {self.rows:,} rows in {len(self.pages):,} pages)"


class PageReader(ABC):
    """Reads pages in one process. Raises `TableChanged`, naming the file, if it is not the version that was planned."""

    table: Table

    @abstractmethod
    def hashes(self, page: Page) -> Hashes:
        """The hash of every row's key (`keys.hash_keys`), in row order. The array is valid until the next call."""

    def expect(self, page: Page) -> None:  # noqa: B027 — nothing, unless it pays
        """The page is read next, most of it: what is not in the system's cache may be fetched meanwhile."""

    def may_have(self, page: Page, values: pa.Array) -> bool:
        """Whether the page's Bloom filter allows any of these values of the first key column."""
        return True

    @abstractmethod
    def take(self, page: Page, rows: RowIds) -> pa.RecordBatch:
        """The given rows of the page, all columns, in the given order; `rows` may repeat."""

    def keys(self, page: Page, rows: RowIds | None = None) -> pa.RecordBatch:
        """The key columns of the given rows, or of all."""
        import numpy as np

        wanted = np.arange(page.rows, dtype=np.int64) if rows is None else rows
        return self.take(page, wanted).select(list(self.table.key))

    def batches(self, page: Page, only: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows of the page in order, some at a time; all columns, or those that are named."""
        import numpy as np

        for start in range(0, page.rows, 1 << 14):
            rows = self.take(page, np.arange(start, min(start + (1 << 14), page.rows), dtype=np.int64))
            yield rows if only is None else rows.select(list(only))

    @abstractmethod
    def close(self) -> None:
        """Let go of files and buffers."""
