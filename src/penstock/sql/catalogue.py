"""What the text of a query may name: streams, tables, and functions that a program registered."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import BadOption, UnknownColumn, UnknownTable
from penstock.plan.units import parse_duration
from penstock.tables.base import Table
from penstock.tables.find import table


@dataclass(frozen=True)
class Stream:
    """A stream as queries know it.

    `event_time` is its column of event times; a row may come `lateness` (microseconds) after later ones. For aggregates
    over ranges the stream is a table's updates: `key` tells rows of that table apart, `order` (the event time, if not
    given) grows with every update of a row, and `deleted` is a column that is true where a row goes.
    """

    name: str
    schema: pa.Schema
    event_time: str | None = None
    lateness: int = 0
    key: tuple[str, ...] = ()
    order: str | None = None
    deleted: str | None = None

    @classmethod
    def of(
        cls,
        name: str,
        schema: pa.Schema,
        *,
        event_time: str | None = None,
        lateness: str | timedelta = "0 seconds",
        key: str | Iterable[str] = (),
        order: str | None = None,
        deleted: str | None = None,
    ) -> Stream:
        """A stream as people describe it, checked.

        >>> Stream.of("quotes", pa.schema([("at", pa.timestamp("us"))]), event_time="at", lateness="1 s").lateness
        1000000
        """
        keys = _names(key)
        for column in (event_time, order, deleted, *keys):
            if column is not None and column not in schema.names:
                raise UnknownColumn.among(column, schema.names, f"The stream {name!r}")
        if event_time is not None and not pa.types.is_timestamp(schema.field(event_time).type):
            raise BadOption(
                f"The event time {event_time!r} of {name!r} is {schema.field(event_time).type} and not a timestamp.",
                do=f"Make one of it: .withColumn({event_time!r}, col({event_time!r}).cast('timestamp')).",
            )
        late = parse_duration(lateness, option="lateness")
        return cls(name, schema, event_time, late, keys, order or event_time, deleted)


@dataclass(frozen=True)
class Relation:
    """A table as queries know it: where it lies, or an opened one. `changes` says whether views see it change."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...] = ()
    path: str | None = None
    table: Table | None = field(default=None, repr=False)
    changes: bool = False

    @classmethod
    def of(cls, name: str, given: str | os.PathLike[str] | Table, *, key: str | Iterable[str] = ()) -> Relation:
        """A table that was opened (`ps.table`), or the path of one, which is then looked at."""
        if isinstance(given, Table):
            return cls(name, given.schema, given.key, given.path, given)
        keys = _names(key)
        found = table(given, key=keys) if keys else _any_key(given)
        return cls(name, found.schema, keys, found.path, found if keys else None)

    def opened(self, key: tuple[str, ...]) -> Table:
        """The table, to be joined by `key`."""
        if self.table is not None and self.table.key == key:
            return self.table
        if self.path is None:
            raise BadOption(
                f"{self.name!r} is not a table in files.",
                why="A join with a table reads its pages from Parquet, Delta, Iceberg or prepared files.",
                do=f'Give its path, or ps.table("…", key={list(key)}).',
            )
        return table(self.path, key=key)


@dataclass(frozen=True)
class Function:
    """A function that a program registered: of Arrow arrays of equal length, giving another of type `returns`."""

    name: str
    apply: Callable[..., Any] = field(repr=False)
    returns: pa.DataType


