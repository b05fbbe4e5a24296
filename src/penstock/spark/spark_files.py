"""Spark's own files in a checkpoint, looked at before a query starts: whole and complete, or refused by name.

Hadoop keeps checksums beside every file it writes on a local disk, and Spark looks at them when it reads, somewhere
inside a task. Here the file is named before anything runs. Without checksums (other file systems) Spark finds out.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from pathlib import Path

from penstock.errors import CheckpointDamaged

RESTORE = "Restore the checkpoint directory from a copy, or start with a new one."


def read_checked(path: Path) -> bytes:
    """A file, if it is there and agrees with the checksums beside it."""
    sums = path.with_name(f".{path.name}.crc")
    try:
        body = path.read_bytes()
    except FileNotFoundError:
        raise missing(path) from None
    if sums.exists():
        said = sums.read_bytes()
        each = int.from_bytes(said[4:8], "big")
        if said[:4] != b"crc\0" or each <= 0:
            raise damaged(sums)
        found = b"".join(zlib.crc32(body[at : at + each]).to_bytes(4, "big") for at in range(0, len(body), each))
        if said[8:] != found:
            raise damaged(path, "Its checksum differs.")
    return body


def read_log(entry: Path, least: int = 1) -> list[str]:
    """The lines of an entry in one of Spark's logs, all of them whole, after the one with the version."""
    try:
        version, *lines = read_checked(entry).decode().splitlines() or [""]
    except ValueError:
        raise damaged(entry) from None
    if not version.startswith("v") or len(lines) < least:
        raise damaged(entry)
    for line in lines:
        if line != "-":
            read_json(entry, line)
    return lines


def read_json(path: Path, text: str | bytes) -> object:
    """JSON from a file."""
    try:
        return json.loads(text)
    except ValueError:
        raise damaged(path) from None


def remove_half_begun(checkpoint: Path) -> None:
    """Remove what a kill left of the very first entry: Spark takes it for another query's, and would never begin."""
    offsets = checkpoint / "offsets"
    if not numbers(offsets):
        for half in offsets.glob(".*.tmp*"):
            half.unlink(missing_ok=True)


def numbers(log: Path) -> list[int]:
    """The micro-batches in one of Spark's logs, in order."""
    return sorted(int(entry.name) for entry in log.glob("[0-9]*") if entry.name.isdigit())


def gap(have: list[int], first: int, last: int) -> int | None:
    """The first number that is missing."""
    return min(set(range(first, last + 1)) - set(have), default=None)


def missing(path: Path, why: str = "") -> CheckpointDamaged:
    """The error for a file that should be there."""
    return CheckpointDamaged(f"{path} is missing.", why=why, do=RESTORE)


def damaged(path: Path, why: str = "") -> CheckpointDamaged:
    """The error for a file that is not what was written."""
    return CheckpointDamaged(f"{path} is cut short or changed.", why=why, do=RESTORE)


def check_state(root: Path, version: int, partitions: int) -> None:
    """Whether the state that a query would load now is all there: in each partition the newest snapshot up to the
    version and the changes since.
    """
    for operator in sorted(path for path in root.glob("[0-9]*") if path.is_dir()) or [root / "0"]:
        for partition in range(partitions):
            _check_store(operator / str(partition), version)


def _check_store(place: Path, version: int) -> None:
    names = [path.name for path in place.glob("[0-9]*.*")]
    if any("_" in name for name in names):
        return  # a newer layout, with ids in the names
    # Spark may still be asked to load the version before, when a batch is done again, but never an older one.
    snapshots = [int(name.partition(".")[0]) for name in names if name.endswith(".zip")]
    newest = max((number for number in snapshots if number <= version), default=0)
    for number in range(newest + 1, version + 1):
        read_checked(place / f"{number}.changelog")
    if newest:
        snapshot = place / f"{newest}.zip"
        for name in _files_of(snapshot, read_checked(snapshot)):
            read_checked(place / "SSTs" / name)


def _files_of(path: Path, body: bytes) -> list[str]:
    """The table files that a snapshot of RocksDB is made of."""
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            said = archive.read("metadata").decode().partition("\n")[2]
    except (zipfile.BadZipFile, KeyError, ValueError):
        raise damaged(path) from None
    content = read_json(path, said)
    files = content.get("sstFiles", []) if isinstance(content, dict) else []
    return [str(file["dfsSstFileName"]) for file in files]
