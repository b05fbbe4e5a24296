"""A checkpoint directory before a query starts on it: whose it is, whether it is whole, and that nobody else runs on
it.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import IO

from penstock.errors import CheckpointDamaged, CheckpointInUse
from penstock.plan.base import STATE_FORMAT, Plan
from penstock.spark.files import read_whole, write_whole
from penstock.spark.host import check_identity

_RESTORE = "Restore the checkpoint directory from a copy, or start with a new one."


class Checkpoint:
    """A checkpoint held by this process until it is closed, or the process ends however it may."""

    def __init__(self, path: str, plan: Plan) -> None:
        self.path = Path(path).absolute()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        try:
            self.id = self._check_owner(plan)
            self._check_whole()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let others have it."""
        self._lock.close()

    def _take_lock(self) -> IO[str]:
        lock = (self.path / "penstock.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "another process"
            lock.close()
            raise CheckpointInUse(
                f"{self.path} is in use by {holder}.",
                why="Two queries on one checkpoint would each commit over the other.",
                do="Stop that process first, or give this query its own checkpoint directory.",
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        return lock

    def _check_owner(self, plan: Plan) -> str:
        path = self.path / "penstock.json"
        identity = dict(plan.identity())
        if not path.exists():
            if (self.path / "offsets").exists():
                raise CheckpointDamaged(
                    f"{path} is missing, and the checkpoint is not a new one.",
                    why="It says which plan the checkpoint belongs to; Flow.start writes it before anything runs.",
                    do=_RESTORE,
                )
            write_whole(path, {"format": STATE_FORMAT, "identity": identity, "id": uuid.uuid4().hex})
        said = read_whole(path)
        if said is None:
            raise CheckpointDamaged(f"{path} is cut or changed.", do=_RESTORE)
        check_identity(said["format"], said["identity"], identity)
        return str(said["id"])

    def _check_whole(self) -> None:
        """Spark's own files: a cut one must stop the query here and by name, not somewhere inside the JVM."""
        started = any((self.path / "offsets").glob("[0-9]*"))
        metadata = self.path / "metadata"
        if started and not metadata.exists():
            raise CheckpointDamaged(
                f"{metadata} is missing.",
                why="It holds the query's id; Spark would begin again as another query.",
                do=_RESTORE,
            )
        if metadata.exists():
            _require_json(metadata, metadata.read_text())
        for log in (self.path / "offsets", self.path / "commits", *(self.path / "sources").glob("*")):
            for entry in log.glob("[0-9]*") if log.is_dir() else ():
                version, _, body = entry.read_text().partition("\n")
                if not version.startswith("v") or not body:
                    raise CheckpointDamaged(f"{entry} is cut short.", do=_RESTORE)
                for line in body.splitlines():
                    if line != "-":
                        _require_json(entry, line)


def _require_json(path: Path, text: str) -> None:
    try:
        json.loads(text)
    except ValueError:
        raise CheckpointDamaged(f"{path} is cut short or changed.", do=_RESTORE) from None
