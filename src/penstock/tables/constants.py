"""Columns that have one value in all rows of a file: of a partition, or NULL where a column is newer than the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.tables import keys
from penstock.tables.arrow_types import fixed_width
from penstock.tables.base import Page
from penstock.tables.numbers import exact, numbers
from penstock.tables.parquet_memory import batch_rows


def repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of one value."""
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)


def span(value: Any, kind: pa.DataType) -> tuple[int, int] | None:
    """The value as the smallest and the largest of its column, where it is known as a number."""
    if value is None or not exact(kind):
        return None
    (number,), _ = numbers(repeated(value, kind, 1))
    return int(number), int(number)


def noted(page: Page, constants: Mapping[str, Any], fields: pa.Schema, key: tuple[str, ...]) -> Page:
    """The page, planned from what its file has, with what the constants add to it.

    Where the whole key is constant its hash is, too, and a page is passed over as those of a prepared table are.
    """
    columns = {name: repeated(value, fields.field(name).type, 1) for name, value in constants.items()}
    widths = {name: fixed_width(column.type) or 8 + column.nbytes for name, column in columns.items()}
    hashes = page.hashes
    if all(name in columns for name in key):
        (own,) = keys.hash_keys([columns[name] for name in key])
        hashes = int(own), int(own)
    held = sum(min(batch_rows(widths[name]), page.rows) * widths[name] for name in key if name in widths)
    width = page.row_width + sum(widths.values())
    return replace(page, hashes=hashes, hash_bytes=page.hash_bytes + held, row_width=width)
