"""The files of a plain Parquet table, and the columns whose values are in the names of their folders (as Hive has it).

`products/region=eu/day=2026-02-01/a.parquet` has the columns `region` and `day` beside those of the file, for all
of its rows. Names and values are percent-encoded where they have to be.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from penstock.errors import UnreadableTable

#: The name of a folder without a value.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

Values = tuple[tuple[str, Any], ...]


class Found(NamedTuple):
    """Files in the order of their paths, each with the values of its folders; and the columns of these."""

    files: list[tuple[Path, Values]]
    columns: pa.Schema


def find(root: Path) -> Found:
    """What is at a path: a file, or a directory of files or of folders of them."""
    texts = [(file, _texts(file, root)) for file in files_of(root)]
    names = [name for name, _ in texts[0][1]] if texts else []
    for file, own in texts:
        if [name for name, _ in own] != names or len(set(names)) != len(names):
            raise UnreadableTable(
                f"{root} does not have the same partitions throughout.",
                why=f"{texts[0][0].relative_to(root)} and {file.relative_to(root)} are not in folders of the same "
                "columns, each once."
                if file != texts[0][0]
                else f"{file.relative_to(root)} is in two folders of one column.",
                do="Put all files equally deep, into folders column=value of the same columns in the same order.",
            )
    columns = pa.schema([(name, kind_of([own[at][1] for _, own in texts])) for at, name in enumerate(names)])
    typed = [(file, tuple((name, _typed(text, columns.field(name).type)) for name, text in own)) for file, own in texts]
    return Found(typed, columns)


def files_of(root: Path) -> list[Path]:
    """The files of a table; names that begin with '_' or '.' are none of it."""
    return list(_below(root)) if root.is_dir() else [_plain(root)]


def _below(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        parted = "=" in entry.name and entry.is_dir()
        if entry.name.startswith(".") or (entry.name.startswith("_") and not parted):
            continue
        if parted:
            yield from _below(entry)
        elif entry.is_dir():
            raise UnreadableTable(
                f"{folder} has the subdirectory {entry.name!r}.",
                why="Only files and partitions (column=value) are read, and leaving some out would lose rows.",
                do="Write the table into one directory, or into partitions; or name the directory that has the files.",
            )
        else:
            yield _plain(entry)


def _plain(path: Path) -> Path:
    # To open a pipe would be to wait for somebody who writes to it.
    if path.exists() and not path.is_file():
        raise UnreadableTable(
            f"{path} is not a plain file.",
            why="A pipe, a socket or a device cannot be read as Parquet.",
            do="Move it away, or write the rows into a Parquet file first.",
        )
    return path


def _texts(file: Path, root: Path) -> list[tuple[str, str | None]]:
    pairs = [folder.split("=", 1) for folder in file.relative_to(root).parts[:-1]]
    return [(_decoded(name, file), None if value == NO_VALUE else _decoded(value, file)) for name, value in pairs]


def _decoded(text: str, file: Path) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UnreadableTable(
            f"{file} is in a folder whose name is not UTF-8: {text!r}.", do="Rename the folder."
        ) from None


def kind_of(texts: Sequence[str | None]) -> pa.DataType:
    """Whole numbers if all are such, or dates; otherwise texts.

    >>> kind_of(["01", None, "2"]), kind_of(["2026-02-28", "2026-02-01"]), kind_of(["2026-02-30"]), kind_of([None])
    (DataType(int64), DataType(date32[day]), DataType(string), DataType(string))
    """
    given = [text for text in texts if text is not None]
    for kind in (pa.int64(), pa.date32()) if given else ():
        if all(_fits(text, kind) for text in given):
            return kind
    return pa.string()


def _fits(text: str, kind: pa.DataType) -> bool:
    if kind == pa.int64():
        return _WHOLE.fullmatch(text) is not None and -(1 << 63) <= int(text) < 1 << 63
    try:
        return _DAY.fullmatch(text) is not None and dt.date.fromisoformat(text) is not None
    except ValueError:
        return False


def _typed(text: str | None, kind: pa.DataType) -> Any:
    if text is None or kind == pa.string():
        return text
    return int(text) if kind == pa.int64() else dt.date.fromisoformat(text)
