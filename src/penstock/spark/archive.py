"""An archive: the directory to which a flow writes the rows that it sheds, read while the flow may still add to it.

The sink numbers its batches, and all files of a batch have their final names before the next one is committed. So how
far an archive was joined is one number, however many files it has: all batches up to that one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import ArchiveInUse, BadOption, SinkDamaged
from penstock.kernels.mesh.shedding import REASON
from penstock.plan.catch_up import split_reason
from penstock.spark.files import Held, read_whole, take_lock, write_whole
from penstock.spark.sink import Ledger, batch_of, staging
from penstock.tables import keys
from penstock.tables.places import place_of

if TYPE_CHECKING:
    import numpy.typing as npt

    Hashes = npt.NDArray[np.uint64]

#: Which hashes occur is kept as one bit for each of their first 27 bits: 16 MB, whatever the number of keys.
_BITS = 27
_PUT_BACK = "Put it back, or restore the archive from a copy. Nothing of this run was committed."


@dataclass(frozen=True)
class Portion:
    """Committed files of an archive: those of the batches after some batch, up to and with `through`."""

    through: int
    files: tuple[Path, ...]
    rows: int
    #: Rows of one more batch, which is committed but not yet in its place: the flow is at it, or was killed there.
    waiting: int
    #: The files of the last batch, by which the archive is known again.
    names: list[str]
    #: The stream's columns; None where there is no file.
    stream: pa.Schema | None


@dataclass(frozen=True)
class Survey:
    """What one look at the keys of a portion tells: the reasons of its rows, and which key hashes can occur in it."""

    reasons: dict[str, int]
    marks: bytes


@dataclass(frozen=True)
class Archive:
    """A directory that the channel `shed` of a flow is written to."""

    place: Path
    id: str

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Archive:
        """The archive at a path, or an error that says what is there instead."""
        place = place_of(path, "archive")
        owner = place / "_penstock" / "owner.json"
        if not owner.exists():
            raise BadOption(
                f"{place} is not an archive." if place.exists() else f"{place} does not exist.",
                why="A flow writes a ledger of what it committed into each of its directories.",
                do='Give the directory that the flow was started with: shed="…", or of two streams **ps.archive("…").',
            )
        said = read_whole(owner)
        if said is None:
            raise SinkDamaged(f"{owner} is cut or changed.", do="Restore the archive from a copy.")
        return cls(place, str(said["owner"]))

    def flow(self) -> dict[str, str]:
        """What the flow that writes here says of itself; nothing where its checkpoint is not to be seen."""
        known = (read_whole(self.place / "_penstock" / "owner.json") or {}).get("checkpoint")
        owner = Path(known) / "penstock.json" if known else None
        said = read_whole(owner) if owner is not None and owner.exists() else None
        return dict(said["identity"]) if said is not None and said["id"] == self.id else {}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other catch-ups away."""
        try:
            lock = take_lock(self.place / "_penstock" / "catch-up.lock")
        except Held as holder:
            raise ArchiveInUse(
                f"{self.place} is in use by another catch-up, {holder}.",
                why="Both would join the same rows.",
                do="Wait until it has ended; what it leaves, the next run takes.",
            ) from None
        except OSError as fault:
            raise BadOption(
                f"{self.place} cannot be written: {fault.strerror}.",
                why="A catch-up notes in the archive where its results go.",
                do="Run it as a user who may write there.",
            ) from fault
        with lock:
            yield

    def target(self, into: Path) -> Ledger:
        """The ledger of the directory where the results of this archive go: always the same one."""
        ledger = Ledger(into, f"catch-up of {self.id}")
        said = self._noted()
        if said is not None:
            here = said["into"] == str(into)
            moved = not Path(said["into"]).exists() and ledger.claimed() and bool(ledger.batches())
            lost = here and said["began"] and not ledger.batches()
            if lost or not (here or moved):
                raise BadOption(
                    f"The results of {self.place} are in {said['into']}, and {into} has none of them.",
                    why="Its rows would be joined once more, and be there twice.",
                    do=f"Give {said['into']} again (is it mounted?). To join the whole archive anew, "
                    f"delete that directory and {self._note}.",
                )
        ledger.claim()
        self.note(ledger)
        return ledger

    def note(self, ledger: Ledger) -> None:
        """Remember where the results are, and whether there are any: then a directory without them is another one."""
        now = {"into": str(ledger.place), "began": bool(ledger.batches())}
        if self._noted() != now:
            write_whole(self._note, now)

    @property
    def _note(self) -> Path:
        return self.place / "_penstock" / "catch-up.json"

    def _noted(self) -> dict[str, Any] | None:
        if not self._note.exists():
            return None
        said = read_whole(self._note)
        if said is None:
            raise SinkDamaged(f"{self._note} is cut or changed.", do="Restore the archive from a copy.")
        return said

    def check_same(self, through: int, names: list[str]) -> None:
        """Refuse an archive that was put back to an earlier state: what it gets next would be taken for done."""
        ledger = Ledger(self.place, self.id)
        batches = ledger.batches()
        with suppress(FileNotFoundError):
            if max(batches, default=-1) >= through and (
                through < batches[0] or names == _names(ledger.entry(through)["files"])
            ):
                return
            raise SinkDamaged(
                f"{self.place} is not the archive any more whose rows were joined up to batch {through}.",
                why="It was put back to an earlier state, so its rows may be others than those that were joined.",
                do="Restore the archive, its checkpoint and the results from the same copy.",
            )

    def portion(self, after: int) -> Portion:
        """All that is committed after a batch. Raises `SinkDamaged` if some of it is not there."""
        ledger = Ledger(self.place, self.id)
        kept = [number for number in ledger.batches() if number > after]
        through, waiting = after, 0
        committed: dict[int, dict[str, int]] = {}
        for number in kept:
            try:
                said = ledger.entry(number)
            except FileNotFoundError:  # dropped since, as the oldest of too many: its files are in their place
                through = number
                continue
            names = {file["name"]: int(file["bytes"]) for file in said["files"]}
            # The other way round a file could be missed that moves in between.
            if number == kept[-1] and any((staging(self.place) / name).exists() for name in names):
                waiting = sum(file["rows"] for file in said["files"])
                break
            committed[number], through = names, number
        found: dict[int, list[Path]] = {}
        for file in self._files():
            found.setdefault(_batch(file), []).append(file)
        for number, names in committed.items():
            self._check(number, names, {file.name: file for file in found.get(number, ())})
        files = [file for number in sorted(found) if after < number <= through for file in found[number]]
        rows, stream = self._described(files)
        return Portion(through, tuple(files), rows, waiting, sorted(committed.get(through, ())), stream)

    def _files(self) -> list[Path]:
        return sorted(file for file in self.place.glob("*.parquet") if not file.name.startswith(("_", ".")))

    def _check(self, number: int, names: dict[str, int], found: dict[str, Path]) -> None:
        if extra := [name for name in found if name not in names]:
            raise SinkDamaged(f"{found[extra[0]]} is not in the ledger of the archive.", do="Move it out of there.")
        for name, size in names.items():
            if name not in found:
                raise SinkDamaged(
                    f"{self.place / name} is missing.", why=f"Batch {number} was committed with it.", do=_PUT_BACK
                )
            if found[name].stat().st_size != size:
                raise SinkDamaged(f"{found[name]} is cut or changed.", why=f"It had {size:,} bytes.", do=_PUT_BACK)

    def _described(self, files: list[Path]) -> tuple[int, pa.Schema | None]:
        """How many rows the files have, and which columns of the stream."""
        rows, first = 0, None
        for file in files:
            try:
                with pq.ParquetFile(file) as opened:
                    schema, count = opened.schema_arrow.remove_metadata(), opened.metadata.num_rows
            except (OSError, pa.ArrowException) as fault:
                raise SinkDamaged(f"{file} cannot be read: {str(fault).splitlines()[0]}.", do=_PUT_BACK) from fault
            if first is not None and schema != first:
                raise SinkDamaged(f"{file} has other columns than the files before it.", do=_PUT_BACK)
            rows, first = rows + count, schema
        return rows, None if first is None else split_reason(first, str(self.place))


