"""Queries that come to a running flow and leave it: files of changes in a directory that the flow reads as a stream.

A file is there whole or not at all, and never written over another's. Its name is the number of its first change;
changes are numbered in the order in which they were made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.kernels.shared.changes import CHANGES
from penstock.spark.files import sync_directory
from penstock.tables.places import place_of


class ChangeFiles:
    """The changes in a directory, which need not be there yet."""

    def __init__(self, folder: str | os.PathLike[str], schema: pa.Schema) -> None:
        self.folder = place_of(folder, "changes")
        self.schema = schema

    def rows(self) -> list[dict[str, Any]]:
        """All changes, in their order."""
        return [row for path in self._files() for row in pq.read_table(path, schema=self.schema).to_pylist()]

    def append(self, make: Callable[[int], list[dict[str, Any]]]) -> None:
        """Keep what `make` gives for the number of the first change, durably and together."""
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self.folder / f".{os.getpid()}.{os.urandom(4).hex()}"
        while True:
            number = self._next()
            pq.write_table(pa.Table.from_pylist(make(number), schema=self.schema), scratch)
            with scratch.open("rb") as written:
                os.fsync(written.fileno())
            try:
                # Unlike a rename, a link fails if another was quicker.
                os.link(scratch, self.folder / f"{number:012d}.parquet")
            except FileExistsError:
                continue
            finally:
                with suppress(FileNotFoundError):
                    scratch.unlink()
            sync_directory(self.folder)
            return

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*.parquet"), key=lambda path: int(path.stem))

    def _next(self) -> int:
        files = self._files()
        return int(files[-1].stem) + int(pq.read_metadata(files[-1]).num_rows) if files else 0


class Change(NamedTuple):
    """A query of a shared join comes, with its window and what it selects; or goes."""

    op: str
    query: str
    window: int = 0
    select: str | None = None


class SharedChanges:
    """The changes of a shared join; windows are in microseconds, or in rows."""

    def __init__(self, folder: str | os.PathLike[str], *, by_rows: bool) -> None:
        self._files = ChangeFiles(folder, CHANGES)
        self._unit = "rows" if by_rows else "us"

    def standing(self, beginning: Iterable[tuple[str, int]] = ()) -> dict[str, int]:
        """The queries that stand once all changes have been read, with their windows."""
        standing = dict(beginning)
        for row in self._files.rows():
            if row["op"] == "add":
                standing.setdefault(row["query"], row["window"])
            else:
                standing.pop(row["query"], None)
        return standing

    def write(self, changes: Iterable[Change]) -> None:
        """Make changes, all of which the same micro-batch reads."""
        said = list(changes)
        self._files.append(
            lambda first: [
                {"version": version, "unit": self._unit, **change._asdict()}
                for version, change in enumerate(said, first)
            ]
        )

    def agree(self, wanted: Mapping[str, int]) -> None:
        """Write what is missing for these queries to stand, and no others. After a crash, once more does no harm."""
        standing = self.standing()
        gone = [Change("remove", name) for name in standing if name not in wanted]
        new = [Change("add", name, window) for name, window in wanted.items() if name not in standing]
        if gone or new:
            self.write([*gone, *new])
