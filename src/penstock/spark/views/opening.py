"""Opens a view: finds the session and the files of its tables, makes the plan, takes the directory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException

from penstock.errors import BadOption, PlanError, SessionNotReady, UnreadableTable
from penstock.plan.given import kind_of
from penstock.plan.view import Changing, TableSpec, ViewPlan, plain
from penstock.spark.failures import cause, in_short
from penstock.spark.schema import arrow_schema
from penstock.spark.views.logs import Log, follow
from penstock.spark.views.maintain import Maintainer
from penstock.spark.views.parquet import schema_of
from penstock.spark.views.service import Progress, Service
from penstock.spark.views.sessions import check_session
from penstock.spark.views.store import FILES_OF, Store, folder_name
from penstock.tables.find import plain_files
from penstock.tables.places import place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_TIME_ZONE = "spark.sql.session.timeZone"


@dataclass
class Opened:
    """A view that is open, with the streams that bring its changes."""

    plan: ViewPlan
    store: Store
    service: Service
    streams: dict[str, DataFrame]
    queries: dict[str, StreamingQuery]

    def follow(self, **trigger: Any) -> None:
        """Let the streams write to their logs; with `availableNow`, until they have nothing more.

        One that failed is begun again where it was, and those that are under way go on.
        """
        idle = [name for name in self.streams if name not in self.queries or not self.queries[name].isActive]
        log = self.store.place / "log"
        for name in idle:
            checkpoint = log / f".{folder_name(name)}-checkpoint"
            # Each is known as soon as it runs: should the next one be refused, it is stopped with the view.
            self.queries[name] = follow(self.streams[name], log / folder_name(name), checkpoint, trigger)
        if trigger.get("availableNow"):
            for name in idle:
                with contextlib.suppress(StreamingQueryException):  # raised below, as what it is
                    self.queries[name].awaitTermination()
            self.check_streams()

    def check_streams(self) -> None:
        """Raise what stopped a stream, if anything."""
        for fault in self._failed().values():
            raise fault

    def progress(self) -> Progress:
        """How the view is doing, with the streams that failed: of what they would bring nothing is known."""
        return self.service.progress({name: in_short(fault) for name, fault in self._failed().items()})

    def _failed(self) -> dict[str, BaseException]:
        faults = {name: query.exception() for name, query in self.queries.items()}
        return {name: cause(fault) for name, fault in faults.items() if fault is not None}

    def close(self) -> None:
        """Stop everything, and let others have the directory, whatever happens."""
        try:
            for query in self.queries.values():
                query.stop()
        finally:
            self.service.close()


def open_view(
    spark: SparkSession | None,
    sql: str,
    tables: Mapping[str, Any],
    place: str | os.PathLike[str],
    *,
    answer_within: str | timedelta,
    planner: str,
    reads_every: str | timedelta | None,
) -> Opened:
    """The view, with its first version made if there is none. Raises the first fault, before anything is computed
    wherever it can be found.
    """
    if not isinstance(sql, str):
        raise BadOption(f"The SQL of the view is {kind_of(sql)}.", do="Give a text: SELECT … FROM ….")
    if not isinstance(tables, Mapping):
        raise BadOption("tables= is not a mapping.", do='Give names and tables: tables={"orders": "orders/"}.')
    session = _session(spark, tables)
    specs = {name: table if isinstance(table, Changing) else Changing(table) for name, table in tables.items()}
    bases = {name: _base(name, spec.base) for name, spec in specs.items()}
    streams = {name: spec.changes for name, spec in specs.items() if _is_stream(spec.changes)}
    plan = ViewPlan.checked(
        sql,
        {name: _spec(bases[name][0], spec) for name, spec in specs.items()},
        answer_within=answer_within,
        planner=planner,
        reads_every=reads_every,
    )
    store = Store(place_of(place, "at"))
    logs = {
        name: Log(name, _log(name, spec, store), spec, bases[name][0], ours=name in streams)
        for name, spec in specs.items()
        if spec.changes is not None
    }
    for name, stream in streams.items():
        logs[name].check_columns(stream.columns, f"the stream of changes of {name}")
    given = {f"{FILES_OF}{n}": ", ".join(f.name for f in paths) for n, (_, paths) in bases.items() if paths is not None}
    last = store.open(plan.identity(str(session.conf.get(_TIME_ZONE))) | given)
    try:
        for name, table in last.tables.items() if last is not None else ():
            if name not in streams:
                _check_taken(name, store.streamed(name) - {*table.taken})
        maintainer = Maintainer(session, plan, store, specs, logs)
        files = {name: paths for name, (_, paths) in bases.items()} if last is None else {}
        for name, paths in files.items():
            if paths is None:  # rows that Spark has, and we do not
                with store.scratch() as folder:
                    specs[name].base.write.parquet(str(folder))
                    adopted = store.adopt(name, sorted(folder.glob("*.parquet")), 0)
                files[name] = [Path(file.path) for file in adopted]
        maintainer.open(last, {name: paths for name, paths in files.items() if paths is not None})
        service = Service(plan, store, maintainer)
        service.check_promise()
    except BaseException:
        store.close()
        raise
    return Opened(plan, store, service, streams, {})


def _session(spark: SparkSession | None, tables: Mapping[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    frames: list[Any] = [part for t in tables.values() for part in (getattr(t, "base", t), getattr(t, "changes", None))]
    owners = [frame.sparkSession for frame in frames if _is_frame(frame)]
    found = spark or (owners[0] if owners else SparkSession.getActiveSession())
    if found is None:
        raise SessionNotReady(
            "There is no Spark session.", why="The view's queries run on it.", do="Make one first: penstock.session()."
        )
    if not isinstance(found, SparkSession):
        raise BadOption(f"spark is {kind_of(found)}, and not a Spark session.", do="Give one: spark=ps.session().")
    check_session(found)
    return found


def _spec(schema: pa.Schema, given: Changing) -> TableSpec:
    changes = given.changes is not None
    return TableSpec(schema, given.keys, changes, given.operation if changes else "")


def _base(name: str, base: Any) -> tuple[pa.Schema, list[Path] | None]:
    if _is_stream(base):
        raise BadOption(
            f"{name} is a stream, and a view is over tables.",
            do="Give the rows before the first change as base, and the stream as changes: "
            'ps.Changing("orders/", changes=stream).',
        )
    if _is_frame(base):
        return plain(arrow_schema(base), name), None
    if not isinstance(base, (str, os.PathLike)):
        raise BadOption(
            f"{name} is a {type(base).__name__}, which is not a table.",
            do="Give a path of Parquet files, a DataFrame, or ps.Changing(…).",
        )
    path = place_of(base, name)
    files = plain_files(path) if path.exists() else []
    if not files:
        raise UnreadableTable(
            f"{name}: there are no Parquet files in {path}.",
            do="Give a Parquet file, or a directory of such files. An empty table is a file without rows.",
        )
    parted = next((file.parent for file in files if file != path and file.parent != path), None)
    if parted is not None:
        raise UnreadableTable(
            f"{name}: {path} is divided into folders such as {parted.name!r}.",
            why="Their names are columns that the files lack.",
            do="Give it as Spark reads it: spark.read.parquet(…).",
        )
    try:
        found = [schema_of(file) for file in files]
    except (OSError, pa.ArrowException) as fault:
        raise UnreadableTable(f"{name}: {path} cannot be read: {str(fault).splitlines()[0]}") from fault
    fine = [f.name for schema in found for f in schema if pa.types.is_timestamp(f.type) and f.type.unit == "ns"]
    if fine:
        raise UnreadableTable(
            f"{name}: {fine[0]} counts nanoseconds, and Spark reads no such files.",
            do='Write them with microseconds: coerce_timestamps="us" in pandas and pyarrow.',
        )
    schemas = [plain(schema, str(file)) for schema, file in zip(found, files, strict=True)]
    for file, schema in zip(files, schemas, strict=True):
        if schema != schemas[0]:
            raise UnreadableTable(f"{file} has other columns than {files[0]}.", do="Give a table whose files agree.")
    return schemas[0], files


def _log(name: str, spec: Changing, store: Store) -> Path:
    if _is_stream(spec.changes):
        return store.place / "log" / folder_name(name)
    if _is_frame(spec.changes):
        raise BadOption(
            f"The changes of {name} are a DataFrame without a stream.",
            do="Give a streaming DataFrame, or a directory of files of changes.",
        )
    if not isinstance(spec.changes, (str, os.PathLike)):
        raise BadOption(
            f"The changes of {name} are a {type(spec.changes).__name__}.",
            do="Give a streaming DataFrame, or a directory of files of changes.",
        )
    return place_of(spec.changes, f"changes of {name}")


def _check_taken(name: str, left: set[str]) -> None:
    """Refuse to go on without a stream that brought changes which are not in the view."""
    if left:
        raise PlanError(
            f"{len(left):,} micro-batches of the stream of changes of {name} are not in the view yet.",
            why="Without the stream they would never be.",
            do="Give the stream once more, and refresh the view; or make it again in a new directory.",
        )


def _is_frame(table: Any) -> bool:
    return hasattr(table, "sparkSession") and hasattr(table, "isStreaming")


def _is_stream(table: Any) -> bool:
    return _is_frame(table) and bool(table.isStreaming)
