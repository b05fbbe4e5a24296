"""The committed results of a group, batch by batch, as they lie in its folder.

A batch can be read as soon as its ledger entry and all files of it are there; both stay as they are for ever, so
whatever is read of a batch is the same at every reading, also after a crash.
"""

from __future__ import annotations

import bisect
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.files import read_whole, write_whole
from penstock.spark.sink import Ledger, batch_of


def last_committed(place: Path) -> int:
    """The last batch that a channel's folder says is committed; -1 if there is none."""
    return max(Ledger(place, "").batches(), default=-1)


def first_kept(place: Path) -> int:
    """The first batch of a channel's folder that was not deleted for want of room."""
    path = _trimmed(place)
    said = read_whole(path) if path.exists() else None
    return int(said["first"]) if said else 0


def _trimmed(place: Path) -> Path:
    return place / "_penstock" / "first.json"


class Committed:
    """One channel of a group. Batches are numbered from 0, without a gap."""

    def __init__(self, place: Path, schema: pa.Schema) -> None:
        self.place = place
        self.schema = schema
        self._ledger = Ledger(place, "")
        self._files: dict[int, list[str]] = {}
        self._sizes: dict[int, int] = {}
        #: Batches with rows, in order.
        self._numbers: list[int] = []
        self._lock = threading.Lock()
        #: The first batch that is kept.
        self.first = 0
        self.last = -1
        self._open()

    def _open(self) -> None:
        """What is there when a server starts."""
        self._scan()
        self.first = first_kept(self.place)
        for number in [n for n in self._numbers if n < self.first]:
            self._delete(number)  # a crash came between
        self.look()

    def _scan(self) -> None:
        """Take up what was committed after `last`, by the files alone: old entries of the ledger are not kept."""
        entries = self._ledger.batches()  # before the files: what is committed meanwhile comes with the next look
        found: dict[int, list[str]] = {}
        for path in self.place.glob("part-*.parquet"):
            number = batch_of(path.name)
            if number is not None and number > self.last:
                found.setdefault(number, []).append(path.name)
        for number in sorted(found):
            self._add(number, sorted(found[number]), sum((self.place / name).stat().st_size for name in found[number]))
        # All but the newest are whole; that one may have files that wait to be moved.
        self.last = max(self.last, entries[-1] - 1 if entries else -1)

    def _add(self, number: int, names: list[str], size: int) -> None:
        if number not in self._files:
            bisect.insort(self._numbers, number)
        self._files[number] = names
        self._sizes[number] = size

    def _delete(self, number: int) -> None:
        self._numbers.remove(number)
        for name in self._files.pop(number):
            (self.place / name).unlink(missing_ok=True)
        self._sizes.pop(number, None)

    def look(self) -> int:
        """The last batch that is there, after a look for new ones."""
        with self._lock:
            while True:
                try:
                    entry = self._ledger.entry(self.last + 1)
                except FileNotFoundError:
                    if not self._left_behind():
                        return self.last
                    self._scan()
                    continue
                names = sorted(file["name"] for file in entry["files"] if file["rows"])
                if not all((self.place / name).exists() for name in names):
                    return self.last
                self.last += 1
                if names:
                    self._add(self.last, names, sum(file["bytes"] for file in entry["files"]))

    def _left_behind(self) -> bool:
        """Whether so many batches were committed since the last look that the next one's entry is gone already."""
        if self.last >= 0 and self._ledger.has(self.last):
            return False  # entries are kept without a gap, so there is none after it
        return max(self._ledger.batches(), default=-1) > self.last

    def following(self, batch: int) -> int | None:
        """The first batch with rows from `batch` on, if there is one."""
        with self._lock:
            place = bisect.bisect_left(self._numbers, batch)
            found = self._numbers[place] if place < len(self._numbers) else None
            return found if found is not None and found <= self.last else None

    def newest(self) -> int | None:
        """The last batch with rows."""
        with self._lock:
            place = bisect.bisect_right(self._numbers, self.last)
            return self._numbers[place - 1] if place else None

    def read(self, batch: int) -> pa.Table:
        """All rows of a batch, in an order that does not change."""
        with self._lock:
            names = list(self._files.get(batch, ())) if batch <= self.last else []
        parts = [pq.read_table(self.place / name, schema=self.schema) for name in names]
        return pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks()

    def trim(self, kept: int, before: int) -> int:
        """Delete the oldest batches, none from `before` on, until `kept` bytes are left; how many went."""
        with self._lock:
            total, going = sum(self._sizes.values()), []
            for number in self._numbers:
                if total <= kept or number >= before:
                    break
                total -= self._sizes[number]
                going.append(number)
            if going:
                # First what is no longer there, then the deed: who is told of a batch finds it.
                self.first = going[-1] + 1
                write_whole(_trimmed(self.place), {"first": self.first})
                for number in going:
                    self._delete(number)
            return len(going)
