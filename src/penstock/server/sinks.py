"""Results of queries carried to their sinks, batch by batch, each once.

A sink follows the committed results of a query's group. Parquet goes through the same ledger as everything that
Penstock writes, a Delta table keeps the last batch in its own log; so a sink knows itself how far it got, and a batch
that comes again after a crash finds that it is there.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import BadOption, UnknownQuery
from penstock.kernels.contract import RESULTS
from penstock.plan.pipeline.spec import Sink
from penstock.server.engine import Engine
from penstock.spark.files import read_whole, write_whole
from penstock.spark.sink import Ledger, StagedFile, told

log = logging.getLogger("penstock.server")
#: Rows of a batch that the console shows.
SHOWN = 20


class Target(Protocol):
    """Where batches go."""

    def position(self) -> int:
        """The last batch that is there; -1 if there is none."""

    def write(self, batch: int, rows: pa.Table) -> None:
        """Put a batch there, once."""


class ParquetTarget:
    """A folder of Parquet files with a ledger."""

    def __init__(self, place: Path, owner: str, schema: pa.Schema) -> None:
        self._ledger = Ledger(place, owner, schema)
        self._schema = schema
        # Queries of one server write to folders of their own. So one of it that has this and is not this query is gone,
        # or writes elsewhere now; what it never wrote to needs no other folder.
        if (self._ledger.holder() or "").startswith(f"{owner.partition('-')[0]}-"):
            self._ledger.release()
        self._ledger.claim()

    def position(self) -> int:
        """By the ledger."""
        return max(self._ledger.batches(), default=-1)

    def write(self, batch: int, rows: pa.Table) -> None:
        """A staged file, then the commit."""
        files = []
        if rows.num_rows:
            staged = StagedFile(self._ledger.place, batch, self._schema)
            for part in rows.to_batches():
                staged.add(part)
            files = [told(staged.close(RESULTS))]
        self._ledger.commit(batch, files)


class DeltaTarget:
    """A Delta table; its log says which batch was the last."""

    def __init__(self, place: Path, owner: str, schema: pa.Schema) -> None:
        try:
            import deltalake
        except ImportError:
            raise BadOption(
                "Delta tables need the package deltalake.", do='Install it: pip install "penstock[delta]".'
            ) from None
        self._delta = deltalake
        self._place = str(place)
        self._owner = owner
        if not deltalake.DeltaTable.is_deltatable(self._place):
            deltalake.DeltaTable.create(self._place, schema=schema)

    def position(self) -> int:
        """By the table's log."""
        found = self._delta.DeltaTable(self._place).transaction_version(self._owner)
        return -1 if found is None else int(found)

    def write(self, batch: int, rows: pa.Table) -> None:
        """Rows and position in one commit of the table."""
        done = self._delta.CommitProperties(app_transactions=[self._delta.Transaction(self._owner, batch)])
        self._delta.write_deltalake(self._place, rows, mode="append", commit_properties=done)


class ConsoleTarget:
    """Prints; remembers how far it got in a file, so that a restart goes on there."""

    def __init__(self, name: str, notes: Path, show: Any) -> None:
        self._name = name
        self._notes = notes
        self._show = show
        said = read_whole(notes) if notes.exists() else None
        self._position = int(said["batch"]) if said else -1

    def position(self) -> int:
        """As noted."""
        return self._position

    def write(self, batch: int, rows: pa.Table) -> None:
        """Show some rows, and say how many there were."""
        if rows.num_rows:
            self._show(self._name, batch, rows)
        self._notes.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._notes, {"batch": batch})
        self._position = batch


class Pump:
    """Carries the results of one query to its sink."""

    def __init__(self, engine: Engine, name: str, target: Target) -> None:
        self._engine = engine
        self.name = name
        self._target = target
        self._next: int | None = None
        self.error: BaseException | None = None
        self._again = 0.0

    def step(self) -> int:
        """Carry what is there; how many batches that were. What goes wrong is kept, and tried again later."""
        if time.monotonic() < self._again:
            return 0
        done = 0
        try:
            if self._next is None:
                self._next = self._target.position() + 1
                self._engine.carried(self.name, self._next - 1)
            for batch, rows in self._engine.batches(self.name, self._next):
                self._target.write(batch, rows)
                self._next = batch + 1
                self._engine.carried(self.name, batch)
                done += 1
            self.error = None
        except Exception as fault:
            self.error = fault
            with contextlib.suppress(UnknownQuery):
                self._engine.carried(self.name, None, fault)
            self._again = time.monotonic() + 5
            log.warning("the sink of %s: %s", self.name, fault)
        return done


def pumps(engine: Engine, sinks: Iterable[tuple[str, Sink]], show: Any) -> list[Pump]:
    """The pumps of queries with sinks; a sink that belongs to another query is refused here."""
    made = []
    for name, sink in sinks:
        owner, schema = engine.owner(name), engine.schema(name)
        target: Target
        if sink.format == "console" or sink.path is None:
            target = ConsoleTarget(name, engine.folder / "sinks" / f"{owner}.json", show)
        else:
            target = (ParquetTarget if sink.format == "parquet" else DeltaTarget)(sink.path, owner, schema)
        engine.carried(name, -1)  # until it is known, nothing is
        made.append(Pump(engine, name, target))
    return made
