"""A pipeline to begin with, written for files that are there."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.errors import BadOption, UnknownColumn
from penstock.plan.pipeline.columns import data_files, infer, name_of
from penstock.plan.pipeline.spec import FILES
from penstock.tables.find import local


@dataclass(frozen=True)
class _Found:
    """Files, what they are called in queries, and their columns."""

    name: str
    path: str
    format: str
    columns: pa.Schema
    key: tuple[str, ...] = ()

    @property
    def time(self) -> str | None:
        return next((field.name for field in self.columns if pa.types.is_timestamp(field.type)), None)


def starting(streams: Sequence[str], tables: Sequence[str], base: Path) -> str:
    """The text of a pipeline over streams (`path` or `name=path`) and tables (the same, with `:key` behind)."""
    if not streams:
        raise BadOption("There is no stream.", do="Give at least one: penstock init --stream orders/")
    found = [_found(said, base) for said in streams]
    joined = [_found(said, base, keyed=True) for said in tables]
    parts = [
        "# What runs is below; `penstock check` says whether all of it is right, `penstock run` runs it.",
        '# It ends when all input is read. For one that goes on: trigger = "1 second".',
        'trigger = "available_now"',
        "",
    ]
    for one in found:
        columns = ", ".join(f'{_key(field.name)} = "{name_of(field.type)}"' for field in one.columns)
        parts += [
            f"[streams.{one.name}]",
            f'path = "{one.path}"',
            f'format = "{one.format}"',
            f"columns = {{ {columns} }}",
        ]
        parts += [f'time = "{one.time}"'] if one.time else []
        parts += [""]
    for one in joined:
        key = ", ".join(f'"{name}"' for name in one.key)
        parts += [f"[tables.{one.name}]", f'path = "{one.path}"', f"key = [{key}]", ""]
    return "\n".join([*parts, *_query(found, joined)]) + "\n"


def _query(streams: list[_Found], tables: list[_Found]) -> list[str]:
    stream = streams[0]
    for table in tables:
        if all(name in stream.columns.names for name in table.key):
            on = " AND ".join(f"{stream.name}.{name} = {table.name}.{name}" for name in table.key)
            theirs = [
                name for name in table.columns.names if name not in table.key and name not in stream.columns.names
            ]
            chosen = ", ".join([f"{stream.name}.*", *(f"{table.name}.{name}" for name in theirs)])
            text = f"SELECT {chosen}\nFROM {stream.name}, {table.name}\nWHERE {on}"
            return ["[queries.enriched]", f'sql = """\n{text}"""', 'sink = { path = "enriched/" }']
    return ["[queries.all_rows]", f'sql = "SELECT * FROM {stream.name}"', 'sink = "console"']


def _found(said: str, base: Path, *, keyed: bool = False) -> _Found:
    name, equals, rest = said.partition("=")
    path = rest if equals else said
    key: tuple[str, ...] = ()
    if keyed:
        path, colon, keys = path.rpartition(":")
        if not colon or not keys:
            raise BadOption(
                f"{said!r} does not say the table's key.", do="Write it behind: --table products/:product_id"
            )
        key = tuple(part.strip() for part in keys.split(","))
    where = local(path)
    format_ = next((kind for kind in FILES if data_files(where, f".{kind}") and _has(where, kind)), None)
    if format_ is None:
        raise BadOption(f"{where} has no files of {', '.join(FILES)}.", do="Give a file, or a folder of such files.")
    columns = infer(where, format_, {})
    for column in key:
        if column not in columns.names:
            raise UnknownColumn.among(column, columns.names, str(where))
    called = name if equals else re.sub(r"\W+", "_", where.stem).strip("_").lower()
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", called):
        raise BadOption(f"{called!r} is no name.", do="Give one: --stream orders=2024-orders/")
    shown = os.path.relpath(where, base.absolute()).replace("\\", "/")
    return _Found(called, shown, format_, columns, key)


def _has(path: Path, format_: str) -> bool:
    names = [path] if path.is_file() else list(path.rglob(f"*.{format_}"))
    return any(name.suffix == f".{format_}" for name in names)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
