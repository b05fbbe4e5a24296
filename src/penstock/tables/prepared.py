"""A prepared table: rows ordered by key hash, hashes apart from rows, the values of a row kept together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import BadOption
from penstock.tables import keys, manifest
from penstock.tables.base import Page, Table
from penstock.tables.manifest import Spot

if TYPE_CHECKING:
    from penstock.tables.prepared_reader import PreparedReader


@dataclass(frozen=True, repr=False)
class PreparedTable(Table):
    """A directory that `prepare` wrote, as pages.

    Guarantees
        Pages are in ascending order of hash and none crosses a boundary of `keys.PARTITIONS`, so that `by_key` gives
        every slot exactly the rows of its hashes: `test_by_key_gives_each_row_to_one_slot`.
    State and cost
        About a hundred bytes a page; no open file.
    """

    fields: pa.Schema
    digest: str
    nullable: tuple[str, ...]
    #: Size and, if the file was not copied since, modification time of each file.
    sizes: tuple[tuple[str, int, int], ...]
    spots: tuple[Spot, ...]
    scan: tuple[Page, ...]

    @property
    def schema(self) -> pa.Schema:
        """The rows that `take` returns, in types that Spark knows."""
        return self.fields

    @property
    def version(self) -> str:
        """The digest of the manifest's content, which has a checksum of every page."""
        return self.digest

    @property
    def pages(self) -> tuple[Page, ...]:
        """All pages, in ascending order of hash."""
        return self.scan

    def by_key(self, slot: int, slots: int) -> tuple[Page, ...]:
        """The pages of the hashes that belong to a slot."""
        lo, hi = keys.hash_range(slot, slots)
        return tuple(page for page, spot in zip(self.scan, self.spots, strict=True) if lo <= spot.lo < hi)

    def open(self) -> PreparedReader:
        """A reader for this very version."""
        from penstock.tables.prepared_reader import PreparedReader

        return PreparedReader(self)

    @classmethod
    def plan(cls, path: str, key: tuple[str, ...] | None = None) -> PreparedTable:
        """Read the manifest. `key` must be the one the table was prepared for."""
        found, digest, stamps = manifest.load(Path(path))
        if key is not None and key != found.key:
            raise BadOption(
                f"{path} was prepared for the key {', '.join(found.key)}, not for {', '.join(key)}.",
                why="Its rows are ordered by the hash of that key.",
                do="Join on that key, or prepare the table once more, for the other key, into another directory.",
            )
        scan = []
        for index, spot in enumerate(found.spots):
            width = -(-(spot.size + 16) // spot.rows)
            scan.append(Page(index, spot.rows, 8 * spot.rows, spot.size + spot.nested, width, (spot.lo, spot.hi)))
        sizes = tuple((name, size, stamps.get(name, 0)) for name, size in found.sizes.items())
        return cls(path, found.key, found.schema, digest, found.nullable, sizes, found.spots, tuple(scan))
