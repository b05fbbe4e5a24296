"""A checkpoint directory before a query starts on it: whose it is, whether it is whole, and that nobody else runs on
it.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

from penstock.errors import BadOption, CheckpointDamaged, CheckpointInUse
from penstock.plan.base import STATE_FORMAT, Plan
from penstock.spark.files import Held, read_whole, take_lock, write_whole
from penstock.spark.host import check_identity
from penstock.spark.input_files import InputFiles
from penstock.spark.spark_files import (
    RESTORE,
    check_state,
    gap,
    missing,
    numbers,
    read_checked,
    read_json,
    read_log,
    remove_half_begun,
)
from penstock.tables.places import place_of

#: Whose a checkpoint is.
_OWNER = "penstock.json"
#: Which sources have logs.
_SOURCES = "penstock-sources.json"
#: Those that this process holds, or held last.
_held: WeakValueDictionary[Path, Checkpoint] = WeakValueDictionary()


class Checkpoint:
    """A checkpoint held by this process until it is closed, or the process ends however it may.

    One whose query has ended (`is_used`) is closed by whoever wants it next: perhaps nobody waited for that query.
    """

    def __init__(self, path: str, plan: Plan) -> None:
        self.is_used: Callable[[], bool] = lambda: True
        self._has_state = not plan.keeps_nothing
        self._closing = threading.Lock()
        self.path = place_of(path, "checkpoint")
        self.inputs = InputFiles(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
        except OSError as fault:
            raise BadOption(
                f"The checkpoint {self.path} cannot be written: {fault.strerror}.",
                do="Choose a directory that can be.",
            ) from fault
        try:
            self.id = self._check_owner(plan)
            self._check_whole()
        except BaseException:
            self.close()
            raise

    def committed(self) -> int:
        """The last micro-batch that Spark committed; -1 if there is none."""
        return max(numbers(self.path / "commits"), default=-1)

    def partitions(self) -> int | None:
        """The shuffle partitions that the query keeps; None before it first ran."""
        planned = numbers(self.path / "offsets")
        if not planned:
            return None
        said = json.loads(read_log(self.path / "offsets" / str(planned[-1]))[0])
        found = said.get("conf", {}).get("spark.sql.shuffle.partitions")
        return int(found) if found else None

    def note_sources(self) -> None:
        """Remember which sources have a log: one that is lost is told by that from a source that is read twice."""
        note = self.path / _SOURCES
        if not note.exists():
            write_whole(note, {"logs": self.inputs.logs()})

    def close(self) -> None:
        """Let others have it. One thread may stop a query while another waits for it, and both close."""
        with self._closing:
            self._lock.close()

    def planned(self) -> int:
        """The last micro-batch whose input is decided; -1 if there is none."""
        return max(numbers(self.path / "offsets"), default=-1)

    def _take_lock(self) -> IO[str]:
        try:
            lock = _take_lock(self.path)
        except Held as holder:
            raise CheckpointInUse(
                f"{self.path} is in use by {holder}.",
                why="Two queries on one checkpoint would each commit over the other.",
                do="Stop that process first, or give this query its own checkpoint directory.",
            ) from None
        _held[self.path] = self
        return lock

    def _check_owner(self, plan: Plan) -> str:
        path = self.path / _OWNER
        identity = dict(plan.identity())
        if not path.exists():
            if (self.path / "offsets").exists():
                raise CheckpointDamaged(
                    f"{path} is missing, and the checkpoint is not a new one.",
                    why="It says which plan the checkpoint belongs to; Flow.start writes it before anything runs.",
                    do=RESTORE,
                )
            write_whole(path, {"format": STATE_FORMAT, "identity": identity, "id": uuid.uuid4().hex})
        said = read_whole(path)
        if said is None:
            raise CheckpointDamaged(f"{path} is cut or changed.", do=RESTORE)
        check_identity(said["format"], said["identity"], identity)
        return str(said["id"])

    def _check_whole(self) -> None:
        """Spark's own files: a cut one must stop the query here and by name, not somewhere inside the JVM."""
        started = any((self.path / "offsets").glob("[0-9]*"))
        remove_half_begun(self.path)
        metadata = self.path / "metadata"
        if started and not metadata.exists():
            raise CheckpointDamaged(
                f"{metadata} is missing.",
                why="It holds the query's id; Spark would begin again as another query.",
                do=RESTORE,
            )
        if metadata.exists():
            read_json(metadata, read_checked(metadata))
        offsets, commits = self.path / "offsets", self.path / "commits"
        for log in (offsets, commits, *(self.path / "sources").glob("*")):
            for entry in log.glob("[0-9]*") if log.is_dir() else ():
                read_log(entry, least=2 if log == offsets else 1)
        self._check_order(numbers(offsets), numbers(commits))

    def _check_order(self, planned: list[int], committed: list[int]) -> None:
        """A log without one of its entries reads as a shorter log: Spark would plan again what was done."""
        last = max(planned[-1:] + committed[-1:], default=-1)
        if last >= 0 and (lost := gap(planned, planned[0] if planned else last, last)) is not None:
            raise missing(self.path / "offsets" / str(lost), "Spark would plan the batch again, with other rows.")
        if last < 0:
            return
        note = self.path / _SOURCES
        noted = read_whole(note) if note.exists() else {"logs": []}
        if noted is None:
            raise CheckpointDamaged(f"{note} is cut or changed.", do=RESTORE)
        for number in sorted({*noted["logs"]} - {*self.inputs.logs()}):
            raise missing(self.path / "sources" / str(number), "The files it lists would be read again.")
        for number, until in self.inputs.offsets(last)[0].items():
            log = self.path / "sources" / number
            # A compacted entry stands for itself and all before it.
            compacted = [int(entry.stem) for entry in log.glob("*.compact") if int(entry.stem) <= until]
            lost = gap(numbers(log), max(compacted, default=-1) + 1, until)
            if lost is not None:
                raise missing(log / str(lost), "The files it lists would be read again, and their rows twice.")
        partitions = self.partitions()
        if self._has_state and committed and partitions is not None:
            check_state(self.path / "state", planned[-1] + (planned[-1] in committed), partitions)


def is_left(path: Path, owner: str) -> bool:
    """Whether a checkpoint is not at this path any more, or nobody runs on it."""
    known = path / _OWNER
    said = read_whole(known) if known.exists() else {}
    if said is not None and said.get("id") != owner:
        return True
    try:
        _take_lock(path).close()
    except (Held, OSError):
        return False
    return True


def _take_lock(path: Path) -> IO[str]:
    before = _held.get(path)
    if before is not None and not before.is_used():
        before.close()
    return take_lock(path / "penstock.lock")


def begun_as(path: Path) -> dict[str, str]:
    """What the plan was that a checkpoint belongs to; nothing where there is none, or it cannot be read."""
    owner = path / _OWNER
    said = read_whole(owner) if owner.exists() else None
    return dict(said["identity"]) if said else {}