@dataclass(frozen=True)
class Catalogue:
    """Everything that a text may name. Letter case does not tell names apart.

    `archives` is the directory below which ARCHIVE may name places; None lets it name any.
    """

    streams: Mapping[str, Stream] = field(default_factory=dict)
    relations: Mapping[str, Relation] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    archives: str | None = None

    def __post_init__(self) -> None:
        names = [name.lower() for name in (*self.streams, *self.relations)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadOption(f"{twice!r} is there twice.", do="Give each stream and table a name of its own.")
        every: list[Stream | Relation] = [*self.streams.values(), *self.relations.values()]
        for one in every:
            columns = [column.lower() for column in one.schema.names]
            double = next((column for column in columns if columns.count(column) > 1), None)
            if double is not None:
                raise BadOption(
                    f"{one.name!r} has two columns {double!r}.",
                    why="Letter case does not tell columns apart.",
                    do="Rename one.",
                )

    @classmethod
    def of(
        cls,
        streams: Mapping[str, Stream | pa.Schema] | None = None,
        tables: Mapping[str, Relation | Table | str | os.PathLike[str]] | None = None,
        functions: Mapping[str, Function] | None = None,
        archives: str | None = None,
    ) -> Catalogue:
        """From dictionaries: schemas or streams, and tables as they were opened or where they lie.

        >>> Catalogue.of({"a": pa.schema([("k", pa.int64())])}).stream("A").schema.names
        ['k']
        """
        named = {
            name: replace(given, name=name) if isinstance(given, Stream) else Stream(name, given)
            for name, given in (streams or {}).items()
        }
        relations = {
            name: replace(given, name=name) if isinstance(given, Relation) else Relation.of(name, given)
            for name, given in (tables or {}).items()
        }
        return cls(named, relations, dict(functions or {}), archives)

    @property
    def names(self) -> tuple[str, ...]:
        """All streams and tables."""
        return (*self.streams, *self.relations)

    @property
    def schemas(self) -> dict[str, pa.Schema]:
        """The columns of each of them."""
        return {name: self.source(name).schema for name in self.names}

    def source(self, name: str) -> Stream | Relation:
        """The stream or table of this name. Raises `UnknownTable`, which lists what there is."""
        found = {known.lower(): known for known in self.names}.get(name.lower())
        if found is None:
            raise UnknownTable.among(name, self.names, "The catalogue")
        return self.streams[found] if found in self.streams else self.relations[found]

    def stream(self, name: str) -> Stream:
        """The stream of this name."""
        found = self.source(name)
        if not isinstance(found, Stream):
            raise UnknownTable(f"{name!r} is a table, not a stream.", why=f"Streams are: {', '.join(self.streams)}.")
        return found

    def relation(self, name: str) -> Relation:
        """The table of this name."""
        found = self.source(name)
        if not isinstance(found, Relation):
            raise UnknownTable(f"{name!r} is a stream, not a table.", why=f"Tables are: {', '.join(self.relations)}.")
        return found

    def function(self, name: str) -> Function | None:
        """A registered function, or None."""
        return {known.lower(): function for known, function in self.functions.items()}.get(name.lower())

    def archive(self, place: str) -> str:
        """The absolute path of an archive that a text names; below `archives`, if that is given."""
        if self.archives is None:
            return str(Path(place).expanduser().absolute())
        root = Path(self.archives).resolve()
        found = (root / place).resolve()
        if "\0" in place or root not in found.parents:
            raise BadOption(
                f"{place!r} does not lie below the directory of archives.", do="Give a relative path: ARCHIVE 'orders'."
            )
        return str(found)


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _any_key(path: str | os.PathLike[str]) -> Table:
    """The table, by the first of its columns that can be a key: its schema is wanted, and queries name the key."""
    import pyarrow.parquet as pq

    from penstock.errors import PlanError, UnreadableTable
    from penstock.tables import delta, folders, iceberg, manifest
    from penstock.tables.find import local

    where = local(path)
    if manifest.is_prepared(where) or delta.is_delta(where) or iceberg.is_iceberg(where):
        raise UnreadableTable(
            f"{where} does not say by which columns it is joined.", do=f'Open it: ps.table("{where}", key="…").'
        )
    found = folders.find(where)
    files = [file for file, _ in found.files if file.suffix == ".parquet"]
    if not files:
        raise UnreadableTable(f"{where} has no Parquet file.", do="Give a Parquet file, or a directory of them.")
    fault: PlanError | None = None
    for column in [*pq.read_schema(files[0]).names, *found.columns.names]:
        try:
            return table(where, key=column)
        except PlanError as error:
            fault = error
    raise fault or UnreadableTable(f"{where} has no columns.")
