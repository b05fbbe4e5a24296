"""What is registered, in files that are there whole or not at all: one for each query, one for each group.

A call that changes something returns after its file is on disk. So whatever a caller was told is so after any crash.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any

from penstock.errors import ServerDamaged, ServerInUse
from penstock.spark.files import Held, read_whole, sync_directory, take_lock, write_whole


@dataclass(frozen=True)
class Entry:
    """A registered query. `number` is its own for ever; `group` names the group that answers it.

    It has the results of the group from batch `since` on; while it is paused, up to batch `until`.
    """

    number: int
    name: str
    group: str
    since: int
    registered_at: str
    text: str | None = None
    operator: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    #: Whether batch `since` has the answer of that moment alone, and not its results.
    begins_with_answer: bool = False
    #: Whether it was written in the pipeline's file, and goes when it is there no more.
    from_file: bool = False
    paused: bool = False
    until: int | None = None


#: What the file of a query has to say, and what it may.
_KNOWN = {one.name for one in fields(Entry)}
_NEEDED = {one.name for one in fields(Entry) if one.default is MISSING and one.default_factory is MISSING}
#: What the file of a group has to say.
_GROUP_SAYS = {"key", "columns", "cores"}


class Books:
    """The files of a server's folder, held until it is closed or the process ends however it may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("queries", "groups", "views"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        try:
            self._lock: IO[str] = take_lock(folder / "server.lock")
        except Held as holder:
            raise ServerInUse(
                f"{folder} is in use by {holder}.",
                why="Two servers on one folder would each write over the other.",
                do="Stop that process first, or give this one another folder.",
            ) from None

        for place in (folder / "groups").iterdir():
            if not (place / "group.json").exists():
                shutil.rmtree(place, ignore_errors=True)  # a crash came before it was all deleted
        self.id = self._own_id()

    def _own_id(self) -> str:
        path = self.folder / "server.json"
        if not path.exists():
            write_whole(path, {"id": uuid.uuid4().hex[:12]})
        return str(self._read(path)["id"])

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.close()

    def entries(self) -> Iterator[Entry]:
        """All registered queries, in the order of their numbers."""
        for path in sorted((self.folder / "queries").glob("[0-9]*.json")):
            said = self._read(path)
            if not _NEEDED <= said.keys() <= _KNOWN:
                raise self._of_another_version(path)
            yield Entry(**said)

    def write(self, entry: Entry) -> Entry:
        """Register a query, or change what is registered."""
        write_whole(self._place(entry.number), asdict(entry))
        return entry

    def change(self, entry: Entry, **changes: Any) -> Entry:
        """The same with some fields changed, on disk."""
        return self.write(replace(entry, **changes))

    def remove(self, entry: Entry) -> None:
        """Forget a query."""
        self._place(entry.number).unlink(missing_ok=True)
        sync_directory(self.folder / "queries")

    def next_number(self, what: str) -> int:
        """A number that no query, or no group, ever had or will have."""
        path = self.folder / f"last-{what}.json"
        number = int(self._read(path)["last"]) + 1 if path.exists() else 1
        write_whole(path, {"last": number})
        return number

    def groups(self) -> dict[str, dict[str, Any]]:
        """What is known of each group."""
        found = {path: self._read(path) for path in sorted((self.folder / "groups").glob("*/group.json"))}
        for path, said in found.items():
            if not said.keys() >= _GROUP_SAYS:
                raise self._of_another_version(path)
        return {path.parent.name: said for path, said in found.items()}

    def write_group(self, group: str, said: dict[str, Any]) -> Path:
        """Make a group's folder, which is a group's once this file is in it."""
        place = self.folder / "groups" / group
        place.mkdir(parents=True, exist_ok=True)
        write_whole(place / "group.json", said)
        return place

    def delete_group(self, group: str) -> None:
        """Forget a group and all that it wrote; its own file goes first, so that what is left is nobody's."""
        place = self.folder / "groups" / group
        (place / "group.json").unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)

    def _place(self, number: int) -> Path:
        return self.folder / "queries" / f"{number:08d}.json"

    def _of_another_version(self, path: Path) -> ServerDamaged:
        return ServerDamaged(
            f"{path} was written by another version of Penstock.",
            why="It lacks what this version goes on from, or says what this one does not know.",
            do=f"Go on with the version that wrote {self.folder}; or begin anew: another folder = … in the pipeline's "
            "file, and other sinks.",
        )

    def _read(self, path: Path) -> dict[str, Any]:
        said = read_whole(path)
        if said is None:
            raise ServerDamaged(
                f"{path} is cut or changed.",
                why="It says what is registered.",
                do="Restore the folder from a copy; or, if this query is not needed, delete the file.",
            )
        return said