def _batch(file: Path) -> int:
    number = batch_of(file.name)
    if number is None:
        raise SinkDamaged(
            f"{file} was not written by the archive's flow.",
            why="Whether its rows are in the archive already, nobody can say.",
            do="Move it out of the archive.",
        )
    return number


def _names(files: list[dict[str, Any]]) -> list[str]:
    return sorted(file["name"] for file in files)


def survey(portion: Portion, on: tuple[str, ...]) -> Survey:
    """Read keys and reasons, a batch at a time."""
    reasons: Counter[str] = Counter()
    marks = np.zeros(1 << (_BITS - 3), np.uint8)
    columns = list(dict.fromkeys([*on, REASON]))
    for path in portion.files:
        try:
            with pq.ParquetFile(path, read_dictionary=[REASON]) as file:
                for batch in file.iter_batches(columns=columns):
                    for count in batch.column(REASON).value_counts().to_pylist():
                        reasons[count["values"] or "unknown"] += count["counts"]
                    byte, bit = _place(keys.hash_keys([batch.column(name) for name in on]))
                    np.bitwise_or.at(marks, byte, bit)
        except (OSError, pa.ArrowException) as fault:
            raise SinkDamaged(f"{path} cannot be read: {str(fault).splitlines()[0]}.", do=_PUT_BACK) from fault
    return Survey(dict(reasons.most_common()), marks.tobytes())


def marked(hashes: Hashes, marks: bytes) -> npt.NDArray[np.bool_]:
    """False for hashes that certainly do not occur."""
    byte, bit = _place(hashes)
    return (np.frombuffer(marks, np.uint8)[byte] & bit) != 0


def _place(hashes: Hashes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]:
    cut = hashes >> np.uint64(64 - _BITS)
    return (cut >> np.uint64(3)).astype(np.intp), np.left_shift(1, cut & np.uint64(7)).astype(np.uint8)
