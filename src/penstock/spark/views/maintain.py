"""Brings changes of one table at a time into a view, and commits each step."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import KernelFault, PenstockError
from penstock.kernels.views.net import Netted, net_bag, net_keyed, one_form, operations
from penstock.plan.view import Changing, ViewPlan
from penstock.spark.views.delta import Deltas
from penstock.spark.views.groups import LOST, ROWS, SIGN
from penstock.spark.views.logs import Log, Waiting, in_chunks
from penstock.spark.views.lookup import first_rows, held_counts, held_rows
from penstock.spark.views.sessions import check_session, is_quick, own_session, quick_session
from penstock.spark.views.store import FORMAT, File, Manifest, Store, TableVersion
from penstock.spark.views.tidy import replacement, untidy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Refreshed:
    """What one step did."""

    table: str
    changes: int
    aside: int
    seconds: float
    #: Whether groups had to be computed anew from their rows.
    mended: bool


class Maintainer:
    """The view in a directory, and the changes that are to come into it. One thread at a time."""

    def __init__(
        self, spark: SparkSession, plan: ViewPlan, store: Store, tables: Mapping[str, Changing], logs: Mapping[str, Log]
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._store = store
        self._specs = tables
        self._logs = logs
        #: Columns that are kept of each table: a row with a key is known by it, and the view needs no others of it.
        self._kept = {name: _kept(plan, name) for name in plan.tables}
        self._deltas = Deltas(own_session(spark), plan.query, self._kept)
        self._quick = self._deltas.on(quick_session(spark))
        #: Answers are for those whose session it is.
        self._answers = self._deltas.on(spark)
        self.manifest: Manifest

    def open(self, last: Manifest | None, base: Mapping[str, Sequence[Path]]) -> None:
        """Go on from the last version, or make the first; groups of an older format are made anew from the tables."""
        if last is None:
            tables = {name: TableVersion(tuple(File.of(path) for path in paths)) for name, paths in base.items()}
            state = self._write(self._deltas.whole(tables), version=0)
            now = time.time()
            last = Manifest(0, now, tables, state, dict.fromkeys(self._logs, now))
            self._commit(last)
        elif last.format < FORMAT:
            # Of a version with faults that were mended since: what it left wrong in groups stays wrong by itself.
            state = self._write(self._deltas.whole(last.tables), last.version + 1)
            last = replace(last, version=last.version + 1, time=time.time(), state=state, format=FORMAT)
            self._commit(last)
        self.manifest = last

    def names(self, table: str) -> list[str]:
        """Changes of a table that are there, taken or not. May be asked from any thread."""
        return self._logs[table].names()

    def waiting(self, table: str) -> list[Waiting]:
        """Changes of a table that are still to be taken."""
        return self._logs[table].waiting(self.manifest.tables[table].taken)

    def peek(self, manifest: Manifest, table: str) -> list[Waiting]:
        """Changes of a table that a version lacks. May be asked from any thread."""
        return self._logs[table].peek(manifest.tables[table].taken)

    def tried(self, table: str, sizes: Sequence[int]) -> list[tuple[int, float]]:
        """How long a refresh with so many changes takes: done with rows of the table itself, and thrown away."""
        now, schema = self.manifest, self._kept[table]
        rows = first_rows(now.tables[table], schema, max(sizes))
        if not rows.num_rows:
            return [(1, 0.0)]
        found = []
        # The first run of a query is slow for once: it is done and not counted.
        for size in (sizes[0], *sorted({min(size, rows.num_rows) for size in sizes})):
            began = time.monotonic()
            some = rows.slice(0, size)
            keys = self._specs[table].keys
            if keys:
                held_rows(now.tables[table], some.select(keys), schema)
            else:
                held_counts(now.tables[table], some)
            # As an update of each to what it is: a second copy of them might be more than a sum can hold.
            part = self._store.write_part(table, signed(Netted(some, some, some)), now.version + 1)
            state = self._write(self._delta(now, table, part), now.version + 1)
            found.append((some.num_rows, time.monotonic() - began))
            Path(part.path).unlink()
            for folder in {Path(file.path).parent for file in state}:
                shutil.rmtree(folder)
        return found[1:]

    def advance(self, table: str, entries: Sequence[Waiting] | None = None) -> list[Refreshed]:
        """Bring waiting changes of a table into the view; all, or those given. Each step is a version."""
        chunks = in_chunks(self.waiting(table) if entries is None else entries)
        try:
            return [self._step(table, chunk) for chunk in chunks]
        except BaseException as fault:
            # It may be tried again and again, and would fill the disk with what it wrote each time.
            with contextlib.suppress(OSError, PenstockError):
                self._store.sweep(self.manifest)
            if not isinstance(fault, OSError):
                raise
            raise _not_refreshed(fault.strerror or str(fault), "Make room for it, or mend the file system.") from fault

    def answer(self, manifest: Manifest) -> DataFrame:
        """The rows of a version."""
        check_session(self._spark)
        return self._answers.answer(manifest.state)

    # -- one step ----------------------------------------------------------------------------------------------

    def _step(self, table: str, entries: Sequence[Waiting]) -> Refreshed:
        began = time.monotonic()
        now, before = self.manifest, self.manifest.tables[table]
        version = now.version + 1
        net = self._net(table, self._logs[table].read(entries), np.cumsum([entry.changes for entry in entries]))
        if net.aside.num_rows:
            self._store.write_part(table, net.aside, version, kind="aside")
        files: tuple[File, ...] = ()
        state, mended = now.state, False
        if net.added.num_rows or net.removed.num_rows:
            part = self._store.write_part(table, signed(net), version)
            state, mended = self._refreshed(now, table, part, version)
            files = (part,)
        # Rows that only entered are rows like those before the first change.
        grown = not net.removed.num_rows
        there = {*self._logs[table].names(), *self._store.streamed(table)}
        # Names of files that are gone cannot come up for reading again, and need not be remembered.
        names = (*(name for name in before.taken if name in there), *(entry.name for entry in entries))
        changes = sum(entry.changes for entry in entries)
        after = replace(
            before,
            base=before.base + files * grown,
            parts=before.parts + files * (not grown),
            taken=names,
            changes=before.changes + changes,
            aside=before.aside + net.aside.num_rows,
        )
        arrived = max((entry.arrived for entry in entries), default=now.fresh.get(table, now.time))
        self._commit(now.advanced(table, after, state, arrived))
        # What the version before has as well is not needed, should this one's manifest be damaged.
        self._logs[table].forget(before.taken)
        return Refreshed(table, changes, net.aside.num_rows, time.monotonic() - began, mended)

    def _net(self, table: str, changes: pa.Table, ends: npt.NDArray[np.int64]) -> Netted:
        spec, version = self._specs[table], self.manifest.tables[table]
        rows, codes = one_form(changes), operations(changes[spec.operation])
        if spec.keys:
            return net_keyed(rows, codes, spec.keys, lambda keys: held_rows(version, keys, self._kept[table]), ends)
        # What is set aside has its operation as well.
        columns = self._plan.tables[table].schema.names
        return net_bag(rows, codes, lambda wanted: held_counts(version, wanted), columns)

    def _refreshed(self, now: Manifest, table: str, part: File, version: int) -> tuple[tuple[File, ...], bool]:
        state = self._write(self._delta(now, table, part), version)
        if any(_statistic(file, ROWS, "min", 0) < 0 for file in state):
            raise KernelFault(
                f"A group of the view would have less than no rows after version {version}.",
                why="Changes were netted wrongly; nothing was committed.",
                do="Please report it. The view can be made again in a new directory.",
            )
        if not (self._deltas.can_lose() and any(_statistic(file, LOST, "max", False) for file in state)):
            return state, False
        table_now = now.tables[table]
        tables = {**now.tables, table: replace(table_now, parts=(*table_now.parts, part))}
        return self._write(self._deltas.mended(state, tables), version), True

    def _delta(self, now: Manifest, table: str, part: File) -> DataFrame:
        deltas = self._quick if is_quick(now, table, part) else self._deltas
        return deltas.refreshed(now.state, now.tables, table, part)

    def _write(self, frame: DataFrame, version: int) -> tuple[File, ...]:
        folder = self._store.new_state(version)
        try:
            frame.write.parquet(str(folder))
        except PenstockError:
            raise
        except Exception as fault:
            shutil.rmtree(folder, ignore_errors=True)
            # Spark's own line says no more than that a task failed, if that was the file system.
            full = "No space left on device"
            if full in str(fault):
                raise _not_refreshed(full, "Make room for it.") from fault
            do = (
                "If a value overflows: mend or undo the change, or make the view again in a new directory with a wider "
                "type in its SQL, as SUM(CAST(x AS DECIMAL(38, 0)))."
            )
            raise _not_refreshed(_first_line(fault), do) from fault
        return self._store.written(folder)

    def _commit(self, version: Manifest) -> None:
        """Make a version the last. It is not before it is durable: who is told that changes were taken removes them."""
        self._store.commit(version)
        self.manifest = version
        try:
            self._store.sweep(version)
        except OSError as fault:
            raise PenstockError(
                f"Files that no version of the view needs could not be removed: {fault}",
                why=f"Version {version.version} is there, with all its changes; but the directory grows.",
                do="Mend the file system. They are removed with the next version, or when the view is opened again.",
            ) from fault

    # -- keeping tables quick to read ----------------------------------------------------------------------------

    def untidy(self) -> list[str]:
        """Tables that have become slow to read."""
        return [name for name in self._logs if untidy(self.manifest.tables[name])]

    def tidy(self, table: str, guard: AbstractContextManager[Any]) -> float:
        """Make a table quick to read again, as a version of its own; the seconds that it took.

        Runs beside refreshes, from any thread: `guard`, which they hold, is held for a moment at the beginning and at
        the end. Refreshes only add files, and those that they add meanwhile stay.
        """
        began = time.monotonic()
        with guard:
            before = self.manifest
            self._store.hold(before.version)
        try:
            with self._store.scratch() as folder:
                consolidated = partial(self._deltas.consolidated, table)
                found = replacement(before.tables[table], self._kept[table], consolidated, folder)
                with guard:
                    now, version = self.manifest, self.manifest.tables[table]
                    base, parts = (self._store.adopt(table, new, now.version + 1) for new in (found.base, found.parts))
                    after = replace(
                        version,
                        base=(*(file for file in version.base if file not in found.gone), *base),
                        parts=(*(file for file in version.parts if file not in found.gone), *parts),
                    )
                    self._commit(now.advanced(table, after, now.state, now.fresh.get(table, now.time)))
        finally:
            self._store.release(before.version)
        return time.monotonic() - began


def _kept(plan: ViewPlan, table: str) -> pa.Schema:
    """Of a table with a key, the key and what the view uses; of others, everything, since rows are known by it."""
    schema, keys = plan.tables[table].schema, plan.tables[table].key
    sources = [number for number, source in enumerate(plan.query.sources) if source.table == table]
    used = {*keys, *(name for number in sources for name in plan.query.used(number))}
    return pa.schema([field for field in schema if field.name in used]) if keys else schema


def signed(net: Netted) -> pa.Table:
    """Rows that leave and enter, with their signs."""
    signs = np.repeat(np.array([-1, 1], np.int8), [net.removed.num_rows, net.added.num_rows])
    rows = pa.concat_tables([net.removed, net.added.select(net.removed.column_names).cast(net.removed.schema)])
    return rows.append_column(SIGN, pa.array(signs, pa.int8()))


def _statistic(file: File, column: str, which: str, empty: Any) -> Any:
    """The least or greatest value of a column of a small file, from its footer."""
    metadata = pq.read_metadata(file.path)
    place = metadata.schema.names.index(column) if column in metadata.schema.names else -1
    if place < 0 or not metadata.num_rows:
        return empty
    found = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
    if all(one is not None and one.has_min_max for one in found):
        return (min if which == "min" else max)(getattr(one, which) for one in found)
    values = pq.read_table(file.path, columns=[column])[column].to_pylist()
    return (min if which == "min" else max)((value for value in values if value is not None), default=empty)


def _not_refreshed(fault: str, do: str) -> PenstockError:
    why = "Nothing was committed; the last version is still there."
    return PenstockError(f"The view could not be refreshed: {fault}", why=why, do=do)


def _first_line(fault: BaseException) -> str:
    return next((line.strip() for line in str(fault).splitlines() if line.strip()), type(fault).__name__)
