"""Keeping tables quick to read: which of a table's files are replaced by which others, with the same rows.

A table is the sum of its files: rows before the first change and rows that only entered (`base`), and signed rows
(`parts`). Any of them may be replaced by files that add up to the same, while others are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.spark.views.groups import SIGN
from penstock.spark.views.lookup import netted_parts
from penstock.spark.views.parquet import FORMAT
from penstock.spark.views.store import File, TableVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Files beyond which they are put together: signed ones, and those of at most so many rows.
MOST_FILES = 16
SMALL_FILE = 500_000
#: The share of a table's rows that signed ones may reach before the table is written anew, and the least of it.
REWRITE_SHARE, REWRITE_ROWS = 0.25, 200_000
#: Signed rows that are put together in the driver, at the most.
NETTED_ROWS = 2_000_000


@dataclass(frozen=True)
class Replacement:
    """Files that go, and new ones of both kinds that come for them."""

    gone: frozenset[File]
    base: tuple[Path, ...] = ()
    parts: tuple[Path, ...] = ()


def untidy(version: TableVersion) -> bool:
    """Whether a table has become slow to read."""
    return len(version.parts) > MOST_FILES or _outgrown(version) or len(_small(version)) > MOST_FILES


def replacement(
    version: TableVersion, schema: pa.Schema, consolidated: Callable[[TableVersion], DataFrame], folder: Path
) -> Replacement:
    """What makes a table tidy, with the new files in a folder. Rows that entered and left are in none of them."""
    folder.mkdir(parents=True)
    outgrown, signed = _outgrown(version), sum(file.rows for file in version.parts)
    # Rows that changed again and again are few once they are put together: that is tried before all is written anew.
    if outgrown and (len(version.parts) == 1 or signed > NETTED_ROWS):
        consolidated(version).write.parquet(str(folder / "whole"))
        written = sorted((folder / "whole").glob("*.parquet"))
        return Replacement(frozenset((*version.base, *version.parts)), tuple(written))
    if outgrown or len(version.parts) > MOST_FILES:
        rows = netted_parts(version.parts, schema)
        path = folder / "part.parquet"
        pq.write_table(rows, path)
        only_entered = not rows.num_rows or min(rows[SIGN].unique().to_pylist()) > 0
        made = (path,) if rows.num_rows else ()
        return Replacement(frozenset(version.parts), made * only_entered, made * (not only_entered))
    small = _small(version)
    return Replacement(frozenset(small), (_together(small, schema, folder / "base.parquet"),))


def _outgrown(version: TableVersion) -> bool:
    limit = max(REWRITE_ROWS, REWRITE_SHARE * sum(file.rows for file in version.base))
    return sum(file.rows for file in version.parts) > limit


def _small(version: TableVersion) -> list[File]:
    return [file for file in version.base if file.rows <= SMALL_FILE]


def _together(files: Sequence[File], schema: pa.Schema, path: Path) -> Path:
    """The rows of some files in one, a batch at a time."""
    found = ds.dataset([file.path for file in files], schema=schema, format=FORMAT)
    with pq.ParquetWriter(path, schema) as writer:
        for batch in found.to_batches():
            writer.write_batch(batch)
    return path
