"""Where a view lives: a directory of immutable files, and manifests that say which of them are the view.

::

    view.json                     what the view is; another one is refused here
    manifest/00000000000000000012.json   a version: positions in all change logs, and all files
    tables/<table>/part-….parquet rows that entered or left a table, up to the version that names the part
    scratch/                      files that are not yet part of anything
    state/<version>-<id>/…        the groups of the view
    aside/<table>/….parquet       changes that made no sense, with a reason
    log/<table>/                  changes of a table that come as a stream

A version exists from the moment its manifest does, which is written whole or not at all: that is the only commit.
Everything else is written before it, under names that nobody used, and what no kept version names is removed after it.
So a crash anywhere leaves the last version as it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import BadOption, PlanError, ViewDamaged, ViewInUse
from penstock.spark.crash import crash_point
from penstock.spark.files import Held, read_whole, sync_directory, take_lock, write_whole

#: Where a test may have a refresh die, in order.
CRASH_POINTS = ("view-after-part", "view-after-state", "view-before-manifest", "view-after-manifest")
#: How the names of a table's files are called among what may not change.
FILES_OF = "files of "
#: Versions that stay readable after newer ones.
KEPT = 3
#: How groups are computed and stored; raised with every mended fault in that. Groups of a lower one are made anew.
FORMAT = 1


@dataclass(frozen=True)
class File:
    """A file as it was when it was named."""

    path: str
    size: int
    modified: int
    rows: int

    @classmethod
    def of(cls, path: Path, rows: int | None = None) -> File:
        """The file that is there now."""
        found = path.stat()
        count = pq.read_metadata(path).num_rows if rows is None else rows
        return cls(str(path), found.st_size, found.st_mtime_ns, count)

    def as_json(self, place: Path) -> list[Any]:
        """As it is written in a view's directory: by its path in it, so that the directory may have another name."""
        path = self.path.removeprefix(f"{place}/")
        return [path, self.size, self.modified, self.rows]

    def check(self, *, ours: bool) -> None:
        """Refuse to go on with a file that is not the one that was named. Copies of ours may be younger."""
        try:
            found = os.stat(self.path)
        except OSError:
            raise ViewDamaged(
                f"{self.path} is missing.",
                why="The view is made of it.",
                do="Put it back, or make the view again in a new directory.",
            ) from None
        if found.st_size != self.size or (not ours and found.st_mtime_ns != self.modified):
            raise ViewDamaged(
                f"{self.path} was changed.",
                why="A view is over the rows before the first change, and over changes; rows changed in place are lost "
                "on it.",
                do="Put the file back as it was, or make the view again in a new directory.",
            )


@dataclass(frozen=True)
class TableVersion:
    """How far a table is: its rows before the first change, what entered and left since, and the changes taken."""

    base: tuple[File, ...]
    parts: tuple[File, ...] = ()
    taken: tuple[str, ...] = ()
    changes: int = 0
    aside: int = 0

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(file.size for file in (*self.base, *self.parts))


@dataclass(frozen=True)
class Manifest:
    """One version of a view."""

    version: int
    time: float
    tables: dict[str, TableVersion]
    state: tuple[File, ...]
    #: Changes up to which the view is complete arrived before this moment, for each table.
    fresh: dict[str, float] = field(default_factory=dict)
    #: That of its groups.
    format: int = FORMAT

    def files(self) -> Iterator[File]:
        """Every file that the version needs."""
        yield from self.state
        for table in self.tables.values():
            yield from table.base
            yield from table.parts

    def advanced(self, name: str, table: TableVersion, state: tuple[File, ...], arrived: float) -> Manifest:
        """The next version, with one table further than this."""
        tables = {**self.tables, name: table}
        return replace(
            self,
            version=self.version + 1,
            time=time.time(),
            tables=tables,
            state=state,
            fresh={**self.fresh, name: arrived},
        )

    def as_json(self, place: Path) -> dict[str, Any]:
        """As it is written in a view's directory."""
        return {
            "version": self.version,
            "format": self.format,
            "time": self.time,
            "fresh": self.fresh,
            "state": [file.as_json(place) for file in self.state],
            "tables": {
                name: {
                    "base": [file.as_json(place) for file in table.base],
                    "parts": [file.as_json(place) for file in table.parts],
                    "taken": list(table.taken),
                    "changes": table.changes,
                    "aside": table.aside,
                }
                for name, table in self.tables.items()
            },
        }

    @classmethod
    def from_json(cls, said: dict[str, Any], place: Path) -> Manifest:
        """As it was written in a view's directory."""

        def files(rows: list[list[Any]]) -> tuple[File, ...]:
            return tuple(File(str(place / path), *rest) for path, *rest in rows)

        tables = {
            name: TableVersion(
                files(table["base"]), files(table["parts"]), tuple(table["taken"]), table["changes"], table["aside"]
            )
            for name, table in said["tables"].items()
        }
        # The first versions had no number.
        return cls(said["version"], said["time"], tables, files(said["state"]), said["fresh"], said.get("format", 0))


