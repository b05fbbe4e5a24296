"""From a TOML file to a pipeline, or one error with every fault and its line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import BadOption, BadPipeline, UnknownColumn, UnreadableTable
from penstock.plan.pipeline.columns import (
    CSV_OPTIONS,
    as_spark_has_them,
    check_no_folder_columns,
    check_times,
    infer,
    written,
)
from penstock.plan.pipeline.data_files import check_all_read, ending, shown_files
from penstock.plan.pipeline.lines import Faults, parse
from penstock.plan.pipeline.lines import Path as Place
from penstock.plan.pipeline.spec import (
    FILES,
    FIXED_COLUMNS,
    FORMATS,
    RATES,
    RECORDS,
    SINKS,
    Pipeline,
    Query,
    Sink,
    Stream,
    TableFile,
)
from penstock.plan.units import parse_duration
from penstock.tables.find import local, table
from penstock.tables.places import place_of

#: A pipeline that runs until all input is read.
AVAILABLE_NOW = "available_now"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
#: Options of Spark's that would break what is promised of records that do not fit.
_OURS = {"mode", "columnnameofcorruptrecord", "enforceschema", "inferschema"}
_NEEDED = {
    "kafka": ("kafka.bootstrap.servers",),
    "socket": ("host", "port"),
    "rate": (),
    "rate-micro-batch": ("rowsPerBatch",),
}


def read_pipeline(path: str | os.PathLike[str]) -> tuple[Pipeline, Faults]:
    """The pipeline of a file as far as it is whole, and the faults in it; its queries' own faults come later.

    Raises `BadPipeline` where the file cannot be read at all.
    """
    try:
        where = local(path)
        if where.is_dir():
            where = local(where / "pipeline.toml")
    except UnreadableTable as missing:
        do = "Check the path, or let `penstock init` write a first one."
        raise BadPipeline(missing.what, why=missing.why, do=do) from None
    try:
        text = where.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise BadPipeline(f"{where} is not a text.", do="Give a pipeline's file: TOML, in UTF-8.") from None
    return _Reader(where, text).pipeline(parse(text, where.name))


class _Reader:
    """Reads one file; what is wrong goes to `faults`, and reading goes on."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.base = path.parent
        self.faults = Faults(path.name, text)

    def pipeline(self, said: dict[str, Any]) -> tuple[Pipeline, Faults]:
        self._known((), said, ("folder", "trigger", "cores", "streams", "tables", "queries"))
        folder = self._path(("folder",), said.get("folder", f"{self.path.stem}-run")) or self.base
        cores = said.get("cores", os.cpu_count() or 1)
        if not isinstance(cores, int) or isinstance(cores, bool) or not 1 <= cores <= 1024:
            self.faults.add(("cores",), BadOption(f"cores = {cores!r} is not a number of cores.", do="Give 1 or more."))
            cores = 1
        streams = self._each("streams", said, self._stream)
        tables = self._each("tables", said, self._table)
        # As texts of queries have them, names do not differ by their capitals alone.
        named: set[str] = set()
        for section, name in [("streams", name) for name in streams] + [("tables", name) for name in tables]:
            if name.lower() in named:
                fault = BadOption(f"There are two called {name!r}.", do="Give one of them another name.")
                self.faults.add((section, name), fault)
            named.add(name.lower())
        if not streams and not tables and not self.faults.found:
            self.faults.add((), BadOption("There is no stream.", do='Add one: [streams.orders] path = "orders/".'))
        queries = {
            name: query
            for name, spec in self._tables_of("queries", said).items()
            if (query := self._query(name, spec)) is not None
        }
        self._apart(folder, [*streams.values(), *tables.values()], queries)
        pipeline = Pipeline(self.path, folder, self._trigger(said), cores, streams, tables, queries, self.faults.text)
        return pipeline, self.faults

    def _apart(self, folder: Path, sources: Sequence[Stream | TableFile], queries: Mapping[str, Query]) -> None:
        """Nothing is written where something else is read or written: it would be read as input, or be deleted.

        A folder of Parquet belongs to one query: its ledger tells that query's batches apart, and no others.
        """
        read = {
            source.path: f"the input of {source.name}" for source in sources if source.path and source.path.is_dir()
        }
        self._writable(("folder",), folder, read)
        taken = {**read, folder: "the pipeline's own folder"}
        for name, query in queries.items():
            if query.sink.path is not None:
                self._writable(("queries", name, "sink"), query.sink.path, taken)
            if query.sink.path is not None and query.sink.format == "parquet":
                taken[query.sink.path] = f"the sink of {name}"

    def _writable(self, place: Place, path: Path, taken: Mapping[Path, str]) -> None:
        here = path.resolve()
        if path.exists() and not path.is_dir():
            self.faults.add(
                place, BadOption(f"{path} is not a folder.", do="Give a folder; it is made if it is not there.")
            )
        for other, what in taken.items():
            there = other.resolve()
            if here == there or there in here.parents or (here in there.parents and what.startswith("the sink")):
                said = "is" if here == there else "lies in" if there in here.parents else "holds"
                fault = BadOption(f"{path} {said} {what}.", do="Give each a folder of its own, side by side.")
                self.faults.add(place, fault)

    def _trigger(self, said: dict[str, Any]) -> str | None:
        given = said.get("trigger", "1 second")
        if given == AVAILABLE_NOW:
            return None
        self.faults.tried(("trigger",), lambda: parse_duration(given, option="trigger"))
        return str(given)

    # -- sections --------------------------------------------------------------------------------------------------

    def _tables_of(self, section: str, said: dict[str, Any]) -> dict[str, dict[str, Any]]:
        given = said.get(section, {})
        if not isinstance(given, dict):
            self.faults.add((section,), BadOption(f"{section} is not a table.", do=f"Write [{section}.some_name]."))
            return {}
        good = {}
        for name, spec in given.items():
            if not isinstance(spec, dict):
                self.faults.add(
                    (section, name), BadOption(f"{name} is not a table.", do=f"Write [{section}.some_name].")
                )
            elif not _NAME.fullmatch(name):
                self.faults.add(
                    (section, name),
                    BadOption(
                        f"{name!r} is not a name.", do="Letters, digits and underscores, a letter first; 63 at most."
                    ),
                )
            else:
                good[name] = spec
        return good

    def _each(self, section: str, said: dict[str, Any], read: Any) -> dict[str, Any]:
        made = {name: read((section, name), name, spec) for name, spec in self._tables_of(section, said).items()}
        return {name: value for name, value in made.items() if value is not None}

    def _stream(self, place: Place, name: str, said: dict[str, Any]) -> Stream | None:
        before = len(self.faults.found)
        self._known(
            place, said, ("path", "format", "columns", "time", "lateness", "key", "order", "deleted", "options")
        )
        format_ = self._format(place, said)
        options = self._options((*place, "options"), said.get("options", {}))
        path = None
        if format_ in FILES:
            path = self._existing(place, said)
        elif "path" in said and format_:
            self.faults.add((*place, "path"), BadOption(f"{format_} has no path.", do="Leave it out."))
        for needed in _NEEDED.get(format_ or "", ()):
            if needed not in options:
                self.faults.add(
                    place, BadOption(f"{format_} needs the option {needed!r}.", do="Give it: options = { … }.")
                )
        if format_ == "kafka" and not {"subscribe", "subscribePattern", "assign"} & options.keys():
            self.faults.add(
                place, BadOption("kafka needs the option 'subscribe'.", do="Name a topic: options = { … }.")
            )
        if path is not None:
            self.faults.tried((*place, "path"), lambda: check_all_read(path, options))
        columns = self._columns(place, said, format_, path, options)
        time = said.get("time")
        if columns is not None and time is not None and self._is_column((*place, "time"), time, columns, name):
            kind = columns.field(time).type
            if not pa.types.is_timestamp(kind):
                self.faults.add(
                    (*place, "time"),
                    BadOption(f"{time!r} is {kind}, not a timestamp.", do='Say so: columns = { … = "timestamp" }.'),
                )
        key = _names(said.get("key", ()))
        single = [(part, said[part]) for part in ("order", "deleted") if part in said]
        for part, column in [*(("key", column) for column in key), *single]:
            if columns is not None:
                self._is_column((*place, part), column, columns, name)
        late = said.get("lateness", "0 seconds")
        self.faults.tried((*place, "lateness"), lambda: parse_duration(late, option="lateness"))
        if columns is None or format_ is None or len(self.faults.found) > before:
            return None
        decoded = format_ in RECORDS and "columns" in said
        return Stream(
            name, format_, columns, path, time, late, key, said.get("order"), said.get("deleted"), decoded, options
        )

    def _table(self, place: Place, name: str, said: dict[str, Any]) -> TableFile | None:
        before = len(self.faults.found)
        self._known(place, said, ("path", "format", "key", "columns", "changes", "order", "options"))
        format_ = said.get("format") or _guess(said.get("path"), self.base) or "parquet"
        if format_ not in ("parquet", "csv", "delta", "iceberg"):
            do = "Give parquet, csv, delta or iceberg, or leave it out."
            self.faults.add((*place, "format"), BadOption(f"{format_!r} is not a format of a table.", do=do))
            return None
        path = self._existing(place, said)
        key = _names(said.get("key", ()))
        options = self._options((*place, "options"), said.get("options", {}))
        self._table_options((*place, "options"), options, CSV_OPTIONS if format_ == "csv" else ())
        columns = None
        if "columns" in said and format_ != "csv":
            self.faults.add((*place, "columns"), BadOption(f"{format_} has columns of its own.", do="Leave them out."))
        elif "columns" in said:
            columns = self._written((*place, "columns"), said["columns"])
        elif path is not None:
            columns = self.faults.tried((*place, "path"), lambda: _table_columns(path, format_, key, options))
        for column in key if columns is not None else ():
            self._is_column((*place, "key"), column, columns, name)
        if not isinstance(said.get("order", ""), str):  # of the changes, which may have columns of their own
            self.faults.add((*place, "order"), BadOption("order is not a name of a column.", do='Write order = "at".'))
        changes = self._path((*place, "changes"), said["changes"]) if "changes" in said else None
        if columns is None or path is None or len(self.faults.found) > before:
            return None
        return TableFile(name, path, format_, key, columns, changes, said.get("order"), options)

    def _table_options(self, place: Place, options: Mapping[str, str], known: Sequence[str]) -> None:
        """Refuse what nobody would look at: tables are read by Arrow and not by Spark."""
        for name in options:
            if name.lower() not in {one.lower() for one in known}:
                do = f"There are: {', '.join(known)}." if known else "Leave it out; tables in CSV alone have options."
                fault = BadOption(f"A table has no option {name!r} here.", why="It would be passed over.", do=do)
                self.faults.add((*place, name), fault)

    def _query(self, name: str, said: dict[str, Any]) -> Query | None:
        place = ("queries", name)
        sink = self._sink((*place, "sink"), said.get("sink", "console"))
        options = {key: value for key, value in said.items() if key not in ("sql", "operator", "sink")}
        if ("sql" in said) == ("operator" in said):
            what = "sql and operator" if "sql" in said else "neither sql nor operator"
            do = 'Give one of them: sql = "SELECT …", or operator = "join_table" with its options.'
            self.faults.add(place, BadOption(f"Query {name} has {what}.", do=do))
            return None
        if "sql" in said and options:
            for key in options:
                self.faults.add(
                    (*place, key), BadOption(f"A query as text has no option {key!r}.", do=_near(key, ("sql", "sink")))
                )
        if "sql" in said and not isinstance(said["sql"], str):
            self.faults.add((*place, "sql"), BadOption("sql is no text.", do='Write sql = """SELECT …""".'))
            return None
        return None if sink is None else Query(name, sink, said.get("sql"), said.get("operator"), options)

    def _sink(self, place: Place, said: Any) -> Sink | None:
        if isinstance(said, str):
            said = {"format": said} if said in SINKS else {"path": said}
        if not isinstance(said, dict):
            self.faults.add(place, BadOption("sink is neither a text nor a table.", do='Write sink = "console".'))
            return None
        self._known(place, said, ("format", "path"))
        format_ = said.get("format", "parquet")
        if format_ not in SINKS:
            do = f"Give one of: {', '.join(SINKS)}. {_near(format_, SINKS)}".rstrip()
            self.faults.add((*place, "format"), BadOption(f"There is no sink {format_!r}.", do=do))
            return None
        if (format_ == "console") == ("path" in said):
            do = "Leave path out." if format_ == "console" else 'Give a folder: sink = { path = "enriched/" }.'
            self.faults.add(
                place, BadOption(f"{format_} {'has no' if format_ == 'console' else 'needs a'} path.", do=do)
            )
            return None
        return Sink(format_, self._path((*place, "path"), said["path"]) if "path" in said else None)

    # -- values ----------------------------------------------------------------------------------------------------

    def _known(self, place: Place, said: Mapping[str, Any], names: Sequence[str]) -> None:
        for name in said:
            if name not in names:
                do = _near(name, names) or f"There are: {', '.join(names)}."
                self.faults.add((*place, name), BadOption(f"There is no {name!r} here.", do=do))

    def _format(self, place: Place, said: dict[str, Any]) -> str | None:
        format_ = said.get("format") or _guess(said.get("path"), self.base)
        if format_ in FORMATS:
            return str(format_)
        if not format_ and "path" in said and self._existing(place, said) is None:
            return None  # a path that is not there says nothing of a format
        what = f"{format_!r} is not a format of a stream." if format_ else "The format of the stream is not said."
        do = f"Give one of: {', '.join(FORMATS)}. {_near(format_ or '', FORMATS)}".rstrip()
        self.faults.add((*place, "format"), BadOption(what, do=do))
        return None

    def _columns(
        self, place: Place, said: dict[str, Any], format_: str | None, path: Path | None, options: Mapping[str, str]
    ) -> pa.Schema | None:
        given = said.get("columns")
        if given is not None:
            if format_ in RATES:
                do = f"Leave columns out; they are: {', '.join(FIXED_COLUMNS[format_].names)}."
                self.faults.add((*place, "columns"), BadOption(f"{format_} has columns of its own.", do=do))
                return None
            columns = self._written((*place, "columns"), given)
            if columns is not None and path is not None and format_ == "parquet":
                self.faults.tried((*place, "columns"), lambda: check_times(path, columns))
            return columns
        if format_ in FIXED_COLUMNS:
            return FIXED_COLUMNS[format_]
        if path is None or format_ is None:
            return None
        found = self.faults.tried(place, lambda: infer(path, format_, options))
        if found is not None and format_ == "parquet":
            self.faults.tried(place, lambda: check_times(path, found))
        return found

    def _written(self, place: Place, given: Any) -> pa.Schema | None:
        if not isinstance(given, dict) or not given:
            do = 'Write columns = { order_id = "long" }.'
            self.faults.add(place, BadOption("columns is not a list of names and types.", do=do))
            return None
        found = [self.faults.tried((*place, name), partial(written, {name: kind})) for name, kind in given.items()]
        good = [field for schema in found if schema is not None for field in schema]
        return pa.schema(good) if len(good) == len(given) else None

    def _is_column(self, place: Place, name: Any, columns: pa.Schema, where: str) -> bool:
        if isinstance(name, str) and name in columns.names:
            return True
        self.faults.add(place, UnknownColumn.among(str(name), columns.names, where))
        return False

    def _options(self, place: Place, said: Any) -> dict[str, str]:
        if not isinstance(said, dict):
            self.faults.add(
                place, BadOption("options is not a table.", do="Write options = { maxFilesPerTrigger = 1 }.")
            )
            return {}
        told: dict[str, str] = {}
        for name, value in _flat(said):
            if isinstance(value, bool | int | float | str):
                told[name] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                self.faults.add((*place, name), BadOption(f"{name} = {value!r} is not a value for an option of Spark."))
            if name.lower() in _OURS:
                why = "Records that do not fit are always set aside, whole, with their file."
                self.faults.add((*place, name), BadOption(f"There is no option {name!r}.", why=why, do="Leave it out."))
        return told

    def _existing(self, place: Place, said: dict[str, Any]) -> Path | None:
        if "path" not in said:
            self.faults.add(place, BadOption("There is no path.", do='Give one: path = "orders/".'))
            return None
        path = self._path((*place, "path"), said["path"])
        return None if path is None else self.faults.tried((*place, "path"), lambda: local(path))

    def _path(self, place: Place, said: Any) -> Path | None:
        if not isinstance(said, str) or not said or "\0" in said:
            self.faults.add(place, BadOption(f"{said!r} is not a path.", do='Give one in quotes: "orders/".'))
            return None
        if "://" in said:
            fault = UnreadableTable(f"{said} is not a local path.", do="Give a path on a local or mounted file system.")
            self.faults.add(place, fault)
            return None
        return self.faults.tried(place, lambda: place_of(self.base / os.path.expanduser(said), str(place[-1])))


