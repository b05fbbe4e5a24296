"""Which version of a table is the newest, and a table as of a version."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.errors import TableChanged, UnreadableTable
from penstock.tables import delta, files, find, folders, iceberg, manifest
from penstock.tables.base import Table


@dataclass(frozen=True)
class Versions:
    """The versions of the table at a path.

    Guarantees
        `newest` differs whenever the table does, and costs no more than a look at names, sizes and times.
        Where versions are `kept`, `load` gives the very version that is asked for, also after newer ones came.
    """

    path: str
    key: tuple[str, ...]

    @property
    def kept(self) -> bool:
        """Whether older versions can still be read: of Delta and Iceberg tables."""
        return delta.is_delta(Path(self.path)) or iceberg.is_iceberg(Path(self.path))

    def newest(self) -> str:
        """A short text that stands for the table as it is now."""
        where = Path(self.path)
        try:
            if delta.is_delta(where):
                return f"delta {delta.newest(where)}"
            if iceberg.is_iceberg(where):
                return f"iceberg {iceberg.newest(where)}"
            if manifest.is_prepared(where):
                return f"prepared {files.stamp(where / manifest.NAME)}"
            found = [(file.relative_to(where), files.stamp(file)) for file in folders.files_of(where)]
            return "files " + ", ".join(f"{name} {tuple(stamp)}" for name, stamp in found)
        except FileNotFoundError as gone:
            raise TableChanged(
                f"{gone.filename} is gone.",
                why="The table is being replaced, or was deleted.",
                do="Put it back and start again; nothing is lost.",
            ) from gone

    def load(self, version: str) -> Table:
        """The table as of a version; where older ones are not kept, as it is now."""
        kind, _, number = version.partition(" ")
        where = Path(self.path)
        if kind == "delta":
            return delta.plan(where, self.key, int(number))
        if kind == "iceberg":
            return iceberg.plan(where, self.key, int(number) or None)
        return find.table(self.path, key=self.key)


def check_same_columns(was: Table, now: Table) -> None:
    """Refuse a version with other columns than the one that the results were planned with."""
    if was.schema != now.schema:
        ours, theirs = ({field.name: str(field.type) for field in table.schema} for table in (was, now))
        differ = [f"{name!r} is gone" for name in ours if name not in theirs]
        differ += [f"{name!r} is new" for name in theirs if name not in ours]
        differ += [f"{n!r} is {theirs[n]} instead of {ours[n]}" for n in ours if theirs.get(n, ours[n]) != ours[n]]
        raise UnreadableTable(
            f"The new version of {was.path} has other columns: {'; '.join(differ) or 'they are in another order'}.",
            why="The results have the columns of the version that the query began with.",
            do="Write the table with the columns it had, or start a new query with a new checkpoint.",
        )
