"""The kinds of join keys that tests go through, each with a small pool of keys so that rows meet."""

from __future__ import annotations

from datetime import date
from typing import Any

import pyarrow as pa

from penstock.errors import BadOption

Key = tuple[Any, ...]

# Plain keys first: examples shrink towards them. Then those that break things: the ends of a type, what looks alike in
# one encoding but not in another, what has the same start.
_INTEGERS = [0, 1, 2, 7, -1, 2**63 - 1, -(2**63), 2**32]
_STRINGS = ["", "a", "b", "ab", "A", "a\0", "ä", "a\u0308", "long " * 60]
_DATES = [date(1970, 1, 1), date(2024, 2, 29), date(2026, 7, 1), date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31)]
# Pieces that give the same text when they are simply put together.
_COMPOSITES = [(1, "a"), (1, "b"), (2, "a"), (1, ""), (11, "1"), (1, "11"), (111, ""), (-(2**31), "ä")]
_GAPS = [(None, "a"), (1, None), (None, None)]

_KINDS: dict[str, tuple[pa.Schema, list[Key]]] = {
    "integer": (pa.schema([("k", pa.int64())]), [(k,) for k in _INTEGERS]),
    "string": (pa.schema([("k", pa.string())]), [(k,) for k in _STRINGS]),
    "date": (pa.schema([("k", pa.date32())]), [(k,) for k in _DATES]),
    "composite": (pa.schema([("k", pa.int32()), ("k2", pa.string())]), list(_COMPOSITES)),
    "nullable": (pa.schema([("k", pa.int64())]), [*((k,) for k in _INTEGERS[:6]), (None,)]),
    "nullable composite": (pa.schema([("k", pa.int32()), ("k2", pa.string())]), [*_COMPOSITES[:5], *_GAPS]),
}

#: Names of the kinds, to parametrise tests over.
KEY_KINDS: list[str] = list(_KINDS)


def key_schema(kind: str) -> pa.Schema:
    """The key columns of a kind; as in Spark, each may be null, but only the nullable kinds ever are."""
    return _look_up(kind)[0]


def key_names(kind: str) -> tuple[str, ...]:
    """The names of the key columns of a kind."""
    return tuple(key_schema(kind).names)


def key_pool(kind: str) -> list[Key]:
    """All keys of a kind that tests draw from."""
    return list(_look_up(kind)[1])


def _look_up(kind: str) -> tuple[pa.Schema, list[Key]]:
    if kind not in _KINDS:
        raise BadOption(f"There is no kind of key {kind!r}.", do=f"Choose one of: {', '.join(KEY_KINDS)}.")
    return _KINDS[kind]
