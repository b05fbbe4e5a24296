"""The files at a path: which of them are a stream's or a table's, and in which format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import UnreadableTable

#: Endings of packed files, which Spark and Arrow unpack by them, and other endings of a format.
_PACKED = (".gz", ".bz2", ".zst")
_ENDINGS = {".jsonl": ".json", ".ndjson": ".json"}
#: Spark's option to read the files of all folders.
RECURSIVE = "recursiveFileLookup"


def ending(file: Path) -> str:
    """The format's ending of a file's name, packed or not.

    >>> ending(Path("a/ORDERS.CSV.gz")), ending(Path("log.2024.jsonl")), ending(Path("part-0.snappy.parquet"))
    ('.csv', '.json', '.parquet')
    """
    name = file.name.lower()
    bare = Path(next((name.removesuffix(packed) for packed in _PACKED if name.endswith(packed)), name)).suffix
    return _ENDINGS.get(bare, bare)


def data_files(path: Path, suffix: str) -> list[Path]:
    """The files of a format at a path, which is one of them or a folder, as Spark would read them: oldest first.

    Of a folder, without those that are empty: they have no rows, and do not say which columns they would have.
    """
    if path.is_file():
        return [path]
    there = shown_files(path)
    found = [file for file in there if ending(file) == suffix]
    # A text source reads every file of its folder, whatever it is called.
    if not found and suffix != ".parquet":
        found = [file for file in there if file.parent == path]
    return sorted((f for f in found if f.stat().st_size), key=lambda f: (f.stat().st_mtime_ns, f.name))


def shown_files(path: Path) -> list[Path]:
    """The files of a folder and of those in it, without what is hidden, as Spark has it: `.git/`, `_temporary/`."""
    found = []
    for folder, inside, names in os.walk(path, onerror=_refuse):
        inside[:] = [name for name in inside if not _is_hidden(name)]
        found += [Path(folder, name) for name in names if not _is_hidden(name)]
    return [file for file in found if file.is_file()]


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _refuse(fault: OSError) -> None:
    raise fault


def passed_over(path: Path) -> list[Path]:
    """The files of a stream that Spark does not read by itself: those in folders whose names say no value."""
    found = shown_files(path) if path.is_dir() else []
    return [file for file in found if file.parent != path and "=" not in str(file.parent.relative_to(path))]


def is_recursive(options: Mapping[str, str]) -> bool:
    """Whether Spark is told to read the files of all folders, and none as the value of a column."""
    return any(name.lower() == RECURSIVE.lower() and value == "true" for name, value in options.items())


def check_all_read(path: Path, options: Mapping[str, str]) -> None:
    """Refuse a stream with files that nobody would read."""
    unread = [] if is_recursive(options) else passed_over(path)
    if unread:
        raise UnreadableTable(
            f"{path} has files in the folder {str(unread[0].parent.relative_to(path))!r}.",
            why="Only files and partitions (column=value) are read, and leaving some out would lose rows.",
            do=f"Read those of all folders: options = {{ {RECURSIVE} = true }}; or keep them elsewhere.",
        )