class Store:
    """The directory of one view. One process at a time maintains it; any number may read its versions."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._lock: IO[str] | None = None
        self._leases: dict[int, int] = {}
        # Answers are let go of wherever the last of their holders is, also in the middle of another count.
        self._counting = threading.RLock()

    # -- opening -----------------------------------------------------------------------------------------------

    def open(self, identity: dict[str, str]) -> Manifest | None:
        """Take the directory, and give its last version; None if it is new."""
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            self._check_strangers()  # before the lock, which would be one of them in a directory that is not ours
            self._lock = take_lock(self.place / "lock")
        except Held as held:
            raise ViewInUse(
                f"{self.place} is maintained by {held}.",
                why="Two writers would each undo what the other did.",
                do="Stop the other one, or give this view a directory of its own.",
            ) from None
        except OSError as fault:
            raise BadOption(
                f"{self.place} cannot be written: {fault.strerror}.", do="Choose a directory that can be."
            ) from fault
        try:
            self._check_identity(identity)
            last = self.last()
            for file in last.files() if last is not None else ():
                file.check(ours=file.path.startswith(f"{self.place}/"))
        except BaseException:
            self.close()
            raise
        if last is not None:
            self.sweep(last)
        shutil.rmtree(self.place / "scratch", ignore_errors=True)
        return last

    def close(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check_held(self) -> None:
        """Refuse to go on with a directory that others may have by now."""
        if self._lock is None:
            raise PlanError(
                f"The view in {self.place} is closed.",
                why="Another process may maintain it now.",
                do="Open it again: ps.View(…).",
            )

    def _check_strangers(self) -> None:
        there = {entry.name for entry in self.place.iterdir()}
        if "view.json" not in there and any(name != "lock" and not name.startswith(".view.json") for name in there):
            raise BadOption(f"{self.place} is not empty, and not a view.", do="Give the view a directory of its own.")

    def _check_identity(self, identity: dict[str, str]) -> None:
        path = self.place / "view.json"
        if not path.exists():
            self._check_strangers()
            write_whole(path, identity)
            return
        said = read_whole(path)
        if said is None:
            raise ViewDamaged(
                f"{path} is cut or changed.", do="Put it back from a copy, or make the view again elsewhere."
            )
        differing = sorted(name for name in {*said, *identity} if said.get(name) != identity.get(name))
        if differing and all(name.startswith(FILES_OF) for name in differing):
            raise ViewDamaged(
                f"Other {' and '.join(differing)} are there than when the view was made.",
                why="A view is over the rows before the first change, and over changes; rows that are added otherwise "
                "are lost on it.",
                do="Put the files back as they were and bring new rows as changes, or make the view again in a new "
                "directory.",
            )
        if differing:
            raise PlanError(
                f"{self.place} holds another view.",
                why=f"Different are: {', '.join(differing)}.",
                do="Give this view a directory of its own.",
            )

    # -- versions ----------------------------------------------------------------------------------------------

    def _manifests(self) -> list[Path]:
        return sorted((self.place / "manifest").glob("[0-9]*.json"))

    def last(self) -> Manifest | None:
        """The last version; None if there is none yet. Raises `ViewDamaged` if its manifest is cut or changed."""
        found = self._manifests()
        return self.read(found[-1]) if found else None

    def read(self, path: Path) -> Manifest:
        """A version, by its manifest."""
        said = read_whole(path)
        if said is None:
            raise ViewDamaged(
                f"{path} is cut or changed.",
                why="It says which files are the view, and which changes it has.",
                do="Put it back from a copy. If there is none, remove it: the version before it becomes the last, and "
                "later changes are taken again, if their files are still there.",
            )
        found = Manifest.from_json(said, self.place)
        if found.format > FORMAT:
            raise ViewDamaged(
                f"{path} is of a newer version of Penstock.",
                why=f"Its groups are of format {found.format}, and this one knows {FORMAT} and those before.",
                do="Use the newer version, or make the view again in a new directory.",
            )
        return found

    def commit(self, manifest: Manifest) -> None:
        """Make a version the last. Its files are durable before it is."""
        self.check_held()
        folder = self.place / "manifest"
        folder.mkdir(exist_ok=True)
        crash_point("view-before-manifest")
        write_whole(folder / f"{manifest.version:020d}.json", manifest.as_json(self.place))
        crash_point("view-after-manifest")

    @contextlib.contextmanager
    def lease(self, version: int) -> Iterator[None]:
        """Keep a version's files while the block runs."""
        self.hold(version)
        try:
            yield
        finally:
            self.release(version)

    def hold(self, version: int) -> None:
        """Keep a version's files until it is released as often as it was held."""
        with self._counting:
            self._leases[version] = self._leases.get(version, 0) + 1

    def release(self, version: int) -> None:
        """See `hold`."""
        with self._counting:
            self._leases[version] -= 1
            if not self._leases[version]:
                del self._leases[version]

    def sweep(self, last: Manifest) -> None:
        """Remove what no kept version needs, and what steps left that never became a version."""
        self.check_held()
        found = self._manifests()
        kept = [path for path in found[-KEPT:] if int(path.stem) <= last.version]
        kept += [path for path in found[:-KEPT] if int(path.stem) in self._leases]
        told = [Manifest.from_json(said, self.place) for path in kept if (said := read_whole(path))]
        needed = {file.path for manifest in told for file in manifest.files()}
        needed |= {file.path for file in last.files()}
        for path in set(found) - set(kept):
            path.unlink(missing_ok=True)
        folders = [*(self.place / "state").glob("*"), *(self.place / "tables").glob("*")]
        for folder in folders:
            mine = [path for path in folder.glob("*.parquet") if str(path) not in needed]
            if folder.parent.name == "state" and len(mine) == len(list(folder.glob("*.parquet"))):
                shutil.rmtree(folder, ignore_errors=True)
            else:
                for path in mine:
                    path.unlink(missing_ok=True)
        for path in (self.place / "aside").glob("*/part-*.parquet"):
            if int(path.name.split("-")[1]) > last.version:
                path.unlink(missing_ok=True)  # set aside by a step that is, or will be, done again

    def streamed(self, table: str) -> set[str]:
        """The entries of a table's changes that a stream has left here, taken or not."""
        return {entry.name for entry in (self.place / "log" / folder_name(table)).glob("[0-9]*")}

    # -- files -------------------------------------------------------------------------------------------------

    def write_part(self, table: str, rows: pa.Table, version: int, kind: str = "tables") -> File:
        """Rows of a table as a new file, durable before it is named."""
        folder = self.place / kind / folder_name(table)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{version:012d}-{uuid.uuid4().hex[:8]}.parquet"
        pq.write_table(rows, path)
        _sync([path])
        crash_point("view-after-part")
        return File.of(path, rows.num_rows)

    def adopt(self, table: str, paths: Iterable[Path], version: int) -> tuple[File, ...]:
        """Make files that were written elsewhere those of a table, durable before they are named."""
        home = self.place / "tables" / folder_name(table)
        home.mkdir(parents=True, exist_ok=True)
        moved = [path.rename(home / f"base-{version:012d}-{uuid.uuid4().hex[:8]}.parquet") for path in paths]
        _sync(moved)
        return tuple(File.of(path) for path in moved)

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory, not there yet, that nobody else looks at and that is gone afterwards."""
        folder = self.place / "scratch" / uuid.uuid4().hex[:8]
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def new_state(self, version: int) -> Path:
        """A directory, not there yet, for the groups of a version."""
        folder = self.place / "state"
        folder.mkdir(exist_ok=True)
        return folder / f"{version:012d}-{uuid.uuid4().hex[:8]}"

    def written(self, folder: Path) -> tuple[File, ...]:
        """What Spark wrote, durable."""
        paths = sorted(path for path in folder.rglob("*.parquet") if not path.name.startswith((".", "_")))
        _sync(paths)
        crash_point("view-after-state")
        return tuple(File.of(path) for path in paths)


def folder_name(table: str) -> str:
    """A directory name for any table name, one for each.

    >>> folder_name("orders"), folder_name("a/b")
    ('orders', 'a%2fb')
    """
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
    return "".join(letter if letter in plain else f"%{ord(letter):02x}" for letter in table)


def _sync(paths: Iterable[Path]) -> None:
    for path in paths:
        with path.open("rb") as written:
            os.fsync(written.fileno())
    for folder in {path.parent for path in paths}:
        sync_directory(folder)
