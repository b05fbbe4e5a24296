"""What a prepared table says of itself: `manifest.json`, written last and never changed.

::

    {"penstock_table": 1, "digest": sha256 of content, "stamps": {file: modification time}, "content": {
        "schema": Arrow IPC schema in base64, "key": [...], "nullable": [...], "source": version of the source,
        "files": {file: size}, "pages": {"rows": [...], "lo": [...], ...}}}

The digest is the table's version. Stamps are outside it: the same table copied elsewhere is the same version.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.errors import UnreadableTable

NAME = "manifest.json"
HASHES = "hashes.bin"
FORMAT = 1
_MAGIC = b'{"penstock_table":'


class Spot(NamedTuple):
    """One page: how many rows, the first and last hash, where its rows lie, and checksums (CRC-32).

    Its section of `size` bytes begins at `offset` of the rows file with number `file`: records, heap, slack, and at the
    end `nested` bytes of Arrow IPC. Hashes of all pages follow each other in `hashes.bin`.
    """

    rows: int
    lo: int
    hi: int
    file: int
    offset: int
    size: int
    heap: int
    nested: int
    hash_crc: int
    rows_crc: int


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest."""

    schema: pa.Schema
    key: tuple[str, ...]
    #: Columns with a NULL somewhere.
    nullable: tuple[str, ...]
    #: The version of the table it was prepared from.
    source: str
    sizes: Mapping[str, int]
    spots: tuple[Spot, ...]

    def content(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "key": list(self.key),
            "nullable": list(self.nullable),
            "source": self.source,
            "files": dict(self.sizes),
            "pages": {name: [spot[place] for spot in self.spots] for place, name in enumerate(Spot._fields)},
        }

    def digest(self) -> str:
        """The version of the table."""
        return _digest(self.content())

    def dump(self, stamps: Mapping[str, int]) -> str:
        """The text of the file."""
        content = self.content()
        whole = {"penstock_table": FORMAT, "digest": _digest(content), "stamps": dict(stamps), "content": content}
        return json.dumps(whole, separators=(",", ":"))


def rows_file(number: int) -> str:
    """The name of a file with rows."""
    return f"rows-{number:05}.bin"


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]


def is_prepared(path: Path) -> bool:
    """Whether a directory claims to hold a prepared table; other tools have files named so too."""
    file = path / NAME
    if not file.is_file():
        return False
    with open(file, "rb") as start:
        return start.read(len(_MAGIC)) == _MAGIC or (path / HASHES).is_file()


def load(path: Path) -> tuple[Manifest, str, dict[str, int]]:
    """The manifest of the table in this directory, its digest and its stamps. Raises `UnreadableTable`."""
    file = path / NAME
    try:
        whole = json.loads(file.read_bytes())
        version = whole["penstock_table"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(file, f"{type(error).__name__}: {error}") from error
    if version != FORMAT:
        raise UnreadableTable(
            f"{file} has format {version}, and this Penstock reads format {FORMAT}.",
            do="Prepare the table again with this version, or use the version that wrote it.",
        )
    try:
        content = whole["content"]
        if _digest(content) != whole["digest"]:
            raise ValueError("its checksum does not fit")
        columns = [content["pages"][name] for name in Spot._fields]
        manifest = Manifest(
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(content["schema"]))),
            tuple(content["key"]),
            tuple(content["nullable"]),
            content["source"],
            content["files"],
            tuple(Spot(*values) for values in zip(*columns, strict=True)),
        )
        return manifest, whole["digest"], whole["stamps"]
    except (ValueError, TypeError, KeyError, pa.ArrowException) as error:
        raise _damaged(file, str(error)) from error


def _damaged(file: Path, how: str) -> UnreadableTable:
    return UnreadableTable(
        f"{file} is damaged: {how}.",
        why="Without it nothing in the directory can be trusted.",
        do="Put the file back from a copy, or prepare the table again.",
    )