def _table_columns(path: Path, format_: str, key: Sequence[str], options: Mapping[str, str]) -> pa.Schema:
    if format_ == "csv":
        check_no_folder_columns(path, format_)
    if format_ == "csv" or not key:
        return infer(path, "csv" if format_ == "csv" else "parquet", options)
    opened: pa.Schema = table(path, key=tuple(key)).schema
    return opened


def _flat(said: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Options with dots in their names, which TOML takes for tables."""
    found: list[tuple[str, Any]] = []
    for name, value in said.items():
        found += _flat(value, f"{before}{name}.") if isinstance(value, dict) else [(f"{before}{name}", value)]
    return found


def _guess(path: Any, base: Path) -> str | None:
    """The format of files by their names."""
    if not isinstance(path, str):
        return None
    place = base / os.path.expanduser(path)
    files = [place] if os.path.isfile(place) else shown_files(place) if os.path.isdir(place) else []
    found = {ending(file) for file in files}
    known = [format_ for format_ in FILES if f".{format_}" in found]
    return known[0] if len(known) == 1 else None


def _names(said: Any) -> tuple[str, ...]:
    return tuple(str(name) for name in said) if isinstance(said, list | tuple) else (str(said),)


def _near(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else ""


__all__ = ["AVAILABLE_NOW", "as_spark_has_them", "read_pipeline"]
