"""A pipeline to begin with, written for files that are there."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from sqlglot.tokens import Tokenizer

from penstock.errors import BadOption, UnknownColumn
from penstock.plan.pipeline.columns import (
    IN_MICROSECONDS,
    as_spark_has_them,
    check_no_folder_columns,
    comma_numbers,
    fits,
    folder_columns,
    found,
    name_of,
    nanoseconds,
    other_words,
)
from penstock.plan.pipeline.data_files import RECURSIVE, data_files, ending, passed_over
from penstock.plan.pipeline.spec import FILES
from penstock.tables import table as open_table
from penstock.tables.find import local

#: A number or a date.
_VALUE = re.compile(r"-?[\d.,]+|\d{2,4}[-/.]\d{1,2}[-/.]\d{1,4}")


@dataclass(frozen=True)
class _Found:
    """Files, what they are called in queries, and their columns."""

    name: str
    path: str
    format: str
    columns: pa.Schema
    key: tuple[str, ...] = ()
    #: What Spark has to be told of the files, and of which words are numbers that are none.
    options: tuple[tuple[str, str], ...] = ()
    #: Columns that are no single value, or one that Spark has no type for.
    left_out: tuple[pa.Field, ...] = ()
    #: Times that Spark does not read.
    nanoseconds: tuple[str, ...] = ()
    #: Columns that are in the names of folders and cannot be read from there.
    outside: tuple[str, ...] = ()
    #: Texts that would be numbers, if a point stood in them instead of a comma.
    commas: tuple[str, ...] = ()
    #: Whether the columns are to be written down, because they are not those that would be found.
    decided: bool = False

    @property
    def time(self) -> str | None:
        return next((field.name for field in self.columns if pa.types.is_timestamp(field.type)), None)

    @property
    def options_said(self) -> list[str]:
        said = ", ".join(f"{name} = {_text(value)}" for name, value in self.options)
        return [f"options = {{ {said} }}"] if said else []


def starting(streams: Sequence[str], tables: Sequence[str], base: Path) -> str:
    """The text of a pipeline over streams (`path` or `name=path`) and tables (the same, with `:key` behind)."""
    if not streams:
        raise BadOption("There is no stream.", do="Give at least one: penstock init --stream orders/")
    read = [_found(said, base) for said in streams]
    joined = [_found(said, base, keyed=True) for said in tables]
    read = [_with_keys_of(one, joined) for one in read]
    joined = [_with_types_of(one, read) for one in joined]
    names = [one.name.lower() for one in (*read, *joined)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadOption(f"Two are called {twice!r}.", do=f"Give one another name: --stream other={twice}/")
    parts = [
        "# Change this file as you like. `penstock check` finds mistakes in it, and `penstock run` runs it.",
        '# The pipeline ends when all files are read. To wait for new ones: trigger = "1 second".',
        'trigger = "available_now"',
        "",
    ]
    for one in read:
        parts += [
            f"[streams.{one.name}]",
            f"path = {_text(one.path)}",
            f'format = "{one.format}"',
            _columns_said(one),
        ]
        parts += _not_read(one)
        parts += (
            ['# These names look like values. If the files have no line of names: options = { header = "false" }']
            if one.format == "csv" and any(_VALUE.fullmatch(name) for name in one.columns.names)
            else []
        )
        parts += _commas(one)
        parts += [f"time = {_text(one.time)}"] if one.time else []
        parts += [*one.options_said, ""]
    for one in joined:
        key = ", ".join(map(_text, one.key))
        parts += [
            f"[tables.{one.name}]",
            f"path = {_text(one.path)}",
            f"key = [{key}]",
            *([_columns_said(one)] if one.decided else []),
            *_commas(one),
            *one.options_said,
            "",
        ]
    return "\n".join([*parts, *_query(read, joined)]) + "\n"


def _columns_said(one: _Found) -> str:
    columns = ", ".join(f'{_key(field.name)} = "{name_of(field.type)}"' for field in one.columns)
    return f"columns = {{ {columns} }}"


def _not_read(one: _Found) -> list[str]:
    nested = [field.name for field in one.left_out if pa.types.is_nested(field.type)]
    others = [field for field in one.left_out if not pa.types.is_nested(field.type)]
    reasons = {
        "a column is a single value": [_key(name) for name in nested],
        "of their types": [f"{_key(field.name)} ({field.type})" for field in others],
        "they are in the names of folders alone": [_key(name) for name in one.outside],
        "Spark reads no times in nanoseconds": [_key(name) for name in one.nanoseconds],
    }
    told = [f"# Not read, because {why}: {', '.join(names)}" for why, names in reasons.items() if names]
    return [*told, f"# {IN_MICROSECONDS}"] if one.nanoseconds else told


def _commas(one: _Found) -> list[str]:
    told = "# Texts, because a comma stands before the decimals of their numbers: "
    return [told + ", ".join(map(_key, one.commas))] if one.commas else []


def _with_keys_of(stream: _Found, tables: Sequence[_Found]) -> _Found:
    """The stream with texts for keys that are texts in a table: what looks like numbers is read as either."""
    if stream.format == "parquet":
        return stream
    texts = {name for table in tables for name in table.key if pa.types.is_string(table.columns.field(name).type)}
    columns = [pa.field(field.name, pa.string()) if field.name in texts else field for field in stream.columns]
    return replace(stream, columns=pa.schema(columns))


def _with_types_of(table: _Found, streams: Sequence[_Found]) -> _Found:
    """The table with its key in the stream's types: those of few rows, or none, may be another's of many."""
    if table.format != "csv":
        return table
    known = {field.name: field.type for stream in reversed(streams) for field in stream.columns}
    wanted = {name for name in table.key if name in known and pa.types.is_integer(table.columns.field(name).type)}
    wanted = {name for name in wanted if pa.types.is_string(known[name]) or pa.types.is_decimal(known[name])}
    if not wanted:
        return table
    columns = [pa.field(f.name, known[f.name]) if f.name in wanted else f for f in table.columns]
    return replace(table, columns=pa.schema(columns), decided=True)


def _query(streams: list[_Found], tables: list[_Found]) -> list[str]:
    stream = streams[0]
    for table in tables:
        if all(name in stream.columns.names for name in table.key):
            ours, other = _word(stream.name), _word(table.name)
            on = " AND ".join(f"{ours}.{_word(name)} = {other}.{_word(name)}" for name in table.key)
            theirs = [
                name for name in table.columns.names if name not in table.key and name not in stream.columns.names
            ]
            chosen = ", ".join([f"{ours}.*", *(f"{other}.{_word(name)}" for name in theirs)])
            text = f"SELECT {chosen}\nFROM {ours}, {other}\nWHERE {on}"
            return ["[queries.enriched]", f"sql = {_long(text)}", 'sink = { path = "enriched/" }']
    told = [
        f"# Not joined: {stream.name} has no column {_word(name)}, the key of {table.name}. If it has another name "
        f"there: WHERE {_word(stream.name)}.… = {_word(table.name)}.{_word(name)}"
        for table in tables
        for name in [name for name in table.key if name not in stream.columns.names][:1]
    ]
    return [*told, "[queries.all_rows]", f"sql = {_long(f'SELECT * FROM {_word(stream.name)}')}", 'sink = "console"']


def _found(said: str, base: Path, *, keyed: bool = False) -> _Found:
    path = said
    key: tuple[str, ...] = ()
    if keyed:
        path, colon, keys = path.rpartition(":")
        if not colon or not keys:
            raise BadOption(
                f"{said!r} does not say the table's key.", do="Write it behind: --table products/:product_id"
            )
        # A name that has a comma is written in quotes.
        key = tuple(part.strip() for part in next(csv.reader([keys], skipinitialspace=True)))
    name, equals, rest = path.partition("=")
    # Folders may have the sign in their names, as `day=2026-01-01` does, and then say no name.
    equals = "" if "/" in name or os.path.exists(os.path.expanduser(path)) else equals
    path = rest if equals else path
    where = local(path)
    format_ = next((kind for kind in FILES if data_files(where, f".{kind}") and _has(where, kind)), None)
    if format_ is None:
        empty = where.is_dir() and any(_has(where, kind) for kind in FILES)
        raise BadOption(
            f"{where} has {'only empty' if empty else 'no'} files of {', '.join(FILES)}.",
            do="Wait until something is in them." if empty else "Give a file, or a folder of such files.",
        )
    separator = _separator(where) if format_ == "csv" else None
    options = {"sep": separator} if separator else {}
    if not key and passed_over(where):
        options[RECURSIVE] = "true"
    there = _columns(where, format_, key, options)
    fine = nanoseconds(where) if format_ == "parquet" and not key else []
    there = pa.schema([field for field in there if field.name not in fine])
    columns = as_spark_has_them(pa.schema([field for field in there if fits(field)]), str(where))
    for column in key:
        if column not in columns.names:
            raise UnknownColumn.among(column, columns.names, str(where))
    left_out = tuple(field for field in there if not fits(field))
    outside = tuple(name for name in folder_columns(where, format_).names if name not in there.names)
    called = name if equals else re.sub(r"\W+", "_", where.stem).strip("_").lower()
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", called):
        raise BadOption(f"{called!r} is not a name.", do="Give one: --stream orders=2024-orders/")
    shown = os.path.relpath(where, base.absolute()).replace("\\", "/")
    if shown.startswith(".."):
        # A path goes up from the folder as it is, not as a link has it.
        shown = os.path.relpath(where, base.resolve()).replace("\\", "/")
    commas = comma_numbers(where, options) if format_ == "csv" else ()
    words = other_words(where, options) if format_ == "csv" else {}
    told = tuple({**options, **({} if key else words)}.items())  # a table is read by Arrow, which knows all words
    return _Found(called, shown, format_, columns, key, told, left_out, tuple(fine), () if key else outside, commas)


def _columns(where: Path, format_: str, key: tuple[str, ...], options: Mapping[str, str]) -> pa.Schema:
    if key and format_ == "parquet" and where.is_dir():
        return open_table(where, key=key).schema  # it may have columns that are in no file
    if key:
        check_no_folder_columns(where, format_)
    return found(where, format_, options)


def _has(path: Path, format_: str) -> bool:
    return any(ending(file) == f".{format_}" for file in ([path] if path.is_file() else path.rglob("*")))


def _separator(path: Path) -> str | None:
    """What separates names that would be one name with commas between them."""
    try:
        with pa.input_stream(data_files(path, ".csv")[0], compression="detect") as file:
            names = file.read(1 << 16).decode("utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return None  # who looks for the columns says what is wrong
    bare = re.sub(r'"[^"]*"', "", names)  # a comma in quotes is part of a name
    found = max(",;\t|", key=bare.count)  # the comma, if there are as many of it
    return None if found == "," else found


def _word(name: str) -> str:
    """A name as a query has it: in quotes where SQL would read something else."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name.upper() not in Tokenizer.KEYWORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


def _long(text: str) -> str:
    """A text of a query: as it stands, between quotes that it does not have."""
    if '"' in text and "'''" not in text:
        return f"'''\n{text}'''"
    told = text.replace("\\", "\\\\").replace('"""', '""\\"')
    return f'"""\n{told}"""'


def _text(text: str) -> str:
    # Of texts in JSON, those of TOML are the same, but for one character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)
